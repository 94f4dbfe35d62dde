"""Partitions: the batches of blocks, evaluated where they lie, and what stays there."""

from functools import partial, reduce
from itertools import pairwise
from operator import getitem
from typing import Any, NamedTuple

from skvrem.data._dask._tasks import (
    add,
    apply,
    bytes_of,
    compute,
    delayed,
    is_lost,
    joined,
    keep,
    lend,
    send,
)
from skvrem.utils._algebra import accumulate
from skvrem.utils._remote import LostBesideRows

# Blocks that are shuffled into each other, in case each holds rows of one kind.
WINDOW = 2
# Bytes that a scheduler keeps of points, to make again what lives beside rows.
MOST_HELD = 1 << 26


class RemoteBatch(NamedTuple):
    """A batch that lies elsewhere.

    Attributes
    ----------
    block : int
        Its number among all.
    part, number : int
        Number of the block of dask, and its own there.
    total_weight : float
    index, rows : dask.delayed.Delayed
    columns : tuple of dask.delayed.Delayed or None
    """

    block: int
    part: int
    number: int
    total_weight: float
    index: Any
    rows: Any
    columns: tuple


class DaskPartition:
    """Batches of the blocks of a source.

    A function of a batch is evaluated where the batch lies. Fields of named tuples that
    it was made of (a partial) may be `RowState`: it sees the numbers of the block's own
    rows in their place. What is kept of a batch (an entry of a table) stays there.

    Parameters
    ----------
    source : DaskSource
        Or what has its `parts`, `by_block`, `sizes`, `cut` and `weights_of`.
    counts : list of int
        Batches of each block.
    seed : int or None
        Orders the rows within the blocks. None: as they are.
    """

    def __init__(self, source, counts, seed):
        self.source = source
        self.total_weight = source.total_weight
        self.n_batches, self.cuts, self.weights = 0, [], None
        #: Something beside rows was lost since this was last false.
        self.remade = False
        for part, n in enumerate(counts):
            seeds = None if seed is None else [seed, part]
            self.cuts.append(source.cut(n, self.n_batches, seeds))
            self.n_batches += n

    def __len__(self):
        return self.n_batches

    @property
    def sizes(self):
        """Units of each batch."""
        own = zip(self.cuts, self.source.sizes, strict=True)
        edges = (cut.edges(n) for cut, n in own if cut.n_batches)
        return [stop - start for ends in edges for start, stop in pairwise(ends)]

    # Passes

    def map(self, function):
        """Yield ``function(batch)`` in the order of the batches."""
        found = self._passed(_map, function, lambda tasks: compute(*tasks))
        for results in found:
            yield from results

    def sum(self, function):
        """Return the sum of ``function(batch)``, reduced in a tree near the rows."""
        return self._passed(_sum, function, lambda tasks: joined(tasks, add))

    def reduce(self, function, merge):
        """Return what ``merge(a, b)`` makes of ``function(batch)`` of chunks, in order.

        Neither may change what it is given.
        """
        return self._passed(_map_one, function, lambda tasks: joined(tasks, merge))

    def keep(self, function):
        """Return the sum of the first that ``function(batch)`` returns, and a table.

        That of the second, one a batch.
        """
        return self._passed(_sum_and_keep, function, self._kept)

    def _kept(self, tasks):
        tasks = keep(tasks)
        table, cuts = [], [cut for cut in self.cuts if cut.n_batches]
        for task, cut in zip(tasks, cuts, strict=True):
            table += [delayed(_entry)(task, i) for i in range(cut.n_batches)]
        return joined([delayed(getitem)(task, 0) for task in tasks], add), table

    def _passed(self, what, function, gather):
        """Return what is gathered from tasks, one for each block with rows."""
        source, task, beside = self.source, delayed(what), RowStates(function)
        blocks = list(zip(self.cuts, source.parts, source.by_block, strict=True))
        if not beside:
            sent = send(function)
            own = (block for block in blocks if block[0].n_batches)
            return gather([task(sent, cut, *_both(block)) for cut, *block in own])

        def attempt():
            sent, both = beside.sent(send), []
            for part, (cut, *block) in enumerate(blocks):
                how = what, sent, *beside.how(part)
                both.append(delayed(_with_beside)(*how, cut, *_both(block)))
            both = keep(both)
            own = zip(self.cuts, both, strict=True)
            found = gather(
                [delayed(getitem)(one, 0) for cut, one in own if cut.n_batches]
            )
            for part, one in enumerate(both):
                beside.set(part, delayed(getitem)(one, 1), len(both))
            return found

        return self._retried(attempt, beside)

    def _retried(self, attempt, beside, entry=None):
        """Return what an attempt does, again where something beside rows is lost."""
        while True:
            try:
                return attempt()
            except RuntimeError as error:
                lost = beside.recover()
                self.remade |= lost
                if is_lost(entry):
                    raise LostBesideRows(str(error)) from error
                if not lost:
                    raise

    # Visits

    def shuffled(self, rng):
        """Yield a `RemoteBatch` for every batch, those of two blocks at a time.

        These are kept where they lie until all of their batches have been visited, and
        the two after them are made meanwhile: what is loaded lazily is loaded once.
        """
        order = rng.permutation(len(self.cuts))
        windows = [order[i : i + WINDOW] for i in range(0, len(order), WINDOW)]
        if self.weights is None:
            self.weights = self.source.weights_of(self.cuts)
        coming = self._open(windows[0])
        for following in [*windows[1:], []]:
            visits = coming
            coming = self._open(following)
            for i in rng.permutation(len(visits)):
                yield visits[i]

    def _open(self, window):
        """Return the visits of some blocks, which are kept."""
        visits, by_block = [], self.source.by_block
        for part in window:
            cut, rows = self.cuts[part], self.source.parts[part]
            if not cut.n_batches:
                continue
            given = [one for one in by_block[part] if one is not None]
            index = delayed(_index)(cut, rows, *by_block[part])
            rows, index, *given = keep([rows, index, *given])
            given = iter(given)
            columns = tuple(
                one if one is None else next(given) for one in by_block[part]
            )
            for number in range(cut.n_batches):
                block = cut.first + number
                about = block, part, number, self.weights[block]
                visits.append(RemoteBatch(*about, index, rows, columns))
        return visits

    def visit(self, function, visit, entry=None):
        """Return ``function(batch, entry)``, of a visit and its entry of a table."""
        beside = RowStates(function)
        if not beside:
            return compute(self._task_of(beside, visit, entry))[0]

        def attempt():
            task = self._task_of(beside, visit, entry)
            answer, states = keep([delayed(getitem)(task, i) for i in range(2)])
            answer = compute(answer)[0]
            beside.set(visit.part, states, len(self.cuts))
            return answer

        return self._retried(attempt, beside, entry)

    def renew(self, function, visit, entry):
        """Return the first that ``function(batch, entry)`` returns.

        And the second as a new entry, which stays where the batch is.
        """
        beside = RowStates(function)

        def attempt():
            task = self._task_of(beside, visit, entry)
            both = delayed(getitem)(task, 0) if beside else task
            tasks = [delayed(getitem)(both, i) for i in range(2)]
            if beside:
                tasks.append(delayed(getitem)(task, 1))
            answer, new, *states = keep(tasks)
            answer = compute(answer)[0]
            if beside:
                beside.set(visit.part, states[0], len(self.cuts))
            return answer, new

        return self._retried(attempt, beside, entry) if beside else attempt()

    def _task_of(self, beside, visit, entry):
        cut = self.cuts[visit.part]
        where = cut, visit.rows, *visit.columns, visit.number, visit.index, entry
        if not beside:
            return delayed(_visit)(beside.function, *where)
        how = _visit, beside.sent(), *beside.how(visit.part)
        return delayed(_with_beside)(*how, *where)

    # Tables

    def mapped(self, function, table):
        """Return the table of ``function(entry)``."""
        function = send(function)
        return keep([delayed(apply)(function, entry) for entry in table])

    def total(self, table):
        """Return the sum of the entries of a table."""
        return joined(table, add)


def _both(block):
    """Return the rows of a block and its columns, one after the other."""
    rows, columns = block
    return rows, *columns


def _index(cut, *block):
    return cut.index(cut.n_units(*block))


def _map(function, cut, *block):
    return [function(batch) for batch in cut.batches(*block)]


def _sum(function, cut, *block):
    return reduce(accumulate, _map(function, cut, *block), None)


def _sum_and_keep(function, cut, *block):
    total, entries = None, []
    for batch in cut.batches(*block):
        sums, entry = function(batch)
        total = accumulate(total, sums)
        entries.append(entry)
    return total, entries


def _entry(kept, number):
    return kept[1][number]


def _map_one(function, cut, *block):
    (batch,) = cut.batches(*block)
    return function(batch)


def _visit(function, cut, *where):
    *block, number, index, entry = where
    return function(cut.batch(number, index, *block), entry)


# Beside the rows


class RowState:
    """Numbers of each row that live beside the rows, where these lie.

    What a pass writes to is kept there for the next one. Where it is lost, dask makes
    it again by the passes that have made it, as long as the points of these are few
    enough for a scheduler to keep (`MOST_HELD`); then it begins anew, or is found
    again. It does not travel: a copy that has been pickled is found again, too.

    Parameters
    ----------
    fresh : callable
        ``fresh(n_rows)`` returns what a block begins with.
    again : callable, default=None
        ``again(point, rows)`` returns what a block goes on with that has lost it. None:
        it begins anew.
    lost : bool, default=False
        Some of it is.
    """

    def __init__(self, fresh, again=None, lost=False):
        self.fresh, self.again, self.lost, self.blocks = fresh, again, lost, None
        #: Bytes of the points that it has been made of.
        self.held = 0

    def copy(self):
        """Return the same numbers, to be written to."""
        made = RowState(self.fresh)
        vars(made).update(vars(self))
        made.blocks = self.blocks and list(self.blocks)
        return made

    def recover(self):
        """Let go of blocks whose numbers are lost; return whether there are."""
        blocks = enumerate(self.blocks or ())
        lost = [part for part, state in blocks if is_lost(state)]
        for part in lost:
            self.blocks[part] = None
        self.lost |= bool(lost)
        return bool(lost)

    def at(self, part):
        """Return what there is of a block, and whether it is to be found again."""
        state = self.blocks and self.blocks[part]
        return state, state is None and self.lost and self.again is not None

    def __getstate__(self):
        return vars(self) | {"blocks": None, "held": 0, "lost": True}


def sum_of_besides(function, besides):
    """Return the sum of a function of what lives beside the rows of each block.

    Of those that have been visited.
    """
    function = send(function)
    while True:
        states = zip(*(one.blocks for one in besides), strict=True)
        seen = [own for own in states if not any(one is None for one in own)]
        try:
            return joined([delayed(apply)(function, *own) for own in seen], add)
        except RuntimeError:
            if not any([one.recover() for one in besides]):
                raise


class RowStates:
    """What a function is told that lives beside rows; false where there is nothing.

    Parameters
    ----------
    function : callable

    Attributes
    ----------
    function : callable
        Which is told none of it.
    places : list of tuple
        Where it is told it: numbers of arguments, and names of their fields.
    written : list of bool
        Whether it writes to it.
    """

    def __init__(self, function):
        places = [
            (number, name)
            for number, argument in enumerate(getattr(function, "args", ()))
            for name in getattr(argument, "_fields", ())
            if isinstance(getattr(argument, name), RowState)
        ]
        self.besides = [getattr(function.args[i], name) for i, name in places]
        self.written = [name in function.args[i].written for i, name in places]
        self.places = places
        self.function = _with(function, places) if places else function
        self.lent = None

    def __bool__(self):
        return bool(self.besides)

    def sent(self, send=lambda function: function):
        """Return the function as tasks take it, lent where too much would be kept."""
        self.held = max(one.held for one in self.besides)
        self.held += bytes_of(self.function)
        if self.held <= MOST_HELD:
            return send(self.function)
        self.lent = lend(self.function)
        return self.lent

    def recover(self):
        """Let what is lost begin anew; return whether anything was."""
        return any([is_lost(self.lent), *(one.recover() for one in self.besides)])

    def how(self, part):
        """Return how what a block has is made and kept, and what there is of it."""
        states, again = zip(*(one.at(part) for one in self.besides), strict=True)
        own = zip(self.besides, again, strict=True)
        makers = [(one.again if lost else one.fresh, lost) for one, lost in own]
        return (self.places, self._kept(part), makers), list(states)

    def _kept(self, part):
        """Return which states of a block a task leaves: written, or found again."""
        own = zip(self.besides, self.written, strict=True)
        return [new or one.at(part)[1] for one, new in own]

    def set(self, part, states, n_parts):
        """Keep what has been written beside the rows of a block."""
        kept = zip(self.besides, self._kept(part), strict=True)
        for number, beside in enumerate(one for one, new in kept if new):
            if beside.blocks is None:
                beside.blocks = [None] * n_parts
            beside.blocks[part] = delayed(getitem)(states, number)
            beside.held = self.held


def _with(function, places, values=None):
    """Return a function whose arguments have other values there, by default None."""
    values, arguments = values or [None] * len(places), list(function.args)
    for (number, name), value in zip(places, values, strict=True):
        arguments[number] = arguments[number]._replace(**{name: value})
    return partial(function.func, *arguments, **function.keywords)


def _with_beside(what, function, how, states, cut, rows, *more):
    """Return what comes of a block, and what has been written beside its rows."""
    places, kept, makers = how
    n, own = rows.shape[0], []
    for (number, _), (make, again), state in zip(places, makers, states, strict=True):
        if state is not None:  # a copy, as a task must not write to what another made
            own.append(state.copy())
        else:
            own.append(make(function.args[number], rows) if again else make(n))
    found = what(_with(function, places, own), cut, rows, *more) if n else None
    return found, [one for one, new in zip(own, kept, strict=True) if new]
