"""The nested parameter `steps`: how it is set, and what it refuses."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from skvrem import (
    BayesianGLMRegressor,
    BayesianLogisticRegression,
    GaussianDropoutClassifier,
    VariationalInference,
)
from skvrem.vi import MinibatchSteps
from tests.own_models import Logistic, logistic_problem

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 3))
Y = (X[:, 0] + rng.normal(size=60) > 0.0).astype(int)


def estimators():
    quick = {"max_iter": 2, "tol": 0.0, "random_state": 0}
    return {
        "logistic": (BayesianLogisticRegression(**quick), (X, Y)),
        "glm": (BayesianGLMRegressor(**quick), (X, Y)),
        "dropout": (GaussianDropoutClassifier((), **quick), (X, Y)),
        "own": (
            VariationalInference(Logistic(*logistic_problem()), **quick),
            (np.arange(60),),
        ),
    }


@pytest.fixture(params=list(estimators()))
def case(request):
    return estimators()[request.param]


def test_parameters_of_steps_are_set_where_steps_is_none(case):
    estimator, _ = case
    assert estimator.steps is None
    assert estimator.set_params(steps__optimizer="adam", tol=0.5) is estimator
    assert estimator.tol == 0.5
    assert estimator.get_params()["steps__optimizer"] == "adam"
    assert estimator.steps.get_params() == MinibatchSteps(optimizer="adam").get_params()
    # Others are added to them, and a clone has its own.
    other = clone(estimator).set_params(steps__n_draws=2)
    assert other.steps.optimizer == "adam" and other.steps.n_draws == 2
    assert estimator.steps.n_draws == "auto"
    estimator.set_params(steps=None, steps__n_draws=4)
    assert estimator.steps.optimizer == "auto" and estimator.steps.n_draws == 4
    given = MinibatchSteps(control_variate=None)
    estimator.set_params(steps__optimizer="sgd", steps=given)
    assert estimator.steps is given and given.optimizer == "sgd"
    with pytest.raises(ValueError, match="Invalid parameter 'optimiser'"):
        estimator.set_params(steps__optimiser="adam")
    assert clone(estimator.set_params(steps=None)).steps is None


def test_setting_other_parameters_leaves_steps_alone(case):
    estimator, _ = case
    assert estimator.set_params(tol=0.1).steps is None
    assert "steps__optimizer" not in estimator.get_params()


def test_a_search_over_parameters_of_steps(case):
    estimator, fit = case
    grid = {"solver": ["stochastic"], "steps__optimizer": ["adam", "sgd"]}
    search = GridSearchCV(estimator, grid, cv=2, error_score="raise")
    search.fit(*fit)
    found = search.cv_results_["param_steps__optimizer"]
    assert sorted(found) == ["adam", "sgd"]
    assert search.best_estimator_.optimizer_ == search.best_params_["steps__optimizer"]
    assert estimator.steps is None


def test_what_lacks_a_control_variate_is_told_which_there_are(case):
    estimator, fit = case
    estimator.set_params(solver="svrg", steps__control_variate=None)
    if not isinstance(estimator, VariationalInference):
        estimator.set_params(steps__expectation="mc")
    only = isinstance(estimator, GaussianDropoutClassifier)
    known = "'taylor'" if only else "'taylor' or 'antithetic'"
    with pytest.raises(ValueError, match=rf"choose control_variate={known}\.$"):
        estimator.fit(*fit)


def test_what_no_estimator_has():
    steps = MinibatchSteps(control_variate="antithetic")
    with pytest.raises(ValueError, match="'taylor' or None, got 'antithetic'"):
        GaussianDropoutClassifier(steps=steps).fit(X, Y)
    for params, message in [
        ({"optimizer": "newton"}, "optimizer of MinibatchSteps must be 'auto' or"),
        ({"control_variate": "cv"}, "control_variate of MinibatchSteps must be"),
        ({"control_scale": 1}, "control_scale of MinibatchSteps must be"),
        ({"n_draws": 0}, "n_draws of MinibatchSteps must be an integer of at least 1"),
    ]:
        with pytest.raises(ValueError, match=message):
            BayesianLogisticRegression(steps=MinibatchSteps(**params)).fit(X, Y)
