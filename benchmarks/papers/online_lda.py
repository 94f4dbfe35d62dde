"""Baselines of latent Dirichlet allocation that no package for Python has.

GOEM is Gibbs online EM (Dupuy and Bach 2017, JMLR 18, algorithm 1): the topics of a
minibatch's tokens are drawn with the shares integrated out, and what a token's draws
would have been on average goes to the statistics. SSVI is smoothed stochastic
variational inference (Mandt and Blei 2014, NeurIPS): of the last minibatches' sums the
mean makes the step. Both have the priors Dir(alpha) of shares and Dir(beta) of topics.
"""

from collections import deque

import numba
import numpy as np
from scipy.special import digamma

__all__ = ["ONLINE", "GibbsOnlineEM", "SmoothedSVI"]

#: Sweeps over a document, and those before draws count (Dupuy and Bach's 20 and half).
SWEEPS, BURN_IN = 20, 10
#: Minibatches whose sums are averaged; rounds on a document, and where they end.
WINDOW, ROUNDS, CLOSE = 10, 100, 1e-3


@numba.njit(cache=True)
def draw_topics(indptr, indices, counts, documents, phi, alpha, rng, out):
    """Add to out (v, k) the expected counts of documents; phi (v, k)."""
    n_topics = phi.shape[1]
    chances, filled = np.empty(n_topics), np.empty(n_topics)
    for d in documents:
        n_tokens = 0
        for i in range(indptr[d], indptr[d + 1]):
            n_tokens += int(counts[i])
        words, topics = np.empty(n_tokens, np.int64), np.empty(n_tokens, np.int64)
        filled[:] = alpha
        at = 0
        for i in range(indptr[d], indptr[d + 1]):
            for _ in range(int(counts[i])):
                words[at], topics[at] = indices[i], rng.integers(0, n_topics)
                filled[topics[at]] += 1.0
                at += 1
        for sweep in range(SWEEPS):
            for at in range(n_tokens):
                v = words[at]
                filled[topics[at]] -= 1.0
                total = 0.0
                for k in range(n_topics):
                    total += phi[v, k] * filled[k]
                    chances[k] = total
                if sweep >= BURN_IN:
                    weight = 1.0 / (total * (SWEEPS - BURN_IN))
                    for k in range(n_topics):
                        out[v, k] += weight * phi[v, k] * filled[k]
                u, k = total * rng.random(), 0
                while k < n_topics - 1 and chances[k] < u:
                    k += 1
                topics[at] = k
                filled[k] += 1.0


@numba.njit(cache=True)
def digamma_of(x):
    """ψ(x) for x > 0, to 1e-10."""
    shift = 0.0
    while x < 8.0:
        shift -= 1.0 / x
        x += 1.0
    y = 1.0 / (x * x)
    series = y * (1 / 12 - y * (1 / 120 - y * (1 / 252 - y * (1 / 240 - y / 132))))
    return shift + np.log(x) - 0.5 / x - series


@numba.njit(cache=True)
def settle(indptr, indices, counts, documents, b, alpha, out):
    """Add to out (v, k) the expected counts under mean field; b (v, k) is exp E log."""
    n_topics = b.shape[1]
    gamma, moved, a = np.empty(n_topics), np.empty(n_topics), np.empty(n_topics)
    for d in documents:
        gamma[:] = 1.0
        for rounds in range(ROUNDS + 1):
            whole = digamma_of(gamma.sum())
            for k in range(n_topics):
                a[k] = np.exp(digamma_of(gamma[k]) - whole)
                moved[k] = alpha
            last = rounds == ROUNDS
            for i in range(indptr[d], indptr[d + 1]):
                v, p = indices[i], 1e-100
                for k in range(n_topics):
                    p += a[k] * b[v, k]
                for k in range(n_topics):
                    moved[k] += counts[i] * a[k] * b[v, k] / p
            if np.mean(np.abs(moved - gamma)) < CLOSE:
                last = True
            gamma[:] = moved
            if last:
                break
        whole = digamma_of(gamma.sum())
        for k in range(n_topics):
            a[k] = np.exp(digamma_of(gamma[k]) - whole)
        for i in range(indptr[d], indptr[d + 1]):
            v, p = indices[i], 1e-100
            for k in range(n_topics):
                p += a[k] * b[v, k]
            for k in range(n_topics):
                out[v, k] += counts[i] * a[k] * b[v, k] / p


class _Online:
    """What both share.

    Parameters
    ----------
    X : csr_matrix of shape (n_documents, n_words)
    n_topics, n_batches, seed : int
    alpha, beta : float
        Priors of shares and of topics.
    step_size, step_offset, step_decay : float
        The step t, from 1, is step_size / (t + step_offset)^step_decay, at most 1.
    """

    def __init__(self, X, n_topics, alpha, beta, n_batches, seed, *, step_size,
                 step_offset, step_decay):  # fmt: skip
        self.X, self.alpha, self.beta = X, alpha, beta
        self.rng, self.n_batches = np.random.default_rng(seed), n_batches
        self.steps, self.count = (step_size, step_offset, step_decay), 0
        tokens = X.sum() / (n_topics * X.shape[1])
        self.sums = tokens * self.rng.gamma(100.0, 0.01, (X.shape[1], n_topics))

    @property
    def topics(self):
        """Probabilities of words, (n_topics, n_words)."""
        topics = self.sums.T + self.beta
        return topics / topics.sum(axis=1, keepdims=True)

    def epoch(self):
        """Visit all documents once."""
        n = self.X.shape[0]
        for documents in np.array_split(self.rng.permutation(n), self.n_batches):
            self.count += 1
            size, offset, decay = self.steps
            rate = min(1.0, size / (self.count + offset) ** decay)
            found = np.zeros_like(self.sums)
            self._expect(documents, found)
            found *= n / len(documents)
            self._move(found, rate)


class GibbsOnlineEM(_Online):
    """See `_Online`."""

    def _expect(self, documents, out):
        X, phi = self.X, np.ascontiguousarray(self.topics.T)
        where = X.indptr, X.indices, X.data, documents
        draw_topics(*where, phi, self.alpha, self.rng, out)

    def _move(self, found, rate):
        self.sums += rate * (found - self.sums)


class SmoothedSVI(_Online):
    """See `_Online`."""

    def __init__(self, *arguments, **steps):
        super().__init__(*arguments, **steps)
        self.last = deque(maxlen=WINDOW)

    def _expect(self, documents, out):
        X, given = self.X, self.sums + self.beta
        b = np.exp(digamma(given) - digamma(given.sum(axis=0)))
        settle(X.indptr, X.indices, X.data, documents, b, self.alpha, out)

    def _move(self, found, rate):
        self.last.append(found)
        self.sums += rate * (np.mean(self.last, axis=0) - self.sums)


ONLINE = {"GOEM": GibbsOnlineEM, "SSVI": SmoothedSVI}
