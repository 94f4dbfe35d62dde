"""Classes: found and numbered piece by piece as all at once."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import KFold, cross_val_score

from skvrem import (
    BayesianLogisticRegression,
    GaussianDropoutClassifier,
    HierarchicalSoftmaxClassifier,
    SBMLogisticRegression,
)
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


@pytest.mark.parametrize(
    "classifier",
    [
        SBMLogisticRegression(),
        BayesianLogisticRegression(),
        HierarchicalSoftmaxClassifier(),
        GaussianDropoutClassifier(hidden_layer_sizes=(), random_state=0),
    ],
    ids=lambda classifier: type(classifier).__name__,
)
@pytest.mark.filterwarnings("ignore::skvrem.exceptions.FewGroupsWarning")
def test_a_class_that_a_fold_does_not_have_is_a_miss(classifier, rng):
    """As scikit-learn's: or one rare label makes NaN of a score by folds."""
    X = rng.normal(size=(90, 2))
    y = np.where(X[:, 0] > 0.0, "a", "b").astype(object)
    y[0] = "rare"
    model = classifier.fit(X[1:], y[1:])
    hits = np.sum(model.predict(X) == y)
    assert model.score(X, y) == pytest.approx(hits / 90)
    assert np.isfinite(cross_val_score(clone(classifier), X, y, cv=KFold(3))).all()
