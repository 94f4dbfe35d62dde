"""Sums over the tokens of documents, and of words, against what they stand for."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.special import digamma

from skvrem.topics import _kernels as kernels
from skvrem.topics import _model
from skvrem.topics._documents import as_documents
from skvrem.topics._model import WordRows
from skvrem.topics._model_arrays import pad, padded_zeros
from skvrem.utils._algebra import read_only

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
    for a, b in pairwise(indptr):
        index[a:b].sort()
    rows = pad(rng.uniform(size=(N_WORDS, k)), dtype)
    t = pad(rng.uniform(size=(12, k)), dtype)
    return read_only(counts), read_only(index), read_only(indptr), rows, t


@pytest.mark.parametrize("k", [1, 3, 16, 17])
@pytest.mark.parametrize("dtype", DTYPES)
def test_sum_over_tokens(dtype, k):
    counts, index, indptr, rows, t = make(dtype, k)
    for i in range(12):
        low, high = indptr[i], indptr[i + 1]
        w = np.full(high - low, 7.0, dtype)
        g = np.full(t.shape[1], 3.0, dtype)  # written, not added to
        own = slice(low, high)
        kernels.sum_over_tokens(counts[own], index[own], rows, t[i], g, w)
        expected = np.zeros(t.shape[1])
        for j in range(low, high):
            s = sum(float(t[i, c]) * float(rows[index[j], c]) for c in range(k))
            assert w[j - low] == pytest.approx(counts[j] / s, rel=RTOL[dtype])
            expected += counts[j] / s * rows[index[j]]
        np.testing.assert_allclose(g, expected, rtol=RTOL[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_word_without_probability_does_not_divide_by_zero(dtype):
    counts, index, _, rows, t = make(dtype, 3)
    g, w = np.zeros(16, dtype), np.zeros(len(counts), dtype)
    nothing = np.zeros_like(rows)
    kernels.sum_over_tokens(counts, index, nothing, t[0], g, w)
    assert np.isfinite(w).all()
    assert not g.any()


@pytest.mark.parametrize("k", [3, 17, 40])
@pytest.mark.parametrize("dtype", DTYPES)
def test_sum_over_words(dtype, k):
    counts, index, indptr, _, t = make(dtype, k)
    out = padded_zeros(N_WORDS, k, dtype) + dtype(7.0)  # written, not added to
    for first in range(0, N_WORDS, 4):
        last = min(first + 4, N_WORDS)
        part = out[first:last]
        kernels.sum_over_words(counts, index, indptr, t, None, first, last, part)
    expected = np.zeros(out.shape)
    for i in range(12):
        for j in range(indptr[i], indptr[i + 1]):
            expected[index[j]] += float(counts[j]) * t[i].astype(float)
    np.testing.assert_allclose(out, expected, rtol=RTOL[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_over_words_of_tokens_that_are_weighed_again(dtype):
    counts, index, indptr, rows, t = make(dtype, 17)
    w, g = np.empty_like(counts), np.empty(t.shape[1], dtype)
    for i, (a, b) in enumerate(pairwise(indptr)):
        kernels.sum_over_tokens(counts[a:b], index[a:b], rows, t[i], g, w[a:b])
    known, again = (padded_zeros(N_WORDS, 17, dtype) for _ in range(2))
    for part in ((0, 3), (3, N_WORDS)):
        some = slice(*part)
        documents = index, indptr, t
        kernels.sum_over_words(w, *documents, None, *part, known[some])
        kernels.sum_over_words(counts, *documents, rows[some], *part, again[some])
    np.testing.assert_array_equal(again, known)
    assert known.any()


@pytest.mark.parametrize("room", [16, 1 << 17])
@pytest.mark.parametrize("all_words", [True, False])
def test_rows_that_are_made_where_they_are_needed(all_words, room, rng, monkeypatch):
    monkeypatch.setattr(_model, "ROOM", room)
    X = rng.poisson(0.4, size=(9, 40)).astype(float)
    data = as_documents(X)
    (batch,) = (data.chunks() if all_words else data.blocks(3, rng)).batches[:1]
    words = batch.rows.words if not all_words else np.arange(40)
    at, phi = rng.uniform(size=(batch.n_units, 16)), rng.uniform(size=(40, 16))
    w, asked = rng.uniform(size=len(batch.rows.index)), []

    def rows(some):
        asked.append(some)
        return phi[some]

    expected, index = np.zeros((len(words), 16)), batch.rows.index
    for i, (a, b) in enumerate(pairwise(batch.rows.indptr)):
        np.add.at(expected, index[a:b], w[a:b, None] * at[i])
    expected *= phi[words]
    known = _model.expected_counts(batch, w, at, phi[words])
    made = _model.expected_counts(batch, w, at, rows)
    values = (known, made) if all_words else (known.values, made.values)
    np.testing.assert_array_equal(*values)
    np.testing.assert_allclose(values[0], expected)
    assert np.array_equal(np.concatenate(asked), words)
    n_parts = 1 if room > 16 else len(words) // batch.n_units
    assert len(asked) == n_parts
    if not all_words:
        left = WordRows(words, phi[words], 40)
        left -= made
        np.testing.assert_array_equal(left.values, phi[words] - known.values)


def test_sums_over_some_words_leave_the_others():
    counts, index, indptr, _, t = make(np.float64, 40)
    out = padded_zeros(N_WORDS, 40, np.float64)
    kernels.sum_over_words(counts, index, indptr, t, None, 2, 5, out[2:5])
    assert out[2:5].any()
    assert not out[:2].any()
    assert not out[5:].any()


def settle(counts, index, rows, prior, b, n_steps, tol, start):
    """Rounds on one document by the kernel."""
    dtype, width = rows.dtype.type, rows.shape[1]
    old, t, g = (np.full(width, np.nan, dtype) for _ in range(3))
    new, w = start.astype(dtype), np.full(len(counts), np.nan, dtype)
    work = kernels.room_to_settle(len(counts), rows)
    work[:] = np.nan
    kernels.settle_document(
        counts,
        index,
        rows,
        prior,
        dtype(b),
        n_steps,
        dtype(tol),
        old,
        new,
        t,
        g,
        w,
        work,
    )
    return old, new, t, g, w


def round_of_all(gamma, counts, index, rows, prior, b):
    """γ after one round, in NumPy; padding stays at zero."""
    k = np.count_nonzero(prior)
    t = np.exp(b * digamma(gamma[:k].astype(float)))
    own = rows[index][:, :k].astype(float)
    w = counts / (own @ t)
    after = np.zeros(len(gamma))
    after[:k] = prior[:k] + b * t * (w @ own)
    return after, t, w


@pytest.mark.parametrize(("alpha", "b"), [(0.02, 1.0), (0.02, 0.6), (0.5, 1.0)])
@pytest.mark.parametrize("k", [3, 17, 40])
@pytest.mark.parametrize("dtype", DTYPES)
def test_settle_document_ends_at_a_fixed_point(dtype, k, alpha, b):
    rng = np.random.default_rng(k)
    counts = read_only(rng.integers(1, 6, 35).astype(dtype))
    index = read_only(rng.permutation(60)[:35].astype(np.int32))
    rows = pad(rng.gamma(0.1, size=(60, k)) + 1e-6, dtype)
    prior = pad(np.full((1, k), alpha), dtype)[0]
    start = prior + np.where(prior > 0, counts.sum() / k, 0.0)
    tol = 1e-10 if dtype is np.float64 else 1e-4
    arguments = counts, index, rows, prior, b
    old, new, t, g, w = settle(*arguments, 5000, tol, start)
    gamma = start
    for _ in range(5000):
        gamma, _, _ = round_of_all(gamma, *arguments)
    close = {"rtol": 100 * RTOL[dtype], "atol": 1e4 * tol}
    np.testing.assert_allclose(new, gamma, **close)
    # What is returned belongs together: the last round is one of all topics.
    after, t_expected, w_expected = round_of_all(old, *arguments)
    np.testing.assert_allclose(new, after, rtol=20 * RTOL[dtype])
    np.testing.assert_allclose(t[:k], t_expected, rtol=20 * RTOL[dtype], atol=1e-30)
    np.testing.assert_allclose(w, w_expected, rtol=20 * RTOL[dtype])
    np.testing.assert_allclose(new, prior + b * t * g, rtol=20 * RTOL[dtype])
    assert np.abs(new - old).sum() < tol * k
    assert not new[k:].any()


@pytest.mark.parametrize("n_steps", [1, 2, 5, 6, 7, 30])
def test_settle_document_stops_after_so_many_rounds(n_steps):
    # One topic of many has the document: the others are at rest early.
    counts, index = read_only(np.ones(20)), read_only(np.arange(20, dtype=np.int32))
    rng = np.random.default_rng(0)
    rows = pad(rng.gamma(0.05, size=(20, 40)) + 1e-8, np.float64)
    prior = pad(np.full((1, 40), 0.01), np.float64)[0]
    start = np.where(prior > 0, 0.51, 0.0)
    arguments = counts, index, rows, prior, 1.0
    old, new, *_ = settle(*arguments, n_steps, 0.0, start)
    assert new == pytest.approx(round_of_all(old, *arguments)[0], rel=1e-10)
    if n_steps < 3:  # too few for rounds of some topics
        gamma = start
        for _ in range(n_steps):
            gamma, _, _ = round_of_all(gamma, *arguments)
        assert new == pytest.approx(gamma, rel=1e-10)


@pytest.mark.parametrize("dtype", DTYPES)
def test_add_columns(dtype):
    rows = pad(np.random.default_rng(0).uniform(size=(N_WORDS, 17)), dtype)
    out = np.ones(rows.shape[1])
    for part in ((0, 4), (4, N_WORDS)):
        kernels.add_columns(rows, *part, out)
    np.testing.assert_allclose(out - 1.0, rows.sum(axis=0, dtype=float), rtol=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
def test_add_rows(dtype):
    rng = np.random.default_rng(2)
    start, values = rng.normal(size=(N_WORDS, 3)), rng.normal(size=(3, 3))
    words = read_only(np.array([2, 3, 7], np.int32))
    found, totals = pad(start, dtype), np.ones(16)
    values_of_words = pad(values, dtype)
    for part in ((0, 2), (2, 3)):
        kernels.add_rows(found, totals, words, values_of_words, dtype(0.3), *part)
    expected = start.copy()
    expected[words] += 0.3 * values
    atol = RTOL[dtype]
    np.testing.assert_allclose(found[:, :3], expected, atol=atol)
    np.testing.assert_allclose(totals[:3] - 1.0, 0.3 * values.sum(axis=0), atol=atol)
    assert not found[:, 3:].any()
    assert (totals[3:] == 1.0).all()


@pytest.mark.parametrize("chosen", [[], [3, 4, 7, 8]])
@pytest.mark.parametrize("per_topic", [False, True])
@pytest.mark.parametrize("k", [3, 16, 17])
@pytest.mark.parametrize("dtype", DTYPES)
def test_parameters_of(dtype, k, per_topic, chosen):
    rng = np.random.default_rng(1)
    base, deviation = rng.uniform(size=(N_WORDS, k)), rng.normal(size=(N_WORDS, k))
    prior = rng.uniform(0.01, 0.1, (N_WORDS if per_topic else 1, k))
    inverse = np.linspace(1.0, 2.0, k)
    words = np.array(chosen, np.int32)
    n = len(chosen) or N_WORDS
    found = padded_zeros(n, k, dtype) + dtype(7.0)  # written, not added to
    for part in ((0, 2), (2, n)):
        kernels.parameters_of(
            pad(base, dtype),
            pad(deviation, dtype),
            dtype(0.7),
            dtype(50.0),
            pad(prior, dtype),
            pad(inverse[None], dtype)[0],
            words,
            *part,
            found,
        )
    s = base + 0.7 * deviation
    assert (s < 0).any()
    expected = (50.0 * np.maximum(s, 0.0) + prior) * inverse
    close = {"rtol": 10 * RTOL[dtype], "atol": 100 * RTOL[dtype]}
    np.testing.assert_allclose(found[:, :k], expected[chosen or slice(None)], **close)
    assert not found[:, k:].any()


def test_parameters_show_a_statistic_that_is_not_a_number():
    sums = padded_zeros(2, 3, np.float64)
    sums[1, 2] = np.nan
    one, found = np.float64(1.0), np.empty_like(sums)
    nothing, words = padded_zeros(1, 3, np.float64), np.empty(0, np.int32)
    kernels.parameters_of(
        nothing, sums, one, one, nothing, np.ones(16), words, 0, 2, found
    )
    assert np.isnan(found[1, 2])
    assert np.isnan(found).sum() == 1


def test_add_rows_of_many_words():
    # More than are summed at a time, and a batch that begins in the middle.
    rng = np.random.default_rng(3)
    start, values = rng.normal(size=(400, 5)), rng.normal(size=(150, 5))
    words = read_only(np.sort(rng.permutation(400)[:150]).astype(np.int32))
    found, totals = pad(start, np.float64), np.zeros(16)
    kernels.add_rows(found, totals, words, pad(values, np.float64), 0.3, 20, 150)
    expected = start.copy()
    expected[words[20:]] += 0.3 * values[20:]
    np.testing.assert_allclose(found[:, :5], expected, rtol=1e-12)
    np.testing.assert_allclose(totals[:5], 0.3 * values[20:].sum(axis=0), rtol=1e-12)
