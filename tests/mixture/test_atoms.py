"""Cuts of a component at an atom of a column, against brute force."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from skvrem import VRGaussianMixture
from skvrem.data import as_source
from skvrem.mixture import _atoms, _moves, _search
from skvrem.mixture._model import GaussianMixtureModel, Parameters
from skvrem.utils._columns import values_of

REG_COVAR = 1e-6


def with_atoms(n_rows=1500, scale=1.0):
    """Rows, of which wide columns hide that two columns are often zero, and which."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, 6)) @ rng.normal(size=(6, 6)) * scale
    zero = rng.uniform(size=(n_rows, 2)) < [0.3, 0.2]
    X[:, [1, 4]] = np.where(zero, 0.0, rng.gamma(2.0, size=(n_rows, 2)))
    return X, zero


def moments(X, weight, covariance_type):
    """Mean and covariance matrix of weighted rows, as the M step has them."""
    mean = np.average(X, axis=0, weights=weight)
    covariance = np.cov(X.T, aweights=weight, bias=True).reshape(X.shape[1], -1)
    if covariance_type == "diag":
        covariance = np.diag(np.diag(covariance))
    return mean, covariance + REG_COVAR * np.eye(X.shape[1])


def whole_of(X, weight, covariance_type):
    """Model, parameters of one component of all rows, and what it owns."""
    model = GaussianMixtureModel(covariance_type, REG_COVAR)
    mean, covariance = moments(X, weight, covariance_type)
    of_model = covariance if model.dense else np.diag(covariance)
    factors, _ = model.precisions_cholesky(of_model[None])
    whole = Parameters(np.ones(1), mean[None], of_model[None], factors)
    density = multivariate_normal(mean, covariance).logpdf(X)
    return model, whole, _moves.Owned(np.arange(len(X)), weight, density)


def gain_of(X, weight, at, covariance_type):
    """What two components gain a row over one, of rows that each belong to one."""
    found = -weight @ whole_of(X, weight, covariance_type)[2].log_density
    for side in (at, ~at):
        mean, covariance = moments(X[side], weight[side], covariance_type)
        density = multivariate_normal(mean, covariance).logpdf(X[side])
        share = weight[side].sum() / weight.sum()
        found += weight[side] @ (np.log(share) + density)
    return found / weight.sum()


@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_what_a_cut_gains_is_exact(covariance_type):
    X, zero = with_atoms()
    weight = np.random.default_rng(1).uniform(0.5, 1.5, len(X))
    model, whole, owned = whole_of(X, weight, covariance_type)
    for at in zero.T:
        split = _moves._cut(model, whole, owned, as_source(X, weight), at)
        expected = gain_of(X, weight, at, covariance_type)
        assert split.gain == pytest.approx(expected, abs=1e-6) and expected > 1.0
        for side, share, mean in zip((at, ~at), *split.parameters[:2], strict=True):
            assert share == pytest.approx(weight[side].sum() / weight.sum())
            expected = np.average(X[side], axis=0, weights=weight[side])
            np.testing.assert_allclose(mean, expected, atol=1e-12)


def test_what_a_cut_promises_is_what_it_gains_in_one_column():
    X = with_atoms()[0][:, 1:2]
    weight = np.random.default_rng(1).uniform(0.5, 1.5, len(X))
    for rows in (X, (X > 0.0).astype(float)):
        model, whole, _ = whole_of(rows, weight, "diag")
        share = weight[rows[:, 0] == 0.0].sum() / weight.sum()
        cut = np.zeros(1, int), np.zeros(1), np.full(1, share)
        of_rows = rows, weight / weight.sum(), whole
        (found,) = _atoms._gains(*of_rows, *cut, model)
        expected = gain_of(rows, weight, rows[:, 0] == 0.0, "diag")
        # Of a side that is at the atom alone, not one that is as narrow.
        narrow = 0.5 * (1.0 - share) if len(np.unique(rows)) == 2 else 0.0
        assert found + narrow == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_likely_cuts_are_the_best_first(monkeypatch, covariance_type):
    monkeypatch.setattr(_atoms, "LIKELY", 3)
    X, zero = with_atoms()
    weight = np.ones(len(X))
    model, whole, _ = whole_of(X, weight, covariance_type)
    atoms, _ = values_of(X)
    assert np.count_nonzero(~np.isnan(atoms)) == 2

    def cuts(fewest):
        of_rows = X, weight, whole, atoms, fewest
        return _atoms.likely_cuts(*of_rows, model)

    gains = [gain_of(X, weight, at, covariance_type) for at in zero.T]
    np.testing.assert_array_equal(cuts(0.01), zero[:, np.argsort(gains)[::-1]])
    # Not where a side has too few rows.
    np.testing.assert_array_equal(cuts(0.25), zero[:, :1])
    assert cuts(0.4).shape == (len(X), 0)


def test_values_that_are_missing_are_not_at_an_atom(monkeypatch):
    monkeypatch.setattr(_atoms, "LIKELY", 3)
    X, zero = with_atoms()
    missing = np.random.default_rng(2).uniform(size=X.shape) < 0.1
    X[missing] = np.nan
    model = GaussianMixtureModel("diag", REG_COVAR, missing=True)
    means, variances = np.nanmean(X, axis=0)[None], np.nanvar(X, axis=0)[None]
    whole = Parameters(np.ones(1), means, variances, variances**-0.5)
    atoms, _ = values_of(X)
    cuts = _atoms.likely_cuts(X, np.ones(len(X)), whole, atoms, 0.01, model)
    expected = zero & ~missing[:, [1, 4]]
    assert {tuple(cut) for cut in cuts.T} == {tuple(cut) for cut in expected.T}
    fitted = VRGaussianMixture(3, covariance_type="diag", random_state=0, n_jobs=1)
    assert fitted.fit(X).covariances_[:, 1].min() < 2.0 * REG_COVAR


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_splits_begin_with_atoms(covariance_type, weighted):
    """Of both columns: each set of rows is one component, with its moments."""
    X, zero = with_atoms(scale=5.0)
    weight = np.random.default_rng(1).uniform(0.5, 1.5, len(X)) if weighted else None
    model, rng = (
        GaussianMixtureModel(covariance_type, REG_COVAR),
        np.random.default_rng(0),
    )
    parameters, _ = _moves.split_start(model, as_source(X, weight), 4, rng)
    weight = np.ones(len(X)) if weight is None else weight
    found = {}
    for part in range(4):
        at_zero = np.abs(parameters.means[part][[1, 4]]) < 1e-9
        found[tuple(at_zero)] = part
    assert len(found) == 4
    for at_zero, part in found.items():
        own = (zero == at_zero).all(axis=1)
        share = weight[own].sum() / weight.sum()
        assert parameters.weights[part] == pytest.approx(share)
        mean, covariance = moments(X[own], weight[own], covariance_type)
        expected = covariance if model.dense else np.diag(covariance)
        np.testing.assert_allclose(parameters.means[part], mean, atol=1e-9)
        np.testing.assert_allclose(parameters.covariances[part], expected, atol=1e-8)
    factors, _ = model.precisions_cholesky(parameters.covariances)
    np.testing.assert_allclose(parameters.precisions_cholesky, factors, rtol=1e-9)


def test_there_is_no_start_by_splits_of_few_rows():
    X, _ = with_atoms(60)
    model, rng = GaussianMixtureModel("full", REG_COVAR), np.random.default_rng(0)
    assert _moves.split_start(model, as_source(X), 8, rng)[0] is None
    parameters, _ = _moves.split_start(model, as_source(X), 2, rng)
    assert len(parameters.weights) == 2
    parameters, _ = _moves.split_start(model, as_source(X), 1, rng)
    _, covariance = moments(X, np.ones(len(X)), "full")
    np.testing.assert_allclose(parameters.covariances[0], covariance, atol=1e-9)


def test_splits_are_a_start_only_where_there_are_atoms(monkeypatch):
    X, _ = with_atoms(600)
    made = []

    def watched(*args):
        made.append(args)
        return _moves.split_start(*args)

    monkeypatch.setitem(_search.OWN_STARTS, _search.SPLITS, watched)
    rough = X + 1e-3 * np.random.default_rng(1).normal(size=X.shape)
    for covariance_type in ("full", "diag", "tied", "spherical"):
        for rows in (X, rough):
            made.clear()
            how = {"covariance_type": covariance_type, "random_state": 0, "n_jobs": 1}
            VRGaussianMixture(3, **how).fit(rows)
            own = covariance_type in ("full", "diag") and rows is X
            assert len(made) == own, covariance_type


@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_a_move_makes_a_component_at_an_atom(covariance_type):
    """Where the first axis of all columns stands across it."""
    X, zero = with_atoms(_moves.SPLIT_ROWS, scale=5.0)
    weight = np.ones(len(X))
    model, whole, owned = whole_of(X, weight, covariance_type)
    rng, data = np.random.default_rng(0), as_source(X)
    split = _moves._split(model, model.start(whole), data, 0, owned, rng)
    at = split.parameters.covariances[0]
    at = np.diag(at) if model.dense else at
    assert at[1] == pytest.approx(REG_COVAR, rel=1e-3)
    assert split.gain == pytest.approx(
        max(gain_of(X, weight, at, covariance_type) for at in zero.T), abs=1e-6
    )


@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_a_fit_finds_the_atoms_of_several_columns(covariance_type):
    X, zero = with_atoms(scale=5.0)
    for seed in range(3):
        how = {"covariance_type": covariance_type, "random_state": seed, "n_jobs": 1}
        mixture = VRGaussianMixture(4, **how).fit(X)
        labels = mixture.predict(X)
        groups = {tuple(np.unique(zero[labels == k], axis=0).ravel()) for k in range(4)}
        assert groups == {(a, b) for a in (False, True) for b in (False, True)}
        once = VRGaussianMixture(4, n_init=1, **how).fit(X)
        assert once.objective_ < mixture.objective_ - 0.1
