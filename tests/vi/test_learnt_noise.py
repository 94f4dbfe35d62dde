"""What is not known of a noise, against dense algebra at other noises."""

import numpy as np
import pytest
from scipy import sparse
from scipy.special import polygamma, stdtrit
from scipy.stats import norm
from scipy.stats import t as student_t

from skvrem import BayesianGLMRegressor
from skvrem.data import as_source
from skvrem.vi.gaussian._answers import deviation, quantile
from skvrem.vi.gaussian._model_posterior import FullRank, LowRank, MeanField
from skvrem.vi.glm._noise import LearntNoise, freedom_of, log_variance

N, P = 6, 9


def problem(rng, n=N):
    """Return rows, targets and a prior of P coefficients."""
    prior = MeanField(rng.normal(size=P), rng.uniform(0.5, 2.0, P))
    return rng.normal(size=(n, P)), rng.normal(size=n), prior


def at(X, y, prior, variance):
    """Return mean and covariance of the posterior, by dense algebra."""
    covariance = np.linalg.inv(prior.precision + X.T @ X / variance)
    pull = prior.mean / prior.variance + X.T @ y / variance
    return covariance @ pull, covariance


def as_kind(kind, X, mean, covariance, prior):
    if kind == "full rank":
        return FullRank(mean, np.linalg.cholesky(covariance))
    # What rows take from the prior has the rank of the rows.
    left = np.diag(prior.variance) - covariance
    size, axes = np.linalg.eigh(left)
    factor = axes[:, -len(X) :] * np.sqrt(size[-len(X) :])
    return LowRank(mean, prior.variance, factor, -np.ones(len(X)))


@pytest.mark.parametrize("kind", ["full rank", "low rank"])
def test_what_moves_is_the_derivative_by_the_noise(kind, rng):
    X, y, prior = problem(rng)
    mean, covariance = at(X, y, prior, 0.5)
    noise = LearntNoise(as_kind(kind, X, mean, covariance, prior), prior, 5.0)
    step = 1e-4
    below, above = (at(X, y, prior, 0.5 * np.exp(s)) for s in (-step, step))
    slopes = [(b - a) / (2.0 * step) for a, b in zip(below, above, strict=True)]
    np.testing.assert_allclose(noise.shift, slopes[0], atol=1e-6)
    scale2, df = noise.of_coefficients()
    moved = slopes[1].diagonal()
    share = moved / covariance.diagonal()
    of_mean = np.minimum(slopes[0] ** 2 * log_variance(5.0), moved)
    np.testing.assert_allclose(scale2, covariance.diagonal() + of_mean, atol=1e-6)
    np.testing.assert_allclose(df, freedom_of(share**2 * log_variance(5.0)), rtol=1e-4)
    # Of rows: the same by linear combinations, and a noise that moves by itself.
    Z = rng.normal(size=(4, P - 1))
    D = np.column_stack([Z, np.ones(4)])
    v, moved = (np.einsum("ij,jk,ik->i", D, V, D) for V in (covariance, slopes[1]))
    of_mean = np.minimum((D @ slopes[0]) ** 2 * log_variance(5.0), moved)
    for rows in (Z, sparse.csr_array(Z)):
        batch = as_source(rows).batch(0, 4)
        scale2, df = noise.of_rows(True)(v, 0.3, batch)
        np.testing.assert_allclose(scale2, v + 0.3 + of_mean, atol=1e-6)
        share = (moved + 0.3) / (v + 0.3)
        expected = freedom_of(share**2 * log_variance(5.0))
        np.testing.assert_allclose(df, expected, rtol=1e-4)


def test_a_diagonal_is_that_of_independent_columns(rng):
    prior = MeanField(rng.normal(size=P), rng.uniform(0.5, 2.0, P))
    X, y = np.diag(rng.uniform(0.1, 3.0, P)), rng.normal(size=P)
    mean, covariance = at(X, y, prior, 0.5)
    field = MeanField(mean, np.sqrt(covariance.diagonal()))
    full = FullRank(mean, np.diag(field.scale))
    both = [LearntNoise(q, prior, 4.0).of_coefficients() for q in (field, full)]
    np.testing.assert_allclose(*both)


def test_the_variance_of_a_logarithm():
    df = np.geomspace(3.0, 1e9, 50)
    np.testing.assert_allclose(freedom_of(log_variance(df)), df)
    np.testing.assert_allclose(log_variance(df), polygamma(1, 0.5 * df), rtol=0.05)
    assert freedom_of(0.0) > 1e20


@pytest.mark.parametrize("posterior", ["fullrank", "lowrank", "meanfield"])
@pytest.mark.parametrize("intercept", [True, False])
def test_means_are_the_same_without_their_deviations(posterior, intercept, rng):
    X, y, _ = problem(rng, 40)
    offset = rng.normal(size=40)
    model = BayesianGLMRegressor(posterior=posterior, fit_intercept=intercept)
    model.fit(X, y)
    for rows in (X, sparse.csr_array(X), X.astype(np.float32)):
        both = model.predict(rows, return_std=True, offset=offset)
        alone = model.predict(rows, offset=offset)
        assert alone.dtype == both[0].dtype and alone.shape == (40,)
        np.testing.assert_allclose(alone, both[0], rtol=1e-12)


@pytest.mark.parametrize("tail", [0.4, 0.025, 0.999, 1e-6, 1e-9])
@pytest.mark.parametrize("most", [2.5, 30.0, 1e12, np.inf])
def test_quantiles_of_many_degrees_of_freedom(tail, most):
    with np.errstate(divide="ignore"):
        df = 1.0 / np.linspace(0.5, 1.0 / most, 2001)
    expected = np.where(np.isinf(df), norm.ppf(tail), stdtrit(df, tail))
    np.testing.assert_allclose(quantile(tail, df), expected, rtol=1e-8)
    np.testing.assert_array_equal(quantile(tail, df[:9]), expected[:9])
    same = quantile(tail, np.full(1000, 7.0))
    np.testing.assert_array_equal(same, stdtrit(7.0, tail))


@pytest.mark.parametrize("df", [3.0, 4.0, 10.0, 1e3])
def test_no_standard_deviation_is_above_the_prior(df, rng):
    for variance in np.geomspace(1e-4, 1e4, 12):
        X, y, prior = problem(rng, int(rng.integers(1, 2 * P)))
        y *= 10.0  # the mean moves as far as it may
        mean, covariance = at(X, y, prior, variance)
        q = FullRank(mean, np.linalg.cholesky(covariance))
        scale2, own = LearntNoise(q, prior, df).of_coefficients()
        sd = np.sqrt(scale2) * deviation(own)
        assert (sd <= prior.scale * (1.0 + 1e-9)).all()
        assert (sd >= q.scale).all()


@pytest.mark.parametrize("kind", ["full rank", "low rank"])
def test_draws_are_those_of_posteriors_by_their_noise(kind, rng):
    X, y, prior = problem(rng)
    variance, df, n = 0.5, 4.0, 200_000
    mean, covariance = at(X, y, prior, variance)
    noise = LearntNoise(as_kind(kind, X, mean, covariance, prior), prior, df)
    draws, times = noise.draws(n, rng)
    assert times.shape == (n, 1) and (df / times).mean() == pytest.approx(df, rel=0.02)
    of_some = [at(X, y, prior, variance * t)[1] for t in times[:4000, 0]]
    expected = np.mean(of_some, axis=0)
    expected += polygamma(1, 0.5 * df) * np.outer(noise.shift, noise.shift)
    np.testing.assert_allclose(draws.mean(axis=0), mean, atol=0.03)
    np.testing.assert_allclose(np.cov(draws.T), expected, atol=0.06)
    # Student's t has about the spread of the draws.
    scale2, own = noise.of_coefficients()
    sd = np.sqrt(scale2) * deviation(own)
    np.testing.assert_allclose(sd, draws.std(axis=0), rtol=0.06)
    ends = np.quantile(draws, 0.975, axis=0) - mean
    half = student_t(own).ppf(0.975) * np.sqrt(scale2)
    np.testing.assert_allclose(half, ends, rtol=0.1)


def test_a_noise_that_is_hardly_known_leaves_the_prior_its_width():
    """Of more columns than rows nothing is known of it, and little need be."""
    rng = np.random.default_rng(0)
    n, d = 32, 300
    X, X_new = rng.normal(size=(n, d)), rng.normal(size=(500, d))
    theta = rng.normal(size=d) / np.sqrt(d)
    y = X @ theta + 0.5 * rng.normal(size=n)
    y_new = X_new @ theta + 0.5 * rng.normal(size=500)
    model = BayesianGLMRegressor().fit(X, y)
    assert model.noise_df_ < 4.0
    assert (model.coef_std_ <= model.prior_scale_).all()
    given = {"noise_scale": model.noise_scale_, "prior_scale": model.prior_scale_}
    known = BayesianGLMRegressor(**given).fit(X, y)
    for name in ("predict_interval", "predict_mean_interval"):
        ours, theirs = (np.ptp(getattr(m, name)(X_new), axis=1) for m in (model, known))
        assert (ours >= 0.999 * theirs).all() and (ours < 1.1 * theirs).all()
    # Rows that are known move with the noise, and have its t.
    ours, theirs = (np.ptp(m.predict_interval(X), axis=1) for m in (model, known))
    assert (ours > 1.3 * theirs).all()
    ends = model.predict_interval(X_new)
    inside = (ends[:, 0] < y_new) & (y_new < ends[:, 1])
    assert 0.93 < inside.mean() < 0.999
    table = model.summary()
    ends = table[["coefficient 2.5 %", "coefficient 97.5 %"]].to_numpy()[:d]
    assert 0.93 < ((ends[:, 0] < theta) & (theta < ends[:, 1])).mean() < 1.0
    draws = model.sample_posterior(4000, random_state=0)["coef"]
    np.testing.assert_allclose(draws.std(axis=0), model.coef_std_, rtol=0.1)
