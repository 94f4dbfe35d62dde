r"""Densities of single rows, their gradients, and what both need: a branch a family.

A *piece* is a family in all states, or in all components of mixtures. Its coordinates v
are free ones, as in ``_coordinates.py``, or constants; `derive` makes of them what the
density of a row takes, so that rows cost few transcendental functions. An integer code
says which family it is: kernels cannot take functions. Rows of `pieces` are

    CODE, N, EACH            the family, its states or components, and how many parts
                             (of a mixture in another piece) each of these stands for
    SLOT, BLOCKS, WIDTH      where its coordinates begin: blocks of (n, width)
    COLUMN, SIZE             its columns of Z; values of a row, or entries of a table
    CONSTANT, DERIVED        where its constants and what is derived begin, (n, size)
                             numbers of each kind

NaN is a missing value, whose share of the log-density is 0. Densities leave out factors
that all states share. Equation numbers are those of Sidrow et al. (2023).
"""

import math

import numpy as np

from skvrem.utils._jit import CONTRACT, inner_kernel
from skvrem.utils._math import bessel, digamma, exp, log, log_gamma

CODE, N, EACH, SLOT, BLOCKS, WIDTH, COLUMN, SIZE, CONSTANT, DERIVED = range(10)
#: Coordinates of families, and columns of Z, for values y of a row.
NORMAL = 0  # means, log variances less what is added: y
POISSON = 1  # log rates: y
EVENTS = 2  # log-odds: y, 0 or 1
CODES = 3  # log-ratios of `size` categories: y, one code
TABLE = 4  # log-probabilities that are constants: y, one code
WEIGHTS = 5  # log-ratios of `size` weights of components: nothing
GAMMA = 6  # log means, log standard deviations, log-odds of 0: y, log y (0 for log 0)
VON_MISES = 7  # mean angles, log concentrations: cos y, sin y
MULTINORMAL = 8  # means, Cholesky factor with logarithms on its diagonal, by rows: y

#: Names that families have for these.
BY_NAME = {
    "normal": NORMAL,
    "poisson": POISSON,
    "events": EVENTS,
    "codes": CODES,
    "table": TABLE,
    "weights": WEIGHTS,
    "gamma": GAMMA,
    "von mises": VON_MISES,
    "multinormal": MULTINORMAL,
}
# Of these, all states cost less than to ask which of them matter.
CHEAP = EVENTS
# Posteriors below count as none.
NONE = 1e-12

# Kernels that allocate nothing need not count references to their arguments, which
# costs more than the arithmetic of a row; nor do short ones earn the cost of a call.
# They are nested deep, and optimized where they end up.
LEAN = {"fastmath": CONTRACT, "_nrt": False, "apart": False}
INLINED = LEAN | {"forceinline": True}
# For a plain 0 or 1 among its arguments a kernel is compiled once more.
ZERO, ONE = np.int64(0), np.int64(1)


def n_derived(code, size):
    """Return how many numbers are derived in each state."""
    of_values = {NORMAL: 2, POISSON: 1, EVENTS: 2, GAMMA: 5, VON_MISES: 5, WEIGHTS: 2}
    others = {MULTINORMAL: 1 + size * (3 * size + 1), CODES: 1 + size, TABLE: 0}
    return others[code] if code in others else of_values[code] * size


@inner_kernel(**LEAN)
def _log_sum(v, s, size, w, a):
    """Fill shares; return the logarithm of the sum of e^v."""
    top, total = v[s], 0.0
    for c in range(1, size):
        top = max(top, v[s + c])
    for c in range(size):
        w[a + c] = exp(v[s + c] - top)
        total += w[a + c]
    for c in range(size):
        w[a + c] /= total
    return top + log(total)


@inner_kernel(**LEAN)
def _derive_normal(start, stop, m, v, s, constants, c, w, a):
    # Unsigned places let loops become vector instructions: no index is negative.
    x, unit, added = (
        np.uint64(s + m + start),
        np.uint64(c + start),
        np.uint64(c + m + start),
    )
    logs, precision = np.uint64(a + start), np.uint64(a + m + start)
    for k in range(np.uint64(stop - start)):
        variance = exp(v[x + k]) * constants[unit + k] + constants[added + k]
        w[logs + k] = -0.5 * log(variance)
        w[precision + k] = 1.0 / variance


@inner_kernel(**LEAN)
def _derive_multinormal(d, v, s, fixed, c, w, a):
    """Logarithm of the factor, precision, L of the coordinates, and scratch."""
    P, L, C = a + 1, a + 1 + d * d, a + 1 + 2 * d * d
    k, total = s + d, 0.0
    for i in range(d):
        for j in range(i + 1):
            w[L + i * d + j] = exp(v[k]) if i == j else v[k]
            k += 1
    # C C^T = L L^T and what is added; then its inverse, by columns, in place of C
    for i in range(d):
        for j in range(i + 1):
            value = fixed[c + i] if i == j else 0.0
            for k in range(j + 1):
                value += w[L + i * d + k] * w[L + j * d + k]
            for k in range(j):
                value -= w[C + i * d + k] * w[C + j * d + k]
            if i == j:
                w[C + i * d + i] = math.sqrt(value)
                total += log(value)
            else:
                w[C + i * d + j] = value / w[C + j * d + j]
    for j in range(d):
        w[C + j * d + j] = 1.0 / w[C + j * d + j]
        for i in range(j + 1, d):
            value = 0.0
            for k in range(j, i):
                value -= w[C + i * d + k] * w[C + k * d + j]
            w[C + i * d + j] = value / w[C + i * d + i]
    for i in range(d):
        for j in range(i + 1):
            value = 0.0
            for k in range(i, d):
                value += w[C + k * d + i] * w[C + k * d + j]
            w[P + i * d + j] = value
            w[P + j * d + i] = value
    w[a] = -0.5 * total


@inner_kernel(**LEAN)
def _derive_gamma(start, stop, m, v, s, w, a):
    """Shapes, rates, logarithms of rates, of the factors and of chances not to be 0."""
    for k in range(start, stop):
        shape = exp(2.0 * (v[s + k] - v[s + m + k]))
        log_rate = v[s + k] - 2.0 * v[s + m + k]
        odds = v[s + 2 * m + k]
        w[a + k] = shape
        w[a + m + k] = exp(log_rate)
        w[a + 2 * m + k] = log_rate
        w[a + 3 * m + k] = shape * log_rate - log_gamma(shape)
        w[a + 4 * m + k] = -max(odds, 0.0) - log(1.0 + exp(-abs(odds)))


@inner_kernel(**LEAN)
def _derive_von_mises(start, stop, m, v, s, w, a):
    """Concentrations times cosines and sines, and alone; factors; mean lengths."""
    for k in range(start, stop):
        kappa = exp(v[s + m + k])
        scaled, length = bessel(kappa)
        w[a + k] = kappa * math.cos(v[s + k])
        w[a + m + k] = kappa * math.sin(v[s + k])
        w[a + 2 * m + k] = kappa
        w[a + 3 * m + k] = -log(scaled) - kappa
        w[a + 4 * m + k] = length


@inner_kernel(**INLINED)
def derive(pieces, piece, first, last, v, constants, w):
    """Fill what densities take of a piece's coordinates, in states first to last."""
    code, n, d = pieces[piece, CODE], pieces[piece, N], pieces[piece, SIZE]
    s, c, a = pieces[piece, SLOT], pieces[piece, CONSTANT], pieces[piece, DERIVED]
    start, stop, m = first * d, last * d, n * d
    if code == NORMAL:  # logarithms of the density's factors, precisions
        _derive_normal(start, stop, m, v, s, constants, c, w, a)
    elif code == MULTINORMAL:
        width, size = pieces[piece, WIDTH], 1 + d * (3 * d + 1)
        for i in range(first, last):
            _derive_multinormal(d, v, s + i * width, constants, c, w, a + i * size)
    elif code == POISSON:
        for k in range(start, stop):
            w[a + k] = exp(v[s + k])
    elif code == EVENTS:
        for k in range(start, stop):
            w[a + k] = max(v[s + k], 0.0) + log(1.0 + exp(-abs(v[s + k])))
            w[a + m + k] = exp(v[s + k] - w[a + k])
    elif code == CODES:
        for i in range(first, last):
            own = s + i * d
            w[a + i] = _log_sum(v, own, d, w, a + n + i * d)
    elif code == GAMMA:
        _derive_gamma(start, stop, m, v, s, w, a)
    elif code == VON_MISES:
        _derive_von_mises(start, stop, m, v, s, w, a)
    elif code == WEIGHTS:
        for i in range(first, last):
            total = _log_sum(v, s + i * d, d, w, a + m + i * d)
            for k in range(i * d, (i + 1) * d):
                w[a + k] = v[s + k] - total


@inner_kernel(**LEAN)
def _multinormal(d, Z, t, z, v, s, w, a):
    if not Z[t, z] == Z[t, z]:
        return 0.0
    value = w[a]
    for i in range(d):
        x = Z[t, z + i] - v[s + i]
        along = 0.5 * w[a + 1 + i * d + i] * x
        for j in range(i):
            along += w[a + 1 + i * d + j] * (Z[t, z + j] - v[s + j])
        value -= x * along
    return value


@inner_kernel(**INLINED)
def _log_density(code, n, d, width, i, Z, t, z, v, s, w, a):
    """The log-density of a row in state i; weights have none."""
    value, k, m = 0.0, i * d, n * d
    if code == NORMAL:
        row, at, mean = np.uint64(t), np.uint64(z), np.uint64(s + k)
        logs, precision = np.uint64(a + k), np.uint64(a + m + k)
        for j in range(np.uint64(d)):
            x = Z[row, at + j] - v[mean + j]
            if x == x:
                value += w[logs + j] - 0.5 * x * x * w[precision + j]
    elif code == MULTINORMAL:
        size = 1 + d * (3 * d + 1)
        value = _multinormal(d, Z, t, z, v, s + i * width, w, a + i * size)
    elif code == POISSON or code == EVENTS:
        for j in range(d):
            x = Z[t, z + j]
            if x == x:
                value += x * v[s + k + j] - w[a + k + j]
    elif code == CODES:
        if Z[t, z] == Z[t, z]:
            value = v[s + k + np.int64(Z[t, z])] - w[a + i]
    elif code == TABLE:
        if Z[t, z] == Z[t, z]:
            value = v[s + k + np.int64(Z[t, z])]
    elif code == GAMMA:
        for j in range(d):
            x = Z[t, z + j]
            if x == 0.0:
                value += v[s + 2 * m + k + j] + w[a + 4 * m + k + j]
            elif x == x:
                value += w[a + 3 * m + k + j] + w[a + 4 * m + k + j]
                value += (w[a + k + j] - 1.0) * Z[t, z + d + j] - w[a + m + k + j] * x
    elif code == VON_MISES:
        for j in range(d):
            if Z[t, z + j] == Z[t, z + j]:
                value += w[a + k + j] * Z[t, z + j] + w[a + 3 * m + k + j]
                value += w[a + m + k + j] * Z[t, z + d + j]
    return value


@inner_kernel(**INLINED)
def add_log_densities(pieces, piece, Z, t, v, w, out):
    """Add to out (n_parts) the log-densities of a row, or the weights."""
    code, n, each = pieces[piece, CODE], pieces[piece, N], pieces[piece, EACH]
    s, z, d = pieces[piece, SLOT], pieces[piece, COLUMN], pieces[piece, SIZE]
    a, width = pieces[piece, DERIVED], pieces[piece, WIDTH]
    if code == WEIGHTS:
        for k in range(n * each):
            out[k] += w[a + k]
        return
    for i in range(n):
        value = _log_density(code, n, d, width, i, Z, t, z, v, s, w, a)
        for k in range(i * each, (i + 1) * each):
            out[k] += value


@inner_kernel(**INLINED)
def _total(gamma, i, each):
    """The posterior of the parts that a state of a piece stands for."""
    total = gamma[i * each]
    for k in range(i * each + 1, (i + 1) * each):
        total += gamma[k]
    return total


@inner_kernel(**INLINED)
def loss(pieces, piece, Z, t, slots, constants, gamma, u, g, scale, v, w):
    """Return minus the expected log-density of a piece at u - scale g.

    Of no scale with v and w as they are.
    """
    code, n, each = pieces[piece, CODE], pieces[piece, N], pieces[piece, EACH]
    s, z, d = pieces[piece, SLOT], pieces[piece, COLUMN], pieces[piece, SIZE]
    a, width = pieces[piece, DERIVED], pieces[piece, WIDTH]
    first, last, value = 0, n, 0.0
    if code > CHEAP:
        first, last = n, 0
        for i in range(n):
            if _total(gamma, i, each) > NONE:
                first, last = min(first, i), i + 1
    if scale > 0.0:
        for q in range(pieces[piece, BLOCKS]):
            start = np.uint64(s + (q * n + first) * width)
            stop = np.uint64(s + (q * n + last) * width)
            for k in range(start, stop):
                v[k] = u[slots[k]] - scale * g[slots[k]]
        derive(pieces, piece, first, last, v, constants, w)
    if code == WEIGHTS:
        for k in range(first * each, last * each):
            value -= gamma[k] * w[a + k]
        return value
    for i in range(first, last):
        own = _total(gamma, i, each)
        if code <= CHEAP or own > NONE:
            value -= own * _log_density(code, n, d, width, i, Z, t, z, v, s, w, a)
    return value


@inner_kernel(**LEAN)
def _slope_multinormal(d, Z, t, z, v, s, w, a, weight, slots, out):
    """By q = P (y - mu): q, and (q q^T - P) L below the diagonal."""
    if not Z[t, z] == Z[t, z]:
        return
    P, L, q = a + 1, a + 1 + d * d, a + 1 + 2 * d * d
    for i in range(d):
        w[q + i] = 0.0
        for j in range(d):
            w[q + i] += w[P + i * d + j] * (Z[t, z + j] - v[s + j])
        out[slots[s + i]] -= weight * w[q + i]
    for j in range(d):  # q^T L
        w[q + d + j] = 0.0
        for i in range(j, d):
            w[q + d + j] += w[q + i] * w[L + i * d + j]
    k = s + d
    for i in range(d):
        for j in range(i + 1):
            value = w[q + i] * w[q + d + j]
            for m in range(j, d):
                value -= w[P + i * d + m] * w[L + m * d + j]
            out[slots[k]] -= weight * value * (w[L + i * d + i] if i == j else 1.0)
            k += 1


@inner_kernel(**LEAN)
def _slope_gamma(d, m, Z, t, z, s, w, a, weight, slots, out):
    for j in range(d):
        x, not_zero = Z[t, z + j], exp(w[a + 4 * m + j])
        if x == 0.0:
            out[slots[s + 2 * m + j]] -= weight * not_zero
        elif x == x:
            shape = w[a + j]
            by_shape = w[a + 2 * m + j] - digamma(shape) + Z[t, z + d + j]
            by_shape, by_rate = shape * by_shape, shape - w[a + m + j] * x
            out[slots[s + j]] -= weight * (2.0 * by_shape + by_rate)
            out[slots[s + m + j]] += weight * 2.0 * (by_shape + by_rate)
            out[slots[s + 2 * m + j]] += weight * (1.0 - not_zero)


@inner_kernel(**INLINED)
def _slope(code, d, m, Z, t, z, v, s, constants, c, w, a, weight, slots, out):
    """The gradient in a state, times its weight; s, c and a are of the state."""
    if code == NORMAL:
        row, at, mean, width = (
            np.uint64(t),
            np.uint64(z),
            np.uint64(s),
            np.uint64(s + m),
        )
        added, precision = np.uint64(c + m), np.uint64(a + m)
        for j in range(np.uint64(d)):
            x, p = Z[row, at + j] - v[mean + j], w[precision + j]
            if x == x:
                # Only what exceeds what is added moves with the coordinate.
                moves = (1.0 - constants[added + j] * p) * (1.0 - x * x * p)
                out[slots[mean + j]] -= weight * x * p
                out[slots[width + j]] += 0.5 * weight * moves
    elif code == POISSON:
        for j in range(d):
            if Z[t, z + j] == Z[t, z + j]:
                out[slots[s + j]] -= weight * (Z[t, z + j] - w[a + j])
    elif code == EVENTS:
        for j in range(d):
            if Z[t, z + j] == Z[t, z + j]:
                out[slots[s + j]] -= weight * (Z[t, z + j] - w[a + m + j])
    elif code == VON_MISES:
        for j in range(d):
            cosine, sine = Z[t, z + j], Z[t, z + d + j]
            if cosine == cosine:
                across = w[a + j] * sine - w[a + m + j] * cosine
                along = w[a + j] * cosine + w[a + m + j] * sine
                out[slots[s + j]] -= weight * across
                along -= w[a + 2 * m + j] * w[a + 4 * m + j]
                out[slots[s + m + j]] -= weight * along
    elif code == GAMMA:
        _slope_gamma(d, m, Z, t, z, s, w, a, weight, slots, out)


@inner_kernel(**INLINED)
def add_slopes(pieces, piece, Z, t, slots, constants, v, w, gamma, out):
    """Add to out the gradient of minus the expected log-density (Eq. 31).

    Coordinate k stands in ``out[slots[k]]``, which several may share.
    """
    code, n, each = pieces[piece, CODE], pieces[piece, N], pieces[piece, EACH]
    s, z, d = pieces[piece, SLOT], pieces[piece, COLUMN], pieces[piece, SIZE]
    a, c, width = pieces[piece, DERIVED], pieces[piece, CONSTANT], pieces[piece, WIDTH]
    for i in range(n):
        own = _total(gamma, i, each)
        if code > CHEAP and not own > NONE:
            continue
        k, m = i * d, n * d
        if code == MULTINORMAL:
            at = a + i * (1 + d * (3 * d + 1))
            _slope_multinormal(d, Z, t, z, v, s + i * width, w, at, own, slots, out)
        elif code == CODES:
            if Z[t, z] == Z[t, z]:
                for j in range(k, k + d):
                    out[slots[s + j]] += own * w[a + n + j]
                out[slots[s + k + np.int64(Z[t, z])]] -= own
        elif code == WEIGHTS:
            for j in range(k, k + d):
                out[slots[s + j]] += own * w[a + m + j] - gamma[j]
        else:
            _slope(
                code,
                d,
                m,
                Z,
                t,
                z,
                v,
                s + k,
                constants,
                c + k,
                w,
                a + k,
                own,
                slots,
                out,
            )
