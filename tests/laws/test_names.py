"""A solver that is added in one place is there for all models that can have it."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from skvrem import VRHMM, VRPLSA, FactorialMixture, TemperedLDA, VRGaussianMixture
from skvrem import solvers as package
from tests.laws.test_estimators import blobs, topics

TABLES = ("saga", "incremental")


def songs():
    """Forty sequences of two states, one below the other, and their lengths."""
    rng = np.random.default_rng(0)
    states = np.cumsum(rng.uniform(size=1200) < 0.1) % 2
    X = 3.0 * states[:, None] + rng.normal(size=(1200, 2))
    return (X, None, None, None, np.full(40, 30))


# Of the EM family: estimator, data, name of the objective.
FAMILY = {
    "mixture": (
        VRGaussianMixture(2, batch_size=40, n_init=1),
        (blobs(),),
        "objective_",
    ),
    "factors": (
        FactorialMixture(2, batch_size=40, tempering=None),
        (blobs(),),
        "objective_",
    ),
    "chain": (VRHMM(2, batch_size=120, n_init=1), songs(), "log_likelihood_"),
    "plsa": (VRPLSA(4, batch_size=25), topics(), "objective_"),
    "lda": (
        TemperedLDA(4, batch_size=25, tempering=None, e_step="mean_field"),
        topics(),
        "objective_",
    ),
    "collapsed lda": (TemperedLDA(4, batch_size=25), topics(), "objective_"),
}
TOPICS = ("plsa", "lda", "collapsed lda")


class Toy(package.SVRG):
    """As svrg, by another name."""

    name = "toy"


class Table(package.SAGA):
    """As saga, by another name."""

    name = "toy"


def fit(family, **options):
    estimator, data, objective = FAMILY[family]
    model = clone(estimator).set_params(random_state=0, max_iter=60, **options)
    if family == "chain":
        X, *_, lengths = data
        fitted = model.fit(X, lengths=lengths)
    else:
        fitted = model.fit(*data)
    return fitted, getattr(fitted, objective)


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


@pytest.mark.parametrize("family", FAMILY)
def test_a_new_solver_fits_every_estimator(family, monkeypatch):
    monkeypatch.setitem(package.BY_NAME, "toy", Toy)
    model, found = fit(family, solver="toy")
    assert model.solver_ == "toy" and set(model.history_["solver"]) == {"toy"}
    start = model.history_["objective"][0]
    _, best = fit(family, solver="batch")
    assert found > start and found > best - 0.02 * (best - start) - 1e-4
    if family in ("mixture", "factors", "lda"):
        _, like = fit(family, solver="svrg")
        assert found == like


@pytest.mark.parametrize("family", FAMILY)
def test_a_new_solver_with_a_table_fits_those_with_a_bound(family, monkeypatch):
    monkeypatch.setitem(package.BY_NAME, "toy", Table)
    if family in TOPICS:
        with pytest.raises(ValueError, match="'auto' or 'batch' or 'stochastic'"):
            fit(family, solver="toy")
        return
    model, found = fit(family, solver="toy")
    start = model.history_["objective"][0]
    _, best = fit(family, solver="batch")
    assert model.solver_ == "toy" and found > best - 0.02 * (best - start)


@pytest.mark.parametrize("family", FAMILY)
@pytest.mark.parametrize("name", package.BY_NAME)
def test_every_name_fits_or_is_refused(family, name):
    if family in TOPICS and name in TABLES:
        with pytest.raises(ValueError, match="'auto' or 'batch' or 'stochastic'"):
            fit(family, solver=name)
        return
    model, found = fit(family, solver=name)
    start = fit(family, solver="batch")[0].history_["objective"][0]
    made = model.history_["solver"]
    assert name in made and model.solver_ == made[-1] and found > start
    assert model.solver_ == name or name == "stochastic"  # full passes end it
    if family == "mixture":  # what is reported is of what is returned
        assert found == pytest.approx(model.score(blobs()), abs=1e-9)
    if family == "chain":
        X, *_, lengths = FAMILY[family][1]
        assert found == pytest.approx(model.score(X, lengths=lengths), abs=1e-6)


def test_temperatures_of_documents_go_with_no_certificate(monkeypatch):
    monkeypatch.setitem(package.BY_NAME, "toy", Toy)
    with pytest.raises(ValueError, match="solver='toy' goes by it"):
        fit("lda", solver="toy", tempering="local")
