"""Priors of groups that follow the units of features, and the evidence."""

import pickle

import numpy as np
import pytest
from scipy.special import expit, rel_entr
from sklearn.base import clone
from sklearn.metrics import log_loss
from sklearn.preprocessing import StandardScaler

from skvrem import HierarchicalSoftmaxClassifier
from skvrem.data import as_source, column_moments
from skvrem.vi.hierarchical._model import HierarchicalPrior
from skvrem.vi.hierarchical._model_nested import NestedSoftmax, SoftmaxRows
from skvrem.vi.hierarchical._units import Units

pytestmark = pytest.mark.filterwarnings("ignore::skvrem.exceptions.FewGroupsWarning")
POSTERIORS = "nested", "meanfield"


def rows(d=3, n=480, n_groups=12, k=3, size=1.0, seed=0):
    """Rows, classes and groups, and as many that have not been seen."""
    rng = np.random.default_rng([seed, d, n])
    mean = size * rng.normal(size=(d + 1, k)) / np.sqrt(d)
    away = 0.5 * size * rng.normal(size=(n_groups, d + 1, k)) / np.sqrt(d)
    X = rng.normal(size=(2 * n, d))
    group = np.arange(2 * n) % n_groups
    z = np.column_stack([X, np.ones(2 * n)])
    z = np.einsum("nj,njk->nk", z, (mean + away)[group])
    y = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    return (X[:n], y[:n], group[:n]), (X[n:], y[n:], group[n:])


# Medians of how far groups lie apart, of the width of their means' prior.
APART = {"nested": 0.25, "meanfield": 1.0}


def evidence(model, width):
    """Of a fit with priors of a width, with the logarithm of the width's own prior."""
    name = "elbo_" if model.posterior_kind_ == "meanfield" else ""
    found = getattr(model, name or "log_marginal_likelihood_")
    return found - 0.5 * np.log(width) ** 2


@pytest.mark.parametrize("posterior", POSTERIORS)
@pytest.mark.parametrize("size", [0.1, 2.0])
def test_the_width_is_that_of_the_highest_evidence(posterior, size):
    X, y, group = rows(size=size)[0]
    X = StandardScaler().fit_transform(X)
    model = HierarchicalSoftmaxClassifier(posterior=posterior, tol=1e-4)
    width = model.fit(X, y, group).prior_scale_[0]
    np.testing.assert_allclose(model.prior_scale_, width)
    grid = np.exp(np.log(width) + 0.3 * np.arange(-4, 5))
    found = []
    for one in grid:
        given = clone(model).set_params(prior_scale=one)
        given.set_params(population_scale=APART[posterior] * one)
        found.append(evidence(given.fit(X, y, group), one))
    here = found[4]
    assert max(found) < here + 0.1
    assert found[0] < here - 0.8 > found[-1]
    assert evidence(model, width) == pytest.approx(here, abs=0.05)


@pytest.mark.parametrize("posterior", POSTERIORS)
@pytest.mark.parametrize("common", [True, False])
def test_the_evidence_is_level_at_the_width(posterior, common):
    X, y, group = rows()[0]
    X = StandardScaler().fit_transform(X)
    model = HierarchicalSoftmaxClassifier(
        posterior=posterior, tol=1e-5, intercept_prior_scale=1.0
    )
    if not common:
        model.set_params(population_scale=0.7)
    at, found = model.fit(X, y, group).prior_scale_[0], []
    for one in (0.99 * at, 1.01 * at):
        given = clone(model).set_params(prior_scale=one)
        if common:
            given.set_params(population_scale=APART[posterior] * one)
        found.append(evidence(given.fit(X, y, group), one))
    # Steps of 0.05 in the logarithm end the search, of a curvature of some twenty.
    assert abs(found[1] - found[0]) / np.log(1.01 / 0.99) < 1.0


def test_a_stated_prior_is_the_models():
    """The slope of L by the width, of a model with a wide intercept."""
    X, y, group = rows()[0]
    order = np.argsort(group, kind="stable")
    bounds = np.searchsorted(group[order], np.arange(13))
    data = SoftmaxRows(X[order], y[order].astype(np.int32), np.empty(0), bounds, (4, 3))

    def model_of(width):
        variance = np.array([width**2] * 3 + [9.0])[:, None]
        scales = np.log([width] * 3 + [2.0])[:, None]
        return NestedSoftmax(data, 12, HierarchicalPrior(variance, scales, 0.8))

    model = model_of(0.6)
    point = model.start()
    square, log_tau = model.of_population(point)
    slope = np.sum(square[:3] / 0.36 - 1.0)
    slope += np.sum(log_tau[:3] - np.log(0.6)) / 0.64
    ends = (model_of(0.6 * np.exp(step)).modes(point) for step in (1e-4, -1e-4))
    ahead, behind = (float(modes.objective[0]) for modes in ends)
    assert (ahead - behind) / 2e-4 == pytest.approx(slope, rel=0.02)


@pytest.mark.parametrize("posterior", POSTERIORS)
def test_units_and_zeros_of_features_do_not_matter(posterior):
    (X, y, group), (X_new, _, group_new) = rows()
    times, more = np.array([100.0, 1e-3, 1.0]), np.array([1e4, 0.0, -30.0])
    model = HierarchicalSoftmaxClassifier(posterior=posterior).fit(X, y, group)
    other = clone(model).fit(X * times + more, y, group)
    assert other.posterior_kind_ == posterior
    new = X_new * times + more
    for groups in (group_new, None):
        found = other.predict_proba(new, groups)
        np.testing.assert_allclose(found, model.predict_proba(X_new, groups), atol=1e-6)
    for name in ("prior_scale_", "population_scale_", "group_coef_std_"):
        found = getattr(other, name) * times
        np.testing.assert_allclose(found, getattr(model, name), rtol=1e-5)


@pytest.mark.parametrize("posterior", POSTERIORS)
def test_attributes_are_of_the_features_as_they_are(posterior):
    X, y, group = rows()[0]
    X = X * [5.0, 0.2, 1.0] + [3.0, -1.0, 7.0]
    model = HierarchicalSoftmaxClassifier(posterior=posterior).fit(X, y, group)
    z = np.einsum("nj,nkj->nk", X, model.group_coef_[group])
    z += model.group_intercept_[group]
    p = np.exp(z - z.max(axis=1, keepdims=True))
    plugin = model.predict_proba(X, group, method="plugin")
    np.testing.assert_allclose(p / p.sum(axis=1, keepdims=True), plugin)
    draws = model.sample_posterior(4000, random_state=0)
    for name in ("group_coef", "group_intercept", "population_mean"):
        std, mean = (getattr(model, f"{name}{end}_") for end in ("_std", ""))
        assert abs(draws[name].mean(axis=0) - mean).max() < 0.1 * std.max()
        np.testing.assert_allclose(draws[name].std(axis=0), std, rtol=0.08)
    scale = np.median(draws["population_scale"], axis=0)
    np.testing.assert_allclose(scale, model.population_scale_, rtol=0.06)
    labels = model.sample_predictive(X[:4], 4000, group[:4], random_state=0)
    shares = (labels[:, :, None] == model.classes_).mean(axis=0)
    np.testing.assert_allclose(shares, model.predict_proba(X[:4], group[:4]), atol=0.05)
    table = model.summary()
    if hasattr(table, "index"):
        found = table["mean"].to_numpy().reshape(3, 4)
        np.testing.assert_allclose(found[:, :3], model.population_mean_)
        np.testing.assert_allclose(found[:, 3], model.population_intercept_mean_)


@pytest.mark.parametrize("posterior", POSTERIORS)
def test_wide_rows_without_signal_are_not_worse_than_chance(posterior):
    (X, y, group), (X_new, y_new, group_new) = rows(30, 480, size=0.1)
    chance = log_loss(y_new, np.tile(np.bincount(y, minlength=3) / 480, (480, 1)))
    losses = []
    for scale in ("learn", 1.0):
        model = HierarchicalSoftmaxClassifier(prior_scale=scale, posterior=posterior)
        p = model.fit(X, y, group).predict_proba(X_new, group_new)
        losses.append(log_loss(y_new, p))
    # Independent coefficients know less of how little there is.
    assert losses[0] < chance + (0.02 if posterior == "nested" else 0.08)
    assert losses[1] > chance + 0.2


def test_groups_that_do_not_differ_are_not_drawn_apart_by_what_they_share():
    """In nats a row lost to not knowing the coefficients, of steep slopes."""
    lost = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X, group = rng.normal(size=(1200, 4)), np.arange(1200) % 20
        p = expit(X @ (2.0 * rng.normal(size=4)))
        y = (rng.uniform(size=1200) < p).astype(int)
        truth = np.column_stack([1.0 - p, p])[200:]
        model = HierarchicalSoftmaxClassifier()
        for _ in range(2):
            model.fit(X[:200], y[:200], group[:200])
            found = model.predict_proba(X[200:], group[200:])
            lost.append(rel_entr(truth, found).sum(axis=1).mean())
            model.set_params(population_scale=1.0)
    default, wide = np.reshape(lost, (3, 2)).mean(axis=0)
    assert default < 0.7 * wide


def test_a_number_is_what_it_is():
    """And one of the scales is beside means that are learned."""
    X, y, group = rows()[0]
    X = 10.0 * X + 3.0
    given = HierarchicalSoftmaxClassifier(prior_scale=[0.1, 0.2, 0.3])
    given.fit(X, y, group)
    np.testing.assert_array_equal(given.prior_scale_, [0.1, 0.2, 0.3])
    named = clone(given).set_params(population_scale=1.0).fit(X, y, group)
    np.testing.assert_array_equal(named.group_coef_, given.group_coef_)
    fixed = HierarchicalSoftmaxClassifier(
        population_scale=1e-3, population_scale_spread=1e-3
    ).fit(X, y, group)
    np.testing.assert_allclose(fixed.population_scale_, 1e-3, rtol=0.01)
    assert (fixed.prior_scale_ > 0.01).all()


def test_columns_that_do_not_vary_and_no_intercept():
    X, y, group = rows()[0]
    wide = np.column_stack([X, np.full(len(X), 0.1)])
    model = HierarchicalSoftmaxClassifier().fit(wide, y, group)
    assert abs(model.group_coef_[..., 3]).max() < 1e-6
    without = HierarchicalSoftmaxClassifier(fit_intercept=False)
    p = without.fit(X + 2.0, y, group).predict_proba(X + 2.0, group)
    assert not without.group_intercept_.any()
    other = clone(without).fit(10.0 * X + 20.0, y, group)
    np.testing.assert_allclose(
        other.predict_proba(10.0 * X + 20.0, group), p, atol=1e-6
    )


@pytest.mark.parametrize("posterior", POSTERIORS)
def test_a_stream_keeps_units_and_width_until_it_has_doubled(posterior):
    X, y, group = rows()[0]
    stream = HierarchicalSoftmaxClassifier(posterior=posterior)
    stream.partial_fit(X[:240], y[:240], [0, 1, 2], group[:240])
    first = stream.prior_scale_
    stream = pickle.loads(pickle.dumps(stream))
    stream.partial_fit(9.0 * X[240:400], y[240:400], groups=group[240:400])
    np.testing.assert_array_equal(stream.prior_scale_, first)
    stream.partial_fit(9.0 * X[400:], y[400:], groups=group[400:])
    assert (stream.prior_scale_ < first).all()
    plain = HierarchicalSoftmaxClassifier(posterior=posterior, prior_scale=1.0)
    plain.partial_fit(X[:240], y[:240], [0, 1, 2], group[:240])
    plain.set_params(prior_scale="learn")
    plain.partial_fit(X[240:400], y[240:400], groups=group[240:400])
    np.testing.assert_array_equal(plain.prior_scale_, 1.0)


def test_weights_are_rows_that_are_there_more_often():
    X, y, group = rows()[0]
    weight = np.random.default_rng(0).integers(0, 3, len(X))
    many = np.repeat(np.arange(len(X)), weight)
    weighted = HierarchicalSoftmaxClassifier(tol=1e-6)
    weighted.fit(X, y, group, sample_weight=weight.astype(float))
    repeated = clone(weighted).fit(X[many], y[many], group[many])
    np.testing.assert_allclose(weighted.prior_scale_, repeated.prior_scale_, rtol=1e-4)
    p = weighted.predict_proba(X, group)
    np.testing.assert_allclose(p, repeated.predict_proba(X, group), atol=1e-4)


def test_units_are_moments_of_rows():
    X = np.random.default_rng(0).normal(size=(50, 3)) * 4.0 + 2.0
    X[:, 2] = 0.1
    weight = np.random.default_rng(1).uniform(size=50)
    units = Units.of(column_moments(as_source(X, weight)), True)
    scaler = StandardScaler().fit(X[:, :2], sample_weight=weight)
    np.testing.assert_allclose(units.centre, [*scaler.mean_, 0.1])
    np.testing.assert_allclose(units.deviation, [*scaler.scale_, 1.0])
    np.testing.assert_allclose(units(X)[:, :2], scaler.transform(X[:, :2]))
    assert not Units.of(column_moments(as_source(X)), False).centre.any()
