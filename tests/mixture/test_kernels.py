"""Mixture kernels against sums over rows and components written out in NumPy."""

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy.special import logsumexp

from skvrem.mixture import _kernels
from skvrem.utils._algebra import read_only

KINDS = ["full", "diag", "diag_missing"]
DTYPES = [np.float64, np.float32]
EVERY_ROW = np.empty(0, np.int32)
ONES = np.empty(0)


def make(kind, n=300, d=5, k=3, dtype=np.float64, seed=0, spread=1.0, shift=0.0):
    """Draw rows and the parameters of a mixture that overlaps at spread 1."""
    rng = np.random.default_rng(seed)
    X = (rng.normal(size=(n, d)) * spread + shift).astype(dtype)
    if kind == "diag_missing":
        X[rng.random((n, d)) < 0.2] = np.nan
    means = rng.normal(size=(k, d)) + shift
    weights = rng.dirichlet(np.full(k, 5.0))
    if kind == "full":
        precisions = np.triu(rng.normal(size=(k, d, d)) * 0.3, 1)
        diagonal = rng.uniform(0.5, 2.0, (k, d))
        precisions[:, np.arange(d), np.arange(d)] = diagonal
    else:
        precisions = rng.uniform(0.5, 2.0, (k, d))
    return X, weights, means, precisions


def oracle_log_joint(kind, X, weights, means, precisions):
    X = X.astype(np.float64)
    roots = np.diagonal(precisions, axis1=1, axis2=2) if kind == "full" else precisions
    with np.errstate(divide="ignore"):
        constants = np.log(weights) + np.log(roots).sum(1)
    constants -= X.shape[1] / 2 * math.log(2 * np.pi)
    out = np.empty((len(X), len(means)))
    for i, x in enumerate(X):
        for c, mean in enumerate(means):
            z = x - mean
            seen = ~np.isnan(z)
            if kind == "full":
                y, skipped = z @ precisions[c], 0.0
            else:
                y = (z * precisions[c])[seen]
                skipped = np.log(precisions[c][~seen]) - 0.5 * math.log(2 * math.pi)
            out[i, c] = constants[c] - np.sum(skipped) - 0.5 * np.sum(y**2)
    return out


def oracle(kind, X, weights, means, precisions, weight, beta):
    joint = oracle_log_joint(kind, X, weights, means, precisions)
    evidence = logsumexp(beta * joint, axis=1)
    r = weight[:, None] * np.exp(beta * joint - evidence[:, None])
    z = X.astype(np.float64)[:, None] - means
    if kind == "full":
        second = np.einsum("nk,nki,nkj->kij", r, z, z)
    else:
        variances = np.broadcast_to(precisions**-2.0, z.shape)
        second = np.einsum("nk,nkj->kj", r, np.where(np.isnan(z), variances, z**2))
    first = np.einsum("nk,nkj->kj", r, np.where(np.isnan(z), 0, z))
    objective = np.sum(weight * evidence) / beta
    expected = np.sum(np.where(r > 0, r * np.where(r > 0, joint, 0), 0))
    return r.sum(0), first, second, (objective, objective - expected)


def add_statistics(
    sums,
    kind,
    X,
    problem,
    index=EVERY_ROW,
    rows=None,
    weight=ONES,
    beta=1.0,
    about=None,
):
    weights, means, precisions = problem
    start, stop = rows or (0, len(index) or len(X))
    variances = precisions**-2.0 if kind == "diag_missing" else None
    of_rows = read_only(X), index, start, stop, weight
    about = means if about is None else about
    _kernels.visit_rows(*of_rows, *problem, beta, variances, about, sums, None)
    cuts = np.cumsum([len(weights), means.size, precisions.size])
    sum_w, sum_x, sum_xx, numbers = np.split(sums, cuts)
    return sum_w, sum_x.reshape(means.shape), sum_xx.reshape(precisions.shape), numbers


def statistics(kind, X, problem, *args, **kwargs):
    size = sum(part.size for part in problem) + 2
    return add_statistics(np.zeros(size), kind, X, problem, *args, **kwargs)


def log_joint(kind, X, problem, index=EVERY_ROW, rows=None):
    start, stop = rows or (0, len(index) or len(X))
    weights, means, _ = problem
    out = np.full((stop - start, len(weights)), np.nan, X.dtype)
    missing = means if kind == "diag_missing" else None
    of_rows = read_only(X), index, start, stop, ONES
    _kernels.visit_rows(*of_rows, *problem, 1.0, missing, means, None, out)
    return out


def assert_close(found, expected, dtype):
    """Compare each statistic relative to its largest entry."""
    tolerance = 1e-12 if dtype == np.float64 else 2e-5
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * np.abs(b).max())


@pytest.mark.parametrize("d", [1, 2, 3, 4, 5, 6, 7, 8, 10, 13, 24, 35, 50])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_statistics(kind, dtype, d):
    X, *problem = make(kind, d=d, dtype=dtype)
    expected = oracle(kind, X, *problem, np.ones(len(X)), 1.0)
    assert_close(statistics(kind, X, problem), expected, dtype)


@pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 255, 256, 257, 1000])
@pytest.mark.parametrize("k", [1, 4])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_sizes(kind, dtype, n, k):
    X, *problem = make(kind, n=n, k=k, dtype=dtype)
    expected = oracle(kind, X, *problem, np.ones(n), 1.0)
    assert_close(statistics(kind, X, problem), expected, dtype)


@pytest.mark.parametrize("n, d", [(1, 1), (17, 3), (300, 10), (600, 21), (130, 70)])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_log_joint(kind, dtype, n, d):
    X, *problem = make(kind, n=n, d=d, dtype=dtype)
    expected = oracle_log_joint(kind, X, *problem)
    found = log_joint(kind, X, problem)
    assert found.dtype == dtype
    tolerance = 1e-12 if dtype == np.float64 else 2e-5
    np.testing.assert_allclose(found, expected, rtol=tolerance)
    index = np.arange(n, dtype=np.int32)[::-1].copy()
    part = log_joint(kind, X, problem, index, (n // 3, n))
    np.testing.assert_allclose(part, expected[::-1][n // 3 :], rtol=tolerance)


@pytest.mark.parametrize("beta", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("kind", KINDS)
def test_index_weight_and_temperature(kind, beta):
    X, *problem = make(kind, n=1200)
    rng = np.random.default_rng(1)
    weight = rng.uniform(0, 2, len(X))
    weight[::7] = 0.0
    index = np.sort(rng.choice(len(X), 700, replace=False)).astype(np.int32)
    chosen = index[100:650]
    expected = oracle(kind, X[chosen], *problem, weight[chosen], beta)
    found = statistics(kind, X, problem, index, (100, 650), weight, beta)
    assert_close(found, expected, X.dtype)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_index_equals_copy(kind, dtype):
    X, *problem = make(kind, n=700, dtype=dtype)
    index = np.random.default_rng(1).permutation(len(X)).astype(np.int32)
    assert_close(
        statistics(kind, X, problem, index, (10, 690)),
        statistics(kind, X[index[10:690]].copy(), problem),
        dtype,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_rows_add_up(kind):
    X, *problem = make(kind, n=900)
    whole = statistics(kind, X, problem)
    bounds = [0, 1, 300, 557, 900]
    parts = [statistics(kind, X, problem, rows=rows) for rows in pairwise(bounds)]
    assert_close([sum(part) for part in zip(*parts, strict=True)], whole, X.dtype)
    empty = statistics(kind, X, problem, rows=(4, 4))
    assert all(np.all(part == 0) for part in empty)


@pytest.mark.parametrize("kind", KINDS)
def test_adds_to_what_is_there(kind):
    X, *problem = make(kind)
    sums = np.ones(sum(part.size for part in problem) + 2)
    found = add_statistics(sums, kind, X, problem)
    expected = statistics(kind, X, problem)
    assert_close([part - 1 for part in found], expected, X.dtype)


@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.parametrize("kind", ["full", "diag"])
def test_sums_are_about_a_reference(kind, d):
    X, *problem = make(kind, d=d)
    about = np.random.default_rng(1).normal(size=problem[1].shape)
    sum_w, _, _, numbers = statistics(kind, X, problem)
    joint = oracle_log_joint(kind, X, *problem)
    r = np.exp(joint - logsumexp(joint, axis=1, keepdims=True))
    z = X[:, None] - about
    terms = "nk,nki,nkj->kij" if kind == "full" else "nk,nki,nki->ki"
    expected = sum_w, np.einsum("nk,nki->ki", r, z), np.einsum(terms, r, z, z), numbers
    found = statistics(kind, X, problem, about=about)
    assert_close(found, expected, X.dtype)
    if kind == "full":
        np.testing.assert_array_equal(found[2], found[2].swapaxes(1, 2))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_shared_has_an_axis_of_length_one(kind):
    X, weights, means, precisions = make(kind)
    one = precisions[:1] if kind == "full" else precisions[:, :1]
    all_of_them = np.broadcast_to(one, precisions.shape).copy()
    expected = statistics(kind, X, (weights, means, all_of_them))
    sums = np.zeros(sum(part.size for part in (weights, means, precisions)) + 2)
    variances = all_of_them**-2.0 if kind == "diag_missing" else None
    of_rows = read_only(X), EVERY_ROW, 0, len(X), ONES
    how = one.copy(), 1.0, variances, means
    _kernels.visit_rows(*of_rows, weights, means, *how, sums, None)
    np.testing.assert_array_equal(sums, np.concatenate(list(map(np.ravel, expected))))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_read_only(kind, dtype):
    X, *problem = make(kind, dtype=dtype)
    expected = statistics(kind, X, problem)
    for array in (X, *problem):
        array.flags.writeable = False
    found = statistics(kind, X, problem)
    assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))
    assert np.all(np.isfinite(log_joint(kind, X, problem)))


@pytest.mark.parametrize("d", [5, 24, 40])
@pytest.mark.parametrize("dtype", DTYPES)
def test_separated_clusters(dtype, d):
    # Most responsibilities vanish, so that their rows are left out.
    X, *problem = make("full", n=1500, d=d, k=6, dtype=dtype)
    rng = np.random.default_rng(1)
    problem[1] *= 40
    X += problem[1][rng.integers(6, size=len(X))].astype(dtype)
    weight = rng.uniform(0, 2, len(X))
    expected = oracle("full", X, *problem, weight, 1.0)
    assert_close(statistics("full", X, problem, weight=weight), expected, dtype)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_far_rows(kind, dtype):
    # Every exp(l) underflows; the responsibilities do not.
    X, *problem = make(kind, n=64, dtype=dtype, spread=100.0)
    expected = oracle(kind, X, *problem, np.ones(64), 1.0)
    found = statistics(kind, X, problem)
    if dtype == np.float64:
        assert_close(found, expected, dtype)
    assert all(np.all(np.isfinite(part)) for part in found)
    np.testing.assert_allclose(found[0].sum(), 64, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_beyond_the_dtype(kind, dtype):
    # |y|^2 overflows: no density anywhere, no responsibility, and no NaN.
    X, *problem = make(kind, n=40, d=3, dtype=dtype)
    X[7] = 1e25 if dtype == np.float32 else 1e200
    *sums, (objective, _) = statistics(kind, X, problem)
    others = statistics(kind, np.delete(X, 7, axis=0), problem)
    assert_close(sums, others[:3], dtype)
    assert objective == -np.inf
    assert np.all(log_joint(kind, X, problem)[7] == -np.inf)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_component_without_weight(kind, dtype):
    X, *problem = make(kind, dtype=dtype)
    problem[0][1] = 0.0
    found = statistics(kind, X, problem)
    keep = [0, 2]
    others = statistics(kind, X, [part[keep] for part in problem])
    assert_close([part[keep] for part in found[:3]], others[:3], dtype)
    assert_close(found[3:], others[3:], dtype)
    assert all(np.all(part[1] == 0) for part in found[:3])
    joint = log_joint(kind, X, problem)
    assert np.all(joint[:, 1] == -np.inf)
    assert not np.any(np.isnan(joint))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_zero_temperature_is_k_means(kind, dtype):
    X, _, means, _ = make("full" if kind == "full" else "diag", dtype=dtype)
    precisions = np.stack([np.eye(5)] * 3) if kind == "full" else np.ones((3, 5))
    found = statistics(kind, X, (np.ones(3), means, precisions), beta=1e8)
    squares = np.sum((X[:, None] - means) ** 2, axis=2)
    nearest = squares.argmin(1)
    np.testing.assert_allclose(found[0], np.bincount(nearest, minlength=3))
    first = [np.sum(X[nearest == c] - means[c], axis=0) for c in range(3)]
    np.testing.assert_allclose(found[1], first, rtol=1e-4, atol=1e-4)
    if kind != "diag_missing":
        expected = -0.5 * (squares.min(1).sum() + X.size * math.log(2 * np.pi))
        assert found[3][0] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("kind", ["full", "diag"])
def test_ties_are_shared(kind):
    X, *problem = make(kind, k=1)
    double = [np.repeat(part, 2, axis=0) for part in problem]
    one = statistics(kind, X, problem, beta=1e8)
    two = statistics(kind, X, double, beta=1e8)
    assert_close([2 * part[1] for part in two[:3]], [p[0] for p in one[:3]], X.dtype)


@pytest.mark.parametrize("kind", ["full", "diag"])
def test_large_offset_does_not_cancel(kind):
    X, *problem = make(kind, shift=1e6)
    expected = oracle(kind, X, *problem, np.ones(len(X)), 1.0)
    for a, b in zip(statistics(kind, X, problem), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-11 * np.abs(b).max())


@pytest.mark.parametrize("dtype", DTYPES)
def test_row_with_nothing_observed(dtype):
    X, _, means, precisions = make("diag_missing", n=1, dtype=dtype)
    X[:] = np.nan
    weights = np.array([0.2, 0.3, 0.5])
    *sums, ends = statistics("diag_missing", X, (weights, means, precisions))
    rtol = 1e-12 if dtype == np.float64 else 1e-6
    np.testing.assert_allclose(sums[0], weights, rtol=rtol)
    np.testing.assert_array_equal(sums[1], 0)
    np.testing.assert_allclose(sums[2], weights[:, None] / precisions**2, rtol=rtol)
    assert ends[0] == pytest.approx(0, abs=rtol)


@pytest.mark.parametrize("dtype", DTYPES)
def test_nothing_missing_is_diag(dtype):
    X, *problem = make("diag", n=500, dtype=dtype)
    found = statistics("diag_missing", X, problem)
    assert_close(found, statistics("diag", X, problem), dtype)


@pytest.mark.parametrize("kind", KINDS)
def test_means_gradient(kind):
    # d objective / d mean = U U^T sum_x, so sums and objective are of one function.
    X, weights, means, precisions = make(kind)
    first = statistics(kind, X, (weights, means, precisions))[1]
    if kind == "full":
        gradient = np.einsum("kij,klj,kl->ki", precisions, precisions, first)
    else:
        gradient = precisions**2 * first
    for c, j in [(0, 0), (1, 3), (2, 4)]:
        ends = []
        for sign in (1, -1):
            moved = means.copy()
            moved[c, j] += sign * 1e-5
            ends.append(statistics(kind, X, (weights, moved, precisions))[3][0])
        assert gradient[c, j] == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-6)
