r"""Loops over rows whose coefficients are those of their group.

A row x of the group m has the predictors :math:`z_k = \sum_j x_j Z_{mjk}`, with
independent Gaussian coefficients; behind x stands a one where there are more
coefficients than features. Rows of one group lie together, so that its coefficients
stay in the cache; nothing depends on it.
"""

import math

from skvrem.utils._jit import CONTRACT, kernel


@kernel(fastmath=CONTRACT)
def group_predictors(X, rows, place, mean, variance, a, spread):
    """Fill means a and standard deviations spread (m, k) of the predictors of rows.

    X (n, d), rows (m,) numbers of rows and place (m,) of their groups, of int64; mean
    and variance (n_places, p, k).
    """
    d = X.shape[1]
    p, k = mean.shape[1], mean.shape[2]
    for i in range(rows.size):
        r = rows[i]
        g = place[i]
        for c in range(k):
            a[i, c] = mean[g, d, c] if p > d else 0.0
            spread[i, c] = variance[g, d, c] if p > d else 0.0
        for j in range(d):
            x = 1.0 * X[r, j]
            if x != 0.0:
                square = x * x
                for c in range(k):
                    a[i, c] += x * mean[g, j, c]
                    spread[i, c] += square * variance[g, j, c]
        for c in range(k):
            spread[i, c] = math.sqrt(spread[i, c])


@kernel(fastmath=CONTRACT)
def add_group_sums(X, rows, place, first, second, gradient, curvature):
    """Add first x to gradient and second x^2 to curvature, at the place of each row.

    place (m,) of int64; first and second (m, k); sums (n_places, p, k).
    """
    d = X.shape[1]
    p, k = gradient.shape[1], gradient.shape[2]
    for i in range(rows.size):
        r = rows[i]
        g = place[i]
        for j in range(d):
            x = 1.0 * X[r, j]
            if x != 0.0:
                square = x * x
                for c in range(k):
                    gradient[g, j, c] += x * first[i, c]
                    curvature[g, j, c] += square * second[i, c]
        if p > d:
            for c in range(k):
                gradient[g, d, c] += first[i, c]
                curvature[g, d, c] += second[i, c]
