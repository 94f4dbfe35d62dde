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

from skvrem.topics._model_padding import pad, padded_zeros
from skvrem.topics._model_word_sums import (
    NO_WORDS,
    TASK_WORDS,
    WordSums,
    cut_documents,
    expected_counts,
    take_rows,
)
from skvrem.topics.plsa import _kernels as kernels
from skvrem.utils._parallel import parallel_map, row_chunks

__all__ = ["PLSAModel", "PLSAPoint", "Parameters"]

# Of a word that no topic has met, for the step that brings it in.
LEAST_PROBABILITY = 1e-10


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
    sums : WordSums
        The statistics, which topics are made of where they are needed.
    theta : ndarray of shape (n_documents, K)
        θ as of the last `recentre`.
    after : ndarray of shape (n_documents, K)
        θ of the documents visited since, the next `theta`.
    log_prior : float
        Log prior of the topics a token, as of the last `recentre`.
    settled : bool
        There was no update since.
    """

    sums: WordSums
    theta: np.ndarray
    after: np.ndarray
    log_prior: float = 0.0
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
        self.loses_words = not topic_word_prior.T.any(axis=1).all()
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
        sums = WordSums.of(topics, 1.0 / self.n_components, given=topics)
        return PLSAPoint(sums, theta, theta.copy(), self._log_prior(sums))

    def resume(self, sums, n_documents):
        """Return the point of statistics, for documents never seen.

        Parameters
        ----------
        sums : ndarray of shape (n_features, n_components)
            Mean statistics a token.
        n_documents : int
        """
        theta = self.uniform(n_documents)
        sums = WordSums.of(pad(sums, self.dtype))
        return PLSAPoint(sums, theta, np.empty_like(theta), settled=False)

    def uniform(self, n_documents):
        """Return θ of documents that nothing is known of."""
        theta = padded_zeros(n_documents, self.n_components, self.dtype)
        theta[:, : self.n_components] = 1.0 / self.n_components
        return theta

    def statistics(self, point, batch, beta):
        """Return the sums of a batch after EM steps on its documents' own θ."""
        return self._visit(point, batch, beta, self.doc_update_iter)[0]

    def remember(self, point, batch, beta):
        """Return the sums at θ as it stands, and the tokens' weights there."""
        sums, w = self._visit(point, batch, beta, 1)
        return sums, (w, point.sums, point.theta, beta)

    def recall(self, memory, point, batch):
        """Return the sums where `memory` was made: weights times θ times φ of then."""
        w, sums, theta, beta = memory
        phi = self._topics(sums, batch.rows.words, beta, seen=True)
        theta = _temper(take_rows(theta, batch.ids), beta)
        return Statistics(expected_counts(batch, w, theta, phi), 0.0)

    def infer(self, topics, theta, batch):
        """Return θ of documents, the topics held.

        Parameters
        ----------
        topics : ndarray of shape (n_features, n_components)
        theta : ndarray of shape (n_documents, K)
            Where to start, padded.
        batch : batch of all documents
        """
        k = self.n_components
        phi = take_rows(pad(topics, self.dtype), batch.rows.words)
        after = np.empty_like(theta)
        self._e_step(phi, theta, after, batch, 1.0, self.doc_update_iter)
        return np.ascontiguousarray(after[:, :k])

    def _visit(self, point, batch, beta, n_steps):
        phi = self._topics(point.sums, batch.rows.words, beta, seen=True)
        objective, w, at = self._e_step(
            phi, point.theta, point.after, batch, beta, n_steps
        )
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

    def _topics(self, sums, words, beta, seen=False):
        """M step for the words (none named: all): φ^b, φ_kv ∝ s_kv + β_kv.

        Words that are `seen` in documents are possible: without a prior a start or a
        stream may have brought none of them, and EM would leave them at zero.
        """
        total = sums.totals + self._prior_totals(len(sums.deviation))
        inverse = np.divide(1.0, total, out=np.zeros_like(total), where=total > 0.0)
        topics = sums.parameters(words, 1.0, self.word_prior, inverse)
        if sums.given is None:
            # Without a prior a topic can lose every token: any distribution will do.
            lost = np.flatnonzero(total[: self.n_components] <= 0.0)
            topics[:, lost] = 1.0 / len(sums.deviation)
        if seen and self.loses_words:
            impossible = ~topics.any(axis=1)
            if impossible.any():
                topics = pad(topics, self.dtype)
                topics[impossible, : self.n_components] = LEAST_PROBABILITY
        return _temper(topics, beta)

    def _prior_totals(self, n_features):
        """Return Σ_v β_kv a token."""
        totals = self.word_prior.sum(axis=0, dtype=np.float64)
        return totals * n_features if len(self.word_prior) == 1 else totals

    def _log_prior(self, sums):
        def evaluate(part):
            words = np.arange(*part, dtype=np.int32)
            topics = self._topics(sums, words, 1.0)
            prior = self.word_prior
            own = prior[slice(*part)] if len(prior) > 1 else prior
            return kernels.log_prior(topics, own)

        n_features = len(sums.deviation)
        return sum(parallel_map(evaluate, row_chunks(0, n_features, TASK_WORDS)))

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
        """Return the point with its statistics in one array, and θ as last visited.

        What its last steps wrote to is written to, so `point` is spent.
        """
        if point.settled:
            return point
        sums = point.sums.settle()
        return point._replace(
            sums=sums,
            theta=point.after,
            after=point.theta,
            log_prior=self._log_prior(sums),
            settled=True,
        )

    def parameters(self, point):
        """Return the topics and shares of a point."""
        return Parameters(self._topics(point.sums, NO_WORDS, 1.0), point.theta)

    def objective(self, point, mean):
        """Return the objective a token, from statistics taken at `point`."""
        return float(mean.objective + point.log_prior)

    def norm(self, point, sums):
        """Return the length of a change of statistics."""
        return float(np.sqrt(np.square(sums.sum_z, dtype=np.float64).sum()))

    def translate(self, sums, reference, new_reference):
        """Return the sums: they have no reference."""
        return sums

    def reseed(self, point, data, rng):
        """Return the point: topics are kept alive by their priors."""
        return point


def _temper(rows, beta):
    """Return rows to the power of `beta`."""
    if beta == 1.0:
        return rows
    result, b = pad(rows, rows.dtype), rows.dtype.type(beta)

    def work(part):
        kernels.temper(b, *part, result)

    for _ in parallel_map(work, row_chunks(0, len(rows), TASK_WORDS)):
        pass
    return result
