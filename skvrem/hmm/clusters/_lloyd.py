"""Lloyd's algorithm, some iterations or to the end, of one or several tries."""

import numpy as np
from sklearn.cluster import kmeans_plusplus

from skvrem.hmm.clusters._model import nearest

LLOYD_ITERATIONS = 20


def climbed(Z, centres, n_iterations=LLOYD_ITERATIONS, known=None):
    """Return labels and centres after iterations of Lloyd's algorithm."""
    for _ in range(n_iterations):
        labels, moved = nearest(Z, centres, known)
        if np.array_equal(moved, centres):
            break
        centres = moved
    return labels, centres


def lloyd(Z, n, method, known, rng, tries=1):
    """Return labels and centres of n clusters by Lloyd's algorithm.

    Parameters
    ----------
    Z : ndarray of shape (n_rows, n_columns)
    n : int
    method : {"kmeans", "random"}
        From centres of k-means++ to the end, or one iteration from random rows.
    known : ndarray of int of shape (n_rows,), or None
        As of `nearest`.
    rng : Generator
    tries : int, default=1
        Of which the one with the least squared distances is taken.
    """
    found = [_try(Z, n, method, known, rng) for _ in range(tries)]
    if tries == 1:
        return found[0]
    squares = [np.square(Z - centres[labels]).sum() for labels, centres in found]
    return found[int(np.argmin(squares))]


def _try(Z, n, method, known, rng):
    seed = int(rng.integers(2**31 - 1))
    if method == "random" or len(Z) < n:
        centres = Z[rng.choice(len(Z), n, replace=len(Z) < n)]
    else:
        centres, _ = kmeans_plusplus(Z, n, random_state=seed)
    if known is not None:
        for state in np.unique(known[known >= 0]):
            centres[state] = Z[known == state].mean(axis=0)
    return climbed(Z, centres, LLOYD_ITERATIONS if method == "kmeans" else 1, known)
