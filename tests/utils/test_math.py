"""exp and log of kernels against extended precision, in a loop and one by one."""

import numpy as np
import pytest

from skvrem.utils import _math
from skvrem.utils._jit import CONTRACT, kernel

BOUNDS = {
    "exp": {np.float64: 3e-16, np.float32: 1.2e-7},
    "log": {np.float64: 3e-16, np.float32: 1.8e-7},
}
DTYPES = [np.float64, np.float32]


@kernel(fastmath=CONTRACT)
def exp_all(x, out):
    for i in range(x.size):
        out[i] = _math.exp(x[i])


@kernel(fastmath=CONTRACT)
def log_all(x, out):
    for i in range(x.size):
        out[i] = _math.log(x[i])


def apply(name, x):
    out = np.empty_like(x)
    {"exp": exp_all, "log": log_all}[name](x, out)
    return out


def relative_error(name, x):
    exact = getattr(np, name)(x.astype(np.longdouble))
    found = apply(name, x)
    return np.max(np.abs(found - exact)[exact != 0] / np.abs(exact[exact != 0]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [1e-6, 0.34, 1.0, 20.0, None])
def test_exp_is_accurate(dtype, width):
    low, high = (-708.38, 709.78) if dtype == np.float64 else (-87.32, 88.72)
    if width is not None:
        low, high = -width, width
    x = np.linspace(low, high, 300_001).astype(dtype)
    assert relative_error("exp", x) < BOUNDS["exp"][dtype]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("low, high", [(-80, 80), (-1, 1), (-1e-3, 1e-3)])
def test_log_is_accurate(dtype, low, high):
    x = np.exp(np.linspace(low, high, 300_001)).astype(dtype)
    assert relative_error("log", x) < BOUNDS["log"][dtype]


@pytest.mark.parametrize("dtype", DTYPES)
def test_log_of_extremes(dtype):
    info = np.finfo(dtype)
    x = np.array([info.tiny, info.max, 1.0], dtype)
    np.testing.assert_allclose(apply("log", x), np.log(x), rtol=2 * info.eps)


@pytest.mark.parametrize("dtype", DTYPES)
def test_exp_underflows_to_zero(dtype):
    edge = -708.4 if dtype == np.float64 else -87.34
    x = np.array([edge, -1e4, -1e30, np.finfo(dtype).min, -np.inf], dtype)
    np.testing.assert_array_equal(apply("exp", x), 0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_exp_of_zero_and_nan(dtype):
    out = apply("exp", np.array([0.0, -0.0, np.nan], dtype))
    np.testing.assert_array_equal(out, [1, 1, np.nan])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["exp", "log"])
def test_vector_and_scalar_agree(name, dtype):
    x = np.random.default_rng(0).uniform(0.1, 5, 1003).astype(dtype)
    single = np.array([apply(name, x[i : i + 1])[0] for i in range(x.size)])
    assert single.dtype == dtype
    np.testing.assert_allclose(apply(name, x), single, rtol=2 * np.finfo(dtype).eps)


@pytest.mark.parametrize("name", ["exp", "log"])
def test_without_numba(name):
    x = np.array([0.5, 2.0])
    np.testing.assert_array_equal(getattr(_math, name)(x), getattr(np, name)(x))


def test_other_types_are_refused():
    from numba.core.errors import TypingError

    with pytest.raises(TypingError):
        exp_all(np.arange(3), np.empty(3))
