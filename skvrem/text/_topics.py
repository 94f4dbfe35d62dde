"""What the functions of this package read from models, counts and vectorizers."""

import warnings

import numpy as np
import scipy.sparse as sp
from sklearn.pipeline import Pipeline
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from skvrem.exceptions import CollapsedComponentWarning
from skvrem.utils._columns import native
from skvrem.utils._remote import refuse_dask
from skvrem.utils._reports import outside

# Tokens are counted in 64 bits.
MOST_COUNT = 2.0**62
# A topic without tokens has less than so many of them.
NO_TOKENS = 0.5


def refuse_text(X):
    """Raise a ValueError for texts where word counts are expected."""
    head = ()
    if isinstance(X, str):
        head = (X,)
    elif hasattr(X, "iloc"):
        head = X.iloc[:1]
    elif isinstance(X, list | tuple) or hasattr(X, "to_numpy"):  # as polars has
        head = X[:1]
    elif isinstance(X, np.ndarray) and X.ndim and X.dtype.kind not in "biufc":
        head = X[:1]
    for value in np.asarray(head, dtype=object).ravel():
        if isinstance(value, str):
            raise ValueError(
                f"X holds text ({value[:20]!r}), and counts of words are needed: pass "
                "CountVectorizer().fit_transform(X), of "
                "sklearn.feature_extraction.text, or fit a pipeline of the two."
            )


def check_size_of_counts(X):
    """Raise a ValueError for counts, dense or CSR, that cannot be added up."""
    values = X.data if sp.issparse(X) else X
    if values.size and values.max() > MOST_COUNT:
        raise ValueError(
            f"X holds a count of {float(values.max()):.3g}; counts above "
            f"{MOST_COUNT:.2g} cannot be told apart or added up. Scale them down."
        )


def last_step(estimator, X=None):
    """Return the topic model inside a pipeline or search, and X as it reaches it.

    Raises
    ------
    sklearn.exceptions.NotFittedError
        If the model is not fitted.
    ValueError
        If it is no topic model.
    """
    estimator = getattr(estimator, "best_estimator_", estimator)
    model = estimator[-1] if isinstance(estimator, Pipeline) else estimator
    if not hasattr(model, "components_"):
        if hasattr(model, "fit"):
            check_is_fitted(model)
        raise ValueError(
            "Expected a fitted topic model with components_, or a pipeline that ends "
            f"with one, got {type(model).__name__}."
        )
    if model is not estimator and X is not None and len(estimator) > 1:
        X = estimator[:-1].transform(X)
    return model, X


def check_components(components):
    """Return topics as an array of non-negative floats, (n_topics, n_features).

    Raises
    ------
    ValueError
        If they are not 2-dimensional, finite and non-negative.
    """
    components = check_array(
        components, dtype=(np.float64, np.float32), input_name="components"
    )
    if components.min() < 0.0:
        raise ValueError(
            "Topics must not have negative entries, got components with "
            f"{components.min():g}: of such a model the rows are no word probabilities."
        )
    return components


def find_topics(topics, X):
    """Return (components, X as the model sees it) of an estimator or an array."""
    if hasattr(topics, "fit") or hasattr(topics, "components_"):
        model, X = last_step(topics, X)
        return check_components(model.components_), X
    return check_components(topics), X


def with_tokens(shares, n_tokens):
    """Return the numbers of the topics that have tokens, one at least."""
    alive = np.flatnonzero(shares * n_tokens >= NO_TOKENS)
    return alive if alive.size else np.array([np.argmax(shares)])


def find_used_topics(topics, X=None):
    """Return as `find_topics`, without topics that have no tokens, and warn of those.

    Of an array, and of models that do not tell, all topics.
    """
    components, X = find_topics(topics, X)
    if hasattr(topics, "fit"):
        model, _ = last_step(topics)
        if hasattr(model, "topic_shares_") and hasattr(model, "n_tokens_seen_"):
            alive = with_tokens(model.topic_shares_, model.n_tokens_seen_)
            gone = np.setdiff1d(np.arange(len(components)), alive)
            if gone.size:
                components = components[alive]
                warnings.warn(
                    "Topics without tokens are left out, the others keep their order: "
                    f"{', '.join(map(str, gone))}. Pass components_ for all of them.",
                    CollapsedComponentWarning,
                    stacklevel=outside(),
                )
    return components, X


def check_counts(X, n_features=None):
    """Return word counts as a CSR matrix in canonical form, never the caller's own.

    Its arrays are the caller's where those have the form already: they must not be
    written to.

    Raises
    ------
    ValueError
        If X is not a matrix of finite numbers, none of them negative, with
        `n_features` columns.
    """
    refuse_dask(X)
    refuse_text(X)
    X = native(check_array(X, accept_sparse="csr", input_name="X"))
    if n_features is not None and X.shape[1] != n_features:
        raise ValueError(
            f"X has {X.shape[1]} columns, but the topics have {n_features} words: use "
            "the vectorizer of the fit to count."
        )
    X = X if sp.issparse(X) else sp.csr_array(X)
    X = type(X)((X.data, X.indices, X.indptr), shape=X.shape)
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    if X.data.size and X.data.min() < 0:
        row = int(np.searchsorted(X.indptr, X.data.argmin(), side="right")) - 1
        raise ValueError(
            f"Counts must not be negative, got {X.data.min():g} in row {row} of X."
        )
    check_size_of_counts(X)
    if X.dtype == bool:
        X = X.astype(np.int64)
    if X.data.size and not X.data.all():
        X = X.copy()
        X.eliminate_zeros()
    return X


def word_probabilities(components):
    """Return the topics' word probabilities, (n_features, n_topics), and row sums.

    A row of zeros, a topic without words, counts as uniform.
    """
    sums = components.sum(axis=1, dtype=np.float64)
    empty = sums == 0.0
    scale = np.where(empty, 1.0, sums).astype(components.dtype)
    words = np.empty(components.shape[::-1], components.dtype)
    np.divide(components.T, scale, out=words)
    words[:, empty] = 1.0 / len(words)
    return words, sums


def document_shares(theta, scale=None):
    """Return the topics' shares of every document, rows that sum to 1.

    Parameters
    ----------
    theta : array-like of shape (n_documents, n_topics)
        Probabilities, or the factor W of X = W H.
    scale : ndarray of shape (n_topics,), default=None
        Row sums of H, which tell how much a unit of W is worth. Not used where the
        rows of theta are probabilities already.

    Returns
    -------
    shares : ndarray of shape (n_documents, n_topics)
        A document without topics, a row of zeros, counts as uniform.
    """
    theta = check_array(theta, dtype=(np.float64, np.float32), input_name="theta")
    if theta.min() < 0.0:
        raise ValueError(f"Shares of topics must not be negative, got {theta.min():g}.")
    sums = theta.sum(axis=1, dtype=np.float64)
    if scale is not None and not np.allclose(sums[sums > 0.0], 1.0, atol=1e-3):
        theta = theta * scale.astype(theta.dtype)
        sums = theta.sum(axis=1, dtype=np.float64)
    empty = sums == 0.0
    shares = theta / np.where(empty, 1.0, sums).astype(theta.dtype)[:, None]
    shares[empty] = 1.0 / theta.shape[1]
    return shares


def check_names(names, n_features=None, estimator=None):
    """Return the words of the columns as an array.

    Parameters
    ----------
    names : array-like of str, fitted vectorizer or Pipeline, or None
        Of a pipeline that ends with a topic model, those that enter that last step.
    n_features : int, default=None
        How many there must be.
    estimator : estimator, default=None
        Where names are looked up if None is given; an array has none.

    Raises
    ------
    ValueError
        If there are none, or not `n_features` of them.
    """
    if names is None and hasattr(estimator, "fit"):
        names = estimator
    names = getattr(names, "best_estimator_", names)
    if isinstance(names, Pipeline):
        if len(names) > 1 and hasattr(names[-1], "components_"):
            names = names[:-1]
        elif len(names) == 1:
            names = names[0]
    if hasattr(names, "components_"):
        names = getattr(names, "feature_names_in_", None)
    elif hasattr(names, "get_feature_names_out"):
        names = names.get_feature_names_out()
    if names is None or hasattr(names, "fit"):
        if n_features is None:
            raise ValueError(
                "feature_names must be the words of the columns, as "
                "vectorizer.get_feature_names_out() returns them, or a fitted "
                "vectorizer or Pipeline."
            )
        return np.array([f"x{j}" for j in range(n_features)], dtype=object)
    names = np.asarray(names, dtype=object)
    if names.ndim != 1 or n_features not in (None, len(names)):
        expected = "a list of words" if n_features is None else f"{n_features} words"
        raise ValueError(
            f"feature_names must be {expected}, one for each column, got an array of "
            f"shape {names.shape}."
        )
    return names


def largest(rows, n):
    """Return the columns of the n largest entries of each row, the largest first.

    Of equal entries the first ones. With less than n columns, all of them.
    """
    n = min(n, rows.shape[1])
    found = np.empty((len(rows), n), dtype=np.intp)
    for row, out in zip(rows, found, strict=True):
        least = np.partition(row, -n)[-n]
        candidates = np.flatnonzero(row >= least)
        out[:] = candidates[np.argsort(-row[candidates], kind="stable")][:n]
    return found
