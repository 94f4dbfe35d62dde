"""Means and deviations of columns, block by block."""

from functools import partial
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from skvrem.data._arrays import rows_of, rows_of_block
from skvrem.data._batch import sparse


class ColumnMoments(NamedTuple):
    """Weight, mean and sum of squares about it of the columns of some rows."""

    weight: float
    mean: np.ndarray
    square: np.ndarray

    def merged(self, other):
        """Return those of all rows of two blocks."""
        total = self.weight + other.weight
        if not total > 0.0:
            return self
        apart, share = other.mean - self.mean, other.weight / total
        between = np.square(apart) * (self.weight * share)
        square = self.square + other.square + between
        return ColumnMoments(total, self.mean + share * apart, square)

    @property
    def deviation(self):
        """Standard deviations of the columns, exactly zero where they do not vary."""
        variance = self.square / self.weight
        eps = np.finfo(float).eps
        n = self.weight
        bound = n * eps * variance + np.square(n * self.mean * eps)
        return np.where(variance <= bound, 0.0, np.sqrt(variance))


class BothMoments(NamedTuple):
    """Those of rows as they are, and as they are weighed."""

    plain: ColumnMoments
    weighted: ColumnMoments

    def merged(self, other):
        """Return those of all rows of two blocks."""
        return BothMoments(*(a.merged(b) for a, b in zip(self, other, strict=True)))


def column_moments(data, targets=False):
    """Return the `BothMoments` of the features of a source, by one pass.

    With targets, numbers that batches bring, those of a last column.
    """
    if getattr(data, "sparse", False) and not data.remote:  # a batch has blocks, too
        rows, weight = rows_of(data)
        return _both(rows, weight, None)
    return data.chunks().reduce(partial(_of_batch, targets), BothMoments.merged)


def _of_batch(targets, batch):
    weight = batch.weight if batch.weight.size else None
    y = batch.targets if targets else None
    if sparse(batch.rows):
        rows, weight = rows_of_block(batch)
    else:  # in memory those of all blocks
        some = batch.ids if batch.index.size else slice(batch.start, batch.stop)
        y = None if y is None else y[some]
        rows, weight = batch.rows[some], None if weight is None else weight[some]
    return _both(rows, weight, y)


def _both(rows, weight, y):
    both = _moments(rows, None, y)
    return BothMoments(both, both if weight is None else _moments(rows, weight, y))


def _moments(rows, weight, y):
    n, d = rows.shape
    total = float(n if weight is None else weight.sum())
    w = np.ones(n) if weight is None else weight
    if not total > 0.0:
        d += y is not None
        return ColumnMoments(0.0, np.zeros(d), np.zeros(d))
    mean = (w @ rows) / total
    if sp.issparse(rows):
        each, at = np.repeat(w, np.diff(rows.indptr)), rows.indices
        # Of a full column nothing is left, not what sums differ by.
        full = np.bincount(at, minlength=d) == n
        empty = np.where(full, 0.0, total - np.bincount(at, each, d))
        square = empty * np.square(mean)  # counts of no entry would be integers
        square += np.bincount(at, each * np.square(rows.data - mean[at]), d)
    else:
        square = w @ np.square(rows.astype(np.float64) - mean)
    if y is not None:
        y = np.asarray(y, np.float64)
        y = y if y.ndim == 1 else y[:, 0]
        center = float(w @ y) / total
        mean = np.append(mean, center)
        square = np.append(square, w @ np.square(y - center))
    return ColumnMoments(total, mean, square)
