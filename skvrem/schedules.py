"""Step sizes and temperatures: plain callables, shared by all solvers and models.

A schedule is a function of a count: the number of steps made for a step size, the
number of epochs for a temperature. A temperature schedule ends at 1 and stays
there, so that what is reported is the model and not a heated version of it.
"""

from dataclasses import dataclass

import numpy as np

__all__ = ["Constant", "Geometric", "Linear", "Power"]


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

    def __call__(self, count):
        """Return the value."""
        return self.value


@dataclass(frozen=True)
class Power:
    r"""Robbins-Monro steps :math:`\rho_t = a (t + t_0)^{-\kappa}`, at most 1.

    Parameters
    ----------
    scale : float
        a
    offset : float
        :math:`t_0`
    decay : float
        :math:`\kappa`; convergence of stochastic EM asks for 0.5 < decay <= 1
        (Cappé and Moulines 2009).

    Examples
    --------
    >>> from skvrem.schedules import Power
    >>> Power(scale=1.0, offset=2.0, decay=1.0)(2)
    0.25
    """

    scale: float = 1.0
    offset: float = 2.0
    decay: float = 0.6

    def __call__(self, count):
        """Return the step at `count`, or the steps at an array of counts."""
        if np.ndim(count):
            with np.errstate(divide="ignore", over="ignore"):
                steps = np.add(count, self.offset, dtype=float) ** -self.decay
                return np.minimum(1.0, self.scale * steps)
        try:
            return min(1.0, self.scale * (count + self.offset) ** -self.decay)
        except (OverflowError, ZeroDivisionError):  # of an offset that is nearly none
            return 1.0


@dataclass(frozen=True)
class Linear:
    """From `start` to 1 in equal steps over `length` counts, then 1.

    Parameters
    ----------
    start : float
    length : int

    Examples
    --------
    >>> from skvrem.schedules import Linear
    >>> [Linear(3.0, 2)(count) for count in range(4)]
    [3.0, 2.0, 1.0, 1.0]
    """

    start: float
    length: int

    def __call__(self, count):
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

    def __call__(self, count):
        """Return the value at `count`."""
        if count >= self.length:
            return 1.0
        return self.start ** (1.0 - count / self.length)
