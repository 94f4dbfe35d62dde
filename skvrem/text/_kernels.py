"""Likelihoods of word counts under topics, document by document.

``words`` (n_features, n_topics) holds the topics' probabilities of each word, a word a
row, so that the loop over topics reads and vectorises along memory; ``words[v, k]`` is
the phi_kv of the equations. Documents are rows ``start..stop`` of a CSR matrix. All
arrays but the outputs are read only.
"""

import math

import numpy as np

from skvrem.utils._jit import REDUCE, kernel

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX2 = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)


@kernel(fastmath=REDUCE)
def mixture_log_likelihood(indptr, indices, data, start, stop, theta, words, out):
    """out[d] = sum_v n_dv log(sum_k theta_dk phi_kv) of documents start..stop."""
    n_topics = words.shape[1]
    for d in range(start, stop):
        total = 0.0
        for i in range(indptr[d], indptr[d + 1]):
            v = indices[i]
            p = theta[d, 0] * words[v, 0]
            for k in range(1, n_topics):
                p += theta[d, k] * words[v, k]
            total += data[i] * math.log(p)
        out[d] = total


@kernel
def _uniform(seed, count):
    """Return the `count`-th number of a stream, uniform on [0, 1) (SplitMix64)."""
    x = seed + count * _GAMMA
    x = (x ^ (x >> _S30)) * _MIX1
    x = (x ^ (x >> _S27)) * _MIX2
    x = x ^ (x >> _S31)
    return np.float64(np.int64(x >> _S11)) * 1.1102230246251565e-16


@kernel(fastmath=REDUCE)
def _total(words, v, counts, r):
    """Return sum_k phi_kv (n_k + alpha_k) of particle r."""
    total = 0.0
    for k in range(counts.shape[1]):
        total += words[v, k] * counts[r, k]
    return total


@kernel
def _search(words, v, counts, r, skip, u):
    """Return topic k, other than skip, in proportion to phi_kv (n_k + alpha_k).

    u is uniform between 0 and the sum of these over the other topics.
    """
    last = skip
    for k in range(counts.shape[1]):
        p = words[v, k] * counts[r, k]
        if k != skip and p > 0.0:
            u -= p
            last = np.int32(k)
            if u < 0.0:
                break
    return last  # the last possible one, where rounding has left some of u


@kernel
def _select(weights, counts, topics, n, u, offspring):
    """Replace particles by copies of others, in proportion to their weights.

    Systematic resampling: particle r has the weights' share of n_particles offspring,
    rounded up or down. Survivors stay in place; positions before n are copied.
    """
    n_particles, n_topics = counts.shape
    total = 0.0
    for r in range(n_particles):
        total += weights[r]
    if not total > 0.0:
        return
    # Offspring: how many points (i + u) / n_particles lie in each one's share.
    reached, i = 0.0, 0
    for r in range(n_particles):
        reached += weights[r]
        offspring[r] = 0
        while i < n_particles and (i + u) * total < reached * n_particles:
            offspring[r] += 1
            i += 1
    offspring[n_particles - 1] += n_particles - i  # rounding
    s = 0
    for r in range(n_particles):
        if offspring[r] > 0:
            continue
        while offspring[s] < 2:
            s += 1
        offspring[s] -= 1
        for k in range(n_topics):
            counts[r, k] = counts[s, k]
        for m in range(n):
            topics[m, r] = topics[m, s]


@kernel
def left_to_right(tokens, words, counts, topics, select, seed):
    """Return the left-to-right estimate of log p(tokens) (Wallach et al., Algorithm 3).

    log p(w) is about sum_n log (1/R) sum_r sum_k phi_kv (n_k^r + alpha_k) /
    (n - 1 + sum alpha), where v is the n-th token and n_k^r counts the topics of the
    tokens before it in particle r, each of which has just been drawn anew given the
    others. With ``select`` the particles are then resampled by that sum over k.

    ``counts`` (n_particles, n_topics) comes in as alpha in every row and is added to;
    ``topics`` (n_tokens, n_particles) is for the kernel's own use.
    """
    n_particles, n_topics = counts.shape
    weights = np.empty(n_particles)
    offspring = np.empty(n_particles, np.int64)
    prior_sum = 0.0
    for k in range(n_topics):
        prior_sum += counts[0, k]
    count = np.uint64(0)
    one = np.uint64(1)
    log_likelihood = 0.0
    for n in range(tokens.size):
        v = tokens[n]
        for m in range(n):
            # Particles inside: while one waits for its sum, the next has begun.
            for r in range(n_particles):
                # The token's own count is taken off the sums rather than the array:
                # mostly it keeps its topic, which comes first, and nothing is written.
                k = topics[m, r]
                phi = words[tokens[m], k]
                total = _total(words, tokens[m], counts, r) - phi
                u = _uniform(seed, count) * total - phi * (counts[r, k] - 1.0)
                count += one
                if u >= 0.0:
                    counts[r, k] -= 1.0
                    k = _search(words, tokens[m], counts, r, k, u)
                    topics[m, r] = k
                    counts[r, k] += 1.0
        p = 0.0
        for r in range(n_particles):
            weights[r] = _total(words, v, counts, r)
            p += weights[r]
        log_likelihood += math.log(p / (n_particles * (n + prior_sum)))
        if select:
            _select(weights, counts, topics, n, _uniform(seed, count), offspring)
            count += one
        for r in range(n_particles):
            u = _uniform(seed, count) * _total(words, v, counts, r)
            count += one
            k = _search(words, v, counts, r, np.int32(-1), u)
            topics[n, r] = k
            counts[r, k] += 1.0
    return log_likelihood
