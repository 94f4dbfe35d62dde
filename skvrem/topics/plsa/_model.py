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

from typing import NamedTuple

import numpy as np

from skvrem.topics._model import (
    NO_WORDS,
    TASK_WORDS,
    Statistics,
    TopicPoint,
    WordModel,
    WordSums,
    expected_again,
    expected_counts,
)
from skvrem.topics._model_arrays import pad, padded_zeros, places, take_rows
from skvrem.topics.plsa import _kernels as kernels
from skvrem.utils._parallel import map_chunks

# Of a word that no topic has met, for the step that brings it in.
LEAST_PROBABILITY = 1e-10
# EM steps on a document whose θ is not known, at topics that are: at most so many, and
# none after one that changes θ by less, in sum.
REFILL, REFILL_TOL = 100, 1e-3


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


class PLSAModel(WordModel):
    """MAP estimate of topics from counts.

    Parameters are those of `WordModel`: α and β, the tokens that the objective is
    divided by, and most EM steps on a document a visit, which end where one changes θ
    by less than the tolerance, in sum. A point's own are θ as of the last `recentre`,
    and θ of the documents visited since, the next one. They are one array where an
    epoch visits every document `once` and full passes are of anchors.
    """

    #: Sums over words, without the dot products and the steps on θ.
    recall_passes = 0.5

    def __init__(self, doc_prior, word_prior, n_tokens, *args, once=False, **kwargs):
        super().__init__(doc_prior, word_prior / n_tokens, n_tokens, *args, **kwargs)
        self.loses_words = not self.word_prior.any(axis=1).all()
        self.recalls_first = once

    def start(self, parameters):
        """Return the point of the given parameters.

        Parameters
        ----------
        parameters : tuple (topics, theta)
            Of shapes (n_features, n_components) and (n_documents, n_components). Those
            that are padded already are nobody else's.
        """
        topics, theta = parameters
        topics = pad(topics, self.dtype, places.empty)
        sums = WordSums.of(topics, 1.0 / self.n_components, given=topics)
        own = self._before_and_after(theta)
        return TopicPoint(sums, own, self.of_topics(sums), settled=True)

    def _before_and_after(self, theta):
        padded = theta.shape[1] == len(self.doc_prior)
        return self._beside(theta if padded else pad(theta, self.dtype))

    def _beside(self, theta):
        """Return θ, and where visits write those that they find."""
        return theta, theta if self.recalls_first else theta.copy()

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
        return TopicPoint(sums, self._beside(theta))

    def pack(self, point):
        """Return the point without θ that the next visits find."""
        return point._replace(own=point.own[:1])

    def unpack(self, point):
        """Return the point with room for them."""
        return point._replace(own=self._beside(*point.own))

    def refill(self, point, data):
        """Return the point with θ that are best for its topics, and the passes made."""
        (batch,) = data.chunks().batches
        return point._replace(own=self._beside(self.found_anew(point, batch))), 1.0

    def found_anew(self, point, batch):
        """Return θ that are best for the topics of a point."""
        phi = self._topics(point.sums, batch.rows.words, 1.0, seen=True)
        theta = PLSAModel.uniform(self, batch.n_units)
        after = theta.copy()
        self._e_step(phi, theta, after, batch, 1.0, REFILL, REFILL_TOL)
        return after

    def uniform(self, n_documents):
        """Return θ of documents that nothing is known of."""
        return uniform_shares(self.n_components, self.dtype, n_documents)

    def statistics(self, point, batch, beta):
        """Return the sums of a batch after EM steps on its documents' own θ."""
        return self._visit(point, batch, beta, self.inner_iter)[0]

    def remember(self, point, batch, beta):
        """Return the sums at θ as it stands, and what gives them again."""
        theta, after = point.own
        if self.recalls_first:  # an anchor moves nothing
            point = point._replace(own=(theta, after[:0]))
        sums, _ = self._visit(point, batch, beta, 1)
        return sums, (point.sums, theta, beta)

    def recall(self, memory, point, batch):
        """Return the sums where `memory` was made: tokens are weighed again."""
        sums, theta, beta = memory
        phi = self._topics_of(sums, beta, seen=True)
        theta = _temper(take_rows(theta, batch.ids), beta)
        return Statistics(expected_again(batch, theta, phi, 1.0), 0.0)

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
        self._e_step(phi, theta, after, batch, 1.0, self.inner_iter)
        return np.ascontiguousarray(after[:, :k])

    def _visit(self, point, batch, beta, n_steps):
        phi = self._topics(point.sums, batch.rows.words, beta, seen=True)
        objective, at, w = self._e_step(phi, *point.own, batch, beta, n_steps)
        return Statistics(expected_counts(batch, w, at, phi), objective), w

    def _e_step(self, phi, theta, after, batch, beta, n_steps, tol=None):
        """Take EM steps on θ; return the objective, θ^b there, and the weights."""
        tol = self.inner_tol if tol is None else self.dtype.type(tol)
        shares = batch.ids, phi, theta, after
        options = self.doc_prior, self.dtype.type(beta), n_steps, tol
        kernel = kernels.infer_topics
        return self.over_documents(kernel, batch, n_steps, *shares, *options)

    def _topics(self, sums, words, beta, seen=False):
        """M step for the words (none named: all): φ^b, φ_kv ∝ s_kv + β_kv."""
        return self._topics_of(sums, beta, seen)(words)

    def _topics_of(self, sums, beta, seen=False):
        """Return the M step as a function of words.

        Words that are `seen` in documents are possible: without a prior a start or a
        stream may have brought none of them, and EM would leave them at zero.
        """
        total = sums.totals + self.prior_totals(sums.n_features)
        # What is less has no inverse in the precision of the topics.
        held = total > np.finfo(self.dtype).tiny
        inverse = np.divide(1.0, total, out=np.zeros_like(total), where=held)
        lost = np.flatnonzero(~held[: self.n_components])

        def topics_of(words):
            topics = sums.parameters(words, 1.0, self.word_prior, inverse)
            if lost.size and sums.given is None:
                # Without a prior a topic can lose every token: any distribution will
                # do.
                topics[:, lost] = 1.0 / sums.n_features
            if seen and self.loses_words:
                impossible = ~topics.any(axis=1)
                if impossible.any():
                    topics[impossible, : self.n_components] = LEAST_PROBABILITY
            return _temper(topics, beta)

        return topics_of

    def renew(self, own, sums):
        """Return θ as last visited, and the other for the next visits to write to."""
        return own[::-1]

    def of_topics(self, sums):
        """Return the log prior of the topics a token."""

        def evaluate(*part):
            words = np.arange(*part, dtype=np.int32)
            topics = self._topics(sums, words, 1.0)
            prior = self.word_prior
            own = prior[slice(*part)] if len(prior) > 1 else prior
            return kernels.log_prior(topics, own)

        return sum(map_chunks(evaluate, len(sums.deviation), TASK_WORDS))

    def parameters(self, point, words=NO_WORDS):
        """Return the topics (of some words) and shares of a point."""
        return Parameters(self._topics(point.sums, words, 1.0), point.own[0])


def uniform_shares(n_components, dtype, n_documents):
    """Return the same shares of all topics for documents, padded."""
    theta = padded_zeros(n_documents, n_components, dtype)
    theta[:, :n_components] = 1.0 / n_components
    return theta


def _temper(rows, beta):
    """Return rows to the power of `beta`."""
    if beta == 1.0:
        return rows
    result, b = pad(rows, rows.dtype), rows.dtype.type(beta)
    map_chunks(lambda *part: kernels.temper(b, *part, result), len(rows), TASK_WORDS)
    return result
