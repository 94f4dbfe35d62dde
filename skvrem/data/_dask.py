"""Rows of dask containers: passes travel to the blocks, minibatches come block-wise.

A full pass sends the model and its parameters to the blocks once, evaluates each where
it lies and adds the statistics up in a tree, so that only statistics travel. What
belongs to the rows (weights, targets, groups) is sent once and kept beside them. The
engine is dask's, whichever scheduler it is told to use; the array as a whole is never
in one place.

An epoch of minibatches fetches every block once, the next two while the last two are at
work: a task a minibatch would cost a round trip each.
"""

from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial, reduce
from itertools import pairwise
from operator import getitem
from typing import Any, NamedTuple
from uuid import uuid4

import dask
import dask.array as da
import numpy as np
import scipy.sparse as sp

from skvrem.data._batch import RowBatch, csr_rows, draw, sparse
from skvrem.utils._algebra import accumulate, dense, read_only
from skvrem.utils._remote import check_table, is_frame, of_dask

# Blocks that are shuffled into each other, in case each holds rows of one kind.
WINDOW = 2
# Bytes of a message that brings what belongs to rows; dask warns of larger ones.
MESSAGE = 1 << 22

# Beside the rows


class Columns(NamedTuple):
    """What belongs to the rows of a block, or to those of all blocks (lists of each).

    None is what there is not.
    """

    weight: Any = None
    targets: Any = None
    groups: Any = None
    offset: Any = None


def compute(*tasks):
    """Return what tasks come to.

    Raises
    ------
    RuntimeError
        If the cluster went away that was to run them.
    """
    try:
        return dask.compute(*tasks)
    except (CancelledError, OSError, RuntimeError, ValueError) as error:
        name, text = type(error).__name__, str(error)
        lost = isinstance(error, CancelledError) or "Cancelled" in name
        closed = "CommClosed" in name or "Client" in text or "Scheduler" in name
        # What was kept by a cluster, asked of another scheduler.
        if not (lost or closed or text.startswith("Missing dependency")):
            raise
        raise RuntimeError(
            "The dask cluster was closed, or has lost the data, before the computation "
            "ended. Connect to a cluster, load the array again and fit once more: a "
            "fit that writes a skvrem.Checkpoint goes on from there."
        ) from error


def _delayed(function):
    """Return a function to be called where its arguments are, under a name of its own.

    Hashing what it is called with would take as long as sending it.
    """
    return dask.delayed(function, pure=False, traverse=False)


def _sent(thing):
    """Return a thing that many tasks need, which travels once."""
    name = f"skvrem-{type(thing).__name__}-{uuid4().hex}"
    return dask.delayed(thing, name=name, traverse=False)


def _kept(tasks):
    """Make what tasks come to now, and keep it where it was made.

    In messages that are not too long, where they carry arrays.
    """
    return list(dask.persist(*tasks)) if tasks else []


def _kept_slices(array, edges):
    """Send parts of an array to where the rows are, and keep them there."""
    kept, some, size = [], [], 0
    for start, stop in pairwise(edges):
        part = array[start:stop]
        some.append(_delayed(np.array)(part, copy=True))
        size += part.nbytes
        if size > MESSAGE:
            kept, some, size = kept + _kept(some), [], 0
    return kept + _kept(some)


# Blocks of containers


def as_rows(X):
    """Return a container of dask as an array of whole rows in every block.

    Parameters
    ----------
    X : dask array, DataFrame or Series
        Sizes of the blocks may be unknown; columns may be cut.

    Raises
    ------
    ValueError
        If it is not two-dimensional, or how many columns it has is not known.
    """
    check_table(X)
    if is_frame(X):
        X = X.to_dask_array()
    if X.ndim != 2:
        raise ValueError(
            f"Expected a 2-dimensional dask array, got {X.ndim} dimensions."
        )
    if np.isnan(X.shape[1]):
        raise ValueError(
            "X does not know how many columns its chunks have: call "
            "X.compute_chunk_sizes() first."
        )
    if X.shape[0] == 0:
        raise ValueError("Found array with 0 sample(s): X has no rows.")
    return X.rechunk({1: -1}) if X.numblocks[1] > 1 else X


def _sized(X):
    """Return an array of blocks whose sizes are known, the caller's as it was."""
    known = not any(np.isnan(size) for size in X.chunks[0])
    return X if known else X.copy().compute_chunk_sizes()


def as_column(values, X, name):
    """Return what belongs to the rows of X, one by one, in the blocks of X.

    Parameters
    ----------
    values : array-like, dask array or Series of shape (n,), or None
    X : dask array
        Of whole rows.
    name : str
        For messages.

    Returns
    -------
    values : dask array or None
    X : dask array
        With the sizes of its blocks, where these had to be found.

    Raises
    ------
    ValueError
        If there are not as many as rows.
    """
    if values is None:
        return None, X
    if of_dask(values):
        if hasattr(values, "to_dask_array"):
            values = values.to_dask_array()
        if values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        unknown = np.isnan(values.shape[0]) or np.isnan(X.shape[0])
        if unknown and values.numblocks[0] == X.numblocks[0]:
            return values, X  # whose blocks are compared one by one
        values, X = _sized(values), _sized(X)
    else:
        X = _sized(X)
        values = values if isinstance(values, np.ndarray) else np.asarray(values)
    if values.ndim != 1 or values.shape[0] != X.shape[0]:
        raise ValueError(
            f"Found input variables with inconsistent numbers of samples: {name} must "
            f"have one value for each of the {int(X.shape[0])} rows of X, got shape "
            f"{tuple(values.shape)}."
        )
    if of_dask(values):
        return values.rechunk((X.chunks[0],)), X
    return values, X


def _blocks_of(column, X):
    """Return the blocks of a column, in memory sent to where the rows are."""
    if column is None:
        return None
    if of_dask(column):
        return list(column.to_delayed())
    edges = np.concatenate([[0], np.cumsum(X.chunks[0])]).astype(int)
    return _kept_slices(column, edges)


def open_blocks(X, look, columns=None, numbers=True):
    """Look at every block of rows once, and return what has been seen and a source.

    Parameters
    ----------
    X : dask array or DataFrame
    look : callable
        ``look(rows, columns)`` returns what is to be known of a block, or raises what
        is wrong with it; called where the block lies, also for one without rows.
    columns : Columns of array-likes or dask arrays, default=None
        What belongs to the rows. Weights have been checked where they are in memory.
    numbers : bool, default=True
        Rows are numbers, and made float64 where they are not float32.

    Returns
    -------
    source : DaskSource
    seen : list
        What `look` returned of each block.
    """
    X, columns = as_rows(X), Columns() if columns is None else columns
    if numbers:
        X = _floats(X)
    found = []
    for name, values in zip(Columns._fields, columns, strict=True):
        values, X = as_column(values, X, NAMES.get(name, name))
        found.append(values)
    blocks = Columns(*(_blocks_of(values, X) for values in found))
    rows = list(X.to_delayed()[:, 0])
    check = _sent(partial(_look, look))
    tasks = [
        _delayed(apply)(check, block, *parts)
        for block, parts in zip(rows, _rowwise(blocks, len(rows)), strict=True)
    ]
    seen = compute(*tasks)
    source = DaskSource(rows, blocks, [one[0] for one in seen], X.shape[1], X.dtype)
    return source, [one[1] for one in seen]


#: Names of arguments, for messages.
NAMES = {"weight": "sample_weight", "targets": "y"}


def _floats(X):
    if X.dtype.kind not in "fiubO":
        raise ValueError(f"X must be numeric, got dtype {X.dtype}.")
    return X if X.dtype in (np.float32, np.float64) else X.astype(np.float64)


def _rowwise(columns, n_blocks):
    """Yield the columns of each block."""
    nothing = [None] * n_blocks
    return zip(*(nothing if part is None else part for part in columns), strict=True)


def apply(function, *arguments):
    """Return what a function, which a task may have made, says of its arguments."""
    return function(*arguments)


class BlockFacts(NamedTuple):
    """Of the rows of a block: how many, their entries, weights, and how many of these.

    `entries` are None but for sparse rows.
    """

    n_rows: int
    entries: int | None
    weight: float
    n_weighted: int


def _look(look, rows, *columns):
    """Return the facts of a block, and what else is to be known of it."""
    columns = Columns(*columns)
    named = zip(Columns._fields, columns, strict=True)
    _check_lengths(rows, {NAMES.get(name, name): values for name, values in named})
    return _facts((rows, *columns)), look(rows, columns)


def _facts(block):
    rows, weight = block[:2]
    n = rows.shape[0]
    return BlockFacts(
        n,
        int(rows.nnz) if sp.issparse(rows) else None,
        float(n if weight is None else weight.sum()),
        int(n if weight is None else np.count_nonzero(weight)),
    )


# Sources and partitions


class DaskSource:
    """Rows that lie in the blocks of dask, and what belongs to them.

    Parameters
    ----------
    rows : list of dask.delayed.Delayed
        Whole rows, an array or a CSR matrix each.
    columns : Columns of lists of dask.delayed.Delayed
    facts : list of BlockFacts
    n_features : int
    dtype : dtype
        Of the rows.
    """

    remote = True

    def __init__(self, rows, columns, facts, n_features, dtype):
        self.parts, self.columns, self.facts = rows, columns, facts
        self.n_features, self.dtype = n_features, np.dtype(dtype)
        self.edges = np.cumsum([0, *(one.n_rows for one in facts)])
        self.n_units = int(self.edges[-1])
        self.sparse = any(one.entries is not None for one in facts)
        self.n_entries = (
            sum(one.entries or 0 for one in facts)
            if self.sparse
            else self.n_units * n_features
        )
        self.total_weight = float(sum(one.weight for one in facts))
        self.n_weighted = sum(one.n_weighted for one in facts)

    def beside(self, fresh):
        """Return numbers of each row, ``fresh(n_rows)`` of a block; see `RowState`."""
        return RowState(fresh)

    def with_columns(self, function):
        """Return the source with other columns, made of these block by block, and kept.

        Parameters
        ----------
        function : callable
            ``function(columns)`` returns the `Columns` of a block.
        """
        make = _sent(partial(_made, function))
        made = _kept(
            [
                _delayed(apply)(make, facts, *parts)
                for facts, parts in zip(self.facts, self._columns, strict=True)
            ]
        )
        found = compute(*(_delayed(getitem)(one, 0) for one in made))
        present = found[0][1] if found else ()
        columns = (
            [_delayed(_part)(one, name) for one in made] if name in present else None
            for name in Columns._fields
        )
        columns = Columns(*columns)
        facts = [one[0] for one in found]
        return DaskSource(self.parts, columns, facts, self.n_features, self.dtype)

    def chunks(self):
        """All units, a block at a time."""
        sizes = [one.n_rows for one in self.facts]
        return DaskPartition(self, [min(1, size) for size in sizes], None)

    def blocks(self, n_blocks, rng):
        """Cut every dask block into minibatches, about `n_blocks` in all."""
        sizes = np.diff(self.edges)
        counts = [
            max(1, round(n_blocks * size / self.n_units)) if size else 0
            for size in sizes
        ]
        return DaskPartition(self, counts, int(rng.integers(2**31)))

    def sample(self, n_units, rng):
        """Fetch at most `n_units` random units, the same as of rows in memory."""
        n_units = min(n_units, self.n_units)
        return self.fetch(draw(self.n_units, n_units, rng))

    def some(self, n_units, rng):
        """Return a source of as many random units, which are kept where all lie."""
        rows = draw(self.n_units, min(n_units, self.n_units), rng)
        cuts = np.searchsorted(rows, self.edges)
        taken = _kept(
            [
                _delayed(_take)(rows[start:stop] - edge, block, *parts)
                for (start, stop), edge, block, parts in zip(
                    pairwise(cuts), self.edges, self.parts, self._columns, strict=False
                )
            ]
        )
        facts = compute(*(_delayed(_facts)(one) for one in taken))
        n = 1 + len(Columns._fields)
        parts = [[_delayed(getitem)(one, i) for one in taken] for i in range(n)]
        columns = (
            None if part is None else own
            for part, own in zip(self.columns, parts[1:], strict=True)
        )
        return DaskSource(
            parts[0], Columns(*columns), list(facts), self.n_features, self.dtype
        )

    @property
    def _columns(self):
        """The columns of each block."""
        return list(_rowwise(self.columns, len(self.parts)))

    def every(self, step):
        """Fetch every `step`-th row, as a batch in memory."""
        return self.fetch(np.arange(0, self.n_units, step))

    def fetch(self, rows):
        """Fetch rows of increasing numbers, as a batch in memory."""
        cuts = np.searchsorted(rows, self.edges)
        tasks = [
            _delayed(_take)(rows[cuts[i] : cuts[i + 1]] - self.edges[i], block, *parts)
            for i, (block, parts) in enumerate(
                zip(self.parts, self._columns, strict=True)
            )
            if cuts[i] < cuts[i + 1]
        ]
        fetched = list(zip(*compute(*tasks), strict=True))
        stack = sp.vstack if sp.issparse(fetched[0][0]) else np.concatenate
        columns = (
            None if parts[0] is None else np.concatenate(parts) for parts in fetched[1:]
        )
        index = np.arange(len(rows), dtype=np.int32)
        return _batch(stack(fetched[0]), Columns(*columns), index, 0, len(rows), 0)


def _made(function, facts, *columns):
    columns = function(Columns(*columns))
    weight = columns.weight
    if weight is not None:
        facts = facts._replace(
            weight=float(weight.sum()), n_weighted=int(np.count_nonzero(weight))
        )
    present = [name for name in Columns._fields if getattr(columns, name) is not None]
    return (facts, present), columns


def _part(made, name):
    return getattr(made[1], name)


def _take(rows, block, *columns):
    return block[rows], *(None if part is None else part[rows] for part in columns)


class DaskPartition:
    """Minibatches of the blocks of a source.

    Parameters
    ----------
    source : DaskSource
    counts : list of int
        Minibatches of each block.
    seed : int or None
        Orders the rows within the blocks, the same wherever a block is read. None:
        as they are.
    """

    def __init__(self, source, counts, seed):
        self.source = source
        self.total_weight = source.total_weight
        self.n_batches, self.specs = 0, []
        for part, n in enumerate(counts):
            seeds = None if seed is None else [seed, part]
            self.specs.append((n, self.n_batches, seeds))
            self.n_batches += n

    def __len__(self):
        return self.n_batches

    def map(self, function):
        """Yield ``function(batch)`` in the order of the batches."""
        for results in compute(*self._tasks(_map, function)):
            yield from results

    def sum(self, function):
        """Return the sum of ``function(batch)``, reduced in a tree near the rows.

        Fields of named tuples that `function` was made of may be `RowState`: it sees
        the numbers of the batch's own rows in their place.
        """
        places = _places(function)
        if places:
            return self._sum_beside(function, places)
        return _joined(self._tasks(_sum, function), _add)

    def reduce(self, function, merge):
        """Return what ``merge(a, b)`` makes of ``function(batch)`` of chunks, in order.

        Neither may change what it is given.
        """
        return _joined(self._tasks(_map_one, function), merge)

    def _sum_beside(self, function, places):
        """Return the sum of a function that reads and writes what is beside rows."""
        besides = [getattr(function.args[i], name) for i, name in places]
        written = [name in function.args[i].written for i, name in places]
        function = _without(function, places)
        states = zip(*(one.of_blocks(len(self.specs)) for one in besides), strict=True)
        how = places, written, [one.fresh for one in besides]
        what, function = _delayed(_sum_of_both), _sent(function)
        source = self.source
        blocks = zip(source.parts, source._columns, states, strict=True)
        kept = [
            what(function, how, list(state), block, *parts)
            for block, parts, state in blocks
        ]
        kept = _kept(kept)
        layer = [
            _delayed(getitem)(one, 0)
            for one, spec in zip(kept, self.specs, strict=True)
            if spec[0]
        ]
        total, number = _joined(layer, _add), 0
        for beside, own in zip(besides, written, strict=True):
            if own:
                beside.blocks = [_delayed(_state_of)(one, number) for one in kept]
                number += 1
        return total

    def _tasks(self, what, function):
        """One for each block, to be made where its rows are."""
        what, function, source = _delayed(what), _sent(function), self.source
        return [
            what(function, spec, block, *parts)
            for spec, block, parts in zip(
                self.specs, source.parts, source._columns, strict=True
            )
            if spec[0]
        ]

    def shuffled(self, rng):
        """Yield every batch once, from two blocks at a time, fetching ahead."""
        order = rng.permutation(len(self.specs))
        windows = [order[i : i + WINDOW] for i in range(0, len(order), WINDOW)]
        # The context carries the client into the thread that fetches.
        with ThreadPoolExecutor(1) as pool:
            coming = pool.submit(copy_context().run, self._fetch, windows[0])
            for following in [*windows[1:], None]:
                batches = coming.result()
                if following is not None:
                    coming = pool.submit(copy_context().run, self._fetch, following)
                for i in rng.permutation(len(batches)):
                    yield batches[i]

    def _fetch(self, window):
        columns = self.source._columns
        blocks = compute(
            *[(self.source.parts[part], *columns[part]) for part in window]
        )
        return [
            batch
            for part, block in zip(window, blocks, strict=True)
            for batch in _batches(self.specs[part], *block)
        ]


def _batch(rows, columns, index, start, stop, block):
    if sp.issparse(rows):
        rows = csr_rows(rows)
    elif not sparse(rows):
        rows = read_only(np.ascontiguousarray(rows))
    weight = np.empty(0) if columns.weight is None else columns.weight
    ends = read_only(index), start, stop, read_only(np.asarray(weight, float)), block
    return RowBatch(rows, *ends, _own(columns.targets), _own(columns.groups))


def _own(values):
    """Return an array that could be written to: what came by wire is another type."""
    writeable = values is None or values.flags.writeable
    return values if writeable else values.copy()


def _batches(spec, rows, *columns):
    """Cut the rows of one block into batches."""
    n_batches, first, seed = spec
    if n_batches == 0:
        return []
    n_rows, columns = rows.shape[0], Columns(*columns)
    index = np.empty(0, np.int32)
    edges = [n_rows * i // n_batches for i in range(n_batches + 1)]
    if seed is not None:
        index = np.arange(n_rows, dtype=np.int32)
        np.random.default_rng(seed).shuffle(index)
        for start, stop in pairwise(edges):
            index[start:stop].sort()
    return [
        _batch(rows, columns, index, start, stop, first + i)
        for i, (start, stop) in enumerate(pairwise(edges))
    ]


def _map(function, spec, *block):
    return [function(batch) for batch in _batches(spec, *block)]


def _sum(function, spec, *block):
    return reduce(accumulate, _map(function, spec, *block), None)


def _map_one(function, spec, *block):
    (batch,) = _batches(spec, *block)
    return function(batch)


class RowState:
    """Numbers of each row that live beside the rows, where these lie.

    What a pass writes to is kept there for the next one. dask makes it again where it
    is lost. It does not travel: a copy that has been pickled begins anew.

    Parameters
    ----------
    fresh : callable
        ``fresh(n_rows)`` returns what a block begins with.
    blocks : list of dask.delayed.Delayed, default=None
    """

    def __init__(self, fresh, blocks=None):
        self.fresh, self.blocks = fresh, blocks

    def copy(self):
        """Return the same numbers, to be written to."""
        return RowState(self.fresh, self.blocks)

    def of_blocks(self, n_blocks):
        """Return what there is of each block, None where it begins."""
        return [None] * n_blocks if self.blocks is None else self.blocks

    def __getstate__(self):
        return {"fresh": self.fresh, "blocks": None}


def _places(function):
    """Return where arguments of a function have what lives beside rows."""
    return [
        (number, name)
        for number, argument in enumerate(getattr(function, "args", ()))
        for name in getattr(argument, "_fields", ())
        if isinstance(getattr(argument, name), RowState)
    ]


def _without(function, places, values=None):
    """Return a function whose arguments have other values there, by default None."""
    values, arguments = values or [None] * len(places), list(function.args)
    for (number, name), value in zip(places, values, strict=True):
        arguments[number] = arguments[number]._replace(**{name: value})
    return partial(function.func, *arguments, **function.keywords)


def _sum_of_both(function, how, states, rows, *columns):
    """Return the sum over a block, and what it has written beside the rows."""
    places, written, fresh = how
    n = rows.shape[0]
    # Copies, as a task must not write to what another has made.
    own = [
        make(n) if state is None else state.copy()
        for make, state in zip(fresh, states, strict=True)
    ]
    found = None
    if n:
        function = _without(function, places, own)
        found = _sum(function, (1, 0, None), rows, *columns)
    return found, [one for one, new in zip(own, written, strict=True) if new]


def _state_of(kept, number):
    return kept[1][number]


def _add(a, b):
    # A copy, as a task must not write to what another has made.
    return accumulate(dense(a), b)


# Answers


def answers(function, X, columns, trailing, dtype):
    """Return what a function says of rows, lazily, block by block.

    Parameters
    ----------
    function : callable
        ``function(rows, **columns)`` returns an array of shape (n, *trailing).
    X : dask array or DataFrame
    columns : dict of str to array-like or dask array of shape (n,), or None
    trailing : tuple of int
    dtype : dtype

    Returns
    -------
    answer : dask array of shape (n, *trailing)
    """
    rows = as_rows(X)
    given = {}
    for name, values in columns.items():
        values, rows = as_column(values, rows, name)
        if values is not None:
            chunks = (rows.chunks[0],)
            given[name] = values if of_dask(values) else da.from_array(values, chunks)
    function = partial(_answer, function, list(given), trailing, dtype)
    if is_frame(X):  # whose parts know the names of their columns
        parts = [values.to_delayed() for values in given.values()]
        blocks = zip(X.to_delayed(), *parts, strict=True)
        blocks = [_delayed(function)(*block) for block in blocks]
        sizes = rows.chunks[0]
        arrays = [
            da.from_delayed(block, (size, *trailing), dtype)
            for block, size in zip(blocks, sizes, strict=True)
        ]
        return da.concatenate(arrays, allow_unknown_chunksizes=True)
    axes = tuple(f"k{i}" for i in range(len(trailing)))
    return da.blockwise(
        function,
        ("i", *axes),
        rows,
        ("i", "j"),
        *(part for values in given.values() for part in (values, ("i",))),
        new_axes=dict(zip(axes, trailing, strict=True)),
        dtype=dtype,
        meta=np.empty((0,) * (1 + len(trailing)), dtype),
        concatenate=True,
        align_arrays=False,
    )


def _answer(function, names, trailing, dtype, rows, *columns):
    if not rows.shape[0]:
        return np.empty((0, *trailing), dtype)
    return function(rows, **dict(zip(names, columns, strict=True)))


def total(function, X, columns):
    """Return the sum over blocks of what a function says of them.

    Parameters
    ----------
    function : callable
        ``function(rows, **columns)`` returns an array of numbers.
    X : dask array or DataFrame
    columns : dict of str to array-like or dask array of shape (n,), or None
    """
    blocks, names, parts = _opened(X, columns)
    function = _sent(partial(_part_of_total, function, names))
    layer = [
        _delayed(apply)(function, *block) for block in zip(blocks, *parts, strict=True)
    ]
    return _joined(layer, np.add)


def _joined(layer, merge):
    """Return what tasks come to, merged in a tree near to where these are done."""
    merge = _delayed(merge)
    while len(layer) > 1:
        pairs = [merge(*layer[i : i + 2]) for i in range(0, len(layer) - 1, 2)]
        layer = pairs + layer[2 * len(pairs) :]
    return compute(layer[0])[0]


def _part_of_total(function, names, rows, *columns):
    columns = dict(zip(names, columns, strict=True))
    _check_lengths(rows, columns)
    return function(rows, **columns)


def fetched(X, columns):
    """Yield the blocks of X that have rows, in memory, one after the other.

    Parameters
    ----------
    X : dask array or DataFrame
    columns : dict of str to array-like or dask array of shape (n,), or None

    Yields
    ------
    rows : ndarray, sparse matrix or pandas.DataFrame
    columns : dict of str to ndarray, those that are not None
    """
    blocks, names, parts = _opened(X, columns)
    for block, *own in zip(blocks, *parts, strict=True):
        rows, *own = compute(block, *own)
        if rows.shape[0]:
            given = dict(zip(names, own, strict=True))
            _check_lengths(rows, given)
            yield rows, given


def _opened(X, columns):
    """Return the blocks of X, the names of its columns, and their blocks."""
    rows, given = as_rows(X), {}
    for name, values in columns.items():
        values, rows = as_column(values, rows, name)
        if values is not None:
            given[name] = values
    blocks = X.to_delayed() if is_frame(X) else rows.to_delayed()[:, 0]
    return list(blocks), list(given), [_blocks_of(v, rows) for v in given.values()]


def _check_lengths(rows, columns):
    for name, values in columns.items():
        if values is not None and len(values) != rows.shape[0]:
            raise ValueError(
                f"Found input variables with inconsistent numbers of samples: a block "
                f"of X has {rows.shape[0]} rows, and that of {name} {len(values)}."
            )


# Blocks of any kind, and what is made of them


def parts_of(X):
    """Return the blocks of a container, frames as frames, and their sizes.

    Parameters
    ----------
    X : dask array of shape (n,) or (n, n_columns), DataFrame or Series

    Returns
    -------
    parts : list of dask.delayed.Delayed
    sizes : tuple
        Rows of each; NaN where that is not known.
    """
    if is_frame(X):
        return list(X.to_delayed()), (np.nan,) * X.npartitions
    if getattr(X, "ndim", 1) == 1 and hasattr(X, "numblocks"):
        return list(X.to_delayed()), X.chunks[0]
    X = as_rows(X)
    return list(X.to_delayed()[:, 0]), X.chunks[0]


def call(function, *arguments):
    """Return the task of calling a function where what it takes is."""
    return _delayed(function)(*arguments)


def send(thing):
    """Return a thing that many tasks need, which travels once."""
    return _sent(thing)


def keep(tasks):
    """Make what tasks come to now, and keep it where it was made."""
    return _kept(tasks)


def add_up(tasks):
    """Return the sum of the statistics that tasks come to, added up near them."""
    return _joined(tasks, _add)


def array_of(tasks, sizes, trailing, dtype):
    """Return what tasks come to, of so many rows each, as a dask array."""
    meta = np.empty((0,) * (1 + len(trailing)), dtype)
    parts = [
        da.from_delayed(task, (int(size), *trailing), meta=meta)
        for task, size in zip(tasks, sizes, strict=True)
    ]
    return da.concatenate(parts)


def stacked(frames):
    """Return the rows of frames, one after another."""
    from dask.dataframe import methods

    return methods.concat(frames)
