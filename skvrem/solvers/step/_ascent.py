"""Full passes whose step is halved until it gains."""

from skvrem.solvers._prediction import mean_rate
from skvrem.solvers._protocols import Moved
from skvrem.solvers.estimate._batch import Batch

# Lengths of a step that are tried, and by what one may differ from the last.
TRIALS = 40
LEAST_TIMES, MOST_TIMES = 0.1, 4.0


class Ascent(Batch):
    """Steps of a model's own direction, each checked by a full pass.

    ``update(point, mean, None, length)`` is tried at a length, its half, its quarter
    ... until the objective rises. For models whose update is an ascent direction that
    may overshoot, such as a natural gradient. An epoch is one step: a pass, or one more
    for each halving.

    The first length is 1, or less where models tell of the slope along the last step:
    by what was left of it at the end the top lay at another length (a secant, as of
    Barzilai and Borwein 1988). Steps that just rise would else swing to and fro about
    the top of the steepest axis, and hardly move along the others.

    Parameters
    ----------
    length : float, default=1.0
        Of the first step, as of a fit that this one goes on from.
    memory : int, default=0
        Earlier points that are mixed with the last one (Anderson 1965), where models
        have `mixed` for that: slow directions are left in a few steps. A mixture that
        does not gain costs a pass, and nothing before it is mixed again.
    """

    #: Near the end a step squares what is left of the error: one more is worth it.
    confirms = 2

    def __init__(self, length=1.0, memory=0):
        self.length, self.memory = length, memory

    def start(self, model, data, rng):
        """See :class:`~skvrem.solvers._protocols.Solver`."""
        super().start(model, data, rng)
        self.predictions, self.trail = [], []

    def state(self):
        """Return predictions, that of the point comes anew with it, and the length."""
        return {"predictions": self.predictions[:-1], "length": self.length}

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
        length, slack, before = self.length, 1e-13 * abs(anchor.objective), 0.0
        point = self._mixed(anchor)
        if point is not None:
            tried, before = super().certify(point, self.beta), 1.0
            if tried.objective >= anchor.objective - slack:
                self.anchor = self._predicting(tried)
                return Moved(point, 1.0, certified=self.anchor)
            self.trail = self.trail[-1:]
        for trial in range(TRIALS):
            point = self.model.update(anchor.point, anchor.mean, None, length)
            tried = super().certify(point, self.beta)
            if tried.objective >= anchor.objective - slack:
                self.length = self._next_length(length, anchor, tried)
                self.anchor = self._predicting(tried)
                passes = before + trial + 1.0
                return Moved(point, passes, certified=self.anchor)
            length *= 0.5
        self.anchor = anchor
        passes = before + TRIALS
        return Moved(anchor.point, passes, 0, certified=anchor, stalled=True)

    def _mixed(self, anchor):
        """Return the mixture of a point and those before it, None without."""
        if not (self.memory and hasattr(self.model, "mixed")):
            return None
        self.trail.append(self.model.trace(anchor.point, anchor.mean))
        self.trail = self.trail[-1 - self.memory :]
        return self.model.mixed(self.trail)

    def _next_length(self, length, before, after):
        """Return where the top lay along a step, at most one."""
        if not hasattr(self.model, "slope_left"):
            return 1.0
        left = self.model.slope_left(before, after)
        times = 1.0 / max(1.0 - left, 1.0 / MOST_TIMES)
        return min(1.0, max(times, LEAST_TIMES) * length)
