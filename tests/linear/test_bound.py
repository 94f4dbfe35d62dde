"""The bound of a partition function: a bound, tangent, tighter than nothing else."""

import numpy as np
import pytest
from scipy.special import logsumexp, softmax

from skvrem.linear import bound
from skvrem.linear._model import log_linear_bound

CASES = 10_000


def random_case(rng):
    n, d = rng.integers(1, 8), rng.integers(1, 5)
    features = rng.normal(size=(n, d)) * rng.choice([0.1, 1.0, 5.0])
    log_prior = rng.normal(size=n) * 3.0
    if n > 1 and rng.uniform() < 0.2:
        log_prior[rng.integers(n)] = -np.inf
    theta, other = rng.normal(size=(2, d)) * rng.choice([0.1, 1.0, 5.0])
    return features, log_prior, theta, other


def test_it_is_a_bound_and_touches(rng):
    for _ in range(CASES):
        features, log_prior, theta, other = random_case(rng)
        log_z, gradient, sigma = log_linear_bound(
            features, theta, log_prior, bool(rng.integers(2))
        )
        here = log_prior + features @ theta
        scale = 1.0 + abs(here[np.isfinite(here)]).max()
        assert abs(log_z - logsumexp(here)) < 1e-13 * scale
        np.testing.assert_allclose(gradient, softmax(here) @ features, atol=1e-12)
        step = other - theta
        above = log_z + step @ gradient + 0.5 * step @ sigma @ step
        there = logsumexp(log_prior + features @ other)
        assert above >= there - 1e-12 * (scale + abs(there) + step @ step)


def test_sigma_is_above_the_hessian(rng):
    for _ in range(1000):
        features, log_prior, theta, _ = random_case(rng)
        sigma = bound(features, theta, log_prior).sigma
        p = softmax(log_prior + features @ theta)
        mean = p @ features
        hessian = (features.T * p) @ features - np.outer(mean, mean)
        least = np.linalg.eigvalsh(sigma - hessian)[0]
        assert least > -1e-11 * (1.0 + np.trace(sigma))


def test_two_outcomes_are_jaakkola_and_jordan(rng):
    for _ in range(200):
        x, theta = rng.normal(size=(2, 3)) * 3.0
        s = x @ theta
        for order in ("descending", "given"):
            sigma = bound([np.zeros(3), x], theta, order=order).sigma
            expected = np.tanh(s / 2) / (2 * s) * np.outer(x, x)
            np.testing.assert_allclose(sigma, expected, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("s", [0.0, 1e-12, 1e-6, 9.9e-4, 1.01e-3, 700.0, 1e5])
def test_the_weight_has_its_limits(s):
    (weight,) = bound([[0.0], [1.0]], [s]).sigma.ravel()
    expected = 0.25 - s * s / 48 if s < 1e-2 else np.tanh(s / 2) / (2 * s)
    assert weight == pytest.approx(expected, rel=1e-11)


def test_descending_order_is_tighter_as_a_rule(rng):
    traces = {"given": 0.0, "descending": 0.0}
    for _ in range(200):
        logits = 3.0 * rng.normal(size=10)
        for order in traces:
            sigma = bound(np.eye(10), logits, order=order).sigma
            traces[order] += np.trace(sigma)
    assert traces["descending"] < 0.95 * traces["given"]


def test_an_outcome_without_a_prior_is_as_none():
    features = [[0.0, 1.0], [2.0, -1.0], [1.0, 1.0]]
    theta = [0.3, -0.2]
    with_it = bound(features, theta, [0.0, -np.inf, 1.0])
    without = bound([features[0], features[2]], theta, [0.0, 1.0])
    for a, b in zip(with_it, without, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-15)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[1.0, 2.0]], [1.0]), "one number for each of the 2 features"),
        (([[1.0]], [1.0], [0.0, 0.0]), "one number for each of the 1 outcomes"),
        (([[1.0]], [1.0], [-np.inf]), "at least one must be finite"),
        (([[1.0]], [1.0], [np.nan]), "finite numbers"),
        (([[np.nan]], [1.0]), "contains NaN"),
        (([[1.0]], [1.0], None, "random"), "order must be"),
    ],
)
def test_what_it_cannot_be_given(arguments, message):
    with pytest.raises(ValueError, match=message):
        bound(*arguments)
