"""Derivatives by JAX, against those written out."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone

from skvrem import VariationalInference
from skvrem.vi import JaxModel
from tests.own_models import (
    RichLogistic,
    WideSkills,
    logistic_problem,
    skills_problem,
)

jax = pytest.importorskip("jax")
jnp = jax.numpy


def log_likelihood(beta, row):
    x, y = row
    z = x @ beta
    return y * z - jnp.logaddexp(0.0, z)


def log_prior(beta):
    z = beta / 0.7
    return (-0.5 * z**2 - 0.5 * jnp.log(2.0 * jnp.pi) - jnp.log(0.7)).sum()


def in_parts(parameters, row):
    z = row["x"][:2] @ parameters["slope"] + row["x"][2] * parameters["level"]
    return row["y"] * z - jnp.logaddexp(0.0, z)


@pytest.fixture(scope="module")
def models():
    X, y = logistic_problem()
    return JaxModel(log_likelihood, (X, y), 3, log_prior), RichLogistic(X, y, 0.7)


@pytest.mark.parametrize("n", [1, 16, 17, 60])
def test_derivatives(models, n):
    derived, written = models
    rows = np.random.default_rng(n).integers(60, size=n)
    z, v = np.array([0.5, -1.0, 0.2]), np.array([1.0, 2.0, -0.5])
    for name, arguments in [
        ("log_likelihood", (z, rows)),
        ("gradient", (z, rows)),
        ("hessian_vector_product", (z, v, rows)),
        ("hessian_diagonal", (z, rows)),
        ("hessian", (z, rows)),
        ("log_prior", (z,)),
        ("log_prior_gradient", (z,)),
    ]:
        a, b = (getattr(model, name)(*arguments) for model in models)
        assert a.dtype == np.float64, name
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12, err_msg=name)
    assert derived.n_samples == written.n_samples == 60


def test_few_shapes_are_compiled(models):
    derived, _ = models
    z = np.zeros(3)
    for n in range(17, 33):
        derived.gradient(z, np.arange(n))
    before = derived._compiled["gradient"]._cache_size()
    for n in range(17, 33):
        derived.gradient(z + 1.0, np.arange(n)[::-1])
    assert derived._compiled["gradient"]._cache_size() == before


def test_settings_of_jax_stay(models):
    models[0].gradient(np.zeros(3), np.arange(3))
    assert jnp.asarray([1.0]).dtype == jnp.float32


@pytest.mark.parametrize("solver", ["batch", "svrg"])
def test_the_fit_is_the_same(models, solver):
    a, b = (
        VariationalInference(
            model, solver=solver, posterior="meanfield", tol=0.1, random_state=0
        ).fit()
        for model in models
    )
    np.testing.assert_allclose(a.mean_, b.mean_, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(a.std_, b.std_, rtol=1e-4)


def test_parameters_in_parts():
    X, y = logistic_problem()
    start = {"slope": np.zeros(2), "level": 0.0}
    model = JaxModel(in_parts, {"x": X, "y": y}, start)
    assert model.parameter_names == ["level", "slope[0]", "slope[1]"]
    fitted = VariationalInference(model, random_state=0).fit()
    draws = fitted.sample_posterior(7)
    assert draws["slope"].shape == (7, 2) and draws["level"].shape == (7,)
    assert isinstance(draws["level"], np.ndarray)
    plain = VariationalInference(RichLogistic(X, y), random_state=0).fit()
    np.testing.assert_allclose(fitted.mean_, plain.mean_[[2, 0, 1]], atol=0.05)


def test_copies(models):
    derived, _ = models
    assert clone(VariationalInference(derived)).model is derived
    again = pickle.loads(pickle.dumps(derived))
    z, rows = np.ones(3), np.arange(5)
    np.testing.assert_array_equal(again.gradient(z, rows), derived.gradient(z, rows))
    assert "log_likelihood" in repr(derived)


def test_wrong_data():
    with pytest.raises(ValueError, match="same number of rows"):
        JaxModel(log_likelihood, (np.ones((3, 2)), np.ones(2)), 2)
    with pytest.raises(ValueError, match="same number of rows"):
        JaxModel(log_likelihood, 3.0, 2)
    with pytest.raises(ValueError, match="at least one"):
        JaxModel(log_likelihood, np.ones(3), {})
    X, y = logistic_problem()
    X[17, 1] = np.nan
    with pytest.raises(ValueError, match=r"log_likelihood of JaxModel .* row 17"):
        VariationalInference(JaxModel(log_likelihood, (X, y), 3)).fit()


def won(skill, pair):
    return -jnp.logaddexp(0.0, skill[pair[1]] - skill[pair[0]])


def test_a_support_is_handed_on():
    plain = WideSkills(*skills_problem())
    model = JaxModel(won, *skills_problem(), support=plain.support)
    assert model == clone(model) and JaxModel(won, *skills_problem()).support is None
    rows = np.array([3, 8, 8])
    z = np.linspace(-1.0, 1.0, 9)
    np.testing.assert_allclose(model.gradient(z, rows), plain.gradient(z, rows))
    params = {"solver": "svrg", "max_iter": 2, "tol": 1.0, "random_state": 0}
    means = [VariationalInference(m, **params).fit().mean_ for m in (model, plain)]
    np.testing.assert_allclose(*means, atol=1e-5)


def test_bounded_parameters():
    """The density of what is fitted has the derivative of the transformation."""
    rng = np.random.default_rng(0)
    y = rng.gamma(3.0, 2.0, size=400)
    won = (rng.random(400) < 0.3).astype(float)

    def likelihood(p, row):
        a, b = p["gamma"]
        density = a * jnp.log(b) - jax.scipy.special.gammaln(a)
        density += (a - 1.0) * jnp.log(row["y"]) - b * row["y"]
        return density + jnp.log(jnp.where(row["won"] > 0.5, p["q"], 1.0 - p["q"]))

    def prior(p):
        # Beta(2, 3), and exponential of both of gamma; a shift that nothing needs.
        of_q = jnp.log(p["q"]) + 2.0 * jnp.log1p(-p["q"]) + jnp.log(12.0)
        return of_q - p["gamma"].sum() - 0.5 * (p["far"] - 1000.0) ** 2

    start = {"far": 1000.0, "gamma": np.ones(2), "q": 0.5}
    data = {"y": y, "won": won}
    bounds = {"positive": ["gamma"], "unit_interval": ["q"]}
    model = JaxModel(likelihood, data, start, prior, **bounds)
    names = ["far", "log gamma[0]", "log gamma[1]", "logit q"]
    assert model.parameter_names == names
    np.testing.assert_allclose(model.initial, [1000.0, 0.0, 0.0, 0.0])
    z = np.array([1000.3, 0.4, -0.2, 0.7])
    q = 1.0 / (1.0 + np.exp(-0.7))
    at = {"far": 1000.3, "gamma": np.exp([0.4, -0.2]), "q": q}
    expected = float(prior(at)) + 0.4 - 0.2 + np.log(q * (1.0 - q))
    np.testing.assert_allclose(model.log_prior(z), expected, rtol=1e-5)
    numeric = [
        (model.log_prior(z + h) - model.log_prior(z - h)) / 2e-5
        for h in 1e-5 * np.eye(4)
    ]
    np.testing.assert_allclose(model.log_prior_gradient(z), numeric, atol=1e-5)
    fitted = VariationalInference(model, random_state=0).fit()
    draws = fitted.sample_posterior(4000, random_state=0)
    a = won.sum()
    assert draws["q"].mean() == pytest.approx((a + 2.0) / 405.0, abs=1e-3)
    assert draws["gamma"].min() > 0.0 and draws["q"].max() < 1.0
    assert abs(draws["gamma"].mean(axis=0) - [3.0, 0.5]).max() < 0.4
    again = pickle.loads(pickle.dumps(JaxModel(log_likelihood, ((y[:, None]), won), 1)))
    assert not again._positive.any()
    one = JaxModel(likelihood, data, start, prior, positive=["gamma[1]"])
    assert one.parameter_names == ["far", "gamma[0]", "log gamma[1]", "q"]
    for given, message in [
        ({"positive": ["scale"]}, "'scale', which is none of the parameters"),
        ({"positive": "gamma"}, "must be a list"),
        ({"positive": ["q"], "unit_interval": ["q"]}, "q is in both"),
        ({"unit_interval": ["gamma"]}, r"gamma\[0\] starts at 1, which is beyond"),
    ]:
        with pytest.raises(ValueError, match=message):
            JaxModel(likelihood, data, start, prior, **given)
