"""What topics are about: their top words and documents."""

from typing import Any

import numpy as np

from skvrem.text._topics import (
    check_components,
    check_names,
    check_size,
    document_shares,
    find_topics,
    largest,
    last_step,
)
from skvrem.utils._columns import MatrixLike

__all__ = ["top_documents", "top_words"]


def top_words(topics: Any, feature_names: Any = None, n: int = 10) -> np.ndarray:
    """Return the most probable words of each topic.

    Parameters
    ----------
    topics : estimator or array-like of shape (n_topics, n_features)
        A fitted model with ``components_``, a fitted pipeline that ends with one, or
        topics in any scale.
    feature_names : array-like of str, fitted vectorizer or Pipeline, default=None
        The words of the columns. Of a pipeline that ends with a topic model, those that
        enter its last step. None asks the pipeline given as `topics`, or the model's
        ``feature_names_in_``, and else numbers the columns: x0, x1, ...
    n : int, default=10
        Words a topic; all of them where the vocabulary is smaller.

    Returns
    -------
    words : ndarray of str of shape (n_topics, n)
        The most probable first; of equally probable ones, the first column first.

    Raises
    ------
    sklearn.exceptions.NotFittedError
        If the model is not fitted.
    ValueError
        If there is not one name for each column, or `n` is no positive integer.

    Examples
    --------
    >>> from skvrem.text import top_words
    >>> topics = [[8.0, 1.0, 3.0], [0.5, 6.0, 2.0]]
    >>> print(top_words(topics, ["rain", "goal", "win"], n=2))
    [['rain' 'win']
     ['goal' 'win']]
    """
    check_size("n", n)
    components, _ = find_topics(topics, None)
    names = check_names(feature_names, components.shape[1], topics)
    return names[largest(components, n)]


def top_documents(
    topics: Any, X: MatrixLike | None = None, *, n: int = 10
) -> np.ndarray:
    """Return the documents with the largest share of each topic.

    Parameters
    ----------
    topics : estimator or array-like of shape (n_documents, n_topics)
        The documents' shares of the topics in any scale, as ``transform`` returns
        them, or a fitted model or pipeline that has ``transform``.
    X : {array-like, sparse matrix} of shape (n_documents, n_features), default=None
        The documents; needed where an estimator is given.
    n : int, default=10
        Documents a topic; all of them where there are fewer.

    Returns
    -------
    documents : ndarray of int of shape (n_topics, n)
        Row numbers, the largest share first.

    Raises
    ------
    sklearn.exceptions.NotFittedError
        If the model is not fitted.
    ValueError
        If shares are negative, or X is missing or not needed.

    Examples
    --------
    >>> from skvrem.text import top_documents
    >>> theta = [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]
    >>> top_documents(theta, n=2)
    array([[0, 2],
           [1, 2]])
    """
    check_size("n", n)
    is_model = hasattr(topics, "transform")
    if is_model == (X is None):
        raise ValueError(
            "Give an estimator and X, or the shares that its transform returned alone."
        )
    scale = None
    if is_model:
        model, X = last_step(topics, X)
        scale = check_components(model.components_).sum(axis=1, dtype=np.float64)
        topics = model.transform(X)
    return largest(document_shares(topics, scale).T, n)
