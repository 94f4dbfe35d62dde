"""The collapsed E step, against CVB0 written plainly, and its bound by enumeration."""

from itertools import product
from typing import NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import digamma, gammaln
from sklearn.base import clone

from skvrem import TemperedLDA
from skvrem.data._batch import MemoryPartition
from skvrem.solvers.estimate._svrg import SVRG
from skvrem.topics import _base
from skvrem.topics._documents import as_documents
from skvrem.topics._model import WordSums
from skvrem.topics.lda import _estimator, _model_collapsed
from skvrem.topics.lda import _kernels_collapsed as kernels
from skvrem.topics.lda._model_collapsed import CollapsedLDAModel
from tests.documents import (
    assert_same_state,
    batch_of_documents,
    dense_counts,
    matched,
    nearly_alike,
    normalized,
    planted,
)

RTOL = {np.float64: 1e-10, np.float32: 2e-4}


class Visited(NamedTuple):
    """What rounds on documents come to, γ by document and word."""

    shares: list
    counts: np.ndarray  # n_dk
    log_likelihood: float

    def sums(self, X, weight):
        """N_vk that the documents bring."""
        found = np.zeros((X.shape[1], self.counts.shape[1]))
        for d, gamma in enumerate(self.shares):
            for v, g in gamma.items():
                found[v] += weight[d] * X[d, v] * g
        return found


def visit(X, weight, N, before, alpha, eta, n_rounds, new=False):
    """CVB0 rounds on dense documents, token by token; `eta` has a row a word."""
    shares, counts, log_likelihood = [], np.array(before, float), 0.0
    totals = N.sum(axis=0) + eta.sum(axis=0)
    for d, row in enumerate(X):
        words, n = np.flatnonzero(row), counts[d]
        gamma = {}
        for v in words:
            x = (N[v] + eta[v]) / totals * (n + alpha)
            gamma[v] = x / x.sum()
        last = {v: N[v] + eta[v] for v in words}
        last = {
            v: (x / totals) @ (n + alpha) / (n + alpha).sum() for v, x in last.items()
        }
        n = sum((row[v] * gamma[v] for v in words), np.zeros(len(alpha)))
        for _ in range(n_rounds - 1):
            for v in words:
                one = min(row[v], 1.0) * gamma[v]
                topic = (
                    N[v] if new else np.maximum(N[v] - min(weight[d], 1.0) * one, 0.0)
                )
                x = (topic + eta[v]) / totals * (n - one + alpha)
                last[v] = x.sum() / (row.sum() - min(row[v], 1.0) + alpha.sum())
                taken = 0.0 if new else min(weight[d], 1.0) * one / totals
                taken = np.sum(taken * (n - one + alpha))
                step = max(1.0 / 3.0, x.sum() / (x.sum() + taken))
                change = step * (x / x.sum() - gamma[v])
                n = n + row[v] * change
                gamma[v] = gamma[v] + change
        shares.append(gamma)
        counts[d] = n
        log_likelihood += weight[d] * sum(row[v] * np.log(last[v]) for v in words)
    return Visited(shares, counts, log_likelihood)


def problem(dtype, weighted, words_of_topics=False, new=False, k=5, n_rounds=4):
    """A model, a point in the middle of a fit, a batch, and the same plainly."""
    batch = batch_of_documents(dtype, weighted)
    rng = np.random.default_rng(1)
    alpha = rng.uniform(0.1, 0.4, k).astype(dtype).astype(float)
    shape = (k, batch.rows.n_features) if words_of_topics else ()
    prior = np.asarray(rng.uniform(0.05, 0.2, shape)).astype(dtype).astype(float)
    n_tokens = batch.total_weight
    rounds = n_rounds, dtype(0.0)
    model = CollapsedLDAModel(alpha, prior, n_tokens, dtype, *rounds, new=new)
    X = dense_counts(batch)
    # Some words are known less than they occur: what is left out of them is not all.
    topics = rng.gamma(0.4, size=(batch.rows.n_features, k)) * X.sum(0)[:, None]
    topics *= n_tokens / topics.sum()
    eta = np.broadcast_to(prior.T if words_of_topics else prior, topics.shape)
    point = model.start((topics + eta,), batch.n_units)
    before = rng.uniform(0.0, 2.0, (batch.n_units, k))
    point.own.before[batch.ids, :k] = before
    weight = batch.weight if weighted else np.ones(batch.n_units)
    return model, point, batch, (X, weight, topics, before, alpha, eta)


@pytest.mark.parametrize("n_rounds", [1, 2, 5])
@pytest.mark.parametrize("words_of_topics", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_visit_is_cvb0(dtype, weighted, words_of_topics, n_rounds):
    given = dtype, weighted, words_of_topics
    model, point, batch, plain = problem(*given, n_rounds=n_rounds)
    found = model.statistics(point, batch, 1.0)
    expected = visit(*plain, n_rounds)
    sums = np.zeros((batch.rows.n_features, model.doc_prior.size), dtype)
    found.sum_z.add_to(sums)
    close = {"rtol": RTOL[dtype], "atol": RTOL[dtype]}
    np.testing.assert_allclose(sums[:, :5], expected.sums(*plain[:2]), **close)
    np.testing.assert_allclose(point.own.after[batch.ids, :5], expected.counts, **close)
    assert found.objective == pytest.approx(expected.log_likelihood, rel=RTOL[dtype])
    assert not sums[:, 5:].any()
    assert not point.own.after[:, 5:].any()


def test_nothing_is_left_out_of_topics_that_do_not_know_the_documents():
    model, point, batch, plain = problem(np.float64, True, new=True)
    found = model.statistics(point, batch, 1.0)
    expected = visit(*plain, 4, new=True)
    assert found.objective == pytest.approx(expected.log_likelihood, rel=1e-10)
    np.testing.assert_allclose(point.own.after[batch.ids, :5], expected.counts)


def test_an_anchor_is_found_again_and_leaves_no_trace():
    model, point, batch, _ = problem(np.float64, True)
    sums, memory = model.remember(point, batch, 1.0)
    half = sums._replace(sum_z=sums.sum_z * (0.5 / batch.total_weight))
    moved = model.update(point, None, half, 0.5)
    model.statistics(moved, batch, 1.0)
    after = point.own.after.copy()
    again = model.recall(memory, moved, batch)
    np.testing.assert_array_equal(again.sum_z.values, sums.sum_z.values)
    np.testing.assert_array_equal(point.own.after, after)


def test_chances_that_a_token_is_of_a_topic():
    model, point, batch, plain = problem(np.float64, False)
    own = point.own
    asked = own._replace(
        chances=np.zeros_like(own.before), weight=np.zeros(batch.n_units)
    )
    model.statistics(point._replace(own=asked), batch, 1.0)
    X, expected = plain[0], visit(*plain, 4)
    for d, gamma in enumerate(expected.shares):
        none = [(1.0 - g) ** X[d, v] for v, g in gamma.items()]
        chances = 1.0 - np.prod(none, axis=0) if none else np.zeros(5)
        row = asked.chances[batch.ids[d], :5]
        np.testing.assert_allclose(row, chances, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(asked.weight, 1.0)


def test_groups_of_documents_change_no_bits(monkeypatch):
    model, point, batch, _ = problem(np.float64, True)
    whole = model.statistics(point, batch, 1.0)
    monkeypatch.setattr("skvrem.topics.lda._model_collapsed.ROOM", 100)
    parts = model.statistics(point, batch, 1.0)
    np.testing.assert_array_equal(parts.sum_z.values, whole.sum_z.values)
    assert parts.objective == pytest.approx(whole.objective, rel=1e-14)


def test_draws_are_minkas_with_teh_and_others_chance():
    rng = np.random.default_rng(0)
    counts, chances = rng.gamma(1.0, 3.0, (7, 3)), rng.uniform(0.1, 1.0, (7, 3))
    alpha, weight = np.array([0.3, 0.05, 1.2]), rng.uniform(0.5, 2.0, 7)
    expected = chances * (digamma(counts / chances + alpha) - digamma(alpha))
    found = np.zeros(3)
    kernels.expect_draws(counts, chances, alpha, 0, 7, weight, found)
    np.testing.assert_allclose(found, weight @ expected, rtol=1e-9)
    found = kernels.expect_draws_of_words(counts - 1.0, 2.0, 0.3, 0, 7)
    n = 2.0 * np.maximum(counts - 1.0, 0.0)
    expected = np.where(n < 1.0, n / 0.3, digamma(n + 0.3) - digamma(0.3))
    assert found == pytest.approx(expected.sum(), rel=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
def test_priors_are_learned_by_steps_of_minka(weighted):
    model, point, batch, plain = problem(np.float64, weighted)
    point = point._replace(own=point.own._replace(learn=(True, True), age=3))
    asked = model.recentre(point._replace(settled=False))
    assert asked.own.chances.size
    assert not asked.repaired
    asked.own.before[batch.ids, :5] = plain[3]
    found = model.statistics(asked, batch, 1.0)
    n, chances = asked.own.after[:, :5], asked.own.chances[:, :5]
    sums = np.zeros(asked.sums.deviation.shape)
    found.sum_z.add_to(sums)
    alpha, weight, lengths = plain[4], asked.own.weight, n.sum(axis=1)
    moved = asked._replace(settled=False)
    learned = model.recentre(moved)
    assert learned.repaired  # what follows is of another objective
    np.testing.assert_array_equal(np.sort(weight), np.sort(plain[1]))
    for _ in range(5):
        draws = digamma(n / np.maximum(chances, 1e-6) + alpha) - digamma(alpha)
        total = alpha.sum()
        whole = weight @ (digamma(lengths + total) - digamma(total))
        alpha = alpha * (weight @ (chances * draws)) / whole
    np.testing.assert_allclose(learned.own.doc_prior[:5], alpha, rtol=1e-6)
    N, eta = plain[2], plain[5][0, 0]
    for _ in range(3):
        draws = np.where(N < 1.0, N / eta, digamma(N + eta) - digamma(eta))
        whole = digamma(N.sum(axis=0) + len(N) * eta) - digamma(len(N) * eta)
        eta *= draws.sum() / (len(N) * whole.sum())
    assert learned.own.word_prior[0, 0] == pytest.approx(eta, rel=1e-6)
    again = model.recentre(learned._replace(settled=False))
    np.testing.assert_array_equal(again.own.doc_prior, learned.own.doc_prior)
    assert not again.repaired


def test_of_many_documents_priors_are_learned_from_some(monkeypatch):
    model, point, batch, _ = problem(np.float64, True)
    due = point.own._replace(learn=(True, False), age=3)

    def noted():
        asked = model.recentre(point._replace(own=due, settled=False))
        model.statistics(asked, batch, 1.0)
        return asked.own

    every, most = noted(), batch.n_units - 2
    monkeypatch.setattr(_model_collapsed, "MOST_LEARNED_FROM", most)
    some = noted()
    assert len(some.sample) == most
    np.testing.assert_array_equal(some.chances, every.chances[some.sample])
    np.testing.assert_array_equal(some.weight, every.weight[some.sample])
    chosen = every._replace(
        after=every.after[some.sample], chances=some.chances, weight=some.weight
    )
    expected = model._learned_doc_prior(chosen)
    np.testing.assert_array_equal(model._learned_doc_prior(some), expected)
    assert (expected != model._learned_doc_prior(every))[:5].all()


def test_counts_of_documents_are_written_where_they_were_read(monkeypatch):
    """One array is enough for minibatches: the bits are those of two."""
    X, _ = planted(600, 40)

    def fitted():
        lda = TemperedLDA(4, solver="svrg", tol=0.0, max_iter=8, random_state=0)
        assert (lda.fit(X).doc_topic_prior_ != 0.25).all()  # learned
        return lda.components_, lda.set_params(warm_start=True).fit(X).components_

    one = fitted()
    two_arrays = staticmethod(np.zeros_like)
    monkeypatch.setattr(CollapsedLDAModel, "_room_beside", two_arrays)
    np.testing.assert_array_equal(one, fitted())


def test_sums_of_minibatches_are_kept_where_there_is_room(monkeypatch):
    """They are what a visit to the anchor would find: the bits are the same."""
    X, _ = planted(600, 40)

    def fitted():
        lda = TemperedLDA(4, solver="svrg", tol=0.0, max_iter=6, n_init=1)
        return lda.set_params(random_state=0).fit(X)

    kept = fitted()
    monkeypatch.setattr(_estimator, "TABLE_BYTES", 0)
    found_anew = fitted()
    np.testing.assert_array_equal(kept.components_, found_anew.components_)
    assert kept.lower_bound_ == found_anew.lower_bound_
    # An epoch is a pass by the anchor and a visit, and a pass more without the sums.
    np.testing.assert_array_equal(np.diff(kept.history_["passes"])[2:], 2.0)
    np.testing.assert_array_equal(np.diff(found_anew.history_["passes"])[2:], 3.0)


def test_priors_are_learned_however_good_the_start():
    rng = np.random.default_rng(0)
    topics = rng.dirichlet(np.full(80, 0.2), 3)
    X = rng.multinomial(80, rng.dirichlet([1.2, 0.4, 0.15], 1500) @ topics)
    lda = TemperedLDA(3, random_state=0).fit(X)
    again = clone(lda).set_params(components_init=lda.components_).fit(X)
    np.testing.assert_allclose(again.doc_topic_prior_, lda.doc_topic_prior_, rtol=0.1)


@pytest.mark.parametrize("n_told", [200, 300])
def test_documents_of_weight_zero_are_not_among_those_that_priors_need(n_told):
    X, _ = planted(600, 20)
    weight = np.zeros(600)
    weight[::3] = 1.0
    weight[1 : 3 * (n_told - 200) : 3] = 1.0
    lda = TemperedLDA(4, solver="batch", max_iter=8, n_init=1, tol=0.0, random_state=0)
    alone = clone(lda).fit(X[weight > 0.0])
    lda.fit(X, sample_weight=weight)
    assert np.all(lda.doc_topic_prior_ == 0.25) == (n_told < 300)
    np.testing.assert_allclose(lda.doc_topic_prior_, alone.doc_topic_prior_, rtol=1e-6)


def test_learned_priors_are_like_those_of_the_corpus():
    rng = np.random.default_rng(0)
    alpha, eta = np.array([1.2, 0.4, 0.15]), 0.2
    topics = rng.dirichlet(np.full(80, eta), 3)
    X = rng.multinomial(80, rng.dirichlet(alpha, 1500) @ topics)
    lda = TemperedLDA(3, topic_word_prior="learn", random_state=0).fit(X)
    order, _ = matched(normalized(lda.components_), topics)
    # Soft counts leave a topic no document for certain: its parameter is too large.
    ratio = lda.doc_topic_prior_[order] / alpha
    assert ratio.min() > 0.5
    assert ratio.max() < 2.5
    assert (np.diff(lda.doc_topic_prior_[order]) < 0.0).all()
    assert lda.topic_word_prior_ == pytest.approx(eta, rel=0.45)


def log_evidence(documents, alpha, eta, n_words):
    """log p(w) of documents, lists of words, by a sum over all assignments."""
    words = np.concatenate(documents)
    owner = np.repeat(np.arange(len(documents)), [len(d) for d in documents])
    k, terms = len(alpha), []
    for z in product(range(k), repeat=len(words)):
        z = np.array(z)
        n, N = np.zeros((len(documents), k)), np.zeros((n_words, k))
        np.add.at(n, (owner, z), 1.0)
        np.add.at(N, (words, z), 1.0)
        log_p = (gammaln(n + alpha) - gammaln(alpha)).sum()
        log_p += (gammaln(alpha.sum()) - gammaln(alpha.sum() + n.sum(axis=1))).sum()
        log_p += (gammaln(N + eta) - gammaln(eta)).sum()
        whole = n_words * eta
        log_p += (gammaln(whole) - gammaln(whole + N.sum(axis=0))).sum()
        terms.append(log_p)
    return np.logaddexp.reduce(terms)


@pytest.mark.parametrize("seed", range(3))
def test_the_lower_bound_is_one_of_the_log_evidence(seed):
    documents = [[0, 0, 1], [1, 2, 2, 0], [3, 3, 2]]
    X = np.stack([np.bincount(d, minlength=4) for d in documents])
    alpha, eta = np.array([0.4, 0.7]), 0.3
    lda = TemperedLDA(
        2, doc_topic_prior=alpha, topic_word_prior=eta, random_state=seed
    ).fit(X)
    evidence = log_evidence(documents, alpha, eta, 4) / X.sum()
    assert evidence - 0.5 < lda.lower_bound_ < evidence


def test_the_lower_bound_is_what_it_says():
    model, point, batch, plain = problem(np.float64, True)
    X, weight, _, _, alpha, eta = plain
    expected = visit(*plain, 4)
    n, N = expected.counts, expected.sums(X, weight)
    bound = weight @ (gammaln(n + alpha) - gammaln(alpha)).sum(axis=1)
    bound += weight @ (gammaln(alpha.sum()) - gammaln(alpha.sum() + n.sum(axis=1)))
    bound += (gammaln(N + eta) - gammaln(eta)).sum()
    totals = eta.sum(axis=0)
    bound += (gammaln(totals) - gammaln(totals + N.sum(axis=0))).sum()
    for d, gamma in enumerate(expected.shares):
        for v, g in gamma.items():
            bound -= weight[d] * X[d, v] * (g * np.log(g)).sum()
    data = MemoryPartition([batch], 1.0)
    data.parts = lambda: data
    assert model.lower_bound(point, data) == pytest.approx(bound, rel=1e-9)


def stored_cvb0(X, k, alpha, eta, n_passes, seed):
    """CVB0 of Asuncion et al. (2009): γ of every token is kept, and updated at once."""
    rng = np.random.default_rng(seed)
    d, v = np.nonzero(X)
    gamma = np.eye(k)[rng.integers(k, size=len(d))]
    N, n = np.zeros((X.shape[1], k)), np.zeros((X.shape[0], k))
    np.add.at(N, v, X[d, v][:, None] * gamma)
    np.add.at(n, d, X[d, v][:, None] * gamma)
    for _ in range(n_passes):
        for j in range(len(d)):
            g, c = gamma[j], X[d[j], v[j]]
            x = (N[v[j]] - g + eta) / (N.sum(axis=0) - g + X.shape[1] * eta)
            x = x * (n[d[j]] - g + alpha)
            x /= x.sum()
            N[v[j]] += c * (x - g)
            n[d[j]] += c * (x - g)
            gamma[j] = x
    return (N + eta).T


@pytest.mark.parametrize("solver", ["svrg", "batch", "stochastic"])
def test_fits_find_what_stored_cvb0_finds(solver):
    X, topics = planted(200, 40)
    expected = stored_cvb0(X, 4, 0.25, 0.05, 40, seed=1)
    _, distances = matched(normalized(expected), topics)
    lda = TemperedLDA(4, solver=solver, tol=0.0, max_iter=80, random_state=0).fit(X)
    _, found = matched(normalized(lda.components_), normalized(expected))
    assert found.max() < 0.06
    _, found = matched(normalized(lda.components_), topics)
    assert found.max() < distances.max() + 0.02
    assert lda.e_step_ == "collapsed"


def documents_of_rare_words(seed):
    """Few, whose words are their own: what counts say of these is their own visit."""
    rng = np.random.default_rng(seed)
    topics = rng.dirichlet(np.full(6000, 0.1), 5)
    shares = rng.dirichlet(np.full(5, 0.3), 60)
    return np.array([rng.multinomial(150, p) for p in shares @ topics])


def test_topics_go_on_by_a_share_of_their_last_move():
    rng = np.random.default_rng(0)
    now, before = rng.uniform(size=(2, 9000, 8))  # some would come below zero
    now /= now.sum()
    before /= before.sum()
    found = _model_collapsed._gone_on(WordSums.of(now), before, 0.6)
    expected = np.maximum(now + 0.6 * (now - before), 0.0)
    assert (expected == 0.0).any()
    expected /= expected.sum()
    np.testing.assert_allclose(found.toarray(), expected, rtol=1e-12)
    np.testing.assert_allclose(found.totals, expected.sum(axis=0), rtol=1e-12)
    # That moves no fixed point.
    found = _model_collapsed._gone_on(WordSums.of(now), now, 0.6)
    np.testing.assert_allclose(found.toarray(), now, rtol=1e-14)


def test_only_steps_about_an_anchor_have_momentum():
    model, point, batch, _ = problem(np.float64, False)
    own = point.own._replace(age=8)  # from the sixth epoch on a half
    point = point._replace(own=own)
    start = point.sums.toarray().copy()

    def step(point, anchored):
        sums = model.statistics(point, batch, 1.0)
        mean = sums._replace(sum_z=sums.sum_z.toarray() / batch.total_weight)
        other = mean._replace(sum_z=0.01 * mean.sum_z)
        given = (mean, other) if anchored else (None, mean)
        return model.update(point, *given, 0.3)

    plain = step(point, False)
    expected = plain.sums.settle().toarray().copy()
    made = model.recentre(step(point, False))
    np.testing.assert_array_equal(made.sums.toarray(), expected)
    assert made.own.reached is None

    moved = step(step(point, True), True)
    np.testing.assert_array_equal(moved.own.reached, start)
    reached = moved.sums.toarray().copy()
    gone = model.recentre(moved)
    np.testing.assert_allclose(gone.own.reached, reached, rtol=1e-12)
    expected = np.maximum(reached + 0.5 * (reached - start), 0.0)
    expected *= reached.sum() / expected.sum()
    np.testing.assert_allclose(gone.sums.toarray(), expected, rtol=1e-12)

    # The next move is from where the last epoch came to.
    further = step(gone, True)
    assert further.own.reached is gone.own.reached
    # A whole step, as of a fit that goes back, is no move of that kind.
    sums = model.statistics(gone, batch, 1.0)
    mean = sums._replace(sum_z=sums.sum_z.toarray() / batch.total_weight)
    back = model.recentre(model.update(gone, mean, None, 1.0))
    np.testing.assert_array_equal(back.sums.toarray(), mean.sum_z)


@pytest.mark.parametrize("age", [1, 2, 3, 5, 100])
def test_momentum_begins_slowly(age):
    share = _model_collapsed._nesterov(age)
    assert share == pytest.approx({1: 0.0, 2: 0.0, 3: 0.25, 5: 0.5}.get(age, 98 / 101))


@pytest.mark.parametrize("seed", [2, 3])
def test_momentum_saves_epochs(seed, monkeypatch):
    X = documents_of_rare_words(seed)
    lda = TemperedLDA(5, solver="svrg", n_init=1, random_state=seed)
    fast = clone(lda).fit(X)
    monkeypatch.setattr(_model_collapsed, "MOMENTUM", 0.0)
    slow = lda.fit(X)
    assert fast.converged_
    assert fast.n_iter_ < 0.75 * slow.n_iter_
    assert fast.objective_ > slow.objective_ - 2e-3


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_few_documents_of_rare_words_come_to_rest(seed):
    X = documents_of_rare_words(seed)
    lda = TemperedLDA(5, n_init=1, random_state=seed).fit(X)
    assert lda.converged_
    assert lda.n_iter_ > 100
    lda.set_params(tol=0.0, max_iter=lda.n_iter_ + 300)
    objective = clone(lda).fit(X).history_["objective"]
    assert np.ptp(objective[-20:]) < 1e-4
    # Gains had been small before: they come in waves.
    assert objective[-1] - lda.objective_ < 2e-3


@pytest.mark.parametrize("dtype", [float, np.float32])
def test_transform_settles_documents_at_held_topics(dtype):
    X, _ = planted(350)
    X = X.astype(dtype)
    lda = TemperedLDA(4, max_iter=8, tol=0.0, random_state=0, mean_change_tol=1e-7)
    lda.fit(X)
    alpha, k = lda.doc_topic_prior_, 4
    topics = lda.components_.T.astype(float)
    given = np.ones(20), topics, np.zeros((20, k)), alpha, np.zeros((X.shape[1], k))
    expected = visit(X[:20], *given, 100, new=True).counts + alpha
    found = lda.transform(X[:20], normalize=False)
    close = {"rtol": 1e-4, "atol": 1e-3} if dtype is np.float32 else {"rtol": 1e-4}
    np.testing.assert_allclose(found, expected, **close)
    np.testing.assert_array_equal(lda.transform(X)[:20], lda.transform(X[:20]))
    np.testing.assert_array_equal(lda.transform(X[7:8]), lda.transform(X[:20])[7:8])
    empty = lda.transform(np.zeros((1, X.shape[1])))
    np.testing.assert_allclose(empty[0], alpha / alpha.sum(), rtol=1e-6)


def test_a_batch_of_a_stream_is_new_to_the_topics():
    X, _ = planted(60)
    lda = TemperedLDA(3, random_state=0, mean_change_tol=0.0, max_doc_update_iter=6)
    lda.partial_fit(X[:58])
    before, eta = lda._sums.copy(), np.full((X.shape[1], 3), 0.05)
    lda.partial_fit(X[58:])  # too few for another fit
    mass, alpha = float(X.sum()), np.full(3, 1 / 3)
    given = np.ones(2), mass * before, np.zeros((2, 3)), alpha, eta
    expected = visit(X[58:], *given, 6, new=True)
    rho = X[58:].sum() / mass
    mean = expected.sums(X[58:], np.ones(2)) / X[58:].sum()
    np.testing.assert_allclose(
        lda._sums, (1.0 - rho) * before + rho * mean, rtol=1e-4, atol=1e-9
    )
    assert lda.step_size_ == pytest.approx(rho)
    objective = expected.log_likelihood / X[58:].sum()
    assert lda.objective_ == pytest.approx(objective, rel=1e-5)
    assert not hasattr(lda, "lower_bound_")


def test_a_stream_goes_on_from_a_fit_with_its_priors():
    X, topics = planted(600)
    lda = TemperedLDA(4, random_state=0).fit(X[:400])
    prior = lda.doc_topic_prior_
    for _ in range(3):
        lda.partial_fit(X[400:])
    np.testing.assert_array_equal(lda.doc_topic_prior_, prior)
    _, found = matched(normalized(lda.components_), topics)
    assert found.max() < 0.1


def test_a_fall_is_taken_back(monkeypatch):
    X, _ = planted(300)
    how = {"max_iter": 20, "tol": 0.0, "random_state": 0, "n_init": 1}
    lda = TemperedLDA(4, doc_topic_prior=0.3, **how)
    expected = lda.fit(X).objective_
    honest, calls = SVRG.estimate, []

    def sabotage(self, visit, point):
        mean, correction = honest(self, visit, point)
        calls.append(visit)
        if len(calls) not in (107, 108):  # the last of an epoch
            return mean, correction
        same = np.zeros_like(mean.sum_z)
        same[:, :4] = mean.sum_z[:, :4].mean(axis=1, keepdims=True)
        return mean._replace(sum_z=same), None

    monkeypatch.setattr(SVRG, "estimate", sabotage)
    lda.fit(X)
    assert len(calls) > 108
    assert lda.history_["step_size"].min() < lda.step_size_  # and slowed down
    assert lda.objective_ == pytest.approx(expected, abs=0.01)


def test_the_same_bits_for_any_number_of_threads(monkeypatch):
    X, _ = planted(400)
    monkeypatch.setattr("skvrem.topics._model.TASK_WORK", 5000)
    monkeypatch.setattr("skvrem.topics.lda._model_collapsed.ROOM", 20_000)
    fits = [
        TemperedLDA(5, max_iter=7, tol=0.0, random_state=0, n_jobs=n).fit(X)
        for n in (1, 2, 3)
    ]
    for other in fits[1:]:
        other.n_jobs = 1
        histories = other.history_.pop("seconds"), fits[0].history_.get("seconds")
        assert len(histories[0])
        np.testing.assert_array_equal(other.components_, fits[0].components_)
        np.testing.assert_array_equal(other.doc_topic_prior_, fits[0].doc_topic_prior_)
        assert other.objective_ == fits[0].objective_
        assert other.lower_bound_ == fits[0].lower_bound_
        np.testing.assert_array_equal(other.transform(X), fits[0].transform(X))


def test_a_document_of_no_weight_is_not_there():
    X, _ = planted(200)
    weight = np.r_[np.ones(199), 0.0]
    X[199] = 0
    X[199, :30] = 50
    with_it = TemperedLDA(4, solver="batch", random_state=0)
    with_it.fit(X, sample_weight=weight)
    assert with_it.components_.sum() == pytest.approx(
        X[:199].sum() + 0.05 * with_it.components_.size, rel=1e-5
    )


@pytest.mark.parametrize("scale", [0.25, 1e-3, 1000.0])
def test_counts_need_not_be_integers(scale):
    X, topics = planted(300)
    scaled = sp.csr_array(X * scale)
    lda = TemperedLDA(4, topic_word_prior=0.05 * scale, random_state=0)
    with np.errstate(all="raise"):
        data = as_documents(scaled)
    assert data.total_weight == pytest.approx(X.sum() * scale)
    if scale < 0.1:
        with pytest.warns(match="weights"):
            lda.fit(scaled)
    else:
        lda.fit(scaled)
    assert np.isfinite(lda.components_).all()
    assert np.isfinite([lda.objective_, lda.lower_bound_]).all()
    if scale != 1e-3:  # those are less than the prior of the shares
        _, found = matched(normalized(lda.components_), topics)
        assert found.max() < 0.15


def test_starts_may_be_topics_of_any_scale():
    X, topics = planted(300)
    fits = [
        TemperedLDA(
            4, components_init=topics * scale, max_iter=4, tol=0.0, random_state=0
        ).fit(X)
        for scale in (1.0, 1e-3)
    ]
    np.testing.assert_allclose(fits[0].components_, fits[1].components_, rtol=1e-3)
    _, found = matched(normalized(fits[0].components_), topics)
    assert found.max() < 0.1


def test_a_warm_start_goes_on():
    X, _ = planted(300)
    lda = TemperedLDA(4, random_state=0, doc_topic_prior=0.2).fit(X)
    before = normalized(lda.components_)
    lda.set_params(warm_start=True, max_iter=4, tol=0.0).fit(X)
    assert np.abs(normalized(lda.components_) - before).sum(axis=1).max() < 0.05


@pytest.mark.parametrize(
    ("params", "e_step"),
    [
        ({}, "collapsed"),
        ({"tempering": None}, "collapsed"),
        ({"e_step": "mean_field"}, "mean_field"),
        ({"learning_method": "batch"}, "mean_field"),
        ({"learning_method": "batch", "e_step": "collapsed"}, "collapsed"),
        ({"tempering": "annealed"}, "mean_field"),
        ({"temperature": 1.5}, "mean_field"),
    ],
)
def test_which_e_step_a_fit_takes(params, e_step):
    X, _ = planted(40)
    params = {"max_iter": 6, "random_state": 0, "tol": 0.0} | params
    lda = TemperedLDA(2, **params).fit(X)
    assert lda.e_step_ == e_step
    default = 0.05 if e_step == "collapsed" else 0.5
    assert lda.topic_word_prior_ == default
    np.testing.assert_array_equal(lda.doc_topic_prior_, 0.5)  # few documents
    own = lda.objective_ if e_step == "mean_field" else lda.lower_bound_
    assert lda.lower_bound_ == own
    assert lda.bound_ == pytest.approx(np.exp(-own))


def test_priors_are_learned_from_some_hundreds_of_documents():
    X, _ = planted(320)
    fit = {"max_iter": 6, "tol": 0.0, "random_state": 0}
    assert np.ptp(TemperedLDA(4, **fit).fit(X).doc_topic_prior_) > 0.0
    few = TemperedLDA(4, **fit).fit(X[:100])
    np.testing.assert_array_equal(few.doc_topic_prior_, 0.25)
    asked = TemperedLDA(4, doc_topic_prior="learn", **fit).fit(X[:100])
    assert np.ptp(asked.doc_topic_prior_) > 0.0
    given = TemperedLDA(4, doc_topic_prior=0.3, **fit).fit(X)
    np.testing.assert_array_equal(given.doc_topic_prior_, 0.3)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"e_step": "collapsed", "tempering": "annealed"}, "temperature 1"),
        ({"e_step": "mean_field", "doc_topic_prior": "learn"}, "less likely"),
        ({"tempering": "local", "topic_word_prior": "learn"}, "less likely"),
        ({"doc_topic_prior": "lern"}, "'learn'"),
        ({"e_step": "gibbs"}, "e_step"),
    ],
)
def test_what_does_not_go_together_is_refused(params, message):
    X, _ = planted(40)
    with pytest.raises(ValueError, match=message):
        TemperedLDA(2, **params).fit(X)


def test_one_seed_is_one_model():
    X, _ = planted(150)
    fits = [TemperedLDA(3, max_iter=5, tol=0.0, random_state=3).fit(X) for _ in "ab"]
    for fit in fits:
        fit.history_.pop("seconds")
        fit.history_ = {}
    assert_same_state(*fits)


@pytest.mark.parametrize("weighted", [False, True])
def test_topics_of_large_counts_part(weighted):
    """A word of a million tokens has as many at each topic: that is no start."""
    rng = np.random.default_rng(0)
    truth = rng.dirichlet(np.full(300, 0.5), size=3)
    shares = rng.dirichlet(np.ones(3), size=30)
    X = np.rint(1e8 * shares @ truth).astype(int)
    weight = rng.integers(1, 3, size=30) if weighted else None
    model = TemperedLDA(3, random_state=0).fit(X, sample_weight=weight)
    topics = model.components_ / model.components_.sum(axis=1, keepdims=True)

    def fit_of(words):
        return np.sum(X * np.log(words))

    best, floor = fit_of(shares @ truth), fit_of(X.sum(axis=0) / X.sum())
    assert best - fit_of(model.transform(X) @ topics) < 0.05 * (best - floor)


def test_topics_of_documents_that_are_alike_part():
    """Random topics make the same of all of them, which looks like convergence."""
    X, _ = nearly_alike(50, 0.03)
    words = X.sum(axis=0)
    same = np.sum(words * np.log(words / words.sum())) / words.sum()  # one topic
    for seed in range(4):
        model = TemperedLDA(3, random_state=seed).fit(X)
        assert model.lower_bound_ > same + 5e-4


def test_scattered_documents_have_all_tokens():
    rng = np.random.default_rng(1)
    X, weight = rng.integers(100, 1000, size=(9, 5)), rng.uniform(0.5, 2.0, 9)
    data = as_documents(X, weight)
    topics = _base.scattered(3, data, rng)
    assert topics.shape == (3, 5)
    np.testing.assert_allclose(topics.sum(axis=0), weight @ X)
    assert (topics > 0.0).all()
