"""Full and low rank of a user's own model: many parameters, and minibatches."""

import numpy as np
import pytest
from scipy.special import expit

from skvrem import BayesianLogisticRegression
from skvrem import VariationalInference as VI
from skvrem.schedules import Constant
from skvrem.solvers import Sweeps
from skvrem.solvers._protocols import Anchor
from skvrem.vi import MinibatchSteps
from skvrem.vi.blackbox._model import DrawnModel, dense, probed_curvature
from skvrem.vi.blackbox._model_density import Target
from skvrem.vi.blackbox._model_low_rank import (
    LowRankModel,
    StretchedDiagonal,
    nearest_low_rank,
)
from skvrem.vi.blackbox._model_steps import MeanSteps
from skvrem.vi.gaussian._model import Point
from skvrem.vi.gaussian._model_posterior import FlatPrior, FullRank, LowRank, MeanField
from tests.own_models import Logistic, RichLogistic, WideSkills, skills_problem


class Effects:
    """y is a level, an effect of a row's first kind and one of its second, and noise.

    All parameters go together; with a standard normal prior the posterior is Gaussian.
    """

    def __init__(self, n_first, n_second, n_rows):
        rng = np.random.default_rng(0)
        self.n_samples, self.n_parameters = n_rows, n_first + n_second + 1
        self.columns = np.stack(
            [
                rng.integers(n_first, size=n_rows),
                n_first + rng.integers(n_second, size=n_rows),
                np.full(n_rows, n_first + n_second),
            ]
        )
        truth = rng.normal(size=self.n_parameters)
        self.y = truth[self.columns].sum(axis=0) + rng.normal(size=n_rows)

    def _away(self, z, rows):
        return self.y[rows] - z[self.columns[:, rows]].sum(axis=0)

    def _gather(self, rows, value):
        d = self.n_parameters
        return sum(np.bincount(c[rows], value, d) for c in self.columns)

    def log_likelihood(self, z, rows):
        return -0.5 * self._away(z, rows) ** 2 - 0.5 * np.log(2.0 * np.pi)

    def gradient(self, z, rows):
        return self._gather(rows, self._away(z, rows))

    def exact(self):
        """Mean, precision and covariance of the posterior."""
        X = np.zeros((self.n_samples, self.n_parameters))
        for column in self.columns:
            X[np.arange(self.n_samples), column] += 1.0
        P = np.eye(self.n_parameters) + X.T @ X
        C = np.linalg.inv(P)
        return C @ X.T @ self.y, P, C


class RichEffects(Effects):
    """The same, with second derivatives."""

    def hessian_vector_product(self, z, v, rows):
        return -self._gather(rows, v[self.columns[:, rows]].sum(axis=0))

    def hessian_diagonal(self, z, rows):
        return -self._gather(rows, np.ones(len(rows)))


@pytest.mark.parametrize(
    ("model_class", "solver", "passes"),
    [
        (RichEffects, "batch", 1500),
        (Effects, "batch", 2500),
        (RichEffects, "svrg", 850),
    ],
)
def test_many_parameters_have_a_low_rank(model_class, solver, passes):
    """Better standard deviations than those of any diagonal, for some hundred passes.

    A mean field has that of the level too small by three quarters.
    """
    model = model_class(700, 300, 3000)
    mean, P, C = model.exact()
    fitted = VI(model, solver=solver, random_state=0).fit()
    assert isinstance(fitted.posterior_, LowRank)
    assert fitted.converged_ and fitted.n_passes_ < passes
    scale = np.sqrt(C.diagonal())
    lack, plain = (1.0 - s / scale for s in (fitted.std_, P.diagonal() ** -0.5))
    assert np.sqrt(np.mean(lack**2)) < 0.95 * np.sqrt(np.mean(plain**2))
    assert abs(lack).max() < 0.3 < 0.7 < plain.max()
    assert abs((fitted.mean_ - mean) / scale).max() < 0.15
    again = fitted.set_params(warm_start=True).fit()
    assert again.n_iter_ <= 2


@pytest.mark.filterwarnings("ignore::skvrem.exceptions.PosteriorWarning")
def test_what_rows_know_well_is_less_than_the_diagonal():
    """Directions that features share leave each coefficient its own uncertainty."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 120)) + 2.0 * rng.normal(size=(400, 4)) @ rng.normal(
        size=(4, 120)
    )
    X /= 10.0
    y = (rng.random(400) < expit(X @ rng.normal(size=120))).astype(float)
    exact, plain = (
        BayesianLogisticRegression(1.0, fit_intercept=False, posterior=name).fit(X, y)
        for name in ("fullrank", "meanfield")
    )
    for model in (RichLogistic(X, y), Logistic(X, y)):
        steps = MinibatchSteps(n_draws=64)
        fitted = VI(model, posterior="lowrank", steps=steps, random_state=0).fit()
        assert (fitted.posterior_.sign < 0.0).sum() >= 4
        off = fitted.std_ / exact.coef_std_[0] - 1.0
        assert np.sqrt(np.mean(off**2)) < 0.1
        assert plain.elbo_ + 10.0 < fitted.elbo_ + fitted.elbo_se_
        assert fitted.elbo_ < exact.elbo_ + 3.0 * fitted.elbo_se_ + 0.1
    assert 1.0 - (plain.coef_std_ / exact.coef_std_).min() > 0.3


# The nearest low rank


def precision(sign, d=40, rank=3):
    rng = np.random.default_rng(1)
    own = rng.uniform(1.0, 4.0, d)
    low = rng.normal(size=(rank, d))
    if sign > 0:
        return np.diag(own) + 5.0 * low.T @ low
    return np.linalg.inv(np.diag(1.0 / own) + low.T @ low)


def divergence(P, S):
    return 0.5 * np.sum(P * S) - 0.5 * np.linalg.slogdet(S)[1]


@pytest.mark.parametrize("sign", [1, -1])
def test_a_precision_of_that_structure_is_found(sign):
    P = precision(sign)
    prior, rng = MeanField(np.zeros(40), np.full(40, 10.0)), np.random.default_rng(0)
    curvature = dense(P - prior.precision)
    log_scale, V, stretch, diagonal = nearest_low_rank(curvature, prior, 3, rng)
    np.testing.assert_allclose(V.T @ V, np.eye(3), atol=1e-8)
    np.testing.assert_allclose(diagonal, curvature.diagonal)
    model = LowRankModel(None, prior, 3, np.zeros((1, 40)))
    q = StretchedDiagonal(np.zeros((40, 1)), log_scale[:, None], V, stretch)
    found = model.posterior(q)
    np.testing.assert_allclose(
        found.covariance(), np.linalg.inv(P), rtol=0.05, atol=0.01
    )
    lack = divergence(P, found.covariance()) - divergence(P, np.linalg.inv(P))
    plain = divergence(P, np.diag(1.0 / P.diagonal())) - divergence(P, np.linalg.inv(P))
    assert -1e-8 < lack < 0.05 < 4.0 < plain
    assert (np.sign(stretch) == -sign).all()
    v = rng.normal(size=40)
    np.testing.assert_allclose(model.precondition(Point(q), v), found.covariance() @ v)
    E = rng.normal(size=(2000, 40))
    away = q.scale * q.white(E)
    np.testing.assert_allclose(
        away.T @ away, q.scale[:, None] * q.white(q.white(E.T @ E).T) * q.scale
    )
    again = model.point_of(found)
    np.testing.assert_allclose(
        model.posterior(again.parameters).covariance(), found.covariance()
    )


def test_what_products_know_makes_no_noise_in_a_diagonal():
    """A curvature that is a low rank has its diagonal without error, by few signs."""
    rng = np.random.default_rng(0)
    X = 3.0 * rng.normal(size=(5, 60))

    class Few(RichLogistic):
        def hessian_vector_product(self, z, v, rows):
            return -self.X[rows].T @ (self.X[rows] @ v)

        hessian = hessian_diagonal = None

    target = Target(Few(X, np.zeros(5)), np.arange(5))
    seen = probed_curvature(target, np.zeros((2, 60)), rng, 10)
    exact = np.square(X).sum(axis=0)
    assert seen.matrix is None and seen.probes.shape == (10, 60)
    assert abs(seen.diagonal - exact).max() > 10.0
    prior = MeanField(np.zeros(60), np.ones(60))
    found = nearest_low_rank(seen, prior, 5, rng)[3]
    np.testing.assert_allclose(found, exact, rtol=0.02)


def test_few_signs_lead_nowhere_far():
    """A diagonal that is far too small for what products say does no harm."""
    rng = np.random.default_rng(0)
    P = precision(1)
    prior = MeanField(np.zeros(40), np.ones(40))
    curvature = dense(P - prior.precision)
    signs = rng.choice([-1.0, 1.0], size=(3, 40))
    diagonal = (signs * curvature.times(signs)).mean(axis=0)
    curvature = curvature._replace(probes=signs, diagonal=diagonal)
    assert (curvature.diagonal < 0.0).sum() > 5
    log_scale, V, stretch, _ = nearest_low_rank(curvature, prior, 3, rng)
    model = LowRankModel(None, prior, 3, np.zeros((1, 40)))
    q = StretchedDiagonal(np.zeros((40, 1)), log_scale[:, None], V, stretch)
    S = model.posterior(q).covariance()
    assert divergence(P, S) < divergence(P, np.diag(1.0 / P.diagonal()))


def test_a_density_that_curves_up_is_as_narrow_as_one_that_curves_down():
    """By the size of its curvature, as a full rank has it: else widths had no end."""
    rng, d = np.random.default_rng(0), 12
    prior = MeanField(np.zeros(d), np.ones(d))
    # Circulant, so that the diagonal is the same everywhere, of values of both signs.
    wave = np.fft.fft(np.eye(d))
    values = 30.0 * np.cos(2.0 * np.pi * np.arange(d) / d) + 5.0
    A = (wave * values) @ wave.conj().T / d
    curvature = dense(A.real)
    log_scale, V, stretch, _ = nearest_low_rank(curvature, prior, d, rng)
    model = LowRankModel(None, prior, d, np.zeros((1, d)))
    q = StretchedDiagonal(np.zeros((d, 1)), log_scale[:, None], V, stretch)
    found = np.linalg.inv(model.posterior(q).covariance())
    expected = ((wave * np.abs(values)) @ wave.conj().T / d).real + np.eye(d)
    np.testing.assert_allclose(found, expected, atol=0.01)


# Minibatches


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 5))
    X[:, 1:3] += X[:, :1]
    y = (rng.random(300) < expit(X @ np.linspace(1.0, -1.0, 5))).astype(float)
    return (
        X,
        y,
        BayesianLogisticRegression(1.0, fit_intercept=False, tol=1e-6).fit(X, y),
    )


@pytest.mark.parametrize("posterior", ["auto", "lowrank"])
@pytest.mark.parametrize("solver", ["stochastic", "svrg", "saga"])
def test_minibatches_find_what_full_passes_do(solver, posterior, problem):
    X, y, exact = problem
    for model in (RichLogistic(X, y), Logistic(X, y)):
        fitted = VI(
            model, posterior=posterior, solver=solver, rank=2, tol=0.05, random_state=0
        ).fit()
        full = posterior == "auto"
        name = "FullRank" if full else "LowRank"
        assert type(fitted.posterior_).__name__ == name and fitted.converged_
        assert exact.elbo_ - fitted.elbo_ < (0.1 if full else 0.3)
        assert abs((fitted.mean_ - exact.coef_[0]) / exact.coef_std_[0]).max() < 0.4
        off = abs(fitted.std_ / exact.coef_std_[0] - 1.0).max()
        assert off < (0.03 if full else 0.15)
        variance = fitted.history_["gradient_variance"]
        assert variance.size == fitted.history_["predicted_gain"].size


@pytest.mark.parametrize("control", ["taylor", "antithetic"])
@pytest.mark.parametrize("kind", ["stochastic", "svrg", "saga"])
def test_estimates_by_the_mean_are_unbiased(kind, control, problem):
    X, y, exact = problem
    q, rng = exact.posterior_, np.random.default_rng(1)
    target = Target(RichLogistic(X, y, 0.7), np.arange(300))
    model = DrawnModel(target, FlatPrior(5), "full", np.zeros((1, 5)))
    steps = MeanSteps(model, kind, control, True, "natural", 30)
    assert not steps.control_scale
    found, naive = [], []
    here, near = (
        Anchor(None, np.nan, 0.0, model.point_of(FullRank(q.mean + t, q.factor)))
        for t in (0.0, 0.1)
    )
    for _ in range(60):
        known = None if kind == "stochastic" else steps.known_at(near, rng)
        work, visits = steps.open(here), steps.visits(known, rng)
        noise = steps.noise(work, visits, rng)
        found += list(steps.estimates(work, known, visits, noise)[:, 0])
        for (_, batch), v in zip(visits, noise, strict=True):
            naive.append(target.gradient(q.mean + v, batch))
    truth = np.mean([target.gradient(z) for z in q.sample(4000, rng)], axis=0)
    noise = np.std(naive, axis=0) / np.sqrt(4000.0)
    error = np.std(found, axis=0) / np.sqrt(len(found))
    assert (abs(np.mean(found, axis=0) - truth) < 4.0 * np.hypot(error, noise)).all()
    if kind == "svrg":
        assert np.var(found, axis=0).sum() < 0.1 * np.var(naive, axis=0).sum()


def test_an_epoch_moves_means_alone():
    X, y = np.eye(4).repeat(10, axis=0), np.tile([0.0, 1.0, 1.0], 14)[:40]
    target = Target(RichLogistic(X, y), np.arange(40))
    prior = MeanField(np.zeros(4), np.ones(4))
    model = LowRankModel(target, prior, 1, np.random.default_rng(0).normal(size=(4, 4)))
    q = StretchedDiagonal(
        np.full((4, 1), -3.0), np.full((4, 1), -0.5), np.eye(4)[:, :1], np.ones(1)
    )
    steps = MeanSteps(model, "svrg", "taylor", True, "natural", 5)
    solver, rng = Sweeps("svrg"), np.random.default_rng(0)
    solver.start(steps, target, rng)
    begin = Anchor(None, np.nan, 0.0, Point(q))
    moved = solver.sweep(begin, Constant(0.1), rng).point.parameters
    assert (moved.mean > q.mean + 0.5).all()
    assert moved.log_scale is q.log_scale and moved.stretch is q.stretch


def test_a_support_keeps_its_steps():
    """Unless another posterior is asked for, by full passes or by steps."""
    model = WideSkills(*skills_problem())
    kinds = [
        type(VI(model, tol=0.5, random_state=0, **params).fit().posterior_).__name__
        for params in (
            {"solver": "svrg"},
            {"solver": "svrg", "posterior": "fullrank"},
            {"solver": "svrg", "posterior": "lowrank"},
            {},
        )
    ]
    assert kinds == ["MeanField", "FullRank", "LowRank", "FullRank"]
