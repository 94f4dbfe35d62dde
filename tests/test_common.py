"""scikit-learn's own checks, over every estimator and every way to fit it."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from skvrem import VRGaussianMixture
from skvrem.utils.discovery import all_estimators

# Small enough that the checks are quick; parameters that an estimator does not have
# are left out.
SMALL = {"n_components": 2, "max_iter": 200, "tol": 1e-3}


def make(estimator_class, **params):
    names = estimator_class().get_params()
    small = {name: value for name, value in SMALL.items() if name in names}
    return estimator_class(**(small | params))


def variants():
    """Every estimator with its defaults, then the branches that have code of their own.

    The checks fit a few dozen rows, so the solvers with minibatches get small ones.
    """
    for _, estimator_class in all_estimators():
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


# No check is expected to fail.
@parametrize_with_checks(list(variants()))
def test_sklearn_checks(estimator, check):
    check(estimator)


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
