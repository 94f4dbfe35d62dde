"""Fits that were cut off go on from checkpoints, and end where they would have."""

import pickle
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import tracemalloc
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import skvrem
from skvrem import VRPLSA, Checkpoint, VRGaussianMixture
from skvrem.checkpoint import FORMAT, MAGIC
from skvrem.exceptions import CheckpointWarning
from skvrem.hmm import _plan
from skvrem.solvers import _journal
from skvrem.utils.discovery import all_estimators
from tests.own_models import RichLogistic
from tests.watching import needs_callbacks

pytestmark = pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning",
    "ignore::skvrem.exceptions.PosteriorWarning",
)
ROOT = Path(__file__).resolve().parents[1]


def _rows():
    rng = np.random.default_rng(0)
    X = 3.0 * rng.integers(2, size=(200, 1)) + rng.normal(size=(200, 3))
    y = (X[:, 0] + rng.normal(size=200) > 1.5).astype(int)
    return X, y


def _counts():
    rng = np.random.default_rng(1)
    topics = rng.dirichlet(np.full(30, 0.2), size=4)
    return rng.poisson(50.0 * topics[rng.integers(4, size=120)])


def _matches():
    rng = np.random.default_rng(2)
    pairs = rng.integers(12, size=(300, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    chance = 1.0 / (1.0 + np.exp(0.3 * (pairs[:, 1] - pairs[:, 0])))
    return pairs, (rng.uniform(size=len(pairs)) < chance).astype(float)


X, Y = _rows()
COUNTS, MATCHES = _counts(), _matches()
GROUPS = np.repeat(np.arange(20), 10)


def cases():
    """Yield a name, an estimator, the arguments of its fit."""
    em = {"random_state": 0, "tol": 1e-6, "max_iter": 12}
    for solver in "auto", "batch", "stochastic", "svrg", "saga", "incremental":
        how = em | {"solver": solver}
        yield f"mixture-{solver}", VRGaussianMixture(3, **how), (X,), {}
        yield f"hmm-{solver}", skvrem.VRHMM(2, **how), (X,), {}
        yield f"factorial-{solver}", skvrem.FactorialMixture(2, **how), (X,), {}
        if solver in ("auto", "batch", "stochastic", "svrg"):
            plsa = VRPLSA(3, n_init=1, tempering=None, **how)  # else by max_iter
            yield f"plsa-{solver}", plsa, (COUNTS,), {}
    yield "starts", VRGaussianMixture(3, n_init=3, **em), (X,), {}
    for topics in VRPLSA, skvrem.TemperedLDA:
        how = em | {"max_iter": 80}
        yield f"starts-{topics.__name__}", topics(3, **how), (COUNTS,), {}
    # The first ends with a component on a value that is rounded to.
    given = em | {"n_init": "auto", "max_iter": 100}
    yield "again", VRGaussianMixture(5, **given), (load_iris().data,), {}
    yield "lbfgs", skvrem.VRHMM(2, acceleration="lbfgs", **em), (X,), {}
    for tempering in None, "annealed", "global", "local":
        how = em | {"tempering": tempering, "n_init": 1}
        yield f"lda-{tempering}", skvrem.TemperedLDA(3, **how), (COUNTS,), {}
    yield "lda-number", skvrem.TemperedLDA("auto", **em), (COUNTS,), {}
    for solver in "auto", "batch", "lbfgs", "stochastic", "svrg":
        logistic = skvrem.SBMLogisticRegression(
            solver=solver, random_state=0, max_iter=20, tol=1e-9
        )
        yield f"logistic-{solver}", logistic, (X, Y), {}
    own = RichLogistic(X, Y)
    for solver in "batch", "stochastic", "svrg", "saga":
        how = {"solver": solver, "random_state": 0, "max_iter": 10}
        bayesian = skvrem.BayesianLogisticRegression(**how)
        yield f"bayesian-{solver}", bayesian, (X, Y), {}
        yield f"own-{solver}", skvrem.VariationalInference(own, **how), (), {}
    for bayesian in (
        skvrem.BayesianLogisticRegression(),
        skvrem.HierarchicalSoftmaxClassifier(),
    ):
        name = f"groups-{type(bayesian).__name__}"
        yield name, bayesian, (X, Y), {"groups": GROUPS}
    # Of three classes steps are by draws, more of them where epochs lost.
    drawn = skvrem.BayesianLogisticRegression(
        solver="svrg", prior_scale="learn", random_state=0, max_iter=15
    )
    yield "draws", drawn, (X, (X[:, 0] > 0.0) + (X[:, 0] > 3.0)), {}
    poisson = skvrem.BayesianGLMRegressor(family="poisson", random_state=0)
    yield "poisson", poisson, (X, Y.astype(float)), {}
    counted = skvrem.BayesianGLMRegressor(family="negative-binomial", random_state=0)
    yield "negative-binomial", counted, (X, Y.astype(float)), {}
    for solver in "auto", "stochastic", "svrg":
        how = {"solver": solver, "random_state": 0, "max_iter": 15}
        dropout = skvrem.GaussianDropoutClassifier(early_stopping=True, **how)
        yield f"dropout-{solver}", dropout, (X, Y), {}
    yield "ppca", skvrem.BayesianPPCA(2, random_state=0), (X,), {}
    yield "skills", skvrem.BradleyTerry(), MATCHES, {}


CASES = {name: case for name, *case in cases()}
# Tables are filled anew where a fit goes on, so it takes another path.
OTHER_PATH = ("saga", "incremental")


class Copying(Checkpoint):
    """Writes every epoch, and keeps a copy of every file."""

    def __init__(self, path, every=1, **more):
        super().__init__(path, every, **more)

    def write_journal(self, estimator, journal):
        super().write_journal(estimator, journal)
        self.copies = [*getattr(self, "copies", []), self.path + f".{time.time_ns()}"]
        shutil.copy(self.path, self.copies[-1])


def warm(path):
    estimator = Checkpoint.load(path)
    if "warm_start" in estimator.get_params():
        estimator.set_params(warm_start=True)
    return estimator


def fitted(estimator):
    """What a fit has found, without times and what a resumed one reads again."""
    own = {
        name: value
        for name, value in vars(estimator).items()
        if name.endswith("_") and name not in ("history_", "n_passes_")
    }
    own.pop("emission_", None)
    own.pop("transitions_", None)
    return own


def check_equal(now, whole):
    assert now.keys() == whole.keys()
    for name, value in whole.items():
        if isinstance(value, np.ndarray | float | int | str | bool):
            np.testing.assert_array_equal(now[name], value, err_msg=name)


def test_every_estimator_has_a_case():
    have = {type(estimator) for estimator, *_ in CASES.values()}
    assert {cls for _, cls in all_estimators()} == have


@pytest.mark.parametrize("name", CASES)
def test_a_fit_goes_on_from_any_epoch(name, tmp_path):
    estimator, arguments, more = CASES[name]
    alone = clone(estimator).fit(*arguments, **more)
    checkpoint = Copying(str(tmp_path / "fit"))
    whole = checkpoint.fit(clone(estimator), *arguments, **more)
    check_equal(fitted(whole), fitted(alone))  # writing changes nothing
    n = len(checkpoint.copies)
    assert n > 1
    for number in sorted({0, n // 2, n - 2, n - 1}):
        resumed = warm(checkpoint.copies[number])
        resumed.fit(*arguments, **more)
        assert "_resumed" not in vars(resumed)
        if name.endswith(OTHER_PATH) and number < n - 1:
            gap = abs(resumed.objective_ - whole.objective_)
            assert gap < max(1e-2, 1e-3 * abs(whole.objective_))
        elif name.startswith("logistic") or name == "lbfgs":
            # A metric is taken where it goes on.
            assert abs(resumed.objective_ - whole.objective_) < 10.0 * estimator.tol
        else:
            check_equal(fitted(resumed), fitted(whole))


def led_on():
    """Yield fits with several ends, each of which may lead on by moves."""
    rng = np.random.default_rng(1)
    means = rng.normal(size=(4, 2))
    parts = rng.uniform(size=(150, 4)) < 0.4
    yield "factorial", skvrem.FactorialMixture(4, n_init=6), parts @ means
    yield "factorial-race", skvrem.FactorialMixture(3), parts @ means
    states = rng.integers(4, size=50).repeat(6)
    rows = 2.0 * rng.normal(size=(4, 2))[states]
    # Of values that come again one start is made, which others race without.
    rows[:60, 0] = 0.0
    yield "hmm", skvrem.VRHMM(4), rows
    yield "hmm-whole", skvrem.VRHMM(5, n_init=4), rows


LED_ON = {name: case for name, *case in led_on()}


@pytest.mark.filterwarnings("ignore::skvrem.exceptions.CollapsedComponentWarning")
@pytest.mark.parametrize("name", LED_ON)
def test_a_fit_goes_on_without_what_others_have_left_behind(name, tmp_path):
    estimator, rows = LED_ON[name]
    rows = rows + 0.1 * np.random.default_rng(2).normal(size=rows.shape)
    estimator = clone(estimator).set_params(random_state=0)
    checkpoint = Copying(str(tmp_path / "fit"), every=23)
    whole = checkpoint.fit(clone(estimator), rows)
    assert len(whole.init_scores_) > 3
    for path in checkpoint.copies[:: max(1, len(checkpoint.copies) // 8)]:
        check_equal(fitted(warm(path).fit(rows)), fitted(whole))


# Six epochs and six more


def full_passes():
    """Yield fits by full passes whose steps remember nothing: EM, SQUAREM, Ascent."""
    em = {"random_state": 0, "tol": 0.0, "solver": "batch"}
    one = em | {"n_init": 1}
    for acceleration in None, "squarem":
        how = one | {"acceleration": acceleration}
        yield f"mixture-{acceleration}", VRGaussianMixture(3, **how), (X,), {}
        yield f"hmm-{acceleration}", skvrem.VRHMM(2, **how), (X,), {}
    for inner in 1, 8:
        for counts in COUNTS, COUNTS.astype(float):
            name = f"plsa-{inner}-{counts.dtype}"
            plsa = VRPLSA(3, inner_iter=inner, tempering=None, **one)
            yield name, plsa, (counts,), {}
    factorial = skvrem.FactorialMixture(3, tempering=None, **one)
    yield "factorial", factorial, (X,), {}
    yield "factorial-float32", factorial, (X.astype(np.float32),), {}
    for e_step in "collapsed", "mean_field":
        topics = skvrem.TemperedLDA(3, e_step=e_step, tempering=None, **one)
        yield f"lda-{e_step}", topics, (COUNTS,), {}
    learning = skvrem.TemperedLDA(3, doc_topic_prior="learn", **one)
    yield "lda-priors", learning, (COUNTS,), {}
    yield "logistic", skvrem.SBMLogisticRegression(**em), (X, Y), {}
    for posterior in "fullrank", "meanfield":
        how = em | {"posterior": posterior}
        bayesian = skvrem.BayesianLogisticRegression(**how)
        yield f"bayesian-{posterior}", bayesian, (X, Y), {}
    # Whose steps overshoot, and become shorter.
    pixels = load_digits(n_class=4, return_X_y=True)
    pixels = 2.0 * pixels[0][:100], pixels[1][:100]
    yield "bayesian-pixels", skvrem.BayesianLogisticRegression(**em), pixels, {}
    for family in "gaussian", "poisson", "negative-binomial":
        # A concentration that is learned is another objective, between two epochs.
        how = em | {"family": family, "concentration": 0.34}
        counts = skvrem.BayesianGLMRegressor(**how)
        yield family, counts, (X, COUNTS[:, 0].repeat(2)[:200] + 1.0 * Y), {}
    for posterior in "fullrank", "lowrank", "meanfield":
        skills = skvrem.BradleyTerry(posterior=posterior, rank=3, tol=0.0)
        yield f"skills-{posterior}", skills, MATCHES, {}
    tied = np.where(np.arange(len(MATCHES[1])) % 7, MATCHES[1], 0.5)
    for ties in "davidson", "rao-kupper":
        skills = skvrem.BradleyTerry(ties=ties, home_advantage=True, tol=0.0)
        yield f"skills-{ties}", skills, (MATCHES[0], tied), {}


FULL_PASSES = {name: case for name, *case in full_passes()}


def check_close(now, whole):
    of_the_end = "n_iter_", "init_epochs_", "gap_left_", "stop_reason_", "converged_"
    seen = tuple(name for name in whole if "_seen_" in name)  # of a stream, twice
    for name, value in whole.items():
        if name == "init_scores_":  # a race of few epochs leaves others behind
            # Of some that are equal but for rounding.
            first = now[name][np.argmax(value)]
            np.testing.assert_allclose(first, np.nanmax(now[name]), rtol=1e-9)
            value, now = value.max(), now | {name: now[name].max()}
        free = name in of_the_end or name in seen
        if not free and isinstance(value, np.ndarray | float):
            np.testing.assert_allclose(
                now[name], value, rtol=1e-9, atol=1e-12, err_msg=name
            )


@pytest.mark.parametrize("name", FULL_PASSES)
def test_six_epochs_and_six_more_are_twelve(name, tmp_path):
    estimator, arguments, more = FULL_PASSES[name]
    whole = clone(estimator).set_params(max_iter=12).fit(*arguments, **more)
    half = clone(estimator).set_params(max_iter=6)
    Checkpoint(tmp_path / "fit").fit(half, *arguments, **more)
    resumed = warm(tmp_path / "fit").set_params(max_iter=12).fit(*arguments, **more)
    check_close(fitted(resumed), fitted(whole))
    assert resumed.n_iter_ == whole.n_iter_
    gone_on = half.set_params(warm_start=True).fit(*arguments, **more)
    check_close(fitted(gone_on), fitted(whole))
    # Pickles have no more than before: what is of the rows is found anew.
    light, bare = pickle.loads(pickle.dumps(gone_on)), clone(gone_on)
    assert not {"_of_rows", "_rows"} & vars(light).keys()
    assert light.fit(*arguments, **more).n_iter_ >= 1
    assert not {"_of_rows", "_rows"} & vars(bare).keys()


# What they do follows from max_iter: a temperature, how far a race or a search goes.
BY_MAX_ITER = ("factorial", "lda-global", "starts", "lda-number")


@pytest.mark.parametrize("name", [n for n in CASES if not n.startswith(BY_MAX_ITER)])
def test_six_epochs_and_six_more_through_a_file(name, tmp_path):
    estimator, arguments, more = CASES[name]
    whole = clone(estimator).set_params(max_iter=12).fit(*arguments, **more)
    checkpoint = Checkpoint(tmp_path / "fit")
    half = clone(estimator).set_params(max_iter=6)
    checkpoint.fit(half, *arguments, **more)
    resumed = warm(tmp_path / "fit").set_params(max_iter=12).fit(*arguments, **more)
    if name.endswith(OTHER_PATH):
        gap = abs(resumed.objective_ - whole.objective_)
        assert gap < max(1e-2, 1e-3 * abs(whole.objective_))
    elif name.startswith(("logistic", "lbfgs")):
        gap = abs(resumed.objective_ - whole.objective_)
        assert gap < 10.0 * estimator.tol
    else:
        assert np.max(resumed.n_iter_) == np.max(whole.n_iter_)
        check_close(fitted(resumed), fitted(whole))


@pytest.mark.parametrize(
    ("estimator", "rows"),
    [
        (VRPLSA(3, solver="batch", random_state=0), COUNTS),
        (skvrem.TemperedLDA(3, random_state=0), COUNTS),
        (skvrem.FactorialMixture(2, random_state=0), X),
    ],
    ids=["plsa", "lda", "factorial"],
)
def test_what_is_known_of_rows_is_of_these_rows(estimator, rows):
    # Of others, or after the estimator has learnt more, there is none.
    def cut(**params):
        how = {"max_iter": 2, "tol": 0.0, "warm_start": True} | params
        return clone(estimator).set_params(**how)

    other = rows[::-1].copy()
    first = cut().fit(rows)
    bare = pickle.loads(pickle.dumps(first))
    known = first._of_rows
    check_equal(fitted(first.fit(other)), fitted(bare.fit(other)))
    assert first._of_rows is not known
    first.fit(rows, sample_weight=np.ones(len(rows)))
    assert "_of_rows" not in vars(first.partial_fit(other))
    # A fit that fails leaves it.
    known = first.fit(other)._of_rows
    with pytest.raises(ValueError, match="last fit"):
        first.fit(rows[:, :2])
    assert first._of_rows is known


def test_what_tells_rows_from_others_is_no_copy_of_them():
    X = np.zeros((1200, 4000))
    tracemalloc.start()
    known = _journal.fingerprint((X, None))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < X.nbytes / 20
    X[600, -1] = 1.0
    changed = _journal.fingerprint((X, None))
    assert changed != known
    assert _journal.fingerprint((np.asfortranarray(X), None)) == changed


@pytest.mark.parametrize("max_iter", [5, 12])
def test_a_race_that_begins_on_a_sample_goes_on(max_iter, tmp_path, monkeypatch):
    monkeypatch.setattr(_plan, "FEWEST_SAMPLED", 20)
    monkeypatch.setattr(_plan, "ROWS_A_PARAMETER", 1)
    estimator = skvrem.VRHMM(3, random_state=0, max_iter=max_iter)
    alone = clone(estimator).fit(X)
    checkpoint = Copying(str(tmp_path / "fit"))
    check_equal(fitted(checkpoint.fit(clone(estimator), X)), fitted(alone))
    for copy in checkpoint.copies[::3]:
        check_equal(fitted(warm(copy).fit(X)), fitted(alone))


@pytest.mark.parametrize("name", CASES)
def test_a_checkpoint_answers_and_takes_batches(name, tmp_path):
    estimator, arguments, more = CASES[name]
    checkpoint = Copying(str(tmp_path / "fit"))
    checkpoint.fit(clone(estimator), *arguments, **more)
    first = Checkpoint.load(checkpoint.copies[0])
    assert np.max(first.n_iter_) == 1 and not first.converged_
    for method in "predict", "transform":
        if hasattr(first, method) and arguments:
            given = more if method == "predict" else {}
            assert len(getattr(first, method)(arguments[0], **given))
    assert len(first.summary())
    pickle.loads(pickle.dumps(first))
    known = {"classes": [0, 1]} if hasattr(first, "classes_") else {}
    if isinstance(first, skvrem.BradleyTerry):
        known = {}
    stream = Checkpoint.load(checkpoint.copies[0])
    stream.partial_fit(*arguments, **more, **known)
    assert "_resumed" not in vars(stream)
    # Begun anew, it is the fit that it always was.
    anew = Checkpoint.load(checkpoint.copies[0]).fit(*arguments, **more)
    check_equal(fitted(anew), fitted(clone(estimator).fit(*arguments, **more)))


# Kills

KILLED = """
import sys
import numpy as np
from skvrem import Checkpoint, {name}
path, resume = sys.argv[1], sys.argv[2] == "resume"
{data}
estimator = {make}
if resume:
    estimator = Checkpoint.load(path).set_params(warm_start=True)
print("begins", flush=True)
Checkpoint(path, every=1).fit(estimator, X)
np.save(path + ".npy", [estimator.objective_, estimator.n_iter_])
"""
MIXTURE = {
    "name": "VRGaussianMixture",
    "make": 'VRGaussianMixture(8, n_init=2, solver="svrg", tol=0.0, max_iter=60, '
    "random_state=0)",
    "data": "rng = np.random.default_rng(0)\n"
    "X = rng.normal(size=(20000, 5)) + 2.0 * rng.integers(3, size=(20000, 1))",
}
TOPICS = {
    "name": "VRPLSA",
    "make": "VRPLSA(10, tol=0.0, max_iter=60, random_state=0)",
    "data": "rng = np.random.default_rng(0)\nX = rng.poisson(0.3, size=(1500, 300))",
}


@pytest.mark.slow
@pytest.mark.parametrize("case", [MIXTURE, TOPICS], ids=["mixture", "topics"])
def test_a_killed_process_loses_an_epoch(case, tmp_path):
    script = tmp_path / "fit.py"
    script.write_text(textwrap.dedent(KILLED.format(**case)))

    def run(path, how, seconds=None):
        command = [sys.executable, str(script), str(path), how]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
            process.stdout.readline()
            if seconds is None:
                assert process.wait(300) == 0
                return
            until = time.monotonic() + 60.0
            while not path.exists() and time.monotonic() < until:
                time.sleep(0.01)
            time.sleep(seconds)
            process.send_signal(signal.SIGKILL)
            process.wait(60)

    run(tmp_path / "whole", "begin")
    broken = tmp_path / "broken"
    epochs = []
    for number in count():
        run(broken, "resume" if number else "begin", 0.15)
        epochs.append(len(Checkpoint.load(broken).history_["passes"]))
        if number == 2 or (tmp_path / "broken.npy").exists():
            break
    run(broken, "resume")
    np.testing.assert_array_equal(
        np.load(tmp_path / "broken.npy"), np.load(tmp_path / "whole.npy")
    )


# What is asked for, and what is refused


def mixture(**params):
    return VRGaussianMixture(
        **{"n_components": 3, "n_init": 1, "random_state": 0, "tol": 0.0}
        | {"max_iter": 6}
        | params
    )


def test_more_epochs_than_there_were(tmp_path):
    path = tmp_path / "fit"
    Checkpoint(path).fit(mixture(), X)
    resumed = Checkpoint.load(path).set_params(warm_start=True, max_iter=15).fit(X)
    whole = mixture(max_iter=15).fit(X)
    assert resumed.n_iter_ == 15 and resumed.max_iter == 15 and resumed.warm_start
    check_equal(fitted(resumed), fitted(whole))
    seconds = resumed.history_["seconds"]
    assert len(seconds) == 16 and np.all(np.diff(seconds) >= 0.0)
    # A race has been decided: who lost it does not begin anew.
    race = Checkpoint(path).fit(mixture(n_init=4), X)
    more = Checkpoint.load(path).set_params(warm_start=True, max_iter=9).fit(X)
    assert more.n_iter_ == 9
    losers = race.init_scores_ < race.init_scores_.max()
    np.testing.assert_array_equal(more.init_scores_[losers], race.init_scores_[losers])


@pytest.mark.parametrize("state", [None, np.random.RandomState(3)], ids=["None", "own"])
def test_what_is_drawn_is_drawn_once(state, tmp_path):
    checkpoint = Copying(str(tmp_path / "fit"))
    whole = checkpoint.fit(mixture(random_state=state), X)
    assert whole.random_state is state
    resumed = warm(checkpoint.copies[1]).fit(X)
    check_equal(fitted(resumed), fitted(whole))
    assert type(resumed.random_state) is type(state)


def test_a_resumed_fit_writes_as_well(tmp_path):
    first, second = Copying(str(tmp_path / "a")), Copying(str(tmp_path / "b"))
    whole = first.fit(mixture(), X)
    second.fit(warm(first.copies[1]), X)
    assert [Checkpoint.load(p).n_iter_ for p in second.copies] == [3, 4, 5, 6, 6]
    third = warm(second.copies[1]).fit(X)
    check_equal(fitted(third), fitted(whole))


def test_every_and_seconds(tmp_path):
    checkpoint = Copying(str(tmp_path / "fit"), every=4)
    checkpoint.fit(mixture(max_iter=10), X)
    epochs = [Checkpoint.load(path).n_iter_ for path in checkpoint.copies]
    assert epochs == [4, 8, 10]
    checkpoint = Copying(str(tmp_path / "fit"), seconds=1000)
    checkpoint.fit(mixture(max_iter=10), X)
    assert len(checkpoint.copies) == 1  # the end
    checkpoint = Copying(str(tmp_path / "fit"), "auto")
    checkpoint.fit(mixture(max_iter=200), X)
    assert 1 <= len(checkpoint.copies) < 100


def test_time_that_is_over(tmp_path):
    path = str(tmp_path / "fit")
    ended = Checkpoint(path, max_time=0).fit(mixture(n_init=3), X)
    assert ended.n_iter_ == 1 and ended.stop_reason_ == "time"
    assert np.isnan(ended.init_scores_).sum() == 2
    resumed = warm(path).fit(X)
    check_equal(fitted(resumed), fitted(mixture(n_init=3).fit(X)))
    skills = skvrem.BradleyTerry()
    assert Checkpoint(path, max_time=0).fit(skills, *MATCHES).stop_reason_ == "time"


@needs_callbacks
def test_as_a_callback(tmp_path):
    checkpoint = Copying(str(tmp_path / "fit"))
    whole = mixture().set_callbacks(checkpoint).fit(X)
    assert len(checkpoint.copies) == 7
    resumed = warm(checkpoint.copies[2])
    assert "_skl_callbacks" not in vars(resumed)
    check_equal(fitted(resumed.fit(X)), fitted(whole))
    with pytest.raises(TypeError, match="give it to the estimator"):
        checkpoint.fit(make_pipeline(StandardScaler(), mixture()), X)


def test_other_rows_and_other_parameters_are_refused(tmp_path):
    checkpoint = Copying(str(tmp_path / "fit"))
    checkpoint.fit(mixture(), X)
    resumed = warm(checkpoint.copies[1])
    before = dict(vars(resumed))
    for other in (X[:-1], X + 1.0, X.astype(np.float32)):
        with pytest.raises(ValueError, match=r"X, y or weights are not those"):
            resumed.fit(other)
        assert vars(resumed).keys() == before.keys()
    with pytest.raises(ValueError, match=r"X, y or weights are not those"):
        resumed.fit(X, sample_weight=np.ones(len(X)))
    with pytest.raises(ValueError, match="n_components, tol is not what it was"):
        resumed.set_params(n_components=4, tol=1.0).fit(X)
    resumed.set_params(n_components=3, tol=0.0, verbose=0, n_jobs=1)
    assert resumed.fit(X).n_iter_ == 6


def test_files_that_are_none(tmp_path):
    path = tmp_path / "fit"
    with pytest.raises(FileNotFoundError):
        Checkpoint.load(path)
    path.write_bytes(b"something else")
    with pytest.raises(ValueError, match="is not a checkpoint"):
        Checkpoint.load(path)
    Checkpoint(path).fit(mixture(), X)
    whole = path.read_bytes()
    for cut in (len(MAGIC) + 3, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(ValueError, match="is damaged"):
            Checkpoint.load(path)
    path.write_bytes(whole.replace(b"%b%d" % (MAGIC, FORMAT), MAGIC + b"99", 1))
    with pytest.raises(ValueError, match="has format 99, and this version"):
        Checkpoint.load(path)


def test_a_fit_outlives_a_disk_that_is_full(tmp_path, monkeypatch):
    checkpoint = Copying(str(tmp_path / "fit"))
    checkpoint.fit(mixture(), X)
    kept = Path(checkpoint.path).read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.warns(CheckpointWarning, match="No space left"):
        assert Checkpoint(checkpoint.path).fit(mixture(), X).n_iter_ == 6
    assert Path(checkpoint.path).read_bytes() == kept


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"path": 3}, "path of Checkpoint"),
        ({"path": "a", "every": 0}, "every of Checkpoint"),
        ({"path": "a", "every": 0.5}, "for seconds there is"),
        ({"path": "a", "every": True}, "every of Checkpoint"),
        ({"path": "a", "seconds": -1}, "seconds of Checkpoint"),
        ({"path": "a", "max_time": "1h"}, "max_time of Checkpoint"),
    ],
)
def test_wrong_parameters(arguments, match):
    with pytest.raises(ValueError, match=match):
        Checkpoint(**arguments)


def test_a_folder_that_is_not_there(tmp_path):
    estimator = mixture()
    with pytest.raises(FileNotFoundError):
        Checkpoint(tmp_path / "no" / "fit").fit(estimator, X)
    assert not hasattr(estimator, "means_")


def test_urls(tmp_path):
    pytest.importorskip("fsspec")
    path = "memory://fits/mixture"
    whole = Checkpoint(path).fit(mixture(), X)
    resumed = Checkpoint.load(path)
    np.testing.assert_array_equal(resumed.means_, whole.means_)
