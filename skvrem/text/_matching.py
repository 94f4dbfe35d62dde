"""Topics of one fit beside those of another: which are the same, and how much."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from skvrem.text._topics import find_topics, word_probabilities


class TopicMatch(NamedTuple):
    """Pairs of topics.

    Attributes
    ----------
    first, second : ndarray of int of shape (n_pairs,)
        Numbers of the topics of the one model and of the other, `first` ascending.
    distance : ndarray of shape (n_pairs,)
        Hellinger's, of their words: 0 for the same topic, 1 without a word in common.
    """

    first: np.ndarray
    second: np.ndarray
    distance: np.ndarray


class TopicStability(NamedTuple):
    """How much of the topics comes again.

    Attributes
    ----------
    score : float
        Mean similarity of the matched topics of every two models, between 0 and 1.
    similarity : ndarray of shape (n_models - 1, n_topics)
        Of the first model's topics to those of each other model that they are matched
        with, one minus their distance.
    """

    score: float
    similarity: np.ndarray


def match_topics(first: Any, second: Any) -> TopicMatch:
    r"""Return which topics of two models belong together.

    Topics are paired so that the sum of their distances is the least (the Hungarian
    method). The distance is that of Hellinger, of the probabilities p and q of words,

    .. math:: \sqrt{1 - \sum_w \sqrt{p_w q_w}} .

    Parameters
    ----------
    first, second : estimator or array-like of shape (n_topics, n_features)
        Fitted models with ``components_``, fitted pipelines that end with one, or
        topics in any scale, of the same words.

    Returns
    -------
    match : TopicMatch
        As many pairs as the smaller model has topics.

    Raises
    ------
    sklearn.exceptions.NotFittedError
        If a model is not fitted.
    ValueError
        If the numbers of words differ, or an entry is negative or not finite.

    Examples
    --------
    >>> from skvrem.text import match_topics
    >>> monday = [[0.7, 0.3, 0.0], [0.0, 0.2, 0.8]]
    >>> tuesday = [[0.0, 0.3, 0.7], [0.6, 0.4, 0.0]]
    >>> match = match_topics(monday, tuesday)
    >>> match.second
    array([1, 0])
    >>> match.distance.round(2)
    array([0.07, 0.08])
    """
    return _matched(*(_roots(topics) for topics in (first, second)))


def topic_stability(models: Sequence[Any]) -> TopicStability:
    """Return how alike the topics of fits are that should be the same.

    Such as fits from different seeds, or to halves of the documents.

    Parameters
    ----------
    models : sequence of estimators or array-likes of shape (n_topics, n_features)
        Two at least, as of :func:`match_topics`, with equal numbers of topics.

    Returns
    -------
    stability : TopicStability
        With one number for all, and one for each topic of the first model.

    Raises
    ------
    ValueError
        If there are less than two models, or numbers of topics or words differ.

    Examples
    --------
    >>> from skvrem.text import topic_stability
    >>> fits = [[[0.7, 0.3], [0.1, 0.9]], [[0.1, 0.9], [0.7, 0.3]]]
    >>> topic_stability(fits).score
    1.0
    """
    roots = [_roots(topics) for topics in models]
    sizes = sorted({len(root) for root in roots})
    if len(roots) < 2 or len(sizes) > 1:
        raise ValueError(
            "models must be two fits at least with one number of topics, got "
            f"{len(roots)} with {sizes}."
        )
    similarity = {
        pair: 1.0 - _matched(*(roots[number] for number in pair)).distance
        for pair in combinations(range(len(roots)), 2)
    }
    score = float(np.mean(list(similarity.values())))
    of_first = [similarity[0, other] for other in range(1, len(roots))]
    return TopicStability(score, np.array(of_first))


def _roots(topics):
    """Return the square roots (n_topics, n_features) of the words' probabilities."""
    components, _ = find_topics(topics, None)
    return np.sqrt(word_probabilities(components)[0].T.astype(np.float64))


def _matched(first, second):
    if first.shape[1] != second.shape[1]:
        raise ValueError(
            f"Topics of {first.shape[1]} words and of {second.shape[1]} cannot be "
            "compared: fit both with one vocabulary."
        )
    # Of equal topics the product may be one plus rounding.
    distance = np.sqrt(np.maximum(1.0 - first @ second.T, 0.0))
    rows, columns = linear_sum_assignment(distance)
    apart = np.linalg.norm(first[rows] - second[columns], axis=1)
    return TopicMatch(rows, columns, np.minimum(np.sqrt(0.5) * apart, 1.0))
