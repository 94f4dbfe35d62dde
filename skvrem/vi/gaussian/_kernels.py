"""Loops over rows: what a likelihood is worth where its predictors are Gaussian.

For a row with predictors z ~ N(a, V), target y and weight w, sums over nodes t_s with
weights u_s stand for expectations, z_s = a + sqrt(V) t_s:

    loss        -w sum_s u_s log p(y | z_s)
    residual     w sum_s u_s d log p(y | z_s) / dz
    curvature   -w sum_s u_s d^2 log p(y | z_s) / dz^2

Gauss-Hermite nodes for one predictor, nodes of a quasi-Monte-Carlo rule for as many as
there are classes. By the theorems of Bonnet and Price these are the gradients by a and
V of the expected log-likelihood: residual, and minus half the curvature. Where nodes
are too few for V, that holds no more, and steps that believe it climb nothing: then
the curvature is twice the loss's derivative by V. One number a row is float64;
``weight`` (m,) is empty for ones.
"""

import math

import numpy as np

from skvrem.utils._jit import CONTRACT, REDUCE, kernel
from skvrem.utils._math import exp, log, wide_logistic

# Deviation of a predictor from which on 20 nodes of Hermite err by more than 4e-7; and
# from which on more nodes are not enough either.
WIDE, WIDEST = 1.5, 2.5
# Deviation under which nodes are enough, and derivatives by it nothing but rounding.
NARROW = 1e-4
# Classes from which on sums over nodes are products of matrices.
MATRICES = 8
# Classes that others, of small probability, are held against one by one.
RIVALS = 6
# Shifts of a random number's bits, and those of it that are taken.
LEFT, RIGHT, BACK, SHIFT, HIGH, ONE = map(np.uint64, (13, 7, 17, 20, 60, 1))


@kernel(fastmath=CONTRACT)
def logistic_expectations(a, v, y, weight, nodes, node_weights, residual, curvature):
    """Fill residual and curvature (m,) of two classes; return the loss of all rows.

    y (m,) lies in [0, 1]; in between it is a share of ones. Where a predictor varies
    more than nodes see, `wide_logistic` stands in for them.
    """
    m = a.size
    softplus = np.zeros(m)
    spread, z, grown = np.empty(m), np.empty(m), np.empty(m)
    for i in range(m):
        residual[i] = 0.0
        curvature[i] = 0.0
        spread[i] = math.sqrt(v[i])
    for s in range(nodes.size):
        t, u = nodes[s], node_weights[s]
        for i in range(m):  # without branches, so that it vectorises
            z[i] = a[i] + t * spread[i]
            e = exp(-abs(z[i]))
            grown[i] = 1.0 + e
            small = e / grown[i]
            p = 1.0 - small if z[i] > 0.0 else small
            residual[i] += u * p
            curvature[i] += u * p * (1.0 - p)
        for i in range(m):  # nor with the logarithm in the loop above
            softplus[i] += u * (max(z[i], 0.0) + log(grown[i]))
    loss = 0.0
    wide = WIDE if nodes.size <= 20 else WIDEST
    for i in range(m):
        if spread[i] > wide:
            softplus[i], residual[i], curvature[i] = wide_logistic(a[i], spread[i])
        w = weight[i] if weight.size else 1.0
        loss += w * (softplus[i] - y[i] * a[i])
        residual[i] = w * (y[i] - residual[i])
        curvature[i] *= w
    return loss


@kernel(fastmath=REDUCE)
def weighed(x, weight):
    """Sum of x_s weight_s."""
    total = 0.0
    for s in range(x.size):
        total += x[s] * weight[s]
    return total


@kernel(fastmath=REDUCE)
def weighed_product(x, y, weight):
    """Sum of x_s y_s weight_s."""
    total = 0.0
    for s in range(x.size):
        total += x[s] * y[s] * weight[s]
    return total


@kernel
def by_covariance(root, slope):
    """Turn derivatives by a lower triangular root into half of those by its square.

    What comes out in `slope` (k, k) is to be added to its transpose (Murray 2016,
    Differentiation of the Cholesky decomposition, Eq. 10).
    """
    k = len(root)
    product = np.zeros((k, k))
    for a in range(k):  # the innermost loops go along rows, so that they vectorise
        for c in range(a, k):
            for b in range(a + 1):
                product[a, b] += root[c, a] * slope[c, b]
        product[a, a] *= 0.5
    for a in range(k - 1, -1, -1):  # root^-T times
        for c in range(a + 1, k):
            for b in range(k):
                product[a, b] -= root[c, a] * product[c, b]
        for b in range(k):
            product[a, b] /= root[a, a]
    for a in range(k):  # the transpose serves as well: the two are added
        for b in range(k):
            slope[b, a] = product[a, b]
    for b in range(k - 1, -1, -1):  # times root^-1
        for c in range(b + 1, k):
            for a in range(k):
                slope[b, a] -= root[c, b] * slope[c, a]
        for a in range(k):
            slope[b, a] /= root[b, b]


@kernel
def turn_axes(key, order, sign):
    """Fill order (k,) with a random permutation by a key, and sign (k,) with 1 or -1.

    By xorshift (Marsaglia 2003), and the shuffle of Fisher and Yates.
    """
    state = key | ONE
    for b in range(order.size):
        state ^= state << LEFT
        state ^= state >> RIGHT
        state ^= state << BACK
        sign[b] = 1.0 if (state >> HIGH) & ONE else -1.0
        other = int((state >> SHIFT) % np.uint64(b + 1))
        order[b] = order[other]
        order[other] = b


@kernel(fastmath=CONTRACT)
def softmax_expectations(
    A, half, y, weight, keys, nodes, node_weights, by_root, residual, curvature
):
    """Fill residual (m, k) and curvature of several classes; return the loss.

    half (m, k) has the standard deviations of independent predictors, and curvature
    (m, k) then gets its diagonal; or half (m, k * k) has lower triangular roots of V,
    and curvature (m, k * k) gets all of it. y (m,) are numbers of classes, nodes
    (k, n_nodes). Of rows with keys (m,), empty for none, and roots, the axes of nodes
    are turned by `turn_axes`: a covariance has one root as well as another, and what
    nodes err by is then not the same for all rows, nor does a fit find what all of them
    miss. With `by_root` the curvature of rows whose roots are no smaller than
    `NARROW` is that of the sum over nodes itself. A curvature of no rows is left out.
    """
    m, k = A.shape
    n = node_weights.size
    full = half.shape[1] != k
    p = np.empty((k, n))
    top, mass = np.empty(n), np.empty(n)
    slope = np.zeros((k, k))
    order, sign = np.arange(k), np.ones(k)
    by_matrices = full and k >= MATRICES
    root, found = np.zeros((k, k)), np.empty((k, k))
    weighted = (nodes * node_weights).T.copy() if by_matrices else found
    loss = 0.0
    for i in range(m):
        if keys.size:
            turn_axes(keys[i], order, sign)
        if by_matrices:
            for j in range(k):
                for b in range(j + 1):
                    root[j, order[b]] = sign[b] * half[i, j * k + b]
                for b in range(j + 1, k):
                    root[j, order[b]] = 0.0
            np.dot(root, nodes, p)
        w = weight[i] if weight.size else 1.0
        for s in range(n):
            top[s] = -math.inf
            mass[s] = 0.0
        for j in range(k):  # loops over nodes vectorise
            for s in range(n):
                p[j, s] = A[i, j] + (p[j, s] if by_matrices else 0.0)
            for b in range(0 if by_matrices else j + 1 if full else 1):
                spread = sign[b] * half[i, j * k + b] if full else half[i, j]
                c = order[b] if full else j
                for s in range(n):
                    p[j, s] += spread * nodes[c, s]
            for s in range(n):
                top[s] = max(top[s], p[j, s])
        for j in range(k):
            for s in range(n):
                p[j, s] = exp(max(p[j, s] - top[s], -700.0))
                mass[s] += p[j, s]
        total = 0.0
        for s in range(n):
            total += node_weights[s] * (top[s] + log(mass[s]))
            mass[s] = 1.0 / mass[s]
        for j in range(k):
            for s in range(n):
                p[j, s] *= mass[s]
            residual[i, j] = weighed(p[j], node_weights)
        narrow = not by_root
        for j in range(k):
            narrow |= (half[i, j * k + j] if full else half[i, j]) < NARROW
        if not curvature.size:
            pass
        elif not narrow and full:
            if by_matrices:
                np.dot(p, weighted, found)
            for j in range(k):
                for b in range(j + 1):
                    c = order[b]
                    if not by_matrices:
                        found[j, c] = weighed_product(p[j], nodes[c], node_weights)
                    slope[j, b] = sign[b] * found[j, c]
            by_covariance(half[i].reshape((k, k)), slope)
            for j in range(k):
                for b in range(k):
                    curvature[i, j * k + b] = w * (slope[j, b] + slope[b, j])
        elif not narrow:
            for j in range(k):
                both = weighed_product(p[j], nodes[j], node_weights)
                curvature[i, j] = w * both / half[i, j]
        elif full:
            for j in range(k):
                for b in range(j + 1):
                    both = weighed_product(p[j], p[b], node_weights)
                    curvature[i, j * k + b] = -w * both
                    curvature[i, b * k + j] = -w * both
                curvature[i, j * k + j] += w * residual[i, j]
        else:
            for j in range(k):
                both = weighed_product(p[j], p[j], node_weights)
                curvature[i, j] = w * (residual[i, j] - both)
        loss += w * (total - A[i, y[i]])
        for j in range(k):
            residual[i, j] *= -w
        residual[i, y[i]] += w
    return loss


@kernel(fastmath=CONTRACT)
def softmax_tails(A, half, nodes, away, most, p):
    """Do expected probabilities p (m, k) below `most` again, which nodes hardly reach.

    For each such class, nodes (k, n_nodes) are moved along the direction in which its
    predictor rises over the mean of the others', weighed by p: there they lie evenly,
    by `away` (n_nodes,) from the deviation near which the probability times the density
    is largest, and the density weighs them. Across it they are as they were; and so are
    all but `RIVALS` of the others, which matter little.
    """
    m, k = A.shape
    n = away.size
    width = (away[n - 1] - away[0]) / (n - 1)
    full = half.shape[1] != k
    root, drawn = np.zeros((k, k)), np.empty((k, n))
    z = np.empty((RIVALS + 1, n))
    who, contrast = np.empty(RIVALS + 1, np.intp), np.empty(RIVALS + 1)
    turned, along, lesser = np.empty(k), np.empty(n), np.empty(n)
    top, mass, log_density = np.empty(n), np.empty(n), np.empty(n)
    for i in range(m):
        if p[i].min() >= most:
            continue
        before = p[i].copy()
        rivals = np.argsort(-before)
        for j in range(k):
            for b in range(j + 1 if full else 0):
                root[j, b] = half[i, j * k + b]
            for s in range(0 if full else n):
                drawn[j, s] = half[i, j] * nodes[j, s]
        if full:
            np.dot(root, nodes, drawn)
        top[:] = -math.inf
        for b in rivals[RIVALS:]:
            for s in range(n):
                top[s] = max(top[s], A[i, b] + drawn[b, s])
        lesser[:] = 0.0
        for b in rivals[RIVALS:]:
            for s in range(n):
                lesser[s] += exp(max(A[i, b] + drawn[b, s] - top[s], -700.0))
        for s in range(n):
            lesser[s] = top[s] + log(lesser[s]) if k > RIVALS else -math.inf
        for j in range(k):
            if before[j] >= most:
                continue
            n_who, rest = 0, 0.0
            for b in rivals[:RIVALS]:
                if b != j:
                    who[n_who] = b
                    rest += before[b]
                    n_who += 1
            who[n_who] = j
            ahead, variance = A[i, j], 0.0
            along[:] = drawn[j]
            contrast[n_who] = 1.0
            for a in range(n_who):
                contrast[a] = -before[who[a]] / rest
                ahead += contrast[a] * A[i, who[a]]
                for s in range(n):
                    along[s] += contrast[a] * drawn[who[a], s]
            turned[:] = 0.0  # the direction, in units of the nodes
            for a in range(n_who + 1):
                b = who[a]
                for c in range(0 if full else b, b + 1):
                    turned[c] += contrast[a] * (root[b, c] if full else half[i, b])
            for c in range(k):
                variance += turned[c] * turned[c]
            spread = math.sqrt(variance)
            if spread < NARROW:
                continue
            mode = min(spread, max(-ahead / spread, 0.0))
            for s in range(n):
                t = mode + away[s]
                log_density[s] = -0.5 * t * t
                along[s] = t - along[s] / spread
                top[s] = lesser[s]
                mass[s] = 0.0
            for a in range(n_who + 1):
                b, slope = who[a], 0.0
                for c in range(0 if full else b, b + 1):
                    slope += turned[c] * (root[b, c] if full else half[i, b]) / spread
                for s in range(n):
                    z[a, s] = A[i, b] + drawn[b, s] + slope * along[s]
                    top[s] = max(top[s], z[a, s])
            for a in range(n_who + 1):
                for s in range(n):
                    mass[s] += exp(max(z[a, s] - top[s], -700.0))
            for s in range(n):
                mass[s] += exp(max(lesser[s] - top[s], -700.0))
                own = z[n_who, s] - top[s] + log_density[s]
                mass[s] = exp(max(own, -700.0)) / mass[s]
            total = 0.0
            for s in range(n):
                total += mass[s]
            p[i, j] = total * width / math.sqrt(2.0 * math.pi)
        whole = p[i].sum()
        for j in range(k):
            p[i, j] /= whole


@kernel(fastmath=CONTRACT)
def scattered_expectations(
    A, half, y, weight, keys, ends, sets, nodes, node_weights, residual, curvature
):
    """Do what `softmax_expectations` does, with nodes that differ between rows.

    Rows up to `ends` (n_groups,), from the end before, have the nodes (n_sets, k,
    n_nodes) of number `sets` (n_groups,). There are no keys, but for their type.
    """
    loss, start = 0.0, 0
    for group in range(ends.size):
        some = slice(start, ends[group])
        loss += softmax_expectations(
            A[some],
            half[some],
            y[some],
            weight[some],
            keys,
            nodes[sets[group]],
            node_weights,
            False,
            residual[some],
            curvature[some],
        )
        start = ends[group]
    return loss


@kernel
def roots(V, k):
    """Put lower triangular roots in the place of covariances V (m, k * k).

    Of which it takes the lower triangles.
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
