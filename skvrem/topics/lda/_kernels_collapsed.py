"""Loops over documents of the collapsed E step of latent Dirichlet allocation.

Names as in Asuncion et al. (2009): γ_dvk is the probability that a token of word v in
document d is of topic k, n_dk = Σ_v c_dv γ_dvk, N_vk = Σ_d u_d c_dv γ_dvk and
N_k = Σ_v N_vk. What a token looks at are the counts of the others: one token's own
share, γ of at most one of its c_dv copies, is left out of the document's counts, and of
the topic's. Words and topics are laid out as in `topics._kernels`.
"""

import numpy as np

from skvrem.topics._kernels import sum_over_tokens
from skvrem.utils._jit import REDUCE, kernel
from skvrem.utils._math import digamma, exp, log, log_gamma
from skvrem.utils._simd import (
    WIDTH,
    add,
    fma,
    largest,
    load,
    mul,
    splat,
    store,
    total,
)

# Documents whose tokens take turns.
SIDE_BY_SIDE = 3
# Of the way to what the counts say that a token's topics are.
LEAST_STEP = 1.0 / 3.0


@kernel(fastmath=REDUCE)
def infer_shares(
    documents,
    start,
    stop,
    rows,
    least,
    inverse,
    prior,
    n_rounds,
    tol,
    before,
    after,
    shares,
    chances,
):
    """CVB0 rounds on documents `start` to `stop`, the topics' counts held.

    γ_dvk ∝ (max(N_vk - min(u_d, 1) e γ_dvk, 0) + η_vk) i_k (n_dk - e γ_dvk + α_k),
    i_k = 1 / (N_k + Σ_v η_vk)

    with e = min(c_dv, 1), token after token, n_d at once: one token is left out, also
    of a word that occurs, and of a document that counts, several times. The first round
    knows no own share yet, and leaves nothing out. A token waits for the one before,
    so that some documents are under way side by side.

    The share in N_vk is that of the last visit. Of a word without other tokens, what
    a round leaves out beyond it turns the next round the other way, and γ would never
    rest. A token therefore goes a step Z / (Z + W) to the right-hand side, Z its sum
    and W = Σ_k min(u_d, 1) e γ_dvk i_k (n_dk - e γ_dvk + α_k) what leaving γ out of
    the topics takes from that: Newton's, were all topics alike. At least a third of the
    way, for topics are not; the whole of it where a word has many tokens.

    Parameters
    ----------
    documents : tuple (counts, index, indptr, weight)
        Counts and their words, arrays of shape (n_nonzeros,); int64 array of shape
        (n_documents + 1,); sample weights u_d, shape (n_documents,), or empty.
    start, stop : int
    rows : array of shape (n_words, K)
        (N_vk + η_vk) i_k.
    least : array of shape (n_words, K), or (1, K) for all words
        η_vk i_k.
    inverse : array of shape (K,)
        i; zeros leave nothing out of the topics.
    prior : array of shape (K,)
        α, 0 for padding.
    n_rounds : int
        Most rounds, at least 1.
    tol : float
        The last round is also the first that changes n_d by less than this a topic.
    before, after : arrays of shape (n_documents, K)
        n_d to begin with; written: n_d.
    shares : array of shape (n_tokens, K)
        Written: γ of these documents' nonzeros, from the first of `start` on.
    chances : array of shape (n_documents, K), or (0, K)
        Written: 1 - Π_v (1 - γ_dvk)^c_dv, the chance that a token is of the topic.

    Returns
    -------
    log_likelihood : float
        Σ_d u_d Σ_v c_dv log p(v | other tokens of d), by the last round: with rounds
        that leave out, the leave-one-out log-likelihood.
    """
    (counts, index, indptr, weight), K = documents, rows.shape[1]
    dtype = rows.dtype.type
    zero, one, nothing = dtype(0.0), dtype(1.0), splat(dtype(0.0))
    least_step = dtype(LEAST_STEP)
    flat, floors, gamma = rows.reshape(-1), least.reshape(-1), shares.reshape(-1)
    # Of each document under way: n_d + α, the same a round before, what a whole share
    # takes from the topics, terms; its number, its next nonzero, rounds left, length.
    n, old, own, x = np.empty((4, SIDE_BY_SIDE * K), rows.dtype)
    doc, place, left = np.full((3, SIDE_BY_SIDE), -1)
    lengths = np.empty(SIDE_BY_SIDE, rows.dtype)
    n_topics = 0
    sum_prior = zero
    for k in range(K):
        sum_prior += prior[k]
        n_topics += prior[k] > zero
    first = indptr[start]
    sums = np.empty(indptr[stop] - first, rows.dtype)
    result, following, n_open = 0.0, start, 0
    while following < stop or n_open:
        for side in range(SIDE_BY_SIDE):
            i, at = doc[side], side * K
            if i < 0 and following == stop:
                continue
            if i < 0:
                i = following
                following += 1
                n_open += 1
                low, high = indptr[i], indptr[i + 1]
                doc[side], place[side], left[side] = i, low, n_rounds - 1
                c, words = counts[low:high], index[low:high]
                mine = gamma[(low - first) * K : (high - first) * K]
                theirs = n[at : at + K], own[at : at + K], sums[low - first :]
                share = min(weight[i], one) if weight.size else one
                scale = inverse, -share
                lengths[side] = _first_round(
                    c, words, rows, *scale, prior, before[i], *theirs, mine
                )
                # By slices numba would compile the message of an error, for seconds.
                for k in range(at, at + K):
                    old[k] = n[k]
                if n_rounds > 1 and high > low:
                    continue
            else:
                j, high = place[side], indptr[i + 1]
                v, p = index[j] * K, (j - first) * K
                f = v if least.shape[0] > 1 else 0
                count, e = counts[j], min(counts[j], one)
                less, y, t = splat(-e), nothing, nothing
                for k in range(0, K, WIDTH):
                    z = load(gamma, p + k)
                    o = mul(z, load(own, at + k))
                    a = fma(e, o, load(flat, v + k))
                    a = largest(load(floors, f + k), a)
                    b = largest(load(prior, k), fma(less, z, load(n, at + k)))
                    t = fma(o, b, t)
                    a = mul(a, b)
                    store(x, at + k, a)
                    y = add(y, a)
                sum_x = total(y)
                step = max(least_step, sum_x / (sum_x - e * total(t)))
                sums[j - first] = sum_x / (lengths[side] - e + sum_prior)
                y, minus = splat(step / sum_x), splat(-step)
                for k in range(0, K, WIDTH):
                    z = load(gamma, p + k)
                    change = fma(minus, z, mul(y, load(x, at + k)))
                    store(gamma, p + k, add(z, change))
                    store(n, at + k, fma(count, change, load(n, at + k)))
                place[side] += 1
                if j + 1 < high:
                    continue
                left[side] -= 1
                if tol > zero:
                    moved = zero
                    for k in range(K):
                        moved += abs(n[at + k] - old[at + k])
                    for k in range(at, at + K):
                        old[k] = n[k]
                    if moved < tol * n_topics:
                        left[side] = 0
                if left[side] > 0:
                    place[side] = indptr[i]
                    continue
            doc[side] = -1
            n_open -= 1
            low, high = indptr[i], indptr[i + 1]
            for k in range(K):
                after[i, k] = max(n[at + k] - prior[k], zero)
            log_likelihood = zero
            for j in range(low, high):
                log_likelihood += counts[j] * log(sums[j - first])
            result += (weight[i] if weight.size else one) * log_likelihood
            if chances.size:
                part = shares[low - first : high - first]
                _chances(counts[low:high], part, chances[i])
    return result


@kernel(fastmath=REDUCE)
def _first_round(
    counts, index, rows, inverse, own_share, prior, before, n, own, sums, gamma
):
    """Round on one document with nothing left out; return its length."""
    K, zero = len(n), rows.dtype.type(0.0)
    t, g, flat = np.empty(K, rows.dtype), np.empty(K, rows.dtype), rows.reshape(-1)
    length = mass = zero
    for j in range(len(counts)):
        length += counts[j]
    for k in range(K):
        t[k] = before[k] + prior[k]
    for k in range(K):
        mass += t[k]
    sum_over_tokens(counts, index, rows, t, g, sums)
    for k in range(K):
        n[k] = prior[k] + t[k] * g[k]
        own[k] = own_share * inverse[k]
    for j in range(len(counts)):
        v, p = index[j] * K, j * K
        y = splat(sums[j] / counts[j])
        for k in range(0, K, WIDTH):
            store(gamma, p + k, mul(y, mul(load(t, k), load(flat, v + k))))
        sums[j] = counts[j] / (sums[j] * mass)
    return length


@kernel(fastmath=REDUCE)
def _chances(counts, shares, out):
    """Write 1 - Π_v (1 - γ_vk)^c_v of one document."""
    one = shares.dtype.type(1.0)
    # Of a share that is 1 the logarithm stays finite.
    small = shares.dtype.type(1e-7)
    none = np.zeros(len(out), shares.dtype)
    for j in range(len(counts)):
        for k in range(len(out)):
            none[k] += counts[j] * log(max(one - shares[j, k], small))
    for k in range(len(out)):
        out[k] = one - exp(none[k])


@kernel(fastmath=REDUCE)
def add_shares(documents, start, stop, shares, first, last, out):
    """Σ_d u_d c_dv γ_dvk of documents `start` to `stop`, added for some words.

    Threads share the words, not the documents: every sum has one order and one place.

    Parameters
    ----------
    documents, start, stop, shares : as in `infer_shares`
    first, last : int
        Words.
    out : array of shape (n_words, K)
        Added to.
    """
    (counts, index, indptr, weight), K = documents, shares.shape[1]
    one = shares.dtype.type(1.0)
    gamma, sums, begin = shares.reshape(-1), out.reshape(-1), indptr[start]
    for i in range(start, stop):
        share = weight[i] if weight.size else one
        for j in range(indptr[i], indptr[i + 1]):
            v = index[j]
            if v < first or v >= last:
                continue
            x, p = splat(share * counts[j]), (j - begin) * K
            for k in range(0, K, WIDTH):
                y = fma(x, load(gamma, p + k), load(sums, v * K + k))
                store(sums, v * K + k, y)


@kernel(fastmath=REDUCE)
def entropy(documents, start, stop, shares):
    """-Σ_d u_d Σ_v c_dv Σ_k γ_dvk log γ_dvk of documents `start` to `stop`.

    Parameters are those of `add_shares`.
    """
    (counts, _, indptr, weight), K = documents, shares.shape[1]
    begin, small = indptr[start], shares.dtype.type(1e-30)
    parts, result = np.empty(K, shares.dtype), 0.0
    for i in range(start, stop):
        share = np.float64(weight[i]) if weight.size else 1.0
        for j in range(indptr[i], indptr[i + 1]):
            for k in range(K):
                x = shares[j - begin, k]
                parts[k] = x * log(max(x, small))
            x = shares.dtype.type(0.0)
            for k in range(K):
                x += parts[k]
            result -= share * counts[j] * x
    return result


@kernel(fastmath=REDUCE)
def log_beta_of_counts(counts, prior, start, stop, weight):
    """Σ_i u_i Σ_k log Γ(n_ik + a_ik) - log Γ(a_ik), for rows `start` to `stop`.

    Parameters
    ----------
    counts : array of shape (n_rows, K)
    prior : array of shape (n_rows, K), or (1, K) for all rows
        0 for padding.
    start, stop : int
    weight : array of shape (n_rows,), or empty
        u.
    """
    K, result = counts.shape[1], 0.0
    zero, parts = prior.dtype.type(0.0), np.empty(K)
    for i in range(start, stop):
        p = i if prior.shape[0] > 1 else 0
        for k in range(K):
            a = np.float64(prior[p, k]) if prior[p, k] > zero else 1.0
            parts[k] = log_gamma(np.float64(counts[i, k]) + a) - log_gamma(a)
        row = 0.0
        for k in range(K):
            row += parts[k]
        result += row * (np.float64(weight[i]) if weight.size else 1.0)
    return result


@kernel(fastmath=REDUCE)
def expect_draws(counts, chances, prior, start, stop, weight, out):
    """Σ_d u_d P_dk (ψ(n_dk / P_dk + α_k) - ψ(α_k)), added to `out`.

    Expected times that the prior, not another token, chose a topic: the part of Minka's
    fixed point where n_dk counts only if it is positive, which has the chance P_dk, and
    has then the mean n_dk / P_dk (Teh et al. 2006).

    Parameters
    ----------
    counts, chances : arrays of shape (n_documents, K)
        n_dk and P_dk.
    prior : array of shape (K,)
        α, 0 for padding.
    start, stop : int
    weight : array of shape (n_documents,), or empty
    out : float64 array of shape (K,)
    """
    K, dtype = counts.shape[1], counts.dtype.type
    parts, at_prior = np.empty(K, counts.dtype), np.empty(K, counts.dtype)
    zero, small = dtype(0.0), dtype(1e-6)
    for k in range(K):
        at_prior[k] = digamma(prior[k]) if prior[k] > zero else zero
    for i in range(start, stop):
        for k in range(K):
            a = prior[k] if prior[k] > zero else dtype(1.0)
            chance = max(chances[i, k], small)
            parts[k] = chance * (digamma(counts[i, k] / chance + a) - at_prior[k])
        share = np.float64(weight[i]) if weight.size else 1.0
        for k in range(K):
            out[k] += share * parts[k]


@kernel(fastmath=REDUCE)
def expect_draws_of_words(counts, mass, prior, start, stop):
    """Σ_vk f(N_vk), f(n) = ψ(n + η) - ψ(η) from 1 on, and n / η below.

    A count below one is the chance of a one. See `expect_draws`.

    Parameters
    ----------
    counts : array of shape (n_words, K)
        N_vk / `mass`; negative ones are 0.
    mass, prior : float
        `prior` is η.
    start, stop : int
    """
    K, result = counts.shape[1], 0.0
    parts, at_prior = np.empty(K), digamma(prior)
    for v in range(start, stop):
        for k in range(K):
            n = mass * max(np.float64(counts[v, k]), 0.0)
            x = digamma(max(n, 1.0) + prior) - at_prior
            parts[k] = x if n >= 1.0 else n / prior
        for k in range(K):
            result += parts[k]
    return result
