"""exp and log of kernels against extended precision, in a loop and one by one."""

import numpy as np
import pytest
from scipy import special

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


# digamma and log_gamma


@kernel(fastmath=CONTRACT)
def digamma_all(x, out):
    for i in range(x.size):
        out[i] = _math.digamma(x[i])


@kernel(fastmath=CONTRACT)
def log_gamma_all(x, out):
    for i in range(x.size):
        out[i] = _math.log_gamma(x[i])


DIGAMMA_BOUNDS = {np.float64: 2e-15, np.float32: 8e-7}
SPANS = [(1e-6, 1e-2), (1e-2, 1.0), (1.0, 3.0), (3.0, 100.0), (100.0, 1e8)]


def assert_near(found, exact, bound):
    """Relative to the value, and where that is near zero to 1."""
    error = np.abs(found - exact) / np.maximum(np.abs(exact), 1.0)
    assert error.max() < bound


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("low", "high"), SPANS)
def test_digamma_is_accurate(dtype, low, high):
    x = np.geomspace(low, high, 100_003).astype(dtype)
    out = np.empty_like(x)
    digamma_all(x, out)
    bound = DIGAMMA_BOUNDS[dtype]
    assert_near(out, special.digamma(x.astype(float)), bound)
    digamma_all(x[:1], out[:1])  # alone as in a vector
    assert_near(out[:1], special.digamma(x[:1].astype(float)), bound)


@pytest.mark.parametrize(("low", "high"), SPANS)
def test_log_gamma_is_accurate(low, high):
    x = np.geomspace(low, high, 100_003)
    out = np.empty_like(x)
    log_gamma_all(x, out)
    assert_near(out, special.gammaln(x), 2e-14)


def test_digamma_and_log_gamma_without_numba():
    x = np.array([0.5, 2.0])
    np.testing.assert_allclose(_math.digamma(x), special.digamma(x))
    np.testing.assert_allclose(_math.log_gamma(x), special.gammaln(x))


@pytest.mark.parametrize("dtype", DTYPES)
def test_digamma_of_zero_is_minus_infinity_or_nan(dtype):
    # Padding: its exponential, and with it the share of the topic, must be zero.
    x = np.zeros(17, dtype)
    out = np.empty_like(x)
    digamma_all(x, out)
    np.testing.assert_array_equal(out, -np.inf)
