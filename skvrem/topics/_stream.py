"""What a stream goes on from: its first documents, and words that later ones name."""

import warnings
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from skvrem.text import match_topics

# A stream keeps its first documents: so many, of so many nonzeros. Where it has a step
# of its own, to forget what is old, only as many as are enough for a start.
MOST, MOST_NONZEROS, ENOUGH = 10_000, 2_000_000, 1000
# It fits them by so many epochs at most from random topics, as those of few kinds of
# documents may never come to others: when they have become so many times as many, and
# all fits until then are worth no more than so many of all of them. So each of the
# first batches is fitted, which may bring kinds that none before has shown; later, a
# third more documents.
EPOCHS, GROWTH, FITS = 15, 1.05, 4
# Nonzeros times topics up to which a fit goes on to its end: of few documents EM needs
# many epochs, of tenths of a second altogether.
SMALL = 200_000
# Later steps are of so many tokens, or of all seen before, where those are fewer.
STEP_TOKENS = 1e5


class FirstDocuments(NamedTuple):
    """All documents of a stream that has begun, copies of their nonzeros.

    Attributes
    ----------
    counts, words : ndarrays of shape (n_nonzeros,)
    sizes : ndarray of shape (n_documents,)
        Nonzeros of each.
    weight : ndarray of shape (n_documents,)
    n_fitted : int
        Documents when they were last fitted.
    n_visits : float
        Documents of all fits.
    """

    counts: np.ndarray
    words: np.ndarray
    sizes: np.ndarray
    weight: np.ndarray
    n_fitted: int = 0
    n_visits: float = 0.0

    @classmethod
    def of(cls, data):
        """Return copies of the documents of a source."""
        X, weight = data.X, data.weight if data.weight.size else np.ones(data.n_units)
        return cls(*map(np.array, (X.data, X.indices, np.diff(X.indptr), weight)))

    def followed_by(self, other):
        """Return them with others after them."""
        joined = map(np.append, self[:4], other[:4])
        return FirstDocuments(*joined, *self[4:])

    def with_words(self, at):
        """Return them with words of other numbers."""
        return self._replace(words=np.asarray(at)[self.words])

    def fitted_as(self, estimator):
        """Return an estimator like another one, fitted to them.

        Topics keep their numbers: new ones are matched with those before.
        """
        begun = hasattr(estimator, "components_")
        how = {"n_init": 1, "verbose": 0, "warm_start": False}
        if len(self.counts) * estimator.n_components > SMALL:
            how["max_iter"] = min(EPOCHS, estimator.max_iter)
        arrays = [
            name for name in estimator._priors if np.ndim(getattr(estimator, name))
        ]
        if begun:
            # As they are now: topics may have been relabelled, and words be new.
            how |= {name: getattr(estimator, f"{name}_") for name in arrays}
        known = type(estimator)(**estimator.get_params(deep=False) | how)
        starts = np.append(0, np.cumsum(self.sizes))
        shape = len(self.sizes), estimator.n_features_in_
        X = sp.csr_array((self.counts, self.words, starts), shape)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # few documents are only a beginning
            known.fit(X, sample_weight=self.weight)
        if begun and not arrays:
            counts = estimator.n_tokens_seen_ * estimator._sums.T
            topics = counts + estimator._fitted_priors()[1]
            known.relabel(match_topics(topics, known).second)
        return known


def begin(estimator, data):
    """Return what a batch goes on from, where all documents of a stream are kept.

    Parameters
    ----------
    estimator : TopicModel
        Without topics, or with ``_first_documents``.
    data : DocumentSource
        The batch.

    Returns
    -------
    known : TopicModel
        The same, or one like it that was fitted to all documents.
    kept : FirstDocuments or None
        None where there are enough.
    """
    before, kept = vars(estimator).get("_first_documents"), FirstDocuments.of(data)
    if before is not None:
        kept = before.followed_by(kept)
    n_documents = int(np.count_nonzero(kept.weight))
    most = MOST if estimator.step_size == "auto" else ENOUGH
    enough = n_documents >= most or len(kept.counts) >= MOST_NONZEROS
    n_visits = kept.n_visits + n_documents
    more = n_documents >= GROWTH * kept.n_fitted
    if enough or (more and n_visits <= FITS * n_documents):
        estimator = kept.fitted_as(estimator)
        kept = kept._replace(n_fitted=n_documents, n_visits=n_visits)
    return estimator, None if enough else kept


def meet_words(estimator, X):
    """Make room for words that a batch is the first to name.

    Returns
    -------
    before : dict
        Fitted attributes that have changed, as they were.

    Raises
    ------
    ValueError
        If there are more words than before, and not all have names.
    """
    known = list(getattr(estimator, "feature_names_in_", ()))
    names = list(getattr(X, "columns", ()))
    place = {name: v for v, name in enumerate(names)}
    if not known or not all(isinstance(name, str) for name in names):
        names = []
    width, n_known = np.shape(X)[-1] if np.ndim(X) == 2 else 0, estimator.n_features_in_
    if width > n_known and not names:
        raise ValueError(
            f"X has {width} features, but {type(estimator).__name__} is expecting "
            f"{n_known} features as input. New words are told by their names: pass "
            "data frames, from the first batch on."
        )
    if len(names) <= len(known) or not place.keys() >= set(known):
        return {}  # as before, or to be refused by scikit-learn
    if len(place) < len(names):
        raise ValueError("X has columns of the same name.")
    at = [place[name] for name in known]
    sums = np.zeros((len(names), estimator._sums.shape[1]), estimator._sums.dtype)
    sums[at] = estimator._sums
    kept = vars(estimator).get("_first_documents")
    found = {
        "_sums": sums,
        "n_features_in_": len(names),
        "feature_names_in_": np.array(names, dtype=object),
        "_first_documents": kept and kept.with_words(at),
    }
    name = f"{estimator._priors[1]}_"
    prior = np.asarray(getattr(estimator, name))
    if prior.ndim:
        least = prior.min(axis=1, keepdims=True)
        found[name] = np.repeat(least, len(names), axis=1)
        found[name][:, at] = prior
    before = {name: vars(estimator).get(name) for name in found}
    vars(estimator).update(found)
    return before
