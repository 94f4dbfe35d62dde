"""A user's own model: right posteriors, unbiased gradients, and errors that help."""

import pickle

import numpy as np
import pytest
from numpy.polynomial.hermite_e import hermegauss
from scipy.special import expit
from scipy.stats import norm
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV

from skvrem import BayesianGLMRegressor, BayesianLogisticRegression
from skvrem import VariationalInference as VI
from skvrem.solvers._protocols import Anchor
from skvrem.vi import MinibatchSteps
from skvrem.vi.blackbox import _fit
from skvrem.vi.blackbox._input import check_density
from skvrem.vi.blackbox._model import (
    DrawnModel,
    convex,
    opposite_draws,
)
from skvrem.vi.blackbox._model_density import DensityBatch, Target
from skvrem.vi.blackbox._model_steps import EarlierPoint, TargetSteps
from skvrem.vi.gaussian._model import Diagonal, Full, Point
from skvrem.vi.gaussian._model_posterior import FlatPrior, MeanField
from tests.own_models import STEPS, Logistic, RichLogistic, logistic_problem
from tests.watching import Untouched


def fit(model=None, X=None, **params):
    model = Logistic(*logistic_problem()) if model is None else model
    return VI(model, **({"random_state": 0} | params)).fit(X)


def twin(**params):
    X, y = logistic_problem()
    return BayesianLogisticRegression(1.0, fit_intercept=False, tol=1e-6, **params).fit(
        X, y
    )


# Draws of full passes enough for two digits.
MANY = MinibatchSteps(n_draws=400)


# The posterior


@pytest.mark.parametrize("posterior", ["fullrank", "meanfield", "lowrank"])
@pytest.mark.parametrize("model_class", [Logistic, RichLogistic])
def test_equals_the_estimator_that_knows_more(model_class, posterior):
    params = {"posterior": posterior, "rank": 3, "tol": 1e-4}
    model = fit(model_class(*logistic_problem()), steps=MANY, **params)
    exact = twin(posterior="fullrank" if posterior == "lowrank" else posterior)
    assert model.converged_
    assert model.elbo_ == pytest.approx(exact.elbo_, abs=3.0 * model.elbo_se_ + 0.02)
    assert abs((model.mean_ - exact.coef_[0]) / exact.coef_std_[0]).max() < 0.05
    np.testing.assert_allclose(model.std_, exact.coef_std_[0], rtol=0.04)
    assert model.pareto_k_ < 0.7


# Without the control variate, few draws leave a bound that is not climbed to its top.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::skvrem.exceptions.PosteriorWarning")
def test_few_draws_are_controlled():
    """With fewer draws than parameters the second order is the control variate's."""
    X, y = logistic_problem(400, 12)
    exact = BayesianLogisticRegression(1.0, fit_intercept=False).fit(X, y)
    few = VI(Logistic(X, y), steps=MinibatchSteps(n_draws=8), random_state=0)
    off = [
        np.abs(
            clone(few).set_params(steps__control_variate=v).fit().std_ / exact.coef_std_
            - 1
        )
        for v in ("taylor", "antithetic")
    ]
    assert off[0].max() < 0.05 < 0.5 < off[1].max()


def test_more_parameters_than_a_matrix_is_formed_for():
    """The curvature is that of products, its diagonal known or by random signs."""
    X, y = logistic_problem(25, 1001)
    X = X / 25.0  # logits that are known to within 1.3 before any row
    exact = BayesianLogisticRegression(
        1.0, fit_intercept=False, posterior="meanfield", tol=1e-4
    ).fit(X, y)
    for own, rtol in ((RichLogistic(X, y), 0.05), (Logistic(X, y), 0.25)):
        model = fit(own, steps=MinibatchSteps(n_draws=32), posterior="meanfield")
        assert abs((model.mean_ - exact.coef_[0]) / exact.coef_std_[0]).max() < 0.2
        np.testing.assert_allclose(model.std_, exact.coef_std_[0], rtol=rtol)


def test_a_gaussian_model_is_exact():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(50, 3))
    y = X @ [1.0, 0.0, -1.0] + 0.5 * rng.normal(size=50)

    class Linear:
        n_samples, n_parameters = X.shape

        def log_likelihood(self, z, rows):
            away = y[rows] - X[rows] @ z
            return -2.0 * away**2 - np.log(0.5 * np.sqrt(2.0 * np.pi))

        def gradient(self, z, rows):
            return 4.0 * X[rows].T @ (y[rows] - X[rows] @ z)

    exact = BayesianGLMRegressor(
        noise_scale=0.5, fit_intercept=False, prior_scale=1.0
    ).fit(X, y)
    model = fit(Linear(), tol=1e-8)
    np.testing.assert_allclose(model.mean_, exact.coef_, atol=1e-5)
    np.testing.assert_allclose(
        model.posterior_.covariance(), exact.posterior_.covariance(), rtol=1e-4
    )
    # The bound is the evidence, and the control variate leaves no error.
    assert model.elbo_ == pytest.approx(exact.elbo_, abs=1e-6)
    assert model.elbo_se_ < 1e-6


@pytest.mark.parametrize("solver", ["batch", "svrg"])
def test_a_prior_of_the_model_is_the_same_prior(solver):
    X, y = logistic_problem()
    own = fit(RichLogistic(X, y, 0.7), posterior="meanfield", solver=solver)
    given = fit(
        RichLogistic(X, y), posterior="meanfield", solver=solver, prior_scale=0.7
    )
    atol = 0.02 if solver == "batch" else 0.1
    assert own.elbo_ == pytest.approx(given.elbo_, abs=0.05)
    np.testing.assert_allclose(own.mean_, given.mean_, atol=atol)
    np.testing.assert_allclose(own.std_, given.std_, rtol=0.05)


def test_prior_means_and_scales():
    model = fit(prior_mean=[0.0, 2.0, 0.0], prior_scale=[1.0, 1e-3, 1.0])
    assert model.mean_[1] == pytest.approx(2.0, abs=0.01)
    assert model.std_[1] == pytest.approx(1e-3, rel=0.05)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("solver", "control", "scale"), STEPS)
def test_minibatches_end_near_the_batch_fit(solver, control, scale):
    X, y = logistic_problem()
    exact = twin(posterior="meanfield")
    model = VI(
        RichLogistic(X, y),
        posterior="meanfield",
        solver=solver,
        steps=MinibatchSteps(control_variate=control, control_scale=scale),
        tol=0.05,
        max_iter=30,
        warm_start=True,  # from farther away than the mode
        random_state=0,
    )
    model.posterior_ = MeanField(exact.coef_[0] + 1.0, np.full(3, 0.1))
    model.fit()
    gap = exact.elbo_ - model.elbo_
    assert gap < (0.15 if control == "taylor" and scale else 0.3) + 3 * model.elbo_se_
    assert model.solver_ == solver and model.batch_size_ == 5
    variance = model.history_["gradient_variance"]
    assert variance.size == model.history_["predicted_gain"].size
    assert np.nanmin(variance) > 0.0


@pytest.mark.parametrize("solver", ["svrg", "saga"])
@pytest.mark.parametrize("posterior", ["fullrank", "meanfield"])
def test_steps_reach_the_top_of_the_bound_of_a_few_draws(posterior, solver):
    """Whatever the draws: those of the steps are those of the passes."""
    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    model = Logistic(np.column_stack([X[:, :10], np.ones(len(X))]), y)
    for seed in range(3):
        steps = MinibatchSteps(n_draws=16)
        given = {"solver": solver, "posterior": posterior, "steps": steps}
        fitted = VI(model, random_state=seed, max_iter=40, **given).fit()
        assert fitted.converged_


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_optimizers_of_minibatches(optimizer):
    model = fit(steps=MinibatchSteps(optimizer=optimizer), max_iter=8, tol=1e-9)
    assert model.solver_ == "svrg"
    assert twin(posterior="meanfield").elbo_ - model.elbo_ < 0.3


def test_rows_are_those_asked_for():
    X, y = logistic_problem()
    rows = np.r_[np.arange(40), np.arange(10)]  # some twice
    some, alone = fit(X=rows), fit(Logistic(X[rows], y[rows]))
    np.testing.assert_allclose(some.mean_, alone.mean_, atol=1e-6)
    assert some.n_samples_seen_ == 50
    column = fit(X=rows[:, None].astype(float))
    np.testing.assert_array_equal(column.mean_, some.mean_)


def test_single_precision_models():
    class Single(Logistic):
        def gradient(self, z, rows):
            return super().gradient(z, rows).astype(np.float32)

        def log_likelihood(self, z, rows):
            return super().log_likelihood(z, rows).astype(np.float32)

    single = fit(Single(*logistic_problem()))
    np.testing.assert_allclose(single.mean_, fit().mean_, atol=0.01)
    np.testing.assert_allclose(single.std_, fit().std_, rtol=0.02)


@pytest.mark.parametrize("solver", ["batch", "saga"])
def test_one_seed_gives_the_same_bits(solver):
    a, b = (fit(solver=solver, tol=0.5, max_iter=5) for _ in range(2))
    np.testing.assert_array_equal(a.mean_, b.mean_)
    assert a.elbo_ == b.elbo_


def test_a_warm_start_needs_no_steps():
    model = fit(warm_start=True)
    # Draws are the same, and then twice as many; the curvature is taken where the
    # posterior is.
    assert model.fit().n_iter_ <= 2


def test_draws_grow_until_the_tolerance_is_meant(monkeypatch):
    """Where a posterior is far from a Gaussian, and the user has not said how many."""
    X, y = logistic_problem(12)
    ends, looks = {}, {}
    for most in (64, 2048):
        monkeypatch.setattr(_fit, "MOST_PAIRS", most)
        fits = [
            VI(Logistic(X, y), prior_scale=5.0, random_state=s).fit() for s in (0, 1)
        ]
        ends[most] = fits[0].posterior_.kl(fits[1].posterior_)
        looks[most] = fits[0].n_passes_
        assert all(one.elbo_se_ < 0.015 for one in fits)
    assert ends[2048] < 0.5 * ends[64] and ends[2048] < 0.02
    assert looks[2048] > looks[64]
    given = MinibatchSteps(n_draws=128)
    fixed = VI(Logistic(X, y), prior_scale=5.0, steps=given, random_state=0).fit()
    assert fixed.n_passes_ < looks[2048]


# Gradients


@pytest.fixture(scope="module")
def expected():
    """E of gradient and of minus the Hessian's diagonal, by quadrature."""
    X, y = logistic_problem(12, 2)
    mean, scale = np.array([0.3, -0.2]), np.array([0.5, 0.8])
    nodes, weights = hermegauss(40)
    weights = weights / weights.sum()
    z = mean + scale * np.stack(np.meshgrid(nodes, nodes, indexing="ij"), -1)
    p = expit(z @ X.T)
    w = weights[:, None] * weights
    G = np.einsum("ab,abn,nj->j", w, y - p, X)
    C = np.einsum("ab,abn,nj->j", w, p * (1.0 - p), X**2)
    prior_gradient = -mean / 0.7**2
    return X, y, mean, scale, G + prior_gradient, C + 1.0 / 0.7**2


def steps_of(X, y, kind, control, scale, model_class=RichLogistic):
    target = Target(model_class(X, y, 0.7), np.arange(len(X)))
    model = DrawnModel(target, FlatPrior(2), "diagonal", np.zeros((1, 2)))
    return TargetSteps(model, kind, control, scale, "natural", 4)


def at(mean, scale):
    columns = mean[:, None].copy(), np.log(scale)[:, None], np.zeros((mean.size, 1, 0))
    return Anchor(None, np.nan, 0.0, Point(Diagonal(*columns)))


@pytest.mark.parametrize(("kind", "control", "scale"), STEPS)
def test_estimates_are_unbiased(kind, control, scale, expected):
    X, y, mean, deviation, *truth = expected
    steps = steps_of(X, y, kind, control, scale)
    rng = np.random.default_rng(3)
    away, work = at(mean + np.array([0.2, -0.1]), deviation), None
    found = []
    for _ in range(150):
        known = steps.known_at(away, rng) if kind != "stochastic" else None
        work = steps.open(at(mean, deviation))
        visits = steps.visits(known, rng)
        noise = steps.noise(work, visits, rng)
        found += list(steps.estimates(work, known, visits, noise))
    found = np.array(found)
    error = found.std(axis=0) / np.sqrt(len(found))
    assert (abs(found.mean(axis=0) - truth) < 4.0 * error).all()
    if control and scale and control == "taylor":
        naive = steps_of(X, y, "stochastic", None, True)
        plain = [
            naive.estimate(mean, deviation, rng.standard_normal(2), batch)
            for _ in range(60)
            for batch in naive.batches(rng)
        ]
        assert found.var(axis=0).sum() < np.var(plain, axis=0).sum()


def test_a_quadratic_leaves_no_variance_at_the_anchor():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 2))

    class Linear(RichLogistic):
        def gradient(self, z, rows):
            return self.X[rows].T @ (self.y[rows] - self.X[rows] @ z)

        def hessian_vector_product(self, z, v, rows):
            return -self.X[rows].T @ (self.X[rows] @ v)

        def hessian_diagonal(self, z, rows):
            return -np.square(self.X[rows]).sum(axis=0)

    steps = steps_of(X, rng.normal(size=20), "svrg", "taylor", True, Linear)
    mean, scale = rng.normal(size=2), np.array([0.3, 0.5])
    anchor = EarlierPoint(
        mean,
        None,
        steps.target.gradient(mean),
        -steps.target.hessian_diagonal(mean),
    )
    found = np.array(
        [
            steps.estimate(mean, scale, rng.standard_normal(2), batch, anchor)
            for batch in steps.batches(rng)
        ]
    )
    np.testing.assert_allclose(found - found[0], 0.0, atol=1e-7)
    np.testing.assert_allclose(found[0, 0], anchor.gradient, atol=1e-7)


@pytest.mark.parametrize("prior", [None, 0.7])
def test_derived_derivatives(prior):
    X, y = logistic_problem()
    rich = Target(RichLogistic(X, y, prior), np.arange(60))
    plain = Target(Logistic(X, y), np.arange(60))
    if prior is not None:
        for name in ("log_prior", "log_prior_gradient"):
            setattr(plain.model, name, getattr(rich.model, name))
        plain.has_prior = True
    z, v = np.array([0.5, -1.0, 0.2]), np.array([1.0, 2.0, -0.5])
    batch = DensityBatch(np.array([3, 5, 5, 30]), 15.0)
    for rows in (None, batch):
        for name in ("hessian_times", "hessian_diagonal"):
            more = (v,) if name == "hessian_times" else ()
            a, b = (getattr(t, name)(z, *more, rows) for t in (rich, plain))
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(rich.hessian(z), plain.hessian(z), rtol=1e-6, atol=1e-6)
    assert rich.knows_diagonal and plain.knows_diagonal
    many = Logistic(np.ones((5, 33)), np.ones(5))
    assert not Target(many, np.arange(5)).knows_diagonal


def drawn(structure, n_pairs=5):
    """A model on draws at a point away from its optimum."""
    rng = np.random.default_rng(4)
    target = Target(RichLogistic(*logistic_problem()), np.arange(60))
    prior = MeanField(rng.normal(size=3), rng.uniform(0.5, 2.0, 3))
    draws = opposite_draws(rng, n_pairs, 3)
    model = DrawnModel(target, prior, structure, draws)
    mean = rng.normal(size=(3, 1))
    root = np.tril(0.3 * rng.normal(size=(3, 3)), -1) + np.diag([0.5, 0.4, 0.6])
    if structure == "full":
        point = Point(Full(mean, root @ root.T, np.linalg.inv(root @ root.T)))
    else:
        point = Point(Diagonal(mean, np.full((3, 1), -0.7), np.zeros((3, 1, 0))))
    return model, point


def curvature_of(model):
    return convex(-model.target.hessian(np.zeros(3)), model.prior)


@pytest.mark.parametrize("n_pairs", [2, 8])
def test_the_gradient_is_that_of_the_bound(n_pairs):
    model, point = drawn("diagonal", n_pairs)
    model.control(curvature_of(model), point)
    point = model.move(point, 0.1 * np.ones(6))

    def bound(step):
        at = model.move(point, step)
        return model.objective(at, model.statistics(at, None, 1.0))

    gradient = model.gradient(point, model.statistics(point, None, 1.0))
    h = 1e-5
    found = [
        (bound(h * axis) - bound(-h * axis)) / (2.0 * h)
        for axis in np.eye(gradient.size)
    ]
    np.testing.assert_allclose(gradient, found, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("n_pairs", [2, 8])
def test_a_short_natural_step_gains_twice_its_prediction(n_pairs):
    model, point = drawn("full", n_pairs)
    model.control(curvature_of(model), point)
    sums = model.statistics(point, None, 1.0)
    before, h = model.objective(point, sums), 1e-5
    after = model.update(point, sums, None, h)
    gain = model.objective(after, model.statistics(after, None, 1.0)) - before
    assert gain / h == pytest.approx(2.0 * model.predicted_gain(point, sums), rel=1e-3)


def test_the_control_variate_is_unbiased():
    """Bounds on many sets of few draws average to that on many draws."""
    model, point = drawn("full")
    curvature = curvature_of(model)
    bound, error = model.bound(point, opposite_draws(np.random.default_rng(7), 4000, 3))
    rng, found = np.random.default_rng(8), []
    for _ in range(400):
        model.draws = opposite_draws(rng, 2, 3)
        model.control(curvature, point)
        found.append(model.objective(point, model.statistics(point, None, 1.0)))
    spread = np.std(found) / 20.0
    assert abs(np.mean(found) - bound) < 4.0 * np.hypot(spread, error)
    with_control, smaller = model.bound(point, model.draws, curvature)
    assert abs(with_control - bound) < 4.0 * (smaller + error) + 0.05


def test_draws_have_the_moments_of_the_normal():
    rng = np.random.default_rng(0)
    E = opposite_draws(rng, 10, 4)
    np.testing.assert_allclose(E.T @ E / 10, np.eye(4), atol=1e-12)
    few = np.concatenate([opposite_draws(rng, 2, 4) for _ in range(3000)])
    np.testing.assert_allclose(few.T @ few / 6000, np.eye(4), atol=0.1)
    pair = opposite_draws(rng, 2, 4)
    assert pair[0] @ pair[1] == pytest.approx(0.0, abs=1e-12)


# What the posterior says


def test_answers():
    X, y = logistic_problem()
    model = fit(RichLogistic(X, y))
    exact = twin()
    draws = model.sample_posterior(4000, random_state=0)
    assert draws["slope"].shape == (4000, 2)
    np.testing.assert_allclose(draws["level"].mean(), model.mean_[2], atol=0.03)
    p = exact.predict_proba(X)[np.arange(60), y.astype(int)]
    np.testing.assert_allclose(model.score_samples(), np.log(p), atol=0.1)
    assert model.score([1, 2]) == pytest.approx(model.score_samples()[1:3].mean())
    table = model.summary()
    assert list(getattr(table, "index", ["x0", "x1", "x2"])) == ["x0", "x1", "x2"]
    assert model.parameter_names_ == ["x0", "x1", "x2"]
    assert fit().parameter_names_ == ["p0", "p1", "p2"]
    assert fit().sample_posterior(2)["parameters"].shape == (2, 3)


def test_mean_field_says_that_it_is_too_sure():
    table = fit(posterior="meanfield").summary()
    note = table.attrs["note"] if hasattr(table, "attrs") else table
    assert "too small" in note


def test_arviz():
    pytest.importorskip("arviz")
    X, y = logistic_problem()
    data = fit(Logistic(X, y)).to_arviz([0, 1], n_samples=20)
    assert data.posterior["parameters"].shape == (1, 20, 3)
    assert data.log_likelihood["y"].shape == (1, 20, 2)
    assert set(fit(RichLogistic(X, y)).to_arviz().posterior) == {"slope", "level"}


def test_scikit_learns_tools():
    model = VI(Logistic(*logistic_problem()), random_state=0)
    assert clone(model).get_params()["model"] == model.model
    search = GridSearchCV(model, {"prior_scale": [0.01, 1.0]}, cv=3).fit(np.arange(60))
    assert search.best_params_ == {"prior_scale": 1.0}
    with pytest.raises(NotFittedError):
        clone(model).score()
    again = pickle.loads(pickle.dumps(search.best_estimator_))
    assert again.score() == search.best_estimator_.score()
    assert again.pareto_k_ == search.best_estimator_.pareto_k_


# What is wrong


class Broken(RichLogistic):
    """Wrong in one method, for one row."""

    def __init__(self, method, spoil, row=17):
        super().__init__(*logistic_problem(), 1.0)
        self.row, original = row, getattr(self, method)

        def broken(*arguments):
            out = original(*arguments)
            hit = method.startswith("log_prior") or row in arguments[-1]
            return spoil(out, arguments[-1]) if hit else out

        setattr(self, method, broken)


def nan_at_row(out, rows):
    return np.where(rows == 17, np.nan, out)


@pytest.mark.parametrize(
    ("method", "spoil", "error", "message"),
    [
        ("log_likelihood", nan_at_row, ValueError, "log_likelihood .* row 17"),
        ("log_likelihood", lambda o, _: o[:-1], ValueError, "log_likelihood .* shape"),
        ("log_likelihood", lambda o, _: o.sum(), ValueError, "log_likelihood .* shape"),
        ("log_likelihood", lambda o, _: None, TypeError, "log_likelihood .* NoneType"),
        ("log_likelihood", lambda o, _: o + 0j, TypeError, "log_likelihood .* real"),
        ("gradient", lambda o, _: o * np.nan, ValueError, "gradient .* row 17"),
        ("gradient", lambda o, _: o[None], ValueError, r"gradient .* \(1, 3\) for 60"),
        ("gradient", lambda o, _: o + 5.0, ValueError, "gradient .* row 17"),
        ("gradient", lambda o, _: [[1.0], [1.0, 2.0]], TypeError, "gradient"),
        ("hessian", lambda o, _: o + 5.0, ValueError, "hessian of .* row 17"),
        ("hessian", lambda o, _: o[0], ValueError, "hessian of .* shape"),
        ("log_prior", lambda o, _: np.inf, ValueError, "log_prior of .* finite"),
        ("log_prior_gradient", lambda o, _: -o + 1.0, ValueError, "derivative of log_"),
    ],
)
def test_wrong_answers_of_a_model(method, spoil, error, message):
    model = fit().set_params(model=Broken(method, spoil))
    untouched = Untouched(model)
    with pytest.raises(error, match=message):
        model.fit()
    untouched.check()


class EndsAt(Logistic):
    """A gradient that row 17 has within a distance of zero only."""

    def __init__(self, limit, derivatives):
        super().__init__(*logistic_problem())
        self.limit = limit
        if not derivatives:
            self.hessian = self.hessian_vector_product = self.hessian_diagonal = None

    def gradient(self, parameters, indices):
        out = super().gradient(parameters, indices)
        far = np.abs(parameters).max() > self.limit and 17 in indices
        return out * np.nan if far else out


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"solver": "svrg"},
        {"posterior": "meanfield"},
        {"posterior": "meanfield", "solver": "svrg"},
        {"posterior": "lowrank", "rank": 1},
    ],
)
@pytest.mark.parametrize("derivatives", [True, False])
@pytest.mark.parametrize("share", [0.3, 1.0])
def test_a_gradient_that_ends_is_named_with_its_row(params, derivatives, share):
    """On the way to the mode, or at draws about it."""
    limit = share * np.abs(fit().mean_).max()
    model = fit().set_params(model=EndsAt(limit, derivatives), **params)
    untouched = Untouched(model)
    message = "gradient of EndsAt is not finite for row 17 at parameters .* `initial`"
    with pytest.raises(ValueError, match=message):
        model.fit()
    untouched.check()


@pytest.mark.parametrize("name", ["hessian_vector_product", "hessian_diagonal"])
def test_wrong_curvature_where_it_is_used(name):
    model = Broken(name, lambda out, _: out - 5.0)
    fit(model)  # full passes use the Hessian
    with pytest.raises(ValueError, match=f"{name} .* row 17"):
        fit(model, solver="svrg", posterior="meanfield")


def test_models_that_are_none():
    good = Logistic(*logistic_problem())

    def without(**changes):
        model = Logistic(*logistic_problem())
        vars(model).update(changes)
        return model

    class Nothing:
        n_samples = n_parameters = 3

    for model, error, message in [
        (None, TypeError, "needs a model"),
        (Logistic, TypeError, "call it first"),
        (Nothing(), TypeError, "no log_likelihood, gradient"),
        (without(gradient=1.0), TypeError, "gradient .* method"),
        (without(n_samples=0), ValueError, "n_samples .* positive"),
        (without(n_parameters=2.5), ValueError, "n_parameters .* positive"),
        (without(log_prior=np.sum), TypeError, "go together"),
        (without(initial=[0.0]), None, None),
        (without(initial=[0.0, 1.0]), ValueError, "initial .* 3 parameters"),
        (without(initial=[0.0, 1.0, np.nan]), ValueError, "initial .* finite"),
        (without(parameter_names=["a"]), ValueError, "3 names"),
    ]:
        estimator = VI(model, random_state=0)
        if error is None:
            estimator.fit()
            continue
        with pytest.raises(error, match=message):
            estimator.fit()
        assert vars(estimator).keys() == VI().get_params().keys()
    for rows in ([0, 60], [-1, 2], [0.5], "ab", [], [[0, 1], [1, 2]]):
        with pytest.raises(ValueError, match=r"rows? "):
            VI(good).fit(rows)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"prior_scale": 0.0}, "prior_scale .* positive"),
        ({"prior_scale": [1.0, 2.0]}, "prior_scale .* 3"),
        ({"prior_mean": "a"}, "prior_mean"),
        ({"steps": MinibatchSteps(n_draws=3)}, "even"),
        ({"steps": MinibatchSteps(n_draws=0)}, "n_draws"),
        ({"steps": MinibatchSteps(expectation="mc")}, "no use for expectation"),
        ({"posterior": "diag"}, "posterior"),
        ({"tol": -1.0}, "tol"),
        ({"solver": "batch", "steps": MinibatchSteps(optimizer="adam")}, "full passes"),
        (
            {"posterior": "fullrank", "steps": MinibatchSteps(optimizer="adam")},
            "meanfield",
        ),
        (
            {"solver": "saga", "steps": MinibatchSteps(control_variate=None)},
            "control variate",
        ),
        (
            {"posterior": "meanfield", "steps": MinibatchSteps(optimizer="natural")},
            "does not go with",
        ),
    ],
)
def test_wrong_parameters(params, message):
    model = fit().set_params(**params)
    untouched = Untouched(model)
    with pytest.raises(ValueError, match=message):
        model.fit()
    untouched.check()


def test_a_prior_is_not_given_twice():
    with pytest.raises(ValueError, match="log_prior of its own"):
        fit(RichLogistic(*logistic_problem(), 1.0), prior_scale=2.0)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("solver", ["batch", "svrg"])
def test_an_interrupted_fit_leaves_no_trace(solver):
    model = fit(solver=solver, max_iter=3, tol=1e-9)
    calls, gradient = [], model.model.gradient

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) > 60:
            raise KeyboardInterrupt
        return gradient(*arguments)

    before = Untouched(model)
    model.model.gradient = interrupted
    with pytest.raises(KeyboardInterrupt):
        model.fit()
    del model.model.gradient
    before.check()


def test_numbers_beyond_all_bounds_on_the_way():
    """Steps that overflow are made shorter, and the fit goes on."""
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(80), 3.0 * rng.normal(size=80)])
    y = rng.poisson(np.exp(np.minimum(X @ [2.0, 0.8], 8.0)))

    class Counts:
        n_samples, n_parameters = X.shape

        def log_likelihood(self, z, rows):
            with np.errstate(over="ignore"):
                return y[rows] * (X[rows] @ z) - np.exp(X[rows] @ z)

        def gradient(self, z, rows):
            with np.errstate(over="ignore", invalid="ignore"):
                return X[rows].T @ (y[rows] - np.exp(X[rows] @ z))

    exact = BayesianGLMRegressor("poisson", fit_intercept=False, prior_scale=1.0).fit(
        X, y
    )
    model = fit(Counts())
    assert model.converged_
    assert abs((model.mean_ - exact.coef_) / exact.coef_std_).max() < 0.1


def test_out_of_epochs_warns():
    with pytest.warns(ConvergenceWarning, match="nats are left to gain"):
        model = fit(solver="svrg", max_iter=2, tol=1e-9)
    assert not model.converged_


class Spread:
    """A mean and the logarithm of a deviation, right but for what one may forget."""

    n_parameters = 2

    def __init__(self, y, chain=1.0, sign=-1.0):
        self.y, self.chain, self.sign = y, chain, sign
        self.n_samples = len(y)

    def log_likelihood(self, p, rows):
        return norm.logpdf(self.y[rows], p[0], np.exp(p[1]))

    def gradient(self, p, rows):
        away, precision = self.y[rows] - p[0], np.exp(-2.0 * p[1])
        by_log = (precision * away**2 - 1.0).sum()
        return np.array([away.sum() * precision**self.chain, by_log])

    def log_prior(self, p):
        return norm.logpdf(p, 0.0, 0.5).sum()

    def log_prior_gradient(self, p):
        return self.sign * 4.0 * p


def test_what_is_right_at_the_start_alone_is_told():
    """At zero exp(p) is one and a prior about it has no slope."""
    y = np.random.default_rng(0).normal(1.0, 2.0, 50)
    assert VI(Spread(y), random_state=0).fit().converged_
    with pytest.raises(ValueError, match=r"^gradient of Spread is not the derivative"):
        VI(Spread(y, chain=0.0)).fit()
    for sign in (1.0, 0.0):
        with pytest.raises(ValueError, match=r"^log_prior_gradient of Spread is not"):
            VI(Spread(y, sign=sign)).fit()
    # Nor need a density be finite beside the start.
    edge = Spread(y)
    edge.log_prior = lambda p: -np.inf if p[1] > 0.1 else Spread.log_prior(edge, p)
    target = Target(edge, np.arange(50))
    check_density(target, np.zeros(2), whole=False, products=False)
