r"""Stochastic M steps row by row, for all models whose parts have kernels of rows.

Equation numbers are those of Sidrow et al. (2023). Coordinates u are free ones, p of
them, those of the hidden chain before those of the states; behind them stand constants,
so that what is not free has a place in u too.

- Rows: Z (n_rows, n_columns) is what densities take; `begins` and `ends` (n_rows) say
  where sequences do; `which` (n_rows) is the matrix of transitions that leads into a
  row, `design` (n_rows, n_inputs) what its logits depend on, `weight` (n_rows) what a
  row counts where that is not 1.
- The chain: logits of transitions are products of the design with the coordinates at
  `places` (n_matrices * n * n * n_inputs), those of first states stand at `first` (n);
  `fixed` (n_matrices * n * n) probabilities leave `rest` (n_matrices * n) to the
  others; half the squares of the first coordinates times `ridge` are a penalty.
- The states: `pieces`, `constants` and slots of ``emissions/_kernels_rows.py``, which
  are places too.

Messages alpha, beta (n_rows, n), posteriors gamma (n_rows, n_parts) of states, or of
their components, and xi (n_rows, n * n; of the pair that ends in the row) sum to 1 in
each row. What belongs to a point: v and w, the coordinates of pieces and what is
derived of them; `shares` (n * n), the softmax of the logits into the row, and `into`,
its probabilities; `delta` (n) of first states. Arguments are plain arrays: taking them
out of tuples, or views of rows, costs more than a step. What has the code of all
families and is called in several places is `LEAN`: inlined, it takes twice as long to
compile and no less to run.
"""

import numpy as np

from skvrem.hmm.em_vrso._kernels_search import search_chain, search_states
from skvrem.hmm.emissions._kernels_rows import (
    INLINED,
    LEAN,
    ONE,
    ZERO,
    N,
    add_log_densities,
    add_slopes,
    derive,
)
from skvrem.utils._control import controlled_inline
from skvrem.utils._jit import CONTRACT, inner_kernel, kernel
from skvrem.utils._math import exp, log


@inner_kernel(**INLINED)
def _take(table, t, out):
    """Copy row t: a view of it costs more, here and in `_put`."""
    for i in range(out.size):
        out[i] = table[t, i]


@inner_kernel(**INLINED)
def _put(row, table, t):
    for i in range(table.shape[1]):
        table[t, i] = row[i]


@inner_kernel(**INLINED)
def _softmax(u, places, at, n_rows, n, n_inputs, design, t, out):
    """Rows of probabilities from logits (Eq. 2), which begin at a place."""
    k, row, size = np.uint64(at), np.uint64(t), np.uint64(n)
    for i in range(n_rows):
        top, own = -np.inf, np.uint64(i * n)
        for j in range(size):
            value = u[places[k]]
            for p in range(np.uint64(1), np.uint64(n_inputs)):
                value += u[places[k + p]] * design[row, p]
            k += np.uint64(n_inputs)
            out[own + j] = value
            top = max(top, value)
        for j in range(size):
            out[own + j] = exp(out[own + j] - top)
        total = 0.0
        for j in range(size):
            total += out[own + j]
        total = 1.0 / total
        for j in range(size):
            out[own + j] *= total


@inner_kernel(**LEAN)
def _transitions(u, places, n, which, design, t, fixed, rest, shares, into):
    """Fill the softmax, and the probabilities, of transitions into row t."""
    n_inputs, m = max(1, design.shape[1]), which[t] if which.size else 0
    at, out = m * n * n, shares if fixed.size else into
    _softmax(u, places, at * n_inputs, n, n, n_inputs, design, t, out)
    if not fixed.size:
        return
    for i in range(n):
        for j in range(n):
            k = i * n + j
            into[k] = fixed[at + k] + rest[m * n + i] * shares[k]


@inner_kernel(**LEAN)
def derive_all(pieces, slots, constants, u, v, w):
    """Gather the coordinates of pieces, and fill what is derived of them."""
    for k in range(np.uint64(slots.size)):
        v[k] = u[slots[k]]
    for k in range(len(pieces)):
        derive(pieces, k, ZERO, pieces[k, N], v, constants, w)


@inner_kernel(**LEAN)
def _densities(Z, t, pieces, v, w, f, b):
    """Densities of row t under parts f and states b, relative to that of a part."""
    n_each, top = f.size // b.size, -np.inf
    for i in range(f.size):
        f[i] = 0.0
    for k in range(len(pieces)):
        add_log_densities(pieces, k, Z, t, v, w, f)
    for i in range(f.size):
        top = max(top, f[i])
    for i in range(f.size):
        f[i] = exp(f[i] - top)
    for i in range(b.size):
        b[i] = f[i * n_each]
        for m in range(1, n_each):
            b[i] += f[i * n_each + m]


@inner_kernel(**INLINED)
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


@inner_kernel(**INLINED)
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


@inner_kernel(**INLINED)
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


@inner_kernel(**INLINED)
def _posteriors(begins, t, alpha, beta, transitions, n, f, b, gamma, xi):
    """Posteriors of row t and of the pair that ends in it (Eqs. 21, 22)."""
    n_each, total = f.size // n, 0.0
    for i in range(n):
        total += alpha[t, i] * beta[t, i]
    for i in range(n):
        own = alpha[t, i] * beta[t, i] / total
        gamma[i * n_each] = own
        if n_each > 1:
            for m in range(i * n_each, (i + 1) * n_each):
                gamma[m] = own * f[m] / b[i] if f[m] > 0.0 else 0.0
    if begins[t]:
        for i in range(n * n):
            xi[i] = 0.0
        return total > 0.0
    for i in range(n):
        for j in range(n):
            xi[i * n + j] = alpha[t - 1, i] * transitions[i * n + j] * b[j] * beta[t, j]
    return _normalise(xi, n * n) and total > 0.0


@inner_kernel(**INLINED)
def _settle(t, which, weight, fixed, n, gamma, xi):
    """Weigh the posteriors of a row, and drop those of fixed transitions."""
    if weight.size:
        for i in range(gamma.size):
            gamma[i] *= weight[t]
        for i in range(n * n):
            xi[i] *= weight[t]
    if fixed.size:
        at = which[t] * n * n if which.size else 0
        for i in range(n * n):
            if fixed[at + i] > 0.0:
                xi[i] = 0.0


@kernel
def messages(
    Z,
    begins,
    ends,
    which,
    design,
    weight,
    places,
    first,
    fixed,
    rest,
    ridge,
    pieces,
    slots,
    constants,
    n_derived,
    u,
    alpha,
    beta,
    gamma,
    xi,
):
    """The full E step: fill messages and posteriors of all rows (Eqs. 5-8)."""
    (n_rows, n), n_parts = alpha.shape, gamma.shape[1]
    moves = places.size > n * n
    f, b, now, pair = np.empty(n_parts), np.empty(n), np.empty(n), np.empty(n * n)
    own, delta, into = np.empty(n_parts), np.empty(n), np.empty(n * n)
    v, w = np.empty(slots.size), np.empty(n_derived)
    derive_all(pieces, slots, constants, u, v, w)
    _softmax(u, first, ZERO, ONE, n, ONE, design, ZERO, delta)
    _transitions(u, places, n, which, design, ZERO, fixed, rest, pair, into)
    for t in range(n_rows):
        if moves and not begins[t]:
            _transitions(u, places, n, which, design, t, fixed, rest, pair, into)
        _densities(Z, t, pieces, v, w, f, b)
        _alpha(begins, t, alpha, delta, into, n, b, now)
        _put(now, alpha, t)
    for t in range(n_rows - 1, -1, -1):
        if not ends[t]:
            if moves:
                _transitions(
                    u, places, n, which, design, t + 1, fixed, rest, pair, into
                )
            _densities(Z, t + 1, pieces, v, w, f, b)
        _beta(ends, t, beta, into, n, b, now)
        _put(now, beta, t)
    for t in range(n_rows):
        if moves and not begins[t]:
            _transitions(u, places, n, which, design, t, fixed, rest, pair, into)
        _densities(Z, t, pieces, v, w, f, b)
        _posteriors(begins, t, alpha, beta, into, n, f, b, own, pair)
        _settle(t, which, weight, fixed, n, own, pair)
        _put(own, gamma, t)
        _put(pair, xi, t)


@inner_kernel(**INLINED)
def _chain_gradient(
    t,
    first_row,
    which,
    design,
    places,
    first,
    n,
    n_inputs,
    shares,
    delta,
    gamma,
    xi,
    out,
):
    """Gradient of H_t (Eqs. 32, 33): of first states, or of the pair's transition."""
    if first_row:
        n_each, total = gamma.size // n, 0.0
        for k in range(gamma.size):
            total += gamma[k]
        for i in range(n):
            own = 0.0
            for k in range(i * n_each, (i + 1) * n_each):
                own += gamma[k]
            out[first[i]] += total * delta[i] - own
        return
    at = which[t] * n * n * n_inputs if which.size else 0
    k, row, size = np.uint64(at), np.uint64(t), np.uint64(n)
    for i in range(n):
        total, own = 0.0, np.uint64(i * n)
        for j in range(own, own + size):
            total += xi[j]
        for j in range(own, own + size):
            value = total * shares[j] - xi[j]
            out[places[k]] += value
            for p in range(np.uint64(1), np.uint64(n_inputs)):
                out[places[k + p]] += value * design[row, p]
            k += np.uint64(n_inputs)


@inner_kernel(**LEAN)
def _gradient(
    Z,
    t,
    begins,
    which,
    design,
    places,
    first,
    ridge,
    n,
    pieces,
    slots,
    constants,
    u,
    v,
    w,
    shares,
    delta,
    gamma,
    xi,
    out,
):
    """Gradient of F_t = G_t + H_t (Eqs. 31-33); what is behind p is of no account."""
    for k in range(out.size):
        out[k] = 0.0
    n_inputs = max(1, design.shape[1])
    _chain_gradient(
        t,
        begins[t],
        which,
        design,
        places,
        first,
        n,
        n_inputs,
        shares,
        delta,
        gamma,
        xi,
        out,
    )
    for k in range(ridge.size):
        out[k] += ridge[k] * u[k]
    for k in range(len(pieces)):
        add_slopes(pieces, k, Z, t, slots, constants, v, w, gamma, out)


@kernel(fastmath=CONTRACT)
def fill_table(
    Z,
    begins,
    ends,
    which,
    design,
    weight,
    places,
    first,
    fixed,
    rest,
    ridge,
    pieces,
    slots,
    constants,
    n_derived,
    u,
    gamma,
    xi,
    table,
):
    """Fill the gradients of all rows (n_rows, p)."""
    n, p = first.size, table.shape[1]
    moves, g = places.size > n * n, np.empty(u.size)
    v, w, delta = np.empty(slots.size), np.empty(n_derived), np.empty(n)
    into, shares = np.empty(n * n), np.empty(n * n)
    shares = shares if fixed.size else into
    derive_all(pieces, slots, constants, u, v, w)
    _softmax(u, first, ZERO, ONE, n, ONE, design, ZERO, delta)
    _transitions(u, places, n, which, design, ZERO, fixed, rest, shares, into)
    for t in range(len(gamma)):
        if moves and not begins[t]:
            _transitions(u, places, n, which, design, t, fixed, rest, shares, into)
        _gradient(
            Z,
            t,
            begins,
            which,
            design,
            places,
            first,
            ridge,
            n,
            pieces,
            slots,
            constants,
            u,
            v,
            w,
            shares,
            delta,
            gamma[t],
            xi[t],
            g,
        )
        for k in range(p):
            table[t, k] = g[k]


@kernel(fastmath=CONTRACT)
def sweep(
    Z,
    begins,
    ends,
    which,
    design,
    weight,
    places,
    first,
    fixed,
    rest,
    ridge,
    pieces,
    slots,
    constants,
    n_derived,
    cut,
    order,
    partial,
    sizes,
    mean,
    u0,
    gamma0,
    xi0,
    table,
    fresh,
    gamma,
    xi,
    alpha,
    beta,
    lipschitz,
    metric,
    n_all,
    u,
    estimates,
):
    """Algorithm 4: steps of some sizes for rows, from `u` on; return how many failed.

    Gradients (Eqs. 31-35) follow Eq. 23, with the `mean` (p) of those that are known:
    by a `table` that is not empty (SAGA; Eq. 24, but that what the visits of an epoch
    see goes to `fresh`, and the mean moves behind it), or else by the coordinates u0
    and posteriors gamma0, xi0 of the anchor, at which they are made again (SVRG). With
    `partial` the row's messages (Eqs. 19, 20) and posteriors (Eqs. 21, 22) are renewed
    first. Steps go along gradients divided by a `metric` (p); `lipschitz` (2) are
    estimates in it, for transitions and for emissions, whose coordinates begin at
    `cut`; in as many steps as there are rows, `n_all`, they halve. No step is made
    where `estimates` (m, p) is not empty: it is filled with what the steps would
    follow, for tests.
    """
    n, n_parts, p = alpha.shape[1], gamma.shape[1], mean.size
    saga, moves = table.size > 0, places.size > n * n
    shrink = exp(-log(2.0) / n_all)
    v, w, delta = np.empty(slots.size), np.empty(n_derived), np.empty(n)
    v0, w0, delta0 = np.empty(slots.size), np.empty(n_derived), np.empty(n)
    into, after, room = np.empty(n * n), np.empty(n * n), np.empty(n * n)
    into0 = np.empty(n * n)
    shares = np.empty(n * n) if fixed.size else into
    shares0 = np.empty(n * n) if fixed.size else into0
    f, b, now = np.empty(n_parts), np.empty(n), np.empty(n)
    gamma_t, xi_t = np.empty(n_parts), np.empty(n * n)
    g, old = np.empty(u.size), np.empty(u.size)
    derive_all(pieces, slots, constants, u0, v0, w0)
    _softmax(u0, first, ZERO, ONE, n, ONE, design, ZERO, delta0)
    _transitions(u0, places, n, which, design, ZERO, fixed, rest, shares0, into0)
    n_failed = 0
    for m in range(order.size):
        t = order[m]
        if saga:
            for k in range(p):
                old[k] = table[t, k]
        else:
            _take(gamma0, t, gamma_t)
            _take(xi0, t, xi_t)
            if moves and not begins[t]:
                _transitions(
                    u0, places, n, which, design, t, fixed, rest, shares0, into0
                )
            _gradient(
                Z,
                t,
                begins,
                which,
                design,
                places,
                first,
                ridge,
                n,
                pieces,
                slots,
                constants,
                u0,
                v0,
                w0,
                shares0,
                delta0,
                gamma_t,
                xi_t,
                old,
            )
        derive_all(pieces, slots, constants, u, v, w)
        if begins[t]:
            _softmax(u, first, ZERO, ONE, n, ONE, design, ZERO, delta)
        else:
            _transitions(u, places, n, which, design, t, fixed, rest, shares, into)
        if partial:
            if not ends[t]:
                _densities(Z, t + 1, pieces, v, w, f, b)
                same = not which.size or which[t] == which[t + 1]
                if same and design.shape[1] < 2 and not begins[t]:
                    for k in range(n * n):
                        after[k] = into[k]
                else:
                    _transitions(
                        u, places, n, which, design, t + 1, fixed, rest, room, after
                    )
            if _beta(ends, t, beta, after, n, b, now):
                _put(now, beta, t)
            _densities(Z, t, pieces, v, w, f, b)
            if _alpha(begins, t, alpha, delta, into, n, b, now):
                _put(now, alpha, t)
            if not _posteriors(begins, t, alpha, beta, into, n, f, b, gamma_t, xi_t):
                n_failed += 1  # the row is impossible for the while
                if saga:
                    _put(old, fresh, t)
                continue
            _settle(t, which, weight, fixed, n, gamma_t, xi_t)
        else:
            _take(gamma, t, gamma_t)
            _take(xi, t, xi_t)
        _gradient(
            Z,
            t,
            begins,
            which,
            design,
            places,
            first,
            ridge,
            n,
            pieces,
            slots,
            constants,
            u,
            v,
            w,
            shares,
            delta,
            gamma_t,
            xi_t,
            g,
        )
        for k in range(p):
            old[k] = controlled_inline(g[k], old[k], mean[k], 1.0)
        if estimates.size:
            _put(old, estimates, m)
            continue
        for k in range(p, g.size):
            g[k] = 0.0  # constants do not move
        if saga:
            _put(g, fresh, t)
        for k in range(p):
            g[k] /= metric[k]
        search_chain(
            t,
            begins,
            which,
            design,
            places,
            first,
            ridge,
            n,
            gamma_t,
            xi_t,
            u,
            g,
            metric,
            cut,
            lipschitz,
            room,
            now,
        )
        search_states(
            Z,
            t,
            pieces,
            slots,
            constants,
            gamma_t,
            u,
            g,
            metric,
            cut,
            p,
            v,
            w,
            lipschitz,
        )
        length = sizes[m] / (3.0 * lipschitz[0])
        for k in range(cut):
            u[k] -= length * old[k] / metric[k]
        length = sizes[m] / (3.0 * lipschitz[1])
        for k in range(cut, p):
            u[k] -= length * old[k] / metric[k]
        lipschitz[0] *= shrink
        lipschitz[1] *= shrink
    return n_failed
