"""What is left to gain, from what the last epochs have gained."""

import math

import numpy as np

__all__ = ["left_to_gain", "mean_rate"]

# Epochs over which a rate is measured, and the slowest that is believed of steps whose
# own prediction is scaled by it.
WINDOW, SLOWEST = 5, 0.95
# Believed of gains: beyond it, a fit is far from its end.
SLOWEST_GAINS = 0.999
# Supposed as long as one gain is all that has been seen.
UNKNOWN_RATE = 0.9
# Changes of an objective that are its own rounding, in units of its last place.
ROUNDING = 64.0


def left_to_gain(gains, objective, noisy=0):
    """Return what is left to gain: a geometric series of the last gains.

    Parameters
    ----------
    gains : sequence of float
        Of the last epochs, the newest last; all of one objective.
    objective : float
        Now.
    noisy : int, default=0
        Epochs whose gains are added up, where those of single ones are mostly noise:
        then the sum of the last so many is compared with that of those before.

    Returns
    -------
    left : float
        ``gain / (1 - rate)``, with the rate at which the last gains fell. Infinite
        where they do not fall, 0 where the last one is rounding, NaN without a gain.
    """
    if noisy:
        if len(gains) < 2 * noisy:
            return math.nan
        before, size = abs(sum(gains[-2 * noisy : -noisy])), abs(sum(gains[-noisy:]))
        # Of sums that are noise themselves, the ratio says nothing.
        return size / (1.0 - min(size / max(before, 1e-300), UNKNOWN_RATE))
    if not gains or not math.isfinite(gains[-1]):
        return math.nan
    size = abs(gains[-1])
    if size <= ROUNDING * np.finfo(float).eps * max(1.0, abs(objective)):
        return 0.0
    seen = [abs(gain) for gain in gains[-3:]]
    if len(seen) == 1:
        return size / (1.0 - UNKNOWN_RATE)
    if not seen[0] > 0.0:
        return math.inf
    rate = (seen[-1] / seen[0]) ** (1.0 / (len(seen) - 1))
    return math.inf if rate >= 1.0 else size / (1.0 - min(rate, SLOWEST_GAINS))


def mean_rate(predictions):
    """Return the mean factor by which an epoch lowers what it predicts, at most 0.95.

    A prediction by a metric that is not quite the curvature is short by one over one
    minus this rate.
    """
    seen = predictions[-WINDOW - 1 :]
    if len(seen) < 2 or not seen[0] > 0.0 < seen[-1]:
        return 0.0
    return min(SLOWEST, (seen[-1] / seen[0]) ** (1.0 / (len(seen) - 1)))
