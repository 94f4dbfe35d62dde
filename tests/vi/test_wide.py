"""Fewer rows than columns, which are many: real numbers, classes and counts."""

import pickle
import tracemalloc

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

from skvrem import BayesianGLMRegressor, BayesianLogisticRegression
from skvrem.vi.gaussian import _plan
from skvrem.vi.gaussian._model_posterior import FullRank, LowRank
from skvrem.vi.glm import _estimator
from skvrem.vi.glm.streams import _estimator as _streams

# As many rows as a low rank has by default, that is added to a diagonal.
N, P = 10, 2010


def wide(rng, n=N, p=P):
    X = rng.normal(size=(n, p)) * (rng.uniform(size=(n, p)) < 0.5)
    return X, 3.0 + X[:, 0] - X[:, 1] + 0.5 * rng.normal(size=n)


def most_full(monkeypatch, most):
    """Let full ranks be for so many coefficients."""
    for module in (_plan, _estimator, _streams):
        monkeypatch.setattr(module, "FULL_RANK", most)
    monkeypatch.setattr(_plan, "MOST_FULL", most)


def ends(mean, variance):
    half = 1.959963985 * np.sqrt(variance)
    return np.column_stack([mean - half, mean + half])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("as_rows", [np.asarray, sparse.csr_array])
def test_it_is_the_exact_posterior(as_rows, dtype, rng):
    X, y = wide(rng)
    scale, weight = rng.uniform(0.05, 0.2, P), rng.uniform(0.5, 2.0, N)
    numbers = {"noise_scale": 0.5, "prior_scale": scale, "intercept_prior_scale": 4.0}
    X, tol = X.astype(dtype), {"atol": 1e-6 if dtype == np.float32 else 1e-9}
    model = BayesianGLMRegressor(**numbers).fit(as_rows(X), y, weight)
    D, scale = np.column_stack([X, np.ones(N)]).astype(float), np.append(scale, 4.0)
    inner = D.T @ (weight[:, None] * D) / 0.25
    covariance = np.linalg.inv(np.diag(1.0 / scale**2) + inner)
    mean = covariance @ (D.T @ (weight * y)) / 0.25
    q = model.posterior_
    assert isinstance(q, LowRank) and q.factor.shape == (P + 1, N)
    np.testing.assert_allclose(q.mean, mean, **tol)
    np.testing.assert_allclose(q.covariance(), covariance, **tol)
    np.testing.assert_allclose(
        model.coef_std_, np.sqrt(covariance.diagonal()[:P]), 1e-6
    )
    new = np.vstack([X, rng.normal(size=(4, P))]).astype(dtype)
    A = np.column_stack([new, np.ones(len(new))]).astype(float)
    variance = np.einsum("ij,jk,ik->i", A, covariance, A)
    tol = {"rtol": 1e-4 if dtype == np.float32 else 1e-6}
    found = model.predict_mean_interval(as_rows(new))
    np.testing.assert_allclose(found, ends(A @ mean, variance), **tol)
    found = model.predict_interval(as_rows(new))
    np.testing.assert_allclose(found, ends(A @ mean, variance + 0.25), **tol)
    # A row of a weight w adds w times its logarithm of a density to the bound.
    of_rows = np.diag(0.25 / weight) + (D * scale**2) @ D.T
    constant = np.sum((weight - 1.0) * np.log(2.0 * np.pi * 0.25) + np.log(weight))
    evidence = y @ np.linalg.solve(of_rows, y)
    evidence += np.linalg.slogdet(2.0 * np.pi * of_rows)[1] + constant
    assert model.elbo_ == pytest.approx(-0.5 * evidence, abs=1e-4)


@pytest.mark.parametrize("intercept", [False, True])
def test_it_is_that_of_a_full_rank(intercept, rng):
    X, y = wide(rng)
    weight = rng.integers(1, 3, N)
    model = BayesianGLMRegressor(fit_intercept=intercept).fit(X, y, weight)
    full = clone(model).set_params(posterior="fullrank").fit(X, y, weight)
    assert isinstance(full.posterior_, FullRank)
    for name in ("coef_", "coef_std_", "intercept_", "intercept_std_", "elbo_"):
        ours, theirs = getattr(model, name), getattr(full, name)
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7, err_msg=name)
    assert model.noise_df_ == full.noise_df_
    new = rng.normal(size=(5, P))
    for name in ("predict_interval", "predict_mean_interval"):
        ours, theirs = (getattr(m, name)(new) for m in (model, full))
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    assert (model.coef_std_ <= model.prior_scale_).all()
    draws = model.sample_posterior(2000, random_state=0)
    found = (draws["coef"] @ new.T + draws["intercept"][:, None]).std(axis=0)
    of_full = full.sample_posterior(2000, random_state=0)
    expected = (of_full["coef"] @ new.T + of_full["intercept"][:, None]).std(axis=0)
    np.testing.assert_allclose(found, expected, rtol=0.1)
    given_width = model._given_prior
    Z = given_width.sample(200, 0)
    assert np.ptp(model._log_joint(Z) - given_width.logpdf(Z)) < 1e-4
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(
        again.predict_interval(new), model.predict_interval(new)
    )
    mean = model.coef_.copy()
    model.set_params(warm_start=True).fit(X, y, weight)
    np.testing.assert_allclose(model.coef_, mean, rtol=1e-9)


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("first", ["fit", "partial_fit"])
def test_streams_go_on(first, kept, rng, monkeypatch):
    X, y = wide(rng, 24)
    if not kept:
        monkeypatch.setattr(_estimator, "MOST_IN_SPAN", N * P)
    given = {"prior_scale": 0.1, "fit_intercept": False, "noise_scale": 0.5}
    whole = BayesianGLMRegressor(**given).fit(X, y)
    stream = getattr(BayesianGLMRegressor(**given), first)(X[:N], y[:N])
    stream.partial_fit(X[N:18], y[N:18]).partial_fit(X[18:], y[18:])
    if kept:
        np.testing.assert_allclose(stream.coef_, whole.coef_, atol=1e-9)
        np.testing.assert_allclose(stream.coef_std_, whole.coef_std_, rtol=1e-9)
    # Else batches after the first have the low rank that is asked for.
    np.testing.assert_allclose(stream.coef_, whole.coef_, atol=0.02)
    assert stream.posterior_.factor.shape == (P, 24 if kept else 10)
    assert stream.n_samples_seen_ == 24


def test_a_stream_learns_the_noise_of_all_rows(rng):
    X, y = wide(rng, 24)
    given = {"prior_scale": 0.02, "fit_intercept": False}
    whole = BayesianGLMRegressor(**given).fit(X, y)
    stream = BayesianGLMRegressor(**given)
    for some in (slice(0, N), slice(N, 24)):
        stream.partial_fit(X[some], y[some])
    assert stream.noise_scale_ == pytest.approx(whole.noise_scale_, rel=1e-6)
    np.testing.assert_allclose(stream.coef_, whole.coef_, rtol=1e-6, atol=1e-9)


def test_there_is_no_matrix_of_all_columns(rng):
    X, y = wide(rng, 8, 20_000)
    model = BayesianGLMRegressor().fit(X[:, :2000], y)  # compiled
    tracemalloc.start()
    model.fit(X, y).predict_interval(X)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 40 * X.nbytes < X.shape[1] ** 2


@pytest.mark.parametrize(
    "given", [{"posterior": "lowrank"}, {"solver": "svrg"}, {"posterior": "meanfield"}]
)
def test_what_is_asked_for_is_had(given, rng):
    X, y = wide(rng)
    model = BayesianGLMRegressor(**given, tol=0.1, random_state=0).fit(X, y)
    factor = getattr(model._given_prior, "factor", np.zeros((0, 0)))
    assert factor.shape[1] == (10 if "lowrank" in given.values() else 0)
    if factor.size:
        assert (model.posterior_.sign > 0.0).all()


CLASSES_AND_COUNTS = {
    "classes": BayesianLogisticRegression(prior_scale=0.7, random_state=0),
    "three classes": BayesianLogisticRegression(prior_scale=0.7, random_state=0),
    "counts": BayesianGLMRegressor("poisson", prior_scale=0.3, random_state=0),
    "more spread": BayesianGLMRegressor("negative-binomial", prior_scale=0.3),
}


@pytest.mark.parametrize("as_rows", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("name", CLASSES_AND_COUNTS)
def test_classes_and_counts_have_that_of_a_full_rank(name, as_rows, monkeypatch, rng):
    """Of few columns both can be had."""
    X, _ = wide(rng, p=40)
    y, weight, k = rng.integers(2, size=N), rng.uniform(0.5, 2.0, N), 1
    if name == "three classes":
        y, k = np.arange(N) % 3, 3
    elif name != "classes":
        y = y * rng.integers(9, size=N)
    X, new = as_rows(X), as_rows(rng.normal(size=(5, 40)))
    model = CLASSES_AND_COUNTS[name]
    full = clone(model).set_params(posterior="fullrank").fit(X, y, weight)
    most_full(monkeypatch, 40)
    low = clone(model).fit(X, y, weight)
    q, exact = low.posterior_, full.posterior_
    assert isinstance(q, LowRank) and q.factor.shape == (41 * k, k * (N + 2))
    of_rows, of_intercepts = np.split(q.sign, [k * N])
    assert (of_rows == -1.0).all() if k == 1 else (of_rows == -1.0).any()
    np.testing.assert_array_equal(of_intercepts, np.tile([1.0, -1.0], k))
    np.testing.assert_allclose(q.mean, exact.mean, atol=1e-7)
    np.testing.assert_allclose(q.covariance(), exact.covariance(), atol=1e-7)
    assert low.elbo_ == pytest.approx(full.elbo_, abs=1e-6)
    ask = "predict_proba" if "classes" in name else "predict_interval"
    np.testing.assert_allclose(getattr(low, ask)(new), getattr(full, ask)(new), 1e-6)
    assert low.posterior_.sample(3, random_state=0).shape == (3, 41 * k)


@pytest.mark.parametrize("name", CLASSES_AND_COUNTS)
def test_a_stream_goes_on_from_it(name, rng):
    """By a low rank that is added, as one that begins with the first batch."""
    n_classes = 3 if name == "three classes" else 2
    X, y = rng.normal(size=(24, P)), np.arange(24) % n_classes
    model = clone(CLASSES_AND_COUNTS[name]).set_params(intercept_prior_scale=2.0)
    model.set_params(tol=1e-4, max_iter=1000)  # how they end is not what is compared
    model.fit(X[:N], y[:N])
    assert (model.posterior_.sign == -1.0).any()
    model.partial_fit(X[N:], y[N:])
    whole = clone(model).set_params(posterior="lowrank").fit(X, y)
    assert (model.posterior_.sign == 1.0).all()
    away = np.linalg.norm(model.coef_ - whole.coef_) / np.linalg.norm(whole.coef_)
    assert away < 0.02
    again = clone(model).set_params(warm_start=True).fit(X, y)
    objective = again.elbo_
    assert again.fit(X, y).elbo_ == pytest.approx(objective, abs=0.01)


@pytest.mark.parametrize(
    "limits", [{"FULL_RANK": 3 * N - 1}, {"MOST_IN_SPANS": 3 * N * 3 * 41 - 1}]
)
def test_of_more_rows_or_numbers_classes_have_a_low_rank_that_is_added(
    limits, monkeypatch, rng
):
    X, _ = wide(rng, p=40)
    limits = dict(limits)
    most_full(monkeypatch, limits.pop("FULL_RANK", 40))
    for name, most in limits.items():
        monkeypatch.setattr(_estimator, name, most)
    model = BayesianLogisticRegression(1.0, random_state=0).fit(X, np.arange(N) % 3)
    assert (model.posterior_.sign == 1.0).all()


def test_several_classes_in_their_span_have_the_width_of_all_coefficients(
    monkeypatch, rng
):
    X, _ = wide(rng, p=40)
    y = np.digitize(X[:, 0], [-0.2, 0.2])
    model = BayesianLogisticRegression(random_state=0)
    whole = clone(model).fit(X, y)
    most_full(monkeypatch, 40)
    low = model.fit(X, y)
    assert (low.posterior_.sign == -1.0).any()
    np.testing.assert_allclose(low.prior_scale_, whole.prior_scale_, rtol=0.02)
    assert low.elbo_ == pytest.approx(whole.elbo_, abs=0.05)
