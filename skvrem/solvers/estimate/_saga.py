"""SAGA with a frozen table: variance reduction at one pass an epoch."""

from functools import partial
from typing import Any

from skvrem.solvers._protocols import Anchor
from skvrem.solvers.estimate._minibatches import Minibatches
from skvrem.utils._algebra import accumulate, correction, dense, scale


class SAGA(Minibatches):
    """The last visit of every block as control variate, renewed epoch by epoch.

    Blocks are drawn without replacement and the table stands still within an epoch;
    what the visits saw replaces it at the end. Replacing at once, as textbook SAGA
    does under draws *with* replacement, would make the drawn block always one of the
    oldest entries: hidden momentum, which diverges once a step times the number of
    blocks exceeds about 2. Frozen, the table is unbiased, and an epoch costs one pass.

    The certificate is the bound of Neal and Hinton (1998): the surrogate of the
    table's mean, maximized, plus the entropies of the visits. It never exceeds the
    objective at that point, and equals it at a fixed point.
    """

    table: Any
    total: Any
    name = "saga"
    exact = False
    certifies = True
    # As of batches: a shoulder after the first epochs is no end.
    steady, patience = True, 2
    passes = 1.0

    def start(self, model, data, rng):
        """See :class:`~skvrem.solvers._protocols.Solver`."""
        super().start(model, data, rng)
        self.table = self.beta = None

    def certify(self, point, beta):
        """Put the table of the last epoch in place, or fill one by a full pass."""
        filled = self.table is None or beta != self.beta
        if filled:
            # A table made at another temperature belongs to another objective.
            self._fill(point, beta)
        self._follow(point)
        self.fresh, self.moved = list(self.table), None
        mean = scale(self.total, 1.0 / self.partition.total_weight)
        top = self.model.update(point, mean, None, 1.0)
        bound = float(mean.entropy) + self.model.surrogate(top, mean)
        memory = (self.table, self.total, self.reference)
        self.anchor = Anchor(mean, bound, float(filled), point, memory)
        return self.anchor

    def _fill(self, point, beta):
        self.beta, self.table, self.reference = beta, None, point.reference
        self.total, self.table = self.remembered(point, beta)

    def _follow(self, point):
        """Express the table about the reference of this epoch."""
        if point.reference is not self.reference:
            translate = partial(
                self.model.translate,
                reference=self.reference,
                new_reference=point.reference,
            )
            self.table = self.partition.mapped(translate, self.table)
            self.total = translate(self.total)
            self.reference = point.reference

    def visits(self, rng):
        """Each block once, then the new table takes the place of the old."""
        yield from super().visits(rng)
        factor = len(self.partition) / self.partition.total_weight
        total = dense(self.total)  # the anchor's, which may be returned to, stays
        self.table, self.total = self.fresh, accumulate(total, self.moved, 1 / factor)

    def estimate(self, visit, point):
        """Return the table's mean and the batch's scaled change since its visit."""
        factor = len(self.partition) / self.partition.total_weight
        reduced = self.for_batches(point, visit)
        renewed = partial(_renewed, self.model, reduced, self.beta, factor)
        block = visit.block
        change, self.fresh[block] = self.partition.renew(
            renewed, visit, self.table[block]
        )
        self.moved = accumulate(self.moved, change)
        return self.anchor.mean, change

    def lose(self):
        """Let the next certificate fill the table."""
        self.table = None

    def restore(self, anchor):
        """Take the anchor's table back."""
        self.table, self.total, self.reference = anchor.memory


def _renewed(model, point, beta, factor, batch, entry):
    """Return what a batch has changed since its entry was made, and the next one."""
    now, memory = model.remember(point, batch, beta)
    return correction(now, model.recall(entry, point, batch), factor), memory
