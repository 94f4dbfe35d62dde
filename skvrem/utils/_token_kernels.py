"""Loops over the tokens of documents, shared by the topic models.

A model gives every word of a batch a row of K numbers, `rows` (φ in pLSA, exp E log β
in LDA), and every document K numbers t (θ, exp E log θ). A token's topic then has the
probabilities t_k rows_vk / s_dv with s_dv = Σ_k t_k rows_vk, and all that is needed are
sums of these, weighted with the counts c_dv.
"""

import numpy as np

from skvrem.utils._jit import REDUCE, kernel

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
    K = rows.shape[1]
    tiny = rows.dtype.type(TINY)
    for k in range(K):
        g[k] = 0.0
    fours = low + (high - low) // 4 * 4
    # Four words at a time share the loads of t and g.
    for j in range(low, fours, 4):
        v0, v1, v2, v3 = index[j], index[j + 1], index[j + 2], index[j + 3]
        s0 = s1 = s2 = s3 = tiny
        for k in range(K):
            x = t[k]
            s0 += x * rows[v0, k]
            s1 += x * rows[v1, k]
            s2 += x * rows[v2, k]
            s3 += x * rows[v3, k]
        w0, w1 = counts[j] / s0, counts[j + 1] / s1
        w2, w3 = counts[j + 2] / s2, counts[j + 3] / s3
        w[j], w[j + 1], w[j + 2], w[j + 3] = w0, w1, w2, w3
        for k in range(K):
            g[k] += (
                w0 * rows[v0, k]
                + w1 * rows[v1, k]
                + w2 * rows[v2, k]
                + w3 * rows[v3, k]
            )
    for j in range(fours, high):
        v0 = index[j]
        s0 = tiny
        for k in range(K):
            s0 += t[k] * rows[v0, k]
        w0 = counts[j] / s0
        w[j] = w0
        for k in range(K):
            g[k] += w0 * rows[v0, k]


@kernel(fastmath=REDUCE)
def sum_over_words(w, index, indptr, at, first, last, out):
    """A_vk = Σ_d w_dv t_dk for topics `first` to `last`, short of the factor rows_vk.

    Threads share the topics, not the documents: every sum has one order and one place.

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
    t = np.empty(at.shape[1], at.dtype)
    # An index that could count from the end stops the loop from being vectorised.
    low, high = np.uint64(first), np.uint64(last)
    for i in range(indptr.shape[0] - 1):
        for k in range(low, high):
            t[k] = at[i, k]
        for j in range(indptr[i], indptr[i + 1]):
            v, x = index[j], w[j]
            for k in range(low, high):
                out[v, k] += x * t[k]


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
