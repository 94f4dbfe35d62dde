"""Hidden Markov models by enumeration of all paths, recursions and differences."""

from itertools import product

import numpy as np
from scipy.special import logsumexp

from skvrem.hmm._input import fitted_parameters, open_rows
from skvrem.hmm._model import differences


def enumerate_paths(joint, start, transitions, beta=1.0):
    """All paths of one sequence: log-likelihood, posteriors, pairs, best path.

    joint (T, N) are log-densities of the rows in the states. Transitions are a matrix,
    or (T - 1, N, N) those from each row to the next; then so are the pairs.
    """
    n_rows, n = joint.shape
    with np.errstate(divide="ignore"):
        log_start, log_transitions = np.log(start), np.log(transitions)
    paths = np.array(list(product(range(n), repeat=n_rows)))
    score = log_start[paths[:, 0]] + joint[np.arange(n_rows), paths].sum(axis=1)
    steps = np.broadcast_to(log_transitions, (n_rows - 1, n, n))
    at = np.arange(n_rows - 1)
    score = score + steps[at, paths[:, :-1], paths[:, 1:]].sum(axis=1)
    total = logsumexp(beta * score)
    weight = np.exp(beta * score - total)
    gamma = np.zeros((n_rows, n))
    pairs = np.zeros((n_rows - 1, n, n))
    for path, w in zip(paths, weight, strict=True):
        gamma[np.arange(n_rows), path] += w
        pairs[at, path[:-1], path[1:]] += w
    if transitions.ndim == 2:
        pairs = pairs.sum(axis=0)
    best = score.argmax()
    return total / beta, gamma, pairs, paths[best], score[best]


def recursions(joint, start, transitions):
    """Forward and backward in log space: log-likelihood a row, filter, smoother, xi.

    Transitions, and xi, as in `enumerate_paths`.
    """
    n_rows, n = joint.shape
    with np.errstate(divide="ignore"):
        log_start, log_transitions = np.log(start), np.log(transitions)
    log_steps = np.broadcast_to(log_transitions, (n_rows - 1, n, n))
    alpha, beta = np.empty((n_rows, n)), np.zeros((n_rows, n))
    alpha[0] = log_start + joint[0]
    for t in range(1, n_rows):
        alpha[t] = logsumexp(alpha[t - 1][:, None] + log_steps[t - 1], axis=0)
        alpha[t] += joint[t]
    for t in range(n_rows - 2, -1, -1):
        beta[t] = logsumexp(log_steps[t] + joint[t + 1] + beta[t + 1], axis=1)
    total = logsumexp(alpha[-1])
    gamma = np.exp(alpha + beta - total)
    pairs = np.zeros((n_rows - 1, n, n))
    for t in range(1, n_rows):
        step = alpha[t - 1][:, None] + log_steps[t - 1] + joint[t] + beta[t]
        pairs[t - 1] = np.exp(step - total)
    if transitions.ndim == 2:
        pairs = pairs.sum(axis=0)
    sums = logsumexp(alpha, axis=1)
    filtered = np.exp(alpha - sums[:, None])
    return np.diff(sums, prepend=0.0), filtered, gamma, pairs


def check_gradient(model, X):
    """Compare the gradient of a fitted model with differences of its objective."""
    _, data, inner = open_rows(model, X)
    parameters = fitted_parameters(model)
    point, vector = inner.start(parameters), inner.free(parameters)

    def value(moved):
        at = point._replace(parameters=inner.bind(moved, parameters))
        return np.array([inner.objective(at, inner.mean(at, data))])

    found = inner.gradient(point, inner.mean(point, data))
    np.testing.assert_allclose(found, differences(value, vector)[0], atol=2e-6)


def enumerate_sequences(rows, chain, joint, beta):
    """Sums over sequences of what all their paths say, and posteriors of the rows."""
    found = [
        enumerate_paths(joint[a:b], chain.start, chain.transitions, beta)
        for a, b in zip(rows.bounds[:-1], rows.bounds[1:], strict=True)
    ]
    totals, gammas, pairs, *_ = zip(*found, strict=True)
    start = sum(gamma[0] for gamma in gammas)
    return sum(totals), start, sum(pairs), np.concatenate(gammas)
