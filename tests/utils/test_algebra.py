"""Arithmetic of statistics, and steps of the EM family, against dense arrays."""

import pickle
from typing import Any, NamedTuple

import numpy as np
import pytest

from skvrem.utils._algebra import (
    Packed,
    Rows,
    accumulate,
    combination,
    correction,
    dense,
    difference,
    equal_pieces,
    pieces,
    rescale,
    scale,
)
from skvrem.utils._averaging import FRACTIONS, Averaging, AveragingPoint


class Sums(NamedTuple):
    table: Any
    vector: Any
    number: Any


def make(seed, index=(3, 0)):
    rng, index = np.random.default_rng(seed), np.array(index)
    rows = Rows(index, rng.normal(size=(len(index), 2)), 5)
    return Sums(rows, rng.normal(size=3), float(rng.normal()))


def flat(sums):
    return np.concatenate([np.ravel(part) for part in dense(sums)])


def test_rows_are_zero_elsewhere():
    rows = make(0).table
    full = rows.toarray()
    assert full.shape == (5, 2) and not full[[1, 2, 4]].any()
    np.testing.assert_array_equal(full[[3, 0]], rows.values)


def test_sums_are_linear():
    a, b, c = make(0), make(1), make(2, (0, 4))
    np.testing.assert_allclose(flat(difference(a, b)), flat(a) - flat(b))
    np.testing.assert_allclose(flat(scale(a, 3.0)), 3.0 * flat(a))
    np.testing.assert_allclose(flat(correction(a, b, 3.0)), 3.0 * (flat(a) - flat(b)))
    values = a.table.values
    expected, own = flat(correction(a, b, 3.0)), correction(a, b, 3.0, in_place=True)
    assert own.table.values is values and np.array_equal(flat(own), expected)
    a = make(0)
    found = flat(combination((2.0, dense(a)), (-1.0, dense(b)), (0.5, c)))
    np.testing.assert_allclose(found, 2.0 * flat(a) - flat(b) + 0.5 * flat(c))
    with pytest.raises(ValueError, match="same rows"):
        difference(a, c)
    with pytest.raises(ValueError, match="same rows"):
        correction(a, c, 1.0, in_place=True)


def test_totals_grow_in_place_and_leave_their_parts_alone():
    parts = [make(0), make(1, (0, 4)), make(2)]
    before = [flat(part) for part in parts]
    total = accumulate(None, parts[0])
    table, vector = total.table, total.vector
    for part in parts[1:]:
        total = accumulate(total, part)
    assert total.table is table and total.vector is vector
    np.testing.assert_allclose(flat(total), sum(before))
    for part, was in zip(parts, before, strict=True):
        np.testing.assert_array_equal(flat(part), was)


def test_rescaling_is_in_place():
    sums = make(0)
    before, vector = flat(sums), sums.vector
    found = rescale(sums, 0.5)
    assert found.vector is vector and found.table is sums.table
    np.testing.assert_allclose(flat(found), 0.5 * before)


class Side(Packed):
    """Three parts side by side."""

    __slots__ = ()
    names = "table", "vector", "number"


def test_flat_sums_are_what_their_parts_are():
    parts = [make(seed) for seed in range(3)]
    a, b, c = (dense(part) for part in parts)
    d, e, f = (Side.of(*part) for part in (a, b, c))
    for found, expected in (
        (scale(d, 3.0), scale(a, 3.0)),
        (difference(d, e), difference(a, b)),
        (correction(d, e, 3.0), correction(a, b, 3.0)),
        (combination((2.0, d), (0.0, e), (0.5, f)), combination((2.0, a), (0.5, c))),
        (accumulate(accumulate(None, d), e), accumulate(accumulate(None, a), b)),
        (rescale(dense(d), 0.5), rescale(dense(a), 0.5)),
        (d._replace(vector=b.vector), a._replace(vector=b.vector)),
    ):
        for part, name in zip(expected, Side.names, strict=True):
            np.testing.assert_array_equal(getattr(found, name), part)
    np.testing.assert_array_equal(d.values, flat(a))


def test_parts_of_flat_sums_are_views():
    sums = Side.of(np.zeros((2, 3)), np.zeros(4), 0.0)
    for number, part in enumerate(sums):
        part += number + 1.0
    np.testing.assert_array_equal(sums.values, [1.0] * 6 + [2.0] * 4 + [3.0])
    assert [np.shape(part) for part in sums[:2]] == [(2, 3), (4,)]
    copy = pickle.loads(pickle.dumps(sums))
    assert float(copy.number) == 3.0 and not np.shares_memory(copy[0], sums[0])
    with pytest.raises(AttributeError):
        _ = sums.other


def test_pieces_are_views_one_after_another():
    array = np.arange(14).reshape(2, 7)
    views = pieces(array, [2, 1, 4])
    for view, (a, b) in zip(views, [(0, 2), (2, 3), (3, 7)], strict=True):
        assert view.base is not None
        np.testing.assert_array_equal(view, array[:, a:b])


def test_equal_pieces_are_views_of_what_split_returns():
    array = np.arange(24.0).reshape(2, 12)
    wanted = np.split(array, 3, axis=1)
    for piece, part in zip(equal_pieces(array, 3), wanted, strict=True):
        np.testing.assert_array_equal(piece, part)
        assert np.shares_memory(piece, array)


class Positive(Averaging):
    """Statistics are feasible where all are positive; else they are cut."""

    def maximize(self, statistics, point, repair):
        values = statistics.vector
        if (values > 0.0).all() or repair:
            return np.maximum(values, 0.0), tuple(np.flatnonzero(values <= 0.0))
        return None


def of(*vector):
    return Sums(np.zeros((1, 1)), np.array(vector), 0.0)


@pytest.mark.parametrize("trials", range(len(FRACTIONS)))
def test_corrections_are_halved_until_they_are_feasible(trials):
    """s + rho (F - s) + rho alpha c, with the longest alpha that leaves it positive."""
    alpha, point = FRACTIONS[trials], AveragingPoint(None, of(1.0, 2.0), repaired=(7,))
    # Just short of zero with this alpha, and beyond with a longer one.
    change = of(0.0, -0.999 * 3.0 / (0.25 * alpha) if alpha else -1e9)
    mean = of(2.0, 6.0)
    found = Positive().update(point, mean, change, 0.25)
    assert found.trials == trials and found.repaired == ()
    expected = [1.25, 3.0 + 0.25 * alpha * change.vector[1]]
    np.testing.assert_allclose(found.statistics.vector, expected)
    np.testing.assert_array_equal(found.parameters, found.statistics.vector)


def test_without_a_correction_what_is_infeasible_is_repaired():
    point = AveragingPoint(None, of(1.0, 0.0))
    found = Positive().update(point, of(3.0, 0.0), None, 0.5)
    assert found.trials == 0 and found.repaired == (1,)
    np.testing.assert_array_equal(found.parameters, [2.0, 0.0])
