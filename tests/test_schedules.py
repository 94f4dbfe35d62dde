"""Sizes of steps and temperatures as functions of a count."""

import pytest

from skvrem.schedules import Linear, Power


@pytest.mark.parametrize("offset", [0.0, 5e-324, 1e-310, 1.0])
def test_a_power_begins_with_one_at_most(offset):
    assert Power(1.0, offset, 1.0)(0) == 1.0
    assert Power(1.0, offset, 1.0)(9) == pytest.approx(1.0 / (9.0 + offset))


def test_a_line_ends_at_one():
    line = Linear(3.0, 4)
    assert [line(i) for i in (0, 2, 4, 9)] == [3.0, 2.0, 1.0, 1.0]
