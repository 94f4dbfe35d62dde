"""Kernels, rows and curvatures against sums written out in NumPy."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import brentq
from scipy.special import expit, log_softmax, logsumexp, softmax

from skvrem.data import as_source
from skvrem.linear import _kernels, bound
from skvrem.linear._model_curvature import (
    JITTER,
    SMALL,
    Curvature,
    Factor,
    LowRankMetric,
)
from skvrem.utils import _tiles
from skvrem.utils._tiles import tiles

DTYPES = pytest.mark.parametrize("dtype", [np.float64, np.float32])
SPARSE = pytest.mark.parametrize("sparse", [False, True])
NONE = np.empty(0)


def tolerance(dtype):
    return {"rtol": 1e-12} if dtype == np.float64 else {"rtol": 2e-5, "atol": 1e-12}


def logits(m, k, dtype, seed=0):
    Z = 4.0 * np.random.default_rng(seed).normal(size=(m, k))
    Z[0], Z[1, 0] = 0.0, 40.0
    return Z.astype(dtype)


@DTYPES
@pytest.mark.parametrize("weighted", [False, True])
def test_logistic_residuals(dtype, weighted, rng):
    z = logits(50, 1, dtype)[:, 0]
    y = rng.integers(2, size=50).astype(np.int32)
    weight = rng.uniform(0.5, 2.0, 50) if weighted else NONE
    w = weight if weighted else 1.0
    expected = w * (y - expit(z.astype(float)))
    expected_loss = -w * (y * z - np.logaddexp(0.0, z.astype(float)))
    loss = np.empty(50, dtype)
    _kernels.logistic_residuals(z, y, weight, loss)
    same = {"atol": 1e-13 if dtype == np.float64 else 1e-5}
    np.testing.assert_allclose(z, expected, **same)
    np.testing.assert_allclose(loss, expected_loss, **same)


def test_logistic_residuals_far_away():
    z = np.array([800.0, -800.0, 800.0, -800.0, np.inf, np.nan])
    y = np.array([1, 0, 0, 1, 1, 0], np.int32)
    loss = np.empty(6)
    _kernels.logistic_residuals(z, y, NONE, loss)
    np.testing.assert_array_equal(z[:5], [0.0, 0.0, -1.0, 1.0, 0.0])
    assert np.isnan(z[5]) and np.isnan(loss[5])
    np.testing.assert_array_equal(loss[:4], [0.0, 0.0, 800.0, 800.0])


@DTYPES
@pytest.mark.parametrize("weighted", [False, True])
def test_softmax_residuals(dtype, weighted, rng):
    Z = logits(50, 4, dtype)
    y = rng.integers(4, size=50).astype(np.int32)
    weight = rng.uniform(0.5, 2.0, 50) if weighted else NONE
    w = weight if weighted else np.ones(50)
    exact = Z.astype(float)
    expected = w[:, None] * (np.eye(4)[y] - softmax(exact, axis=1))
    expected_loss = -w * log_softmax(exact, axis=1)[np.arange(50), y]
    loss = np.empty(50, dtype)
    _kernels.softmax_residuals(Z, y, weight, loss)
    same = {"atol": 1e-13 if dtype == np.float64 else 2e-5}
    np.testing.assert_allclose(Z, expected, **same)
    np.testing.assert_allclose(loss, expected_loss, **same)


@DTYPES
@pytest.mark.parametrize("k", [1, 3])
def test_probabilities(dtype, k):
    Z, out = logits(40, k, dtype), np.empty((40, k))
    _kernels.probabilities(Z, out)
    exact = Z.astype(float)
    expected = expit(exact) if k == 1 else softmax(exact, axis=1)
    np.testing.assert_allclose(out, expected, **tolerance(dtype))


@DTYPES
def test_logistic_bound(dtype, rng):
    z = logits(40, 1, dtype)[:, 0]
    weight, out = rng.uniform(size=40), np.empty(40)
    _kernels.logistic_bound(z, weight, out)
    for i, s in enumerate(z.astype(float)):
        sigma = bound([[0.0], [1.0]], [s]).sigma[0, 0]
        assert out[i] == pytest.approx(weight[i] * sigma, rel=1e-10)


@DTYPES
def test_softmax_bound_is_above_algorithm_1(dtype):
    Z, out = logits(40, 5, dtype), np.empty(40)
    _kernels.softmax_bound(Z, NONE, out)
    for row, a in zip(Z.astype(float), out, strict=True):
        sigma = bound(np.eye(5), row).sigma
        norms = np.abs(sigma).sum(axis=1).max(), np.linalg.norm(sigma)
        expected = min(0.5, *norms)
        assert a == pytest.approx(expected, rel=1e-5)
        p = softmax(row)
        assert a >= np.linalg.eigvalsh(np.diag(p) - np.outer(p, p))[-1] - 1e-12
    assert out.min() < 0.15 < out.max()


def test_softmax_bound_is_a_bound(rng):
    Z = 3.0 * rng.normal(size=(300, 4))
    out = np.empty(300)
    _kernels.softmax_bound(Z, NONE, out)
    for row, a in zip(Z, out, strict=True):
        step = rng.normal(size=4) * rng.choice([0.1, 1.0, 10.0])
        above = logsumexp(row) + softmax(row) @ step + 0.5 * a * step @ step
        assert above >= logsumexp(row + step) - 1e-12


@DTYPES
def test_class_bounds_hold_for_one_class_at_a_time(dtype, rng):
    Z, out = logits(60, 4, dtype), np.empty((60, 4))
    _kernels.softmax_class_bounds(Z, NONE, out)
    for row, weights in zip(Z.astype(float), out, strict=True):
        p = softmax(row)
        for j, a in enumerate(weights):
            step = np.zeros(4)
            step[j] = rng.normal() * 5.0
            above = logsumexp(row) + p @ step + 0.5 * a * step @ step
            assert above >= logsumexp(row + step) - 1e-5
        assert (weights >= p * (1 - p) - 1e-6).all()


@DTYPES
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("k", [2, 4])
def test_stars_are_hessian_and_outer_product(dtype, weighted, k, rng):
    Z = logits(60, k, dtype)
    y = rng.integers(k, size=60).astype(np.int32)
    weight = rng.uniform(0.5, 2.0, 60) if weighted else NONE
    out = np.empty((60, 1 if k == 2 else k))
    z = (Z[:, 1:] - Z[:, :1]) if k == 2 else Z
    _kernels.star_weights(z, y, weight, out)
    for i, row in enumerate(Z.astype(float)):
        p, own = softmax(row), np.eye(k)[y[i]]
        star = np.diag(p) - np.outer(p, p) + np.outer(own - p, own - p)
        others = logsumexp(np.delete(row, y[i]))
        most = bound([[0.0], [1.0]], [row[y[i]] - others]).sigma[0, 0]
        expected = star * min(1.0, most / max(1.0 - p[y[i]], 1e-300))
        expected *= weight[i] if weighted else 1.0
        drawn = out[i, [0, 0]] if k == 2 else out[i]
        same = {"rtol": 1e-3 if dtype == np.float32 else 1e-9, "atol": 1e-12}
        np.testing.assert_allclose(drawn, np.diag(expected), **same)
        edges = [drawn[j] * np.subtract(own, np.eye(k)[j]) for j in range(k)]
        edges = sum(np.outer(e, np.sign(e)) for e in edges)
        np.testing.assert_allclose(edges, expected, **same)


def tile_and_rows(rng, sparse, dtype, intercept, index):
    X = rng.normal(size=(30, 6)).astype(dtype)
    if sparse:
        X = sp.csr_matrix(
            np.where(rng.uniform(size=X.shape) < 0.4, X, 0.0).astype(dtype)
        )
    source = as_source(X)
    batch = source.batch(4, 25)
    rows = (X.toarray() if sparse else X).astype(float)
    taken = rows[4:25]
    if index:
        order = rng.permutation(30).astype(np.int32)
        batch = source.batch(2, 20, index=order)
        taken = rows[order[2:20]]
    if intercept:
        taken = np.column_stack([taken, np.ones(len(taken))])
    ((tile, _),) = tiles(batch, batch.start, batch.stop, intercept)
    return tile, taken


@SPARSE
@DTYPES
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("index", [False, True])
def test_products_of_tiles(sparse, dtype, intercept, index, rng):
    tile, rows = tile_and_rows(rng, sparse, dtype, intercept, index)
    m, p = rows.shape
    M, R, weight = rng.normal(size=(p, 3)), rng.normal(size=(m, 3)), rng.uniform(size=m)
    same = {"atol": 1e-12 if dtype == np.float64 else 2e-5}
    assert tile.times(M).dtype == dtype
    np.testing.assert_allclose(tile.times(M), rows @ M, **same)
    out = np.ones((p, 3))
    tile.add_transposed(R, out)
    np.testing.assert_allclose(out, 1.0 + rows.T @ R, **same)
    out = np.ones((p, 3))
    tile.squared().add_transposed(R, out)
    np.testing.assert_allclose(out, 1.0 + np.square(rows).T @ R, **same)
    out = np.ones((p, p))
    tile.add_gram(weight, out)
    np.testing.assert_allclose(out, 1.0 + (rows.T * weight) @ rows, **same)
    np.testing.assert_allclose(tile.squared().times(M), np.square(rows) @ M, **same)
    S = rng.normal(size=(p, p))
    expected = np.einsum("ij,jk,ik->i", rows, S, rows)
    np.testing.assert_allclose(tile.quadratic(S), expected, rtol=1e-4, atol=1e-4)
    # Few matrices one by one, many by the products of pairs of columns.
    for n in 2, 3 * p:
        S, weights = rng.normal(size=(n, p, p)), rng.normal(size=(m, n))
        expected = np.einsum("ij,sjk,ik->is", rows, S, rows)
        np.testing.assert_allclose(tile.quadratics(S), expected, rtol=1e-4, atol=1e-4)
        expected = np.einsum("is,ij,ik->sjk", weights, rows, rows)
        out = np.ones((n, p, p))
        tile.add_grams(weights, out)
        np.testing.assert_allclose(out, 1.0 + expected, rtol=1e-4, atol=1e-4)


def test_products_of_pairs_are_made_of_some_rows_after_others(rng, monkeypatch):
    monkeypatch.setattr(_tiles, "PRODUCTS", 100)
    x = rng.normal(size=(50, 4))
    S, weights = rng.normal(size=(9, 4, 4)), rng.normal(size=(50, 9))
    tile = _tiles.DenseTile(x, False)
    expected = np.einsum("ij,sjk,ik->is", x, S, x)
    np.testing.assert_allclose(tile.quadratics(S), expected, atol=1e-12)
    expected = np.einsum("is,ij,ik->sjk", weights, x, x)
    out = np.zeros((9, 4, 4))
    tile.add_grams(weights, out)
    np.testing.assert_allclose(out, expected, atol=1e-12)


@DTYPES
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("k", [1, 3])
def test_sums_of_sparse_rows(dtype, weighted, intercept, k, rng):
    """By more rows than are kept in the cache, against those of the dense."""
    X = (rng.normal(size=(150, 5)) * (rng.random((150, 5)) < 0.5)).astype(dtype)
    features = np.column_stack([X, np.ones(150)]) if intercept else X
    ids = rng.permutation(150)[:140].astype(np.int32)
    y = rng.integers(max(k, 2), size=140).astype(np.int32)
    weight = rng.uniform(size=140 if weighted else 0).astype(dtype)
    theta = rng.normal(size=(features.shape[1], k)).astype(dtype)
    Z, loss = np.ascontiguousarray(features[ids] @ theta), np.empty(140, dtype)
    if k == 1:
        _kernels.logistic_residuals(Z[:, 0], y, weight, loss)
    else:
        _kernels.softmax_residuals(Z, y, weight, loss)
    rows, gradient = sp.csr_matrix(X), np.ones(theta.shape)
    parts = rows.data, rows.indices, rows.indptr, ids
    total = _kernels.csr_sums(*parts, intercept, theta, y, weight, gradient)
    tol = {"rtol": 1e-10 if dtype == np.float64 else 1e-4}
    np.testing.assert_allclose(total, loss.sum(), **tol)
    expected = 1.0 + features[ids].T @ Z
    np.testing.assert_allclose(gradient, expected, **tol, atol=tol["rtol"])


@DTYPES
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("ridge", [(1.0, 1.0), (1e-3, 1.0), (0.1, 1e-3)])
def test_visits_of_the_dual(dtype, weighted, intercept, ridge, rng):
    n, d = 40, 9
    X = sp.random_array((n, d), density=0.5, rng=rng, format="csr", dtype=dtype)
    y = rng.integers(2, size=n).astype(np.int8)
    weight = rng.uniform(0.5, 2.0, n) if weighted else NONE
    if weighted:
        weight[7] = 0.0
    w = weight if weighted else np.ones(n)
    dense = X.toarray().astype(float)
    ridges = np.full(d, ridge[0])
    if intercept:
        dense = np.column_stack([dense, np.ones(n)])
        ridges = np.append(ridges, ridge[1])
    residuals, sums, theta = np.zeros(n, np.float32), np.zeros(3), np.zeros(len(ridges))
    rows = as_source(X, weight, y).rows

    def visit(runs, length):
        given = intercept, ridge, y, weight, residuals, theta, sums
        _kernels.dual_visits(*rows[:3], np.array(runs, np.int32), length, *given)

    for i in [*rng.permutation(n), *rng.permutation(n)]:
        r, z, before = float(residuals[i]), dense[i] @ theta, theta.copy()
        sums[:] = 0.0
        visit([i], 1)
        if w[i] == 0.0:
            np.testing.assert_array_equal(theta, before)
            continue
        p = expit(z)
        square = (w[i] * (y[i] - p) - r) ** 2 * (dense[i, :d] @ dense[i, :d])
        expected = [
            w[i] * (np.logaddexp(0.0, z) - y[i] * z),
            square,
            w[i] * p * (1.0 - p),
        ]
        np.testing.assert_allclose(sums, expected, rtol=1e-4, atol=1e-14)
        # The root is found to a hundredth of the equation's error before.
        q = w[i] * dense[i] @ (dense[i] / ridges)
        target = z + q * (y[i] - r / w[i])
        t = brentq(lambda t, q=q, target=target: t + q * expit(t) - target, -1e5, 1e5)
        slack = 0.01 * abs(z + q * p - target)
        low, high = w[i] * (y[i] - expit([t + slack, t - slack]))
        assert low - 1e-7 <= residuals[i] <= high + 1e-7
        # Parameters are in step with the residual as it is kept.
        step = (float(residuals[i]) - r) / ridges * dense[i]
        np.testing.assert_allclose(theta - before, step, rtol=1e-6, atol=1e-9)
    # All rows of runs, the last of which is short.
    residuals[:] = theta[:] = 0.0
    visit(range(6), 7)
    np.testing.assert_array_equal(residuals != 0.0, w > 0.0)


def test_visits_of_the_dual_end_at_its_optimum(rng):
    X = sp.random_array((60, 200), density=0.1, rng=rng, format="csr")
    y, weight = rng.integers(2, size=60).astype(np.int8), rng.uniform(0.1, 3.0, 60)
    residuals, theta, sums = np.zeros(60, np.float32), np.zeros(201), np.zeros(3)
    rows, runs = as_source(X, weight, y).rows, np.arange(60, dtype=np.int32)
    for _ in range(200):
        given = runs, 1, True, (0.5, 2.0), y, weight, residuals, theta, sums
        _kernels.dual_visits(*rows[:3], *given)
    r = weight * (y - expit(X @ theta[:-1] + theta[-1]))
    np.testing.assert_allclose(X.T @ r, 0.5 * theta[:-1], atol=1e-5)
    np.testing.assert_allclose(r.sum(), 2.0 * theta[-1], atol=1e-5)


@SPARSE
@pytest.mark.parametrize("kind", ["gram", "diagonal", "sketch"])
def test_metrics_solve(sparse, kind, rng):
    tile, rows = tile_and_rows(rng, sparse, np.float64, True, False)
    m, p = rows.shape
    columns = 1 if kind == "sketch" else 2
    curvature = Curvature(kind, p, columns, rank=p)
    weight = rng.uniform(size=(m, columns))
    sums = curvature.zeros()
    curvature.add(tile, weight, sums)
    ridge = rng.uniform(0.1, 1.0, p)
    V = rng.normal(size=(p, 2))
    solution = curvature.metric(sums, ridge).solve(V)
    for j in range(2):
        matrix = (rows.T * weight[:, min(j, columns - 1)]) @ rows
        if kind == "diagonal":
            matrix = np.diag(np.diag(matrix))
        matrix += np.diag(ridge)
        # A sketch of full rank is the matrix.
        np.testing.assert_allclose(matrix @ solution[:, j], V[:, j], atol=1e-7)


@SPARSE
def test_the_hessian_of_all_classes(sparse, rng):
    tile, rows = tile_and_rows(rng, sparse, np.float64, True, True)
    (m, p), k = rows.shape, 3
    P, weight = softmax(rng.normal(size=(m, k)), axis=1), rng.uniform(size=m)
    curvature = Curvature("joint", p, k)
    sums = curvature.zeros()
    curvature.add_joint(tile, P, weight, sums)
    expected = np.zeros((k * p, k * p))
    for q, w, x in zip(P, weight, rows, strict=True):
        expected += w * np.kron(np.diag(q) - np.outer(q, q), np.outer(x, x))
    np.testing.assert_allclose(sums.reshape(k * p, -1), expected, atol=1e-12)


@SPARSE
def test_a_joint_metric_solves(sparse, rng):
    tile, rows = tile_and_rows(rng, sparse, np.float64, True, True)
    (m, p), k = rows.shape, 3
    y, weight = rng.integers(k, size=m), rng.uniform(size=(m, k))
    curvature = Curvature("joint", p, k)
    sums = curvature.zeros()
    curvature.add(tile, weight, sums, y)
    expected = np.zeros((k * p, k * p))
    for i, j in np.ndindex(m, k):
        edge = np.kron(np.eye(k)[y[i]] - np.eye(k)[j], rows[i])
        expected += weight[i, j] * np.outer(edge, edge)
    np.testing.assert_allclose(sums.reshape(k * p, -1), expected, atol=1e-12)
    blocks = [expected[a : a + p, a : a + p] for a in range(0, k * p, p)]
    np.testing.assert_allclose(curvature.by_class(sums), blocks, atol=1e-12)
    ridge, V = rng.uniform(0.1, 1.0, p), rng.normal(size=(p, k))
    V -= V.mean(axis=1, keepdims=True)
    solution = curvature.metric(sums, ridge).solve(V)
    np.testing.assert_allclose(solution.sum(axis=1), 0.0, atol=1e-7)
    found = expected @ solution.T.ravel() + np.tile(ridge, k) * solution.T.ravel()
    np.testing.assert_allclose(found, V.T.ravel(), atol=1e-7)


def test_sketches_add_up(rng):
    tile, rows = tile_and_rows(rng, False, np.float64, False, False)
    weight = rng.uniform(size=(len(rows), 1))
    curvature = Curvature("sketch", 6, 1, rank=2)
    sums = curvature.zeros()
    curvature.add(tile, weight, sums)
    gram = (rows.T * weight[:, 0]) @ rows
    np.testing.assert_allclose(sums[:, 0], np.diag(gram))
    np.testing.assert_allclose(sums[:, 1:], gram @ curvature.omega)


def test_woodbury_has_its_minus(rng):
    """V^T S V + D by the metric's own parts, inverted by NumPy."""
    A = rng.normal(size=(40, 9)) * np.geomspace(3.0, 0.1, 9)
    gram, omega = A.T @ A, rng.normal(size=(9, 3))
    ridge = rng.uniform(0.1, 1.0, 9)
    metric = LowRankMetric(np.diag(gram), gram @ omega, omega, ridge)
    np.testing.assert_allclose(metric.V @ metric.V.T, np.eye(3), atol=1e-12)
    matrix = np.diag(1.0 / metric.inverse) + (metric.V.T * metric.S) @ metric.V
    V = rng.normal(size=(9, 2))
    np.testing.assert_allclose(metric.solve(V), np.linalg.solve(matrix, V), atol=1e-8)
    # The diagonal is kept, and the rank takes what is largest.
    np.testing.assert_allclose(np.diag(matrix), np.diag(gram) + ridge, rtol=1e-12)
    diagonal = np.diag(np.diag(gram) + ridge)
    exact = gram + np.diag(ridge)
    assert np.linalg.norm(exact - matrix) < 0.8 * np.linalg.norm(exact - diagonal)


def test_a_sketch_of_more_than_the_rank(rng):
    """Directions without curvature are left out, and are not divided by."""
    A = 1e6 * rng.normal(size=(2, 6)) * [0.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    gram, omega, V = A.T @ A, rng.normal(size=(6, 4)), rng.normal(size=(6, 2))
    ridge = 1e10 * rng.uniform(0.1, 1.0, 6)
    metric = LowRankMetric(np.diag(gram), gram @ omega, omega, ridge)
    assert len(metric.V) == 2
    exact = np.linalg.solve(gram + np.diag(ridge), V)
    np.testing.assert_allclose(metric.solve(V), exact, rtol=1e-7)
    metric = LowRankMetric(np.diag(gram), gram @ omega, omega, np.zeros(6))
    floor = SMALL * np.where(np.arange(6) > 0, np.diag(gram), 1.0)
    assert (metric.inverse * floor <= 1.0 + 1e-12).all()
    assert np.isfinite(metric.solve(V)).all()


def test_a_factor_of_a_singular_matrix():
    x = np.array([[1.0, 2.0, 0.0], [1.0, 2.0, 0.0]])
    factor = Factor(x.T @ x * 1e12)
    solution = factor.solve(np.array([[1.0], [2.0], [0.0]]))
    assert np.isfinite(solution).all() and solution[2] == 0.0


@pytest.mark.parametrize(("excess", "times"), [(0.0, 0), (3e-12, 1), (2e-10, 2)])
def test_a_factor_adds_no_more_than_it_must(excess, times):
    """To a diagonal of ones, where rounding has left a matrix indefinite."""
    matrix = np.array([[4.0, 2.0 * (1.0 + excess)], [2.0 * (1.0 + excess), 1.0]])
    lower = Factor(matrix).lower
    expected = np.array([[1.0, 1.0 + excess], [1.0 + excess, 1.0]])
    expected += np.eye(2) * JITTER * 100.0**times
    np.testing.assert_allclose(lower @ lower.T, expected, rtol=0.0, atol=1e-15)
