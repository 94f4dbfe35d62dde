r"""An epoch of minibatch steps of a mean-field posterior, compiled as one sweep.

A row x with weight w has predictors :math:`z = a + t`, :math:`a = \mu^T x` and
:math:`t_k = s_k \xi_k` with :math:`s_k^2 = \sum_j \sigma_{kj}^2 x_j^2` and noise
:math:`\xi` of its own. All families have :math:`\nabla \log p(y|z) = (y - m(z)) / \phi`
with the mean m and a variance matrix V(m). What a batch B of N rows estimates are

    G = sum_n E w r x,        r = (y - m(a + t)) / phi              by the means
    C = -sum_n E w (r_k xi_k / s_k) x^2                             by the scales

and the control variate is what another r gives in its place, with the same noise:

    Taylor       (y - m(b) - V(m(b)) t) / phi
    antithetic   (y - m(b) - (m(b + t) - m(b - t)) / 2) / phi

both with the mean (y - m(b)) / phi; Taylor's C has the mean V_kk / phi. b is a (cv,
Eq. 9 of Wang et al. 2024) or the a of an earlier point (joint, Eq. 5), where the sum
over all rows of the mean is known. The exact expectations of r and V by quadrature need
no control but that of the subsampling. A row remembers m(b) for Taylor, b for
antithetic, and the expectations, of r and of V_kk of all predictors, for quadrature.
"""

import math

import numpy as np

from skvrem.utils._control import controlled_inline
from skvrem.utils._jit import CONTRACT, REDUCE, kernel
from skvrem.utils._math import exp
from skvrem.vi.gaussian._kernels import softmax_expectations

# Families, control variates and optimizers by number.
LOGISTIC, POISSON, GAUSSIAN, SOFTMAX = 0, 1, 2, 3
NONE, TAYLOR, ANTITHETIC, QUADRATURE = 0, 1, 2, 3
NATURAL, ADAM, SGD = 0, 1, 2
FARTHEST = 700.0
# A natural step changes the logarithm of a scale by at most so much.
LARGEST_TURN = 0.25
# A step that stands for many is at most this natural one.
LONGEST = 0.5


@kernel(fastmath=REDUCE)
def dot(x, row):
    """Sum of x_j row_j over the d elements of x, plus the rest of row."""
    d, total = x.size, 0.0
    for j in range(d):
        total += x[j] * row[j]
    return total + (row[d] if row.size > d else 0.0)


@kernel(fastmath=REDUCE)
def dot_squares(x, row):
    """Sum of (x_j row_j)^2, plus the square of the rest."""
    d, total = x.size, 0.0
    for j in range(d):
        total += (x[j] * row[j]) * (x[j] * row[j])
    return total + (row[d] * row[d] if row.size > d else 0.0)


@kernel(fastmath=CONTRACT)
def add_row(x, first, second, gradient, curvature):
    """Add first x to gradient (p,) and second x^2 to curvature (p,)."""
    d = x.size
    for j in range(d):
        gradient[j] += first * x[j]
        curvature[j] += second * x[j] * x[j]
    if gradient.size > d:
        gradient[d] += first
        curvature[d] += second


@kernel
def sigmoid(z):
    """1 / (1 + exp(-z))."""
    e = exp(-min(abs(z), FARTHEST))
    return (1.0 if z > 0.0 else e) / (1.0 + e)


@kernel
def mean_of(family, z, out):
    """Fill out (k,) with the mean of y at predictors z (k,)."""
    k = z.size
    if family == LOGISTIC:
        out[0] = sigmoid(z[0])
    elif family == POISSON:
        out[0] = exp(max(min(z[0], FARTHEST), -FARTHEST))
    elif family == GAUSSIAN:
        out[0] = z[0]
    else:
        top = z[0]
        for c in range(1, k):
            top = max(top, z[c])
        total = 0.0
        for c in range(k):
            out[c] = exp(max(z[c] - top, -FARTHEST))
            total += out[c]
        for c in range(k):
            out[c] /= total


@kernel
def variance_times(family, m, t, out):
    """Fill out (k,) with V(m) t, Taylor's second order (Eqs. 62 and 63)."""
    if family == LOGISTIC:
        out[0] = m[0] * (1.0 - m[0]) * t[0]
    elif family == POISSON:
        out[0] = m[0] * t[0]
    elif family == GAUSSIAN:
        out[0] = t[0]
    else:
        inner = 0.0
        for c in range(m.size):
            inner += m[c] * t[c]
        for c in range(m.size):
            out[c] = m[c] * (t[c] - inner)


@kernel
def variance_of(family, m):
    """Diagonal element of V at the mean m of one predictor."""
    if family == POISSON:
        return m
    if family == GAUSSIAN:
        return 1.0
    return m * (1.0 - m)


@kernel
def target_of(family, y, c):
    """What the mean of predictor c is of: y, or whether it is the number of class c."""
    return y if family != SOFTMAX else 1.0 * (c == int(y))


@kernel
def expected(family, a, spread, y, nodes, node_weights):
    """Return E(y - m(z)) and E V(m(z)) of one predictor."""
    if family == POISSON:
        m = exp(max(min(a + 0.5 * spread * spread, FARTHEST), -FARTHEST))
        return y - m, m
    if family == GAUSSIAN:
        return y - a, 1.0
    first = second = 0.0
    for s in range(node_weights.size):
        m = sigmoid(a + spread * nodes[0, s])
        first += node_weights[s] * m
        second += node_weights[s] * m * (1.0 - m)
    return y - first, second


@kernel
def expected_of_classes(rows, some, mean, scale, nodes, node_weights, found):
    """Fill found (2, m, k) with E(y - m(z)) and E V(m(z)) of some rows (m,).

    Those of the sums over nodes: steps climb to the top of just these.
    """
    X, y, _ = rows
    k = len(mean)
    a, spread = np.empty((some.size, k)), np.empty((some.size, k))
    numbers, ones = np.empty(some.size, np.int32), np.empty(0)
    keys = np.empty(0, np.uint64)
    for at in range(some.size):
        x = X[some[at]]
        numbers[at] = int(y[some[at]])
        for c in range(k):
            a[at, c] = dot(x, mean[c])
            spread[at, c] = math.sqrt(dot_squares(x, scale[c]))
    softmax_expectations(
        a, spread, numbers, ones, keys, nodes, node_weights, True, found[0], found[1]
    )


@kernel(forceinline=True)
def change(optimizer, size, variance, g, turn):
    """By how much a step moves a mean and a log scale, but for Adam's."""
    if optimizer == NATURAL:
        turn = 0.5 * size * turn
        return size * variance * g, max(-LARGEST_TURN, min(LARGEST_TURN, turn))
    return size * g, size * turn


@kernel(forceinline=True)
def adam_change(size, g, first, second, moments, of, c, j):
    """By how much Adam's step moves a number, whose moments follow.

    first and second are what the moments have of their mean, at the beginning.
    """
    m = moments[of, c, j] + 0.1 * (g - moments[of, c, j])
    v = moments[of + 1, c, j] + 0.001 * (g * g - moments[of + 1, c, j])
    moments[of, c, j], moments[of + 1, c, j] = m, v
    return size * (m / first) / (math.sqrt(v / second) + 1e-8)


@kernel
def step(
    optimizer, size, gradient, curvature, mean, log_scale, scale, prior, moments, count
):
    """Move mean and log_scale (k, p) by one step; scale follows.

    gradient and curvature are G and C; prior (2, k, p) has means and precisions, and
    moments (4, k, p) are Adam's.
    """
    first, second = 1.0 - 0.9**count, 1.0 - 0.999**count
    k, p = mean.shape
    for c in range(k):
        for j in range(p):
            variance = scale[c, j] * scale[c, j]
            g = gradient[c, j] - prior[1, c, j] * (mean[c, j] - prior[0, c, j])
            turn = 1.0 - variance * (prior[1, c, j] + curvature[c, j])
            if optimizer == ADAM:
                g = adam_change(size, g, first, second, moments, 0, c, j)
                turn = adam_change(size, turn, first, second, moments, 2, c, j)
            else:
                g, turn = change(optimizer, size, variance, g, turn)
            mean[c, j] += g
            log_scale[c, j] += turn
            scale[c, j] = math.exp(log_scale[c, j])


@kernel
def step_on(
    support,
    weight,
    optimizer,
    size,
    gradient,
    curvature,
    mean,
    log_scale,
    scale,
    prior,
    moments,
    visits,
    seen,
):
    """Move the coefficients of a support (s,) only; the arrays of all are (1, p).

    gradient and curvature (s,) estimate G and C given that a coefficient is visited,
    which weight (s,) times as many steps as its visits do: so is the step longer, but
    no longer than half of the way that the posterior expects. Adam's steps are as long
    as ever, and visits (p,) counts them. seen (2, 2, p): the estimates that are zero
    without a visit, of the gradient by means and of the precisions, and their squares,
    are added up.
    """
    for i in range(support.size):
        j = support[i]
        variance = scale[0, j] * scale[0, j]
        g = gradient[i] - prior[1, 0, j] * (mean[0, j] - prior[0, 0, j])
        turn = 1.0 - variance * (prior[1, 0, j] + curvature[i])
        a, b = weight[i] * g, -weight[i] * turn / variance
        seen[0, 0, j] += a
        seen[0, 1, j] += b
        seen[1, 0, j] += a * a
        seen[1, 1, j] += b * b
        visits[j] += 1
        if optimizer == ADAM:
            first, second = 1.0 - 0.9 ** visits[j], 1.0 - 0.999 ** visits[j]
            g = adam_change(size, g, first, second, moments, 0, 0, j)
            turn = adam_change(size, turn, first, second, moments, 2, 0, j)
        else:
            longest = LONGEST if optimizer == NATURAL else LONGEST * variance
            length = min(size * weight[i], max(size, longest))
            g, turn = change(optimizer, length, variance, g, turn)
        mean[0, j] += g
        log_scale[0, j] += turn
        scale[0, j] = math.exp(log_scale[0, j])


@kernel
def remember(family, control, a, memory):
    """Fill what a row (k,) remembers of its predictors, for a control by draws."""
    if control == TAYLOR:
        mean_of(family, a, memory)
    else:
        for c in range(a.size):
            memory[c] = a[c]


@kernel
def exchange(family, control, x, w, memory, now, before, after, totals):
    """Add to totals (2, k, p) what a row's new memory changes, as in Algorithm 1."""
    if control == ANTITHETIC:
        mean_of(family, memory, before)
        mean_of(family, now, after)
    else:
        before, after = memory, now
    k = len(totals[0])
    for c in range(k):
        first = before[c] - after[c]
        second = variance_of(family, after[c]) - variance_of(family, before[c])
        if control == QUADRATURE:
            first, second = now[c] - memory[c], now[k + c] - memory[k + c]
        add_row(x, w * first, w * second, totals[0, c], totals[1, c])


@kernel
def anchor(rows, chunk, likelihood, control, mean, scale, memory, totals):
    """Fill the memory of a chunk (start, stop); add up the totals, Algorithm 2.

    Not that of several classes by nodes, who remember `expected_of_classes`. The tuples
    `rows` and `likelihood` are those of `sweep`; totals (2, k, p).
    """
    X, y, weight = rows
    family, phi, nodes, node_weights = likelihood
    k = len(mean)
    a, spread, m = np.empty(k), np.empty(k), np.empty(k)
    for i in range(chunk[0], chunk[1]):
        x, known = X[i], memory[i]
        w = (weight[i] if weight.size else 1.0) / phi
        for c in range(k):
            a[c] = dot(x, mean[c])
            spread[c] = math.sqrt(dot_squares(x, scale[c]))
        if control != QUADRATURE:
            remember(family, control, a, known)
        if control == ANTITHETIC:
            mean_of(family, a, m)
        for c in range(k):
            if control == QUADRATURE:
                first, second = expected(
                    family, a[0], spread[0], y[i], nodes, node_weights
                )
                known[0], known[1] = first, second
            else:
                at = known[c] if control == TAYLOR else m[c]
                first, second = target_of(family, y[i], c) - at, variance_of(family, at)
            add_row(x, w * first, w * second, totals[0, c], totals[1, c])


@kernel
def sweep(
    rows, visits, likelihood, control, known, state, moves, seen, estimates, exact
):
    """Make steps by Eqs. 4, 5, 9 and 61-67 over the visits; return the steps so far.

    The estimates are Eq. 5 of Wang et al. (2024), the joint control variate, where what
    rows remember is known, and their Eq. 9 where it is not.

    Parameters
    ----------
    rows : tuple of arrays
        X (n, d), y (n,) float64, numbers of classes for several; weight (n,), empty for
        ones.
    visits : tuple
        order, of rows; batch_size; how many rows these stand for in all; noise (rows
        of order, draws, k).
    likelihood : tuple
        family, phi, and the nodes (k, s) and node_weights (s,) of quadrature.
    control : tuple
        Which; whether C is controlled by what Taylor knows of it; reduced: the sums
        over all rows of what rows remember are known, and control the subsampling;
        table: what rows remember of this visit goes to fresh, and what that changes of
        the sums is added to change.
    known : tuple of arrays
        totals (2, k, p) of G and C, memory, fresh, change (2, k, p).
    state : tuple of arrays
        What `step` moves: mean, log_scale, scale, prior, moments.
    moves : tuple
        optimizer, sizes (batches,) of the steps, count of those so far.
    seen : ndarray of shape (2, k, p)
        The estimates of G, and their squares, are added up.
    estimates : ndarray of shape (batches, 2, k, p)
        Where it is not empty, no step is made, and it is filled with G and C of each
        batch at the point.
    exact : ndarray of shape (2, batch_size, k), or None
        Room for expectations of several classes by nodes; without it nothing of these
        is compiled.
    """
    X, y, weight = rows
    order, batch_size, n_rows, noise = visits
    family, phi, nodes, node_weights = likelihood
    control, control_scale, reduced, table = control
    totals, memory, fresh, change = known
    mean, scale = state[0], state[2]
    optimizer, sizes, count = moves
    k, p = mean.shape
    draws = noise.shape[1]
    sums = np.empty((2, k, p))
    a, spread, t, z = np.empty(k), np.empty(k), np.empty(k), np.empty(k)
    there, ahead, behind = np.empty(k), np.empty(k), np.empty(k)
    m, shift, first, second = np.empty(k), np.empty(k), np.empty(k), np.empty(k)
    now, base, target = np.empty(memory.shape[1]), np.empty(k), np.empty(k)
    # Only these control the scales by what is known of all rows.
    of_scales = control == QUADRATURE or (control == TAYLOR and control_scale)
    level = 1.0 if reduced and of_scales else 0.0
    for batch in range(sizes.size):
        start = batch * batch_size
        stop = min(start + batch_size, order.size)
        factor = n_rows / (stop - start)
        sums[:] = 0.0
        if exact is not None:
            some = order[start:stop]
            expected_of_classes(rows, some, mean, scale, nodes, node_weights, exact)
        for at in range(start, stop):
            i = order[at]
            x = X[i]
            w = (weight[i] if weight.size else 1.0) / phi
            for c in range(k if exact is None else 0):
                a[c] = dot(x, mean[c])
                spread[c] = math.sqrt(dot_squares(x, scale[c]))
                first[c] = 0.0
                second[c] = 0.0
            if exact is not None:
                for c in range(k):
                    now[c] = exact[0, at - start, c]
                    now[k + c] = exact[1, at - start, c]
                    first[c] = now[c] - (memory[i, c] if reduced else 0.0)
                    second[c] = now[k + c] - (memory[i, k + c] if reduced else 0.0)
            elif control == QUADRATURE:
                now[0], now[1] = expected(
                    family, a[0], spread[0], y[i], nodes, node_weights
                )
                first[0] = now[0] - (memory[i, 0] if reduced else 0.0)
                second[0] = now[1] - (memory[i, 1] if reduced else 0.0)
            else:
                approximated = control != NONE and not reduced
                if table or approximated:
                    remember(family, control, a, now)
                for c in range(k):
                    target[c] = target_of(family, y[i], c)
                    # Where the approximation is taken, and what it is on average.
                    base[c] = memory[i, c] if reduced else now[c]
                    m[c] = base[c]
                if control == ANTITHETIC:
                    mean_of(family, base, m)
                if approximated:  # its mean, Eqs. 64-67; where reduced, it is in totals
                    for c in range(k):
                        first[c] = target[c] - m[c]
                        second[c] = variance_of(family, m[c]) if of_scales else 0.0
                for s in range(draws):
                    for c in range(k):
                        t[c] = spread[c] * noise[at, s, c]
                        z[c] = a[c] + t[c]
                    mean_of(family, z, there)
                    if control == TAYLOR:  # the gradient of Eq. 61 at b: Eqs. 62, 63
                        variance_times(family, m, t, shift)
                    elif control == ANTITHETIC:
                        for c in range(k):
                            z[c] = base[c] + t[c]
                        mean_of(family, z, ahead)
                        for c in range(k):
                            z[c] = base[c] - t[c]
                        mean_of(family, z, behind)
                        for c in range(k):
                            shift[c] = 0.5 * (ahead[c] - behind[c])
                    for c in range(k):
                        r = target[c] - there[c]
                        error = r if control == NONE else m[c] + shift[c] - there[c]
                        first[c] += error / draws
                        if of_scales:
                            r = error
                        elif control == ANTITHETIC and not reduced:
                            r = 0.5 * (behind[c] - there[c])  # half the pair's
                        if spread[c] > 0.0:
                            second[c] -= r * noise[at, s, c] / spread[c] / draws
            for c in range(k):
                add_row(x, w * first[c], w * second[c], sums[0, c], sums[1, c])
            if table:
                exchange(family, control, x, w, memory[i], now, ahead, behind, change)
                for c in range(now.size):
                    fresh[i, c] = now[c]
        for c in range(k):
            for j in range(p):
                # Eq. 5: `now - then` is what rows have added; the mean is in totals.
                g = controlled_inline(sums[0, c, j], 0.0, totals[0, c, j], factor)
                h = level * totals[1, c, j]
                h = controlled_inline(sums[1, c, j], 0.0, h, factor)
                sums[0, c, j], sums[1, c, j] = g, h
                seen[0, c, j] += g
                seen[1, c, j] += g * g
        if estimates.size:
            estimates[batch] = sums
            continue
        count += 1
        step(optimizer, sizes[batch], sums[0], sums[1], *state, count)
    return count
