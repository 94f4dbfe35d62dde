"""Make the stored pickles that later versions must load: python tests/pickles/make.py.

Writes <name>.pkl beside this file for every estimator of ``all_estimators()``: a dict
of builtins and arrays with

    version, state_format    what wrote it
    estimator                bytes, the pickle of a small fitted estimator
    X                        rows to be answered, shape (5, n_features), float64
    answers                  what its methods said about X, by name of the method

Regenerate a file only where the state format has been raised on purpose. Where the
rounds of a method have changed, and its answers by less than its tolerance, put new
`answers` into the file and leave the estimator's bytes as they are.
"""

import pickle
from pathlib import Path

import numpy as np

import skvrem
from skvrem.utils.discovery import all_estimators
from tests.own_models import Logistic

HERE = Path(__file__).parent
PROTOCOL = 4
METHODS = ("predict", "predict_proba", "score_samples", "transform")
# Parameters of each estimator; one that is not named here gets its defaults.
PARAMETERS = {
    "BayesianLogisticRegression": {"fit_intercept": False},
    "BayesianPPCA": {"n_components": 2},
    "BradleyTerry": {"ties": "davidson", "home_advantage": True},
    "FactorialMixture": {"n_components": 2},
    "GaussianDropoutClassifier": {"hidden_layer_sizes": (3,)},
    "HierarchicalSoftmaxClassifier": {"groups": 1},
    "VRPLSA": {"n_components": 2},
    "TemperedLDA": {"n_components": 2},
    "SBMLogisticRegression": {"compute_std": True},
    "VRGaussianMixture": {"n_components": 2, "covariance_type": "diag"},
    "VRHMM": {"n_components": 2},
}


def small_rows():
    """Two groups of counts: fit for models of real numbers and of counts alike."""
    rng = np.random.default_rng(0)
    groups = np.repeat([[2.0, 9.0, 4.0], [12.0, 3.0, 5.0]], 20, axis=0)
    return rng.poisson(groups).astype(np.float64), np.repeat([0, 1], 20)


def small_matches():
    """Items 0 to 3, which meet in pairs, and who won or tied."""
    rng = np.random.default_rng(0)
    first = rng.integers(4, size=40)
    second = (first + rng.integers(1, 4, size=40)) % 4
    X = np.stack([first, second], axis=1).astype(np.float64)
    return X, rng.choice([0.0, 0.5, 1.0], size=40)


def small_model():
    """A user's own model of the small rows."""
    X, y = small_rows()
    return Logistic(X - 5.0, y)


def rows_of(name):
    """Return X and y for an estimator."""
    if name == "VariationalInference":  # numbers of rows
        return np.arange(20.0), None
    return small_matches() if name == "BradleyTerry" else small_rows()


def fitted(name, estimator_class):
    estimator = estimator_class(**PARAMETERS.get(name, {}))
    if name == "VariationalInference":
        estimator.set_params(model=small_model())
    if "random_state" in estimator.get_params():
        estimator.set_params(random_state=0)
    return estimator.fit(*rows_of(name))


def answers_of(estimator, X):
    """Answers of the methods that need rows only."""
    return {
        method: np.asarray(getattr(estimator, method)(X))
        for method in METHODS
        if hasattr(estimator, method)
    }


def main():
    for name, estimator_class in all_estimators():
        estimator = fitted(name, estimator_class)
        X = rows_of(name)[0][::8] + 1.0
        stored = {
            "version": skvrem.__version__,
            "state_format": estimator_class._state_format,
            "estimator": pickle.dumps(estimator, protocol=PROTOCOL),
            "X": X,
            "answers": answers_of(estimator, X),
        }
        path = HERE / f"{name}.pkl"
        path.write_bytes(pickle.dumps(stored, protocol=PROTOCOL))
        print(f"{path.name}: {path.stat().st_size} bytes, {estimator}")


if __name__ == "__main__":
    main()
