"""Densities with saddles and kinks: their modes, and their bounds."""

import numpy as np
import pytest
from scipy.stats import norm

from skvrem import VariationalInference as VI
from skvrem.vi import MinibatchSteps
from skvrem.vi.blackbox import _fit
from tests.own_models import Logistic, RichLogistic, logistic_problem


class Density:
    """No rows to speak of, and all of the density in the prior."""

    n_samples = 1

    def log_likelihood(self, z, rows):
        return np.zeros(rows.size)

    def gradient(self, z, rows):
        return np.zeros(self.n_parameters)


class TwoModes(Density):
    """Two normal densities, symmetric about zero, in two dimensions."""

    n_parameters = 2

    def log_prior(self, z):
        return np.logaddexp(*(-0.5 * np.sum((z - at) ** 2) for at in (3.0, -3.0)))

    def log_prior_gradient(self, z):
        return 3.0 * np.tanh(3.0 * z.sum()) - z


class Laplace(Density):
    """Independent Laplace densities, with kinks at one."""

    def __init__(self, n_parameters):
        self.n_parameters = n_parameters

    def log_prior(self, z):
        return -np.abs(z - 1.0).sum()

    def log_prior_gradient(self, z):
        return -np.sign(z - 1.0)

    def bound(self, mean, scale):
        """Return that of independent normal densities, exactly."""
        z = (mean - 1.0) / scale
        away = scale * (2.0 * norm.pdf(z) + z * (1.0 - 2.0 * norm.cdf(-z)))
        return np.sum(norm.entropy(mean, scale) - away)


class Spread(Density):
    """Normal densities of standard deviations over eighteen orders of e."""

    n_parameters = 20
    scale = np.exp(np.linspace(-9.0, 9.0, 20))

    def log_prior(self, z):
        return -0.5 * np.sum(((z - 0.1) / self.scale) ** 2)

    def log_prior_gradient(self, z):
        return (0.1 - z) / self.scale**2


class Products:
    """A matrix that is a product of two, with noise: both zero are a saddle."""

    def __init__(self, n=12, m=8, rank=1, seed=0):
        rng = np.random.default_rng(seed)
        self.shapes = (n, rank), (m, rank)
        A, B = (rng.normal(size=shape) for shape in self.shapes)
        self.Y = A @ B.T + 0.3 * rng.normal(size=(n, m))
        self.i, self.j = np.divmod(np.arange(n * m), m)
        self.n_samples, self.n_parameters = n * m, (n + m) * rank

    def factors(self, z):
        parts = np.split(z, [self.shapes[0][0] * self.shapes[0][1]])
        return [z.reshape(s) for z, s in zip(parts, self.shapes, strict=True)]

    def away(self, z, rows):
        A, B = self.factors(z)
        i, j = self.i[rows], self.j[rows]
        return self.Y[i, j] - np.sum(A[i] * B[j], axis=1)

    def log_likelihood(self, z, rows):
        return norm.logpdf(self.away(z, rows), scale=0.3)

    def gradient(self, z, rows):
        (A, B), pull = self.factors(z), self.away(z, rows)[:, None] / 0.09
        i, j = self.i[rows], self.j[rows]
        by = np.zeros(A.shape), np.zeros(B.shape)
        np.add.at(by[0], i, pull * B[j])
        np.add.at(by[1], j, pull * A[i])
        return np.concatenate([part.ravel() for part in by])


def fit(model, **params):
    return VI(model, **({"random_state": 0} | params)).fit()


# Saddles


@pytest.mark.filterwarnings("ignore::skvrem.exceptions.PosteriorWarning")
@pytest.mark.parametrize(
    ("shape", "params"),
    [
        ((12, 8, 1), {}),
        ((12, 8, 1), {"posterior": "meanfield"}),
        ((12, 8, 1), {"solver": "svrg"}),
        ((12, 8, 1), {"solver": "svrg", "posterior": "meanfield"}),
        ((10, 8, 2), {}),  # columns that are exchangeable, and 36 parameters
    ],
)
def test_a_search_goes_on_from_a_saddle(shape, params):
    """A product of parameters is fitted from zero as from beside it."""
    at_zero, beside = Products(*shape), Products(*shape)
    beside.initial = 1e-3 * np.random.default_rng(1).normal(size=at_zero.n_parameters)
    found, expected = (fit(model, **params) for model in (at_zero, beside))
    assert found.converged_
    error = 4.0 * (found.elbo_se_ + expected.elbo_se_)
    assert found.elbo_ > expected.elbo_ - error - 0.1


def test_of_two_modes_one_is_fitted():
    model = fit(TwoModes())
    assert model.converged_
    np.testing.assert_allclose(np.abs(model.mean_), 3.0, atol=1e-3)
    np.testing.assert_allclose(model.std_, 1.0, rtol=1e-3)
    assert model.elbo_ == pytest.approx(np.log(2.0 * np.pi), abs=1e-3)
    other = fit(TwoModes(), random_state=7)  # draws do not choose
    np.testing.assert_array_equal(np.sign(other.mean_), np.sign(model.mean_))


@pytest.mark.filterwarnings("ignore::skvrem.exceptions.PosteriorWarning")
def test_a_low_rank_of_products_is_between_a_diagonal_and_a_full_rank():
    model = Products(30, 20, 3)
    each = [fit(model, posterior=kind) for kind in ("meanfield", "lowrank", "fullrank")]
    bounds = [one.elbo_ for one in each]
    assert all(one.converged_ for one in each)
    assert np.all(np.diff(bounds) > 0.0)


@pytest.mark.filterwarnings("ignore::skvrem.exceptions.PosteriorWarning")
@pytest.mark.parametrize(
    "model",
    [
        Logistic(*logistic_problem(100, 40)),
        RichLogistic(*logistic_problem()),
        Laplace(3),
        Spread(),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_mode_is_no_saddle(model, monkeypatch):
    """Nor is a kink, or one that is found to a part only in a wide direction."""
    found = fit(model)
    monkeypatch.setattr(_fit, "SADDLES", 0)
    expected = fit(model)
    np.testing.assert_array_equal(found.mean_, expected.mean_)
    np.testing.assert_array_equal(found.std_, expected.std_)


# The bound


@pytest.mark.filterwarnings("ignore::skvrem.exceptions.PosteriorWarning")
@pytest.mark.parametrize("n_parameters", [1, 5])
def test_the_bound_of_a_density_with_kinks(n_parameters):
    """The curvature at a kink says nothing, and controls nothing."""
    model = Laplace(n_parameters)
    fitted = fit(model, posterior="meanfield")
    expected = model.bound(fitted.mean_, fitted.std_)
    assert fitted.elbo_se_ < 0.02
    assert fitted.elbo_ == pytest.approx(expected, abs=4.0 * fitted.elbo_se_)


def test_the_bound_of_widths_that_a_matrix_cannot_hold():
    fitted = fit(Spread())
    expected = np.sum(np.log(fitted.model.scale) + 0.5 * np.log(2.0 * np.pi))
    assert fitted.elbo_ == pytest.approx(expected, abs=1e-3)


def test_a_bound_without_a_control_variate_knows_no_curvature():
    """It says nearly all of parameters that go together, and a diagonal nothing."""
    X, y = logistic_problem(400, 4)
    model = Logistic(X + 2.0 * X[:, :1], y)
    control, none = (
        fit(model, posterior="meanfield", steps=MinibatchSteps(control_variate=kind))
        for kind in ("taylor", None)
    )
    np.testing.assert_array_equal(control.mean_.round(3), none.mean_.round(3))
    assert none.elbo_se_ > 3.0 * control.elbo_se_
