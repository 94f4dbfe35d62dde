"""Log-densities of values and their derivatives: a loop a family, no array between.

Of x and parameters: arrays (n_rows, n_states, n_columns), each axis of which may be of
one entry for all. Results are (n_results, n_states, n_columns, n_rows): the log-density
alone, or with its derivatives by every parameter, and the second ones by every pair.
What only depends on parameters is made anew where they are others than a row before.
"""

import math

from skvrem.hmm.emissions.densities._kernels_stirling import binet, log_ratio, rise
from skvrem.utils._jit import CONTRACT, inner_kernel, kernel

HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


@inner_kernel(forceinline=True)
def at(values, row, i, j):
    """Return an entry of an array whose axes may be of one entry for all."""
    n_rows, n, d = values.shape
    return values[min(row, n_rows - 1), min(i, n - 1), min(j, d - 1)]


@kernel(fastmath=CONTRACT)
def negative_binomial(x, mean, size, out):
    """Fill those of counts, by logarithms of mean and size."""
    n_results, n, d, n_rows = out.shape
    for i in range(n):
        for j in range(d):
            last, lower = -1.0, (0.0, 0.0, 0.0)
            for row in range(n_rows):
                k, m, s = at(x, row, i, j), at(mean, row, i, j), at(size, row, i, j)
                if s != last:
                    last, lower = s, binet(s)
                end, total, left = s + k, s + m, k - m
                logs, beyond = log_ratio(end, total, left)
                constant, slope, bend = rise(k, s, lower)
                # That of Poisson, and what is 0 at infinite sizes.
                poisson = k * math.log(m) - m - math.lgamma(k + 1.0)
                out[0, i, j, row] = poisson + end * logs - left + constant
                if n_results > 1:
                    share, part = s / total, left / total
                    by_size = s * (beyond + slope)
                    out[1, i, j, row] = share * left
                    out[2, i, j, row] = by_size
                    out[3, i, j, row] = -m * share * (end / total)
                    out[4, i, j, row] = m * share * part
                    bend = s * (s * (part * part / end + bend))
                    out[5, i, j, row] = by_size + bend


@kernel(fastmath=CONTRACT)
def gamma(x, mean, shape, out):
    """Fill those of positive numbers, by logarithms of mean and shape."""
    n_results, n, d, n_rows = out.shape
    for i in range(n):
        for j in range(d):
            last, constant, slope, bend = -1.0, 0.0, 0.0, 0.0
            for row in range(n_rows):
                y, m, s = at(x, row, i, j), at(mean, row, i, j), at(shape, row, i, j)
                if s != last:
                    last = s
                    constant, slope, bend = binet(s)
                    constant = 0.5 * math.log(s) - HALF_LOG_2PI - constant
                _, left = log_ratio(y, m, y - m)
                out[0, i, j, row] = s * left + constant - math.log(y)
                if n_results > 1:
                    both = s * ((y - m) / m)
                    out[1, i, j, row] = both
                    out[2, i, j, row] = s * (left - slope) + 0.5
                    out[3, i, j, row] = -s * (y / m)
                    out[4, i, j, row] = both
                    out[5, i, j, row] = s * (left - slope - s * bend)


@kernel(fastmath=CONTRACT)
def student_t(x, location, scale, df, out):
    """Fill those of Student's t, by location and by logarithms of scale and df.

    Those of second order are, for location and scale, of EM's surrogate, in which rows
    have weights w and which lies below the log-density: far rows have the wrong
    curvature.
    """
    n_results, n, d, n_rows = out.shape
    for i in range(n):
        for j in range(d):
            of_scale, of_df, log_scale, constant = -1.0, -1.0, 0.0, 0.0
            gap, bend = 0.0, 0.0
            for row in range(n_rows):
                s, v = at(scale, row, i, j), at(df, row, i, j)
                if s != of_scale:
                    of_scale, log_scale = s, math.log(s)
                if v != of_df:
                    # Of the logarithm of the ratio of Gamma functions, and twice its
                    # derivatives by df of first and second order.
                    of_df, half = v, 0.5 * v
                    constant, gap, bend = rise(0.5, half, binet(half))
                    more = math.log1p(0.5 / half)
                    constant += (half + 0.5) * more - 0.5 - HALF_LOG_2PI
                    gap += more
                    bend = 0.5 * (bend - 0.5 / half / (half + 0.5))
                z = (at(x, row, i, j) - at(location, row, i, j)) / s
                square = z * z
                log_tail = math.log1p(square / v)
                log_f = constant - log_scale - 0.5 * (v + 1.0) * log_tail
                out[0, i, j, row] = log_f
                if n_results > 1:
                    part = 1.0 / (v + square)
                    w, change = (v + 1.0) * part, (square - 1.0) * part * part
                    out[1, i, j, row] = w * z / s
                    out[2, i, j, row] = w * square - 1.0
                    out[3, i, j, row] = 0.5 * (v * (gap - log_tail) - 1.0 + w * square)
                    out[4, i, j, row] = -w / (s * s)
                    out[5, i, j, row] = 0.0
                    out[6, i, j, row] = v * z / s * change
                    out[7, i, j, row] = -1.0 - w * square
                    out[8, i, j, row] = v * square * change
                    both = square * part + square * change
                    both += gap + v * bend - log_tail
                    out[9, i, j, row] = 0.5 * v * both


@kernel(fastmath=CONTRACT)
def weibull(x, scale, shape, out):
    """Fill those of Weibull's distribution, by logarithms of scale and shape."""
    n_results, n, d, n_rows = out.shape
    for i in range(n):
        for j in range(d):
            of_scale, of_shape, log_scale, log_shape = -1.0, -1.0, 0.0, 0.0
            for row in range(n_rows):
                s, k = at(scale, row, i, j), at(shape, row, i, j)
                if s != of_scale:
                    of_scale, log_scale = s, math.log(s)
                if k != of_shape:
                    of_shape, log_shape = k, math.log(k)
                log_x = math.log(at(x, row, i, j))
                z = k * (log_x - log_scale)
                e = math.exp(z)
                out[0, i, j, row] = log_shape + z - log_x - e
                if n_results > 1:
                    out[1, i, j, row] = k * (e - 1.0)
                    out[2, i, j, row] = 1.0 + z - z * e
                    out[3, i, j, row] = -k * k * e
                    out[4, i, j, row] = k * (e - 1.0 + z * e)
                    out[5, i, j, row] = z - z * e - z * z * e


@kernel(fastmath=CONTRACT)
def wrapped_cauchy(x, mean, concentration, out):
    """Fill those of the wrapped Cauchy, by mean and log-odds of the other."""
    n_results, n, d, n_rows = out.shape
    for i in range(n):
        for j in range(d):
            last, constant = -1.0, 0.0
            for row in range(n_rows):
                r = at(concentration, row, i, j)
                if r != last:
                    last, constant = r, math.log1p(-r * r) - 2.0 * HALF_LOG_2PI
                angle = at(x, row, i, j) - at(mean, row, i, j)
                c, square = math.cos(angle), r * r
                part = 1.0 / (1.0 + square - 2.0 * r * c)
                out[0, i, j, row] = constant + math.log(part)
                if n_results > 1:
                    s, rate, left = math.sin(angle), r * (1.0 - r), 1.0 / (1.0 - square)
                    out_ = 2.0 * (r - c) * part
                    slope = -2.0 * r * left - out_
                    bend = out_ * out_ - 2.0 * part - 2.0 * (1.0 + square) * left * left
                    out[1, i, j, row] = 2.0 * r * s * part
                    out[2, i, j, row] = slope * rate
                    out[3, i, j, row] = 2.0 * r * (2.0 * r * s * s * part - c) * part
                    out[4, i, j, row] = 2.0 * s * (1.0 - r * out_) * part * rate
                    curve = bend * rate + slope * (1.0 - 2.0 * r)
                    out[5, i, j, row] = curve * rate
