"""Rows with covariances that are missing in part, by features and row by row."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from skvrem import VRHMM
from skvrem.hmm import Bernoulli, Gaussian, MixtureGaussian, Product
from skvrem.hmm.emissions.patterns import _model_patterns


def holes(n, d, share, seed=0):
    """Return correlated rows about two means, some values or all of a row missing."""
    rng = np.random.default_rng(seed)
    states = np.cumsum(rng.random(n) < 0.1) % 2
    X = rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + rng.normal(size=(n, d))
    X += 5.0 * states[:, None]
    X[rng.random(X.shape) < share] = np.nan
    X[[0, n // 2, n - 1]] = np.nan
    return X, states


def normals(n, d, seed=1):
    """Return means and covariances of n states."""
    rng = np.random.default_rng(seed)
    factors = rng.normal(size=(n, d, d))
    return rng.normal(size=(n, d)), factors @ factors.swapaxes(1, 2) + np.eye(d)


def expected(x, mean, covariance):
    """Return log-density, mean and second moments of a row that is seen in part."""
    seen, rest = np.flatnonzero(~np.isnan(x)), np.flatnonzero(np.isnan(x))
    inside = np.linalg.inv(covariance[np.ix_(seen, seen)])
    gain = covariance[np.ix_(rest, seen)] @ inside
    y, noise = x.copy(), np.zeros_like(covariance)
    y[rest] = mean[rest] + gain @ (x[seen] - mean[seen])
    noise[np.ix_(rest, rest)] = covariance[np.ix_(rest, rest)]
    noise[np.ix_(rest, rest)] -= gain @ covariance[np.ix_(seen, rest)]
    density = multivariate_normal(mean[seen], covariance[np.ix_(seen, seen)])
    return density.logpdf(x[seen]), y, np.outer(y, y) + noise


def of_features(family, X, weights, parameters):
    """Return the log-densities and the sums of complete rows that a family makes."""
    columns = family.columns(X, True, parameters)
    columns = np.hstack([columns, np.ones((len(X), 1))])  # column -1
    features = family.features(True)
    products = columns[:, features.first] * columns[:, features.second]
    log_f = products @ features.collapse(family.kernel_theta(parameters)).T
    sums = features.expand(weights.T @ products)
    collected = family.collect(X, weights, parameters) if family.follows else None
    return log_f, family.complete(sums, parameters, collected)


def by_hand(X, weights, means, covariances, centre):
    """Return the same of normals; sums are of 1, x and x x^T about a centre."""
    n, d = means.shape
    log_f, sums = np.zeros((len(X), n)), []
    for k in range(n):
        total = np.zeros(1 + d + d * (d + 1) // 2)
        for t in np.flatnonzero(~np.isnan(X).all(axis=1)):
            log_f[t, k], y, square = expected(X[t], means[k], covariances[k])
            square -= np.outer(y, centre) + np.outer(centre, y - centre)
            square = square[np.triu_indices(d)]
            total += weights[t, k] * np.concatenate([[1.0], y - centre, square])
        sums.append(total)
    return log_f, np.array(sums)


# Of 20 columns nearly every row has a pattern of its own; of 2, many rows share one.
@pytest.mark.parametrize(("n", "d"), [(500, 2), (300, 4), (60, 20)])
@pytest.mark.parametrize("most", [0.0, np.inf])
def test_rows_have_the_moments_of_what_is_missing(n, d, most, monkeypatch):
    monkeypatch.setattr(_model_patterns, "MOST_FEATURES", most)
    X, _ = holes(n, d, 0.3)
    means, covariances = normals(3, d)
    weights = np.random.default_rng(2).random((n, 3))
    family = Gaussian("full").open(X, 3).bound(X)
    assert family.follows == (most == 0.0)
    parameters = np.hstack([means, covariances.reshape(3, -1)])
    log_f, sums = of_features(family, X, weights, parameters)
    truth = by_hand(X, weights, means, covariances, family._centre)
    np.testing.assert_allclose(log_f, truth[0], rtol=1e-9)
    np.testing.assert_allclose(sums, truth[1], rtol=1e-9, atol=1e-8)


def test_components_have_features_of_many_patterns():
    """Kernels share a row out between the components by its features."""
    X, _ = holes(80, 6, 0.3)
    means, covariances = normals(4, 6)
    share = np.array([[0.3, 0.7], [0.9, 0.1]])
    weights = np.random.default_rng(2).random((80, 4))
    family = MixtureGaussian(2, "full").open(X, 2).bound(X)
    assert family.patterned and not family.follows
    inner = np.hstack([means, covariances.reshape(4, -1)]).reshape(2, -1)
    log_f, sums = of_features(family, X, weights, np.hstack([share, inner]))
    truth = by_hand(X, weights, means, covariances, family._inner._centre)
    np.testing.assert_allclose(log_f, truth[0] + np.log(share.ravel()), rtol=1e-9)
    np.testing.assert_allclose(sums[:, 0], weights.sum(axis=0))
    np.testing.assert_allclose(sums[:, 1:], truth[1], rtol=1e-9, atol=1e-8)


FAMILIES = {
    "full": Gaussian("full"),
    "tied": Gaussian("tied"),
    "product": Product(
        [("a", Gaussian("full"), [0, 1, 2, 3]), ("b", Bernoulli(), [4])]
    ),
    "beside a mixture": Product(
        [("a", Gaussian("full"), [1, 2, 3]), ("b", MixtureGaussian(2), [0])]
    ),
}


@pytest.mark.parametrize("solver", ["batch", "svrg"])
@pytest.mark.parametrize("name", FAMILIES)
def test_fits_are_the_same_either_way(name, solver, monkeypatch):
    X, states = holes(400, 5, 0.15)
    X[:, 4] = np.where(np.isnan(X[:, 4]), np.nan, X[:, 4] > 2.0)
    labels = np.where(np.arange(400) % 50 == 7, states, -1)
    model = VRHMM(2, emission=FAMILIES[name], solver=solver, max_iter=5, tol=0.0)
    model.set_params(random_state=0, n_init=2)
    ends = []
    for most in (0.0, np.inf):
        monkeypatch.setattr(_model_patterns, "MOST_FEATURES", most)
        given = {"lengths": [250, 150], "state_labels": labels}
        model.fit(X, **given)
        answers = model.predict_proba(X), model.score_samples(X), model.transmat_
        ends.append((*answers, model.emission_.parameters(), model.predict(X)))
    for one, other in zip(*ends, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("units", [(1.0, 1.0), (2.0**-10, 2.0**20)])
@pytest.mark.parametrize("covariance", [[1.0, 1.0 - 4e-6, 1.0], [1e-5, 2e-15, 1e-5]])
def test_coefficients_are_of_one_matrix(covariance, units):
    """Far from zero they cancel: one triangle may not err by more than the other."""
    units = np.array(units)
    a, b, c = covariance
    covariance = np.array([[a, b], [1.5 * b if b < a / 2 else b, c]])
    covariance *= np.outer(units, units)
    mean = -5.0 * units
    theta = _model_patterns.dense_theta(mean[None], covariance[None])[0]
    rows = mean + units * np.array([[0.0, 0.0], [1e-3, 2e-3], [5.0, 5.0]])
    x, y = rows.T
    features = np.stack([np.ones(3), x, y, x * x, x * y, y * y], axis=1)
    root = np.linalg.cholesky(covariance / np.outer(units, units))
    away = np.linalg.solve(root, ((rows - mean) / units).T)
    expected = -0.5 * np.square(away).sum(axis=0) - np.log(2.0 * np.pi)
    expected -= np.log(root.diagonal() * units).sum()
    np.testing.assert_allclose(features @ theta, expected, rtol=1e-7, atol=1e-6)
