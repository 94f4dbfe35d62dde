"""Preconditioned limited-memory BFGS, through a model's exact gradient."""

import math
from collections import deque

import numpy as np
from scipy.linalg.blas import daxpy

from skvrem.solvers._prediction import left_by_sums, mean_rate
from skvrem.solvers._protocols import Moved
from skvrem.solvers.estimate._batch import Batch

# Share of the predicted gain that a step must bring (Armijo), and trials of its length.
SUFFICIENT, TRIALS = 1e-4, 30
# The curvature is taken anew where a step gains more than this share of the one before,
# at least so many steps after the last time, twice as many every time; and where the
# steps that it saves, at the rate of a good curvature, are worth its cost.
SLOW, STEPS_BETWEEN, GOOD_RATE = 0.25, 3, 0.05


class QuasiNewton(Batch):
    r"""Ascent along L-BFGS directions whose first metric is the model's own.

    With the gradient :math:`g` of the objective and a metric :math:`P` near its
    negative curvature, directions are :math:`H g`, where H is :math:`P^{-1}` updated by
    the last pairs of steps and changes of the gradient (Nocedal and Wright 2006,
    Algorithm 7.4, with :math:`\gamma P^{-1}` for :math:`H_0`). A step is halved, or cut
    by interpolation, until it gains enough. An epoch is one step: a pass, or one more
    for each cut.

    A metric that is right to some 10 % makes a step gain nine tenths of what is left;
    the pairs learn the rest. :math:`g^T H g / 2`, over one minus the rate at which it
    falls, estimates what is left to gain, so a fit ends without a pass that only
    shows that nothing moves. Single predictions can be small by chance: where steps are
    many, it is no less than what their gains say.

    ``_protocols.py`` lists what such a model has (`Climbing`).

    Parameters
    ----------
    tol : float
        Where the fit will stop.
    memory : int, default=10
        Pairs of steps and changes of the gradient that are kept.
    trusted : bool, default=True
        The estimate of what is left to gain may end the fit. It is right where the
        metric is close to the curvature, as of a concave objective.
    name : str, default=None
        Another name, of estimators that name their optimizer apart.
    """

    #: Where predictions are not trusted: a step can be small by chance.
    steady, patience = False, 3
    lasting = ("pairs", "age", "oldest")

    def __init__(self, tol, memory=10, trusted=True, name=None):
        # Without pairs of steps these are damped steps of the metric: plain batch.
        self.name = name or ("batch+lbfgs" if memory else "batch")
        self.tol = tol
        self.memory = memory
        self.trusted = trusted

    def start(self, model, data, rng):
        """See :class:`~skvrem.solvers._protocols.Solver`."""
        super().start(model, data, rng)
        self.data, self.rng = data, rng
        self.longest = getattr(model, "longest_step", math.inf)
        self.newton = getattr(model, "newton", False)
        self.pairs: deque = deque(maxlen=self.memory)
        self.predictions, self.objectives = [], []
        self.age, self.oldest = 0, STEPS_BETWEEN

    def state(self):
        """Return pairs and predictions; that of the point comes anew with it."""
        seen = {"predictions": self.predictions[:-1]}
        return super().state() | seen | {"objectives": self.objectives[:-1]}

    def certify(self, point, beta):
        """Evaluate a point that no step has led to, with the metric taken there."""
        anchor = super().certify(point, beta)
        if hasattr(self.model, "most_left") and not self.age:
            most = self.model.most_left(point, anchor.mean)
            self.anchor = anchor._replace(predicted_gain=most)
            if self._is_there(self.anchor):
                return self.anchor
        point, cost = self.model.recondition(point, self.data, self.rng)
        anchor, more = self._predict_gain(anchor._replace(point=point))
        self.anchor = anchor._replace(passes=1.0 + cost + more)
        return self.anchor

    def epoch(self, anchor, pace, rng):
        """Make one step, of a length that gains enough, where there is one to make.

        Or go to a better point, where the model knows one.
        """
        if hasattr(self.model, "better"):
            better = self.model.better(anchor.point, anchor.objective)
            if better is not None:
                self.pairs.clear()
                self.predictions, self.objectives, self.age = [], [], 0
                anchor = self.certify(better, self.beta)
                return Moved(anchor.point, anchor.passes, certified=anchor)
        if not self.age and self._is_there(anchor):
            return Moved(anchor.point, 0.0, certified=anchor)
        after, passes = self._step(anchor)
        stalled = after is None and not self.pairs and not self.age
        if after is None:
            # Once more along the metric alone, or a new one that is taken here.
            after = anchor
            if not self.pairs and self.age:
                passes += self._take(anchor.point)
                after = after._replace(point=self.point)
            self.pairs.clear()
        if not stalled:
            after, cost = self._predict_gain(after)
            passes += cost
        self.anchor = after
        return Moved(after.point, passes, certified=after, stalled=stalled)

    def _is_there(self, anchor):
        """Whether a fit that begins here is at its end: from a good start."""
        may_end = getattr(self.model, "may_end", None)
        if not self.trusted or may_end is None or not anchor.predicted_gain < self.tol:
            return False
        return may_end(anchor.point, anchor.mean, self.tol)

    def _predict_gain(self, anchor):
        """Return the anchor with what its direction is to gain, and the passes made."""
        self.gradient = self.model.gradient(anchor.point, anchor.mean)
        cost = self._renew(anchor)
        self._predict()
        if self.newton and self.age and self.prediction < self.tol:
            # An old curvature may not see what is left.
            cost += self._take(anchor.point)
            self._predict()
        if cost:
            anchor = anchor._replace(point=self.point)
        self.predictions.append(self.prediction)
        self.objectives.append(anchor.objective)
        left = math.nan
        if self.trusted:
            left = self.prediction / (1.0 - mean_rate(self.predictions))
            left = max(left, left_by_sums(self.objectives))
            highest = getattr(self.model, "highest", math.inf)
            left = min(left, highest - anchor.objective)
        return anchor._replace(predicted_gain=left), cost

    def _predict(self):
        """Find the direction, and what it is to gain."""
        self.direction = self._direction()
        self.prediction = 0.5 * float(self.gradient @ self.direction)

    def _step(self, before):
        """Return the anchor at the end of a step that gains enough, and its passes.

        The anchor is None where no length gains.
        """
        gradient, passes = self.gradient, 0.0
        slope, length = 2.0 * self.prediction, 1.0
        slack = 1e-15 * abs(before.objective)
        rounding = getattr(self.model, "rounding", 0.0) * abs(before.objective)
        for _ in range(TRIALS):
            step = length * self.direction
            passes += 1.0
            try:
                moved = self.model.move(before.point, step)
                anchor = super().certify(moved, self.beta)
                gain = anchor.objective - before.objective
                if abs(gain) < rounding:
                    # Both slopes tell what the objectives cannot.
                    there = self.model.gradient(moved, anchor.mean)
                    gain = 0.5 * (length * slope + float(step @ there))
            except FloatingPointError:  # too far for the model
                gain = -math.inf
            if gain >= SUFFICIENT * length * slope - slack:
                break
            # The top of the parabola through value and slope here and value there.
            top = 0.5 * length * slope / max(slope - gain / length, 1e-300)
            length *= float(np.clip(top / length, 0.1, 0.5)) if top > 0.0 else 0.1
        else:
            return None, passes
        change = gradient - self.model.gradient(anchor.point, anchor.mean)
        curvature = float(step @ change)
        if curvature > 1e-12 * math.sqrt(float(step @ step) * float(change @ change)):
            self.pairs.append((step, change, curvature))
        self.age += 1
        return anchor, passes

    def _renew(self, anchor):
        """Take the curvature anew where progress is slow; return the passes spent."""
        self.point = anchor.point
        least = 2 if self.newton else self.oldest
        if self.age < least or not self._is_worth_a_metric():
            return 0.0
        return self._take(anchor.point)

    def _take(self, point):
        """Take the curvature of a point; return the passes spent."""
        self.point, cost = self.model.recondition(point, self.data, self.rng)
        if self.newton:
            self.pairs.clear()  # of curvatures that have been
        else:
            self.oldest *= 2
        self.age = 0
        return cost

    def _is_worth_a_metric(self):
        """Whether a new curvature saves more steps than it costs."""
        before, now = self.predictions[-2:]
        if self.newton or not before > now > SLOW * before:
            return now > SLOW * before  # not even that: the metric is no good
        decades = math.log(max(now, self.tol) / max(self.tol, 1e-16))
        saved = decades / math.log(before / now) + decades / math.log(GOOD_RATE)
        return saved > self.model.metric_cost

    def _direction(self):
        """H times the gradient, by the two loops of L-BFGS."""
        vector, coefficients = self.gradient.copy(), []
        for step, change, curvature in reversed(self.pairs):
            coefficients.append(float(step @ vector) / curvature)
            vector = daxpy(change, vector, a=-coefficients[-1])  # in place
        vector = self.model.precondition(self.point, vector)
        if self.pairs:
            _, change, curvature = self.pairs[-1]
            image = self.model.precondition(self.point, change)
            vector *= curvature / float(change @ image)
        for (step, change, curvature), a in zip(
            self.pairs, reversed(coefficients), strict=True
        ):
            vector = daxpy(step, vector, a=a - float(change @ vector) / curvature)
        if self.longest < math.inf:
            vector = np.clip(vector, -self.longest, self.longest)
        if self.pairs and not self.gradient @ vector > 0.0:
            self.pairs.clear()
            return self._direction()
        return vector
