"""Solvers of VRHMM: the same optimum, fixed points, blocks, bad combinations."""

from itertools import pairwise

import numpy as np
import pytest

from skvrem import VRHMM
from skvrem.hmm import (
    Categorical,
    Covariates,
    Gaussian,
    Homogeneous,
    MixtureGaussian,
    Poisson,
    Regression,
    StudentT,
    _plan,
)
from skvrem.hmm._input import open_rows
from skvrem.hmm._start import starting_parameters, take_sample
from skvrem.hmm.em_vrso._model import BlockSweeps
from skvrem.hmm.forward_backward._source import RowBlockSource
from tests.hmm.test_gradient import FAMILIES, make
from tests.watching import needs_callbacks

SOLVERS = {
    "squarem": {"acceleration": "squarem"},
    "lbfgs": {"acceleration": "lbfgs"},
    "incremental": {"solver": "incremental"},
    "svrg": {"solver": "svrg"},
    "svrg, full E steps": {"solver": "svrg", "partial_e_step": False},
    "saga, blocks": {
        "solver": "saga",
        "batch_size": 260,
        "inner_iter": 5,
        "tol": 1e-7,
    },
    "saga": {"solver": "saga", "inner_iter": 2},
    "incremental, small blocks": {"solver": "incremental", "batch_size": 130},
}


@pytest.fixture(scope="module")
def series():
    """Three states of unequal length that overlap somewhat, in 5 sequences."""
    rng = np.random.default_rng(0)
    lengths = [700, 1, 330, 40, 600]
    states = np.concatenate(
        [rng.integers(3, size=n // 5 + 1).repeat(5)[:n] for n in lengths]
    )
    X = np.array([[0.0, 1.0], [2.0, -1.0], [4.0, 2.0]])[states]
    return X + rng.normal(size=X.shape) * np.array([0.6, 1.0, 0.8])[
        states, None
    ], lengths


def start(**more):
    """The same first point, near enough that all solvers climb one hill."""
    return VRHMM(
        3,
        **{
            "emission": Gaussian(
                mean_init=[[-0.5, 0.5], [2.0, 0.0], [4.5, 1.0]],
                covariance_init=np.full((3, 2), 1.5),
            ),
            "transitions": Homogeneous(init=np.full((3, 3), 0.1) + 0.7 * np.eye(3)),
            "n_init": 1,
            "tol": 1e-10,
            "max_iter": 1000,
            "random_state": 0,
        }
        | more,
    )


@pytest.fixture(scope="module")
def best(series):
    X, lengths = series
    return start(solver="batch").fit(X, lengths=lengths)


@pytest.mark.parametrize("name", SOLVERS)
def test_all_come_to_the_same_optimum(series, best, name):
    X, lengths = series
    model = start(**SOLVERS[name]).fit(X, lengths=lengths)
    assert model.converged_
    close = 100 * model.tol
    assert model.log_likelihood_ == pytest.approx(best.log_likelihood_, abs=close)
    close = np.sqrt(100 * close)
    np.testing.assert_allclose(model.means_, best.means_, atol=close)
    np.testing.assert_allclose(model.transmat_, best.transmat_, atol=close)
    objective = model.history_["objective"]
    assert np.diff(objective).min() > -1e-9
    # What summaries and streams use.
    for a, b in zip(model._sums, best._sums, strict=True):
        np.testing.assert_allclose(a, b, atol=10 * close)


@pytest.mark.parametrize("name", SOLVERS)
def test_stationary_points_stay(series, best, name):
    X, lengths = series
    settings = SOLVERS[name] | {"tol": 0.0, "max_iter": 4, "reg_covar": 0.0}
    emission = Gaussian(
        mean_init=best.means_, covariance_init=best.emission_.covariance_, reg_covar=0.0
    )
    model = start(
        emission=emission,
        transitions=Homogeneous(init=best.transmat_),
        startprob_init=best.startprob_,
        **settings,
    )
    model.fit(X, lengths=lengths)
    np.testing.assert_allclose(model.means_, best.means_, atol=2e-4)
    np.testing.assert_allclose(model.transmat_, best.transmat_, atol=2e-4)
    assert np.ptp(model.history_["objective"]) < 1e-8


SHORT_STEPS = 1e6  # an estimate that holds wherever it is


def doubled(loss, u, g, metric, found, first):
    """Whether an estimate was; Eq. 30 holds for it, and for no half of it."""

    def holds(lipschitz):
        step = g / metric
        return loss(u - step / lipschitz) <= loss(u) - 0.5 * g @ step / lipschitz

    assert holds(found)
    if found == first:
        return False
    assert np.log2(found / first) % 1.0 == 0.0
    assert not holds(0.5 * found)
    return True


def test_estimates_of_blocks_double_as_far_as_they_must():
    model, point, data = make(FAMILIES["diag"], n=3)
    partition = RowBlockSource(data).blocks(1, np.random.default_rng(0))
    options = {"saga": True, "partial": True, "inner_iter": 1}
    steps, parameters = BlockSweeps(model, data, partition, **options), point.parameters
    share, cut = model.mean(point, data), model.n_chain_coordinates()
    u, slope = model.free(parameters), model.slope(parameters, share)
    metric = np.random.default_rng(1).uniform(0.1, 1.0, len(u))
    parts = (
        (slice(cut), model.bind_chain, model.chain_surrogate),
        (slice(cut, None), model.bind_emission, model.rows_surrogate),
    )
    for lipschitz in (1e-3, SHORT_STEPS):
        steps.lipschitz = np.full(2, lipschitz)
        for number, (own, bind, surrogate) in enumerate(parts):

            def loss(v, bind=bind, surrogate=surrogate):
                return -surrogate(bind(v, parameters), share)

            arguments = number, bind, surrogate, parameters, share
            steps._search(*arguments, u[own], slope[own], metric[own])
            found = steps.lipschitz[number], lipschitz
            more = doubled(loss, u[own], -slope[own], metric[own], *found)
            assert more == (lipschitz < SHORT_STEPS)


@pytest.mark.parametrize("name", ["lbfgs", "incremental"])
@pytest.mark.parametrize("kind", ["counts", "codes", "stationary"])
def test_other_models(name, kind):
    rng = np.random.default_rng(1)
    states = rng.integers(2, size=300).repeat(4)
    X = rng.poisson(np.array([2.0, 7.0])[states])[:, None]
    emission = Poisson(rate_init=[[1.0], [9.0]])
    if kind == "codes":
        X = np.minimum(X, 5)
        rates = np.array([[6, 5, 4, 3, 2, 1], [1, 2, 3, 4, 5, 6]]) / 21
        emission = Categorical(probability_init=rates, prior=1.5)
    settings = {"emission": emission, "n_init": 1, "tol": 1e-9, "random_state": 0}
    if kind == "stationary":
        settings |= {"startprob": "stationary"}
    expected = VRHMM(2, solver="batch", **settings).fit(X)
    model = VRHMM(2, **SOLVERS[name], **settings).fit(X)
    found, wanted = (m.history_["objective"][-1] for m in (model, expected))
    assert found == pytest.approx(wanted, abs=1e-7)


@pytest.mark.parametrize("solver", ["svrg", "saga"])
def test_sweeps_over_blocks_climb(solver):
    rng = np.random.default_rng(1)
    states = rng.integers(2, size=300).repeat(4)
    X = rng.poisson(np.array([2.0, 7.0])[states])[:, None]
    settings = {"emission": Poisson(rate_init=[[1.0], [9.0]]), "n_init": 1}
    settings["random_state"] = 0
    blocks = {"batch_size": 130, "inner_iter": 5}
    best = VRHMM(2, solver="batch", tol=1e-9, **settings).fit(X)
    model = VRHMM(2, solver=solver, **blocks, max_iter=12, tol=0.0, **settings)
    model.fit(X)
    objective = model.history_["objective"]
    assert np.diff(objective).min() >= -1e-12  # rounding, at the end
    assert best.log_likelihood_ - objective[-1] < 1e-8
    assert objective[-1] - objective[0] > 2e-3


@pytest.mark.parametrize("solver", ["svrg", "saga"])
@pytest.mark.parametrize("kind", ["rows", "blocks", "covariates"])
def test_sweeps_need_fewer_epochs_than_em(solver, kind):
    """Of overlapping states that are rare: no one unit of steps suits coordinates."""
    rng = np.random.default_rng(0)
    states = [0]
    for _ in range(2999):
        states.append(
            rng.choice(3, p=[[0.95, 0.04, 0.01], [0.2, 0.7, 0.1]][min(states[-1], 1)])
        )
    X = (
        rng.normal(size=(3000, 3))
        + np.array([[0.0, 0, 0], [2, 0, 0], [0, 2, 0]])[states]
    )
    settings = {"n_init": 1, "random_state": 0}
    if kind == "covariates":
        settings["transitions"] = Covariates([2])
    em = VRHMM(3, solver="batch", acceleration=None, **settings).fit(X)
    best = VRHMM(3, tol=1e-10, **settings).fit(X)
    size = {"batch_size": 100} if kind == "blocks" else {}
    found = VRHMM(3, solver=solver, **size, **settings).fit(X)
    assert found.converged_
    near = best.objective_ - 1e-5
    reached = [np.argmax(fit.history_["objective"] > near) for fit in (found, em)]
    assert 0 < reached[0] < reached[1] / 3
    assert best.objective_ - found.objective_ < 2e-6


def test_bad_combinations(series):
    X, _ = series
    with pytest.raises(ValueError, match="of batch passes"):
        start(solver="incremental", acceleration="lbfgs").fit(X)
    with pytest.raises(ValueError, match="never lets the likelihood fall"):
        start(solver="svrg", tempering="annealed").fit(X)
    with pytest.raises(ValueError, match="batch_size=1 needs"):
        start(solver="svrg", batch_size=1, transitions=Homogeneous(prior=2.0)).fit(X)
    with pytest.raises(ValueError, match="changes it"):
        start(acceleration="lbfgs", tempering="annealed").fit(X)


def test_short_starts_go_on_with_the_solver(series):
    X, lengths = series
    model = start(n_init=3, acceleration="lbfgs", emission="gaussian", tol=1e-10)
    model.fit(X, lengths=lengths)
    assert model.init_scores_.shape == (3,) and model.solver_ == "batch+lbfgs"
    assert model.log_likelihood_ > model.init_scores_.max() - 1e-9


def test_stochastic_steps_forget_no_code():
    """However long they are asked to be, and though most sequences lack it."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 4, (2000, 1))
    X[777] = 4
    model = VRHMM(2, emission="categorical", solver="stochastic", step_size=5.0)
    model.set_params(n_init=1, max_iter=5, tol=0.0, random_state=0)
    model.fit(X, lengths=[20] * 100)
    assert np.isfinite(model.score(X, lengths=[20] * 100))


@pytest.mark.parametrize(
    ("solver", "acceleration", "used"),
    [
        ("auto", "auto", "batch+squarem"),
        ("auto", None, "batch"),
        ("auto", "lbfgs", "batch+lbfgs"),
        ("batch", "auto", "batch"),
        ("batch", "squarem", "batch+squarem"),
        ("incremental", "auto", "incremental"),
    ],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_what_automatic_acceleration_is(series, solver, acceleration, used):
    X, lengths = series
    model = start(solver=solver, acceleration=acceleration, max_iter=8)
    assert model.fit(X, lengths=lengths).solver_ == used


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_objective_is_what_the_history_ends_with(series):
    X, lengths = series
    model = start(transitions=Homogeneous(prior=2.0), max_iter=8)
    model.fit(X, lengths=lengths)
    prior = np.log(model.transmat_).sum() / len(X)
    assert model.objective_ == model.history_["objective"][-1]
    assert model.objective_ != model.log_likelihood_
    again = model.score(X, lengths=lengths)
    assert model.log_likelihood_ == pytest.approx(again, abs=1e-4)
    assert model.objective_ == pytest.approx(again + prior, abs=1e-4)
    model.partial_fit(X, lengths=lengths)
    prior *= len(X) / model.n_samples_seen_
    assert model.objective_ == pytest.approx(model.log_likelihood_ + prior, abs=1e-3)


# Starts that are compared on a sample


@pytest.fixture
def long_enough(monkeypatch):
    """Let few rows be long data."""
    monkeypatch.setattr(_plan, "FEWEST_SAMPLED", 100)
    monkeypatch.setattr(_plan, "ROWS_A_PARAMETER", 1)
    monkeypatch.setattr(_plan, "SHORT", 0)
    monkeypatch.setattr(_plan, "MEDIUM", 0)


def planned(model, X, **given):
    model._check_parameters()
    _, data, opened = open_rows(model, X, fresh=True, **given)
    return _plan.plan_fit(model, opened, data, False)[0].sample, data, opened


def rungs_of(model, X):
    model._check_parameters()
    _, data, opened = open_rows(model, X, fresh=True)
    plan, _, n_init, *_ = _plan.plan_fit(model, opened, data, False)
    return n_init, list(plan.rungs)


def test_a_race_that_begins_on_a_sample_ends_on_all_rows(series, long_enough):
    X, lengths = series
    model = VRHMM(3, random_state=0).fit(X, lengths=lengths)
    assert model.objective_ == pytest.approx(model.score(X, lengths=lengths), rel=1e-9)
    assert model.init_scores_.shape == (12,)
    best = np.nanmax(model.init_scores_)
    assert best == pytest.approx(model.objective_, abs=1e-12)  # the first of equal ones
    history = model.history_["objective"]
    assert history[-1] == model.objective_ and len(history) == model.n_iter_ + 1
    assert (np.diff(history) > -1e-9).all()
    # Passes count what the sample is of all rows: more than half a pass, as the
    # epochs of a start on a quarter of them are of several passes each.
    assert 0.5 < model.history_["passes"][0] < 4.0
    many = VRHMM(3, random_state=0, n_init=12).fit(X, lengths=lengths)
    assert model.objective_ == pytest.approx(many.objective_, abs=1e-5)


@pytest.mark.parametrize(
    ("n", "k", "starts", "epochs", "left"),
    [(300, 5, 32, 15, 16), (2_100, 8, 32, 5, 8), (2_100, 9, 22, 10, 11)],
    ids=["short", "medium", "many states"],
)
def test_cheap_passes_and_many_states_are_worth_more_starts(
    series, n, k, starts, epochs, left
):
    X = np.tile(series[0], (2, 1))[:n]
    model = VRHMM(k, random_state=0, tol=1e-9, max_iter=2000).fit(X)
    assert model.init_epochs_.shape == (starts,)
    longer = model.init_epochs_ > epochs
    assert 1 < longer.sum() <= left
    best = model.init_scores_[longer].max()
    assert best == pytest.approx(model.objective_, abs=1e-12)


@pytest.mark.parametrize(
    ("model", "rows", "n_init", "rungs"),
    [
        (VRHMM(3), 4_400, 32, [(15, 16), (40, 8)]),
        (VRHMM(3), 4_500, 32, [(5, 8), (5, 4)]),
        (VRHMM(3), 44_000, 32, [(5, 8), (5, 4)]),
        (VRHMM(3), 88_000, 16, [(5, 4), (5, 2)]),
        (VRHMM(3), 120_000, 12, [(3, 4), (4, 2)]),
        # What looks at rows again costs more, as does what has more parts.
        (VRHMM(3, emission=StudentT()), 4_400, 16, [(15, 8), (40, 4)]),
        (VRHMM(3, emission=MixtureGaussian(2)), 4_400, 32, [(5, 8), (5, 4)]),
        (VRHMM(6), 120_000, 12, [(3, 4), (4, 1)]),
    ],
    ids=str,
)
def test_starts_are_as_many_as_passes_are_cheap(model, rows, n_init, rungs):
    assert rungs_of(model, rng().normal(size=(rows, 2))) == (n_init, rungs)


def test_values_that_are_missing_in_many_ways_make_passes_dear():
    X = rng().normal(size=(2_700, 4))
    _, full = rungs_of(VRHMM(3, covariance_type="full"), X)
    X[rng().random(X.shape) < 0.2] = np.nan
    _, missing = rungs_of(VRHMM(3, covariance_type="full"), X)
    assert full == [(15, 16), (40, 8)] and missing == [(15, 8), (40, 4)]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_epochs_on_a_sample_are_not_those_of_the_fit(series, long_enough):
    X, _ = series
    for most, made in ((1, 1), (3, 3), (5, 2)):
        model = VRHMM(3, random_state=0, max_iter=most, tol=0.0).fit(X)
        assert model.n_iter_ == made and not model.converged_
        assert model.objective_ == pytest.approx(model.score(X), rel=1e-9)


@needs_callbacks
def test_a_callback_can_end_a_fit_on_its_sample(series, long_enough):
    class Stop:
        def setup(self, estimator, context):
            """Begin."""

        teardown = on_fit_task_begin = setup

        def on_fit_task_end(self, estimator, context, **kwargs):
            return context.task_name == "epoch"

    X, _ = series
    model = VRHMM(3, random_state=0).set_callbacks(Stop()).fit(X)
    assert model.n_iter_ == 0
    assert model.objective_ == pytest.approx(model.score(X), rel=1e-9)


def test_what_a_sample_is(series, long_enough):
    X, lengths = series
    ids = np.repeat(np.arange(5), lengths)
    weight, labels = np.array([1.0, 2.0, 3.0, 4.0, 5.0])[ids], ids % 3
    given = {"lengths": lengths, "sample_weight": weight, "state_labels": labels}
    sample, data, model = planned(VRHMM(3), X, **given)
    rows, bounds = sample.rows, sample.rows.bounds
    assert 0.2 * len(X) < len(rows.X) < 0.3 * len(X)
    at = [np.flatnonzero((X == row).all(axis=1))[0] for row in rows.X]
    for sequence, (a, b) in enumerate(pairwise(bounds)):
        assert (np.diff(at[a:b]) == 1).all() and len({*ids[at[a:b]]}) == 1
        assert sample.weight[sequence] == weight[at[a]]
    np.testing.assert_array_equal(rows.labels, labels[at])
    assert sample.total_weight == weight[at].sum()
    # Its means are about those of all rows.
    plain, data, model = planned(VRHMM(3), X)
    sample = take_sample(model, data, rng())
    point = model.start(starting_parameters(model, sample, "kmeans", 0, rng()))
    some, every = model.mean(point, plain), model.mean(point, data)
    assert abs(some.objective - every.objective) < 0.1 * abs(every.objective)


def rng():
    return np.random.default_rng(0)


@pytest.mark.parametrize(
    "model",
    [
        VRHMM(3, transitions=Homogeneous("left-right")),
        VRHMM(3, startprob=[1.0, 0.0, 0.0]),
        VRHMM(3, transitions=Covariates([1])),
        VRHMM(3, n_init=12),
        VRHMM(3, solver="svrg"),
        VRHMM(3, tempering="annealed"),
    ],
    ids=["ordered", "start", "inputs", "number", "svrg", "annealed"],
)
def test_who_has_no_sample(series, long_enough, model):
    assert planned(model, series[0])[0] is None


@pytest.mark.parametrize(
    "emission", ["gaussian", Gaussian("full"), Regression(covariates=[1])], ids=str
)
def test_missing_values_on_a_sample(series, long_enough, emission):
    X = series[0].copy()
    X[rng().random(X.shape) < 0.1] = np.nan
    model = VRHMM(2, emission=emission, random_state=0, tol=1e-4)
    assert planned(model, X)[0] is not None
    model.fit(X)
    assert model.objective_ >= model.score(X) - 1e-2


def test_rows_that_are_few_have_no_sample(series, monkeypatch):
    assert planned(VRHMM(3), series[0])[0] is None
    monkeypatch.setattr(_plan, "FEWEST_SAMPLED", 100)
    monkeypatch.setattr(_plan, "ROWS_A_PARAMETER", 50)
    assert planned(VRHMM(1, n_init="auto"), series[0])[0] is None  # one start
    assert planned(VRHMM(2), series[0])[0] is not None  # 11 parameters, 1,671 rows
    monkeypatch.setattr(_plan, "ROWS_A_PARAMETER", 1)
    monkeypatch.setattr(_plan, "MOST_SAMPLED", 150)
    assert 130 <= len(planned(VRHMM(2), series[0])[0].rows.X) <= 150
    monkeypatch.setattr(_plan, "ROWS_A_PARAMETER", 50)
    assert planned(VRHMM(3), series[0])[0] is None  # 20 parameters


@pytest.mark.parametrize(("solver", "seed"), [("svrg", 6), ("saga", 6)])
def test_steps_of_one_size_do_not_end_where_em_finds_more(solver, seed):
    """As of gains that are of steep directions alone, on a plateau of the others."""
    rng = np.random.default_rng(seed)
    states = np.repeat(rng.integers(3, size=300), 10)
    if solver == "svrg":
        emission, X = "poisson", rng.poisson(1 + states)[:, None]
    else:
        emission, X = "categorical", np.minimum(rng.poisson(1 + 2 * states), 6)[:, None]
    how = {"emission": emission, "n_init": 1, "random_state": 1, "max_iter": 500}
    swept = VRHMM(3, solver=solver, tol=1e-6, **how).fit(X)
    assert swept.converged_
    after = VRHMM(3, solver="batch", tol=1e-9, warm_start=True, **how)
    vars(after).update({n: v for n, v in vars(swept).items() if n.endswith("_")})
    vars(after).update(_of_fit=swept._of_fit)
    assert after.fit(X).objective_ < swept.objective_ + 3e-6
