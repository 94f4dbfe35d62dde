"""Incremental EM (Neal and Hinton 1998): replace a block's share, then maximize."""

from functools import reduce

from skvrem.solvers._saga import SAGA
from skvrem.utils._algebra import accumulate, dense, difference, scale

__all__ = ["Incremental"]


class Incremental(SAGA):
    """Keep the sums of every block; each visit replaces one block's share at once.

    The step is 1 and there is nothing to tune: every visit raises the bound. About
    twice as fast as batch passes, and always feasible, since the total is a sum of
    statistics that were all seen.
    """

    unit_step = True

    def _entry(self, memory, sums):
        return sums

    def visits(self, rng):
        """Each block once."""
        # Copies, as both change in place and the anchor may be returned to.
        self.table, self.total = list(self.table), dense(self.total)
        yield from self.partition.shuffled(rng)
        self.total = reduce(accumulate, self.table, None)  # forgets rounding

    def estimate(self, visit, point):
        """Return the mean of the table with this block's share renewed."""
        share = self.model.statistics(point, visit, self.beta)
        change = difference(share, self.table[visit.block])
        self.total = accumulate(self.total, change)
        self.table[visit.block] = share
        return scale(self.total, 1.0 / self.partition.total_weight), None
