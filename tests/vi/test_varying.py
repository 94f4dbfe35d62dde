"""Coefficients that differ by group in regressions: kernels, model, estimators."""

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.stats import multivariate_normal

from skvrem import BayesianGLMRegressor, BayesianLogisticRegression
from skvrem.exceptions import FewGroupsWarning
from skvrem.vi.gaussian._model_families import (
    GaussianNoise,
    Logistic,
    OverdispersedCounts,
    PoissonCounts,
)
from skvrem.vi.gaussian.nested import _model as nested
from skvrem.vi.gaussian.nested._model import NestedPrior
from skvrem.vi.gaussian.nested._model_modes import Quadratic
from skvrem.vi.glm._counts import CONCENTRATIONS
from skvrem.vi.glm.groups import _estimator, _model_rows
from skvrem.vi.glm.groups._model import GroupedModel
from skvrem.vi.glm.groups._model_posterior import VaryingPosterior
from skvrem.vi.glm.groups._model_rows import Design, GroupRows
from skvrem.vi.glm.streams import _memory

M, P, Q = 5, 4, 2
# The intercept and the second column differ by group.
ORDER = np.array([3, 1, 0, 2])
BOUNDS = np.array([0, 9, 9, 20, 31, 40])  # one group has no rows
KINDS = ["logistic", "poisson", "negative-binomial", "known noise", "noise"]


# Of truths that are drawn from the prior, some scales are large.
pytestmark = pytest.mark.filterwarnings("ignore::skvrem.exceptions.FewGroupsWarning")


def small(kind, past=False, seed=0):
    """A model of few rows, and numbers of two points."""
    rng, n = np.random.default_rng(seed), BOUNDS[-1]
    design = Design(rng.normal(size=(n, 3)), BOUNDS, ORDER, Q, np.zeros(P))
    centre, variance = rng.normal(size=P), rng.uniform(0.5, 2.0, P)
    prior = NestedPrior(centre, variance, np.array([0.1, -0.3]), 0.8)
    weight = rng.uniform(0.5, 2.0, n)
    y, how = rng.poisson(2.0, n).astype(float), {}
    if kind == "logistic":
        family, y = Logistic(), (y > 1.0).astype(float)
    elif kind == "poisson":
        family, y = PoissonCounts(), np.column_stack([y, 0.3 * rng.normal(size=n)])
    elif kind == "negative-binomial":
        family = OverdispersedCounts(1.7)
    else:
        family, how = GaussianNoise(0.7), {"n_rows": weight.sum()}
        if kind == "noise":
            how["least_noise"] = 1e-6
    if past:
        root = 0.5 * rng.normal(size=(M, P, P))
        whole = root @ root.swapaxes(1, 2)
        parts = whole[:, :Q, :Q], whole[:, :Q, Q:], whole[:, Q:, Q:].sum(axis=0)
        at, slope = rng.normal(size=(2, M, Q))
        shared, of_shared = rng.normal(size=(2, P - Q))
        own = at, shared, -1.5, slope, parts[0], of_shared, *parts[1:]
        how["past"] = Quadratic(*own)
    model = GroupedModel(family, GroupRows(design, y, weight), prior, **how)
    h = model.n_scales
    point = 0.3 * rng.normal(size=(2, h)), rng.normal(size=(2, P))
    return model, (*point, rng.normal(size=(2, M, Q))), rng


def log_likelihood(model, scales, mean, groups):
    """Return log p(y | Z, beta) of one point, from the family's definition."""
    rows = np.column_stack([model.rows.design.rows, np.ones(len(model.rows.y))])[
        :, ORDER
    ]
    place = np.repeat(np.arange(M), np.diff(BOUNDS))
    eta = (rows[:, :Q] * groups[place]).sum(axis=1) + rows[:, Q:] @ mean[Q:]
    noisy, family = model.n_scales > Q, model.family
    if noisy:
        family = GaussianNoise(np.exp(2.0 * scales[-1]))
    return model.rows.weight @ family.log_likelihood(eta[:, None], model.rows.y)


def differences(function, x, h=1e-5):
    """Return central differences along the last axis of x."""
    steps = h * np.eye(x.shape[-1])
    found = [(function(x + step) - function(x - step)) / (2.0 * h) for step in steps]
    return np.stack(found, axis=-1)


@pytest.mark.parametrize("kind", KINDS)
def test_likelihood_its_gradient_and_hessian(kind):
    model, (scales, mean, groups), _ = small(kind)
    local = model._local(scales, mean, groups)
    pairs = zip(scales, mean, groups, strict=True)
    expected = [log_likelihood(model, *parts) for parts in pairs]
    np.testing.assert_allclose(local.value, expected)

    def by_group(z):
        return model._local(scales, mean, z)

    def by_shared(b):
        return model._local(scales, b, groups)

    slopes = differences(lambda z: by_group(z).value, groups)
    np.testing.assert_allclose(local.gradient.sum(axis=1), slopes, atol=1e-6)
    slopes = differences(lambda b: by_shared(b).value, mean)
    np.testing.assert_allclose(slopes[:, :Q], 0.0)
    np.testing.assert_allclose(local.of_shared, slopes[:, Q:], atol=1e-6)
    curvature = -differences(lambda z: by_group(z).gradient, groups)
    np.testing.assert_allclose(local.hessian, curvature, atol=1e-6)
    cross = -differences(lambda b: by_shared(b).gradient, mean)[..., Q:]
    np.testing.assert_allclose(local.cross, cross, atol=1e-6)
    within = -differences(lambda b: by_shared(b).of_shared, mean)[..., Q:]
    np.testing.assert_allclose(local.within_shared, within, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS[:3])
def test_skewness_is_the_gradient_of_a_trace(kind):
    model, (scales, mean, groups), rng = small(kind)
    root = rng.normal(size=(2, M, P, P))
    whole = root @ root.swapaxes(2, 3)
    shared = whole[:, 0, Q:, Q:]  # all groups have the same ones
    own, cross = whole[..., :Q, :Q].copy(), whole[..., :Q, Q:].copy()

    def trace(mean, groups):
        local = model._local(scales, mean, groups)
        found = np.einsum("smij,smij->sm", own, local.hessian)
        found += 2.0 * np.einsum("smij,smij->sm", cross, local.cross)
        return found, np.einsum("sij,sij->s", shared, local.within_shared)

    def whole_trace(b):
        by_group, rest = trace(b, groups)
        return by_group.sum(axis=1) + rest

    given = groups, mean[:, Q:], own, cross, np.ascontiguousarray(shared)
    out, of_shared = model.likelihood.skewness(*given)
    expected = differences(whole_trace, mean)[:, Q:]
    np.testing.assert_allclose(of_shared, expected, atol=1e-4)
    for m in range(M):
        for j in range(Q):
            step = np.zeros(groups.shape)
            step[:, m, j] = 1e-5
            ends = [trace(mean, groups + s * step) for s in (1.0, -1.0)]
            both = [part.sum(axis=1) + rest for part, rest in ends]
            slope = (both[0] - both[1]) / 2e-5
            np.testing.assert_allclose(out[:, m, j], slope, atol=1e-4)


def settled(model, scales):
    n = len(scales)
    return model.settle(scales, np.zeros((n, P)), np.zeros((n, M, Q)))


@pytest.mark.parametrize("past", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_arrow_and_the_marginal(kind, past):
    model, (scales, *_), rng = small(kind, past)
    modes = settled(model, scales[:1])
    local, T = modes.local, np.diag(np.exp(-2.0 * scales[0, :Q]))
    A = np.zeros((M * Q + P,) * 2)
    common = slice(M * Q, None)
    for m in range(M):
        own = slice(m * Q, (m + 1) * Q)
        A[own, own] = local.hessian[0, m] + T
        A[own, common] = np.hstack([-T, local.cross[0, m]])
        A[common, own] = A[own, common].T
    A[common, common] = np.diag(1.0 / model.prior.variance)
    A[M * Q : M * Q + Q, M * Q : M * Q + Q] += M * T
    A[M * Q + Q :, M * Q + Q :] += local.within_shared[0]
    inverse = np.linalg.inv(A)
    np.testing.assert_allclose(modes.of_mean[0], inverse[common, common])
    own, cross, shared = modes.joint()
    here = slice(2 * Q, 3 * Q)
    np.testing.assert_allclose(own[0, 2], inverse[here, here])
    np.testing.assert_allclose(cross[0, 2], inverse[here, M * Q + Q :], atol=1e-12)
    np.testing.assert_allclose(shared[0], inverse[M * Q + Q :, M * Q + Q :])
    b = rng.normal(size=len(A))
    ahead = b[: M * Q].reshape(1, M, Q, 1)
    groups, mean = modes.solve(ahead, b[M * Q :, None])
    x = np.concatenate([groups[0].ravel(), mean[0].ravel()])
    np.testing.assert_allclose(A @ x, b, atol=1e-9)
    # Laplace's approximation, from its definition.
    mean, groups = modes.mean[0], modes.groups[0]
    e = groups - mean[:Q]
    density = local.value[0] - 0.5 * np.sum(e**2 * np.diag(T))
    density -= M * scales[0, :Q].sum()
    of_mean = (mean - model.prior.mean) ** 2 / model.prior.variance
    density -= 0.5 * np.sum(of_mean + np.log(model.prior.variance))
    away = (scales[0, :Q] - model.prior.log_scale) / 0.8
    marginal = density - 0.5 * np.linalg.slogdet(A)[1] - 0.5 * away @ away
    assert modes.objective[0] == pytest.approx(marginal)


@pytest.mark.parametrize("past", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_slope_and_where_modes_move(kind, past, monkeypatch):
    monkeypatch.setattr(nested, "SETTLED", 1e-15)
    model, (scales, *_), rng = small(kind, past)
    slope = model.slope(settled(model, scales))
    numeric = differences(lambda t: settled(model, t).objective, scales, 1e-4)
    np.testing.assert_allclose(slope, numeric, atol=1e-5)
    change = rng.normal(size=(scales.shape[1], 1))
    groups, mean = settled(model, scales[:1]).response(change)
    ends = [settled(model, scales[:1] + h * change.T) for h in (1e-3, -1e-3)]
    by_groups = (ends[0].groups - ends[1].groups) / 2e-3
    by_mean = (ends[0].mean - ends[1].mean) / 2e-3
    np.testing.assert_allclose(groups[..., 0], by_groups, atol=1e-4)
    np.testing.assert_allclose(mean[..., 0], by_mean, atol=1e-4)


def test_gaussian_noise_has_its_exact_evidence():
    """With known noise Laplace's method is exact: the targets are one normal vector."""
    model, (scales, *_), _ = small("known noise")
    bare = GroupRows(model.rows.design, model.rows.y, np.empty(0))
    model = GroupedModel(model.family, bare, model.prior, n_rows=40.0)
    rows = np.column_stack([model.rows.design.rows, np.ones(40)])[:, ORDER]
    place = np.repeat(np.arange(M), np.diff(BOUNDS))
    tau = np.exp(scales[0])
    same = place[:, None] == place
    covariance = (rows * model.prior.variance) @ rows.T + 0.7 * np.eye(40)
    covariance += same * ((rows[:, :Q] * tau**2) @ rows[:, :Q].T)
    exact = multivariate_normal(rows @ model.prior.mean, covariance).logpdf(
        model.rows.y
    )
    away = (scales[0] - model.prior.log_scale) / 0.8
    found = settled(model, scales[:1]).objective[0]
    assert found == pytest.approx(exact - 0.5 * away @ away)


def simulate(family="logistic", n_groups=30, each=20, seed=0):
    rng = np.random.default_rng(seed)
    own = np.array([0.8, 0.6]) * rng.normal(size=(n_groups, 2))
    group = np.repeat(np.arange(n_groups), each)
    X = rng.normal(size=(group.size, 3))
    eta = 0.3 + X @ [1.0, -1.0, 0.5] + own[group, 0] + own[group, 1] * X[:, 0]
    if family == "logistic":
        y = (rng.random(eta.size) < 1.0 / (1.0 + np.exp(-eta))).astype(int)
    elif family == "gaussian":
        y = eta + 0.5 * rng.normal(size=eta.size)
    elif family == "poisson":
        y = rng.poisson(np.exp(0.5 * eta))
    else:
        y = rng.negative_binomial(2, 2.0 / (2.0 + np.exp(0.5 * eta)))
    return X, y, group, own


def estimator(family, **params):
    if family == "logistic":
        return BayesianLogisticRegression(**params)
    return BayesianGLMRegressor(family, **params)


FAMILIES = ["logistic", "gaussian", "poisson", "negative-binomial"]


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_fit_finds(family):
    X, y, group, own = simulate(family, 60)
    turn = np.random.default_rng(1).permutation(len(y))  # groups in any order
    model = estimator(family, varying=[0]).fit(X[turn], y[turn], groups=group[turn])
    half = 1.0 if family in ("logistic", "gaussian") else 0.5
    coef, sd = (np.ravel(part) for part in (model.coef_, model.coef_std_))
    assert (abs(coef - half * np.array([1.0, -1.0, 0.5])) < 4.0 * sd).all()
    assert np.corrcoef(model.group_intercept_, own[:, 0])[0, 1] > 0.5
    assert np.corrcoef(model.group_coef_[:, 0], own[:, 1])[0, 1] > 0.5
    # What does not vary is the same for all.
    np.testing.assert_array_equal(
        model.group_coef_[:, 1:], coef[1:] + np.zeros((60, 2))
    )
    np.testing.assert_array_equal(model.population_scale_[1:], 0.0)
    away = np.log(model.population_scale_[0] / (half * 0.6))
    assert abs(away) < 4.0 * model.population_log_scale_std_[0]
    assert model.converged_ and np.isfinite(model.log_marginal_likelihood_)
    assert model.score(X, y, groups=group) > model.score(X, y) + 0.01
    if family == "negative-binomial":
        assert 1.0 < model.concentration_ < 5.0
    if family == "gaussian":
        assert abs(model.noise_scale_ - 0.5) < 0.05


def test_known_noise_is_exact():
    """Given the scales all is Gaussian: the mode of t is that of the evidence."""
    X, y, group, _ = simulate("gaussian", 12)
    params = {"noise_scale": 0.5, "prior_scale": 1.0, "intercept_prior_scale": 1.0}
    model = BayesianGLMRegressor(**params, population_scale=0.7, tol=1e-8)
    model.fit(X, y, groups=group)
    rows = np.column_stack([X, np.ones(len(y))])
    same = group[:, None] == group

    def evidence(t):
        covariance = rows @ rows.T + 0.25 * np.eye(len(y)) + same * np.exp(2.0 * t)
        root = np.linalg.cholesky(covariance)
        z = np.linalg.solve(root, y)
        found = 0.5 * z @ z + np.log(np.diagonal(root)).sum()
        return found + 0.5 * (t - np.log(0.7)) ** 2

    t = minimize(lambda t: evidence(t[0]), [0.0]).x[0]
    assert np.log(model.population_intercept_scale_) == pytest.approx(t, abs=1e-4)
    covariance = rows @ rows.T + 0.25 * np.eye(len(y)) + same * np.exp(2.0 * t)
    mean = rows.T @ np.linalg.solve(covariance, y)
    np.testing.assert_allclose(model.coef_, mean[:3], atol=2e-3)


@pytest.mark.parametrize("family", FAMILIES)
def test_answers_agree_with_draws(family):
    X, y, group, _ = simulate(family, 8)
    model = estimator(family, varying="all").fit(X, y, groups=group)
    ids = np.where(np.arange(len(y)) % 3 == 0, 99, group)[:30]  # some are new
    new = model.sample_predictive(X[:30], 20_000, 0, groups=ids)
    if family == "logistic":
        expected = model.predict_proba(X[:30], groups=ids)
        np.testing.assert_allclose(new.mean(axis=0), expected[:, 1], atol=0.05)
        drawn = model.predict_proba(X[:30], "mc", groups=ids)
        np.testing.assert_allclose(drawn, expected, atol=0.05)
        sure = model.predict_proba(X[:30], "plugin", groups=ids)
        assert (sure.max(axis=1) >= expected.max(axis=1) - 1e-9).all()
        ends = model.predict_proba_interval(X[:30], groups=ids)
        assert (ends[:, 1, 0] < expected[:, 1]).all()
        assert (ends[:, 1, 1] > expected[:, 1]).all()
        np.testing.assert_allclose(ends[:, 0], 1.0 - ends[:, 1, ::-1])
        np.testing.assert_array_equal(
            model.predict(X[:30], groups=ids), expected.argmax(axis=1)
        )
        log_p = model.predict_log_proba(X[:30], groups=ids)
        np.testing.assert_allclose(log_p, np.log(expected))
        return
    seen = ids != 99
    mean, sd = model.predict(X[:30], return_std=True, groups=ids)
    error = np.abs(new.mean(axis=0) - mean) / sd
    assert error[seen].max() < 0.1
    np.testing.assert_allclose(sd[seen], new.std(axis=0)[seen], rtol=0.15)
    ends = model.predict_interval(X[:30], 0.9, groups=ids)
    # Counts come in steps: a twentieth lies below what an end leaves out or takes in.
    for end, sign in zip(ends.T, (1.0, -1.0), strict=True):
        beyond = (sign * new < sign * end).mean(axis=0)[seen]
        up_to = (sign * new <= sign * end).mean(axis=0)[seen]
        assert (beyond < 0.05 + 0.045).all() and (up_to > 0.05 - 0.045).all()
    assert (ends[~seen, 1] - ends[~seen, 0]).mean() > 0.0


def test_a_default_prior_follows_the_units_of_features():
    """A feature of thousandths hardly mattered, .1 nats a row for one on one."""
    X, y, group, _ = simulate()
    units = np.array([1e3, 1.0, 1e-3])
    model, other = (
        BayesianLogisticRegression().fit(rows, y, groups=group)
        for rows in (X, X / units + 1.0)
    )
    np.testing.assert_allclose(other.coef_[0] / units, model.coef_[0], rtol=1e-2)
    np.testing.assert_allclose(other.prior_scale_ / units, model.prior_scale_, 0.02)
    chances = model.predict_proba(X, groups=group)
    np.testing.assert_allclose(
        other.predict_proba(X / units + 1.0, groups=group), chances, atol=5e-3
    )


def test_a_prior_of_noise_beside_groups_is_narrow():
    X, y, group, _ = simulate()
    noise = np.random.default_rng(1).normal(size=(len(X), 30))
    model = BayesianLogisticRegression().fit(noise, y, groups=group)
    assert model.prior_scale_.max() < 0.3
    # Groups that differ in a slope learn the width of what they have in common.
    varying = BayesianLogisticRegression(varying=[0]).fit(X, y, groups=group)
    assert 0.3 < varying.prior_scale_[0] < 3.0
    assert varying.history_["passes"][-1] > 2.0


@pytest.mark.parametrize("family", FAMILIES)
def test_a_stream_is_near_a_fit(family):
    X, y, group, _ = simulate(family)
    given = {"population_scale": 0.5, "prior_scale": 1.0}
    whole = estimator(family, **given).fit(X, y, groups=group)
    stream, turn = estimator(family, **given), np.random.default_rng(0).permutation(600)
    classes = {"classes": [0, 1]} if family == "logistic" else {}
    for batch in np.array_split(turn, 4):
        stream.partial_fit(X[batch], y[batch], groups=group[batch], **classes)
    assert stream.n_samples_seen_ == 600
    np.testing.assert_array_equal(stream.n_group_samples_, whole.n_group_samples_)
    away = (
        stream.group_intercept_ - whole.group_intercept_
    ) / whole.group_intercept_std_
    assert abs(away).max() < 0.5
    away = np.ravel(stream.coef_ - whole.coef_) / np.ravel(whole.coef_std_)
    assert abs(away).max() < 0.3
    if family == "gaussian":
        assert stream.noise_scale_ == pytest.approx(whole.noise_scale_, rel=1e-3)
        np.testing.assert_allclose(stream.coef_, whole.coef_, atol=2e-3)
    with pytest.raises(ValueError, match="for all batches of a stream"):
        stream.partial_fit(X, y)


def sorted_by_target(family, n_groups=8, each=30):
    """Rows of groups by their targets, with ids that are words, weights and offsets."""
    X, y, group, _ = simulate(family, n_groups, each)
    o, rng = np.argsort(y, kind="stable"), np.random.default_rng(0)
    given = {"groups": np.array([f"g{i}" for i in group])[o]}
    given["sample_weight"] = rng.integers(1, 3, len(y)).astype(float)
    if family != "logistic":
        given["offset"] = 0.2 * rng.normal(size=len(y))
    return X[o], y[o], given


def widths_apart(stream, whole):
    """How far a stream is from a fit, in standard deviations of the posterior."""
    far = [
        (getattr(stream, f"{name}_") - getattr(whole, f"{name}_"))
        / getattr(whole, f"{name}_std_")
        for name in ("coef", "intercept", "group_intercept")
    ]
    return max(np.abs(part).max() for part in far)


@pytest.mark.parametrize("begun", [0, 60])
@pytest.mark.parametrize("family", ["logistic", "poisson", "negative-binomial"])
def test_a_sorted_stream_of_groups_ends_at_a_fit(family, begun):
    """With a Gaussian of the rows before it ended two to ten deviations away."""
    X, y, given = sorted_by_target(family)
    params = {"prior_scale": 1.0, "tol": 1e-3}
    whole = estimator(family, **params).fit(X, y, **given)
    stream, classes = estimator(family, **params), {}
    if family == "logistic":
        begun, classes = 2 * begun, {"classes": [0, 1]}  # some of the second class

    def part(rows):
        return X[rows], y[rows], {name: some[rows] for name, some in given.items()}

    if begun:
        turn = np.random.default_rng(1).permutation(len(y))
        X, y = X[turn], y[turn]
        given = {name: some[turn] for name, some in given.items()}
        rows, targets, own = part(slice(begun))
        stream.fit(rows, targets, **own)
    for first in range(begun, len(y), 20):
        rows, targets, own = part(slice(first, first + 20))
        stream.partial_fit(rows, targets, **own, **classes)
        rows[:] = np.nan  # users may use arrays again
        if first > begun:
            stream = pickle.loads(pickle.dumps(stream))
    assert stream.n_samples_seen_ == stream.n_group_samples_.sum() == len(y)
    assert widths_apart(stream, whole) < 0.02
    ratio = stream.population_intercept_scale_ / whole.population_intercept_scale_
    assert ratio == pytest.approx(1.0, rel=0.02)
    if family == "negative-binomial":
        assert stream.concentration_ == pytest.approx(whole.concentration_, rel=0.02)


def test_rows_of_groups_are_seen_again_where_a_stream_has_grown(monkeypatch):
    monkeypatch.setattr(_memory, "KEPT", 60)
    X, y, given = sorted_by_target("negative-binomial")
    whole = BayesianGLMRegressor("negative-binomial").fit(X, y, **given)
    stream, looked = BayesianGLMRegressor("negative-binomial"), []
    for first in range(0, len(y), 20):
        some = slice(first, first + 20)
        own = {name: part[some] for name, part in given.items()}
        stream.partial_fit(X[some], y[some], **own)
        looked.append(stream._memory.n_looked)
        assert stream._memory.kept.n_seen == stream.n_group_samples_.sum()
    assert looked == [20, 40, 60, 80, 100, 120, 120, 160, 160, 200, 200, 240]
    assert widths_apart(stream, whole) < 0.1
    # Rows that take too many bytes are left out, and all are a Gaussian from there on.
    monkeypatch.setattr(_memory, "MOST_BYTES", 1)
    for turn in range(2):
        stream.partial_fit(X, y, **given)
        assert stream._memory is None
        assert stream.n_samples_seen_ == (turn + 2) * len(y)
    # Nor does a fit hold a copy of rows that no stream would keep.
    assert "_rows" in vars(whole) and "_rows" not in vars(whole.fit(X, y, **given))
    assert stream.concentration_ == pytest.approx(whole.concentration_, rel=0.3)


def test_a_stream_of_groups_learns_a_concentration():
    """A few counts have theirs at an end: a mean over batches went there with them."""
    X, y, group, _ = simulate("negative-binomial", 8, 60)
    begun, whole = (
        estimator("negative-binomial").fit(X[:n], y[:n], groups=group[:n])
        for n in (len(y) - 60, len(y))
    )
    stream = pickle.loads(pickle.dumps(begun))  # without its rows
    for n in range(len(y) - 60, len(y)):
        before, row = stream._slopes_known, slice(n, n + 1)
        stream.partial_fit(X[row], y[row], groups=group[row])
        place = np.searchsorted(stream.groups_, group[row])
        a, v = stream.posterior_.predictors(X[row], place)
        about = a[:, None], v[:, None], y[row], np.empty(0)
        own = [OverdispersedCounts(r).slope(*about) for r in CONCENTRATIONS]
        np.testing.assert_allclose(stream._slopes_known, before + own, rtol=1e-9)
    assert stream.concentration_ == pytest.approx(whole.concentration_, rel=0.1)


def test_weights_are_repetitions():
    X, y, group, _ = simulate("poisson", 10)
    times = np.random.default_rng(0).integers(0, 3, len(y))
    params = {"prior_scale": 1.0, "intercept_prior_scale": 1.0, "population_scale": 0.5}
    weighted = BayesianGLMRegressor("poisson", **params)
    weighted.fit(X, y, sample_weight=times.astype(float), groups=group)
    again = np.repeat(np.arange(len(y)), times)
    repeated = BayesianGLMRegressor("poisson", **params)
    repeated.fit(X[again], y[again], groups=group[again])
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=1e-6)
    np.testing.assert_allclose(
        weighted.group_intercept_, repeated.group_intercept_, atol=1e-6
    )


def of_family(family, **params):
    if family == "logistic":
        return BayesianLogisticRegression(**params)
    return BayesianGLMRegressor(family, **params)


@pytest.mark.parametrize(
    "family", ["logistic", "gaussian", "poisson", "negative-binomial"]
)
def test_units_do_not_matter(family):
    X, y, group, _ = simulate(family)
    params = {"varying": [0, 1], "tol": 1e-6}
    one = of_family(family, **params).fit(X, y, groups=group)
    assert one.population_scale_[0] > 0.1
    unit = np.array([1e3, 1e-3, 10.0])
    other = of_family(family, **params).fit(X * unit, y, groups=group)
    for name in ("coef_", "coef_std_", "group_coef_", "population_scale_"):
        found = getattr(other, name) * unit
        np.testing.assert_allclose(found, getattr(one, name), rtol=1e-3, atol=1e-4)
    evidence = other.log_marginal_likelihood_
    assert evidence == pytest.approx(one.log_marginal_likelihood_, abs=1e-3)


def test_scales_of_groups_follow_units():
    """A quarter of a logit a standard deviation of the feature, and one between levels.

    Of a rare feature a standard deviation is a quarter of how far it goes, and of a
    weighted one, or of a stream, that of all rows.
    """
    X, y, group, _ = simulate()
    X[:, 1], X[:, 2] = 0.0, np.arange(len(y)) % 100 == 0
    weight = np.random.default_rng(0).integers(1, 4, len(y)).astype(float)
    deviation = np.sqrt(np.cov(X[:, 0], aweights=weight, ddof=0))
    rare = 0.25 * (1.0 - np.average(X[:, 2], weights=weight))
    model = BayesianLogisticRegression(1.0, varying="all")
    model.fit(X, y, sample_weight=weight, groups=group)
    expected = [0.25 / deviation, 0.25, 0.25 / rare, 1.0]
    np.testing.assert_allclose(model._group_state["scales"], expected)
    stream = BayesianLogisticRegression(1.0, varying="all")
    turn = np.argsort(X[:, 0])  # batches say little of all rows
    for some in np.array_split(turn, 3):
        given = {"classes": [0, 1], "groups": group[some]}
        stream.partial_fit(X[some], y[some], sample_weight=weight[some], **given)
        stream = pickle.loads(pickle.dumps(stream))
    np.testing.assert_allclose(stream._group_state["scales"], expected)
    # Numbers are for features as they are, and levels are as by the number one.
    model.set_params(population_scale=0.7).fit(X, y, groups=group)
    np.testing.assert_array_equal(model._group_state["scales"], 0.7)
    levels = [
        BayesianLogisticRegression(**how).fit(X, y, groups=group).group_intercept_
        for how in ({}, {"population_scale": 1.0})
    ]
    np.testing.assert_array_equal(*levels)


def test_offsets():
    X, y, group, _ = simulate("poisson", 10)
    known = {"prior_scale": 1.0, "intercept_prior_scale": 10.0, "population_scale": 0.5}
    offset = np.full(len(y), 0.7)
    one = BayesianGLMRegressor("poisson", **known).fit(X, y, groups=group)
    other = BayesianGLMRegressor("poisson", **known)
    other.fit(X, y, offset=offset, groups=group)
    assert other.intercept_ + 0.7 == pytest.approx(one.intercept_, abs=0.01)
    np.testing.assert_allclose(
        other.predict(X, offset=offset, groups=group),
        one.predict(X, groups=group),
        rtol=0.01,
    )


def test_ids_in_a_column():
    X, y, group, _ = simulate("gaussian", 10)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    frame.insert(1, "who", [f"u{number}" for number in group])
    model = BayesianGLMRegressor(groups="who", varying=["c"]).fit(frame, y)
    beside = BayesianGLMRegressor(varying=[2]).fit(X, y, groups=group)
    np.testing.assert_array_equal(model.coef_, beside.coef_)
    np.testing.assert_allclose(model.predict(frame), beside.predict(X, groups=group))
    table = model.summary()
    assert list(table.index) == ["a", "b", "c", "intercept"]
    assert table["scale of groups"]["c"] == model.population_scale_[2] > 0.0
    assert table["scale of groups"]["a"] == 0.0
    assert table.attrs["groups"] == 10
    with pytest.raises(ValueError, match="holds the ids"):
        BayesianGLMRegressor(groups="who", varying=["who"]).fit(frame, y)
    arviz = pytest.importorskip("arviz")
    data = model.to_arviz(frame, y, n_samples=50)
    assert isinstance(data, arviz.InferenceData)
    assert data.posterior["group_coef"].shape == (1, 50, 10, 3)
    assert data.log_likelihood["y"].shape == (1, 50, len(y))
    assert data.posterior_predictive["y"].shape == (1, 50, len(y))


def test_log_likelihoods_are_those_of_draws():
    X, y, group, _ = simulate("gaussian", 6)
    pytest.importorskip("arviz")
    model = BayesianGLMRegressor(groups=3).fit(np.column_stack([X, group]), y)
    data = model.to_arviz(np.column_stack([X, group]), y, n_samples=20, random_state=0)
    post = {name: value.to_numpy()[0] for name, value in data.posterior.items()}
    mean = np.einsum("nj,snj->sn", X, post["group_coef"][:, group])
    mean += post["group_intercept"][:, group]
    sd = post["noise_scale"][:, None]
    expected = -0.5 * ((y - mean) / sd) ** 2 - np.log(sd) - 0.5 * np.log(2.0 * np.pi)
    np.testing.assert_allclose(data.log_likelihood["y"].to_numpy()[0], expected)


def test_threads_and_pickles_change_nothing(monkeypatch):
    monkeypatch.setattr(_model_rows, "GROUPS", 5)
    X, y, group, _ = simulate("poisson", 23)
    fits = [
        BayesianGLMRegressor("poisson", n_jobs=n).fit(X, y, groups=group)
        for n in (1, 2)
    ]
    for a, b in zip(*(model.posterior_.parts for model in fits), strict=True):
        np.testing.assert_array_equal(a, b)
    again = pickle.loads(pickle.dumps(fits[0]))
    a, b = (model.predict(X, groups=group) for model in (again, fits[1]))
    np.testing.assert_array_equal(a, b)
    again.partial_fit(X, y, groups=group)  # what is known of groups travels
    assert again.n_samples_seen_ == 2 * len(y)


def test_some_groups_first(monkeypatch):
    """Of many groups some are looked at first: the end is the same."""
    X, y, group, _ = simulate("poisson", 64)
    whole = BayesianGLMRegressor("poisson", tol=1e-6).fit(X, y, groups=group)
    monkeypatch.setattr(_estimator, "MANY_GROUPS", 10)
    some = BayesianGLMRegressor("poisson", tol=1e-6).fit(X, y, groups=group)
    assert some.objective_ == pytest.approx(whole.objective_, abs=1e-4)
    assert some.history_["passes"][0] > whole.history_["passes"][0]
    assert some.n_iter_ <= whole.n_iter_


def test_widths_are_learned_of_some_groups_first(monkeypatch):
    X, y, group, _ = simulate("logistic", 640)

    def fit():
        return BayesianLogisticRegression(varying=[0], tol=1e-6).fit(X, y, groups=group)

    whole = fit()
    monkeypatch.setattr(_estimator, "MANY_GROUPS", 10)
    some = fit()
    # Logarithms of both widths are found to .05.
    np.testing.assert_allclose(some.prior_scale_, whole.prior_scale_, rtol=0.1)
    np.testing.assert_allclose(
        some.coef_, whole.coef_, atol=0.01 * whole.coef_std_.max()
    )
    assert some.history_["passes"][0] < whole.history_["passes"][0]


def test_a_warm_start_has_nothing_left():
    X, y, group, _ = simulate()
    model = BayesianLogisticRegression(warm_start=True).fit(X, y, groups=group)
    first = model.objective_
    model.fit(X, y, groups=group)
    assert model.n_iter_ <= 1 and model.objective_ == pytest.approx(first, abs=0.01)


def test_a_fit_without_groups_leaves_none_behind():
    X, y, group, _ = simulate()
    model = BayesianLogisticRegression().fit(X, y, groups=group)
    with pytest.raises(AttributeError, match="pareto_k_"):
        _ = model.pareto_k_
    with pytest.raises(AttributeError, match="log_marginal_likelihood_"):
        _ = model.elbo_
    model.fit(X, y)
    assert not any("group" in name or "population" in name for name in vars(model)
                   if name.endswith("_"))  # fmt: skip
    assert np.isfinite(model.elbo_) and model.pareto_k_ < 0.7
    with pytest.raises(ValueError, match="fitted without groups"):
        model.predict(X, groups=group)


@pytest.mark.parametrize(
    ("params", "how", "message"),
    [
        ({"varying": "slopes"}, {}, "varying must be"),
        ({"varying": 3}, {}, "varying must be"),
        ({"varying": [7]}, {}, "varying=7 is the number of a column"),
        ({"varying": ["a"]}, {}, "varying='a' names a column"),
        ({"varying": [], "fit_intercept": False}, {}, "varying has no column"),
        ({"fit_intercept": False}, {}, "needs fit_intercept=True"),
        ({"population_scale": 0.0}, {}, "population_scale"),
        ({"population_scale": "learn"}, {}, "population_scale"),
        ({"solver": "svrg"}, {}, "does not go with groups"),
        ({"posterior": "meanfield"}, {}, "does not go with groups"),
        ({}, {"groups": [1, 2]}, "groups must have one id"),
        ({"varying": "all"}, {"groups": None}, "no groups are given"),
        ({"varying": [0]}, {"groups": None}, "no groups are given"),
        ({}, {"y": "three"}, "HierarchicalSoftmaxClassifier takes more"),
    ],
)
def test_what_is_refused(params, how, message):
    X, y, group, _ = simulate()
    if how.get("y") == "three":
        y, how = np.arange(len(y)) % 3, {}
    model = BayesianLogisticRegression(**params)
    with pytest.raises(ValueError, match=message):
        model.fit(X, y, **{"groups": group, **how})
    assert not hasattr(model, "coef_") and not hasattr(model, "classes_")


def test_targets_that_are_predicted_exactly():
    """No noise is left: it stops at its least, and nothing is NaN."""
    rng = np.random.default_rng(0)
    X, group = rng.normal(size=(100, 2)), np.arange(100) % 5
    model = BayesianGLMRegressor().fit(X, X @ [1.0, 2.0] + group, groups=group)
    assert np.isfinite(model.coef_std_).all() and model.noise_scale_ < 0.02
    np.testing.assert_allclose(model.coef_, [1.0, 2.0], atol=1e-2)
    zero = BayesianGLMRegressor().fit(X, np.zeros(100), groups=group)
    assert np.isfinite(zero.coef_std_).all()


def test_intervals_hold():
    """Of truths drawn from the prior."""
    covered = []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        b, t = rng.normal(size=4), rng.normal()
        own = np.exp(t) * rng.normal(size=15)
        group = np.repeat(np.arange(15), 10)
        X = rng.normal(size=(150, 3))
        eta = X @ b[:3] + b[3] + own[group]
        y = (rng.random(150) < 1.0 / (1.0 + np.exp(-eta))).astype(int)
        model = BayesianLogisticRegression(intercept_prior_scale=1.0)
        model.fit(X, y, groups=group)
        spread = model.population_intercept_log_scale_std_
        pairs = (
            (model.coef_[0] - b[:3], model.coef_std_[0]),
            (model.group_intercept_ - b[3] - own, model.group_intercept_std_),
            (np.log(model.population_intercept_scale_) - t, spread),
        )
        covered.append([np.mean(abs(away) < 1.96 * sd) for away, sd in pairs])
    means, groups, scales = np.mean(covered, axis=0)
    assert means > 0.89 and 0.92 < groups < 0.98 and scales > 0.83


def test_the_posterior_of_a_new_group_is_wider():
    X, y, group, _ = simulate("gaussian")
    model = BayesianGLMRegressor(varying="all").fit(X, y, groups=group)
    posterior = model.posterior_
    assert isinstance(posterior, VaryingPosterior)
    a, v = posterior.predictors(X[:5], np.full(5, -1))
    np.testing.assert_allclose(a, X[:5] @ model.coef_ + model.intercept_)
    _, seen = posterior.predictors(X[:5], group[:5])
    assert (v > 3.0 * seen).all()


@pytest.mark.filterwarnings("always::skvrem.exceptions.FewGroupsWarning")
def test_groups_that_say_little_are_told():
    X, y, group, _ = simulate("gaussian", 3)
    with pytest.warns(FewGroupsWarning, match="given 3 groups"):
        BayesianGLMRegressor().fit(X, y, groups=group)
    X, _, group, _ = simulate()
    slope = 20.0 * np.random.default_rng(0).normal(size=30)
    y = (slope[group] * X[:, 0] > 0.0).astype(int)  # separable in all groups
    with pytest.warns(FewGroupsWarning, match="Coefficients of x0 spread"):
        BayesianLogisticRegression(1.0, varying="all").fit(X, y, groups=group)
