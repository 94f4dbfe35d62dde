"""Minibatches of documents of dask: the fits of the same minibatches in memory."""

import pickle
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp

from skvrem import VRPLSA, TemperedLDA, solvers
from skvrem.data._batch import MemoryPartition
from skvrem.topics._blocks import open_documents
from skvrem.topics._documents import DocumentSource, as_documents
from skvrem.topics._model import SomeWords, WordSums
from skvrem.topics._model_arrays import pad
from skvrem.topics.plsa._blocks import BlockPLSAModel
from skvrem.utils._algebra import accumulate, scale
from tests.watching import Killing, two_workers

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
N, V, K = 400, 90, 4
CHUNKS = (100, 0, 180, 120)
PLAIN = {"random_state": 0, "max_iter": 6, "tol": 0.0, "batch_size": 25, "n_init": 1}
MAKE = {
    "plsa": lambda **more: VRPLSA(K, **PLAIN | more),
    "plsa, annealed": lambda **more: VRPLSA(
        K, **PLAIN | {"tempering": "annealed", "annealing_iter": 3} | more
    ),
    "lda": lambda **more: TemperedLDA(K, **PLAIN | {"e_step": "mean_field"} | more),
    "collapsed": lambda **more: TemperedLDA(K, **PLAIN | {"max_iter": 12} | more),
    "priors": lambda **more: TemperedLDA(
        K,
        **PLAIN
        | {"doc_topic_prior": "learn", "topic_word_prior": "learn", "max_iter": 12}
        | more,
    ),
}
KINDS = pytest.mark.parametrize("kind", list(MAKE))
SOLVERS = pytest.mark.parametrize("solver", ["svrg", "stochastic"])


@pytest.fixture(autouse=True)
def synchronous():
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(0)
    topics, shares = rng.dirichlet(np.full(V, 0.1), K), rng.dirichlet(np.ones(K), N)
    counts = [rng.multinomial(rng.integers(10, 60), own @ topics) for own in shares]
    counts = np.stack(counts).astype(float)  # in which sums are made in double
    counts[7] = 0.0
    return counts


def blocks(X, sparse=True):
    lazy = da.from_array(X, chunks=(CHUNKS, V))
    return lazy.map_blocks(sp.csr_matrix) if sparse else lazy


def remote(X, weight=None):
    return open_documents(blocks(X), weight, np.float64, lambda rows: None)


class Twin(MemoryPartition):
    """The batches of a partition on dask, of documents in memory, in its order."""

    def __init__(self, here, there):
        self.there, batches = there.partition, []
        edges = self.there.source.edges
        for cut, (start, stop) in zip(self.there.cuts, pairwise(edges), strict=True):
            if cut.n_batches:
                index = (cut.index(stop - start) + start).astype(np.int32)
                for i, (a, b) in enumerate(pairwise(cut.edges(stop - start))):
                    batches.append(here.compact(index[a:b], cut.first + i))
        super().__init__(batches, there.total_weight)

    def shuffled(self, rng):
        for visit in self.there.shuffled(rng):
            yield self.batches[visit.block]


@pytest.fixture
def twins(monkeypatch):
    """Let fits in memory have the minibatches of a dask array."""

    def use(there):
        monkeypatch.setattr(
            DocumentSource,
            "blocks",
            lambda self, n, rng: Twin(self, there.blocks(n, rng)),
        )

    return use


def assert_same(here, there, rtol=1e-9):
    assert there.solver_ == here.solver_ and there.n_iter_ == here.n_iter_
    for name in ("components_", "topic_shares_", "objective_", "n_tokens_seen_"):
        one, other = getattr(here, name), getattr(there, name)
        atol = rtol * np.max(np.abs(one))
        np.testing.assert_allclose(other, one, rtol=rtol, atol=atol)


@KINDS
@SOLVERS
def test_fits_are_those_of_the_same_minibatches_in_memory(X, twins, kind, solver):
    there = MAKE[kind](solver=solver).fit(blocks(X))
    twins(remote(X))
    here = MAKE[kind](solver=solver).fit(X)
    assert_same(here, there)
    for name in ("doc_topic_prior_", "topic_word_prior_"):
        if hasattr(here, name):
            one, other = getattr(here, name), getattr(there, name)
            np.testing.assert_allclose(other, one, rtol=1e-9)


@KINDS
@SOLVERS
def test_weights(X, twins, kind, solver):
    weight = np.random.default_rng(1).integers(0, 3, N) + 0.0
    there = MAKE[kind](solver=solver).fit(blocks(X), sample_weight=weight)
    twins(remote(X, weight))
    assert_same(MAKE[kind](solver=solver).fit(X, sample_weight=weight), there)


@pytest.mark.parametrize("kind", ["plsa", "lda", "collapsed"])
def test_priors_word_by_word_and_given_topics(X, twins, kind):
    """Where arrays as large as the topics are needed of the words of a batch."""
    rng = np.random.default_rng(2)
    name = "topic_word_smoothing" if kind == "plsa" else "topic_word_prior"
    topics = rng.dirichlet(np.full(V, 0.5), K)
    more = {name: rng.uniform(0.05, 0.5, (K, V)), "components_init": topics}
    there = MAKE[kind](solver="svrg", **more).fit(blocks(X, sparse=False))
    twins(remote(X))
    here = MAKE[kind](solver="svrg", **more).fit(X)
    assert_same(here, there)


@pytest.mark.parametrize("kind", ["plsa", "lda", "collapsed"])
def test_fits_end_where_those_of_memory_do(X, kind):
    more = {"solver": "svrg", "max_iter": 300, "tol": 1e-5}
    there, here = MAKE[kind](**more).fit(blocks(X)), MAKE[kind](**more).fit(X)
    assert there.converged_ and there.n_iter_ < 300
    assert abs(there.objective_ - here.objective_) < 2e-3
    # Collapsed objectives overshoot at first, as begun anew from topics alone.
    full = MAKE[kind](solver="batch", warm_start=True, tol=1e-5, max_iter=60)
    vars(full).update({k: v for k, v in vars(there).items() if k.endswith("_")})
    full._sums = there._sums
    full.fit(X)
    assert full.objective_ < there.objective_ + 2e-3


def test_an_estimate_is_unbiased(X):
    """Over the visits of an epoch corrections average to what batch would change."""
    rng, data = np.random.default_rng(0), remote(X)
    n_tokens = data.total_weight
    model = BlockPLSAModel(np.full(K, 0.1), np.array(0.1), n_tokens, np.float64, 1)
    topics = rng.dirichlet(np.ones(V), K).T
    solver = solvers.SVRG(12)
    solver.start(model, data, rng)
    point = model.recentre(model.start((topics, model.uniform(N))))
    anchor = solver.certify(point, 1.0)
    moved = model.update(point, anchor.mean, None, 1.0)
    total, n = None, 0
    for visit in solver.visits(rng):
        mean, change = solver.estimate(visit, moved)
        total, n = accumulate(total, change), n + 1
    found = accumulate(scale(total, 1.0 / n), mean)
    exact = scale(
        data.chunks().sum(partial(model.statistics, moved, beta=1.0)), 1.0 / n_tokens
    )
    assert n == len(solver.partition) > 3
    np.testing.assert_allclose(found.sum_z, exact.sum_z, atol=1e-12)


def test_a_visit_is_told_the_words_of_its_batch(X):
    """And no others: what travels is as large as they are, not the vocabulary."""
    wide = np.hstack([X, np.zeros((N, 20_000))])
    wide[3, -1] = 1.0
    data = remote_of(wide)
    rng = np.random.default_rng(0)
    model = BlockPLSAModel(np.full(K, 0.1), np.array(0.1), 1e4, np.float64, 1)
    topics = rng.dirichlet(np.ones(wide.shape[1]), K).T
    point = model.recentre(model.start((topics, model.uniform(N))))
    partition = data.blocks(12, rng)
    batches = as_documents(wide)
    for visit in partition.shuffled(rng):
        cut = partition.partition.cuts[visit.where.part]
        start = partition.partition.source.edges[visit.where.part]
        edges = cut.edges(CHUNKS[visit.where.part])
        ids = cut.index(CHUNKS[visit.where.part]) + start
        ids = ids[edges[visit.where.number] : edges[visit.where.number + 1]]
        batch = batches.compact(ids.astype(np.int32), 0)
        np.testing.assert_array_equal(visit.words, batch.rows.words)
        assert visit.total_weight == batch.total_weight
        reduced = model.for_batches(point, visit)._replace(own=None)
        assert len(pickle.dumps(reduced)) < 2000 + 3 * 8 * 16 * len(visit.words)


def remote_of(X):
    lazy = da.from_array(X, chunks=(CHUNKS, X.shape[1])).map_blocks(sp.csr_matrix)
    return open_documents(lazy, None, np.float64, lambda rows: None)


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("based", [False, True])
def test_some_words_give_the_parameters_of_all(given, based):
    rng = np.random.default_rng(0)
    array, prior = rng.uniform(size=(2, V, K))
    array, prior = pad(array, np.float64), pad(prior, np.float64)
    sums = WordSums.of(array, 0.5, array + 1.0 if given else None)
    if based:
        sums = WordSums.of(array).step(array * 2.0, None, 0.3)
        sums = sums._replace(given=array + 1.0 if given else None)
    inverse = rng.uniform(1.0, 2.0, array.shape[1])
    words = np.array([3, 17, 60], np.int32)
    some = SomeWords.of(sums, words)
    assert some.n_features == V
    np.testing.assert_array_equal(some.totals, sums.totals)
    for one in (prior, prior[:1]):
        want = sums.parameters(words, 3.0, one, inverse)
        found = some.parameters(words, 3.0, one, inverse)
        np.testing.assert_allclose(found, want, rtol=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plsa", "collapsed"])
def test_a_killed_worker_changes_nothing(X, kind):
    """What documents had beside them, and sums, are made again where they were lost."""
    with two_workers() as client:
        lazy, watch = client.persist(blocks(X, sparse=False)), Killing(client)
        client.compute(lazy.sum()).result()
        there = MAKE[kind](solver="svrg", batch_size=60)
        there.set_callbacks(watch)
        there.fit(lazy)
        assert watch.killed
    again = MAKE[kind](solver="svrg", batch_size=60).fit(blocks(X, sparse=False))
    assert_same(again, there)
