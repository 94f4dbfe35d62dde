"""Posteriors of coefficients: what they are, what predictions make of them."""

import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit, softmax
from sklearn.base import clone
from sklearn.datasets import load_digits, make_blobs
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.preprocessing import scale

from skvrem import BayesianLogisticRegression
from skvrem.data import as_source
from skvrem.exceptions import DataScaleWarning
from skvrem.vi import MinibatchSteps
from skvrem.vi.gaussian._model_posterior import MeanField
from skvrem.vi.gaussian._plan import plan_fit
from skvrem.vi.glm._input import ColumnUnits

# Posterior means and standard deviations of two_classes(), coefficients and then the
# intercept, by Hamiltonian Monte Carlo: NumPyro 0.22's NUTS in float64, 2,000 steps of
# warm-up and 100,000 draws, of which 73,000 effective ones.
REFERENCE = {
    "mean": [1.12418, -0.70235, 0.22282, -0.36575],
    "sd": [0.22526, 0.17203, 0.15785, 0.15729],
}


def two_classes(n=200):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    X[:, 1] += 0.8 * X[:, 0]
    return X, (rng.random(n) < expit(X @ [1.0, -0.5, 0.3] - 0.4)).astype(int)


def three_classes(n=150):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, 2))
    X[:, 1] += 0.5 * X[:, 0]
    z = X @ np.array([[1.0, -1.0, 0.0], [0.5, 0.5, -1.0]]) + [0.3, 0.0, -0.3]
    return X, (z + rng.gumbel(size=z.shape)).argmax(axis=1)


def fit(X, y, sample_weight=None, **params):
    prior = {"prior_scale": 1.0, "intercept_prior_scale": 10.0}
    params = {"tol": 1e-6, "random_state": 0} | prior | params
    return BayesianLogisticRegression(**params).fit(X, y, sample_weight)


# The posterior


def test_two_classes_against_long_sampling():
    model = fit(*two_classes())
    mean = np.append(model.coef_, model.intercept_)
    sd = np.append(model.coef_std_, model.intercept_std_)
    # A Gaussian is not the posterior: its mean is off by a few hundredths of the sd.
    off = (mean - REFERENCE["mean"]) / REFERENCE["sd"]
    assert abs(off).max() < 0.06
    np.testing.assert_allclose(sd, REFERENCE["sd"], rtol=0.04)
    assert model.pareto_k_ < 0.5


def test_intervals_cover():
    """Coefficients drawn from the prior are in 95 % of the 95 % intervals."""
    rng = np.random.default_rng(5)
    inside = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = BayesianLogisticRegression(1.0, fit_intercept=False, n_jobs=1)
        for _ in range(250):
            X = rng.normal(size=(120, 4)) + 1.5 * rng.normal(size=(120, 1))
            beta = rng.normal(size=4)
            y = np.append(rng.random(118) < expit(X[:-2] @ beta), [0, 1])
            model.fit(X[:-2], y[:-2]) if 0 < y[:-2].sum() < 118 else model.fit(X, y)
            inside.append(abs(model.coef_[0] - beta) < 1.96 * model.coef_std_[0])
    assert 0.93 < np.mean(inside) < 0.97


def test_mean_field_is_too_sure_and_says_so():
    X, y = two_classes()
    full, field = fit(X, y), fit(X, y, posterior="meanfield")
    assert (field.coef_std_[0, :2] < 0.9 * full.coef_std_[0, :2]).all()
    assert field.elbo_ < full.elbo_
    table = field.summary()
    note = table.attrs["note"] if hasattr(table, "attrs") else table
    assert "too small" in note


@pytest.mark.parametrize("problem", [two_classes, three_classes])
def test_low_rank_lies_between(problem):
    X, y = problem()
    full, field = fit(X, y), fit(X, y, posterior="meanfield")
    low = fit(X, y, posterior="lowrank", rank=2, tol=1e-3)
    assert field.elbo_ + 0.01 < low.elbo_ < full.elbo_ + 1e-3


def test_a_low_rank_that_is_full_is_the_full_posterior():
    X, y = two_classes()
    low = fit(X, y, posterior="lowrank", rank=4, tol=1e-4)
    assert low.elbo_ == pytest.approx(fit(X, y).elbo_, abs=0.02)


# Nodes err by more than such a tolerance, and a fit says so where it stalls.
@pytest.mark.filterwarnings("ignore::skvrem.exceptions.StalledWarning")
@pytest.mark.parametrize("problem", [two_classes, three_classes])
def test_optimizers_of_the_mean_field_agree(problem):
    X, y = problem()
    a = fit(
        X, y, posterior="meanfield", steps=MinibatchSteps(optimizer="natural"), tol=1e-8
    )
    b = fit(
        X, y, posterior="meanfield", steps=MinibatchSteps(optimizer="lbfgs"), tol=1e-8
    )
    assert a.elbo_ == pytest.approx(b.elbo_, abs=2e-3)
    np.testing.assert_allclose(a.coef_, b.coef_, atol=0.01)
    np.testing.assert_allclose(a.coef_std_, b.coef_std_, rtol=0.02)


def test_many_rows_leave_the_maximum_likelihood():
    X, y = two_classes(20_000)
    model = fit(X, y, prior_scale=100.0)
    twin = LogisticRegression(C=np.inf, tol=1e-10).fit(X, y)
    np.testing.assert_allclose(model.coef_, twin.coef_, atol=2e-3)


def test_steps_do_not_swing_about_the_top():
    """Of pixels as they are, logits are wide, and whole steps overshoot."""
    X, y = load_digits(n_class=3, return_X_y=True)
    prior = {"prior_scale": 1.0, "intercept_prior_scale": 10.0}
    model = BayesianLogisticRegression(**prior).fit(X[:150], y[:150])
    assert model.converged_ and model.history_["passes"][-1] < 100.0
    best = fit(X[:150], y[:150], tol=1e-4)
    assert best.elbo_ - model.elbo_ < 0.01


def test_separable_data_stop_at_the_prior():
    X = np.linspace(-1.0, 1.0, 40)[:, None] + [[0.0, 3.0]]
    model = fit(X, (X[:, 0] > 0).astype(int))
    assert model.converged_ and np.isfinite(model.coef_).all()


def test_a_column_of_zeros_keeps_its_prior():
    X, y = two_classes()
    X[:, 2] = 0.0
    model = fit(X, y, prior_scale=[1.0, 1.0, 0.7])
    assert model.coef_[0, 2] == pytest.approx(0.0, abs=1e-12)
    assert model.coef_std_[0, 2] == pytest.approx(0.7)


def test_prior_scales_do_not_cover_the_intercept():
    X, y = two_classes()
    tight = fit(X, y, prior_scale=1e-3)
    assert abs(tight.coef_).max() < 0.01
    logit = np.log(y.mean() / (1.0 - y.mean()))
    assert tight.intercept_[0] == pytest.approx(logit, abs=0.02)
    both = fit(X, y, prior_scale=1e-3, intercept_prior_scale=1e-3)
    assert abs(both.intercept_[0]) < 0.01


# Rows


@pytest.mark.parametrize("problem", [two_classes, three_classes])
def test_weights_are_repetitions(problem, rng):
    X, y = problem()
    weight = rng.integers(4, size=len(X))
    a = fit(X, y, sample_weight=weight)
    b = fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    # Of several classes, rows decide how many nodes a pass may have.
    error = a.elbo_error_ + b.elbo_error_
    assert a.elbo_ == pytest.approx(b.elbo_, abs=1e-8 + error)
    np.testing.assert_allclose(a.coef_, b.coef_, atol=1e-8 + error)


def test_nodes_miss_little_of_many_classes_that_are_told_apart():
    X, y = make_blobs(100, 5, centers=10, random_state=0)
    model = BayesianLogisticRegression().fit(X, y)
    assert model.elbo_error_ < 0.7
    assert model.converged_ and model.gap_left_ < model.tol


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_coarse_nodes_are_no_end():
    """Near their end finer ones go on, but a fit that stops there has not converged."""
    X, y = three_classes()
    for max_iter in range(1, 8):
        model = fit(X, y, max_iter=max_iter, tol=1e-5)
        assert model.n_iter_ <= max_iter
        assert not model.converged_ or model.gap_left_ < model.tol


@pytest.mark.parametrize("posterior", ["fullrank", "meanfield", "lowrank"])
@pytest.mark.parametrize("problem", [two_classes, three_classes])
def test_sparse_rows_are_rows(problem, posterior):
    X, y = problem()
    X = np.where(abs(X) > 0.4, X, 0.0)
    # With a low rank the bound is not concave: rounding decides between ends that are
    # less than a thousandth of a nat apart.
    atol = 1e-3 if posterior == "lowrank" else 1e-6
    dense = fit(X, y, posterior=posterior, tol=atol)
    sparse = fit(sp.csr_array(X), y, posterior=posterior, tol=atol)
    assert sparse.elbo_ == pytest.approx(dense.elbo_, abs=atol)
    np.testing.assert_allclose(sparse.coef_, dense.coef_, atol=atol)
    np.testing.assert_allclose(
        sparse.predict_proba(sp.csr_array(X)), dense.predict_proba(X), atol=atol
    )


def test_single_precision():
    X, y = two_classes()
    a, b = fit(X, y, tol=1e-3), fit(X.astype(np.float32), y, tol=1e-3)
    assert b.coef_.dtype == b.coef_std_.dtype == np.float32
    np.testing.assert_allclose(a.coef_, b.coef_, atol=1e-3)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("solver", ["batch", "svrg"])
def test_the_same_bits_for_any_number_of_threads(solver):
    X, y = two_classes(20_000)
    a, b = (
        fit(X, y, solver=solver, n_jobs=n_jobs, tol=0.0, max_iter=3)
        for n_jobs in (1, 3)
    )
    np.testing.assert_array_equal(a.coef_, b.coef_)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("solver", ["svrg", "saga", "stochastic"])
def test_minibatches_take_more_draws_where_epochs_lose(solver):
    """Three separable classes along a line: with one draw they stall far below."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 100)
    along = 4.0 * (y - 1.0) + 0.5 * rng.normal(size=300)
    X = along[:, None] * rng.normal(size=3)
    given = {"prior_scale": 5.0, "n_jobs": 1, "max_iter": 150}
    best = fit(X, y, posterior="meanfield", **given).elbo_

    def losses(**how):
        fits = [fit(X, y, random_state=seed, **given, **how) for seed in range(3)]
        return best - np.array([found.elbo_ for found in fits])

    found = losses(solver=solver, steps=MinibatchSteps(expectation="mc"))
    steps = MinibatchSteps(expectation="mc", n_draws=1)
    fixed = losses(solver=solver, steps=steps)
    assert found.max() < 3.0 and 2.0 * found.mean() < fixed.mean()


# Predictions


@pytest.mark.parametrize("posterior", ["fullrank", "meanfield", "lowrank"])
@pytest.mark.parametrize("problem", [two_classes, three_classes])
def test_predictions_average_over_the_posterior(problem, posterior):
    X, y = problem()
    model = fit(X, y, posterior=posterior, tol=1e-3)
    exact = model.predict_proba(X)
    np.testing.assert_allclose(exact.sum(axis=1), 1.0, atol=1e-12)
    coef, intercept = model.sample_posterior(20_000, random_state=1).values()
    z = np.einsum("nd,skd->snk", X[:20], coef) + intercept[:, None]
    draws = softmax(z, axis=2)
    if z.shape[2] == 1:
        draws = np.concatenate([1.0 - expit(z), expit(z)], axis=2)
    np.testing.assert_allclose(draws.mean(axis=0), exact[:20], atol=0.01)
    np.testing.assert_allclose(model.predict_proba(X, "mc"), exact, atol=0.03)
    plugin = model.predict_proba(X, method="plugin")
    assert plugin.max(axis=1).mean() > exact.max(axis=1).mean()
    interval = model.predict_proba_interval(X, level=0.8)
    found = np.quantile(draws, [0.1, 0.9], axis=0).transpose(1, 2, 0)
    np.testing.assert_allclose(interval[:20], found, atol=0.035)
    np.testing.assert_array_equal(
        model.predict(X), model.classes_[exact.argmax(axis=1)]
    )
    np.testing.assert_allclose(model.predict_log_proba(X), np.log(exact))


def test_far_away_it_is_less_sure():
    X, y = two_classes()
    model = fit(X, y)
    far = model.predict_proba(100.0 * X[:5])
    plugin = model.predict_proba(100.0 * X[:5], method="plugin")
    assert (far.max(axis=1) <= plugin.max(axis=1)).all()


# Streams and warm starts


# Nodes err by more than such a tolerance, and a fit says so where it stalls.
@pytest.mark.filterwarnings("ignore::skvrem.exceptions.StalledWarning")
@pytest.mark.parametrize("problem", [two_classes, three_classes])
def test_a_stream_ends_near_the_fit(problem):
    X, y = problem()
    whole, stream = fit(X, y), BayesianLogisticRegression(1.0, tol=1e-6)
    for rows in np.array_split(np.arange(len(X)), 4):
        stream.partial_fit(X[rows], y[rows], classes=np.unique(y))
    assert stream.n_samples_seen_ == len(X)
    np.testing.assert_allclose(stream.coef_std_, whole.coef_std_, rtol=0.1)
    assert abs((stream.coef_ - whole.coef_) / whole.coef_std_).max() < 0.4
    # Bounds of the batches' evidence add up to one of all.
    assert not hasattr(stream, "elbo_")


@pytest.mark.parametrize("posterior", ["meanfield", "lowrank"])
def test_streams_of_other_posteriors(posterior):
    X, y = two_classes()
    stream = BayesianLogisticRegression(posterior=posterior, rank=2, random_state=0)
    for rows in np.array_split(np.arange(len(X)), 2):
        stream.partial_fit(X[rows], y[rows], classes=[0, 1])
    whole = fit(X, y, posterior=posterior, rank=2)
    assert abs((stream.coef_ - whole.coef_) / whole.coef_std_).max() < 0.6


def test_a_warm_start_needs_no_steps():
    X, y = two_classes()
    model = fit(X, y, warm_start=True)
    assert model.n_iter_ > 2
    assert model.fit(X, y).n_iter_ == 1


def test_what_a_pickle_carries():
    X, y = two_classes()
    model = fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    with pytest.raises(AttributeError, match="rows of the fit"):
        again.pareto_k_  # noqa: B018
    assert again.partial_fit(X, y).n_samples_seen_ == 2 * len(X)


# What is wrong


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"prior_scale": 0.0}, "prior_scale .* positive"),
        ({"prior_scale": [1.0, -1.0, 1.0]}, "prior_scale .* positive"),
        ({"prior_scale": [1.0, 1.0]}, "one for each of the 3 features"),
        ({"intercept_prior_scale": 0.0}, "intercept_prior_scale"),
        ({"posterior": "diag"}, "posterior"),
        ({"tol": -1.0}, "tol"),
        ({"steps": MinibatchSteps(n_draws=0)}, "n_draws"),
        ({"solver": "batch", "steps": MinibatchSteps(optimizer="adam")}, "full passes"),
        ({"solver": "batch", "steps": MinibatchSteps(expectation="mc")}, "full passes"),
        ({"solver": "svrg", "posterior": "fullrank"}, "meanfield"),
        ({"steps": "adam"}, "steps of BayesianLogisticRegression must be a Minibatch"),
        ({"steps": MinibatchSteps(optimizer="newton")}, "optimizer of MinibatchSteps"),
        ({"solver": "svrg", "steps": MinibatchSteps(optimizer="lbfgs")}, "full passes"),
        (
            {
                "solver": "saga",
                "steps": MinibatchSteps(expectation="mc", control_variate=None),
            },
            "control variate",
        ),
        (
            {"posterior": "fullrank", "steps": MinibatchSteps(optimizer="lbfgs")},
            "does not go with",
        ),
        (
            {"posterior": "lowrank", "steps": MinibatchSteps(optimizer="natural")},
            "does not go with",
        ),
    ],
)
def test_wrong_parameters(params, message):
    X, y = two_classes()
    model = fit(X, y).set_params(**params)
    before = dict(vars(model))
    with pytest.raises(ValueError, match=message):
        model.fit(X, y)
    assert list(vars(model)) == list(before)
    assert all(value is before[name] for name, value in vars(model).items())


def test_wrong_rows():
    X, y = two_classes()
    model = BayesianLogisticRegression()
    with pytest.raises(ValueError, match="only one class"):
        model.fit(X, np.zeros(len(X)))
    with pytest.raises(ValueError, match="classes must be passed"):
        model.partial_fit(X, y)
    with pytest.raises(ValueError, match="dense rows"):
        clone(model).set_params(solver="svrg").fit(sp.csr_array(X), y)
    with pytest.raises(NotFittedError):
        model.predict(X)
    fitted = fit(X, y)
    with pytest.raises(ValueError, match="not among the classes"):
        fitted.partial_fit(X[:2], [0, 7])
    with pytest.raises(ValueError, match="method must be"):
        fitted.predict_proba(X, method="laplace")
    with pytest.raises(ValueError, match="level"):
        fitted.predict_proba_interval(X, level=95)


def test_out_of_epochs_warns():
    X, y = two_classes()
    with pytest.warns(ConvergenceWarning, match="nats are left to gain"):
        model = BayesianLogisticRegression(max_iter=1, tol=1e-8).fit(X, y)
    assert not model.converged_ and model.history_["predicted_gain"].size == 2


def test_answers_know_no_units_and_no_origin():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = X @ [2.0, -1.0, 0.0] > rng.logistic(size=300)
    model = BayesianLogisticRegression(tol=1e-8)
    standard = model.fit(X, y).predict_proba(X)
    elsewhere = X * [1e-3, 1.0, 1e3] + [1.0, 2000.0, -1e4]
    found = model.fit(elsewhere, y).predict_proba(elsewhere)
    # There the intercept's prior is wider, not narrower.
    np.testing.assert_allclose(found, standard, atol=2e-3)
    about = model.intercept_prior_scale_, model.prior_scale_ @ [1.0, 2000.0, -1e4]
    assert about[0] > abs(about[1]) / 2


@pytest.mark.parametrize("layout", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("shape, truth", [((900, 1200), 0.1), ((1500, 1200), 0.02)])
def test_some_rows_tell_the_prior_of_many_coefficients(layout, shape, truth):
    rng = np.random.default_rng(0)
    X = rng.normal(size=shape)
    coef = rng.normal(scale=truth, size=shape[1])
    y = X @ coef > rng.logistic(size=shape[0])
    model = BayesianLogisticRegression(random_state=0, max_iter=100).fit(layout(X), y)
    assert truth / 2.5 < model.prior_scale_[0] < truth * 2.5
    assert np.ptp(model.prior_scale_) == 0.0
    # New rows are not explained better by another.
    new = rng.normal(size=(2000, shape[1]))
    seen = new @ coef > rng.logistic(size=2000)
    score = log_loss(seen, model.predict_proba(new))
    for times in 0.1, 10.0:
        other = clone(model).set_params(prior_scale=times * model.prior_scale_[0])
        assert score < log_loss(seen, other.fit(X, y).predict_proba(new))


@pytest.mark.parametrize(
    ("k", "size", "given", "expected"),
    [
        (10, 2000, {}, "fullrank"),
        (10, 2010, {}, "lowrank"),
        (10, 1200, {"rank": 3}, "lowrank"),
        (11, 1200, {}, "meanfield"),
        (11, 1200, {"rank": 10}, "lowrank"),
        (11, 1000, {}, "fullrank"),
    ],
)
def test_many_coefficients_of_many_classes_are_independent(k, size, given, expected):
    model = BayesianLogisticRegression(**given)
    assert plan_fit(model, size, k).posterior == expected


def test_few_rows_of_many_classes_do_not_tell_the_prior():
    """Nine of a hundred classes: which ones they are would be most of the answer."""
    rng = np.random.default_rng(0)
    X, y = scale(rng.normal(size=(300, 10))), np.arange(300) % 100
    fits = [
        BayesianLogisticRegression(random_state=seed, tol=1.0).fit(X, y)
        for seed in range(2)
    ]
    assert isinstance(fits[0].posterior_, MeanField)
    alone = 1.0 / ColumnUnits.of(as_source(X)).units
    np.testing.assert_allclose(fits[0].prior_scale_, alone)
    np.testing.assert_array_equal(*(model.coef_ for model in fits))


def test_numbers_that_are_no_classes_are_warned_of(rng):
    X, y = rng.normal(size=(60, 2)), np.arange(60) * 2 // 3
    with pytest.warns(UserWarning, match="unique classes is greater than 50%"):
        BayesianLogisticRegression(tol=1.0).fit(X, y)


def test_columns_that_a_prior_hides_are_named():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = X.sum(axis=1) > rng.logistic(size=200)
    rare = np.eye(300)[:200]  # a category each, on the scale of ones
    with pytest.warns(DataScaleWarning, match=r"matter.*: 1 \(0\.00\d+\)\. Scale"):
        BayesianLogisticRegression(1.0).fit(X * [1.0, 1e-3, 1e3], y)
    words = 0.02 * rng.normal(size=(200, 400))  # which move a logit together
    cases = ("learn", 1e-3 * X), (1e-3, X), (1.0, rare), (1.0, words)
    for prior_scale, rows in cases:
        BayesianLogisticRegression(prior_scale=prior_scale).fit(rows, y)
