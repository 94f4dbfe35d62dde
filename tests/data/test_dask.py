"""Fits and answers on dask arrays: the same as in memory, and nothing is loaded."""

import threading
import weakref
from collections import Counter

import numpy as np
import pytest

from skvrem import VRGaussianMixture
from skvrem.data import as_source, is_dask
from skvrem.utils._parallel import effective_threads

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")
_tasks = pytest.importorskip("skvrem.data._dask._tasks")

MINIBATCH = ("svrg", "saga", "incremental", "stochastic")
N, D, K = 6000, 3, 3
CHUNKS = (1000, 1700, 300, 2000, 1000)


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(0)
    labels = rng.integers(K, size=N)
    # Overlapping, so that EM needs some iterations; in no order of component.
    return (
        2.5 * labels[:, None] + rng.normal(size=(N, D)) * (1.0 + 0.3 * labels)[:, None]
    )


@pytest.fixture(scope="module")
def lazy(X):
    return da.from_array(X, chunks=(CHUNKS, D))


@pytest.fixture(scope="module")
def client():
    """Two worker processes of one thread each, as on two machines."""
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "60s"}),
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address="127.0.0.1:0",  # any free port
            memory_limit="1GiB",
        ) as cluster,
        distributed.Client(cluster, timeout=60, set_as_default=False) as client,
    ):
        client.wait_for_workers(2, timeout=60)
        yield client


@pytest.fixture(
    params=[
        "synchronous",
        "threads",
        pytest.param("processes", marks=pytest.mark.slow),
    ]
)
def scheduler(request):
    """Every test that takes it runs in this thread, in threads, and on the cluster."""
    if request.param != "processes":
        with dask.config.set(scheduler=request.param):
            yield request.param
    else:
        client = request.getfixturevalue("client")
        with client.as_current():
            assert dask.base.get_scheduler() == client.get
            yield request.param


@pytest.fixture
def synchronous():
    with dask.config.set(scheduler="synchronous"):
        yield


def mixture(**params):
    # One start, so that it is far from the end.
    defaults = {"n_init": 1, "random_state": 0, "tol": 1e-8, "max_iter": 500}
    return VRGaussianMixture(**({"n_components": K} | defaults | params))


@pytest.fixture(scope="module")
def optimum(X):
    """The fixed point of EM on the rows in memory."""
    return mixture(solver="batch", acceleration="squarem", tol=1e-12).fit(X)


def assert_same(a, b, **tolerances):
    for name in ("weights_", "means_", "covariances_"):
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), **tolerances)


# fit


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
def test_batch_equals_in_memory(covariance_type, scheduler, X, lazy):
    # Few iterations of a fit that is far from its end: errors would show.
    params = {"solver": "batch", "covariance_type": covariance_type, "tol": 1e-6}
    here, there = mixture(**params).fit(X), mixture(**params).fit(lazy)
    assert there.n_iter_ == here.n_iter_ > 3
    assert_same(there, here, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(there.lower_bounds_, here.lower_bounds_, rtol=1e-10)


def test_auto_makes_full_passes(synchronous, X, lazy):
    assert mixture(tol=1e-3).fit(lazy).solver_ == "batch+squarem"


@pytest.mark.parametrize("solver", MINIBATCH)
def test_minibatches_reach_the_optimum(solver, scheduler, X, lazy, optimum):
    params = {"tol": 1e-4} if solver == "stochastic" else {}
    fitted = mixture(solver=solver, batch_size=250, **params).fit(lazy)
    assert fitted.converged_
    # Stochastic EM ends near the optimum: its last steps are some hundredths.
    gap, close = (1e-3, 0.1) if solver == "stochastic" else (1e-7, 1e-3)
    order = np.argsort(fitted.means_[:, 0]), np.argsort(optimum.means_[:, 0])
    assert abs(fitted.score(X) - optimum.score(X)) < gap
    np.testing.assert_allclose(
        fitted.means_[order[0]], optimum.means_[order[1]], rtol=0, atol=close
    )


@pytest.mark.parametrize("solver", ["batch", *MINIBATCH])
def test_blocks_without_rows_change_nothing(solver, synchronous, X, optimum):
    empty = da.from_array(X, chunks=((0, *CHUNKS, 0), D))
    assert empty.numblocks[0] == len(CHUNKS) + 2
    fitted = mixture(solver=solver, batch_size=250, tol=1e-5).fit(empty)
    assert abs(fitted.score(X) - optimum.score(X)) < 1e-3
    assert len(fitted.predict(empty).compute()) == N


def test_unknown_chunk_sizes(scheduler, X, lazy):
    unknown = lazy[lazy[:, 0] < np.inf]
    assert np.isnan(unknown.chunks[0]).all()
    params = {"solver": "batch", "tol": 1e-3}
    fitted = mixture(**params).fit(unknown)
    assert_same(fitted, mixture(**params).fit(X), rtol=1e-9, atol=1e-9)
    assert np.isnan(unknown.chunks[0]).all()  # the caller's array is as it was
    proba = fitted.predict_proba(unknown).compute()
    np.testing.assert_allclose(proba, fitted.predict_proba(X), atol=1e-12)
    assert fitted.score(unknown) == pytest.approx(fitted.score(X), rel=1e-12)


def test_unknown_chunk_sizes_with_weights(synchronous, X, lazy):
    weight = np.random.default_rng(1).uniform(size=N)
    unknown = lazy[lazy[:, 0] < np.inf]
    params = {"solver": "batch", "tol": 1e-3}
    here = mixture(**params).fit(X, sample_weight=weight)
    there = mixture(**params).fit(unknown, sample_weight=weight)
    assert_same(there, here, rtol=1e-9, atol=1e-9)


def test_several_column_chunks(scheduler, X):
    columns = da.from_array(X, chunks=(1500, 1))
    assert columns.numblocks == (4, 3)
    params = {"solver": "batch", "tol": 1e-3}
    here, there = mixture(**params).fit(X), mixture(**params).fit(columns)
    assert_same(there, here, rtol=1e-9, atol=1e-9)
    labels = there.predict(columns)
    assert labels.chunks == ((1500,) * 4,)
    assert np.array_equal(labels.compute(), here.predict(X))
    np.testing.assert_allclose(there.score_samples(columns), here.score_samples(X))


@pytest.mark.parametrize("dtype", [np.int16, np.int64, np.uint8, bool])
def test_integers_become_float64(dtype, synchronous):
    rng = np.random.default_rng(0)
    X = rng.integers(2 if dtype is bool else 50, size=(600, 2)).astype(dtype)
    params = {"n_components": 2, "solver": "batch", "tol": 1e-3, "reg_covar": 1e-2}
    here = mixture(**params).fit(X)
    there = mixture(**params).fit(da.from_array(X, chunks=(200, 2)))
    assert there.means_.dtype == np.float64
    assert_same(there, here, rtol=1e-9, atol=1e-9)
    assert there.score_samples(da.from_array(X, chunks=(200, 2))).dtype == np.float64


def test_float32_stays_float32(synchronous, X, lazy):
    params = {"solver": "batch", "tol": 1e-3}
    there = mixture(**params).fit(lazy.astype(np.float32))
    assert there.means_.dtype == np.float32
    assert_same(there, mixture(**params).fit(X), rtol=1e-3, atol=1e-3)
    density = there.score_samples(lazy.astype(np.float32))
    assert density.dtype == density.compute().dtype == np.float32


@pytest.mark.parametrize("solver", ["batch", "saga"])
@pytest.mark.parametrize("kind", ["numpy", "dask"])
def test_sample_weight(kind, solver, scheduler, X, lazy):
    weight = np.random.default_rng(1).integers(4, size=N).astype(float)
    given = weight if kind == "numpy" else da.from_array(weight, chunks=(CHUNKS,))
    params = {"solver": solver, "batch_size": 250}
    here = mixture(**params).fit(X, sample_weight=weight)
    there = mixture(**params).fit(lazy, sample_weight=given)
    tolerance = 1e-9 if solver == "batch" else 1e-3
    order = np.argsort(here.means_[:, 0]), np.argsort(there.means_[:, 0])
    np.testing.assert_allclose(
        there.means_[order[1]], here.means_[order[0]], rtol=0, atol=tolerance
    )
    score = there.score(lazy, sample_weight=given)
    assert score == pytest.approx(there.score(X, sample_weight=weight), rel=1e-12)
    assert abs(score - there.score(X)) > 1e-4  # the weights do make a difference


def test_partial_fit(scheduler, X, lazy):
    here, there = mixture(solver="stochastic"), mixture(solver="stochastic")
    for start in range(0, N, 2000):
        rows = slice(start, start + 2000)
        here.partial_fit(X[rows])
        there.partial_fit(lazy[rows])
    assert there.n_samples_seen_ == here.n_samples_seen_ == N
    assert there.step_size_ == here.step_size_
    assert_same(there, here, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("solver", ["batch", "saga"])
def test_bad_number_in_a_block(value, method, solver, synchronous, X):
    spoilt = X.copy()
    spoilt[4321, 1] = value
    estimator = mixture(solver=solver)
    with pytest.raises(ValueError, match="NaN" if np.isnan(value) else "infinity"):
        getattr(estimator, method)(da.from_array(spoilt, chunks=(CHUNKS, D)))
    assert not hasattr(estimator, "weights_")
    assert not hasattr(estimator, "n_features_in_")


def test_bad_number_in_a_block_of_a_worker(client, X):
    spoilt = X.copy()
    spoilt[4321, 1] = np.inf
    with client.as_current(), pytest.raises(ValueError, match="infinity"):
        mixture(solver="batch").fit(da.from_array(spoilt, chunks=(CHUNKS, D)))


def test_missing_values_are_integrated_out(scheduler, X):
    holed = X.copy()
    holed[np.random.default_rng(2).uniform(size=X.shape) < 0.1] = np.nan
    lazy = da.from_array(holed, chunks=(CHUNKS, D))
    params = {"solver": "batch", "covariance_type": "diag", "tol": 1e-3}
    here, there = mixture(**params).fit(holed), mixture(**params).fit(lazy)
    assert_same(there, here, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(there.predict_proba(lazy), here.predict_proba(holed))


def test_what_cannot_be_fitted(synchronous, lazy):
    with pytest.raises(ValueError, match="2-dimensional"):
        mixture().fit(da.zeros((10, 2, 2)))
    with pytest.raises(ValueError, match="numeric"):
        mixture().fit(da.from_array(np.array([["a", "b"]] * 9)))
    with pytest.raises(ValueError, match="n_samples = 2"):
        mixture().fit(lazy[:2])
    with pytest.raises(ValueError, match="features"):
        mixture(tol=0.1).fit(lazy).predict(lazy[:, :2])


def test_same_bits_twice(scheduler, lazy):
    # Arrival order of what the workers send must not matter.
    params = {"solver": "saga", "batch_size": 500, "max_iter": 4, "tol": 0.0}
    fits = [mixture(**params).fit(lazy) for _ in range(2)]
    assert_same(*fits, rtol=0, atol=0)


# Answers


def test_answers_are_lazy(scheduler, X, lazy, optimum):
    answers = {
        "predict": (np.int64, (CHUNKS,)),
        "predict_proba": (np.float64, (CHUNKS, (K,))),
        "score_samples": (np.float64, (CHUNKS,)),
    }
    for method, (dtype, chunks) in answers.items():
        answer = getattr(optimum, method)(lazy)
        assert is_dask(answer), method
        assert answer.dtype == dtype, method
        assert answer.chunks == chunks, method
        assert isinstance(answer._meta, np.ndarray)
        assert (answer._meta.dtype, answer._meta.ndim) == (dtype, len(chunks)), method
        computed = answer.compute()
        assert computed.dtype == dtype, method
        expected = getattr(optimum, method)(X)
        np.testing.assert_allclose(computed, expected, rtol=1e-10, atol=1e-12)


def test_score_bic_aic_reduce(scheduler, X, lazy, optimum):
    for method in ("score", "bic", "aic"):
        value = getattr(optimum, method)(lazy)
        assert isinstance(value, float)
        assert value == pytest.approx(getattr(optimum, method)(X), rel=1e-12)


def test_asking_computes_nothing(lazy, optimum):
    def refuse(dsk, keys, **kwargs):
        raise AssertionError("computed")

    with dask.config.set(scheduler=refuse):
        for method in ("predict", "predict_proba", "score_samples"):
            getattr(optimum, method)(lazy)
        with pytest.raises(AssertionError, match="computed"):
            optimum.score(lazy)  # the scheduler is the one that is used


def test_fit_predict(synchronous, X, lazy):
    params = {"solver": "batch", "tol": 1e-3}
    labels = mixture(**params).fit_predict(lazy)
    assert is_dask(labels)
    assert np.array_equal(labels.compute(), mixture(**params).fit_predict(X))


# How much is read, and kept


class Blocks:
    """Makes random blocks, counts how often, and how many are alive at once."""

    def __init__(self, n_blocks, n_rows):
        self.made, self.alive, self.peak = Counter(), 0, 0
        self.lock = threading.Lock()
        one = da.zeros((n_blocks * n_rows, D), chunks=(n_rows, D))
        self.array = one.map_blocks(self.make, dtype=float, meta=np.empty((0, 0)))

    def make(self, zeros, block_info=None):
        number = block_info[0]["chunk-location"][0]
        rng = np.random.default_rng(number)
        shift = 4.0 * rng.integers(2, size=(len(zeros), 1))
        rows = rng.normal(size=zeros.shape) + shift
        with self.lock:
            self.made[number] += 1
            self.alive += 1
            self.peak = max(self.peak, self.alive)
        weakref.finalize(rows, self.gone)
        return rows

    def gone(self):
        with self.lock:
            self.alive -= 1


@pytest.mark.parametrize("solver", ["batch", *MINIBATCH])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_array_is_never_loaded(solver, synchronous):
    blocks = Blocks(40, 300)
    fitted = mixture(
        n_components=2, solver=solver, batch_size=100, max_iter=2, tol=0.0
    ).fit(blocks.array)
    # Minibatches come from two blocks at a time while the next two are fetched.
    assert 1 <= blocks.peak <= (2 if solver == "batch" else 5)
    assert blocks.alive == 0
    fitted.score(blocks.array)
    assert blocks.peak <= 5
    # The check of the numbers and the sample for the start read everything once, then
    # every pass that the history counts; the k-means of the start runs on the sample.
    passes = fitted.history_["passes"]
    reads = 2 + 1 + 1 + round(passes[-1] - passes[0])
    assert set(blocks.made) == set(range(40))
    assert set(blocks.made.values()) <= set(range(reads - 1, reads + 2))


class Tasks(dask.callbacks.Callback):
    """Counts the tasks that local schedulers run."""

    def __init__(self):
        self.n = 0

    def _pretask(self, key, dsk, state):
        self.n += 1


@pytest.mark.parametrize("solver", MINIBATCH)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_tasks_of_an_epoch_go_by_visits(solver, synchronous, lazy):
    """A few a visit, whatever has been visited before."""
    lazy = lazy + 0.0  # rows in the graph itself would be read without a task

    def count(batch_size, max_iter):
        estimator = mixture(solver=solver, batch_size=batch_size, tol=0.0)
        with Tasks() as tasks:
            estimator.set_params(max_iter=max_iter).fit(lazy)
        assert estimator.n_iter_ == max_iter
        return tasks.n

    for n_visits in (6, 60):
        size = N // n_visits
        first, later = count(size, 2), count(size, 4) - count(size, 2)
        assert 0 < later <= 2 * first
        # What a visit makes, keeps and moves; what is done with each block.
        assert later / 2 <= 8 * n_visits + 15 * lazy.numblocks[0]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_tasks_of_a_pass_go_by_blocks(synchronous, lazy):
    def count(max_iter):
        estimator = mixture(solver="batch", tol=0.0, max_iter=max_iter)
        with Tasks() as tasks:
            estimator.fit(lazy)
        return tasks.n

    assert 0 < (count(4) - count(2)) / 2 <= 3 * lazy.numblocks[0]


def test_graph_of_a_pass_is_small(client):
    """Parameters travel once a pass, not once a block: dask warns of large graphs."""
    rng = np.random.default_rng(0)
    k, d = 20, 50
    lazy = da.from_array(rng.normal(size=(2000, d)), chunks=(50, d))
    estimator = mixture(
        n_components=k,
        solver="batch",
        init_params="random_from_data",
        tol=1.0,
        reg_covar=0.1,
    )
    # Warnings are errors here: "Sending large graph of size ...".
    with client.as_current():
        estimator.fit(lazy)


def test_partition_of_a_dask_array(synchronous, X, lazy, rng):
    source = as_source(lazy, np.arange(N, dtype=float))
    partition = source.blocks(60, rng)
    batches = list(partition.map(lambda batch: batch))
    assert len(batches) == len(partition)
    assert abs(len(batches) - 60) <= 3
    assert [batch.block for batch in batches] == list(range(len(batches)))
    rows = np.concatenate([batch.rows[batch.ids] for batch in batches])
    assert np.array_equal(np.sort(rows, axis=0), np.sort(X, axis=0))
    weights = np.concatenate([batch.weight[batch.ids] for batch in batches])
    assert np.array_equal(np.sort(weights), np.arange(N))
    visited = [batch.block for batch in partition.shuffled(rng)]
    assert sorted(visited) == list(range(len(batches)))
    assert visited != sorted(visited)
    # A block is cut into the same minibatches wherever and whenever it is read.
    for visit in partition.shuffled(rng):
        batch = partition.visit(lambda batch, entry: batch, visit)
        known = batches[visit.block]
        assert visit.total_weight == known.total_weight
        assert np.array_equal(batch.rows[batch.ids], known.rows[known.ids])
        assert np.array_equal(batch.weight[batch.ids], known.weight[known.ids])


def test_sample_of_a_dask_array(synchronous, X, lazy, rng):
    weight = np.arange(N, dtype=float)
    sample = as_source(lazy, weight).sample(500, rng)
    rows = sample.rows[sample.ids]
    assert len(rows) == 500
    where = sample.weight[sample.ids].astype(int)  # weights name the rows here
    assert len(np.unique(where)) == 500
    assert np.array_equal(rows, X[where])
    assert len(np.unique(np.searchsorted(np.cumsum(CHUNKS), where, "right"))) == 5


# Workers


def test_a_worker_uses_one_thread(client):
    assert client.submit(effective_threads, None, pure=False).result(60) == 1
    assert client.submit(effective_threads, 2, pure=False).result(60) == 2
    assert effective_threads(None) > 1 or effective_threads(-1) == 1


def _fit_small(X):
    return VRGaussianMixture(2, random_state=0, tol=0.1).fit(X).means_


def test_fit_inside_a_worker(client, X):
    there = client.submit(_fit_small, X[:500], pure=False).result(60)
    # Not the same bits: BLAS has one thread there.
    np.testing.assert_allclose(there, _fit_small(X[:500]), rtol=1e-9)


# What is no array of dense chunks

METHODS = ("fit", "partial_fit", "predict", "predict_proba", "score", "score_samples")
METHODS += ("aic", "bic", "fit_predict")


@pytest.mark.parametrize("method", METHODS)
def test_series_are_refused_with_advice(method, X, optimum):
    dd = pytest.importorskip("dask.dataframe")
    pd = pytest.importorskip("pandas")
    frame = dd.from_pandas(pd.DataFrame(X[:40], columns=list("abc")), npartitions=2)
    with pytest.raises((ValueError, TypeError), match=r"dimension|X.to_frame\(\)"):
        getattr(optimum, method)(frame["a"])


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("method", METHODS)
def test_sparse_chunks_are_refused_with_advice(method, known, synchronous, X, optimum):
    sparse = pytest.importorskip("scipy.sparse")
    dense = da.from_array(X[:40], chunks=(20, -1))
    meta = sparse.csr_matrix((0, 0)) if known else np.empty((0, 0))
    lazy = dense.map_blocks(sparse.csr_matrix, meta=meta)
    message = r"chunks of X are sparse .* X.map_blocks\(lambda block: block.toarray"
    with pytest.raises(TypeError, match=message):
        answer = getattr(optimum, method)(lazy)
        answer.compute()


def test_unknown_sizes_of_columns(X, optimum):
    lazy = da.from_array(X[:40], chunks=(20, -1))
    lazy = lazy[:, da.from_array(np.ones(X.shape[1], bool))]
    with pytest.raises(ValueError, match="compute_chunk_sizes"):
        optimum.predict(lazy)


@pytest.mark.parametrize("longest", [1, 64, 1 << 22])
def test_parts_that_are_sent_in_several_messages_are_all_of_the_array(
    monkeypatch, longest
):
    monkeypatch.setattr(_tasks, "MESSAGE", longest)
    array, edges = np.arange(40.0).reshape(20, 2), [0, 3, 4, 11, 11, 20]
    with dask.config.set(scheduler="synchronous"):
        sent = dask.compute(*_tasks.kept_slices(array, edges))
    assert [len(part) for part in sent] == np.diff(edges).tolist()
    np.testing.assert_array_equal(np.concatenate(sent), array)
