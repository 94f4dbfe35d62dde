r"""Logarithms of Gamma functions less what is large in them.

With Stirling's formula as :math:`\log \Gamma(z) = z \log z - z + K(z)`, differences of
such logarithms at large arguments are those of K, and of terms that cancel others.
Taken from the logarithms themselves they are rounding, of as many digits as the
argument has.
"""

import math

from skvrem.utils._jit import CONTRACT, kernel

# From here on the series that follows K has a relative error below 1e-14.
LARGE = 16.0
# 1 / (12 z) - 1 / (360 z^3) + ... is J, which is K - log(2 pi / z) / 2 (Abramowitz and
# Stegun, 6.1.41).
SERIES = 1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360
# Distances from 1 where logarithms are a series: 2 (r + r^3 / 3 + r^5 / 5 + ...).
NEAR, ODD = 0.1, (1 / 11, 1 / 9, 1 / 7, 1 / 5, 1 / 3)


@kernel(fastmath=CONTRACT)
def binet(z):
    r"""Return J, and its first and second derivative; see `LARGE`.

    .. math:: J(z) = \log \Gamma(z) - (z - 1/2) \log z + z - \log(2 \pi) / 2
    """
    # By the recurrence of the Gamma function from where the series holds.
    y, product, first, second = z, 1.0, 0.0, 0.0
    while y < LARGE:
        inverse = 1.0 / y
        product *= y
        first += inverse
        second += inverse * inverse
        y += 1.0
    inverse = 1.0 / y
    square = inverse * inverse
    value, slope, bend, odd = 0.0, 0.0, 0.0, 2.0 * len(SERIES) - 1.0
    for factor in SERIES[::-1]:
        value = value * square + factor
        slope = slope * square - odd * factor
        bend = bend * square + odd * (odd + 1.0) * factor
        odd -= 2.0
    value, slope, bend = value * inverse, slope * square, bend * square * inverse
    if y > z:
        logs, other = math.log(y / z), 1.0 / z
        value += (y - 0.5) * math.log(y) - (z - 0.5) * math.log(z) - (y - z)
        value -= math.log(product)
        slope += logs - 0.5 * inverse + 0.5 * other - first
        bend += inverse + 0.5 * square - other - 0.5 * other * other + second
    return value, slope, bend


@kernel(fastmath=CONTRACT)
def rise(x, z, lower):
    """Return K(z + x) - K(z), and derivatives by z, of what `binet` is at z."""
    end, upper = z + x, binet(z + x)
    both = 0.5 * x / end / z
    value = upper[0] - lower[0] - 0.5 * math.log1p(x / z)
    bend = upper[2] - lower[2] - both * (1.0 / z + 1.0 / end)
    return value, upper[1] - lower[1] + both, bend


@kernel(fastmath=CONTRACT)
def log_ratio(a, b, gap):
    """Return log(a / b), and what it is beyond gap / b, of a - b = gap."""
    t = gap / b
    logs = math.log1p(t) if abs(t) < 0.5 else math.log(a / b)
    if not abs(t) < NEAR:
        return logs, logs - t
    r, total = t / (2.0 + t), 0.0
    square = r * r
    for factor in ODD:
        total = (total + factor) * square
    return logs, r * (2.0 * total - t)
