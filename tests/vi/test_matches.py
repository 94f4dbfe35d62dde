"""Matches: kernels against dense integrals, steps and bounds against optimizers."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, log_expit
from scipy.stats import norm

from skvrem import BradleyTerry, solvers
from skvrem.vi.bradley_terry._model import Matches, SkillModel, hermite, trapezoid
from skvrem.vi.gaussian._model_posterior import FullRank, LowRank, MeanField

TIES = [None, "davidson", "rao-kupper"]
D = 5


def matches_of(home, ties=True, n=9):
    rng = np.random.default_rng(1)
    first = rng.integers(D, size=n).astype(np.int32)
    second = ((first + rng.integers(1, D, size=n)) % D).astype(np.int32)
    win, loss, tie = rng.uniform(0.0, 3.0, (3, n))
    offset = int(home)
    tie = tie if ties else np.zeros(n)
    home = rng.integers(-1, 2, size=n if home else 0) + 0.0
    return Matches(
        first + np.int32(offset), second + np.int32(offset), home, win, loss, tie
    )


def design(matches, n_dim):
    X = np.zeros((matches.first.size, n_dim))
    rows = np.arange(len(X))
    X[rows, matches.first] += 1.0
    X[rows, matches.second] -= 1.0
    if matches.home.size:
        X[:, 0] += matches.home
    return X


def log_likelihood(ties, matches, u, eta):
    """By the definitions of the papers, u (n_matches, n_nodes)."""
    win, loss, tie = (
        part[:, None] for part in (matches.win, matches.loss, matches.tie)
    )
    if ties is None:
        return win * log_expit(u) + loss * log_expit(-u)
    if ties == "davidson":
        # Shares of exp(u), 1 and nu exp(u / 2), all over exp(u / 2).
        total = np.logaddexp(np.logaddexp(0.5 * u, -0.5 * u), eta)
        return (
            win * (0.5 * u) - loss * (0.5 * u) + tie * eta - (win + loss + tie) * total
        )
    # exp(u) / (exp(u) + theta), 1 / (1 + theta exp(u)), and theta^2 - 1 times both.
    t = 0.5 * np.log1p(np.exp(eta))
    p_win, p_loss = -np.logaddexp(0.0, t - u), -np.logaddexp(0.0, t + u)
    return win * p_win + loss * p_loss + tie * (eta + p_win + p_loss)


def dense_expectation(ties, matches, mean, variance, eta):
    x = np.linspace(-9.0, 9.0, 2001)
    w = np.exp(-0.5 * x**2)
    u = mean[:, None] + np.sqrt(variance)[:, None] * x
    return log_likelihood(ties, matches, u, eta) @ (w / w.sum())


def model_of(ties=None, home=False, kind="fullrank", rank=0, scale=1.0, n=9):
    matches = matches_of(home, ties is not None, n)
    n_dim = D + home
    prior = MeanField(np.zeros(n_dim), np.full(n_dim, scale))
    return SkillModel(matches, prior, kind, ties, rank=rank)


def fit(model, tol=1e-10):
    point = model.start(model.prior.mean, 0.1)
    return solvers.Runs(60, 0.0, tol=tol, rng=None).go_on(
        model, solvers.Ascent(), point
    )


# Kernels


@pytest.mark.parametrize("spread", [2.4, 2.6, 30.0, 1e3])
def test_expectations_without_ties_however_wide(spread):
    matches = Matches(
        *np.array([[0, 0, 1], [1, 2, 2]], np.int32),
        np.empty(0),
        *np.array([[3.0, 0.0, 1.0], [0.0, 2.0, 1.0], [0.0, 0.0, 0.0]]),
    )
    model = SkillModel(matches, MeanField(np.zeros(3), np.full(3, 9.0)), "meanfield")
    mean, variance, step = np.array([1.0, -4.0, 0.3]), np.full(3, spread**2), 1e-3

    def found(shift=0.0, more=0.0):
        return model.expectation(mean + shift, variance + more, 0.0)

    # The mean of log(1 + exp(u)) is that of its positive part, plus at most log 2.
    t = mean / spread
    above = mean * norm.cdf(t) + spread * norm.pdf(t)
    least = (matches.win * mean - (matches.win + matches.loss) * above).sum()
    most = least - (matches.win + matches.loss).sum() * np.log(2.0)
    assert most < found().objective < least
    slope = (found(step).objective - found(-step).objective) / (2.0 * step)
    assert found().slope.sum() == pytest.approx(slope, abs=1e-6)
    more = 1e-3 * spread**2
    bend = (found(more=more).objective - found(more=-more).objective) / more
    assert -found().curvature.sum() == pytest.approx(bend, rel=1e-4, abs=1e-9)


@pytest.mark.parametrize("eta", [-1.0, 0.5, 6.0])
@pytest.mark.parametrize("spread", [2.4, 2.6, 30.0, 300.0])
@pytest.mark.parametrize("ties", ["davidson", "rao-kupper"])
def test_expectations_with_ties_however_wide(ties, spread, eta):
    matches = Matches(
        *np.array([[0, 0, 1], [1, 2, 2]], np.int32),
        np.empty(0),
        *np.array([[3.0, 0.0, 1.0], [0.0, 2.0, 1.0], [1.0, 4.0, 0.0]]),
    )
    prior = MeanField(np.zeros(3), np.full(3, 9.0))
    model = SkillModel(matches, prior, "meanfield", ties)
    mean, variance = np.array([1.0, -4.0, 0.3]), np.full(3, spread**2)
    model.rule = hermite(spread)
    # The integral by u on a grid that is fine for the likelihood, however wide.
    u = np.arange(-9.0 * spread - 5.0, 9.0 * spread + 5.0, 0.02)

    def dense(by_mean=0.0, by_eta=0.0):
        density = norm.pdf(u, mean[:, None] + by_mean, spread)
        each = log_likelihood(ties, matches, np.tile(u, (3, 1)), eta + by_eta)
        return 0.02 * np.sum(each * density, axis=1)

    found = model.expectation(mean, variance, eta)
    np.testing.assert_allclose(found.objective, dense().sum(), rtol=1e-5)
    step = 1e-3
    slope = (dense(step) - dense(-step)) / (2.0 * step)
    np.testing.assert_allclose(found.slope, slope, atol=1e-5)
    bend = -(dense(step) - 2.0 * dense() + dense(-step)) / step**2
    np.testing.assert_allclose(found.curvature, bend, rtol=1e-2, atol=1e-4)
    by_eta = (dense(by_eta=step) - dense(by_eta=-step)).sum() / (2.0 * step)
    assert found.tie_slope == pytest.approx(by_eta, abs=1e-5)
    up, down = (model.expectation(mean, variance, eta + t) for t in (step, -step))
    curvature = (down.tie_slope - up.tie_slope) / (2.0 * step)
    assert found.tie_curvature == pytest.approx(curvature, abs=1e-5)
    cross = (down.slope - up.slope) / (2.0 * step)
    np.testing.assert_allclose(found.cross, cross, atol=1e-5)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("ties", ["davidson", "rao-kupper"])
def test_vague_priors_of_skills_with_ties(ties):
    matches = [["a", "b"]] * 20 + [["b", "c"]] * 20 + [["a", "c"]]
    won = [1.0] * 40 + [0.5]
    fitted = BradleyTerry(ties=ties, prior_scale=1e3, max_iter=2000).fit(matches, won)
    assert fitted.stop_reason_ == "tol" and list(fitted.ranking().index) == list("abc")


@pytest.mark.filterwarnings("error")
def test_vague_priors_of_skills_that_order_all():
    matches = [["a", "b"]] * 20 + [["b", "c"]] * 20
    fitted = BradleyTerry(prior_scale=1e3, max_iter=2000).fit(matches)
    assert fitted.stop_reason_ == "tol" and list(fitted.ranking().index) == list("abc")


@pytest.mark.parametrize("ties", TIES)
def test_expectations(ties, rng):
    model = model_of(ties)
    model.rule = hermite(9.0)
    n, eta, step = model.matches.first.size, 0.4, 1e-4
    mean, variance = rng.normal(size=n), rng.uniform(0.1, 1.5, n)

    def dense(shift=0.0, more=0.0, tie=0.0):
        return dense_expectation(
            ties, model.matches, mean + shift, variance + more, eta + tie
        )

    found = model.expectation(mean, variance, eta)
    np.testing.assert_allclose(found.objective, dense().sum(), rtol=1e-6)
    slope = (dense(step) - dense(-step)) / (2 * step)
    np.testing.assert_allclose(found.slope, slope, atol=1e-5)
    # Price's theorem: the derivative by the variance is half the second by the mean.
    bend = -(dense(more=step) - dense(more=-step)) / step
    np.testing.assert_allclose(found.curvature, bend, atol=1e-5)
    assert (found.curvature > 0.0).all()
    if ties is None:
        return
    by_eta = (dense(tie=step) - dense(tie=-step)).sum() / (2 * step)
    np.testing.assert_allclose(found.tie_slope, by_eta, atol=1e-5)
    up, down = (model.expectation(mean, variance, eta + t) for t in (step, -step))
    curvature = (down.tie_slope - up.tie_slope) / (2 * step)
    np.testing.assert_allclose(found.tie_curvature, curvature, atol=1e-5)
    cross = (down.slope - up.slope) / (2 * step)
    np.testing.assert_allclose(found.cross, cross, atol=1e-5)


@pytest.mark.parametrize("ties", TIES)
def test_expectations_far_out_are_finite(ties):
    model = model_of(ties)
    n = model.matches.first.size
    for mean in (-800.0, 800.0):
        for eta in (-700.0, 300.0):
            found = model.expectation(np.full(n, mean), np.ones(n), eta)
            assert np.isfinite(found.objective)
            assert np.isfinite(found.slope).all()
            assert np.isfinite(found.curvature).all()


@pytest.mark.parametrize("home", [False, True])
def test_rows_of_the_design(home, rng):
    matches, d = matches_of(home), D + home
    X = design(matches, d)
    theta, value = rng.normal(size=d), rng.uniform(size=len(X))
    H = X.T @ (value[:, None] * X)
    np.testing.assert_allclose(matches.predictor(theta), X @ theta, atol=1e-14)
    np.testing.assert_allclose(matches.gather(value, d), X.T @ value, atol=1e-14)
    np.testing.assert_allclose(matches.curvature_diagonal(value, d), np.diag(H))
    times = matches.curvature_times(value, theta)
    np.testing.assert_allclose(times, H @ theta, atol=1e-13)
    np.testing.assert_allclose(matches.curvature_matrix(value, d), H, atol=1e-14)
    root = np.linalg.cholesky(H + np.eye(d))
    for q in (
        MeanField(theta, np.exp(theta)),
        FullRank(theta, root),
        LowRank(theta, np.exp(theta), root[:, :2]),
    ):
        expected = np.diag(X @ q.covariance() @ X.T)
        np.testing.assert_allclose(matches.variance(q), expected)


# The bound and its optimum


def dense_bound(model, mean, covariance, eta):
    X = design(model.matches, mean.size)
    variance = np.einsum("pi,ij,pj->p", X, covariance, X)
    value = dense_expectation(model.ties, model.matches, X @ mean, variance, eta).sum()
    prior = np.linalg.inv(model.prior.covariance())
    away = mean - model.prior.mean
    trace = np.trace(prior @ covariance) + away @ prior @ away - mean.size
    logs = np.linalg.slogdet(prior)[1] + np.linalg.slogdet(covariance)[1]
    return value - 0.5 * (trace - logs)


@pytest.mark.parametrize("home", [False, True])
@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("kind", ["meanfield", "fullrank"])
def test_optimum_of_the_bound(kind, ties, home):
    model = model_of(ties, home, kind)
    model.rule = hermite(9.0)
    result = fit(model)
    assert result.converged
    q, d = result.point.posterior, D + home
    bound = dense_bound(model, q.mean, q.covariance(), result.point.eta)
    np.testing.assert_allclose(result.objective, bound, rtol=1e-6)
    lower = np.tril_indices(d)

    def loss(parameters):
        eta = parameters[-1] if ties else 0.0
        if kind == "meanfield":
            covariance = np.diag(np.exp(parameters[d : 2 * d]))
        else:
            L = np.zeros((d, d))
            L[lower] = parameters[d:-1]
            covariance = L @ L.T + 1e-12 * np.eye(d)
        return -dense_bound(model, parameters[:d], covariance, eta)

    spread = np.zeros(d) if kind == "meanfield" else np.eye(d)[lower]
    start = np.concatenate([np.zeros(d), spread, [0.0]])
    best = minimize(loss, start, method="L-BFGS-B", options={"maxfun": 50_000})
    np.testing.assert_allclose(result.objective, -best.fun, atol=2e-5)
    np.testing.assert_allclose(q.mean, best.x[:d], atol=5e-3)


def test_low_rank_lies_between_and_gets_there():
    bounds = {
        kind: fit(model_of(kind=kind, n=40)).objective
        for kind in ("meanfield", "fullrank")
    }
    low = [
        fit(model_of(kind="lowrank", rank=rank, n=40), tol=1e-7).objective
        for rank in (1, 2, D - 1)
    ]
    assert bounds["meanfield"] < low[0] < low[1] < low[2]
    # A rank less than full is enough: the diagonal makes up for one dimension.
    np.testing.assert_allclose(low[2], bounds["fullrank"], atol=1e-3)


def test_direction_predicts_what_a_step_gains():
    model = model_of("davidson", True)
    point = fit(model, tol=1e-3).point
    found = model.statistics(point, model.matches, 1.0)
    predicted = model.predicted_gain(point, found)
    after = model.update(point, found, None, 1.0)
    gain = model.objective(after, model.statistics(after, model.matches, 1.0))
    gain -= model.objective(point, found)
    assert 0.0 < predicted < 1e-3
    np.testing.assert_allclose(gain, predicted, rtol=0.3)


def test_any_gaussian_is_a_prior(rng):
    A = rng.normal(size=(D, D))
    root = np.linalg.cholesky(A @ A.T / D + 0.1 * np.eye(D))
    mean = rng.normal(size=D)
    for prior in (FullRank(mean, root), LowRank(mean, np.ones(D), root[:, :2])):
        for kind in ("meanfield", "lowrank", "fullrank"):
            matches = matches_of(False, False)
            model = SkillModel(matches, prior, kind, rank=2)
            model.rule = hermite(9.0)
            result = fit(model, tol=1e-6)
            q = result.point.posterior
            bound = dense_bound(model, q.mean, q.covariance(), 0.0)
            np.testing.assert_allclose(result.objective, bound, rtol=1e-6)


def test_exact_evidence_is_above_the_bound():
    # Two items: the evidence is an integral over the difference of their skills.
    index = np.zeros(1, np.int32), np.ones(1, np.int32), np.empty(0)
    matches = Matches(*index, np.array([7.0]), np.array([3.0]), np.zeros(1))
    model = SkillModel(matches, MeanField(np.zeros(2), np.ones(2)), "fullrank")
    result = fit(model)
    u = np.linspace(-12.0, 12.0, 100_001)
    density = np.exp(-0.25 * u**2) / np.sqrt(4.0 * np.pi)
    density *= expit(u) ** 7 * expit(-u) ** 3
    evidence = density.sum() * (u[1] - u[0])
    mean = (u * density).sum() / density.sum()
    sd = np.sqrt(((u - mean) ** 2 * density).sum() / density.sum())
    gap = np.log(evidence) - result.objective
    assert 0.0 < gap < 0.01
    q, contrast = result.point.posterior, np.array([[1.0, -1.0]])
    np.testing.assert_allclose(contrast @ q.mean, mean, atol=0.01)
    found = np.sqrt(q.predictor_variance(contrast))
    np.testing.assert_allclose(found, sd, rtol=0.02)


@pytest.mark.parametrize("spread", [2.6, 30.0, 200.0])
def test_probabilities_of_wide_differences(spread):
    nodes, weights = trapezoid(spread)
    u = np.arange(-9.0 * spread, 9.0 * spread, 0.01)
    for mean in (0.3, 4.0):
        dense = expit(u + mean) @ norm.pdf(u / spread) * 0.01 / spread
        assert weights @ expit(mean + spread * nodes) == pytest.approx(dense, abs=1e-7)
