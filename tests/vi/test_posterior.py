"""Gaussians with structure: everything they say, against dense linear algebra."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.linalg import block_diag
from scipy.stats import multivariate_normal

from skvrem.vi.gaussian._model_posterior import FullRank, LowRank, MeanField

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


EVERY = pytest.mark.parametrize("kind", list(gaussians()))


@EVERY
def test_moments_and_density(kind, rng):
    q = gaussians()[kind]
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


@EVERY
def test_linear_combinations(kind, rng):
    q = gaussians()[kind]
    X = rng.normal(size=(5, D)) * (rng.uniform(size=(5, D)) < 0.6)
    expected = X @ q.covariance() @ X.T
    np.testing.assert_allclose(q.covariance(X), expected, atol=1e-12)
    for rows in (X, sp.csr_array(X)):
        found = q.predictor_variance(rows)
        np.testing.assert_allclose(found, np.diag(expected), atol=1e-12)


@EVERY
def test_parts_and_more(kind, rng):
    q = gaussians()[kind]
    S, Z = q.covariance(), rng.normal(size=(3, D))
    np.testing.assert_allclose(q.covariance_times(Z), Z @ S)
    some = q.marginal(np.array([4, 1]))
    np.testing.assert_array_equal(some.mean, q.mean[[4, 1]])
    np.testing.assert_allclose(some.covariance(), S[np.ix_([4, 1], [4, 1])])
    wide = q.widened(2, 3.0)
    assert type(some) is type(wide) is type(q)
    np.testing.assert_allclose(wide.covariance(), block_diag(S, 9.0 * np.eye(2)))
    np.testing.assert_array_equal(wide.mean, [*q.mean, 0.0, 0.0])


@EVERY
@pytest.mark.parametrize("other", list(gaussians()))
def test_divergence(kind, other):
    q, p = gaussians()[kind], gaussians()[other]
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
    q = gaussians()[kind]
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
    q = gaussians()[kind]
    again = pickle.loads(pickle.dumps(q))
    assert again == q
    assert again != q.moved(q.mean + 1.0)
    assert all(other != q for name, other in gaussians().items() if name != kind)


def test_large_low_rank_stays_small():
    # Anything d by d would take 320 GB.
    d = 200_000
    rng = np.random.default_rng(0)
    q = LowRank(np.zeros(d), np.ones(d), 0.01 * rng.normal(size=(d, 3)))
    prior = MeanField(np.zeros(d), np.ones(d))
    assert np.isfinite(q.kl(prior))
    assert q.sample(2, random_state=0).shape == (2, d)
    assert np.isfinite(q.logpdf(q.mean))
