"""One solver as far as it is good, another from there."""

import math
from operator import attrgetter

__all__ = ["HandOver"]

# Epochs that the first solver may still need.
MOST_EPOCHS = 20


class HandOver:
    """Epochs of a first solver until it is slow, then those of a second.

    For steps that are safe wherever a fit begins but converge slowly on some data,
    and others that are fast near the end. The first one is slow where, at the rate at
    which its gains fall, it would take more than 20 further epochs to `tol`.

    Parameters
    ----------
    first, second : solvers
        Their objectives are exact.
    model : model
        The second solver's: of the same points, so that it may have another metric.
    tol : float
        Where the fit will stop.
    window : int, default=1
        Epochs between the objectives whose differences are compared: more for a
        solver whose gains are noisy.
    """

    # All else that the loop asks of a solver it asks of the one whose turn it is.
    exact, certifies, unit_step, patience, passes, visits, estimate, restore = (
        property(attrgetter(f"active.{name}"))
        for name in (
            "exact",
            "certifies",
            "unit_step",
            "patience",
            "passes",
            "visits",
            "estimate",
            "restore",
        )
    )

    def __init__(self, first, second, model, tol, window=1):
        self.first, self.second, self.other = first, second, model
        self.tol = tol
        self.window = window

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

    def _slow(self):
        seen = self.objectives[-1 - 2 * self.window :: self.window]
        if len(seen) < 3:
            return False
        before, now = seen[1] - seen[0], seen[2] - seen[1]
        if not before > 0.0 or not now > 0.0 or now < self.tol:
            return False  # at the end, or at the limit of rounding
        if now >= before:
            return True
        left = math.log(max(self.tol, 1e-300) / now) / math.log(now / before)
        return left * self.window > MOST_EPOCHS
