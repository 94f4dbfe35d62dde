"""Step sizes and temperatures: plain callables, shared by all solvers and models.

A schedule is a function of a count: the number of steps made for a step size, the
number of epochs for a temperature. A temperature schedule ends at 1 and stays
there, so that what is reported is the model and not a tempered version of it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax

__all__ = ["Constant", "Geometric", "LearnedTemperature", "Linear", "Power"]

# Closer to 1 than this, an inverse temperature is 1.
ALMOST_ONE = 0.99


@dataclass(frozen=True)
class Constant:
    """The same value at every count.

    Parameters
    ----------
    value : float

    Examples
    --------
    >>> from skvrem.schedules import Constant
    >>> Constant(0.1)(7)
    0.1
    """

    value: float

    def __call__(self, count: float) -> float:
        """Return the value."""
        return self.value


@dataclass(frozen=True)
class Power:
    r"""Robbins-Monro steps :math:`\rho_t = a (t + t_0)^{-\kappa}`, at most `most`.

    Parameters
    ----------
    scale : float
        a
    offset : float
        :math:`t_0`
    decay : float
        :math:`\kappa`; convergence of stochastic EM asks for 0.5 < decay <= 1
        (Cappé and Moulines 2009).
    most : float, default=1.0
        A step of 1 forgets all that was seen before.

    Examples
    --------
    >>> from skvrem.schedules import Power
    >>> Power(scale=1.0, offset=2.0, decay=1.0)(2)
    0.25
    """

    scale: float = 1.0
    offset: float = 2.0
    decay: float = 0.6
    most: float = 1.0

    def __call__(self, count: ArrayLike) -> Any:
        """Return the step at `count`, or the steps at an array of counts."""
        if np.ndim(count):
            with np.errstate(divide="ignore", over="ignore"):
                steps = np.add(count, self.offset, dtype=float) ** -self.decay
                return np.minimum(self.most, self.scale * steps)
        try:
            step = self.scale * (count + self.offset) ** -self.decay
        except (OverflowError, ZeroDivisionError):  # of an offset that is nearly none
            return self.most
        return min(self.most, step)


@dataclass(frozen=True)
class Linear:
    """From `start` to 1 in equal steps over `length` counts, then 1.

    Parameters
    ----------
    start : float
    length : float
        Of a temperature that is to end within an epoch no whole number: the solver
        "stochastic" then asks at every minibatch.

    Examples
    --------
    >>> from skvrem.schedules import Linear
    >>> [Linear(3.0, 2)(count) for count in range(4)]
    [3.0, 2.0, 1.0, 1.0]
    """

    start: float
    length: float

    @property
    def within_epochs(self) -> bool:
        """Whether the value changes between whole counts, too."""
        return not float(self.length).is_integer()

    def __call__(self, count: float) -> float:
        """Return the value at `count`."""
        if count >= self.length:
            return 1.0
        return self.start + (1.0 - self.start) * count / self.length


@dataclass(frozen=True)
class Geometric:
    """From `start` to 1 in equal ratios over `length` counts, then 1.

    Parameters
    ----------
    start : float
    length : int

    Examples
    --------
    >>> from skvrem.schedules import Geometric
    >>> [Geometric(4.0, 2)(count) for count in range(3)]
    [4.0, 2.0, 1.0]
    """

    start: float
    length: int

    def __call__(self, count: float) -> float:
        """Return the value at `count`."""
        if count >= self.length:
            return 1.0
        return self.start ** (1.0 - count / self.length)


class LearnedTemperature:
    r"""One temperature for all data, with a distribution r over a grid that is learned.

    With temperatures :math:`T_1, ..., T_M`, all as probable beforehand, the optimal
    distribution over them is (Mandt et al. 2016, Eq. 9)

    .. math:: r^*_m \propto \exp\{N (e / T_m - c_m)\}, \qquad
              r \leftarrow (1 - \kappa) r + \kappa r^*, \qquad
              1 / T = \sum_m r_m / T_m

    with the energy e, what the posterior expects of a unit's joint density, and the
    log partition function :math:`c_m` a unit at :math:`T_m`. r moves towards its
    optimum by a constant step, as the other global parameters do in Eq. 8; put in
    place at once it would cool within a few epochs and stop where the fit is poor.

    Temperatures never rise: a start that knows nothing may ask for a higher one, which
    would change nothing.

    Parameters
    ----------
    temperatures, share : ndarray of shape (n_temperatures,)
        The grid, and r at the start.
    calibrate : callable
        Called with a point and the temperature it was certified at; returns e, and
        c as an array like the grid.
    total_weight : float
        N.
    rate : float
        :math:`\kappa`.
    length, end : float, default=inf
        Epochs in which r is learned, and after which the temperature is 1. In between
        what is left of it goes in equal ratios.
    blind : int, default=0
        First epochs that begin where nothing is known of the energy.

    Attributes
    ----------
    inverses : list of float
        Inverse temperatures of the epochs so far.
    target : ndarray of shape (n_temperatures,) or None
        r* of the last point.
    """

    def __init__(
        self,
        temperatures: np.ndarray,
        share: np.ndarray,
        calibrate: Callable[[Any, float], tuple[float, np.ndarray]],
        *,
        total_weight: float,
        rate: float,
        length: float = math.inf,
        end: float = math.inf,
        blind: int = 0,
    ):
        self.temperatures, self.share = temperatures, share
        self.calibrate, self.total_weight = calibrate, total_weight
        self.rate, self.length, self.end, self.blind = rate, length, end, blind
        self.inverses = [self._mean()]
        self.target = None

    def __call__(self, count: float) -> float:
        """Return the temperature of epoch `count`."""
        if count >= self.end:
            return 1.0
        while len(self.inverses) <= count:
            self.inverses.append(self._next(len(self.inverses)))
        return 1.0 / self.inverses[count]

    def observe(self, point: Any) -> None:
        """Learn from where an epoch begins, for the temperature of the next."""
        last, known = self.inverses[-1], len(self.inverses)
        if last < 1.0 and self.blind < known <= self.length:
            self.target = self.optimum(*self.calibrate(point, 1.0 / last))

    def state(self) -> dict[str, Any]:
        """Return what has been learned."""
        known = {"target": self.target, "share": self.share}
        return known | {"inverses": list(self.inverses)}

    def resume(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        vars(self).update(state, inverses=list(state["inverses"]))

    def optimum(self, energy: float, partition: np.ndarray) -> np.ndarray:
        """Return r*, the best distribution over the temperatures, Eq. 9."""
        inverse = 1.0 / self.temperatures
        return softmax(self.total_weight * (energy * inverse - partition))

    def _mean(self):
        return float(self.share @ (1.0 / self.temperatures))

    def _next(self, count):
        last = self.inverses[-1]
        if count <= self.length:
            if self.target is not None:
                self.share = (1.0 - self.rate) * self.share + self.rate * self.target
            inverse = max(last, self._mean())
        else:
            inverse = last ** (1.0 - 1.0 / (self.end - count + 1))
        return 1.0 if inverse > ALMOST_ONE else inverse
