"""What is left to gain, and when a fit may say that it has converged."""

import math

import numpy as np
import pytest

from skvrem.solvers import SAGA, SVRG, Batch, Incremental
from skvrem.solvers._prediction import (
    GainPrediction,
    left_by_sums,
    left_to_gain,
    mean_rate,
)
from skvrem.solvers._protocols import Anchor


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.99])
def test_a_geometric_series_is_summed(rate):
    gains = [rate**i for i in range(6)]
    # What was gained last and what is still to come.
    expected = gains[-1] / (1.0 - rate)
    assert left_to_gain(gains, 1.0) == pytest.approx(expected)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9, 0.99])
def test_sums_of_gains_are_a_geometric_series(rate):
    objectives = [-(rate**i) for i in range(11)]
    assert left_by_sums(objectives) == pytest.approx(rate**10)
    assert left_by_sums(objectives[1:]) == 0.0  # too few to tell
    # One small gain does not change it much.
    objectives.append(objectives[-1])
    assert left_by_sums(objectives) > 0.05 * rate**10


def test_sums_of_gains_that_do_not_fall_are_no_standstill():
    # Where five gains are a hundredth of the tolerance, less than that is left.
    objectives = np.linspace(0.0, 2e-8, 11)
    assert 0.5e-6 < left_by_sums(objectives) < 1e-6
    assert left_by_sums(-objectives) == 0.0


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.99])
@pytest.mark.parametrize("n", [2, 3])
def test_steady_gains_of_one_rate_are_the_same_series(rate, n):
    gains = [rate**i for i in range(n)]
    expected = left_to_gain(gains, 1.0)
    assert left_to_gain(gains, 1.0, steady=True) == pytest.approx(expected)


def test_the_newest_of_steady_gains_count():
    """Ratios of 0.1 and 0.4 are heading for 0.7; of falling ones none is believed."""
    assert left_to_gain([1.0, 0.1, 0.04], 1.0, steady=True) == pytest.approx(0.04 / 0.3)
    assert left_to_gain([1.0, 0.1, 0.08], 1.0, steady=True) == math.inf
    falling = [1.0, 0.4, 0.04]
    expected = left_to_gain(falling, 1.0)
    assert left_to_gain(falling, 1.0, steady=True) == pytest.approx(expected)
    assert left_to_gain([1.0, 0.0, 0.04], 1.0, steady=True) == math.inf


@pytest.mark.parametrize(
    "solver",
    [Batch(), SVRG(8), SAGA(8), Incremental(8), Incremental(8, sweeps=2)],
    ids=["batch", "svrg", "saga", "incremental", "incremental of a chain"],
)
def test_a_shoulder_is_no_end(solver):
    """Gains of fast directions die out, and those of slow ones are left, as in pLSA."""
    tol = 1e-4
    gains = np.append([8.5e-4, 1e-4, 1.2e-5], 8.2e-6 * 0.98 ** np.arange(200))
    left = gains[::-1].cumsum()[::-1] - gains
    assert left[2] > 3.0 * tol > 5.0 * left_to_gain(list(gains[:3]), -5.0)
    prospect, made = GainPrediction(tol), 0
    while not prospect.enough:
        anchor = Anchor(None, -5.0, 1.0, None)
        prospect.see(anchor, gains[made], solver, lambda anchor: True)
        made += 1
    # About when that is so: the series counts the newest gain, too.
    assert left[made - 1] < tol < left[made - 10]


def test_gains_that_do_not_fall_predict_anything():
    assert left_to_gain([1e-9, 2e-9, 4e-9], 1.0) == math.inf
    assert left_to_gain([0.0, 0.0, 1e-9], 1.0) == math.inf


def test_one_gain_is_taken_for_a_slow_fit():
    assert left_to_gain([1e-3], 1.0) == pytest.approx(1e-2)


def test_rounding_is_nothing():
    assert left_to_gain([1e-3, 1e-16], 1.0) == 0.0
    assert left_to_gain([1e-3, -1e-12], 1e4) == 0.0


def test_nothing_is_known_without_gains():
    assert math.isnan(left_to_gain([], 1.0))
    assert math.isnan(left_to_gain([math.nan], 1.0))
    assert math.isnan(left_to_gain([1.0] * 5, 1.0, noisy=3))


def test_noisy_gains_are_added_up():
    rng = np.random.default_rng(0)
    noise = 1e-6 * rng.normal(size=20)
    assert left_to_gain(list(noise), 1.0, noisy=10) < 1e-4
    falling = [0.5**i for i in range(20)]
    left = left_to_gain(falling, 1.0, noisy=10)
    assert left == pytest.approx(sum(falling[10:]), rel=1e-2)
    assert left_to_gain([1.0] * 20, 1.0, noisy=10) == pytest.approx(100.0)


def test_rates_of_predictions():
    assert mean_rate([1.0]) == 0.0
    assert mean_rate([1.0, 0.5, 0.25]) == pytest.approx(0.5)
    assert mean_rate([1.0, 1.0, 2.0]) == 0.95
    assert mean_rate([0.0, 1.0]) == 0.0


@pytest.mark.parametrize(("noise", "ends"), [(1e-8, True), (1e-2, False)])
def test_an_exact_objective_that_falls_is_at_its_rounding(noise, ends):
    """Gains that need not fall any more are as much as may be left."""
    prospect, solver = GainPrediction(tol=1e-3), Batch()
    for gain in (1.0, noise, -noise / 2.0, noise, -noise, noise, -noise):
        anchor = Anchor(None, -5.0, 1.0, None)
        prospect.see(anchor, gain, solver, lambda anchor: True)
    assert prospect.enough == ends
