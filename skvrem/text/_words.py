"""What topics are about: their top words and documents, and words to seed them with."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import rankdata

from skvrem.text._topics import (
    check_components,
    check_names,
    document_shares,
    find_used_topics,
    largest,
    last_step,
    word_probabilities,
)
from skvrem.utils._columns import MatrixLike
from skvrem.utils._validation import check_size


def top_words(
    topics: Any,
    feature_names: Any = None,
    n: int = 10,
    *,
    ranking: Literal["probability", "relevance", "frex"] = "probability",
    weight: float | None = None,
) -> np.ndarray:
    """Return the words that tell most of each topic.

    Parameters
    ----------
    topics : estimator or array-like of shape (n_topics, n_features)
        A fitted model with ``components_``, a fitted pipeline that ends with one, or
        topics in any scale. Of a model of this package, topics without tokens are left
        out; of an array none are.
    feature_names : array-like of str, fitted vectorizer or Pipeline, default=None
        The words of the columns. Of a pipeline that ends with a topic model, those that
        enter its last step. None asks the pipeline given as `topics`, or the model's
        ``feature_names_in_``, and else numbers the columns: x0, x1, ...
    n : int, default=10
        Words a topic; all of them where the vocabulary is smaller.
    ranking : {"probability", "relevance", "frex"}, default="probability"
        By the probability in the topic; or by how much of the topic's own a word is as
        well: "relevance" [1]_ adds the logarithms of the probability and of its ratio
        to that in all topics, "frex" [2]_ is the harmonic mean of the word's ranks
        among all by its probability and by the topic's share of it.
    weight : float or None, default=None
        Of the probability in "relevance", between 0 and 1; None is 0.6. Of the topic's
        share in "frex"; None is 0.5.

    Returns
    -------
    words : ndarray of str of shape (n_topics, n)
        The first one first; of equal ones, the first column first.

    Raises
    ------
    sklearn.exceptions.NotFittedError
        If the model is not fitted.
    ValueError
        If there is not one name for each column, `n` is no positive integer, or
        `ranking` or `weight` is none of these.

    Warns
    -----
    CollapsedComponentWarning
        If topics are left out, with their numbers.

    References
    ----------
    .. [1] C. Sievert, K. E. Shirley. LDAvis: a method for visualizing and interpreting
       topics. Workshop on Interactive Language Learning, Visualization, and
       Interfaces, 2014. Topics count by the sums of their rows.
    .. [2] J. M. Bischof, E. M. Airoldi. Summarizing topical content with word frequency
       and exclusivity. International Conference on Machine Learning, 2012.

    Examples
    --------
    >>> from skvrem.text import top_words
    >>> topics = [[8.0, 1.0, 3.0], [0.5, 6.0, 2.0]]
    >>> print(top_words(topics, ["rain", "goal", "win"], n=2))
    [['rain' 'win']
     ['goal' 'win']]
    >>> print(top_words(topics, ["rain", "goal", "win"], n=2, ranking="frex"))
    [['rain' 'win']
     ['goal' 'win']]
    """
    check_size("n", n)
    if ranking not in RANKINGS:
        raise ValueError(
            f"ranking must be one of {', '.join(map(repr, RANKINGS))}, got {ranking!r}."
        )
    usual = RANKINGS[ranking]
    weight = usual if weight is None else weight
    if usual is None and weight is not None:
        raise ValueError("weight is of ranking='relevance' and 'frex'.")
    if usual is not None and not 0.0 <= weight <= 1.0:
        raise ValueError(f"weight must lie between 0 and 1, got {weight!r}.")
    components, _ = find_used_topics(topics)
    names = check_names(feature_names, components.shape[1], topics)
    if ranking != "probability":
        components = SCORES[ranking](components, weight)
    return names[largest(components, n)]


def _relevance(components, weight):
    """Log probability in the topic and log lift, (n_topics, n_features)."""
    words, _ = word_probabilities(components)
    overall = components.sum(axis=0, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_p = np.log(words.T)
        lift = log_p - np.log(overall / overall.sum())
    # A word that no topic has is below all others.
    return np.nan_to_num(weight * log_p + (1.0 - weight) * lift, nan=-np.inf)


def _frex(components, weight):
    """Harmonic mean of the ranks by frequency and exclusivity, as shares of words."""
    words = word_probabilities(components)[0].T
    total = words.sum(axis=0)
    share = words / np.where(total > 0.0, total, 1.0)
    frequency, exclusivity = (
        rankdata(part, method="max", axis=1) / part.shape[1] for part in (words, share)
    )
    return 1.0 / (weight / exclusivity + (1.0 - weight) / frequency)


#: Weights of rankings of words by default, and what those are.
RANKINGS = {"probability": None, "relevance": 0.6, "frex": 0.5}
SCORES = {"relevance": _relevance, "frex": _frex}


def topic_diversity(topics: Any, n: int = 25) -> float:
    """Return the share of different words among the most probable ones of all topics.

    Parameters
    ----------
    topics : estimator or array-like of shape (n_topics, n_features)
        As of :func:`top_words`.
    n : int, default=25
        Words of each topic.

    Returns
    -------
    diversity : float
        1 where no two topics share one of their top words (Dieng, Ruiz and Blei 2020,
        Topic modeling in embedding spaces).

    Raises
    ------
    ValueError
        As :func:`top_words`.

    Warns
    -----
    CollapsedComponentWarning
        As :func:`top_words`.

    Examples
    --------
    >>> from skvrem.text import topic_diversity
    >>> topic_diversity([[0.6, 0.4, 0.0], [0.0, 0.4, 0.6]], n=2)
    0.75
    """
    check_size("n", n)
    components, _ = find_used_topics(topics)
    top = largest(components, n)
    return len(np.unique(top)) / top.size


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


def _check_pseudo_counts(name, value):
    """Return a number, or numbers, as an array of float64."""
    try:
        value = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        value = np.asarray(np.nan)
    if not np.isfinite(value).all() or value.min(initial=0.0) < 0.0:
        raise ValueError(f"{name} must be finite and not negative.")
    return value


def seed_prior(
    seeds: Mapping[int, Sequence[str]],
    feature_names: Any,
    n_components: int,
    *,
    weight: float | ArrayLike = 300.0,
    base: float = 0.1,
) -> np.ndarray:
    """Return word priors that draw topics to the words they are seeded with.

    Parameters
    ----------
    seeds : dict of int to list of str
        Words by the number of their topic. Topics without seeds are left free.
    feature_names : array-like of str, fitted vectorizer or Pipeline
        The words of the columns, as ``vectorizer.get_feature_names_out()`` returns
        them. Of a pipeline that ends with a topic model, those that enter its last
        step.
    n_components : int
        Number of topics, of which seeded ones are some.
    weight : float or array-like of shape (n_features,), default=300.0
        Pseudo-count of each seed word in its topic, on top of `base`: so many tokens of
        it are taken as seen in the topic beforehand. Of use is about what a corpus of
        some size has: ``X.sum(axis=0)`` gives each word its own count. A third of that
        lets words go elsewhere; far more makes a topic of nothing but its seeds. Where
        seeds occur less than some hundred times, in a small corpus or a batch of a
        stream, the default has found better topics.
    base : float, default=0.1
        Pseudo-count of every other word in every topic: what the parameter would be
        without seeds, 0.05 by default in TemperedLDA.

    Returns
    -------
    prior : ndarray of float64 of shape (n_components, n_features)
        For ``topic_word_smoothing`` of VRPLSA, or ``topic_word_prior`` of
        TemperedLDA.

    Raises
    ------
    ValueError
        If none of the words of a topic is in the vocabulary, if a topic has no number
        from 0 to ``n_components - 1``, or a parameter is out of range.

    Warns
    -----
    UserWarning
        If some words are not in the vocabulary, with their names.

    Examples
    --------
    >>> from skvrem.text import seed_prior
    >>> names = ["ball", "rain", "tax"]
    >>> seed_prior({0: ["tax"], 1: ["rain"]}, names, 3, weight=5.0, base=0.1)
    array([[0.1, 0.1, 5.1],
           [0.1, 5.1, 0.1],
           [0.1, 0.1, 0.1]])
    """
    check_size("n_components", n_components)
    base = _check_pseudo_counts("base", base)
    if base.ndim:
        raise ValueError(f"base must be one number, got {base.size}.")
    names = check_names(feature_names)
    column = {name: j for j, name in enumerate(names)}
    weight = _check_pseudo_counts("weight", weight)
    if weight.size not in (1, len(names)):
        raise ValueError(
            f"weight must be a number or one for each of the {len(names)} words, got "
            f"{weight.size}."
        )
    weight = np.broadcast_to(weight.ravel(), len(names))
    prior = np.full((n_components, len(names)), float(base))
    missing = {}
    for topic, words in dict(seeds).items():
        if not isinstance(topic, int | np.integer) or not 0 <= topic < n_components:
            raise ValueError(
                f"Seeds are for topics 0 to {n_components - 1}, got {topic!r}."
            )
        words = words if isinstance(words, str) else list(words)
        if isinstance(words, str) or not words:
            raise ValueError(f"Topic {topic} needs a list of words, got {words!r}.")
        known = [column[word] for word in words if word in column]
        if len(known) < len(words):
            missing[topic] = [word for word in words if word not in column]
        if not known:
            raise ValueError(
                f"None of the words of topic {topic} is in the vocabulary: "
                f"{', '.join(map(repr, words))}. Is its spelling, case or stemming "
                "another one?"
            )
        if not weight[known].all():
            raise ValueError(f"weight must be above 0 for the seeds of topic {topic}.")
        prior[topic, known] = base + weight[known]
    if missing:
        listed = "; ".join(
            f"topic {topic}: {', '.join(map(repr, words))}"
            for topic, words in missing.items()
        )
        warnings.warn(
            f"Seed words that are not in the vocabulary are left out ({listed}).",
            UserWarning,
            stacklevel=2,
        )
    return prior
