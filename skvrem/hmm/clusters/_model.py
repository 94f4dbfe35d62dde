"""Clusters of rows, to start from."""

import numpy as np

from skvrem.hmm.clusters._kernels import assign


def nearest(Z, centres, known=None):
    """Make a pass of Lloyd's algorithm.

    Parameters
    ----------
    Z : ndarray of shape (n_rows, n_columns)
    centres : ndarray of shape (n_clusters, n_columns)
    known : ndarray of int of shape (n_rows,), default=None
        Labels that are known, -1 where not.

    Returns
    -------
    labels : ndarray of int of shape (n_rows,)
    centres : ndarray of shape (n_clusters, n_columns)
        Means of the rows of each label, as they were where there are none.
    """
    known = np.full(len(Z), -1) if known is None else known
    labels, sums = np.empty(len(Z), np.int64), np.zeros(centres.shape)
    sizes = np.zeros(len(centres))
    assign(np.ascontiguousarray(Z), centres, known, labels, sums, sizes)
    size = sizes[:, None]
    return labels, np.where(size > 0.0, sums / np.maximum(size, 1.0), centres)
