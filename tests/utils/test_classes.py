"""Classes: found and numbered piece by piece as all at once."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator

from skvrem.utils import _classes
from skvrem.utils._classes import count_classes, number_classes


@pytest.mark.parametrize(
    "labels",
    [
        np.array([3, 1, 2]),
        np.array([False, True]),
        np.array(["b", "a", "long"]),
        np.array(["b", "a", "long"], dtype=object),
        np.array([2.0, -1.0]),
    ],
    ids=lambda labels: labels.dtype.kind,
)
def test_numbers_are_those_of_numpy(labels, rng, monkeypatch):
    monkeypatch.setattr(_classes, "PIECE", 7)
    y = labels[rng.integers(len(labels), size=100)]
    classes, numbers = number_classes(BaseEstimator(), y, None)
    expected, places = np.unique(y, return_inverse=True)
    assert np.array_equal(classes, expected)
    assert classes.dtype == expected.dtype
    assert np.array_equal(numbers, places)
    assert numbers.dtype == np.int8
    assert np.array_equal(count_classes(numbers, 3), np.bincount(places, minlength=3))
    weight = rng.random(100)
    found = count_classes(numbers, 3, weight)
    np.testing.assert_allclose(found, np.bincount(places, weight, 3))


@pytest.mark.parametrize(
    "k, dtype", [(128, "i1"), (129, "i2"), (32768, "i2"), (32769, "i4")]
)
def test_the_smallest_type_that_holds_all_numbers(k, dtype):
    y = np.repeat(np.arange(k), 2)
    _, numbers = number_classes(BaseEstimator(), y, None)
    assert numbers.dtype == dtype
    assert np.array_equal(numbers, y)


def test_labels_of_several_kinds_in_several_pieces(monkeypatch):
    monkeypatch.setattr(_classes, "PIECE", 2)
    with pytest.raises(ValueError, match="all numbers or all strings"):
        number_classes(BaseEstimator(), np.array([1, 1, "a", "a"], object), None)


def test_targets_that_are_no_classes():
    with pytest.raises(ValueError, match="Unknown label type"):
        number_classes(BaseEstimator(), np.linspace(0.0, 1.0, 50), None)
