"""Nothing depends on where the zero of a feature is: evidence, widths and answers."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from skvrem import BayesianGLMRegressor, BayesianLogisticRegression
from skvrem.data import as_source
from skvrem.vi.gaussian._model_posterior import LowRank, MeanField
from skvrem.vi.glm._noise import LearntNoise

FAMILIES = ["gaussian", "poisson", "negative-binomial", "two classes", "three classes"]
AWAY = np.array([100.0, -7.0, 0.0])


def drawn(family, rng, n=60):
    X = rng.normal(size=(n, 3))
    u = X @ [0.5, -0.5, 0.0]
    if family == "gaussian":
        return X, u + rng.normal(size=n)
    if family == "two classes":
        return X, (u > 0.5 * rng.logistic(size=n)).astype(int)
    if family == "three classes":
        return X, np.digitize(u + rng.normal(size=n), [-0.5, 0.5])
    return X, rng.poisson(np.exp(u))


def of_family(family, **params):
    if family.endswith("classes"):
        return BayesianLogisticRegression(**params)
    return BayesianGLMRegressor(family, **params)


def answers(model, X, **groups):
    """What is said of features, of rows and of all of them."""
    evidence = "log_marginal_likelihood_" if groups else "elbo_"
    names = ["prior_scale_", "coef_", "coef_std_"]
    names += ["group_coef_", "population_scale_"] if groups else []
    found = [np.ravel(getattr(model, name)) for name in names]
    found.append([getattr(model, evidence)])
    for name in ("predict_mean_interval", "predict_interval", "predict_proba"):
        if hasattr(model, name):
            found.append(np.ravel(getattr(model, name)(X, **groups)))
    return np.concatenate(found)


def assert_same(model, X, y, atol, away=AWAY, layout=np.asarray, **groups):
    """Check that a fit and one to features with another zero say the same."""
    here = clone(model).fit(layout(X), y, **groups)
    there = clone(model).fit(layout(X + away), y, **groups)
    expected, found = (
        answers(one, layout(rows), **groups)
        for one, rows in ((here, X), (there, X + away))
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=atol)
    np.testing.assert_allclose(
        there.intercept_ + there.coef_ @ away, here.intercept_, atol=10.0 * atol
    )
    return here, there


@pytest.mark.parametrize("layout", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_zero_elsewhere_changes_nothing(family, layout, rng):
    model = of_family(family, tol=1e-7)
    assert_same(model, *drawn(family, rng), 1e-5, layout=layout)


@pytest.mark.parametrize("family", FAMILIES[:3])
def test_nor_with_scales_that_are_not_learned(family, rng):
    model = of_family(family, prior_scale="auto", tol=1e-7)
    assert_same(model, *drawn(family, rng), 1e-5)


@pytest.mark.parametrize("varying", ["intercept", "all"])
@pytest.mark.parametrize("family", FAMILIES[:4])
def test_nor_with_groups(family, varying, rng):
    model = of_family(family, varying=varying, tol=1e-5)
    groups = rng.integers(6, size=60)
    assert_same(model, *drawn(family, rng), 1e-3, groups=groups)


@pytest.mark.parametrize("p", [30, 1100])
@pytest.mark.parametrize("layout", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("family", ["gaussian", "poisson", "two classes"])
def test_nor_of_fewer_rows_than_features(family, layout, p, rng):
    X, y = drawn(family, rng, n=15)
    X = np.column_stack([X, rng.normal(size=(15, p))])
    away = rng.normal(scale=5.0, size=p + 3)
    model = of_family(family, tol=1e-6)
    here, there = assert_same(model, X, y, 1e-4, away, layout)
    assert isinstance(there.posterior_, LowRank) == (p > 1000)
    np.testing.assert_allclose(
        there.posterior_.with_origin(away).scale, here.posterior_.scale, rtol=1e-5
    )


@pytest.mark.parametrize("family", ["gaussian", "poisson", "two classes"])
def test_nor_of_a_stream(family, rng):
    """Whose prior is where the means of all rows are, not those of the first."""
    X, y = drawn(family, rng)
    X = X[np.argsort(X[:, 0])]
    ends = []
    for away in (0.0, AWAY):
        stream, more = of_family(family, tol=1e-7), {}
        if family == "two classes":
            more = {"classes": [0, 1]}
        for some in np.split(np.arange(60), 3):
            stream.partial_fit(X[some] + away, y[some], **more)
        whole = of_family(family, tol=1e-7).fit(X + away, y)
        for name in ("prior_scale_", "coef_", "coef_std_", "intercept_prior_scale_"):
            given = getattr(stream, name), getattr(whole, name)
            np.testing.assert_allclose(*given, rtol=2e-2, err_msg=name)
        ends.append(np.concatenate([np.ravel(stream.coef_), stream.prior_scale_]))
    np.testing.assert_allclose(*ends, rtol=2e-2, atol=1e-3)


def test_evidence_does_not_charge_a_learned_width_twice(rng):
    """As of exact arithmetic: the marginal likelihood with the intercept's prior."""
    X, y = drawn("gaussian", rng)
    X = X[:, :1] + 2000.0
    model = BayesianGLMRegressor(prior_scale="auto", noise_scale=0.7).fit(X, y)
    rows = np.column_stack([X - X.mean(), np.ones(60)])
    scale = 2.5 * y.std() * np.array([1.0 / X.std(), 1.0])
    covariance = 0.49 * np.eye(60) + (rows * scale**2) @ rows.T
    left = y - y.mean()
    square = left @ np.linalg.solve(covariance, left)
    size = np.linalg.slogdet(2.0 * np.pi * covariance)[1]
    assert model.elbo_ == pytest.approx(-0.5 * (square + size), abs=1e-6)
    wide = np.hypot(scale[1], scale[0] * X.mean())
    assert model.intercept_prior_scale_ == pytest.approx(wide)


def test_an_intercept_whose_prior_is_given_is_where_features_are_zero(rng):
    X, y = drawn("gaussian", rng)
    numbers = {"prior_scale": 1.0, "intercept_prior_scale": 0.5}
    model = BayesianGLMRegressor(**numbers, noise_scale=0.7).fit(X + AWAY, y)
    rows = np.column_stack([X + AWAY, np.ones(60)])
    precision = np.diag([1.0, 1.0, 1.0, 4.0]) + rows.T @ rows / 0.49
    expected = np.linalg.solve(precision, rows.T @ y / 0.49)
    np.testing.assert_allclose(model.coef_, expected[:3], atol=1e-6)


@pytest.mark.parametrize("given", [{"solver": "svrg"}, {"posterior": "meanfield"}])
@pytest.mark.parametrize("family", ["gaussian", "poisson", "two classes"])
def test_an_independent_posterior_has_such_a_prior(family, given, rng):
    """As wide at zero, and of the width that rows tell wherever that is."""
    X, y = drawn(family, rng)
    whole = of_family(family).fit(X + 1.0, y)
    model = of_family(family, random_state=0, **given).fit(X + 1.0, y)
    assert isinstance(model.posterior_, MeanField)
    assert isinstance(model._prior, MeanField)
    for name in ("prior_scale_", "intercept_prior_scale_"):
        np.testing.assert_allclose(getattr(model, name), getattr(whole, name))
    np.testing.assert_allclose(model.coef_, whole.coef_, atol=0.05)


@pytest.mark.parametrize("posterior", ["fullrank", "lowrank", "meanfield"])
def test_a_learnt_noise_knows_the_centre(posterior, rng):
    """Against differences of the posterior by the logarithm of the noise."""
    X, y = drawn("gaussian", rng, 12)
    X += np.array([5.0, -3.0, 0.0])
    model = BayesianGLMRegressor(posterior=posterior, rank=2).fit(X, y)
    q, prior = model._given_prior, model._prior
    noise = LearntNoise(q, prior, 9.0)
    S, P = q.covariance(), prior.precision
    moved = S - S @ P @ S
    _, diagonal = noise._moving()
    np.testing.assert_allclose(diagonal, moved.diagonal(), rtol=1e-6)
    np.testing.assert_allclose(noise.shift, -S @ P @ (q.mean - prior.mean), atol=1e-9)
    data = as_source(X)
    rows = np.column_stack([X, np.ones(12)])
    variance = q.predictor_variance(rows)
    of_rows = np.einsum("ij,jk,ik->i", rows, moved, rows)
    given = noise.shift @ rows.T, 0.0, 0.3
    expected = noise._spread(variance, of_rows, *given)
    found = noise.of_rows(True)(variance, 0.3, data.batch(0, 12))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    # Draws have the mean, and about the covariance, of the posterior.
    draws, _ = noise.draws(40_000, np.random.default_rng(0))
    seen = draws @ [5.0, -3.0, 0.0, 1.0]
    assert abs(seen.mean() - q.mean @ [5.0, -3.0, 0.0, 1.0]) < 0.05 * seen.std()
    spread = np.sqrt([5.0, -3.0, 0.0, 1.0] @ S @ [5.0, -3.0, 0.0, 1.0])
    assert spread < 1.02 * seen.std() < 1.6 * spread
