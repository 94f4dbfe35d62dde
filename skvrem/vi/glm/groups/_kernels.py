r"""Loops over the rows of groups for the likelihood of a predictor a row.

Rows of a group lie together, between two of `bounds`. The p coefficients of a row's
predictor are q of its group and then those that groups share; `order` has the number of
each one's column, and the number of columns for the intercept; `origin` (p,), in that
order, is taken from the columns. A row has a target y, a number of trials n and an
offset; its log-likelihood :math:`\ell` at the predictor
:math:`\eta`, but for what does not depend on it, is

.. math:: y \eta - n \log(1 + e^\eta), \qquad y \eta - n e^\eta, \qquad
          -\tfrac12 n (y - \eta)^2

under the codes 0, 1 and 2. With the slope :math:`\ell'` and the curvature
:math:`-\ell''`, :math:`g = \sum \ell' x` and :math:`H = -\sum \ell'' x x^T`.

Where one coefficient differs by group, q = 1, it can be integrated out: z is normal
about :math:`\mu` with the deviation :math:`\tau`, T its precision, and :math:`b =
(\mu, \beta)` is what groups share. Given both,

.. math:: f(z, b, t) = \sum_n \ell_n(\eta_n) - \tfrac12 T (z - \mu)^2 - t, \qquad
          F(b, t) = \log \int e^f dz - \tfrac12 \log 2 \pi, \qquad t = \log \tau ,

and expectations are those of z, of the density :math:`\propto e^f`. With the score
:math:`s = \partial_b f`, :math:`\partial_b F = E s` (Fisher) and
:math:`\partial_b^2 F = E \partial_b^2 f + \mathrm{cov}(s)` (Louis).

Integrals are sums over nodes a step apart, on both sides of the mode of f until the
density is next to nothing. Of analytic functions such sums converge geometrically in
the step (Trefethen and Weideman, 2014), however skew they are; as many nodes of Gauss
and Hermite about the mode miss the far side of a group whose rows are all of one class,
or counts of zero.
"""

import math

import numpy as np

from skvrem.utils._jit import CONTRACT, REDUCE, inner_kernel, kernel
from skvrem.utils._math import exp, log

# Steps to the mode of a group at most, and what the last one may gain, in nats: nodes
# need not lie about it exactly, but where should not depend on where it is sought.
STEPS, NEAR = 60, 1e-8
# Between nodes, in the predictors of rows, at most: exp(-e^eta), which cuts off the
# density where counts are zero, is then integrated to within 1e-6 of itself. Densities
# of nodes, as shares of the mode's, that are left out; and nodes at most, for more of
# which the step is doubled.
APART, LEAST, MOST = 0.6, 1e-8, 1024
# Nodes that are looked at together: a vector or two of them.
WIDE = 16
# Predictors of counts beyond it are it: the exponential has no larger result.
LARGEST = 709.0
# Without counts of references and calls, which cost more than the rows of a group.
INLINED = {"fastmath": CONTRACT, "_nrt": False, "apart": False, "forceinline": True}


@inner_kernel(**INLINED)
def _open_row(X, i, order, origin, x):
    """Fill the row i, seen from the origin, in the order of the coefficients."""
    d = X.shape[1]
    for j in range(order.size):
        x[j] = X[i, order[j]] - origin[j] if order[j] < d else 1.0


@inner_kernel(**INLINED)
def _predictor(x, z, b, eta):
    """Return a predictor of coefficients of a group and of shared ones."""
    q = z.size
    for j in range(q):
        eta += x[j] * z[j]
    for j in range(b.size):
        eta += x[q + j] * b[j]
    return eta


@inner_kernel(**INLINED)
def _logistic(y, n, eta):
    """As `_slopes`, of the code 0."""
    small = exp(-abs(eta))
    part = 1.0 / (1.0 + small)
    rest = small * part
    p, left = (part, rest) if eta >= 0.0 else (rest, part)
    value = y * eta - n * (max(eta, 0.0) + log(1.0 + small))
    curvature = n * part * rest
    return value, y - n * p, curvature, curvature * (left - p)


@inner_kernel(**INLINED)
def _counts(y, n, eta):
    """As `_slopes`, of the code 1."""
    rate = n * exp(min(eta, LARGEST))
    return y * eta - rate, y - rate, rate, rate


@inner_kernel(**INLINED)
def _slopes(code, y, n, eta):
    """Return a row's log-likelihood, slope, curvature, and the curvature's slope."""
    if code == 0:
        return _logistic(y, n, eta)
    if code == 1:
        return _counts(y, n, eta)
    away = y - eta
    return -0.5 * n * away * away, n * away, n, 0.0


@inner_kernel(**INLINED)
def _slopes_at_nodes(code, y, n, eta, n_nodes, value, slope, bent, beyond):
    """Fill what `_slopes` returns of a row of codes 0 and 1, by vectors of nodes."""
    if code == 0:
        for k in range(n_nodes):
            value[k], slope[k], bent[k], beyond[k] = _logistic(y, n, eta[k])
    else:
        for k in range(n_nodes):
            value[k], slope[k], bent[k], beyond[k] = _counts(y, n, eta[k])


@kernel(fastmath=CONTRACT)
def fill_local(
    X, order, origin, y, trials, offset, code, bounds, first, last, Z, B,
    value, gradient, hessian, cross, of_shared, within,
):  # fmt: skip
    """Fill log-likelihoods of groups first..last, their gradients and minus Hessians.

    X (n, d), order, origin (p,), y, trials (n,), offset (n,) or empty, bounds
    (n_groups + 1,); coefficients Z (s, n_groups, q) and B (s, p - q) of s points at
    once; value (s, n_groups), gradient (s, n_groups, q), hessian (s, n_groups, q, q),
    cross (s, n_groups, q, p - q); of_shared (s, p - q) and within (s, p - q, p - q) are
    sums over these groups.
    """
    n_points, _, q = Z.shape
    p = order.size
    x, slope, curve = np.ones(p), np.empty(p), np.empty((p, p))
    for s in range(n_points):
        slope[:] = 0.0
        curve[:] = 0.0
        for m in range(first, last):
            total = 0.0
            slope[:q] = 0.0
            curve[:q] = 0.0
            for i in range(bounds[m], bounds[m + 1]):
                _open_row(X, i, order, origin, x)
                eta = _predictor(x, Z[s, m], B[s], offset[i] if offset.size else 0.0)
                one, by, bent, _ = _slopes(code, y[i], trials[i], eta)
                total += one
                for j in range(p):
                    slope[j] += by * x[j]
                    much = bent * x[j]
                    for h in range(j, p):
                        curve[j, h] += much * x[h]
            value[s, m] = total
            for j in range(q):
                gradient[s, m, j] = slope[j]
                for h in range(j, q):
                    hessian[s, m, j, h] = hessian[s, m, h, j] = curve[j, h]
                for h in range(q, p):
                    cross[s, m, j, h - q] = curve[j, h]
        for j in range(q, p):
            of_shared[s, j - q] = slope[j]
            for h in range(j, p):
                within[s, j - q, h - q] = within[s, h - q, j - q] = curve[j, h]


@kernel(fastmath=CONTRACT)
def _variance(x, own, cross, shared):
    """Return the variance of a row's predictor."""
    q, total = own.shape[0], 0.0
    for j in range(q):
        part = 0.0
        for h in range(q):
            part += own[j, h] * x[h]
        for h in range(shared.shape[0]):
            part += 2.0 * cross[j, h] * x[q + h]
        total += x[j] * part
    for j in range(shared.shape[0]):
        part = 0.0
        for h in range(shared.shape[0]):
            part += shared[j, h] * x[q + h]
        total += x[q + j] * part
    return total


@kernel(fastmath=CONTRACT)
def fill_skewness(
    X, order, origin, y, trials, offset, code, bounds, first, last, Z, B, own, cross,
    shared, out, of_shared,
):  # fmt: skip
    r"""Fill the gradient of tr(Sigma H) by coefficients of groups and shared ones.

    A row adds :math:`-\ell''' x^T \Sigma x \, x`. Covariances own (s, n_groups, q, q),
    cross (s, n_groups, q, p - q), shared (s, p - q, p - q); out (s, n_groups, q) and
    of_shared (s, p - q), a sum over these groups; the others as in `fill_local`.
    """
    n_points, _, q = Z.shape
    p = order.size
    x = np.ones(p)
    for s in range(n_points):
        for j in range(p - q):
            of_shared[s, j] = 0.0
        for m in range(first, last):
            for j in range(q):
                out[s, m, j] = 0.0
            for i in range(bounds[m], bounds[m + 1]):
                _open_row(X, i, order, origin, x)
                eta = _predictor(x, Z[s, m], B[s], offset[i] if offset.size else 0.0)
                bent = _slopes(code, y[i], trials[i], eta)[3]
                bent *= _variance(x, own[s, m], cross[s, m], shared[s])
                for j in range(q):
                    out[s, m, j] += bent * x[j]
                for j in range(q, p):
                    of_shared[s, j - q] += bent * x[j]


@kernel
def fill_moments(
    X, order, origin, place, mean, own, cross, shared, B, inner, a, v
):  # fmt: skip
    """Fill means a (n,) and variances v (n,) of the predictors of rows.

    place (n,) numbers of groups, of which mean (n_groups, q), own (n_groups, q, q) and
    cross (n_groups, q, p - q) are; or -1 for one that has not been seen, whose
    coefficients have the means B (p,), the covariance shared (p, p) and the variances
    inner (q,) about them.
    """
    q, p = inner.size, order.size
    x = np.ones(p)
    none, whole = np.zeros((0, 0)), np.zeros((0, p))
    for i in range(place.size):
        _open_row(X, i, order, origin, x)
        m = place[i]
        if m >= 0:
            a[i] = _predictor(x, mean[m], B[q:], 0.0)
            v[i] = _variance(x, own[m], cross[m], shared[q:, q:])
        else:
            a[i] = _predictor(x, B[:0], B, 0.0)
            v[i] = _variance(x, none, whole, shared)
            for j in range(q):
                v[i] += inner[j] * x[j] * x[j]


@inner_kernel(**INLINED)
def _open_group(X, order, origin, offset, begin, end, b, x, own, base):
    """Fill what rows begin..end multiply the group's coefficient by, and the rest."""
    none = x[:0]
    for i in range(begin, end):
        _open_row(X, i, order, origin, x)
        own[i - begin] = x[0]
        eta = offset[i] if offset.size else 0.0
        base[i - begin] = _predictor(x[1:], none, b[1:], eta)


@inner_kernel(**INLINED)
def _mode(own, base, y, trials, code, begin, end, mu, T, z):
    """Return the mode of f, sought from z, f + t there, and its curvature."""
    last, step, curvature = -math.inf, 0.0, T
    for _ in range(STEPS):
        slope, curvature = T * (mu - z), T
        value = -0.5 * T * (z - mu) * (z - mu)
        for i in range(begin, end):
            x = own[i - begin]
            eta = base[i - begin] + x * z
            one, by, bent, _ = _slopes(code, y[i], trials[i], eta)
            value += one
            slope += by * x
            curvature += bent * x * x
        if not value >= last:  # the step was too long
            step *= 0.5
            z -= step
            continue
        last, step = value, slope / curvature
        if step * slope < NEAR:
            break
        z += step
    return z, last, curvature


@inner_kernel(**INLINED | {"fastmath": REDUCE})
def _mean(share, a, n):
    """Return the mean of what n nodes say."""
    total = 0.0
    for k in range(n):
        total += share[k] * a[k]
    return total


@inner_kernel(**INLINED | {"fastmath": REDUCE})
def _mean_product(share, a, b, n):
    """Return the mean of the product of what n nodes say."""
    total = 0.0
    for k in range(n):
        total += share[k] * a[k] * b[k]
    return total


@inner_kernel(**INLINED)
def _add_nodes(
    X, order, origin, y, trials, code, begin, end, mu, T, z, apart, own, base, x, top,
    at, share, scores, first, bent,
):  # fmt: skip
    """Fill WIDE nodes from the first on, z and what lies apart from it.

    Without what follows the first whose density is next to nothing. Returns how many
    nodes there are; bent (n + 5, WIDE) is filled with the curvatures of rows there, and
    is room behind them.
    """
    p = x.size
    value, eta, one, slope, beyond = bent[-5], bent[-4], bent[-3], bent[-2], bent[-1]
    for k in range(WIDE):
        place = z + k * apart
        at[first + k] = place
        value[k] = -0.5 * T * (place - mu) * (place - mu)
        scores[0, first + k] = T * (place - mu)
    for j in range(1, p):
        for k in range(WIDE):
            scores[j, first + k] = 0.0
    for i in range(begin, end):
        for k in range(WIDE):
            eta[k] = base[i - begin] + own[i - begin] * at[first + k]
        row = code, y[i], trials[i], eta, WIDE
        _slopes_at_nodes(*row, one, slope, bent[i - begin], beyond)
        for k in range(WIDE):
            value[k] += one[k]
        if p > 1:
            _open_row(X, i, order, origin, x)
            for j in range(1, p):
                for k in range(WIDE):
                    scores[j, first + k] += slope[k] * x[j]
    for k in range(WIDE):
        share[first + k] = exp(min(value[k] - top, LARGEST))
    n_nodes = first
    while n_nodes < first + WIDE and share[n_nodes] > LEAST:
        n_nodes += 1
    return n_nodes


@inner_kernel(**INLINED)
def _integrate(
    X, order, origin, y, trials, code, begin, end, mu, T, z, own, base, x, at, share,
    scores, bent, curves,
):  # fmt: skip
    r"""Fill nodes at, their shares, and centred scores by b.

    at and share (MOST,), scores (p, MOST); curves (n,) is filled with :math:`-E
    \ell''` of each row, the others are room, x (p,) with the mean of scores. Returns
    F + t, the mean of z, and how many nodes there are.
    """
    p = x.size
    z, top, curvature = _mode(own, base, y, trials, code, begin, end, mu, T, z)
    apart, total, n_nodes = 0.8 / math.sqrt(curvature), 0.0, MOST
    for i in range(begin, end):
        apart = min(apart, APART / max(abs(own[i - begin]), 1e-300))
    while n_nodes + WIDE > MOST:  # were too few, or there are none yet
        total, n_nodes = 0.0, 0
        curves[: end - begin] = 0.0
        for side in range(2):
            step = apart if side == 0 else -apart
            place, here, more = z + side * step, n_nodes, True
            while more and here + WIDE <= MOST:
                n_nodes = _add_nodes(
                    X, order, origin, y, trials, code, begin, end, mu, T, place, step,
                    own, base, x, top, at, share, scores, here, bent,
                )  # fmt: skip
                for k in range(here, n_nodes):
                    total += share[k]
                for i in range(end - begin):
                    for k in range(here, n_nodes):
                        curves[i] += share[k] * bent[i, k - here]
                place += WIDE * step
                more = n_nodes == here + WIDE
                here = n_nodes
        apart *= 2.0
    apart *= 0.5
    for i in range(end - begin):
        curves[i] /= total
    for k in range(n_nodes):
        share[k] /= total
    for j in range(p):
        x[j] = _mean(share, scores[j], n_nodes)
        for k in range(n_nodes):
            scores[j, k] -= x[j]
    z = _mean(share, at, n_nodes)
    return top + math.log(total * apart / math.sqrt(2.0 * math.pi)), z, n_nodes


@kernel
def _room(bounds, first, last, p):
    """Return what `_integrate` fills, and works in, of the largest of some groups."""
    most = 0
    for m in range(first, last):
        most = max(most, bounds[m + 1] - bounds[m])
    x, own, base = np.ones(p), np.empty(most), np.empty(most)
    at, share, scores = np.empty(MOST), np.empty(MOST), np.empty((p, MOST))
    return x, own, base, at, share, scores, np.empty((most + 5, WIDE)), np.empty(most)


@kernel(fastmath=CONTRACT)
def fill_integrals(
    X, order, origin, y, trials, offset, code, bounds, first, last, log_tau, b, Z,
    value, mean, variance, cross, of_shared, within,
):  # fmt: skip
    r"""Fill F of groups first..last, moments of coefficients, and sums over groups.

    log_tau (s,), b (s, p) and Z (s, n_groups), where modes are sought, of s points at
    once; value, mean and variance (s, n_groups), cross (s, n_groups, p - 1),
    :math:`\mathrm{cov}(z, s_\beta)`; of_shared (s, p - 1) and within (s, p - 1, p - 1),
    :math:`\partial_\beta F` and :math:`-\partial_\beta^2 F`, are sums over these
    groups.
    """
    n_points, p = b.shape
    x, own, base, at, share, scores, bends, curves = _room(bounds, first, last, p)
    for s in range(n_points):
        T = math.exp(-2.0 * log_tau[s])
        for m in range(first, last):
            begin, end, mu = bounds[m], bounds[m + 1], b[s, 0]
            _open_group(X, order, origin, offset, begin, end, b[s], x, own, base)
            found, z, n_nodes = _integrate(
                X, order, origin, y, trials, code, begin, end, mu, T, Z[s, m], own,
                base, x, at, share, scores, bends, curves,
            )  # fmt: skip
            value[s, m], mean[s, m] = found - log_tau[s], z
            for j in range(p - 1):
                of_shared[s, j] += x[1 + j]
            for i in range(begin, end):
                _open_row(X, i, order, origin, x)
                for j in range(p - 1):
                    much = curves[i - begin] * x[1 + j]
                    for h in range(p - 1):
                        within[s, j, h] += much * x[1 + h]
            for k in range(n_nodes):
                at[k] -= z
            variance[s, m] = _mean_product(share, at, at, n_nodes)
            for j in range(p - 1):
                ahead = scores[1 + j]
                cross[s, m, j] = _mean_product(share, at, ahead, n_nodes)
                for h in range(p - 1):
                    beside = scores[1 + h]
                    within[s, j, h] -= _mean_product(share, ahead, beside, n_nodes)


@kernel(fastmath=CONTRACT)
def fill_bends(
    X, order, origin, y, trials, offset, code, bounds, first, last, log_tau, b, Z,
    covariance, bent, by_mean, by_scale, mixed,
):  # fmt: skip
    r"""Fill what the curvature of F does where b has a covariance (s, p, p).

    With :math:`\Sigma` the covariance, :math:`\tilde s = s - E s` and
    :math:`c = \mathrm{tr}(\Sigma \partial_b^2 f) + \tilde s^T \Sigma \tilde s`, of
    which :math:`E c = \mathrm{tr}(\Sigma \partial_b^2 F)` and :math:`\mathrm{cov}(z, c)
    = \mathrm{tr}(\Sigma \partial_b^2 E z)`,

    .. math:: \partial_\theta \mathrm{tr}(\Sigma \partial_b^2 F) = E(\mathrm{tr}(\Sigma
              \partial_\theta \partial_b^2 f) + 2 \tilde s^T \Sigma \partial_\theta s)
              + \mathrm{cov}(c, \partial_\theta f) .

    bent (s, n_groups) is :math:`\mathrm{tr}(\Sigma \partial_b^2 E z)`; sums over these
    groups are by_mean (s, p) and by_scale (s,), the gradient by b and by t, and mixed
    (s, p), :math:`\partial_b \partial_t F`. The others are as in `fill_integrals`.
    """
    n_points, p = b.shape
    x, own, base, at, share, scores, bends, curves = _room(bounds, first, last, p)
    room = np.empty((8, MOST))
    c, more, square, eta = room[0], room[1], room[2], room[3]
    curve, beyond, one, slope = room[4], room[5], room[6], room[7]
    turned = np.empty((p, MOST))
    for s in range(n_points):
        T, S = math.exp(-2.0 * log_tau[s]), covariance[s]
        for m in range(first, last):
            begin, end, mu = bounds[m], bounds[m + 1], b[s, 0]
            _open_group(X, order, origin, offset, begin, end, b[s], x, own, base)
            _, z, n_nodes = _integrate(
                X, order, origin, y, trials, code, begin, end, mu, T, Z[s, m], own,
                base, x, at, share, scores, bends, curves,
            )  # fmt: skip
            c[:n_nodes] = -T * S[0, 0]
            for j in range(p):
                turned[j, :n_nodes] = 0.0
                for h in range(p):
                    for k in range(n_nodes):
                        turned[j, k] += S[j, h] * scores[h, k]
                for k in range(n_nodes):
                    c[k] += scores[j, k] * turned[j, k]
            for i in range(begin, end):
                _open_row(X, i, order, origin, x)
                wide = 0.0
                for j in range(1, p):
                    for h in range(1, p):
                        wide += x[j] * S[j, h] * x[h]
                more[:n_nodes] = 0.0
                for j in range(1, p):
                    for k in range(n_nodes):
                        more[k] += x[j] * turned[j, k]
                for k in range(n_nodes):
                    eta[k] = base[i - begin] + own[i - begin] * at[k]
                row = code, y[i], trials[i], eta, n_nodes
                _slopes_at_nodes(*row, one, slope, curve, beyond)
                for k in range(n_nodes):
                    c[k] -= wide * curve[k]
                    more[k] = wide * beyond[k] + 2.0 * more[k] * curve[k]
                much = _mean(share, more, n_nodes)
                for j in range(1, p):
                    by_mean[s, j] -= much * x[j]
            # Scores are centred, so that c need not be.
            for j in range(p):
                by_mean[s, j] += _mean_product(share, scores[j], c, n_nodes)
            for k in range(n_nodes):
                away = at[k] - mu
                at[k] -= z
                more[k] = T * away
                square[k] = T * away * away
            bent[s, m] = _mean_product(share, at, c, n_nodes)
            mixed[s, 0] -= 2.0 * T * (z - mu)
            for j in range(p):
                mixed[s, j] += _mean_product(share, scores[j], square, n_nodes)
            by_scale[s] += 2.0 * T * S[0, 0]
            by_scale[s] -= 4.0 * _mean_product(share, turned[0], more, n_nodes)
            middle = _mean(share, square, n_nodes)
            for k in range(n_nodes):
                square[k] -= middle
            by_scale[s] += _mean_product(share, square, c, n_nodes)
