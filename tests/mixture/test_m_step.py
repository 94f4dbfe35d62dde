"""The M step of Gaussian mixtures against its formulas, written out in NumPy."""

import numpy as np
import pytest

from skvrem.mixture._model import GaussianMixtureModel, Parameters, Statistics

KINDS = ["full", "tied", "diag", "spherical"]
K, D, REG = 4, 3, 1e-3


def make(kind, seed=0):
    """Return a model, a point about a reference, and feasible mean statistics."""
    rng = np.random.default_rng(seed)
    model = GaussianMixtureModel(kind, REG)
    shapes = {"full": (K, D, D), "tied": (D, D), "diag": (K, D), "spherical": (K,)}
    covariances = np.ones(shapes[kind]) * (np.eye(D) if model.dense else 2.0)
    factors, _ = model.precisions_cholesky(covariances)
    means = rng.normal(size=(K, D))
    point = model.start(Parameters(np.full(K, 1 / K), means, covariances, factors))
    rows = rng.normal(size=(50, K, D))
    share = rng.dirichlet(np.ones(K), 50) / 50
    second = np.einsum("nk,nki,nkj->kij", share, rows, rows)
    if not model.dense:
        second = np.diagonal(second, axis1=1, axis2=2)
    first = np.einsum("nk,nki->ki", share, rows)
    sums = Statistics.of(share.sum(0), first, second, -1.5, 0.5)
    return model, point, sums


def oracle(kind, point, sums):
    """Return weights, means and covariances of components, shape (k, d, d)."""
    sum_w, sum_x, sum_xx = sums[:3]
    shift = sum_x / sum_w[:, None]
    second = sum_xx if sum_xx.ndim == 3 else sum_xx[:, :, None] * np.eye(D)
    covariances = second / sum_w[:, None, None] - shift[:, :, None] * shift[:, None]
    weights = sum_w / sum_w.sum()
    if kind == "tied":
        covariances[:] = np.einsum("k,kij->ij", weights, covariances)
    elif kind != "full":
        covariances = covariances * np.eye(D)
    if kind == "spherical":
        means = np.trace(covariances, axis1=1, axis2=2) / D
        covariances = means[:, None, None] * np.eye(D)
    return weights, point.reference + shift, covariances + REG * np.eye(D)


def matrices(model, array):
    array = model.by_component(array)
    array = array if model.dense else array[:, :, None] * np.eye(D)
    return np.broadcast_to(array, (K, D, D))


@pytest.mark.parametrize("kind", KINDS)
def test_maximize(kind):
    model, point, sums = make(kind)
    found, left = model.maximize(sums, point, False)
    weights, means, covariances = oracle(kind, point, sums)
    assert left == ()
    np.testing.assert_allclose(found.weights, weights, rtol=1e-13)
    np.testing.assert_allclose(found.means, means, rtol=1e-13)
    of_components = matrices(model, found.covariances)
    np.testing.assert_allclose(of_components, covariances, rtol=1e-12, atol=1e-15)
    factors = matrices(model, found.precisions_cholesky)
    precisions = factors @ factors.swapaxes(1, 2)
    np.testing.assert_allclose(precisions, np.linalg.inv(covariances), atol=1e-11)
    np.testing.assert_array_equal(factors, np.triu(factors))


@pytest.mark.parametrize("kind", KINDS)
def test_a_component_without_rows_stays_where_it_was(kind):
    model, point, sums = make(kind)
    for part in sums[:3]:
        part[2] = 0.0
    assert model.maximize(sums, point, False) is None
    found, left = model.maximize(sums, point, True)
    assert left == (2,) and found.weights[2] == 0.0
    np.testing.assert_array_equal(found.means[2], point.parameters.means[2])
    others = [0, 1, 3]
    rest = Statistics.of(*(part[others] for part in sums[:3]), 0.0, 0.0)
    reference = point._replace(reference=point.reference[others])
    weights, means, covariances = oracle(kind, reference, rest)
    np.testing.assert_allclose(found.weights[others], weights, rtol=1e-13)
    np.testing.assert_allclose(found.means[others], means, rtol=1e-13)
    of_components = matrices(model, found.covariances)
    np.testing.assert_allclose(of_components[others], covariances, atol=1e-14)
    if kind != "tied":
        before = matrices(model, point.parameters.covariances)
        np.testing.assert_array_equal(of_components[2], before[2])


@pytest.mark.parametrize("value", [-1.0, np.nan, np.inf])
@pytest.mark.parametrize("kind", KINDS)
def test_a_covariance_without_an_inverse_stays_as_it_was(kind, value):
    model, point, sums = make(kind)
    weights, means, _ = oracle(kind, point, sums)
    sums.sum_xx[1] = np.diag(np.full(D, value)) if model.dense else value
    assert model.maximize(sums, point, False) is None
    found, left = model.maximize(sums, point, True)
    assert left == (tuple(range(K)) if kind == "tied" else (1,))
    np.testing.assert_allclose(found.weights, weights, rtol=1e-13)
    np.testing.assert_allclose(found.means, means, rtol=1e-13)
    for name in ("covariances", "precisions_cholesky"):
        after, before = (
            matrices(model, getattr(part, name)) for part in (found, point.parameters)
        )
        np.testing.assert_array_equal(after[1], before[1])
        assert np.isfinite(after).all()


@pytest.mark.parametrize("kind", KINDS)
def test_statistics_about_another_reference_are_the_same(kind):
    model, point, sums = make(kind)
    away = point.reference + np.random.default_rng(3).normal(size=(K, D))
    moved = model.translate(sums, point.reference, away)
    np.testing.assert_array_equal(moved[-2:], sums[-2:])
    first, _ = model.maximize(sums, point, False)
    second, _ = model.maximize(moved, point._replace(reference=away), False)
    for a, b in zip(first, second, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-11)
