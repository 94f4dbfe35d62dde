"""Full passes whose step is halved until it gains."""

from skvrem.solvers._prediction import mean_rate
from skvrem.solvers._protocols import Moved
from skvrem.solvers.estimate._batch import Batch

# Lengths of a step that are tried.
TRIALS = 40


class Ascent(Batch):
    """Steps of a model's own direction, each checked by a full pass.

    ``update(point, mean, None, length)`` is tried at the lengths 1, 1/2, 1/4, ... until
    the objective rises. For models whose update is an ascent direction that may
    overshoot, such as a natural gradient. An epoch is one step: a pass, or one more for
    each halving.
    """

    #: Near the end a step squares what is left of the error: one more is worth it.
    confirms = 2

    def start(self, model, data, rng):
        """See :class:`~skvrem.solvers._protocols.Solver`."""
        super().start(model, data, rng)
        self.predictions = []

    def state(self):
        """Return predictions; that of the point comes anew with it."""
        return {"predictions": self.predictions[:-1]}

    def certify(self, point, beta):
        """Evaluate the mean at the point, and what is left to gain."""
        self.anchor = self._predicting(super().certify(point, beta))
        return self.anchor

    def _predicting(self, anchor):
        self.predictions.append(self.model.predicted_gain(anchor.point, anchor.mean))
        left = self.predictions[-1] / (1.0 - mean_rate(self.predictions))
        return anchor._replace(predicted_gain=left)

    def epoch(self, anchor, pace, rng):
        """Make one step, of a length that gains."""
        length, slack = 1.0, 1e-13 * abs(anchor.objective)
        for trial in range(TRIALS):
            point = self.model.update(anchor.point, anchor.mean, None, length)
            tried = super().certify(point, self.beta)
            if tried.objective >= anchor.objective - slack:
                self.anchor = self._predicting(tried)
                return Moved(point, trial + 1.0, certified=self.anchor)
            length *= 0.5
        self.anchor = anchor
        return Moved(anchor.point, float(TRIALS), 0, certified=anchor, stalled=True)
