"""Warm starts of generalised linear models, of coefficients that mean the same."""

import warnings
from itertools import permutations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.preprocessing import scale

from skvrem import BayesianGLMRegressor, BayesianLogisticRegression
from skvrem.data import as_source
from skvrem.vi.gaussian._model import GaussianModel
from skvrem.vi.gaussian._model_families import PoissonCounts
from skvrem.vi.gaussian._model_posterior import MeanField

FAMILIES = "gaussian", "poisson", "negative-binomial"


def diabetes():
    X, y = load_diabetes(return_X_y=True)
    return scale(X), y.round()


def check_anew(model, *rows, **more):
    """Check that a fit is that of an estimator without any before it."""
    cold = clone(model).fit(*rows, **more)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        model.fit(*rows, **more)
    assert model.converged_ and model.n_iter_ == cold.n_iter_
    np.testing.assert_array_equal(model.coef_, cold.coef_)
    np.testing.assert_array_equal(
        model.history_["objective"][0], cold.history_["objective"][0]
    )


@pytest.mark.parametrize("posterior", ["fullrank", "lowrank", "meanfield"])
@pytest.mark.parametrize("pair", permutations(FAMILIES, 2), ids="-".join)
def test_another_family_begins_anew(pair, posterior):
    X, y = diabetes()
    model = BayesianGLMRegressor(
        pair[0], posterior=posterior, rank=2, warm_start=True, random_state=0
    ).fit(X, y)
    check_anew(model.set_params(family=pair[1]), X, y)


@pytest.mark.parametrize("pair", permutations(FAMILIES, 2), ids="-".join)
def test_another_family_begins_anew_with_groups(pair):
    X, y = diabetes()
    X, groups = X[:, 2:5], np.arange(len(y)) % 7
    model = BayesianGLMRegressor(pair[0], varying="all", warm_start=True)
    model.fit(X, y, groups=groups)
    check_anew(model.set_params(family=pair[1]), X, y, groups=groups)


@pytest.mark.parametrize("labels", [["a", "b"], ["a", "b", "c"]])
def test_other_classes_begin_anew(labels, rng):
    X = rng.normal(size=(90, 3))
    y = np.array(labels)[np.arange(90) % len(labels)]
    X[y == "a"] += 1.0
    model = BayesianLogisticRegression(warm_start=True, random_state=0).fit(X, y)
    again = np.char.replace(y, "b", "z")
    check_anew(model, X, again)
    first = model.coef_.copy()
    assert model.fit(X, again).n_iter_ == 1
    np.testing.assert_allclose(model.coef_, first, atol=0.1 * model.coef_std_.max())


@pytest.mark.parametrize("groups", [None, np.arange(442) % 7])
def test_other_features_begin_anew(groups):
    X, y = diabetes()
    X = pd.DataFrame(X[:, 2:5], columns=["bmi", "bp", "s1"])
    model = BayesianGLMRegressor("poisson", warm_start=True).fit(X, y, groups=groups)
    check_anew(model, X[["s1", "bmi", "bp"]], y, groups=groups)


@pytest.mark.parametrize("posterior", ["fullrank", "meanfield"])
@pytest.mark.parametrize("times", [1e-3, 1e3, 1e6])
def test_rates_of_other_units_do_not_overflow(posterior, times):
    X, y = diabetes()
    model = BayesianGLMRegressor("poisson", posterior=posterior, warm_start=True)
    cold = clone(model).fit(times * X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        model.fit(X, y).fit(times * X, y)
    assert model.converged_
    assert model.elbo_ == pytest.approx(cold.elbo_, abs=model.tol)


@pytest.mark.parametrize("structure", ["full", "diagonal"])
def test_nothing_is_known_of_a_bound_that_overflows(structure, rng):
    X, y = diabetes()
    prior = MeanField(np.zeros(10), np.ones(10))
    given = PoissonCounts(), y, prior, float(len(y)), False, structure
    model, data = GaussianModel(*given), as_source(X)
    for size, overflows in (0.1, False), (40.0, True), (1e4, True):
        point = model.spread(np.full((10, 1), size), np.diag(np.ones(10)), rng)
        batch = data.batch(0, len(y))
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            sums = model.statistics(point, batch, 1.0)
        mean = sums._replace(objective=sums.objective / len(y))
        assert np.isfinite(model.predicted_gain(point, mean)) == (not overflows)
        assert np.isfinite(model.loss(point, data)) == (not overflows)
