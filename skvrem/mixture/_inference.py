"""What a fitted Gaussian mixture says of rows, and of features given others."""

from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.special import log_softmax, logsumexp, softmax
from sklearn.utils import check_array

from skvrem.data import as_source
from skvrem.mixture._model import GaussianMixtureModel, Parameters, precisions_cholesky
from skvrem.utils._parallel import map_chunks, row_chunks
from skvrem.utils._remote import refuse_dask
from skvrem.utils._validation import check_block, check_magnitude

# Rows scored at a time, so that their joint densities stay in the cache.
SCORE_ROWS = 8192


def find_missing(X, covariance_type):
    """Whether X holds NaN.

    Raises
    ------
    ValueError
        If it does, and the covariances have off-diagonal elements; or numbers whose
        squares overflow.
    """
    # The sum of a column is NaN if one of its elements is; no temporary of X's size.
    with np.errstate(over="ignore", invalid="ignore"):
        missing = bool(np.isnan(X.sum()))
    if missing:  # or else large numbers of both signs have overflowed
        chunks = row_chunks(0, len(X), SCORE_ROWS)
        missing = any(np.isnan(X[start:stop]).any() for start, stop in chunks)
    if missing and covariance_type in ("full", "tied"):
        raise ValueError(
            "X contains NaN. Missing values are integrated out with "
            "covariance_type='diag' or 'spherical'; for "
            f"{covariance_type!r} impute them first."
        )
    if X.size:
        check_magnitude(X)
    return missing


def look(covariance_type, rows, columns):
    """Check a block of rows that lies elsewhere; return whether it holds NaN."""
    check_block(rows, columns, missing=True, power=None)
    return bool(rows.shape[0]) and find_missing(np.asarray(rows), covariance_type)


def evaluate_rows(what, parameters, covariance_type, X):
    """Labels, probabilities or log-densities of the rows of an array in memory."""
    model = GaussianMixtureModel(covariance_type, 0.0, find_missing(X, covariance_type))
    source = as_source(X)
    n, k = X.shape[0], len(parameters.weights)
    kinds = {
        "labels": ((n,), np.int64, partial(np.argmax, axis=1)),
        "probabilities": ((n, k), X.dtype, partial(softmax, axis=1)),
        "log_density": ((n,), X.dtype, partial(logsumexp, axis=1)),
    }
    shape, dtype, function = kinds[what]
    out = np.empty(shape, dtype)

    def fill(start, stop):
        batch = source.batch(start, stop)
        out[start:stop] = function(model.log_joint(parameters, batch, X.dtype))

    map_chunks(fill, n, SCORE_ROWS)
    return out


def dense_covariances(means, covariances, covariance_type):
    """Covariances as matrices, shape (n_components, n_features, n_features)."""
    model, (k, d) = GaussianMixtureModel(covariance_type, 0.0), means.shape
    covariances = model.by_component(covariances)
    if not model.dense:
        covariances = covariances[:, :, None] * np.eye(d)
    return np.broadcast_to(covariances, (k, d, d))


def number_features(features, names, d):
    """Return columns that are given by number or by name as numbers below `d`.

    Raises
    ------
    ValueError
        For another number or name, or one that is given twice.
    """
    features = np.atleast_1d(np.asarray(features))
    if features.dtype.kind in "OUS":
        unknown = [f for f in features.tolist() if f not in names]
        if unknown:
            raise ValueError(
                f"Unknown features {unknown}: the mixture was fitted on "
                f"{names or 'an array without feature names'}."
            )
        features = np.array([names.index(f) for f in features])
    if features.dtype.kind not in "iu" or not np.isin(features, np.arange(d)).all():
        raise ValueError(f"given must name columns from 0 to {d - 1}.")
    if len(np.unique(features)) != len(features):
        raise ValueError("given names a feature twice.")
    return features


class ConditionalGaussian(NamedTuple):
    """Distribution of some features given the others, for n rows of given values.

    Attributes
    ----------
    features : ndarray of int of shape (n_free,)
        Columns that the rest describes, in the order of X.
    mean : ndarray of shape (n, n_free)
        Conditional expectation: the regression on the given features.
    covariance : ndarray of shape (n, n_free, n_free)
        Conditional covariance of the mixture, spread between components included.
    weights : ndarray of shape (n, n_components)
        Probabilities of the components given the values.
    means : ndarray of shape (n, n_components, n_free)
        Conditional means of the components.
    covariances : ndarray of shape (n_components, n_free, n_free)
        Conditional covariances of the components; they do not depend on the values.
    """

    features: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray
    weights: np.ndarray
    means: np.ndarray
    covariances: np.ndarray


def condition_on(parameters, covariances, known, values):
    """Return the distribution of the other features given the values of some.

    Parameters
    ----------
    parameters : Parameters
    covariances : ndarray of shape (n_components, n_features, n_features)
    known : ndarray of int of shape (n_given,)
    values : array-like of shape (n, n_given)

    Returns
    -------
    conditional : ConditionalGaussian
    """
    weights, means, *_ = parameters
    refuse_dask(values)
    values = check_array(values, dtype=np.float64, input_name="values")
    if values.shape[1] != len(known):
        raise ValueError(
            f"values must have one column for each of the {len(known)} given "
            f"features, got {values.shape[1]}."
        )
    free = np.setdiff1d(np.arange(means.shape[1]), known)
    if not len(free):
        raise ValueError("Every feature is given: nothing is left to describe.")
    inner = covariances[:, known[:, None], known]
    cross = covariances[:, free[:, None], known]
    marginal = Parameters(
        weights, means[:, known], inner, precisions_cholesky(inner)[0]
    )
    model = GaussianMixtureModel("full", 0.0)
    batch = as_source(np.ascontiguousarray(values)).batch(0, len(values))
    log_joint = model.log_joint(marginal, batch, np.float64)
    share = np.exp(log_softmax(log_joint, axis=1))
    gain = np.linalg.solve(inner, cross.transpose(0, 2, 1)).transpose(0, 2, 1)
    offset = values[:, None, :] - means[:, known]
    components = means[:, free] + np.einsum("kfg,nkg->nkf", gain, offset)
    spread = covariances[:, free[:, None], free] - gain @ cross.transpose(0, 2, 1)
    mean = np.einsum("nk,nkf->nf", share, components)
    apart = components - mean[:, None]
    covariance = np.einsum("nk,kfg->nfg", share, spread)
    covariance += np.einsum("nk,nkf,nkg->nfg", share, apart, apart)
    return ConditionalGaussian(free, mean, covariance, share, components, spread)
