"""What pLSA and LDA average, and how a step changes it."""

from typing import Any, NamedTuple

import numpy as np

from skvrem.topics._model_word_sums import WordSums, cut_documents, pad
from skvrem.utils._averaging import Averaging
from skvrem.utils._parallel import parallel_map

__all__ = ["Statistics", "TopicPoint", "WordModel"]


class Statistics(NamedTuple):
    """Sums over the documents of a batch.

    Attributes
    ----------
    sum_z : Rows of an array of shape (n_features, K), or the array
        Σ_d c_dv q(z_dv = k), the expected tokens of a word from a topic; in LDA times
        the inverse temperature.
    objective : float
        The documents' share of the objective.
    """

    sum_z: Any
    objective: float


class TopicPoint(NamedTuple):
    """Where a fit stands.

    Attributes
    ----------
    sums : WordSums
        The statistics, which topics are made of where they are needed.
    own : Any
        What else the model visits documents with, as of the last `recentre`.
    of_topics : float
        The topics' share of the objective, a token, as of then.
    settled : bool
        There was no update since.
    """

    sums: WordSums
    own: Any = None
    of_topics: float = 0.0
    settled: bool = False
    reference: None = None
    trials: int = 0
    repaired: tuple = ()

    @property
    def statistics(self):
        """The mean statistics a token."""
        return Statistics(self.sums.toarray(), 0.0)


class WordModel(Averaging):
    """Topics from the averaged expected counts of words.

    A model that inherits this defines ``of_topics(sums)``, and ``renew(own, sums)``
    where its points have something of their own.

    Parameters
    ----------
    doc_prior : array of shape (n_components,)
        Of the documents' shares.
    word_prior : array of shape (n_components, n_features), or ()
        Of the topics.
    n_tokens : float
        Tokens that the topics are learned from.
    dtype : dtype
    inner_iter : int, default=1
        Most rounds on a document a visit.
    inner_tol : float, default=0.0
        No more of them where one changes the document by less than this.
    """

    def __init__(
        self, doc_prior, word_prior, n_tokens, dtype, inner_iter=1, inner_tol=0.0
    ):
        self.n_components, self.n_tokens = len(doc_prior), n_tokens
        self.dtype = np.dtype(dtype)
        self.doc_prior = pad(doc_prior[None], self.dtype)[0]
        if not word_prior.ndim:  # the same for all words
            word_prior = np.full((self.n_components, 1), word_prior)
        self.word_prior = pad(word_prior.T, self.dtype)
        self.inner_iter, self.inner_tol = inner_iter, self.dtype.type(inner_tol)

    def prior_totals(self, n_features):
        """Return the sums over words of their prior."""
        totals = self.word_prior.sum(axis=0, dtype=np.float64)
        return totals * n_features if len(self.word_prior) == 1 else totals

    def update(self, point, mean, correction, step):
        r"""Return the point after one step; see :meth:`WordSums.step`.

        Of LDA it is Eq. 8 of Mandt et al. (2016).

        Its deviation is written to, so `point` must not be updated again.
        """
        mean, correction = (
            None if part is None else part.sum_z for part in (mean, correction)
        )
        sums = point.sums.step(mean, correction, step)
        return point._replace(sums=sums, settled=False)

    def recentre(self, point):
        """Return the point with its statistics in one array, and all that is of them.

        What its last steps wrote to is written to, so `point` is spent.
        """
        if point.settled:
            return point
        sums = point.sums.settle()
        own, of_topics = self.renew(point.own, sums), self.of_topics(sums)
        return point._replace(sums=sums, own=own, of_topics=of_topics, settled=True)

    def over_documents(self, kernel, batch, rounds, *arguments):
        """Run a kernel on ranges of documents; return its sum, and what it writes.

        Parameters
        ----------
        kernel : callable
            Of the documents (counts, their words, where documents begin, weights), the
            first and the last of a range, these arguments, and what it writes: t of the
            documents, and the counts over the tokens' sums.
        batch : batch of documents
        rounds : int
            On a document, about: for the size of tasks only.
        """
        counts = batch.rows
        documents = *counts[:3], batch.weight.astype(self.dtype)
        at = np.empty((batch.n_units, len(self.doc_prior)), self.dtype)
        w = np.empty(len(counts.counts), self.dtype)

        def infer(some):
            return kernel(documents, *some, *arguments, at, w)

        tasks = cut_documents(counts.indptr, rounds * at.shape[1])
        return sum(parallel_map(infer, tasks)), at, w

    def renew(self, own, sums):
        """Return what a point has of its own, where epochs begin."""
        return own

    def objective(self, point, mean):
        """Return the objective a token, from statistics taken at `point`.

        Of LDA it is the bound, Eq. 4 of Mandt et al. (2016).
        """
        return float(mean.objective + point.of_topics)

    def norm(self, point, sums):
        """Return the length of a change of statistics."""
        return float(np.sqrt(np.square(sums.sum_z, dtype=np.float64).sum()))
