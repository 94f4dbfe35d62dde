"""Rows of generalised linear models: in the blocks of dask, their columns, offsets."""

import warnings
from functools import partial
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_array

from skvrem.data import (
    ColumnMoments,
    as_source,
    column_moments,
    open_remote,
    rows_of,
    rows_of_block,
)
from skvrem.exceptions import DataScaleWarning
from skvrem.utils._columns import check_one_each
from skvrem.utils._reports import name_columns, outside
from skvrem.utils._validation import (
    check_block,
    check_columns_of,
    check_magnitude,
    check_weighted,
)
from skvrem.vi.gaussian._width import units_of

# Deviations that features go from their means before a prior takes them for rare ones.
REACH = 4.0
# Rows that say how far features vary, and how far a logit moves, under the prior, that
# hardly moves at all.
LOOKED_AT, LITTLE = 10_000, 0.05


def open_blocks(estimator, X, y, sample_weight, reset, kind, offset=None):
    """Return a source of rows that lie elsewhere, and what was seen of their blocks.

    `kind` is that of targets, "labels" or "numbers".
    """
    y, weight = check_columns_of(estimator, X, y, sample_weight, reset=reset)
    look = partial(check_block, sparse=True, y=kind)
    data, seen = open_remote(X, look, weight, y, offset=offset)
    check_weighted(data)
    return data, seen


def few_in_memory(estimator, data):
    """Return a source and its targets, here where rows are fewer than coefficients.

    They fit, then, beside the coefficients, and are turned into their span. Targets of
    rows elsewhere are None: batches bring them.
    """
    if data.n_units >= data.n_features + estimator.fit_intercept:
        return data, None
    batch = data.fetch(np.arange(data.n_units))
    rows, weight = rows_of_block(batch)
    return as_source(rows, weight), batch.targets


def checked_offset(offset, n_rows):
    """Return the offset of each row, or zero."""
    if offset is None:
        return np.zeros(n_rows)
    offset = check_array(offset, ensure_2d=False, dtype=np.float64, input_name="offset")
    check_one_each(offset, "offset must have one number", n_rows, "rows")
    check_magnitude(offset, "offset")
    return offset


def with_column(moments, mean, variance):
    """Return moments of columns with those of another, the last."""
    return ColumnMoments(
        moments.weight,
        np.append(moments.mean, mean),
        np.append(moments.square, moments.weight * variance),
    )


class ColumnUnits(NamedTuple):
    """Moments of the columns of some rows, and how far they go.

    Attributes
    ----------
    moments : ColumnMoments
    ends : ndarray of shape (2, n_features)
        Minus the least value of each column, and the largest.
    """

    moments: ColumnMoments
    ends: np.ndarray

    @classmethod
    def of(cls, data):
        """Return those of a source."""
        if data.remote:
            ends = data.chunks().reduce(_ends_of_block, np.maximum)
        else:
            ends = _ends(*rows_of(data))
        return cls(column_moments(data).weighted, ends)

    def merged(self, other):
        """Return those of all rows of two sources."""
        ends = np.maximum(self.ends, other.ends)
        return ColumnUnits(self.moments.merged(other.moments), ends)

    @property
    def mean(self):
        """Means of the columns."""
        return self.moments.mean

    @property
    def reach(self):
        """How far columns go from their means, at most."""
        return np.maximum(self.mean + self.ends[0], self.ends[1] - self.mean)

    @property
    def deviation(self):
        """Standard deviations of the columns; see `units_of`."""
        return units_of(self.mean, self.moments.deviation)

    @property
    def units(self):
        """In which a prior is as wide for all columns.

        By its deviation a rare one, as of a category, had next to no prior.
        """
        return np.maximum(self.deviation, self.reach / REACH)


def warn_unseen(estimator, data, prior_scale):
    """Warn of columns in memory that a fixed prior lets hardly matter.

    Their spread is taken from some of the rows.
    """
    rows, _ = rows_of(data)
    some = as_source(rows[:: -(-data.n_units // LOOKED_AT)], None)
    found = ColumnUnits.of(some)
    units = found.units
    most = units * prior_scale
    # A narrow prior of columns that vary is what was asked for; and many that vary by
    # little, as those of words, may move a logit together.
    least = np.maximum(most, units)
    together = max(1.0, np.sqrt(np.count_nonzero(least < LITTLE)))
    little = least * together < LITTLE
    if little.any():
        names = getattr(estimator, "feature_names_in_", np.arange(data.n_features))
        which = name_columns(little, units, names)
        warnings.warn(
            f"The prior of {type(estimator).__name__} lets some columns of X hardly "
            f"matter, as they vary by little: {which}. Scale the data "
            "(sklearn.preprocessing.StandardScaler). prior_scale='learn' follows their "
            "units, but in a stream with groups.",
            DataScaleWarning,
            stacklevel=outside(),
        )


def _ends_of_block(batch):
    return _ends(*rows_of_block(batch))


def _ends(rows, weight):
    """Return minus the least value of each column, and the largest, (2, d)."""
    if weight is not None:
        rows = rows[weight > 0.0]
    if not rows.shape[0]:
        return np.full((2, rows.shape[1]), -np.inf)
    ends = -rows.min(axis=0), rows.max(axis=0)
    return np.stack([e.toarray().ravel() if sp.issparse(e) else e for e in ends])
