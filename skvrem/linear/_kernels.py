"""Loops over rows: losses, residuals, weights in curvatures.

For a row with logits z (k,), target y and weight w, with p = softmax(z), or for two
classes one logit z and p = 1 / (1 + exp(-z)):

    log-likelihood  w (z_y - log sum_j exp(z_j))      w (y z - log(1 + exp(z)))
    residual        w (1[y = j] - p_j)                w (y - p)
    Hessian         w (diag(p) - p p^T)               w p (1 - p)
    bound           w A                               w tanh(z / 2) / (2 z)

where A (k, k) is what Algorithm 1 of Choromanska and Jebara (2013) gives for the
features 1[y = j]; for two classes it is the bound of Jaakkola and Jordan (2000). The
gradient is the sum over rows of residual times features, and a curvature the sum of
weight times outer products of features.

``Z`` (m, k), or ``z`` (m,) for two classes, has the dtype of X, float32 or float64,
and rules the precision of a row; ``y`` (m,) and ``weight`` (m,), empty for ones, go
with it, and ``loss`` gets minus the log-likelihood of each row.
"""

import math

import numpy as np

from skvrem.utils._jit import CONTRACT, kernel
from skvrem.utils._math import exp, log
from skvrem.utils._tiles import (
    FOUR,
    ONE,
    ROWS,
    THREE,
    TWO,
    csr_add_transposed,
    csr_times,
)

# Below, tanh(s / 2) / (2 s) is 1/4 - s^2 / 48 to rounding.
SMALL = 1e-3
# exp(-708) is the smallest normal number.
FARTHEST = 700.0
# CSR rows that are read for their logits, and again from the cache for the gradient.
CACHED_ROWS = 64
# A visit of the dual solves for its logit to this share of the change, by at most so
# many steps of Newton's method in an interval that shrinks.
CLOSE, MOST_NEWTON = 0.01, 30


@kernel(fastmath=CONTRACT)
def logistic_residuals(z, y, weight, loss):
    """Put residuals in place of the logits (m,) of two classes, and fill loss (m,)."""
    one = z.dtype.type(1.0)
    for i in range(z.size):
        # Without branches, so that it vectorises; t > 0 where the row is misjudged.
        sign = one - y[i] - y[i]
        t = sign * z[i]
        e = exp(-abs(t))
        z[i] = -sign * ((one if t > 0 else e) / (one + e))
        loss[i] = (t if t > 0 else t - t) + log(one + e)
    if weight.size:
        for i in range(z.size):
            z[i] *= weight[i]
            loss[i] *= weight[i]


@kernel(fastmath=CONTRACT)
def softmax_residuals(Z, y, weight, loss):
    """Put residuals in place of the logits, and fill loss (m,)."""
    one = Z.dtype.type(1.0)
    for i in range(Z.shape[0]):
        own = Z[i, y[i]]
        w = Z.dtype.type(weight[i]) if weight.size else one
        top = own
        for j in range(Z.shape[1]):
            top = max(top, Z[i, j])
        for j in range(Z.shape[1]):
            Z[i, j] = exp(Z[i, j] - top)
        total = Z[i, 0]
        for j in range(1, Z.shape[1]):
            total += Z[i, j]
        loss[i] = w * (top - own + log(total))
        for j in range(Z.shape[1]):
            Z[i, j] *= -w / total
        Z[i, y[i]] += w


@kernel
def csr_sums(data, indices, indptr, ids, intercept, theta, y, weight, gradient):
    """Return minus the log-likelihood of CSR rows; adds to the gradient (p, k).

    theta (p, k) has the dtype of the rows, with the intercepts behind where there are.
    """
    (p, k), m = theta.shape, min(CACHED_ROWS, ids.size)
    d = p - 1 if intercept else p
    logits, losses, total = np.empty((m, k), data.dtype), np.empty(m, data.dtype), 0.0
    for start in range(0, ids.size, CACHED_ROWS):
        rows = ids[start : start + CACHED_ROWS]
        weights = weight[start : start + CACHED_ROWS]
        Z, loss = logits[: rows.size], losses[: rows.size]
        csr_times(data, indices, indptr, rows, ROWS, theta[:d], Z)
        if intercept:
            Z += theta[d]
        if k == 1:
            logistic_residuals(Z[:, 0], y[start:], weights, loss)
        else:
            softmax_residuals(Z, y[start:], weights, loss)
        csr_add_transposed(data, indices, indptr, rows, ROWS, Z, gradient)
        for i in range(rows.size):
            total += loss[i]
            if intercept:
                for j in range(k):
                    gradient[d, j] += Z[i, j]
    return total


@kernel(fastmath=CONTRACT)
def csr_row_times(data, indices, start, stop, theta):
    """Return a row of a CSR matrix times theta (p,), and its squared length.

    In four chains of sums: a visit waits for its logit, where products with many rows
    overlap.
    """
    z0 = z1 = z2 = z3 = square = 0.0
    middle = stop - (stop - start) % FOUR
    for at in range(start, middle, FOUR):
        at1, at2, at3 = at + ONE, at + TWO, at + THREE
        x0, x1 = np.float64(data[at]), np.float64(data[at1])
        x2, x3 = np.float64(data[at2]), np.float64(data[at3])
        z0 += x0 * theta[np.uint32(indices[at])]
        z1 += x1 * theta[np.uint32(indices[at1])]
        z2 += x2 * theta[np.uint32(indices[at2])]
        z3 += x3 * theta[np.uint32(indices[at3])]
        square += (x0 * x0 + x1 * x1) + (x2 * x2 + x3 * x3)
    for at in range(middle, stop):
        x = np.float64(data[at])
        z0 += x * theta[np.uint32(indices[at])]
        square += x * x
    return (z0 + z1) + (z2 + z3), square


@kernel(fastmath=CONTRACT)
def dual_visits(
    data,
    indices,
    indptr,
    runs,
    length,
    intercept,
    ridge,
    y,
    weight,
    residuals,
    theta,
    sums,
):
    r"""Visit CSR rows of two classes, one by one: dual coordinate ascent.

    At the optimum :math:`\theta = \Lambda^{-1} \sum_i r_i x_i` with the residuals
    :math:`r_i = w_i (y_i - p_i)`, which are the dual's variables. A visit makes a row's
    agree with its logit z, which follows it: with :math:`q = w\, x^T \Lambda^{-1} x`
    the new logit solves

    .. math:: t + q\, \sigma(t) = z + q\, (y - r / w)

    and the new residual is :math:`w (y - \sigma(t))`.

    Parameters
    ----------
    data, indices, indptr : ndarray
        CSR rows, n of them.
    runs : ndarray of shape (n_runs,)
        Numbers of runs of `length` rows, in the order of the visits.
    length : int
    intercept : bool
        Rows have a one behind them.
    ridge : tuple of two floats
        Of the features, and of the intercept; above zero.
    y, weight : ndarray of shape (n,)
    residuals : ndarray of float32 of shape (n,)
    theta : ndarray of shape (p,)
        These two are changed in step.
    sums : ndarray of shape (3,)
        What is added to: the loss that visits found, the squared gradient if rows are
        at right angles, and the curvature :math:`w p (1 - p)`.
    """
    n = indptr.size - 1
    d = theta.size - 1 if intercept else theta.size
    for run in runs:
        for i in range(run * length, min(n, (run + 1) * length)):
            w = weight[i] if weight.size else 1.0
            if w == 0.0:
                continue
            start, stop = np.uint64(indptr[i]), np.uint64(indptr[i + 1])
            z, square = csr_row_times(data, indices, start, stop, theta)
            q = w * square / ridge[0]
            if intercept:
                z += theta[d]
                q += w / ridge[1]
            old = np.float64(residuals[i])
            e = exp(-abs(z))
            p = (1.0 if z > 0 else e) / (1.0 + e)
            sums[0] += w * (log(1.0 + e) + (abs(z) if (z > 0) != (y[i] > 0) else 0.0))
            sums[1] += (w * (y[i] - p) - old) ** 2 * square
            sums[2] += w * p * (1.0 - p)
            high = z + q * (y[i] - old / w)
            t, low, target = z, high - q, high
            error = t + q * p - target
            close, slow = CLOSE * abs(error), False
            for _ in range(MOST_NEWTON):
                if error > 0.0:
                    high = t
                else:
                    low = t
                t -= error / (1.0 + q * p * (1.0 - p))
                # It may go to and fro about where the logistic function bends.
                if slow or not low < t < high:
                    t = 0.5 * (low + high)
                e = exp(-abs(t))
                p = (1.0 if t > 0 else e) / (1.0 + e)
                before, error = error, t + q * p - target
                if abs(error) <= close:
                    break
                slow = not slow and abs(error) > 0.5 * abs(before)
            # What is small is told from e, not from one less what is nearly one.
            far = (e if (t > 0) == (y[i] > 0) else 1.0) / (1.0 + e)
            residuals[i] = w * far if y[i] else -w * far
            change = np.float64(residuals[i]) - old
            step = change / ridge[0]
            for at in range(start, stop):
                theta[np.uint32(indices[at])] += step * data[at]
            if intercept:
                theta[d] += change / ridge[1]


@kernel(fastmath=CONTRACT)
def half_tanh(s, e):
    """tanh(s / 2) / (2 s) of s >= 0, given e = exp(-s)."""
    return (1.0 - e) / ((1.0 + e) * 2.0 * s) if s > SMALL else 0.25 - s * s / 48.0


@kernel(fastmath=CONTRACT)
def logistic_bound(z, weight, out):
    """Weights w tanh(z / 2) / (2 z) of the bound, for two classes."""
    for i in range(z.size):
        s = min(abs(np.float64(z[i])), FARTHEST)
        a = half_tanh(s, exp(-s))
        out[i] = a * weight[i] if weight.size else a


@kernel
def bound_coefficients(log_z, log_alpha):
    """Return beta, kappa and the new log z of a step of Algorithm 1, in logarithms.

    beta = tanh(log(alpha / z) / 2) / (2 log(alpha / z)), kappa = alpha / (z + alpha).
    """
    if log_alpha == -math.inf:  # a prior of zero adds nothing
        return 0.0, 0.0, log_z
    if log_z == -math.inf:  # the first y: l l^T has the weight 0
        return 0.0, 1.0, log_alpha
    t = log_alpha - log_z
    s = abs(t)
    e = math.exp(-s)
    kappa = (1.0 if t > 0 else e) / (1.0 + e)
    return half_tanh(s, e), kappa, max(log_z, log_alpha) + math.log1p(e)


@kernel
def softmax_bound(Z, weight, out):
    """Weights w a with a I above the bound A of each row.

    a is the least of two norms of A, the largest sum of a row and Frobenius's, and 1/2.
    1/2 is the bound of Böhning (1992). Where one class is nearly certain A is far
    smaller. Classes are visited in the order of descending logits, where Algorithm 1
    is tightest.
    """
    k = Z.shape[1]
    order, g, sums = np.empty(k, np.int64), np.empty(k), np.empty((k, k))
    for i in range(Z.shape[0]):
        for j in range(k):  # insertion sort, descending
            at = j
            while at > 0 and Z[i, order[at - 1]] < Z[i, j]:
                order[at] = order[at - 1]
                at -= 1
            order[at] = j
        log_z = -math.inf
        for j in range(k):
            beta, kappa, log_z = bound_coefficients(log_z, np.float64(Z[i, order[j]]))
            # l = e_j - g, in the order of the visits: g is zero from j on.
            for a in range(j):
                for b in range(j):
                    sums[a, b] += beta * g[a] * g[b]
                sums[a, j] = sums[j, a] = -beta * g[a]
            sums[j, j] = beta
            for a in range(j):
                g[a] -= kappa * g[a]
            g[j] = kappa
        largest = squares = 0.0
        for a in range(k):
            total = 0.0
            for b in range(k):
                total += abs(sums[a, b])
                squares += sums[a, b] ** 2
            largest = max(largest, total)
        largest = min(largest, math.sqrt(squares), 0.5)
        out[i] = largest * weight[i] if weight.size else largest


@kernel
def partition_bound(features, log_alpha, order, sigma, g):
    """Algorithm 1 for any features (n, d); adds to sigma (d, d), g (d,); log z."""
    d = features.shape[1]
    log_z = -math.inf
    difference = np.empty(d)
    for y in order:
        beta, kappa, log_z = bound_coefficients(log_z, log_alpha[y])
        for a in range(d):
            difference[a] = features[y, a] - g[a]
        for a in range(d):
            for b in range(d):
                sigma[a, b] += beta * difference[a] * difference[b]
            g[a] += kappa * difference[a]
    return log_z


@kernel(fastmath=CONTRACT)
def probabilities(Z, out):
    """Softmax of the logits (m, k) of each row, the logistic function for one."""
    for i in range(Z.shape[0]):
        top = Z[i, 0]
        for j in range(1, Z.shape[1]):
            top = max(top, Z[i, j])
        if Z.shape[1] == 1:
            e = exp(-abs(np.float64(Z[i, 0])))
            out[i, 0] = (1.0 if Z[i, 0] > 0 else e) / (1.0 + e)
            continue
        total = 0.0
        for j in range(Z.shape[1]):
            out[i, j] = exp(Z[i, j] - top)
            total += out[i, j]
        for j in range(Z.shape[1]):
            out[i, j] /= total


@kernel(fastmath=CONTRACT)
def softmax_class_bounds(Z, weight, out):
    """Weights (m, k) of the bound for each class's logit while the others stand still.

    log sum_j exp(z_j) is log(1 + exp(s)) but for a constant, with s = z_j minus the
    logarithm of the other classes' sum: the bound of two classes, tanh(s / 2) / (2 s).
    """
    for i in range(Z.shape[0]):
        top = Z[i, 0]
        for j in range(1, Z.shape[1]):
            top = max(top, Z[i, j])
        total = 0.0
        for j in range(Z.shape[1]):
            total += np.float64(exp(Z[i, j] - top))
        w = weight[i] if weight.size else 1.0
        for j in range(Z.shape[1]):
            own = np.float64(Z[i, j] - top)
            others = max(total - exp(own), exp(-FARTHEST))
            s = min(abs(own - log(others)), FARTHEST)
            out[i, j] = w * half_tanh(s, exp(-s))


@kernel(fastmath=CONTRACT)
def star_weights(Z, y, weight, out):
    """Weights w f |r_j| (m, k) of a row's star, in classes' own matrices.

    With the residual r = e_y - p and l_j = e_y - e_j, the Hessian and the outer product
    of the gradient are together a star about the row's class,

        diag(p) - p p^T + r r^T = sum_j p_j l_j l_j^T,

    with the diagonal |r|. In expectation both are the same, and the star is above the
    Hessian wherever the other classes are less probable. Where a row is misjudged, f
    brings |r_y| down to the bound of two classes, y and the others. So for two,
    Z (m, 1), weights are w min(|r|, tanh(z / 2) / (2 z)).
    """
    k = Z.shape[1]
    for i in range(Z.shape[0]):
        w = weight[i] if weight.size else 1.0
        if k == 1:
            s = np.float64(Z[i, 0] if y[i] else -Z[i, 0])
        else:
            top, others = -math.inf, 0.0
            for j in range(k):
                if j != y[i]:
                    top = max(top, np.float64(Z[i, j]))
            for j in range(k):
                out[i, j] = exp(np.float64(Z[i, j]) - top) if j != y[i] else 0.0
                others += out[i, j]
            s = np.float64(Z[i, y[i]]) - top - log(others)
        s = min(max(s, -FARTHEST), FARTHEST)
        e = exp(-abs(s))
        own = w * min((e if s > 0 else 1.0) / (1.0 + e), half_tanh(abs(s), e))
        if k == 1:
            out[i, 0] = own
        else:
            for j in range(k):
                out[i, j] *= own / others
            out[i, y[i]] = own
