"""The fuzzer runs, and finds what is planted."""

import warnings

import numpy as np
import pytest
from sklearn.utils.validation import check_array, check_is_fitted

from skvrem import SBMLogisticRegression
from skvrem.utils.discovery import all_estimators
from tests import fuzz


@pytest.mark.parametrize("seed", [3, 4])
def test_a_case_is_a_function_of_its_seed(seed):
    one, other = (fuzz.Draw(seed).case() for _ in range(2))
    assert fuzz.digest(list(one)) == fuzz.digest(list(other))


def test_cases_of_all_estimators():
    assert set(fuzz.QUICK) == set(dict(all_estimators()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = [fuzz.Draw(seed).case() for seed in range(300)]
    assert {case.estimator_class.__name__ for case in cases} == set(fuzz.QUICK)
    notes = {note for case in cases for note in case.notes}
    assert {"as " + kind for kind in fuzz.CONTAINERS} <= notes


class Broken(SBMLogisticRegression):
    """Does in its methods what should be found."""

    def fit(self, X, y):
        self.coef_ = np.array([np.nan])
        self.C = 2.0
        X[0] = 1.0
        return self

    def partial_fit(self, X, y):
        self.coef_ = np.ones(1)
        raise KeyError("y")

    def predict(self, X):
        check_array(X[0])

    def score(self, X):
        check_is_fitted(SBMLogisticRegression())

    def decision_function(self, X):
        return X[0, 1.5]


def test_what_is_planted_is_found():
    seed = next(s for s in range(100) if fuzz.Draw(s).name == "SBMLogisticRegression")
    trial = fuzz.Trial(seed)
    trial.estimator = Broken()
    X, y = np.zeros((3, 2)), np.arange(3)
    expected = {
        "fit": {"not finite", "parameters changed", "input changed"},
        "partial_fit": {"raw error", "state changed"},
        "predict": set(),
        "score": set(),
        "decision_function": {"raw error"},
    }
    for method, kinds in expected.items():
        trial.found.clear()
        trial.call(method, *((X, y) if "fit" in method else (X,)))
        found = {item["kind"] for item in trial.found}
        assert found >= kinds if kinds else not found, method
