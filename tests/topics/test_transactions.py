"""A fit of topics happens or it does not, and says what it does meanwhile."""

import contextlib
import copy
import re

import numpy as np
import pytest

from skvrem import VRPLSA, TemperedLDA
from skvrem.solvers import SVRG, Batch, Stochastic
from skvrem.utils._reports import Progress
from tests.watching import Recorder, Untouched, fails_at, needs_callbacks

SOLVERS = {"batch": Batch, "stochastic": Stochastic, "svrg": SVRG}
KINDS = pytest.mark.parametrize(
    "kind", [VRPLSA, TemperedLDA], ids=lambda kind: kind.__name__
)
STATES = pytest.mark.parametrize("state", ["new", "fitted", "stream"])
METHODS = pytest.mark.parametrize("method", ["fit", "partial_fit"])
EVERY_SOLVER = pytest.mark.parametrize("solver", list(SOLVERS))
quiet = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture
def X():
    rng = np.random.default_rng(0)
    words = np.kron(np.eye(2), np.full(5, 2.0)) + 0.1
    return rng.poisson(words[rng.integers(2, size=200)])


def new(kind, **params):
    defaults = {"n_components": 2, "n_init": 1, "random_state": 0, "tol": 0.0}
    return kind(**(defaults | {"max_iter": 4, "batch_size": 40} | params))


def make(kind, state, X, **params):
    """An estimator that is new, fitted, or in the middle of a stream."""
    estimator = new(kind, **params)
    if state == "fitted":
        estimator.set_params(tol=1e-2, max_iter=100).fit(X)
        estimator.set_params(**{"tol": 0.0, "max_iter": 4} | params)
    elif state == "stream":
        estimator.partial_fit(X)
    return estimator


@STATES
@METHODS
@KINDS
def test_bad_counts_and_weights_leave_no_trace(kind, method, state, X):
    estimator = make(kind, state, X)
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
    ("kind", "params"),
    [
        *((kind, {"n_components": 0}) for kind in (VRPLSA, TemperedLDA)),
        *((kind, {"solver": "magic"}) for kind in (VRPLSA, TemperedLDA)),
        *((kind, {"step_size": -1.0}) for kind in (VRPLSA, TemperedLDA)),
        *((kind, {"temperature": 0.9}) for kind in (VRPLSA, TemperedLDA)),
        *((kind, {"n_jobs": 0}) for kind in (VRPLSA, TemperedLDA)),
        (VRPLSA, {"n_components": 3, "doc_topic_smoothing": [1.0, 1.0]}),
        (VRPLSA, {"topic_word_smoothing": np.ones((2, 3))}),
        (TemperedLDA, {"doc_topic_prior": 0.0}),
        (TemperedLDA, {"topic_word_prior": -1.0}),
        (TemperedLDA, {"learning_decay": 0.6, "step_decay": 0.9}),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else value.__name__,
)
def test_bad_parameters_leave_no_trace(kind, params, method, state, X):
    estimator = make(kind, state, X).set_params(**params)
    untouched = Untouched(estimator)
    with pytest.raises(ValueError):
        getattr(estimator, method)(X)
    untouched.check()


@quiet
@STATES
@EVERY_SOLVER
@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError()])
@KINDS
def test_second_epoch_fails(kind, error, solver, state, X, monkeypatch):
    estimator = make(kind, state, X, solver=solver)
    untouched = Untouched(estimator)
    begin, calls = fails_at(SOLVERS[solver].certify, 2, error)
    with monkeypatch.context() as patched:
        patched.setattr(SOLVERS[solver], "certify", begin)
        with pytest.raises(type(error)):
            estimator.fit(X)
    assert len(calls) == 2
    untouched.check()
    again = estimator.fit(X).components_
    np.testing.assert_array_equal(
        again, make(kind, state, X, solver=solver).fit(X).components_
    )


@pytest.mark.parametrize("solver", ["svrg", "stochastic"])
@KINDS
def test_a_step_in_the_second_epoch_is_interrupted(kind, solver, X, monkeypatch):
    # Steps write to buffers: none of them may be an attribute of the estimator.
    estimator = make(kind, "fitted", X, solver=solver, warm_start=True)
    untouched = Untouched(estimator)
    estimate, calls = fails_at(SOLVERS[solver].estimate, 8, KeyboardInterrupt())
    monkeypatch.setattr(SOLVERS[solver], "estimate", estimate)
    with pytest.raises(KeyboardInterrupt):
        estimator.fit(X)
    assert len(calls) == 8  # of 5 an epoch
    untouched.check()


@STATES
@METHODS
@pytest.mark.parametrize("name", ["statistics", "update", "recentre"])
@KINDS
def test_model_fails(kind, name, method, state, X, monkeypatch):
    estimator = make(kind, state, X, solver="batch")
    untouched = Untouched(estimator)
    failing, calls = fails_at(getattr(kind._model, name), 1, KeyboardInterrupt())
    monkeypatch.setattr(kind._model, name, failing)
    with pytest.raises(KeyboardInterrupt):
        getattr(estimator, method)(X)
    assert calls
    untouched.check()


@KINDS
def test_second_start_fails(kind, X, monkeypatch):
    estimator = make(kind, "fitted", X, n_init=3)
    untouched = Untouched(estimator)
    failing, calls = fails_at(Progress.start, 2, KeyboardInterrupt())
    monkeypatch.setattr(Progress, "start", failing)
    with (
        pytest.raises(KeyboardInterrupt),
        contextlib.suppress(UserWarning),
    ):
        estimator.fit(X)
    assert len(calls) == 2
    untouched.check()


@KINDS
def test_partial_fit_does_not_write_to_what_was_there(kind, X):
    estimator = new(kind).partial_fit(X)
    objects = dict(vars(estimator))
    before = copy.deepcopy(objects)
    estimator.partial_fit(X)
    for name in objects.keys() - {"random_state_"}:
        np.testing.assert_equal(objects[name], before[name], err_msg=name)


@quiet
@KINDS
def test_verbose_lines(kind, X, capsys):
    new(kind, solver="batch").fit(X)
    assert capsys.readouterr() == ("", "")
    told = {"verbose": 1, "verbose_interval": 3}
    told["tempering"] = None  # of which a line says the temperature
    fitted = new(kind, solver="batch", max_iter=6, **told).fit(X)
    line = re.compile(
        rf"\[{kind.__name__}\] start 1/1, epoch (\d+), ([\d.]+) passes, [\d.e-]+ s: "
        r"objective (-[\d.]+)"
    )
    _, *said, _ = capsys.readouterr().out.splitlines()  # begins, ends
    found = [line.fullmatch(text) for text in said if "compiles" not in text]
    assert [int(match[1]) for match in found] == [1, 3, 6]
    for match in found:
        row = int(match[1])  # row 0 is the start
        expected = fitted.history_["objective"][row]
        assert float(match[3]) == pytest.approx(expected, abs=1e-5)


# scikit-learn's callbacks


@needs_callbacks
@quiet
@EVERY_SOLVER
@KINDS
def test_callback_sees_a_task_tree(kind, solver, X):
    recorder = Recorder()
    estimator = new(kind, solver=solver, n_init=2, max_iter=3).set_callbacks(recorder)
    estimator.fit(X)
    events = recorder.events
    assert (events[0], events[-1]) == ("setup", "teardown")
    for name, count in (("fit", 1), ("start", 2), ("epoch", 2 * estimator.n_iter_)):
        assert events.count(("begin", name)) == events.count(("end", name)) == count


@needs_callbacks
@quiet
@pytest.mark.parametrize(
    ("kind", "params"),
    [
        *((VRPLSA, {"solver": solver}) for solver in SOLVERS),
        *(
            (TemperedLDA, {"tempering": t, "annealing_iter": 2, "solver": "stochastic"})
            for t in (None, "annealed", "global", "local")
        ),
    ],
)
def test_callback_gets_an_estimator_that_answers(kind, params, X):
    recorder = Recorder(X)
    estimator = new(kind, max_iter=8, **params).set_callbacks(recorder).fit(X)
    assert len(recorder.scores) == estimator.n_iter_ == 8
    assert np.isfinite(recorder.scores).all()
    if kind is VRPLSA:
        assert recorder.scores[-1] > recorder.scores[0]
    # What it is given has no part in the fit.
    plain = new(kind, max_iter=8, **params).fit(X)
    np.testing.assert_array_equal(estimator.components_, plain.components_)
    assert set(vars(estimator)) - set(vars(plain)) == {"_skl_callbacks"}


@needs_callbacks
@EVERY_SOLVER
@KINDS
def test_callback_stops_early(kind, solver, X):
    recorder = Recorder(stop_at=3)
    estimator = new(kind, solver=solver, max_iter=50).set_callbacks(recorder).fit(X)
    assert estimator.n_iter_ == 3
    assert not estimator.converged_
    assert np.isfinite(estimator.score(X))
    assert recorder.events[-1] == "teardown"


@needs_callbacks
@STATES
@KINDS
def test_callback_interrupts(kind, state, X):
    recorder = Recorder(fail_at=2)
    estimator = make(kind, state, X).set_callbacks(recorder)
    untouched = Untouched(estimator)
    with pytest.raises(KeyboardInterrupt):
        estimator.fit(X)
    untouched.check()
    assert recorder.events[-1] == "teardown"
