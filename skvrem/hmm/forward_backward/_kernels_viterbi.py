r"""The most probable path of states (Viterbi).

With v_1 = log delta + l_1 and, along a sequence,

    v_t,j = max_i (v_{t-1,i} + log A_t,ij) + l_t,j

where l are the log-densities of the rows in every state; then back from the best last
state through the states that the maxima came from.
"""

import numpy as np

from skvrem.utils._jit import CONTRACT, kernel


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
def draw_path(filtered, bounds, tables, which, uniform, states):
    """Fill states (n_rows), drawn backward: p(x_t | x_{t+1}, y) ~ alpha_t Gamma_t."""
    n = filtered.shape[1]
    edges = np.empty(n)
    for sequence in range(bounds.size - 1):
        for t in range(bounds[sequence + 1] - 1, bounds[sequence] - 1, -1):
            last = t + 1 == bounds[sequence + 1]
            m = which[t] if which.size else 0
            total = 0.0
            for i in range(n):
                leads = 1.0 if last else tables[m, i, states[t + 1]]
                total += filtered[t, i] * leads
                edges[i] = total
            state = 0
            while state < n - 1 and edges[state] <= uniform[t] * total:
                state += 1
            states[t] = state
