"""The passes of long data over a chain of few states, of which only sums are asked.

Everything about eight lanes is done at once, while it is in the cache: no message of a
row outlives that. What comes in from their neighbours is found before, so that lanes
need neither each other nor a second run.
"""

import numpy as np

from skvrem.hmm.forward_backward import _kernels_registers as kernels
from skvrem.hmm.forward_backward._kernels import LANES, STEPS, TILE
from skvrem.hmm.forward_backward._model_passes import UNUSED, Passes, Raised
from skvrem.utils._parallel import parallel_each, thread_count
from skvrem.utils._simd import WIDTH, empty_lines

# States that registers hold. Every number of them is compiled for, in seconds, which
# fewer rows would not repay.
MOST_STATES, FEWEST_ROWS = 8, 50_000
# Tiles at the ends of lanes where chains have mostly forgotten what was before.
ENDS = 6, 24
# Groups that are run over in one call, which no interrupt ends.
MOST_GROUPS = 32
# Log-likelihoods below are of something impossible.
NOWHERE = -1e89


def suits(layout, chain):
    """Whether `SummedPasses` can pass over a layout, and is worth its compilation."""
    n = len(chain.start)
    special = chain.other, chain.coefficients, chain.follows
    return (
        (layout.n_rows >= FEWEST_ROWS or layout.rows.sampled)
        and 1 < n <= MOST_STATES
        and len(chain.theta) == n
        and all(part is None for part in special)
    )


class SummedPasses:
    """The E step, as of `Passes`, without what concerns single rows.

    Parameters
    ----------
    layout : Layout
    chain : Chain
    """

    def __init__(self, layout, chain):
        self.layout, self.chain = layout, chain
        #: The other way, for what these kernels leave.
        self.passes = None

    def forward(self):
        """Run; return the weighted log-likelihood.

        Raises
        ------
        Impossible
            If a row has probability zero.
        """
        layout, chain = self.layout, self.chain
        *_, self.order, self.ones = layout.rows.plain_features
        theta = np.empty((len(self.order) + 1, len(chain.start)))
        theta[0] = chain.theta[:, self.ones].sum(axis=1)
        theta[1:] = chain.theta.T[self.order]
        raised = Raised(chain)
        reference = self._reference(theta)
        objective = self._run(theta, reference, raised)
        if reference is not None and not np.isfinite(objective):
            objective = self._run(theta, None, raised)
        if objective > NOWHERE:
            start, pairs, rest = self.sums
            pairs, seen, used = pairs[None], None, 0.0
            if raised.any:
                start, pairs, seen, used = raised.lower(start, pairs)
            if used <= UNUSED:
                if seen is not None:
                    rest[~seen] = 0.0
                self.sums = start, pairs[0], rest
                return objective
        self.passes = Passes(layout, chain)
        return self.passes.forward()

    def _reference(self, theta):
        """The state that is nowhere much less likely than others, None if none is.

        Some rows are looked at, the same in every pass.
        """
        with np.errstate(all="ignore"):
            logs = theta.T @ self.layout.rows.some_features
            behind = (logs.max(axis=0) - logs).max(axis=1)
        state = int(behind.argmin())
        return state if behind[state] <= 0.5 * kernels.HIGHEST else None

    def _run(self, theta, reference, raised):
        """Set the sums; return the log-likelihood, not finite where this is no way."""
        layout, n = self.layout, len(self.chain.start)
        first, second, singles = layout.rows.plain_features[:3]
        start, matrix, own = raised.start, raised.matrices[0], theta
        if reference is not None:
            order = [*range(reference), *range(reference + 1, n), reference]
            start, matrix = start[order], matrix[order][:, order]
            own = theta[:, order[:-1]] - theta[:, reference, None]
        offsets = TILE * first, TILE * second, singles
        self.features = *offsets, own.ravel(), (0,) * own.shape[1]
        self.pairs = np.ascontiguousarray(start), matrix.ravel(), matrix.T.ravel()
        self.states, self.steps = (0,) * n, layout.n_tiles * STEPS
        n_halves = 2 * len(layout.groups)
        self.left = np.full((n_halves, n, WIDTH), 1.0 / n)
        self.right = np.ones((n_halves, n, WIDTH))
        if layout.joined:
            self._hand_over()
        shares = np.zeros(n_halves // 2)
        sums = np.zeros((n_halves // 2, n * (1 + n + len(self.order))))
        self._by_groups(lambda *groups: self._add_up(*groups, shares, sums))
        objective, sums = shares.sum(), sums.sum(axis=0)
        if not np.isfinite(sums).all():
            return np.nan
        start, pairs = sums[:n], sums[n : n + n * n].reshape(n, n) * matrix
        rest = sums[n + n * n :].reshape(n, -1)
        if reference is not None:
            # Posteriors of a row sum to its weight.
            weight = start.sum() + pairs.sum()
            objective += weight * theta[0, reference]
            objective += rest.sum(axis=0) @ theta[1:, reference]
            back = [*range(reference), n - 1, *range(reference, n - 1)]
            start, pairs, rest = start[back], pairs[back][:, back], rest[back]
        self.sums = start, pairs, rest
        return objective

    def backward(self):
        """Return sums of first states, pairs of states and features."""
        if self.passes is not None:
            return self.passes.backward()
        start, pairs, rest = self.sums
        features = np.empty((len(self.states), self.chain.theta.shape[1]))
        features[:, self.order] = rest
        features[:, self.ones] = (start + pairs.sum(axis=0))[:, None]
        return start, pairs, features

    def _by_groups(self, function, n_ranges=2):
        """Call a function with the ends of ranges of groups, in threads.

        Of what is left a thread takes one part in as many as all may take so many
        ranges: they grow smaller, so that threads end together though calls are few.
        """
        n_groups, n_threads = len(self.layout.groups), thread_count()
        n_parts = n_ranges * n_threads if n_threads > 1 else 1
        ranges, begin = [], 0
        while begin < n_groups:
            share = -(-(n_groups - begin) // n_parts)
            ranges.append((begin, begin + min(share, MOST_GROUPS)))
            begin = ranges[-1][1]
        parallel_each(function, ranges)

    def _about(self, columns, halves, n_steps):
        """What kernels take of the halves of some groups."""
        n_columns = columns.size // (len(halves.weight) // 2 * n_steps * LANES)
        rows = columns, n_columns, *self.features
        return rows, self.pairs, halves.events, n_steps

    def _room(self):
        """Memory for kernels: of messages, and of posteriors and sums."""
        n, chunk, steps = len(self.states), kernels.CHUNK, self.steps
        messages = (steps + 1) * n, steps * n, 1, 1
        sums = n, chunk * n, chunk * n, n * n, n * len(self.order)
        return tuple(
            tuple(empty_lines(size * WIDTH) for size in sizes)
            for sizes in (messages, sums)
        )

    def _hand_over(self):
        """Find the messages at both ends of the lanes."""
        layout, n = self.layout, len(self.states)
        shape = len(self.left), 2, n
        products, exponents = np.empty((*shape, n, WIDTH)), np.empty((*shape, WIDTH))

        def suffice(begin, end, columns, halves, n_steps, most):
            """Whether so many steps are enough, which are as at the ends of lanes."""
            about = self._about(columns, halves, n_steps)
            own = slice(2 * begin, 2 * end)
            found = products[own], exponents[own]
            with layout.spare(n, self._room) as (room, _):
                return kernels.products(*about, most, room, *found, self.states)

        def is_found(g):
            """Whether rows at the ends of lanes, laid out alone, are enough."""
            for n_tiles in ENDS:
                steps = n_tiles * STEPS
                if 3 * steps < self.steps:
                    ends = layout.ends(g, n_tiles)
                    if suffice(g, g + 1, *ends, 2 * steps, steps):
                        return True
            return False

        def run(begin, end):
            groups = [(begin, end)]
            if layout.rows.streamed:
                groups = [(g, g + 1) for g in range(begin, end) if not is_found(g)]
            for some in groups:
                for *own, columns in layout.columns(*some):
                    halves = layout.halves.of_groups(*own)
                    suffice(*own, columns, halves, self.steps, self.steps)

        self._by_groups(run, 1)
        ends = np.full(n, 1.0 / n), self.left, self.right
        kernels.hand_over(products, exponents, layout.all_continue, *ends)

    def _add_up(self, begin, end, shares, sums):
        """Run over some groups; set their log-likelihoods and their sums."""
        layout = self.layout
        with layout.spare(len(self.states), self._room) as room:
            for first, stop, columns in layout.columns(begin, end):
                halves = layout.halves.of_groups(first, stop)
                about = self._about(columns, halves, self.steps)
                ends = self.left[2 * first : 2 * stop], self.right[2 * first : 2 * stop]
                to = shares[first:stop], sums[first:stop]
                more = *ends, halves.weight, *room, *to
                kernels.add_up(*about, *more, self.states)
