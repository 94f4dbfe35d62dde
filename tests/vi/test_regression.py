"""Bayesian linear and Poisson regression."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize, minimize_scalar
from scipy.special import pdtr
from scipy.stats import nbinom, norm
from scipy.stats import t as student_t
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import BayesianRidge
from sklearn.metrics import r2_score

from skvrem import BayesianGLMRegressor, BayesianLogisticRegression
from skvrem.exceptions import PosteriorWarning
from skvrem.vi import MinibatchSteps
from skvrem.vi.gaussian._model_families import OverdispersedCounts
from skvrem.vi.gaussian._model_posterior import MeanField
from skvrem.vi.glm._counts import (
    CONCENTRATIONS,
    ConcentrationSearch,
    count_quantile,
    counts_of_least,
)


def rows(n=120):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    X[:, 1] += 0.8 * X[:, 0]
    return X, X @ [0.8, -0.5, 0.2] + 0.5, rng


def counts(n=120):
    X, eta, rng = rows(n)
    return X, rng.poisson(np.exp(eta)).astype(float)


def numbers(n=120):
    X, eta, rng = rows(n)
    return X, eta + 0.6 * rng.normal(size=n)


#: Of which the tests know the numbers.
PRIOR = {"prior_scale": 1.0, "intercept_prior_scale": 10.0}


def design(X):
    return np.column_stack([X, np.ones(len(X))])


def test_gaussian_posterior_is_exact():
    X, y = numbers()
    model = BayesianGLMRegressor(noise_scale=0.6, **PRIOR).fit(X, y)
    D = design(X)
    precision = D.T @ D / 0.36 + np.diag([1.0, 1.0, 1.0, 0.01])
    mean = np.linalg.solve(precision, D.T @ y / 0.36)
    np.testing.assert_allclose(
        np.append(model.coef_, model.intercept_), mean, atol=1e-9
    )
    sd = np.sqrt(np.linalg.inv(precision).diagonal())
    np.testing.assert_allclose(np.append(model.coef_std_, model.intercept_std_), sd)
    # The bound is the evidence itself.
    covariance = 0.36 * np.eye(len(y)) + D @ np.diag([1.0, 1.0, 1.0, 100.0]) @ D.T
    _, determinant = np.linalg.slogdet(2.0 * np.pi * covariance)
    evidence = -0.5 * (determinant + y @ np.linalg.solve(covariance, y))
    assert model.elbo_ == pytest.approx(evidence, abs=1e-8)
    mean, std = model.predict(X[:5], return_std=True)
    np.testing.assert_allclose(mean, model.intercept_ + X[:5] @ model.coef_)
    half = np.einsum("ij,jk,ik->i", D[:5], np.linalg.inv(precision), D[:5])
    np.testing.assert_allclose(std, np.sqrt(half + 0.36))


def test_noise_is_learnt_by_the_evidence():
    X, y = numbers()
    weight = np.random.default_rng(1).integers(1, 4, len(y))
    model = BayesianGLMRegressor().fit(X, y, weight)

    def loss(log_scale):
        fit = BayesianGLMRegressor(noise_scale=float(np.exp(log_scale[0])))
        return -fit.fit(X, y, weight).elbo_

    best = minimize(loss, [np.log(0.5)], method="Nelder-Mead", tol=1e-5)
    assert model.noise_scale_ == pytest.approx(np.exp(best.x[0]), rel=1e-3)
    ridge = BayesianRidge().fit(X, y, weight)
    np.testing.assert_allclose(model.coef_, ridge.coef_, atol=0.02)


def test_a_stream_pools_its_noise():
    X, y = numbers(3000)
    stream = BayesianGLMRegressor()
    for part in np.array_split(np.arange(len(X)), 3):
        stream.partial_fit(X[part], y[part])
    whole = BayesianGLMRegressor().fit(X, y)
    assert stream.noise_scale_ == pytest.approx(whole.noise_scale_, rel=0.01)
    np.testing.assert_allclose(stream.coef_, whole.coef_, atol=0.01)


@pytest.mark.parametrize("groups", [None, np.arange(200) % 4])
def test_targets_far_from_zero_have_the_same_noise(groups):
    """As years and pressures lie, by many of their deviations."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    y = X @ [1.0, -0.5] + 0.3 * rng.normal(size=200)
    near, far = (
        BayesianGLMRegressor().fit(X, y + c, groups=groups) for c in (0.0, 1e5)
    )
    np.testing.assert_allclose(far.noise_scale_, near.noise_scale_, rtol=1e-6)
    np.testing.assert_allclose(far.coef_std_, near.coef_std_, rtol=1e-5)


@pytest.mark.parametrize("prior_scale", ["learn", 1.0])
@pytest.mark.parametrize("about", [0.0, 1e4])
def test_an_open_prior_of_the_intercept_leaves_the_noise_as_it_is(prior_scale, about):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = about + X @ [1.0, 2.0, 3.0] + 0.5 * rng.normal(size=200)
    wide, open_ = (
        BayesianGLMRegressor(prior_scale=prior_scale, intercept_prior_scale=scale)
        for scale in (1e5, 1e12)
    )
    assert 0.4 < wide.fit(X, y).noise_scale_ < 0.6
    assert open_.fit(X, y).noise_scale_ == pytest.approx(wide.noise_scale_, rel=1e-5)
    assert open_.noise_df_ == pytest.approx(wide.noise_df_, rel=1e-3)


def test_an_open_prior_of_more_columns_than_rows_leaves_the_noise_as_it_is():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 100))
    y = X[:, 0] + 0.5 * rng.normal(size=50)
    wide, wider = (
        BayesianGLMRegressor(prior_scale=scale).fit(X, y) for scale in (1e4, 1e6)
    )
    assert wider.noise_scale_ == pytest.approx(wide.noise_scale_, rel=1e-5)


@pytest.mark.parametrize("unit", [1e-12, 1e-8, 1e8])
def test_the_noise_follows_the_unit_of_the_targets(unit):
    X, y = numbers()
    one, other = (BayesianGLMRegressor().fit(X, (y + 3.0) * u) for u in (1.0, unit))
    assert other.noise_scale_ == pytest.approx(unit * one.noise_scale_, rel=1e-6)
    assert other.noise_df_ == pytest.approx(one.noise_df_, rel=1e-6)
    np.testing.assert_allclose(other.coef_, unit * one.coef_, rtol=1e-6)


def test_rows_that_fit_exactly():
    X, _ = numbers()
    model = BayesianGLMRegressor().fit(X, X @ [1.0, 2.0, 3.0])
    assert model.noise_scale_ > 0.0 and model.score(X, X @ [1.0, 2.0, 3.0]) > 0.999


@pytest.mark.parametrize("seed", [0, 1, 4, 6])
def test_rates_that_overflow_under_the_prior(seed):
    """Few rows of many columns: a fit begins with more than rows know."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (9, 1)) ** np.arange(1, 101)
    model = BayesianGLMRegressor("poisson").fit(X, rng.poisson(0.2, 9))
    assert model.converged_ and -50.0 < model.elbo_ < 0.0


def test_poisson_against_importance_sampling():
    X, y = counts()
    model = BayesianGLMRegressor("poisson", tol=1e-6, **PRIOR).fit(X, y)
    draws = model.posterior_.sample(100_000, np.random.default_rng(0))
    eta = draws @ design(X).T
    log_p = (y * eta - np.exp(eta)).sum(axis=1)
    log_p -= 0.5 * np.square(draws / [1.0, 1.0, 1.0, 10.0]).sum(axis=1)
    weight = log_p - model.posterior_.logpdf(draws)
    weight = np.exp(weight - weight.max())
    weight /= weight.sum()
    mean = weight @ draws
    sd = np.sqrt(weight @ np.square(draws - mean))
    off = (np.append(model.coef_, model.intercept_) - mean) / sd
    assert abs(off).max() < 0.05
    np.testing.assert_allclose(model.posterior_.scale, sd, rtol=0.03)
    assert model.pareto_k_ < 0.5
    rate = weight @ np.exp(eta[:, :5])
    np.testing.assert_allclose(model.predict(X[:5]), rate, rtol=0.02)
    spread = np.sqrt(weight @ np.square(np.exp(eta[:, :5])) - rate**2 + rate)
    np.testing.assert_allclose(
        model.predict(X[:5], return_std=True)[1], spread, rtol=0.02
    )
    low, high = model.predict_mean_interval(X[:5], level=0.5).T
    inside = (np.exp(eta[:, :5]) > low) & (np.exp(eta[:, :5]) < high)
    np.testing.assert_allclose(weight @ inside, 0.5, atol=0.03)


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_poisson_with_large_counts(scale):
    X, y = counts()
    model = BayesianGLMRegressor("poisson").fit(X, np.round(scale * y))
    assert model.converged_
    assert model.intercept_ == pytest.approx(0.5 + np.log(scale), abs=0.2)


@pytest.mark.parametrize("family", ["gaussian", "poisson"])
@pytest.mark.parametrize("solver", ["svrg", "saga"])
@pytest.mark.parametrize("expectation", ["quadrature", "mc"])
def test_steps_end_near_the_batch_fit(family, solver, expectation):
    X, y = counts() if family == "poisson" else numbers()
    params = {"family": family, "noise_scale": 0.6, "posterior": "meanfield"}
    best = BayesianGLMRegressor(tol=1e-6, **params).fit(X, y)
    model = BayesianGLMRegressor(
        solver=solver,
        steps=MinibatchSteps(expectation=expectation),
        tol=0.05,
        random_state=0,
        **params,
    ).fit(X, y)
    assert best.elbo_ - model.elbo_ < 0.2


@pytest.mark.parametrize("family", ["gaussian", "poisson"])
def test_streams_and_sparse_rows(family):
    X, y = counts() if family == "poisson" else numbers()
    params = {"noise_scale": 0.6, "tol": 1e-6} | PRIOR
    model = BayesianGLMRegressor(family, **params).fit(X, y)
    stream = BayesianGLMRegressor(family, **params)
    for part in np.array_split(np.arange(len(X)), 3):
        stream.partial_fit(sp.csr_array(X[part]), y[part])
    tolerance = 1e-8 if family == "gaussian" else 0.05
    np.testing.assert_allclose(stream.coef_, model.coef_, atol=tolerance)
    assert not hasattr(stream, "elbo_")
    assert "coefficient 97.5 %" in model.summary()


def test_what_is_not_known_of_the_noise_widens_intervals():
    """As of least squares, whose intervals are those of Student's t."""
    X, y = numbers(12)
    model = BayesianGLMRegressor(prior_scale=1e4, intercept_prior_scale=1e4).fit(X, y)
    D, df = design(X), 8
    theta = np.linalg.lstsq(D, y)[0]
    noise = np.sqrt(np.square(y - D @ theta).sum() / df)
    sd = noise * np.sqrt(np.linalg.inv(D.T @ D).diagonal())
    assert model.noise_df_ == pytest.approx(df, rel=1e-2)
    assert model.noise_scale_ == pytest.approx(noise, rel=1e-3)
    wide = np.sqrt(df / (df - 2.0))
    np.testing.assert_allclose(model.coef_std_, wide * sd[:3], rtol=0.01)
    table = model.summary()
    half = student_t(df).ppf(0.975) * sd
    np.testing.assert_allclose(table["coefficient 97.5 %"], theta + half, rtol=5e-3)
    np.testing.assert_allclose(table["coefficient sd"], wide * sd, rtol=0.01)
    of_mean = np.sqrt(np.einsum("ij,jk,ik->i", D, np.linalg.inv(D.T @ D), D)) * noise
    interval = model.predict_mean_interval(X, level=0.8)
    half = student_t(df).ppf(0.9) * of_mean
    np.testing.assert_allclose(interval[:, 1] - interval[:, 0], 2.0 * half, rtol=5e-3)
    interval = model.predict_interval(X, level=0.8)
    half = student_t(df).ppf(0.9) * np.hypot(of_mean, noise)
    np.testing.assert_allclose(interval[:, 1] - interval[:, 0], 2.0 * half, rtol=5e-3)
    std = model.predict(X, return_std=True)[1]
    np.testing.assert_allclose(std, wide * np.hypot(of_mean, noise), rtol=0.01)
    coef = model.sample_posterior(100_000, random_state=0)["coef"]
    np.testing.assert_allclose(coef.std(axis=0), wide * sd[:3], rtol=0.03)
    ends = np.quantile(coef, 0.975, axis=0)
    np.testing.assert_allclose(ends, table["coefficient 97.5 %"][:3], atol=0.02)
    # Given, it is known.
    known = BayesianGLMRegressor(noise_scale=noise).fit(X, y)
    assert known.noise_df_ == np.inf
    assert (known.coef_std_ < model.coef_std_).all()


def test_draws_have_a_noise_of_their_own():
    X, y = numbers(30)
    model = BayesianGLMRegressor().fit(X, y)
    draws = model._draws(X, y, 5, np.random.default_rng(0))
    posterior = draws.posterior
    z = posterior["coef"][:, 0] @ X.T + posterior["intercept"]
    expected = norm.logpdf(y, z, posterior["noise_scale"][:, None])
    np.testing.assert_allclose(draws.log_likelihood, expected)
    assert np.ptp(posterior["noise_scale"]) > 0.01


def test_streams_add_up_what_they_know_of_the_noise():
    X, y = numbers(300)
    stream = BayesianGLMRegressor()
    for part in np.array_split(np.arange(300), 3):
        stream.partial_fit(X[part], y[part])
    assert 285.0 < stream.noise_df_ < 300.0
    # A row more than coefficients is not enough to know anything.
    assert BayesianGLMRegressor().fit(X[:3], y[:3]).noise_df_ == 3.0


@pytest.mark.parametrize("a", [-3.0, 0.5, 8.0])
@pytest.mark.parametrize("sd", [0.0, 0.4])
def test_quantiles_of_counts(a, sd):
    rng = np.random.default_rng(0)
    drawn = rng.poisson(np.exp(a + sd * rng.standard_normal(400_000)))
    for p in (0.025, 0.3, 0.9):
        found = int(count_quantile(np.array([a]), np.array([sd]), pdtr, p)[0])
        assert np.mean(drawn <= found) > p - 0.003
        assert found == 0 or np.mean(drawn <= found - 1) < p + 0.003
    model = BayesianGLMRegressor("poisson").fit(*counts())
    low, high = model.predict_interval(counts()[0]).T
    y = counts()[1]
    assert np.mean((low <= y) & (y <= high)) > 0.93
    assert (low == np.round(low)).all() and (low >= 0.0).all()


def test_quantiles_of_counts_without_end():
    """Of rows far from those of a fit, whose rates are as good as unknown."""
    a, sd = np.array([40.0, 100.0, 800.0, -800.0, 5.0]), np.array([3.0, 20, 9, 3, 0.2])
    for p in (0.05, 0.95):
        found = count_quantile(a, sd, pdtr, p)
        assert np.isfinite(found).all() and found[3] == 0.0
        exact = a[:2] + norm.ppf(p) * sd[:2]  # the mean's: counts vary by nothing
        np.testing.assert_allclose(np.log(found[:2]), exact, atol=0.01 * sd[1])
        alone = count_quantile(a[4:], sd[4:], pdtr, p)
        assert found[4] == alone[0] > 0.0


@pytest.mark.parametrize("sparse", [False, True])
def test_priors_follow_the_units(sparse):
    X, y = numbers()
    weight = np.random.default_rng(1).integers(0, 3, len(y))
    own = sp.csr_array(X) if sparse else X
    model = BayesianGLMRegressor(prior_scale="auto").fit(own, y, weight)
    sd = np.repeat(X, weight, axis=0).std(axis=0)
    of_y = np.repeat(y, weight)
    np.testing.assert_allclose(model.prior_scale_, 2.5 * of_y.std() / sd)
    assert model.intercept_prior_mean_ == pytest.approx(of_y.mean())
    at = np.repeat(X, weight, axis=0).mean(axis=0)
    wide = 2.5 * of_y.std() * np.sqrt(1.0 + np.square(at / sd).sum())
    assert model.intercept_prior_scale_ == pytest.approx(wide)
    column = model.summary()["prior sd"]
    np.testing.assert_allclose(column, [*model.prior_scale_, wide])
    if sparse:  # entries that come in two
        parts = np.repeat(own.data, 2) * 0.5, np.repeat(own.indices, 2), 2 * own.indptr
        twice = clone(model).fit(sp.csr_array(parts, own.shape), y, weight)
        np.testing.assert_allclose(twice.prior_scale_, model.prior_scale_)
        np.testing.assert_allclose(twice.coef_, model.coef_)
    # In other units it is the same model.
    units = np.array([1e3, 1e-2, 7.0])
    for width in "auto", "learn":
        model.set_params(prior_scale=width).fit(own, y, weight)
        other = clone(model).fit(own * units, 1e4 * y, weight)
        np.testing.assert_allclose(other.coef_ * units, 1e4 * model.coef_, rtol=1e-6)
        np.testing.assert_allclose(other.coef_std_ * units, 1e4 * model.coef_std_, 1e-6)
        assert other.intercept_ == pytest.approx(1e4 * model.intercept_, rel=1e-6)
    moved = clone(model).fit(X + 5.0, y + 300.0, weight)
    np.testing.assert_allclose(moved.coef_, model.coef_, rtol=0.02)
    np.testing.assert_allclose(moved.predict(X + 5.0), model.predict(X) + 300.0, 1e-3)


def mean_above(log_density, top, step=0.05):
    """Return by how much a log-normal width is taken above its top.

    Half its variance but for the share of its own prior, of curvature one.
    """
    ends = log_density(top - step) + log_density(top + step)
    curvature = (2.0 * log_density(top) - ends) / step**2
    return (curvature - 1.0) / (2.0 * curvature**2)


@pytest.mark.parametrize("noise", ["learn", 2.0])
@pytest.mark.parametrize("shape", [(80, 6), (30, 50)])
def test_the_prior_is_as_wide_as_the_evidence_says(shape, noise):
    rng = np.random.default_rng(3)
    X = rng.normal(size=shape) * np.geomspace(0.1, 10.0, shape[1])
    y = X @ (0.5 * rng.normal(size=shape[1]) / X.std(axis=0)) + rng.normal(size=len(X))
    model = BayesianGLMRegressor(noise_scale=noise, tol=1e-6).fit(X, y)
    unit = y.std() / X.std(axis=0)
    width = model.prior_scale_ / unit
    np.testing.assert_allclose(width, width[0])

    def evidence(log_width):  # that of a full rank is exact
        own = clone(model).set_params(prior_scale=np.exp(log_width) * unit)
        return own.fit(X, y).elbo_ - 0.5 * log_width**2

    best = minimize_scalar(lambda x: -evidence(x), (-1.0, 0.0), method="brent").x
    above = mean_above(evidence, best)
    assert above > 0.02
    assert np.log(width[0]) == pytest.approx(best + above, abs=1e-3)


def test_where_there_is_nothing_to_find_a_fit_finds_next_to_nothing():
    rng = np.random.default_rng(4)
    X, X_new, y, y_new = (
        rng.normal(size=s) for s in ((200, 60), (2000, 60), 200, 2000)
    )
    model = BayesianGLMRegressor().fit(X, y)
    assert model.score(X_new, y_new) > -0.05
    assert (
        clone(model).set_params(prior_scale="auto").fit(X, y).score(X_new, y_new) < -0.2
    )
    assert (abs(model.coef_) < 1.96 * model.coef_std_).mean() > 0.9


@pytest.mark.parametrize("family", ["poisson", "negative-binomial", "logistic"])
def test_the_prior_is_as_wide_as_the_highest_bound_says(family):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(90, 8)) * np.geomspace(0.1, 10.0, 8)
    eta = (X / X.std(axis=0)) @ (0.4 * rng.normal(size=8))
    if family == "logistic":
        y = eta > rng.logistic(size=90)
    else:
        varies = rng.gamma(2.0, 0.5, 90) if family == "negative-binomial" else 1.0
        y = rng.poisson(np.exp(eta) * varies)
    model = BayesianLogisticRegression(prior_scale="learn")
    if family != "logistic":
        model = BayesianGLMRegressor(family)
    model.set_params(tol=1e-4).fit(X, y)
    width = model.prior_scale_ * X.std(axis=0)
    np.testing.assert_allclose(width, width[0], rtol=0.3)  # rare ones have less

    def bound(change):
        own = clone(model).set_params(prior_scale=np.exp(change) * model.prior_scale_)
        return own.fit(X, y).elbo_ - 0.5 * (np.log(width.max()) + change) ** 2

    best = minimize_scalar(lambda x: -bound(x), (-0.5, 0.0), method="brent").x
    assert best + mean_above(bound, best) == pytest.approx(0.0, abs=0.04)
    assert clone(model).fit(1e3 * X, y).elbo_ == pytest.approx(model.elbo_, abs=1e-3)


def test_learned_widths_are_those_of_weights_sparse_rows_and_blocks():
    dask = pytest.importorskip("dask.array")
    rng = np.random.default_rng(6)
    X = rng.normal(size=(80, 4)) * (rng.uniform(size=(80, 4)) < 0.4)
    y, weight = rng.integers(3, size=80), rng.integers(3, size=80)
    model = BayesianLogisticRegression(prior_scale="learn").fit(X, y, weight)
    twice = clone(model).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    np.testing.assert_allclose(twice.prior_scale_, model.prior_scale_, rtol=1e-6)
    thin = clone(model).fit(sp.csr_array(X), y, weight)
    np.testing.assert_allclose(thin.prior_scale_, model.prior_scale_, rtol=1e-6)
    blocks = [dask.from_array(a, chunks=30) for a in (X, y, weight)]
    elsewhere = clone(model).fit(*blocks)
    np.testing.assert_allclose(elsewhere.prior_scale_, model.prior_scale_, rtol=1e-6)
    stream = clone(model).partial_fit(X, y, np.arange(3), weight)
    np.testing.assert_allclose(stream.prior_scale_, model.prior_scale_, rtol=1e-6)
    given = clone(model).set_params(solver="svrg", random_state=0, tol=0.1)
    given.fit(X, y, weight)
    np.testing.assert_allclose(given.prior_scale_, model.prior_scale_)


def test_priors_of_counts_follow_their_features():
    X, y = counts()
    model = BayesianGLMRegressor("poisson", prior_scale="auto").fit(X, y)
    np.testing.assert_allclose(model.prior_scale_, 2.5 / units_of_counts(X))
    assert model.intercept_prior_mean_ == pytest.approx(np.log(y.mean()))
    units = np.array([1e3, 1e-2, 7.0])
    for width in "auto", "learn":
        model.set_params(prior_scale=width).fit(X, y)
        other = clone(model).fit(X * units, y)
        np.testing.assert_allclose(other.coef_ * units, model.coef_, rtol=1e-3)
    assert BayesianGLMRegressor("poisson").fit(X, 0.0 * y).converged_


def units_of_counts(X):
    away = np.zeros(X.shape[1])
    for j, x in enumerate(X.T):
        values, counts = np.unique(x, return_counts=True)
        if 2 * counts.max() > len(x):
            others = x[x != values[counts.argmax()]]
            away[j] = np.sqrt(np.mean(np.square(others - x.mean())))
    return np.maximum(X.std(axis=0), away / 4.0)


@pytest.mark.parametrize("family", ["poisson", "negative-binomial"])
@pytest.mark.parametrize("layout", ["array", "sparse", "dask", "stream", "groups"])
def test_a_rare_column_of_counts_has_a_prior_that_is_no_wider_than_others(
    family, layout
):
    X, y = counts()
    X[:, 2] = 0.0
    X[0, 2] = 17.0
    units = units_of_counts(X)
    assert units[2] > 2.5 * X[:, 2].std()
    model = BayesianGLMRegressor(family, prior_scale="auto")
    if layout == "sparse":
        model.fit(sp.csr_array(X), y)
    elif layout == "dask":
        dask = pytest.importorskip("dask.array")
        model.fit(dask.from_array(X, chunks=30), dask.from_array(y, chunks=30))
    elif layout == "stream":
        for some in np.split(np.arange(120)[::-1], 4):
            model.partial_fit(X[some], y[some])
    elif layout == "groups":
        model.fit(X, y, groups=np.arange(120) % 6)
    else:
        model.fit(X, y)
    np.testing.assert_allclose(model.prior_scale_, 2.5 / units)
    # Real numbers have no rates that a few rows could let be without bound.
    of_numbers = BayesianGLMRegressor(prior_scale="auto").fit(X, y)
    np.testing.assert_allclose(of_numbers.prior_scale_, 2.5 * y.std() / X.std(axis=0))


@pytest.mark.parametrize("family", ["poisson", "negative-binomial"])
def test_rates_of_which_too_little_is_known_are_warned_of(family):
    X, y = counts()
    model = BayesianGLMRegressor(family).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(X, return_std=True)
    for far, least in ((60.0, 1e2), (1e5, 1e300)):
        rows = np.concatenate([X, far * X[:3]])
        with pytest.warns(PosteriorWarning, match="for [123] of 123 rows") as found:
            mean, std = model.predict(rows, return_std=True)
        assert len(found) == 1  # and none of numpy's
        assert np.isfinite(mean).all() and np.isfinite(std).all()
        assert std.max() > least
        assert np.isfinite(model.predict_mean_interval(rows)).all()
    np.testing.assert_array_equal(mean[:120], model.predict(X))


def test_deviations_of_new_counts_are_those_of_draws():
    X, y = counts()
    model = BayesianGLMRegressor("negative-binomial").fit(X[:40], y[:40])
    _, std = model.predict(X[40:44], return_std=True)
    draws = model.sample_predictive(X[40:44], 200_000, random_state=0)
    np.testing.assert_allclose(draws.std(axis=0), std, rtol=0.03)


def test_given_priors_are_taken(rng):
    X, y = numbers()
    model = BayesianGLMRegressor(prior_scale=[1.0, 2.0, 3.0]).fit(X, y)
    np.testing.assert_array_equal(model.prior_scale_, [1.0, 2.0, 3.0])
    assert model.intercept_prior_mean_ == pytest.approx(y.mean())
    model = BayesianGLMRegressor(intercept_prior_scale=4.0).fit(X, y)
    assert (model.intercept_prior_mean_, model.intercept_prior_scale_) == (0.0, 4.0)
    model.set_params(fit_intercept=False, prior_scale=2.0).fit(X, y)
    np.testing.assert_array_equal(model.prior_scale_, [2.0, 2.0, 2.0])
    # All rows of a stream have the scales.
    stream = BayesianGLMRegressor(prior_scale="auto").partial_fit(X[:40], y[:40])
    before = stream.prior_scale_
    np.testing.assert_allclose(before, 2.5 * y[:40].std() / X[:40].std(axis=0))
    rows = np.vstack([X[:40], 9.0 * X[40:]])
    stream.partial_fit(rows[40:], y[40:])
    np.testing.assert_allclose(stream.prior_scale_, 2.5 * y.std() / rows.std(axis=0))
    # Columns and targets that do not vary have no unit of their own.
    flat = np.column_stack([X, np.full(len(X), 3.0)])
    wide = BayesianGLMRegressor(prior_scale="auto").fit(flat, y)
    assert wide.prior_scale_[3] == 2.5 * y.std()
    constant = BayesianGLMRegressor().fit(X, np.full(len(X), 1e3))
    np.testing.assert_allclose(constant.predict(X), 1e3, rtol=1e-6)
    with pytest.raises(ValueError, match="must be 'learn', 'auto', a positive number"):
        BayesianGLMRegressor(prior_scale="wide").fit(X, y)


def test_counts_of_more_or_less_exposure():
    X, eta, rng = rows(400)
    exposure = rng.uniform(0.1, 20.0, len(X))
    y, offset = rng.poisson(exposure * np.exp(eta)), np.log(exposure)
    model = BayesianGLMRegressor("poisson", tol=1e-8).fit(X, y, offset=offset)
    assert (abs(model.coef_ - [0.8, -0.5, 0.2]) < 3.5 * model.coef_std_).all()
    assert abs(model.intercept_ - 0.5) < 3.5 * model.intercept_std_
    # Counts of no exposure to speak of say nothing.
    half = rng.uniform(size=len(X)) < 0.5
    some = BayesianGLMRegressor("poisson", tol=1e-8, **PRIOR)
    some = some.fit(X, np.where(half, y, 0), offset=np.where(half, offset, -40.0))
    alone = BayesianGLMRegressor("poisson", tol=1e-8, **PRIOR)
    alone.fit(X[half], y[half], offset=offset[half])
    np.testing.assert_allclose(some.coef_, alone.coef_, atol=1e-5)
    assert some.elbo_ == pytest.approx(alone.elbo_, abs=1e-5)
    # In other units of exposure it is the same model.
    other = BayesianGLMRegressor("poisson", tol=1e-8).fit(X, y, offset=offset + 5.0)
    np.testing.assert_allclose(other.coef_, model.coef_, atol=1e-4)
    assert other.intercept_ == pytest.approx(model.intercept_ - 5.0, abs=1e-4)
    rate = model.predict(X) * exposure
    np.testing.assert_allclose(model.predict(X, offset=offset), rate)
    np.testing.assert_allclose(other.predict(X, offset=offset + 5.0), rate, rtol=1e-3)
    low, high = model.predict_interval(X, offset=offset).T
    assert 0.93 < np.mean((low <= y) & (y <= high)) < 0.99
    assert model.score(X, y, offset=offset) > model.score(X, y) + 0.1
    assert model.pareto_k_ < 0.5
    sparse = BayesianGLMRegressor("poisson", tol=1e-8)
    sparse.fit(sp.csr_array(X), y, offset=offset)
    np.testing.assert_allclose(sparse.coef_, model.coef_, atol=1e-6)
    stream = BayesianGLMRegressor("poisson")
    for part in np.array_split(np.arange(len(X)), 2):
        stream.partial_fit(X[part], y[part], offset=offset[part])
    np.testing.assert_allclose(stream.coef_, model.coef_, atol=0.03)


def overdispersed(n=400, r=1.5, exposure=1.0):
    X, eta, rng = rows(n)
    mean = exposure * np.exp(eta + 1.0)
    return X, rng.negative_binomial(r, r / (r + mean))


@pytest.mark.parametrize("r", [0.3, 1.5, 40.0])
def test_negative_binomial_expectations(r, rng):
    a, v = rng.normal(size=(7, 1)), rng.uniform(0.0, 0.5, (7, 1))
    y, weight = rng.poisson(3.0, 7).astype(float), rng.uniform(0.5, 2.0, 7)
    family = OverdispersedCounts(r)
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    weights /= weights.sum()

    def each(shift=0.0, more=0.0):
        z = a + shift + np.sqrt(v + more) * nodes
        own = nbinom.logpmf(y[:, None], r, r / (r + np.exp(z)))
        return weight * (own @ weights)

    found = family.expectations(a, v, y, weight)
    assert found[0] == pytest.approx(-each().sum(), rel=1e-9)
    slope = (each(1e-4) - each(-1e-4)) / 2e-4
    np.testing.assert_allclose(found[1][:, 0], slope, atol=1e-6)
    bend = (each(1e-3) - 2.0 * each() + each(-1e-3)) / 1e-6
    np.testing.assert_allclose(found[2][:, 0], -bend, atol=1e-4)
    own = family.log_likelihood(a, np.column_stack([y, np.full(7, 0.7)]))
    mean = np.exp(a[:, 0] + 0.7)
    np.testing.assert_allclose(own, nbinom.logpmf(y, r, r / (r + mean)))
    np.testing.assert_allclose(family.mean(a), np.exp(a))


@pytest.mark.parametrize("r", [0.05, 2.0, 300.0])
def test_the_slope_of_a_loss_by_the_log_concentration(r):
    rng = np.random.default_rng(0)
    a, v = rng.normal(size=(9, 1)), rng.random(size=(9, 1))
    y = np.stack([rng.poisson(3.0, size=9), rng.normal(size=9)], axis=1)
    for targets, weight in (y[:, 0], np.empty(0)), (y, rng.random(9)):
        about = a, v, targets, weight
        up, down = (
            OverdispersedCounts(r * np.exp(step)).expectations(*about)[0]
            for step in (1e-5, -1e-5)
        )
        slope = OverdispersedCounts(r).slope(*about)
        assert slope == pytest.approx((up - down) / 2e-5, rel=1e-5, abs=1e-5)


def test_counts_that_vary_more():
    X, y = overdispersed()
    params = {"family": "negative-binomial", "tol": 1e-4}
    model = BayesianGLMRegressor(**params).fit(X, y)
    assert model.converged_
    assert 1.1 < model.concentration_ < 2.1
    assert (abs(model.coef_ - [0.8, -0.5, 0.2]) < 3.5 * model.coef_std_).all()
    poisson = BayesianGLMRegressor("poisson").fit(X, y)
    assert model.elbo_ > poisson.elbo_ + 100.0
    assert (model.coef_std_ > 1.3 * poisson.coef_std_).all()
    # Of the highest bound.
    for factor in (0.9, 1.1):
        given = factor * model.concentration_
        other = BayesianGLMRegressor(**params, concentration=given).fit(X, y)
        assert other.concentration_ == given and other.elbo_ < model.elbo_
    mean, std = model.predict(X, return_std=True)
    rng = np.random.default_rng(0)
    draws = model.posterior_.sample(50_000, rng) @ design(X[:3]).T
    r = model.concentration_
    new = rng.negative_binomial(r, r / (r + np.exp(draws)))
    np.testing.assert_allclose(mean[:3], new.mean(axis=0), rtol=0.02)
    np.testing.assert_allclose(std[:3], new.std(axis=0), rtol=0.03)
    interval = model.predict_interval(X, level=0.9)
    np.testing.assert_allclose(
        interval[:3], np.quantile(new, [0.05, 0.95], axis=0).T, atol=1.0
    )
    assert 0.88 < np.mean((interval[:, 0] <= y) & (y <= interval[:, 1])) < 0.97
    assert model.pareto_k_ < 0.7
    few = BayesianGLMRegressor(**params).fit(X[:3], y[:3])  # in the span of the rows
    assert np.isfinite(few.coef_).all()


def test_counts_that_vary_more_in_streams_and_with_an_offset():
    exposure = np.random.default_rng(1).uniform(0.5, 5.0, 2000)
    X, y = overdispersed(2000, exposure=exposure)
    offset = np.log(exposure)
    model = BayesianGLMRegressor("negative-binomial").fit(X, y, offset=offset)
    assert (abs(model.coef_ - [0.8, -0.5, 0.2]) < 3.5 * model.coef_std_).all()
    assert abs(model.intercept_ - 1.5) < 3.5 * model.intercept_std_
    stream = BayesianGLMRegressor("negative-binomial")
    for part in np.array_split(np.arange(2000), 4):
        stream.partial_fit(X[part], y[part], offset=offset[part])
    assert stream.concentration_ == pytest.approx(model.concentration_, rel=0.05)
    np.testing.assert_allclose(stream.coef_, model.coef_, atol=0.02)
    # Where counts vary no more than Poisson's, it is that model.
    counted = np.random.default_rng(0).poisson(np.exp(X @ [0.3, 0.2, 0.1]))
    same = BayesianGLMRegressor("negative-binomial").fit(X, counted)
    poisson = BayesianGLMRegressor("poisson").fit(X, counted)
    np.testing.assert_allclose(same.coef_, poisson.coef_, atol=1e-2)
    with pytest.raises(ValueError, match="has no steps for family='negative-binomial'"):
        BayesianGLMRegressor("negative-binomial", solver="svrg").fit(X, y)
    with pytest.raises(ValueError, match="has no stochastic gradients"):
        model.gradient_variance(X, y)
    with pytest.raises(ValueError, match="concentration"):
        BayesianGLMRegressor("negative-binomial", concentration=0.0).fit(X, y)


@pytest.mark.parametrize("r", [0.05, 1.0, 20.0])
def test_a_concentration_is_that_of_the_least_loss_and_prior(r, rng):
    y = rng.negative_binomial(r, r / (r + 3.0), 200).astype(float)
    a, v = np.full((200, 1), np.log(3.0)), np.full((200, 1), 0.1)
    about = a, v, y, np.empty(0)

    def loss(log_r):
        of_rows = OverdispersedCounts(np.exp(log_r)).expectations(*about)[0]
        return of_rows + 0.5 * np.square(np.exp(-0.5 * log_r) / 3.0)

    found = counts_of_least(lambda family: family.slope(*about)).concentration
    best = minimize_scalar(loss, bounds=np.log([1e-4, 1e6]), method="bounded")
    assert np.log(found) == pytest.approx(best.x, abs=1e-3)


def of_ships(n=40):
    """Return counts of so many kinds that the concentration follows them slowly."""
    rng = np.random.default_rng(0)
    X = np.column_stack([np.arange(n)[:, None] % 8 == np.arange(1, 8), np.ones(n)])
    X = X[:, :7].astype(float)
    mean = np.exp(1.0 + X @ rng.normal(size=7))
    return X, rng.negative_binomial(1.0, 1.0 / (1.0 + mean)).astype(float)


def with_its_prior(model, bound):
    return bound - 0.5 / (9.0 * model.concentration_)


@pytest.mark.parametrize("prior_scale", ["learn", "auto"])
@pytest.mark.parametrize("groups", [False, True])
def test_a_converged_fit_leaves_a_concentration_nothing_to_gain(groups, prior_scale):
    X, y = of_ships()
    ids = {"groups": np.arange(len(X)) // 8} if groups else {}

    def fitted(**params):
        params |= {"prior_scale": prior_scale}
        model = BayesianGLMRegressor("negative-binomial", **params)
        return model.fit(X, y, **ids)

    best = fitted(tol=1e-9, max_iter=1000)
    assert best.converged_
    for tol in (1e-2, 1e-4):
        model = fitted(tol=tol)
        # By the slope of what is left, whose bend is no less than a third.
        off = np.log(model.concentration_ / best.concentration_)
        assert model.converged_ and abs(off) < np.sqrt(6.0 * tol)
        if not groups:  # whose objective is Laplace's, not the bound
            left = with_its_prior(best, best.elbo_) - with_its_prior(model, model.elbo_)
            assert left < tol
    # Nor does one say so that was cut short: by the epochs of a run or between two.
    said = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for n in range(1, model.n_iter_ + 1):
            cut = fitted(tol=1e-4, max_iter=n)
            off = np.log(cut.concentration_ / best.concentration_)
            assert not cut.converged_ or abs(off) < np.sqrt(6e-4)
            said.append(cut.converged_)
    assert said[-1] and not said[0]


@pytest.mark.parametrize("best", [np.log(3.0), 8.0, 20.0])
@pytest.mark.parametrize("share", [0.0, 0.9, 0.99])
def test_a_search_of_a_concentration_knows_what_is_left(best, share):
    """Of a loss that is known, less what a posterior that follows takes of its bend."""
    search, family = ConcentrationSearch(), OverdispersedCounts(1.0)

    def whole(log_r):  # with the prior, that the search adds
        return 3.0 * (1.0 - share) * (log_r - best)

    for _ in range(9):
        at = np.log(family.concentration)
        left = 0.5 * whole(at) ** 2 / (3.0 * (1.0 - share))
        if at >= np.log(1e6):
            left = 0.0

        def slope(family, at=at):
            log_r = np.log(family.concentration)
            own = whole(at) + 3.0 * (log_r - at)
            return own + 0.5 / (9.0 * family.concentration)

        family, search = search.step(slope, family)
        if search.left < np.inf:
            assert search.left == pytest.approx(left, rel=1e-6, abs=1e-12)
        if search.left < 1e-12:
            break
    else:
        raise AssertionError("it has not been found")
    assert np.log(family.concentration) == pytest.approx(min(best, np.log(1e6)))


def test_batches_add_up_what_they_tell_of_a_concentration():
    X, y = overdispersed(1300)
    stream = BayesianGLMRegressor("negative-binomial", posterior="fullrank")
    added = 0.0  # of batches too small for the rows before to be seen again
    for part in (slice(0, 1100), slice(1100, 1200), slice(1200, 1300)):
        stream.partial_fit(X[part], y[part])
        q, rows = stream._given_prior, design(X[part])
        a, v = rows @ q.mean, np.square(rows @ q.factor).sum(axis=1)
        about = a[:, None], v[:, None], y[part], np.empty(0)
        own = [OverdispersedCounts(r).slope(*about) for r in CONCENTRATIONS]
        added = added + np.array(own)
        np.testing.assert_allclose(stream._slopes_known, added, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", [0, 1])
def test_zeros_alone_are_of_a_low_rate(seed):
    """Not of a concentration of next to none, which explains them at any rate."""
    X = np.random.default_rng(seed).normal(size=(100, 3))
    model = BayesianGLMRegressor("negative-binomial", tol=1e-8)
    model.fit(X, np.zeros(100))
    rates = model.predict(X)
    # The rows that lie farthest are not known to be of one.
    assert np.median(rates) < 0.01 and rates.mean() < 0.05 and rates.max() < 1.5
    assert model.concentration_ > 0.1


def test_real_numbers_with_an_offset():
    X, y = numbers()
    offset = np.linspace(-3.0, 50.0, len(y))
    model = BayesianGLMRegressor().fit(X, y + offset, offset=offset)
    plain = BayesianGLMRegressor().fit(X, y)
    np.testing.assert_allclose(model.coef_, plain.coef_, rtol=1e-9)
    moved = model.predict(X, offset=offset)
    np.testing.assert_allclose(moved, plain.predict(X) + offset)
    moved = model.predict_mean_interval(X, offset=offset) - offset[:, None]
    np.testing.assert_allclose(moved, plain.predict_mean_interval(X))
    assert model.score(X, y + offset, offset=offset) == pytest.approx(
        r2_score(y + offset, plain.predict(X) + offset)
    )


def test_one_offset_is_that_of_all_rows():
    X, y = counts()
    model = BayesianGLMRegressor("poisson").fit(X, y, offset=0.5)
    plain = BayesianGLMRegressor("poisson").fit(X, y, offset=np.full(len(y), 0.5))
    np.testing.assert_array_equal(model.coef_, plain.coef_)
    found = model.predict(X, offset=1.0)
    np.testing.assert_allclose(found, model.predict(X) * np.e)


def test_gradients_have_the_variance_of_rates_with_an_offset():
    """Of which one that all rows have is as good as an intercept."""
    X, y = counts()
    model = BayesianGLMRegressor("poisson", posterior="meanfield")
    model.fit(X, y, offset=2.0)
    asked = {"n_draws": 20, "random_state": 0}
    found = model.gradient_variance(X, y, offset=np.full(len(y), 2.0), **asked)
    q = model._given_prior
    moved = MeanField(q.mean + np.append(np.zeros(X.shape[1]), 2.0), q.scale)
    model._posterior_given_prior = moved
    expected = model.gradient_variance(X, y, **asked)
    assert found == pytest.approx(expected, rel=1e-9)
    with pytest.raises(ValueError, match="classes have none"):
        fit = BayesianLogisticRegression().fit(X, y > 1)
        fit.gradient_variance(X, y > 1, offset=np.zeros(len(y)))


def test_offsets_that_are_wrong():
    X, y = counts()
    model = BayesianGLMRegressor("poisson")
    for bad, message in (
        (np.zeros(3), "offset must have one number for each of the 120 rows"),
        (np.zeros((120, 2)), "offset must have one number"),
        (np.full(120, np.nan), "offset contains NaN"),
    ):
        with pytest.raises(ValueError, match=message):
            model.fit(X, y, offset=bad)
    with pytest.raises(ValueError, match="takes no offset: choose solver='batch'"):
        model.set_params(solver="svrg").fit(X, y, offset=np.zeros(120))
    model.set_params(solver="batch").fit(X, y, offset=np.zeros(120))
    with pytest.raises(ValueError, match="offset must have one number for each of the"):
        model.predict(X, offset=np.zeros(3))


def test_what_is_wrong():
    X, y = numbers()
    with pytest.raises(ValueError, match=r"not negative: y is .* in row"):
        BayesianGLMRegressor("poisson").fit(X, y)
    with pytest.raises(ValueError, match="family"):
        BayesianGLMRegressor("gamma").fit(X, y)
    with pytest.raises(ValueError, match="noise_scale"):
        BayesianGLMRegressor(noise_scale=0.0).fit(X, y)


@pytest.mark.parametrize("family", ["poisson", "negative-binomial"])
def test_counts_of_more_columns_than_rows_are_foretold(family):
    """Of a prior of 2.5 deviations of each column expected counts are without bound."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 1100))
    y = rng.poisson(np.exp(1.0 + X @ rng.normal(scale=0.02, size=1100)))
    model = BayesianGLMRegressor(family, random_state=0, max_iter=60)
    model.fit(X[:200], y[:200])
    width = model.prior_scale_ * units_of_counts(X[:200])
    np.testing.assert_allclose(width, width[0])
    assert 0.005 < width[0] < 0.05
    assert model.score(X[200:], y[200:]) > -0.05
