"""Loops over rows: what a likelihood is worth where its predictors are Gaussian.

For a row with predictors z ~ N(a, V), target y and weight w, sums over nodes t_s with
weights u_s stand for expectations, z_s = a + sqrt(V) t_s:

    loss        -w sum_s u_s log p(y | z_s)
    residual     w sum_s u_s d log p(y | z_s) / dz
    curvature   -w sum_s u_s d^2 log p(y | z_s) / dz^2

Gauss-Hermite nodes for one predictor, nodes of a quasi-Monte-Carlo rule for as many as
there are classes. By the theorems of Bonnet and Price these are the gradients by a and
V of the expected log-likelihood: residual, and minus half the curvature. One number a
row is float64; ``weight`` (m,) is empty for ones.
"""

import math

import numpy as np

from skvrem.utils._jit import CONTRACT, kernel
from skvrem.utils._math import exp, log


@kernel(fastmath=CONTRACT)
def logistic_expectations(a, v, y, weight, nodes, node_weights, residual, curvature):
    """Fill residual and curvature (m,) of two classes; return the loss of all rows.

    y (m,) lies in [0, 1]; in between it is a share of ones.
    """
    m = a.size
    softplus = np.zeros(m)
    spread = np.empty(m)
    for i in range(m):
        residual[i] = 0.0
        curvature[i] = 0.0
        spread[i] = math.sqrt(v[i])
    for s in range(nodes.size):
        t, u = nodes[s], node_weights[s]
        for i in range(m):  # without branches, so that it vectorises
            z = a[i] + t * spread[i]
            e = exp(-abs(z))
            small = e / (1.0 + e)
            p = 1.0 - small if z > 0.0 else small
            residual[i] += u * p
            curvature[i] += u * p * (1.0 - p)
            softplus[i] += u * ((z if z > 0.0 else 0.0) + log(1.0 + e))
    loss = 0.0
    for i in range(m):
        w = weight[i] if weight.size else 1.0
        loss += w * (softplus[i] - y[i] * a[i])
        residual[i] = w * (y[i] - residual[i])
        curvature[i] *= w
    return loss


@kernel(fastmath=CONTRACT)
def softmax_expectations(A, half, y, weight, nodes, node_weights, residual, curvature):
    """Fill residual (m, k) and curvature of several classes; return the loss.

    half (m, k) has the standard deviations of independent predictors, and curvature
    (m, k) then gets its diagonal; or half (m, k * k) has lower triangular roots of V,
    and curvature (m, k * k) gets all of it. y (m,) are numbers of classes.
    """
    m, k = A.shape
    full = half.shape[1] != k
    z = np.empty(k)
    loss = 0.0
    for i in range(m):
        w = weight[i] if weight.size else 1.0
        total = 0.0
        for j in range(k):
            residual[i, j] = 0.0
        for j in range(curvature.shape[1]):
            curvature[i, j] = 0.0
        for s in range(node_weights.size):
            u = node_weights[s]
            top = -math.inf
            for j in range(k):
                if full:
                    z[j] = A[i, j]
                    for b in range(j + 1):
                        z[j] += half[i, j * k + b] * nodes[s, b]
                else:
                    z[j] = A[i, j] + half[i, j] * nodes[s, j]
                top = max(top, z[j])
            mass = 0.0
            for j in range(k):
                z[j] = exp(max(z[j] - top, -700.0))
                mass += z[j]
            total += u * (top + log(mass))
            for j in range(k):
                z[j] /= mass
                residual[i, j] += u * z[j]
            if full:
                for j in range(k):
                    for b in range(k):
                        curvature[i, j * k + b] -= u * z[j] * z[b]
            else:
                for j in range(k):
                    curvature[i, j] += u * z[j] * (1.0 - z[j])
        if full:
            for j in range(k):
                curvature[i, j * k + j] += residual[i, j]
        loss += w * (total - A[i, y[i]])
        for j in range(k):
            residual[i, j] *= -w
        residual[i, y[i]] += w
        for j in range(curvature.shape[1]):
            curvature[i, j] *= w
    return loss


@kernel
def roots(V, k):
    """Put lower triangular roots in the place of covariances V (m, k * k).

    A direction without variance gets a zero.
    """
    for i in range(V.shape[0]):
        for a in range(k):
            for b in range(a + 1):
                total = V[i, a * k + b]
                for c in range(b):
                    total -= V[i, a * k + c] * V[i, b * k + c]
                if a == b:
                    V[i, a * k + a] = math.sqrt(max(total, 0.0))
                else:
                    pivot = V[i, b * k + b]
                    V[i, a * k + b] = total / pivot if pivot > 0.0 else 0.0
