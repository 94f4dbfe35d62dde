"""Answers of a fitted estimator belong to its fit, whatever `set_params` does."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from skvrem import (
    VRPLSA,
    FactorialMixture,
    SBMLogisticRegression,
    TemperedLDA,
    VRGaussianMixture,
)
from skvrem.utils._base import PREDICTION_PARAMETERS

pytestmark = pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning",
    "ignore:Some components of FactorialMixture are nothing",
)

RNG = np.random.default_rng(0)
ROWS = np.r_[RNG.normal(size=(40, 2)), RNG.normal(size=(40, 2)) + 4.0]
CLASSES = np.arange(80) % 3
COUNTS = sp.csr_matrix(RNG.poisson(1.0, size=(40, 9)))

TOPICS = {
    "transform": lambda m: m.transform(COUNTS),
    "score": lambda m: m.score(COUNTS),
    "perplexity": lambda m: m.perplexity(COUNTS),
    "inverse_transform": lambda m: m.inverse_transform(np.full((2, 2), 0.5)),
    "relabel": lambda m: m.relabel([1, 0]).components_,
}
ANSWERS = {
    VRGaussianMixture: {
        "predict": lambda m: m.predict(ROWS),
        "predict_proba": lambda m: m.predict_proba(ROWS),
        "score_samples": lambda m: m.score_samples(ROWS),
        "score": lambda m: m.score(ROWS),
        "aic": lambda m: m.aic(ROWS),
        "bic": lambda m: m.bic(ROWS),
        "sample": lambda m: m.sample(5)[0],
        "condition": lambda m: m.condition([0], [[1.0]]).covariance,
        "relabel": lambda m: m.relabel([1, 0]).covariances_,
    },
    VRPLSA: TOPICS,
    TemperedLDA: TOPICS
    | {
        "pseudo-counts": lambda m: m.transform(COUNTS, normalize=False),
        "exp_dirichlet_component_": lambda m: m.exp_dirichlet_component_,
    },
    FactorialMixture: {
        "transform": lambda m: m.transform(ROWS),
        "predict": lambda m: m.predict(ROWS),
        "score_samples": lambda m: m.score_samples(ROWS),
        "score": lambda m: m.score(ROWS),
        "sample": lambda m: m.sample(5)[0],
        "inverse_transform": lambda m: m.inverse_transform(np.ones((2, 2))),
        "relabel": lambda m: m.relabel([1, 0]).components_covariance_,
    },
    SBMLogisticRegression: {
        "decision_function": lambda m: m.decision_function(ROWS),
        "predict": lambda m: m.predict(ROWS),
        "predict_proba": lambda m: m.predict_proba(ROWS),
        "predict_log_proba": lambda m: m.predict_log_proba(ROWS),
        "score": lambda m: m.score(ROWS, CLASSES),
        "sparsify": lambda m: m.sparsify().densify().coef_,
    },
}
# Other values that are valid, of parameters that the answers are about.
OTHERS = {
    VRGaussianMixture: {"covariance_type": "diag", "reg_covar": 1.0},
    VRPLSA: {
        "doc_topic_smoothing": 3.0,
        "topic_word_smoothing": 5.0,
        "tempering": "annealed",
    },
    TemperedLDA: {
        "doc_topic_prior": 3.0,
        "topic_word_prior": 5.0,
        "tempering": "local",
        "total_samples": 7.0,
        "learning_method": "online",
    },
    FactorialMixture: {
        "noise_variance": 9.0,
        "posterior": "meanfield",
        "tempering": None,
    },
    SBMLogisticRegression: {
        "fit_intercept": False,
        "penalize_intercept": True,
        "class_weight": "balanced",
        "C": 1e-3,
        "curvature_rank": 1,
    },
}
ODD = [None, "nonsense", -1, np.arange(3.0), (), object()]


def fitted(kind):
    model = kind(random_state=0)
    if kind is not SBMLogisticRegression:
        model.set_params(n_components=2)
    if kind in (VRPLSA, TemperedLDA):
        return model.fit(COUNTS)
    return model.fit(ROWS, CLASSES)


def text_of(summary):
    facts = getattr(summary, "attrs", None)
    return f"{summary}{facts}"


@pytest.mark.parametrize("kind", ANSWERS, ids=lambda kind: kind.__name__)
def test_answers_do_not_change_with_parameters(kind):
    model = fitted(kind)
    answers = {n: np.array(ask(model), copy=True) for n, ask in ANSWERS[kind].items()}
    if "relabel" in answers:
        model.relabel([1, 0])
    summary = text_of(model.summary())
    free = set(model.get_params()) - PREDICTION_PARAMETERS
    changes = [dict.fromkeys(free, odd) for odd in ODD] + [OTHERS[kind]]
    before = model.get_params()
    for change in changes:
        model.set_params(**before).set_params(**change)
        for name, ask in ANSWERS[kind].items():
            found = ask(model)
            np.testing.assert_array_equal(found, answers[name], err_msg=name)
        if "relabel" in answers:
            model.relabel([1, 0])
        assert text_of(model.summary()) == summary, change
    # A clone has the new parameters and none of the old ones.
    assert clone(model)._of_fit.tol == model.tol


def test_a_mixture_of_another_covariance_type_is_not_gone_on_from():
    model = VRGaussianMixture(2, covariance_type="tied", random_state=0).fit(ROWS)
    model.set_params(covariance_type="diag")  # of the same shape, (2, 2)
    with pytest.raises(ValueError, match="cannot be gone on from"):
        model.partial_fit(ROWS)
    with pytest.raises(ValueError, match="cannot be gone on from"):
        model.set_params(warm_start=True).fit(ROWS)
