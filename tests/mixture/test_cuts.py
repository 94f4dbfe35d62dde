"""Cuts of a component in two, where the covariance is shared, against brute force."""

from functools import partial

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from skvrem import VRGaussianMixture
from skvrem.data import as_source
from skvrem.mixture import _cuts, _moves, _search
from skvrem.mixture._model import GaussianMixtureModel, Parameters, precisions_cholesky


def log_likelihood(X, weight, labels):
    """Of rows that each belong to one component, at the most likely parameters."""
    parts = [labels == part for part in np.unique(labels)]
    means = [np.average(X[part], axis=0, weights=weight[part]) for part in parts]
    scatter = sum(
        (weight[part] * (X[part] - mean).T) @ (X[part] - mean)
        for part, mean in zip(parts, means, strict=True)
    )
    covariance = scatter / weight.sum()
    found = 0.0
    for part, mean in zip(parts, means, strict=True):
        log_density = multivariate_normal(mean, covariance).logpdf(X[part])
        log_share = np.log(weight[part].sum() / weight.sum())
        found += weight[part] @ (log_share + np.atleast_1d(log_density))
    return found, covariance


def labelled():
    """Rows of three components, and weights."""
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], [30, 50, 20])
    X = rng.normal(size=(100, 3)) @ rng.normal(size=(3, 3)) + 2.0 * labels[:, None]
    X[:, 2] = np.round(X[:, 2])
    return X, rng.uniform(0.5, 1.5, size=100), labels


@pytest.fixture
def cuts_any_column(monkeypatch):
    """Columns are cut that have any number of values."""
    monkeypatch.setattr(_cuts, "MOST_CODES", 1000)
    monkeypatch.setattr(_cuts, "ROWS_A_CODE", 1)


@pytest.mark.usefixtures("cuts_any_column")
def test_what_a_cut_gains_is_exact():
    X, weight, labels = labelled()
    before, covariance = log_likelihood(X, weight, labels)
    factors, _ = precisions_cholesky(covariance)
    part = labels == 1
    share = weight[part].sum() / weight.sum()
    of_rows = X[part], weight[part], np.diag(covariance), share
    cuts = _cuts.find_cuts(*of_rows, 0.0)
    assert cuts.low.shape == (50, 3)
    gains = cuts.gains(share, factors, 0.0)
    for low, gain, below, means in zip(
        cuts.low.T, gains, cuts.shares, cuts.means.swapaxes(0, 1), strict=True
    ):
        after = labels.copy()
        after[np.flatnonzero(part)[low]] = 3
        found, _ = log_likelihood(X, weight, after)
        assert gain * weight.sum() == pytest.approx(found - before, abs=1e-8)
        assert below == pytest.approx(weight[after == 3].sum() / weight[part].sum())
        for side, mean in zip((3, 1), means, strict=True):
            rows = after == side
            expected = np.average(X[rows], axis=0, weights=weight[rows])
            np.testing.assert_allclose(mean, expected)


@pytest.mark.usefixtures("cuts_any_column")
@pytest.mark.parametrize("fewest", [0.0, 0.2])
def test_the_cut_of_a_column_is_its_best(fewest):
    """Among those between different values, with so many rows on each side."""
    X, weight, _ = labelled()
    weight = weight / weight.sum()
    for column in X.T:
        x = column[:, None]
        variance = weight @ (column - weight @ column) ** 2
        (low,) = _cuts.find_cuts(x, weight, np.full(1, variance), 1.0, fewest).low.T
        found = {}
        for value in np.unique(column)[:-1]:
            below = column <= value
            if fewest <= weight[below].sum() <= 1.0 - fewest:
                found[value] = log_likelihood(x, weight, below)[0]
        assert len(found) > 2
        assert column[low].max() == max(found, key=found.__getitem__)


def test_columns_of_many_values_are_not_cut():
    X, _ = coded()
    data = as_source(X)
    assert _cuts.has_codes(data)
    cuts = _cuts.find_cuts(X, np.ones(len(X)), np.ones(5), 1.0, 0.01)
    assert cuts.shares.shape == (1,)
    for other in (np.delete(X, 1, 1), np.ones((600, 2)), X[:39]):
        assert not _cuts.has_codes(as_source(other))
    fitted = VRGaussianMixture(3, covariance_type="tied", random_state=0, n_jobs=1)
    n_starts = len(fitted.fit(X).init_scores_)
    assert len(fitted.fit(X[:, [0, 2]]).init_scores_) == n_starts - 1


@pytest.mark.usefixtures("cuts_any_column")
def test_columns_of_one_value_have_no_cut():
    X = np.column_stack([np.ones(9), np.arange(9.0)])
    weight = np.ones(9)
    cuts = _cuts.find_cuts(X, weight, np.ones(2), 1.0, 0.1)
    assert cuts.means.shape == (2, 1, 2)
    none = _cuts.find_cuts(X[:, :1], weight, np.ones(1), 1.0, 0.1)
    assert none.gains(1.0, np.eye(1), 1e-6).shape == (0,)
    # Nor has any, where each side must have more than half of the rows.
    assert _cuts.find_cuts(X, weight, np.ones(2), 1.0, 0.6).shares.size == 0


def test_no_less_than_reg_covar_is_left():
    """Also where a cut takes out more than there is, as of rows that are a sample."""
    share, difference, reg_covar = 0.5, 2.0, 1e-3
    between = share * 0.25 * difference**2
    for variance in between + reg_covar, 0.5 * between:
        factors = np.full((1, 1), variance**-0.5)
        differences = np.full((1, 1), difference)
        (q,) = _cuts.shrinkage(np.full(1, 0.5), differences, share, factors, reg_covar)
        assert 1.0 - q == pytest.approx(reg_covar / (between + reg_covar))


def coded(n_rows=600):
    """Rows of a class each, which wide columns hide, and the classes."""
    rng = np.random.default_rng(0)
    codes = rng.choice(4, size=n_rows, p=[0.5, 0.3, 0.15, 0.05])
    X = rng.normal(size=(n_rows, 5))
    X[:, 1] = codes
    return X, codes


@pytest.mark.parametrize("weighted", [False, True])
def test_cuts_begin_with_a_column_of_few_values(weighted):
    X, codes = coded()
    weight = np.random.default_rng(1).uniform(0.5, 1.5, len(X)) if weighted else None
    model = GaussianMixtureModel("tied", 1e-6)
    data, rng = as_source(X, weight), np.random.default_rng(0)
    parameters, _ = _cuts.cut_start(model, data, 4, rng)
    order = np.argsort(parameters.means[:, 1])
    np.testing.assert_allclose(parameters.means[order, 1], np.arange(4), atol=1e-9)
    shares = np.bincount(codes, weight) / (len(X) if weight is None else weight.sum())
    np.testing.assert_allclose(parameters.weights[order], shares)
    weight = np.ones(len(X)) if weight is None else weight
    expected = log_likelihood(X[:, [0, 2, 3, 4]], weight, codes)[1] + 1e-6 * np.eye(4)
    rest = np.delete(np.delete(parameters.covariances, 1, 0), 1, 1)
    np.testing.assert_allclose(rest, expected)
    assert parameters.covariances[1, 1] == pytest.approx(1e-6)
    factors, _ = precisions_cholesky(parameters.covariances)
    np.testing.assert_array_equal(parameters.precisions_cholesky, factors)


def test_other_starts_are_made_where_rows_have_not_so_many_cuts(monkeypatch):
    X = np.repeat(np.arange(4.0), 25)[:, None]
    model, rng = GaussianMixtureModel("tied", 1e-6), np.random.default_rng(0)
    assert _cuts.cut_start(model, as_source(X), 5, rng)[0] is None
    made = []

    def watched(model, data, n_components, method, *rest):
        made.append(method)
        return begin(model, data, n_components, method, *rest)

    begin = _search.starting_parameters
    monkeypatch.setattr(_search, "starting_parameters", watched)
    fitted = VRGaussianMixture(5, covariance_type="tied", random_state=0, n_jobs=1)
    fitted.fit(X)
    assert len(made) == len(fitted.init_scores_) and _search.CUTS not in made
    made.clear()
    fitted.set_params(n_components=3).fit(X)
    assert len(made) == len(fitted.init_scores_) - 1


def test_a_split_gains_what_the_covariance_shrinks_by():
    """And is a cut along a column of few values, where that gains more."""
    X, codes = coded()
    codes = np.minimum(codes, 1)
    X[:, 1] = codes
    X[:, 0] *= 10.0
    weight = np.ones(len(X))
    before, covariance = log_likelihood(X, weight, np.zeros(len(X)))
    covariance += 1e-6 * np.eye(5)
    factors, _ = precisions_cholesky(covariance)
    whole = Parameters(np.ones(1), X.mean(axis=0)[None], covariance, factors)
    model = GaussianMixtureModel("tied", 1e-6)
    density = multivariate_normal(whole.means[0], covariance).logpdf(X)
    owned = _moves.Owned(np.arange(len(X)), weight, density)
    split = partial(_moves._split, model, model.start(whole), as_source(X), 0, owned)
    halves = split(np.random.default_rng(0))
    after, _ = log_likelihood(X[:, [0, 2, 3, 4]], weight, codes)
    # Of the column, whose variance falls to reg_covar, beside the others.
    after -= 0.5 * len(X) * (np.log(2.0 * np.pi * 1e-6) + 1.0)
    assert halves.gain == pytest.approx((after - before) / len(X), abs=1e-4)
    order = np.argsort(halves.parameters.means[:, 1])
    np.testing.assert_allclose(halves.parameters.means[order, 1], [0.0, 1.0], atol=1e-9)
    shares = np.bincount(codes) / len(X)
    np.testing.assert_allclose(halves.parameters.weights[order], shares)


def test_a_fit_finds_the_column_of_few_values():
    """Which no start of spheres does, as the others are wider."""
    X, codes = coded()
    X[:, [0, 2, 3, 4]] *= 20.0
    for seed in range(3):
        how = {"covariance_type": "tied", "random_state": seed, "n_jobs": 1}
        mixture = VRGaussianMixture(4, **how).fit(X)
        assert mixture.covariances_[1, 1] == pytest.approx(1e-6, rel=1e-3)
        groups = {tuple(np.unique(codes[mixture.predict(X) == k])) for k in range(4)}
        assert groups == {(0,), (1,), (2,), (3,)}
        once = VRGaussianMixture(4, n_init=1, **how).fit(X)
        assert once.objective_ < mixture.objective_ - 1.0
