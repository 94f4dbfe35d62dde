"""Temperatures that are learned."""

import numpy as np
import pytest
from scipy.integrate import quad

from skvrem.factorial import _model_bound as bound
from skvrem.factorial._model import FactorialModel
from skvrem.factorial._model_bound import Parameters
from skvrem.factorial._start import learned_temperature


@pytest.fixture
def parameters():
    return Parameters(np.array([[1.0], [-2.0]]), None, np.array([0.3, 0.6]), 0.5, 1.0)


def log_partition(parameters, temperature):
    """log of the integral of p(x, z | μ)^(1/T) without the Gaussian's constant."""
    total = 0.0
    for z in np.ndindex(2, 2):
        z = np.array(z)
        prior = np.where(z, parameters.activation, 1 - parameters.activation).prod()
        at, width = float(z @ parameters.means[:, 0]), parameters.noise * temperature
        value, _ = quad(
            lambda x, a=at, v=width: np.exp(-0.5 * (x - a) ** 2 / v), -60, 60
        )
        total += prior ** (1.0 / temperature) * value
    return np.log(total) - 0.5 * np.log(2 * np.pi * parameters.noise)


def test_the_optimum_is_that_of_the_integral(parameters):
    tempering = learned_temperature(10.0, 10, 25.0)
    T = tempering.temperatures
    found = tempering.optimum(-2.0, bound.log_partition(parameters, 1.0 / T))
    logs = 25.0 * np.array([-2.0 / t - log_partition(parameters, t) for t in T])
    expected = np.exp(logs - np.logaddexp.reduce(logs))
    np.testing.assert_allclose(found, expected, rtol=1e-7)
    assert 1.0 < T[found.argmax()] < 10.0


def test_poor_fits_are_hot(parameters):
    peaks = []
    for energy in (-1.0, -3.0, -9.0):
        tempering = learned_temperature(50.0, 10, 1e5)
        T = tempering.temperatures
        best = tempering.optimum(energy, bound.log_partition(parameters, 1.0 / T))
        peaks.append(T[best.argmax()])
    assert peaks == sorted(peaks)
    assert peaks[0] < peaks[2] < 50.0


@pytest.mark.parametrize("noise", [0.1, 10.0])
def test_it_starts_at_the_top_and_ends_at_one(parameters, noise):
    model = FactorialModel(1000.0, np.float64)
    point = model.start(parameters)
    mean = point.statistics._replace(sum_xx=point.statistics.sum_xx + noise)
    tempering = learned_temperature(20.0, 12, 1000.0)
    seen = []
    for epoch in range(30):
        seen.append(tempering(epoch))
        assert tempering(epoch) == seen[-1]  # asked again within the epoch
        tempering.observe(point._replace(statistics=mean))
    assert seen[0] == seen[1] == pytest.approx(20.0)
    assert seen[2] < 20.0
    assert all(t == 1.0 for t in seen[tempering.end :])
    assert tempering.end == 18
    assert np.all(np.diff(seen) <= 1e-12)
    assert seen[12] > (2.0 if noise > 1.0 else 1.0)


def test_the_energy_is_that_of_the_point(parameters):
    model = FactorialModel(1000.0, np.float64)
    point = model.start(parameters)
    energy, _ = bound.calibration(point, np.array([0.5, 1.0]))
    prior = parameters.activation
    entropy = prior @ np.log(prior) + (1.0 - prior) @ np.log1p(-prior)
    # A start has the residual that its noise variance expects.
    assert energy == pytest.approx(entropy - 0.5)
