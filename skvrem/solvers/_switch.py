"""One solver up to a point, another from there."""

import math
from dataclasses import dataclass

import numpy as np

from skvrem.solvers._prediction import ROUNDING, left_to_gain
from skvrem.solvers.estimate._minibatches import Minibatches

# Epochs that a solver may still need before it is slow.
MOST_EPOCHS = 20


@dataclass(frozen=True)
class AfterEpochs:
    """The first solver has made so many epochs.

    Parameters
    ----------
    n_epochs : int
    """

    n_epochs: int

    def __call__(self, objectives):
        """Whether the second shall go on from the last of these objectives."""
        return len(objectives) > self.n_epochs


@dataclass(frozen=True)
class WhenSlow:
    """The first solver would take long to the end.

    At the rate at which its gains fall, more than 20 further epochs.

    Parameters
    ----------
    tol : float
        The gain that may be left where the fit will stop.
    window : int, default=1
        Epochs between the objectives whose differences are compared: more for a
        solver whose gains are noisy.
    power : bool, default=False
        Gains fall as a power of the epochs, as where steps shrink as one over these:
        else by the same factor every time.
    """

    tol: float
    window: int = 1
    power: bool = False

    def __call__(self, objectives):
        """Whether the second shall go on from the last of these objectives."""
        seen = objectives[-1 - 2 * self.window :: self.window]
        if len(seen) < 3:
            return False
        before, now = seen[1] - seen[0], seen[2] - seen[1]
        rounding = ROUNDING * np.finfo(float).eps * max(1.0, abs(seen[2]))
        if not before > 0.0 or not now > rounding:
            return False  # at the end, or at the limit of rounding
        if now >= before:
            return True
        rate, aim = now / before, max(self.tol, rounding)
        if self.power:
            n = len(objectives)
            # Of what is left, the sum of gains that fall faster by one.
            falls = math.log(rate) / math.log1p(-self.window / n) - 1.0
            left = now * n / self.window
            most = math.log1p(MOST_EPOCHS / n)
            return falls <= 0.0 or math.log(left / (falls * aim)) > falls * most
        aim *= (1.0 - rate) / now
        return math.log(aim) / math.log(rate) * self.window > MOST_EPOCHS


@dataclass(frozen=True)
class WhenNoisy:
    """The first solver cannot tell that it is at the end, and is near it.

    Its objectives are what batches saw while the point moved. Where their gains say
    that little is left, another has to certify it.

    Parameters
    ----------
    tol : float
        The gain that may be left where the fit will stop.
    window : int
        Epochs over which the loop adds up the first solver's gains.
    slow : WhenSlow, default=None
        The second shall also go on where the first is slow or its last epoch gained
        nothing; None: only near the end.
    least : int, default=2
        Epochs that the first makes before it is so judged.
    """

    tol: float
    window: int
    slow: WhenSlow | None = None
    least: int = 2

    def __call__(self, objectives):
        """Whether the second shall go on from the last of these objectives."""
        seen = objectives[1:]  # nobody saw the start's
        # As the loop would end the fit.
        if left_to_gain(np.diff(seen), 0.0, self.window) < self.tol:
            return True
        if self.slow is None or len(seen) < self.least:
            return False
        return not seen[-1] > seen[-2] or self.slow(seen)


class Switch:
    """Epochs of a first solver, then those of a second.

    For steps that are safe wherever a fit begins, and others that are better near its
    end.

    Parameters
    ----------
    first, second : solvers
        Two of `Minibatches` share the blocks.
    until : callable
        `AfterEpochs`, `WhenSlow` or `WhenNoisy`: takes the objectives that the first
        one's epochs began with, the newest included, and says whether the second shall
        begin there.
    model : model, default=None
        The second solver's, of the same points, so that it may have another metric;
        None is the first one's.
    """

    def __init__(self, first, second, until, model=None):
        self.first, self.second, self.active = first, second, first
        self.until, self.other = until, model

    def __getattr__(self, name):
        # What else the loop asks of a solver it asks of the one whose turn it is.
        if name == "active":  # of a copy that is being made
            raise AttributeError(name)
        return getattr(self.active, name)

    def start(self, model, data, rng):
        """See :class:`~skvrem.solvers._protocols.Solver`."""
        self.first.start(model, data, rng)
        self.active, self.objectives, self.beta = self.first, [], None
        self.rest = self.other or model, data, rng

    def certify(self, point, beta):
        """Certify by the solver whose turn it is."""
        changed, self.beta = self.beta not in (None, beta), beta
        anchor = self._turn(self.active.certify(point, beta))
        if changed:  # what has been seen until now is of another objective
            self.objectives = [math.nan] * len(self.objectives)
        return anchor

    def follow(self, temperature):
        """Take a temperature that changes within epochs, if the one at hand does."""
        if hasattr(self.active, "follow"):
            self.active.follow(temperature)

    def state(self):
        """Return whose turn it is, and the state of that solver."""
        return {
            "objectives": self.objectives[:-1] if self.active is self.first else [],
            "second": self.active is self.second,
            "beta": self.beta,
            "active": self.active.state(),
        }

    def resume(self, state):
        """Take it back, before the point is certified."""
        self.objectives, self.beta = list(state["objectives"]), state["beta"]
        if state["second"]:
            self._enter_second()
        self.active.resume(state["active"])

    def epoch(self, anchor, pace, rng):
        """Make an epoch of the solver whose turn it is."""
        moved = self.active.epoch(anchor, pace, rng)
        if moved.certified is None or self.active is self.second:
            return moved
        after = self._turn(moved.certified)
        if after is moved.certified:
            return moved
        # What the second's own certificate has cost comes on top of the step's.
        passes = moved.passes + after.passes - moved.certified.passes
        return moved._replace(certified=after, passes=passes, point=after.point)

    def _turn(self, anchor):
        """Return the first solver's anchor, or the second's where its turn begins."""
        if self.active is self.second:
            return anchor
        self.objectives.append(anchor.objective)
        if not self.until(self.objectives):
            return anchor
        passes = anchor.passes
        self._enter_second()
        anchor = self.second.certify(anchor.point, self.beta)
        return anchor._replace(passes=passes + anchor.passes)

    def _enter_second(self):
        """Give the second solver what the first one has, and the turn."""
        self.active = self.second
        if isinstance(self.first, Minibatches) and isinstance(self.second, Minibatches):
            self.second.take(self.rest[0], self.first.partition)
        else:
            self.second.start(*self.rest)
