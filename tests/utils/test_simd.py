"""Values of eight floats, against NumPy."""

import re

import numpy as np
import pytest

from skvrem.utils import _simd as simd
from skvrem.utils._jit import kernel

DTYPES = [np.float32, np.float64]


@kernel(cache=False)
def arithmetic(x, y, out):
    width = simd.WIDTH
    a, b = simd.load(x, 3), simd.load(y, 1)
    simd.store(out, 0, simd.add(a, b))
    simd.store(out, width, simd.mul(a, b))
    simd.store(out, 2 * width, simd.fma(a, b, a))
    simd.store(out, 3 * width, simd.fma(x[0], b, a))
    simd.store(out, 4 * width, simd.largest(a, b))
    simd.store(out, 5 * width, simd.ratio(a, b))
    simd.store(out, 6 * width, simd.splat(x[1]))
    return simd.total(a)


@kernel(cache=False)
def spread(x, at, stride, out):
    width = simd.WIDTH
    a, b = simd.load(x, 0), simd.load(x, width)
    c, d = simd.load(x, 2 * width), simd.load(x, 3 * width)
    simd.spread(a, b, c, d, out, at, stride)


@pytest.mark.parametrize("dtype", DTYPES)
def test_arithmetic(dtype):
    rng = np.random.default_rng(0)
    width = simd.WIDTH
    x, y = rng.normal(size=(2, width + 4)).astype(dtype)
    out = np.zeros(7 * width, dtype)
    total = arithmetic(x, y, out)
    a, b = x[3 : width + 3], y[1 : width + 1]
    assert (b < 0.0).any()
    expected = np.concatenate(
        [
            a + b,
            a * b,
            a * b + a,
            x[0] * b + a,
            np.maximum(a, b),
            np.where(b > 0.0, a / b, 0.0),
            np.full(width, x[1]),
        ]
    )
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)
    assert total == pytest.approx(a.sum(), rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("stride", [4, 5, 32])
@pytest.mark.parametrize("dtype", DTYPES)
def test_spread(dtype, stride):
    width = simd.WIDTH
    x = np.arange(1.0, 4 * width + 1.0, dtype=dtype)
    out = np.zeros(width * stride + 8, dtype)
    spread(x, 2, stride, out)
    expected = np.zeros_like(out)
    for lane in range(width):
        for row in range(4):
            expected[2 + lane * stride + row] = x[row * width + lane]
    np.testing.assert_array_equal(out, expected)


@kernel(cache=False)
def ask(array, distance):
    """Ask for lines of an array, and far beyond it; return its sum."""
    total = 0.0
    for at in range(array.size):
        simd.prefetch(np.uint64(array.ctypes.data + 8 * at + distance))
        total += array[at]
    return total


def test_exponentials():
    """Against long doubles; what would be subnormal is 0, as what is no number."""
    x = np.concatenate([np.linspace(-708.3, 0.0, 4000), np.linspace(0.0, 500.0, 2000)])
    x = np.append(x, [-708.4, -1e90, -np.inf, np.nan] * 2)
    out = np.empty_like(x)

    @kernel
    def fill(x, out):
        for at in range(0, x.size, simd.WIDTH):
            values = simd.exp_all(simd.load_all(x, at, 0, (0,)))
            simd.store_all(out, at, 0, values)

    fill(x, out)
    seen = x > -708.39
    np.testing.assert_array_equal(out[~seen], 0.0)
    exact = np.exp(np.longdouble(x[seen]))
    error = np.abs(out[seen] - exact) / exact
    assert (error <= 5e-16 + 4e-17 * np.abs(x[seen])).all()
    assert out[4000] == 1.0


@pytest.mark.parametrize("size", [1, 8, 1001])
def test_lines_begin_where_those_of_the_cache_do(size):
    for _ in range(20):
        lines = simd.empty_lines(size)
        assert lines.shape == (size,)
        assert lines.ctypes.data % simd.CACHE_LINE == 0


@pytest.mark.parametrize("distance", [0, 64, 1 << 40])
def test_lines_that_are_asked_for_need_not_be_there(distance):
    array = np.arange(1000.0)
    assert ask(array, distance) == array.sum()
    np.testing.assert_array_equal(array, np.arange(1000.0))
    # It is in the code, where the compiler could leave out what has no effect.
    (code,) = ask.inspect_asm().values()
    assert re.search(r"prefetch|prfm", code)
