"""Bounds of posteriors of loadings that are turned every way."""

import numpy as np
import pytest
from scipy.linalg import expm
from scipy.special import logsumexp
from scipy.stats import ortho_group

from skvrem import BayesianPPCA
from skvrem.vi.gaussian._model_posterior import MeanField
from skvrem.vi.ppca._model_rotations import (
    information_of_angles,
    log_volumes,
    rotation_entropy,
)


def posterior(seed, k, d, scale):
    """Means, the longest first, and deviations that differ."""
    rng = np.random.default_rng(seed)
    mean = rng.normal(size=(k, d)) * (1.0 + np.arange(k))[::-1, None]
    return mean, scale * np.exp(0.3 * rng.normal(size=(k, d)))


def entropy_by_draws(mean, scale, rotations, rng, n_draws=1500):
    """E_q [log q(W) - log mean of q(W R)], and its error."""
    q = MeanField(mean.ravel(), scale.ravel())
    found = []
    for W in q.sample(n_draws, rng).reshape(n_draws, *mean.shape):
        turned = np.einsum("rij,jd->rid", rotations, W).reshape(len(rotations), -1)
        mixed = logsumexp(q.logpdf(turned)) - np.log(len(rotations))
        found.append(q.logpdf(W.ravel()[None])[0] - mixed)
    return np.mean(found), np.std(found) / np.sqrt(n_draws)


@pytest.mark.parametrize("scale", [0.05, 0.3])
def test_two_components_by_quadrature(scale):
    mean, scale = posterior(0, 2, 5, scale)
    angle = 2.0 * np.pi * np.arange(720) / 720
    c, s = np.cos(angle), np.sin(angle)
    turns = np.stack([np.stack([c, -s], -1), np.stack([s, c], -1)], 1)
    rotations = np.concatenate([turns, turns * [1.0, -1.0]])
    given = mean, scale, rotations, np.random.default_rng(1)
    expected, error = entropy_by_draws(*given)
    assert abs(rotation_entropy(mean, scale) - expected) < 4.0 * error + 0.02


def test_three_components_by_random_rotations():
    mean, scale = posterior(1, 3, 6, 0.3)
    rotations = ortho_group.rvs(3, size=30_000, random_state=2)
    given = mean, scale, rotations, np.random.default_rng(3)
    expected, error = entropy_by_draws(*given, n_draws=200)
    assert abs(rotation_entropy(mean, scale) - expected) < 4.0 * error + 0.1


def test_information_is_the_second_order_of_the_divergence():
    mean, scale = posterior(2, 4, 3, 0.4)
    F = information_of_angles(mean, scale)
    first, second = np.triu_indices(4, 1)
    q = MeanField(mean.ravel(), scale.ravel())
    draws = q.sample(200_000, np.random.default_rng(4))
    at = q.logpdf(draws)

    def lost(angles):
        A = np.zeros((4, 4))
        A[first, second], A[second, first] = angles, -angles
        # Components are rows: W R is R^T times them.
        turned = np.einsum("ij,njd->nid", expm(A).T, draws.reshape(-1, 4, 3))
        return at - q.logpdf(turned.reshape(len(draws), -1))

    for angles in 1e-3 * np.random.default_rng(5).normal(size=(4, 6)):
        both = 0.5 * (lost(angles) + lost(-angles))
        error = both.std() / np.sqrt(len(draws))
        assert abs(both.mean() - 0.5 * angles @ F @ angles) < 4.0 * error


def test_volumes():
    expected = np.array([1.0, 2.0, 4.0 * np.pi, 16.0 * np.pi**2])
    np.testing.assert_allclose(np.exp(log_volumes(3)), expected)


def test_components_without_use_are_not_turned():
    mean, scale = posterior(3, 2, 5, 0.1)
    expected = rotation_entropy(mean, scale)
    # However they turn among each other, nothing changes.
    spare = np.zeros((3, 5))
    found = rotation_entropy(np.vstack([mean, spare]), np.vstack([scale, spare + 0.05]))
    # The other two turn towards them as well: ten axes in place of four.
    assert expected + 2.0 < found < expected + 30.0
    alone = rotation_entropy(spare, spare + 0.05)
    assert alone == 0.0


@pytest.mark.parametrize("unit", [1e-100, 1e100])
def test_units_do_not_matter(unit):
    mean, scale = posterior(4, 3, 5, 0.1)
    found = rotation_entropy(unit * mean, unit * scale)
    np.testing.assert_allclose(found, rotation_entropy(mean, scale), rtol=1e-12)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_evidence_is_little_above_the_bound(k):
    """By draws from the prior, of few rows."""
    rng = np.random.default_rng(k)
    X = rng.normal(size=(12, 2)) @ rng.normal(size=(2, 3)) + rng.normal(size=(12, 3))
    given = {"prior_scale": 1.0, "noise_variance": 0.5, "random_state": 0}
    model = BayesianPPCA(k, tol=1e-3, **given).fit(X)
    W = rng.normal(size=(400_000, k, 3))
    C = np.einsum("nki,nkj->nij", W, W) + 0.5 * np.eye(3)
    S = np.cov(X.T, ddof=0)
    misfit = np.einsum("nij,ji->n", np.linalg.inv(C), S) + np.linalg.slogdet(C)[1]
    values = -6.0 * (3.0 * np.log(2.0 * np.pi) + misfit)
    evidence = logsumexp(values) - np.log(len(values))
    shares = np.exp(values - logsumexp(values))
    assert np.sum(shares**2) < 1e-3  # many of the draws say it
    assert 0.0 < evidence - model.elbo_ < 0.5 * k


def test_the_number_of_components_is_found_where_rows_are_few():
    """The bound of one rotation says 4, 4 and 6."""
    for n, d, k in [(25, 25, 5), (60, 15, 5), (50, 40, 7)]:
        rng = np.random.default_rng(0)
        loadings = rng.normal(size=(d, k))
        X = rng.normal(size=(n, k)) @ loadings.T + rng.normal(size=(n, d))
        elbos = [BayesianPPCA(j, random_state=0).fit(X).elbo_ for j in range(1, k + 4)]
        assert 1 + np.argmax(elbos) == k
