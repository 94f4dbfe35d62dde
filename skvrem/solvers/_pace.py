"""How much shorter steps are made than asked for, where they have failed."""

# Share of an epoch's steps that may be infeasible before the step size is halved,
# and below which it recovers.
MANY_REJECTED, FEW_REJECTED = 0.10, 0.02
# Decreases of the objective that leave no trace: those of the start.
FORGIVEN = 5
# A fit has stalled where the objective decreased so often that steps are this share of
# what they were.
LEAST_PACE = 1e-6


class Pace:
    """Factor of the step size: down where steps fail, up again where they do not."""

    def __init__(self):
        self.factor = self.ceiling = 1.0
        self.n_slow = 0

    def slow_down(self):
        """After a decrease of the objective; after many, the fit is slowed for good."""
        self.n_slow += 1
        if self.n_slow > FORGIVEN:
            self.ceiling *= 0.7
        self.factor = min(0.5 * self.factor, self.ceiling)

    def adapt(self, rejected):
        """After an epoch, of whose steps a share was infeasible."""
        if rejected > MANY_REJECTED:
            self.factor *= 0.5
        elif rejected <= FEW_REJECTED:
            # Recovery is essential: early steps fail where later ones do not.
            self.factor = min(self.ceiling, 2.0 * self.factor)

    @property
    def stalled(self):
        """Whether steps have shrunk to nothing."""
        return self.factor < LEAST_PACE

    def state(self):
        """Return its numbers."""
        return dict(vars(self))
