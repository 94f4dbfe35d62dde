r"""pLSA: what is averaged over documents, and what the update is.

A token of document d is word v with probability :math:`\sum_k \theta_{dk} \phi_{kv}`.
With Dirichlet priors :math:`\theta_d \sim D(1 + \alpha)`, :math:`\phi_k \sim
D(1 + \beta)` the objective is

.. math:: \sum_{dv} c_{dv} \log \sum_k \theta_{dk} \phi_{kv}
          + \sum_{dk} \alpha_k \log \theta_{dk} + \sum_{kv} \beta_{kv} \log \phi_{kv}

(Chen et al. 2018, §4.2), here divided by the number of tokens.

The statistics of a word are averaged by the solvers, :math:`s_{kv}`, the mean of
:math:`\gamma_{kv}` a token. Those of a document are not: a document's θ is its own, no
other document says anything about it, so a visit takes whole EM steps on it. Applying
Eq. (5) to θ as to φ would multiply the change of a document by the number of
minibatches, and θ would leave the simplex; the fixed points are the same.
"""

from typing import Any, NamedTuple

import numpy as np

from skvrem.plsa import _kernels as kernels
from skvrem.utils._padding import pad, padded_empty
from skvrem.utils._parallel import parallel_map, row_chunks
from skvrem.utils._word_sums import (
    NO_WORDS,
    TASK_WORDS,
    WordSums,
    cut_documents,
    expected_counts,
    take_rows,
)

__all__ = ["PLSAModel", "PLSAPoint", "Parameters"]


class Parameters(NamedTuple):
    """Topics word by word, and the documents' shares of them, padded with zeros.

    Attributes
    ----------
    topics : ndarray of shape (n_features, K)
        φ; columns sum to 1.
    theta : ndarray of shape (n_documents, K)
        θ; rows sum to 1.
    """

    topics: np.ndarray
    theta: np.ndarray


class Statistics(NamedTuple):
    """Sums over the documents of a batch.

    Attributes
    ----------
    sum_z : Rows of an array of shape (n_features, K), or the array
        Σ_d γ_dvk, the expected tokens of a word from a topic.
    objective : float
        The documents' share of the objective.
    """

    sum_z: Any
    objective: float


class PLSAPoint(NamedTuple):
    """Where a fit stands.

    Attributes
    ----------
    parameters : Parameters
        As of the last `recentre`.
    log_prior : float
        Log prior of their topics a token.
    sums : WordSums
        The statistics.
    after : ndarray of shape (n_documents, K)
        θ of the documents visited since, the next `parameters.theta`.
    settled : bool
        `parameters` are those of the statistics.
    """

    parameters: Parameters
    log_prior: float
    sums: WordSums
    after: np.ndarray
    settled: bool = True
    reference: None = None
    trials: int = 0
    repaired: tuple = ()

    @property
    def statistics(self):
        """The mean statistics a token."""
        return Statistics(self.sums.toarray(), 0.0)


class PLSAModel:
    """MAP estimate of topics from counts.

    Parameters
    ----------
    doc_topic_prior : array of shape (n_components,)
        α.
    topic_word_prior : array of shape (n_components, n_features), or ()
        β.
    n_tokens : float
        Tokens that the objective is divided by.
    dtype : dtype
    doc_update_iter : int, default=1
        Most EM steps on a document a visit.
    tol : float, default=0.0
        No more of them where one changes θ by less than this, in sum.
    """

    keep_sums = False
    #: Sums over words, without the dot products and the steps on θ.
    recall_passes = 0.5

    def __init__(
        self,
        doc_topic_prior,
        topic_word_prior,
        n_tokens,
        dtype,
        doc_update_iter=1,
        tol=0.0,
    ):
        self.n_components = len(doc_topic_prior)
        self.dtype = np.dtype(dtype)
        self.doc_prior = pad(doc_topic_prior[None], self.dtype)[0]
        if not topic_word_prior.ndim:  # the same for all words
            topic_word_prior = np.full((self.n_components, 1), topic_word_prior)
        self.word_prior = pad(topic_word_prior.T / n_tokens, self.dtype)
        self.doc_update_iter = doc_update_iter
        self.doc_tol = self.dtype.type(tol)

    def start(self, parameters):
        """Return the point of the given parameters.

        Parameters
        ----------
        parameters : tuple (topics, theta)
            Of shapes (n_features, n_components) and (n_documents, n_components), or
            padded already.
        """
        topics, theta = (pad(part, self.dtype) for part in parameters)
        return PLSAPoint(
            Parameters(topics, theta),
            self._log_prior(topics),
            WordSums.about(None, topics * self.dtype.type(1.0 / self.n_components)),
            theta.copy(),
        )

    def resume(self, sums, n_documents):
        """Return the point of statistics, for documents never seen.

        Parameters
        ----------
        sums : ndarray of shape (n_features, n_components)
            Mean statistics a token.
        n_documents : int
        """
        share = 1.0 / self.n_components
        theta = pad(np.full((n_documents, self.n_components), share), self.dtype)
        return PLSAPoint(
            Parameters(None, theta),
            0.0,
            WordSums.about(None, pad(sums, self.dtype)),
            np.empty_like(theta),
            settled=False,
        )

    def statistics(self, point, batch, beta):
        """Return the sums of a batch after EM steps on its documents' own θ."""
        return self._visit(point, batch, beta, self.doc_update_iter)[0]

    def remember(self, point, batch, beta):
        """Return the sums at θ as it stands, and the tokens' weights there."""
        sums, w = self._visit(point, batch, beta, 1)
        return sums, (w, point.parameters, beta)

    def recall(self, memory, point, batch):
        """Return the sums where `memory` was made: weights times θ times φ of then."""
        w, parameters, beta = memory
        phi = self._rows(parameters.topics, batch.rows.words, beta)
        theta = self._rows(parameters.theta, batch.ids, beta)
        return Statistics(expected_counts(batch, w, theta, phi), 0.0)

    def infer(self, topics, theta, batch):
        """Return θ of documents, the topics held.

        Parameters
        ----------
        topics : ndarray of shape (n_features, n_components)
        theta : ndarray of shape (n_documents, n_components)
            Where to start.
        batch : batch of all documents
        """
        k = self.n_components
        phi = self._rows(pad(topics, self.dtype), batch.rows.words, 1.0)
        theta = pad(theta, self.dtype)
        after = np.empty_like(theta)
        self._e_step(phi, theta, after, batch, 1.0, self.doc_update_iter)
        return np.ascontiguousarray(after[:, :k])

    def _visit(self, point, batch, beta, n_steps):
        phi = self._topics(point, batch.rows.words, beta)
        theta = point.parameters.theta
        objective, w, at = self._e_step(phi, theta, point.after, batch, beta, n_steps)
        return Statistics(expected_counts(batch, w, at, phi), objective), w

    def _e_step(self, phi, theta, after, batch, beta, n_steps):
        """Take EM steps on θ; return the objective, the weights and θ^b there."""
        rows = batch.rows
        w = np.empty(len(rows.counts), self.dtype)
        at = np.empty((batch.n_units, theta.shape[1]), self.dtype)
        weight = batch.weight.astype(self.dtype)

        def infer(documents):
            return kernels.infer_topics(
                rows.counts,
                rows.index,
                rows.indptr,
                batch.ids,
                weight,
                *documents,
                phi,
                theta,
                self.doc_prior,
                self.dtype.type(beta),
                n_steps,
                self.doc_tol,
                at,
                after,
                w,
            )

        tasks = cut_documents(rows.indptr, n_steps * theta.shape[1])
        return sum(parallel_map(infer, tasks)), w, at

    def _rows(self, matrix, rows, beta):
        """Return rows of a matrix (none named: all) to the power of beta."""
        chosen = take_rows(matrix, rows)
        return chosen if beta == 1.0 else chosen**beta

    def _topics(self, point, words, beta):
        """Return φ^b of the words (none named: all) at the point."""
        if point.settled:
            return self._rows(point.parameters.topics, words, beta)
        return self._maximize(point.sums, point.sums.totals, words, beta)

    def _maximize(self, sums, totals, words, beta):
        """M step for the words (none named: all); see `kernels.topics_of`."""
        n_features, width = sums.base.shape
        topics = padded_empty(len(words) or n_features, width, self.dtype)
        total = totals + self._prior_totals(n_features)
        inverse = np.divide(1.0, total, out=np.zeros_like(total), where=total > 0.0)
        inverse = inverse.astype(self.dtype)

        def fill(part):
            kernels.topics_of(
                sums.base,
                sums.deviation,
                sums.scale,
                self.word_prior,
                inverse,
                words,
                *part,
                self.dtype.type(beta),
                topics,
            )

        for _ in parallel_map(fill, row_chunks(0, len(topics), TASK_WORDS)):
            pass
        return topics

    def _prior_totals(self, n_features):
        """Return Σ_v β_kv a token."""
        totals = self.word_prior.sum(axis=0, dtype=np.float64)
        return totals * n_features if len(self.word_prior) == 1 else totals

    def _log_prior(self, topics):
        def evaluate(part):
            return kernels.log_prior(topics, self.word_prior, *part)

        return sum(parallel_map(evaluate, row_chunks(0, len(topics), TASK_WORDS)))

    def update(self, point, mean, correction, step):
        r"""Return the point after one step; see :meth:`WordSums.step`.

        Its deviation is written to, so `point` must not be updated again.
        """
        mean, correction = (
            None if part is None else part.sum_z for part in (mean, correction)
        )
        sums = point.sums.step(mean, correction, step)
        return point._replace(sums=sums, settled=False)

    def recentre(self, point):
        """Return the point with the parameters of its statistics."""
        if point.settled:
            return point
        sums = point.sums
        totals = self._clipped_totals(sums)
        topics = self._maximize(sums, totals, NO_WORDS, 1.0)
        # Without a prior a topic can lose every token: any distribution will do.
        lost = totals + self._prior_totals(len(topics)) <= 0.0
        topics[:, np.flatnonzero(lost[: self.n_components])] = 1.0 / len(topics)
        return point._replace(
            parameters=Parameters(topics, point.after),
            log_prior=self._log_prior(topics),
            after=point.parameters.theta,
            settled=True,
        )

    def _clipped_totals(self, sums):
        def add(part):
            totals = np.zeros(sums.base.shape[1])
            kernels.sum_statistics(sums.base, sums.deviation, sums.scale, *part, totals)
            return totals

        return sum(parallel_map(add, row_chunks(0, len(sums.base), TASK_WORDS)))

    def objective(self, point, mean):
        """Return the objective a token, from statistics taken at `point`."""
        return float(mean.objective + point.log_prior)

    def norm(self, point, sums):
        """Return the length of a change of statistics."""
        return float(np.sqrt(np.square(sums.sum_z, dtype=np.float64).sum()))

    def translate(self, sums, reference, new_reference):
        """Return the sums: they have no reference."""
        return sums

    def revive(self, point, data, rng):
        """Return the point: topics are kept alive by their priors."""
        return point
