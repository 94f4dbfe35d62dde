"""Gradient estimates of minibatch steps: unbiased, controlled, and steps that work."""

import warnings
from itertools import product

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.datasets import load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import scale
from sklearn.utils import shuffle

from skvrem import BayesianLogisticRegression, solvers
from skvrem.exceptions import PosteriorWarning
from skvrem.solvers._protocols import Anchor
from skvrem.vi import MinibatchSteps
from skvrem.vi.gaussian import _kernels_steps
from skvrem.vi.gaussian._kernels_steps import ADAM, NATURAL, SGD
from skvrem.vi.gaussian._model import Point
from skvrem.vi.gaussian._model_families import (
    GaussianNoise,
    Logistic,
    PoissonCounts,
    Softmax,
    cubature,
)
from tests.laws import cases

FAMILIES = {
    "logistic": Logistic,
    "poisson": PoissonCounts,
    "gaussian": lambda: GaussianNoise(0.7),
    "softmax": lambda: Softmax(3, 100),
}
KINDS = ("stochastic", "svrg", "saga")
ESTIMATORS = [
    (kind, control, scale)
    for kind, control, scale in product(
        KINDS, (None, "taylor", "antithetic", "quadrature"), (True, False)
    )
    if not (kind != "stochastic" and control is None)
    and not (control != "taylor" and not scale)
]


def stepping(name, *given, **named):
    return cases.stepping(FAMILIES[name](), *given, **named)


def known_away(steps, point, away, rng):
    """What is known at an anchor so far from the point, None where nothing is."""
    if not steps.reduced:
        return None
    q = point.parameters
    anchor = Point(q._replace(mean=q.mean + away, log_scale=q.log_scale - away))
    return steps.known_at(anchor_of(steps, anchor), rng)


def anchor_of(steps, point):
    _, mean, _ = steps.full_pass(point, steps.data)
    return Anchor(mean, np.nan, 0.0, point)


def estimates(steps, point, n_epochs, away=0.1):
    """Estimates of G and C at one point, of epochs one after the other."""
    rng = np.random.default_rng(5)
    known, found = known_away(steps, point, away, rng), []
    work = steps.open(Anchor(None, np.nan, 0.0, point))
    for _ in range(n_epochs):
        rows = steps.visits(known, rng)
        found.append(steps.estimates(work, known, rows, steps.noise(work, rows, rng)))
    return np.concatenate(found).reshape(-1, found[0][0].size)


def exact(steps, point, nodes=None):
    """G and C by quadrature, of several predictors with nodes that hardly err."""
    solver, family = solvers.Batch(), steps.model.family
    if family.n_predictors > 1 and nodes != "own":
        family.nodes, family.node_weights = cubature(family.n_predictors, 1 << 14)
        family.columns = np.ascontiguousarray(family.nodes.T)
    solver.start(steps.model, steps.data, None)
    sums = solver.certify(point, 1.0).mean
    n = steps.data.total_weight
    return n * np.concatenate([sums.gradient.T.ravel(), sums.curvature.T.ravel()])


@pytest.mark.parametrize(("kind", "control", "scale"), ESTIMATORS)
@pytest.mark.parametrize("name", FAMILIES)
def test_estimates_are_unbiased(name, kind, control, scale):
    steps, point = stepping(name, kind, control, scale, n_draws=2)
    steps.batch_size = 6  # of equal size: each step is an unbiased estimate
    found = estimates(steps, point, 1500)
    # Rows are drawn without replacement: epochs are independent, their steps not.
    epochs = found.reshape(1500, -1, found.shape[1]).mean(axis=1)
    error = epochs.std(axis=0) / np.sqrt(len(epochs))
    wanted = exact(steps, point, "own" if control == "quadrature" else None)
    z = (epochs.mean(axis=0) - wanted) / np.maximum(error, 1e-9)
    assert (abs(z) < 4.0).all()


@pytest.mark.parametrize("level", [0.0, 800.0, -800.0])
def test_means_of_predictors_of_any_size(level):
    z = level + np.array([0.3, -1.0, 2.0])
    found = np.empty(3)
    _kernels_steps.mean_of(_kernels_steps.SOFTMAX, z, found)
    np.testing.assert_allclose(found, softmax(z), rtol=1e-12)


def test_means_of_predictors_far_apart():
    found = np.empty(3)
    _kernels_steps.mean_of(_kernels_steps.SOFTMAX, np.array([-3e3, 2e3, 2e3]), found)
    np.testing.assert_allclose(found, [0.0, 0.5, 0.5], atol=1e-300)


def variance_of(name, *arguments, away=0.1):
    steps, point = stepping(name, *arguments)
    steps.batch_size = 6
    found = estimates(steps, point, 200, away)
    half = found.shape[1] // 2
    return found.var(axis=0)[:half].sum(), found.var(axis=0)[half:].sum()


@pytest.mark.parametrize("name", ["logistic", "poisson", "softmax"])
def test_what_is_controlled_varies_less(name):
    naive = variance_of(name, "stochastic", None)
    cv = variance_of(name, "stochastic", "taylor")
    joint = variance_of(name, "svrg", "taylor")
    paper = variance_of(name, "svrg", "taylor", False)
    assert joint[0] < 0.3 * cv[0] < 0.3 * naive[0]
    assert joint[0] == paper[0]
    # The scales' part is naive without control_scale.
    assert joint[1] < 0.3 * paper[1]
    assert paper[1] == pytest.approx(naive[1], rel=0.2)


def test_a_gaussian_likelihood_leaves_no_noise():
    """Taylor's approximation is exact there (the floor of joint is 0)."""
    for kind, control in product(("svrg", "saga"), ("taylor", "quadrature")):
        assert max(variance_of("gaussian", kind, control, away=0.0)) < 1e-20
    # Away from the anchor rows differ in the means' part.
    assert variance_of("gaussian", "svrg", "quadrature")[0] > 1.0
    for kind, name in product(("svrg", "saga"), ("logistic", "softmax")):
        assert max(variance_of(name, kind, "quadrature", away=0.0)) < 1e-20
        assert max(variance_of(name, kind, "quadrature")) > 1e-4


@pytest.mark.parametrize("kind", KINDS)
def test_finer_nodes_lead_to_the_top_of_their_bound(kind):
    """At an anchor the estimates of "svrg" are those of its pass, by whatever nodes."""
    steps, point = stepping("softmax", kind, "quadrature")
    steps.batch_size = 6
    coarse, finer = exact(steps, point, "own"), steps.refined(point)
    assert finer.model.family.n_pairs > steps.model.family.n_pairs
    wanted = exact(finer, point, "own")
    assert abs(wanted - coarse).max() > 1e-6
    found = estimates(finer, point, 1, away=0.0).mean(axis=0)
    np.testing.assert_allclose(found, wanted, atol=1e-10)
    assert finer.left_to_gain(point) != steps.left_to_gain(point)
    assert stepping("softmax", kind, "taylor")[0].refined(point) is None
    assert stepping("logistic", kind, "quadrature")[0].refined(point) is None


def test_the_table_follows_the_visits():
    """After an epoch without steps, rows remember the point, and so do the sums."""
    controls = "taylor", "antithetic", "quadrature"
    for name, control in product(("logistic", "softmax"), controls):
        steps, point = stepping(name, "saga", control, optimizer="natural")
        rng = np.random.default_rng(0)
        known = known_away(steps, point, 0.1, rng)
        work, rows = (
            steps.open(Anchor(None, np.nan, 0.0, point)),
            steps.visits(known, rng),
        )
        sizes = np.zeros(-(-len(rows) // steps.batch_size))
        steps.sweep(work, known, rows, steps.noise(work, rows, rng), sizes)
        known = steps.renewed(known)
        fresh = known_away(steps, point, 0.0, rng)
        np.testing.assert_allclose(known.memory, fresh.memory, atol=1e-9)
        pairs = list(zip(known.totals, fresh.totals, strict=True))
        for a, b in pairs[: 1 if control == "antithetic" else 2]:
            np.testing.assert_allclose(a, b, atol=1e-8)


def test_weights_are_of_rows():
    """The sums of the anchor are gradient and curvature at the mean."""
    steps, point = stepping("softmax", "svrg", "taylor")
    q = point.parameters
    gradient, curvature = known_away(steps, point, 0.0, None).totals
    X = np.column_stack([steps.data.rows, np.ones(steps.data.n_units)])
    p = softmax(X @ q.mean, axis=1)
    w = steps.data.weight
    residual = w[:, None] * (np.eye(3)[steps.model.y] - p)
    np.testing.assert_allclose(gradient, residual.T @ X, atol=1e-10)
    bend = (w[:, None] * p * (1 - p)).T @ X**2
    np.testing.assert_allclose(curvature, bend, atol=1e-10)


# Fits


def fit(X, y, **params):
    params = {"random_state": 0, "posterior": "meanfield", "max_iter": 150} | params
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return BayesianLogisticRegression(**params).fit(X, y)


def problem(k=2, n=300):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, 3))
    z = X @ rng.normal(size=(3, k)) + rng.gumbel(size=(n, k))
    return X, z.argmax(axis=1)


@pytest.mark.parametrize(
    ("solver", "params", "gap"),
    [
        ("svrg", {}, 0.02),
        ("saga", {}, 0.02),
        ("stochastic", {}, 0.3),
        ("svrg", {"steps": MinibatchSteps(expectation="mc")}, 0.05),
        ("saga", {"steps": MinibatchSteps(expectation="mc")}, 0.05),
        ("svrg", {"steps": MinibatchSteps(expectation="mc", optimizer="adam")}, 0.1),
        ("svrg", {"steps": MinibatchSteps(expectation="mc", optimizer="sgd")}, 0.1),
        (
            "svrg",
            {"steps": MinibatchSteps(expectation="mc", control_variate="antithetic")},
            0.5,
        ),
        (
            "stochastic",
            {"steps": MinibatchSteps(expectation="mc", control_variate=None)},
            1.0,
        ),
        ("stochastic", {"steps": MinibatchSteps(expectation="mc", n_draws=3)}, 0.5),
    ],
)
@pytest.mark.parametrize("k", [2, 3])
def test_fits_end_near_the_batch_fit(k, solver, params, gap):
    X, y = problem(k)
    params = {"prior_scale": 1.0} | params  # one that is learned leads to the end
    best = fit(X, y, tol=1e-6, prior_scale=1.0)
    model = fit(X, y, solver=solver, **params)
    assert best.elbo_ - model.elbo_ < gap
    # A pass certifies every epoch: what is kept never falls.
    assert model.elbo_ >= model.history_["objective"][0]
    variances = model.history_["gradient_variance"]
    assert variances.size == model.history_["objective"].size
    # Of no steps at the start, and after an epoch that was taken back.
    assert np.isnan(variances[0]) and np.isfinite(variances).any()
    assert (variances[np.isfinite(variances)] > 0.0).all()
    assert model.solver_ == solver and model.batch_size_ == 5


@pytest.mark.parametrize(
    ("load", "solver"),
    [
        (load_iris, "stochastic"),
        (load_iris, "svrg"),
        (load_iris, "saga"),
        (load_wine, "svrg"),
        (load_wine, "saga"),
    ],
)
def test_solvers_end_at_the_same_bound_of_three_classes(load, solver):
    X, y = load(return_X_y=True)
    X, given = scale(X), {"prior_scale": 1.0, "max_iter": 500, "tol": 0.02}
    best, model = fit(X, y, **given), fit(X, y, solver=solver, **given)
    assert model.converged_ and model.expectation_ == "quadrature"
    off = max(best.elbo_error_, model.elbo_error_)
    assert abs(best.elbo_ - model.elbo_) < given["tol"] + off
    assert off < 2.0 * given["tol"]
    # Far from the batch fit, as draws leave it, scales would differ by their noise.
    np.testing.assert_allclose(model.coef_std_, best.coef_std_, rtol=0.05)


@pytest.mark.parametrize("solver", KINDS)
def test_classes_told_apart_on_raw_columns(solver):
    """At means that tell rows apart a start is not as wide as the prior."""
    X, y = load_iris(return_X_y=True)
    X = X * [1.0, 10.0, 1.0, 100.0] + [0.0, 50.0, 0.0, 0.0]
    start = fit(X, y, solver=solver, prior_scale="learn", max_iter=0)
    best = fit(X, y, prior_scale="learn", max_iter=500)
    assert best.elbo_ - start.elbo_ < 15.0


@pytest.mark.parametrize("solver", ["svrg", "saga"])
def test_finer_nodes_where_rows_lie(solver):
    da = pytest.importorskip("dask.array")
    X, y = shuffle(*load_wine(return_X_y=True), random_state=0)
    X, given = scale(X), {"solver": solver, "prior_scale": 1.0, "tol": 0.02}
    there = fit(da.from_array(X, (50, 13)), da.from_array(y, 50), **given)
    here = fit(X, y, **given)
    assert there.converged_ and 0.02 < there.elbo_error_ < 0.03  # of the finer nodes
    assert abs(there.elbo_ - here.elbo_) < given["tol"]


@pytest.mark.parametrize("optimizer", [NATURAL, ADAM, SGD])
def test_steps_along_a_support(optimizer):
    """Against a loop over numbers; the longest steps are those that seldom are made."""
    rng, p, size = np.random.default_rng(0), 6, 0.1
    mean, log_scale = rng.normal(size=(1, p)), rng.normal(-1.0, 0.3, (1, p))
    scale, prior = np.exp(log_scale), rng.uniform(0.5, 2.0, (2, 1, p))
    moments, visits = rng.uniform(0.1, 1.0, (4, 1, p)), np.arange(1, p + 1)
    seen, support = np.zeros((2, 2, p)), np.array([4, 0, 3])
    gradient, curvature = rng.normal(size=3), rng.uniform(0.1, 1.0, 3)
    weight = np.array([1.0, 3.0, 50.0])
    before = [part.copy() for part in (mean, log_scale, moments, visits)]
    state = mean, log_scale, scale, prior, moments, visits, seen
    _kernels_steps.step_on(
        support, weight, optimizer, size, gradient, curvature, *state
    )
    wanted = [part.copy() for part in before]
    for i, j in enumerate(support):
        centre, precision = prior[:, 0, j]
        variance = np.exp(2.0 * before[1][0, j])
        g = gradient[i] - precision * (before[0][0, j] - centre)
        turn = 1.0 - variance * (precision + curvature[i])
        slopes = weight[i] * np.array([g, -turn / variance])
        np.testing.assert_allclose(seen[:, :, j], [slopes, slopes**2])
        wanted[3][j] += 1
        if optimizer == ADAM:
            for number, slope in enumerate((g, turn)):
                m, v = wanted[2][2 * number : 2 * number + 2, 0, j]
                m, v = 0.9 * m + 0.1 * slope, 0.999 * v + 0.001 * slope**2
                wanted[2][2 * number : 2 * number + 2, 0, j] = m, v
                t = wanted[3][j]
                step = (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
                wanted[number][0, j] += size * step
            continue
        longest = 0.5 if optimizer == NATURAL else 0.5 * variance
        length = min(size * weight[i], max(size, longest))
        if optimizer == NATURAL:
            wanted[0][0, j] += length * variance * g
            wanted[1][0, j] += np.clip(0.5 * length * turn, -0.25, 0.25)
        else:
            wanted[0][0, j] += length * g
            wanted[1][0, j] += length * turn
    found = mean, log_scale, moments, visits
    for now, expected in zip(found, wanted, strict=True):
        np.testing.assert_allclose(now, expected, rtol=1e-12)
    np.testing.assert_allclose(scale, np.exp(log_scale), rtol=1e-14)
    others = np.setdiff1d(np.arange(p), support)
    assert not seen[:, :, others].any()


def test_one_seed_gives_the_same_bits():
    X, y = problem(3)
    a, b = (fit(X, y, solver="svrg", max_iter=5) for _ in range(2))
    np.testing.assert_array_equal(a.coef_, b.coef_)


def test_steps_that_lead_beyond_floating_point_are_undone():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=40_000)
    X = rng.normal(size=(len(y), 8)) + 4.0 * y[:, None]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ConvergenceWarning)
        # Nodes miss much where three epochs have led it.
        warnings.simplefilter("ignore", PosteriorWarning)
        model = fit(X, y, solver="svrg", step_size=0.5, max_iter=3)
    assert np.isfinite(model.elbo_)
    assert np.isfinite(model.coef_).all()
