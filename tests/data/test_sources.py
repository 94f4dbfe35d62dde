"""Sources of rows in memory and on disk: what partitions hold, and leave alone."""

import tracemalloc
from typing import NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.utils import check_array

from skvrem.data import _source, as_source, column_moments
from skvrem.data._batch import CSRRows, draw
from skvrem.data._source import ArraySource, is_memmap
from skvrem.utils._parallel import threads

N, D = 8003, 4


@pytest.fixture
def X(rng):
    return rng.normal(size=(N, D))


@pytest.fixture
def memmap(X, tmp_path):
    written = np.memmap(tmp_path / "X", X.dtype, "w+", shape=X.shape)
    written[:] = X
    written.flush()
    return np.memmap(tmp_path / "X", X.dtype, "r", shape=X.shape)


@pytest.fixture(params=["array", "csr", "memmap"])
def container(request, X):
    """The same rows, in every container that is not remote."""
    if request.param == "memmap":
        return request.getfixturevalue("memmap")
    return X if request.param == "array" else sp.csr_array(X)


def rows_of(batch):
    """The rows of a batch as a dense array."""
    if isinstance(batch.rows, CSRRows):
        data, indices, indptr, n_features = batch.rows
        shape = (len(indptr) - 1, n_features)
        return sp.csr_array((data, indices, indptr), shape=shape).toarray()[batch.ids]
    return batch.rows[batch.ids]


def stretches(ids):
    """Number of maximal runs of consecutive row numbers."""
    return 1 + int((np.diff(ids) != 1).sum())


class Sums(NamedTuple):
    count: float
    sum_x: np.ndarray


def sums_of(batch):
    rows = rows_of(batch)
    weight = batch.weight[batch.ids] if batch.weight.size else np.ones(len(rows))
    return Sums(float(weight.sum()), weight @ rows)


# Partitions


@pytest.mark.parametrize("n_blocks", [1, 2, 7, 100, N])
def test_blocks_cover_every_row_once(container, n_blocks, rng):
    blocks = as_source(container).blocks(n_blocks, rng)
    batches = list(blocks.map(lambda batch: batch))
    assert len(batches) == len(blocks) == n_blocks
    ids = np.concatenate([batch.ids for batch in batches])
    assert np.array_equal(np.sort(ids), np.arange(N))
    assert [batch.block for batch in batches] == list(range(n_blocks))
    sizes = [batch.n_units for batch in batches]
    assert sizes == [len(batch.ids) for batch in batches]
    assert max(sizes) - min(sizes) <= 1
    assert all((np.diff(batch.ids) > 0).all() for batch in batches)


def test_chunks_are_all_rows_in_storage_order(container):
    chunks = as_source(container).chunks()
    ids = np.concatenate([batch.ids for batch in chunks.map(lambda batch: batch)])
    assert np.array_equal(ids, np.arange(N))
    assert chunks.total_weight == N


def test_chunks_of_many_rows_are_several():
    X = np.broadcast_to(np.zeros((1, 2)), (100_000, 2))
    chunks = as_source(X).chunks()
    assert len(chunks) > 2
    sizes = [batch.n_units for batch in chunks.batches]
    assert sum(sizes) == 100_000
    assert max(sizes) - min(sizes) <= 1


def test_batches_hold_the_rows_that_they_name(container, X, rng):
    for batch in as_source(container).blocks(7, rng).batches:
        assert np.array_equal(rows_of(batch), X[batch.ids])


def test_blocks_are_random(X, rng):
    source = as_source(X)
    blocks = source.blocks(10, rng)
    first = blocks.batches[0].ids
    # Every block comes from all over the array, not from one stretch of it.
    assert first[0] < N / 20 and first[-1] > N - N / 20
    assert stretches(first) > len(first) / 2
    assert not np.array_equal(first, source.blocks(10, rng).batches[0].ids)
    # Means of independent rows, uniform in 0..N: their spread tells random blocks
    # from interleaved ones (near 0) and from contiguous ones (near N / sqrt(12)).
    means = [batch.ids.mean() for batch in blocks.batches]
    expected = N / np.sqrt(12 * N / 10)
    assert 0.3 * expected < np.std(means) < 3 * expected


def test_one_seed_makes_the_same_blocks(container):
    a, b = (as_source(container).blocks(10, np.random.default_rng(5)) for _ in range(2))
    for one, other in zip(a.batches, b.batches, strict=True):
        assert np.array_equal(one.ids, other.ids)


def test_shuffled_visits_each_batch_once_in_changing_order(container, rng):
    partition = as_source(container).blocks(20, rng)
    epochs = [[batch.block for batch in partition.shuffled(rng)] for _ in range(2)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(20))
    assert epochs[0] != epochs[1]
    assert epochs[0] != sorted(epochs[0])


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_threads", [1, 2])
def test_sum_is_the_reduction_over_all_rows(container, X, weighted, n_threads, rng):
    weight = rng.uniform(size=N) if weighted else None
    source = as_source(container, weight)
    expected = np.ones(N) @ X if weight is None else weight @ X
    for partition in (source.chunks(), source.blocks(9, rng)):
        with threads(n_threads):
            total = partition.sum(sums_of)
        assert np.isclose(total.count, partition.total_weight, rtol=1e-12)
        np.testing.assert_allclose(total.sum_x, expected, rtol=0, atol=1e-9)


# Memory maps


@pytest.fixture
def in_runs(monkeypatch):
    """Let maps of any size be read as those that memory does not hold."""
    monkeypatch.setattr("skvrem.data._source.MEMMAP_LEAST_BYTES", 0)


@pytest.mark.usefixtures("in_runs")
def test_blocks_of_a_memmap_are_made_of_runs(memmap, rng):
    n_blocks = 10
    source = as_source(memmap)
    assert source.run > 1
    partition = source.blocks(n_blocks, rng)
    run = N // (8 * n_blocks)  # shorter than a page run, as the array is small
    for batch in partition.batches:
        # Two runs may be cut by the block's ends, one is short at the array's end.
        assert stretches(batch.ids) <= batch.n_units // run + 3
        assert stretches(batch.ids) > 2  # drawn from several places all the same


@pytest.mark.usefixtures("in_runs")
def test_run_of_a_memmap_is_a_number_of_bytes(tmp_path):
    for d in (1, 16):
        X = np.memmap(tmp_path / f"X{d}", np.float32, "w+", shape=(10, d))
        assert as_source(X).run == (1 << 18) // (4 * d)


def test_blocks_of_a_small_memmap_are_those_of_an_array(X, memmap, monkeypatch):
    drawn = [
        np.concatenate([batch.ids for batch in partition.batches])
        for partition in (
            as_source(rows).blocks(10, np.random.default_rng(0)) for rows in (X, memmap)
        )
    ]
    np.testing.assert_array_equal(*drawn)
    for least, in_runs in ((memmap.nbytes - 1, True), (memmap.nbytes, False)):
        monkeypatch.setattr("skvrem.data._source.MEMMAP_LEAST_BYTES", least)
        assert (as_source(memmap).run > 1) == in_runs


@pytest.mark.usefixtures("in_runs")
def test_memmap_survives_validation(memmap):
    # What estimators do before they ask for a source: the map must not be read.
    validated = check_array(memmap, dtype=(np.float64, np.float32), order="C")
    assert is_memmap(validated)
    assert np.shares_memory(as_source(validated).rows, memmap)
    assert as_source(validated).run > 1


def test_is_memmap(memmap, X):
    view = memmap.view()
    view.flags.writeable = False
    for mapped in (memmap, memmap[10:20], memmap.T, np.asarray(memmap), view[:5, 1:]):
        assert is_memmap(mapped)
    for unmapped in (X, X[3:], np.array(memmap), sp.csr_array(X), [[1.0]], None):
        assert not is_memmap(unmapped)


def test_what_is_computed_from_a_memmap_is_no_memmap(memmap):
    # numpy gives these arrays of their own, whose base is an empty-handed memmap.
    assert not is_memmap(memmap[[3, 1, 2]])
    assert not is_memmap(memmap + 1.0)


def mapped_csr(X, folder, index, indptr):
    """A CSR array whose parts are memory maps of these types, which scipy unifies."""
    parts = X.data, X.indices.astype(index), X.indptr.astype(indptr)
    mapped = sp.csr_array(X.shape, dtype=X.dtype)
    for name, part in zip(("data", "indices", "indptr"), parts, strict=True):
        part.tofile(folder / name)
        setattr(mapped, name, np.memmap(folder / name, part.dtype, "r"))
    return mapped


@pytest.mark.usefixtures("in_runs")
@pytest.mark.parametrize("index, indptr", [("i4", "i4"), ("i4", "i8"), ("i8", "i8")])
def test_parts_of_a_mapped_csr_array_are_taken_in_place(X, tmp_path, index, indptr):
    whole = sp.csr_array(np.where(X > 0.5, X, 0.0))
    mapped = mapped_csr(whole, tmp_path, index, indptr)
    source = as_source(check_array(mapped, accept_sparse="csr"))
    for part, mine in zip(source.rows, arrays_of(mapped), strict=False):
        assert np.shares_memory(part, mine)
    assert source.run > 1
    assert np.array_equal(rows_of(source.batch(0, N)), whole.toarray())


def test_positions_in_a_large_csr_array_are_not_cut(monkeypatch):
    few = sp.csr_array(np.eye(3))
    rows = as_source(few).rows
    assert (rows.indices.dtype, rows.indptr.dtype) == (np.int32, np.int32)
    monkeypatch.setattr(type(few), "nnz", 2**31)
    few.indptr = few.indptr.astype(np.int64)
    assert as_source(few).rows.indptr.dtype == np.int64


@pytest.mark.parametrize("size", [20_000, 99_999])
def test_a_sample_is_as_uniform_as_one_by_permutation(size, rng):
    n, times = 200_000, np.zeros(200_000, int)
    for _ in range(100):
        drawn = draw(n, size, rng)
        assert drawn.size == size
        assert drawn[0] >= 0
        assert drawn[-1] < n
        assert (np.diff(drawn) > 0).all()
        times[drawn] += 1
    share = size / n
    variance = 100 * share * (1.0 - share)
    assert abs(times.var() / variance - 1.0) < 0.02
    halves = times.reshape(2, -1).sum(axis=1)
    assert abs(halves[0] - 100 * size / 2) < 5.0 * np.sqrt(n / 2 * variance)


@pytest.mark.parametrize("run", [1, 777])
def test_a_partition_costs_four_bytes_a_unit(run):
    X = np.broadcast_to(np.float32(0.0), (1_000_000, 2))
    source = ArraySource(X, len(X), np.empty(0), run)
    tracemalloc.start()
    source.blocks(50, np.random.default_rng(0))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4.2 * len(X)


# What belongs to the caller


def arrays_of(container):
    if sp.issparse(container):
        return [container.data, container.indices, container.indptr]
    return [container]


@pytest.mark.parametrize("kind", ["array", "csr"])
def test_rows_are_read_only_views(kind, X, rng):
    container = X if kind == "array" else sp.csr_array(X)
    before = [array.copy() for array in arrays_of(container)]
    weight = rng.uniform(size=N)
    source = as_source(container, weight)
    batch = next(source.blocks(3, rng).shuffled(rng))
    rows = batch.rows[:3] if isinstance(batch.rows, CSRRows) else [batch.rows]
    for mine, theirs in zip(
        [*rows, batch.weight], [*arrays_of(container), weight], strict=True
    ):
        assert np.shares_memory(mine, theirs)  # no copy
        assert not mine.flags.writeable
        assert theirs.flags.writeable  # and theirs is as it was
    with pytest.raises(ValueError, match="read-only"):
        batch.index[0] = 0
    for array, old in zip(arrays_of(container), before, strict=True):
        assert np.array_equal(array, old)


def test_weights_are_float64_and_count(X):
    weight = np.zeros(N, np.float32)
    weight[::3] = 2
    source = as_source(X, weight)
    assert source.weight.dtype == np.float64
    assert source.total_weight == 2.0 * len(weight[::3])
    assert source.n_weighted == len(weight[::3])
    assert source.n_units == N
    plain = as_source(X)
    assert plain.weight.dtype == np.float64  # kernels see one type
    assert plain.weight.size == 0
    assert (plain.total_weight, plain.n_weighted) == (N, N)


def test_total_weight_of_a_batch(X, rng):
    weight = rng.uniform(size=N)
    for batch in as_source(X, weight).blocks(6, rng).batches:
        assert batch.total_weight == pytest.approx(weight[batch.ids].sum(), rel=1e-12)
    for batch in as_source(X).blocks(6, rng).batches:
        assert batch.total_weight == batch.n_units


# Samples


def test_sample_is_without_replacement(container, X, rng):
    source = as_source(container)
    a, b = source.sample(500, rng), source.sample(500, rng)
    for batch in (a, b):
        assert batch.n_units == len(batch.ids) == 500
        assert (np.diff(batch.ids) > 0).all()  # distinct, and in storage order
        assert np.array_equal(rows_of(batch), X[batch.ids])
        assert not batch.index.flags.writeable
    assert not np.array_equal(a.ids, b.ids)


def test_sample_of_more_rows_than_there_are_is_all_of_them(container, rng):
    assert np.array_equal(as_source(container).sample(2 * N, rng).ids, np.arange(N))


def test_sample_is_uniform(rng):
    source = as_source(np.zeros((20, 1)))
    drawn = np.concatenate([source.sample(5, rng).ids for _ in range(2000)])
    counts = np.bincount(drawn, minlength=20)
    # Binomial with mean 500 and sd 19: five sd either side.
    assert np.abs(counts - 500).max() < 95


def test_index_is_32_bits_where_that_is_enough(rng):
    few = as_source(np.zeros((10, 1)))
    for batch in (few.sample(3, rng), few.blocks(2, rng).batches[0], few.batch(0, 3)):
        assert batch.index.dtype == np.int32
    # Two thousand million rows of one stored number.
    rows = np.broadcast_to(np.zeros((1, 1)), (2**31, 1))
    many = ArraySource(rows, len(rows), np.empty(0))
    assert many.sample(3, rng).index.dtype == np.int64
    assert many.batch(0, 3).index.dtype == np.int64


# CSR


def test_csr_rows_keep_their_arrays():
    matrix = sp.random(50, 30, density=0.1, format="csr", random_state=0)
    source = as_source(matrix)
    assert (source.n_units, source.n_features) == (50, 30)
    assert np.shares_memory(source.rows.data, matrix.data)
    assert not source.remote
    batch = source.batch(10, 14)
    assert np.array_equal(batch.ids, [10, 11, 12, 13])
    assert np.array_equal(rows_of(batch), matrix.toarray()[10:14])


def test_empty_csr_rows_are_units_too(rng):
    matrix = sp.csr_array((6, 4))
    ids = [batch.ids for batch in as_source(matrix).blocks(3, rng).batches]
    assert np.array_equal(np.sort(np.concatenate(ids)), np.arange(6))


def test_moments_of_columns_without_an_entry():
    rows = sp.csr_array((5, 2), dtype=np.int64)
    moments = column_moments(as_source(rows)).weighted
    np.testing.assert_array_equal(moments.mean, [0.0, 0.0])
    np.testing.assert_array_equal(moments.square, [0.0, 0.0])


@pytest.mark.parametrize("weighted", [False, True])
def test_moments_of_columns_are_those_of_all_blocks(weighted, monkeypatch):
    monkeypatch.setattr(_source, "CHUNK_ROWS", 30)
    rng = np.random.default_rng(0)
    X = 100.0 + rng.normal(size=(100, 3)) * [1.0, 1e-3, 0.0]
    weight = rng.integers(0, 3, size=100).astype(float) if weighted else None
    of_some = as_source(X, weight, targets=X[:, 0]).sample(50, rng)
    for source in (as_source(X, weight, targets=X[:, 0]), of_some):
        both, ids = column_moments(source, targets=True), np.arange(100)
        ids = source.ids if source is of_some else ids
        rows = X[ids][:, [0, 1, 2, 0]]
        counts = np.ones(len(ids)) if weight is None else weight[ids]
        mean = np.average(rows, axis=0, weights=counts)
        spread = np.average(np.square(rows - mean), axis=0, weights=counts)
        np.testing.assert_allclose(both.weighted.mean, mean, rtol=1e-12)
        np.testing.assert_allclose(both.weighted.deviation, np.sqrt(spread), rtol=1e-6)
        np.testing.assert_allclose(both.plain.mean, rows.mean(axis=0), rtol=1e-12)
