"""Documents in memory: batches are small matrices that partition the counts."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

from skvrem.topics._documents import as_documents

N, V = 203, 50


@pytest.fixture
def X(rng):
    X = rng.poisson(rng.gamma(0.3, size=(N, V)))
    X[[0, 77, N - 1]] = 0
    return X


def canonical(X):
    return sp.csr_array(X)


def unsorted(X):
    """Columns in falling order within each row."""
    X = sp.csr_array(X)
    order = np.concatenate(
        [
            np.arange(a, e)[::-1]
            for a, e in zip(X.indptr[:-1], X.indptr[1:], strict=True)
        ]
    )
    return sp.csr_array((X.data[order], X.indices[order], X.indptr), shape=X.shape)


def duplicate(X):
    """Every count as two entries, which add up to it."""
    X = sp.csr_array(X)
    parts = np.stack([X.data - X.data // 2, X.data // 2], axis=1).ravel()
    return sp.csr_array((parts, np.repeat(X.indices, 2), 2 * X.indptr), shape=X.shape)


def explicit_zeros(X):
    """All cells of every third column are stored."""
    rows, columns = np.nonzero((X > 0) | (np.arange(V) % 3 == 0))
    X = sp.coo_array((X[rows, columns], (rows, columns)), shape=X.shape)
    return sp.csr_array(X)


def wide_indices(X):
    X = sp.csr_array(X)
    parts = X.data, X.indices.astype(np.int64), X.indptr.astype(np.int64)
    return sp.csr_array(parts, shape=X.shape)


def spmatrix(X):
    return sp.csr_matrix(X)


CONTAINERS = [
    canonical,
    unsorted,
    duplicate,
    explicit_zeros,
    wide_indices,
    spmatrix,
    np.asarray,
    np.asfortranarray,
]
EVERY_CONTAINER = pytest.mark.parametrize("make", CONTAINERS)


def dense(batch):
    """A batch as rows of an array over the whole vocabulary."""
    counts, index, indptr, words, n_features = batch.rows
    columns = words[index] if words.size else index
    found = np.zeros((len(indptr) - 1, n_features))
    rows = np.repeat(np.arange(len(found)), np.diff(indptr))
    np.add.at(found, (rows, columns), counts)
    return found


def arrays_of(X):
    return [X.data, X.indices, X.indptr] if sp.issparse(X) else [X]


@EVERY_CONTAINER
@pytest.mark.parametrize("kind", [np.int64, np.int32, np.float32, np.float64, bool])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_chunks_are_all_documents(X, make, kind, dtype):
    given = make(X.astype(kind) if make is not duplicate else X)
    X = X.astype(kind) if make is not duplicate else X
    data = as_documents(given, dtype=dtype)
    (batch,) = data.chunks().batches
    assert np.array_equal(dense(batch), X)
    assert np.array_equal(batch.ids, np.arange(N))
    assert (data.n_units, data.n_features) == (N, V)
    assert data.total_weight == X.sum()
    assert data.chunks().total_weight == X.sum()
    assert not data.remote


@EVERY_CONTAINER
@pytest.mark.parametrize("n_blocks", [1, 2, 7, 100])
def test_blocks_are_a_partition(X, make, n_blocks, rng):
    partition = as_documents(make(X)).blocks(n_blocks, rng)
    batches = partition.batches
    assert len(partition) == len(batches) == n_blocks
    ids = np.concatenate([batch.ids for batch in batches])
    assert np.array_equal(np.sort(ids), np.arange(N))
    sizes = [batch.n_units for batch in batches]
    assert max(sizes) - min(sizes) <= 1
    assert [batch.block for batch in batches] == list(range(n_blocks))
    for batch in batches:
        assert np.array_equal(dense(batch), X[batch.ids])
        assert (np.diff(batch.ids) > 0).all()
        assert batch.total_weight == X[batch.ids].sum()
    assert partition.total_weight == X.sum()


@pytest.mark.parametrize("kind", [np.int64, np.uint8, np.longdouble, np.float32, bool])
@pytest.mark.parametrize("wide", [np.int32, np.int64])
def test_blocks_are_the_same_at_every_visit(X, kind, wide, rng):
    counts = canonical(X.astype(kind))
    counts.indices, counts.indptr = counts.indices.astype(wide), counts.indptr
    data = as_documents(counts, rng.uniform(size=N), np.float32)
    partition = data.blocks(7, rng)
    first = partition.batches
    for batch in [*partition.batches, *partition.shuffled(rng)]:
        before = first[batch.block]
        for old, new in zip(before.rows[:4], batch.rows[:4], strict=True):
            assert np.array_equal(old, new) and old.dtype == new.dtype
            assert not new.flags.writeable
        assert np.array_equal(before.ids, batch.ids)
        assert np.array_equal(before.weight, batch.weight)
        assert np.array_equal(dense(batch), X.astype(kind)[batch.ids])


def test_blocks_keep_no_counts(rng):
    X = sp.random_array((400, 500), density=0.5, format="csr", rng=rng)
    X.data[:] = 1.0 + np.arange(X.nnz) % 7
    data = as_documents(X.astype(np.float32), dtype=np.float32)
    partition = data.blocks(20, rng)

    def visit():
        for batch in partition.shuffled(rng):
            assert batch.n_units == 20

    for _ in range(2):  # what is loaded for kernels is no count
        visit()
    tracemalloc.start()
    try:
        for _ in range(2):
            visit()
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 20 * 4 * 500 + 20_000 < peak < 0.3 * 8 * X.nnz


def test_a_batch_numbers_its_own_words(X, rng):
    for batch in as_documents(sp.csr_array(X)).blocks(20, rng).batches:
        words = np.flatnonzero(X[batch.ids].any(axis=0))
        assert np.array_equal(batch.rows.words, words)
        assert len(batch.rows.words) == len(words) < V
        assert batch.rows.index.max() == len(words) - 1


def test_few_documents_are_cut_to_their_words(rng):
    # Of a large vocabulary a stream's batch has little: a step must not cost it all.
    X = sp.csr_array(np.where(rng.uniform(size=(5, 10_000)) < 1e-3, 2.0, 0.0))
    (batch,) = as_documents(X).chunks().batches
    assert len(batch.rows.words) == len(np.unique(X.indices))
    assert np.array_equal(dense(batch), X.toarray())


def test_blocks_are_random_and_repeat_with_a_seed(X):
    data = as_documents(sp.csr_array(X))
    one, same, other = (
        data.blocks(5, np.random.default_rng(seed)).batches for seed in (0, 0, 1)
    )
    for a, b in zip(one, same, strict=True):
        assert np.array_equal(a.ids, b.ids)
    assert not np.array_equal(one[0].ids, other[0].ids)
    assert one[0].ids[0] < N / 3
    assert one[0].ids[-1] > 2 * N / 3


def test_sample(X, rng):
    data = as_documents(sp.csr_array(X))
    batch = data.sample(20, rng)
    assert batch.n_units == len(np.unique(batch.ids)) == 20
    assert np.array_equal(dense(batch), X[batch.ids])
    assert not np.array_equal(batch.ids, data.sample(20, rng).ids)
    assert np.array_equal(data.sample(10 * N, rng).ids, np.arange(N))


@EVERY_CONTAINER
def test_types_are_those_that_kernels_are_compiled_for(X, make, rng):
    weight = rng.uniform(size=N).astype(np.float32)
    for dtype in (np.float32, np.float64):
        data = as_documents(make(X), weight, dtype)
        batches = [*data.chunks().batches, *data.blocks(3, rng).batches]
        for batch in [*batches, data.sample(9, rng)]:
            counts, index, indptr, words, _ = batch.rows
            found = [counts, index, indptr, words, batch.ids, batch.weight]
            types = [dtype, np.int32, np.int64, np.int32, np.int32, np.float64]
            assert [array.dtype for array in found] == types
            assert not any(array.flags.writeable for array in found)
            assert all(array.flags.c_contiguous for array in found)


def test_zeros_and_empty_documents(X, rng):
    data = as_documents(explicit_zeros(X))
    assert data.X.nnz == np.count_nonzero(X)
    (batch,) = data.chunks().batches
    assert (batch.rows.counts > 0).all()
    empty = np.flatnonzero(np.diff(batch.rows.indptr) == 0)
    assert np.array_equal(empty, np.flatnonzero(~X.any(axis=1)))
    nothing = as_documents(sp.csr_array((4, 3))).blocks(2, rng)
    assert nothing.total_weight == 0.0
    assert [dense(batch).sum() for batch in nothing.batches] == [0.0, 0.0]


def test_weights_are_of_documents_and_count_their_tokens(X, rng):
    weight = rng.uniform(size=N)
    data = as_documents(sp.csr_array(X), weight)
    assert data.total_weight == pytest.approx(weight @ X.sum(axis=1), rel=1e-12)
    for partition in (data.chunks(), data.blocks(6, rng)):
        assert partition.total_weight == data.total_weight
        for batch in partition.batches:
            assert np.array_equal(batch.weight, weight[batch.ids])
            tokens = X[batch.ids].sum(axis=1)
            expected = pytest.approx(batch.weight @ tokens, rel=1e-12)
            assert batch.total_weight == expected
    assert as_documents(sp.csr_array(X)).weight.size == 0


@EVERY_CONTAINER
def test_the_callers_matrix_is_never_changed(X, make, rng):
    given = make(X)
    before = [array.copy() for array in arrays_of(given)]
    flags = [array.flags.writeable for array in arrays_of(given)]
    weight = np.ones(N)
    data = as_documents(given, weight)
    data.chunks()
    data.blocks(7, rng)
    data.sample(5, rng)
    for array, old, writeable in zip(arrays_of(given), before, flags, strict=True):
        assert array.dtype == old.dtype
        assert np.array_equal(array, old)
        assert array.flags.writeable == writeable
    assert weight.flags.writeable


def test_read_only_counts_are_taken(X, rng):
    given = explicit_zeros(X)
    for array in arrays_of(given):
        array.flags.writeable = False
    for batch in as_documents(given).blocks(3, rng).batches:
        assert np.array_equal(dense(batch), X[batch.ids])


def test_counts_of_the_right_type_are_not_copied(X):
    given = sp.csr_array(X.astype(np.float32))
    (batch,) = as_documents(given, dtype=np.float32).chunks().batches
    assert np.shares_memory(batch.rows.counts, given.data)
    assert np.shares_memory(batch.rows.index, given.indices)


def test_dask_arrays_are_refused():
    da = pytest.importorskip("dask.array")
    with pytest.raises(TypeError, match="partial_fit"):
        as_documents(da.ones((10, 3)))
