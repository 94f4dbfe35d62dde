"""Rows, classes and weights: checked, and as the model wants them."""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from skvrem.data import as_source, is_dask
from skvrem.utils._validation import check_weight

__all__ = ["Rows", "open_rows"]


class Rows(NamedTuple):
    """What a fit is made to.

    Attributes
    ----------
    data : source
        Rows and weights.
    numbers : ndarray of int32 of shape (n_samples,)
        Numbers of the rows' classes.
    classes : ndarray of shape (n_classes,)
    dtype : dtype
        Of the rows, and of what is fitted.
    """

    data: Any
    numbers: np.ndarray
    classes: np.ndarray
    dtype: Any


def open_rows(estimator, X, y, sample_weight, reset, classes=None):
    """Return the `Rows` of a fit, or of a batch of a stream with given classes."""
    if is_dask(X):
        as_source(X, dask=False)  # says what to do
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
    if sp.issparse(X) and X.indices.dtype != np.int32:
        X = X.copy()
        X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    stream = classes is not None
    if stream:
        numbers = _numbers(y, classes)
    else:
        check_classification_targets(y)
        classes, numbers = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(
            f"{type(estimator).__name__} needs samples of at least 2 classes in the "
            f"data, but the data contains only one class: {classes[0]!r}"
        )
    numbers = numbers.astype(np.int32)
    weight = check_weight(sample_weight, X.shape[0])
    if weight is not None and not stream:
        weighed = np.unique(numbers[weight > 0.0])
        if len(weighed) < 2:
            raise ValueError(
                f"Only the class {classes[weighed[0]]!r} has rows of positive "
                "weight: at least 2 classes are needed."
            )
    if estimator.class_weight is not None:
        if stream and estimator.class_weight == "balanced":
            raise ValueError(
                "class_weight='balanced' is not for partial_fit, which does not know "
                "how frequent the classes will be: give a dict, or sample_weight."
            )
        factors = compute_class_weight(
            estimator.class_weight, classes=classes, y=y, sample_weight=weight
        )
        weight = factors[numbers] * (1.0 if weight is None else weight)
    return Rows(as_source(X, weight, dask=False), numbers, classes, X.dtype)


def _numbers(y, classes):
    """Return the numbers of classes that are known already."""
    found, numbers = np.unique(y, return_inverse=True)
    unseen = found[~np.isin(found, classes)].tolist()
    if unseen:
        raise ValueError(
            f"y holds classes {unseen}, which are not among the classes "
            f"{classes.tolist()} of the first call of partial_fit: give all of them "
            "there."
        )
    return np.searchsorted(classes, found)[numbers]
