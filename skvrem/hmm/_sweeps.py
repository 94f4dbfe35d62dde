"""EM-VRSO (Sidrow et al. 2023, Algorithm 5): full E steps, stochastic M steps."""

import math

from skvrem.solvers import Batch
from skvrem.solvers._protocols import Anchor, Moved

__all__ = ["Sweeps"]

# Attempts from one anchor before a step of EM, which never fails, takes their place.
ATTEMPTS = 8


class Sweeps(Batch):
    """Sweeps of steps, kept where the likelihood does not fall (Algorithm 5).

    An epoch is a sweep from the last anchor and the full E step at its end, which says
    whether the likelihood has fallen. If so, another sweep is made; with partial E
    steps, where the loss itself moves during a sweep, at half the step size from
    then on.

    Parameters
    ----------
    make : callable
        Makes the model's sweeps of the model and the data.
    step_size : float
        Factor of the steps 1 / (3 L).
    """

    #: A sweep can gain little by chance.
    patience = 2

    def __init__(self, make, step_size, name):
        self.make, self.name = make, name
        self.factor = step_size

    def start(self, model, data, rng):
        """See :class:`~skvrem.solvers._protocols.Solver`."""
        self.model, self.rng = model, rng
        self.sweeps = self.make(model, data, rng)

    def certify(self, point, beta):
        """Evaluate the point by a full E step."""
        self.anchored = self.sweeps.evaluate(point)
        return self._anchor(1.0)

    def epoch(self, anchor, pace, rng):
        """Sweep from the last anchor."""
        passes, stalled = self._advance()
        after = self._anchor(passes)
        return Moved(
            after.point, passes, step_size=self.factor, certified=after, stalled=stalled
        )

    def _anchor(self, passes):
        point, mean, objective, _ = self.anchored
        return Anchor(mean, objective, passes, point._replace(statistics=mean))

    def _advance(self):
        """Go to the end of a sweep that does not lower the objective.

        Return the passes made, and whether nothing did.
        """
        before, passes = self.anchored, 0.0
        for _ in range(ATTEMPTS):
            passes += self.sweeps.passes + 1.0
            objective = -math.inf
            try:
                moved = self.sweeps.sweep(before, self.factor, self.rng)
                after = self.sweeps.evaluate(moved)
                objective = after.objective
            except FloatingPointError:  # the steps went too far
                pass
            if objective >= before.objective:
                self.anchored = after
                return passes, False
            if self.sweeps.partial:
                self.factor *= 0.5
        moved = self.model.update(before.point, before.mean, None, 1.0)
        after = self.sweeps.evaluate(moved)
        rose = after.objective >= before.objective
        if rose:
            self.anchored = after
        return passes + 1.0, not rose
