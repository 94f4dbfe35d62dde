"""Sizes of steps and temperatures as functions of a count."""

import numpy as np
import pytest

from skvrem.schedules import LearnedTemperature, Linear, Power


@pytest.mark.parametrize("offset", [0.0, 5e-324, 1e-310, 1.0])
def test_a_power_begins_with_one_at_most(offset):
    assert Power(1.0, offset, 1.0)(0) == 1.0
    assert Power(1.0, offset, 1.0)(9) == pytest.approx(1.0 / (9.0 + offset))


def test_a_line_ends_at_one():
    line = Linear(3.0, 4)
    assert [line(i) for i in (0, 2, 4, 9)] == [3.0, 2.0, 1.0, 1.0]


def learned(optimal, **options):
    """A temperature on the grid (1, 2, 4) whose optimum is one of them."""
    grid, seen = np.array([1.0, 2.0, 4.0]), []

    def calibrate(point, temperature):
        seen.append(temperature)
        return 0.0, np.where(grid == optimal, 0.0, 1.0)

    options = {"total_weight": 1e6, "rate": 0.5} | options
    return LearnedTemperature(grid, np.array([0.0, 0.0, 1.0]), calibrate, **options), (
        seen
    )


def epochs(temperature, number):
    """Temperatures of so many epochs, as the loop asks for them."""
    found = []
    for count in range(number):
        found.append(temperature(count))
        temperature.observe(None)
    return found


def test_a_learned_temperature_moves_by_a_share():
    temperature, seen = learned(2.0)
    inverses = 1.0 / np.array(epochs(temperature, 5))
    np.testing.assert_allclose(inverses, 0.5 - 0.25 * 0.5 ** np.arange(5))
    np.testing.assert_allclose(seen, 1.0 / inverses)  # those of the points


def test_a_learned_temperature_ends_and_is_not_asked_again():
    temperature, seen = learned(1.0)
    found = epochs(temperature, 20)
    assert found[0] == 4.0 and found[-1] == 1.0 and np.all(np.diff(found) <= 0.0)
    assert len(seen) == found.index(1.0)


def test_a_learned_temperature_never_rises():
    temperature, _ = learned(4.0)
    temperature.share = np.array([0.0, 1.0, 0.0])
    temperature.inverses = [0.5]
    assert epochs(temperature, 5) == [2.0] * 5


def test_what_is_left_of_a_learned_temperature_goes_in_equal_ratios():
    temperature, seen = learned(2.0, length=3, end=6, blind=1)
    found = np.array(epochs(temperature, 8))
    assert found[0] == found[1] == 4.0 and found[2] < 4.0
    assert len(seen) == 2
    ratios = found[4:7] / found[3:6]
    np.testing.assert_allclose(ratios, ratios[0])
    assert found[6] == found[7] == 1.0


def test_a_learned_temperature_takes_the_last_of_what_it_is_told():
    once, _ = learned(2.0)
    twice, _ = learned(2.0)
    for count in range(4):
        assert once(count) == twice(count)
        once.observe(None)
        for _ in range(2):  # as where the loop goes back and certifies again
            twice.observe(None)
