"""Incremental EM (Neal and Hinton 1998): replace a block's share, then maximize."""

from functools import partial

from skvrem.solvers._protocols import Anchor
from skvrem.solvers.estimate._saga import SAGA
from skvrem.utils._algebra import accumulate, dense, difference, scale


class Incremental(SAGA):
    """Keep the sums of every block; each visit replaces one block's share at once.

    The step is 1 and there is nothing to tune: every visit raises the bound. About
    twice as fast as batch passes, and always feasible, since the total is a sum of
    statistics that were all seen.

    Parameters
    ----------
    n_blocks : int
    sweeps : int, default=0
        Where blocks lean on each other (stretches of one long sequence), there is no
        bound. Then an epoch is a full pass, which fills the table anew and whose exact
        objective certifies the epoch before, and so many sweeps over the blocks.
    """

    name = "incremental"
    unit_step = True

    def __init__(self, n_blocks, sweeps=0):
        super().__init__(n_blocks)
        self.sweeps = sweeps
        self.exact = sweeps > 0
        self.passes = float(max(1, sweeps))

    def certify(self, point, beta):
        """Put the table of the last epoch in place, or fill one by a full pass."""
        if not self.sweeps:
            return super().certify(point, beta)
        self._fill(point, beta)
        mean = scale(self.total, 1.0 / self.partition.total_weight)
        objective = self.model.objective(point, mean)
        memory = (self.table, self.total, self.reference)
        self.anchor = Anchor(mean, objective, 1.0, point, memory)
        return self.anchor

    def remembered(self, point, beta):
        """Return the sums of all blocks, and those of each, its share."""
        shares = partial(_share, self.model, self.for_batches(point), beta)
        return self.partition.keep(shares)

    def visits(self, rng):
        """Each block once."""
        # Copies, as both change in place and the anchor may be returned to.
        self.table, self.total = list(self.table), dense(self.total)
        for _ in range(max(1, self.sweeps)):
            yield from self.partition.shuffled(rng)
        self.total = self.partition.total(self.table)  # forgets rounding

    def estimate(self, visit, point):
        """Return the mean of the table with this block's share renewed."""
        reduced = self.for_batches(point, visit)
        replaced = partial(_replaced, self.model, reduced, self.beta)
        block = visit.block
        change, self.table[block] = self.partition.renew(
            replaced, visit, self.table[block]
        )
        self.total = accumulate(self.total, change)
        return scale(self.total, 1.0 / self.partition.total_weight), None


def _share(model, point, beta, batch):
    sums = model.statistics(point, batch, beta)
    return sums, sums


def _replaced(model, point, beta, batch, share):
    """Return by how much a batch's share differs from what it was, and the new one."""
    now = model.statistics(point, batch, beta)
    return difference(now, share), now
