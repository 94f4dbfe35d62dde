"""Rows, classes and weights: checked, and as the model wants them."""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.validation import validate_data

from skvrem.data import as_source, is_dask
from skvrem.utils._classes import number_classes
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
        factors = compute_class_weight(
            estimator.class_weight, classes=classes, y=y, sample_weight=weight
        )
        weight = factors[numbers] * (1.0 if weight is None else weight)
    return Rows(as_source(X, weight, dask=False), numbers, classes, X.dtype)


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
