"""Numbers of the temperature that is learned from rows."""

import numpy as np

from skvrem.factorial._model_bound import calibration
from skvrem.schedules import LearnedTemperature

__all__ = ["learned_temperature"]

N_TEMPERATURES = 100
# The share of the first temperatures that is left when the learning ends: exp(-4).
DECAY = 4.0


def learned_temperature(highest, length, total_weight, kind=LearnedTemperature):
    """Return a temperature that is learned, and starts at the highest.

    What is left of it after `length` epochs goes in half as many, so that a fit ends
    at 1.

    Parameters
    ----------
    highest : float
        The grid is from 1 to that.
    length : int
        Epochs in which it is learned.
    total_weight : float
        Of all rows.
    kind : type, default=LearnedTemperature

    Returns
    -------
    temperature : LearnedTemperature
    """
    temperatures = np.geomspace(1.0, max(highest, 1.0), N_TEMPERATURES)
    share = np.zeros(N_TEMPERATURES)
    share[-1] = 1.0
    return kind(
        temperatures,
        share,
        lambda point, _: calibration(point, 1.0 / temperatures),
        total_weight=total_weight,
        rate=min(1.0, DECAY / max(length, 1)),
        length=length,
        end=length + -(-length // 2),
        blind=1,  # the statistics of a start are made up
    )
