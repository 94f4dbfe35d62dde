"""Some rows of a source, drawn as their weights say."""

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp

from skvrem.data import _kept, as_source, drawn_rows, rows_of
from skvrem.data._dask import Columns, open_blocks
from skvrem.data._source import ArraySource
from skvrem.topics._blocks import open_documents
from skvrem.topics._documents import as_documents

N = 500


@pytest.fixture
def X():
    return np.arange(N, dtype=float)[:, None] + 1.0


def drawn(X, size, weight=None, seed=0):
    data, rng = as_source(X, weight), np.random.default_rng(seed)
    rows, weight, targets = drawn_rows(data, size, rng, np.arange(X.shape[0]))
    rows = rows.toarray() if sp.issparse(rows) else rows
    return rows, weight, targets, rng.random()


@pytest.mark.parametrize("size", [20, 200, N, 2 * N])
@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_rows_of_weight_zero_are_as_if_removed(container, size, X, rng):
    told = rng.random(N) < 0.3
    rows, weight, targets, after = drawn(container(X), size, told.astype(float))
    expected, _, own, then = drawn(container(X[told]), size)
    np.testing.assert_array_equal(rows, expected)
    np.testing.assert_array_equal(targets, np.flatnonzero(told)[own])
    assert (weight == 1.0).all() and after == then


@pytest.mark.parametrize("size", [20, 300])
def test_rows_of_whole_weights_are_as_if_repeated(size, X, rng):
    times = rng.integers(5, size=N)
    rows, weight, *_ = drawn(X, size, times.astype(float))
    expected, *_ = drawn(np.repeat(X, times, axis=0), size)
    np.testing.assert_array_equal(np.repeat(rows, weight.astype(int), axis=0), expected)


def test_few_rows_are_all_taken_with_their_weights(X, rng):
    weight = rng.uniform(1.0, 100.0, N)
    rows, own, *_ = drawn(X, N, weight)
    np.testing.assert_array_equal(rows, X)
    np.testing.assert_array_equal(own, weight)


@pytest.mark.parametrize("total", [60.0, 3e4, 1e12, 1e25])
def test_shares_are_those_of_the_weights(total, X, rng):
    weight = np.tile([0.3, 0.7, 0.0, 2.0, 1.0], N // 5) * rng.uniform(0.5, 1.5, N)
    weight *= total / weight.sum()
    found = np.zeros(N)
    for seed in range(400):
        _, own, targets, _ = drawn(X, 100, weight, seed)
        assert own.sum() == pytest.approx(min(total, 100))
        found[targets] += own / own.sum()
    expected = 400 * weight / weight.sum()
    assert found[weight == 0].sum() == 0.0
    assert np.abs(found - expected).max() < 1.0
    for part in (slice(0, None, 5), slice(1, None, 5), slice(3, None, 5)):
        assert found[part].sum() == pytest.approx(expected[part].sum(), rel=0.05)


@pytest.mark.parametrize("size", [30, 400])
@pytest.mark.parametrize("whole", [False, True])
def test_of_blocks_they_are_those_of_memory(whole, size, X, rng):
    weight = rng.integers(4, size=N) if whole else rng.uniform(size=N)
    weight = weight * (np.arange(N) // 100 % 2)  # some blocks have none
    columns = Columns(weight=weight.astype(float), targets=np.arange(N))
    data, _ = open_blocks(da.from_array(X, (100, 1)), lambda *_: None, columns)
    found = drawn_rows(data, size, np.random.default_rng(0))
    expected = drawn(X, size, weight.astype(float))
    for own, other in zip(found, expected[:3], strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-12)


def some_told(share, rng):
    return (rng.random(N) < share).astype(float)


def rows_of_sample(batch):
    rows = _kept.container(batch.rows)[batch.ids]
    return rows.toarray() if sp.issparse(rows) else rows


@pytest.mark.parametrize("size", [20, N])
@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_of_a_sample_rows_of_weight_zero_are_as_if_removed(container, size, X, rng):
    weight = some_told(0.3, rng)
    told = np.flatnonzero(weight)
    both = as_source(container(X), weight), as_source(container(X[told]))
    for draws in both, [data.chunks().batches[0] for data in both]:
        found, expected = (
            rows_of_sample(data.sample(size, np.random.default_rng(0)))
            for data in draws
        )
        np.testing.assert_array_equal(found, expected)


def test_of_rows_without_any_weight_some_are_drawn(X, rng):
    data = as_source(X, np.zeros(N))
    assert data.sample(20, rng).n_units == 20
    assert data.chunks().batches[0].sample(20, rng).n_units == 20


@pytest.mark.parametrize("size", [20, N])
def test_of_a_sample_of_blocks_they_are_those_of_memory(size, X, rng):
    weight = some_told(0.3, rng) * (np.arange(N) // 100 % 2)
    columns = Columns(weight=weight)
    data, _ = open_blocks(da.from_array(X, (100, 1)), lambda *_: None, columns)
    expected = as_source(X, weight).sample(size, np.random.default_rng(0))
    found = data.sample(size, np.random.default_rng(0))
    np.testing.assert_array_equal(rows_of_sample(found), rows_of_sample(expected))
    some = data.some(size, np.random.default_rng(0))
    assert some.n_units == some.n_weighted == expected.n_units
    rows = some.fetch(np.arange(some.n_units)).rows
    np.testing.assert_array_equal(rows, rows_of_sample(expected))


@pytest.mark.parametrize("size", [20, N])
def test_of_a_sample_documents_of_weight_zero_are_as_if_removed(size, X, rng):
    weight, counts = some_told(0.3, rng), sp.csr_array(X)
    told = np.flatnonzero(weight)
    both = as_documents(counts, weight), as_documents(counts[told])
    found, expected = (
        data.sample(size, np.random.default_rng(0)).rows.counts for data in both
    )
    np.testing.assert_array_equal(found, expected)
    lazy = da.from_array(X, (100, 1)).map_blocks(sp.csr_array)
    blocks = open_documents(lazy, weight, np.float64, lambda *_: None)
    remote = blocks.sample(size, np.random.default_rng(0)).rows.counts
    np.testing.assert_array_equal(remote, expected)


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_rows_of_weight_zero_are_left_out_where_they_are_many(container, X, rng):
    weight, ids = some_told(0.3, rng), np.arange(N)
    told = np.flatnonzero(weight)
    data = as_source(container(X), weight, ids, -ids).without_weightless()
    assert data.n_units == data.n_weighted == told.size
    rows, own = rows_of(data)
    rows = rows.toarray() if sp.issparse(rows) else rows
    np.testing.assert_array_equal(rows, X[told])
    np.testing.assert_array_equal(own, weight[told])
    np.testing.assert_array_equal(data.targets, told)
    np.testing.assert_array_equal(data.groups, -told)


@pytest.mark.parametrize("share", [0.7, 1.0])
def test_of_rows_that_mostly_count_no_copy_is_made(share, X, rng):
    data = as_source(X, some_told(share, rng))
    assert data.without_weightless() is data
    data = ArraySource(X, N, some_told(0.1, rng), run=2)  # a large memory map
    assert data.without_weightless() is data
