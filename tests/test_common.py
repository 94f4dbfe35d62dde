"""scikit-learn's own checks, over every estimator and every way to fit it."""

import re
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import SkipTestWarning
from sklearn.utils import estimator_checks, get_tags
from sklearn.utils.estimator_checks import estimator_checks_generator

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
from skvrem.utils.discovery import all_estimators, expected_failed_checks
from skvrem.vi import MinibatchSteps

# Small enough that the checks are quick; parameters that an estimator does not have
# are left out.
SMALL = {"n_components": 2, "max_iter": 200, "tol": 1e-3, "annealing_iter": 5}
FEW = {"max_iter": 10, "tol": 0.0, "annealing_iter": 4}


def make(estimator_class, **params):
    defaults = estimator_class().get_params()
    small = {name: value for name, value in SMALL.items() if name in defaults}
    if "tol" in small:  # in nats, not in nats a row, a default may be larger
        small["tol"] = max(small["tol"], defaults["tol"])
    return estimator_class(**(small | params))


def tables():
    """The estimators whose input is a table of rows and features.

    Of others, as of its IsotonicRegression, scikit-learn checks nothing.
    """
    for _, estimator_class in all_estimators():
        if get_tags(estimator_class()).input_tags.two_d_array:
            yield estimator_class


def usual():
    """Every estimator with its defaults."""
    return (estimator_class() for estimator_class in tables())


# Random numbers have one optimum, whatever the minibatches, of so much noise.
NOISY = {"noise_variance": 0.5, "component_variance": 1.0}


def variants():
    """Every estimator made small, and one branch or two of each with code of its own.

    The checks fit a few dozen rows, so the solvers with minibatches get small ones.
    """
    yield from map(make, tables())
    yield make(VRGaussianMixture, covariance_type="tied", solver="saga", batch_size=10)
    yield make(VRPLSA, solver="svrg", batch_size=10)
    yield make(FactorialMixture, solver="stochastic", batch_size=10, tol=1e-2, **NOISY)
    yield make(TemperedLDA, tempering="local", **FEW)
    yield SBMLogisticRegression(solver="svrg", batch_size=10)
    yield BayesianLogisticRegression(solver="stochastic", tol=0.5, batch_size=10)
    yield BayesianLogisticRegression(posterior="lowrank", fit_intercept=False)
    yield make(VRHMM, covariance_type="full", n_init=1)


def more_variants():
    """The other branches."""
    for covariance_type in ("tied", "diag", "spherical"):
        yield make(VRGaussianMixture, covariance_type=covariance_type)
    for solver in ("stochastic", "svrg", "saga", "incremental"):
        yield make(VRGaussianMixture, solver=solver, batch_size=10)
    yield make(VRGaussianMixture, solver="batch", acceleration="squarem")
    yield make(VRGaussianMixture, tempering="annealed", annealing_iter=3)
    yield make(VRGaussianMixture, init_params="random_from_data", n_init=2)
    yield make(VRGaussianMixture, warm_start=True)
    for solver in ("batch", "stochastic"):
        yield make(VRPLSA, solver=solver, batch_size=10)
    yield make(VRPLSA, tempering="annealed", annealing_iter=3, n_init=2)
    yield make(VRPLSA, doc_topic_smoothing=0.0, topic_word_smoothing=0.0)
    cold = {"tempering": None, "n_init": 1} | NOISY
    yield make(FactorialMixture, solver="svrg", batch_size=10, **cold)
    yield make(FactorialMixture, tempering=None, posterior="meanfield", n_init=2)
    yield make(FactorialMixture, tempering="global", noise_variance=0.5)
    for solver in ("batch", "stochastic", "svrg"):
        yield make(TemperedLDA, solver=solver, batch_size=10, **FEW)
    for tempering in ("annealed", "global"):
        yield make(TemperedLDA, tempering=tempering, **FEW)
    yield SBMLogisticRegression(solver="batch", max_iter=3000, tol=1e-6)
    yield SBMLogisticRegression(solver="stochastic", batch_size=10, tol=1e-3)
    yield SBMLogisticRegression(
        curvature_rank=2, curvature="bound", tol=1e-15, max_iter=3000
    )
    yield BayesianGLMRegressor("poisson")
    yield BayesianGLMRegressor(noise_scale=0.5, posterior="meanfield")
    yield BayesianLogisticRegression(posterior="meanfield", fit_intercept=False)
    for solver in ("svrg", "saga"):
        yield BayesianLogisticRegression(solver=solver, tol=0.5, batch_size=10)
    yield BayesianLogisticRegression(
        solver="svrg", steps=MinibatchSteps(expectation="mc"), tol=0.5
    )
    yield HierarchicalSoftmaxClassifier(fit_intercept=False, warm_start=True, tol=0.1)
    for solver in ("batch", "svrg"):
        yield GaussianDropoutClassifier((), solver=solver, max_iter=300, tol=1e-2)
    for covariance_type in ("tied", "spherical"):
        yield make(VRHMM, covariance_type=covariance_type, n_init=1)
    yield make(VRHMM, solver="batch", init_params="random", algorithm="map")
    yield make(VRHMM, emission="gaussian", warm_start=True, groups=None)


# The checks whose answers are a matter of the numbers that a fit comes to, and so of
# the solver. All the others are of names, shapes, types and messages, which are looked
# at before a solver is: for these an estimator with its defaults stands for all.
OF_NUMBERS = (
    "check_class_weight_classifiers",
    "check_classifiers_train",
    "check_decision_proba_consistency",
    "check_estimators_dtypes",
    "check_estimators_overwrite_params",
    "check_estimators_pickle",
    "check_fit2d_1feature",
    "check_fit2d_1sample",
    "check_fit_idempotent",
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
    "check_readonly_memmap_input",
    "check_regressors_train",
    "check_sample_weight_equivalence_on_dense_data",
    "check_sample_weight_equivalence_on_sparse_data",
    "check_transformer_general",
)


def name_of(check):
    return check.func.__name__


def checks_of(estimators):
    """Pairs of an estimator and one of its checks, as scikit-learn marks them."""
    for estimator in estimators:
        with warnings.catch_warnings():
            # The array API's check is skipped in words where its packages are missing.
            warnings.simplefilter("ignore", SkipTestWarning)
            yield from estimator_checks_generator(
                estimator,
                expected_failed_checks=expected_failed_checks(estimator),
                mark="xfail",
            )


def last(pair):
    """The check of a pair, marked or not."""
    return getattr(pair, "values", pair)[1]


def checks_of_numbers(estimators):
    return (pair for pair in checks_of(estimators) if name_of(last(pair)) in OF_NUMBERS)


def identify(value):
    """A name of an estimator or a check, the same in every process."""
    return name_of(value) if hasattr(value, "func") else re.sub(r"\s", "", repr(value))


# They know nothing of groups, without which the estimator says what it takes rows for.
no_groups = pytest.mark.filterwarnings("ignore::skvrem.exceptions.FewGroupsWarning")


# Random numbers have no topics to converge to, and classes far apart have logits so
# wide that nodes err by more than the tolerance.
stalls = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
# The checks take random numbers for counts.
fractions = pytest.mark.filterwarnings(
    "ignore::skvrem.exceptions.FractionalCountsWarning"
)


# Nor have they parts.
partless = pytest.mark.filterwarnings(
    "ignore:(All|Some) components of FactorialMixture are nothing"
)


@no_groups
@stalls
@fractions
@partless
@pytest.mark.parametrize(("estimator", "check"), checks_of(usual()), ids=identify)
def test_sklearn_checks(estimator, check):
    check(estimator)


@no_groups
@stalls
@fractions
@partless
@pytest.mark.slow
@pytest.mark.parametrize(
    ("estimator", "check"), checks_of_numbers(variants()), ids=identify
)
def test_sklearn_checks_of_numbers(estimator, check):
    check(estimator)


@no_groups
@stalls
@fractions
@partless
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("estimator", "check"), checks_of_numbers(more_variants()), ids=identify
)
def test_sklearn_checks_of_numbers_of_other_branches(estimator, check):
    check(estimator)


def test_every_check_of_numbers_is_one():
    found = {name_of(check) for check in map(last, checks_of(usual()))}
    assert found >= set(OF_NUMBERS)


# These look at an estimator, not at data, which is why what the estimator takes instead
# of rows of features does not matter.
WITHOUT_DATA = [
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_estimator_tags_renamed",
    "check_get_params_invariance",
    "check_mixin_order",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_set_params",
    "check_valid_tag_types",
]


@pytest.mark.parametrize("check", WITHOUT_DATA)
@pytest.mark.parametrize(
    "estimator_class",
    [found for _, found in all_estimators() if found not in list(tables())],
)
def test_checks_without_data(estimator_class, check):
    getattr(estimator_checks, check)(estimator_class.__name__, estimator_class())


@pytest.mark.parametrize("estimator_class", list(tables()))
def test_expected_failures_are_checks(estimator_class):
    """The public list names checks there are, and gives reasons."""
    estimator = estimator_class()
    expected = expected_failed_checks(estimator)
    names = {name_of(check) for check in map(last, checks_of([estimator]))}
    assert set(expected) <= names
    assert all(expected.values())


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
    if estimator_class is TemperedLDA:  # learned ones do not come to rest
        estimator.set_params(doc_topic_prior=0.3)
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
