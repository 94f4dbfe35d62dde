"""BayesianPPCA of many columns: lengths of components, and what they are known by."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import invwishart, multivariate_normal

from skvrem import BayesianPPCA
from skvrem.vi.ppca import _estimator
from skvrem.vi.ppca._model_prior import GivenScale, UnknownScales


def rows(n, d, lengths, seed=0, noise=1.0):
    """Rows, and loadings (k, d) that are orthogonal, of root mean squares `lengths`."""
    rng, k = np.random.default_rng(seed), len(lengths)
    W = np.linalg.qr(rng.normal(size=(d, k)))[0].T * np.sqrt(d)
    W *= np.asarray(lengths)[:, None]
    Z, E = rng.normal(size=(n, k)), rng.normal(size=(n, d))
    # Scores of no other lengths than they are expected to have: one draw is enough.
    Z = np.sqrt(n) * np.linalg.qr(Z - Z.mean(axis=0))[0]
    return Z @ W + noise * E, W


@pytest.mark.parametrize(
    ("n", "d", "lengths"),
    [
        (100, 200, [1.0]),
        (60, 300, [3.0, 2.0, 1.0]),
        (200, 200, [3.0, 2.0, 1.0]),
        (300, 60, [4.0, 2.0, 1.0, 0.5]),
        (2000, 8, [2.0, 0.5]),
    ],
)
def test_components_have_the_lengths_that_there_are(n, d, lengths):
    """One scale for all of them made squares 0.6 to 4 times as large."""
    X, W = rows(n, d, lengths)
    model = BayesianPPCA(len(lengths), random_state=0).fit(X)
    squares = np.square(model.components_).sum(axis=1) / np.square(W).sum(axis=1)
    np.testing.assert_allclose(squares, 1.0, atol=0.15)
    C = W.T @ W + np.eye(d)
    error = np.linalg.norm(model.get_covariance() - C) / np.linalg.norm(C)
    assert error < 0.3
    # Latent variables are of variance one, and their means of what rows tell of them.
    told = np.square(W).sum(axis=1) / (np.square(W).sum(axis=1) + 1.0)
    np.testing.assert_allclose(model.transform(X).var(axis=0), told, rtol=0.25)


def test_a_scale_that_is_given_sets_lengths():
    """They are those of the posterior: a prior of 200 loadings knows their length."""
    X, _ = rows(100, 200, [1.0])
    squares = [
        np.square(BayesianPPCA(1, prior_scale=s, random_state=0).fit(X).components_)
        for s in (0.5, 1.0, 2.0)
    ]
    lengths = np.sqrt(np.mean(squares, axis=(1, 2)))
    assert lengths[0] < 0.75 and lengths[2] > 1.5
    assert lengths[1] == pytest.approx(1.0, abs=0.1)


def test_the_evidence_is_higher_with_scales_unknown():
    X, _ = rows(100, 150, [3.0, 1.0])
    shared = np.sqrt(X.var(axis=0).mean() / 2.0)
    unknown, given = (
        BayesianPPCA(2, prior_scale=s, random_state=0).fit(X).elbo_
        for s in ("auto", shared)
    )
    assert unknown > given + 5.0


@pytest.mark.parametrize("many", [False, True])
def test_intervals_of_many_loadings_hold(many, monkeypatch):
    """With components of one scale, and independent, 3 to 7 in 10 were."""
    monkeypatch.setattr(_estimator, "MOST_LOADINGS", 100 if many else 1000)
    inside = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        W = np.array([[2.0], [1.0]]) * rng.normal(size=(2, 150))
        X = rng.normal(size=(100, 2)) @ W + rng.normal(size=(100, 150))
        model = BayesianPPCA(2, random_state=0).fit(X)
        u, _, v = np.linalg.svd(model.components_ @ W.T)
        error = model.components_ - u @ v @ W
        inside.append(abs(error) < 1.96 * model.components_std_)
    assert 0.87 < np.mean(inside) < 0.99


@pytest.mark.parametrize("many", [False, True])
def test_lengths_are_known_by_the_number_of_rows(many, monkeypatch):
    monkeypatch.setattr(_estimator, "MOST_LOADINGS", 100 if many else 1000)
    n, d = 200, 160
    X, _ = rows(n, d, [3.0, 1.0])
    model = BayesianPPCA(2, random_state=0).fit(X)
    W = model.sample_posterior(4000, random_state=0)["components"]
    mean = model.components_
    along = np.einsum("skd,kd->sk", W, mean) / np.square(mean).sum(axis=1)
    np.testing.assert_allclose(along.std(axis=0), 1.0 / np.sqrt(2 * n), rtol=0.15)
    np.testing.assert_allclose(W.mean(axis=0), mean, atol=0.02)
    # Draws vary by what is said of each loading, and do not turn.
    np.testing.assert_allclose(W.std(axis=0), model.components_std_, rtol=0.07)
    turned = np.einsum("sd,d->s", W[:, 0], mean[1])
    turned -= np.einsum("sd,d->s", W[:, 1], mean[0])
    np.testing.assert_allclose(turned, 0.0, atol=1e-8)


# The prior


def test_unknown_scales_are_integrated_out():
    rng = np.random.default_rng(0)
    W, nothing = rng.normal(size=(3, 1)), np.zeros((3, 1))
    prior = UnknownScales(0.8, 2.5, 3, 0.0)

    def joint(v):
        known = multivariate_normal(np.zeros(3), v * np.eye(3)).pdf(W.ravel())
        return known * invwishart(2.5, prior.b).pdf(v)

    density, _ = quad(joint, 0.0, np.inf)
    assert prior.expected(W, nothing) == pytest.approx(np.log(density), rel=1e-6)
    # Of two components, by draws of V.
    W, nothing = rng.normal(size=(3, 2)), np.zeros((3, 2))
    prior = UnknownScales(0.8, 6.0, 3, 0.0)
    draws = invwishart(6.0, prior.b * np.eye(2)).rvs(100_000, random_state=0)
    fit = np.einsum("ij,sjk,ik->s", W, np.linalg.inv(draws), W)
    log_det = np.linalg.slogdet(2.0 * np.pi * draws)[1]
    density = np.exp(-0.5 * (3.0 * log_det + fit)).mean()
    assert prior.expected(W, nothing) == pytest.approx(np.log(density), abs=0.03)


def test_scales_in_common_without_end_are_one_that_is_given():
    mean, variance = np.random.default_rng(0).uniform(size=(2, 7, 3))
    given, free = GivenScale(0.7), UnknownScales(0.7, 1e6, 7, 0.0)
    for name in ("expected", "precision"):
        found, expected = (getattr(p, name)(mean, variance) for p in (free, given))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("lengths", [[3.0, 2.9, 3.1], [9.0, 3.0, 1.0]])
def test_the_scales_learned_are_of_the_highest_density(lengths):
    mean = rows(30, 40, lengths)[1].T
    variance = np.full(mean.shape, 0.1)
    prior = UnknownScales.of(1.0, mean.shape).learned(mean, variance)
    best = prior.expected(mean, variance)
    assert prior.learned(mean, variance) == prior
    for name in ("scale", "freedom"):
        for change in (0.9, 1.1):
            other = prior._replace(**{name: change * getattr(prior, name)})
            assert other.expected(mean, variance) < best + 1e-3
    # Lengths that are the same have that in common.
    assert (prior.freedom > 50.0) == (lengths[0] < 5.0)


def test_curvature_of_unknown_scales():
    """Minus the second derivative of the log density at the best s."""
    rng = np.random.default_rng(1)
    W, V = rng.normal(size=(2, 6, 2)) * [3.0, 1.0]
    nothing = np.zeros(W.shape)
    prior = UnknownScales.of(1.0, W.shape)
    freedom = prior.freedom

    def best(W):
        tried = prior._replace(scale=1.0)
        scales = np.exp(np.linspace(-3.0, 3.0, 20_001))
        second = np.linalg.eigvalsh(W.T @ W)
        b = freedom * scales**2
        log_det = np.log(b[:, None] + second).sum(axis=1)
        found = -0.5 * (freedom + 6.0) * log_det + 0.5 * freedom * 2.0 * np.log(b)
        return tried._replace(scale=float(scales[found.argmax()]))

    h = 1e-2
    value = [best(W + t * V).expected(W + t * V, nothing) for t in (-h, 0.0, h)]
    numeric = -(value[0] - 2.0 * value[1] + value[2]) / h**2
    at = best(W)
    image = at.curvature(W, at.precision(W, nothing), V)
    assert np.sum(V * image) == pytest.approx(numeric, abs=0.02)
