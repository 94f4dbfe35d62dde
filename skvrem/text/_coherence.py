"""Whether the top words of a topic occur together."""

from typing import Any, Literal

import numpy as np

from skvrem.text._topics import (
    check_counts,
    check_names,
    find_used_topics,
    largest,
)
from skvrem.utils._columns import MatrixLike
from skvrem.utils._validation import check_size


def normalized_pmi(
    together: np.ndarray, n_documents: int, epsilon: float = 1.0
) -> np.ndarray:
    """Return the normalised pointwise mutual information of pairs of words.

    log(p_ij / (p_i p_j)) / -log(p_ij), with probabilities of occurring in a document:
    1 for words that only occur together, 0 for independent ones, -1 for words that
    never meet.

    Parameters
    ----------
    together : ndarray of shape (n_words, n_words)
        Documents that have both words; on the diagonal, those that have the word.
    n_documents : int
    epsilon : float
        Not used.

    Returns
    -------
    values : ndarray of shape (n_words * (n_words - 1) / 2,)
    """
    i, j = np.tril_indices(len(together), -1)
    p, p_ij = np.diag(together) / n_documents, together[i, j] / n_documents
    values = np.full(len(p_ij), -1.0)
    # Two words of every document tell nothing about each other, and are 0 / 0.
    values[p_ij == 1.0] = 0.0
    meet = (p_ij > 0.0) & (p_ij < 1.0)
    log_p = np.log(p_ij[meet])
    values[meet] = (log_p - np.log(p[i[meet]] * p[j[meet]])) / -log_p
    return values


def umass(together: np.ndarray, n_documents: int, epsilon: float = 1.0) -> np.ndarray:
    """Return log((D_ij + epsilon) / D_j) of pairs of words, where j ranks above i.

    D counts documents. A word j that no document has tells nothing of i: its pairs
    have the least value that others can have, log(epsilon / n_documents).

    Parameters
    ----------
    together : ndarray of shape (n_words, n_words)
        As for :func:`normalized_pmi`, the words in the order of their ranks.
    n_documents : int
    epsilon : float, default=1.0

    Returns
    -------
    values : ndarray of shape (n_words * (n_words - 1) / 2,)
    """
    i, j = np.tril_indices(len(together), -1)
    above = np.diag(together)[j]
    known = np.where(above > 0, above, n_documents)
    return np.log((together[i, j] + epsilon) / known)


MEASURES = {"npmi": normalized_pmi, "umass": umass}


def _is_words(topics):
    """Whether topics are words, in lists or an array, rather than a model or numbers.

    Strings of digits are words: years are.
    """
    if isinstance(topics, np.ndarray) and topics.dtype.kind != "O":
        return topics.dtype.kind in "UT"
    listed = isinstance(topics, list | tuple) or (
        isinstance(topics, np.ndarray) and topics.ndim > 0
    )
    return listed and any(
        isinstance(word, str) for topic in topics for word in np.ravel(topic)
    )


def _find_words(topics, feature_names, n_words):
    """Return the columns of each topic's words, -1 for a word without a column."""
    column = {name: j for j, name in enumerate(feature_names)}
    found = []
    for topic in topics.tolist() if isinstance(topics, np.ndarray) else topics:
        top = topic[:n_words]
        if isinstance(topic, str) or len(set(top)) < 2:
            raise ValueError(f"A topic needs two words at least, got {topic!r}.")
        if len(set(top)) < len(top):
            raise ValueError(f"A topic has a word twice: {list(topic)}.")
        found.append(np.array([column.get(word, -1) for word in top]))
    return found


def coherence(
    topics: Any,
    X: MatrixLike,
    *,
    measure: Literal["npmi", "umass"] = "npmi",
    n_words: int = 10,
    feature_names: Any = None,
    epsilon: float = 1.0,
) -> np.ndarray:
    """Return how much the top words of each topic occur in the same documents.

    Parameters
    ----------
    topics : estimator, array-like, or list of lists (or array) of str
        A fitted model with ``components_``, a fitted pipeline that ends with one,
        topics of shape (n_topics, n_features) in any scale, or the top words
        themselves, the first one first, as ``top_words`` returns them. Of a model of
        this package, topics without tokens are left out.
    X : {array-like, sparse matrix} of shape (n_documents, n_features)
        Counts of the reference documents: those of the fit, or others. Of a count only
        matters whether it is zero. Of a pipeline, what its first step takes.
    measure : {"npmi", "umass"}, default="npmi"
        "npmi" is the normalised pointwise mutual information [1]_, from -1 to 1;
        "umass" the mean of log((D(i, j) + epsilon) / D(j)) over pairs of words of which
        j ranks above i [2]_, where D counts documents. Both are means over all pairs.
    n_words : int, default=10
        Top words of each topic that are looked at.
    feature_names : array-like of str, fitted vectorizer or Pipeline, default=None
        The words of the columns of X; needed where topics are words.
    epsilon : float, default=1.0
        Of "umass", above zero: documents that words which never meet count for. gensim
        has 1e-12 of the number of documents.

    Returns
    -------
    coherence : ndarray of shape (n_topics,)
        The higher, the better.

    Raises
    ------
    sklearn.exceptions.NotFittedError
        If the model is not fitted.
    ValueError
        If X holds negative numbers, NaN or infinity, has other columns than the
        topics, or a parameter is out of range.

    Warns
    -----
    CollapsedComponentWarning
        If topics are left out, with their numbers.

    Notes
    -----
    Words that no document of X has, or that have no column in it, have the lowest
    value in each of their pairs: -1 (NPMI) and, where the other word is compared with
    them, log(epsilon / n_documents) (UMass). Mimno et al. sum over the pairs, where
    this is the mean, which does not grow with `n_words`.

    References
    ----------
    .. [1] G. Bouma. Normalized (pointwise) mutual information in collocation
       extraction. Conference of the German Society for Computational Linguistics, 2009;
       for topics: J. H. Lau, D. Newman, T. Baldwin. Machine reading tea leaves.
       European Chapter of the ACL, 2014.
    .. [2] D. Mimno, H. M. Wallach, E. Talley, M. Leenders, A. McCallum. Optimizing
       semantic coherence in topic models. Empirical Methods in Natural Language
       Processing, 2011, equation 1.

    Examples
    --------
    >>> import numpy as np
    >>> from skvrem.text import coherence
    >>> X = np.array([[1, 2, 0, 0], [2, 1, 0, 0], [0, 0, 3, 1], [0, 0, 1, 1]])
    >>> topics = [[0.6, 0.4, 0.0, 0.0], [0.6, 0.0, 0.4, 0.0]]
    >>> coherence(topics, X, n_words=2)
    array([ 1., -1.])
    """
    if measure not in MEASURES:
        raise ValueError(f"measure must be 'npmi' or 'umass', got {measure!r}.")
    check_size("n_words", n_words, least=2)
    if not 0.0 < epsilon < np.inf:
        raise ValueError(f"epsilon must be a positive number, got {epsilon!r}.")
    if _is_words(topics):
        counts = check_counts(X)
        if feature_names is None:
            raise ValueError("Lists of words need feature_names: the words of X.")
        names = check_names(feature_names, counts.shape[1])
        words = _find_words(topics, names, n_words)
    else:
        components, X = find_used_topics(topics, X)
        counts = check_counts(X, components.shape[1])
        if components.shape[1] < 2:
            raise ValueError("Topics of a single word have no pairs of words.")
        words = list(largest(components, n_words))
    used, position = np.unique(np.concatenate(words), return_inverse=True)
    # Column -1, a word that X lacks, becomes an empty one behind the others.
    occurs = counts[:, used[used >= 0]].tocsc()
    occurs.data = np.ones(len(occurs.data))
    n_missing = int(used[0] < 0)
    values = []
    for place in np.split(
        position - n_missing, np.cumsum([len(w) for w in words])[:-1]
    ):
        known = place >= 0
        columns = occurs[:, place[known]]
        together = np.zeros((len(place), len(place)))
        together[np.ix_(known, known)] = (columns.T @ columns).toarray()
        own = MEASURES[measure](together, counts.shape[0], epsilon)
        values.append(own.mean())
    return np.array(values)
