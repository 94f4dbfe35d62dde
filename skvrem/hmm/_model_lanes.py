"""Sequences laid out side by side for the kernels, and the passes over them.

Rows are cut into lanes, 16 to a group: whole sequences where that fills the lanes
evenly, else stretches of equal length, whatever sequence they fall into. A group is a
task for a thread. A lane that begins inside a sequence needs the message of the one
before; it starts from a guess, and what was wrong is mended afterwards, which takes
some dozen steps of thousands:

- forward, the lanes run again from the right messages until they come to what they
  have come to before;
- backward, the recursion is linear, so the error of a message runs through the same
  kernel until it has died out, and adds to the sums.

A chain that never forgets would need as many such passes as there are lanes; after a
few of them sequences are laid out whole, one lane each.
"""

from functools import partial
from typing import NamedTuple

import numpy as np

from skvrem.hmm import _kernels
from skvrem.hmm._kernels import LANES, STEPS, TILE
from skvrem.hmm._model_covariates import explain, probabilities
from skvrem.utils._parallel import parallel_map
from skvrem.utils._simd import WIDTH

__all__ = ["Chain", "Impossible", "Layout", "Passes"]

# Rows of a group, and fewest steps of a lane that begins inside a sequence.
GROUP_ROWS, LANE_STEPS = 50_000, 64
# Whole sequences may leave this share of the lanes empty.
UNEVEN = 1.2
# Difference of messages, and of posteriors, that counts as none.
TOLERANCE = 1e-13
MOST_REPAIRS = 4
NONE = np.empty(0)


class Impossible(ValueError):
    """A row that no path of states can reach has been seen.

    Parameters
    ----------
    row : int
        Number of the row among those of the layout.
    """

    def __init__(self, row):
        super().__init__(f"row {row} has probability zero")
        self.row = row


class Chain(NamedTuple):
    """A Markov chain and the log-densities of its states, as kernels take them.

    Attributes
    ----------
    theta : ndarray of shape (n_states, n_features)
        Log-density of a row in state i is ``theta[i] @ features(row)``.
    start : ndarray of shape (n_states,)
    transitions : ndarray of shape (n_states, n_states)
        Neither need sum to 1.
    other : ndarray of shape (n_states, n_states), or None
        Transitions into the rows that the container says are switched.
    coefficients : ndarray of shape (n_states, n_states, n_inputs), or None
        Logits of the transitions into a row are their products with its design; then
        `transitions` are not used.
    beta : float
        Power of these transitions.
    """

    theta: np.ndarray
    start: np.ndarray
    transitions: np.ndarray
    other: np.ndarray | None = None
    coefficients: np.ndarray | None = None
    beta: float = 1.0


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

    def row_numbers(self, start, stop):
        """Numbers, in the container, of rows of this layout."""
        at = np.arange(start, stop)
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
        n_groups = int(np.clip(n_rows // GROUP_ROWS, 1, 64))
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
        self.goes_on = np.append(continues[1:], False).reshape(-1, LANES)
        self._buffers = {}
        self.groups = list(parallel_map(self._group, range(n_groups)))

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
        return Group(
            self._lay(self.rows.take, start, stop, steps),
            start,
            stop,
            step[order].astype(np.int64),
            lane[order].astype(np.int64),
            self.weight[before[order]],
            after[order],
            last,
            *self._switches(start, stop[-1]),
            NONE
            if self.rows.design is None
            else self._lay(self.rows.design.__getitem__, start, stop, steps),
        )

    def _switches(self, start, stop):
        """Steps and lanes of switched rows, sorted by step."""
        if self.rows.switched is None:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        numbers = self.row_numbers(start[0], stop)
        at = start[0] + np.flatnonzero(self.rows.switched[numbers])
        lane = np.searchsorted(start, at, side="right") - 1
        step = at - start[lane]
        order = np.argsort(step, kind="stable")
        return step[order].astype(np.int64), lane[order].astype(np.int64)

    def _after(self, row):
        """Number of the sequence behind the one that ends at or holds row - 1."""
        return np.searchsorted(self.bounds, row, side="left")

    def _lay(self, take, start, stop, steps):
        """Lay out what `take` makes of rows."""
        parts = [take(slice(0, 0))] * LANES
        for lane, (a, b) in enumerate(zip(start, stop, strict=True)):
            if a < b:
                parts[lane] = take(self._select(a, b))
        laid = np.zeros((steps, parts[0].shape[1], LANES))
        for lane, part in enumerate(parts):
            laid[: len(part), :, lane] = part
        laid = laid.reshape(-1, STEPS, *laid.shape[1:]).transpose(0, 2, 1, 3)
        return np.ascontiguousarray(laid).ravel()

    def _select(self, a, b):
        numbers = self.row_numbers(a, b)
        if numbers[-1] - numbers[0] == b - a - 1:  # almost always: no copy
            return slice(numbers[0], numbers[-1] + 1)
        return numbers

    def buffer(self, number, size):
        """Memory of a group that is kept from pass to pass."""
        if number not in self._buffers or self._buffers[number].size != size:
            self._buffers[number] = np.empty(size)
        return self._buffers[number]

    def gather(self, laid, n):
        """Return arrays (n_tiles, n, TILE) of the groups as (n_rows, n)."""
        out = np.empty((self.n_rows, n))
        for group, part in zip(self.groups, laid, strict=True):
            part = part.reshape(self.n_tiles, n, STEPS, LANES)
            part = part.transpose(3, 0, 2, 1).reshape(LANES, -1, n)
            for lane, (a, b) in enumerate(zip(group.start, group.stop, strict=True)):
                out[a:b] = part[lane, : b - a]
        return out


class Passes:
    """The E step: a forward and a backward pass over a layout.

    Parameters
    ----------
    layout : Layout
    chain : Chain
    by_row : bool
        Keep what concerns single rows.
    carried : ndarray of shape (n_states,), default=None
        Of a layout that is opened: the states' probabilities in the row before.
    """

    def __init__(self, layout, chain, by_row=False, carried=None):
        self.layout = layout
        self.carried = carried
        self.by_row = by_row
        self.theta = np.ascontiguousarray(chain.theta).ravel()
        self.start = np.ascontiguousarray(chain.start)
        self.transitions = np.ascontiguousarray(chain.transitions).ravel()
        self.transposed = np.ascontiguousarray(chain.transitions.T).ravel()
        self.n, self.n_features = chain.theta.shape
        self.switches = chain.other is not None
        other = chain.other if self.switches else np.zeros((self.n, self.n))
        self.other = np.ascontiguousarray(other).ravel()
        self.coefficients, self.beta = chain.coefficients, chain.beta
        size = (self.n_features + 5 * self.n + 3) * TILE
        self._scratch = size

    def forward(self):
        """Run forward; return the weighted log-likelihood.

        Raises
        ------
        Impossible
            If a row has probability zero.
        """
        while True:
            layout, n = self.layout, self.n
            groups, tiles = layout.groups, layout.n_tiles
            size = tiles * n * TILE
            self.alpha = [layout.buffer(g, size) for g in range(len(groups))]
            self.shares = [np.empty(tiles * LANES) for _ in groups]
            self.before = [np.empty(group.step.size) for group in groups]
            self.ends = np.empty((len(groups), n * LANES))
            self.impossible = np.full((len(groups), 2), -1)
            self.row_shares = [
                np.empty(tiles * TILE) if self.by_row else NONE for _ in groups
            ]
            self.left = np.full((len(groups), n * LANES), 1.0 / n)
            self._carry()
            self.matrices = [NONE] * len(groups)
            if self.coefficients is not None:
                self.matrices = list(parallel_map(self._matrices, range(len(groups))))
            list(parallel_map(self._forward, range(len(groups))))
            if self._mend_forward():
                break
            layout.lay_out_whole()
        if self.impossible.max() >= 0:
            raise Impossible(self._first_impossible())
        return sum(map(self._objective, range(len(groups))))

    def _matrices(self, g):
        """The transitions into every row of a group."""
        out = self.layout.buffer(
            (g, "matrices"), self.layout.n_tiles * self.n**2 * TILE
        )
        design = self.layout.groups[g].design
        return probabilities(design, self.coefficients, self.beta, out)

    def _explain(self, g):
        """What the transitions of a group say of the coefficients."""
        return explain(
            self.layout.groups[g].design,
            self.coefficients,
            self.beta,
            self.left[g],
            self.alpha[g],
            self.matrices[g],
            self.ratios[g],
        )

    def _mend_forward(self):
        """Run again from the right messages; false where that has no end."""
        for _ in range(MOST_REPAIRS):
            before, self.left = self.left, self._to_the_right(self.ends)
            self._carry()
            wrong = np.flatnonzero(_largest(self.left - before) > TOLERANCE)
            if not wrong.size:
                return True
            needed = parallel_map(partial(self._forward, tolerance=TOLERANCE), wrong)
            if max(needed) < self.layout.n_tiles:  # nothing new at the ends
                return True
        return False

    def _carry(self):
        if self.carried is not None:
            self.left[0, ::LANES] = self.carried

    def _to_the_right(self, messages):
        """Messages at the lanes' ends as those at the starts of the next."""
        moved = np.empty_like(messages)
        new, old = (m.reshape(-1, self.n, LANES) for m in (moved, messages))
        new[:, :, 1:], new[1:, :, 0], new[0, :, 0] = (
            old[:, :, :-1],
            old[:-1, :, -1],
            0.0,
        )
        new *= self.layout.continues[:, None]
        return moved

    def _to_the_left(self, messages):
        """Messages at the lanes' starts as those at the ends of the ones before."""
        moved = np.empty_like(messages)
        new, old = (m.reshape(-1, self.n, LANES) for m in (moved, messages))
        new[:, :, :-1], new[:-1, :, -1], new[-1, :, -1] = (
            old[:, :, 1:],
            old[1:, :, 0],
            0,
        )
        new *= self.layout.goes_on[:, None]
        return moved

    def _arguments(self, g):
        rows, columns = self.layout.rows, self.layout.groups[g].columns
        n_columns = columns.size // (self.layout.n_tiles * TILE)
        return columns, n_columns, rows.first, rows.second

    def _forward(self, g, tolerance=0.0):
        group = self.layout.groups[g]
        return _kernels.forward(
            *self._arguments(g),
            self.theta,
            self.start,
            self.transposed,
            self.other,
            self.matrices[g],
            group.step,
            group.lane,
            group.switch_step,
            group.switch_lane,
            group.stop - group.start,
            self.left[g],
            self.layout.n_tiles,
            tolerance,
            self.alpha[g],
            self.shares[g],
            self.before[g],
            self.ends[g],
            self.impossible[g],
            self.row_shares[g],
            np.empty(self._scratch),
        )

    def _objective(self, g):
        """Each sequence's share times its weight, from what had come before events."""
        group, tiles = self.layout.groups[g], self.layout.n_tiles
        total = np.zeros((tiles + 1, LANES))
        np.cumsum(self.shares[g].reshape(tiles, LANES), axis=0, out=total[1:])
        at = total[group.step // STEPS, group.lane] + self.before[g]
        return float(group.weight @ total[-1] + (group.ends - group.begins) @ at)

    def _first_impossible(self):
        rows = [
            self.layout.groups[g].start[lane] + step
            for g, (step, lane) in enumerate(self.impossible)
            if step >= 0
        ]
        return int(self.layout.row_numbers(min(rows), min(rows) + 1)[0])

    def last(self):
        """Return the states' probabilities in the last row, given all before."""
        return self.layout.gather(self.alpha, self.n)[-1].copy()

    def backward(self):
        """Run backward; return sums of first states, pairs of states and features.

        Pairs are (n_states, n_states), or with a second matrix (2, n_states, n_states),
        or with coefficients xi (n_states, n_states), the sum of xi log p, its gradient
        and the upper triangles of minus its Hessian, flat.
        """
        layout, n = self.layout, self.n
        groups, tiles = layout.groups, layout.n_tiles
        self.sums = [
            (
                np.zeros(n),
                np.zeros(n * n * WIDTH),
                np.zeros(n * n),
                np.zeros(n * self.n_features * WIDTH),
            )
            for _ in groups
        ]
        self.posteriors = [
            np.zeros(tiles * n * TILE) if self.by_row else NONE for _ in groups
        ]
        changing = self.coefficients is not None
        self.ratios = [np.zeros(tiles * n * TILE) if changing else NONE for _ in groups]
        self.heads = np.zeros((len(groups), n * LANES))
        inner = layout.goes_on[:, None]
        weight = np.stack([group.weight for group in groups])
        self.right = np.repeat(weight[:, None, :], n, axis=1).reshape(len(groups), -1)
        list(parallel_map(self._backward, range(len(groups))))
        error = self._to_the_left(self.heads)
        error -= (self.right.reshape(len(groups), n, -1) * inner).reshape(error.shape)
        while True:
            wrong = np.flatnonzero(_largest(error) > 0.0)
            if not wrong.size:
                break
            self.right, self.heads = error, np.zeros_like(self.heads)
            ended = parallel_map(partial(self._backward, tolerance=TOLERANCE), wrong)
            if min(ended) > 0:  # no error has come to a lane's start
                break
            error = self._to_the_left(self.heads)
        start = sum(s[0] for s in self.sums)
        pairs = sum(s[1].reshape(n, n, WIDTH).sum(axis=2) for s in self.sums)
        pairs = pairs * self.transitions.reshape(n, n)
        if self.switches:
            others = self.other * sum(s[2] for s in self.sums)
            pairs = np.stack([pairs, others.reshape(n, n)])
        if changing:
            pairs = sum(parallel_map(self._explain, range(len(groups))))
        features = sum(s[3].reshape(n, -1, WIDTH).sum(axis=2) for s in self.sums)
        return start, pairs, features

    def _backward(self, g, tolerance=0.0):
        group = self.layout.groups[g]
        return _kernels.backward(
            *self._arguments(g),
            self.start,
            self.transitions,
            self.transposed,
            self.other,
            self.matrices[g],
            group.step,
            group.lane,
            np.zeros_like(group.ends) if tolerance else group.ends,
            group.switch_step,
            group.switch_lane,
            self.left[g],
            self.right[g],
            self.layout.n_tiles,
            tolerance,
            self.alpha[g],
            *self.sums[g],
            self.heads[g],
            self.posteriors[g],
            self.ratios[g],
            np.empty(self._scratch),
        )


def _whole_tiles(steps):
    return -(-max(int(steps), 1) // STEPS) * STEPS


def _largest(messages):
    return np.abs(messages).max(axis=1)
