"""Merges of two components: moments, losses and what moves make of them."""

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from skvrem import solvers
from skvrem.data import as_source
from skvrem.mixture import _merges, _moves
from skvrem.mixture._inference import dense_covariances
from skvrem.mixture._model import GaussianMixtureModel, Parameters

COVARIANCE_TYPES = ["full", "diag", "spherical"]


def mixture(covariance_type, k=5, d=3):
    """A model and parameters drawn at random."""
    rng = np.random.default_rng(0)
    model = GaussianMixtureModel(covariance_type, 1e-6)
    covariances = rng.uniform(
        0.5, 2.0, {"diag": (k, d), "spherical": k}.get(covariance_type, (k, d, d))
    )
    if covariance_type == "full":
        covariances = covariances @ covariances.swapaxes(1, 2) + np.eye(d)
    factors, _ = model.precisions_cholesky(covariances)
    weights, means = rng.dirichlet(np.full(k, 5.0)), rng.normal(0.0, 2.0, (k, d))
    return model, Parameters(weights, means, covariances, factors)


def dense(parameters, covariance_type):
    return dense_covariances(parameters.means, parameters.covariances, covariance_type)


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_what_is_merged_has_the_moments_of_both(covariance_type):
    model, parameters = mixture(covariance_type)
    first, second = np.array([0, 3]), np.array([4, 1])
    merged, bad = _merges.merge(model, parameters, first, second)
    assert not bad.any()
    covariances = dense(parameters, covariance_type)
    for at, pair in enumerate(zip(first, second, strict=True)):
        w, means = parameters.weights[[*pair]], parameters.means[[*pair]]
        np.testing.assert_allclose(merged.weights[at], w.sum())
        mean = w @ means / w.sum()
        np.testing.assert_allclose(merged.means[at], mean)
        squares = covariances[[*pair]] + np.einsum("ki,kj->kij", means, means)
        both = np.einsum("k,kij->ij", w, squares) / w.sum() - np.outer(mean, mean)
        if covariance_type == "diag":
            both = np.diag(np.diag(both))
        if covariance_type == "spherical":
            both = np.eye(len(both)) * np.diag(both).mean()
        np.testing.assert_allclose(dense(merged, covariance_type)[at], both)


def loss(parameters, covariances, merged, pair, X):
    """Log-likelihood of rows less that with one component in place of a pair."""
    density = [
        multivariate_normal(*about).logpdf(X)
        for about in zip(parameters.means, covariances, strict=True)
    ]
    joint = np.log(parameters.weights) + np.stack(density, axis=1)
    weight, mean, covariance = merged
    both = np.log(weight) + multivariate_normal(mean, covariance).logpdf(X)
    rest = np.column_stack([np.delete(joint, pair, axis=1), both])
    return logsumexp(joint, axis=1) - logsumexp(rest, axis=1)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_what_rows_lose_with_a_merge_is_exact(covariance_type, weighted, monkeypatch):
    rng = np.random.default_rng(1)
    model, parameters = mixture(covariance_type)
    covariances = dense(parameters, covariance_type)
    X = rng.normal(0.0, 3.0, (300, 3))
    weight = rng.uniform(size=300) if weighted else None
    merges = _merges.find_merges(model, parameters)
    point, data = model.start(parameters), as_source(X, weight)
    monkeypatch.setattr(_moves, "PIECE", 200)  # rows come in pieces
    found = _moves._look(model, point, data, set(), merges)[2]
    pairs = np.stack([merges.first, merges.second], axis=1)
    of_merges = dense(merges.parameters, covariance_type)
    expected = [
        np.average(
            loss(parameters, covariances, (*about, of_merges[at]), pairs[at], X),
            weights=weight,
        )
        for at, about in enumerate(zip(*merges.parameters[:2], strict=True))
    ]
    np.testing.assert_allclose(found / data.total_weight, expected, rtol=1e-9)


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_each_component_has_the_merge_of_the_least_bound(covariance_type):
    """Which is no less than the divergence that it bounds, nor what rows lose."""
    model, parameters = mixture(covariance_type)
    merges = _merges.find_merges(model, parameters)
    found = set(zip(merges.first.tolist(), merges.second.tolist(), strict=True))
    weights, covariances = parameters.weights, dense(parameters, covariance_type)
    logs, expected = weights * np.linalg.slogdet(covariances)[1], set()
    k = len(weights)
    for one in range(k):
        others = [other for other in range(k) if other != one]
        both, _ = _merges.merge(model, parameters, np.full(k - 1, one), others)
        of_both = np.linalg.slogdet(dense(both, covariance_type))[1]
        bounds = both.weights * of_both - logs[one] - logs[others]
        best = others[bounds.argmin()]
        expected.add((min(one, best), max(one, best)))
    assert found == expected


def test_nothing_is_merged_where_that_gives_no_place():
    model, parameters = mixture("diag", k=2)
    assert _merges.find_merges(model, parameters) is None
    model = GaussianMixtureModel("tied", 1e-6)
    unit = Parameters(np.full(4, 0.25), np.zeros((4, 3)), np.eye(3), np.eye(3))
    assert _merges.find_merges(model, unit) is None


def test_a_merge_costs_a_place_once_and_not_that_of_what_is_split():
    merges = _merges.Merges(np.array([0, 1]), np.array([2, 3]), None)
    losses = np.array([9.0, 2.0, 7.0, 8.0])
    least, into = _moves._least(losses, np.array([1.0, 5.0]), merges)
    # The one that is cheaper to delete goes; the second merge is dearer than that.
    for split in range(4):
        merged = split != 0
        assert least[split, 2] == (1.0 if merged else 7.0)
        assert into[split, 2] == (0 if merged else _moves.NONE)
    np.testing.assert_array_equal(least[:, [0, 1, 3]], np.tile([9.0, 2.0, 8.0], (4, 1)))
    assert (into[:, [0, 1, 3]] == _moves.NONE).all()


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_two_halves_of_a_cluster_are_merged_for_one_that_is_missing(covariance_type):
    """Neither half explains rows of the other, so that to delete one is dear."""
    rng = np.random.default_rng(0)
    balls = np.repeat([[0.0, 0.0], [30.0, 0.0], [30.0, 5.0]], [900, 60, 60], axis=0)
    X = balls + rng.normal(size=balls.shape)
    model, data = GaussianMixtureModel(covariance_type, 1e-6), as_source(X, None)
    left = X[:900, 0] < 0.0
    groups = [X[:900][left], X[:900][~left], X[900:]]
    weights = np.array([len(rows) for rows in groups]) / len(X)
    means = np.array([rows.mean(axis=0) for rows in groups])
    covariances = np.array([np.cov(rows.T) for rows in groups])
    if covariance_type != "full":
        covariances = np.diagonal(covariances, axis1=1, axis2=2).copy()
    if covariance_type == "spherical":
        covariances = covariances.mean(axis=1)
    factors, _ = model.precisions_cholesky(covariances)
    point = model.start(Parameters(weights, means, covariances, factors))
    proposal = next(_moves.moves(model, point, data, rng))
    found = proposal.parameters
    order = found.weights.argsort()[::-1]
    np.testing.assert_allclose(found.weights.sum(), 1.0)
    np.testing.assert_allclose(found.weights[order[0]], 900 / 1020, rtol=1e-6)
    np.testing.assert_allclose(found.means[order[0]], X[:900].mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(found.means[order[1:], 0], 30.0, atol=1.0)
    run = solvers.Run(model, solvers.Batch(), data, proposal, tol=0.0, rng=rng)
    climb = [epoch.objective for epoch in run.advance(20).history]
    assert climb[0] > climb[-1] - 0.02  # it has nothing to learn about the large one


def test_rows_too_few_for_the_parameters_merge_nothing(monkeypatch):
    model, parameters = mixture("diag")  # of 35 parameters
    asked = []
    monkeypatch.setattr(_moves, "find_merges", lambda *given: asked.append(given))
    rng = np.random.default_rng(0)
    for n_rows in (174, 175):
        data = as_source(rng.normal(0.0, 3.0, (n_rows, 3)), None)
        next(_moves.moves(model, model.start(parameters), data, rng))
        assert len(asked) == (n_rows == 175)
