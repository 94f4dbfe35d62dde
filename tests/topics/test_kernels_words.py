"""Sums and parameters of words against the formulas."""

import numpy as np
import pytest

from skvrem.topics import _kernels_words as kernels
from skvrem.topics._model_word_sums import pad, padded_zeros
from skvrem.utils._algebra import read_only

DTYPES = [np.float64, np.float32]
RTOL = {np.float64: 1e-12, np.float32: 1e-5}
N_WORDS = 9


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
