"""Gaussians with structure: everything they say, against dense linear algebra."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.linalg import block_diag
from scipy.stats import multivariate_normal

from skvrem.vi.gaussian._model_posterior import (
    CentredMeanField,
    FullRank,
    LowRank,
    MeanField,
)

D = 6


def gaussians():
    rng = np.random.default_rng(0)
    mean = rng.normal(size=D)
    A = rng.normal(size=(D, D))
    factor = np.linalg.cholesky(A @ A.T + np.eye(D))
    return {
        "mean field": MeanField(mean, rng.uniform(0.5, 2.0, D)),
        "full rank": FullRank(mean[::-1], factor),
        "low rank": LowRank(0.5 * mean, rng.uniform(0.5, 2.0, D), A[:, :2]),
        "less": LowRank(mean, np.full(D, 2.0), 0.3 * A[:, :3], [1.0, -1.0, -1.0]),
    }


def priors():
    """Of two predictors, with features about zero and elsewhere."""
    own = gaussians()["mean field"]
    return {"centred": CentredMeanField(own, [3.0, -2.0])}


EVERY = pytest.mark.parametrize("kind", list(gaussians() | priors()))
POSTERIORS = pytest.mark.parametrize("kind", list(gaussians()))


@EVERY
def test_moments_and_density(kind, rng):
    q = (gaussians() | priors())[kind]
    S = q.covariance()
    dense = multivariate_normal(q.mean, S)
    np.testing.assert_allclose(q.scale, np.sqrt(np.diag(S)))
    Z = rng.normal(size=(4, D))
    np.testing.assert_allclose(q.logpdf(Z), dense.logpdf(Z))
    np.testing.assert_allclose(q.logpdf(Z[0]), dense.logpdf(Z[0]))
    np.testing.assert_allclose(q.entropy(), dense.entropy())
    np.testing.assert_allclose(q.precision_times(Z), Z @ np.linalg.inv(S))
    np.testing.assert_allclose(q.precision_diagonal, np.diag(np.linalg.inv(S)))
    np.testing.assert_allclose(q.moved(Z[0]).logpdf(Z[0] - 1.0), q.logpdf(q.mean - 1))
    np.testing.assert_allclose(q.precision, np.linalg.inv(S), atol=1e-12)


@POSTERIORS
def test_other_units(kind, rng):
    q, units = gaussians()[kind], 10.0 ** np.linspace(-3.0, 3.0, D)
    scaled, Z = q.scaled(units), rng.normal(size=(4, D))
    assert type(scaled) is type(q)
    np.testing.assert_allclose(scaled.scale, units * q.scale)
    expected = q.covariance() * np.outer(units, units)
    np.testing.assert_allclose(scaled.covariance(), expected)
    density = q.logpdf(Z) - np.log(units).sum()
    np.testing.assert_allclose(scaled.logpdf(units * Z), density)
    assert q == gaussians()[kind]


@POSTERIORS
def test_linear_combinations(kind, rng):
    q = gaussians()[kind]
    X = rng.normal(size=(5, D)) * (rng.uniform(size=(5, D)) < 0.6)
    expected = X @ q.covariance() @ X.T
    np.testing.assert_allclose(q.covariance(X), expected, atol=1e-12)
    for rows in (X, sp.csr_array(X)):
        found = q.predictor_variance(rows)
        np.testing.assert_allclose(found, np.diag(expected), atol=1e-12)


@POSTERIORS
def test_parts_and_more(kind, rng):
    q = (gaussians() | priors())[kind]
    S, Z = q.covariance(), rng.normal(size=(3, D))
    np.testing.assert_allclose(q.covariance_times(Z), Z @ S)
    some = q.marginal(np.array([4, 1]))
    np.testing.assert_array_equal(some.mean, q.mean[[4, 1]])
    np.testing.assert_allclose(some.covariance(), S[np.ix_([4, 1], [4, 1])])
    wide = q.widened(2, 3.0)
    assert type(some) is type(wide) is type(q)
    np.testing.assert_allclose(wide.covariance(), block_diag(S, 9.0 * np.eye(2)))
    np.testing.assert_array_equal(wide.mean, [*q.mean, 0.0, 0.0])


@POSTERIORS
@pytest.mark.parametrize("n_predictors", [1, 2])
def test_intercepts_of_other_rows(kind, n_predictors, rng):
    q = gaussians()[kind]
    change = rng.normal(size=D // n_predictors - 1)
    one = np.eye(change.size + 1)
    one[-1, :-1] = change
    A = np.kron(np.eye(n_predictors), one)
    found = q.with_origin(change)
    np.testing.assert_allclose(found.mean, A @ q.mean)
    expected = A @ q.covariance() @ A.T
    np.testing.assert_allclose(found.covariance(), expected, atol=1e-12)
    np.testing.assert_allclose(found.variance, found.covariance().diagonal())
    assert q.with_origin(0.0 * change) is q
    back = found.with_origin(-change)
    np.testing.assert_allclose(back.covariance(), q.covariance(), atol=1e-12)
    if isinstance(found, FullRank):
        np.testing.assert_array_equal(found.factor, np.tril(found.factor))


@pytest.mark.parametrize("n_predictors", [1, 2])
def test_a_centred_prior_is_independent_at_its_centre(n_predictors, rng):
    own = gaussians()["mean field"]
    centre = rng.normal(size=D // n_predictors - 1)
    prior, same = CentredMeanField(own, centre), own.with_origin(-centre)
    np.testing.assert_allclose(prior.mean, same.mean)
    np.testing.assert_allclose(prior.covariance(), same.covariance(), atol=1e-12)
    np.testing.assert_allclose(prior.variance, same.variance)
    A = rng.normal(size=(4, D))
    np.testing.assert_allclose(prior.covariance(A), A @ prior.covariance() @ A.T)
    expected = prior.covariance(A).diagonal()
    np.testing.assert_allclose(prior.predictor_variance(A), expected)
    np.testing.assert_allclose(prior.covariance_times(A), A @ prior.covariance())
    np.testing.assert_allclose(prior.own.mean, own.mean)
    np.testing.assert_allclose(prior.own.variance, own.variance)
    twice = prior.repeated(2)
    np.testing.assert_array_equal(twice.mean, np.tile(prior.mean, 2))
    expected = block_diag(*[prior.covariance()] * 2)
    np.testing.assert_allclose(twice.covariance(), expected)
    np.testing.assert_allclose(twice.of_first(2).covariance(), prior.covariance())


@EVERY
@pytest.mark.parametrize("other", list(gaussians() | priors()))
def test_divergence(kind, other):
    q, p = ((gaussians() | priors())[name] for name in (kind, other))
    S, T = q.covariance(), np.linalg.inv(p.covariance())
    delta = q.mean - p.mean
    expected = 0.5 * (
        np.trace(T @ S)
        + delta @ T @ delta
        - D
        - np.linalg.slogdet(T)[1]
        - np.linalg.slogdet(S)[1]
    )
    np.testing.assert_allclose(q.kl(p), expected, atol=1e-12)


@EVERY
def test_draws(kind):
    q = (gaussians() | priors())[kind]
    Z = q.sample(20_000, random_state=0)
    assert Z.shape == (20_000, D)
    # Whitened by the true covariance, moments have known errors: |z| < 4.5.
    white = (Z - q.mean) @ np.linalg.inv(np.linalg.cholesky(q.covariance())).T
    assert np.abs(white.mean(axis=0)).max() < 4.5 / np.sqrt(20_000)
    error = np.abs(white.T @ white / 20_000 - np.eye(D)).max()
    assert error < 4.5 * np.sqrt(2 / 20_000)
    np.testing.assert_array_equal(Z[:1], q.sample(20_000, random_state=0)[:1])
    assert q.sample(random_state=1).shape == (1, D)


@EVERY
def test_pickle(kind):
    q = (gaussians() | priors())[kind]
    again = pickle.loads(pickle.dumps(q))
    assert again == q
    assert again != q.moved(q.mean + 1.0)
    others = (gaussians() | priors()).items()
    assert all(other != q for name, other in others if name != kind)


def test_large_low_rank_stays_small():
    # Anything d by d would take 320 GB.
    d = 200_000
    rng = np.random.default_rng(0)
    q = LowRank(np.zeros(d), np.ones(d), 0.01 * rng.normal(size=(d, 3)))
    prior = MeanField(np.zeros(d), np.ones(d))
    assert np.isfinite(q.kl(prior))
    assert q.sample(2, random_state=0).shape == (2, d)
    assert np.isfinite(q.logpdf(q.mean))
