"""Loops over the tokens of documents, shared by the topic models.

A model gives every word of a batch a row of K numbers, `rows` (φ in pLSA, exp E log β
in LDA), and every document K numbers t (θ, exp E log θ). A token's topic then has the
probabilities t_k rows_vk / s_dv with s_dv = Σ_k t_k rows_vk, and all that is needed are
sums of these, weighted with the counts c_dv.
"""

from skvrem.utils._jit import REDUCE, kernel
from skvrem.utils._simd import add, fma, lanes, load, mul, splat, store, total

# Keeps a word that no topic expects from dividing by zero; c / TINY stays finite.
TINY = 1e-25


@kernel(fastmath=REDUCE)
def sum_over_tokens(counts, index, low, high, rows, t, g, w):
    """g_k = Σ_v w_v rows_vk with w_v = c_v / s_v, for one document.

    Parameters
    ----------
    counts, index : arrays of shape (n_nonzeros,)
        Counts and the words' places in `rows`.
    low, high : int
        Nonzeros of the document.
    rows : array of shape (n_words, K)
    t : array of shape (K,)
    g : array of shape (K,)
        Written.
    w : array of shape (n_nonzeros,)
        Written from `low` to `high`.
    """
    K, width = rows.shape[1], lanes(rows)
    tiny, nothing = rows.dtype.type(TINY), splat(rows.dtype.type(0.0))
    flat = rows.reshape(-1)
    for k in range(0, K, width):
        store(g, k, nothing)
    fours = low + (high - low) // 4 * 4
    # Four words at a time share the loads of t and g.
    for j in range(low, fours, 4):
        v0, v1 = index[j] * K, index[j + 1] * K
        v2, v3 = index[j + 2] * K, index[j + 3] * K
        s0 = s1 = s2 = s3 = nothing
        for k in range(0, K, width):
            x = load(t, k)
            s0 = fma(x, load(flat, v0 + k), s0)
            s1 = fma(x, load(flat, v1 + k), s1)
            s2 = fma(x, load(flat, v2 + k), s2)
            s3 = fma(x, load(flat, v3 + k), s3)
        w0, w1 = counts[j] / (total(s0) + tiny), counts[j + 1] / (total(s1) + tiny)
        w2, w3 = counts[j + 2] / (total(s2) + tiny), counts[j + 3] / (total(s3) + tiny)
        w[j], w[j + 1], w[j + 2], w[j + 3] = w0, w1, w2, w3
        x0, x1, x2, x3 = splat(w0), splat(w1), splat(w2), splat(w3)
        for k in range(0, K, width):
            y = fma(x0, load(flat, v0 + k), load(g, k))
            z = mul(x1, load(flat, v1 + k))
            y = fma(x2, load(flat, v2 + k), y)
            z = fma(x3, load(flat, v3 + k), z)
            store(g, k, add(y, z))
    for j in range(fours, high):
        v0 = index[j] * K
        s0 = nothing
        for k in range(0, K, width):
            s0 = fma(load(t, k), load(flat, v0 + k), s0)
        w0 = counts[j] / (total(s0) + tiny)
        w[j] = w0
        x0 = splat(w0)
        for k in range(0, K, width):
            store(g, k, fma(x0, load(flat, v0 + k), load(g, k)))


@kernel(fastmath=REDUCE)
def sum_over_words(w, index, indptr, at, first, last, out):
    """A_vk = Σ_d w_dv t_dk for words `first` to `last`, short of the factor rows_vk.

    Threads share the words, not the documents: every sum has one order and one place.

    Parameters
    ----------
    w, index : arrays of shape (n_nonzeros,)
    indptr : int64 array of shape (n_documents + 1,)
    at : array of shape (n_documents, K)
        t of every document.
    first, last : int
    out : array of shape (n_words, K)
        Added to.
    """
    K, width = at.shape[1], lanes(at)
    shares, sums = at.reshape(-1), out.reshape(-1)
    for i in range(indptr.shape[0] - 1):
        for j in range(indptr[i], indptr[i + 1]):
            v = index[j]
            if v < first or v >= last:
                continue
            x = splat(w[j])
            for k in range(0, K, width):
                added = fma(x, load(shares, i * K + k), load(sums, v * K + k))
                store(sums, v * K + k, added)


@kernel(fastmath=REDUCE)
def add_rows(deviation, totals, words, values, coefficient):
    """deviation_vk += coefficient values_uk for the words v of a batch.

    Parameters
    ----------
    deviation : array of shape (n_features, K)
    totals : float64 array of shape (K,)
        Column sums, moved along.
    words : int32 array of shape (n_words,)
    values : array of shape (n_words, K)
    coefficient : float
    """
    for u in range(words.shape[0]):
        v = words[u]
        for k in range(deviation.shape[1]):
            step = coefficient * values[u, k]
            deviation[v, k] += step
            totals[k] += step
