"""Densities at large parameters, against the exact ones of sixty digits."""

from decimal import MAX_EMAX, Decimal, localcontext
from functools import cache

import numpy as np
import pytest
from scipy import stats

from skvrem import VRHMM
from skvrem.hmm import NegativeBinomial, Regression, StudentT
from skvrem.hmm.emissions.densities._kernels_stirling import binet, log_ratio, rise
from skvrem.hmm.emissions.densities._responses import Positive
from tests.hmm.oracle import recursions

SIZES = 1e-3, 0.3, 2.0, 15.9, 16.1, 1e3, 1e6, 1e9, 1e12, 1e14, 1e16
DIGITS, H = 60, Decimal("1e-12")


@cache
def rising(x, z):
    """Return the exact z (z + 1) ... (z + x - 1)."""
    product = Decimal(1)
    for i in range(x):
        product *= z + i
    return product


def nbinom(x, log_mean, log_size):
    """Return the exact log-probability of a count."""
    mean, size = log_mean.exp(), log_size.exp()
    logs = rising(x, size).ln() - rising(x, Decimal(1)).ln()
    return logs + size * (size / (size + mean)).ln() + x * (mean / (size + mean)).ln()


def exact(function, *at):
    """Return a function of two numbers, and its derivatives by their logarithms."""
    with localcontext(prec=DIGITS, Emax=MAX_EMAX):
        u, v = (Decimal(value).ln() for value in at)
        here = function(u, v)
        ends = [function(u + s * H, v) for s in (1, -1)]
        others = [function(u, v + s * H) for s in (1, -1)]
        corners = [function(u + s * H, v + t * H) for s, t in CORNERS]
        both = corners[0] + corners[1] - corners[2] - corners[3]
        slopes = [(p - m) / (2 * H) for p, m in (ends, others)]
        curves = [
            (sum(ends) - 2 * here) / H**2,
            both / (4 * H * H),
            (sum(others) - 2 * here) / H**2,
        ]
        return [float(value) for value in (here, *slopes, *curves)]


CORNERS = (1, 1), (-1, -1), (1, -1), (-1, 1)


def found(family, x, *values):
    here, slopes, curves = family.derivatives(x, *(np.array([v]) for v in values))
    density = family.log_density(x, *(np.array([v]) for v in values))
    np.testing.assert_allclose(density, here, rtol=1e-13)
    return [part[0] for part in (here, *slopes, *curves)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("mean", [0.02, 3.0, 80.0, 1e5])
def test_negative_binomials_of_any_size(mean, size):
    for x in (0, 1, 5, 85, 300):
        expected = exact(lambda u, v, x=x: nbinom(x, u, v), mean, size)
        # Rounding of terms as large as the mean and the count.
        close = {"rtol": 1e-9, "atol": 1e-14 * (mean + x + 1.0)}
        np.testing.assert_allclose(
            found(NegativeBinomial(), np.array([float(x)]), mean, size),
            expected,
            **close,
        )


@pytest.mark.parametrize("size", [1e-3, 40.0, 1e8, 1e16])
def test_negative_binomials_of_large_counts(size):
    x = 10**6
    with localcontext(prec=DIGITS, Emax=MAX_EMAX):
        for mean in (1e-2, 9e5):
            logs = Decimal(mean).ln(), Decimal(size).ln()
            expected = float(nbinom(x, *logs))
            density = NegativeBinomial().log_density(float(x), mean, size)
            assert density == pytest.approx(expected, rel=1e-12, abs=1e-8)


def test_negative_binomials_of_infinite_size_are_those_of_poisson():
    x = np.array([0.0, 3.0, 70.0, 85.0, 90.0, 1e6])[:, None]
    for size in (1e21, 1e100, 1e300):
        for mean in (1.0, 80.0, 1e6):
            here, slopes, curves = NegativeBinomial().derivatives(x, mean, size)
            expected = stats.poisson.logpmf(x, mean)
            close = {"rtol": 1e-8, "atol": 1e-8}
            np.testing.assert_allclose(here, expected, **close)
            np.testing.assert_allclose(slopes[0], x - mean, **close)
            np.testing.assert_allclose(curves[0], np.full_like(x, -mean), **close)
            for part in (slopes[1], *curves[1:]):
                assert np.abs(part).max() <= 1e13 / size


def test_probabilities_of_counts_sum_to_one():
    x = np.arange(2000.0)[:, None]
    for size in SIZES[1:]:
        log_p = NegativeBinomial().log_density(x, np.array([[4.0, 80.0]]), size)
        np.testing.assert_allclose(np.exp(log_p[:, 1:]).sum(), 1.0, rtol=1e-2)
        assert log_p.max() < 0.0


@pytest.mark.parametrize("df", [0.5, 3.0, 31.0, 33.0, 1e4, 1e8, 1e12, 1e16])
def test_heavy_tails_of_any_degrees_of_freedom(df):
    x, scale = np.array([0.3, 2.0, -7.0]), 1.7
    here, slopes, curves = StudentT().derivatives(x, 0.5, scale, np.full(3, df))
    expected = stats.t.logpdf(x, df, 0.5, scale)
    if df > 1e5:  # the first two terms of a series about the normal density
        z = (x - 0.5) / scale
        away = (z**4 - 2.0 * z**2 - 1.0) / (4.0 * df)
        expected = stats.norm.logpdf(x, 0.5, scale) + away
        # By the logarithm of df, once and twice.
        np.testing.assert_allclose(slopes[2], -away, rtol=1e-3, atol=1e-14)
        np.testing.assert_allclose(curves[5], away, rtol=1e-3, atol=1e-14)
    np.testing.assert_allclose(here, expected, rtol=1e-9)
    np.testing.assert_allclose(StudentT().log_density(x, 0.5, scale, df), here)


def stirling(z):
    """Return the exact logarithm of the Gamma function."""
    steps, own = rising(30, z).ln(), z + 30
    series = Decimal(1) / 12 / own - 1 / (360 * own**3) + 1 / (1260 * own**5)
    series += -1 / (1680 * own**7) + 1 / (1188 * own**9)
    pi = Decimal("3.14159265358979323846264338327950288419716939937510582")
    return (own - Decimal("0.5")) * own.ln() - own + (2 * pi).ln() / 2 + series - steps


@pytest.mark.parametrize("shape", [*SIZES[:-2], 1e13])
@pytest.mark.parametrize("ratio", [1.0 + 1e-7, 1.05, 0.4, 30.0])
def test_shapes_of_any_size(shape, ratio):
    mean = 3.0
    x = ratio * mean

    def log_density(log_mean, log_shape):
        own = log_shape.exp()
        rate = own / log_mean.exp()
        powers = own * (rate * Decimal(x)).ln()
        return powers - rate * Decimal(x) - Decimal(x).ln() - stirling(own)

    expected = exact(log_density, mean, shape)
    # Ten digits of what is as large as the distance, and of rounding of x.
    close = {"rtol": 1e-9, "atol": 1e-14 + 1e-16 * shape * abs(ratio - 1.0)}
    np.testing.assert_allclose(
        found(Positive(), np.array([x]), mean, shape), expected, **close
    )


def test_differences_are_those_of_logarithms():
    from scipy.special import digamma, gammaln, polygamma

    def beyond(z):
        value = gammaln(z) - z * np.log(z) + z
        return np.array([value, digamma(z) - np.log(z), polygamma(1, z) - 1.0 / z])

    for z in (0.01, 0.7, 4.0, 15.0, 17.0, 90.0):
        for x in (0.5, 3.0):
            expected = beyond(z + x) - beyond(z)
            close = {"rtol": 1e-9, "atol": 1e-13}
            np.testing.assert_allclose(rise(x, z, binet(z)), expected, **close)
    below, above = binet(np.nextafter(16.0, 0.0)), binet(16.0)
    np.testing.assert_allclose(below, above, rtol=1e-11)
    for a in (1e-9, 0.4, 1.05, 1.11, 2.0, 1e9):
        logs, less = log_ratio(a, 1.0, a - 1.0)
        assert logs == pytest.approx(np.log(a), rel=1e-14)
        assert less == pytest.approx(np.log(a) - (a - 1.0), rel=1e-12)


def fits(k, X, emission):
    return VRHMM(k, emission=emission, random_state=0, n_jobs=1).fit(X)


@pytest.mark.parametrize("spread", [0.1, 1.0])
def test_counts_that_vary_less_are_fitted_as_by_poisson(spread):
    rng, states = np.random.default_rng(0), np.repeat([0, 1, 0, 1, 0], 120)
    mean = np.array([40.0, 75.0])[states]
    if spread == 1.0:
        X = rng.poisson(mean)[:, None]
    else:
        X = np.rint(mean + np.sqrt(spread * mean) * rng.normal(size=600))[:, None]
    poisson, own = fits(2, X, "poisson"), fits(2, X, NegativeBinomial())
    # Convergence is a warning, and so an error.
    assert own.n_iter_ < poisson.n_iter_ + 60
    assert own.log_likelihood_ == pytest.approx(poisson.log_likelihood_, abs=3e-3)
    p = own.emission_.size_ / (own.emission_.size_ + own.emission_.mean_)
    if own.emission_.size_.max() < 1e9:
        joint = stats.nbinom.logpmf(X[:, None], own.emission_.size_, p)[:, :, 0]
        total, *_ = recursions(joint, own.startprob_, own.transmat_)
        assert own.log_likelihood_ == pytest.approx(total.sum() / 600, abs=1e-6)
    assert np.diff(own.history_["objective"]).min() > -1e-9


def test_equal_counts_end_at_once():
    X = np.full((200, 1), 5.0)
    own = fits(2, X, NegativeBinomial())
    expected = stats.poisson.logpmf(5, 5.0)
    assert own.log_likelihood_ == pytest.approx(expected, abs=1e-4)
    assert own.log_likelihood_ < expected + 1e-9


def test_counts_with_covariates_that_vary_less():
    rng = np.random.default_rng(1)
    z = rng.normal(size=500)
    X = np.column_stack([np.rint(np.exp(3.0 + 0.3 * z)), z])
    own = fits(1, X, Regression(NegativeBinomial(), [1]))
    poisson = fits(1, X, Regression("poisson", [1]))
    assert own.log_likelihood_ == pytest.approx(poisson.log_likelihood_, abs=1e-3)
    assert own.log_likelihood_ < poisson.log_likelihood_ + 1e-9
