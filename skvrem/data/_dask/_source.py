"""Sources: rows that lie in the blocks of dask, and what belongs to them."""

from functools import partial
from itertools import pairwise
from operator import getitem
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from skvrem.data._batch import drawn_units, weighted
from skvrem.data._cut import Cut, batch_of
from skvrem.data._dask._containers import (
    NAMES,
    Columns,
    as_column,
    as_rows,
    blocks_of,
    check_lengths,
    floats,
    rowwise,
)
from skvrem.data._dask._partition import DaskPartition, RowState
from skvrem.data._dask._tasks import (
    HeldAway,
    apply,
    client,
    compute,
    delayed,
    keep,
    send,
)

# Bytes of rows that are fetched at once, in at most so many messages.
PIECE, PIECES = 1 << 19, 16


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
        X = floats(X)
    found = []
    for name, values in zip(Columns._fields, columns, strict=True):
        values, X = as_column(values, X, NAMES.get(name, name))
        found.append(values)
    blocks = Columns(*(blocks_of(values, X) for values in found))
    rows = list(X.to_delayed()[:, 0])
    check = send(partial(_look, look))
    tasks = [
        delayed(apply)(check, block, *parts)
        for block, parts in zip(rows, rowwise(blocks, len(rows)), strict=True)
    ]
    seen = compute(*tasks)
    source = DaskSource(rows, blocks, [one[0] for one in seen], X.shape[1], X.dtype)
    return source, [one[1] for one in seen]


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
    check_lengths(rows, {NAMES.get(name, name): values for name, values in named})
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

    def beside(self, fresh, again=None):
        """Return numbers of each row, ``fresh(n_rows)`` of a block; see `RowState`."""
        return RowState(fresh, again)

    def beside_again(self, again, point):
        """Return numbers of each row, ``again(point, rows)`` of a block."""
        return RowState(None, again, lost=True)

    def with_columns(self, function):
        """Return the source with other columns, made of these block by block, and kept.

        Parameters
        ----------
        function : callable
            ``function(columns)`` returns the `Columns` of a block.
        """
        make = send(partial(_made, function))
        made = keep(
            [
                delayed(apply)(make, facts, *parts)
                for facts, parts in zip(self.facts, self.by_block, strict=True)
            ]
        )
        found = compute(*(delayed(getitem)(one, 0) for one in made))
        present = found[0][1] if found else ()
        columns = (
            [delayed(_part)(one, name) for one in made] if name in present else None
            for name in Columns._fields
        )
        columns = Columns(*columns)
        facts = [one[0] for one in found]
        return DaskSource(self.parts, columns, facts, self.n_features, self.dtype)

    def with_rows(self, function):
        """Return the source with other rows, made anew where a pass needs a block.

        Parameters
        ----------
        function : callable
            ``function(rows)`` returns as many of as many features, of the same type.
        """
        make = send(function)
        rows = [delayed(apply)(make, part) for part in self.parts]
        about = self.columns, self.facts, self.n_features, self.dtype
        return DaskSource(rows, *about)

    def chunks(self):
        """All units, a block at a time."""
        sizes = [one.n_rows for one in self.facts]
        return DaskPartition(self, [min(1, size) for size in sizes], None)

    def blocks(self, n_blocks, rng):
        """Cut every dask block into minibatches, at most `n_blocks` or one each."""
        counts = [
            max(1, n_blocks * size // self.n_units) if size else 0
            for size in self.sizes
        ]
        return DaskPartition(self, counts, int(rng.integers(2**31)))

    #: How a block is cut into batches.
    cut = Cut

    @property
    def sizes(self):
        """Rows of each block."""
        return np.diff(self.edges).tolist()

    def weights_of(self, cuts):
        """Return the weights of the batches that blocks are cut into."""
        column, own = self.columns.weight, zip(cuts, self.sizes, strict=True)
        if column is None:
            edges = (cut.edges(n) for cut, n in own if cut.n_batches)
            return [float(b - a) for ends in edges for a, b in pairwise(ends)]
        tasks = [
            delayed(_weights)(cut, n, weight)
            for (cut, n), weight in zip(own, column, strict=True)
        ]
        return [weight for found in compute(*tasks) for weight in found]

    def sample(self, n_units, rng):
        """Fetch at most `n_units` random units, the same as of rows in memory."""
        return self.fetch(drawn_units(self, n_units, rng))

    def some(self, n_units, rng):
        """Return a source of as many random units, which are kept where all lie."""
        rows = drawn_units(self, n_units, rng)
        cuts = np.searchsorted(rows, self.edges)
        taken = keep(
            [
                delayed(_take)(rows[start:stop] - edge, block, *parts)
                for (start, stop), edge, block, parts in zip(
                    pairwise(cuts), self.edges, self.parts, self.by_block, strict=False
                )
            ]
        )
        return self._of_taken(taken)

    def without_weightless(self):
        """Return a source of the rows with a weight, taken where a pass needs them."""
        if self.n_weighted == self.n_units:
            return self
        take = delayed(_take_weighted)
        parts = zip(self.parts, self.by_block, strict=True)
        return self._of_taken([take(block, *columns) for block, columns in parts])

    def _of_taken(self, taken):
        """Return the source of blocks, rows and their columns."""
        facts = compute(*(delayed(_facts)(one) for one in taken))
        n = 1 + len(Columns._fields)
        parts = [[delayed(getitem)(one, i) for one in taken] for i in range(n)]
        columns = (
            None if part is None else own
            for part, own in zip(self.columns, parts[1:], strict=True)
        )
        return DaskSource(
            parts[0], Columns(*columns), list(facts), self.n_features, self.dtype
        )

    @property
    def by_block(self):
        """The columns of each block."""
        return list(rowwise(self.columns, len(self.parts)))

    def every(self, step):
        """Fetch every `step`-th row, as a batch in memory."""
        return self.fetch(np.arange(0, self.n_units, step))

    @property
    def has_weights(self):
        """Whether rows have weights, zero ones maybe."""
        return self.columns.weight is not None

    def weighted(self, places=None):
        """Return rows with a weight, or at places of it: see `weighted`."""
        ends = np.cumsum([0.0, *(one.weight for one in self.facts)])
        tasks, edges = [], []
        for i, weight in enumerate(self.columns.weight):
            if not self.facts[i].n_weighted:
                continue
            own = None
            if places is not None:
                a, b = np.searchsorted(places, ends[i : i + 2])
                own = places[a:b] - ends[i]
            tasks.append(delayed(_weighted)(weight, own))
            edges.append(self.edges[i])
        units, weight = zip(*compute(*tasks), strict=True)
        units = [own + edge for own, edge in zip(units, edges, strict=True)]
        return np.concatenate(units), np.concatenate(weight)

    def units_at(self, places):
        """Return rows at places among those with a weight, in order."""
        ends = np.cumsum([0, *(one.n_weighted for one in self.facts)])
        cuts = np.searchsorted(places, ends)
        tasks, edges = [], []
        for i, (a, b) in enumerate(pairwise(cuts)):
            if a < b:
                weight = self.columns.weight[i]
                tasks.append(delayed(_units_at)(weight, places[a:b] - ends[i]))
                edges.append(self.edges[i])
        units = zip(compute(*tasks), edges, strict=True)
        return np.concatenate([own + edge for own, edge in units])

    def fetch(self, rows):
        """Fetch rows of increasing numbers, as a batch in memory."""
        return _batch(*self._gathered(keep(self._taken(rows)), len(rows)))

    def ask(self, function, units, rng):
        """Return what a function says of units, and of random numbers.

        It travels to a worker, where they are brought together, and not to the client,
        who may have room for less.
        """
        if client() is None:
            return function(self.fetch(units), rng)
        return HeldAway(_brought, *self._taken(units)).ask(function, rng)

    def _taken(self, rows):
        """Return the tasks of taking rows of increasing numbers from their blocks."""
        cuts = np.searchsorted(rows, self.edges)
        return [
            delayed(_take)(rows[cuts[i] : cuts[i + 1]] - self.edges[i], block, *parts)
            for i, (block, parts) in enumerate(
                zip(self.parts, self.by_block, strict=True)
            )
            if cuts[i] < cuts[i + 1]
        ]

    def _gathered(self, taken, n_rows):
        """Return rows and their columns, in memory, of parts that are kept."""
        if self.sparse:
            return _together(compute(*taken))
        # A few of the parts come at once, and are copied before the next do.
        rows, start, columns = np.empty((n_rows, self.n_features), self.dtype), 0, []
        size = max(PIECE // rows.itemsize // self.n_features, n_rows // PIECES)
        n_messages = min(len(taken), -(-n_rows // size))
        for some in np.array_split(np.arange(len(taken)), n_messages):
            for block, *beside in compute(*(taken[i] for i in some)):
                rows[start : start + len(block)] = block
                start += len(block)
                columns.append(beside)
        return rows, map(_joined, zip(*columns, strict=True))


def _made(function, facts, *columns):
    columns = function(Columns(*columns))
    weight = columns.weight
    if weight is not None:
        facts = facts._replace(
            weight=float(weight.sum()), n_weighted=int(np.count_nonzero(weight))
        )
    present = [name for name in Columns._fields if getattr(columns, name) is not None]
    return (facts, present), columns


def _weights(cut, n_rows, weight):
    return cut.weights(n_rows, np.asarray(weight, float))


def _units_at(weight, places):
    return np.flatnonzero(weight)[places]


def _weighted(weight, places):
    return weighted(np.asarray(weight, float), places)


def _joined(parts):
    return None if parts[0] is None else np.concatenate(parts)


def _part(made, name):
    return getattr(made[1], name)


def _together(taken):
    """Return rows and their columns, of parts of them."""
    blocks, *columns = zip(*taken, strict=True)
    join = sp.vstack if sp.issparse(blocks[0]) else np.concatenate
    return join(blocks), map(_joined, columns)


def _batch(rows, columns):
    n = rows.shape[0]
    return batch_of(rows, Columns(*columns), np.arange(n, dtype=np.int32), 0, n, 0)


def _brought(*taken):
    return _batch(*_together(taken))


def _take(rows, block, *columns):
    return block[rows], *(None if part is None else part[rows] for part in columns)


def _take_weighted(block, weight, *columns):
    return _take(np.flatnonzero(weight), block, weight, *columns)
