r"""Latent Dirichlet allocation with the shares and the topics integrated out (CVB0).

Of :math:`p(w, z)`, in which :math:`\theta` and :math:`\beta` are integrated out, the
posterior of a token's topic is

.. math:: \gamma_{dvk} \propto
   \frac{N_{vk}^{\neg} + \eta_v}{N_k + \sum_v \eta_v} (n_{dk}^{\neg} + \alpha_k)

with the expected counts of all other tokens (Asuncion et al. 2009): a token's own share
is left out of its document's and of its topic's. Mean field has no such term, and
believes every token twice.

What the solvers average are the counts of words, :math:`s_{vk} = N_{vk} / N`, as in
stochastic CVB0 (Foulds et al. 2013). Nothing is stored of a token: a visit finds
:math:`\gamma` anew from the document's counts :math:`n_d` of the last one.
"""

from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.special import digamma, gammaln

from skvrem.topics._model import (
    NO_WORDS,
    SUM_WORDS,
    TASK_WORDS,
    TASK_WORK,
    Statistics,
    TopicPoint,
    WordModel,
    WordSums,
    column_sums,
    cut_documents,
    cut_words,
    word_rows,
)
from skvrem.topics._model_arrays import pad, padded_empty, padded_zeros, places
from skvrem.topics.lda import _kernels_collapsed as kernels
from skvrem.topics.lda._model import Parameters
from skvrem.utils._algebra import dense
from skvrem.utils._parallel import map_chunks, parallel_map

# Rounds on a document, the first of which knows no own share. At an anchor as many as
# at a visit: with fewer, the differences of minibatches would not end.
ROUNDS = 4
# Numbers that the shares of so many tokens take: those of a few documents at a time.
ROOM = 1 << 20
# Epochs of equal priors: before they are learned, from then on so many, and a third of
# all made once steps on them, so many at a time, change them by less than this share.
FIRST_LEARNED, PAUSE, STILL, DOC_STEPS, WORD_STEPS = 4, 2, 0.05, 5, 3
# Topics go on by this share of what an epoch about an anchor has moved them, at most:
# what documents and topics settle among each other alone takes half of the epochs.
MOMENTUM = 0.5
# Smaller parameters of a prior are not learned: the topic has left the corpus.
LEAST_PRIOR = 1e-4
# Of more documents in memory α is learned from so many at random.
MOST_LEARNED_FROM = 1 << 16


class CollapsedState(NamedTuple):
    """What a point has of documents and priors.

    Attributes
    ----------
    before, after : ndarrays of shape (n_documents, K)
        n_d as of the last `recentre`, where visits begin, and as of the last visit: one
        array where an epoch visits a document once.
    chances : ndarray of shape (n_documents, K), or (0, K)
        Chances that a token is of a topic, as of the last visit, where they are needed.
    weight : ndarray of shape (n_documents,), or (0,)
        What the documents weigh, likewise.
    doc_prior : ndarray of shape (K,)
        α.
    word_prior : ndarray of shape (n_features, K) or (1, K)
        η.
    learn : tuple of bool
        Whether α and η are learned, the latter a number.
    age, next : int
        Epochs since the start, and the one after which priors are learned.
    moved : float
        Share by which α was changed when it was learned, all where that is to come.
    sample : int32 ndarray
        Documents, ascending, that `chances` and `weight` are of; empty for all.
    reached : ndarray of shape (n_features, K), or None
        Statistics that the last epoch came to, which the topics went on from; None
        where its steps were not about an anchor.
    """

    before: np.ndarray
    after: np.ndarray
    chances: np.ndarray
    weight: np.ndarray
    doc_prior: np.ndarray
    word_prior: np.ndarray
    learn: tuple = (False, False)
    age: int = 0
    next: int = FIRST_LEARNED
    moved: float = 0.0
    sample: np.ndarray = NO_WORDS
    reached: np.ndarray | None = None

    #: What visits write to.
    written = ("after", "chances", "weight")


class PriorDraws(NamedTuple):
    """Expected times that priors have chosen topics: each of them, and any."""

    of_topics: np.ndarray
    all: float


def draws_of(prior, after, chances, weight):
    """Return the `PriorDraws` of documents, fields of a `CollapsedState`."""

    def draws(*documents):
        found = np.zeros(len(prior))
        kernels.expect_draws(after, chances, prior, *documents, weight, found)
        return found

    total, lengths = prior.sum(dtype=float), after.sum(axis=1, dtype=float)
    every = weight @ (digamma(lengths + total) - digamma(total))
    found = sum(map_chunks(draws, len(after), TASK_WORDS), np.zeros(len(prior)))
    return PriorDraws(found, float(every))


class CollapsedLDAModel(WordModel):
    """Expected counts of topics, every token's own share left out.

    Parameters
    ----------
    doc_prior, word_prior, n_tokens, dtype, inner_iter, inner_tol
        Those of `WordModel`: α, η, the tokens N that the topics count, and rounds on a
        document.
    new : bool, default=False
        The topics do not know the documents: nothing is left out of their counts.
    once : bool, default=False
        An epoch visits every document once, so that the next one may begin where the
        visit writes; full passes but for anchors would make another point of it.
    keep_sums : bool, default=False
        Variance reduction keeps the sums of every batch. Otherwise it evaluates them
        again where the anchor was: no memory, one more pass.
    """

    #: Nats a token: the leave-one-out log-likelihood is not what a step maximises, and
    #: falls a little where topics overlap.
    slack = 0.01

    def __init__(self, *arguments, new=False, once=False, keep_sums=False):
        super().__init__(*arguments)
        self.new, self.recalls_first = new, once
        self.keep_sums, self.recall_passes = keep_sums, 0.0 if keep_sums else 1.0

    def start(self, parameters, n_documents, learn=(False, False), share=1.0):
        """Return the point of given λ, pseudo-counts or topics of any scale.

        Parameters
        ----------
        parameters : tuple with one (n_features, n_components) array
        n_documents : int
        learn : tuple of bool, default=(False, False)
            Whether α and η are learned, the latter a number.
        share : float, default=1.0
            Of the tokens that the topics count, those that these stand for.
        """
        topics = pad(parameters[0], self.dtype)
        if topics.sum(dtype=float) > self.prior_totals(len(topics)).sum():
            topics -= self.word_prior
            np.maximum(topics, self.dtype.type(0.0), out=topics)
        topics *= share / (topics.sum(dtype=float) or 1.0)
        return self.recentre(self._point(topics, n_documents, learn))

    def resume(self, sums, n_documents):
        """Return the point of given statistics, (n_features, n_components) a token."""
        return self.recentre(self._point(pad(sums, self.dtype), n_documents))

    def _point(self, sums, n_documents, learn=(False, False)):
        width, dtype = sums.shape[1], self.dtype
        before = self._counts_of(n_documents, width)
        own = CollapsedState(
            before,
            self._room_beside(before),
            np.empty((0, width), dtype),
            np.empty(0, dtype),
            self.doc_prior,
            self.word_prior,
            learn,
            moved=float(any(learn)),
        )
        return TopicPoint(WordSums.of(sums), own)

    # What a point has of documents

    def _counts_of(self, n_documents, width):
        """Return n_d of documents that nothing is known of."""
        return np.zeros((n_documents, width), self.dtype)

    def _room_beside(self, before):
        """Return where visits write n_d that begin at these."""
        return before if self.recalls_first else np.zeros_like(before)

    def _looked_at(self, own):
        """Whether the last visits have noted what priors are learned from."""
        return own.chances.size > 0

    def _to_look_at(self, own):
        """Return it with room for that."""
        (n, width), sample = own.before.shape, NO_WORDS
        if n > MOST_LEARNED_FROM:
            n, drawn = MOST_LEARNED_FROM, np.random.default_rng(0)
            sample = drawn.choice(len(own.before), n, replace=False)
            sample = np.sort(sample).astype(np.int32)
        room = np.zeros((n, width), self.dtype), np.zeros(n, self.dtype)
        return own._replace(chances=room[0], weight=room[1], sample=sample)

    def _not_looked_at(self, own):
        """Return it without."""
        return own._replace(chances=own.chances[:0], weight=own.weight[:0])

    def _swapped(self, own):
        """Return it with n_d as last visited, and room for the next visits."""
        return own._replace(before=own.after, after=own.before)

    def _draws(self, own, prior):
        """Return the `PriorDraws` of the topics of documents."""
        after = own.after[own.sample] if own.sample.size else own.after
        return draws_of(prior, after, own.chances, own.weight)

    def pack(self, point):
        """Return the point without what the next visits write."""
        own = self._not_looked_at(point.own)
        return point._replace(own=own._replace(after=None))

    def unpack(self, point):
        """Return the point with room for it."""
        own = point.own._replace(after=self._room_beside(point.own.before))
        return point._replace(own=self._to_look_at(own) if _is_due(own) else own)

    def update(self, point, mean, correction, step):
        """Return the point after one step; see :meth:`WordModel.update`."""
        reached = point.own.reached
        if mean is None or correction is None:
            reached = None
        elif reached is None and point.sums.frozen:
            reached = point.sums.deviation  # where the epoch begins
        own = point.own._replace(reached=reached)
        return super().update(point._replace(own=own), mean, correction, step)

    def recentre(self, point):
        """Return the point where the next epoch begins, with learned priors.

        Steps about an anchor make the most of documents as they were seen last, and
        these of topics: the two settle by ever smaller moves in one direction. The
        topics therefore go on by a share of the last move, as Nesterov (1983) does,
        which moves no fixed point; documents follow them.
        """
        renewed = super().recentre(point)
        if renewed is point:
            return point
        own, sums = renewed.own, renewed.sums
        if own.reached is not None:
            sums = _gone_on(sums, own.reached, min(MOMENTUM, _nesterov(own.age)))
            own = own._replace(reached=renewed.sums.deviation)
        # Objectives of other priors do not compare.
        repaired = ("priors",) if own.next != point.own.next else ()
        return renewed._replace(sums=sums, own=own, repaired=repaired)

    def renew(self, own, sums):
        """Return counts as last visited, and priors that were due."""
        age = own.age + 1
        if self._looked_at(own):
            doc_prior = self._learned_doc_prior(own)
            moved = np.abs(doc_prior - own.doc_prior).sum() / doc_prior.sum()
            own = self._not_looked_at(own)._replace(
                doc_prior=doc_prior,
                word_prior=self._learned_word_prior(own, sums),
                moved=float(moved),
                next=age + PAUSE if moved > STILL else max(age + PAUSE, age * 4 // 3),
            )
        own = self._swapped(own)._replace(age=age)
        return self._to_look_at(own) if _is_due(own) else own

    def _learned_doc_prior(self, own):
        """Return α after steps of Minka's fixed point, for soft counts."""
        prior, k = own.doc_prior, self.n_components
        if not own.learn[0]:
            return prior
        for _ in range(DOC_STEPS):
            draws = self._draws(own, prior)
            share = draws.of_topics[:k] / draws.all
            learned = np.maximum(prior[:k] * share, LEAST_PRIOR)
            prior = pad(learned[None], self.dtype)[0]
        return prior

    def _learned_word_prior(self, own, sums):
        """Return η after steps of the like for the topics."""
        if not own.learn[1]:
            return own.word_prior
        array, k = sums.toarray(), self.n_components
        totals, n_features = self.n_tokens * sums.totals[:k], len(array)
        prior = float(own.word_prior[0, 0])
        for _ in range(WORD_STEPS):
            given = array, self.n_tokens, prior
            count = partial(kernels.expect_draws_of_words, *given)
            whole = n_features * prior
            all_draws = n_features * (digamma(totals + whole) - digamma(whole)).sum()
            found = sum(map_chunks(count, n_features, TASK_WORDS))
            prior = max(prior * found / all_draws, LEAST_PRIOR)
        return pad(np.full((1, k), prior), self.dtype)

    def statistics(self, point, batch, beta):
        """Return the sums of a batch after rounds on its documents."""
        return self._visit(point.sums, point.own, batch, True)

    def remember(self, point, batch, beta):
        """Return the sums of an anchor, and what it takes to find them again."""
        memory = point.sums, point.own
        sums = self._visit(*memory, batch, False)
        return sums, sums if self.keep_sums else memory

    def recall(self, memory, point, batch):
        """Return the sums of the anchor, kept or by the same rounds."""
        return memory if self.keep_sums else self._visit(*memory, batch, False)

    def _visit(self, sums, own, batch, keep):
        """Return the sums of a batch, and `keep` what was found of its documents."""
        rows = self._rows(sums, own, batch.rows.words)
        found = padded_zeros(*rows[0].shape, self.dtype)
        needed = keep and own.chances.size
        chances = np.empty((batch.n_units if needed else 0, found.shape[1]), self.dtype)
        options = own.before[batch.ids], batch, chances
        add = _adds_to(found, batch)
        objective, after = self._infer(rows, own.doc_prior, *options, add)
        if keep:
            own.after[batch.ids] = after
        if needed:
            at, mine = batch.ids, slice(None)
            if own.sample.size:
                mine = np.isin(batch.ids, own.sample, assume_unique=True)
                at = np.searchsorted(own.sample, batch.ids[mine])
                chances = chances[mine]
            own.chances[at] = chances
            own.weight[at] = batch.weight[mine] if batch.weight.size else 1.0
        return Statistics(word_rows(batch, found), objective)

    def _rows(self, sums, own, words):
        """Return what rounds need of words (none named: all); see `infer_shares`."""
        inverse = self._inverse(sums, own)
        rows = sums.parameters(words, self.n_tokens, own.word_prior, inverse)
        inverse = inverse.astype(self.dtype)
        prior = own.word_prior
        if len(prior) > 1 and words.size:
            prior = prior[words]
        least = pad(prior * inverse, self.dtype)
        return rows, least, np.zeros_like(inverse) if self.new else inverse

    def _inverse(self, sums, own):
        """Return 1 / (N_k + Σ_v η_vk), 1 for padding."""
        totals = own.word_prior.sum(axis=0, dtype=float)
        totals = totals * (sums.n_features if len(own.word_prior) == 1 else 1)
        totals += self.n_tokens * sums.totals
        return 1.0 / np.where(totals > 0.0, totals, 1.0)

    def _infer(self, rows, prior, before, batch, chances, use=None):
        """Return the documents' log-likelihood and n_d; shares are passed on.

        Parameters
        ----------
        rows : tuple
            Of `_rows`.
        prior : ndarray of shape (K,)
        before : ndarray of shape (n_documents, K)
        batch : batch of documents
        chances : ndarray of shape (n_documents, K) or (0, K)
            Written.
        use : callable, default=None
            Called with the documents, the first and the last of a group, and their
            shares. Groups are the same for any number of threads.
        """
        counts, K = batch.rows, len(prior)
        indptr = counts.indptr
        documents = *counts[:3], batch.weight.astype(self.dtype)
        after, objective = np.empty_like(before), 0.0
        n_groups = max(1, int(indptr[-1]) * K // ROOM)
        edges = np.searchsorted(indptr, indptr[-1] * np.arange(1, n_groups) // n_groups)
        edges = np.unique([0, *edges, batch.n_units])
        sizes = np.diff(indptr[edges])
        room = padded_empty(int(sizes.max(initial=0)), K, self.dtype)

        for first, last in pairwise(edges.tolist()):
            start = indptr[first]

            def infer(some, first=first, start=start):
                a, b = first + some[0], first + some[1]
                shares = room[indptr[a] - start : indptr[b] - start]
                rounds = self.inner_iter, self.inner_tol
                given = *rows, prior, *rounds, before, after
                return kernels.infer_shares(documents, a, b, *given, shares, chances)

            tasks = cut_documents(indptr[first : last + 1] - start, self.inner_iter * K)
            objective += sum(parallel_map(infer, tasks))
            if use is not None:
                use(documents, first, last, room[: indptr[last] - start])
        return objective, after

    def posteriors(self, topics, batch):
        """Return n_d + α of documents that may be new: topics are held.

        Parameters
        ----------
        topics : ndarray of shape (n_features, K)
            λ, padded.
        batch : batch of documents
        """
        totals = column_sums(topics)
        inverse = (1.0 / np.where(totals > 0.0, totals, 1.0)).astype(self.dtype)
        words = batch.rows.words
        rows = pad(topics[words] if words.size else topics, self.dtype)
        rows *= inverse
        nothing = padded_zeros(1, len(inverse), self.dtype)
        before = np.zeros((batch.n_units, len(inverse)), self.dtype)
        given = (rows, nothing, nothing[0]), self.doc_prior, before, batch
        _, after = self._infer(*given, before[:0])
        return (after + self.doc_prior)[:, : self.n_components]

    def lower_bound(self, point, data):
        """Return a lower bound of the log-likelihood, by the shares of one more visit.

        Σ_d log B(α + n_d) / B(α) + Σ_k log B(η + N_k) / B(η) + Σ_dv c_dv H(γ_dv), the
        bound of mean field at the best posteriors of θ and β for these shares.
        """
        sums = data.parts().sum(partial(self.parts_of_bound, point))
        own, k, counts = point.own, self.n_components, dense(sums, copy=False).sum_z
        of_words = own.word_prior
        totals = of_words.sum(axis=0, dtype=float)[:k]
        if len(of_words) == 1:
            totals = totals * len(counts)
        of_topics = gammaln(totals) - gammaln(totals + column_sums(counts)[:k])
        topics = of_topics.sum() + self._log_beta(counts, of_words, counts[:0, 0])
        return float(sums.objective + topics)

    def parts_of_bound(self, point, batch):
        """Return the counts of words, and what documents have of the bound."""
        own, k = point.own, self.n_components
        rows = self._rows(point.sums, own, batch.rows.words)
        found = padded_zeros(*rows[0].shape, self.dtype)
        add, entropies = _adds_to(found, batch), []

        def use(*group):
            add(*group)
            entropies.append(kernels.entropy(*group))

        before = own.before[batch.ids]
        given = own.doc_prior, before, batch, before[:0]
        _, after = self._infer(rows, *given, use)
        weight = batch.weight.astype(self.dtype)
        share = weight if weight.size else np.ones(batch.n_units)
        prior, lengths = own.doc_prior[:k].astype(float), after.sum(axis=1, dtype=float)
        documents = share @ (gammaln(prior.sum()) - gammaln(prior.sum() + lengths))
        documents += self._log_beta(after, own.doc_prior[None], weight)
        return Statistics(word_rows(batch, found), float(documents + sum(entropies)))

    def _log_beta(self, counts, prior, weight):
        def part(*rows):
            return kernels.log_beta_of_counts(counts, prior, *rows, weight)

        return sum(map_chunks(part, len(counts), TASK_WORDS))

    def may_end(self, point, mean, tol):
        """Whether topics and priors have come to rest, too.

        The leave-one-out log-likelihood rises in waves, and turns where it is not
        highest, so that gains near zero alone say little. At a fixed point a pass moves
        no token to another topic, and near it what is left is about the share it moves.
        """
        found = dense(mean, copy=False).sum_z
        # What one topic loses another one gains.
        moved = 0.5 * np.abs(found - point.sums.toarray()).sum(dtype=float)
        return moved < tol and point.own.moved < STILL

    def of_topics(self, sums):
        """Return nothing: the objective is the leave-one-out log-likelihood."""
        return 0.0

    def parameters(self, point, words=NO_WORDS):
        """Return λ (of some words), the prior and the expected counts."""
        every = np.ones(point.sums.deviation.shape[1])
        given = self.n_tokens, point.own.word_prior, every
        return Parameters(point.sums.parameters(words, *given))


def _nesterov(age):
    """Return the share of the last move that is made again, of the second epoch 0."""
    return max(0.0, (age - 2.0) / (age + 1.0))


def _gone_on(sums, before, share):
    """Return statistics moved on by a share of what they have moved, not below 0.

    Parameters
    ----------
    sums : WordSums
        Frozen.
    before : ndarray of shape (n_features, K)
        What they were.
    share : float
    """
    array = sums.deviation
    moved = padded_empty(*array.shape, array.dtype, places.empty)
    share = array.dtype.type(share)

    def fill(*words):
        some = slice(*words)
        np.subtract(array[some], before[some], out=moved[some])
        moved[some] *= share
        moved[some] += array[some]
        np.maximum(moved[some], 0.0, out=moved[some])

    map_chunks(fill, len(array), SUM_WORDS)
    found = WordSums.of(moved)
    # The tokens stay as many.
    return found._replace(factor=sums.totals.sum() / (found.totals.sum() or 1.0))


def _is_due(own):
    """Whether the next visits are to note what priors are learned from."""
    return any(own.learn) and own.age >= own.next


def _adds_to(found, batch):
    """Return what adds the shares of a group of documents to sums over words."""
    words = [(0, len(found))]
    if len(batch.rows.index) * found.shape[1] >= TASK_WORK:
        words = cut_words(batch.rows.index, len(found))

    def add(*group):
        list(parallel_map(lambda some: kernels.add_shares(*group, *some, found), words))

    return add
