"""Loops over documents and topics of latent Dirichlet allocation.

Names as in Mandt et al. (2016), supplement B.2: c_dv counts, γ_dk parameters of q(θ_d),
λ_kv parameters of q(β_k), α and η their priors, b the inverse temperature. Topics are
stored word by word, padded with topics whose priors and parameters are zero; the
expectations E log of those are -inf, and their shares 0.

A batch numbers its own words, see `topics._kernels`. Every row of E log β is taken
relative to its largest entry, which cancels in the posteriors and keeps them from
underflowing where η is small.
"""

import numpy as np

from skvrem.topics._kernels import room_to_settle, settle_document
from skvrem.utils._jit import REDUCE, kernel
from skvrem.utils._math import digamma, exp, log, log_gamma

# Times a document's posteriors are found anew at another temperature of its own.
TURNS = 4


@kernel(fastmath=REDUCE)
def expect_log(topics, psi_totals, start, stop, out, top):
    """E log β_kv = ψ(λ_kv) - ψ(Σ_v λ_kv), less its largest entry over k, for words.

    Parameters
    ----------
    topics : array of shape (n_words, K)
        λ.
    psi_totals : array of shape (K,)
        ψ(Σ_v λ_kv), 0 for padding.
    start, stop : int
        Words.
    out : array of shape (n_words, K)
    top : array of shape (n_words,)
        The largest entries.
    """
    for v in range(start, stop):
        for k in range(topics.shape[1]):
            out[v, k] = digamma(topics[v, k]) - psi_totals[k]
        # A loop by itself: there is no vector maximum, and digamma would have none.
        largest = topics.dtype.type(-np.inf)
        for k in range(topics.shape[1]):
            largest = max(largest, out[v, k])
        top[v] = largest
        for k in range(topics.shape[1]):
            out[v, k] -= largest


@kernel(fastmath=REDUCE)
def temper(b, start, stop, rows):
    """E log β_kv becomes exp(b E log β_kv) for the words `start` to `stop`.

    One array: of two that are the same, a loop of vector instructions is refused.
    """
    for v in range(start, stop):
        for k in range(rows.shape[1]):
            rows[v, k] = exp(b * rows[v, k])


@kernel(fastmath=REDUCE)
def divergence_of_topics(topics, prior, psi_totals, start, stop):
    """Words' part of Σ_k KL(q(β_k) | p(β_k)), less terms of column sums alone.

    Σ_kv log Γ(η_kv) - log Γ(λ_kv) + (λ_kv - η_kv) (ψ(λ_kv) - ψ(Σ_v λ_kv))

    Parameters
    ----------
    topics : array of shape (n_features, K)
        λ.
    prior : array of shape (n_features, K) or (1, K)
        η.
    psi_totals : array of shape (K,)
    start, stop : int
    """
    zero = prior.dtype.type(0.0)
    sums = np.zeros(topics.shape[1])  # a loop of vector instructions, unlike one total
    for v in range(start, stop):
        p = v if prior.shape[0] > 1 else 0
        for k in range(topics.shape[1]):
            # Padding counts as one in both: a branch would cost the vectors, too.
            real = prior[p, k] > zero
            x = np.float64(topics[v, k]) if real else 1.0
            y = np.float64(prior[p, k]) if real else 1.0
            e = digamma(x) - np.float64(psi_totals[k])
            sums[k] += log_gamma(y) - log_gamma(x) + (x - y) * e
    return sums.sum()


@kernel(fastmath=REDUCE)
def log_beta(gamma, prior):
    """Σ_k log Γ(γ_k) - log Γ(Σ_k γ_k), log B(γ), without the padding."""
    total = result = 0.0
    zero, parts = prior.dtype.type(0.0), np.empty(gamma.shape[0])
    for k in range(gamma.shape[0]):
        # Padding counts as one, and a loop by itself: see above.
        x = np.float64(gamma[k]) if prior[k] > zero else 1.0
        parts[k] = log_gamma(x)
    for k in range(gamma.shape[0]):
        total += gamma[k]
        result += parts[k]
    return result - log_gamma(total)


@kernel(fastmath=REDUCE)
def divergence_of_shares(gamma, prior, log_beta_prior):
    """KL(q(θ_d) | p(θ_d)) of Dirichlet distributions with parameters γ and α.

    log B(α) - log B(γ) + Σ_k (γ_k - α_k) (ψ(γ_k) - ψ(Σ_k γ_k))
    """
    total = result = 0.0
    zero, parts = prior.dtype.type(0.0), np.empty(gamma.shape[0])
    for k in range(gamma.shape[0]):
        total += gamma[k]
    psi = digamma(total)
    for k in range(gamma.shape[0]):
        x = np.float64(gamma[k]) if prior[k] > zero else 1.0
        y = np.float64(prior[k]) if prior[k] > zero else 1.0
        parts[k] = (x - y) * (digamma(x) - psi)
    for k in range(gamma.shape[0]):
        result += parts[k]
    return log_beta_prior - log_beta(gamma, prior) + result


@kernel(fastmath=REDUCE)
def settle_tempered(
    counts, index, logs, top, prior, tempered, n_steps, tol, old, new, t, g, w, work
):
    """`settle_document` at a temperature of the document's own, which is returned.

    q(T_d) ∝ exp(b e_d - n_d log Z_d(b)) on the grid of b = 1 / T (Eq. 10), with
    e_d = Σ_v c_dv Σ_k q(z_dv = k) (E log θ_dk + E log β_kv),
    Z_d(b) = Σ_k exp(b E log θ_dk) S_k(b), and b_d = E[1 / T_d] in all updates (Eq. 11).

    Parameters
    ----------
    counts, index, prior, n_steps, tol, old, new, t, g, w, work :
        As in `settle_document`.
    logs, top : arrays of shapes (n_words, K) and (n_words,)
        E log β_kv relative to the largest, and that.
    tempered : tuple (grid, partition, inverse)
        Inverse temperatures, a float64 array of shape (n_temperatures,), ascending, in
        the middle of which b_d starts; S_k(b), a float64 array of shape
        (n_temperatures, K); where all b_d go, an array of shape (n_documents,).

    Returns
    -------
    b : float
        b_d.
    """
    K, n_words = logs.shape[1], len(counts)
    grid, partition, _ = tempered
    zero, rows = logs.dtype.type(0.0), np.empty((n_words, K), logs.dtype)
    expected = np.empty(K, np.float64)
    score = np.empty(grid.shape[0], np.float64)
    own = np.arange(n_words)
    length = zero
    for j in range(n_words):
        length += counts[j]
    b = logs.dtype.type(grid[grid.shape[0] // 2])
    for turn in range(TURNS):
        for u in range(n_words):
            for k in range(K):
                rows[u, k] = exp(b * logs[index[u], k])
        settle_document(
            counts, own, rows, prior, b, n_steps, tol, old, new, t, g, w, work
        )
        if turn == TURNS - 1 or n_words == 0:
            break
        # q(T_d), at the posteriors of this turn
        sum_old = 0.0
        for k in range(K):
            sum_old += old[k]
        psi = digamma(sum_old)
        energy = 0.0
        for k in range(K):
            if prior[k] > zero:
                expected[k] = digamma(np.float64(old[k])) - psi
        for k in range(K):
            if prior[k] > zero:
                energy += expected[k] * t[k] * g[k]
        for u in range(n_words):
            word = zero
            share = zero
            for k in range(K):
                x = t[k] * rows[u, k]
                share += x
                # 0 * -inf for padding
                word += x * max(logs[index[u], k], logs.dtype.type(-1e30))
            energy += w[u] * (word + share * top[index[u]])
        best = -np.inf
        for m in range(grid.shape[0]):
            z = 0.0
            for k in range(K):
                if prior[k] > zero:
                    z += exp(grid[m] * expected[k]) * partition[m, k]
            score[m] = grid[m] * energy - length * log(z)
            best = max(best, score[m])
        mass = mean = 0.0
        for m in range(grid.shape[0]):
            x = exp(score[m] - best)
            mass += x
            mean += x * grid[m]
        b = logs.dtype.type(mean / mass)
    return b


@kernel(fastmath=REDUCE)
def infer_documents(
    documents, start, stop, rows, top, prior, b, n_steps, tol, tempered, gamma, at, w
):
    """Coordinate ascent on q(θ_d) and q(z_d) of documents `start` to `stop`.

    The local part of Algorithm 1, as in supplement B.2:

    q(z_dv = k) ∝ exp(b (E log θ_dk + E log β_kv)),  γ_dk = α_k + b Σ_v c_dv q(z_dv = k)

    from γ_dk = α_k + n_d / K on.

    Parameters
    ----------
    documents : tuple (counts, index, indptr, weight)
        Counts and their words, arrays of shape (n_nonzeros,); int64 array of shape
        (n_documents + 1,); sample weights u_d, shape (n_documents,), or empty.
    start, stop : int
    rows : array of shape (n_words, K)
        exp(b E log β_kv), relative to the largest; if `tempered` E log β_kv itself.
    top : array of shape (n_words,)
        The largest E log β_kv.
    prior : array of shape (K,)
        α, 0 for padding.
    b : float
    n_steps : int
        Most rounds, at least 1.
    tol : float
        The last round is also the first that changes γ by less than this a topic.
    tempered : tuple (grid, partition, inverse), or None
        With it every document has a temperature of its own, see `settle_tempered`.
    gamma : array of shape (n_documents, K)
        Written: γ.
    at : array of shape (n_documents, K)
        Written: exp(b ψ(γ_dk)) before the last round, at which `w` is.
    w : array of shape (n_nonzeros,)
        Written: u_d c_dv over the sums of the last round.

    Returns
    -------
    bound : float
        Σ_d u_d (Σ_v c_dv log Σ_k exp(b (E log θ_dk + E log β_kv))
        - KL(q(θ_d) | p(θ_d))) before the last round.
    """
    (counts, index, indptr, weight), K = documents, rows.shape[1]
    zero, one = rows.dtype.type(0.0), rows.dtype.type(1.0)
    old, new = np.empty(K, rows.dtype), np.empty(K, rows.dtype)
    t, g = np.empty(K, rows.dtype), np.empty(K, rows.dtype)
    rounds, buffers = (n_steps, tol), (old, new, t, g)
    n_topics, longest = 0, 0
    for k in range(K):
        n_topics += prior[k] > zero
    for i in range(start, stop):
        longest = max(longest, indptr[i + 1] - indptr[i])
    work = room_to_settle(longest, rows)
    total, normaliser = 0.0, log_beta(prior, prior)
    for i in range(start, stop):
        low, high = indptr[i], indptr[i + 1]
        c, words, own_w = counts[low:high], index[low:high], w[low:high]
        length = zero
        for j in range(high - low):
            length += c[j]
        for k in range(K):
            new[k] = prior[k] + length / n_topics if prior[k] > zero else zero
        if tempered is None:
            settle_document(c, words, rows, prior, b, *rounds, *buffers, own_w, work)
        else:
            b = settle_tempered(
                c, words, rows, top, prior, tempered, *rounds, *buffers, own_w, work
            )
            tempered[2][i] = b
        share = weight[i] if weight.size else one
        psi_total = zero
        for k in range(K):
            gamma[i, k] = new[k]
            at[i, k] = t[k]
        for k in range(K):  # a sum by itself: see `settle_document`
            psi_total += old[k]
        bound = zero
        for j in range(high - low):
            bound += c[j] * (log(c[j] / own_w[j]) + b * top[words[j]])
        bound -= b * length * digamma(psi_total)
        total += share * (bound - divergence_of_shares(old, prior, normaliser))
        if weight.size:
            for j in range(high - low):
                own_w[j] *= share
    return total


@kernel(fastmath=REDUCE)
def partition_function(logs, top, grid, start, stop, out):
    """S_k(b) = Σ_v exp(b log β_kv) over the words `start` to `stop`, added to `out`.

    Parameters
    ----------
    logs : array of shape (n_features, K)
        log β_kv, or its expectation, relative to the largest of the word.
    top : array of shape (n_features,)
        The largest.
    grid : float64 array of shape (n_temperatures,)
        Inverse temperatures b.
    start, stop : int
    out : float64 array of shape (n_temperatures, K)
    """
    for v in range(start, stop):
        for m in range(grid.shape[0]):
            b = logs.dtype.type(grid[m])
            for k in range(logs.shape[1]):
                out[m, k] += exp(b * (logs[v, k] + top[v]))


@kernel(fastmath=REDUCE)
def sum_tempered_words(w, index, indptr, at, inverse, logs, first, last, out):
    """Σ_d b_d w_dv t_dk exp(b_d E log β_kv) of Eq. 11, for topics `first` to `last`.

    Parameters
    ----------
    w, index, indptr, at, first, last, out :
        As in `sum_over_words`; here `out` is the whole sum.
    inverse : array of shape (n_documents,)
        b_d.
    logs : array of shape (n_words, K)
        E log β_kv relative to the largest.
    """
    t = np.empty(at.shape[1], at.dtype)
    low, high = np.uint64(first), np.uint64(last)
    for i in range(indptr.shape[0] - 1):
        b = inverse[i]
        for k in range(low, high):
            t[k] = b * at[i, k]
        for j in range(indptr[i], indptr[i + 1]):
            v, x = index[j], w[j]
            for k in range(low, high):
                out[v, k] += x * t[k] * exp(b * logs[v, k])
