"""Loops over pairs of items: what their matches say of skills under a Gaussian.

Item a meets item b; the difference of their skills u, with the advantage of the first
where there is one, is Gaussian with mean m and variance v. With counts (weights) of
wins, losses and ties the log-likelihood of a pair is, s(u) = log(1 + exp(u)):

    no ties      win log S(u) + loss log S(-u)            S(u) = 1 / (1 + exp(-u))
    Davidson     (win - loss) u / 2 + tie eta - n A
                 A = log(exp(u / 2) + exp(-u / 2) + exp(eta))
    Rao-Kupper   tie eta - (win + tie) s(t - u) - (loss + tie) s(t + u), t = s(eta) / 2

All are jointly concave in u and eta. A function below returns the sum over the pairs of
the expectation by Gauss-Hermite quadrature (or, where little is known of u, by sums
over a lattice: `wide_logistic`, `wide_davidson`); it fills `slope` and `curvature` (P,)
with the expectations of the first derivative by u and of minus the second. Those with
eta also return the expected derivative by eta and minus the second, and fill `cross`
(P,) with minus the mixed one. Pairs start..stop are visited in tiles that stay in the
cache, node by node, so that the loops over a tile vectorise.
"""

import math

import numpy as np

from skvrem.utils._jit import CONTRACT, REDUCE, kernel
from skvrem.utils._math import exp, log, wide_logistic

TILE = 512
# Deviation of a predictor beyond which no number of nodes that is taken is enough.
MOST_SPREAD = 2.5
# How far the lattice of `wide_davidson` reaches where A has left its asymptotes.
REACH = 40


@kernel(fastmath=CONTRACT)
def expect_no_ties(m, v, win, loss, nodes, weights, start, stop, slope, curvature):
    """Expectations of the logistic likelihood (Bradley and Terry 1952)."""
    value = 0.0
    center, sd, z = np.empty(TILE), np.empty(TILE), np.empty(TILE)
    soft, first, second = np.empty(TILE), np.empty(TILE), np.empty(TILE)
    for a in range(start, stop, TILE):
        size = min(TILE, stop - a)
        for i in range(size):
            center[i], sd[i] = m[a + i], math.sqrt(v[a + i])
            soft[i] = first[i] = second[i] = 0.0
        for q in range(nodes.size):
            x, w = nodes[q], weights[q]
            for i in range(size):
                u = center[i] + x * sd[i]
                e = exp(-abs(u))
                p = 1.0 / (1.0 + e)
                z[i] = 1.0 + e
                soft[i] += w * max(u, 0.0)
                first[i] += w * (p if u > 0.0 else e * p)
                second[i] += w * e * p * p
            for i in range(size):  # with the logarithm the loop above is not vectorised
                soft[i] += w * log(z[i])
        for i in range(size):
            if sd[i] > MOST_SPREAD:
                soft[i], first[i], second[i] = wide_logistic(center[i], sd[i])
            n = win[a + i] + loss[a + i]
            value += win[a + i] * center[i] - n * soft[i]
            slope[a + i] = win[a + i] - n * first[i]
            curvature[a + i] = n * second[i]
    return value


@kernel
def wide_davidson(a, sd, eta):
    """Expectations of A and its derivatives for u ~ N(a, sd^2).

    The derivatives are smooth and vanish outside of a window, so that the integral of
    their products with the density is the sum over all whole u, as good as exact where
    u varies by more than from one to the next. A itself is the mean of abs(u - t) / 2
    for t whose density is its second derivative, as in `wide_logistic`.

    Returns
    -------
    value, first, second : float
        Of A and its derivatives by u.
    mixed, tied, spread : float
        Of minus its mixed derivative, its first by eta and its second.
    """
    value = first = second = mixed = tied = spread = total = 0.0
    reach = REACH + int(2.0 * max(eta, 0.0))
    for u in range(-reach, reach + 1):
        half = 0.5 * abs(u)
        e = math.exp(-2.0 * half)
        t = math.exp(eta - half)
        r = 1.0 / (1.0 + e + t)
        p = t * r
        d = math.copysign(0.5 * (1.0 - e) * r, u)
        w = 0.25 * (1.0 + e) * r - d * d
        x = (a - u) / sd
        above = 0.5 * math.erf(x * math.sqrt(0.5))
        density = math.exp(-0.5 * x * x) / (sd * math.sqrt(2.0 * math.pi))
        value += w * ((a - u) * above + sd * sd * density)
        first += w * above
        second += w * density
        mixed -= p * d * density
        tied += p * density
        spread += p * (1.0 - p) * density
        total += w
    return value / total, first / total, second / total, mixed, tied, spread


@kernel(fastmath=CONTRACT)
def expect_davidson(
    m, v, win, loss, tie, eta, nodes, weights, start, stop, slope, curvature, cross
):
    """Expectations with the ties of Davidson (1970), whose nu is exp(eta)."""
    value = eta_slope = eta_curvature = 0.0
    center, sd, z = np.empty(TILE), np.empty(TILE), np.empty(TILE)
    soft, first, second = np.empty(TILE), np.empty(TILE), np.empty(TILE)
    mixed, tied, spread = np.empty(TILE), np.empty(TILE), np.empty(TILE)
    for a in range(start, stop, TILE):
        size = min(TILE, stop - a)
        for i in range(size):
            center[i], sd[i] = m[a + i], math.sqrt(v[a + i])
            soft[i] = first[i] = second[i] = 0.0
            mixed[i] = tied[i] = spread[i] = 0.0
        for q in range(nodes.size):
            x, w = nodes[q], weights[q]
            for i in range(size):
                u = center[i] + x * sd[i]
                half = 0.5 * abs(u)
                e = exp(-2.0 * half)
                t = exp(eta - half)
                r = 1.0 / (1.0 + e + t)
                pt = t * r
                d = 0.5 * (1.0 - e) * r  # of A by |u|
                z[i] = 1.0 + e + t
                d = d if u > 0.0 else -d
                soft[i] += w * half
                first[i] += w * d
                second[i] += w * (0.25 * (1.0 + e) * r - d * d)
                mixed[i] -= w * pt * d
                tied[i] += w * pt
                spread[i] += w * pt * (1.0 - pt)
            for i in range(size):
                soft[i] += w * log(z[i])
        for i in range(size):
            if sd[i] > MOST_SPREAD:
                soft[i], first[i], second[i], mixed[i], tied[i], spread[i] = (
                    wide_davidson(center[i], sd[i], eta)
                )
            n = win[a + i] + loss[a + i] + tie[a + i]
            lead = 0.5 * (win[a + i] - loss[a + i])
            value += lead * center[i] + tie[a + i] * eta - n * soft[i]
            eta_slope += tie[a + i] - n * tied[i]
            eta_curvature += n * spread[i]
            slope[a + i] = lead - n * first[i]
            curvature[a + i] = n * second[i]
            cross[a + i] = n * mixed[i]
    return value, eta_slope, eta_curvature


@kernel(fastmath=CONTRACT)
def expect_rao_kupper(
    m, v, win, loss, tie, eta, nodes, weights, start, stop, slope, curvature, cross
):
    """Expectations with the ties of Rao and Kupper (1967), whose theta is exp(t)."""
    value = eta_slope = eta_curvature = 0.0
    grown = math.exp(-abs(eta))
    t = 0.5 * (max(eta, 0.0) + math.log1p(grown))
    share = (1.0 if eta > 0.0 else grown) / (1.0 + grown)
    t1, t2 = 0.5 * share, 0.5 * share * (1.0 - share)
    center, sd, low_z = np.empty(TILE), np.empty(TILE), np.empty(TILE)
    f, g, high_z = np.empty(TILE), np.empty(TILE), np.empty(TILE)
    soft, first, second = np.empty(TILE), np.empty(TILE), np.empty(TILE)
    mixed, both = np.empty(TILE), np.empty(TILE)
    for a in range(start, stop, TILE):
        size = min(TILE, stop - a)
        for i in range(size):
            center[i], sd[i] = m[a + i], math.sqrt(v[a + i])
            f[i], g[i] = win[a + i] + tie[a + i], loss[a + i] + tie[a + i]
            soft[i] = first[i] = second[i] = mixed[i] = both[i] = 0.0
        for q in range(nodes.size):
            x, w = nodes[q], weights[q]
            for i in range(size):
                u = center[i] + x * sd[i]
                low, high = t - u, t + u
                e, k = exp(-abs(low)), exp(-abs(high))
                p, r = 1.0 / (1.0 + e), 1.0 / (1.0 + k)
                low_z[i], high_z[i] = 1.0 + e, 1.0 + k
                down = f[i] * (p if low > 0.0 else e * p)
                up = g[i] * (r if high > 0.0 else k * r)
                bend, twist = f[i] * e * p * p, g[i] * k * r * r
                soft[i] += w * (f[i] * max(low, 0.0) + g[i] * max(high, 0.0))
                first[i] += w * (down - up)
                both[i] += w * (down + up)
                second[i] += w * (bend + twist)
                mixed[i] += w * (twist - bend)
            for i in range(size):
                soft[i] += w * (f[i] * log(low_z[i]) + g[i] * log(high_z[i]))
        for i in range(size):
            if sd[i] > MOST_SPREAD:
                low, down, bend = wide_logistic(t - center[i], sd[i])
                high, up, twist = wide_logistic(t + center[i], sd[i])
                soft[i] = f[i] * low + g[i] * high
                first[i], both[i] = f[i] * down - g[i] * up, f[i] * down + g[i] * up
                second[i] = f[i] * bend + g[i] * twist
                mixed[i] = g[i] * twist - f[i] * bend
            value += tie[a + i] * eta - soft[i]
            eta_slope += tie[a + i] - t1 * both[i]
            eta_curvature += t1 * t1 * second[i] + t2 * both[i]
            slope[a + i] = first[i]
            curvature[a + i] = second[i]
            cross[a + i] = t1 * mixed[i]
    return value, eta_slope, eta_curvature


@kernel
def differences(first, second, home, theta, out):
    """Fill out (P,) with theta[a] - theta[b], plus theta[home] where that is >= 0."""
    shift = theta[home] if home >= 0 else 0.0
    for i in range(first.size):
        out[i] = theta[first[i]] - theta[second[i]] + shift


@kernel
def independent_variances(first, second, home, variance, out):
    """Fill out (P,) with the variances of `differences` of independent theta."""
    shift = variance[home] if home >= 0 else 0.0
    for i in range(first.size):
        out[i] = variance[first[i]] + variance[second[i]] + shift


@kernel(fastmath=REDUCE)
def add_difference_norms(first, second, home, factor, out):
    """Add the squared lengths of factor[a] - factor[b] (+ factor[home]) to out (P,)."""
    for i in range(first.size):
        a, b = first[i], second[i]
        total = 0.0
        if home >= 0:
            for j in range(factor.shape[1]):
                t = factor[a, j] - factor[b, j] + factor[home, j]
                total += t * t
        else:
            for j in range(factor.shape[1]):
                t = factor[a, j] - factor[b, j]
                total += t * t
        out[i] += total


@kernel
def add_rows(first, second, home, value, sign, out):
    """Add value (P,) to out (d,) at a and home, and sign times value at b.

    -1 is the transpose of `differences`, 1 the diagonal of the sum of outer products.
    """
    total = 0.0
    for i in range(first.size):
        out[first[i]] += value[i]
        out[second[i]] += sign * value[i]
        total += value[i]
    if home >= 0:
        out[home] += total


@kernel
def add_curvature_times(first, second, home, curvature, x, out):
    """Add X^T diag(curvature) X x to out (d,), X the rows of `differences`."""
    shift = x[home] if home >= 0 else 0.0
    total = 0.0
    for i in range(first.size):
        a, b = first[i], second[i]
        t = curvature[i] * (x[a] - x[b] + shift)
        out[a] += t
        out[b] -= t
        total += t
    if home >= 0:
        out[home] += total


@kernel
def add_curvature(first, second, home, curvature, out):
    """Add X^T diag(curvature) X to out (d, d), X the rows of `differences`."""
    for i in range(first.size):
        a, b, h = first[i], second[i], curvature[i]
        out[a, a] += h
        out[b, b] += h
        out[a, b] -= h
        out[b, a] -= h
        if home >= 0:
            out[home, home] += h
            out[a, home] += h
            out[home, a] += h
            out[b, home] -= h
            out[home, b] -= h


@kernel
def difference_variances(first, second, home, covariance, out):
    """Fill out (P,) with x^T covariance x, x the rows of `differences`."""
    for i in range(first.size):
        a, b = first[i], second[i]
        t = covariance[a, a] + covariance[b, b] - 2.0 * covariance[a, b]
        if home >= 0:
            t += covariance[home, home]
            t += 2.0 * (covariance[a, home] - covariance[b, home])
        out[i] = t
