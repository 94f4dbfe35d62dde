"""Constants added to variances that rival those of the data, and parts on points."""

import re
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris, load_wine

from skvrem import VRHMM, VRGaussianMixture
from skvrem.exceptions import CollapsedComponentWarning, DataScaleWarning
from skvrem.hmm import Bernoulli, Gaussian, MixtureGaussian, Product
from skvrem.mixture._search import Trail


def returns(scale=3e-4, n=600):
    """Two regimes of returns, and a column of ordinary size."""
    rng = np.random.default_rng(3)
    states = np.repeat([0, 1], n // 20)[np.arange(n) % (n // 10)]
    X = rng.normal(size=(n, 2)) * np.where(states, 3.0, 1.0)[:, None]
    X[:, 0] *= scale
    return X


def fit_once(estimator, X):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        estimator.fit(X)
    return [w for w in caught if not issubclass(w.category, RuntimeWarning)]


def hmm(**kwargs):
    return VRHMM(2, random_state=0, n_init=1, **kwargs)


def product(reg_covar):
    parts = (Gaussian(reg_covar=reg_covar), Gaussian("full", reg_covar=reg_covar))
    return Product([("b", parts[0], [1]), ("a", parts[1], [0])])


ESTIMATORS = {
    "diag": hmm(reg_covar=1e-6),
    "full": hmm(covariance_type="full", reg_covar=1e-6),
    "mixture of a state": hmm(emission=MixtureGaussian(2, reg_covar=1e-6), tol=1e-3),
    "product": hmm(emission=product(1e-6)),
    "mixture": VRGaussianMixture(2, random_state=0),
    "mixture diag": VRGaussianMixture(2, covariance_type="diag", random_state=0),
    "mixture tied": VRGaussianMixture(2, covariance_type="tied", random_state=0),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_constant_that_rivals_a_column(name):
    estimator = ESTIMATORS[name]
    caught = fit_once(estimator, returns())
    assert [w.category for w in caught] == [DataScaleWarning]
    message = str(caught[0].message)
    assert "x0 (4" in message and "x1" not in message and "smaller" in message
    assert caught[0].filename == __file__
    assert not fit_once(estimator, returns(scale=1.0))


def test_nothing_to_say_of_constant_columns_and_smaller_constants():
    X = returns()
    assert not fit_once(hmm(reg_covar=1e-12), X)
    for emission in ("gaussian", MixtureGaussian(2), product("auto")):
        assert not fit_once(hmm(emission=emission, tol=1e-3), X)
    # What was chosen to regularize is no mistake, unless it is beyond everything.
    assert not fit_once(VRGaussianMixture(2, reg_covar=0.1, random_state=0), X)
    beyond = VRGaussianMixture(2, reg_covar=1e-3, random_state=0)
    assert [w.category for w in fit_once(beyond, X[:, :1])] == [DataScaleWarning]
    X[:, 0] = 1e8
    assert not fit_once(VRHMM(2, random_state=0, n_init=1), X)
    assert not fit_once(VRGaussianMixture(2, random_state=0), X)


@pytest.mark.parametrize("kind", ["mixture", "hmm"])
def test_a_component_on_a_point_is_named(kind):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(800, 2))
    X[100:104] = [6.0, 6.0]
    means = [[0.0, 0.0], [6.0, 6.0]]
    if kind == "mixture":
        model = VRGaussianMixture(
            2,
            means_init=means,
            precisions_init=[np.eye(2)] * 2,
            solver="batch",
            random_state=0,
        )
    else:
        emission = Gaussian(mean_init=means, covariance_init=np.ones((2, 2)))
        model = VRHMM(2, emission=emission, n_init=1, random_state=0)
    caught = fit_once(model, X)
    assert [w.category for w in caught] == [CollapsedComponentWarning]
    assert "1 (4 rows)" in str(caught[0].message)


def rounded(seed=0):
    """Rows of which a fifth share a value of the second column, among the others."""
    X = np.random.default_rng(seed).normal(size=(300, 2))
    X[:, 1] = np.round(2.0 * X[:, 1]) / 2.0
    return X


@pytest.mark.parametrize("scale", [1.0, [1e4, 1.0], [1e4, 1e4]])
def test_a_plane_cut_out_of_other_rows_is_named(scale):
    how = {"means_init": np.zeros((2, 2)) * scale, "random_state": 0}
    how["precisions_init"] = [np.eye(2) / np.square(scale)] * 2
    how["precisions_init"][1] = how["precisions_init"][1] * [[1.0], [1e4]]
    caught = fit_once(VRGaussianMixture(2, **how), rounded() * scale)
    assert [w.category for w in caught] == [CollapsedComponentWarning]
    n_rows = float(re.search(r": 1 \((.*) rows\)\. ", str(caught[0].message))[1])
    assert abs(n_rows - (rounded()[:, 1] == 0.0).sum()) < 1.0


def test_a_start_that_collapses_loses_to_any_without(monkeypatch):
    X = load_iris().data
    model = VRGaussianMixture(7, max_iter=500, random_state=4)
    assert not fit_once(model, X)
    sound = model.objective_
    assert model.init_epochs_.max() > model.n_iter_
    given = {"n_init": 8, "init_params": "random_from_data", "random_state": 1}
    assert not fit_once(clone(model).set_params(**given), X)
    # Which is not the highest end.
    monkeypatch.setattr(Trail, "again", lambda *_: (None, 0.0, False))
    assert [w.category for w in fit_once(model, X)] == [CollapsedComponentWarning]
    assert model.objective_ > sound + 0.1


def test_classes_in_which_a_column_is_constant_are_left_in_peace():
    rng = np.random.default_rng(0)
    y = np.repeat([0.0, 1.0], 100)
    X = np.column_stack([y, rng.normal(size=(200, 2)) + 9.0 * y[:, None]])
    model = VRGaussianMixture(2, random_state=0)
    assert not fit_once(model, X)
    np.testing.assert_allclose(np.sort(model.means_[:, 0]), [0.0, 1.0], atol=1e-6)
    assert np.linalg.eigvalsh(model.covariances_).min() < 1.1e-6


def test_ordinary_data_are_left_in_peace():
    rng = np.random.default_rng(0)
    ratings = rng.integers(1, 6, (400, 1)).astype(float)
    for X in (load_iris().data, load_wine().data, ratings, np.round(returns(1.0), 1)):
        assert not fit_once(VRGaussianMixture(3, random_state=0), X)
        assert not fit_once(hmm(tol=1e-3), X)
    diag = VRGaussianMixture(4, covariance_type="diag", random_state=0)
    assert not fit_once(diag, load_digits().data)
    events = np.column_stack([returns(1.0), rng.integers(0, 2, 600)])
    parts = [("x", Gaussian(), [0, 1]), ("e", Bernoulli(), [2])]
    assert not fit_once(hmm(emission=Product(parts), tol=1e-3), events)


@pytest.mark.parametrize("far", [1e6, 1e8])
def test_a_state_of_one_value_far_from_all_others_is_told_of(far):
    X = np.random.default_rng(0).normal(size=(500, 2))
    X += 3.0 * np.repeat([0, 1, 0, 1, 0], 100)[:, None]
    with pytest.warns(CollapsedComponentWarning):
        VRHMM(2, random_state=0).fit(np.vstack([X, [[far, 0.0]]]))
