"""Threads: the same bits for any number of them, and no hangs wherever they run."""

import os
import subprocess
import sys
import textwrap
import threading
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from joblib import Parallel, cpu_count, delayed

from skvrem import VRGaussianMixture
from skvrem.utils import _parallel
from skvrem.utils._parallel import effective_threads, parallel_map, row_chunks, threads

COVARIANCE_TYPES = ("full", "tied", "diag", "spherical")
SOLVERS = ("batch", "stochastic", "svrg", "saga", "incremental")
FITTED = ("weights_", "means_", "covariances_", "precisions_cholesky_")
THOROUGH = partial(pytest.param, marks=pytest.mark.thorough)


# n_jobs


def test_none_is_all_cores_and_negative_counts_down():
    n = cpu_count()
    assert effective_threads(None) == effective_threads(-1) == n
    assert effective_threads(-2) == max(1, n - 1)
    assert effective_threads(-10 * n) == 1
    for n_jobs in (1, 3, np.int64(3), 3.0):
        assert effective_threads(n_jobs) == n_jobs


@pytest.mark.parametrize("n_jobs", [0, 1.5, True, False, "two", np.nan, np.inf, [2]])
def test_what_n_jobs_cannot_be(n_jobs):
    with pytest.raises(ValueError, match="n_jobs must be"):
        effective_threads(n_jobs)


def test_estimator_checks_n_jobs(rng):
    estimator = VRGaussianMixture(n_jobs=0)
    X = rng.normal(size=(20, 2))
    with pytest.raises(ValueError, match="n_jobs must be"):
        estimator.fit(X)
    with pytest.raises(ValueError, match="n_jobs must be"):
        estimator.partial_fit(X)
    assert vars(estimator) == vars(VRGaussianMixture(n_jobs=0))


def test_threads_is_a_context_of_this_thread():
    seen = []
    with threads(3) as outer:
        with threads(1) as inner:
            seen.append((outer, inner))
        other = threading.Thread(target=lambda: seen.append(count_of_this_thread()))
        other.start()
        other.join()
        seen.append(count_of_this_thread())
    assert seen == [(3, 1), 1, 3]
    with pytest.raises(KeyError), threads(2):
        raise KeyError
    assert count_of_this_thread() == 1


def count_of_this_thread():
    return getattr(_parallel._state, "n_threads", 1)


# parallel_map


@pytest.mark.parametrize("n_threads", [1, 2, 5])
@pytest.mark.parametrize("n_items", [0, 1, 2, 50])
def test_parallel_map_keeps_the_order(n_threads, n_items):
    with threads(n_threads):
        assert list(parallel_map(str, range(n_items))) == list(map(str, range(n_items)))


def test_parallel_map_uses_that_many_threads():
    barrier = threading.Barrier(3, timeout=20)

    def meet(_):
        barrier.wait()  # passes only where three are here at once
        return threading.get_ident()

    with threads(3):
        names = list(parallel_map(meet, range(3)))
    assert len(set(names)) == 3


def test_parallel_map_reads_ahead_only_a_little():
    started = []
    with threads(2):
        results = parallel_map(started.append, range(1000))
        next(results)
        assert len(started) < 50
        results.close()
    assert len(started) < 50  # and drops what was not asked for


@pytest.mark.parametrize("n_threads", [1, 2])
def test_errors_come_through(n_threads):
    def fail(item):
        if item == 3:
            raise KeyError("three")
        return item

    with threads(n_threads):
        with pytest.raises(KeyError, match="three"):
            list(parallel_map(fail, range(50)))
        assert list(parallel_map(abs, range(50))) == list(range(50))


def test_nested_maps_are_serial_inside():
    def inner(i):
        names = set(parallel_map(lambda _: threading.get_ident(), range(20)))
        return names == {threading.get_ident()}

    with threads(2):
        assert all(parallel_map(inner, range(20)))


@pytest.mark.parametrize("n", [0, 1, 99, 100, 101, 12345])
def test_row_chunks_are_near_equal(n):
    chunks = row_chunks(7, 7 + n, 100)
    assert chunks[0][0] == 7 and chunks[-1][1] == 7 + n
    assert all(a[1] == b[0] for a, b in pairwise(chunks))
    sizes = [stop - start for start, stop in chunks]
    assert max(sizes) - min(sizes) <= 1
    assert len(chunks) == max(1, round(n / 100))


# The same bits for any n_jobs


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(0)
    # Several chunks of a pass (16384 rows), of a step (4096) and of an answer (8192).
    return 3.0 * rng.integers(3, size=(40_000, 1)) + rng.normal(size=(40_000, 3))


def fitted_with(X, n_jobs, method="fit", **params):
    estimator = VRGaussianMixture(
        3, n_jobs=n_jobs, random_state=0, max_iter=3, tol=0.0, batch_size=9000, **params
    )
    if method == "fit":
        return estimator.fit(X)
    for rows in np.array_split(X, 2):
        estimator.partial_fit(rows)
    return estimator


def assert_same_bits(estimators):
    first, *others = estimators
    for other in others:
        for name in FITTED:
            a, b = getattr(first, name), getattr(other, name)
            assert np.array_equal(a, b), f"{name}, n_jobs={other.n_jobs}"
        assert first.lower_bound_ == other.lower_bound_


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_fit_gives_the_same_bits(solver, covariance_type, X):
    params = {"solver": solver, "covariance_type": covariance_type}
    estimators = [fitted_with(X, n_jobs, **params) for n_jobs in (1, 2, 3, None)]
    assert_same_bits(estimators)
    expected = estimators[0].predict_proba(X)
    for estimator in estimators[1:]:
        assert np.array_equal(estimator.predict_proba(X), expected)


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_partial_fit_gives_the_same_bits(covariance_type, X):
    assert_same_bits(
        fitted_with(X, n_jobs, "partial_fit", covariance_type=covariance_type)
        for n_jobs in (1, 2, 3, None)
    )


@pytest.mark.parametrize("params", [{"acceleration": "squarem"}, {"n_init": 2}])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_other_fits_give_the_same_bits(params, X):
    weight = np.random.default_rng(1).uniform(size=len(X))
    fits = []
    for n_jobs in (1, 2, 3, None):
        estimator = VRGaussianMixture(3, random_state=0, max_iter=4, tol=0.0)
        estimator.set_params(n_jobs=n_jobs, solver="batch", **params)
        fits.append(estimator.fit(X, sample_weight=weight))
    assert_same_bits(fits)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_fits_in_several_threads_at_once(X):
    # They share the pools.
    expected = fitted_with(X, 2, solver="svrg")
    fits = [None] * 4

    def fit(i):
        fits[i] = fitted_with(X, 2, solver="svrg")

    workers = [threading.Thread(target=fit, args=(i,)) for i in range(len(fits))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert all(fit is not None for fit in fits)
    assert_same_bits([expected, *fits])


# Other processes. Each script has a process of its own, and a time limit.


def run_script(code, timeout=600):
    """Run a script; -W error as in pytest, but for what forking with threads says."""
    path = os.pathsep.join(p for p in sys.path if p)
    run = subprocess.run(
        [
            sys.executable,
            "-W",
            "error",
            "-W",
            "ignore:This process:DeprecationWarning",
            "-c",
            PREAMBLE + textwrap.dedent(code),
        ],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


PREAMBLE = """
import os, sys, threading, warnings
import numpy as np
from joblib import Parallel, delayed, parallel_config

from skvrem import VRGaussianMixture
from skvrem.utils import _parallel
from skvrem.utils._parallel import effective_threads, parallel_map, threads

rng = np.random.default_rng(0)
X = 4.0 * rng.integers(3, size=(20_000, 1)) + rng.normal(size=(20_000, 2))

def fit(n_jobs=2):
    return VRGaussianMixture(3, random_state=0, tol=1e-2, n_jobs=n_jobs).fit(X)
"""


def test_one_thread_inside_joblib_threads():
    with Parallel(n_jobs=2, backend="threading") as parallel:
        counts = parallel(delayed(effective_threads)(n) for n in (None, None, 2))
    assert counts == [1, 1, 2]
    assert effective_threads(None) == cpu_count()


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["loky", THOROUGH("multiprocessing")])
def test_one_thread_inside_joblib_processes(backend):
    out = run_script(f"""
        with Parallel(n_jobs=2, backend={backend!r}) as parallel:
            print(*parallel(delayed(effective_threads)(n) for n in (None, None, 2)))
    """)
    assert out.split() == ["1", "1", "2"]


@pytest.mark.slow
def test_a_task_of_the_pool_may_ask_for_threads():
    # Else every thread of the pool waits for tasks that no thread is left to run.
    run_script(
        """
        def inner(i):
            with threads(2):
                return sum(parallel_map(abs, range(20)))

        with threads(2):
            assert list(parallel_map(inner, range(20))) == [190] * 20
        """
    )


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@needs_fork
@pytest.mark.slow
def test_a_forked_child_can_fit():
    run_script("""
        expected = fit()
        assert _parallel._pools  # the parent has threads, which the child has not
        pid = os.fork()
        if pid == 0:
            try:
                child = fit()
                os._exit(not np.array_equal(child.means_, expected.means_))
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert np.array_equal(fit().means_, expected.means_)  # and the parent goes on
    """)


@needs_fork
@pytest.mark.slow
def test_a_child_forked_while_a_pool_is_made_can_map():
    run_script(
        """
        held, done = threading.Event(), threading.Event()

        def make_a_pool():
            with _parallel._lock:
                held.set()
                done.wait()

        other = threading.Thread(target=make_a_pool)
        other.start()
        held.wait()
        pid = os.fork()
        if pid == 0:
            import signal
            signal.alarm(120)
            with threads(2):
                os._exit(list(parallel_map(abs, range(9))) != list(range(9)))
        done.set()
        other.join()
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        """
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "backend", ["loky", THOROUGH("threading"), THOROUGH("multiprocessing")]
)
def test_grid_search_after_a_fit(backend):
    """As GridSearchCV(n_jobs=1) to the last bit, with pools alive in the parent."""
    run_script(f"""
        from sklearn.model_selection import GridSearchCV, KFold

        def search(n_jobs):
            grid = {{"covariance_type": ["full", "diag"], "n_components": [1, 3]}}
            estimator = VRGaussianMixture(random_state=0, tol=1e-2, max_iter=300)
            folds = KFold(2, shuffle=True, random_state=0)
            return GridSearchCV(
                estimator, grid, cv=folds, n_jobs=n_jobs, error_score="raise"
            ).fit(X)

        fit()
        assert _parallel._pools
        expected = search(n_jobs=1)
        with parallel_config(backend={backend!r}):
            found = search(n_jobs=2)
        assert found.best_params_ == expected.best_params_
        assert found.best_params_["n_components"] == 3
        for key, value in expected.cv_results_.items():
            if "test_score" in key:
                other = found.cv_results_[key]
                assert np.array_equal(other, value), (key, other, value)
        assert np.array_equal(
            found.best_estimator_.means_, expected.best_estimator_.means_
        )
        fit()
    """)
