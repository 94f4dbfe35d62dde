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

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from skvrem.plsa import _kernels as kernels
from skvrem.utils._algebra import Rows
from skvrem.utils._padding import LANES, pad, padded_zeros
from skvrem.utils._parallel import parallel_map, row_chunks, thread_count

__all__ = ["PLSAModel", "PLSAPoint", "Parameters"]

# Multiplications, and words, that are worth a task of their own.
TASK_WORK, TASK_WORDS = 4_000_000, 8192
# The deviation of the statistics is stored over a factor, which is folded in here.
SMALLEST_FACTOR = 1e-5
# In place of the words of a batch: the whole vocabulary.
NO_WORDS = np.empty(0, np.int32)
NO_WORDS.flags.writeable = False


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

    The statistics are ``base + factor * deviation``: a step then costs the words that
    it touches, and the decay of all others is one multiplication of `factor`.

    Attributes
    ----------
    parameters : Parameters
        As of the last `recentre`.
    log_prior : float
        Log prior of their topics a token.
    base, deviation : ndarrays of shape (n_features, K)
        `base` is the mean of the solver's anchor; `deviation` is written to.
    factor : float
    base_totals, deviation_totals : ndarrays of shape (K,)
        Column sums.
    after : ndarray of shape (n_documents, K)
        θ of the documents visited since, the next `parameters.theta`.
    settled : bool
        `parameters` are those of the statistics.
    """

    parameters: Parameters
    log_prior: float
    base: np.ndarray
    deviation: np.ndarray
    factor: float
    base_totals: np.ndarray
    deviation_totals: np.ndarray
    after: np.ndarray
    settled: bool = True
    reference: None = None
    trials: int = 0
    repaired: tuple = ()

    @property
    def statistics(self):
        """The mean statistics a token."""
        factor = self.deviation.dtype.type(self.factor)
        return Statistics(self.base + factor * self.deviation, 0.0)


class PLSAModel:
    """MAP estimate of topics from counts.

    Parameters
    ----------
    doc_topic_prior : array of shape (n_components,)
        α.
    topic_word_prior : array of shape (n_components, n_features) or (n_components, 1)
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
        self.word_prior = pad(topic_word_prior.T / n_tokens, self.dtype)
        self.doc_update_iter = doc_update_iter
        self.doc_tol = self.dtype.type(tol)
        self._zeros = None

    def start(self, parameters):
        """Return the point of the given parameters.

        Parameters
        ----------
        parameters : tuple (topics, theta)
            Of shapes (n_features, n_components) and (n_documents, n_components), or
            padded already.
        """
        topics, theta = (pad(part, self.dtype) for part in parameters)
        share = self.dtype.type(1.0 / self.n_components)
        return PLSAPoint(
            Parameters(topics, theta),
            self._log_prior(topics),
            topics * share,
            np.zeros_like(topics),
            1.0,
            topics.sum(axis=0, dtype=np.float64) * share,
            np.zeros(topics.shape[1]),
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
        deviation = pad(sums, self.dtype)
        share = 1.0 / self.n_components
        theta = pad(np.full((n_documents, self.n_components), share), self.dtype)
        nothing = self._nothing(deviation)
        return PLSAPoint(
            Parameters(None, theta),
            0.0,
            nothing.sum_z,
            deviation,
            1.0,
            np.zeros(theta.shape[1]),
            deviation.sum(axis=0, dtype=np.float64),
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
        return Statistics(self._sum_z(batch, w, theta, phi), 0.0)

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
        return Statistics(self._sum_z(batch, w, at, phi), objective), w

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

        tasks = _cut(rows.indptr, n_steps * theta.shape[1])
        return sum(parallel_map(infer, tasks)), w, at

    def _sum_z(self, batch, w, at, phi):
        """Return Σ_d γ_dvk from the weights, θ^b and φ^b of the batch."""
        rows, width = batch.rows, phi.shape[1]
        sums = padded_zeros(rows.n_words, width, self.dtype)

        def add(topics):
            kernels.sum_over_words(w, rows.index, rows.indptr, at, *topics, sums)

        share = -(-width // LANES // thread_count()) * LANES
        for _ in parallel_map(add, pairwise([*range(0, width, share), width])):
            pass
        sums *= phi
        return Rows(rows.words, sums, rows.n_features) if rows.words.size else sums

    def _rows(self, matrix, rows, beta):
        """Return rows of a matrix (none named: all) to the power of beta."""
        if not rows.size:
            return matrix if beta == 1.0 else matrix**beta
        chosen = padded_zeros(len(rows), matrix.shape[1], self.dtype)
        np.take(matrix, rows, axis=0, out=chosen, mode="clip")
        if beta != 1.0:
            chosen **= beta
        return chosen

    def _topics(self, point, words, beta):
        """Return φ^b of the words (none named: all) at the point."""
        if point.settled:
            return self._rows(point.parameters.topics, words, beta)
        totals = point.base_totals + point.factor * point.deviation_totals
        return self._maximize(point, totals, words, beta)

    def _maximize(self, point, totals, words, beta):
        """M step for the words (none named: all); see `kernels.topics_of`."""
        base, deviation = point.base, point.deviation
        topics = padded_zeros(len(words) or len(base), base.shape[1], self.dtype)
        prior = self.word_prior.sum(axis=0, dtype=np.float64)
        if len(self.word_prior) == 1:
            prior *= len(base)
        total = totals + prior
        inverse = np.divide(1.0, total, out=np.zeros_like(total), where=total > 0.0)
        inverse = inverse.astype(self.dtype)
        factor, beta = self.dtype.type(point.factor), self.dtype.type(beta)

        def fill(part):
            kernels.topics_of(
                base,
                deviation,
                factor,
                self.word_prior,
                inverse,
                words,
                *part,
                beta,
                topics,
            )

        for _ in parallel_map(fill, row_chunks(0, len(topics), TASK_WORDS)):
            pass
        return topics

    def _log_prior(self, topics):
        def evaluate(part):
            return kernels.log_prior(topics, self.word_prior, *part)

        return sum(parallel_map(evaluate, row_chunks(0, len(topics), TASK_WORDS)))

    def update(self, point, mean, correction, step):
        r"""Return the point after one step.

        .. math:: s \leftarrow (1 - \rho) s + \rho (F + c)

        with the mean F and the correction c, of which either may be None. The
        deviation :math:`s - F` decays by its factor, and moves where the correction
        is: it is written to, so `point` itself must not be updated again.
        """
        if correction is None and step == 1.0:
            base = mean.sum_z
            point = point._replace(
                base=base,
                deviation=np.zeros_like(base),
                factor=1.0,
                base_totals=base.sum(axis=0, dtype=np.float64),
                deviation_totals=np.zeros(base.shape[1]),
            )
        else:
            point = self._about(
                point, self._nothing(point.base) if mean is None else mean
            )
            point = _decay(point, 1.0 - step)
            if correction is not None:
                _add(point, correction.sum_z, self.dtype.type(step / point.factor))
        return point._replace(settled=False)

    def _nothing(self, like):
        # One object, known again by `_about`. Its pages are never touched.
        if self._zeros is None:
            self._zeros = Statistics(np.zeros_like(like), 0.0)
        return self._zeros

    def _about(self, point, mean):
        """Return the point with another base."""
        base = mean.sum_z
        if base is point.base:
            return point
        deviation = point.statistics.sum_z
        deviation -= base
        return point._replace(
            base=base,
            deviation=deviation,
            factor=1.0,
            base_totals=base.sum(axis=0, dtype=np.float64),
            deviation_totals=deviation.sum(axis=0, dtype=np.float64),
        )

    def recentre(self, point):
        """Return the point with the parameters of its statistics."""
        if point.settled:
            return point
        factor = self.dtype.type(point.factor)
        totals = np.zeros(point.base.shape[1])
        kernels.sum_statistics(point.base, point.deviation, factor, totals)
        topics = self._maximize(point, totals, NO_WORDS, 1.0)
        return point._replace(
            parameters=Parameters(topics, point.after),
            log_prior=self._log_prior(topics),
            after=point.parameters.theta,
            settled=True,
        )

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
        """Return the point: the prior keeps every topic alive."""
        return point


def _decay(point, share):
    """Return the point with its deviation times `share`."""
    factor = point.factor * share
    if factor < SMALLEST_FACTOR:
        for part in (point.deviation, point.deviation_totals):
            part *= factor
        factor = 1.0
    return point._replace(factor=factor)


def _add(point, change, coefficient):
    """Add to the deviation, in place."""
    if isinstance(change, Rows):
        kernels.add_rows(
            point.deviation,
            point.deviation_totals,
            change.index,
            change.values,
            coefficient,
        )
    else:
        np.add(point.deviation, change * coefficient, out=point.deviation)
        point.deviation_totals[:] += coefficient * change.sum(axis=0, dtype=np.float64)


def _cut(indptr, work):
    """Cut documents into ranges of about `TASK_WORK`, by their nonzeros alone."""
    n_tasks = max(1, int(indptr[-1] * work // TASK_WORK))
    targets = indptr[-1] * np.arange(1, n_tasks) / n_tasks
    edges = [0, *np.searchsorted(indptr, targets).tolist(), len(indptr) - 1]
    return [(a, b) for a, b in pairwise(edges) if b > a]
