"""Rows, classes and weights: checked, and as the model wants them."""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.utils import assert_all_finite
from sklearn.utils.class_weight import compute_class_weight

from skvrem.data import as_source, open_remote
from skvrem.utils._classes import count_classes, number_classes, smallest_type
from skvrem.utils._remote import of_dask
from skvrem.utils._validation import (
    check_block,
    check_columns_of,
    check_weight,
    check_weighted,
    classes_of,
    numbered,
    validate_data,
)

# Rows that tell where the columns are; deviations from zero that are far, where a
# column's own spread is lost in sums of squares; and as many that are too far where
# the origin cannot be moved.
CENTER_ROWS = 1000
FAR, TOO_FAR = 1e2, {"f": 1e3, "d": 1e6}
# Error of the logits, by rounding, that is no longer an answer.
LOGIT_ERROR = 1e-2


class LabelledRows(NamedTuple):
    """What a fit is made to.

    Attributes
    ----------
    data : source
        Rows and weights, and the numbers of the rows' classes as targets.
    classes : ndarray of shape (n_classes,)
    dtype : dtype
        Of the rows, and of what is fitted.
    """

    data: Any
    classes: np.ndarray
    dtype: Any

    def without_weightless(self, estimator):
        """Return the same of the rows with a weight, where others are many.

        Raises
        ------
        ValueError
            If others are not finite, which no sum over the rest would tell.
        """
        data = self.data.without_weightless()
        if data is not self.data and not self.data.remote and not data.sparse:
            name = type(estimator).__name__
            assert_all_finite(self.data.rows, estimator_name=name, input_name="X")
        return self._replace(data=data)


def open_rows(estimator, X, y, sample_weight, reset, classes=None):
    """Return the rows of a fit, or of a batch of a stream with given classes."""
    if any(map(of_dask, (X, y, sample_weight))):
        return _open_blocks(estimator, X, y, sample_weight, reset)
    if reset or not _is_as_before(estimator, X, y):
        X, y = validate_data(
            estimator,
            X,
            y,
            reset=reset,
            accept_sparse="csr",
            dtype=(np.float64, np.float32),
            order="C",
            # A pass over dense rows would be a good part of a fit: see _explained.
            ensure_all_finite=sp.issparse(X),
        )
    stream = classes is not None
    weight = check_weight(sample_weight, X.shape[0])
    classes, numbers = number_classes(estimator, y, weight, classes)
    if estimator.class_weight is not None:
        if stream and estimator.class_weight == "balanced":
            raise ValueError(
                "class_weight='balanced' is not for partial_fit, which does not know "
                "how frequent the classes will be: give a dict, or sample_weight."
            )
        factors = _factors(
            estimator, classes, count_classes(numbers, len(classes), weight)
        )
        weight = factors[numbers] * (1.0 if weight is None else weight)
    return LabelledRows(as_source(X, weight, numbers), classes, X.dtype)


def _factors(estimator, classes, counts):
    """Return the factors of the weights of classes with so much weight."""
    # One row of each class, with the weight of all: no copy of y is made.
    return compute_class_weight(
        estimator.class_weight,
        classes=classes,
        y=classes,
        sample_weight=counts.astype(np.float64),
    )


def _open_blocks(estimator, X, y, sample_weight, reset):
    """Return the rows of a fit that lie in the blocks of dask."""
    y, weight = check_columns_of(estimator, X, y, sample_weight, reset=reset)
    look = partial(check_block, sparse=True, power=None, y="labels")
    data, seen = open_remote(X, look, weight, y)
    check_weighted(data)
    classes, counts = classes_of(estimator, seen)
    factors = None
    if estimator.class_weight is not None:
        factors = _factors(estimator, classes, counts)
    dtype = smallest_type(len(classes))
    data = data.with_columns(partial(numbered, classes, dtype=dtype, factors=factors))
    return LabelledRows(data, classes, data.dtype)


def _is_as_before(estimator, X, y):
    """Whether rows of a stream are such that nothing is left to check or convert.

    scikit-learn's checks take as long as a step with a thousand rows.
    """
    return (
        type(X) is type(y) is np.ndarray
        and X.dtype in (np.float64, np.float32)
        and X.flags.c_contiguous
        and y.ndim == 1
        and y.size > 0
        and X.shape == (y.size, estimator.n_features_in_)
        and not hasattr(estimator, "feature_names_in_")
    )


def find_center(estimator, rows):
    """Return where the columns of rows lie that are far from zero for their spread.

    The coefficients of a model with a free intercept do not depend on the origin.
    Rounding does: columns are moved whose mean is many of their deviations away.

    Parameters
    ----------
    estimator : SBMLogisticRegression
    rows : LabelledRows

    Returns
    -------
    center : ndarray of shape (n_features,) and the rows' dtype, or None
        Zero for the columns that are near; None where all are.

    Raises
    ------
    ValueError
        If columns are too far away, and cannot be moved: sparse rows, or a model
        without an intercept or with a penalty on it.
    """
    data, dtype = rows.data, np.dtype(rows.dtype)
    sparse = data.sparse
    free = estimator.fit_intercept and not estimator.penalize_intercept
    mean, deviation = _spread_of_sparse(data) if sparse else _spread(data)
    away = np.abs(mean)
    if sparse or not free:
        # A column that does not vary is an intercept of the user's own.
        limit = TOO_FAR[dtype.char]
        hopeless = (away > limit * deviation) & (deviation > 0.0)
        if hopeless.any():
            column = int(hopeless.argmax())
            why = "without a free intercept" if not free else "in a sparse matrix"
            raise ValueError(
                f"Column {column} of X is {mean[column]:.3g} +- "
                f"{deviation[column]:.3g}: so far from zero its spread is lost by "
                f"rounding, {why}. Subtract the mean of the column "
                "(sklearn.preprocessing.StandardScaler)"
                f"{', of dense rows' if sparse else ''}."
            )
        return None
    # A column of ones, or of rare zeros among them, needs no moving.
    far = away > FAR * np.where(deviation > 0.0, deviation, 1.0)
    if not far.any():
        return None
    return np.where(far, mean, 0.0).astype(dtype)


def _spread(data):
    """Return mean and deviation of the columns, zero where they are not finite."""
    step = max(1, data.n_units // CENTER_ROWS)
    rows = np.asarray(data.every(step).rows, np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        apart = rows - rows[0]  # exactly zero in columns that do not vary
        shift = apart.mean(axis=0)
        mean, deviation = rows[0] + shift, (apart - shift).std(axis=0)
    bad = ~np.isfinite(mean + deviation)  # said where the sums are not finite
    mean[bad] = deviation[bad] = 0.0
    return mean, deviation


def _spread_of_sparse(data):
    """Return mean and deviation of the columns of CSR rows without zeros, else 0."""
    d, step = data.n_features, max(1, data.n_units // CENTER_ROWS)
    some = np.arange(0, data.n_units, step)
    n = len(some)
    if data.remote:
        values, columns, *_ = data.every(step).rows
    else:
        values, columns, indptr, _ = data.rows
        start, sizes = indptr[some], indptr[some + 1] - indptr[some]
        where = np.arange(sizes.sum()) + np.repeat(
            start - sizes.cumsum() + sizes, sizes
        )
        values, columns = values[where], columns[where]
    # A column with zeros among its entries is not far from zero for its spread.
    full = np.bincount(columns, minlength=d) == n
    if not full.any():
        return np.zeros(d), np.zeros(d)
    kept = full[columns]
    values, columns = values[kept].astype(np.float64), columns[kept]
    with np.errstate(over="ignore", invalid="ignore"):
        first = np.zeros(d)
        first[columns[::-1]] = values[::-1]
        apart = values - first[columns]  # exactly zero in those that do not vary
        shift = np.bincount(columns, apart, d) / n
        square = np.bincount(columns, np.square(apart - shift[columns]), d)
        mean, deviation = first + shift, np.sqrt(square / n)
    far = np.flatnonzero(full & (np.abs(mean) > FAR * deviation))
    if far.size:
        (counts,) = data.chunks().sum(_entries) if data.remote else _entries(data)
        full[far] = counts[far] == data.n_units
    return np.where(full, mean, 0.0), np.where(full, deviation, 0.0)


class Entries(NamedTuple):
    """How many entries columns have, of shape (n_features,)."""

    counts: np.ndarray


def _entries(data):
    """Return how many entries the columns of CSR rows have, of all of a container."""
    return Entries(count_classes(data.rows.indices, data.rows.n_features))


def check_precision(center, theta, dtype):
    """Check that logits can be computed from rows as far from zero as these.

    Raises
    ------
    ValueError
        If their rounding errors are not small.
    """
    if center is None:
        return
    error = np.abs(center.astype(np.float64)) @ np.abs(theta[:-1])
    error = np.finfo(dtype).eps * error.max()
    if error > LOGIT_ERROR:
        column = int((np.abs(center) * np.abs(theta[:-1]).max(axis=1)).argmax())
        raise ValueError(
            f"Columns of X are so far from zero (column {column} is about "
            f"{center[column]:.3g}) that {np.dtype(dtype).name} cannot tell their "
            f"logits within {error:.2g}. Subtract the means of the columns "
            "(sklearn.preprocessing.StandardScaler)"
            f"{', or pass float64' if np.dtype(dtype).itemsize < 8 else ''}."
        )
