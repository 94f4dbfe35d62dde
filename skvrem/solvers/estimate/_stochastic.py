"""Stochastic: the mean of one batch, no memory."""

from functools import partial
from typing import Any

import numpy as np

from skvrem.solvers._protocols import Anchor
from skvrem.solvers.estimate._minibatches import Minibatches
from skvrem.utils._algebra import rescale


class Stochastic(Minibatches):
    """Stochastic approximation on minibatches (Cappé and Moulines 2009).

    Averaging models become stochastic EM (Chen et al. 2018, Eq. 4). The objective of
    an epoch is the average of what its batches saw while the point moved: progressive
    validation, noisy and a little behind.
    """

    name = "stochastic"
    exact = None
    certifies = False
    patience, noisy = 2, True
    passes = 1.0

    def take(self, model, partition):
        """See `Minibatches`."""
        super().take(model, partition)
        self.seen: Any = None  # by the epoch at hand
        self.last: Any = None  # by the one before it
        self.n_visits, self.temperature = 0, None

    def certify(self, point, beta):
        """Report the objective seen in the last epoch."""
        objective = np.nan if self.seen is None else self.seen[0] / self.seen[1]
        self.beta = beta
        self.last, self.seen = self.seen, (0.0, 0.0)
        self.n_visits, self.temperature = 0, None
        return Anchor(None, objective, 0.0, point)

    def state(self):
        """Return what the last epoch saw: its objective, which no pass finds again."""
        return {"seen": self.last}

    def follow(self, temperature):
        """Take the temperature of each visit from a function of the epoch's share."""
        self.temperature = temperature

    def visits(self, rng):
        """Each block once, unless its rows weigh nothing."""
        visits = super().visits(rng)
        return (visit for visit in visits if visit.total_weight > 0.0)

    def estimate(self, visit, point):
        """Return the batch's own mean as the correction of nothing."""
        weight = visit.total_weight
        if self.temperature is not None:
            self.beta = 1.0 / self.temperature(self.n_visits / len(self.partition))
            self.n_visits += 1
        reduced = self.for_batches(point, visit)
        mean_of = partial(_mean, self.model, reduced, self.beta, weight)
        mean = self.partition.visit(mean_of, visit)
        total, seen = self.seen
        self.seen = (total + weight * self.model.objective(point, mean), seen + weight)
        return None, mean


def _mean(model, point, beta, weight, batch, entry):
    return rescale(model.statistics(point, batch, beta), 1.0 / weight)
