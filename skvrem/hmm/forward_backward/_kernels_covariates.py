r"""Transitions that covariates of the rows lead: probabilities, and what they explain.

With logits :math:`\eta_{t,ij} = \beta_{ij}^T z_t` a row of the transition matrix is
:math:`p_{t,ij} = e^{\eta_{t,ij}} / \sum_k e^{\eta_{t,ik}}` (Sidrow et al. 2023, Eq. 2).
Of the expected log-likelihood :math:`\sum_t \sum_{ij} \xi_t(i, j) \log p_{t,ij}` these
are the gradient and minus the Hessian in :math:`\beta_i`, with
:math:`\gamma_{t,i} = \sum_j \xi_t(i, j)`:

    g_ij = sum_t z_t (xi_t,ij - gamma_t,i p_t,ij)
    H_i,jk = sum_t gamma_t,i p_t,ij (1[j = k] - p_t,ik) z_t z_t^T

Arrays are laid out as in ``_kernels.py``: flat, in tiles of `width` numbers, the first
`lanes` of which are the first step of every lane.
"""

import numpy as np

from skvrem.utils._jit import CONTRACT, kernel
from skvrem.utils._math import exp, log

# Lets LLVM add up in lanes; exp and log keep their own order.
SUM = {"reassoc", "contract", "nsz"}


@kernel(fastmath=CONTRACT)
def _logits(design, at, n_inputs, coefficients, by, width, out, to):
    """Out (width) = coefficients (n_inputs) times the inputs of a tile."""
    a, b = np.uint64(at), np.uint64(to)
    for t in range(np.uint64(width)):
        out[b + t] = coefficients[by] * design[a + t]
    for p in range(1, n_inputs):
        c = np.uint64(at + p * width)
        for t in range(np.uint64(width)):
            out[b + t] += coefficients[by + p] * design[c + t]


@kernel(fastmath=CONTRACT)
def _normalise(out, to, n, width, beta, top, total):
    """Turn n rows of logits into probabilities to the power of beta."""
    size = np.uint64(width)
    for t in range(size):
        top[t] = out[np.uint64(to) + t]
        total[t] = 0.0
    for j in range(1, n):
        a = np.uint64(to + j * width)
        for t in range(size):
            top[t] = out[a + t] if out[a + t] > top[t] else top[t]
    for j in range(n):
        a = np.uint64(to + j * width)
        for t in range(size):
            total[t] += exp(out[a + t] - top[t])
    for t in range(size):
        top[t] += log(total[t])
    for j in range(n):
        a = np.uint64(to + j * width)
        for t in range(size):
            out[a + t] = exp(beta * (out[a + t] - top[t]))


@kernel
def probabilities(design, n_inputs, coefficients, n, n_tiles, width, beta, out):
    """Fill out (n_tiles, n, n, width) with the matrix of every row (Eq. 2).

    `design` is (n_tiles, n_inputs, width), `coefficients` (n, n, n_inputs).
    """
    top, total = np.empty(width), np.empty(width)
    for number in range(n_tiles):
        at, to = number * n_inputs * width, number * n * n * width
        for i in range(n):
            for j in range(n):
                by, place = (i * n + j) * n_inputs, to + (i * n + j) * width
                _logits(design, at, n_inputs, coefficients, by, width, out, place)
            _normalise(out, to + i * n * width, n, width, beta, top, total)


@kernel(fastmath=SUM)
def _dot(a, at, b, to, width):
    x, y, total = np.uint64(at), np.uint64(to), 0.0
    for t in range(np.uint64(width)):
        total += a[x + t] * b[y + t]
    return total


@kernel(fastmath=SUM)
def _total(a, at, width):
    x, total = np.uint64(at), 0.0
    for t in range(np.uint64(width)):
        total += a[x + t]
    return total


@kernel(fastmath=CONTRACT)
def _pairs(alpha, k, matrices, at, ratios, to, width, xi, place):
    """Xi = alpha of the row before, a transition's probability, and rho."""
    a, b, c, d = np.uint64(k), np.uint64(at), np.uint64(to), np.uint64(place)
    for t in range(np.uint64(width)):
        xi[d + t] = alpha[a + t] * matrices[b + t] * ratios[c + t]


@kernel(fastmath=CONTRACT)
def _explain(xi, n, p, at, width, gamma, rest, logs):
    """Fill gamma, xi - gamma p, and the sum of xi log p."""
    size = np.uint64(width)
    for t in range(size):
        gamma[t] = 0.0
        logs[t] = 0.0
    for j in range(n):
        a, b = np.uint64(j * width), np.uint64(at + j * width)
        for t in range(size):
            gamma[t] += xi[a + t]
            logs[t] += xi[a + t] * log(max(p[b + t], 1e-300))
    for j in range(n):
        a, b = np.uint64(j * width), np.uint64(at + j * width)
        for t in range(size):
            rest[a + t] = xi[a + t] - gamma[t] * p[b + t]


@kernel(fastmath=CONTRACT)
def _fisher(gamma, p, at, to, same, width, weight):
    """Weight = gamma p_j (1[j = k] - p_k)."""
    a, b = np.uint64(at), np.uint64(to)
    for t in range(np.uint64(width)):
        weight[t] = gamma[t] * p[a + t] * (same - p[b + t])


@kernel(fastmath=CONTRACT)
def _products(design, at, n_inputs, width, out):
    """Products of two inputs, the second no earlier than the first."""
    to = 0
    for p in range(n_inputs):
        for q in range(p, n_inputs):
            a, b = np.uint64(at + p * width), np.uint64(at + q * width)
            c = np.uint64(to)
            for t in range(np.uint64(width)):
                out[c + t] = design[a + t] * design[b + t]
            to += width


@kernel
def explain(
    design,
    n_inputs,
    n,
    n_tiles,
    width,
    lanes,
    left,
    alpha,
    matrices,
    p,
    ratios,
    counts,
    gradient,
    hessian,
):
    """Add up xi (n, n), g (n, n, n_inputs), H; return the sum of xi log p in Eq. 11.

    `hessian` is (n, n (n + 1) / 2, n_inputs (n_inputs + 1) / 2), upper triangles.
    `matrices` are the probabilities that posteriors are made with, `p` the same where
    these are at temperature 1.
    """
    before, xi, rest = np.empty(n * width), np.empty(n * width), np.empty(n * width)
    gamma, logs, weight = np.empty(width), np.empty(width), np.empty(width)
    n_products = n_inputs * (n_inputs + 1) // 2
    products = np.empty(n_products * width)
    value = 0.0
    for number in range(n_tiles):
        at, by = number * n * width, number * n_inputs * width
        for k in range(n):
            for t in range(lanes):
                place = at - (n - k - 1) * width - lanes + t
                before[k * width + t] = alpha[place] if number else left[k * lanes + t]
            for t in range(width - lanes):
                before[k * width + lanes + t] = alpha[at + k * width + t]
        _products(design, by, n_inputs, width, products)
        for i in range(n):
            row = (number * n + i) * n * width
            for j in range(n):
                j_at = j * width
                here, from_i = row + j_at, i * width
                _pairs(
                    before, from_i, matrices, here, ratios, at + j_at, width, xi, j_at
                )
            _explain(xi, n, p, row, width, gamma, rest, logs)
            value += _total(logs, 0, width)
            to = i * n * (n + 1) // 2 * n_products
            for j in range(n):
                counts[i * n + j] += _total(xi, j * width, width)
                for q in range(n_inputs):
                    gradient[(i * n + j) * n_inputs + q] += _dot(
                        rest, j * width, design, by + q * width, width
                    )
                for k in range(j, n):
                    same = 1.0 if j == k else 0.0
                    _fisher(
                        gamma, p, row + j * width, row + k * width, same, width, weight
                    )
                    for q in range(n_products):
                        hessian[to] += _dot(weight, 0, products, q * width, width)
                        to += 1
    return value
