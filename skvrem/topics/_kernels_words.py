"""Loops over words, shared by the topic models: statistics in parts, see `WordSums`.

Rows are padded to whole cache lines; a batch of words names the rows that it has.
"""

import numpy as np

from skvrem.utils._jit import REDUCE, kernel
from skvrem.utils._simd import add, fma, lanes, largest, load, mul, splat, store

# Rows whose sums are added in the rows' own precision.
ROWS = 64


@kernel(fastmath=REDUCE)
def add_columns(array, start, stop, out):
    """Σ_v array_vk over the words `start` to `stop`, added to `out` (float64)."""
    for v in range(start, stop):
        for k in range(array.shape[1]):
            out[k] += array[v, k]


@kernel(fastmath=REDUCE)
def add_rows(deviation, totals, words, values, coefficient, start, stop):
    """deviation_vk += coefficient values_uk for the words v of a batch.

    Parameters
    ----------
    deviation : array of shape (n_features, K)
    totals : float64 array of shape (K,)
        What is added, summed over words, is added here.
    words : int32 array of shape (n_words,)
    values : array of shape (n_words, K)
    coefficient : float
    start, stop : int
        Of the words of the batch.
    """
    K, width = deviation.shape[1], lanes(deviation)
    sums, added = deviation.reshape(-1), values.reshape(-1)
    few = np.empty(K, deviation.dtype)
    for first in range(start, stop, ROWS):
        few[:] = deviation.dtype.type(0.0)
        for u in range(first, min(first + ROWS, stop)):
            v = words[u]
            for k in range(0, K, width):
                x = load(added, u * K + k)
                store(few, k, add(load(few, k), x))
                store(sums, v * K + k, fma(coefficient, x, load(sums, v * K + k)))
        for k in range(K):
            totals[k] += np.float64(coefficient) * few[k]


@kernel(fastmath=REDUCE)
def parameters_of(
    base, deviation, factor, mass, prior, inverse, words, start, stop, out
):
    """(N max(s_vk, 0) + η_vk) i_k, s = base + factor deviation, for words of a batch.

    With N = 1 and i one over the sums over words this is φ, with N the number of tokens
    and i = 1 it is λ. Variance reduction can lead s below zero. What counts there is
    its projection; s itself moves on unprojected until the epoch ends.

    Parameters
    ----------
    base : array of shape (n_features, K), or (1, K) for all words
    deviation : array of shape (n_features, K)
    factor, mass : float
        `mass` is N.
    prior : array of shape (n_features, K), or (1, K) for all words
        η.
    inverse : array of shape (K,)
        i.
    words : int32 array of shape (n_words,), or empty for the whole vocabulary
    start, stop : int
        Of the words of the batch.
    out : array of shape (n_words, K)
    """
    K, width = deviation.shape[1], lanes(deviation)
    bases, deviations = base.reshape(-1), deviation.reshape(-1)
    priors, result = prior.reshape(-1), out.reshape(-1)
    zero = splat(out.dtype.type(0.0))
    for u in range(start, stop):
        v = words[u] if words.size else u
        r = v * K if base.shape[0] > 1 else 0
        p = v * K if prior.shape[0] > 1 else 0
        for k in range(0, K, width):
            s = fma(factor, load(deviations, v * K + k), load(bases, r + k))
            x = fma(mass, largest(zero, s), load(priors, p + k))
            store(result, u * K + k, mul(x, load(inverse, k)))
