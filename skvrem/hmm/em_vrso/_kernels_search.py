"""The line search of stochastic M steps (Sidrow et al. 2023, Eq. 30).

What arguments are, ``_kernels.py`` says.
"""

import numpy as np

from skvrem.hmm.emissions._kernels_rows import INLINED, ONE, ZERO, loss
from skvrem.utils._jit import inner_kernel
from skvrem.utils._math import exp, log

# Gradients below are not searched along; what a loss may be off, relatively.
SHORT, ROUNDING = 1e-8, 1e-14
MOST_DOUBLINGS = 60


@inner_kernel(**INLINED)
def _states_loss(Z, t, pieces, slots, constants, gamma, u, g, scale, v, w):
    """G_t at u - scale g; of no scale with v and w as they are."""
    total = 0.0
    for k in range(len(pieces)):
        total += loss(pieces, k, Z, t, slots, constants, gamma, u, g, scale, v, w)
    return total


@inner_kernel(**INLINED)
def _logs_loss(u, g, scale, places, at, n_rows, n, n_inputs, design, t, counts, room):
    """Minus a sum of counts times log-probabilities, at u - scale g."""
    loss, k, row, size = 0.0, np.uint64(at), np.uint64(t), np.uint64(n)
    for i in range(n_rows):
        top, own = -np.inf, np.uint64(i * n)
        for j in range(own, own + size):
            room[j] = u[places[k]] - scale * g[places[k]]
            for p in range(np.uint64(1), np.uint64(n_inputs)):
                i_p = places[k + p]
                room[j] += (u[i_p] - scale * g[i_p]) * design[row, p]
            k += np.uint64(n_inputs)
            top = max(top, room[j])
        total, norm = 0.0, 0.0
        for j in range(own, own + size):
            loss -= counts[j] * (room[j] - top)
            total += counts[j]
            norm += exp(room[j] - top)
        loss += total * log(norm)
    return loss


@inner_kernel(**INLINED)
def _chain_loss(
    t, begins, which, design, places, first, ridge, n, gamma, xi, u, g, scale, room, own
):
    """H_t at u - scale g; there is room for n * n and n numbers."""
    if begins[t]:
        n_each = gamma.size // n
        for i in range(n):
            own[i] = 0.0
            for m in range(i * n_each, (i + 1) * n_each):
                own[i] += gamma[m]
        loss = _logs_loss(u, g, scale, first, ZERO, ONE, n, ONE, design, t, own, room)
    else:
        size = max(1, design.shape[1])
        at = which[t] * n * n * size if which.size else 0
        loss = _logs_loss(u, g, scale, places, at, n, n, size, design, t, xi, room)
    for k in range(ridge.size):
        loss += 0.5 * ridge[k] * (u[k] - scale * g[k]) ** 2
    return loss


@inner_kernel(**INLINED)
def _square(g, metric, start, stop):
    """g^T M g, of gradients that have been divided by the metric M."""
    total = 0.0
    for k in range(start, stop):
        total += g[k] * g[k] * metric[k]
    return total


@inner_kernel(**INLINED)
def _holds(loss, here, scale, square):
    """Whether a loss has fallen as far as Eq. 30 says."""
    return loss <= here - 0.5 * scale * square + ROUNDING * abs(here)


@inner_kernel(**INLINED)
def search_chain(
    t,
    begins,
    which,
    design,
    places,
    first,
    ridge,
    n,
    gamma,
    xi,
    u,
    g,
    metric,
    cut,
    lipschitz,
    room,
    own,
):
    """Double the Lipschitz estimate of H_t until Eq. 30 holds."""
    square = _square(g, metric, ZERO, cut)
    if square < SHORT * SHORT:
        return
    here = 0.0
    for trial in range(MOST_DOUBLINGS):
        scale = 0.0 if trial == 0 else 1.0 / lipschitz[0]
        loss = _chain_loss(
            t,
            begins,
            which,
            design,
            places,
            first,
            ridge,
            n,
            gamma,
            xi,
            u,
            g,
            scale,
            room,
            own,
        )
        if trial == 0:
            here = loss
        elif _holds(loss, here, scale, square):
            return
        else:
            lipschitz[0] *= 2.0


@inner_kernel(**INLINED)
def search_states(
    Z, t, pieces, slots, constants, gamma, u, g, metric, cut, p, v, w, lipschitz
):
    """The same of G_t (Eq. 30); v and w do not stay what they are."""
    square = _square(g, metric, cut, p)
    if square < SHORT * SHORT:
        return
    here = 0.0
    for trial in range(MOST_DOUBLINGS):
        scale = 0.0 if trial == 0 else 1.0 / lipschitz[1]
        loss = _states_loss(Z, t, pieces, slots, constants, gamma, u, g, scale, v, w)
        if trial == 0:
            here = loss
        elif _holds(loss, here, scale, square):
            return
        else:
            lipschitz[1] *= 2.0
