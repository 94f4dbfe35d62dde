"""Hidden Markov models by enumeration of all paths, and by plain recursions."""

from itertools import product

import numpy as np
from scipy.special import logsumexp


def enumerate_paths(joint, start, transitions, beta=1.0):
    """All paths of one sequence: log-likelihood, posteriors, pairs, best path.

    joint (T, N) are log-densities of the rows in the states.
    """
    n_rows, n = joint.shape
    with np.errstate(divide="ignore"):
        log_start, log_transitions = np.log(start), np.log(transitions)
    paths = np.array(list(product(range(n), repeat=n_rows)))
    score = log_start[paths[:, 0]] + joint[np.arange(n_rows), paths].sum(axis=1)
    score = score + log_transitions[paths[:, :-1], paths[:, 1:]].sum(axis=1)
    total = logsumexp(beta * score)
    weight = np.exp(beta * score - total)
    gamma = np.zeros((n_rows, n))
    pairs = np.zeros((n, n))
    for path, w in zip(paths, weight, strict=True):
        gamma[np.arange(n_rows), path] += w
        np.add.at(pairs, (path[:-1], path[1:]), w)
    best = score.argmax()
    return total / beta, gamma, pairs, paths[best], score[best]


def recursions(joint, start, transitions):
    """Forward and backward in log space: log-likelihood a row, filter, smoother, xi."""
    n_rows, n = joint.shape
    with np.errstate(divide="ignore"):
        log_start, log_transitions = np.log(start), np.log(transitions)
    alpha, beta = np.empty((n_rows, n)), np.zeros((n_rows, n))
    alpha[0] = log_start + joint[0]
    for t in range(1, n_rows):
        alpha[t] = logsumexp(alpha[t - 1][:, None] + log_transitions, axis=0) + joint[t]
    for t in range(n_rows - 2, -1, -1):
        beta[t] = logsumexp(log_transitions + joint[t + 1] + beta[t + 1], axis=1)
    total = logsumexp(alpha[-1])
    gamma = np.exp(alpha + beta - total)
    pairs = np.zeros((n, n))
    for t in range(1, n_rows):
        step = alpha[t - 1][:, None] + log_transitions + joint[t] + beta[t]
        pairs += np.exp(step - total)
    sums = logsumexp(alpha, axis=1)
    filtered = np.exp(alpha - sums[:, None])
    return np.diff(sums, prepend=0.0), filtered, gamma, pairs
