r"""Recursions in logarithms: the most probable path of states, and all of them.

With v_1 = log delta + l_1 and, along a sequence,

    v_t,j = max_i (v_{t-1,i} + log A_t,ij) + l_t,j

where l are the log-densities of the rows in every state; then back from the best last
state through the states that the maxima came from (Viterbi).

With sums in place of maxima these are Eqs. 5 to 8 of Sidrow et al. (2023), for what is
too small beside the rest for a floating point number:

    a_t,j = log sum_i exp(a_{t-1,i} + log A_t,ij) + l_t,j - s_t,   sum_j exp a_t,j = 1
    m_{t-1,i} = log sum_j exp(log A_t,ij + l_t,j + m_t,j - s_t)
    gamma_t,i = exp(a_t,i + m_t,i),
    xi_t(i, j) = exp(a_{t-1,i} + log A_t,ij + l_t,j + m_t,j - s_t)
"""

import math

import numpy as np

from skvrem.utils._jit import CONTRACT, kernel
from skvrem.utils._math import exp


@kernel(fastmath=CONTRACT)
def _advance(v, transitions, m, joint, t, new, origin):
    """One step: new (n) from v (n), and where each maximum came from."""
    n = v.size
    for j in range(n):
        new[j] = v[0] + transitions[m, 0, j]
        origin[t, j] = 0
    for i in range(1, n):
        for j in range(n):
            candidate = v[i] + transitions[m, i, j]
            if candidate > new[j]:
                new[j] = candidate
                origin[t, j] = i
    for j in range(n):
        new[j] += joint[t, j]


@kernel
def viterbi(
    joint, bounds, first, last, start, transitions, which, origin, states, scores
):
    """Fill states (n_rows) and scores (n_sequences) of sequences first..last.

    `start` and `transitions` (n_matrices, n_states, n_states) are logarithms, `which`
    (n_rows) numbers of the matrices that lead on from rows, empty where all is the
    first, `origin` (n_rows, n_states) memory.
    """
    n = start.size
    v, new = np.empty(n), np.empty(n)
    for sequence in range(first, last):
        begin, end = bounds[sequence], bounds[sequence + 1]
        for j in range(n):
            v[j] = start[j] + joint[begin, j]
        for t in range(begin + 1, end):
            m = which[t - 1] if which.size else 0
            _advance(v, transitions, m, joint, t, new, origin)
            v, new = new, v
        best = 0
        for j in range(1, n):
            if v[j] > v[best]:
                best = j
        scores[sequence] = v[best]
        states[end - 1] = best
        for t in range(end - 1, begin, -1):
            best = origin[t, best]
            states[t - 1] = best


@kernel
def _log_sum(values):
    top = -math.inf
    for i in range(values.size):
        top = max(top, values[i])
    if top == -math.inf:
        return top
    total = 0.0
    for i in range(values.size):
        total += exp(values[i] - top)
    return top + math.log(total)


@kernel
def filter_logs(joint, bounds, start, before, transitions, which, alpha, shares):
    """Fill alpha (n_rows, n_states) and shares (n_rows) (Eqs. 4 and 5).

    `which` (n_rows) are numbers of the matrices that lead into rows, empty where all is
    the first. `before` (n_states) is of the row before the first, empty where that
    begins a sequence. Returns the first row of probability 0, -1 where there is none.
    """
    n = start.size
    last, terms = np.empty(n), np.empty(n)
    for sequence in range(bounds.size - 1):
        begin, end = bounds[sequence], bounds[sequence + 1]
        goes_on = sequence == 0 and before.size > 0
        for i in range(n):
            last[i] = before[i] if goes_on else start[i]
        for t in range(begin, end):
            m = which[t] if which.size else 0
            for j in range(n):
                value = last[j]
                if t > begin or goes_on:
                    for i in range(n):
                        terms[i] = last[i] + transitions[m, i, j]
                    value = _log_sum(terms)
                alpha[t, j] = value + joint[t, j]
            shares[t] = _log_sum(alpha[t])
            if shares[t] == -math.inf:
                return t
            for j in range(n):
                alpha[t, j] -= shares[t]
                last[j] = alpha[t, j]
    return -1


@kernel
def smooth_logs(
    joint,
    bounds,
    weight,
    before,
    transitions,
    which,
    alpha,
    shares,
    gamma,
    sum_start,
    pairs,
):
    """Fill gamma (n_rows, n_states), and add to sums of first states and of xi.

    Arguments as of `filter_logs`; `weight` is that of every sequence, `pairs` as
    `transitions` (Eqs. 6 to 8).
    """
    n = sum_start.size
    message, new, terms = np.empty(n), np.empty(n), np.empty(n)
    for sequence in range(bounds.size - 1):
        begin, end = bounds[sequence], bounds[sequence + 1]
        goes_on = sequence == 0 and before.size > 0
        for i in range(n):
            message[i] = 0.0
        for t in range(end - 1, begin - 1, -1):
            for i in range(n):
                gamma[t, i] = weight[sequence] * exp(min(alpha[t, i] + message[i], 0.0))
            if t == begin and not goes_on:
                for i in range(n):
                    sum_start[i] += gamma[t, i]
                break
            m = which[t] if which.size else 0
            for i in range(n):
                here = alpha[t - 1, i] if t > begin else before[i]
                for j in range(n):
                    terms[j] = transitions[m, i, j] + joint[t, j] + message[j]
                    terms[j] -= shares[t]
                    xi = exp(min(here + terms[j], 0.0))
                    pairs[m, i, j] += weight[sequence] * xi
                new[i] = _log_sum(terms)
            for i in range(n):
                message[i] = new[i]


@kernel
def draw_path(filtered, bounds, tables, which, uniform, states):
    """Fill states (n_rows), drawn backward: p(x_t | x_{t+1}, y) ~ alpha_t Gamma_t.

    `filtered` and `tables` are logarithms of these.
    """
    n = filtered.shape[1]
    edges = np.empty(n)
    for sequence in range(bounds.size - 1):
        for t in range(bounds[sequence + 1] - 1, bounds[sequence] - 1, -1):
            last = t + 1 == bounds[sequence + 1]
            m = which[t] if which.size else 0
            top, total = -math.inf, 0.0
            for i in range(n):
                edges[i] = filtered[t, i]
                if not last:
                    edges[i] += tables[m, i, states[t + 1]]
                top = max(top, edges[i])
            for i in range(n):
                total += exp(edges[i] - top)
                edges[i] = total
            state = 0
            while state < n - 1 and edges[state] <= uniform[t] * total:
                state += 1
            states[t] = state
