"""What a stream begins with: its first documents, fitted as they become more."""

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
# all fits until then are worth no more than so many passes over them. So each of the
# first batches is fitted, which may bring kinds that none before has shown; later, a
# third more documents.
EPOCHS, GROWTH, PASSES = 15, 1.05, 60
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
        Epochs times documents of all fits.
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
    n_visits = kept.n_visits + EPOCHS * n_documents
    more = n_documents >= GROWTH * kept.n_fitted
    if enough or (more and n_visits <= PASSES * n_documents):
        estimator = kept.fitted_as(estimator)
        kept = kept._replace(n_fitted=n_documents, n_visits=n_visits)
    return estimator, None if enough else kept
