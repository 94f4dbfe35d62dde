"""Checks of rows that lie in blocks elsewhere: of each where it lies, and of all."""

import warnings
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_array, column_or_1d

from skvrem.utils._classes import number_classes
from skvrem.utils._remote import check_chunks, is_frame, of_dask
from skvrem.utils._validation import (
    MOST_WEIGHT,
    check_magnitude,
    check_weight,
    validate_data,
)

FLOATS = (np.float64, np.float32)


class Seen(NamedTuple):
    """What has been seen of a block.

    Attributes
    ----------
    missing : bool
        Whether it has NaN, where these are allowed.
    labels : ndarray or None
        Those of classes, each once.
    counts : ndarray or None
        Weights of their rows.
    """

    missing: bool = False
    labels: Any = None
    counts: Any = None


def check_columns_of(estimator, X, y=None, sample_weight=None, *, reset):
    """Check what can be checked of containers of dask before their blocks are seen.

    Names and number of columns are those of the fit, or become it (`reset`).

    Returns
    -------
    y, weight : as given, or arrays that have been checked
    """
    if not of_dask(X):
        raise TypeError(
            "X lies in memory, and what belongs to its rows in a container of dask: "
            "pass both as arrays, or both as dask arrays."
        )
    if is_frame(X) or hasattr(X, "numblocks"):
        validate_data(
            estimator, X._meta if is_frame(X) else X, reset=reset, skip_check_array=True
        )
    if y is not None and not of_dask(y):
        y = column_or_1d(y, warn=True)
    if sample_weight is not None and not of_dask(sample_weight):
        n = np.size(sample_weight)
        if not np.ndim(sample_weight):  # one number for all is none
            return y, None
        sample_weight = check_weight(sample_weight, n)
    return y, sample_weight


def check_block(
    rows, columns, *, sparse=False, missing=False, power=2, y=None, name="X"
):
    """Check a block of rows, and what belongs to them; return what was `Seen`.

    Parameters
    ----------
    rows : ndarray or sparse matrix
    columns : skvrem.data._dask.Columns
    sparse : bool
        Sparse rows may be.
    missing : bool
        NaN may be.
    power : {2, 4} or None
        See :func:`~skvrem.utils._validation.check_magnitude`.
    y : {"labels", "numbers"} or None
        What targets are.
    """
    check_chunks(rows, sparse)
    if not rows.shape[0]:
        return Seen()
    rows = check_array(
        rows,
        accept_sparse="csr" if sparse else False,
        dtype=None if getattr(rows, "dtype", None) in FLOATS else FLOATS,
        ensure_all_finite="allow-nan" if missing else True,
        input_name=name,
    )
    if power is not None:
        check_magnitude(rows, power=power)
    weight = columns.weight
    if weight is not None:
        weight = _check_weights(weight)
    seen = Seen(bool(missing and np.isnan(rows.sum()) and np.isnan(rows).any()))
    if y == "labels":
        return seen._replace(**_labels(columns.targets, weight))
    if y == "numbers":
        check_numbers(columns.targets)
    return seen


def _check_weights(weight):
    weight = check_array(
        weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight"
    )
    if weight.min() < 0.0:
        raise ValueError(f"sample_weight must not be negative, got {weight.min():g}.")
    if weight.max() > MOST_WEIGHT:
        raise ValueError(
            f"sample_weight is {weight.max():g} at most: sums of such weights are lost "
            "in floating point. Scale them, as by their mean."
        )
    return weight


def check_numbers(y):
    """Check targets that are numbers."""
    y = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
    check_magnitude(y, "y")


def _labels(y, weight):
    if y.dtype.kind == "f":
        check_array(y, ensure_2d=False, input_name="y")
    labels, numbers = np.unique(y, return_inverse=True)
    return {"labels": labels, "counts": np.bincount(numbers, weight, len(labels))}


def check_weighted(data):
    """Check that some row of a source has weight."""
    if not data.n_units:
        raise ValueError("Found array with 0 sample(s): X has no rows.")
    if not data.n_weighted or not np.isfinite(data.total_weight):
        raise ValueError("sample_weight is zero for every sample: nothing to fit.")


def classes_of(estimator, seen, known=None):
    """Return the classes that blocks have, and the weights of their rows.

    Parameters
    ----------
    estimator : BaseEstimator
        Named in messages.
    seen : list of Seen
    known : ndarray of shape (n_classes,), default=None
        The classes of a stream.

    Raises
    ------
    ValueError
        As :func:`~skvrem.utils._classes.number_classes`.
    """
    parts = [one for one in seen if one.labels is not None]
    labels = np.concatenate([one.labels for one in parts])
    weight = np.concatenate([one.counts for one in parts]).astype(float)
    with warnings.catch_warnings():  # that there are as many classes as rows
        warnings.simplefilter("ignore", UserWarning)
        classes, numbers = number_classes(estimator, labels, weight, known)
    return classes, np.bincount(numbers, weight, len(classes))


def numbered(classes, columns, dtype=np.int32, factors=None):
    """Return the columns of a block with the numbers of classes for labels.

    Weights are multiplied by the `factors` of the classes.
    """
    numbers = np.searchsorted(classes, columns.targets)
    weight = columns.weight
    if factors is not None:
        weight = factors[numbers] * (1.0 if weight is None else weight)
    return columns._replace(targets=numbers.astype(dtype), weight=weight)
