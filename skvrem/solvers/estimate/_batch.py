"""Batch: the mean itself, by a full pass."""

from functools import partial
from typing import Any

from skvrem.solvers._protocols import Anchor
from skvrem.solvers.estimate._visiting import Visiting
from skvrem.utils._algebra import rescale


class Batch(Visiting):
    """Full passes; with an averaging model and step 1 this is EM.

    That is Eq. 3 of Chen et al. (2018); of hidden Markov models it is Baum-Welch,
    Algorithm 2 of Sidrow et al. (2023). An epoch is one update, and the pass that
    certifies it.
    """

    name = "batch"
    exact = True
    certifies = False
    unit_step = True
    # On a shoulder, where fast directions have died out, gains fall by much and then
    # hardly at all.
    steady, patience = True, 2
    passes = 0.0

    def start(self, model, data, rng):
        """See :class:`~skvrem.solvers._protocols.Solver`."""
        self.model = model
        self.partition = data.chunks()
        self.anchor: Any = None

    def certify(self, point, beta):
        """Evaluate the mean at the point: F(R(s)) in Eq. 3 of Chen et al. (2018)."""
        self.anchor = None  # free to go
        self.beta = beta
        sums = self.partition.sum(partial(self.model.statistics, point, beta=beta))
        mean = rescale(sums, 1.0 / self.partition.total_weight)
        self.anchor = Anchor(mean, self.model.objective(point, mean), 1.0, point)
        return self.anchor

    def visits(self, rng):
        """One step an epoch."""
        yield None

    def estimate(self, visit, point):
        """Return the mean, with nothing to correct."""
        return self.anchor.mean, None
