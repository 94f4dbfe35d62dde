"""Full passes whose step is halved until it gains."""

from skvrem.solvers._batch import Batch

__all__ = ["Ascent"]

# Lengths of a step that are tried.
TRIALS = 40


class Ascent(Batch):
    """Steps of a model's own direction, each checked by a full pass.

    ``update(point, mean, None, length)`` is tried at the lengths 1, 1/2, 1/4, ... until
    the objective rises. For models whose update is an ascent direction that may
    overshoot, such as a natural gradient. An epoch is one step: a pass, or one more for
    each halving.

    Beside the rest a model has ``promise(point, mean)``: what is left to gain, about.
    """

    #: A step can be small by chance; what counts is the promise.
    patience = 3

    def start(self, model, data, rng):
        """See :class:`~skvrem.solvers._protocols.Solver`."""
        super().start(model, data, rng)
        self.last = None
        self.promises = []

    def begin(self, point, beta):
        """Evaluate the first point; from then on make a step from the last anchor."""
        if self.last is None:
            anchor, passes = super().begin(point, beta), 1.0
        else:
            anchor, passes = self._step(beta)
        self.last = anchor
        promise = self.model.promise(anchor.point, anchor.mean)
        self.promises.append(promise)
        # The point has moved already: nothing is left to update.
        self.anchor = anchor._replace(mean=None, passes=passes, promise=promise)
        return self.anchor

    def visits(self, rng):
        """None: steps are made where their length is tried."""
        return ()

    def _step(self, beta):
        """Return the anchor at the end of a step that gains, and the passes made."""
        before, length = self.last, 1.0
        slack = 1e-13 * abs(before.objective)
        for trial in range(TRIALS):
            point = self.model.update(before.point, before.mean, None, length)
            anchor = super().begin(point, beta)
            if anchor.objective >= before.objective - slack:
                return anchor, trial + 1.0
            length *= 0.5
        return before, float(TRIALS)
