"""Sums over the tokens of documents against loops written out."""

import numpy as np
import pytest

from skvrem.utils import _token_kernels as kernels
from skvrem.utils._algebra import read_only
from skvrem.utils._padding import pad, padded_zeros

DTYPES = [np.float64, np.float32]
RTOL = {np.float64: 1e-12, np.float32: 1e-5}
N_WORDS = 9


def make(dtype, k, seed=0):
    """Counts of 12 documents with 0 to 11 tokens each, rows of words and t."""
    rng = np.random.default_rng(seed)
    indptr = np.cumsum(np.arange(13)) - np.arange(13)
    n = indptr[-1]
    counts = rng.uniform(0.5, 5.0, n).astype(dtype)
    index = rng.integers(N_WORDS, size=n).astype(np.int32)
    rows = pad(rng.uniform(size=(N_WORDS, k)), dtype)
    t = pad(rng.uniform(size=(12, k)), dtype)
    return read_only(counts), read_only(index), read_only(indptr), rows, t


@pytest.mark.parametrize("k", [1, 3, 16, 17])
@pytest.mark.parametrize("dtype", DTYPES)
def test_sum_over_tokens(dtype, k):
    counts, index, indptr, rows, t = make(dtype, k)
    w = np.full(len(counts), 7.0, dtype)
    for i in range(12):
        low, high = indptr[i], indptr[i + 1]
        g = np.full(t.shape[1], 3.0, dtype)  # written, not added to
        kernels.sum_over_tokens(counts, index, low, high, rows, t[i], g, w)
        expected = np.zeros(t.shape[1])
        for j in range(low, high):
            s = sum(float(t[i, c]) * float(rows[index[j], c]) for c in range(k))
            assert w[j] == pytest.approx(counts[j] / s, rel=RTOL[dtype])
            expected += counts[j] / s * rows[index[j]]
        np.testing.assert_allclose(g, expected, rtol=RTOL[dtype])
        assert (w[high:] == 7.0).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_word_without_probability_does_not_divide_by_zero(dtype):
    counts, index, _, rows, t = make(dtype, 3)
    g, w = np.zeros(16, dtype), np.zeros(len(counts), dtype)
    nothing = np.zeros_like(rows)
    kernels.sum_over_tokens(counts, index, 0, len(counts), nothing, t[0], g, w)
    assert np.isfinite(w).all()
    assert not g.any()


@pytest.mark.parametrize("k", [3, 17, 40])
@pytest.mark.parametrize("dtype", DTYPES)
def test_sum_over_words(dtype, k):
    counts, index, indptr, _, t = make(dtype, k)
    out = padded_zeros(N_WORDS, k, dtype)
    out += 1.0
    for first in range(0, N_WORDS, 4):
        kernels.sum_over_words(counts, index, indptr, t, first, first + 4, out)
    expected = np.ones(out.shape)
    for i in range(12):
        for j in range(indptr[i], indptr[i + 1]):
            expected[index[j]] += float(counts[j]) * t[i].astype(float)
    np.testing.assert_allclose(out, expected, rtol=RTOL[dtype])


def test_sums_over_some_words_leave_the_others():
    counts, index, indptr, _, t = make(np.float64, 40)
    out = padded_zeros(N_WORDS, 40, np.float64)
    kernels.sum_over_words(counts, index, indptr, t, 2, 5, out)
    assert out[2:5].any()
    assert not out[:2].any()
    assert not out[5:].any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_add_rows(dtype):
    rng = np.random.default_rng(2)
    start, values = rng.normal(size=(N_WORDS, 3)), rng.normal(size=(3, 3))
    words = read_only(np.array([2, 3, 7], np.int32))
    found, totals = pad(start, dtype), np.ones(16)
    kernels.add_rows(found, totals, words, pad(values, dtype), dtype(0.3))
    expected = start.copy()
    expected[words] += 0.3 * values
    atol = RTOL[dtype]
    np.testing.assert_allclose(found[:, :3], expected, atol=atol)
    np.testing.assert_allclose(totals[:3] - 1.0, 0.3 * values.sum(axis=0), atol=atol)
    assert not found[:, 3:].any()
    assert (totals[3:] == 1.0).all()
