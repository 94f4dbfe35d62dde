"""Log-densities of values and their derivatives: a loop a family, no array between.

Of x, parameters, and what only depends on these: arrays (n_rows, n_states, n_columns),
along which most are constant. Results are (n_results, n_states, n_columns, n_rows): the
log-density, its derivatives by every parameter, and the second ones by every pair.
"""

import math

from skvrem.utils._jit import CONTRACT, kernel


@kernel(fastmath=CONTRACT)
def student_t(x, location, scale, df, constant, gap, bend, out):
    """Fill those of Student's t, by location and by logarithms of scale and df.

    Those of second order are, for location and scale, of EM's surrogate, in which rows
    have weights w and which lies below the log-density: far rows have the wrong
    curvature. `gap` and `bend` are the derivatives of first and second order, by df, of
    twice the logarithm of the ratio of Gamma functions.
    """
    n_rows, n, d = x.shape
    for i in range(n):
        for j in range(d):
            for row in range(n_rows):
                s, v = scale[row, i, j], df[row, i, j]
                rise, curve = gap[row, i, j], bend[row, i, j]
                z = (x[row, i, j] - location[row, i, j]) / s
                square = z * z
                part = 1.0 / (v + square)
                w, log_tail = (v + 1.0) * part, math.log1p(square / v)
                change = (square - 1.0) * part * part
                out[0, i, j, row] = constant[row, i, j] - 0.5 * (v + 1.0) * log_tail
                out[1, i, j, row] = w * z / s
                out[2, i, j, row] = w * square - 1.0
                out[3, i, j, row] = 0.5 * (v * (rise - log_tail) - 1.0 + w * square)
                out[4, i, j, row] = -w / (s * s)
                out[5, i, j, row] = 0.0
                out[6, i, j, row] = v * z / s * change
                out[7, i, j, row] = -1.0 - w * square
                out[8, i, j, row] = v * square * change
                both = square * part + square * change
                both += rise + v * curve - log_tail
                out[9, i, j, row] = 0.5 * v * both


@kernel(fastmath=CONTRACT)
def weibull(x, shape, log_scale, log_shape, out):
    """Fill those of Weibull's distribution, by logarithms of scale and shape."""
    n_rows, n, d = x.shape
    for i in range(n):
        for j in range(d):
            for row in range(n_rows):
                log_x, k = math.log(x[row, i, j]), shape[row, i, j]
                z = k * (log_x - log_scale[row, i, j])
                e = math.exp(z)
                out[0, i, j, row] = log_shape[row, i, j] + z - log_x - e
                out[1, i, j, row] = k * (e - 1.0)
                out[2, i, j, row] = 1.0 + z - z * e
                out[3, i, j, row] = -k * k * e
                out[4, i, j, row] = k * (e - 1.0 + z * e)
                out[5, i, j, row] = z - z * e - z * z * e


@kernel(fastmath=CONTRACT)
def wrapped_cauchy(x, mean, concentration, constant, out):
    """Fill those of the wrapped Cauchy, by mean and log-odds of the other."""
    n_rows, n, d = x.shape
    for i in range(n):
        for j in range(d):
            for row in range(n_rows):
                r, angle = concentration[row, i, j], x[row, i, j] - mean[row, i, j]
                c, s = math.cos(angle), math.sin(angle)
                square, rate = r * r, r * (1.0 - r)
                part, left = 1.0 / (1.0 + square - 2.0 * r * c), 1.0 / (1.0 - square)
                out_ = 2.0 * (r - c) * part
                slope = -2.0 * r * left - out_
                bend = out_ * out_ - 2.0 * part - 2.0 * (1.0 + square) * left * left
                out[0, i, j, row] = constant[row, i, j] + math.log(part)
                out[1, i, j, row] = 2.0 * r * s * part
                out[2, i, j, row] = slope * rate
                out[3, i, j, row] = 2.0 * r * (2.0 * r * s * s * part - c) * part
                out[4, i, j, row] = 2.0 * s * (1.0 - r * out_) * part * rate
                curve = bend * rate + slope * (1.0 - 2.0 * r)
                out[5, i, j, row] = curve * rate
