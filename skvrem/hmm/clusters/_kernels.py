"""Clusters of rows, to start from."""

import math

from skvrem.utils._jit import kernel


@kernel
def assign(Z, centres, known, labels, sums, sizes):
    """Label rows by the nearest centre, or as they are known, and sum them by label.

    `known` is -1 where the label is not. Sums (n_clusters, n_columns) and sizes
    (n_clusters) are added to.
    """
    n_rows, d = Z.shape
    for row in range(n_rows):
        best, nearest = max(known[row], 0), math.inf
        if known[row] < 0:
            for k in range(len(centres)):
                distance = 0.0
                for j in range(d):
                    distance += (Z[row, j] - centres[k, j]) ** 2
                if distance < nearest:
                    nearest, best = distance, k
        labels[row] = best
        sizes[best] += 1.0
        for j in range(d):
            sums[best, j] += Z[row, j]
