"""Epochs of steps that a model makes by itself, between passes that certify them."""

import math

from skvrem.solvers._batch import Batch
from skvrem.solvers._prediction import mean_rate

__all__ = ["Sweeps"]


class Sweeps(Batch):
    """Minibatch steps too short for a loop in Python: an epoch is one visit.

    An anchor is a full pass without noise, so that the loop can take back an epoch
    that lowered the objective, and halve the step. ``update(point, mean, rng, step)``
    of such a model makes the steps of an epoch; without a generator it returns the
    point. ``promise(point, mean)`` is what is left to gain, about, and ``forget()``
    drops what the model remembers of an epoch that is taken back. A model may have
    ``left_to_gain(point)`` too, as its promise but by all of the curvature and so right
    where the one is too small: it is asked where the fit would end.

    Parameters
    ----------
    passes : float
        That an epoch costs beside the anchor.
    name : str
    tol : float
        Where the fit will stop.
    """

    certifies = True
    unit_step = False
    #: Where the model promises nothing: an epoch can gain little by chance.
    patience, noisy = 10, True

    def __init__(self, passes, name="stochastic", tol=0.0):
        self.passes, self.name, self.tol = passes, name, tol

    def start(self, model, data, rng):
        """See :class:`~skvrem.solvers._protocols.Solver`."""
        super().start(model, data, rng)
        self.promises, self.short = [], 1.0

    def certify(self, point, beta):
        """Evaluate the mean at the point, and what is left to gain.

        The model's promise is that of one step. Where it hardly falls from epoch to
        epoch, be it for noise or for a metric that is not the curvature, many steps
        are left.
        """
        anchor = super().certify(point, beta)
        self.promises.append(self.model.promise(point, anchor.mean))
        if math.isinf(self.promises[-1]):  # the model makes none
            return anchor
        left = self.promises[-1] / (1.0 - mean_rate(self.promises))
        if left * self.short < self.tol and hasattr(self.model, "left_to_gain"):
            # How many times too small promises are, until one is small enough again.
            self.short = max(1.0, self.model.left_to_gain(point) / max(left, 1e-300))
            anchor = anchor._replace(passes=anchor.passes + 1.0)
        return anchor._replace(predicted_gain=left * self.short)

    def visits(self, rng):
        """All steps of an epoch at once."""
        yield rng

    def estimate(self, visit, point):
        """Return the anchor's mean, and the noise of the epoch."""
        return self.anchor.mean, visit

    def restore(self, anchor):
        """Drop what the model remembers."""
        self.model.forget()
