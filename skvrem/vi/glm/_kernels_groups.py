r"""Loops over the rows of groups for the likelihood of a predictor a row.

Rows of a group lie together, between two of `bounds`. The p coefficients of a row's
predictor are q of its group and then those that groups share; `order` has the number of
each one's column, and the number of columns for the intercept; `origin` (p,), in that
order, is taken from the columns. A row has a target y, a number of trials n and an
offset; its log-likelihood :math:`\ell` at the predictor
:math:`\eta`, but for what does not depend on it, is

.. math:: y \eta - n \log(1 + e^\eta), \qquad y \eta - n e^\eta, \qquad
          -\tfrac12 n (y - \eta)^2

under the codes 0, 1 and 2. With the slope :math:`\ell'` and the curvature
:math:`-\ell''`, :math:`g = \sum \ell' x` and :math:`H = -\sum \ell'' x x^T`.
"""

import math

import numpy as np

from skvrem.utils._jit import CONTRACT, kernel


@kernel(fastmath=CONTRACT)
def _open_row(X, i, order, origin, x):
    """Fill the row i, seen from the origin, in the order of the coefficients."""
    d = X.shape[1]
    for j in range(order.size):
        x[j] = X[i, order[j]] - origin[j] if order[j] < d else 1.0


@kernel(fastmath=CONTRACT)
def _predictor(x, z, b, eta):
    """Return a predictor of coefficients of a group and of shared ones."""
    q = z.size
    for j in range(q):
        eta += x[j] * z[j]
    for j in range(b.size):
        eta += x[q + j] * b[j]
    return eta


@kernel(fastmath=CONTRACT)
def _slopes(code, y, n, eta):
    """Return a row's log-likelihood, slope, curvature, and the curvature's slope."""
    if code == 0:
        small = math.exp(-abs(eta))
        total = 1.0 + small
        p = (1.0 if eta >= 0.0 else small) / total
        left = (small if eta >= 0.0 else 1.0) / total
        value = y * eta - n * (max(eta, 0.0) + math.log(total))
        curvature = n * p * left
        return value, y - n * p, curvature, curvature * (left - p)
    if code == 1:
        rate = n * math.exp(eta)
        return y * eta - rate, y - rate, rate, rate
    away = y - eta
    return -0.5 * n * away * away, n * away, n, 0.0


@kernel(fastmath=CONTRACT)
def fill_local(
    X, order, origin, y, trials, offset, code, bounds, first, last, Z, B,
    value, gradient, hessian, cross, of_shared, within,
):  # fmt: skip
    """Fill log-likelihoods of groups first..last, their gradients and minus Hessians.

    X (n, d), order, origin (p,), y, trials (n,), offset (n,) or empty, bounds
    (n_groups + 1,); coefficients Z (s, n_groups, q) and B (s, p - q) of s points at
    once; value (s, n_groups), gradient (s, n_groups, q), hessian (s, n_groups, q, q),
    cross (s, n_groups, q, p - q); of_shared (s, p - q) and within (s, p - q, p - q) are
    sums over these groups.
    """
    n_points, _, q = Z.shape
    p = order.size
    x, slope, curve = np.ones(p), np.empty(p), np.empty((p, p))
    for s in range(n_points):
        slope[:] = 0.0
        curve[:] = 0.0
        for m in range(first, last):
            total = 0.0
            slope[:q] = 0.0
            curve[:q] = 0.0
            for i in range(bounds[m], bounds[m + 1]):
                _open_row(X, i, order, origin, x)
                eta = _predictor(x, Z[s, m], B[s], offset[i] if offset.size else 0.0)
                one, by, bent, _ = _slopes(code, y[i], trials[i], eta)
                total += one
                for j in range(p):
                    slope[j] += by * x[j]
                    much = bent * x[j]
                    for h in range(j, p):
                        curve[j, h] += much * x[h]
            value[s, m] = total
            for j in range(q):
                gradient[s, m, j] = slope[j]
                for h in range(j, q):
                    hessian[s, m, j, h] = hessian[s, m, h, j] = curve[j, h]
                for h in range(q, p):
                    cross[s, m, j, h - q] = curve[j, h]
        for j in range(q, p):
            of_shared[s, j - q] = slope[j]
            for h in range(j, p):
                within[s, j - q, h - q] = within[s, h - q, j - q] = curve[j, h]


@kernel(fastmath=CONTRACT)
def _variance(x, own, cross, shared):
    """Return the variance of a row's predictor."""
    q, total = own.shape[0], 0.0
    for j in range(q):
        part = 0.0
        for h in range(q):
            part += own[j, h] * x[h]
        for h in range(shared.shape[0]):
            part += 2.0 * cross[j, h] * x[q + h]
        total += x[j] * part
    for j in range(shared.shape[0]):
        part = 0.0
        for h in range(shared.shape[0]):
            part += shared[j, h] * x[q + h]
        total += x[q + j] * part
    return total


@kernel(fastmath=CONTRACT)
def fill_skewness(
    X, order, origin, y, trials, offset, code, bounds, first, last, Z, B, own, cross,
    shared, out, of_shared,
):  # fmt: skip
    r"""Fill the gradient of tr(Sigma H) by coefficients of groups and shared ones.

    A row adds :math:`-\ell''' x^T \Sigma x \, x`. Covariances own (s, n_groups, q, q),
    cross (s, n_groups, q, p - q), shared (s, p - q, p - q); out (s, n_groups, q) and
    of_shared (s, p - q), a sum over these groups; the others as in `fill_local`.
    """
    n_points, _, q = Z.shape
    p = order.size
    x = np.ones(p)
    for s in range(n_points):
        for j in range(p - q):
            of_shared[s, j] = 0.0
        for m in range(first, last):
            for j in range(q):
                out[s, m, j] = 0.0
            for i in range(bounds[m], bounds[m + 1]):
                _open_row(X, i, order, origin, x)
                eta = _predictor(x, Z[s, m], B[s], offset[i] if offset.size else 0.0)
                bent = _slopes(code, y[i], trials[i], eta)[3]
                bent *= _variance(x, own[s, m], cross[s, m], shared[s])
                for j in range(q):
                    out[s, m, j] += bent * x[j]
                for j in range(q, p):
                    of_shared[s, j - q] += bent * x[j]


@kernel
def fill_moments(
    X, order, origin, place, mean, own, cross, shared, B, inner, a, v
):  # fmt: skip
    """Fill means a (n,) and variances v (n,) of the predictors of rows.

    place (n,) numbers of groups, of which mean (n_groups, q), own (n_groups, q, q) and
    cross (n_groups, q, p - q) are; or -1 for one that has not been seen, whose
    coefficients have the means B (p,), the covariance shared (p, p) and the variances
    inner (q,) about them.
    """
    q, p = inner.size, order.size
    x = np.ones(p)
    none, whole = np.zeros((0, 0)), np.zeros((0, p))
    for i in range(place.size):
        _open_row(X, i, order, origin, x)
        m = place[i]
        if m >= 0:
            a[i] = _predictor(x, mean[m], B[q:], 0.0)
            v[i] = _variance(x, own[m], cross[m], shared[q:, q:])
        else:
            a[i] = _predictor(x, B[:0], B, 0.0)
            v[i] = _variance(x, none, whole, shared)
            for j in range(q):
                v[i] += inner[j] * x[j] * x[j]
