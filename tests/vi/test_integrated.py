"""One coefficient by group, integrated out: the marginal likelihood and its slopes."""

import warnings

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize_scalar

from skvrem import BayesianGLMRegressor, BayesianLogisticRegression
from skvrem.vi.gaussian._model_families import (
    GaussianNoise,
    Logistic,
    OverdispersedCounts,
    PoissonCounts,
)
from skvrem.vi.gaussian.nested import _model as nested
from skvrem.vi.gaussian.nested._model import NestedPrior
from skvrem.vi.glm.groups._model import (
    FEW_ROWS,
    GroupedModel,
    IntegratedModel,
    integrated,
)
from skvrem.vi.glm.groups._model_rows import Design, GroupRows

KINDS = ["logistic", "poisson", "negative-binomial"]
BOUNDS = np.array([0, 2, 4, 4, 5, 8, 10])  # one group has no rows
M, N = len(BOUNDS) - 1, BOUNDS[-1]
PLACE = np.repeat(np.arange(M), np.diff(BOUNDS))


def small(kind, own="intercept", of=IntegratedModel, at=0.0, unit=1.0, seed=0):
    """A model of few rows, whose intercepts or first slopes differ by group."""
    rng = np.random.default_rng(seed)
    X = at + unit * rng.normal(size=(N, 2))
    weight, y = rng.uniform(0.5, 2.0, N), rng.poisson(1.5, N).astype(float)
    if kind == "logistic":
        family, y = Logistic(), (y > 1.0).astype(float)
    elif kind == "poisson":
        family, y = PoissonCounts(), np.column_stack([y, 0.3 * rng.normal(size=N)])
    else:
        family = OverdispersedCounts(1.7)
    order = np.array([2, 0, 1] if own == "intercept" else [0, 2, 1])
    design = Design(X, BOUNDS, order, 1, np.zeros(3))
    variance = np.where(order < 2, 1.0 / unit**2, 4.0)
    prior = NestedPrior(np.array([0.1, 0.2, -0.3]), variance, np.array([0.4]), 0.8)
    return of(family, GroupRows(design, y, weight), prior)


def settled(model, t):
    """Return modes at a logarithm of the scale, or at several."""
    t = np.reshape(t, (-1, 1))
    mean = np.tile(model.prior.mean, (len(t), 1))
    return model.settle(t, mean, np.zeros((len(t), M, 1)))


def moments(model, b, t, m):
    """Return log p(y_m | b, t), and mean and variance of z, by brute force."""
    rows, design = PLACE == m, model.rows.design
    X = np.column_stack([design.rows, np.ones(N)])[rows][:, design.order]
    y, w = model.rows.y[rows], model.rows.weight[rows]

    def f(z):
        eta = X[:, 0] * z + X[:, 1:] @ b[1:]
        square = ((z - b[0]) * np.exp(-t)) ** 2
        value = w @ model.family.log_likelihood(eta[:, None], y)
        return value - 0.5 * square - t - 0.5 * np.log(2.0 * np.pi)

    wide = 10.0 * np.exp(t)
    how = {"bounds": (b[0] - wide, b[0] + wide), "options": {"xatol": 1e-10}}
    mode = minimize_scalar(lambda z: -f(z), method="bounded", **how).x
    near = [mode - 0.1 * wide, mode, mode + 0.1 * wide]

    def integral(g):
        def of(z):
            return g(z) * np.exp(f(z) - f(mode))

        options = {"epsabs": 1e-12, "epsrel": 1e-11, "limit": 400, "points": near}
        return quad(of, *how["bounds"], **options)[0]

    total = integral(lambda z: 1.0)
    mean = integral(lambda z: z) / total
    variance = integral(lambda z: (z - mean) ** 2) / total
    return f(mode) + np.log(total), mean, variance


@pytest.mark.parametrize("t", [-1.0, 0.7, 2.3])
@pytest.mark.parametrize("own", ["intercept", "slope"])
@pytest.mark.parametrize("kind", KINDS)
def test_integrals_and_moments(kind, own, t):
    model, b = small(kind, own), np.array([0.3, 0.8, -0.2])
    start = np.zeros((1, M, 1))
    groups, local, density = model._about(np.array([[t]]), b[None], start)
    expected = np.array([moments(model, b, t, m) for m in range(M)])
    np.testing.assert_allclose(local.value[0], expected[:, 0].sum(), atol=1e-5)
    # Means are as large as the scale.
    width = 1.0 + np.exp(t)
    np.testing.assert_allclose(groups[0, :, 0], expected[:, 1], atol=1e-5 * width)
    variance = 1.0 / (local.hessian[0, :, 0, 0] + np.exp(-2.0 * t))
    np.testing.assert_allclose(variance, expected[:, 2], rtol=1e-4)
    prior = model.prior
    square = np.sum((b - prior.mean) ** 2 / prior.variance)
    log_prior = -0.5 * (square + np.log(prior.variance).sum())
    assert density[0] == pytest.approx(local.value[0] + log_prior)
    # Wherever modes are sought.
    far = model._about(np.array([[t]]), b[None], start + 9.0)[1]
    np.testing.assert_allclose(far.value, local.value, atol=1e-5)


@pytest.mark.parametrize("own", ["intercept", "slope"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_modes_and_what_groups_follow(kind, own, monkeypatch):
    monkeypatch.setattr(nested, "SETTLED", 1e-15)
    model = small(kind, own)
    modes, t, h = settled(model, 0.5), np.array([[0.5]]), 2e-3
    steps = h * np.eye(3)

    def at(b):
        return model._about(t, b[None], modes.groups)

    b = modes.mean[0]
    slope = [at(b + step)[2][0] - at(b - step)[2][0] for step in steps]
    np.testing.assert_allclose(slope, 0.0, atol=1e-5)
    hessian = [
        [
            at(b + i + j)[2] - at(b + i - j)[2] - at(b - i + j)[2] + at(b - i - j)[2]
            for i in steps
        ]
        for j in steps
    ]
    S = -np.array(hessian)[..., 0] / (4.0 * h**2)
    np.testing.assert_allclose(modes.of_mean[0] @ S, np.eye(3), atol=5e-3)
    moved = [(at(b + i)[0] - at(b - i)[0])[0, :, 0] / (2.0 * h) for i in steps]
    np.testing.assert_allclose(modes.follow[0, :, 0], np.transpose(moved), atol=1e-4)


@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_slope_is_that_of_the_marginal(kind, far, monkeypatch):
    """However far columns are from zero."""
    monkeypatch.setattr(nested, "SETTLED", 1e-15)
    model = small(kind, **({"at": 5.0, "unit": 1e-3} if far else {}))
    for t in (-0.7, 0.5, 1.5):
        objective = settled(model, [t + 0.02, t - 0.02]).objective
        slope = model.slope(settled(model, t))[0, 0]
        numeric = (objective[0] - objective[1]) / 0.04
        assert slope == pytest.approx(numeric, abs=1e-3)


def test_the_scale_is_the_maximizer_of_the_marginal_by_brute_force():
    model = small("logistic", seed=3)
    h = 1e-2

    def density(b, t):
        value = sum(moments(model, b, t, m)[0] for m in range(M))
        square = np.sum((b - model.prior.mean) ** 2 / model.prior.variance)
        return value - 0.5 * (square + np.log(model.prior.variance).sum())

    def marginal(t):
        b, steps = settled(model, t).mean[0], h * np.eye(3)
        S = np.empty((3, 3))
        for i, one in enumerate(steps):
            for j, other in enumerate(steps):
                ends = density(b + one + other, t) + density(b - one - other, t)
                ends -= density(b + one - other, t) + density(b - one + other, t)
                S[i, j] = -ends / (4.0 * h**2)
        away = (t - model.prior.log_scale[0]) / model.prior.log_scale_std
        return density(b, t) - 0.5 * np.linalg.slogdet(S)[1] - 0.5 * away**2

    how = {"bounds": (-1.0, 2.0), "method": "bounded", "options": {"xatol": 1e-4}}
    found = minimize_scalar(lambda t: -settled(model, t).objective[0], **how).x
    near = np.array([-0.1, 0.0, 0.1])
    values = [marginal(found + away) for away in near]
    np.testing.assert_allclose(
        values, settled(model, found + near).objective, atol=1e-3
    )
    bend, slope, _ = np.polyfit(near, values, 2)
    assert -0.5 * slope / bend == pytest.approx(0.0, abs=0.02)
    laplace = small("logistic", of=GroupedModel, seed=3)
    other = minimize_scalar(lambda t: -settled(laplace, t).objective[0], **how).x
    assert abs(other - found) > 0.05


@pytest.mark.parametrize("kind", KINDS)
def test_means_of_groups_bend_as_they_are_told_to(kind):
    """The mean over b of a group's mean, to second order."""
    model = small(kind)
    modes = settled(model, 0.5)
    bent = model._bends(modes)[0][0]
    root, total, h = np.linalg.cholesky(modes.of_mean[0]), 0.0, 0.02

    def at(b):
        return model._about(np.array([[0.5]]), b[None], modes.groups)[0][0, :, 0]

    b = modes.mean[0]
    for axis in h * root.T:
        total = total + (at(b + axis) - 2.0 * at(b) + at(b - axis)) / h**2
    np.testing.assert_allclose(bent, total, atol=2e-2 * np.abs(total).max())


def test_where_groups_are_integrated_out():
    few = small("logistic", of=GroupedModel)
    assert isinstance(integrated(few), IntegratedModel)
    noisy = GroupedModel(GaussianNoise(1.0), few.rows, few.of_zero, n_rows=N)
    assert integrated(noisy) is noisy
    past = few.seen(few.start())
    more = GroupedModel(few.family, few.rows, few.of_zero, past)
    assert integrated(more) is more
    times = FEW_ROWS + 1
    rows = np.repeat(few.rows.design.rows, times, axis=0)
    design = few.rows.design._replace(rows=rows, bounds=BOUNDS * times)
    parts = np.repeat(few.rows.y, times), np.repeat(few.rows.weight, times)
    many = GroupedModel(few.family, GroupRows(design, *parts), few.of_zero)
    assert integrated(many) is many


def simulate(family, tau, n_groups=500, each=2, seed=0):
    rng = np.random.default_rng(seed)
    own, place = tau * rng.normal(size=n_groups), np.repeat(np.arange(n_groups), each)
    X = rng.normal(size=(place.size, 1))
    eta = own[place] + X[:, 0]
    if family == "logistic":
        y = (rng.random(eta.size) < 1.0 / (1.0 + np.exp(-eta))).astype(int)
        return BayesianLogisticRegression(), X, y, place, own
    return BayesianGLMRegressor("poisson"), X, rng.poisson(np.exp(eta)), place, own


@pytest.mark.parametrize("family", ["logistic", "poisson"])
def test_scales_of_groups_of_two_rows(family):
    """Laplace's method finds 1.5 for 2 of two classes, and 87 % of groups."""
    scales, inside = [], []
    for seed in range(10):
        model, X, y, place, own = simulate(family, 2.0, seed=seed)
        model.fit(X, y, groups=place)
        scales.append(model.population_intercept_scale_)
        error = np.ravel(model.group_intercept_) - own
        inside.append(np.abs(error) < 1.96 * np.ravel(model.group_intercept_std_))
    # Of one set the share inside varies by .023, with the scale.
    assert np.mean(inside) == pytest.approx(0.95, abs=0.02)
    assert np.mean(scales) == pytest.approx(2.0, rel=0.1)


def test_a_stream_goes_on_from_a_fit():
    model, X, y, place, _ = simulate("logistic", 1.0, n_groups=40, each=8)
    model.fit(X, y, groups=place)
    before = model.population_intercept_scale_
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.partial_fit(X[:40], y[:40], groups=place[:40])
    assert model.population_intercept_scale_ == pytest.approx(before, rel=0.5)
    assert model.n_samples_seen_ == len(X) + 40
