"""Sequences laid out side by side for the kernels.

Rows are cut into lanes, 16 to a group: whole sequences where that fills the lanes
evenly, else stretches of equal length, whatever sequence they fall into. A group is a
task for a thread.
"""

from contextlib import contextmanager
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from skvrem.hmm.forward_backward._kernels import LANES, STEPS, TILE, lay_out
from skvrem.utils._parallel import one_blas_thread, parallel_map
from skvrem.utils._simd import WIDTH, empty_lines

# Rows of a group, and fewest steps of a lane that begins inside a sequence.
GROUP_ROWS, LANE_STEPS = 40000, 64
# Whole sequences may leave this share of the lanes empty.
UNEVEN = 1.2
NONE = np.empty(0)


class Group(NamedTuple):
    """Sixteen lanes.

    Attributes
    ----------
    columns : ndarray
        Flat, (n_tiles, n_columns, TILE).
    start, stop : ndarray of int of shape (LANES,)
        Rows of every lane.
    step, lane : ndarray of int of shape (n_events,)
        Where sequences, or the padding behind a lane's rows, start.
    ends, begins : ndarray of shape (n_events,)
        Weight of the sequence that ends there, and of the one that begins.
    weight : ndarray of shape (LANES,)
        Weight of the sequence in a lane's last step.
    switch_step, switch_lane : ndarray of int of shape (n_switches,)
        What the other matrix of transitions leads to.
    design : ndarray
        Flat, (n_tiles, n_inputs, TILE).
    """

    columns: np.ndarray
    start: np.ndarray
    stop: np.ndarray
    step: np.ndarray
    lane: np.ndarray
    ends: np.ndarray
    begins: np.ndarray
    weight: np.ndarray
    switch_step: np.ndarray
    switch_lane: np.ndarray
    design: np.ndarray


class Halves(NamedTuple):
    """What happens in the halves of some groups, of eight lanes each; see `Group`.

    Attributes
    ----------
    events : tuple of ndarray
        Steps, lanes, weights of sequences that end, and these less those of what
        begins, half by half; and where those of each half begin, and the last end.
    weight : ndarray of shape (n_halves, 8)
    """

    events: tuple
    weight: np.ndarray

    def of_groups(self, begin, end):
        """Return those of some consecutive groups."""
        *events, bounds = self.events
        halves = slice(2 * begin, 2 * end)
        return Halves((*events, bounds[2 * begin : 2 * end + 1]), self.weight[halves])


class Part(NamedTuple):
    """Some consecutive tiles of all lanes.

    Attributes
    ----------
    first : int
        The first of these tiles.
    n_tiles : int
    groups : list of Group
        Lanes without the other tiles: ``columns`` are views, ``weight`` is that of the
        sequence in the last of these steps.
    """

    first: int
    n_tiles: int
    groups: list


class Layout:
    """Some sequences in lanes.

    Parameters
    ----------
    rows : SequenceRows
    ids : ndarray of int
        Numbers of the sequences.
    weight : ndarray of shape (n_sequences,), or None for ones
    opened : bool
        The first sequence has begun before; see `Passes`.
    """

    def __init__(self, rows, ids, weight=None, opened=False):
        self.rows = rows
        self.ids = ids
        self.opened = opened
        lengths = np.diff(rows.bounds)[ids]
        self.bounds = np.concatenate([[0], np.cumsum(lengths)])
        self.weight = np.ones(len(ids)) if weight is None else weight
        self.groups = None
        self._lay_out(whole=False)

    @property
    def n_rows(self):
        """Number of rows."""
        return int(self.bounds[-1])

    def row_numbers(self, at):
        """Numbers, in the container, of rows of this layout."""
        sequence = np.searchsorted(self.bounds, at, side="right") - 1
        return at - self.bounds[sequence] + self.rows.bounds[self.ids[sequence]]

    def lay_out_whole(self):
        """Put sequences into lanes whole; false where they are already."""
        if self.whole:
            return False
        self._lay_out(whole=True)
        return True

    def _lay_out(self, whole):
        n_rows, n_sequences = self.n_rows, len(self.ids)
        n_groups = max(1, n_rows // GROUP_ROWS)
        n_lanes = int(np.clip(n_rows // LANE_STEPS, 1, n_groups * LANES))
        steps = _whole_tiles(-(-n_rows // n_lanes))
        # Sequence by sequence: the lane in whose share its middle lies.
        middle = (self.bounds[:-1] + self.bounds[1:]) / 2
        lanes = min(max(n_lanes, LANES), n_sequences)
        place = (middle * (lanes / max(n_rows, 1))).astype(np.int64)
        cuts = np.searchsorted(place, np.arange(lanes + 1))
        edges = self.bounds[cuts]
        longest = _whole_tiles(int(np.diff(edges).max()))
        self.whole = whole or longest <= UNEVEN * steps
        if self.whole:
            steps = longest
        else:
            edges = np.minimum(np.arange(n_lanes + 1) * steps, n_rows)
        n_groups = -(-(len(edges) - 1) // LANES)
        edges = np.pad(edges, (0, n_groups * LANES + 1 - len(edges)), mode="edge")
        self.n_tiles = steps // STEPS
        self.edges = edges
        # Whether the sequence goes on at the start of a lane.
        continues = ~np.isin(edges[:-1], self.bounds)
        self.continues = continues.reshape(-1, LANES)
        # Whether it does behind its end.
        self.all_continue = np.append(continues, False)
        self.goes_on = self.all_continue[1:].reshape(-1, LANES)
        self.joined = bool(continues.any())
        self._buffers, self._ends, self._spare = {}, {}, {}
        self._halves, self._columns = None, NONE
        self.groups = list(parallel_map(self._group, range(n_groups)))
        if not self.rows.streamed:
            self._keep()
        self.parts = [Part(0, self.n_tiles, self.groups)]

    def follow(self, part, parameters):
        """Lay out the columns of a part anew, for features by these parameters."""

        def fill(group):
            taken = self.rows.take(self._rows_of(group), parameters)
            self._lay(taken, group, group.columns)

        list(parallel_map(fill, part.groups))

    def collect(self, part, posteriors, parameters):
        """Return the sums that rows of a part make with their posteriors."""

        def add_up(g):
            group, n = part.groups[g], len(posteriors[g]) // (self.n_tiles * TILE)
            laid = self.of_tiles(posteriors[g], part.first, part.first + part.n_tiles)
            lanes = _lanes(laid, part.n_tiles, n)
            sizes = zip(lanes, group.stop - group.start, strict=True)
            weights = np.concatenate([lane[:size] for lane, size in sizes])
            return self.rows.collect(self._rows_of(group), weights, parameters)

        with one_blas_thread():  # the bits of a product may depend on their number
            return sum(parallel_map(add_up, range(len(part.groups))))

    def _rows_of(self, group):
        """Which rows of the container are in the lanes of a group."""
        some = group.stop > group.start
        start, stop = group.start[some], group.stop[some]
        if start.size and (start[1:] == stop[:-1]).all():
            return self.select(start[0], stop[-1])
        return self.row_numbers(_rows_between(group.start, group.stop))

    @property
    def halves(self):
        """Those of all groups."""
        if self._halves is None:
            self._halves = _halves(self.groups)
        return self._halves

    def ends(self, number, n_tiles):
        """Lay out the first and then the last tiles of a group, alone.

        Returns
        -------
        columns : ndarray
            As of a group that has these tiles only.
        halves : Halves
        """
        parts, halves, at = self._kept_ends(number, n_tiles)
        rows, columns, begin = self.rows.take(at), [], 0
        for part in parts:
            end = begin + int((part.stop - part.start).sum())
            columns.append(self._lay(rows[begin:end], part, n_tiles=n_tiles))
            begin = end
        return np.concatenate(columns), halves

    def _kept_ends(self, number, n_tiles):
        """Both ends of a group, their halves, and which rows they are."""
        key = number, n_tiles
        if key not in self._ends:
            group, last = self.groups[number], self.n_tiles - n_tiles
            parts = [self._slice(group, at, at + n_tiles) for at in (0, last)]
            later = parts[1]._replace(step=parts[1].step + n_tiles * STEPS)
            both = zip(parts[0], later, strict=True)
            halves = _halves([Group(*(np.append(*pair) for pair in both))])
            at = [_rows_between(part.start, part.stop) for part in parts]
            self._ends[key] = parts, halves, self.row_numbers(np.concatenate(at))
        return self._ends[key]

    def cut(self, n_parts):
        """Cut the lanes into parts of about as many tiles each."""
        edges = np.linspace(0, self.n_tiles, n_parts + 1).astype(int)
        self.parts = [
            Part(a, b - a, [self._slice(group, a, b) for group in self.groups])
            for a, b in pairwise(edges.tolist())
        ]

    def _slice(self, group, a, b):
        steps = a * STEPS, b * STEPS
        first, last = np.searchsorted(group.step, steps)
        begin, end = np.searchsorted(group.switch_step, steps)
        # What the weight of a lane is before the events behind these tiles.
        weight = group.weight.copy()
        later = group.lane[last:], group.ends[last:] - group.begins[last:]
        np.add.at(weight, *later)
        start = np.minimum(group.start + a * STEPS, group.stop)
        return Group(
            self.of_tiles(group.columns, a, b),
            start,
            np.minimum(group.start + b * STEPS, group.stop),
            group.step[first:last] - a * STEPS,
            group.lane[first:last],
            group.ends[first:last],
            group.begins[first:last],
            weight,
            group.switch_step[begin:end] - a * STEPS,
            group.switch_lane[begin:end],
            self.of_tiles(group.design, a, b),
        )

    def of_tiles(self, array, a, b):
        """Return the part of a flat array that is of some tiles."""
        size = array.size // self.n_tiles
        return array[a * size : b * size]

    def _group(self, number):
        steps, sizes = self.n_tiles * STEPS, np.diff(self.edges)
        lanes = np.arange(number * LANES, (number + 1) * LANES)
        start, stop = self.edges[lanes], self.edges[lanes + 1]
        # Sequences that start in the lanes, then the padding behind their rows.
        first = max(start[0], 1) if self.opened else start[0]
        a, b = np.searchsorted(self.bounds[:-1], [first, max(stop[-1], first)])
        begins = self.bounds[a:b]
        lane = np.searchsorted(start, begins, side="right") - 1
        padded = np.flatnonzero(sizes[lanes] < steps)
        step = np.concatenate([begins - start[lane], sizes[lanes][padded]])
        before = np.concatenate([np.arange(a, b), self._after(stop[padded])])
        before = np.maximum(before - 1, 0)
        after = np.concatenate([self.weight[a:b], np.zeros(len(padded))])
        lane = np.concatenate([lane, padded])
        order = np.argsort(step, kind="stable")
        last = self.weight[np.maximum(self._after(stop) - 1, 0)]
        last[padded] = 0.0
        group = Group(
            NONE,
            start,
            stop,
            step[order].astype(np.int64),
            lane[order].astype(np.int64),
            self.weight[before[order]],
            after[order],
            last,
            *self._switches(start, stop[-1]),
            NONE,
        )
        if self.rows.design is not None:
            design = self.rows.design[self.select(start[0], stop[-1])]
            group = group._replace(design=self._lay(design, group))
        return group

    def _keep(self):
        """Lay out the columns of all groups, one behind the other."""
        some = self.rows.take(self.select(0, min(self.n_rows, 1)))
        size = self.n_tiles * some.shape[1] * TILE
        self._columns = empty_lines(len(self.groups) * size)

        def kept(g):
            columns = self._columns[g * size : (g + 1) * size]
            return self.groups[g]._replace(columns=self._of_rows(g, columns))

        self.groups = list(parallel_map(kept, range(len(self.groups))))

    def _of_rows(self, number, out=None):
        """Lay out the columns of a group's rows."""
        group = self.groups[number]
        rows = self.rows.take(self.select(group.start[0], group.stop[-1]))
        return self._lay(rows, group, out)

    def _lay(self, rows, part, out=None, n_tiles=None):
        """Lay out rows (n_rows, n_columns) that are those of lanes."""
        rows = np.ascontiguousarray(rows, float)
        steps = part.stop - part.start
        if out is None:
            out = empty_lines((n_tiles or self.n_tiles) * rows.shape[1] * TILE)
        lay_out(rows, np.append(0, np.cumsum(steps)), out)
        return out

    def columns(self, begin, end):
        """Yield some consecutive groups, as begin and end, with their columns.

        All at once where they are kept; else one by one, and the columns of one are
        gone when the next comes.
        """
        if self._columns.size:
            size = self._columns.size // len(self.groups)
            yield begin, end, self._columns[begin * size : end * size]
            return
        with self.spare("columns", lambda: [None]) as room:
            for number in range(begin, end):
                room[0] = self._of_rows(number, room[0])
                yield number, number + 1, room[0]

    def fill(self):
        """Keep the columns of all groups, where they were not."""
        if self._columns.size:
            return
        self._keep()
        self.parts = [Part(0, self.n_tiles, self.groups)]

    def _switches(self, start, stop):
        """Steps and lanes of switched rows, sorted by step."""
        if self.rows.switched is None:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        numbers = self.row_numbers(np.arange(start[0], stop))
        at = start[0] + np.flatnonzero(self.rows.switched[numbers])
        lane = np.searchsorted(start, at, side="right") - 1
        step = at - start[lane]
        order = np.argsort(step, kind="stable")
        return step[order].astype(np.int64), lane[order].astype(np.int64)

    def _after(self, row):
        """Number of the sequence behind the one that ends at or holds row - 1."""
        return np.searchsorted(self.bounds, row, side="left")

    def select(self, a, b):
        """Which rows of the container rows a to b of this layout are."""
        if a == b:
            return slice(0, 0)
        first, last = self.row_numbers(np.array([a, b - 1])).tolist()
        if last - first == b - a - 1:  # almost always: no copy
            return slice(first, last + 1)
        return self.row_numbers(np.arange(a, b))

    @contextmanager
    def spare(self, key, make):
        """Lend what `make` makes, which is kept, as often as threads need it."""
        pool = self._spare.setdefault(key, [])
        try:
            room = pool.pop()
        except IndexError:
            room = make()
        yield room
        pool.append(room)

    def buffer(self, number, size):
        """Memory of a group that is kept from pass to pass."""
        if number not in self._buffers or self._buffers[number].size != size:
            self._buffers[number] = empty_lines(size)
        return self._buffers[number]

    def gather(self, laid, n):
        """Return arrays (n_tiles, n, TILE) of the groups as (n_rows, n)."""
        out = np.empty((self.n_rows, n))
        for group, part in zip(self.groups, laid, strict=True):
            part = _lanes(part, self.n_tiles, n)
            for lane, (a, b) in enumerate(zip(group.start, group.stop, strict=True)):
                out[a:b] = part[lane, : b - a]
        return out


def _rows_between(start, stop):
    """Numbers of the rows of all lanes."""
    return np.concatenate(list(map(np.arange, start, stop)))


def _halves(groups):
    """Return the halves of some groups."""
    events, weight = [], [group.weight[:LANES].reshape(2, WIDTH) for group in groups]
    for group in groups:
        for first in (0, WIDTH):
            own = (group.lane >= first) & (group.lane < first + WIDTH)
            step, lane, ends, begins = (
                part[own] for part in (group.step, group.lane, group.ends, group.begins)
            )
            events.append((step, lane - first, ends, ends - begins))
    bounds = np.cumsum([0, *(len(step) for step, *_ in events)])
    together = map(np.concatenate, zip(*events, strict=True))
    return Halves((*together, bounds), np.concatenate(weight))


def _lanes(laid, n_tiles, n):
    """Return an array (n_tiles, n, TILE) as (LANES, n_steps, n)."""
    laid = laid.reshape(n_tiles, n, STEPS, LANES)
    return laid.transpose(3, 0, 2, 1).reshape(LANES, -1, n)


def _whole_tiles(steps):
    return -(-max(int(steps), 1) // STEPS) * STEPS
