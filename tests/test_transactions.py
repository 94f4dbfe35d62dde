"""A fit happens or it does not: failures leave no trace; what a fit says meanwhile."""

import os
import re
import signal
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from skvrem import VRHMM, VRPLSA, FactorialMixture, TemperedLDA, VRGaussianMixture
from skvrem.mixture._model import GaussianMixtureModel
from skvrem.solvers import BY_NAME, Batch, Squarem
from skvrem.utils import _reports
from tests.watching import Recorder, Untouched, callbacks, fails_at, needs_callbacks

SOLVERS = {"batch": Batch, **BY_NAME}


@pytest.fixture
def X():
    rng = np.random.default_rng(0)
    return 3.0 * rng.integers(2, size=(500, 1)) + rng.normal(size=(500, 2))


def mixture(**params):
    # One start, so that its first epochs have something to do.
    defaults = {"n_init": 1, "random_state": 0, "tol": 1e-12, "max_iter": 5}
    return VRGaussianMixture(**({"n_components": 2} | defaults | params))


def make(state, X, **params):
    """An estimator that is new, fitted, or in the middle of a stream."""
    estimator = mixture(**params)
    if state == "fitted":
        estimator.set_params(tol=1e-2, max_iter=100).fit(X)
        estimator.set_params(**{"tol": 1e-12, "max_iter": 5} | params)
    elif state == "stream":
        estimator.partial_fit(X)
    return estimator


STATES = pytest.mark.parametrize("state", ["new", "fitted", "stream"])
METHODS = pytest.mark.parametrize("method", ["fit", "partial_fit"])


# Failures before the first step


def bad_rows(X):
    def spoil(value):
        spoilt = X.copy()
        spoilt[77, 1] = value
        return spoilt

    return {
        "NaN": spoil(np.nan),
        "infinity": spoil(np.inf),
        "1 dimension": X[:, 0],
        "words": np.array([["a", "b"]] * 10),
        "complex": X + 1j,
        "few": X[:1],
        "none": X[:0],
        "no features": X[:, :0],
    }


@STATES
@METHODS
@pytest.mark.parametrize("kind", list(bad_rows(np.zeros((100, 2)))))
def test_bad_rows(kind, method, state, X):
    if kind == "few" and method == "partial_fit" and state != "new":
        pytest.skip("a stream that has begun may bring single rows")
    estimator = make(state, X)
    untouched = Untouched(estimator)
    with pytest.raises(ValueError):
        getattr(estimator, method)(bad_rows(X)[kind])
    untouched.check()


@STATES
@METHODS
def test_bad_weights(method, state, X):
    estimator = make(state, X)
    untouched = Untouched(estimator)
    weights = [np.ones(3), -np.ones(len(X)), np.zeros(len(X)), np.full(len(X), np.nan)]
    for weight in weights:
        with pytest.raises(ValueError, match="sample_weight"):
            getattr(estimator, method)(X, sample_weight=weight)
        untouched.check()


@STATES
@METHODS
@pytest.mark.parametrize(
    "params",
    [
        {"n_components": 0},
        {"covariance_type": "round"},
        {"solver": "magic"},
        {"step_size": -1.0},
        {"n_jobs": 0},
        {"random_state": "seven"},
    ],
    ids=str,
)
def test_bad_parameters(params, method, state, X):
    estimator = make(state, X).set_params(**params)
    untouched = Untouched(estimator)
    with pytest.raises(ValueError):
        getattr(estimator, method)(X)
    untouched.check()


@pytest.mark.parametrize("state", ["new", "fitted"])
@pytest.mark.parametrize(
    "params",
    [
        {"means_init": np.zeros((3, 3))},
        {"weights_init": np.array([0.5, 0.6])},
        {"precisions_init": np.zeros((2, 2, 2))},
    ],
    ids=lambda params: next(iter(params)),
)
def test_bad_starting_values(params, state, X):
    estimator = make(state, X).set_params(**params)
    untouched = Untouched(estimator)
    with pytest.raises(ValueError, match=next(iter(params))):
        estimator.fit(X)
    untouched.check()


@pytest.mark.parametrize("state", ["fitted", "stream"])
def test_stream_of_another_width(state, X):
    estimator = make(state, X)
    untouched = Untouched(estimator)
    with pytest.raises(ValueError, match="features"):
        estimator.partial_fit(np.hstack([X, X]))
    untouched.check()


@STATES
@METHODS
def test_feature_names_of_a_failed_fit_are_forgotten(method, state, X):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=["a", "b"])
    frame.loc[3, "a"] = np.inf
    estimator = make(state, X)
    untouched = Untouched(estimator)
    # A stream that began without names warns of them.
    with (
        pytest.warns(UserWarning)
        if method == "partial_fit" and state != "new"
        else (pytest.MonkeyPatch.context())
    ):
        with pytest.raises(ValueError, match="infinity"):
            getattr(estimator, method)(frame)
    untouched.check()
    assert not hasattr(estimator, "feature_names_in_")


# Failures on the way


@STATES
@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError(), KeyError("x")])
@pytest.mark.parametrize("solver", list(SOLVERS))
def test_second_epoch_fails(solver, error, state, X, monkeypatch):
    estimator = make(state, X, solver=solver, batch_size=50)
    untouched = Untouched(estimator)
    owner = SOLVERS[solver]
    begin, calls = fails_at(owner.certify, 2, error)
    with monkeypatch.context() as patched:
        patched.setattr(owner, "certify", begin)
        with pytest.raises(type(error)):
            estimator.fit(X)
    assert len(calls) == 2
    untouched.check()
    # Nothing is left behind that would stand in the way of the next fit.
    with pytest.warns(ConvergenceWarning):
        estimator.fit(X)
    with pytest.warns(ConvergenceWarning):
        fresh = make(state, X, solver=solver, batch_size=50).fit(X)
    assert np.array_equal(estimator.means_, fresh.means_)


@pytest.mark.parametrize("solver", ["svrg", "saga", "incremental", "stochastic"])
def test_a_step_in_the_second_epoch_is_interrupted(solver, X, monkeypatch):
    estimator = make("fitted", X, solver=solver, batch_size=50)
    untouched = Untouched(estimator)
    owner = SOLVERS[solver]
    estimate, calls = fails_at(owner.estimate, 15, KeyboardInterrupt())
    monkeypatch.setattr(owner, "estimate", estimate)
    with pytest.raises(KeyboardInterrupt):
        estimator.fit(X)
    assert len(calls) == 15  # of 10 an epoch
    untouched.check()


def test_squarem_is_interrupted(X, monkeypatch):
    estimator = make("fitted", X, acceleration="squarem", max_iter=20)
    untouched = Untouched(estimator)
    estimate, calls = fails_at(Squarem._extrapolated, 3, KeyboardInterrupt())
    monkeypatch.setattr(Squarem, "_extrapolated", estimate)
    with pytest.raises(KeyboardInterrupt):
        estimator.fit(X)
    assert len(calls) == 3
    untouched.check()


@STATES
@METHODS
@pytest.mark.parametrize("name", ["statistics", "maximize", "reseed"])
def test_model_fails(name, method, state, X, monkeypatch):
    estimator = make(state, X, solver="batch")
    untouched = Untouched(estimator)
    original = getattr(GaussianMixtureModel, name)
    failing, calls = fails_at(original, 1, KeyboardInterrupt())
    monkeypatch.setattr(GaussianMixtureModel, name, failing)
    with pytest.raises(KeyboardInterrupt):
        getattr(estimator, method)(X)
    assert calls
    untouched.check()


def test_second_start_fails(X, monkeypatch):
    estimator = make("fitted", X, n_init=3, init_params="random_from_data")
    untouched = Untouched(estimator)
    original = _reports.Progress.start
    failing, calls = fails_at(original, 2, KeyboardInterrupt())
    monkeypatch.setattr(_reports.Progress, "start", failing)
    with pytest.raises(KeyboardInterrupt):
        estimator.fit(X)
    assert len(calls) == 2
    untouched.check()


@pytest.mark.filterwarnings("error::sklearn.exceptions.ConvergenceWarning")
def test_a_warning_made_an_error_is_a_failure(X):
    estimator = make("fitted", X)
    untouched = Untouched(estimator)
    with pytest.raises(ConvergenceWarning):
        estimator.fit(X)
    untouched.check()


def test_a_real_interrupt(X):
    """Ctrl-C while kernels run in threads."""
    import _thread

    X = np.tile(X, (400, 1))
    estimator = make("fitted", X[:500], max_iter=1_000_000, tol=0.0)
    untouched = Untouched(estimator)
    timer = threading.Timer(0.5, _thread.interrupt_main)
    # In the background of a shell the signal is ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            estimator.set_params(solver="batch").fit(X)
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    untouched.objects["solver"] = untouched.values["solver"] = "batch"
    untouched.check()


# verbose


LINE = re.compile(
    r"\[VRGaussianMixture\] start (\d+)/(\d+), epoch (\d+), "
    r"([\d.]+) passes, ([\d.e-]+) s: objective (-?[\d.]+)(, T=[\d.]+)?"
)


def lines_of(capsys):
    out, err = capsys.readouterr()
    assert err == ""
    first, *lines, last = out.splitlines()
    assert first == "[VRGaussianMixture] begins"
    assert re.fullmatch(r"\[VRGaussianMixture\] ended after \d+ epochs, .* s", last)
    matches = [LINE.fullmatch(line) for line in lines if "compiles" not in line]
    assert all(matches), out
    return [match.groups() for match in matches]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("solver", list(SOLVERS))
def test_silent_by_default(solver, X, capsys):
    mixture(solver=solver).fit(X)
    assert capsys.readouterr() == ("", "")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("params", "epochs"),
    [
        ({"verbose": 1}, [1, 10, 20, 25]),
        ({"verbose": 1, "verbose_interval": 7}, [1, 7, 14, 21, 25]),
        ({"verbose": 1, "verbose_interval": 100}, [1, 25]),
        ({"verbose": 1, "verbose_interval": 25}, [1, 25]),
        ({"verbose": 2}, list(range(1, 26))),
        ({"verbose": 2, "verbose_interval": 7}, list(range(1, 26))),
    ],
    ids=str,
)
def test_verbose_lines(params, epochs, X, capsys):
    fitted = mixture(solver="batch", max_iter=25, tol=0, **params).fit(X)
    lines = lines_of(capsys)
    assert [int(line[2]) for line in lines] == epochs
    for start, starts, epoch, passes, _, objective, temperature in lines:
        assert (start, starts, temperature) == ("1", "1", None)
        row = int(epoch)  # row 0 is the start
        assert float(passes) == pytest.approx(fitted.history_["passes"][row], rel=1e-3)
        expected = fitted.history_["objective"][row]
        assert float(objective) == pytest.approx(expected, abs=1e-6)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_verbose_lines_are_flushed_to_a_stream_of_a_notebook(X, monkeypatch):
    class Stream:  # without isatty
        def __init__(self):
            self.done, self.waiting = "", ""

        def write(self, text):
            self.waiting += text

        def flush(self):
            self.done, self.waiting = self.done + self.waiting, ""

    stream = Stream()
    monkeypatch.setattr("sys.stdout", stream)
    mixture(solver="batch", max_iter=1, verbose=1).fit(X)
    assert stream.done.count("epoch 1,") == 1 and not stream.waiting


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_verbose_names_the_start_and_the_temperature(X, capsys):
    mixture(
        solver="batch", n_init=2, tempering="annealed", annealing_iter=3, verbose=2
    ).fit(X)
    lines = lines_of(capsys)
    assert [line[0] for line in lines] == ["1"] * 5 + ["2"] * 5
    assert {line[1] for line in lines} == {"2"}
    hot = [", T=1.67", ", T=1.33", None, None, None]
    assert [line[6] for line in lines] == 2 * hot


def pretend_terminal(monkeypatch):
    """Make rich think that it writes to a terminal; sys.stdout is the test's own."""
    rich = pytest.importorskip("rich")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(rich, "_console", None)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_bar_on_a_terminal(X, capsys, monkeypatch):
    pretend_terminal(monkeypatch)
    mixture(solver="batch", n_init=2, verbose=1).fit(X)
    out = capsys.readouterr().out
    assert "VRGaussianMixture start 2/2" in out
    assert "objective -" in out
    assert not LINE.search(out)


def test_bar_of_an_interrupted_fit_is_gone(X, capsys, monkeypatch):
    pretend_terminal(monkeypatch)
    before = set(threading.enumerate())
    estimator = mixture(solver="batch", verbose=1)
    untouched = Untouched(estimator)
    begin, _ = fails_at(Batch.certify, 3, KeyboardInterrupt())
    with monkeypatch.context() as patched:
        patched.setattr(Batch, "certify", begin)
        with pytest.raises(KeyboardInterrupt):
            estimator.fit(X)
    untouched.check()
    assert "VRGaussianMixture start 1/1" in capsys.readouterr().out
    for thread in set(threading.enumerate()) - before:
        if not thread.name.startswith("skvrem"):  # the pool's, which stay
            thread.join(10)
            assert not thread.is_alive(), thread


# scikit-learn's callbacks


@needs_callbacks
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("solver", list(SOLVERS))
def test_callback_sees_a_task_tree(solver, X):
    recorder = Recorder()
    estimator = mixture(solver=solver, n_init=2, max_iter=3).set_callbacks(recorder)
    estimator.fit(X)
    events = recorder.events
    assert (events[0], events[-1]) == ("setup", "teardown")
    for name, count in (("fit", 1), ("start", 2), ("epoch", None)):
        begins, ends = events.count(("begin", name)), events.count(("end", name))
        assert begins == ends > 0
        assert count in (None, begins)
    # Nested as brackets.
    open_tasks = []
    for event in events[1:-1]:
        if event[0] == "begin":
            open_tasks.append(event[1])
        else:
            assert open_tasks.pop() == event[1]
    assert not open_tasks
    # Where it is stopped by max_iter: an epoch for each row of history that is one.
    assert events.count(("begin", "epoch")) == 2 * estimator.n_iter_


@needs_callbacks
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_callback_gets_an_estimator_that_answers(X):
    recorder = Recorder(X)
    estimator = mixture(solver="batch", max_iter=8).set_callbacks(recorder)
    estimator.fit(X)
    # The point of an epoch is where its objective was taken.
    np.testing.assert_allclose(recorder.scores, estimator.lower_bounds_, rtol=1e-9)
    assert (np.diff(recorder.scores) > 0).all()


@needs_callbacks
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("solver", list(SOLVERS))
def test_callback_stops_early(solver, X):
    recorder = Recorder(stop_at=3)
    estimator = mixture(solver=solver, max_iter=50).set_callbacks(recorder)
    estimator.fit(X)
    assert estimator.n_iter_ == 3
    assert not estimator.converged_
    assert np.isfinite(estimator.score(X))
    assert recorder.events[-1] == "teardown"


@needs_callbacks
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_callbacks_evaluate_by_the_parameters_of_the_fit_they_watch(X):
    estimator = mixture(covariance_type="diag").fit(X)
    recorder = Recorder(X=X)
    estimator.set_params(covariance_type="full", solver="batch", max_iter=3)
    estimator.set_callbacks(recorder).fit(X)
    assert len(recorder.scores) == 3
    assert recorder.scores[-1] == pytest.approx(estimator.score(X), rel=1e-12)


@needs_callbacks
def test_a_stop_on_demand_is_no_failure_to_converge(X):
    # Warnings are errors: it is not max_iter that was too small.
    mixture(solver="batch", max_iter=50).set_callbacks(Recorder(stop_at=3)).fit(X)


@needs_callbacks
@STATES
def test_callback_interrupts(state, X):
    recorder = Recorder(fail_at=2)
    estimator = make(state, X).set_callbacks(recorder)
    untouched = Untouched(estimator)
    with pytest.raises(KeyboardInterrupt):
        estimator.fit(X)
    untouched.check()
    assert recorder.events[0] == "setup"
    assert recorder.events[-1] == "teardown"  # whoever set up must be able to close


@needs_callbacks
def test_callback_is_torn_down_after_bad_rows(X):
    recorder = Recorder()
    estimator = mixture().set_callbacks(recorder)
    X[3, 1] = np.nan
    with pytest.raises(ValueError):
        estimator.fit(X)
    assert recorder.events.count("setup") == recorder.events.count("teardown")


@needs_callbacks
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_callbacks_stay_out_of_the_fitted_state(X):
    plain = mixture().fit(X)
    watched = mixture().set_callbacks(Recorder(X)).fit(X)
    assert np.array_equal(plain.means_, watched.means_)
    assert set(vars(watched)) - set(vars(plain)) == {"_skl_callbacks"}


@needs_callbacks
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_progress_bar(X, capsys):
    pytest.importorskip("rich")
    before = set(threading.enumerate())
    estimator = mixture(n_init=2).set_callbacks(callbacks.ProgressBar())
    estimator.fit(X)
    out = capsys.readouterr().out
    assert "VRGaussianMixture" in out
    assert "start" in out
    assert not monitors(before)


def monitors(before):
    return [
        thread
        for thread in set(threading.enumerate()) - before
        if "Monitor" in type(thread).__name__
    ]


@needs_callbacks
@pytest.mark.slow
def test_a_process_ends_after_an_interrupted_fit_with_a_bar():
    # The bar has a thread, for which Python waits at its end.
    pytest.importorskip("rich")
    code = """if True:
        import numpy as np
        from sklearn.callback import ProgressBar
        from skvrem import VRGaussianMixture
        from skvrem.solvers import Batch

        def begin(*args):
            raise KeyboardInterrupt

        Batch.certify = begin
        estimator = VRGaussianMixture(solver="batch").set_callbacks(ProgressBar())
        try:
            estimator.fit(np.random.default_rng(0).normal(size=(50, 2)))
        except KeyboardInterrupt:
            print("interrupted")
    """
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])},
    )
    assert "interrupted" in run.stdout


def score_of_rows(estimator, X, y):
    return estimator.score(X)


@needs_callbacks
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_scoring_monitor(X):
    # Scores only where there is a y, whatever it is: scikit-learn 1.9 asks for one.
    monitor = callbacks.ScoringMonitor(scoring={"score": score_of_rows})
    estimator = mixture(solver="batch", max_iter=6).set_callbacks(monitor)
    estimator.fit(X, np.zeros(len(X)))
    rows = [row for row in monitor.get_logs().data if row["task_name"] == "epoch"]
    assert len(rows) == estimator.n_iter_ == 6
    scores = [row["score"] for row in rows]
    np.testing.assert_allclose(scores, estimator.lower_bounds_, rtol=1e-9)


@needs_callbacks
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_scoring_monitor_without_y(X):
    monitor = callbacks.ScoringMonitor(scoring={"score": score_of_rows})
    estimator = mixture(solver="batch").set_callbacks(monitor).fit(X)
    rows = [row for row in monitor.get_logs().data if row["task_name"] == "epoch"]
    assert len(rows) == estimator.n_iter_


@needs_callbacks
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_callbacks_inside_a_grid_search(X):
    from sklearn.model_selection import GridSearchCV

    recorder = Recorder()
    search = GridSearchCV(
        mixture().set_callbacks(recorder), {"n_components": [1, 2]}, cv=2
    ).fit(X)
    n_fits = 2 * 2 + 1
    assert recorder.events.count(("begin", "fit")) == n_fits
    assert recorder.events.count("setup") == recorder.events.count("teardown") == n_fits
    assert search.best_params_ == {"n_components": 2}


def test_a_stream_drops_what_is_of_a_fit():
    rng = np.random.default_rng(0)
    rows, counts = rng.normal(size=(200, 3)), rng.poisson(1.0, (60, 8))
    for estimator, X in (
        (VRGaussianMixture(2, random_state=0), rows),
        (FactorialMixture(2, max_iter=9, tempering=None, random_state=0), rows),
        (VRHMM(2, max_iter=9, random_state=0), rows),
        (VRPLSA(2, max_iter=9, random_state=0), counts),
        (TemperedLDA(2, max_iter=9, random_state=0), counts),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            estimator.fit(X)
        n_iter = estimator.n_iter_
        of_a_fit = {"history_", "init_scores_", "stop_reason_", "gap_left_"}
        assert of_a_fit <= set(vars(estimator))
        estimator.partial_fit(X)
        assert not of_a_fit & set(vars(estimator))
        assert estimator.n_iter_ == n_iter + 1 and not estimator.converged_
        assert estimator.solver_ == "stochastic"


# Compiling, and what is logged


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_fits_are_logged(X, caplog, capsys):
    with caplog.at_level("INFO", logger="skvrem"):
        mixture(solver="batch", max_iter=3, verbose=1).fit(X)
        mixture(solver="batch", max_iter=3).fit(X)
    said = capsys.readouterr().out.splitlines()
    assert [record.getMessage() for record in caplog.records] == said
    assert said[-1].startswith("[VRGaussianMixture] ended after 3 epochs")


def test_a_first_fit_says_that_it_compiles(tmp_path):
    code = (
        "import numpy as np, skvrem\n"
        "X = np.random.default_rng(0).normal(size=(50, 2))\n"
        "for _ in range(2): skvrem.SBMLogisticRegression(verbose=1).fit(X, X[:, 0] > 0)"
    )
    said = []
    for _ in range(2):  # the second process finds what the first has compiled
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)},
            cwd=Path(__file__).resolve().parents[1],
            capture_output=True,
            text=True,
            check=True,
        )
        said.append([line for line in done.stdout.splitlines() if "compiles" in line])
    (line,), nothing = said
    assert line.startswith("[SBMLogisticRegression] compiles kernels, once")
    assert str(tmp_path) in line and not nothing
