"""Means and deviations of columns, block by block."""

from functools import partial
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

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

    With targets, numbers, those of a last column.
    """
    return data.chunks().reduce(partial(_of_batch, targets), BothMoments.merged)


def _of_batch(targets, batch):
    weight = batch.weight if batch.weight.size else None
    if not sparse(batch.rows):  # in memory those of all blocks
        some = batch.ids if batch.index.size else slice(batch.start, batch.stop)
        y = None if batch.targets is None else batch.targets[some]
        weight = None if weight is None else weight[some]
        batch = batch._replace(rows=batch.rows[some], targets=y)
    both = _moments(batch, None, targets)
    weighted = both if weight is None else _moments(batch, weight, targets)
    return BothMoments(both, weighted)


def _moments(batch, weight, targets):
    rows, n = batch.rows, batch.n_units
    if sparse(rows):
        *parts, d = rows
        rows = sp.csr_array(tuple(parts), (n, d))
    total = float(n if weight is None else weight.sum())
    w = np.ones(n) if weight is None else weight
    if not total > 0.0:
        d = rows.shape[1] + targets
        return ColumnMoments(0.0, np.zeros(d), np.zeros(d))
    mean = (w @ rows) / total
    if sp.issparse(rows):
        filled = w @ (rows != 0).astype(float)
        about = rows.astype(np.float64).copy()
        about.data -= mean[about.indices]
        square = w @ about.multiply(about) + (total - filled) * np.square(mean)
    else:
        square = w @ np.square(rows.astype(np.float64) - mean)
    if targets:
        y = np.asarray(batch.targets, np.float64)
        y = y if y.ndim == 1 else y[:, 0]
        center = float(w @ y) / total
        mean = np.append(mean, center)
        square = np.append(square, w @ np.square(y - center))
    return ColumnMoments(total, mean, square)
