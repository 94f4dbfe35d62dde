"""A fit of TemperedLDA happens or it does not, and says what it does meanwhile."""

import numpy as np
import pytest

from skvrem import TemperedLDA
from skvrem.solvers import SVRG, Batch, Stochastic
from skvrem.topics.lda._model import LDAModel
from tests.watching import Recorder, Untouched, fails_at, needs_callbacks

SOLVERS = {"batch": Batch, "stochastic": Stochastic, "svrg": SVRG}
STATES = pytest.mark.parametrize("state", ["new", "fitted", "stream"])
METHODS = pytest.mark.parametrize("method", ["fit", "partial_fit"])


@pytest.fixture
def X():
    rng = np.random.default_rng(0)
    words = np.kron(np.eye(2), np.full(5, 2.0)) + 0.1
    return rng.poisson(words[rng.integers(2, size=200)])


def make(state, X, **params):
    """An estimator that is new, fitted, or in the middle of a stream."""
    defaults = {"max_iter": 4, "tol": 0, "batch_size": 40}
    defaults |= {"n_components": 2, "random_state": 0}
    estimator = TemperedLDA(**(defaults | params))
    if state == "fitted":
        estimator.fit(X)
    elif state == "stream":
        estimator.partial_fit(X)
    return estimator


@STATES
@METHODS
def test_bad_counts_and_weights_leave_no_trace(method, state, X):
    estimator = make(state, X)
    untouched = Untouched(estimator)
    bad = [X - 1, np.where(X > 3, np.nan, X), X[:0], X[0], X + 1j, [["a", "b"]]]
    if method == "fit":  # an empty batch of a stream is skipped
        bad.append(0 * X)
    if state != "new" and method == "partial_fit":
        bad.append(X[:, :3])
    for counts in bad:
        with pytest.raises(ValueError):
            getattr(estimator, method)(counts)
        untouched.check()
    for weight in (np.ones(3), -np.ones(200), np.zeros(200), np.full(200, np.nan)):
        with pytest.raises(ValueError, match="sample_weight"):
            getattr(estimator, method)(X, sample_weight=weight)
        untouched.check()


@STATES
@METHODS
@pytest.mark.parametrize(
    "params",
    [
        {"n_components": 0},
        {"doc_topic_prior": 0.0},
        {"topic_word_prior": -1.0},
        {"solver": "magic"},
        {"temperature": 0.9},
        {"learning_decay": 0.6, "step_decay": 0.9},
        {"n_jobs": 0},
    ],
    ids=lambda params: next(iter(params)),
)
def test_bad_parameters_leave_no_trace(params, method, state, X):
    estimator = make(state, X).set_params(**params)
    untouched = Untouched(estimator)
    with pytest.raises(ValueError):
        getattr(estimator, method)(X)
    untouched.check()


@STATES
@pytest.mark.parametrize("solver", SOLVERS)
def test_an_interrupted_fit_leaves_no_trace(solver, state, X, monkeypatch):
    estimator = make(state, X, solver=solver)
    untouched = Untouched(estimator)
    begin, calls = fails_at(SOLVERS[solver].certify, 3, KeyboardInterrupt())
    with monkeypatch.context() as patched:
        patched.setattr(SOLVERS[solver], "certify", begin)
        with pytest.raises(KeyboardInterrupt):
            estimator.fit(X)
    assert len(calls) == 3
    untouched.check()


@STATES
def test_a_failed_step_of_a_stream_leaves_no_trace(state, X, monkeypatch):
    estimator = make(state, X)
    untouched = Untouched(estimator)
    update, _ = fails_at(LDAModel.update, 1, MemoryError())
    with monkeypatch.context() as patched:
        patched.setattr(LDAModel, "update", update)
        with pytest.raises(MemoryError):
            estimator.partial_fit(X)
    untouched.check()


@needs_callbacks
@pytest.mark.parametrize("tempering", [None, "annealed", "global", "local"])
def test_callbacks_get_an_estimator_that_answers(tempering, X):
    params = {"tempering": tempering, "annealing_iter": 2, "solver": "stochastic"}
    plain = make("new", X, **params).fit(X)
    recorder = Recorder(X)
    watched = make("new", X, **params).set_callbacks(recorder).fit(X)
    assert len(recorder.scores) == 4
    assert np.isfinite(recorder.scores).all()
    np.testing.assert_array_equal(plain.components_, watched.components_)
    assert set(vars(watched)) - set(vars(plain)) == {"_skl_callbacks"}


@needs_callbacks
def test_a_callback_ends_a_fit(X):
    estimator = make("new", X, max_iter=50).set_callbacks(Recorder(stop_at=3)).fit(X)
    assert estimator.n_iter_ == 3
    assert np.isfinite(estimator.score(X))
