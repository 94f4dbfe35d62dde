"""Documents, and lazily averaged statistics of words against plain averaging."""

import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp

from skvrem.topics._documents import as_documents
from skvrem.topics._model import WordRows, WordSums, cut_documents
from skvrem.topics._model_arrays import pad, take_rows

V, K = 12, 16


def corrections(rng, n):
    """Corrections of some words each, and the same as arrays."""
    for _ in range(n):
        words = np.sort(rng.choice(V, 4, replace=False)).astype(np.int32)
        change = WordRows(words, rng.normal(size=(4, K)), V)
        whole = np.zeros((V, K))
        whole[words] = change.values
        yield change, whole


def assert_is(sums, s):
    np.testing.assert_allclose(sums.toarray(), s, atol=1e-12)
    np.testing.assert_allclose(sums.totals, s.sum(axis=0), atol=1e-11)


@pytest.mark.parametrize("rho", [0.05, 0.4, 0.999, 1.0])
@pytest.mark.parametrize("as_rows", [True, False])
@pytest.mark.parametrize("anchored", [True, False])
def test_steps_are_plain_averages(anchored, as_rows, rho, rng):
    s = rng.uniform(size=(V, K))
    mean = rng.uniform(size=(V, K)) if anchored else None
    F = mean if anchored else 0.0
    sums = WordSums.of(s.copy())
    # Of so many steps that the factor is folded in on the way.
    for change, whole in corrections(rng, 60):
        sums = sums.step(mean, change if as_rows else whole, rho)
        s = (1.0 - rho) * s + rho * (F + whole)
        assert_is(sums, s)
    assert sums.base is mean


def test_anchors_change(rng):
    s = rng.uniform(size=(V, K))
    sums = WordSums.of(s.copy())
    for mean in (rng.uniform(size=(V, K)), None, rng.uniform(size=(V, K))):
        for change, whole in corrections(rng, 3):
            sums = sums.step(mean, change, 0.3)
            s = 0.7 * s + 0.3 * (whole + (0.0 if mean is None else mean))
            assert_is(sums, s)
        # Without a correction: towards the mean alone.
        sums = sums.step(mean, None, 0.2)
        s = 0.8 * s + 0.2 * (0.0 if mean is None else mean)
        assert_is(sums, s)


def test_a_whole_step_is_the_mean(rng):
    mean = rng.uniform(size=(V, K))
    sums = WordSums.of(rng.uniform(size=(V, K))).step(mean, None, 1.0)
    assert np.array_equal(sums.toarray(), mean)
    assert sums.toarray() is mean


def test_the_mean_is_never_written_to(rng):
    mean = rng.uniform(size=(V, K))
    mean.flags.writeable = False
    sums = WordSums.of(rng.uniform(size=(V, K)))
    for change, _ in corrections(rng, 5):
        sums = sums.step(mean, change, 0.5)


@pytest.mark.parametrize("anchored", [True, False])
def test_settling_projects(anchored, rng):
    mean = rng.uniform(size=(V, K)) if anchored else None
    sums = WordSums.of(rng.uniform(size=(V, K)))
    for change, _ in corrections(rng, 5):
        sums = sums.step(mean, change, 0.5)
    s = sums.toarray().copy()
    assert s.min() < 0.0
    settled = sums.settle()
    assert_is(settled, np.maximum(s, 0.0))
    assert settled.settle() is settled


def test_what_is_settled_is_never_written_to(rng):
    sums = WordSums.of(rng.uniform(size=(V, K)), 0.25, given=rng.uniform(size=(V, K)))
    before = sums.toarray().copy()
    mean = rng.uniform(size=(V, K))
    moved = sums
    for change, _ in corrections(rng, 5):
        moved = moved.step(mean, change, 0.5)
    assert moved.given is None
    settled = moved.settle()
    copy = settled.toarray().copy()
    for change, _ in corrections(rng, 5):
        settled.step(mean, change, 0.5)
    assert np.array_equal(settled.toarray(), copy)
    assert np.array_equal(sums.toarray(), before)


def test_take_rows(rng):
    matrix = pad(rng.normal(size=(V, 3)), np.float32)
    rows = np.array([7, 2, 2], np.int32)
    assert np.array_equal(take_rows(matrix, rows), matrix[rows])
    assert take_rows(matrix, np.empty(0, np.int32)) is matrix


def test_documents_are_cut_by_their_nonzeros():
    lengths = np.array([5, 0, 0, 100_000, 3, 90_000, 110_000, 0])
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    parts = cut_documents(indptr, 50)
    assert len(parts) > 1
    assert parts[0][0] == 0
    assert parts[-1][1] == len(lengths)
    assert all(a[1] == b[0] for a, b in pairwise(parts))
    assert cut_documents(indptr, 1) == [(0, len(lengths))]


def test_documents_are_opened_in_few_bytes_each():
    n = 200_000
    words = np.tile(np.array([0, 1], np.int32), n)
    parts = np.ones(2 * n, np.float32), words, 2 * np.arange(n + 1)
    data = as_documents(sp.csr_array(parts, shape=(n, 2)), dtype=np.float32)
    tracemalloc.start()
    try:
        assert data.usual_length == 2.0
        data.blocks(40, np.random.default_rng(0))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 16 * n


def test_empty_documents_are_of_no_length():
    X = sp.csr_array([[0, 0], [3, 1], [0, 0], [2, 0], [0, 0]])
    data = as_documents(X, dtype=np.float32)
    (batch,) = data.chunks().batches
    np.testing.assert_array_equal(batch.lengths, [0.0, 4.0, 0.0, 2.0, 0.0])
    assert data.usual_length == data.mean_length == 3.0
    weighed = as_documents(X, np.array([9.0, 3.0, 1.0, 1.0, 0.0]))
    assert weighed.mean_length == 3.5
