"""Counts of words as topic models want them: checked, in a source of documents."""

import warnings
from functools import partial

import numpy as np
from sklearn.utils.validation import check_is_fitted, check_non_negative

from skvrem.data import is_dask, of_dask
from skvrem.exceptions import FractionalCountsWarning
from skvrem.text._topics import check_size_of_counts, refuse_text
from skvrem.topics._blocks import open_documents
from skvrem.topics._documents import as_documents
from skvrem.utils._remote import refuse_dask
from skvrem.utils._reports import outside
from skvrem.utils._validation import check_columns_of, check_weight, validate_data

# Counts that are smaller on average are weights.
LEAST_COUNT = 0.5
# Fewer tokens in all are lost in rounding, in single precision.
LEAST_TOKENS = 1e-25


def open_counts(estimator, X, sample_weight, first=False, empty=True):
    """Return the source of counts, which may hold nothing if `empty`.

    Raises
    ------
    ValueError
        If there is not a token of positive weight, unless `empty`; or too little of
        them to compute with.
    """
    weight = sample_weight
    if of_dask(X):
        _, weight = check_columns_of(estimator, X, sample_weight=weight, reset=first)
        dtype = _dtype_of(estimator, X if is_dask(X) else X.to_dask_array(), first)
        look = partial(_check_values, type(estimator).__name__)
        data = open_documents(X, weight, dtype, look)
    else:
        X = check_counts(estimator, X, reset=first)
        weight = check_weight(weight, X.shape[0])
        data = as_documents(X, weight, _dtype_of(estimator, X, first))
    if 0.0 < data.total_weight < LEAST_TOKENS:
        raise ValueError(
            f"X has {data.total_weight:.3g} tokens in all, which is lost in "
            "floating point: pass counts of words, and weights near 1."
        )
    if data.total_weight == 0.0 and not empty:
        raise ValueError(
            "X has no counts: there must be a document with a word in it"
            f"{'' if weight is None else ' and a positive weight'}."
        )
    if first and data.total_weight:
        name = type(estimator).__name__
        _warn_of_fractions(name, data.mean_count, data.usual_length)
    return data


def _warn_of_fractions(name, mean, length):
    """Warn of weights in place of counts, which the priors would drown."""
    if mean < LEAST_COUNT or length < 1.0 - 1e-6:
        warnings.warn(
            f"X looks like weights (TF-IDF, shares), not counts of words: its "
            f"entries are {mean:.2g} on average, and half of the documents have "
            f"at most {length:.2g} tokens. The priors of {name} are "
            "in counts and may outweigh them. Pass the counts (CountVectorizer), "
            "or scale X to the lengths of the documents.",
            FractionalCountsWarning,
            stacklevel=outside(),
        )


def check_counts(estimator, X, reset):
    """Validate counts."""
    refuse_dask(X)
    refuse_text(X)
    X = validate_data(estimator, X, accept_sparse="csr", dtype="numeric", reset=reset)
    _check_values(type(estimator).__name__, X)
    return X


def _check_values(name, X):
    check_non_negative(X, f"{name} (X must be word counts)")
    check_size_of_counts(X)


def _dtype_of(estimator, X, reset=False):
    """Return the dtype to compute in: float32 is exact for counts."""
    if not reset:
        return estimator.components_.dtype
    return np.float32 if X.dtype.kind in "iub" or X.dtype == "f4" else np.float64


def new_documents(estimator, X):
    """Validate documents that were perhaps not seen; return their source."""
    check_is_fitted(estimator)
    X = check_counts(estimator, X, reset=False)
    return as_documents(X, dtype=_dtype_of(estimator, X))
