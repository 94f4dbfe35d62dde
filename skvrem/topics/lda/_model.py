r"""Latent Dirichlet allocation: what is averaged over documents, and the update.

.. math:: \theta_d \sim D(\alpha), \quad \beta_k \sim D(\eta), \quad
          z_{dn} \sim \theta_d, \quad w_{dn} \sim \beta_{z_{dn}}

with the factorised posterior :math:`q(\theta_d) = D(\gamma_d)`, :math:`q(\beta_k) =
D(\lambda_k)`. At inverse temperature b (Mandt et al. 2016, Eqs. 4 and 8, supplement
B.2) the likelihood is tempered and the priors are not: the bound is

.. math:: \sum_{dv} c_{dv} \log \sum_k
          e^{b (E \log \theta_{dk} + E \log \beta_{kv})}
          - \sum_d KL(q(\theta_d) | p(\theta_d)) - \sum_k KL(q(\beta_k) | p(\beta_k))

and :math:`\lambda_{kv} = \eta_{kv} + N s_{kv}` with s the mean a token of the tempered
expected counts :math:`b \, c_{dv} \, q(z_{dv} = k)`, which is what the solvers average:
stochastic averaging of s is a natural-gradient step on λ (stochastic variational
inference, Hoffman et al. 2013), and svrg is its variance-reduced form.
"""

from functools import reduce
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import digamma, gammaln

from skvrem.topics._model import (
    NO_WORDS,
    TASK_WORDS,
    Statistics,
    TopicPoint,
    WordModel,
    WordSums,
    column_sums,
    expected_again,
    expected_counts,
    word_rows,
)
from skvrem.topics._model_arrays import (
    pad,
    padded_empty,
    padded_zeros,
    take_rows,
)
from skvrem.topics.lda import _kernels as kernels
from skvrem.utils._parallel import map_chunks, parallel_map, thread_count
from skvrem.utils._simd import WIDTH

# Rounds that a document takes, about: for the size of tasks only.
USUAL_ROUNDS = 20
# Inverse temperatures at which the partition function is evaluated.
GRID = np.geomspace(0.1, 1.0, 20)
# Inverse temperatures of a document. 0 would make all its words equally likely.
OWN_GRID = np.linspace(0.05, 1.0, 20)


class Parameters(NamedTuple):
    """Parameters of q(β), word by word and padded.

    Attributes
    ----------
    topics : ndarray of shape (n_features, K)
        λ.
    """

    topics: np.ndarray


class Bound(NamedTuple):
    """The documents' share of the bound, in nats."""

    value: float


class LDAModel(WordModel):
    """Variational posterior of topics from counts.

    Parameters are those of `WordModel`: α and η, the tokens N that the posterior of the
    topics counts, and most rounds on a document, which end where one changes γ by less
    than the tolerance a topic. The topics' share of the objective is less their
    divergence from the prior.
    """

    #: Sums over words, without the rounds on a document.
    recall_passes = 0.1

    def start(self, parameters):
        """Return the point of given λ, a tuple with one (n_features, K) array.

        They are what a fit first sees, even where they are below the prior; the
        statistics are those nearest to them.
        """
        sums = pad(parameters[0], self.dtype)
        # An array more, only where it is needed.
        given = sums.copy() if (sums < self.word_prior).any() else None
        sums -= self.word_prior
        np.maximum(sums, self.dtype.type(0.0), out=sums)
        sums /= self.dtype.type(self.n_tokens)
        return self.recentre(TopicPoint(WordSums.of(sums, given=given)))

    def resume(self, sums, n_documents):
        """Return the point of given statistics, (n_features, n_components) a token."""
        return self.recentre(TopicPoint(WordSums.of(pad(sums, self.dtype))))

    def statistics(self, point, batch, beta):
        """Return the sums of a batch."""
        return self.remember(point, batch, beta)[0]

    def remember(self, point, batch, beta):
        """Return the sums of a batch, and what gives them again without rounds."""
        logs, top = self.words_of(point.sums, batch)
        rows = self.temper(logs, beta)
        _, objective, w, at = self.infer(rows, top, batch, beta)
        sums = expected_counts(batch, self.dtype.type(beta) * w, at, rows)
        return Statistics(sums, objective), (at, point.sums, beta)

    def recall(self, memory, point, batch):
        """Return the sums where `memory` was made: tokens are weighed again."""
        at, sums, beta = memory
        psi_totals = self._psi(self._totals(sums))

        def rows(words):
            logs, _ = self.expect_log(self._topics(sums, words), psi_totals)
            return self.temper(logs, beta)

        return Statistics(expected_again(batch, at, rows, beta), 0.0)

    def infer(self, rows, top, batch, beta, tempered=None):
        """Return γ of a batch's documents, their bound, and the sums' ingredients.

        Parameters
        ----------
        rows, top : ndarrays of shapes (n_words, K) and (n_words,)
            exp(b E log β) relative to the largest entry of a word, and E log β there.
        batch : batch of documents
        beta : float
            b.
        tempered : tuple (grid, partition, inverse), default=None
            Of documents with temperatures of their own; the last is written to, and
            `rows` are E log β.
        """
        gamma = np.empty((batch.n_units, rows.shape[1]), self.dtype)
        options = self.doc_prior, self.dtype.type(beta), self.inner_iter, self.inner_tol
        bound, at, w = self.over_documents(
            kernels.infer_documents,
            batch,
            USUAL_ROUNDS,
            *(rows, top, *options, tempered, gamma),
        )
        return gamma, bound, w, at

    def posteriors(self, topics, batch):
        """Return γ of documents and their bound, at temperature 1.

        Parameters
        ----------
        topics : ndarray of shape (n_features, K)
            λ, padded.
        batch : batch of documents
        """
        own = take_rows(topics, batch.rows.words)
        logs, top = self.expect_log(own, self.psi_totals(topics))
        gamma, bound, _, _ = self.infer(self.temper(logs, 1.0), top, batch, 1.0)
        return gamma[:, : self.n_components], bound

    def bound_of(self, topics, batch):
        """Return the bound of documents, as `posteriors` finds it, to be added up."""
        return Bound(self.posteriors(topics, batch)[1])

    def expect_log(self, topics, psi_totals):
        """Return E log β relative to its largest entry over topics, and that entry."""
        logs = padded_empty(*topics.shape, self.dtype)
        top = np.empty(len(topics), self.dtype)
        psi_totals = psi_totals.astype(self.dtype)

        def fill(*rows):
            kernels.expect_log(topics, psi_totals, *rows, logs, top)

        map_chunks(fill, len(topics), TASK_WORDS)
        return logs, top

    def temper(self, logs, beta):
        """Return exp(b E log β), in place."""
        b = self.dtype.type(beta)
        map_chunks(lambda *rows: kernels.temper(b, *rows, logs), len(logs), TASK_WORDS)
        return logs

    def psi_totals(self, topics):
        """Return ψ(Σ_v λ_kv), 0 for padding."""
        return self._psi(column_sums(topics))

    def _psi(self, totals):
        return np.where(totals > 0.0, digamma(np.where(totals > 0.0, totals, 1.0)), 0.0)

    def words_of(self, sums, batch):
        """Return `expect_log` of the words of a batch, from the statistics."""
        topics = self._topics(sums, batch.rows.words)
        return self.expect_log(topics, self._psi(self._totals(sums)))

    def _totals(self, sums):
        """Return Σ_v λ_kv."""
        if sums.given is not None:
            return sums.given_totals
        prior = self.prior_totals(sums.n_features)
        return prior + self.n_tokens * sums.totals

    def _topics(self, sums, words):
        """Return λ of the words (none named: all)."""
        every = np.ones(len(sums.totals))
        return sums.parameters(words, self.n_tokens, self.word_prior, every)

    def parameters(self, point, words=NO_WORDS):
        """Return the parameters of a point (of some words)."""
        return Parameters(self._topics(point.sums, words))

    def of_topics(self, sums):
        """Return minus the divergence of the topics, a token."""
        return -(self.divergence(self._topics(sums, NO_WORDS)) / self.n_tokens)

    def divergence(self, topics):
        """Return Σ_k KL(q(β_k) | p(β_k)), in nats."""
        k = self.n_components
        totals = column_sums(topics)
        psi = self._psi(totals)
        prior = self.prior_totals(len(topics))

        def part(*rows):
            return kernels.divergence_of_topics(topics, self.word_prior, psi, *rows)

        words = sum(map_chunks(part, len(topics), TASK_WORDS))
        return words + float((gammaln(totals[:k]) - gammaln(prior[:k])).sum())

    def partition(self, logs, top, grid):
        """Return S_k(b) = Σ_v exp(b log β_kv) for a grid of b.

        Parameters
        ----------
        logs, top : ndarrays of shapes (n_features, K) and (n_features,)
            log β relative to the largest entry of a word, and that entry.
        grid : float64 ndarray of shape (n_temperatures,)
        """

        def evaluate(*rows):
            out = np.zeros((len(grid), logs.shape[1]))
            kernels.partition_function(logs, top, grid, *rows, out)
            return out

        return reduce(np.add, map_chunks(evaluate, len(logs), TASK_WORDS))

    @staticmethod
    def critical_temperatures(batch):
        r"""Return the temperatures below which topics at one place part, descending.

        With all topics the same let them move apart. Where counts are large, to first
        order the relative changes :math:`g_d` of :math:`\gamma_{dk}` and :math:`l_v` of
        :math:`\lambda_{kv}`, whose sums over k are zero, follow

        .. math:: g_d = b \Big( g_d + \sum_v \tfrac{c_{dv}}{n_d} l_v \Big), \qquad
                  l_v' = b \Big( l_v + \sum_d \tfrac{c_{dv}}{n_v} g_d \Big)
                  = b \Big( 1 + \frac{b \sigma^2}{1 - b} \Big) l_v

        along a singular vector of :math:`c_{dv} / \sqrt{n_d n_v}` with the value
        :math:`\sigma` (correspondence analysis): they grow below
        :math:`T = 1 + \sigma`. The first value is always 1, and no difference between
        topics; the next one is the critical temperature (Rose 1998 for clusters). Below
        that of the K-th all K can part.

        Parameters
        ----------
        batch : batch of documents

        Returns
        -------
        temperatures : ndarray
            Of the second singular value and those after it.
        """
        rows, weight = batch.rows, batch.weight
        shape = batch.n_units, len(rows.words) or rows.n_features
        counts = sp.csr_array(
            (rows.counts, rows.index, rows.indptr), shape, dtype=float
        )
        if weight.size:
            counts = counts.multiply(weight[:, None]).tocsr()
        share = [1.0 / np.sqrt(np.maximum(counts.sum(axis=a), 1e-300)) for a in (1, 0)]
        counts = counts.multiply(share[0][:, None]).multiply(share[1]).tocsr()
        few = counts if shape[0] <= shape[1] else counts.T
        values = np.linalg.eigvalsh((few @ few.T).toarray())[-2::-1]
        return 1.0 + np.sqrt(np.clip(values, 0.0, 1.0))

    def calibration(self, point, batch, beta, inverse):
        r"""Return what the posterior expects of the data, and what it would predict.

        With posterior means :math:`\bar\theta, \bar\beta` (Mandt et al. 2016, Eq. 9,
        with the partition function of the model where it stands instead of the
        prior's, and of tokens and topics together, as the energy is, where supplement
        B.1 has that of tokens):

        .. math:: e = \frac1N \sum_{dn} E_q[\log \bar\theta_{dz} \bar\beta_{zw}],
           \qquad c(b) = \frac1N \sum_d n_d \log \sum_k
           \bar\theta_{dk}^b \sum_v \bar\beta_{kv}^b

        Parameters
        ----------
        point : TopicPoint
            Settled.
        batch : batch of documents
        beta : float
            Inverse temperature of the posterior.
        inverse : float64 ndarray
            Inverse temperatures b, from 0.1 to 1.

        Returns
        -------
        energy : float
            e
        partition : ndarray like `inverse`
            c(b), interpolated from a coarser grid.
        """
        k, words = self.n_components, batch.rows.words
        topics = self._topics(point.sums, NO_WORDS)
        means = topics / np.where(topics.any(axis=0), topics.sum(axis=0), 1.0)
        with np.errstate(divide="ignore"):
            logs = np.log(means)
        top = logs[:, :k].max(axis=1)
        rows_logs, rows_top = self.expect_log(
            take_rows(topics, words), self.psi_totals(topics)
        )
        rows = self.temper(rows_logs, beta)
        gamma, _, w, at = self.infer(rows, rows_top, batch, beta)
        counts = expected_counts(batch, w, at, rows)
        counts = counts.values if words.size else counts
        own = logs[words] if words.size else logs
        theta = (gamma / gamma.sum(axis=1, keepdims=True))[:, :k].astype(np.float64)
        weight = batch.weight if batch.weight.size else np.ones(batch.n_units)
        spent = weight[:, None] * (gamma - self.doc_prior)[:, :k] / beta
        energy = (spent * np.log(theta)).sum() + (counts[:, :k] * own[:, :k]).sum()
        sums = self.partition(logs - top[:, None], top, GRID)[:, :k]
        lengths = batch.lengths * weight
        partition = [
            lengths @ np.log(theta**b @ row) for b, row in zip(GRID, sums, strict=True)
        ]
        n_tokens = lengths.sum() or 1.0  # all that were drawn may weigh nothing
        partition = np.array(partition) / n_tokens
        return float(energy / n_tokens), np.interp(inverse, GRID, partition)


class LocallyTemperedLDAModel(LDAModel):
    """LDA in which every document has a temperature of its own (local tempering).

    Mandt et al. (2016), Eqs. 10 and 11. The inverse temperature of the loop is here the
    largest that a document may have: it rises to 1, so that documents cannot cool
    before the topics have separated. Parameters are those of `LDAModel`. A point's own
    are the partition functions.
    """

    def remember(self, point, batch, beta):
        """Return the sums of a batch, and what gives them again without rounds."""
        logs, top = self.words_of(point.sums, batch)
        _, objective, w, at, inverse = self.infer_tempered(
            logs, top, batch, beta, point.own
        )
        sums = self._tempered_counts(batch, w, at, inverse, logs)
        return Statistics(sums, objective), (w, at, inverse, point.sums)

    def recall(self, memory, point, batch):
        """Return the sums where `memory` was made."""
        w, at, inverse, sums = memory
        logs, _ = self.words_of(sums, batch)
        return Statistics(self._tempered_counts(batch, w, at, inverse, logs), 0.0)

    def infer_tempered(self, logs, top, batch, beta, partition):
        """Return as `infer`, and the inverse temperatures of the documents.

        Parameters
        ----------
        logs, top : ndarrays of shapes (n_words, K) and (n_words,)
            E log β relative to the largest entry of a word, and that entry.
        batch : batch of documents
        beta : float
            Largest inverse temperature.
        partition : ndarray of shape (n_temperatures, K)
            S_k(b) for the grid.
        """
        allowed = OWN_GRID <= beta * (1.0 + 1e-9)
        inverse = np.empty(batch.n_units, self.dtype)
        tempered = OWN_GRID[allowed], partition[allowed], inverse
        found = self.infer(logs, top, batch, beta, tempered)
        return *found, inverse

    def _tempered_counts(self, batch, w, at, inverse, logs):
        counts = batch.rows
        sums = padded_zeros(*logs.shape, self.dtype)

        def add(topics):
            kernels.sum_tempered_words(
                w, counts.index, counts.indptr, at, inverse, logs, *topics, sums
            )

        width = logs.shape[1]
        share = -(-width // WIDTH // thread_count()) * WIDTH
        list(parallel_map(add, pairwise([*range(0, width, share), width])))
        return word_rows(batch, sums)

    def renew(self, own, sums):
        """Return the partition functions S_k(b) of the topics."""
        topics = self._topics(sums, NO_WORDS)
        return self.partition(
            *self.expect_log(topics, self.psi_totals(topics)), OWN_GRID
        )

    def temperatures(self, topics, batch):
        """Return 1 / b_d of documents, given padded topics λ; nothing caps b_d."""
        psi_totals = self.psi_totals(topics)
        logs, top = self.expect_log(topics, psi_totals)
        partition = self.partition(logs, top, OWN_GRID)
        words = batch.rows.words
        own, own_top = (logs[words], top[words]) if words.size else (logs, top)
        *_, inverse = self.infer_tempered(own, own_top, batch, 1.0, partition)
        return 1.0 / inverse.astype(np.float64)
