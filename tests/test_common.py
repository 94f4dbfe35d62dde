"""scikit-learn's own checks, over every estimator and every way to fit it."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

from skvrem import (
    VRHMM,
    VRPLSA,
    BayesianGLMRegressor,
    BayesianLogisticRegression,
    FactorialMixture,
    GaussianDropoutClassifier,
    HierarchicalSoftmaxClassifier,
    SBMLogisticRegression,
    TemperedLDA,
    VRGaussianMixture,
)
from skvrem.utils.discovery import all_estimators

# Small enough that the checks are quick; parameters that an estimator does not have
# are left out.
SMALL = {"n_components": 2, "max_iter": 200, "tol": 1e-3, "annealing_iter": 5}


def make(estimator_class, **params):
    defaults = estimator_class().get_params()
    small = {name: value for name, value in SMALL.items() if name in defaults}
    if "tol" in small:  # in nats, not in nats a row, a default may be larger
        small["tol"] = max(small["tol"], defaults["tol"])
    return estimator_class(**(small | params))


def variants():
    """Every estimator with its defaults, then the branches that have code of their own.

    The checks fit a few dozen rows, so the solvers with minibatches get small ones.
    """
    for _, estimator_class in all_estimators():
        # Of others, as scikit-learn's IsotonicRegression, it checks nothing: what they
        # take instead of rows of features is in tests of their own.
        if get_tags(estimator_class()).input_tags.two_d_array:
            yield estimator_class()
            yield make(estimator_class)
    for covariance_type in ("tied", "diag", "spherical"):
        yield make(VRGaussianMixture, covariance_type=covariance_type)
    for solver in ("stochastic", "svrg", "saga", "incremental"):
        yield make(VRGaussianMixture, solver=solver, batch_size=10)
    yield make(VRGaussianMixture, solver="batch", acceleration="squarem")
    yield make(VRGaussianMixture, tempering="annealed", annealing_iter=3)
    yield make(VRGaussianMixture, init_params="random_from_data", n_init=2)
    yield make(VRGaussianMixture, warm_start=True)
    for solver in ("batch", "stochastic", "svrg"):
        yield make(VRPLSA, solver=solver, batch_size=10)
    yield make(VRPLSA, tempering="annealed", annealing_iter=3, n_init=2)
    yield make(VRPLSA, doc_topic_prior=0.0, topic_word_prior=0.0)
    yield make(FactorialMixture, solver="stochastic", batch_size=10, tol=1e-2)
    yield make(FactorialMixture, solver="svrg", batch_size=10)
    yield make(FactorialMixture, tempering=None, posterior="diag", n_init=2)
    yield make(FactorialMixture, tempering="global", noise_variance=0.5)
    few = {"max_iter": 10, "tol": 0.0, "annealing_iter": 4}
    for solver in ("batch", "stochastic", "svrg"):
        yield make(TemperedLDA, solver=solver, batch_size=10, **few)
    for tempering in ("annealed", "global", "local"):
        yield make(TemperedLDA, tempering=tempering, **few)
    yield SBMLogisticRegression(solver="batch", max_iter=3000, tol=1e-6)
    yield SBMLogisticRegression(solver="svrg", batch_size=10)
    yield SBMLogisticRegression(solver="stochastic", batch_size=10, tol=1e-3)
    yield SBMLogisticRegression(rank=2, curvature="bound", tol=1e-15, max_iter=3000)
    yield BayesianGLMRegressor("poisson")
    yield BayesianGLMRegressor(noise_scale=0.5, posterior="meanfield")
    for posterior in ("meanfield", "lowrank"):
        yield BayesianLogisticRegression(posterior=posterior, fit_intercept=False)
    for solver in ("stochastic", "svrg", "saga"):
        yield BayesianLogisticRegression(solver=solver, tol=0.5, batch_size=10)
    yield BayesianLogisticRegression(solver="svrg", expectation="mc", tol=0.5)
    yield HierarchicalSoftmaxClassifier(fit_intercept=False, warm_start=True, tol=0.1)
    for solver in ("batch", "svrg"):
        yield GaussianDropoutClassifier((), solver=solver, max_iter=300, tol=1e-2)
    for covariance_type in ("full", "tied", "spherical"):
        yield make(VRHMM, covariance_type=covariance_type, n_init=1)
    yield make(VRHMM, solver="batch", init_params="random", algorithm="map")
    yield make(VRHMM, emission="gaussian", warm_start=True, groups=None)


WEIGHTS = "check_sample_weight_equivalence_on_"


def expected_failures(estimator):
    """What random draws, or a weight a row of a sequence, cannot have.

    A fit of weighted rows is compared with one of repeated rows. Starting values of a
    mixture, and minibatches of any model, are drawn from the rows there are, and
    another number of rows means other draws, as for scikit-learn's KMeans, which
    expects the same failure. Given the draws, both fits are the same: see the tests
    below.
    """
    if isinstance(estimator, VRGaussianMixture) and estimator.n_components > 1:
        reason = "the start is drawn from the rows, of which there is another number"
        return {WEIGHTS + "dense_data": reason}
    blocks = isinstance(estimator, VRPLSA | TemperedLDA | SBMLogisticRegression)
    if blocks and estimator.solver in ("stochastic", "svrg"):
        reason = "minibatches are drawn from rows, of which there is another number"
        return {WEIGHTS + "dense_data": reason, WEIGHTS + "sparse_data": reason}
    if isinstance(estimator, BayesianLogisticRegression) and estimator.solver not in (
        "auto",
        "batch",
    ):
        reason = "minibatches are drawn from rows, of which there is another number"
        return {WEIGHTS + "dense_data": reason, WEIGHTS + "sparse_data": reason}
    if isinstance(estimator, GaussianDropoutClassifier) and estimator.solver == "svrg":
        reason = "minibatches are drawn from rows, of which there is another number"
        return {WEIGHTS + "dense_data": reason}
    if isinstance(estimator, VRHMM):
        reason = "a sequence counts as a whole: its rows have one weight"
        return {
            "check_sample_weights_not_overwritten": reason,
            WEIGHTS + "dense_data": reason,
        }
    return {}


@parametrize_with_checks(list(variants()), expected_failed_checks=expected_failures)
def test_sklearn_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
@pytest.mark.parametrize(
    "solver", ["batch", "svrg", "saga", "incremental", "stochastic"]
)
def test_weights_are_repetitions_given_the_start(solver, covariance_type, rng):
    X = 4.0 * rng.integers(2, size=(400, 1)) + rng.normal(size=(400, 2))
    weight = rng.integers(4, size=400)
    estimator = VRGaussianMixture(
        2,
        covariance_type=covariance_type,
        solver=solver,
        weights_init=[0.5, 0.5],
        means_init=[[-1.0, 0.0], [5.0, 4.0]],
        precisions_init={
            "full": [np.eye(2)] * 2,
            "tied": np.eye(2),
            "diag": np.ones((2, 2)),
            "spherical": np.ones(2),
        }[covariance_type],
        random_state=0,
        batch_size=100,
        tol=1e-4 if solver == "stochastic" else 1e-12,
        max_iter=500,
    )
    weighted = clone(estimator).fit(X, sample_weight=weight)
    repeated = clone(estimator).fit(np.repeat(X, weight, axis=0))
    # Minibatches differ, the fixed point does not; stochastic EM ends near it.
    atol = {"batch": 1e-10, "stochastic": 0.1}.get(solver, 1e-5)
    for name in ("weights_", "means_", "covariances_"):
        a, b = getattr(weighted, name), getattr(repeated, name)
        np.testing.assert_allclose(a, b, rtol=0, atol=atol, err_msg=name)
    if solver == "batch":
        assert weighted.n_iter_ == repeated.n_iter_ > 3


@pytest.mark.parametrize("solver", ["batch", "svrg", "stochastic"])
@pytest.mark.parametrize("estimator_class", [VRPLSA, TemperedLDA])
def test_document_weights_are_repetitions(estimator_class, solver, rng):
    words = np.kron(np.eye(3), np.full(4, 2.0)) + 0.1
    X = rng.poisson(words[rng.integers(3, size=300)])
    weight = rng.integers(4, size=300)
    estimator = estimator_class(
        3,
        solver=solver,
        components_init=words + rng.uniform(size=words.shape),
        batch_size=50,
        tol=1e-4 if solver == "stochastic" else 1e-10,
        max_iter=1000,
        random_state=0,
    )
    weighted = clone(estimator).fit(X.astype(float), sample_weight=weight)
    repeated = clone(estimator).fit(np.repeat(X, weight, axis=0).astype(float))
    atol = {"batch": 1e-10, "svrg": 1e-5, "stochastic": 0.02}[solver]
    found, expected = (
        fit.components_ / fit.components_.sum(axis=1, keepdims=True)
        for fit in (weighted, repeated)
    )
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


def test_discovery_finds_what_is_public():
    import skvrem

    found = dict(all_estimators())
    assert found["VRGaussianMixture"] is skvrem.VRGaussianMixture
    assert list(found) == sorted(found)
    for name, estimator_class in found.items():
        assert not name.startswith("_")
        assert getattr(skvrem, name) is estimator_class, f"skvrem.{name} is missing"


@pytest.mark.parametrize(("name", "estimator_class"), all_estimators())
def test_clone_of_small_parameters_is_unfitted(name, estimator_class):
    assert not hasattr(make(estimator_class), "n_features_in_")
