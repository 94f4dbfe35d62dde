r"""Loops of the Gaussian mixture's M step, once a minibatch.

LAPACK needs a call a component, and its threads are slower than these loops on the
small matrices of a mixture; they also fight for the cores that the E step uses.
Elements are indexed one by one: a view of a row takes longer to compile than the loop.

Statistics are flat: sum_w (k,), sum_x (k, d), sum_xx (k, d, d) or its diagonals (k, d),
objective, entropy.
"""

from math import sqrt

import numpy as np

from skvrem.utils._jit import REDUCE, inner_kernel, kernel


@kernel
def translate(sums, delta, out):
    r"""Statistics about a reference as statistics about reference - delta.

    .. math:: s' = s + N \delta, \qquad
              S' = S + \delta s^T + s \delta^T + N \delta \delta^T

    delta (k, d).
    """
    k, d = delta.shape
    squares = k + k * d
    dense = sums.size - squares - 2 > k * d
    for i in range(sums.size):
        out[i] = sums[i]
    for c in range(k):
        for i in range(d):
            at = k + c * d + i
            out[at] += sums[c] * delta[c, i]
        for i in range(d):
            own = c * d + i
            shift, moved = delta[c, i], out[k + own]
            if not dense:
                out[squares + own] += shift * (sums[k + own] + moved)
                continue
            for j in range(d):
                cross = shift * sums[k + c * d + j] + moved * delta[c, j]
                out[squares + own * d + j] += cross


@inner_kernel(fastmath=REDUCE)
def _invert(covariances, c, lower, factors):
    """Set upper U with inverse(Sigma_c) = U U^T, from Sigma = L L^T: U is L^{-T}.

    Returns whether the matrix is positive definite, and finite; if not, the factor is
    left unfinished.
    """
    d = covariances.shape[1]
    for i in range(d):
        for j in range(i):
            rest = covariances[c, i, j]
            for p in range(j):
                rest -= lower[i, p] * lower[j, p]
            lower[i, j] = rest / lower[j, j]
        square = covariances[c, i, i]
        rest = square
        for p in range(i):
            rest -= lower[i, p] * lower[i, p]
        # As LAPACK, and written so that NaN is bad.
        if not (rest > 0.0 and square < 1e300):
            return False
        lower[i, i] = sqrt(rest)
    for j in range(d):
        for i in range(j):
            factors[c, j, i] = 0.0
        factors[c, j, j] = 1.0 / lower[j, j]
        for i in range(j + 1, d):
            rest = 0.0
            for p in range(j, i):
                rest -= lower[i, p] * factors[c, j, p]
            factors[c, j, i] = rest / lower[i, i]
    return True


@kernel
def precisions_cholesky(covariances, factors, bad, lower):
    """Factors of the precisions (k, d, d), and where there are none (k,).

    `lower` (d, d) is room: to make it takes long to compile.
    """
    for c in range(len(covariances)):
        bad[c] = not _invert(covariances, c, lower, factors)


@inner_kernel(fastmath=REDUCE)
def _add(sums, c, share, reference, covariances, own):
    """Add share (S_c / N_c - delta_c delta_c^T), or its diagonal, to a covariance.

    To one that all features share, the mean of the diagonal.
    """
    k, d = reference.shape
    at, squares, scale = k + c * d, k + k * d, 1.0 / sums[c]
    for i in range(d):
        shift = sums[at + i] * scale
        if covariances.ndim == 3:
            row = squares + (c * d + i) * d
            for j in range(d):
                rest = sums[row + j] - shift * sums[at + j]
                covariances[own, i, j] += share * (rest * scale)
        else:
            width = covariances.shape[1]
            rest = sums[squares + c * d + i] * scale - shift * shift
            covariances[own, min(i, width - 1)] += share * (rest * width / d)


@inner_kernel
def _factor(covariances, own, reg_covar, lower, factors):
    """Regularize a covariance and set its factor; return whether there is one."""
    if covariances.ndim == 3:
        for i in range(covariances.shape[1]):
            covariances[own, i, i] += reg_covar
        return _invert(covariances, own, lower, factors)
    good = True
    for i in range(covariances.shape[1]):
        covariances[own, i] += reg_covar
        # Written so that NaN is bad.
        if 0.0 < covariances[own, i] < np.inf:
            factors[own, i] = 1.0 / sqrt(covariances[own, i])
        else:
            good = False
    return good


@inner_kernel
def _copy(before, own, after):
    """Take over a matrix or a row: an assignment would take seconds to compile."""
    for i in range(before.shape[1]):
        if before.ndim == 3:
            for j in range(before.shape[2]):
                after[own, i, j] = before[own, i, j]
        else:
            after[own, i] = before[own, i]


@kernel
def maximize(sums, reference, reg_covar, least, repair, before, after, left, lower):
    r"""M step: R of flat statistics, about a reference c.

    .. math:: \pi_k = N_k / \sum_l N_l, \quad \mu_k = c_k + \delta_k, \quad
              \Sigma_k = S_k / N_k - \delta_k \delta_k^T + \epsilon I, \quad
              \delta_k = s_k / N_k

    `before` and `after` are weights (k,), means (k, d), covariances and factors of
    precisions, (k, d, d) or (k, d), where an axis is of length 1 if it is shared;
    covariances are zero when they come. What the statistics of a component do not give
    stays as it was before: of one of N <= `least` all but its weight, 0, and a
    covariance without an inverse. Such components are `left` (k,). `lower` is room as
    for `precisions_cholesky`.

    Returns how many, or -1 for the first one without `repair`.
    """
    weights, means, covariances, factors = after
    k, d = reference.shape
    total, n_left, shared = 0.0, 0, len(covariances) < k
    for c in range(k):
        left[c] = not sums[c] > least
        if left[c] and not repair:
            return -1
        weights[c] = 0.0 if left[c] else sums[c]
        total += weights[c]
        for i in range(d):
            moved = reference[c, i] + sums[k + c * d + i] / sums[c]
            means[c, i] = before[1][c, i] if left[c] else moved
    for c in range(k):
        if not left[c]:
            own, share = (0, weights[c] / total) if shared else (c, 1.0)
            _add(sums, c, share, reference, covariances, own)
    for own in range(len(covariances)):
        known = shared or not left[own]
        if not (known and _factor(covariances, own, reg_covar, lower, factors)):
            if not repair:
                return -1
            _copy(before[2], own, covariances)
            _copy(before[3], own, factors)
            for c in range(k):
                left[c] = left[c] or shared or c == own
    for c in range(k):
        weights[c] /= total
        n_left += left[c]
    return n_left
