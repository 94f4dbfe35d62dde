"""Intercepts and slopes of a group that are correlated, by an origin that is learnt."""

import pickle
from itertools import product

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import multivariate_normal, norm

from skvrem import BayesianGLMRegressor, BayesianLogisticRegression
from skvrem.vi.gaussian._model import Point
from skvrem.vi.gaussian._model_families import (
    GaussianNoise,
    Logistic,
    PoissonCounts,
)
from skvrem.vi.gaussian.nested import _model as nested
from skvrem.vi.gaussian.nested._model import NestedPrior
from skvrem.vi.gaussian.nested._model_origin import OriginModel, Placed
from skvrem.vi.glm.groups._model import GroupedModel
from skvrem.vi.glm.groups._model_rows import Design, GroupRows

pytestmark = pytest.mark.filterwarnings("ignore::skvrem.exceptions.FewGroupsWarning")

FAMILIES = ["gaussian", "logistic", "poisson", "negative-binomial"]
KNOWN = {"noise_scale": 0.5, "prior_scale": 1.0, "intercept_prior_scale": 3.0}
KNOWN |= {"population_scale": 0.7}


def simulate(
    family="gaussian", n_groups=30, each=20, origin=0.0, centre=0.0, columns=1, seed=0
):
    """Rows of groups whose intercept and slope are independent at an origin."""
    rng = np.random.default_rng(seed)
    own = np.array([0.8, 0.6]) * rng.normal(size=(n_groups, 2))
    group = np.repeat(np.arange(n_groups), each)
    X = centre + rng.normal(size=(group.size, columns))
    eta = 0.3 + own[group, 0] + (0.5 + own[group, 1]) * (X[:, 0] - origin)
    if family == "gaussian":
        return X, eta + 0.5 * rng.normal(size=eta.size), group
    if family == "poisson":
        return X, rng.poisson(np.exp(0.5 * eta)), group
    if family == "negative-binomial":
        return X, rng.negative_binomial(2, 2.0 / (2.0 + np.exp(0.5 * eta))), group
    return X, (rng.random(eta.size) < 1.0 / (1.0 + np.exp(-eta))).astype(int), group


def estimator(family, **params):
    if family == "logistic":
        return BayesianLogisticRegression(**params)
    return BayesianGLMRegressor(family, **params)


class Dense:
    """The mixed model of known noise, whose targets are one normal vector."""

    def __init__(self, X, y, group):
        self.rows, self.y = np.column_stack([np.ones(len(y)), X[:, 0]]), y
        self.same = group[:, None] == group
        self.centre, self.unit = X[:, 0].mean(), X[:, 0].std()
        wide = np.array([3.0, 1.0])
        self.common = (self.rows * wide**2) @ self.rows.T + 0.25 * np.eye(len(y))

    def covariance(self, scales, away):
        """Return that of targets at logarithms of scales and an origin."""
        origin = self.centre + away * self.unit
        tau, seen = np.exp(scales), self.rows - [[0.0, origin]]
        seen[:, 0] = 1.0
        return self.common + self.same * ((seen * tau**2) @ seen.T)

    def evidence(self, x):
        """Return log p(y, scales, origin)."""
        found = multivariate_normal(cov=self.covariance(x[:2], x[2])).logpdf(self.y)
        prior = norm(np.log(0.7), 1.0).logpdf(x[:2]).sum()
        return found + prior + norm.logpdf(x[2])


def test_known_noise_is_exact():
    """Scales and origin are where the density of the dense model is the highest."""
    X, y, group = simulate(n_groups=12, origin=0.8, centre=2.0)
    model = BayesianGLMRegressor(**KNOWN, varying="all", tol=1e-8)
    model.fit(X, y, groups=group)
    dense = Dense(X, y, group)
    best = minimize(lambda x: -dense.evidence(x), [-0.5, -0.5, 0.0]).x
    found = model.population_intercept_scale_, model.population_scale_[0]
    np.testing.assert_allclose(np.log(found), best[:2], atol=1e-3)
    away = (model.population_origin_[0] - dense.centre) / dense.unit
    assert away == pytest.approx(best[2], abs=1e-3)
    constant = 1.5 * np.log(2.0 * np.pi)
    assert model.objective_ == pytest.approx(dense.evidence(best) + constant)
    # Best linear predictions, but for what is not known of the scales.
    covariance = dense.covariance(best[:2], best[2])
    weights = np.linalg.solve(covariance, y)
    mean = np.array([9.0, 1.0]) * (dense.rows.T @ weights)
    np.testing.assert_allclose(mean, [model.intercept_, *model.coef_], atol=0.02)
    within = (covariance - 0.25 * np.eye(len(y))) @ weights
    np.testing.assert_allclose(model.predict(X, groups=group), within, atol=0.02)
    # Variances at zero, where the origin is not.
    inverse = np.linalg.inv(np.linalg.inv(np.diag([9.0, 1.0])) + dense.rows.T
                            @ np.linalg.solve(covariance - (dense.rows * [9.0, 1.0])
                                              @ dense.rows.T, dense.rows))  # fmt: skip
    spread = np.sqrt(np.diagonal(inverse))
    np.testing.assert_allclose(
        [model.intercept_std_, *model.coef_std_], spread, rtol=0.15
    )


def test_the_marginal_likelihood_has_the_origin_integrated_out():
    X, y, group = simulate(n_groups=15, each=8, origin=-0.5)
    model = BayesianGLMRegressor(**KNOWN, varying="all").fit(X, y, groups=group)
    dense = Dense(X, y, group)
    best = minimize(lambda x: -dense.evidence(x), [-0.5, -0.5, 0.0]).x
    nodes, weights = np.polynomial.hermite_e.hermegauss(9)
    spread, total = np.array([0.25, 0.25, 0.6]), 0.0
    for which in product(range(9), repeat=3):
        z = nodes[list(which)]
        log_p = dense.evidence(best + spread * z) + 0.5 * z @ z
        total += np.exp(log_p) * weights[list(which)].prod()
    exact = np.log(total * spread.prod())
    assert model.log_marginal_likelihood_ == pytest.approx(exact, abs=0.15)


def placed(family, n_groups=40, each=12, seed=0):
    """A model of few groups at an origin, and where it stands."""
    X, y, _ = simulate(family, n_groups, each, 0.7, 1.0, 3, seed)
    # The second column comes first, and the third does not differ by group.
    order, bounds = np.array([1, 3, 0, 2]), np.arange(n_groups + 1) * each
    design = Design(X, bounds, order, 3, np.array([0.5, 0.0, 1.3, 0.0]))
    prior = NestedPrior(
        np.array([0.0, 0.3, 0.0, 0.0]), np.array([1.0, 4.0, 1.0, 2.0]),
        np.log([0.5, 0.7, 0.5]), 1.0,
    )  # fmt: skip
    how, like = {}, Logistic() if family == "logistic" else PoissonCounts()
    if family == "gaussian":
        like, how = GaussianNoise(1.0), {"n_rows": len(y), "least_noise": 1e-3}
    rows = GroupRows(design, y.astype(float), np.empty(0))
    centre = np.append(X.mean(axis=0), 0.0)[order]
    unit = np.append(X.std(axis=0), 1.0)[order]
    model = OriginModel(GroupedModel(like, rows, prior, **how), centre, unit)
    scales = np.log([0.2, 0.8, 0.6] + [0.5] * (family == "gaussian"))
    start = model.model.start().parameters

    def point(x):
        h = len(scales)
        return Point(Placed(x[:h], start.mean, start.groups, x[h:]))

    return model, point, np.append(scales, [-0.2, 0.3])


@pytest.mark.parametrize(
    ("family", "n_groups", "each", "close"),
    [
        ("gaussian", 40, 12, 0.1),
        ("logistic", 40, 12, 0.07),
        ("poisson", 40, 12, 0.1),
        # Coefficients of few rows vary, and with each other.
        ("poisson", 100, 2, 0.05),
    ],
)
def test_the_slope_and_the_information(family, n_groups, each, close, monkeypatch):
    monkeypatch.setattr(nested, "SETTLED", 1e-15)
    model, point, x = placed(family, n_groups, each)

    def sums(x):
        return model.statistics(point(x), None, 1.0)

    steps = 1e-4 * np.eye(len(x))
    ends = [[sums(x + sign * step) for sign in (1.0, -1.0)] for step in steps]
    slope = [(a.objective - b.objective) / 2e-4 for a, b in ends]
    np.testing.assert_allclose(sums(x).gradient, slope, atol=1e-4)
    # Louis' information leaves out what groups do to each other, and skewness.
    curvature = -np.array([(a.gradient - b.gradient) / 2e-4 for a, b in ends])
    observed, complete = model.information(point(x))
    root = np.linalg.inv(np.linalg.cholesky(complete))
    wrong = root @ (observed - curvature) @ root.T
    assert np.abs(wrong).max() < close


def test_another_origin_is_the_same_model():
    """A quadratic that has turned is that of rows seen anew; priors turn with them."""
    model, *_ = placed("gaussian")
    inner, origin = model.model, np.array([-0.4, 0.0, 3.0, 0.0])
    turned = inner.seen_from(origin)
    anew = GroupedModel(
        inner.family, inner.rows.seen_from(origin), inner.of_zero,
        n_rows=480.0, least_noise=1e-3,
    )  # fmt: skip
    rng = np.random.default_rng(0)
    point = 0.3 * rng.normal(size=(1, 4)), rng.normal(size=(1, 4))
    groups = rng.normal(size=(1, 40, 3))
    for a, b in zip(turned._local(*point, groups), anew._local(*point, groups),
                    strict=True):  # fmt: skip
        np.testing.assert_allclose(a, b, atol=1e-8)
    mean, prior = point[1][0], inner.of_zero
    back = mean.copy()
    back[1] -= origin @ mean
    at_zero = norm(prior.mean, np.sqrt(prior.variance)).logpdf(back).sum()
    moved = turned.prior
    covariance = np.linalg.inv(moved.whole_precision)
    assert multivariate_normal(moved.mean, covariance).logpdf(mean) == pytest.approx(
        at_zero
    )
    np.testing.assert_allclose(np.diagonal(covariance), moved.variance)
    assert moved.log_det == pytest.approx(np.log(prior.variance).sum())


@pytest.mark.parametrize("family", FAMILIES)
def test_a_year_does_no_harm(family):
    X, y, group = simulate(family, origin=0.5)
    ids = np.where(group % 4 == 0, 99, group)  # some are new
    fits = [
        estimator(family, varying="all", tol=1e-6).fit(X + far, y, groups=group)
        for far in (0.0, 2000.0)
    ]
    near, far = fits
    away = far.population_origin_ - near.population_origin_
    assert away[0] == pytest.approx(2000.0, abs=0.02)
    for name in ("coef_", "coef_std_", "population_scale_", "group_coef_std_"):
        np.testing.assert_allclose(
            getattr(near, name), getattr(far, name), rtol=0.02, atol=2e-3
        )
    if family == "logistic":
        ends = [m.predict_proba_interval(X + c, groups=ids)
                for m, c in zip(fits, (0.0, 2000.0), strict=True)]  # fmt: skip
    else:
        ends = [m.predict_interval(X + c, groups=ids)
                for m, c in zip(fits, (0.0, 2000.0), strict=True)]  # fmt: skip
    np.testing.assert_allclose(*ends, rtol=0.02, atol=0.02)
    # What is said at zero, far away, is of the same predictors.
    at = np.array([2000.0 + near.population_origin_[0]])
    level = far.group_intercept_ + far.group_coef_ @ at
    same = near.group_intercept_ + near.group_coef_ @ near.population_origin_
    np.testing.assert_allclose(level, same, atol=0.02)


@pytest.mark.parametrize("origin", [-1.5, 0.0, 1.0])
def test_the_origin_is_found(origin):
    """Zero among them, though columns lie elsewhere."""
    X, y, group = simulate(n_groups=300, origin=origin, centre=1.0)
    model = BayesianGLMRegressor(varying="all").fit(X, y, groups=group)
    assert abs(model.population_origin_[0] - origin) < 0.35
    assert abs(np.log(model.population_intercept_scale_ / 0.8)) < 0.2
    # No worse than a model whose origin is right from the beginning.
    other = BayesianGLMRegressor(varying="all").fit(X - origin, y, groups=group)
    np.testing.assert_allclose(
        model.predict(X, groups=group), other.predict(X - origin, groups=group),
        atol=0.01,
    )  # fmt: skip


@pytest.mark.parametrize("family", ["gaussian", "logistic"])
def test_moments_are_those_of_draws(family):
    X, y, group = simulate(family, 12, origin=0.5, centre=3.0, columns=2)
    model = estimator(family, varying=[0]).fit(X, y, groups=group)
    draws = model.sample_posterior(20_000, 0)
    for name in ("coef", "intercept", "group_coef", "group_intercept"):
        mean = np.squeeze(getattr(model, f"{name}_"))
        spread = np.squeeze(getattr(model, f"{name}_std_"))
        found = draws[name].reshape(20_000, *mean.shape)
        away = np.abs(found.mean(axis=0) - mean)
        assert (away < 0.05 * spread).all()
        np.testing.assert_allclose(found.std(axis=0), spread, rtol=0.05)
    posterior, place = model.posterior_, group.copy()
    a, v = posterior.predictors(X, place)
    own = draws["group_coef"][:, place] * X
    z = own.sum(axis=2) + draws["group_intercept"][:, place]
    np.testing.assert_allclose(a, z.mean(axis=0), atol=0.05)
    np.testing.assert_allclose(v, z.var(axis=0), rtol=0.1)
    # Of a group that has not been seen, intercept and slope go together.
    *_, new = posterior.sample(20_000, np.random.default_rng(0))
    _, v = posterior.predictors(X[:20], np.full(20, -1))
    z = new[:, :2] @ X[:20].T + new[:, 2:]
    middle = np.percentile(z, [15.87, 84.13], axis=0)
    np.testing.assert_allclose(0.5 * np.diff(middle, axis=0)[0], np.sqrt(v), rtol=0.15)


@pytest.mark.parametrize("family", ["gaussian", "logistic"])
def test_a_stream_keeps_the_origin_of_its_first_batch(family):
    X, y, group = simulate(family, 40, 30, origin=0.5, centre=5.0)
    params = {"population_scale": 0.5, "prior_scale": 1.0, "varying": "all"}
    turn = np.random.default_rng(0).permutation(len(y))
    stream, classes = estimator(family, **params), {}
    if family == "logistic":
        classes = {"classes": [0, 1]}
    parts = np.array_split(turn, 3)
    stream.partial_fit(X[parts[0]], y[parts[0]], groups=group[parts[0]], **classes)
    origin = stream.population_origin_.copy()
    stream = pickle.loads(pickle.dumps(stream))
    for some in parts[1:]:
        stream.partial_fit(X[some], y[some], groups=group[some])
    np.testing.assert_array_equal(stream.population_origin_, origin)
    whole = estimator(family, **params).fit(X, y, groups=group)
    away = (stream.group_coef_ - whole.group_coef_) / whole.group_coef_std_
    assert np.abs(away).max() < 0.8


def test_a_warm_start_has_nothing_left():
    X, y, group = simulate("logistic", origin=0.5, centre=5.0, columns=2)
    model = BayesianLogisticRegression(1.0, varying="all", warm_start=True)
    first = model.fit(X, y, groups=group).objective_
    origin = model.population_origin_
    model.fit(X, y, groups=group)
    assert model.n_iter_ <= 1 and model.objective_ == pytest.approx(first, abs=0.01)
    np.testing.assert_allclose(model.population_origin_, origin, atol=0.05)
    # What the fit before knew is where the columns were.
    for far in (7.0, 2000.0):
        model.fit(X + far, y, groups=group)
        np.testing.assert_allclose(model.population_origin_ - far, origin, atol=0.1)


def test_blocks_of_dask():
    da = pytest.importorskip("dask.array")
    X, y, group = simulate("poisson", origin=0.5, centre=5.0)
    turn = np.random.default_rng(0).permutation(len(y))
    X, y, group = X[turn], y[turn], group[turn]
    weight = np.random.default_rng(1).uniform(0.5, 2.0, len(y))
    here = BayesianGLMRegressor("poisson", varying="all")
    here.fit(X, y, sample_weight=weight, groups=group)
    parts = (da.from_array(part, chunks=170) for part in (X, y, weight, group))
    rows, targets, weights, ids = parts
    there = BayesianGLMRegressor("poisson", varying="all")
    there.fit(rows, targets, sample_weight=weights, groups=ids)
    np.testing.assert_allclose(there.population_origin_, here.population_origin_)
    np.testing.assert_allclose(there.group_coef_, here.group_coef_)
