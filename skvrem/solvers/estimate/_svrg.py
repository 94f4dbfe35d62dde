"""SVRG: the mean at an anchor, corrected by what a batch has changed since."""

from functools import partial
from typing import Any

from skvrem.solvers._protocols import Anchor
from skvrem.solvers.estimate._minibatches import Minibatches
from skvrem.utils._algebra import correction, rescale


class SVRG(Minibatches):
    """Variance reduction about an anchor that is renewed every epoch.

    Averaging models become sEM-vr (Chen et al. 2018, Eq. 5), gradient models SVRG.
    An epoch costs two passes where the model's memory holds the batches' sums, three
    where it holds the anchor's parameters and evaluates there again.
    """

    anchor: Any
    memory: Any
    name = "svrg"
    exact = True
    certifies = True
    # As of batches: a shoulder after the first epochs is no end.
    steady, patience = True, 2

    def take(self, model, partition):
        """See `Minibatches`."""
        super().take(model, partition)
        self.passes = 1.0 + model.recall_passes

    def certify(self, point, beta):
        """Make the anchor: a full pass at the point, each batch remembered."""
        # What the last epoch needed is free to go.
        self.memory = self.anchor = None
        total, self.memory = self.remembered(point, beta)
        mean = rescale(total, 1.0 / self.partition.total_weight)
        self.beta = beta
        objective = self.model.objective(point, mean)
        self.anchor = Anchor(mean, objective, 1.0, point)
        return self.anchor

    def estimate(self, visit, point):
        """Return the anchor's mean and the batch's scaled change since."""
        factor = len(self.partition) / self.partition.total_weight
        reduced = self.for_batches(point, visit)
        change = partial(_change, self.model, reduced, self.beta, factor)
        memory = self.memory[visit.block]
        return self.anchor.mean, self.partition.visit(change, visit, memory)


def _change(model, point, beta, factor, batch, memory):
    """Return what a batch has changed since it was remembered."""
    if getattr(model, "recalls_first", False):
        then = model.recall(memory, point, batch)
        now = model.statistics(point, batch, beta)
    else:
        now = model.statistics(point, batch, beta)
        then = model.recall(memory, point, batch)
    return correction(now, then, factor, in_place=True)
