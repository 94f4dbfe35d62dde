"""Temperatures that are learned."""

import numpy as np
import pytest
from scipy.integrate import quad

from skvrem.data import as_source
from skvrem.factorial import _model_bound as bound
from skvrem.factorial._model import FactorialModel
from skvrem.factorial._model_bound import Parameters
from skvrem.factorial._start import learned_temperature
from skvrem.solvers import Batch


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


@pytest.mark.parametrize(("mean", "spread"), [(0.0, 1e3), (0.0, 0.01), (1.5, 1e3)])
@pytest.mark.parametrize("full", [True, False])
def test_components_part_below_the_critical_temperature(rng, mean, spread, full):
    """A little hotter, what tells them apart shrinks by as much a pass; colder, grows.

    What the formula leaves out is of order D/N, and of |m|² where the mean is not zero.
    """
    n, k = 4000, 4
    X = rng.normal(size=(n, 5)) * [3.0, 2.0, 1.0, 1.0, 0.5]
    X += mean - X.mean(axis=0)
    data = as_source(X)
    model = FactorialModel(n, X.dtype, full=full, inner_iter=50, inner_tol=0.0)
    place = np.tile(X.mean(axis=0) / (0.5 * k), (k, 1))
    alike = Parameters(place, None, np.full(k, 0.5), 0.7, spread)
    critical = model.critical_temperature(alike, data.sample(n, rng))
    largest = np.linalg.eigvalsh(np.cov(X.T, bias=True))[-1]

    def expected(temperature):
        a = 0.7 * temperature
        return largest / a / (1.0 + 4.0 * a / (n * spread))

    assert expected(critical) == pytest.approx(1.0, rel=1e-9)
    apart = 0.01 * rng.normal(size=place.shape)
    apart -= apart.mean(axis=0)
    batch = Batch()
    batch.start(model, data, rng)
    for edge in (0.02, -0.02):
        point, lengths = model.start(alike._replace(means=place + apart), data), []
        for _ in range(40):
            hot = (1.0 + edge) * critical
            anchor = batch.certify(model.recentre(point), 1.0 / hot)
            point = model.update(anchor.point, anchor.mean, None, 1.0)
            means = point.parameters.means
            lengths.append(np.linalg.norm(means - means.mean(axis=0)))
        growth = (lengths[-1] / lengths[-11]) ** 0.1
        assert growth == pytest.approx(expected(hot), abs=0.01 if mean else 0.003)


def test_what_is_nothing_or_the_same_has_vanished(parameters):
    model = FactorialModel(1000.0, np.float64)
    deviation = model.start(parameters).parameters.covariance[0, 0] ** 0.5
    means = np.array([[1.0], [0.5 * deviation], [1.0 + 0.5 * deviation], [-1.0]])
    four = Parameters(means, None, np.full(4, 0.4), 0.5, 1.0)
    found = model.vanished(model.start(four).parameters)
    np.testing.assert_array_equal(found, [False, True, True, False])
