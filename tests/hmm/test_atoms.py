"""A start with a state at values that come again, against what data were drawn from."""

import warnings

import numpy as np
import pytest

from skvrem import VRHMM
from skvrem.exceptions import CollapsedComponentWarning
from skvrem.hmm import (
    Categorical,
    Gamma,
    Gaussian,
    Homogeneous,
    LogNormal,
    MixtureGaussian,
    Poisson,
    Product,
    Regression,
    StudentT,
    VonMises,
    Weibull,
    WrappedCauchy,
    _estimator,
)
from skvrem.hmm._input import open_rows
from skvrem.hmm.clusters._atoms import find_atoms


def returns(n=1200, seed=0, share=0.12, n_columns=2, decimals=None):
    """Rows of two states, calm and wild, some of which are exactly 0; and which."""
    rng = np.random.default_rng(seed)
    wild = np.cumsum(rng.random(n) < 0.03) % 2
    X = rng.normal(size=(n, n_columns)) * np.where(wild, 3.0, 1.0)[:, None]
    zero = rng.random(n) < share
    X[zero] = 0.0
    return X if decimals is None else np.round(X, decimals), zero


def opened(model, X, **given):
    model._check_parameters()
    return open_rows(model, X, fresh=True, **given)[2].emission


def atoms_of(X, n=3, **parameters):
    return find_atoms(opened(VRHMM(n, **parameters), X), X)


def without(monkeypatch):
    monkeypatch.setattr(_estimator, "find_atoms", lambda emission, X: None)


@pytest.mark.parametrize("covariance_type", ["diag", "full"])
@pytest.mark.parametrize("seed", range(3))
def test_a_default_fit_has_a_state_at_the_value_that_comes_again(
    monkeypatch, covariance_type, seed
):
    """Where the other starts stay wide, and later rows are likelier for it."""
    X, zero = returns(n_columns=1, share=0.05, seed=seed)
    later, _ = returns(n_columns=1, share=0.05, seed=seed + 100)
    how = {"covariance_type": covariance_type, "random_state": seed, "n_jobs": 1}
    model = VRHMM(3, **how).fit(X)
    narrow = model.emission_.moments(model.emission_.parameters())[1].ravel()
    assert narrow.min() == pytest.approx(1e-6 * X.var(), rel=0.2)
    apart = zero | (np.abs(X[:, 0]) > 0.02)  # others are as near as it is wide
    found = model.predict(X) == narrow.argmin()
    np.testing.assert_array_equal(found[apart], zero[apart])
    without(monkeypatch)
    other = VRHMM(3, **how).fit(X)
    assert model.objective_ > other.objective_ + 0.05
    assert model.score(later) > other.score(later) + 0.05
    # Which have raced as if it were not there.
    np.testing.assert_array_equal(model.init_scores_[:-1], other.init_scores_)
    np.testing.assert_array_equal(model.init_epochs_[:-1], other.init_epochs_)


@pytest.mark.parametrize("n_components", [3, 6])
def test_a_fit_is_no_worse_for_a_start_at_atoms(monkeypatch, n_components):
    """As where its state takes the place of one that the other rows need more."""
    X, _ = returns(seed=3, share=0.03, n_columns=3)
    X[:, 1:] += np.repeat(
        5.0 * np.random.default_rng(0).normal(size=(60, 2)), 20, axis=0
    )
    how = {"random_state": 0, "n_jobs": 1}
    model = VRHMM(n_components, **how).fit(X)
    without(monkeypatch)
    other = VRHMM(n_components, **how).fit(X)
    assert model.objective_ >= other.objective_
    np.testing.assert_array_equal(model.init_scores_[:-1], other.init_scores_)
    np.testing.assert_array_equal(model.init_epochs_[:-1], other.init_epochs_)
    assert model.init_scores_[-1] < model.objective_
    assert model.init_epochs_[-1] < model.init_epochs_.max()


def test_the_atoms_are_those_that_most_rows_have_together():
    rng = np.random.default_rng(1)
    X, zero = returns(n_columns=4)
    X[:, 3] += 1.0  # and so is 1 where the others are 0
    X[:, 2] = rng.normal(size=len(X))
    X[rng.random(len(X)) < 0.15, 2] = 5.0
    atoms = atoms_of(X)
    assert atoms.columns.tolist() == [0, 1, 3]
    np.testing.assert_allclose(atoms.values, [0.0, 0.0, 1.0])
    np.testing.assert_array_equal(atoms.at(X), zero)
    # More of one column alone than of three together.
    X[rng.random(len(X)) < 0.6, 2] = 5.0
    atoms = atoms_of(X)
    assert atoms.columns.tolist() == [2] and atoms.values.tolist() == [5.0]


def test_values_that_are_missing_are_at_no_atom():
    X, zero = returns()
    X[::7] = np.nan
    atoms = atoms_of(X)
    np.testing.assert_array_equal(atoms.at(X), zero & (np.arange(len(X)) % 7 > 0))
    model = VRHMM(3, random_state=0, n_jobs=1).fit(X)
    assert model.covars_.diagonal(0, 1, 2).min() < 1e-5


def test_what_differs_by_rounding_is_one_value():
    """Most changes are .1, which differences are but for rounding, and none is that."""
    levels = 20.0 + 0.1 * np.arange(900) + np.random.default_rng(0).normal(size=900)
    levels[:400] = np.round(levels[0] + 0.1 * np.arange(400), 1)
    change = np.diff(levels)[np.random.default_rng(1).permutation(899), None]
    assert np.unique(change[np.abs(change - 0.1) < 1e-9]).size > 1
    atoms = atoms_of(change)
    assert atoms.values == pytest.approx(0.1)
    assert atoms.at(change).sum() == 399


@pytest.mark.parametrize(
    "kind", ["continuous", "rounded", "counts", "codes", "binary", "once", "few"]
)
def test_values_that_do_not_stand_out_make_no_start(monkeypatch, kind):
    rng = np.random.default_rng(0)
    X, _ = returns(share=0.0 if kind != "once" else 0.6)
    if kind == "rounded":
        X = np.round(X, 1)
    elif kind == "counts":
        X = rng.poisson(3.0, X.shape).astype(float)
    elif kind == "codes":
        X = np.minimum(rng.poisson(0.2, X.shape), 4).astype(float)
    elif kind == "binary":
        X = (rng.random(X.shape) < 0.1).astype(float)
    elif kind == "once":  # a while without a change, not again
        X[300:] = rng.normal(size=(900, 2))
    elif kind == "few":
        X[rng.choice(len(X), 20, replace=False)] = 0.0
    assert atoms_of(X) is None
    how = {"random_state": 0, "n_jobs": 1, "max_iter": 20, "tol": 1e3}
    model = VRHMM(3, **how).fit(X)
    without(monkeypatch)
    other = VRHMM(3, **how).fit(X)
    np.testing.assert_array_equal(model.init_scores_, other.init_scores_)
    np.testing.assert_array_equal(model.means_, other.means_)


def test_a_start_at_atoms_needs_states_that_may_be_there(monkeypatch):
    X, _ = returns()
    assert atoms_of(X) is not None
    assert atoms_of(X, n=2) is None
    assert atoms_of(X, covariance_type="spherical") is None
    assert atoms_of(X, covariance_type="tied") is None
    # Nothing bounds the likelihood of a state at one value.
    assert atoms_of(X, reg_covar=0.0) is None
    made = []

    def watched(emission, X):
        made.append(emission)

    monkeypatch.setattr(_estimator, "find_atoms", watched)
    how = {"n_jobs": 1, "max_iter": 10, "tol": 1e3, "random_state": 0}
    means = [[0.0, 0.0], [1.0, 1.0], [np.nan, np.nan]]
    for parameters in (
        {"emission": Gaussian(mean_init=means)},
        {"emission": MixtureGaussian(2)},
        {"transitions": Homogeneous(mask=np.triu(np.ones((3, 3), bool)))},
        {"startprob": [0.2, 0.3, 0.5]},
        {"n_init": 2},
    ):
        VRHMM(3, **parameters, **how).fit(X)
        assert not made, parameters
    labels = np.where(np.arange(len(X)) < 10, 0, -1)
    VRHMM(3, **how).fit(X, state_labels=labels)
    assert not made
    VRHMM(3, **how).fit(X)
    assert len(made) == 1
    codes = np.random.default_rng(0).integers(3, size=(300, 1))
    assert find_atoms(opened(VRHMM(3, emission=Categorical()), codes), codes) is None


def with_atom(kind, seed=0, n=900):
    """Rows of two states, one in twelve of which has one value, and this value."""
    rng = np.random.default_rng(seed)
    wild = np.cumsum(rng.random(n) < 0.03) % 2
    if kind == "real":
        X, value = rng.standard_t(5, n) * np.where(wild, 2.0, 1.0), 0.0
    elif kind == "positive":
        X, value = rng.gamma(3.0, np.where(wild, 8.0, 2.0)), 5.0
    else:
        X, value = rng.vonmises(np.where(wild, 2.0, -1.0), 2.0), 0.5
    X[rng.random(n) < 1.0 / 12.0] = value
    return X[:, None], value


@pytest.mark.parametrize(
    ("family", "kind"),
    [
        (StudentT(), "real"),
        (Gamma(), "positive"),
        (Gamma(zero_inflated=True), "positive"),
        (LogNormal(), "positive"),
        (Weibull(), "positive"),
        (VonMises(), "angle"),
        (WrappedCauchy(), "angle"),
    ],
)
def test_other_families_have_a_state_at_a_value_and_a_warning(family, kind):
    X, value = with_atom(kind)
    zeros = getattr(family, "zero_inflated", False)
    if zeros:  # more of them than of the value, with a probability of their own
        X[np.random.default_rng(1).random(len(X)) < 0.2] = 0.0
    atoms = atoms_of(X, emission=family)
    assert atoms.values.tolist() == [value]
    rows = int((X == value).sum())
    assert rows > 45  # beyond the few that a warning is of elsewhere
    scores = []
    for seed in range(2):
        model = VRHMM(3, emission=family, random_state=seed, n_jobs=1)
        with pytest.warns(CollapsedComponentWarning, match=r"rows\)"):
            model.fit(X)
        scores.append(model.objective_)
        state = np.unique(model.predict(X)[X[:, 0] == value])
        assert len(state) == 1
        assert (model.predict(X[X[:, 0] != value]) != state[0]).all()
    assert scores[0] == pytest.approx(scores[1], abs=1e-4)
    # Nothing is said of Gaussians, whose least width is a parameter.
    VRHMM(3, random_state=0, n_jobs=1).fit(X[X[:, 0] != 0.0] if zeros else X)


@pytest.mark.parametrize("family", [StudentT(scale=1.0), Poisson()])
def test_families_without_a_width_of_a_state_have_no_such_start(monkeypatch, family):
    X, _ = with_atom("positive")
    X = np.round(X)
    how = {"random_state": 0, "n_jobs": 1, "max_iter": 20, "tol": 1e3}
    scores = VRHMM(3, emission=family, **how).fit(X).init_scores_
    without(monkeypatch)
    again = VRHMM(3, emission=family, **how).fit(X).init_scores_
    np.testing.assert_array_equal(scores, again)


def test_fits_with_heavy_tails_agree_on_a_series_with_an_atom(monkeypatch):
    """Without a start with a state at the value some seeds end far below."""
    rng = np.random.default_rng(1)
    wild = np.cumsum(rng.random(900) < 0.02) % 2
    X = rng.standard_t(6, 900) * np.where(wild, 2.0, 1.0)
    X[rng.random(900) < 0.03] = 0.0

    def best(seed):
        model = VRHMM(3, emission=StudentT(), random_state=seed, n_jobs=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CollapsedComponentWarning)
            return model.fit(X[:, None]).objective_

    scores = [best(seed) for seed in range(2)]
    assert np.ptp(scores) < 1e-4
    without(monkeypatch)
    others = [best(seed) for seed in range(2)]
    assert max(others) < scores[0] + 1e-4 and min(others) < scores[0] - 0.1


def test_parts_have_a_state_at_a_value_of_theirs(monkeypatch):
    """Those whose states have widths; columns are those that parts have entered."""
    X, value = with_atom("positive")
    rng = np.random.default_rng(3)
    counts = rng.poisson(np.where(X > 10.0, 6.0, 2.0))
    zero = rng.random(X.shape) < 0.2
    X = np.column_stack([counts, np.where(zero, 0.0, X), rng.normal(size=(len(X), 2))])
    count, amount = (
        ("count", Poisson(), [0]),
        ("amount", Gamma(zero_inflated=True), [1]),
    )
    line = "line", Regression("gaussian", [3]), [2]
    parts = [count, line, amount]
    for own, read in ((parts[::2], X[:, :2]), (parts, X)):
        atoms = atoms_of(read, emission=Product(own))
        assert atoms.values.tolist() == [value]
    # Where the start looks for it: among the columns of all parts, one after another.
    emission = opened(VRHMM(3, emission=Product(parts)), X)
    assert (emission.enter(X)[:, atoms.columns] == value).sum() > 45
    assert atoms_of(X[:, [0, 1]], emission=Product([count])) is None

    x, zero = returns(n_columns=1, share=0.06, seed=2)
    X = np.column_stack([rng.poisson(2.0 + 3.0 * (np.abs(x[:, 0]) > 3.0)), x])
    parts = [("count", Poisson(), [0]), ("change", Gaussian(), [1])]
    how = {"emission": Product(parts), "random_state": 0, "n_jobs": 1}
    model = VRHMM(3, **how).fit(X)
    without(monkeypatch)
    assert model.objective_ > VRHMM(3, **how).fit(X).objective_ + 0.03
    state = np.unique(model.predict(X)[zero])
    assert len(state) == 1 and (model.predict(X) == state).sum() < zero.sum() + 10
