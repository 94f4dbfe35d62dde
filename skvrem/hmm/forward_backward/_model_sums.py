"""The passes of long data over a chain of few states, of which only sums are asked.

Everything about eight lanes is done at once, while it is in the cache: no message of a
row outlives that. What comes in from their neighbours is found before, so that lanes
need neither each other nor a second run.
"""

import numpy as np

from skvrem.hmm.forward_backward import _kernels_registers as kernels
from skvrem.hmm.forward_backward._kernels import LANES, STEPS, TILE
from skvrem.hmm.forward_backward._model_passes import UNUSED, Passes, Raised
from skvrem.utils._parallel import parallel_map
from skvrem.utils._simd import WIDTH

# States that registers hold. Every number of them is compiled for, in seconds, which
# fewer rows would not repay.
MOST_STATES, FEWEST_ROWS = 8, 50_000
# Tiles at the ends of lanes where chains have mostly forgotten what was before.
ENDS = 6, 24
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
        n, n_halves = len(chain.start), 2 * len(layout.groups)
        first, second, singles, self.order, self.ones = layout.rows.plain_features
        theta = np.empty((len(self.order) + 1, n))
        theta[0] = chain.theta[:, self.ones].sum(axis=1)
        theta[1:] = chain.theta.T[self.order]
        self.features = TILE * first, TILE * second, singles, theta.ravel()
        raised = Raised(chain)
        transitions = np.ascontiguousarray(raised.matrices[0])
        self.pairs = (
            np.ascontiguousarray(raised.start),
            transitions.ravel(),
            transitions.T.ravel(),
        )
        self.states, self.steps = (0,) * n, layout.n_tiles * STEPS
        self.left = np.full((n_halves, n, WIDTH), 1.0 / n)
        self.right = np.ones((n_halves, n, WIDTH))
        if layout.continues.any():
            self._hand_over()
        shares = list(parallel_map(self._add_up, range(n_halves // 2)))
        objective = sum(share for share, _ in shares)
        self.sums = sum(sums for _, sums in shares)
        if objective > NOWHERE and np.isfinite(self.sums).all():
            start, pairs, rest = np.split(self.sums, [n, n + n * n])
            pairs = (pairs * transitions.ravel()).reshape(1, n, n)
            seen = used = None
            if raised.any:
                start, pairs, seen, used = raised.lower(start, pairs)
            if not raised.any or used <= UNUSED:
                self.sums = start, pairs[0], rest.reshape(n, -1)
                if seen is not None:
                    self.sums[2][~seen] = 0.0
                return objective
        self.passes = Passes(layout, chain)
        return self.passes.forward()

    def backward(self):
        """Return sums of first states, pairs of states and features."""
        if self.passes is not None:
            return self.passes.backward()
        start, pairs, rest = self.sums
        features = np.empty((len(self.states), self.chain.theta.shape[1]))
        features[:, self.order] = rest
        features[:, self.ones] = (start + pairs.sum(axis=0))[:, None]
        return start, pairs, features

    def _halves(self, g, columns, halves, n_steps):
        """Yield what kernels take of both halves of a group, with their numbers."""
        n_columns = columns.size // (n_steps * LANES)
        for at, half in enumerate(halves):
            rows = columns, n_columns, *self.features, half.first
            yield 2 * g + at, (rows, self.pairs, half.events, n_steps), half.weight

    def _room(self):
        """Memory for kernels: of messages, and of posteriors and sums."""
        n, chunk, steps = len(self.states), kernels.CHUNK, self.steps
        messages = (steps + 1) * n, steps * n, steps, 1, 1
        sums = n, chunk * n, chunk * n, n * n, n * len(self.order)
        return tuple(
            tuple(np.empty(size * WIDTH) for size in sizes)
            for sizes in (messages, sums)
        )

    def _hand_over(self):
        """Find the messages at both ends of the lanes."""
        layout, n = self.layout, len(self.states)
        shape = len(self.left), 2, n
        products, exponents = np.empty((*shape, n, WIDTH)), np.empty((*shape, WIDTH))

        def suffice(g, columns, halves, n_steps, most):
            """Whether so many steps are enough, which are as at the ends of lanes."""
            with layout.spare(n, self._room) as (room, _):
                for number, about, _ in self._halves(g, columns, halves, n_steps):
                    found = products[number], exponents[number]
                    said = kernels.products(*about, most, room, *found, self.states)
                    if said == kernels.FEW:
                        return False
                    if said == kernels.ALL:
                        for part in found:
                            part[1] = part[0]
            return True

        def run(g):
            for n_tiles in ENDS if layout.rows.streamed else ():
                # Rows that are not kept are laid out where they are needed.
                steps = n_tiles * STEPS
                if 3 * steps < self.steps:
                    ends = layout.ends(g, n_tiles)
                    if suffice(g, *ends, 2 * steps, steps):
                        return
            with layout.columns(g) as columns:
                halves = layout.halves(g)
                suffice(g, columns, halves, self.steps, self.steps)

        list(parallel_map(run, range(len(layout.groups))))
        continues = np.append(layout.continues.ravel(), False)
        ends = np.full(n, 1.0 / n), self.left, self.right
        kernels.hand_over(products, exponents, continues, *ends)

    def _add_up(self, g):
        """Run over a group; return its log-likelihood and its sums, flat."""
        layout, n, share = self.layout, len(self.states), 0.0
        sums = np.zeros(n * (1 + n + len(self.order)))
        to = sums[:n], sums[n : n + n * n].reshape(n, n), sums[n + n * n :]
        to = *to[:2], to[2].reshape(n, -1)
        spare = layout.spare(n, self._room)
        with layout.columns(g) as columns, spare as room:
            halves = layout.halves(g)
            for number, about, weight in self._halves(g, columns, halves, self.steps):
                ends = self.left[number], self.right[number], weight
                share += kernels.add_up(*about, *ends, *room, *to, self.states)
        return share, sums
