"""What code written for a scikit-learn class relies on, beside its numbers."""

import sys

import numpy as np
import pytest
from sklearn import config_context
from sklearn.decomposition import LatentDirichletAllocation

from skvrem import (
    BradleyTerry,
    SBMLogisticRegression,
    TemperedLDA,
    VRGaussianMixture,
)
from skvrem.utils._validation import check_integer, check_options
from skvrem.utils.discovery import all_estimators


@pytest.mark.parametrize("name", dict(all_estimators()))
def test_verbose_is_a_boolean_or_a_number(name):
    estimator = dict(all_estimators())[name]()
    for value in (True, False, np.True_, np.False_, 0, 2):
        check_integer(estimator.set_params(verbose=value), "verbose")
    for value in (-1, None, "yes", 1.5):
        with pytest.raises(ValueError, match="verbose of"):
            check_integer(estimator.set_params(verbose=value), "verbose")
    # Of other counts, a boolean is a mistake.
    with pytest.raises(ValueError, match="verbose_interval of"):
        estimator.set_params(verbose_interval=True)
        check_integer(estimator, "verbose_interval")


def test_booleans_of_an_array():
    estimator = VRGaussianMixture()
    for value in np.array([True, False]):
        check_options(estimator.set_params(warm_start=value), warm_start=(False, True))
    for value in (1, np.ones(1, bool), np.int64(1)):
        with pytest.raises(ValueError, match="warm_start of"):
            estimator.set_params(warm_start=value)
            check_options(estimator, warm_start=(False, True))


@pytest.mark.parametrize("verbose", [True, np.True_, 1, False])
def test_verbose_prints(verbose, capsys):
    X = np.array([[0, 1], [1, 2], [2, 0]] * 5)
    BradleyTerry(verbose=verbose, verbose_interval=1).fit(X)
    assert bool(capsys.readouterr().out) == bool(verbose)


@pytest.fixture(scope="module")
def counts():
    rng = np.random.default_rng(0)
    return rng.poisson(np.kron(np.eye(2), np.full((10, 4), 2.0)) + 0.1)


def test_lda_has_the_arguments_of_its_twin(counts):
    options = {"n_components": 2, "random_state": 0, "max_iter": 3}
    ours, other = TemperedLDA(**options, tol=0.0), LatentDirichletAllocation(**options)
    for model in (ours, other):
        gamma = model.fit_transform(counts, normalize=False)
        np.testing.assert_allclose(gamma, model.transform(counts, normalize=False))
        assert (gamma.sum(axis=1) > 1.5).all()
        np.testing.assert_allclose(
            model.fit_transform(counts).sum(axis=1), 1.0, rtol=1e-6
        )
        assert model.perplexity(counts, False) == model.perplexity(counts)
    assert ours.perplexity(counts, sub_sampling=True) == ours.perplexity(counts)


class Foreign:
    """An array of another library, as far as anybody looks."""

    def __init__(self, X):
        self.X = X

    def __array_namespace__(self, api_version=None):
        return sys.modules[__name__]

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.X, dtype)

    def __len__(self):
        return len(self.X)


@pytest.mark.parametrize(
    "model",
    [VRGaussianMixture(2), TemperedLDA(2), SBMLogisticRegression()],
    ids=lambda model: type(model).__name__,
)
def test_arrays_of_other_libraries_are_refused_in_words(model, counts, monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    y = np.arange(len(counts)) % 2
    with config_context(array_api_dispatch=True):
        with pytest.raises(TypeError, match=r"array_api_dispatch is on.*numpy.asarray"):
            model.fit(Foreign(counts), y)
        assert not hasattr(model, "n_features_in_")
        model.fit(counts.astype(float), y)  # numpy's own are taken
