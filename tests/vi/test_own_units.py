"""A user's own model says the same whatever units its parameters are in."""

import numpy as np
import pytest
from scipy.special import expit

from skvrem import VariationalInference as VI
from skvrem.vi import MinibatchSteps
from skvrem.vi.blackbox._model_density import DensityBatch, Target
from tests.own_models import (
    InUnits,
    Logistic,
    RichLogistic,
    ShortSkills,
    WideSkills,
    logistic_problem,
    skills_problem,
)

UNITS = {"mixed": 10.0 ** np.array([-5.0, 0.0, 5.0]), "large": np.full(3, 1e5)}
UNITS |= {"near": 10.0 ** np.array([-3.0, 0.0, 3.0]), "small": np.full(3, 1e-5)}

# Every covariance with every solver, and the optimizers of each.
FITS = [("fullrank", "batch", "auto"), ("lowrank", "batch", "auto")]
FITS += [("meanfield", "batch", "auto"), ("auto", "auto", "auto")]
FITS += [
    (posterior, solver, "auto")
    for posterior in ("fullrank", "lowrank", "meanfield")
    for solver in ("stochastic", "svrg", "saga")
]
FITS += [
    ("meanfield", solver, optimizer)
    for solver in ("stochastic", "svrg", "saga")
    for optimizer in ("adam", "sgd")
]
EVERY_FIT = pytest.mark.parametrize(("posterior", "solver", "optimizer"), FITS)
WRONG = r"^gradient of .* is not the derivative"
EVERY_UNIT = pytest.mark.parametrize("units", list(UNITS))


class Line:
    """A linear regression, with noise of deviation one."""

    n_samples, n_parameters = 50, 3

    def __init__(self, seed=0):
        rng = np.random.default_rng(seed)
        self.X = rng.normal(size=(50, 3))
        self.y = self.X.sum(axis=1) + rng.normal(size=50)

    def log_likelihood(self, b, rows):
        return -0.5 * (self.y[rows] - self.X[rows] @ b) ** 2

    def gradient(self, b, rows):
        return self.X[rows].T @ (self.y[rows] - self.X[rows] @ b)


def fit_in(units, model, posterior, solver, optimizer, **params):
    rank = 3 if posterior == "lowrank" else None
    how = {"posterior": posterior, "solver": solver, "rank": rank, "random_state": 0}
    steps = MinibatchSteps(optimizer=optimizer)
    return VI(
        InUnits(model, units), prior_scale=units, steps=steps, **how, **params
    ).fit()


# Posteriors


@EVERY_FIT
@EVERY_UNIT
@pytest.mark.parametrize("seed", [0, 1])
def test_an_exact_gaussian_posterior(posterior, solver, optimizer, units, seed):
    units, line = UNITS[units], Line(seed)
    precision = line.X.T @ line.X + np.eye(3)
    mean = np.linalg.solve(precision, line.X.T @ line.y)
    scale = np.sqrt(np.diag(np.linalg.inv(precision)))
    if posterior == "meanfield":
        scale = 1.0 / np.sqrt(np.diag(precision))
    model = fit_in(units, line, posterior, solver, optimizer)
    assert model.converged_
    np.testing.assert_allclose(model.std_ / units, scale, rtol=1e-4)
    np.testing.assert_allclose((model.mean_ / units - mean) / scale, 0.0, atol=1e-4)
    evidence = -0.5 * line.y @ (line.y - line.X @ mean)
    evidence -= 0.5 * np.linalg.slogdet(precision)[1]
    if posterior != "meanfield":
        assert model.elbo_ == pytest.approx(evidence, abs=1e-6)


@EVERY_FIT
@pytest.mark.parametrize("units", ["mixed"])
@pytest.mark.parametrize("model_class", [Logistic, RichLogistic])
def test_units_change_nothing_else(posterior, solver, optimizer, units, model_class):
    plain, units = model_class(*logistic_problem()), UNITS[units]
    params = {"max_iter": 50, "tol": 0.05}
    how = posterior, solver, optimizer
    one = fit_in(np.array([1.0, 1.0 + 1e-12, 1.0]), plain, *how, **params)
    other = fit_in(units, plain, *how, **params)
    assert one.n_iter_ == other.n_iter_
    assert one.step_size_ == pytest.approx(other.step_size_)
    np.testing.assert_allclose(one.mean_, other.mean_ / units, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(one.std_, other.std_ / units, rtol=1e-4)
    assert one.elbo_ == pytest.approx(other.elbo_, abs=1e-4)
    # What a fit publishes is in the model's units.
    q, z = other.posterior_, other.sample_posterior(5, 0)["parameters"]
    np.testing.assert_allclose(q.mean, other.mean_)
    np.testing.assert_allclose(q.scale, other.std_)
    volume = np.log(units).sum()
    expected = one.posterior_.logpdf(z / units) - volume
    np.testing.assert_allclose(q.logpdf(z), expected, atol=1e-2)
    for fitted in (one, other):
        fitted.set_params(warm_start=True).fit()
    assert one.n_iter_ == other.n_iter_
    np.testing.assert_allclose(one.mean_, other.mean_ / units, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("posterior", ["fullrank", "meanfield", "lowrank"])
def test_a_stream(posterior):
    """Its first rows are of one class, and the next ones lead away."""
    units, (X, y) = UNITS["mixed"], logistic_problem()
    order, found = np.argsort(y), []
    for by in (np.ones(3), units):
        model = VI(InUnits(Logistic(X[order], y[order]), by), random_state=0)
        model.set_params(posterior=posterior, prior_scale=by)
        model.set_params(rank=3 if posterior == "lowrank" else None)
        for rows in np.split(np.arange(60), 3):
            model.partial_fit(rows)
        found.append((model.mean_ / by, model.std_ / by))
    np.testing.assert_allclose(*found, rtol=1e-3, atol=1e-3)


def test_a_prior_that_says_little_of_how_wide_parameters_are():
    """Searches go on in the curvature's units."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 20)) / np.sqrt(20.0)
    X[:, 0] = 1.0
    y = rng.random(400) < expit(X @ rng.normal(size=20))
    wide = 10.0 ** np.linspace(-1.0, 3.0, 20)
    fits = [
        VI(Logistic(X, y), prior_scale=wide, random_state=0, **params).fit()
        for params in ({}, {"posterior": "meanfield", "solver": "svrg"})
    ]
    np.testing.assert_allclose(fits[0].mean_, fits[1].mean_, atol=0.2)
    assert all(fit.converged_ for fit in fits)
    assert fits[0].n_iter_ <= 3


# Derivatives


class Threshold:
    """The share of those that have something, by a year and a rate."""

    n_samples, n_parameters = 200, 2

    def __init__(self, seed, wrong=1.0):
        rng = np.random.default_rng(seed)
        self.wrong, self.year = wrong, rng.uniform(1900, 2000, 200)
        self.y = (rng.random(200) < expit(0.1 * (self.year - 1960))).astype(float)

    def log_likelihood(self, p, rows):
        z = p[1] * (self.year[rows] - p[0])
        return self.y[rows] * z - np.logaddexp(0.0, z)

    def gradient(self, p, rows):
        away = self.year[rows] - p[0]
        rest = self.y[rows] - expit(p[1] * away)
        return np.array([-p[1] * rest.sum(), self.wrong * (rest * away).sum()])


class Growth:
    """A population by its limit, a rate and a year."""

    n_samples, n_parameters = 60, 3

    def __init__(self, wrong=(1.0, 1.0, 1.0)):
        rng, self.year = np.random.default_rng(0), np.linspace(1900, 2000, 60)
        self.wrong = np.asarray(wrong)
        self.y = 10.0 * expit(0.08 * (self.year - 1950)) + 0.2 * rng.normal(size=60)

    def log_likelihood(self, p, rows):
        share = expit(p[1] * (self.year[rows] - p[2]))
        return -0.5 * ((self.y[rows] - p[0] * share) / 0.2) ** 2

    def gradient(self, p, rows):
        share = expit(p[1] * (self.year[rows] - p[2]))
        rest = (self.y[rows] - p[0] * share) / 0.04
        bent = rest * share * (1.0 - share) * p[0]
        by_rate = bent @ (self.year[rows] - p[2])
        return self.wrong * np.array([rest @ share, by_rate, -p[1] * bent.sum()])


def threshold(seed, units, vague=1.0, **wrong):
    model = InUnits(Threshold(seed, **wrong), units)
    model.initial = np.array([1950.0, 0.05]) * units
    mean, scale = np.array([1950.0, 0.0]), vague * np.array([50.0, 1.0])
    return VI(model, prior_mean=mean * units, prior_scale=scale * units, random_state=0)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("unit", [1e-5, 1.0, 1e5])
def test_right_gradients_pass_and_wrong_ones_do_not(seed, unit):
    units = np.array([unit, 1.0 / unit])
    model = threshold(seed, units).fit()
    assert model.converged_
    assert (abs(model.mean_ / units - [1960.0, 0.1]) < 3.0 * model.std_ / units).all()
    for wrong in (0.0, 0.9, 1.1, 2.0):
        with pytest.raises(ValueError, match=WRONG):
            threshold(seed, units, wrong=wrong).fit()


@pytest.mark.parametrize("vague", [1e2, 1e4, 1e8])
def test_so_they_do_under_a_vague_prior(vague):
    """Differences are no longer than what rows say of parameters."""
    first, model = (threshold(0, np.ones(2), v).fit() for v in (1.0, vague))
    np.testing.assert_allclose(model.mean_, first.mean_, rtol=0.01)
    np.testing.assert_allclose(model.std_, first.std_, rtol=0.05)
    for wrong in (0.0, 0.9, 1.1, 2.0):
        with pytest.raises(ValueError, match=WRONG):
            threshold(0, np.ones(2), vague, wrong=wrong).fit()


@pytest.mark.parametrize("posterior", ["fullrank", "meanfield"])
@pytest.mark.parametrize("vague", [1e4, 1e6])
def test_curvature_under_a_vague_prior(posterior, vague):
    """At zero differences of a logistic likelihood are right, whatever their length."""
    X, y = logistic_problem(400)
    derived, own = (
        VI(c(X, y), prior_scale=vague, posterior=posterior, random_state=0).fit()
        for c in (Logistic, RichLogistic)
    )
    np.testing.assert_allclose(derived.mean_, own.mean_, rtol=1e-3)
    np.testing.assert_allclose(derived.std_, own.std_, rtol=1e-3)
    assert derived.n_iter_ == own.n_iter_


def test_a_model_need_not_be_defined_all_over_its_prior():
    line = Line()

    def ends(b, rows):
        if abs(b[0]) > 20.0:
            raise np.linalg.LinAlgError("Matrix is not positive definite")
        return Line.gradient(line, b, rows)

    line.gradient = ends
    assert VI(line, prior_scale=100.0, random_state=0).fit().converged_


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6, 1e8])
@pytest.mark.parametrize("posterior", ["fullrank", "meanfield"])
def test_a_growth_curve(unit, posterior):
    units = np.array([unit, 1.0, 1.0])

    def curve(*wrong):
        model = InUnits(Growth(*wrong), units)
        model.initial = np.array([8.0, 0.05, 1940.0]) * units
        mean, scale = np.array([10.0, 0.0, 1950.0]), np.array([5.0, 1.0, 50.0])
        params = {"prior_mean": mean * units, "prior_scale": scale * units}
        return VI(model, posterior=posterior, random_state=0, **params).fit()

    fitted = curve()
    assert fitted.converged_
    away = (fitted.mean_ / units - [10.0, 0.08, 1950.0]) / (fitted.std_ / units)
    assert (abs(away) < 3.0).all()
    for j in range(3):
        with pytest.raises(ValueError, match=WRONG):
            curve(np.where(np.arange(3) == j, 1.3, 1.0))


@pytest.mark.parametrize("rich", [True, False])
def test_derivatives_are_those_of_the_density(rich):
    """Of one in units, by the units of z: as of the model that has none."""
    X, y = logistic_problem()
    model = RichLogistic(X, y, 0.7) if rich else Logistic(X, y)
    units, rows = UNITS["near"], np.arange(60)
    target = Target(InUnits(model, units), rows, units=units)
    plain, rng = Target(model, rows), np.random.default_rng(0)
    z, v = rng.normal(size=(2, 3))
    batch = DensityBatch(np.arange(9), 60 / 9)
    assert target.log_density(z) == pytest.approx(plain.log_density(z))
    for name, *vectors in (
        ("gradient", z),
        ("gradient", z, batch),
        ("hessian_times", z, v),
        ("hessian_diagonal", z),
        ("hessian_diagonal", z, batch),
        ("hessian", z),
    ):
        found, expected = (getattr(t, name)(*vectors) for t in (target, plain))
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("model_class", [WideSkills, ShortSkills])
def test_derivatives_by_a_support(model_class):
    pairs, d = skills_problem()
    units, rows = 10.0 ** np.linspace(-3.0, 3.0, d), np.array([3, 8])
    rng, model = np.random.default_rng(0), model_class(pairs, d)
    target = Target(InUnits(model, units), np.arange(60), units=units)
    plain, support = Target(model, np.arange(60)), model.support(rows)
    batch = DensityBatch(rows, np.full(support.size, 7.0), support)
    z, v = rng.normal(size=(2, d))
    for name, *vectors in (
        ("gradient", z),
        ("hessian_times", z, v),
        ("hessian_diagonal", z),
    ):
        some = [vector[support] for vector in vectors]
        for arguments in ((*some, batch), vectors):
            found, expected = (getattr(t, name)(*arguments) for t in (target, plain))
            np.testing.assert_allclose(found, expected, atol=1e-9)


def test_errors_tell_the_parameters_of_the_model():
    """Not those that a fit works in."""
    line = Line()
    line.log_likelihood = lambda b, rows: np.where(
        abs(b[2]) > 1e-3, np.nan, Line.log_likelihood(line, b, rows)
    )
    model = InUnits(line, UNITS["mixed"])
    with pytest.raises(ValueError, match=r"is nan .* parameters \[.*e\+0[45]\]"):
        VI(model, prior_scale=UNITS["mixed"], random_state=0).fit()
