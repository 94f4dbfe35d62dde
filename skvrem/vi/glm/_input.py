"""Rows of generalised linear models: in the blocks of dask, their columns, offsets."""

import warnings
from functools import partial
from itertools import combinations
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

# Units of its prior that rows of a rare feature lie from its mean; how many rows say
# which value most have.
REACH, ASKED = 4.0, 101
# Rows that are compared with it at once.
AT_ONCE = 8192
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
    if np.ndim(offset) == 0:
        offset = np.full(n_rows, offset)
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
    """Moments of the columns of some rows, how far they go, and what most rows have.

    Attributes
    ----------
    moments : ColumnMoments
    ends : ndarray of shape (2, n_features)
        Minus the least value of each column, and the largest.
    common : ndarray of shape (2, 2, n_features), default=None
        The value that most rows of a column have, and their weight, which is zero where
        there is none; and the next one, as blocks may come sorted. Blocks count it
        where most of their rows have it. Not in older pickles.
    """

    moments: ColumnMoments
    ends: np.ndarray
    common: np.ndarray | None = None

    @classmethod
    def of(cls, data):
        """Return those of a source."""
        moments = column_moments(data).weighted
        if data.remote:
            return cls(moments, *data.chunks().reduce(_sides_of_block, _joined))
        return cls(moments, *_sides(*rows_of(data)))

    def merged(self, other):
        """Return those of all rows of two sources."""
        sides = _joined(self[1:], other[1:])
        return ColumnUnits(self.moments.merged(other.moments), *sides)

    def with_constant(self, value):
        """Return those of the columns and another, the last, which does not vary."""
        moments = with_column(self.moments, value, 0.0)
        ends = np.column_stack([self.ends, [-value, value]])
        one = np.array([[[value], [moments.weight]], [[value], [0.0]]])
        common = np.concatenate([self.common, one], axis=2)
        return ColumnUnits(moments, ends, common)

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
    def rare(self):
        """Root mean squares of how far rows lie from the mean that are unlike most.

        Zero where no value is that of most rows.
        """
        if self.common is None:
            return np.zeros(self.mean.size)
        value, weight = self.common[0]
        rest = self.moments.weight - weight
        beyond = self.moments.square - weight * np.square(value - self.mean)
        few = (rest > 0.0) & (rest < weight) & (self.moments.deviation > 0.0)
        rest = np.where(few, rest, 1.0)
        return np.where(few, np.sqrt(np.maximum(beyond, 0.0) / rest), 0.0)

    @property
    def units(self):
        """In which a prior is as wide for all columns.

        By its deviation a rare one, as of a category, had next to no prior. One of
        which all rows vary is no rare one, however far a few of them go.
        """
        return np.maximum(self.deviation, self.rare / REACH)


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


def _sides_of_block(batch):
    return _sides(*rows_of_block(batch))


def _sides(rows, weight):
    """Return ends and common values of columns, as of `ColumnUnits`."""
    if weight is not None:
        rows, weight = rows[weight > 0.0], weight[weight > 0.0]
    n, d = rows.shape
    if not n:
        return np.full((2, d), -np.inf), np.zeros((2, 2, d))
    ends = -rows.min(axis=0), rows.max(axis=0)
    if sp.issparse(rows):
        weight = np.ones(n) if weight is None else weight
        zero = weight.sum() - (rows != 0.0).T @ weight
        ends = [end.toarray().ravel() for end in ends]
        common = np.zeros((2, 2, d))
        common[0, 1] = zero
        return np.stack(ends), common
    return np.stack(ends), _common(rows, weight)


def _common(rows, weight):
    """Return values that most rows have, and the weight of these rows, (2, 2, d)."""
    n, d = rows.shape
    places = (np.arange(ASKED) + 0.5) / ASKED
    if weight is None:
        picked = (places * n).astype(int)
    else:  # the same rows as where they were repeated
        upto = np.cumsum(weight)
        picked = np.searchsorted(upto[:-1], places * upto[-1], side="right")
    some = rows[picked]
    value = np.median(some, axis=0)
    (columns,) = np.nonzero(2 * np.count_nonzero(some == value, axis=0) > ASKED)
    found = np.zeros((2, 2, d))
    found[0, 0, columns] = value[columns]
    for first in range(0, n if columns.size else 0, AT_ONCE):
        part = slice(first, first + AT_ONCE)
        same = rows[part, columns] == value[columns]
        own = np.ones(len(same)) if weight is None else weight[part]
        found[0, 1, columns] += own @ same
    return found


def _joined(one, other):
    """Return ends and common values of the rows of two sources."""
    (ends, a), (other_ends, b) = one, other
    ends = np.maximum(ends, other_ends)
    if a is None or b is None:
        return ends, None
    values, weights = np.concatenate([a, b]).swapaxes(0, 1)
    for i, j in combinations(range(len(values)), 2):
        same = np.where(values[i] == values[j], weights[j], 0.0)
        weights[i] += same
        weights[j] -= same
    heaviest = np.argsort(-weights, axis=0, kind="stable")[:2]
    both = (np.take_along_axis(x, heaviest, axis=0) for x in (values, weights))
    return ends, np.stack(list(both), axis=1)
