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

Messages lose what is below 1e-308 of the rest. With probabilities of the chain that
are all above `LEAST` that cannot matter: what is lost in a row is below 1e-308 / LEAST
of what is kept, and no later row can prefer it by more than 1 / LEAST. So smaller ones,
0 among them, are taken for `LEAST`. Where the sums say that a transition has been used
that is not there, or hardly, the passes are made in logarithms.
"""

from functools import partial
from typing import NamedTuple

import numpy as np

from skvrem.hmm.forward_backward import _kernels, _kernels_covariates
from skvrem.hmm.forward_backward._kernels import LANES, TILE
from skvrem.hmm.forward_backward._model_layout import NONE, Part
from skvrem.hmm.forward_backward._model_logs import LogPasses
from skvrem.utils._parallel import parallel_map
from skvrem.utils._simd import WIDTH

# Relative difference of messages, and difference of posteriors, that counts as none.
TOLERANCE = 1e-13
MOST_REPAIRS = 4
# Least probability of transitions and first states, but for logarithms.
LEAST = 1e-145
# Such transitions, of all rows, that count as none, and differences of a row's
# log-likelihood given those before.
UNUSED, EQUAL = 1e-10, 1e-8
# Greatest entry of an inverse that is more than rounding.
MOST_INVERSE = 1e14


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

    def __reduce__(self):
        return type(self), (self.row,)


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


def long_run(transmat):
    r"""Return the distribution that a transition matrix leaves, and an inverse.

    The inverse of :math:`I - \Gamma + 1 1^T`, whose columns sum to the distribution,
    also tells how this moves with the matrix. Where there are several distributions,
    as of states that never meet, they are the shortest and the pseudoinverse.
    """
    n = len(transmat)
    equations = 1.0 - np.asarray(transmat, float)
    equations[np.diag_indices(n)] += 1.0
    try:
        inverse = np.linalg.inv(equations)
        known = np.abs(inverse).max() < MOST_INVERSE
    except np.linalg.LinAlgError:
        known = False
    if not known:
        inverse = np.linalg.pinv(equations, rcond=1.0 / (n * MOST_INVERSE))
    delta = np.maximum(inverse.sum(axis=0), 0.0)
    return delta / delta.sum(), inverse


def stationary(transmat):
    """Return the distribution that a transition matrix leaves as it is."""
    return long_run(transmat)[0]


class Raised:
    """The start and the matrices of a chain, with no probability below `least`.

    Parameters
    ----------
    chain : Chain
    least : float, default=LEAST
    """

    def __init__(self, chain, least=LEAST):
        self.least = least
        self.start, self.low_start, self.first = self._raise(chain.start)
        # Where rows have matrices of their own, `note` says what was low in them.
        matrices = [] if chain.coefficients is not None else [chain.transitions]
        matrices += [] if chain.other is None else [chain.other]
        made = [self._raise(matrix) for matrix in matrices]
        n = len(chain.start)
        raised, low, share = zip(*made, strict=True) if made else ((), (), ())
        self.matrices = raised or (chain.transitions,)
        self.low = np.array(low) if low else np.zeros((1, n, n), bool)
        self.share = np.array(share) if share else np.ones((1, n, n))

    def _raise(self, given):
        low = given < self.least
        if not np.count_nonzero(low):  # of few, `any` takes longer
            return given, low, np.ones(given.shape)
        raised = np.maximum(given, self.least)
        return raised, low, np.where(low, given / raised, 1.0)

    def note(self, low):
        """Take down which transitions of some row have been raised."""
        self.low = self.low | low
        self.share = np.where(self.low, 0.0, 1.0)

    @property
    def any(self):
        """Whether there is any such probability."""
        return bool(np.count_nonzero(self.low_start) or np.count_nonzero(self.low))

    def lower(self, start, pairs):
        """Return sums (n_states,) and (n_matrices, n_states, n_states) without these.

        Also which states have any, and how much has been left out.
        """
        used = start[self.low_start].sum() + pairs[self.low].sum()
        start, pairs = start * self.first, pairs * self.share
        return start, pairs, start + pairs.sum(axis=(0, 1)) > 0.0, float(used)


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
    least : float
        Smaller probabilities of the chain are taken for this.
    """

    def __init__(self, layout, chain, by_row=False, carried=None, least=LEAST):
        layout.fill()
        self.layout = layout
        self.chain, self.least = chain, least
        self.raised = raised = Raised(chain, least)
        #: The other way, and the sums, where they have been made.
        self.logs = self._known = None
        self.used = 0.0
        self.carried = carried
        self.by_row = by_row
        self.theta = np.ascontiguousarray(chain.theta).ravel()
        self.start = np.ascontiguousarray(raised.start)
        self.transitions = np.ascontiguousarray(raised.matrices[0]).ravel()
        self.transposed = np.ascontiguousarray(raised.matrices[0].T).ravel()
        self.n, (self.wide, self.n_features) = len(chain.start), chain.theta.shape
        self.switches = chain.other is not None
        other = raised.matrices[1] if self.switches else np.zeros((self.n, self.n))
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
        if self.by_row:
            return self._forward_by_row()
        try:
            objective = self.run_forward()
        except Impossible as error:
            return self.forward_logs(error)
        if self.raised.any:
            self._known = self.run_backward()
            if not self.used <= UNUSED:
                return self.forward_logs()
        return objective

    def _forward_by_row(self):
        """Run forward so that all rows are known given those before."""
        failed = None
        try:
            objective = self.run_forward()
            if not self.raised.any:
                return objective
            # What is lost makes likelihoods less, and what is raised others more.
            shares = self.shares_by_row()
            plain = Passes(self.layout, self.chain, True, self.carried, least=0.0)
            plain.run_forward()
            gained = np.cumsum(shares - plain.shares_by_row())
            if np.abs(gained).max() <= EQUAL:
                return self.run_forward()
        except Impossible as error:
            failed = error
        return self.forward_logs(failed)

    def forward_logs(self, failed=None):
        """Run forward in logarithms; return the weighted log-likelihood.

        Lanes come to impossible rows side by side, so this alone knows the first.

        Parameters
        ----------
        failed : Impossible, default=None
            Of the run in floating point numbers, which is right where no probability
            of the chain has been raised.
        """
        logs = LogPasses(self.layout, self.chain, self.carried)
        row = logs.forward()
        if row >= 0:
            raise Impossible(int(self.layout.row_numbers(np.array([row]))[0])) from None
        if failed is not None and not self.raised.any:
            raise failed
        self.logs = logs
        return logs.objective()

    def shares_by_row(self):
        """Return the rows' log-likelihoods given those before, (n_rows,)."""
        if self.logs is not None:
            return self.logs.shares
        return self.layout.gather(self.row_shares, 1)[:, 0]

    def log_filtered(self):
        """Return the states' log-probabilities given the rows up to each."""
        if self.logs is not None:
            return self.logs.alpha
        with np.errstate(divide="ignore"):
            return np.log(self.layout.gather(self.alpha, self.n))

    def filtered(self):
        """Return the states' probabilities given the rows up to each."""
        if self.logs is not None:
            return np.exp(self.logs.alpha)
        return self.layout.gather(self.alpha, self.n)

    def smoothed(self):
        """Return the states' probabilities given all rows, times weights."""
        if self.logs is not None:
            return self.logs.gamma
        return self.layout.gather(self.posteriors, self.n)

    def run_forward(self):
        """Run forward, in floating point numbers."""
        while True:
            layout, n = self.layout, self.n
            groups, size = range(len(layout.groups)), layout.n_tiles * n * TILE
            self.alpha = [layout.buffer(g, size) for g in groups]
            self.left = np.full((len(groups), n * LANES), 1.0 / n)
            if self.carried is not None:
                self.left[0, ::LANES] = self.carried
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
            low = parallel_map(self._fill_matrices, range(len(groups)))
            self.raised.note(np.any(list(low), axis=0))
        list(parallel_map(self._forward, range(len(groups))))

    def _fill_matrices(self, g):
        """Fill in the matrices of rows; return which transitions were raised."""
        out = self._of_part(self.matrices[g], self.part)
        self._probabilities(self.part, g, self.beta, out)
        if out.min() >= self.least:
            return np.zeros((self.n, self.n), bool)
        laid = out.reshape(-1, self.n, self.n, TILE)
        low = (laid < self.least).any(axis=(0, 3))
        np.maximum(out, self.least, out=out)
        return low

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
        continues, changes = self.layout.continues, np.empty(len(self.left))
        for _ in range(MOST_REPAIRS):
            _kernels.hand_on(self.ends, continues, self.carried, self.left, changes)
            wrong = np.flatnonzero(changes > TOLERANCE)
            if not wrong.size:
                return True
            needed = parallel_map(partial(self._forward, tolerance=TOLERANCE), wrong)
            if max(needed) < self.layout.n_tiles:  # nothing new at the ends
                return True
        return False

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
            self.layout.buffer((g, "scratch"), self._scratch),
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
        if self.logs is not None:
            return np.exp(self.logs.alpha[-1])
        return self.layout.gather(self.alpha, self.n)[-1].copy()

    def backward(self):
        """Run backward; return sums of first states, pairs of states and features.

        Pairs are (n_states, n_states), or with a second matrix (2, n_states, n_states),
        or with coefficients xi (n_states, n_states), the sum of xi log p, its gradient
        and the upper triangles of minus its Hessian, flat. Where emissions follow
        parameters the sums that they collect come last.
        """
        if self.logs is not None:
            return self.logs.backward()
        known, self._known = self._known, None
        return self.run_backward() if known is None else known

    def run_backward(self):
        """Run backward, in floating point numbers."""
        layout, n = self.layout, self.n
        self.used = 0.0
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
        self.right = np.tile([group.weight for group in groups], n)
        known, largest = self.right.copy(), np.empty(len(groups))
        list(parallel_map(self._backward, range(len(groups))))
        self.right = np.empty_like(known)  # errors of what was known, from here on
        about = layout.goes_on, known, self.right, largest
        while True:
            _kernels.hand_back(self.messages[0], *about)
            wrong = np.flatnonzero(largest > 0.0)
            if not wrong.size:
                break
            ended = parallel_map(partial(self._backward, tolerance=TOLERANCE), wrong)
            if min(ended) > 0:  # no error has come to a lane's start
                break
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
        pairs = (pairs * self.transitions.reshape(n, n))[None]
        if self.switches:
            others = self.other * sum(s[2] for s in sums)
            pairs = np.concatenate([pairs, others.reshape(1, n, n)])
        if self.coefficients is not None:
            explained = parallel_map(partial(self._explain, part), enumerate(sums))
            explained = sum(explained)
            pairs = explained[: n * n].reshape(1, n, n)
        wide = self.wide, self.n_features, WIDTH
        features = sum(s[3].reshape(wide).sum(axis=2) for s in sums)
        if self.raised.any:
            start, pairs, seen, used = self.raised.lower(start, pairs)
            self.used += used
            features[np.repeat(~seen, self.wide // n)] = 0.0
            for laid in self.posteriors:
                own = self._of_part(laid, part).reshape(-1, n, TILE)
                own[:, ~seen[: own.shape[1]]] = 0.0
        if self.coefficients is not None:
            explained[: n * n] = pairs.ravel()
            pairs = explained
        elif not self.switches:
            pairs = pairs[0]
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
    total, at = np.empty(LANES), before.copy()
    _kernels.lane_shares(shares, group.step, group.lane, at, total)
    return float(group.weight @ total + (group.ends - group.begins) @ at)
