"""One evaluator for all: the MAP objective and held-out document completion.

Of a topic-word matrix phi (k, v) of probabilities and document-topic shares theta
(d, k), with counts x_dv; alpha and beta are added to counts, that is Dir(1 + alpha),
Dir(1 + beta) (Chen et al. 2018, section 4.2.1):

    objective = [ sum x_dv log p_dv + alpha sum log theta + beta sum log phi ] / sum x
    p_dv = sum_k theta_dk phi_kv

No solver's own code, so that no side can measure itself.
"""

import numba
import numpy as np
from scipy import sparse

__all__ = [
    "complete",
    "fold_in",
    "halve",
    "map_objective",
    "probabilities",
]

#: Steps of EM on theta from the observed half.
FOLD_IN_STEPS = 50
#: Below it a parameter is a zero, whose logarithm would be that of rounding.
TINY = 1e-30


@numba.njit(cache=True, fastmath=True)
def _log_likelihood(indptr, indices, counts, theta, phi_t):
    total = 0.0
    for d in range(len(indptr) - 1):
        for i in range(indptr[d], indptr[d + 1]):
            v = indices[i]
            p = 0.0
            for k in range(theta.shape[1]):
                p += theta[d, k] * phi_t[v, k]
            total += counts[i] * np.log(max(p, 1e-30))
    return total


@numba.njit(cache=True, fastmath=True)
def _fold_in(indptr, indices, counts, theta, phi_t, alpha, n_steps):
    n_topics = theta.shape[1]
    new = np.empty(n_topics)
    for d in range(len(indptr) - 1):
        for _ in range(n_steps):
            for k in range(n_topics):
                new[k] = 0.0
            for i in range(indptr[d], indptr[d + 1]):
                v = indices[i]
                p = 1e-30
                for k in range(n_topics):
                    p += theta[d, k] * phi_t[v, k]
                weight = counts[i] / p
                for k in range(n_topics):
                    new[k] += weight * phi_t[v, k]
            total = 0.0
            for k in range(n_topics):
                new[k] = new[k] * theta[d, k] + alpha
                total += new[k]
            for k in range(n_topics):
                theta[d, k] = new[k] / total


def _parts(X):
    return X.indptr, X.indices, X.data


def probabilities(components):
    """Return topics as probabilities, words along the rows: (v, k), of float64."""
    components = np.asarray(components, dtype=np.float64)
    totals = components.sum(axis=1, keepdims=True)
    # A topic without words is one of all words alike.
    flat = np.full_like(components, 1.0 / components.shape[1])
    shares = np.divide(components, totals, out=flat, where=totals > 0.0)
    return np.ascontiguousarray(shares.T)


def _shares(theta):
    theta = np.array(theta, dtype=np.float64)
    totals = theta.sum(axis=1, keepdims=True)
    flat = np.full_like(theta, 1.0 / theta.shape[1])
    return np.divide(theta, totals, out=flat, where=totals > 0.0)


def map_objective(X, theta, components, alpha, beta):
    """Return the MAP objective in nats a token."""
    theta, phi_t = _shares(theta), probabilities(components)
    value = _log_likelihood(*_parts(X), theta, phi_t)
    if alpha:
        value += alpha * np.log(np.maximum(theta, TINY)).sum()
    if beta:
        value += beta * np.log(np.maximum(phi_t, TINY)).sum()
    return value / X.data.sum(dtype=np.float64)


def fold_in(X, components, alpha, n_steps=FOLD_IN_STEPS):
    """Return theta of documents for given topics, by EM steps from equal shares."""
    phi_t = probabilities(components)
    theta = np.full((X.shape[0], phi_t.shape[1]), 1.0 / phi_t.shape[1])
    _fold_in(*_parts(X), theta, phi_t, alpha, n_steps)
    return theta


def halve(X, seed=0):
    """Put each token into one of two halves by a fair coin."""
    rng = np.random.default_rng(seed)
    first = rng.binomial(X.data.astype(np.int64), 0.5).astype(X.dtype)
    halves = []
    for data in (first, X.data - first):
        half = sparse.csr_matrix((data, X.indices, X.indptr), X.shape, copy=True)
        half.eliminate_zeros()
        halves.append(half)
    return tuple(halves)


def complete(halves, components, alpha):
    """Return the log-likelihood of the second half given the first, nats a token."""
    observed, scored = halves
    phi_t = probabilities(components)
    theta = fold_in(observed, components, alpha)
    value = _log_likelihood(*_parts(scored), theta, phi_t)
    return value / scored.data.sum(dtype=np.float64)
