"""Loops over matches, those of the same two items counted together.

Item a meets item b; the difference of their skills u, with the advantage of the first
where there is one, is Gaussian with mean m and variance v. With the ties of Davidson
(1970) the log-likelihood of counts (weights) of wins, losses and ties is

    (win - loss) u / 2 + tie eta - n A      A = log(exp(u / 2) + exp(-u / 2) + exp(eta))

and jointly concave in u and eta. Its expectation is a sum over Gauss-Hermite nodes or,
where little is known of u, over a lattice (`wide_davidson`). Matches are visited in
tiles that stay in the cache, node by node, so that the loops over a tile vectorise.
"""

import math

import numpy as np

from skvrem.utils._jit import CONTRACT, REDUCE, kernel
from skvrem.utils._math import exp, log
from skvrem.vi.gaussian._kernels import WIDEST

TILE = 512
# How far the lattice of `wide_davidson` reaches where A has left its asymptotes.
REACH = 40


@kernel
def wide_davidson(a, sd, eta):
    """Expectations of A and its derivatives for u ~ N(a, sd^2).

    The derivatives are smooth and vanish outside of a window, so that the integral of
    their products with the density is the sum over all whole u, as good as exact where
    u varies by more than from one to the next. A itself is the mean of abs(u - t) / 2
    for t whose density is its second derivative, as in `wide_logistic` of utils.

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
def expect_davidson(win, loss, tie, m, v, eta, rule, slope, curvature, cross):
    """Expectations with the ties of Davidson (1970), whose nu is exp(eta).

    Fills slope and curvature (P,) with those of the first derivative by u and of minus
    the second, cross (P,) with that of minus the mixed one.

    Returns
    -------
    value, eta_slope, eta_curvature : float
        Expected log-likelihood, its derivative by eta and minus the second.
    """
    value = eta_slope = eta_curvature = 0.0
    nodes, weights = rule
    center, sd, z = np.empty(TILE), np.empty(TILE), np.empty(TILE)
    soft, first, second = np.empty(TILE), np.empty(TILE), np.empty(TILE)
    mixed, tied, spread = np.empty(TILE), np.empty(TILE), np.empty(TILE)
    for a in range(0, m.size, TILE):
        size = min(TILE, m.size - a)
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
            if sd[i] > WIDEST:
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


@kernel
def differences(first, second, home, theta):
    """Return theta[a] - theta[b] (P,), plus home (P,) times theta[0].

    Here and below, `home` may be empty: there is no advantage then.
    """
    out = np.empty(first.size)
    for i in range(first.size):
        out[i] = theta[first[i]] - theta[second[i]]
    for i in range(home.size):
        out[i] += home[i] * theta[0]
    return out


@kernel
def gather(first, second, home, value, n_dim):
    """Return X^T value (d,), X the rows of `differences`."""
    out = np.zeros(n_dim)
    for i in range(first.size):
        out[first[i]] += value[i]
        out[second[i]] -= value[i]
    for i in range(home.size):
        out[0] += home[i] * value[i]
    return out


@kernel
def curvature_diagonal(first, second, home, curvature, n_dim):
    """Return the diagonal (d,) of X^T diag(curvature) X, X as above."""
    out = np.zeros(n_dim)
    for i in range(first.size):
        out[first[i]] += curvature[i]
        out[second[i]] += curvature[i]
    for i in range(home.size):
        out[0] += home[i] * home[i] * curvature[i]
    return out


@kernel
def curvature_matrix(first, second, home, curvature, n_dim):
    """Return X^T diag(curvature) X (d, d), X as above."""
    out = np.zeros((n_dim, n_dim))
    for i in range(first.size):
        a, b, h = first[i], second[i], curvature[i]
        out[a, a] += h
        out[b, b] += h
        out[a, b] -= h
        out[b, a] -= h
    if home.size:
        each = gather(first, second, home, home * curvature, n_dim)
        for i in range(n_dim):  # numba takes seconds for an assignment of an array
            out[0, i] = out[i, 0] = each[i]
    return out


@kernel
def full_variances(first, second, home, covariance):
    """Return x^T covariance x (P,), x the rows of `differences`."""
    out = np.empty(first.size)
    for i in range(first.size):
        a, b = first[i], second[i]
        out[i] = covariance[a, a] + covariance[b, b] - 2.0 * covariance[a, b]
        if home.size:
            with_skills = covariance[a, 0] - covariance[b, 0]
            out[i] += home[i] * (home[i] * covariance[0, 0] + 2.0 * with_skills)
    return out


@kernel(fastmath=REDUCE)
def low_rank_variances(first, second, home, diagonal, factor):
    """Return x^T (diag(diagonal) + factor factor^T) x (P,), x as above."""
    out = np.empty(first.size)
    for i in range(first.size):
        a, b, at_home = first[i], second[i], home[i] if home.size else 0.0
        total = diagonal[a] + diagonal[b] + at_home * at_home * diagonal[0]
        for j in range(factor.shape[1]):
            t = factor[a, j] - factor[b, j] + at_home * factor[0, j]
            total += t * t
        out[i] = total
    return out


@kernel(fastmath=CONTRACT)
def observe(first, second, home, curvature, columns):
    """Add X^T diag(curvature) X to the inverse of L L^T, X as above, in place.

    A match after the other, by the square-root filter of Carlson (1973), which
    subtracts nothing from a covariance, so that it stays one.

    Parameters
    ----------
    columns : ndarray of shape (d, d)
        L transposed, so that its columns, which loops go along, lie in one piece.
    """
    d = len(columns)
    along, before = np.empty(d), np.empty(d)
    for m in range(first.size):
        if curvature[m] == 0.0:
            continue
        for j in range(d):
            along[j] = columns[j, first[m]] - columns[j, second[m]]
            if home.size:
                along[j] += home[m] * columns[j, 0]
            before[j] = 0.0
        variance = 1.0 / curvature[m]
        for j in range(d - 1, -1, -1):
            if along[j] == 0.0:
                continue
            wider = variance + along[j] * along[j]
            keep = math.sqrt(variance / wider)
            take = along[j] / (keep * wider)
            for i in range(j, d):
                own = columns[j, i]
                columns[j, i] = keep * own - take * before[i]
                before[i] += own * along[j]
            variance = wider


@kernel(fastmath=CONTRACT)
def tilted_moments(lead, n, low, high, t, nu, m, v, at, sd, nodes, mean, variance):
    """Fill mean and variance (P,) of predictors by their matches and by N(m, v).

    With s(x) = log(1 + exp(x)) the log-likelihood of a match is lead u - n A, A that of
    Davidson's ties, less low s(t - u) + high s(t + u): no ties are those of nu = 0.
    The product is summed over nodes at + sd z, z evenly spaced: it need not be near a
    Gaussian.
    """
    log_p = np.empty(nodes.size)
    for i in range(m.size):
        half, top = 0.5 / v[i], -np.inf
        for j in range(nodes.size):
            u = at[i] + sd[i] * nodes[j]
            away = u - m[i]
            log_p[j] = lead[i] * u - half * away * away
        if n[i] > 0.0:
            for j in range(nodes.size):
                x = 0.5 * abs(at[i] + sd[i] * nodes[j])
                log_p[j] -= n[i] * (x + log(1.0 + exp(-2.0 * x) + nu * exp(-x)))
        if t > 0.0:
            for j in range(nodes.size):
                u = at[i] + sd[i] * nodes[j]
                down, up = t - u, t + u
                log_p[j] -= low[i] * (max(down, 0.0) + log(1.0 + exp(-abs(down))))
                log_p[j] -= high[i] * (max(up, 0.0) + log(1.0 + exp(-abs(up))))
        for j in range(nodes.size):
            top = max(top, log_p[j])
        total = first = second = 0.0
        for j in range(nodes.size):
            p, z = exp(log_p[j] - top), nodes[j]
            total += p
            first += p * z
            second += p * z * z
        first /= total
        mean[i] = at[i] + sd[i] * first
        variance[i] = sd[i] * sd[i] * (second / total - first * first)
