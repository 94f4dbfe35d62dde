"""The passes over laid out sequences.

A lane that begins inside a sequence needs the message of the one before; it starts from
a guess, and what was wrong is repaired afterwards, which takes some dozen steps of
thousands:

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

from skvrem.hmm.forward_backward import _kernels, _kernels_covariates
from skvrem.hmm.forward_backward._kernels import LANES, STEPS, TILE
from skvrem.hmm.forward_backward._model_layout import NONE, Part
from skvrem.utils._parallel import parallel_map
from skvrem.utils._simd import WIDTH

# Difference of messages, and of posteriors, that counts as none.
TOLERANCE = 1e-13
MOST_REPAIRS = 4


class Impossible(ValueError, FloatingPointError):
    """A row that no path of states can reach has been seen.

    Solvers that try how far they can go take it for a sign of having gone too far.

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
        Log-density of a row in state i is ``theta[i] @ features(row)``. Several rows
        a state, one state after the other, are parts of a mixture.
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
    follows : ndarray, or None
        Parameters of the emissions that the features of rows depend on.
    """

    theta: np.ndarray
    start: np.ndarray
    transitions: np.ndarray
    other: np.ndarray | None = None
    coefficients: np.ndarray | None = None
    beta: float = 1.0
    follows: np.ndarray | None = None


def stationary(transmat):
    """Return the distribution that a transition matrix leaves as it is."""
    n = len(transmat)
    equations = np.vstack([np.eye(n) - transmat.T, np.ones(n)])
    delta = np.linalg.lstsq(equations, np.append(np.zeros(n), 1.0), rcond=None)[0]
    delta = np.maximum(delta, 0.0)
    return delta / delta.sum()


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
        layout.fill()
        self.layout = layout
        self.carried = carried
        self.by_row = by_row
        self.theta = np.ascontiguousarray(chain.theta).ravel()
        self.start = np.ascontiguousarray(chain.start)
        self.transitions = np.ascontiguousarray(chain.transitions).ravel()
        self.transposed = np.ascontiguousarray(chain.transitions.T).ravel()
        self.n, (self.wide, self.n_features) = len(chain.start), chain.theta.shape
        self.switches = chain.other is not None
        other = chain.other if self.switches else np.zeros((self.n, self.n))
        self.other = np.ascontiguousarray(other).ravel()
        self.coefficients, self.beta = chain.coefficients, chain.beta
        self.follows = chain.follows
        size = (self.n_features + 5 * self.n + self.wide + 4) * TILE
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
            groups, size = range(len(layout.groups)), layout.n_tiles * n * TILE
            self.alpha = [layout.buffer(g, size) for g in groups]
            self.left = np.full((len(groups), n * LANES), 1.0 / n)
            self._carry()
            self._run_forward(Part(0, layout.n_tiles, layout.groups))
            if self._repair_forward():
                break
            layout.lay_out_whole()
        return self._objective()

    def _run_forward(self, part):
        """Run forward over a part from `left`, with room for what that leaves."""
        self.part, groups, tiles = part, part.groups, part.n_tiles
        if self.follows is not None:
            self.layout.follow(part, self.follows)
        self.shares = [np.empty(tiles * LANES) for _ in groups]
        self.before = [np.empty(group.step.size) for group in groups]
        self.ends = np.empty((len(groups), self.n * LANES))
        self.impossible = np.full((len(groups), 2), -1)
        self.row_shares = [
            np.empty(tiles * TILE) if self.by_row else NONE for _ in groups
        ]
        self.matrices = [NONE for _ in groups]
        if self.coefficients is not None:
            size = self.layout.n_tiles * self.n**2 * TILE
            buffers = (((g, "matrices"), size) for g in range(len(groups)))
            self.matrices = [self.layout.buffer(*own) for own in buffers]
            list(parallel_map(self._fill_matrices, range(len(groups))))
        list(parallel_map(self._forward, range(len(groups))))

    def _fill_matrices(self, g):
        out = self._of_part(self.matrices[g], self.part)
        self._probabilities(self.part, g, self.beta, out)

    def _probabilities(self, part, g, beta, out):
        """Fill out with the transitions into the rows of a part; return it."""
        n, _, n_inputs = self.coefficients.shape
        design, coefficients = part.groups[g].design, self.coefficients.ravel()
        sizes = n, part.n_tiles, TILE
        _kernels_covariates.probabilities(
            design, n_inputs, coefficients, *sizes, beta, out
        )
        return out

    def _explain(self, part, numbered):
        """What the transitions of a group say of the coefficients, flat.

        Sums of xi, xi log p, and their derivatives.
        """
        g, (*_, rho) = numbered
        matrices = plain = self._of_part(self.matrices[g], part)
        if self.beta != 1.0:
            plain = self._probabilities(part, g, 1.0, np.empty_like(matrices))
        n, _, n_inputs = self.coefficients.shape
        triangles = (n * (n + 1) // 2) * (n_inputs * (n_inputs + 1) // 2)
        counts, gradient = np.zeros(n * n), np.zeros(n * n * n_inputs)
        hessian = np.zeros(n * triangles)
        value = _kernels_covariates.explain(
            part.groups[g].design,
            n_inputs,
            n,
            part.n_tiles,
            TILE,
            LANES,
            self.steps_before(part.first, g),
            self._of_part(self.alpha[g], part),
            matrices,
            plain,
            rho,
            counts,
            gradient,
            hessian,
        )
        return np.concatenate([counts, [value], gradient, hessian])

    def _of_part(self, array, part):
        return self.layout.of_tiles(array, part.first, part.first + part.n_tiles)

    def _repair_forward(self):
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
        lanes = self._in_a_row(messages)
        moved = np.zeros_like(lanes)
        moved[:, 1:] = lanes[:, :-1]
        return self._in_groups(moved * self.layout.continues.ravel())

    def _to_the_left(self, messages):
        """Messages at the lanes' starts as those at the ends of the ones before."""
        lanes = self._in_a_row(messages)
        moved = np.zeros_like(lanes)
        moved[:, :-1] = lanes[:, 1:]
        return self._in_groups(moved * self.layout.goes_on.ravel())

    def _in_a_row(self, messages):
        """All lanes, (n_states, n_lanes), from those of the groups."""
        return messages.reshape(-1, self.n, LANES).swapaxes(0, 1).reshape(self.n, -1)

    def _in_groups(self, lanes):
        parts = lanes.reshape(self.n, -1, LANES).swapaxes(0, 1)
        return parts.reshape(-1, self.n * LANES)

    def _arguments(self, part, g, left, tolerance):
        """What both kernels take."""
        rows, group = self.layout.rows, part.groups[g]
        matrices = self._of_part(self.matrices[g], part)
        return (
            group.columns,
            group.columns.size // (part.n_tiles * TILE),
            rows.first,
            rows.second,
            self.theta,
            self.start,
            self.transposed,
            self.other if self.switches else None,
            matrices if matrices.size else None,
            None if self.wide == self.n else self.wide // self.n,
            group.step,
            group.lane,
            group.switch_step,
            group.switch_lane,
            left,
            part.n_tiles,
            tolerance,
            self._of_part(self.alpha[g], part),
            np.empty(self._scratch),
        )

    def _forward(self, g, tolerance=0.0):
        """Run over a group of the part; return the tiles that were needed."""
        group = self.part.groups[g]
        return _kernels.forward(
            *self._arguments(self.part, g, self.left[g], tolerance),
            group.stop - group.start,
            self.shares[g],
            self.before[g],
            self.ends[g],
            self.impossible[g],
            self.row_shares[g],
        )

    def _objective(self):
        """The log-likelihood of the part; an error where that is minus infinity."""
        groups = self.part.groups
        if self.impossible.max() >= 0:
            rows = [
                groups[g].start[lane] + step
                for g, (step, lane) in enumerate(self.impossible)
                if step >= 0
            ]
            (row,) = self.layout.row_numbers(np.array([min(rows)]))
            raise Impossible(int(row))
        return sum(map(weighted_shares, groups, self.shares, self.before))

    def last(self):
        """Return the states' probabilities in the last row, given all before."""
        return self.layout.gather(self.alpha, self.n)[-1].copy()

    def backward(self):
        """Run backward; return sums of first states, pairs of states and features.

        Pairs are (n_states, n_states), or with a second matrix (2, n_states, n_states),
        or with coefficients xi (n_states, n_states), the sum of xi log p, its gradient
        and the upper triangles of minus its Hessian, flat. Where emissions follow
        parameters the sums that they collect come last.
        """
        layout, n = self.layout, self.n
        groups, tiles = layout.groups, layout.n_tiles
        self.sums = [
            [self.no_sums(part.n_tiles) for _ in groups] for part in layout.parts
        ]
        self.posteriors = [
            np.zeros(tiles * n * TILE)
            if self.by_row or self.follows is not None
            else NONE
            for _ in groups
        ]
        #: Messages to the left of the parts.
        self.messages = np.zeros((len(layout.parts), len(groups), n * LANES))
        inner = layout.goes_on[:, None]
        weight = np.stack([group.weight for group in groups])
        self.right = np.repeat(weight[:, None, :], n, axis=1).reshape(len(groups), -1)
        list(parallel_map(self._backward, range(len(groups))))
        error = self._to_the_left(self.messages[0])
        error -= (self.right.reshape(len(groups), n, -1) * inner).reshape(error.shape)
        while True:
            wrong = np.flatnonzero(_largest(error) > 0.0)
            if not wrong.size:
                break
            self.right, before = error, self.messages[0].copy()
            ended = parallel_map(partial(self._backward, tolerance=TOLERANCE), wrong)
            if min(ended) > 0:  # no error has come to a lane's start
                break
            error = self._to_the_left(self.messages[0] - before)
        #: Sums of the parts.
        self.added = list(map(self.add_up, layout.parts, self.sums))
        return tuple(map(sum, zip(*self.added, strict=True)))

    def no_sums(self, n_tiles):
        """Return zeros for `backward` of the kernels to add to: sums, then rho."""
        n = self.n
        rho = n_tiles * n * TILE if self.coefficients is not None else 0
        sizes = n, n * n * WIDTH, n * n, self.wide * self.n_features * WIDTH, rho
        return tuple(map(np.zeros, sizes))

    def add_up(self, part, sums):
        """Return the sums of a part's groups, lanes together."""
        n = self.n
        start = sum(s[0] for s in sums)
        pairs = sum(s[1].reshape(n, n, WIDTH).sum(axis=2) for s in sums)
        pairs = pairs * self.transitions.reshape(n, n)
        if self.switches:
            others = self.other * sum(s[2] for s in sums)
            pairs = np.stack([pairs, others.reshape(n, n)])
        if self.coefficients is not None:
            explained = parallel_map(partial(self._explain, part), enumerate(sums))
            pairs = sum(explained)
        wide = self.wide, self.n_features, WIDTH
        features = sum(s[3].reshape(wide).sum(axis=2) for s in sums)
        if self.follows is None:
            return start, pairs, features
        collected = self.layout.collect(part, self.posteriors, self.follows)
        return start, pairs, features, collected

    def _backward(self, g, tolerance=0.0):
        """Run backward over the parts; return the tiles that were not needed."""
        message, parts = self.right[g], self.layout.parts
        for number in range(len(parts) - 1, -1, -1):
            part, head = parts[number], np.empty(self.n * LANES)
            left, sums = self.steps_before(part.first, g), self.sums[number][g]
            ended = self._backward_part(part, g, left, message, sums, head, tolerance)
            if ended:
                return part.first + ended
            self.messages[number, g] += head
            message = head
        return 0

    def steps_before(self, end, g):
        """Return alpha in the steps before tile `end`, `left` in those before lanes."""
        if not end:
            return self.left[g]
        tile = self.layout.of_tiles(self.alpha[g], end - 1, end)
        return tile.reshape(self.n, TILE)[:, -LANES:].ravel()

    def _backward_part(self, part, g, left, right, sums, head, tolerance=0.0):
        ends, posteriors = part.groups[g].ends, self.posteriors[g]
        return _kernels.backward(
            *self._arguments(part, g, left, tolerance),
            self.transitions,
            np.zeros_like(ends) if tolerance else ends,
            right,
            *sums[:4],
            head,
            self._of_part(posteriors, part),
            sums[4],
        )


def weighted_shares(group, shares, before):
    """Each sequence's share times its weight, from what had come before events."""
    shares = shares.reshape(-1, LANES)
    at, tile = before.copy(), group.step // STEPS
    late = np.flatnonzero(tile)
    if late.size:
        at[late] += np.cumsum(shares, axis=0)[tile[late] - 1, group.lane[late]]
    total = shares.sum(axis=0)
    return float(group.weight @ total + (group.ends - group.begins) @ at)


def _largest(messages):
    return np.abs(messages).max(axis=1)
