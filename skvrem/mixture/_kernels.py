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

There is no array of n x k numbers: rows go through in tiles, transposed and laid out
flat, x[feature * stride + row], so that every inner loop runs over rows. Three things
make those loops fast. Buffers start at a cache line: 64-byte vectors that straddle two
lines cost three times as much. The stride is no power of two, else stores wait for
loads of the same address modulo 4096. And where several features share a loop (2 or 4
columns of U at a time), the stride is a constant for the compiler and the loop counter
unsigned: then one check for overlap, and none for negative indices, guards the loop.
"""

import math

import numpy as np

from skvrem.utils._jit import CONTRACT, REDUCE, kernel
from skvrem.utils._math import exp, log

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
# Rows of a tile come in steps of this: loops then have no scalar remainder.
STEP = 16
# Bits of a tile's row, 256 float64 or 512 float32, and of a row with its gap.
TILE_BITS = 256 * 64
STRIDE_BITS = (256 + 16) * 64
# Posteriors below this are left out of the second moments where many are.
NEGLIGIBLE = 1e-21


@kernel
def _buffer(size, dtype):
    """Zeros that start at a cache line."""
    spare = np.zeros(size + STEP, dtype)
    offset = -spare.ctypes.data % 64 // spare.itemsize
    return spare[offset : offset + size]


@kernel
def _stride(x):
    """The stride of x as a constant to LLVM: numba has no itemsize of a dtype."""
    return np.uint64(STRIDE_BITS // np.finfo(x.dtype).bits)


@kernel
def _features(x, j):
    """The rows of x from feature j on."""
    return x[j * (STRIDE_BITS // np.finfo(x.dtype).bits) :]


@kernel
def _fill(X, index, weight, start, stop, stride, x, w):
    """Copy rows start..stop into x; return the number of rows to work on.

    The last row is repeated, with weight zero, up to a multiple of STEP.
    """
    count = stop - start
    rows = (count + STEP - 1) // STEP * STEP
    d = X.shape[1]
    for t in range(rows):
        u = start + min(t, count - 1)
        i = index[u] if index.size else u
        row = X[i]
        for j in range(d):
            x[j * stride + t] = row[j]
        w[t] = 0.0 if t >= count else (weight[i] if weight.size else 1.0)
    return rows


@kernel(fastmath=CONTRACT)
def _softmax(joint, stride, k, w, rows, beta, top, total):
    """Turn l (k, tile) into w r in place; return the tile's share of the objective."""
    lowest, tiny = np.finfo(joint.dtype).min, np.finfo(joint.dtype).tiny
    top[:rows] = joint[:rows]
    total[:rows] = 0.0
    for c in range(1, k):
        l = joint[c * stride : (c + 1) * stride]
        for t in range(rows):
            top[t] = l[t] if l[t] > top[t] else top[t]
    for c in range(k):
        l = joint[c * stride : (c + 1) * stride]
        for t in range(rows):
            # A row without density: -inf - lowest = -inf where -inf + inf is NaN.
            shift = top[t] if top[t] > lowest else lowest
            l[t] = exp(beta * (l[t] - shift))
            total[t] += l[t]
    objective = 0.0
    for t in range(rows):
        s = total[t] if total[t] > tiny else tiny
        if w[t] > 0.0:
            objective += np.float64(w[t]) * np.float64(top[t] + log(s) / beta)
        total[t] = w[t] / s
    for c in range(k):
        l = joint[c * stride : (c + 1) * stride]
        for t in range(rows):
            l[t] *= total[t]
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
def _columns4(z, u, i, j, y, out, rows):
    """out = y + U[i:i+4, j:j+4]^T z[i:i+4]."""
    s = _stride(z)
    s2, s3 = s + s, s + s + s
    z = _features(z, i)
    a, b, c, d = u[i, j:], u[i + 1, j:], u[i + 2, j:], u[i + 3, j:]
    a0, a1, a2, a3 = a[0], a[1], a[2], a[3]
    b0, b1, b2, b3 = b[0], b[1], b[2], b[3]
    c0, c1, c2, c3 = c[0], c[1], c[2], c[3]
    d0, d1, d2, d3 = d[0], d[1], d[2], d[3]
    for t in range(np.uint64(rows)):
        z0, z1, z2, z3 = z[t], z[t + s], z[t + s2], z[t + s3]
        out[t] = y[t] + a0 * z0 + b0 * z1 + c0 * z2 + d0 * z3
        out[t + s] = y[t + s] + a1 * z0 + b1 * z1 + c1 * z2 + d1 * z3
        out[t + s2] = y[t + s2] + a2 * z0 + b2 * z1 + c2 * z2 + d2 * z3
        out[t + s3] = y[t + s3] + a3 * z0 + b3 * z1 + c3 * z2 + d3 * z3


@kernel(fastmath=CONTRACT)
def _columns2(z, u, i, j, y, out, rows):
    """out = y + U[i:i+4, j:j+2]^T z[i:i+4]."""
    s = _stride(z)
    s2, s3 = s + s, s + s + s
    z = _features(z, i)
    a0, a1 = u[i, j], u[i, j + 1]
    b0, b1 = u[i + 1, j], u[i + 1, j + 1]
    c0, c1 = u[i + 2, j], u[i + 2, j + 1]
    d0, d1 = u[i + 3, j], u[i + 3, j + 1]
    for t in range(np.uint64(rows)):
        z0, z1, z2, z3 = z[t], z[t + s], z[t + s2], z[t + s3]
        out[t] = y[t] + a0 * z0 + b0 * z1 + c0 * z2 + d0 * z3
        out[t + s] = y[t + s] + a1 * z0 + b1 * z1 + c1 * z2 + d1 * z3


@kernel(fastmath=CONTRACT)
def _corner4(x, mean, u, j, y, z, q, rows):
    """z = x - mean, q += |y + U[j:j+4, j:j+4]^T z|^2 for the features j..j+4."""
    s = _stride(z)
    s2, s3 = s + s, s + s + s
    x, z = _features(x, j), _features(z, j)
    m0, m1, m2, m3 = mean[j], mean[j + 1], mean[j + 2], mean[j + 3]
    a0, a1, a2, a3 = u[j, j], u[j, j + 1], u[j, j + 2], u[j, j + 3]
    b1, b2, b3 = u[j + 1, j + 1], u[j + 1, j + 2], u[j + 1, j + 3]
    c2, c3, d3 = u[j + 2, j + 2], u[j + 2, j + 3], u[j + 3, j + 3]
    for t in range(np.uint64(rows)):
        z0, z1, z2, z3 = x[t] - m0, x[t + s] - m1, x[t + s2] - m2, x[t + s3] - m3
        z[t], z[t + s], z[t + s2], z[t + s3] = z0, z1, z2, z3
        y0 = y[t] + a0 * z0
        y1 = y[t + s] + a1 * z0 + b1 * z1
        y2 = y[t + s2] + a2 * z0 + b2 * z1 + c2 * z2
        y3 = y[t + s3] + a3 * z0 + b3 * z1 + c3 * z2 + d3 * z3
        q[t] += y0 * y0 + y1 * y1 + y2 * y2 + y3 * y3


@kernel(fastmath=CONTRACT)
def _corner2(x, mean, u, j, y, q, rows):
    """q += |y + U[j:j+2, j:j+2]^T (x - mean)|^2, the last two features."""
    s = _stride(x)
    x = _features(x, j)
    m0, m1 = mean[j], mean[j + 1]
    a0, a1, b1 = u[j, j], u[j, j + 1], u[j + 1, j + 1]
    for t in range(np.uint64(rows)):
        z0, z1 = x[t] - m0, x[t + s] - m1
        y0 = y[t] + a0 * z0
        y1 = y[t + s] + a1 * z0 + b1 * z1
        q[t] += y0 * y0 + y1 * y1


@kernel(fastmath=CONTRACT)
def _full_joint(x, rows, mean, u, constant, z, zeros, y, other, q, joint):
    """joint = constant - |(x - mean) U|^2 / 2, and z = x - mean but its last pair.

    A block of y goes from one buffer to another: in place, the check for overlap
    would choose the scalar loop.
    """
    size = mean.size
    quads = size // 4 * 4
    half = x.dtype.type(0.5)
    q[:rows] = 0.0
    for j in range(0, quads, 4):
        begin, end, spare = zeros, y, other
        for i in range(0, j, 4):
            _columns4(z, u, i, j, begin, end, rows)
            begin, end, spare = end, spare, end
        _corner4(x, mean, u, j, begin, z, q, rows)
    if quads < size:
        begin, end, spare = zeros, y, other
        for i in range(0, quads, 4):
            _columns2(z, u, i, quads, begin, end, rows)
            begin, end, spare = end, spare, end
        _corner2(x, mean, u, quads, begin, q, rows)
    for t in range(rows):
        joint[t] = constant - half * q[t]


@kernel(fastmath=REDUCE)
def _moments4(x, mean, i, r, z, a, sum_x, sum_xx, rows):
    """z = x - mean, a = r z; sum_x += sum a, sum_xx += sum a z^T of features i..i+4."""
    s = _stride(z)
    s2, s3 = s + s, s + s + s
    x, z = _features(x, i), _features(z, i)
    m0, m1, m2, m3 = mean[i], mean[i + 1], mean[i + 2], mean[i + 3]
    zero = r.dtype.type(0.0)
    p0 = p1 = p2 = p3 = zero
    p00 = p01 = p02 = p03 = p11 = p12 = p13 = p22 = p23 = p33 = zero
    for t in range(np.uint64(rows)):
        z0, z1, z2, z3 = x[t] - m0, x[t + s] - m1, x[t + s2] - m2, x[t + s3] - m3
        z[t], z[t + s], z[t + s2], z[t + s3] = z0, z1, z2, z3
        a0, a1, a2, a3 = r[t] * z0, r[t] * z1, r[t] * z2, r[t] * z3
        a[t], a[t + s], a[t + s2], a[t + s3] = a0, a1, a2, a3
        p0 += a0
        p1 += a1
        p2 += a2
        p3 += a3
        p00 += a0 * z0
        p01 += a0 * z1
        p02 += a0 * z2
        p03 += a0 * z3
        p11 += a1 * z1
        p12 += a1 * z2
        p13 += a1 * z3
        p22 += a2 * z2
        p23 += a2 * z3
        p33 += a3 * z3
    _add4(sum_x[i:], p0, p1, p2, p3)
    _add4(sum_xx[i, i:], p00, p01, p02, p03)
    _add4(sum_xx[i + 1, i:], zero, p11, p12, p13)
    _add4(sum_xx[i + 2, i:], zero, zero, p22, p23)
    sum_xx[i + 3, i + 3] += p33


@kernel
def _add4(out, a, b, c, d):
    out[0] += a
    out[1] += b
    out[2] += c
    out[3] += d


@kernel(fastmath=REDUCE)
def _moments2(x, mean, i, r, z, sum_x, sum_xx, rows):
    """As _moments4 for the last two features, whose a nobody needs."""
    s = _stride(z)
    x, z = _features(x, i), _features(z, i)
    m0, m1 = mean[i], mean[i + 1]
    p0 = p1 = p00 = p01 = p11 = r.dtype.type(0.0)
    for t in range(np.uint64(rows)):
        z0, z1 = x[t] - m0, x[t + s] - m1
        z[t], z[t + s] = z0, z1
        a0, a1 = r[t] * z0, r[t] * z1
        p0 += a0
        p1 += a1
        p00 += a0 * z0
        p01 += a0 * z1
        p11 += a1 * z1
    sum_x[i] += p0
    sum_x[i + 1] += p1
    sum_xx[i, i] += p00
    sum_xx[i, i + 1] += p01
    sum_xx[i + 1, i + 1] += p11


@kernel(fastmath=REDUCE)
def _products4(a, z, i, j, sum_xx, rows):
    """sum_xx[i:i+4, j:j+4] += sum a z[j:j+4]^T."""
    s = _stride(z)
    s2, s3 = s + s, s + s + s
    z = _features(z, j)
    p00 = p01 = p02 = p03 = p10 = p11 = p12 = p13 = z.dtype.type(0.0)
    p20 = p21 = p22 = p23 = p30 = p31 = p32 = p33 = z.dtype.type(0.0)
    for t in range(np.uint64(rows)):
        z0, z1, z2, z3 = z[t], z[t + s], z[t + s2], z[t + s3]
        a0, a1, a2, a3 = a[t], a[t + s], a[t + s2], a[t + s3]
        p00 += a0 * z0
        p01 += a0 * z1
        p02 += a0 * z2
        p03 += a0 * z3
        p10 += a1 * z0
        p11 += a1 * z1
        p12 += a1 * z2
        p13 += a1 * z3
        p20 += a2 * z0
        p21 += a2 * z1
        p22 += a2 * z2
        p23 += a2 * z3
        p30 += a3 * z0
        p31 += a3 * z1
        p32 += a3 * z2
        p33 += a3 * z3
    _add4(sum_xx[i, j:], p00, p01, p02, p03)
    _add4(sum_xx[i + 1, j:], p10, p11, p12, p13)
    _add4(sum_xx[i + 2, j:], p20, p21, p22, p23)
    _add4(sum_xx[i + 3, j:], p30, p31, p32, p33)


@kernel(fastmath=REDUCE)
def _products2(a, z, i, j, sum_xx, rows):
    """sum_xx[i:i+4, j:j+2] += sum a z[j:j+2]^T."""
    s = _stride(z)
    s2, s3 = s + s, s + s + s
    z = _features(z, j)
    p00 = p01 = p10 = p11 = p20 = p21 = p30 = p31 = z.dtype.type(0.0)
    for t in range(np.uint64(rows)):
        z0, z1 = z[t], z[t + s]
        a0, a1, a2, a3 = a[t], a[t + s], a[t + s2], a[t + s3]
        p00 += a0 * z0
        p01 += a0 * z1
        p10 += a1 * z0
        p11 += a1 * z1
        p20 += a2 * z0
        p21 += a2 * z1
        p30 += a3 * z0
        p31 += a3 * z1
    sum_xx[i, j] += p00
    sum_xx[i, j + 1] += p01
    sum_xx[i + 1, j] += p10
    sum_xx[i + 1, j + 1] += p11
    sum_xx[i + 2, j] += p20
    sum_xx[i + 2, j + 1] += p21
    sum_xx[i + 3, j] += p30
    sum_xx[i + 3, j + 1] += p31


@kernel
def _full_sums(x, rows, mean, r, z, a, sum_x, sum_xx):
    """sum_x += sum r z, sum_xx += sum r z z^T, upper triangle.

    From the last features to the first: those to the right have their z ready.
    """
    size = mean.size
    quads = size // 4
    if size % 4:
        _moments2(x, mean, size - 2, r, z, sum_x, sum_xx, rows)
    for block in range(quads):
        i = 4 * (quads - 1 - block)
        _moments4(x, mean, i, r, z, a, sum_x, sum_xx, rows)
        for j in range(i + 4, size - 3, 4):
            _products4(a, z, i, j, sum_xx, rows)
        if size % 4:
            _products2(a, z, i, size - 2, sum_xx, rows)


@kernel(fastmath=REDUCE)
def _total(r, rows):
    total = r.dtype.type(0.0)
    for t in range(rows):
        total += r[t]
    return total


@kernel
def _compress(x, w, r, rows, size, kept, x_kept, r_kept):
    """Copy the rows whose posterior counts, if they are few; return their number.

    Returns rows, and copies nothing, where that would not pay.
    """
    count = 0
    for t in range(rows):
        count += r[t] > NEGLIGIBLE * w[t]
    if 3 * count > rows:
        return rows
    count = 0
    for t in range(rows):
        kept[count] = t
        count += r[t] > NEGLIGIBLE * w[t]
    padded = (count + STEP - 1) // STEP * STEP
    for t in range(padded):
        r_kept[t] = r[kept[t]] if t < count else 0.0
    for j in range(size):
        source, target = _features(x, j), _features(x_kept, j)
        for t in range(count):
            target[t] = source[kept[t]]
    return padded


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
    tile = TILE_BITS // np.finfo(dtype).bits
    stride = STRIDE_BITS // np.finfo(dtype).bits
    m, u = _padded(means, precisions_cholesky, size, dtype)
    constants = log_constants.astype(dtype)
    beta = dtype.type(inverse_temperature)
    x, z = _buffer(size * stride, dtype), _buffer(size * stride, dtype)
    zeros, y, other = (
        _buffer(4 * stride, dtype),
        _buffer(4 * stride, dtype),
        _buffer(4 * stride, dtype),
    )
    q, s, w = _buffer(stride, dtype), _buffer(stride, dtype), _buffer(stride, dtype)
    joint, r_kept = _buffer(k * stride, dtype), _buffer(stride, dtype)
    x_kept, kept = _buffer(size * stride, dtype), np.zeros(tile + 1, np.int32)
    sx, sxx = np.zeros((k, size)), np.zeros((k, size, size))
    objective = 0.0
    for first in range(start, stop, tile):
        rows = _fill(X, index, weight, first, min(first + tile, stop), stride, x, w)
        for c in range(k):
            row = joint[c * stride : (c + 1) * stride]
            _full_joint(x, rows, m[c], u[c], constants[c], z, zeros, y, other, q, row)
        objective += _softmax(joint, stride, k, w, rows, beta, q, s)
        for c in range(k):
            r = joint[c * stride : (c + 1) * stride]
            sum_w[c] += _total(r, rows)
            few = _compress(x, w, r, rows, size, kept, x_kept, r_kept)
            if few < rows:
                _full_sums(x_kept, few, m[c], r_kept, z, y, sx[c], sxx[c])
            else:
                _full_sums(x, rows, m[c], r, z, y, sx[c], sxx[c])
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
    tile = TILE_BITS // np.finfo(dtype).bits
    stride = STRIDE_BITS // np.finfo(dtype).bits
    m, u = _padded(means, precisions_cholesky, size, dtype)
    constants = log_constants.astype(dtype)
    x, z = _buffer(size * stride, dtype), _buffer(size * stride, dtype)
    zeros, y, other = (
        _buffer(4 * stride, dtype),
        _buffer(4 * stride, dtype),
        _buffer(4 * stride, dtype),
    )
    q, w, row = _buffer(stride, dtype), _buffer(stride, dtype), _buffer(stride, dtype)
    ones = np.zeros(0)
    for first in range(start, stop, tile):
        last = min(first + tile, stop)
        rows = _fill(X, index, ones, first, last, stride, x, w)
        for c in range(k):
            _full_joint(x, rows, m[c], u[c], constants[c], z, zeros, y, other, q, row)
            out[first - start : last - start, c] = row[: last - first]


@kernel(fastmath=CONTRACT)
def _diag_joint(x, stride, rows, mean, u, constant, q, joint):
    """joint = constant - sum_j ((x_j - mean_j) u_j)^2 / 2."""
    half = x.dtype.type(0.5)
    q[:rows] = 0.0
    for j in range(mean.size):
        xj, mj, uj = x[j * stride : (j + 1) * stride], mean[j], u[j]
        for t in range(rows):
            y = (xj[t] - mj) * uj
            q[t] += y * y
    for t in range(rows):
        joint[t] = constant - half * q[t]


@kernel(fastmath=REDUCE)
def _diag_sums(x, stride, rows, mean, r, sum_x, sum_xx):
    """sum_x += sum r z, sum_xx += sum r z^2; return sum r."""
    total = r[0] - r[0]
    for t in range(rows):
        total += r[t]
    for j in range(mean.size):
        xj, mj = x[j * stride : (j + 1) * stride], mean[j]
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
    stride = tile + STEP
    x, joint = _buffer(d * stride, dtype), _buffer(k * stride, dtype)
    w, q, s = _buffer(stride, dtype), _buffer(stride, dtype), _buffer(stride, dtype)
    objective = 0.0
    for first in range(start, stop, tile):
        rows = _fill(X, index, weight, first, min(first + tile, stop), stride, x, w)
        for c in range(k):
            _diag_joint(
                x,
                stride,
                rows,
                m[c],
                u[c],
                constants[c],
                q,
                joint[c * stride : (c + 1) * stride],
            )
        objective += _softmax(joint, stride, k, w, rows, beta, q, s)
        for c in range(k):
            sum_w[c] += _diag_sums(
                x,
                stride,
                rows,
                m[c],
                joint[c * stride : (c + 1) * stride],
                sum_x[c],
                sum_xx[c],
            )
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
    stride = tile + STEP
    x, joint = _buffer(d * stride, dtype), _buffer(k * stride, dtype)
    w, q = _buffer(stride, dtype), _buffer(stride, dtype)
    ones = np.zeros(0)
    for first in range(start, stop, tile):
        last = min(first + tile, stop)
        rows = _fill(X, index, ones, first, last, stride, x, w)
        for c in range(k):
            _diag_joint(
                x,
                stride,
                rows,
                m[c],
                u[c],
                constants[c],
                q,
                joint[c * stride : (c + 1) * stride],
            )
            out[first - start : last - start, c] = row[: last - first]


@kernel
def _missing_constants(log_constants, u):
    """Split log_constants into log weights and log u_kj - log(2 pi)/2 a feature."""
    parts = np.log(u) - HALF_LOG_2PI
    return log_constants - parts.sum(axis=1), parts


@kernel(fastmath=CONTRACT)
def _diag_missing_joint(x, stride, rows, mean, u, parts, constant, q, joint):
    """joint = constant + sum over observed j of parts_j - ((x_j - mean_j) u_j)^2 / 2.

    NaN is missing; constant is log weight, parts_j = log u_j - log(2 pi) / 2.
    """
    half, zero = x.dtype.type(0.5), x.dtype.type(0.0)
    q[:rows] = 0.0
    for j in range(mean.size):
        xj, mj, uj, pj = x[j * stride : (j + 1) * stride], mean[j], u[j], parts[j]
        for t in range(rows):
            y = (xj[t] - mj) * uj
            q[t] += pj - half * y * y if xj[t] == xj[t] else zero
    for t in range(rows):
        joint[t] = constant + q[t]


@kernel(fastmath=REDUCE)
def _diag_missing_sums(x, stride, rows, mean, variance, r, sum_x, sum_xx):
    """sum_x += sum r E[z], sum_xx += sum r E[z^2]; return sum r.

    A missing entry has E[z] = 0, E[z^2] = variance_j.
    """
    zero = r.dtype.type(0.0)
    total = zero
    for t in range(rows):
        total += r[t]
    for j in range(mean.size):
        xj, mj, vj = x[j * stride : (j + 1) * stride], mean[j], variance[j]
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
    stride = tile + STEP
    x, joint = _buffer(d * stride, dtype), _buffer(k * stride, dtype)
    w, q, s = _buffer(stride, dtype), _buffer(stride, dtype), _buffer(stride, dtype)
    objective = 0.0
    for first in range(start, stop, tile):
        rows = _fill(X, index, weight, first, min(first + tile, stop), stride, x, w)
        for c in range(k):
            _diag_missing_joint(
                x,
                stride,
                rows,
                m[c],
                u[c],
                p[c],
                constants[c],
                q,
                joint[c * stride : (c + 1) * stride],
            )
        objective += _softmax(joint, stride, k, w, rows, beta, q, s)
        for c in range(k):
            sum_w[c] += _diag_missing_sums(
                x,
                stride,
                rows,
                m[c],
                variances[c],
                joint[c * stride : (c + 1) * stride],
                sum_x[c],
                sum_xx[c],
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
    stride = tile + STEP
    x, joint = _buffer(d * stride, dtype), _buffer(k * stride, dtype)
    w, q = _buffer(stride, dtype), _buffer(stride, dtype)
    ones = np.zeros(0)
    for first in range(start, stop, tile):
        last = min(first + tile, stop)
        rows = _fill(X, index, ones, first, last, stride, x, w)
        for c in range(k):
            _diag_missing_joint(
                x,
                stride,
                rows,
                m[c],
                u[c],
                p[c],
                constants[c],
                q,
                joint[c * stride : (c + 1) * stride],
            )
            out[first - start : last - start, c] = row[: last - first]
