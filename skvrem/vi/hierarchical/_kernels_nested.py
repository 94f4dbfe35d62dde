r"""Loops over the rows of groups for the likelihood of their coefficients.

Rows of a group lie together, between two of `bounds`; behind a row x stands a one where
there are more coefficients than features. Coefficients z (p, k) of a group are in the
order of :math:`J = p k` numbers, those of a feature together. With the probabilities
:math:`\pi` of a row's classes, the log-likelihood has

.. math:: g = \sum_n w_n x_n \otimes (e_{y_n} - \pi_n), \qquad
          H = \sum_n w_n x_n x_n^T \otimes (\mathrm{diag}\,\pi_n - \pi_n \pi_n^T)

for its gradient and minus its Hessian.
"""

import math

import numpy as np

from skvrem.utils._jit import CONTRACT, kernel


@kernel(fastmath=CONTRACT)
def _probabilities(X, i, z, out):
    """Fill the probabilities of the classes of row i; return their log-sum."""
    d, k = X.shape[1], z.shape[1]
    top = -np.inf
    for c in range(k):
        out[c] = z[d, c] if z.shape[0] > d else 0.0
    for j in range(d):
        x = 1.0 * X[i, j]
        for c in range(k):
            out[c] += x * z[j, c]
    for c in range(k):
        top = max(top, out[c])
    total = 0.0
    for c in range(k):
        out[c] = math.exp(out[c] - top)
        total += out[c]
    for c in range(k):
        out[c] /= total
    return top + math.log(total)


@kernel(fastmath=CONTRACT)
def fill_likelihood(X, y, weight, bounds, first, last, Z, value, gradient, hessian):
    """Fill log-likelihoods of groups first..last, their gradients and minus Hessians.

    X (n, d), y (n,) numbers of classes, weight (n,) or empty, bounds (n_groups + 1,);
    coefficients Z (s, n_groups, p, k) of s points at once; value (s, n_groups),
    gradient (s, n_groups, J), hessian (s, n_groups, J, J).
    """
    d = X.shape[1]
    n_points, _, p, k = Z.shape
    probability, x = np.empty(k), np.ones(p)
    # Sums of classes, features innermost, for the sake of the loop over rows.
    slopes, curves = np.empty((k, p)), np.empty((k, k, p, p))
    for s in range(n_points):
        for m in range(first, last):
            total, z = 0.0, Z[s, m]
            slopes[:] = 0.0
            curves[:] = 0.0
            for i in range(bounds[m], bounds[m + 1]):
                w = weight[i] if weight.size else 1.0
                norm, own = _probabilities(X, i, z, probability), y[i]
                for j in range(d):
                    x[j] = X[i, j]
                for j in range(p):
                    total += w * x[j] * z[j, own]
                    slopes[own, j] += w * x[j]
                total -= w * norm
                for a in range(k):
                    share = w * probability[a]
                    for j in range(p):
                        slopes[a, j] -= share * x[j]
                    for b in range(a, k):
                        both = share * ((1.0 if a == b else 0.0) - probability[b])
                        for j in range(p):
                            much = both * x[j]
                            for h in range(j, p):
                                curves[a, b, j, h] += much * x[h]
            value[s, m] = total
            for a in range(k):
                for j in range(p):
                    gradient[s, m, j * k + a] = slopes[a, j]
                    for b in range(a, k):
                        for h in range(j, p):
                            found = curves[a, b, j, h]
                            hessian[s, m, j * k + a, h * k + b] = found
                            hessian[s, m, j * k + b, h * k + a] = found
                            hessian[s, m, h * k + a, j * k + b] = found
                            hessian[s, m, h * k + b, j * k + a] = found


@kernel(fastmath=CONTRACT)
def fill_skewness(X, weight, bounds, first, last, Z, covariance, out):
    r"""Fill the gradient by z of tr(covariance H(z)) for groups first..last.

    With :math:`G = \sum_{jl} x_j x_l \Sigma_{jl}` (k, k) of a row and
    :math:`d_c = (e_c - \pi)^T G (e_c - \pi)`, a row adds
    :math:`x \otimes \pi_c (d_c - \sum_a \pi_a d_a)`. covariance (s, n_groups, J, J),
    out (s, n_groups, J); the others as in `fill_likelihood`.
    """
    d = X.shape[1]
    n_points, _, p, k = Z.shape
    probability, G = np.empty(k), np.empty((k, k))
    for s in range(n_points):
        for m in range(first, last):
            for a in range(p * k):
                out[s, m, a] = 0.0
            for i in range(bounds[m], bounds[m + 1]):
                w = weight[i] if weight.size else 1.0
                _probabilities(X, i, Z[s, m], probability)
                row_covariance(X, i, covariance[s, m], G)
                within = mean = 0.0
                for a in range(k):
                    mean += probability[a] * G[a, a]
                    for b in range(k):
                        within += probability[a] * probability[b] * G[a, b]
                # The mean of d, in which `within` comes once and twice off.
                mean -= within
                for c in range(k):
                    away = G[c, c] + within - mean
                    for b in range(k):
                        away -= 2.0 * probability[b] * G[c, b]
                    share = w * probability[c] * away
                    for j in range(p):
                        x = 1.0 * X[i, j] if j < d else 1.0
                        out[s, m, j * k + c] += x * share


@kernel(fastmath=CONTRACT)
def row_covariance(X, i, covariance, G):
    """Fill the covariance G (k, k) of the predictors of row i."""
    d, k = X.shape[1], G.shape[0]
    p = covariance.shape[0] // k
    for a in range(k):
        for b in range(k):
            G[a, b] = 0.0
    for j in range(p):
        x = 1.0 * X[i, j] if j < d else 1.0
        for h in range(p):
            much = x * X[i, h] if h < d else x
            for a in range(k):
                for b in range(k):
                    G[a, b] += much * covariance[j * k + a, h * k + b]


@kernel
def fill_predictors(X, rows, place, mean, covariance, a, G):
    """Fill means a (m, k) and covariances G (m, k, k) of the predictors of rows.

    rows (m,) numbers of rows and place (m,) of their groups; mean (n_places, p, k) and
    covariance (n_places, J, J).
    """
    d = X.shape[1]
    p, k = mean.shape[1:]
    for i in range(rows.size):
        r, z = rows[i], mean[place[i]]
        for c in range(k):
            a[i, c] = z[d, c] if p > d else 0.0
        for j in range(d):
            for c in range(k):
                a[i, c] += X[r, j] * z[j, c]
        row_covariance(X, r, covariance[place[i]], G[i])
