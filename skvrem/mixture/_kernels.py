"""E step and expected sufficient statistics of Gaussian mixtures, tile by tile.

With z = x - mean_k (d,), y = z U_k where U_k U_k^T is the precision of component k,

    l_k = log_constant_k - |y|^2 / 2,      log_constant_k = log weight_k + log|U_k|
                                                            - d/2 log(2 pi)
    r_k = exp(beta l_k) / sum_j exp(beta l_j)

and, summed over the rows with weights w,

    sum_w (k,) += w r    sum_x (k, d) += w r z    sum_xx (k, d, d) += w r z z^T
    objective = sum w (1/beta) log sum_k exp(beta l_k)

Sums about a component's own mean do not cancel as E[x^2] - E[x]^2 does. A density of
zero (log_constant -inf, or a row too far away for the dtype) has l = -inf and r = 0.

``X`` (n, d) is read only, float32 or float64, and rules the precision inside a tile;
tiles are summed in float64. Rows are ``start..stop`` of X, or of ``X[index]`` where
``index`` is not empty; ``weight`` (n,) goes with the rows of X, empty for ones.
Sums are added to what the outputs hold.

A tile holds its rows transposed, x[feature, row], so that every inner loop runs over
rows. There is no array of n x k numbers.
"""

import math

import numpy as np

from skvrem.utils._jit import CONTRACT, REDUCE, kernel
from skvrem.utils._math import exp, log

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
# Rows of a tile come in steps of this: loops then have no scalar remainder.
STEP = 16


@kernel
def _fill(X, index, weight, start, stop, x, w):
    """Copy rows start..stop into x (d or more, tile); return the rows to work on.

    The last row is repeated, with weight zero, up to a multiple of STEP.
    """
    count = stop - start
    rows = (count + STEP - 1) // STEP * STEP
    for t in range(rows):
        u = start + min(t, count - 1)
        i = index[u] if index.size else u
        row = X[i]
        for j in range(row.size):
            x[j, t] = row[j]
        w[t] = 0.0 if t >= count else (weight[i] if weight.size else 1.0)
    return rows


@kernel(fastmath=CONTRACT)
def _softmax(joint, w, rows, beta, top, total):
    """Turn l (k, tile) into w r in place; return the tile's share of the objective."""
    k = joint.shape[0]
    lowest = np.finfo(joint.dtype).min
    top[:rows] = joint[0, :rows]
    for c in range(1, k):
        row = joint[c]
        for t in range(rows):
            top[t] = row[t] if row[t] > top[t] else top[t]
    total[:rows] = 0.0
    for c in range(k):
        row = joint[c]
        for t in range(rows):
            # A row without density: -inf - lowest = -inf where -inf + inf is NaN.
            shift = top[t] if top[t] > lowest else lowest
            row[t] = exp(beta * (row[t] - shift))
            total[t] += row[t]
    objective = 0.0
    tiny = np.finfo(joint.dtype).tiny
    for t in range(rows):
        s = total[t] if total[t] > tiny else tiny
        if w[t] > 0.0:
            objective += np.float64(w[t]) * np.float64(top[t] + log(s) / beta)
        total[t] = w[t] / s
    for c in range(k):
        row = joint[c]
        for t in range(rows):
            row[t] *= total[t]
    return objective


@kernel
def _padded(means, precisions_cholesky, size, dtype):
    """Copy the parameters to a dtype, zeros in the features d..size."""
    k, d = means.shape
    m = np.zeros((k, size), dtype)
    u = np.zeros((k, size, size), dtype)
    m[:, :d] = means
    u[:, :d, :d] = precisions_cholesky
    return m, u


@kernel(fastmath=CONTRACT)
def _full_joint(x, rows, mean, u, constant, z, y, q, joint):
    """joint = constant - |(x - mean) U|^2 / 2; two columns of U at a time."""
    size = mean.size
    half = x.dtype.type(0.5)
    q[:rows] = 0.0
    for j in range(size):
        zj, xj, mj = z[j], x[j], mean[j]
        for t in range(rows):
            zj[t] = xj[t] - mj
    y0 = y[0]
    for j in range(size):
        y0[:rows] = 0.0
        for i in range(j + 1):
            zi = z[i]
            uij = u[i, j]
            for t in range(rows):
                y0[t] += uij * zi[t]
        for t in range(rows):
            q[t] += y0[t] * y0[t]
    for t in range(rows):
        joint[t] = constant - half * q[t]


@kernel(fastmath=REDUCE)
def _full_sums(x, rows, mean, r, z, a, sum_x, sum_xx):
    """sum_x += sum r z, sum_xx += sum r z z^T (upper triangle); return sum r."""
    size = mean.size
    total = r[0] - r[0]
    for t in range(rows):
        total += r[t]
    for j in range(size):
        zj, xj, mj = z[j], x[j], mean[j]
        for t in range(rows):
            zj[t] = xj[t] - mj
    a0 = a[0]
    for i in range(size):
        zi = z[i]
        s = total - total
        for t in range(rows):
            a0[t] = r[t] * zi[t]
            s += a0[t]
        sum_x[i] += s
        for j in range(i, size):
            zj = z[j]
            s = total - total
            for t in range(rows):
                s += a0[t] * zj[t]
            sum_xx[i, j] += s
    return total


@kernel
def full_statistics(
    X,
    index,
    start,
    stop,
    weight,
    means,
    precisions_cholesky,
    log_constants,
    inverse_temperature,
    sum_w,
    sum_x,
    sum_xx,
):
    """Add the statistics of rows start..stop; return their objective.

    means (k, d), precisions_cholesky (k, d, d) upper triangular, log_constants (k,),
    sum_w (k,), sum_x (k, d), sum_xx (k, d, d), symmetric before and after.
    """
    k, d = means.shape
    size = d + d % 2
    dtype = X.dtype
    tile = 256
    m, u = _padded(means, precisions_cholesky, size, dtype)
    constants = log_constants.astype(dtype)
    beta = dtype.type(inverse_temperature)
    x, z = np.zeros((size, tile), dtype), np.zeros((size, tile), dtype)
    y, q = np.zeros((4, tile), dtype), np.zeros(tile, dtype)
    w, joint = np.zeros(tile, dtype), np.zeros((k, tile), dtype)
    sx, sxx = np.zeros((k, size)), np.zeros((k, size, size))
    objective = 0.0
    for first in range(start, stop, tile):
        rows = _fill(X, index, weight, first, min(first + tile, stop), x, w)
        for c in range(k):
            _full_joint(x, rows, m[c], u[c], constants[c], z, y, q, joint[c])
        objective += _softmax(joint, w, rows, beta, q, y[0])
        for c in range(k):
            r = joint[c]
            sum_w[c] += _full_sums(x, rows, m[c], r, z, y, sx[c], sxx[c])
    for c in range(k):
        for i in range(d):
            sum_x[c, i] += sx[c, i]
            for j in range(i, d):
                sum_xx[c, i, j] += sxx[c, i, j]
                sum_xx[c, j, i] = sum_xx[c, i, j]
    return objective


@kernel
def full_log_joint(
    X, index, start, stop, means, precisions_cholesky, log_constants, out
):
    """Write l_ik of rows start..stop to out (stop - start, k), of X's dtype."""
    k, d = means.shape
    size = d + d % 2
    dtype = X.dtype
    tile = 256
    m, u = _padded(means, precisions_cholesky, size, dtype)
    constants = log_constants.astype(dtype)
    x, z = np.zeros((size, tile), dtype), np.zeros((size, tile), dtype)
    y, q = np.zeros((4, tile), dtype), np.zeros(tile, dtype)
    w, joint = np.zeros(tile, dtype), np.zeros((k, tile), dtype)
    ones = np.zeros(0)
    for first in range(start, stop, tile):
        last = min(first + tile, stop)
        rows = _fill(X, index, ones, first, last, x, w)
        for c in range(k):
            _full_joint(x, rows, m[c], u[c], constants[c], z, y, q, joint[c])
        out[first - start : last - start] = joint[:, : last - first].T


@kernel(fastmath=CONTRACT)
def _diag_joint(x, rows, mean, u, constant, q, joint):
    """joint = constant - sum_j ((x_j - mean_j) u_j)^2 / 2."""
    half = x.dtype.type(0.5)
    q[:rows] = 0.0
    for j in range(mean.size):
        xj, mj, uj = x[j], mean[j], u[j]
        for t in range(rows):
            y = (xj[t] - mj) * uj
            q[t] += y * y
    for t in range(rows):
        joint[t] = constant - half * q[t]


@kernel(fastmath=REDUCE)
def _diag_sums(x, rows, mean, r, sum_x, sum_xx):
    """sum_x += sum r z, sum_xx += sum r z^2; return sum r."""
    total = r[0] - r[0]
    for t in range(rows):
        total += r[t]
    for j in range(mean.size):
        xj, mj = x[j], mean[j]
        s = total - total
        ss = total - total
        for t in range(rows):
            z = xj[t] - mj
            a = r[t] * z
            s += a
            ss += a * z
        sum_x[j] += s
        sum_xx[j] += ss
    return total


@kernel
def _diag_tile(d, itemsize):
    """Rows of a tile: 20 to 30 kB of the first-level cache, a power of two."""
    tile = 256
    while tile > 32 and tile * d * itemsize > 30000:
        tile //= 2
    return tile


@kernel
def diag_statistics(
    X,
    index,
    start,
    stop,
    weight,
    means,
    precisions_cholesky,
    log_constants,
    inverse_temperature,
    sum_w,
    sum_x,
    sum_xx,
):
    """Add the statistics of rows start..stop; return their objective.

    means, precisions_cholesky = 1 / sd, sum_x, sum_xx (k, d): sum_xx += w r z^2.
    """
    k, d = means.shape
    dtype = X.dtype
    tile = _diag_tile(d, X.itemsize)
    m, u = means.astype(dtype), precisions_cholesky.astype(dtype)
    constants = log_constants.astype(dtype)
    beta = dtype.type(inverse_temperature)
    x, joint = np.zeros((d, tile), dtype), np.zeros((k, tile), dtype)
    w, q, s = np.zeros(tile, dtype), np.zeros(tile, dtype), np.zeros(tile, dtype)
    objective = 0.0
    for first in range(start, stop, tile):
        rows = _fill(X, index, weight, first, min(first + tile, stop), x, w)
        for c in range(k):
            _diag_joint(x, rows, m[c], u[c], constants[c], q, joint[c])
        objective += _softmax(joint, w, rows, beta, q, s)
        for c in range(k):
            sum_w[c] += _diag_sums(x, rows, m[c], joint[c], sum_x[c], sum_xx[c])
    return objective


@kernel
def diag_log_joint(
    X, index, start, stop, means, precisions_cholesky, log_constants, out
):
    """Write l_ik of rows start..stop to out (stop - start, k), of X's dtype."""
    k, d = means.shape
    dtype = X.dtype
    tile = _diag_tile(d, X.itemsize)
    m, u = means.astype(dtype), precisions_cholesky.astype(dtype)
    constants = log_constants.astype(dtype)
    x, joint = np.zeros((d, tile), dtype), np.zeros((k, tile), dtype)
    w, q = np.zeros(tile, dtype), np.zeros(tile, dtype)
    ones = np.zeros(0)
    for first in range(start, stop, tile):
        last = min(first + tile, stop)
        rows = _fill(X, index, ones, first, last, x, w)
        for c in range(k):
            _diag_joint(x, rows, m[c], u[c], constants[c], q, joint[c])
        out[first - start : last - start] = joint[:, : last - first].T


@kernel
def _missing_constants(log_constants, u):
    """Split log_constants into log weights and log u_kj - log(2 pi)/2 a feature."""
    parts = np.log(u) - HALF_LOG_2PI
    return log_constants - parts.sum(axis=1), parts


@kernel(fastmath=CONTRACT)
def _diag_missing_joint(x, rows, mean, u, parts, constant, q, joint):
    """joint = constant + sum over observed j of parts_j - ((x_j - mean_j) u_j)^2 / 2.

    NaN is missing; constant is log weight, parts_j = log u_j - log(2 pi) / 2.
    """
    half, zero = x.dtype.type(0.5), x.dtype.type(0.0)
    q[:rows] = 0.0
    for j in range(mean.size):
        xj, mj, uj, pj = x[j], mean[j], u[j], parts[j]
        for t in range(rows):
            y = (xj[t] - mj) * uj
            q[t] += pj - half * y * y if xj[t] == xj[t] else zero
    for t in range(rows):
        joint[t] = constant + q[t]


@kernel(fastmath=REDUCE)
def _diag_missing_sums(x, rows, mean, variance, r, sum_x, sum_xx):
    """sum_x += sum r E[z], sum_xx += sum r E[z^2]; return sum r.

    A missing entry has E[z] = 0, E[z^2] = variance_j.
    """
    zero = r.dtype.type(0.0)
    total = zero
    for t in range(rows):
        total += r[t]
    for j in range(mean.size):
        xj, mj, vj = x[j], mean[j], variance[j]
        s, ss, missing = zero, zero, zero
        for t in range(rows):
            z = xj[t] - mj if xj[t] == xj[t] else zero
            missing += zero if xj[t] == xj[t] else r[t]
            a = r[t] * z
            s += a
            ss += a * z
        sum_x[j] += s
        sum_xx[j] += ss + missing * vj
    return total


@kernel
def diag_missing_statistics(
    X,
    index,
    start,
    stop,
    weight,
    means,
    precisions_cholesky,
    log_constants,
    inverse_temperature,
    variances,
    sum_w,
    sum_x,
    sum_xx,
):
    """As diag_statistics, where NaN is an entry missing at random.

    Only observed features enter l_k; a missing one adds its expectation under the
    component, 0 to sum_x and variances[k, j] to sum_xx.
    """
    k, d = means.shape
    dtype = X.dtype
    tile = _diag_tile(d, X.itemsize)
    m, u = means.astype(dtype), precisions_cholesky.astype(dtype)
    log_weights, parts = _missing_constants(log_constants, precisions_cholesky)
    constants, p = log_weights.astype(dtype), parts.astype(dtype)
    beta = dtype.type(inverse_temperature)
    x, joint = np.zeros((d, tile), dtype), np.zeros((k, tile), dtype)
    w, q, s = np.zeros(tile, dtype), np.zeros(tile, dtype), np.zeros(tile, dtype)
    objective = 0.0
    for first in range(start, stop, tile):
        rows = _fill(X, index, weight, first, min(first + tile, stop), x, w)
        for c in range(k):
            _diag_missing_joint(x, rows, m[c], u[c], p[c], constants[c], q, joint[c])
        objective += _softmax(joint, w, rows, beta, q, s)
        for c in range(k):
            sum_w[c] += _diag_missing_sums(
                x, rows, m[c], variances[c], joint[c], sum_x[c], sum_xx[c]
            )
    return objective


@kernel
def diag_missing_log_joint(
    X, index, start, stop, means, precisions_cholesky, log_constants, out
):
    """Write l_ik of rows start..stop to out (stop - start, k); NaN is missing."""
    k, d = means.shape
    dtype = X.dtype
    tile = _diag_tile(d, X.itemsize)
    m, u = means.astype(dtype), precisions_cholesky.astype(dtype)
    log_weights, parts = _missing_constants(log_constants, precisions_cholesky)
    constants, p = log_weights.astype(dtype), parts.astype(dtype)
    x, joint = np.zeros((d, tile), dtype), np.zeros((k, tile), dtype)
    w, q = np.zeros(tile, dtype), np.zeros(tile, dtype)
    ones = np.zeros(0)
    for first in range(start, stop, tile):
        last = min(first + tile, stop)
        rows = _fill(X, index, ones, first, last, x, w)
        for c in range(k):
            _diag_missing_joint(x, rows, m[c], u[c], p[c], constants[c], q, joint[c])
        out[first - start : last - start] = joint[:, : last - first].T
