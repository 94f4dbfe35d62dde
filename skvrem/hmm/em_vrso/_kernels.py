r"""Stochastic M steps row by row, for Gaussian emissions with diagonal covariances.

Equation numbers are those of Sidrow et al. (2023). Free coordinates u (p) are, one
after another, the logarithms of delta_i / delta_0 (i > 0), of A_ij / A_ii (j != i),
the means, and the logarithms of the variances less `reg`. Rows z are standardised:
means are in the same unit, and variances are (exp(u) + reg) unit, with `unit` (d).

`begins` and `ends` (n_rows) say where sequences do. Messages alpha, beta (n_rows, n)
and posteriors gamma (n_rows, n), xi (n_rows, n * n; of the pair that ends in the row)
sum to 1 in each row. The constrained parameters go together: delta (n), A (n * n),
variances (n * d) and the constants of the log-densities (n).
"""

import numpy as np

from skvrem.utils._control import controlled_inline
from skvrem.utils._jit import CONTRACT, kernel
from skvrem.utils._math import exp, log

# Posteriors below count as none, gradients below are not searched along; what a loss
# may be off, relatively.
NONE, SHORT, ROUNDING = 1e-12, 1e-8, 1e-14
MOST_DOUBLINGS = 60


@kernel
def _take(table, t, out):
    """Copy row t: a view of it costs more, here and in `_put`."""
    for i in range(out.size):
        out[i] = table[t, i]


@kernel
def _put(row, table, t):
    for i in range(row.size):
        table[t, i] = row[i]


@kernel
def _softmax(u, at, n, own, out, to):
    """Probabilities from n - 1 log-ratios to entry `own`."""
    top = 0.0
    for k in range(n - 1):
        top = max(top, u[at + k])
    total = 0.0
    for k in range(n):
        value = -top if k == own else u[at + k - (k > own)] - top
        out[to + k] = exp(value)
        total += out[to + k]
    for k in range(n):
        out[to + k] /= total


@kernel
def constrained(n, d):
    """Room for the constrained parameters."""
    return np.empty(n), np.empty(n * n), np.empty(n * d), np.empty(n)


@kernel
def natural(u, n, d, reg, unit, out):
    """Fill the constrained parameters."""
    delta, transitions, variance, constant = out
    _softmax(u, 0, n, 0, delta, 0)
    for i in range(n):
        _softmax(u, n - 1 + i * (n - 1), n, i, transitions, i * n)
    at = (n - 1) * (n + 1) + n * d
    for i in range(n):
        total = 0.0
        for j in range(d):
            variance[i * d + j] = (exp(u[at + i * d + j]) + reg) * unit[j]
            total += log(variance[i * d + j])
        constant[i] = -0.5 * total


@kernel
def _densities(Z, t, u, n, d, at_u, out):
    """Densities of row t, relative to the largest."""
    _, _, variance, constant = at_u
    at, top = (n - 1) * (n + 1), -np.inf
    for i in range(n):
        total = 0.0
        for j in range(d):
            x = Z[t, j] - u[at + i * d + j]
            total += x * x / variance[i * d + j]
        out[i] = constant[i] - 0.5 * total
        top = max(top, out[i])
    for i in range(n):
        out[i] = exp(out[i] - top)


@kernel
def _normalise(x, n):
    """Scale to sum 1; false where that is impossible."""
    total = 0.0
    for i in range(n):
        total += x[i]
    if not total > 0.0:
        return False
    for i in range(n):
        x[i] /= total
    return True


@kernel
def _alpha(begins, t, alpha, delta, transitions, n, b, out):
    """Filtered probabilities from those of the row before (Eq. 19)."""
    for j in range(n):
        pred = delta[j]
        if not begins[t]:
            pred = 0.0
            for i in range(n):
                pred += alpha[t - 1, i] * transitions[i * n + j]
        out[j] = pred * b[j]
    return _normalise(out, n)


@kernel
def _beta(ends, t, beta, transitions, n, after, out):
    """Backward message from that of the next row, with densities `after` (Eq. 20)."""
    for i in range(n):
        total = 1.0
        if not ends[t]:
            total = 0.0
            for j in range(n):
                total += transitions[i * n + j] * after[j] * beta[t + 1, j]
        out[i] = total
    return _normalise(out, n)


@kernel
def _posteriors(begins, t, alpha, beta, transitions, n, b, gamma, xi):
    """Posteriors of row t and of the pair that ends in it (Eqs. 21, 22)."""
    for i in range(n):
        gamma[i] = alpha[t, i] * beta[t, i]
    good = _normalise(gamma, n)
    if begins[t]:
        for i in range(n * n):
            xi[i] = 0.0
        return good
    for i in range(n):
        for j in range(n):
            xi[i * n + j] = alpha[t - 1, i] * transitions[i * n + j] * b[j] * beta[t, j]
    return _normalise(xi, n * n) and good


@kernel(fastmath=CONTRACT)
def messages(Z, begins, ends, u, reg, unit, n, alpha, beta, gamma, xi):
    """The full E step: fill messages and posteriors of all rows (Eqs. 5-8)."""
    n_rows, d = Z.shape
    at_u, b = constrained(n, d), np.empty(n)
    now, pair = np.empty(n), np.empty(n * n)
    natural(u, n, d, reg, unit, at_u)
    delta, transitions, _, _ = at_u
    for t in range(n_rows):
        _densities(Z, t, u, n, d, at_u, b)
        _alpha(begins, t, alpha, delta, transitions, n, b, now)
        _put(now, alpha, t)
    for t in range(n_rows - 1, -1, -1):
        if not ends[t]:
            _densities(Z, t + 1, u, n, d, at_u, b)
        _beta(ends, t, beta, transitions, n, b, now)
        _put(now, beta, t)
    for t in range(n_rows):
        _densities(Z, t, u, n, d, at_u, b)
        _posteriors(begins, t, alpha, beta, transitions, n, b, now, pair)
        _put(now, gamma, t)
        _put(pair, xi, t)


@kernel(fastmath=CONTRACT)
def _gradient(Z, t, first, gamma, xi, u, at_u, reg, unit, out):
    """Gradient of F_t = G_t + H_t (Eqs. 31-33) in the coordinates."""
    delta, transitions, variance, _ = at_u
    n, d = delta.size, unit.size
    for k in range(n - 1):
        out[k] = delta[k + 1] - gamma[k + 1] if first else 0.0
    at = n - 1
    for i in range(n):
        total = 0.0
        for j in range(n):
            total += xi[i * n + j]
        for j in range(n):
            if j != i:
                out[at] = total * transitions[i * n + j] - xi[i * n + j]
                at += 1
    for i in range(n):
        for j in range(d):
            k = i * d + j
            x = Z[t, j] - u[at + k]
            precision = 1.0 / variance[k]
            out[at + k] = -gamma[i] * x * precision
            # Only what exceeds reg moves with the coordinate.
            moves = 1.0 - reg * unit[j] * precision
            out[at + n * d + k] = 0.5 * gamma[i] * moves * (1.0 - x * x * precision)


@kernel(fastmath=CONTRACT)
def _emission_loss(Z, t, gamma, u, g, scale, n, d, reg, unit):
    """G_t at u - scale g."""
    at, loss = (n - 1) * (n + 1), 0.0
    for i in range(n):
        if gamma[i] > NONE:
            total = 0.0
            for j in range(d):
                k = at + i * d + j
                x = Z[t, j] - u[k] + scale * g[k]
                k += n * d
                value = (exp(u[k] - scale * g[k]) + reg) * unit[j]
                total += log(value) + x * x / value
            loss += 0.5 * gamma[i] * total
    return loss


@kernel(fastmath=CONTRACT)
def _row_loss(u, g, scale, at, n, own, counts, start):
    """Minus a sum of counts times log-probabilities, at u - scale g."""
    top, total = 0.0, 0.0
    for k in range(n - 1):
        top = max(top, u[at + k] - scale * g[at + k])
    norm, linear = exp(-top), 0.0
    for k in range(n):
        total += counts[start + k]
        if k != own:
            i = at + k - (k > own)
            value = u[i] - scale * g[i]
            norm += exp(value - top)
            linear += counts[start + k] * value
    return total * (top + log(norm)) - linear


@kernel(fastmath=CONTRACT)
def _chain_loss(first, gamma, xi, u, g, scale, n):
    """H_t at u - scale g."""
    if first:
        return _row_loss(u, g, scale, 0, n, 0, gamma, 0)
    loss = 0.0
    for i in range(n):
        total = 0.0
        for j in range(n):
            total += xi[i * n + j]
        if total > NONE:
            at = n - 1 + i * (n - 1)
            loss += _row_loss(u, g, scale, at, n, i, xi, i * n)
    return loss


@kernel(fastmath=CONTRACT)
def _search(Z, t, first, gamma, xi, u, g, cut, n, d, reg, unit, lipschitz):
    """Double the Lipschitz estimates of H_t and G_t until Eq. 30 holds."""
    for part in range(2):
        start, stop = (0, cut) if part == 0 else (cut, u.size)
        square = 0.0
        for k in range(start, stop):
            square += g[k] * g[k]
        if square < SHORT * SHORT:
            continue
        here = 0.0
        for trial in range(MOST_DOUBLINGS):
            scale = 0.0 if trial == 0 else 1.0 / lipschitz[part]
            if part == 0:
                loss = _chain_loss(first, gamma, xi, u, g, scale, n)
            else:
                loss = _emission_loss(Z, t, gamma, u, g, scale, n, d, reg, unit)
            if trial == 0:
                here = loss
            elif loss <= here - 0.5 * scale * square + ROUNDING * abs(here):
                break
            else:
                lipschitz[part] *= 2.0


@kernel(fastmath=CONTRACT)
def fill_table(Z, begins, gamma, xi, u, reg, unit, table):
    """Fill the gradients of all rows (n_rows, p)."""
    n, d = gamma.shape[1], unit.size
    at_u = constrained(n, d)
    natural(u, n, d, reg, unit, at_u)
    for t in range(Z.shape[0]):
        _gradient(Z, t, begins[t], gamma[t], xi[t], u, at_u, reg, unit, table[t])


@kernel(fastmath=CONTRACT)
def sweep(
    Z,
    begins,
    ends,
    order,
    partial,
    sizes,
    mean,
    u0,
    gamma0,
    xi0,
    table,
    fresh,
    reg,
    unit,
    gamma,
    xi,
    alpha,
    beta,
    lipschitz,
    u,
    estimates,
):
    """Algorithm 4: steps of some sizes for rows, from `u` on; return how many failed.

    Gradients (Eqs. 31-35) follow Eq. 23, with the `mean` (p) of those that are known:
    by a `table` that is not empty (SAGA; Eqs. 24 and 25, but that what the visits of an
    epoch see goes to `fresh`), or else by the coordinates u0 and posteriors gamma0, xi0
    of the anchor, at which they are made again (SVRG). With `partial` the row's
    messages (Eqs. 19, 20) and posteriors (Eqs. 21, 22) are renewed first. `lipschitz`
    (2) are estimates for transitions and emissions. No step is made where `estimates`
    (m, p) is not empty: it is filled with what the steps would follow, for tests.
    """
    n_rows, d = Z.shape
    n = alpha.shape[1]
    p, cut = u.size, (n - 1) * (n + 1)
    saga = table.size > 0
    shrink = exp(-log(2.0) / n_rows)
    at_u, at_u0 = constrained(n, d), constrained(n, d)
    natural(u0, n, d, reg, unit, at_u0)
    delta, transitions, _, _ = at_u
    b, now, gamma_t, xi_t = np.empty(n), np.empty(n), np.empty(n), np.empty(n * n)
    g, old = np.empty(p), np.empty(p)
    n_failed = 0
    for m in range(order.size):
        t = order[m]
        first = begins[t]
        if saga:
            _take(table, t, old)
        else:
            _take(gamma0, t, gamma_t)
            _take(xi0, t, xi_t)
            _gradient(Z, t, first, gamma_t, xi_t, u0, at_u0, reg, unit, old)
        natural(u, n, d, reg, unit, at_u)
        if partial:
            if not ends[t]:
                _densities(Z, t + 1, u, n, d, at_u, b)
            if _beta(ends, t, beta, transitions, n, b, now):
                _put(now, beta, t)
            _densities(Z, t, u, n, d, at_u, b)
            if _alpha(begins, t, alpha, delta, transitions, n, b, now):
                _put(now, alpha, t)
            if not _posteriors(
                begins, t, alpha, beta, transitions, n, b, gamma_t, xi_t
            ):
                n_failed += 1  # the row is impossible for the while
                if saga:
                    _put(old, fresh, t)
                continue
        else:
            _take(gamma, t, gamma_t)
            _take(xi, t, xi_t)
        _gradient(Z, t, first, gamma_t, xi_t, u, at_u, reg, unit, g)
        for k in range(p):
            old[k] = controlled_inline(g[k], old[k], mean[k], 1.0)
        if estimates.size:
            for k in range(p):
                estimates[m, k] = old[k]
            continue
        _search(Z, t, first, gamma_t, xi_t, u, g, cut, n, d, reg, unit, lipschitz)
        length = sizes[m] / (3.0 * lipschitz[0])
        for k in range(cut):
            u[k] -= length * old[k]
        length = sizes[m] / (3.0 * lipschitz[1])
        for k in range(cut, p):
            u[k] -= length * old[k]
        if saga:
            _put(g, fresh, t)
        lipschitz[0] *= shrink
        lipschitz[1] *= shrink
    return n_failed
