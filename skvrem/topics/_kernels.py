"""Loops over the tokens of documents and over words, shared by the topic models.

A model gives every word of a batch a row of K numbers, `rows` (φ in pLSA, exp E log β
in LDA), and every document K numbers t (θ, exp E log θ). A token's topic then has the
probabilities t_k rows_vk / s_dv with s_dv = Σ_k t_k rows_vk, and all that is needed are
sums of these, weighted with the counts c_dv.

Loops over tokens take the slices of one document and count from zero: where a position
could be negative, numba looks at every one. Those over words make the statistics in
parts of `WordSums`: rows are padded to multiples of eight, and a batch of words names
the rows that it has.
"""

import numpy as np

from skvrem.utils._jit import REDUCE, kernel
from skvrem.utils._math import digamma, exp
from skvrem.utils._simd import (
    WIDTH,
    add,
    fma,
    largest,
    load,
    mul,
    ratio,
    splat,
    spread,
    store,
    total,
)

# Keeps a word that no topic expects from dividing by zero; c / TINY stays finite.
TINY = 1e-25
# A topic is at rest that a round changes by less than this share of the tolerance.
CALM = 0.25
# Rows whose sums are added in the rows' own precision.
ROWS = 64


@kernel(fastmath=REDUCE)
def sum_over_tokens(counts, index, rows, t, g, w):
    """g_k = Σ_v w_v rows_vk with w_v = c_v / s_v, for one document.

    The E step of its tokens: t_k g_k is the count that it expects of topic k.

    Parameters
    ----------
    counts, index : arrays of shape (n,)
        Counts and the words' places in `rows`, of the document's n different words.
    rows : array of shape (n_words, K)
    t : array of shape (K,)
    g : array of shape (K,)
        Written.
    w : array of shape (n,)
        Written.
    """
    n, K = len(counts), rows.shape[1]
    tiny, nothing = rows.dtype.type(TINY), splat(rows.dtype.type(0.0))
    flat = rows.reshape(-1)
    for k in range(0, K, WIDTH):
        store(g, k, nothing)
    fours = n // 4 * 4
    # Four words at a time share the loads of t and g.
    for j in range(0, fours, 4):
        v0, v1 = index[j] * K, index[j + 1] * K
        v2, v3 = index[j + 2] * K, index[j + 3] * K
        s0 = s1 = s2 = s3 = nothing
        for k in range(0, K, WIDTH):
            x = load(t, k)
            s0 = fma(x, load(flat, v0 + k), s0)
            s1 = fma(x, load(flat, v1 + k), s1)
            s2 = fma(x, load(flat, v2 + k), s2)
            s3 = fma(x, load(flat, v3 + k), s3)
        w0, w1 = counts[j] / (total(s0) + tiny), counts[j + 1] / (total(s1) + tiny)
        w2, w3 = counts[j + 2] / (total(s2) + tiny), counts[j + 3] / (total(s3) + tiny)
        w[j], w[j + 1], w[j + 2], w[j + 3] = w0, w1, w2, w3
        x0, x1, x2, x3 = splat(w0), splat(w1), splat(w2), splat(w3)
        for k in range(0, K, WIDTH):
            y = fma(x0, load(flat, v0 + k), load(g, k))
            z = mul(x1, load(flat, v1 + k))
            y = fma(x2, load(flat, v2 + k), y)
            z = fma(x3, load(flat, v3 + k), z)
            store(g, k, add(y, z))
    for j in range(fours, n):
        v0 = index[j] * K
        s0 = nothing
        for k in range(0, K, WIDTH):
            s0 = fma(load(t, k), load(flat, v0 + k), s0)
        w0 = counts[j] / (total(s0) + tiny)
        w[j] = w0
        x0 = splat(w0)
        for k in range(0, K, WIDTH):
            store(g, k, fma(x0, load(flat, v0 + k), load(g, k)))


@kernel
def room_to_settle(n_words, rows):
    """Return the `work` of `settle_document` for documents of at most so many words."""
    size = (rows.shape[1] + 3) * (n_words + 2 * WIDTH)
    room = np.empty(size + WIDTH, rows.dtype)
    # No load straddles two cache lines: such a one counts twice.
    return room[-(room.ctypes.data // room.itemsize) % WIDTH :]


@kernel(fastmath=REDUCE)
def settle_document(
    counts, index, rows, prior, b, n_steps, tol, old, new, t, g, w, work
):
    """Rounds on q(θ_d) and q(z_d) of one document until γ_d is at rest.

    The local part of Algorithm 1 of Mandt et al. (2016), tempered by b.

    γ_dk ← α_k + b t_k Σ_v w_v rows_vk,   t_k = exp(b ψ(γ_dk)),
    w_v = c_dv / Σ_k t_k rows_vk

    Topics come to rest one after the other, most after a few rounds: γ_dk is α_k or
    near it. The rounds of `settle_moving` leave those out; another one of all topics
    tells whether all are.

    Parameters
    ----------
    counts, index : arrays of shape (n,)
        Of the document, as in `sum_over_tokens`.
    rows : array of shape (n_words, K)
    prior : array of shape (K,)
    b : float
    n_steps : int
        Most rounds.
    tol : float
        At rest: a round changes γ by less than this a topic.
    old, new : arrays of shape (K,)
        `new` is γ to begin with. Written: γ before and after the last round.
    t, g : arrays of shape (K,)
        Written: t and the sum over words, of the last round.
    w : array of shape (n,)
        Written.
    work : array
        Of `room_to_settle`.
    """
    problem, K = (counts, index, rows, prior, b), rows.shape[1]
    zero = rows.dtype.type(0.0)
    n_topics = 0
    for k in range(K):
        n_topics += prior[k] > zero
    limit, calm = tol * n_topics, tol * rows.dtype.type(CALM)
    moving = np.empty(K, np.int64)
    n_rounds = 0
    while True:
        for k in range(K):
            old[k] = new[k]
            t[k] = exp(b * digamma(old[k]))
        sum_over_tokens(counts, index, rows, t, g, w)
        change = zero
        n_moving = 0
        for k in range(K):
            new[k] = prior[k] + b * t[k] * g[k]
        # Sums stand in loops that write nothing: where one writes, the compiler looks
        # how far apart arrays lie, and does without vectors where that is too near. A
        # sum in that order would have other bits from one fit to the next.
        for k in range(K):
            change += abs(new[k] - old[k])
        n_rounds += 1
        if change < limit or n_rounds == n_steps:
            return
        for k in range(K):
            if abs(new[k] - old[k]) > calm:
                moving[n_moving] = k
                n_moving += 1
        if n_rounds + 2 <= n_steps:
            most = n_steps - n_rounds - 1
            n_rounds += settle_moving(
                *problem, most, limit / 2, calm, moving[:n_moving], old, new, t, g, work
            )


@kernel(fastmath=REDUCE)
def settle_moving(
    counts, index, rows, prior, b, most, limit, calm, moving, sums, new, t, gamma, work
):
    """Rounds of `settle_document` on some topics, those of the others held.

    The document's rows are laid out topic by topic, so that words are side by side: a
    sum over topics needs no sum over lanes then, and all is close at hand. A topic that
    comes to rest joins the others.

    Parameters
    ----------
    counts, index, rows, prior, b, new, work :
        As there.
    most : int
        Most rounds.
    limit : float
        The last round is the first that changes γ by less than this in sum.
    calm : float
        A topic is at rest that changes by less.
    moving : int64 array of shape (n_moving,)
        Those topics; spent.
    sums, t, gamma : arrays of shape (K,)
        Spent.

    Returns
    -------
    n_rounds : int
    """
    n, K, n_moving = len(counts), rows.shape[1], len(moving)
    nothing = splat(rows.dtype.type(0.0))
    end = (n + WIDTH - 1) // WIDTH * WIDTH
    # An odd number of loads apart, topics do not compete for the same places.
    m = end // WIDTH // 2 * 2 * WIDTH + WIDTH
    rest, s, c = K * m, (K + 1) * m, (K + 2) * m  # where these begin
    _lay_out(counts, index, rows, b, moving, n_moving, new, t, m, work)
    place = moving * m
    n_rounds = 0
    while n_moving and n_rounds < most:
        for a in range(n_moving):
            gamma[a] = new[moving[a]]
        for a in range(n_moving):
            t[a] = exp(b * digamma(gamma[a]))
        # s_v = Σ_k t_k rows_vk, four topics at a time; then c_v / s_v in its place.
        before, fours = rest, n_moving // 4 * 4
        for a in range(0, fours, 4):
            x0, x1, x2, x3 = t[a], t[a + 1], t[a + 2], t[a + 3]
            p0, p1, p2, p3 = place[a], place[a + 1], place[a + 2], place[a + 3]
            for j in range(0, end, WIDTH):
                y = fma(x0, load(work, p0 + j), load(work, before + j))
                y = fma(x1, load(work, p1 + j), y)
                y = fma(x2, load(work, p2 + j), y)
                store(work, s + j, fma(x3, load(work, p3 + j), y))
            before = s
        for a in range(fours, n_moving):
            x0, p0 = t[a], place[a]
            for j in range(0, end, WIDTH):
                y = fma(x0, load(work, p0 + j), load(work, before + j))
                store(work, s + j, y)
            before = s
        for j in range(0, end, WIDTH):
            store(work, s + j, ratio(load(work, c + j), load(work, s + j)))
        for a in range(0, fours, 4):
            p0, p1, p2, p3 = place[a], place[a + 1], place[a + 2], place[a + 3]
            y0 = y1 = y2 = y3 = nothing
            for j in range(0, end, WIDTH):
                y = load(work, s + j)
                y0 = fma(y, load(work, p0 + j), y0)
                y1 = fma(y, load(work, p1 + j), y1)
                y2 = fma(y, load(work, p2 + j), y2)
                y3 = fma(y, load(work, p3 + j), y3)
            sums[a], sums[a + 1] = total(y0), total(y1)
            sums[a + 2], sums[a + 3] = total(y2), total(y3)
        for a in range(fours, n_moving):
            p0, y0 = place[a], nothing
            for j in range(0, end, WIDTH):
                y0 = fma(load(work, s + j), load(work, p0 + j), y0)
            sums[a] = total(y0)
        change = rows.dtype.type(0.0)
        n_left = 0
        for a in range(n_moving):
            k, p = moving[a], place[a]
            x = prior[k] + b * t[a] * sums[a]
            step = abs(x - gamma[a])
            new[k] = x
            change += step
            if step > calm:
                moving[n_left], place[n_left] = k, p
                n_left += 1
            else:
                x = exp(b * digamma(x))
                for j in range(0, end, WIDTH):
                    y = fma(x, load(work, p + j), load(work, rest + j))
                    store(work, rest + j, y)
        n_moving = n_left
        n_rounds += 1
        if change < limit:
            break
    return n_rounds


@kernel(fastmath=REDUCE)
def _lay_out(counts, index, rows, b, moving, n_moving, new, t, m, work):
    """Write what `settle_moving` needs: rows by topic, sums of the rest, and counts."""
    n, K = len(counts), rows.shape[1]
    rest, c = K * m, (K + 2) * m
    zero = rows.dtype.type(0.0)
    for k in range(K):
        t[k] = exp(b * digamma(new[k]))
    for a in range(n_moving):
        t[moving[a]] = zero
    for j in range(n):
        work[c + j], work[rest + j] = counts[j], rows.dtype.type(TINY)
    if t.any():
        for j in range(n):
            v = index[j]
            x = zero
            for k in range(K):
                x += t[k] * rows[v, k]
            work[rest + j] += x
    flat, fours = rows.reshape(-1), n // 4 * 4
    for j in range(0, fours, 4):
        v0, v1 = index[j] * K, index[j + 1] * K
        v2, v3 = index[j + 2] * K, index[j + 3] * K
        for k in range(0, K, WIDTH):
            r0, r1 = load(flat, v0 + k), load(flat, v1 + k)
            r2, r3 = load(flat, v2 + k), load(flat, v3 + k)
            spread(r0, r1, r2, r3, work, k * m + j, m)
    for k in range(K):
        for j in range(fours, n):
            work[k * m + j] = rows[index[j], k]
        for j in range(n, m):
            work[k * m + j] = zero
    for j in range(n, m):
        work[rest + j] = work[c + j] = zero


@kernel(fastmath=REDUCE)
def sum_over_words(w, index, indptr, at, rows, first, last, out):
    """Σ_d w_dv t_dk for words `first` to `last`.

    Threads share the words, not the documents: every sum has one order and one place.

    Parameters
    ----------
    w, index : arrays of shape (n_nonzeros,)
        Words ascend within documents.
    indptr : int64 array of shape (n_documents + 1,)
    at : array of shape (n_documents, K)
        t of every document.
    rows : array of shape (last - first, K), or None
        Those of these words where `w` has counts, to be weighed as `sum_over_tokens`
        does.
    first, last : int
    out : array of shape (last - first, K)
        Written: rows of these words.
    """
    K = at.shape[1]
    shares, sums, tiny = at.reshape(-1), out.reshape(-1), out.dtype.type(TINY)
    flat = sums if rows is None else rows.reshape(-1)
    for k in range(0, (last - first) * K, WIDTH):
        store(sums, k, splat(out.dtype.type(0.0)))
    for i in range(indptr.shape[0] - 1):
        low, high = indptr[i], indptr[i + 1]
        words, own_w = index[low:high], w[low:high]
        # The first of its words that is none of those before.
        start, stop = 0, high - low
        while start < stop:
            middle = (start + stop) // 2
            if words[middle] < first:
                start = middle + 1
            else:
                stop = middle
        for j in range(start, high - low):
            v = words[j] - first
            if v >= last - first:
                break
            weight = own_w[j]
            if rows is not None:
                s = splat(out.dtype.type(0.0))
                for k in range(0, K, WIDTH):
                    s = fma(load(shares, i * K + k), load(flat, v * K + k), s)
                weight = weight / (total(s) + tiny)
            x = splat(weight)
            for k in range(0, K, WIDTH):
                added = fma(x, load(shares, i * K + k), load(sums, v * K + k))
                store(sums, v * K + k, added)


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
    K = deviation.shape[1]
    sums, added = deviation.reshape(-1), values.reshape(-1)
    few = np.empty(K, deviation.dtype)
    for first in range(start, stop, ROWS):
        few[:] = deviation.dtype.type(0.0)
        for u in range(first, min(first + ROWS, stop)):
            v = words[u]
            for k in range(0, K, WIDTH):
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
    K = deviation.shape[1]
    bases, deviations = base.reshape(-1), deviation.reshape(-1)
    priors, result = prior.reshape(-1), out.reshape(-1)
    zero = splat(out.dtype.type(0.0))
    for u in range(start, stop):
        v = words[u] if words.size else u
        r = v * K if base.shape[0] > 1 else 0
        p = v * K if prior.shape[0] > 1 else 0
        for k in range(0, K, WIDTH):
            s = fma(factor, load(deviations, v * K + k), load(bases, r + k))
            x = fma(mass, largest(zero, s), load(priors, p + k))
            store(result, u * K + k, mul(x, load(inverse, k)))
