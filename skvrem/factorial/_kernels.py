r"""Codes of the factorial mixture: coordinate ascent on rows, one coordinate at a time.

With q(Z_nk) = Bern(ν_nk), g_kl = E[μ_kᵀ μ_l] and a_nk = m_kᵀ x_n, the coordinate k of
row n is best, the others held, at (Mandt et al. 2016, the local part of Algorithm 1 for
the model of Eq. 12)

    logit ν_nk = b [ logit π_k + (a_nk - ½ g_kk - Σ_{l≠k} g_kl ν_nl) / σ² ]

with the inverse temperature b. All coordinates at once would overshoot and oscillate;
in turn, each raises the bound.

Rows go through in strips of LANES, laid out (component, row), so that the inner loops
run over rows and are vector instructions, exp included.
"""

import numpy as np

from skvrem.utils._jit import CONTRACT, REDUCE, kernel
from skvrem.utils._math import exp, log

# Rows of a strip: the strip of 32 components stays in the first-level cache.
LANES = 64
# Codes between visits are kept as 16-bit fractions.
WHOLE = 65535.0
# Beyond, exp(-x) is no normal float32; ν is 0 or 1 to rounding long before.
MOST = 80.0


@kernel(fastmath=REDUCE)
def squares(rows, total):
    """|x_n|² of rows (n, d), summed in float64, into total (n,)."""
    n, d = rows.shape
    for i in range(n):
        square = 0.0
        for j in range(d):
            square += np.float64(rows[i, j]) * np.float64(rows[i, j])
        total[i] = square


@kernel(fastmath=CONTRACT)
def infer_codes(scores, ids, start, tables, n_steps, tol, codes, after, nu, entropy):
    r"""ν of a tile of rows (Algorithm 1), and the entropies of q(Z_n).

    A sweep over the coordinates is repeated until it moves none of a row's by more than
    `tol`, each row on its own, so that a row's ν does not depend on its neighbours.

    Parameters
    ----------
    scores : array of shape (K, n)
        a_nk, transposed.
    ids : array of int of shape (n,), or empty
        Rows of the tile in `codes` and `after`; empty for `start` on.
    start : int
    tables : tuple (means, gram, bias, scale, prior)
        What is not asked for here; g_kl, zero for k = l, shape (K, K);
        b (logit π_k - ½ g_kk / σ²), shape (K,); b / σ²; ν to begin with where no codes
        are kept, shape (K,).
    n_steps : int
        Most sweeps, at least 1.
    tol : float
    codes, after : uint16 arrays of shape (n_rows, K)
        Where to begin, and where to leave the codes for next time; with no rows, the
        prior and nowhere.
    nu : array of shape (K, n)
        ν.
    entropy : float64 array of shape (n,)
        Σ_k H(ν_nk), in nats.
    """
    (K, n), (_, gram, bias, scale, prior) = scores.shape, tables
    dtype = scores.dtype
    zero, one, most = dtype.type(0.0), dtype.type(1.0), dtype.type(MOST)
    part, whole, half = dtype.type(1.0 / WHOLE), dtype.type(WHOLE), dtype.type(0.5)
    v, x = np.empty((K, LANES), dtype), np.empty((K, LANES), dtype)
    f, change = np.empty(LANES, dtype), np.empty(LANES, dtype)
    moving = np.empty(LANES, dtype)
    fours = K // 4 * 4
    for low in range(0, n, LANES):
        rows = min(LANES, n - low)
        for t in range(LANES):
            moving[t] = one
            f[t] = zero
        for k in range(K):
            for t in range(LANES):
                v[k, t] = prior[k]
                x[k, t] = zero
        if codes.shape[0]:
            for t in range(rows):
                i = np.int64(ids[low + t]) if ids.size else start + low + t
                for k in range(K):
                    v[k, t] = part * dtype.type(codes[i, k])
        for _ in range(n_steps):
            for t in range(LANES):
                change[t] = zero
            for k in range(K):
                for t in range(rows):
                    f[t] = scores[k, low + t]
                for j in range(0, fours, 4):
                    g0, g1 = gram[k, j], gram[k, j + 1]
                    g2, g3 = gram[k, j + 2], gram[k, j + 3]
                    for t in range(LANES):
                        f[t] -= (g0 * v[j, t] + g1 * v[j + 1, t]) + (
                            g2 * v[j + 2, t] + g3 * v[j + 3, t]
                        )
                for j in range(fours, K):
                    g0 = gram[k, j]
                    for t in range(LANES):
                        f[t] -= g0 * v[j, t]
                offset = bias[k]
                for t in range(LANES):
                    logit = min(max(scale * f[t] + offset, -most), most)
                    p = one / (one + exp(-logit))
                    gap = abs(p - v[k, t])
                    move = moving[t] > zero
                    v[k, t] = p if move else v[k, t]
                    x[k, t] = logit if move else x[k, t]
                    change[t] = gap if gap > change[t] else change[t]
            left = 0
            for t in range(rows):
                moving[t] = moving[t] if change[t] > tol else zero
                left += moving[t] > zero
            if left == 0:
                break
        # H(ν) = |logit ν| min(ν, 1-ν) - log max(ν, 1-ν); a log of products is enough,
        # as their factors are at least a half.
        for t in range(LANES):
            change[t], f[t] = zero, one
        for k in range(K):
            for t in range(LANES):
                rest = one - v[k, t]
                change[t] += abs(x[k, t]) * min(v[k, t], rest)
                f[t] *= max(v[k, t], rest)
            if k % 32 == 31 or k == K - 1:
                for t in range(LANES):
                    change[t] -= log(f[t])
                    f[t] = one
        for t in range(rows):
            entropy[low + t] = change[t]
        for k in range(K):
            for t in range(rows):
                nu[k, low + t] = v[k, t]
        if after.shape[0]:
            for t in range(rows):
                i = np.int64(ids[low + t]) if ids.size else start + low + t
                for k in range(K):
                    after[i, k] = np.uint16(v[k, t] * whole + half)
