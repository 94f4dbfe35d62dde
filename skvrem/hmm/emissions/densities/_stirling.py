r"""Logarithms of Gamma functions less what is large in them.

With Stirling's formula as :math:`\log \Gamma(z) = z \log z - z + K(z)`, differences of
such logarithms at large arguments are those of K, and of terms that cancel others.
Taken from the logarithms themselves they are rounding, of as many digits as the
argument has.
"""

import numpy as np
from scipy.special import digamma, gammaln, polygamma

from skvrem.hmm.emissions._coordinates import LOG_2PI

# From here on the series that follows K has a relative error below 1e-14.
LARGE = 16.0
# 1 / (12 z) - 1 / (360 z^3) + ... is J, which is K - log(2 pi / z) / 2 (Abramowitz and
# Stegun, 6.1.41).
SERIES = 1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360
# Distances from 1 where logarithms are a series: 2 (r + r^3 / 3 + r^5 / 5 + ...).
NEAR, ODD = 0.1, (1 / 11, 1 / 9, 1 / 7, 1 / 5, 1 / 3)


def binet(z, order=0):
    r"""Return J, and derivatives up to some order of at most 2.

    .. math:: J(z) = \log \Gamma(z) - (z - 1/2) \log z + z - \log(2 \pi) / 2
    """
    z = np.asarray(z, float)
    inverse = 1.0 / np.maximum(z, LARGE)
    square, small = np.square(inverse), z < LARGE
    own, found = z[small], []
    for k in range(order + 1):
        total = np.zeros_like(z)
        for j in range(len(SERIES) - 1, -1, -1):
            factor = (1.0, -(2 * j + 1.0), (2 * j + 1.0) * (2 * j + 2.0))[k]
            total = total * square + factor * SERIES[j]
        total = np.asarray(total * inverse ** (k + 1))
        if own.size:
            total[small] = _plain(own, k)
        found.append(total)
    return found


def _plain(z, order):
    if order == 0:
        return gammaln(z) - (z - 0.5) * np.log(z) + z - 0.5 * LOG_2PI
    if order == 1:
        return digamma(z) - np.log(z) + 0.5 / z
    return polygamma(1, z) - 1.0 / z - 0.5 / np.square(z)


def rise(x, z, order=0):
    """Return K(z + x) - K(z), and derivatives by z up to some order of at most 2."""
    end = z + x
    lower, upper = binet(z, order), binet(end, order)
    found = [up - low for up, low in zip(upper, lower, strict=True)]
    found[0] = found[0] - 0.5 * np.log1p(x / z)
    if order > 0:
        found[1] = found[1] + 0.5 * x / end / z
    if order > 1:
        found[2] = found[2] - 0.5 * x / end / z * (1.0 / z + 1.0 / end)
    return found


def log_ratio(a, b, gap):
    """Return log(a / b), and what it is beyond gap / b, of a - b = gap."""
    t = gap / b
    logs = np.where(np.abs(t) < 0.5, np.log1p(np.maximum(t, -0.5)), np.log(a / b))
    r, total = t / (2.0 + t), 0.0
    square = np.square(r)
    for factor in ODD:
        total = (total + factor) * square
    return logs, np.where(np.abs(t) < NEAR, r * (2.0 * total - t), logs - t)
