"""Epochs of steps that a model makes by itself, between passes that certify them."""

from skvrem.solvers._batch import Batch

__all__ = ["Sweeps"]


class Sweeps(Batch):
    """Minibatch steps too short for a loop in Python: an epoch is one visit.

    An anchor is a full pass without noise, so that the loop can take back an epoch
    that lowered the objective, and halve the step. ``update(point, mean, rng, step)``
    of such a model makes the steps of an epoch; without a generator it returns the
    point. ``promise(point, mean)`` is what is left to gain, about, and ``forget()``
    drops what the model remembers of an epoch that is taken back.

    Parameters
    ----------
    passes : float
        That an epoch costs beside the anchor.
    """

    certifies = True
    unit_step = False
    #: An epoch can gain little by chance; what counts is the promise.
    patience = 10

    def __init__(self, passes):
        self.passes = passes

    def start(self, model, data, rng):
        """See :class:`~skvrem.solvers._protocols.Solver`."""
        super().start(model, data, rng)
        self.promises = []

    def begin(self, point, beta):
        """Evaluate the mean at the point."""
        anchor = super().begin(point, beta)
        promise = self.model.promise(point, anchor.mean)
        self.promises.append(promise)
        return anchor._replace(promise=promise)

    def visits(self, rng):
        """All steps of an epoch at once."""
        yield rng

    def estimate(self, visit, point):
        """Return the anchor's mean, and the noise of the epoch."""
        return self.anchor.mean, visit

    def restore(self, anchor):
        """Drop what the model remembers."""
        self.model.forget()
