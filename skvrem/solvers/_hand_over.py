"""One solver as far as it is good, another from there."""

import math

from skvrem.solvers._batch import Batch

__all__ = ["HandOver"]

# Epochs that the first solver may still need, and those from which its rate is told.
MOST_EPOCHS, FIRST_EPOCHS = 20, 3


class HandOver(Batch):
    """Full passes of a first solver until it is slow, then those of a second.

    For steps that are safe wherever a fit begins but converge slowly on some data,
    and others that are fast near the end. The first one is slow where, at the rate at
    which its gains fall, it would take more than 20 further epochs to `tol`.

    Parameters
    ----------
    first, second : solvers of full passes
    model : model
        The second solver's: of the same points, so that it may have another metric.
    tol : float
        Where the fit will stop.
    """

    def __init__(self, first, second, model, tol):
        self.first, self.second, self.other = first, second, model
        self.tol = tol

    @property
    def patience(self):
        """See :class:`~skvrem.solvers._protocols.Solver`."""
        return self.active.patience

    def start(self, model, data, rng):
        """See :class:`~skvrem.solvers._protocols.Solver`."""
        self.first.start(model, data, rng)
        self.active, self.objectives = self.first, []
        self.rest = data, rng

    def begin(self, point, beta):
        """Begin an epoch of the solver whose turn it is."""
        anchor = self.active.begin(point, beta)
        if self.active is self.second:
            return anchor
        self.objectives.append(anchor.objective)
        if not self._slow():
            return anchor
        self.active, passes = self.second, anchor.passes
        self.second.start(self.other, *self.rest)
        anchor = self.second.begin(point, beta)
        return anchor._replace(passes=passes + anchor.passes)

    def visits(self, rng):
        """Those of the solver whose turn it is."""
        return self.active.visits(rng)

    def estimate(self, visit, point):
        """The estimate of the solver whose turn it is."""
        return self.active.estimate(visit, point)

    def _slow(self):
        if len(self.objectives) < FIRST_EPOCHS:
            return False
        first, second, third = self.objectives[-FIRST_EPOCHS:]
        before, now = second - first, third - second
        if not before > 0.0 or not now > 0.0 or now < self.tol:
            return False  # at the end, or at the limit of rounding
        if now >= before:
            return True
        left = math.log(max(self.tol, 1e-300) / now) / math.log(now / before)
        return left > MOST_EPOCHS
