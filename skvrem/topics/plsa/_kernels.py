"""Loops over words of documents, one function a formula (Chen et al. 2018, §4.2).

Names: c_dv counts, θ_dk topics of a document (rows of `theta`), φ_kv words of a topic.
Topics are stored word by word, as rows of a (n_words, K) array, so that a count meets
one contiguous row. K is padded with topics that are zero in θ and φ, so that loops over
k have no remainder. With inverse temperature b the arrays hold θ^b and φ^b where the
text says so.

A batch numbers its own words: `index` refers to rows of the batch's φ, and `words`
says which words of the vocabulary these are.
"""

import numpy as np

from skvrem.topics._kernels import sum_over_tokens
from skvrem.utils._jit import REDUCE, kernel
from skvrem.utils._math import exp, log


@kernel(fastmath=REDUCE)
def infer_topics(
    documents, start, stop, docs, phi, theta, after, prior, b, n_steps, tol, at, w
):
    """θ by EM steps on documents `start` to `stop` of the batch, φ held.

    γ_dk = Σ_v c_dv θ_dk^b φ_kv^b / s_dv,   s_dv = Σ_k θ_dk^b φ_kv^b
    θ_dk ← (γ_dk + α_k) / (Σ_k γ_dk + Σ_k α_k)

    Parameters
    ----------
    documents : tuple (counts, index, indptr, weight)
        Counts and their words, arrays of shape (n_nonzeros,); int64 array of shape
        (n_documents + 1,); sample weights u_d, shape (n_documents,), or empty.
    start, stop : int
    docs : int32 array of shape (n_documents,)
        Rows of the documents in `theta` and `after`.
    phi : array of shape (n_words, K)
        φ^b.
    theta, after : arrays of shape (n_rows, K)
        Where the steps begin; where θ after the last step goes, of shape (0, K) for
        nowhere.
    prior : array of shape (K,)
        α.
    b : float
    n_steps : int
        Most steps, at least 1. It is s and γ of the last one that count.
    tol : float
        The last step is also the first that changes θ by less than this in sum.
    at : array of shape (n_documents, K)
        θ^b before the last step, at which `w` is.
    w : array of shape (n_nonzeros,)
        u_d c_dv / s_dv of the last step.

    Returns
    -------
    objective : float
        Σ_d u_d (Σ_v c_dv log(s_dv) / b + Σ_k α_k log θ_dk) before the last step.
    """
    (counts, index, indptr, weight), K = documents, phi.shape[1]
    zero, one = phi.dtype.type(0.0), phi.dtype.type(1.0)
    small = phi.dtype.type(1e-37)
    t, g = np.empty(K, phi.dtype), np.empty(K, phi.dtype)
    power = np.empty(K, phi.dtype)
    sum_prior = zero
    for k in range(K):
        sum_prior += prior[k]
    total, keeps = 0.0, after.shape[0] > 0
    for i in range(start, stop):
        low, high = indptr[i], indptr[i + 1]
        c, words, own_w = counts[low:high], index[low:high], w[low:high]
        doc = docs[i]
        for k in range(K):
            t[k] = theta[doc, k]
        share = weight[i] if weight.size else one
        if high == low:
            # An empty document says nothing: the prior's mode, or where it was.
            log_prior = zero
            for k in range(K):
                at[i, k] = prior[k] / sum_prior if sum_prior > zero else t[k]
            for k in range(K if keeps else 0):
                after[doc, k] = at[i, k]
            for k in range(K):
                log_prior += prior[k] * log(max(at[i, k], small))
            total += share * log_prior
            continue
        for step in range(n_steps):
            for k in range(K):
                power[k] = t[k]
            if b != one:
                for k in range(K):
                    power[k] = exp(b * log(max(t[k], small)))
                for k in range(K):
                    power[k] = power[k] if t[k] > zero else zero
            sum_over_tokens(c, words, phi, power, g, own_w)
            # Σ_k γ_dk is the document's length but for words that no topic expects.
            sum_g = change = zero
            for k in range(K):
                g[k] = power[k] * g[k] + prior[k]
            for k in range(K):  # sums by themselves: see `settle_document`
                sum_g += g[k]
            scale = one / sum_g if sum_g > zero else zero
            for k in range(K):
                g[k] = g[k] * scale if sum_g > zero else t[k]
            for k in range(K):
                change += abs(g[k] - t[k])
            if change < tol or step == n_steps - 1:
                break
            for k in range(K):
                t[k] = g[k]
        log_prior = log_likelihood = zero
        for k in range(K):
            at[i, k] = power[k]
        for k in range(K if keeps else 0):
            after[doc, k] = g[k]
        for k in range(K):
            log_prior += prior[k] * log(max(t[k], small))
        for j in range(high - low):
            log_likelihood += c[j] * log(c[j] / own_w[j])
        total += share * (log_likelihood / b + log_prior)
        if weight.size:
            for j in range(high - low):
                own_w[j] *= share
    return total


@kernel(fastmath=REDUCE)
def temper(b, start, stop, rows):
    """φ_vk becomes φ_vk^b, and θ_dk likewise, for the rows `start` to `stop`."""
    zero, small = rows.dtype.type(0.0), rows.dtype.type(1e-37)
    for v in range(start, stop):
        for k in range(rows.shape[1]):
            x = rows[v, k]
            power = exp(b * log(max(x, small)))
            rows[v, k] = power if x > zero else zero


@kernel(fastmath=REDUCE)
def log_prior(phi, prior):
    """Σ_kv β_kv log φ_kv over words, whose prior may have one row for all."""
    total = 0.0
    zero, small = phi.dtype.type(0.0), phi.dtype.type(1e-37)
    for v in range(phi.shape[0]):
        p = v if prior.shape[0] > 1 else 0
        row = zero
        for k in range(phi.shape[1]):
            row += prior[p, k] * log(max(phi[v, k], small))
        total += row
    return total
