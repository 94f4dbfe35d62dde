"""Draws for ArviZ: labelled, and with the log-likelihood of every row."""

import sys
from types import ModuleType

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import multivariate_normal, norm, poisson
from sklearn.datasets import load_iris

from skvrem import (
    BayesianGLMRegressor,
    BayesianLogisticRegression,
    BayesianPPCA,
    BradleyTerry,
)


def matches():
    rng = np.random.default_rng(0)
    X = np.stack([rng.permutation(5)[:2] for _ in range(80)])
    return X, rng.choice([0.0, 0.5, 1.0], size=80)


def problems():
    X, species = load_iris(return_X_y=True)
    rng = np.random.default_rng(1)
    counts = rng.poisson(np.exp(0.5 * (X[:, 0] - 5.0)))
    return {
        "two classes": (BayesianLogisticRegression(1.0), X[50:], species[50:] - 1),
        "three classes": (BayesianLogisticRegression(1.0), X, species),
        "counts": (BayesianGLMRegressor("poisson"), X, counts),
        "numbers": (BayesianGLMRegressor(), X[:, :3], X[:, 3]),
        "matches": (BradleyTerry(home_advantage=True), *matches()),
        "ties": (BradleyTerry(ties="davidson"), *matches()),
        "components": (BayesianPPCA(2, random_state=0), X, None),
    }


EVERY = pytest.mark.parametrize("kind", list(problems()))


def dense(kind, model, draws, X, y):
    """Log-likelihoods from draws, by definition, of shape (n_samples, n_rows)."""
    if kind == "components":
        V = draws.posterior["loading"]
        C = np.einsum("ski,skj->sij", V, V) + model.noise_variance_ * np.eye(4)
        return np.stack([multivariate_normal(model.mean_, c).logpdf(X) for c in C])
    if kind in ("matches", "ties"):
        skill = draws.posterior["skill"]
        u = skill[:, X[:, 0]] - skill[:, X[:, 1]]
        if kind == "matches":
            u = u + draws.posterior["home_advantage"][:, None]
            return y * np.log(expit(u)) + (1.0 - y) * np.log(expit(-u))
        weights = np.exp([-u / 2, np.full_like(u, np.log(model.tie_parameter_)), u / 2])
        p = weights / weights.sum(axis=0)
        return np.log(np.where(y == 1.0, p[2], np.where(y == 0.5, p[1], p[0])))
    z = np.einsum("skj,nj->snk", draws.posterior["coef"], X)
    z = z + draws.posterior["intercept"][:, None, :]
    if kind == "two classes":
        return np.log(expit(np.where(y == 1, z[..., 0], -z[..., 0])))
    if kind == "three classes":
        return z[:, np.arange(len(y)), y] - np.log(np.exp(z).sum(axis=2))
    if kind == "counts":
        return poisson(np.exp(z[..., 0])).logpmf(y)
    return norm(z[..., 0], draws.posterior["noise_scale"][:, None]).logpdf(y)


@EVERY
def test_log_likelihoods(kind):
    model, X, y = problems()[kind]
    model.fit(X, y)
    before = dict(vars(model))
    rows = slice(0, 10)  # of one class: targets may be some of those of the fit
    X, y = X[rows], None if y is None else y[rows]
    draws = model._draws(X, y, 7, np.random.RandomState(0))
    assert list(vars(model)) == list(before)
    assert all(value is before[name] for name, value in vars(model).items())
    expected = dense(kind, model, draws, X, y)
    assert expected.shape == (7, 10)
    np.testing.assert_allclose(draws.log_likelihood, expected, rtol=1e-6)
    for name, axes in draws.dims.items():
        sizes = [len(draws.coords[axis]) for axis in axes]
        assert draws.posterior[name].shape == (7, *sizes)


@EVERY
def test_arviz_takes_it(kind):
    az = pytest.importorskip("arviz")
    model, X, y = problems()[kind]
    data = model.fit(X, y).to_arviz(X, y, n_samples=2000, random_state=0)
    assert {"posterior", "log_likelihood", "observed_data"} <= set(data.groups())
    if hasattr(model, "sample_predictive"):
        new = data.posterior_predictive["y"]
        assert new.shape == data.log_likelihood["y"].shape
        error = abs(new.mean(["chain", "draw"]) - data.observed_data["y"]).mean()
        assert error < 3.0 * data.observed_data["y"].std()
    loo = az.loo(data)
    # What leaving rows out says is near the mean log density of the fitted rows.
    assert abs(loo.elpd_loo / len(X) - data.log_likelihood["y"].mean()) < 0.5
    again = model.to_arviz(X, y, n_samples=2000, random_state=0)
    assert data.posterior.equals(again.posterior)
    if kind == "three classes":
        assert list(data.posterior["feature"].values) == ["x0", "x1", "x2", "x3"]
        assert list(data.posterior["predictor"].values) == ["0", "1", "2"]


def test_without_arviz_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    X, y = matches()
    model = BradleyTerry().fit(X, y)
    with pytest.raises(ImportError, match=r"pip install 'skvrem\[arviz\]'"):
        model.to_arviz(X, y)


def test_version_one_gets_one_dictionary(monkeypatch):
    """Its from_dict has the signature that its documentation gives."""

    def from_dict(data, *, coords=None, dims=None):
        return data, coords, dims

    fake = ModuleType("arviz")
    fake.__version__, fake.from_dict = "1.2.0", from_dict
    monkeypatch.setitem(sys.modules, "arviz", fake)
    model, X, y = problems()["counts"]
    data, coords, dims = model.fit(X, y).to_arviz(X, y, n_samples=7)
    assert data["posterior"]["coef"].shape == (1, 7, 1, 4)
    assert data["log_likelihood"]["y"].shape == (1, 7, len(y))
    assert data["posterior_predictive"]["y"].shape == (1, 7, len(y))
    np.testing.assert_array_equal(data["observed_data"]["y"], y)
    assert dims["y"] == ["row"] and coords["feature"] == ["x0", "x1", "x2", "x3"]
