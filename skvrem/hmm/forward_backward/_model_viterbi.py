"""The most probable states of whole sequences, and draws of them."""

import numpy as np
from scipy.special import logsumexp

from skvrem.hmm.forward_backward import _kernels_logs
from skvrem.utils._parallel import parallel_map, row_chunks

# Rows of a product of matrices, and of a thread's share of sequences.
PRODUCT_ROWS, TASK_ROWS = 4096, 20_000


def log_densities(rows, chain, layout=None):
    """Return the log-density of every row in every state, (n_rows, n_states).

    Of mixtures those of the parts. Rows are those of the container, or of a layout.
    """
    n_rows = len(rows.X) if layout is None else layout.n_rows
    select = slice if layout is None else layout.select
    joint, theta = np.empty((n_rows, len(chain.theta))), chain.theta.T

    def fill(chunk):
        start, stop = chunk
        features = rows.features(select(start, stop), chain.follows)
        np.matmul(features, theta, out=joint[start:stop])

    for _ in parallel_map(fill, row_chunks(0, n_rows, PRODUCT_ROWS)):
        pass
    return joint


def most_probable_paths(rows, chain, log_start, log_transitions, which):
    """Return the most probable state of every row, and each path's log-probability.

    Parameters
    ----------
    rows : SequenceRows
    chain : Chain
    log_start : ndarray of shape (n_states,)
    log_transitions : ndarray of shape (n_matrices, n_states, n_states)
    which : ndarray of int of shape (n_rows,), or empty
        The matrix that leads on from each row; empty is the first.

    Returns
    -------
    states : ndarray of int of shape (n_rows,)
    scores : ndarray of shape (n_sequences,)
        Joint log-probability of a sequence and its path.
    """
    joint, bounds = log_densities(rows, chain), np.asarray(rows.bounds, np.int64)
    if len(chain.theta) > len(log_start):  # mixtures
        joint = logsumexp(joint.reshape(len(joint), len(log_start), -1), axis=2)
    origin = np.empty(joint.shape, np.int16)
    states = np.empty(len(joint), np.int64)
    scores = np.empty(len(bounds) - 1)
    n_tasks = max(1, len(joint) // TASK_ROWS)
    edges = np.searchsorted(bounds, np.linspace(0, bounds[-1], n_tasks + 1))
    edges[0], edges[-1] = 0, len(scores)

    def decode(task):
        _kernels_logs.viterbi(
            joint,
            bounds,
            edges[task],
            edges[task + 1],
            log_start,
            log_transitions,
            which,
            origin,
            states,
            scores,
        )

    for _ in parallel_map(decode, range(n_tasks)):
        pass
    return states, scores


def draw_paths(filtered, bounds, tables, which, uniform):
    """Draw states of all rows from their distribution given the sequences.

    Parameters
    ----------
    filtered : ndarray of shape (n_rows, n_states)
        Log-probabilities given the rows up to each.
    bounds : ndarray of int of shape (n_sequences + 1,)
    tables : ndarray of shape (n_matrices, n_states, n_states)
        Transitions.
    which : ndarray of int of shape (n_rows,), or empty
        The matrix that leads on from each row; empty is the first.
    uniform : ndarray of shape (n_paths, n_rows)
        Uniform random numbers.

    Returns
    -------
    states : ndarray of int of shape (n_paths, n_rows)
    """
    bounds = np.asarray(bounds, np.int64)
    states = np.empty(uniform.shape, np.int64)
    with np.errstate(divide="ignore"):
        tables = np.log(tables)

    def draw(path):
        _kernels_logs.draw_path(
            filtered, bounds, tables, which, uniform[path], states[path]
        )

    for _ in parallel_map(draw, range(len(states))):
        pass
    return states
