"""Sums over rows, bounds and steps against integrals and finite differences."""

import numpy as np
import pytest
from scipy import integrate
from scipy.optimize import minimize
from scipy.special import expit, logsumexp, softmax
from scipy.stats import norm

from skvrem import schedules, solvers
from skvrem.data import as_source
from skvrem.vi.gaussian import _model, _model_posterior
from skvrem.vi.gaussian._kernels import softmax_expectations, turn_axes
from skvrem.vi.gaussian._model import Diagonal, Full, GaussianModel, Point
from skvrem.vi.gaussian._model_families import (
    NO_KEYS,
    GaussianNoise,
    Logistic,
    PoissonCounts,
    ScatteredSoftmax,
    Softmax,
    cubature,
    keys_of,
)
from skvrem.vi.gaussian._model_posterior import FullRank, MeanField

NONE = np.empty(0)


def family_of(name):
    return {
        "logistic": Logistic,
        "poisson": PoissonCounts,
        "gaussian": lambda: GaussianNoise(0.7),
        "softmax": lambda: Softmax(3, 100),
    }[name]()


def targets(name, n, rng):
    if name == "softmax":
        return rng.integers(3, size=n).astype(np.int32)
    values = {"logistic": [0.0, 0.5, 1.0], "poisson": [0.0, 2.0, 5.0]}
    return rng.choice(values.get(name, [-0.3, 0.8, 1.7]), n)


def problem(name, structure, weighted=False, rank=0, matrix=False):
    rng = np.random.default_rng(3)
    family = family_of(name)
    k, n, p = family.n_predictors, 40, 3
    X = 0.7 * rng.normal(size=(n, p - 1))
    X[:, 1] += 0.5 * X[:, 0]
    weight = rng.uniform(0.5, 2.0, n) if weighted else None
    data = as_source(X, weight)
    prior = MeanField(0.1 * rng.normal(size=p * k), rng.uniform(0.5, 2.0, p * k))
    model = GaussianModel(
        family,
        targets(name, n, rng),
        prior,
        data.total_weight,
        True,
        structure,
        rank,
        matrix,
    )
    mean = 0.3 * rng.normal(size=(p, k))
    if structure == "full":
        root = 0.2 * rng.normal(size=(p * k, p * k))
        covariance = root @ root.T + 0.05 * np.eye(p * k)
        parameters = Full(mean, covariance, np.linalg.inv(covariance))
    else:
        factor = 0.3 * rng.normal(size=(p, k, rank))
        parameters = Diagonal(mean, rng.normal(-1.0, 0.2, (p, k)), factor)
    return model, data, Point(parameters)


def mean_of(model, data, point):
    solver = solvers.Batch()
    solver.start(model, data, None)
    return solver.certify(point, 1.0)


# Expectations of a row


@pytest.mark.parametrize("name", ["logistic", "poisson", "gaussian"])
def test_expectations_are_integrals(name, rng):
    family = family_of(name)
    a, v = rng.normal(0.0, 1.5, (6, 1)), rng.uniform(0.01, 3.0, (6, 1))
    y, weight = targets(name, 6, rng), rng.uniform(0.5, 2.0, 6)
    loss, residual, curvature = family.expectations(a, v, y, weight)
    total, step = 0.0, 1e-3
    for i in range(6):

        def expected(shift, i=i):
            def integrand(t):
                z = np.array([[a[i, 0] + shift + np.sqrt(v[i, 0]) * t]])
                return norm.pdf(t) * family.log_likelihood(z, y[i : i + 1])[0]

            return integrate.quad(integrand, -12, 12, epsabs=1e-12, limit=200)[0]

        values = [weight[i] * expected(s) for s in (-step, 0.0, step)]
        total -= values[1]
        slope = (values[2] - values[0]) / (2.0 * step)
        bend = (values[2] - 2.0 * values[1] + values[0]) / step**2
        assert residual[i, 0] == pytest.approx(slope, rel=1e-4, abs=1e-5)
        assert -curvature[i, 0] == pytest.approx(bend, rel=1e-3, abs=1e-4)
    assert loss == pytest.approx(total, rel=1e-6)


def turned(nodes, keys):
    """Nodes (s, k) of each row, of shape (m, s, k)."""
    k, found = nodes.shape[1], []
    for key in keys:
        order, sign = np.arange(k), np.ones(k)
        turn_axes(key, order, sign)
        assert sorted(order) == list(range(k)) and set(sign) <= {-1.0, 1.0}
        found.append(sign * nodes[:, order])
    return np.stack(found)


# Of many classes they are products of matrices.
@pytest.mark.parametrize("k", [3, 10])
@pytest.mark.parametrize("turns", [False, True])
@pytest.mark.parametrize("full", [False, True])
def test_softmax_expectations_are_sums_over_nodes(full, turns, k, rng):
    family, m = Softmax(k, 100), 5
    A, y = rng.normal(size=(m, k)), np.array([0, 1, 2, 1, 0], np.int32)
    turns &= full
    keys = keys_of(rng.uniform(1.0, 2.0, m)) if turns else NO_KEYS
    nodes = np.broadcast_to(family.nodes, (m, *family.nodes.shape))
    if turns:
        nodes = turned(family.nodes, keys)
        assert (nodes[0] != nodes[1]).any()
    weight = rng.uniform(0.5, 2.0, m)
    half = np.tril(0.4 * rng.normal(size=(m, k, k)))
    if not full:
        half = abs(half) * np.eye(k)
    given = half.reshape(m, -1) if full else np.diagonal(half, axis1=1, axis2=2).copy()
    residual, curvature = np.empty((m, k)), np.empty(given.shape)
    loss = softmax_expectations(
        A,
        given,
        y,
        weight,
        keys,
        family.columns,
        family.node_weights,
        False,
        residual,
        curvature,
    )
    z = A + np.einsum("mab,msb->sma", half, nodes)
    p = softmax(z, axis=2)
    u = family.node_weights
    value = np.take_along_axis(z, y[None, :, None], 2)[..., 0] - logsumexp(z, axis=2)
    np.testing.assert_allclose(loss, -(u @ value) @ weight, rtol=1e-12)
    expected = weight[:, None] * (np.eye(k)[y] - np.einsum("s,smk->mk", u, p))
    np.testing.assert_allclose(residual, expected, atol=1e-12)
    bend = np.einsum("s,smk,kl->mkl", u, p, np.eye(k))
    bend = weight[:, None, None] * (bend - np.einsum("s,smk,sml->mkl", u, p, p))
    if not full:
        bend = np.diagonal(bend, axis1=1, axis2=2)
    np.testing.assert_allclose(curvature, bend.reshape(m, -1), atol=1e-12)


def test_scattered_rows_have_nodes_of_their_own(rng):
    """And a loss alone is that of all expectations."""
    family, m, k = ScatteredSoftmax(3, 100), 40, 3
    A, y = rng.normal(size=(m, k)), rng.integers(k, size=m).astype(np.int32)
    half = np.tril(0.4 * rng.normal(size=(m, k, k))).reshape(m, -1)
    weight, sets = rng.uniform(0.5, 2.0, m), rng.integers(5, size=m)
    found = family.expectations(A, half, y, weight, sets)
    loss, residual, curvature = 0.0, np.empty((m, k)), np.empty((m, k * k))
    for i in range(m):
        row = slice(i, i + 1)
        loss += softmax_expectations(
            A[row],
            half[row],
            y[row],
            weight[row],
            NO_KEYS,
            family.sets[sets[i]],
            family.node_weights,
            False,
            residual[row],
            curvature[row],
        )
    assert found[0] == pytest.approx(loss, rel=1e-13)
    np.testing.assert_array_equal(found[1], residual)
    np.testing.assert_array_equal(found[2], curvature)
    assert family.expected_loss(A, half, y, weight, sets) == found[0]
    flat = np.zeros_like(half)
    same = family.expectations(A, flat, y, weight, sets)[0]
    assert family.expected_loss(A, flat, y, weight, sets) == same


def test_rows_have_keys_by_what_their_predictors_vary_by(rng):
    """Whatever the last digits of that."""
    variance = rng.uniform(1.0, 100.0, 200)
    keys = keys_of(variance)
    assert len(set(keys)) > 150
    np.testing.assert_array_equal(keys_of(variance * (1.0 + 1e-13)), keys)
    np.testing.assert_array_equal(keys_of(np.float32([1.0, 2.0])), keys_of(np.r_[1, 2]))


@pytest.mark.parametrize("k", [3, 10])
@pytest.mark.parametrize("width", [1e-5, 1e-2, 1.0, 30.0])
@pytest.mark.parametrize("full", [False, True])
def test_curvatures_of_softmax_are_the_slope_of_its_sum_over_nodes(full, width, k, rng):
    # However wide the predictors, which is what lets a bound be climbed to its top.
    family, m = Softmax(k, 100), 5
    keys = (keys_of(rng.uniform(1.0, 2.0, m)),) if full else ()
    A, y = 2.0 * rng.normal(size=(m, k)), np.array([0, 1, 2, 1, 0], np.int32)
    root = np.tril(rng.normal(size=(m, k, k))) * np.sqrt(3.0 / k) + 2.0 * np.eye(k)
    V = width**2 * root @ root.transpose(0, 2, 1)
    way = rng.normal(size=(m, k, k))
    way = (3e-4 / k) * width**2 * (way + way.transpose(0, 2, 1))
    if not full:
        V, way = V * np.eye(k), way * np.eye(k)

    def expectations(V):
        half = np.linalg.cholesky(V)
        half = half if full else np.diagonal(half, axis1=1, axis2=2)
        return family.expectations(A, half.reshape(m, -1).copy(), y, NONE, *keys)

    loss, _, curvature = expectations(V)
    if not full:
        curvature = np.einsum("mk,kl->mkl", curvature, np.eye(k))
    expected = 0.5 * (expectations(V + way)[0] - expectations(V - way)[0])
    slope = 0.5 * np.sum(curvature.reshape(m, k, k) * way)
    assert slope == pytest.approx(expected, rel=1e-2, abs=1e-14 * abs(loss))


@pytest.mark.parametrize("spread", [1.4, 1.6, 5.0, 40.0, 1e3])
def test_expectations_of_two_classes_are_integrals_however_wide(spread):
    a = np.array([0.0, -3.3, 10.0, -80.0])
    v = np.full((4, 1), spread**2)
    for i in range(4):
        loss, residual, curvature = Logistic().expectations(
            a[i : i + 1, None], v[i : i + 1], np.zeros(1), NONE
        )
        edges = (np.array([-30.0, -10.0, -3.0, 0.0, 3.0, 10.0, 30.0]) - a[i]) / spread

        def integral(function, i=i, edges=edges):
            return integrate.quad(
                lambda t: norm.pdf(t) * function(a[i] + spread * t),
                -10.0,
                10.0,
                points=edges[abs(edges) < 10.0],
                epsabs=1e-12,
                limit=500,
            )[0]

        assert loss == pytest.approx(integral(lambda z: np.logaddexp(0.0, z)), abs=1e-6)
        assert -residual[0, 0] == pytest.approx(integral(expit), abs=1e-6)
        density = integral(lambda z: expit(z) * expit(-z))
        assert curvature[0, 0] == pytest.approx(density, abs=1e-6)


@pytest.mark.parametrize(("n_dim", "error"), [(2, 2e-3), (5, 4e-3), (10, 4e-3)])
def test_nodes_of_several_predictors_are_precise(n_dim, error, rng):
    nodes, weights = cubature(n_dim, 64)
    np.testing.assert_allclose(weights @ nodes, 0.0, atol=1e-14)
    second = (nodes.T * weights) @ nodes
    np.testing.assert_allclose(second, np.eye(n_dim), atol=1e-12)
    draws = rng.standard_normal((200_000, n_dim))
    for mean in rng.normal(0.0, 2.0, (5, n_dim)):
        exact = logsumexp(mean + draws, axis=1).mean()
        assert weights @ logsumexp(mean + nodes, axis=1) == pytest.approx(
            exact, abs=error + 4.0 * logsumexp(draws, axis=1).std() / np.sqrt(200_000)
        )


@pytest.mark.parametrize("n_rows", [0, 50_000])
def test_nodes_of_any_number_of_classes_are_white(n_rows):
    for k in range(3, 140):
        nodes = Softmax(k, n_rows).nodes
        np.testing.assert_allclose(nodes.T @ nodes / len(nodes), np.eye(k), atol=1e-12)
        assert np.mean(nodes**4, axis=0).max() < 6.0  # 3 of a normal variable


# Sums over rows


CASES = [
    ("logistic", "full", 0, False),
    ("logistic", "diagonal", 0, True),
    ("logistic", "diagonal", 2, False),
    ("poisson", "diagonal", 0, False),
    ("gaussian", "full", 0, False),
    ("softmax", "full", 0, False),
    ("softmax", "diagonal", 0, False),
    ("softmax", "diagonal", 0, True),
    ("softmax", "diagonal", 2, False),
]


@pytest.mark.parametrize(("name", "structure", "rank", "matrix"), CASES)
def test_the_bound_is_an_expectation_minus_a_divergence(name, structure, rank, matrix):
    model, data, point = problem(name, structure, True, rank, matrix)
    anchor = mean_of(model, data, point)
    q = model.posterior(point.parameters)
    draws = q.sample(40_000, np.random.default_rng(0))
    values = model.log_likelihoods(draws, data.batch(0, data.n_units)) @ data.weight
    values = values + model.prior.logpdf(draws) - q.logpdf(draws)
    error = values.std() / np.sqrt(len(draws))
    assert abs(values.mean() - anchor.objective) < 4.0 * error + 0.02 * (rank > 0)
    assert error < 0.1


@pytest.mark.parametrize(("name", "structure", "rank", "matrix"), CASES)
def test_gradients_are_differences(name, structure, rank, matrix, rng):
    """By the mean, and by the covariance: Bonnet and Price."""
    model, data, point = problem(name, structure, True, rank, matrix)
    sums, h = mean_of(model, data, point).mean, 1e-5
    q = point.parameters
    direction = rng.normal(size=q.mean.shape)

    def value(parameters):
        return (
            data.total_weight * mean_of(model, data, Point(parameters)).mean.objective
        )

    ends = [value(q._replace(mean=q.mean + s * h * direction)) for s in (-1, 1)]
    slope = data.total_weight * np.sum(sums.gradient * direction)
    assert (ends[1] - ends[0]) / (2 * h) == pytest.approx(slope, rel=1e-5)
    # What E log p changes with the covariance is minus half the curvature: exact for
    # one predictor, to the precision of the nodes for several.
    rough = 0.02 if name == "softmax" else 2e-4
    n = data.total_weight
    if structure == "full":
        turn = 0.1 * rng.normal(size=q.covariance.shape)
        turn = turn + turn.T
        ends = [
            value(q._replace(covariance=q.covariance + s * h * turn)) for s in (-1, 1)
        ]
        slope = -0.5 * n * np.sum(sums.curvature * turn)
    else:
        turn = rng.uniform(0.5, 1.0, q.log_scale.shape)
        ends = [
            value(q._replace(log_scale=q.log_scale + s * h * turn)) for s in (-1, 1)
        ]
        diagonal = sums.curvature
        if matrix:
            diagonal = diagonal.diagonal().reshape(model.k, -1).T
        slope = -n * np.sum(diagonal * np.exp(2.0 * q.log_scale) * turn)
    assert (ends[1] - ends[0]) / (2 * h) == pytest.approx(slope, rel=rough)
    if rank:
        turn = rng.normal(size=q.factor.shape)
        ends = [value(q._replace(factor=q.factor + s * h * turn)) for s in (-1, 1)]
        slope = -n * np.sum(sums.image * turn)
        assert (ends[1] - ends[0]) / (2 * h) == pytest.approx(
            slope, rel=rough, abs=0.02
        )


@pytest.mark.parametrize("rank", [0, 2])
def test_gradient_of_the_bound_is_its_differences(rank, rng):
    model, data, point = problem("logistic", "diagonal", True, rank)
    gradient = model.gradient(point, mean_of(model, data, point).mean)
    for _ in range(3):
        step = 1e-5 * rng.normal(size=gradient.shape)
        ends = [mean_of(model, data, model.move(point, s * step)) for s in (-1, 1)]
        change = ends[1].objective - ends[0].objective
        assert change == pytest.approx(2.0 * gradient @ step, rel=1e-4)


@pytest.mark.parametrize("structure", ["full", "diagonal"])
def test_rows_of_many_classes_are_cut_by_their_covariances(structure, rng, monkeypatch):
    """None of their passes holds more than these, and sums do not depend on it."""
    k, n = 12, 90
    X, y = rng.normal(size=(n, 2)), rng.integers(k, size=n).astype(np.int32)
    data, prior = as_source(X), MeanField(np.zeros(3 * k), np.ones(3 * k))
    rank = 2 * (structure == "diagonal")
    model = GaussianModel(Softmax(k, n), y, prior, n, True, structure, rank)
    point = model.start(np.zeros((3, k)), data, rng)
    whole = mean_of(model, data, point)
    sizes, expectations = [], model.family.expectations

    def counted(a, half, *more):
        sizes.append(half.size)
        return expectations(a, half, *more)

    monkeypatch.setattr(model.family, "expectations", counted)
    monkeypatch.setattr(_model, "STEP_NUMBERS", 10 * k * k)
    parts = mean_of(model, data, point)
    assert sum(sizes) == n * k * k
    assert max(sizes) <= 10 * k * k
    assert parts.objective == pytest.approx(whole.objective, rel=1e-12)
    for found, expected in zip(parts.mean, whole.mean, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


# Steps


def fit(model, data, point, solver, tol=1e-9):
    return solvers.run(
        model,
        solver,
        data,
        point,
        step_size=schedules.Constant(1.0),
        temperature=schedules.Constant(1.0),
        max_iter=500,
        tol=tol,
        rng=np.random.default_rng(0),
    )


@pytest.mark.parametrize(("name", "structure", "rank", "matrix"), CASES)
def test_steps_only_gain_and_their_prediction_is_kept(name, structure, rank, matrix):
    model, data, point = problem(name, structure, False, rank, matrix)
    natural = structure == "full" or matrix
    solver = solvers.Ascent() if natural else solvers.QuasiNewton(1e-9)
    result = fit(model, data, point, solver)
    # Nodes of several classes may err by more than the tolerance.
    assert result.reason in ("tol", "stalled")
    objectives = np.array([row.objective for row in result.history])
    assert (np.diff(objectives) > -1e-9).all()
    left = objectives[-1] - objectives
    late = (left < 0.1) & (left > 1e-5)
    predictions = np.array(solver.predictions)
    # The prediction is right to a factor where little is left.
    assert (predictions[late] > 0.1 * left[late]).all()
    assert (predictions[late] < 10.0 * left[late]).all()


def test_mixtures_of_points_lead_to_the_same_end_in_fewer_steps(monkeypatch):
    model, data, point = problem("softmax", "full")
    monkeypatch.setattr(_model_posterior, "MIXED_EACH", np.inf)
    plain, mixing = solvers.Ascent(), solvers.Ascent(memory=3)
    one, other = (fit(model, data, point, s, tol=1e-8) for s in (plain, mixing))
    assert other.n_iter < one.n_iter
    assert other.objective == pytest.approx(one.objective, abs=1e-7)
    gains = np.diff([row.objective for row in other.history])
    assert (gains > -1e-9).all()
    a, b = one.point.parameters, other.point.parameters
    np.testing.assert_allclose(b.mean, a.mean, atol=1e-3)
    np.testing.assert_allclose(b.covariance, a.covariance, atol=1e-3)


def test_mixtures_are_those_that_leave_the_least_way(rng):
    """Against least squares in coordinates where the covariance is round."""
    model, data, point = problem("softmax", "full")
    traces, points = [], []
    for _ in range(3):
        mean = mean_of(model, data, point).mean
        traces.append(model.trace(point, mean))
        points.append(point)
        point = model.update(point, mean, None, 1.0)
    traces[-1] = traces[-1]._replace(way=traces[-1].way._replace(predicted=0.0))
    D = points[0].parameters.mean.size
    root = np.linalg.cholesky(points[-1].parameters.covariance)
    ways = []
    for trace in traces:  # all in the metric of the last point
        drift = points[-1].parameters.covariance @ rng.normal(size=(D, D))
        drift = drift @ drift.T @ np.linalg.inv(points[-1].parameters.covariance)
        slope = rng.normal(size=D)
        move = points[-1].parameters.covariance @ slope
        about = {"drift": drift, "slope": slope, "move": move}
        ways.append(trace._replace(way=trace.way._replace(**about)))
    square = []
    for trace in ways:
        own = np.linalg.solve(root, trace.way.drift @ root) / np.sqrt(2.0)
        square.append(np.append(own.ravel(), root.T @ trace.way.slope))
    away = np.stack([square[0] - square[2], square[1] - square[2]], axis=1)
    share = np.linalg.lstsq(away, -square[2], rcond=None)[0]
    found = _model_posterior.inner_products(
        [(t.way.drift, t.way.slope, t.way.move) for t in ways[:-1]],
        (ways[-1].way.drift, ways[-1].way.slope, ways[-1].way.move),
    )
    np.testing.assert_allclose(np.linalg.solve(*found), share, rtol=1e-5)
    mixed = model.mixed(traces[-1:])
    assert mixed is None
    mixed = model.mixed(traces).parameters
    inverse = np.linalg.inv(mixed.precision)
    np.testing.assert_allclose(mixed.covariance, inverse, atol=1e-10)


def test_the_full_posterior_is_the_best_gaussian():
    """Against a search over means and Cholesky factors with many nodes."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(30, 2))
    X[:, 1] += X[:, 0]
    y = (rng.random(30) < expit(X @ [1.0, -1.0])).astype(float)
    data = as_source(X)
    prior = FullRank(np.array([0.2, 0.0]), np.array([[1.0, 0.0], [0.5, 0.8]]))
    model = GaussianModel(Logistic(), y, prior, 30.0, False, "full")
    start = model.start(np.zeros((2, 1)), data, None)
    result = fit(model, data, start, solvers.Ascent(), tol=1e-12)
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()

    def loss(w):
        factor = np.array([[np.exp(w[2]), 0.0], [w[3], np.exp(w[4])]])
        q = FullRank(w[:2], factor)
        z = (X @ w[:2])[:, None] + np.sqrt(q.predictor_variance(X))[:, None] * nodes
        value = y[:, None] * z - np.logaddexp(0.0, z)
        return q.kl(prior) - (value @ weights).sum()

    best = minimize(loss, np.array([0.0, 0.0, -1.0, 0.0, -1.0]), tol=1e-12)
    assert result.objective == pytest.approx(-best.fun, abs=1e-6)
    q = result.point.parameters
    np.testing.assert_allclose(q.mean[:, 0], best.x[:2], atol=1e-4)
    factor = np.array([[np.exp(best.x[2]), 0.0], [best.x[3], np.exp(best.x[4])]])
    np.testing.assert_allclose(q.covariance, factor @ factor.T, atol=1e-4)


def test_gaussian_noise_gives_the_exact_posterior():
    model, data, point = problem("gaussian", "full", weighted=True)
    result = fit(model, data, point, solvers.Ascent())
    X = np.column_stack([data.rows, np.ones(data.n_units)])
    precision = (X.T * data.weight) @ X / 0.7 + np.diag(model.prior.precision_diagonal)
    np.testing.assert_allclose(
        result.point.parameters.covariance, np.linalg.inv(precision), atol=1e-10
    )
    slope = X.T @ (data.weight * model.y) / 0.7
    slope += model.prior.mean * model.prior.precision_diagonal
    mean = np.linalg.solve(precision, slope)
    np.testing.assert_allclose(result.point.parameters.mean[:, 0], mean, atol=1e-10)


@pytest.mark.parametrize("rank", [None, 0, 2])
def test_points_go_through_distributions(rank):
    structure = "full" if rank is None else "diagonal"
    model, _, point = problem("softmax", structure, rank=rank or 0)
    again = model.point_of(model.posterior(point.parameters))
    for a, b in zip(again.parameters, point.parameters, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9)
    other = MeanField(np.zeros(9), np.ones(9))
    assert (model.point_of(other) is None) == (rank != 0)
