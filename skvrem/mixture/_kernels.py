"""E step and expected sufficient statistics of Gaussian mixtures, tile by tile.

With z = x - mean_k (d,), y = z U_k where U_k U_k^T is the precision of component k,

    l_k = log_constant_k - |y|^2 / 2
    log_constant_k = log weight_k + log|U_k| - d/2 log(2 pi)
    r_k = exp(beta l_k) / sum_j exp(beta l_j)

and, summed over the rows with weights w,

    sum_w (k,) += w r    sum_x (k, d) += w r z    sum_xx (k, d, d) += w r z z^T
    objective = sum w (1/beta) log sum_k exp(beta l_k)
    entropy = objective - sum w sum_k r l_k

Sums about a component's own mean do not cancel as E[x^2] - E[x]^2 does. A density of
zero (log_constant -inf, or a row too far away for the dtype) has l = -inf and r = 0.

`visit_rows` has these arguments. ``X`` (n, d) is read only, float32 or float64, and
rules the precision inside a tile; tiles are summed in float64. Rows are
``start..stop`` of X, or of ``X[index]`` where ``index`` is not empty; ``weight`` (n,)
goes with the rows of X, empty for ones. ``weights`` (k,) and ``means`` (k, d);
``precisions_cholesky`` (k, d, d) upper triangular, or (k, d) = 1/sd (diag); where all
components or all features have the same, an axis may be of length 1. Sums are about
``reference`` (k, d), and are added to what the output holds.

There is no array of n x k numbers: rows go through in tiles, transposed and laid out
flat, x[feature * stride + row], so that every inner loop runs over rows. What makes
those loops fast: several features share a loop, so that arithmetic outweighs loads and
stores; buffers start at a cache line, as 64-byte stores that straddle two cost three
times as much; the stride is no power of two, else stores hold up loads of the same
address modulo 4096; the stride is known to the compiler and the row counter unsigned,
which leaves one check for overlap, and none for negative indices, before a loop.
"""

import math

import numpy as np
from numba import types
from numba.extending import intrinsic

from skvrem.utils._jit import CONTRACT, REDUCE, inner_kernel, kernel
from skvrem.utils._math import exp, log
from skvrem.utils._simd import CACHE_LINE, prefetch

# Rows of a tile come in steps of 16; masked, LLVM sees it and leaves out the remainder.
STEP = 16
WHOLE = np.uint64(2**64 - STEP)
# A tile's row in bits: 16/17 of it are 256 float64 or 512 float32, the rest is a gap.
STRIDE_BITS = 272 * 64
# A tile of more features has fewer rows, so that it stays in the second-level cache.
TILE_BYTES = 256_000
# Features that a loop takes at a time, as lengths that are known when it is compiled.
TWO, FOUR = (0,) * 2, (0,) * 4
# Rows of smaller posterior are left out of second moments where most rows are.
NEGLIGIBLE = 1e-21
HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


@intrinsic
def _stride(typing_context, x):
    """Distance of two features in x, a constant to LLVM (x.itemsize is none)."""
    stride = STRIDE_BITS // x.dtype.bitwidth

    def generate(context, builder, signature, arguments):
        return context.get_constant(types.uint64, stride)

    return types.uint64(x), generate


@inner_kernel
def _at(x, feature):
    """Where a feature, or a component, starts in x."""
    return np.uint64(feature) * _stride(x)


@inner_kernel
def _zeros(size, dtype):
    """Zeros from the start of a cache line; np.zeros takes longer to compile."""
    spare = np.empty(size + STEP, dtype)
    for i in range(spare.size):
        spare[i] = 0.0
    return spare[-spare.ctypes.data % 64 // spare.itemsize :]


@inner_kernel
def _get(x, t, width):
    """Features of row t, as many as the width is long."""
    s = _stride(x)
    if len(width) == 2:
        return x[t], x[t + s]
    return x[t], x[t + s], x[t + s + s], x[t + s + s + s]


@inner_kernel
def _put(x, t, values):
    """Set features of row t."""
    s = np.uint64(0)
    for value in values:
        x[t + s] = value
        s += _stride(x)


@inner_kernel
def _next(u, at, width):
    """Elements of u from `at` on as numbers."""
    if len(width) == 2:
        return u[at], u[at + 1]
    return u[at], u[at + 1], u[at + 2], u[at + 3]


@inner_kernel(fastmath=REDUCE)
def _plus(p, a, z):
    """Return p + a z, of two or four."""
    if len(p) == 2:
        return p[0] + a * z[0], p[1] + a * z[1]
    return p[0] + a * z[0], p[1] + a * z[1], p[2] + a * z[2], p[3] + a * z[3]


@inner_kernel
def _add(out, at, values):
    """Add values to elements of out from `at` on."""
    for h in range(len(values)):
        out[at + h] += values[h]


@inner_kernel
def _fill(X, index, weight, start, stop, x, w, position):
    """Copy rows start..stop into x and w; return the number of rows to work on.

    The last row is repeated, with weight zero, up to a multiple of STEP.
    """
    count = stop - start
    rows = (count + STEP - 1) // STEP * STEP
    s, d = _at(x, 1), X.shape[1]
    for t in range(rows):
        i = start + min(t, count - 1)
        if index.size:
            i = np.int64(index[i])
            position[t] = i
        else:
            to = np.uint64(t)
            for j in range(d):
                x[to] = X[i, j]
                to += s
        w[t] = 0.0 if t >= count else (weight[i] if weight.size else 1.0)
    if index.size:
        # By columns: rows far apart are fetched from memory many at a time.
        to = np.uint64(0)
        for j in range(d):
            for t in range(np.uint64(rows)):
                x[to + t] = X[position[t], j]
            to += s
    return rows


@inner_kernel
def _fetch(X, index, start, stop):
    """Ask for rows X[index[start:stop]], far apart, before they are needed."""
    size = np.uint64(X.shape[1] * X.itemsize)
    for t in range(start, stop):
        at = np.uint64(X.ctypes.data) + np.uint64(index[t]) * np.uint64(X.strides[0])
        end = at + size
        while at < end:
            prefetch(at)
            at += np.uint64(CACHE_LINE)
        prefetch(end - np.uint64(1))


@inner_kernel(fastmath=CONTRACT)
def _softmax(joint, k, w, rows, beta, top, total):
    """Turn l (k, tile) into w r in place.

    Leaves the rows' shares of the objective in top, of the entropy in total's second.
    """
    zero, unit = joint.dtype.type(0.0), joint.dtype.type(1.0)
    rows, nowhere = np.uint64(rows) & WHOLE, joint.dtype.type(-np.inf)
    one = _at(joint, 1)
    for t in range(rows):
        top[t] = joint[t]
        total[t] = zero
        total[one + t] = zero
    for c in range(1, k):
        at = _at(joint, c)
        for t in range(rows):
            top[t] = joint[at + t] if joint[at + t] > top[t] else top[t]
    if k % 2:
        at = _at(joint, k)
        for t in range(rows):
            joint[at + t] = nowhere
    for c in range(0, k, 2):  # two at a time, for fewer loads and stores of totals
        at, by = _at(joint, c), _at(joint, c + 1)
        for t in range(rows):
            # A row without density: -inf - 0 = -inf where -inf + inf is NaN.
            shift = top[t] if top[t] > nowhere else zero
            gap0, gap1 = joint[at + t] - shift, joint[by + t] - shift
            r0, r1 = exp(beta * gap0), exp(beta * gap1)
            joint[at + t], joint[by + t] = r0, r1
            total[t] += r0 + r1
            more = r0 * (gap0 if r0 > zero else zero)
            total[one + t] += more + r1 * (gap1 if r1 > zero else zero)
    for t in range(rows):
        s = total[t] if total[t] > zero else unit
        excess = log(s) / beta
        share, rest = w[t] * (top[t] + excess), w[t] * (excess - total[one + t] / s)
        top[t] = share if w[t] > zero else zero
        total[one + t] = rest if w[t] > zero else zero
        total[t] = w[t] / s
    for c in range(k):
        at = _at(joint, c)
        for t in range(rows):
            joint[at + t] *= total[t]


@inner_kernel(fastmath=REDUCE)
def _columns(z, i, u, at, size, y, old, new, rows, width):
    """y_new = y_old + B^T z, B (4, width) a block of U from u[at] on, z of i..i+4."""
    u0, u1 = _next(u, at, width), _next(u, at + size, width)
    u2, u3 = _next(u, at + 2 * size, width), _next(u, at + 3 * size, width)
    zi = _at(z, i)
    for t in range(np.uint64(rows) & WHOLE):
        z0, z1, z2, z3 = _get(z, zi + t, FOUR)
        p = _plus(_plus(_get(y, old + t, width), z0, u0), z1, u1)
        _put(y, new + t, _plus(_plus(p, z2, u2), z3, u3))


@inner_kernel(fastmath=REDUCE)
def _corner4(x, j, m, mj, u, at, size, z, y, old, q, rows):
    """For features j..j+4 z = x - m, q += |y + B^T z|^2, B the corner of U at u[at]."""
    m0, m1, m2, m3 = _next(m, mj, FOUR)
    a0, a1, a2, a3 = _next(u, at, FOUR)
    b1, b2, b3 = u[at + size + 1], u[at + size + 2], u[at + size + 3]
    at += 2 * size
    c2, c3, d3 = u[at + 2], u[at + 3], u[at + size + 3]
    xj = _at(x, j)
    for t in range(np.uint64(rows) & WHOLE):
        z0, z1, z2, z3 = _get(x, xj + t, FOUR)
        z0, z1, z2, z3 = z0 - m0, z1 - m1, z2 - m2, z3 - m3
        _put(z, xj + t, (z0, z1, z2, z3))
        y0, y1, y2, y3 = _get(y, old + t, FOUR)
        y0 += a0 * z0
        y1 += a1 * z0 + b1 * z1
        y2 += a2 * z0 + b2 * z1 + c2 * z2
        y3 += a3 * z0 + b3 * z1 + c3 * z2 + d3 * z3
        q[t] += y0 * y0 + y1 * y1 + y2 * y2 + y3 * y3


@inner_kernel(fastmath=REDUCE)
def _corner2(x, j, m, mj, u, at, size, y, old, q, rows):
    """For the last two features q += |y + B^T (x - m)|^2, B the corner of U."""
    m0, m1, a0, a1, b1 = m[mj], m[mj + 1], u[at], u[at + 1], u[at + size + 1]
    s, xj = _at(x, 1), _at(x, j)
    for t in range(np.uint64(rows) & WHOLE):
        z0, z1 = x[xj + t] - m0, x[xj + t + s] - m1
        y0 = y[old + t] + a0 * z0
        y1 = y[old + t + s] + a1 * z0 + b1 * z1
        q[t] += y0 * y0 + y1 * y1


@inner_kernel
def _full_joint(x, rows, size, m, u, constants, c, z, y, q, joint):
    """joint_c = constant - |(x - m) U|^2 / 2, four columns of U at a time.

    A block of y goes from rows 4..8 of the buffer to 8..12 or back: in place, the
    check for overlap would choose the scalar loop.
    """
    zero, half, constant = q.dtype.type(0.0), q.dtype.type(0.5), constants[c]
    for t in range(rows):
        q[t] = zero
    for j in range(0, size, 4):
        old, column = _at(y, 0), c * size * size + j
        for i in range(0, j, 4):
            new = _at(y, 4 if i % 8 else 8)
            at = column + i * size
            if j + 4 <= size:
                _columns(z, i, u, at, size, y, old, new, rows, FOUR)
            else:
                _columns(z, i, u, at, size, y, old, new, rows, TWO)
            old = new
        at, mj = column + j * size, c * size + j
        if j + 4 <= size:
            _corner4(x, j, m, mj, u, at, size, z, y, old, q, rows)
        else:
            _corner2(x, j, m, mj, u, at, size, y, old, q, rows)
    at = _at(joint, c)
    for t in range(np.uint64(rows) & WHOLE):
        joint[at + t] = constant - half * q[t]


@inner_kernel(fastmath=REDUCE)
def _moments4(x, i, m, mi, r, ri, z, a, sum_x, sum_xx, at, size, rows):
    """For features i..i+4 z = x - m, a = r z, sum_x += sum a, sum_xx += sum a z^T."""
    m0, m1, m2, m3 = _next(m, mi, FOUR)
    xi = _at(x, i)
    zero = p0 = p1 = p2 = p3 = p00 = p01 = p02 = r.dtype.type(0.0)
    p03 = p11 = p12 = p13 = p22 = p23 = p33 = zero
    for t in range(np.uint64(rows) & WHOLE):
        z0, z1, z2, z3 = _get(x, xi + t, FOUR)
        z0, z1, z2, z3 = z0 - m0, z1 - m1, z2 - m2, z3 - m3
        rt = r[ri + t]
        a0, a1, a2, a3 = rt * z0, rt * z1, rt * z2, rt * z3
        _put(z, xi + t, (z0, z1, z2, z3))
        _put(a, t, (a0, a1, a2, a3))
        p0, p1, p2, p3 = p0 + a0, p1 + a1, p2 + a2, p3 + a3
        p00, p01, p02, p03 = _plus((p00, p01, p02, p03), a0, (z0, z1, z2, z3))
        p11, p12, p13 = p11 + a1 * z1, p12 + a1 * z2, p13 + a1 * z3
        p22, p23, p33 = p22 + a2 * z2, p23 + a2 * z3, p33 + a3 * z3
    _add(sum_x, mi, (p0, p1, p2, p3))
    _add(sum_xx, at, (p00, p01, p02, p03))
    _add(sum_xx, at + size, (zero, p11, p12, p13))
    _add(sum_xx, at + 2 * size, (zero, zero, p22, p23))
    sum_xx[at + 3 * size + 3] += p33


@inner_kernel(fastmath=REDUCE)
def _moments2(x, i, m, mi, r, ri, z, sum_x, sum_xx, at, size, rows):
    """As _moments4 for the last two features, whose a nobody needs."""
    m0, m1 = m[mi], m[mi + 1]
    s, xi = _at(x, 1), _at(x, i)
    p0 = p1 = p00 = p01 = p11 = r.dtype.type(0.0)
    for t in range(np.uint64(rows) & WHOLE):
        z0, z1 = x[xi + t] - m0, x[xi + t + s] - m1
        z[xi + t], z[xi + t + s] = z0, z1
        a0, a1 = r[ri + t] * z0, r[ri + t] * z1
        p0, p1 = p0 + a0, p1 + a1
        p00, p01, p11 = p00 + a0 * z0, p01 + a0 * z1, p11 + a1 * z1
    _add(sum_x, mi, (p0, p1))
    _add(sum_xx, at, (p00, p01))
    sum_xx[at + size + 1] += p11


@inner_kernel(fastmath=REDUCE)
def _products(a, z, j, sum_xx, at, size, rows, width):
    """Add sum a z^T (4, width), z of features from j on, to sum_xx from `at` on."""
    zj, zero = _at(z, j), z.dtype.type(0.0)
    p0 = p1 = p2 = p3 = _next((zero, zero, zero, zero), 0, width)
    for t in range(np.uint64(rows) & WHOLE):
        v = _get(z, zj + t, width)
        a0, a1, a2, a3 = _get(a, t, FOUR)
        p0, p1 = _plus(p0, a0, v), _plus(p1, a1, v)
        p2, p3 = _plus(p2, a2, v), _plus(p3, a3, v)
    _add(sum_xx, at, p0)
    _add(sum_xx, at + size, p1)
    _add(sum_xx, at + 2 * size, p2)
    _add(sum_xx, at + 3 * size, p3)


@inner_kernel
def _full_sums(x, rows, size, m, c, r, ri, z, a, sum_x, sum_xx):
    """sum_x += sum r z, sum_xx += sum r z z^T, upper triangle.

    From the last features to the first: those to the right have their z ready.
    """
    pair = size - size % 4
    if pair < size:
        mi, at = c * size + pair, (c * size + pair) * size + pair
        _moments2(x, pair, m, mi, r, ri, z, sum_x, sum_xx, at, size, rows)
    for block in range(pair // 4):
        i = pair - 4 - 4 * block
        mi = c * size + i
        at = mi * size
        _moments4(x, i, m, mi, r, ri, z, a, sum_x, sum_xx, at + i, size, rows)
        for j in range(i + 4, pair, 4):
            _products(a, z, j, sum_xx, at + j, size, rows, FOUR)
        if pair < size:
            _products(a, z, pair, sum_xx, at + pair, size, rows, TWO)


@inner_kernel(fastmath=REDUCE)
def _sum(values, rows):
    """Sum over the rows of a tile in float64."""
    total = 0.0
    for t in range(np.uint64(rows) & WHOLE):
        total += np.float64(values[t])
    return total


@inner_kernel(fastmath=REDUCE)
def _total(r, ri, w, rows):
    """Sum of r, and the number of rows whose posterior r / w counts."""
    total, count = r.dtype.type(0.0), 0
    negligible = r.dtype.type(NEGLIGIBLE)
    for t in range(np.uint64(rows) & WHOLE):
        total += r[ri + t]
        count += r[ri + t] > negligible * w[t]
    return total, count


@inner_kernel
def _compress(x, w, r, ri, rows, size, x_kept, r_kept):
    """Copy the rows whose posterior counts; return how many to work on."""
    negligible, zero, s = r.dtype.type(NEGLIGIBLE), r.dtype.type(0.0), _at(x, 1)
    count = 0
    for t in range(np.uint64(rows)):
        if r[ri + t] > negligible * w[t]:
            r_kept[count] = r[ri + t]
            to = np.uint64(count)
            for _ in range(size):
                x_kept[to] = x[t]
                t, to = t + s, to + s
            count += 1
    rows = (count + STEP - 1) // STEP * STEP
    for t in range(count, rows):
        r_kept[t] = zero
    return rows


@inner_kernel(fastmath=CONTRACT)
def _diag_joint(x, rows, size, m, u, parts, constants, c, q, joint):
    """joint_c = constant + sum_j part_j - ((x_j - m_j) u_j)^2 / 2 over observed j.

    NaN is missing; constant is log weight, part_j = log u_j - log(2 pi) / 2. Without
    parts nothing is missing and constant holds them.
    """
    zero, half, s = q.dtype.type(0.0), q.dtype.type(0.5), _at(x, 1)
    rows, at, constant = np.uint64(rows) & WHOLE, _at(joint, c), constants[c]
    for t in range(rows):
        q[t] = zero
    for j in range(0, size, 2):
        mj, xj = c * size + j, _at(x, j)
        m0, m1, u0, u1 = m[mj], m[mj + 1], u[mj], u[mj + 1]
        if parts is None:
            for t in range(rows):
                y0, y1 = (x[xj + t] - m0) * u0, (x[xj + t + s] - m1) * u1
                q[t] += y0 * y0 + y1 * y1
        else:
            p0, p1 = -(parts[mj] + parts[mj]), -(parts[mj + 1] + parts[mj + 1])
            for t in range(rows):
                x0, x1 = x[xj + t], x[xj + t + s]
                y0, y1 = (x0 - m0) * u0, (x1 - m1) * u1
                seen0 = y0 * y0 + p0 if x0 == x0 else zero
                q[t] += seen0 + (y1 * y1 + p1 if x1 == x1 else zero)
    for t in range(rows):
        joint[at + t] = constant - half * q[t]


@inner_kernel(fastmath=REDUCE)
def _diag_sums(x, rows, size, m, c, r, variances, sum_x, sum_xx):
    """sum_x += sum r E[z], sum_xx += sum r E[z^2].

    With variances, NaN is missing and has E[z] = 0, E[z^2] = variance_j.
    """
    zero, s, ri = r.dtype.type(0.0), _at(x, 1), _at(r, c)
    for j in range(0, size, 2):
        mj, xj = c * size + j, _at(x, j)
        m0, m1 = m[mj], m[mj + 1]
        p0 = p1 = pp0 = pp1 = r0 = r1 = zero
        for t in range(np.uint64(rows) & WHOLE):
            x0, x1, rt = x[xj + t], x[xj + t + s], r[ri + t]
            z0, z1 = x0 - m0, x1 - m1
            if variances is not None:
                z0, z1 = z0 if x0 == x0 else zero, z1 if x1 == x1 else zero
                r0 += zero if x0 == x0 else rt
                r1 += zero if x1 == x1 else rt
            a0, a1 = rt * z0, rt * z1
            p0, p1 = p0 + a0, p1 + a1
            pp0, pp1 = pp0 + a0 * z0, pp1 + a1 * z1
        _add(sum_x, mj, (p0, p1))
        _add(sum_xx, mj, (pp0, pp1))
        if variances is not None:
            sum_xx[mj] += r0 * variances[c, j]
            if j + 1 < variances.shape[1]:
                sum_xx[mj + 1] += r1 * variances[c, j + 1]


@inner_kernel
def _parameters(weights, means, U, variances, dtype):
    """Flat copies of a dtype, the features padded with zeros to an even number.

    The constants are the components' own; with variances, log weights and parts of
    features apart.
    """
    k, d = means.shape
    size = d + d % 2
    m, constants = _zeros(k * size, dtype), _zeros(k, dtype)
    u = _zeros(k * size * (size if U.ndim == 3 else 1), dtype)
    parts = None if variances is None else _zeros(k * size, dtype)
    for c in range(k):
        constant = math.log(weights[c])
        for i in range(d):
            at = c * size + i
            m[at] = means[c, i]
            if U.ndim == 3:
                own = min(c, len(U) - 1)
                for j in range(i, d):
                    u[at * size + j] = U[own, i, j]
                scale = U[own, i, i]
            else:
                scale = U[c, min(i, U.shape[1] - 1)]
                u[at] = scale
            part = math.log(scale) - HALF_LOG_2PI
            if variances is None:
                constant += part
            else:
                parts[at] = part
        constants[c] = constant
    return m, u, parts, constants


@inner_kernel
def _add_about(sums, delta, sum_w, sx, sxx, size, dense):
    """Add sums about means to flat ones about means - delta.

    The former are laid out as the parameters; of second moments the upper triangle.
    """
    k, d = delta.shape
    squares = k + k * d
    for c in range(k):
        sums[c] += sum_w[c]
        for i in range(d):
            at, own = c * size + i, c * d + i
            moved = sx[at] + sum_w[c] * delta[c, i]
            sums[k + own] += moved
            if not dense:
                sums[squares + own] += sxx[at] + delta[c, i] * (sx[at] + moved)
                continue
            for j in range(i, d):
                cross = delta[c, i] * sx[c * size + j] + moved * delta[c, j]
                upper = squares + own * d + j
                sums[upper] += sxx[at * size + j] + cross
                sums[squares + (c * d + j) * d + i] = sums[upper]


@kernel
def visit_rows(
    X,
    index,
    start,
    stop,
    weight,
    weights,
    means,
    U,
    beta,
    variances,
    reference,
    sums,
    out,
):
    """Add to sums of rows, or write l to out (stop - start, k), of X's dtype.

    The sums are flat: sum_w (k,), sum_x (k, d), sum_xx (k, d, d), symmetric before and
    after, or (k, d), sums of w r z^2, where U, the precisions_cholesky, has two axes;
    then objective and entropy. Either they are None, or out.

    With variances (k, d) NaN is an entry missing at random, else they are None. Only
    observed features enter l_k; a missing one adds its expectation under the component,
    0 to sum_x and variances[k, j] to sum_xx: EM with it integrated out.

    X is read only, so that this is compiled once for arrays and memory maps; U.ndim and
    what is None choose the code, when it is compiled.
    """
    k, d = means.shape
    size = d + d % 2
    dtype = X.dtype
    stride = np.int64(_stride(X))
    tile = stride // 17 * 16
    while tile > 64 and tile * d * X.itemsize > TILE_BYTES:
        tile //= 2
    if index.size:
        _fetch(X, index, start, min(start + tile, stop))
    m, u, parts, constants = _parameters(weights, means, U, variances, dtype)
    square = size * size if U.ndim == 3 else size
    x, joint = _zeros(size * stride, dtype), _zeros((k + k % 2) * stride, dtype)
    q, w = _zeros(stride, dtype), _zeros(stride, dtype)
    # The first four rows of y stay zero, the others are scratch.
    y = _zeros(12 * stride, dtype)
    a = y[4 * stride :]
    sum_w, sx = _zeros(k, means.dtype), _zeros(k * size, means.dtype)
    sxx = _zeros(k * square, means.dtype)
    if U.ndim == 3:
        z, x_kept = _zeros(size * stride, dtype), _zeros(size * stride, dtype)
        r_kept = _zeros(stride, dtype)
    position, beta = np.empty(tile, np.int64), dtype.type(beta)
    objective = entropy = 0.0
    for first in range(start, stop, tile):
        last = min(first + tile, stop)
        rows = _fill(X, index, weight, first, last, x, w, position)
        # Of the next tile's rows a few for each component: all at once would wait.
        ahead = min(last + tile, stop) - last if index.size else 0
        for c in range(k):
            if ahead > 0:
                _fetch(X, index, last + ahead * c // k, last + ahead * (c + 1) // k)
            if U.ndim == 3:
                _full_joint(x, rows, size, m, u, constants, c, z, y, q, joint)
            else:
                _diag_joint(x, rows, size, m, u, parts, constants, c, q, joint)
        if out is not None:
            for t in range(last - first):
                for c in range(k):
                    out[first - start + t, c] = joint[c * stride + t]
        if sums is not None:
            _softmax(joint, k, w, rows, beta, q, a)
            objective += _sum(q, rows)
            entropy += _sum(a[stride:], rows)
            for c in range(k):
                ri = _at(joint, c)
                total, count = _total(joint, ri, w, rows)
                sum_w[c] += total
                if U.ndim == 2:
                    _diag_sums(x, rows, size, m, c, joint, variances, sx, sxx)
                elif 3 * count > rows:
                    _full_sums(x, rows, size, m, c, joint, ri, z, a, sx, sxx)
                else:
                    few = _compress(x, w, joint, ri, rows, size, x_kept, r_kept)
                    ri = np.uint64(0)
                    _full_sums(x_kept, few, size, m, c, r_kept, ri, z, a, sx, sxx)
    if sums is not None:
        _add_about(sums, means - reference, sum_w, sx, sxx, size, U.ndim == 3)
        sums[-2] += objective
        sums[-1] += entropy
