"""Pickles, copies, and what stored pickles of older versions still say."""

import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import skvrem
from skvrem import VRGaussianMixture
from skvrem.mixture import _kernels
from skvrem.utils import _base
from skvrem.utils.discovery import all_estimators
from tests.pickles import make

PICKLES = Path(__file__).parent / "pickles"
ESTIMATORS = all_estimators()
EVERY = pytest.mark.parametrize(
    ("name", "estimator_class"), ESTIMATORS, ids=[name for name, _ in ESTIMATORS]
)
SOLVERS = ("batch", "stochastic", "svrg", "saga", "incremental")


@pytest.fixture
def X():
    rng = np.random.default_rng(0)
    return 4.0 * rng.integers(2, size=(600, 1)) + rng.normal(size=(600, 3))


def mixture(**params):
    return VRGaussianMixture(2, random_state=0, tol=1e-2, batch_size=100, **params)


def assert_same_state(a, b):
    """Every attribute is there in both, with the same bits and types."""
    assert type(a) is type(b)
    assert vars(a).keys() == vars(b).keys()
    for name, value in vars(a).items():
        assert_same_value(value, vars(b)[name], name)


def assert_same_value(a, b, name):
    assert type(a) is type(b), name
    if isinstance(a, np.ndarray):
        assert a.dtype == b.dtype, name
        np.testing.assert_array_equal(a, b, err_msg=name)
    elif isinstance(a, dict):
        assert a.keys() == b.keys(), name
        for key in a:
            assert_same_value(a[key], b[key], f"{name}[{key!r}]")
    elif isinstance(a, tuple | list):
        assert len(a) == len(b), name
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            assert_same_value(x, y, f"{name}[{i}]")
    else:
        assert a == b or a != a, name


def through_pickle(estimator, tmp_path, protocol):
    return pickle.loads(pickle.dumps(estimator, protocol=protocol))


def through_joblib(estimator, tmp_path, mmap_mode):
    joblib.dump(estimator, tmp_path / "estimator.joblib")
    return joblib.load(tmp_path / "estimator.joblib", mmap_mode=mmap_mode)


def through_skops(estimator, tmp_path, _):
    skops = pytest.importorskip("skops.io")
    data = skops.dumps(estimator)
    unknown = skops.get_untrusted_types(data=data)
    assert all(name.startswith("skvrem.") for name in unknown), unknown
    return skops.loads(data, trusted=unknown)


ROUND_TRIPS = pytest.mark.parametrize(
    ("through", "option"),
    [
        *((through_pickle, p) for p in range(2, pickle.HIGHEST_PROTOCOL + 1)),
        (through_joblib, None),
        (through_skops, None),
        (lambda estimator, *_: copy.deepcopy(estimator), None),
        (lambda estimator, *_: copy.copy(estimator), None),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)


# Round trips


@ROUND_TRIPS
@pytest.mark.parametrize("solver", SOLVERS)
def test_fitted_round_trip(through, option, solver, X, tmp_path):
    fitted = mixture(solver=solver).fit(X)
    again = through(fitted, tmp_path, option)
    assert_same_state(again, fitted)
    assert np.array_equal(again.predict_proba(X), fitted.predict_proba(X))
    # And it is whole: it can be fitted again, to the same.
    assert np.array_equal(again.fit(X).means_, fitted.means_)


@ROUND_TRIPS
@EVERY
def test_unfitted_round_trip(name, estimator_class, through, option, tmp_path):
    unfitted = estimator_class()
    again = through(unfitted, tmp_path, option)
    assert_same_state(again, unfitted)
    assert again.get_params() == unfitted.get_params()


@ROUND_TRIPS
@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
def test_stream_goes_on_bit_for_bit(through, option, covariance_type, X, tmp_path):
    params = {"solver": "stochastic", "covariance_type": covariance_type}
    whole, parts = mixture(**params), mixture(**params)
    for rows in np.array_split(X, 6):
        whole.partial_fit(rows)
        parts = through(parts.partial_fit(rows), tmp_path, option)
    assert_same_state(parts, whole)
    assert whole.n_samples_seen_ == len(X)


def test_stream_goes_on_after_a_pickled_fit(X):
    fitted = mixture().fit(X)
    again = pickle.loads(pickle.dumps(fitted))
    assert_same_state(again.partial_fit(X[:300]), fitted.partial_fit(X[:300]))


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
def test_loaded_as_read_only_memory_map(covariance_type, X, tmp_path):
    fitted = mixture(warm_start=True, covariance_type=covariance_type).fit(X)
    fitted.predict(X)
    compiled = n_compiled()
    mapped = through_joblib(fitted, tmp_path, "r")
    assert not mapped.means_.flags.writeable
    # Not to the bit: sums depend on where arrays begin in memory.
    same = {"rtol": 1e-10, "atol": 1e-10}
    proba = mapped.predict_proba(X)
    np.testing.assert_allclose(proba, fitted.predict_proba(X), **same)
    for method in ("partial_fit", "fit"):
        getattr(mapped, method)(X[:300])
        getattr(fitted, method)(X[:300])
        np.testing.assert_allclose(mapped.means_, fitted.means_, **same)
    # Read-only parameters must not be new types for which numba compiles again.
    assert n_compiled() == compiled


def n_compiled():
    kernels = vars(_kernels).values()
    return sum(len(getattr(kernel, "signatures", ())) for kernel in kernels)


def test_pickle_holds_no_data_and_no_machinery(X):
    # Five fits of growing data: what is stored does not grow, but for the history.
    sizes = []
    for n in (200, 600):
        fitted = mixture(solver="svrg", max_iter=5, n_init=2).fit(X[:n])
        fitted.history_ = {}
        sizes.append(len(pickle.dumps(fitted)))
    assert abs(sizes[1] - sizes[0]) < 100


@EVERY
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_clone_is_unfitted(name, estimator_class):
    estimator = make.fitted(name, estimator_class)
    cloned = clone(estimator)
    assert cloned.get_params() == estimator.get_params()
    assert not any(attribute.endswith("_") for attribute in vars(cloned))
    method = next(method for method in make.METHODS if hasattr(cloned, method))
    with pytest.raises(NotFittedError):
        getattr(cloned, method)(make.small_rows()[0])


def test_other_process_loads(X, tmp_path):
    fitted = mixture().fit(X)
    joblib.dump((fitted, X), tmp_path / "pair")
    code = (
        "import joblib, sys; estimator, X = joblib.load(sys.argv[1]);"
        "joblib.dump(estimator.predict_proba(X), sys.argv[2])"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "pair", tmp_path / "answer"],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "PYTHONPATH": str(PICKLES.parents[1])},
    )
    assert run.returncode == 0, run.stderr
    answer = joblib.load(tmp_path / "answer")
    np.testing.assert_array_equal(answer, fitted.predict_proba(X))


# Other versions


@EVERY
def test_another_state_format_names_both_versions(name, estimator_class, monkeypatch):
    with monkeypatch.context() as other:
        other.setattr(estimator_class, "_state_format", 99)
        other.setattr(_base, "__version__", "77.8.9")
        written = pickle.dumps(estimator_class())
    with pytest.raises(ValueError, match=r"77\.8\.9") as caught:
        pickle.loads(written)
    message = str(caught.value)
    assert skvrem.__version__ in message
    assert name in message
    assert "99" in message


@EVERY
def test_the_same_state_format_of_another_version_loads(
    name, estimator_class, monkeypatch
):
    with monkeypatch.context() as other:
        other.setattr(_base, "__version__", "77.8.9")
        written = pickle.dumps(estimator_class())
    assert_same_state(pickle.loads(written), estimator_class())


def test_a_state_without_a_format_is_refused():
    with pytest.raises(ValueError, match="unknown"):
        VRGaussianMixture().__setstate__({"n_components": 2})


def test_state_does_not_leak_the_versions(X):
    fitted = mixture().fit(X)
    before = set(vars(fitted))
    again = pickle.loads(pickle.dumps(fitted))
    assert set(vars(again)) == set(vars(fitted)) == before
    assert not any("skvrem" in attribute for attribute in before)


# Stored pickles


@EVERY
def test_stored_pickle_answers_as_it_did(name, estimator_class):
    path = PICKLES / f"{name}.pkl"
    assert path.exists(), f"no {path.name}: run python tests/pickles/make.py"
    assert path.stat().st_size < 20_000
    stored = pickle.loads(path.read_bytes())
    if stored["state_format"] != estimator_class._state_format:
        with pytest.raises(ValueError) as caught:
            pickle.loads(stored["estimator"])
        assert stored["version"] in str(caught.value)
        assert skvrem.__version__ in str(caught.value)
        return
    estimator = pickle.loads(stored["estimator"])
    assert type(estimator) is estimator_class
    assert estimator.get_params().keys() == estimator_class().get_params().keys()
    assert stored["answers"]
    for method, expected in stored["answers"].items():
        answer = getattr(estimator, method)(stored["X"])
        np.testing.assert_allclose(answer, expected, rtol=1e-6, atol=1e-12)


def test_stored_pickles_are_those_of_the_estimators():
    stored = {path.stem for path in PICKLES.glob("*.pkl")}
    assert stored == {name for name, _ in ESTIMATORS}


@EVERY
def test_stored_pickle_is_protocol_4(name, estimator_class):
    data = (PICKLES / f"{name}.pkl").read_bytes()
    assert data[:2] == b"\x80\x04"
    stored = pickle.loads(data)
    assert stored["estimator"][:2] == b"\x80\x04"
    assert stored["X"].dtype == np.float64
