r"""Normal rows that are missing in part, one pattern of what is observed at a time.

Rows (n_rows, d) are centred, NaN where missing, and those of pattern p are rows
``order[bounds[p]]`` to ``order[bounds[p + 1] - 1]``. Of what is observed,

.. math:: \Sigma_{oo} = L L^T, \qquad z = L^{-1} (y_o - \mu_o), \qquad
          \log N = -\tfrac12 (|o| \log 2 \pi + |z|^2) - \sum_i \log L_{ii},

and of the rest :math:`E[y_m | y_o] = \mu_m + \Sigma_{mo} L^{-T} z`. The first rows of L
are those of the pattern before, as far as both observe the same columns: of patterns in
lexicographic order that is far.
"""

import math

import numpy as np

from skvrem.utils._jit import REDUCE, inner_kernel, kernel

# Rows at a time, along which loops run.
ROWS = 64
LOG_2PI = math.log(2.0 * math.pi)


@inner_kernel
def _observe(row, columns, before):
    """Put the observed columns first, then the others; return how many of them.

    Also how many of the first are as they were, when there were so many `before`.
    """
    seen, same, d = 0, 0, row.size
    for j in range(d):
        if not math.isnan(row[j]):
            if same == seen < before and columns[seen] == j:
                same += 1
            columns[seen] = j
            seen += 1
    rest = seen
    for j in range(d):
        if math.isnan(row[j]):
            columns[rest] = j
            rest += 1
    return seen, same


@inner_kernel(fastmath=REDUCE)
def _factorize(covariance, columns, seen, same, L):
    """Fill L (seen, seen) but for the first rows, which are right."""
    for i in range(same, seen):
        for j in range(i + 1):
            total = covariance[columns[i], columns[j]]
            for m in range(j):
                total -= L[i, m] * L[j, m]
            L[i, j] = math.sqrt(total) if i == j else total / L[j, j]


@inner_kernel(fastmath=REDUCE)
def _solve(rows, some, mean, columns, seen, L, z):
    """Fill z (seen, n_some) with L^-1 (y - mean), of some of the rows."""
    n = len(some)
    for i in range(seen):
        column = columns[i]
        for t in range(n):
            z[i, t] = rows[some[t], column] - mean[column]
        for j in range(i):
            by = L[i, j]
            for t in range(n):
                z[i, t] -= by * z[j, t]
        by = 1.0 / L[i, i]
        for t in range(n):
            z[i, t] *= by


@inner_kernel(fastmath=REDUCE)
def _solve_back(seen, n, L, z):
    """Turn z (seen, n) into L^-T z."""
    for i in range(seen - 1, -1, -1):
        for j in range(i + 1, seen):
            by = L[j, i]
            for t in range(n):
                z[i, t] -= by * z[j, t]
        by = 1.0 / L[i, i]
        for t in range(n):
            z[i, t] *= by


@kernel(fastmath=REDUCE)
def log_densities(rows, order, bounds, mean, covariance, out):
    """Fill out (n_rows, n_states) with the log-densities of what is observed."""
    n_states, d = mean.shape
    columns, L, seen = np.empty(d, np.int64), np.empty((n_states, d, d)), 0
    z, square = np.empty((d, ROWS)), np.empty(ROWS)
    for p in range(bounds.size - 1):
        seen, same = _observe(rows[order[bounds[p]]], columns, seen)
        for k in range(n_states):
            _factorize(covariance[k], columns, seen, same, L[k])
            constant = -0.5 * LOG_2PI * seen
            for i in range(seen):
                constant -= math.log(L[k, i, i])
            for first in range(bounds[p], bounds[p + 1], ROWS):
                some = order[first : min(first + ROWS, bounds[p + 1])]
                _solve(rows, some, mean[k], columns, seen, L[k], z)
                n = len(some)
                square[:n] = 0.0
                for i in range(seen):
                    for t in range(n):
                        square[t] += z[i, t] * z[i, t]
                for t in range(n):
                    out[some[t], k] = constant - 0.5 * square[t]


@inner_kernel(fastmath=REDUCE)
def _add_noise(weight, covariance, columns, seen, L, v, products):
    """Add the covariance of what is missing, given the rest, times a weight."""
    d = columns.size
    for a in range(seen, d):
        for i in range(seen):
            total = covariance[columns[a], columns[i]]
            for m in range(i):
                total -= L[i, m] * v[a, m]
            v[a, i] = total / L[i, i]
        for b in range(seen, a + 1):
            total = covariance[columns[b], columns[a]]
            for i in range(seen):
                total -= v[a, i] * v[b, i]
            products[columns[b], columns[a]] += weight * total


@inner_kernel(fastmath=REDUCE)
def _add_rows(weights, y, n, total, products):
    """Add sums of y (d, n) and the upper triangles of y y^T; return the weights'."""
    d, weight, weighted = len(y), 0.0, np.empty(ROWS)
    for t in range(n):
        weight += weights[t]
    for i in range(d):
        first = 0.0
        for t in range(n):
            weighted[t] = weights[t] * y[i, t]
        for t in range(n):
            first += weighted[t]
        total[i] += first
        for j in range(i, d):
            second = 0.0
            for t in range(n):
                second += weighted[t] * y[j, t]
            products[i, j] += second
    return weight


@kernel(fastmath=REDUCE)
def complete(rows, order, bounds, weights, mean, covariance, count, total, products):
    """Add the sums to expect of 1, y and y y^T where nothing is missing.

    Weights are (n_rows, n_states), sums (n_states), (n_states, d) and (n_states, d, d)
    of which only the upper triangles are filled.
    """
    n_states, d = mean.shape
    columns, L, seen = np.empty(d, np.int64), np.empty((n_states, d, d)), 0
    z, y, v = np.empty((d, ROWS)), np.empty((d, ROWS)), np.empty((d, d))
    own = np.empty(ROWS)
    for p in range(bounds.size - 1):
        seen, same = _observe(rows[order[bounds[p]]], columns, seen)
        if not seen:
            continue
        for k in range(n_states):
            _factorize(covariance[k], columns, seen, same, L[k])
            weight = 0.0
            for first in range(bounds[p], bounds[p + 1], ROWS):
                some = order[first : min(first + ROWS, bounds[p + 1])]
                n = len(some)
                for i in range(seen):
                    for t in range(n):
                        y[columns[i], t] = rows[some[t], columns[i]]
                if seen < d:
                    _solve(rows, some, mean[k], columns, seen, L[k], z)
                    _solve_back(seen, n, L[k], z)
                for a in range(seen, d):
                    to = columns[a]
                    y[to, :n] = mean[k, to]
                    for i in range(seen):
                        by = covariance[k, to, columns[i]]
                        for t in range(n):
                            y[to, t] += by * z[i, t]
                for t in range(n):
                    own[t] = weights[some[t], k]
                weight += _add_rows(own, y, n, total[k], products[k])
            count[k] += weight
            _add_noise(weight, covariance[k], columns, seen, L[k], v, products[k])
