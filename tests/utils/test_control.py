"""Means of draws, less what controls of known mean say."""

import numpy as np
import pytest

from skvrem.utils._control import mean_within, regressed


@pytest.mark.parametrize("n", [2, 5, 16])
def test_coefficients_are_those_of_all_others(n):
    rng = np.random.default_rng(n)
    K = rng.normal(size=(n, 2)) * [1.0, 1e6]
    y = 1e3 + K @ [2.0, -1e-6] + rng.normal(size=n)
    found = regressed(y, K)
    for s in range(n):
        others = np.delete(np.arange(n), s)
        design = np.column_stack([np.ones(n), K])[others]
        slopes = np.linalg.lstsq(design / [1, 1, 1e6], y[others])[0][1:] / [1, 1e6]
        # Two others leave the slopes open, and none is used.
        expected = y[s] - K[s] @ slopes if n > 3 else y[s]
        assert found[s] == pytest.approx(expected, rel=1e-6)


def test_controls_that_say_the_same_or_nothing():
    """Each value is known exactly where the controls say all of it."""
    rng = np.random.default_rng(0)
    k = rng.normal(size=20)
    for other in (3.0 * k, np.zeros(20)):
        found = regressed(5.0 - 2.0 * k, np.column_stack([k, other]))
        np.testing.assert_allclose(found, 5.0, rtol=1e-12)
    np.testing.assert_array_equal(regressed(k, np.zeros((20, 1))), k)


@pytest.mark.parametrize(("tol", "n"), [(1.0, 16), (0.05, 400), (0.0, 1000)])
def test_as_many_draws_as_an_error_takes(tol, n):
    """Of draws of deviation one, at least 16 and 1,000 at most."""
    asked = []

    def estimate(n):
        asked.append(n)
        return 3.0, n**-0.5

    value, error = mean_within(tol, estimate, 16, 1000)
    assert (value, error, asked[-1]) == (3.0, n**-0.5, pytest.approx(n, abs=1))
