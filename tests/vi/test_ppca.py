"""BayesianPPCA: derivatives, the bound, what it says of rows, by dense algebra."""

import pickle
import warnings

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning

from skvrem import BayesianPPCA
from skvrem.exceptions import DataScaleWarning
from skvrem.vi.ppca._model import (
    PPCAModel,
    SecondMoments,
    hessian_diagonal,
    hessian_times,
    likelihood,
    start_loadings,
    start_noises,
)
from skvrem.vi.ppca._model_deviations import joint_root
from skvrem.vi.ppca._model_prior import GivenScale, UnknownScales, prior_of
from skvrem.vi.ppca._model_rotations import rotation_entropy
from tests.watching import Untouched

NOISE = 0.7


def rows(n=40, d=5, k=2, seed=0, noise=0.6):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, k)) @ rng.normal(size=(k, d))
    return X + noise * rng.normal(size=(n, d)) + rng.normal(size=d)


def dense_log_likelihood(X, W, noise):
    C = W @ W.T + noise * np.eye(len(W))
    return multivariate_normal(X.mean(axis=0), C).logpdf(X).mean()


# The likelihood


@pytest.mark.parametrize("n", [40, 4])
@pytest.mark.parametrize("k", [1, 2, 5])
def test_likelihood_and_derivatives(n, k):
    X = rows(n)
    moments = SecondMoments.of(X)
    assert (moments.matrix is None) == (n == 4)
    rng = np.random.default_rng(1)
    W, V = rng.normal(size=(2, 5, k))
    at = likelihood(moments, W, NOISE)
    np.testing.assert_allclose(at.value, dense_log_likelihood(X, W, NOISE))
    step, units = 1e-5, np.eye(5 * k).reshape(-1, 5, k)
    up = likelihood(moments, W + step * units, NOISE)
    down = likelihood(moments, W - step * units, NOISE)
    slope = (up.value - down.value) / (2 * step)
    np.testing.assert_allclose(at.gradient.ravel(), slope, atol=1e-8)
    hessian = (up.gradient - down.gradient) / (2 * step)
    hessian = hessian.reshape(5 * k, 5 * k)
    times = hessian_times(moments, W, NOISE, at, np.stack([V, 2.0 * V]))
    expected = (hessian @ V.ravel()).reshape(5, k)
    np.testing.assert_allclose(times, [expected, 2.0 * expected], atol=1e-7)
    diagonal = hessian_diagonal(moments, W, NOISE, at)
    np.testing.assert_allclose(diagonal.ravel(), np.diag(hessian), atol=1e-7)
    two = np.stack([V, W])
    both = hessian_diagonal(moments, two, NOISE, likelihood(moments, two, NOISE))
    np.testing.assert_allclose(both[1], diagonal, atol=1e-12)
    more, less = (likelihood(moments, W, NOISE * np.exp(t)) for t in (step, -step))
    by_noise = (more.value - less.value) / (2 * step)
    np.testing.assert_allclose(at.by_noise, by_noise, atol=1e-8)


@pytest.mark.parametrize("n", [40, 4])
def test_weighted_moments(n):
    X = rows(n)
    weight = np.arange(1.0, n + 1.0)
    S = np.cov(X.T, aweights=weight, ddof=0)
    moments = SecondMoments.of(X, weight)
    np.testing.assert_allclose(moments.times(np.eye(5)), S, atol=1e-14)
    np.testing.assert_allclose(moments.diagonal, np.diag(S))
    np.testing.assert_allclose(moments.trace, np.trace(S))
    for k in (2, 5):
        values, vectors, left = moments.largest(k)
        np.testing.assert_allclose(left, np.trace(S) - values.sum(), atol=1e-12)
        np.testing.assert_allclose(values, np.linalg.eigvalsh(S)[::-1][:k], atol=1e-12)
        np.testing.assert_allclose(S @ vectors, vectors * values, atol=1e-12)
        np.testing.assert_allclose(vectors.T @ vectors, np.eye(k), atol=1e-12)


def test_start_is_the_highest_density():
    X = rows(60)
    moments = SecondMoments.of(X)
    W, noise = start_loadings(moments.largest(2), moments.weight, 0.4, 0.3), 0.3
    slope = 60.0 * likelihood(moments, W, noise).gradient - W / 0.4**2
    np.testing.assert_allclose(slope, 0.0, atol=1e-10)
    # Without a prior it is the maximum of the likelihood, which PCA knows.
    axes = moments.largest(2)
    (noise,) = start_noises(axes, moments.d, moments.least_noise)
    W = start_loadings(axes, moments.weight, 1e6, noise)
    pca = PCA(2).fit(X)
    np.testing.assert_allclose(noise, pca.noise_variance_ * 59 / 60)
    at = likelihood(moments, W, noise)
    np.testing.assert_allclose(at.gradient, 0.0, atol=1e-8)
    np.testing.assert_allclose(at.by_noise, 0.0, atol=1e-8)


@pytest.mark.parametrize(
    ("n", "d", "k"), [(5, 10, 4), (5, 10, 8), (10, 30, 20), (40, 6, 6)]
)
def test_components_that_could_hold_all_rows_leave_noise(n, d, k):
    rng = np.random.default_rng(2)
    W = rng.normal(size=(d, 2))
    X = rng.normal(size=(n, 2)) @ W.T + 0.5 * rng.normal(size=(n, d))
    model = BayesianPPCA(k, random_state=0).fit(X)
    given = BayesianPPCA(k, noise_variance=0.25, random_state=0).fit(X)
    # By the same draws. Where noise is learned components may turn another way.
    assert model.converged_ and model.objective_ > given.objective_ - 0.5 * n


def test_rows_in_a_subspace_have_next_to_no_noise():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4)) @ rng.normal(size=(4, 10))
    enough, more = (BayesianPPCA(k, random_state=0).fit(X) for k in (4, 6))
    assert max(enough.noise_variance_, more.noise_variance_) < 1e-6
    assert enough.elbo_ > more.elbo_


# The bound


def dense_bound(X, mean, scale, noise, prior_scale=1.0):
    """By quadrature over two loadings: d = 2, k = 1."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()
    a, b = np.meshgrid(nodes, nodes, indexing="ij")
    W = mean + scale * np.stack([a.ravel(), b.ravel()], axis=1)
    S = np.cov(X.T, ddof=0)
    C = W[:, :, None] * W[:, None, :] + noise * np.eye(2)
    misfit = np.trace(np.linalg.solve(C, np.broadcast_to(S, C.shape)), 0, 1, 2)
    value = -0.5 * (2 * np.log(2 * np.pi) + np.linalg.slogdet(C)[1] + misfit)
    expected = len(X) * np.outer(weights, weights).ravel() @ value
    ratio = scale / prior_scale
    distance = (mean / prior_scale) ** 2
    return expected - 0.5 * np.sum(ratio**2 + distance - 1.0 - 2.0 * np.log(ratio))


def test_bound_is_the_highest():
    X = rows(30, 2, 1)
    model = BayesianPPCA(
        1, prior_scale=1.0, noise_variance=0.4, n_draws=400, tol=1e-8, random_state=0
    )
    model.fit(X)
    q = model.posterior_
    found = dense_bound(X, q.mean, q.scale, 0.4)
    assert model.elbo_se_ < 0.01
    # Of both signs.
    assert abs(model.elbo_ - np.log(2.0) - found) < 4.0 * model.elbo_se_

    def loss(parameters):
        return -dense_bound(X, parameters[:2], np.exp(parameters[2:]), 0.4)

    best = minimize(loss, np.append(q.mean, np.log(q.scale)), method="BFGS")
    assert 0.0 <= found + best.fun + 1e-9 < 1e-3 + 1e-9 or -best.fun - found < 1e-3
    np.testing.assert_allclose(q.mean, best.x[:2], atol=0.02)
    np.testing.assert_allclose(q.scale, np.exp(best.x[2:]), rtol=0.03)


def test_evidence_is_above_the_bound():
    X = rows(30, 2, 1)
    S, grid = np.cov(X.T, ddof=0), np.linspace(-6.0, 6.0, 601)
    a, b = np.meshgrid(grid, grid, indexing="ij")
    W = np.stack([a.ravel(), b.ravel()], axis=1)
    C = W[:, :, None] * W[:, None, :] + 0.4 * np.eye(2)
    misfit = np.trace(np.linalg.solve(C, np.broadcast_to(S, C.shape)), 0, 1, 2)
    value = -0.5 * (2 * np.log(2 * np.pi) + np.linalg.slogdet(C)[1] + misfit)
    log_joint = 30 * value - 0.5 * (W**2).sum(axis=1) - np.log(2 * np.pi)
    evidence = np.logaddexp.reduce(log_joint) + 2.0 * np.log(grid[1] - grid[0])
    model = BayesianPPCA(
        1, prior_scale=1.0, noise_variance=0.4, n_draws=100, random_state=0
    ).fit(X)
    assert 0.0 < evidence - model.elbo_ < 0.2


@pytest.mark.parametrize("prior", [GivenScale(0.8), UnknownScales.of(0.8, (5, 2))])
def test_gradient_of_the_bound(prior):
    X = rows()
    moments = SecondMoments.of(X)
    rng = np.random.default_rng(2)
    model = PPCAModel(moments, prior, True, rng.standard_normal((3, 5, 2)))
    point = model.start(0.3)
    point = model.move(point, 0.1 * rng.normal(size=11))
    gradient = model.statistics(point, moments, 1.0).gradient
    for i in range(11):
        unit = 1e-5 * np.eye(11)[i]
        up, down = (
            model.statistics(model.move(point, sign * unit), moments, 1.0).objective
            for sign in (1.0, -1.0)
        )
        np.testing.assert_allclose(gradient[i], (up - down) / 2e-5, rtol=1e-5)


def dense_draws(model, X, n_draws=3000):
    """The bound of what was found, by draws without a control; and its error."""
    d, k, q = X.shape[1], model.n_components, model.posterior_
    S = np.cov(X.T, ddof=0)
    values = []
    for w in np.random.default_rng(9).normal(q.mean, q.scale, (n_draws, q.n_dim)):
        W = w.reshape(k, d)
        C = W.T @ W + model.noise_variance_ * np.eye(d)
        misfit = np.trace(np.linalg.solve(C, S)) + np.linalg.slogdet(C)[1]
        values.append(-0.5 * len(X) * (d * np.log(2 * np.pi) + misfit))
    prior = prior_of(model.prior_scale_, model._freedom, d)
    expected = prior.expected(*(p.reshape(k, d).T for p in (q.mean, q.variance)))
    entropy = 0.5 * (q.log_determinant + q.n_dim * np.log(2.0 * np.pi * np.e))
    bound = np.mean(values) + expected + entropy
    return bound, np.std(values) / np.sqrt(n_draws)


def turned(model):
    """What the bound gains by rotations."""
    q, shape = model.posterior_, model.components_.shape
    return rotation_entropy(q.mean.reshape(shape), q.scale.reshape(shape))


@pytest.mark.parametrize(("shape", "k"), [((400, 14), 13), ((8, 20), 8)])
def test_the_bound_is_that_of_draws_that_led_nothing(shape, k):
    """Of many loadings, and where these are long beside the noise, at its least."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(shape[0], k)) @ rng.normal(size=(k, shape[1]))
    X += 0.1 * rng.normal(size=shape) * (shape[0] > shape[1])
    model = BayesianPPCA(k, random_state=0).fit(X)
    bound, error = dense_draws(model, X)
    assert model.converged_
    assert model.elbo_se_ < 1.0
    elbo = model.elbo_ - turned(model)
    assert abs(elbo - bound) < 4.0 * np.hypot(error, model.elbo_se_)
    # The draws that led the loadings are good for it, but not by tens of nats.
    assert 0.0 < model.objective_ - elbo < 5.0


def test_control_variate_makes_draws_precise():
    X = rows(400, 8, 3)
    bounds = {
        draws: [
            BayesianPPCA(3, n_draws=draws, random_state=seed).fit(X).elbo_
            for seed in range(4)
        ]
        for draws in (8, 64)
    }
    # Without it the standard deviation of 8 draws is about 5 nats.
    assert np.std(bounds[8]) < 0.2
    np.testing.assert_allclose(np.mean(bounds[8]), np.mean(bounds[64]), atol=0.3)


# What it says of rows


@pytest.fixture
def fitted():
    return BayesianPPCA(2, random_state=0).fit(rows())


def test_covariances_of_rows(fitted):
    X = rows(seed=3)
    C = fitted.get_covariance()
    np.testing.assert_allclose(fitted.get_precision(), np.linalg.inv(C), atol=1e-10)
    best = (X - fitted.mean_) @ np.linalg.inv(C) @ fitted.components_.T
    np.testing.assert_allclose(fitted.transform(X), best, atol=1e-12)
    X = rows()  # those of the fit
    back = fitted.inverse_transform(fitted.transform(X))
    assert np.square(X - back).mean() < 2.0 * fitted.noise_variance_
    draws = fitted.sample(50_000, random_state=0)
    np.testing.assert_allclose(draws.mean(axis=0), fitted.mean_, atol=0.05)
    np.testing.assert_allclose(np.cov(draws.T), C, atol=0.15)


@pytest.mark.parametrize("n", [12, 40])
def test_density_of_rows_is_that_of_draws_of_loadings(n):
    X = rows()
    model = BayesianPPCA(2, random_state=0).fit(X[:n])
    assert not model._drawn_from().gaussian
    W = model.posterior_.sample(40_000, 0).reshape(-1, 2, 5)
    C = np.swapaxes(W, 1, 2) @ W + model.noise_variance_ * np.eye(5)
    log_det, inverse = np.linalg.slogdet(2.0 * np.pi * C)[1], np.linalg.inv(C)
    each = [
        np.exp(-0.5 * (log_det + np.einsum("i,sij,j->s", x, inverse, x)))
        for x in X - model.mean_
    ]
    density = np.mean(each, axis=1)
    error = np.std(each, axis=1) / np.sqrt(len(W)) / density
    found = model.score_samples(X)
    assert (abs(found - np.log(density)) < 0.03 + 4.0 * error).all()
    assert abs(found - np.log(density)).mean() < 0.03
    np.testing.assert_allclose(model.score(X), found.mean())
    # A row at a time, and in other tiles, it is the same.
    np.testing.assert_allclose(model.score_samples(X[3:4]), found[3])
    # Rows are drawn from it: the mean of another density by it is one.
    if n == 40:
        drawn = model.sample(20_000, random_state=0)
        gaussian = multivariate_normal(model.mean_, model.get_covariance())
        ratio = np.exp(gaussian.logpdf(drawn) - model.score_samples(drawn))
        assert ratio.mean() == pytest.approx(1.0, abs=0.05)


def test_density_of_many_rows_is_gaussian():
    X = rows(3000)
    model = BayesianPPCA(2, random_state=0).fit(X)
    drawn_from = model._drawn_from()
    assert drawn_from.gaussian
    dense = multivariate_normal(model.mean_, model.get_covariance()).logpdf(X)
    np.testing.assert_allclose(model.score_samples(X), dense)
    # At the threshold, the other way says the same.
    there = drawn_from.log_densities(X - model.mean_)
    assert there.mean() == pytest.approx(dense.mean(), abs=2e-3)


def spectra(n, seed=0):
    """Columns that are all but one: few rows, and components ever weaker."""
    rng = np.random.default_rng(seed)
    grid = np.linspace(0.0, 1.0, 80)
    shapes = np.array([np.cos(np.pi * j * grid) for j in range(5)])
    X = (rng.normal(size=(n, 5)) * 6.0 ** -np.arange(5.0)) @ shapes
    return X + 1e-3 * rng.normal(size=X.shape)


def test_few_rows_of_collinear_columns():
    """The fit ends, and rows have a density about that of principal components."""
    X = spectra(240)
    best = PCA(5).fit(X[:40]).score(X[40:])
    shared = np.sqrt(X[:40].var(axis=0).mean() / 5.0)
    models = [BayesianPPCA(5, prior_scale=s, random_state=0) for s in ("auto", shared)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scores = [model.fit(X[:40]).score(X[40:]) for model in models]
    assert min(scores) > best - 10.0
    # With one scale for components of all lengths a Gaussian is 120 nats below that.
    learned, given = (
        multivariate_normal(m.mean_, m.get_covariance()).logpdf(X[40:]).mean()
        for m in models
    )
    assert learned > best and given < best - 100.0


def test_covariance_averages_over_the_posterior(fitted):
    W = fitted.sample_posterior(100_000, random_state=0)["components"]
    assert W.shape == (100_000, 2, 5)
    average = np.einsum("ski,skj->ij", W, W) / len(W)
    average += fitted.noise_variance_ * np.eye(5)
    np.testing.assert_allclose(fitted.get_covariance(), average, atol=0.03)


def test_many_rows_agree_with_pca():
    X = rows(20_000, 6, 2)
    model, pca = BayesianPPCA(2, random_state=0).fit(X), PCA(2).fit(X)
    np.testing.assert_allclose(model.noise_variance_, pca.noise_variance_, rtol=1e-3)
    np.testing.assert_allclose(model.score(X), pca.score(X), rtol=1e-4)
    cosines = np.linalg.svd(
        np.linalg.qr(model.components_.T)[0].T @ pca.components_.T, compute_uv=False
    )
    np.testing.assert_allclose(cosines, 1.0, atol=1e-4)
    assert model.components_std_.max() < 0.05


def test_prior_shrinks_where_rows_are_few():
    X = rows(10, 8, 2)
    lengths = [
        np.square(BayesianPPCA(2, prior_scale=s, random_state=0).fit(X).components_)
        for s in (0.1, 1.0, 10.0)
    ]
    assert lengths[0].sum() < lengths[1].sum() < lengths[2].sum()


@pytest.mark.parametrize("size", [1e-4, 255.0, 1e6])
def test_the_prior_has_the_units_of_the_features(size):
    """Loadings of one that is narrow for the rows are nothing but noise."""
    X = rows()
    one, other = (BayesianPPCA(2, random_state=0).fit(s * X) for s in (1.0, size))
    assert other.prior_scale_ == pytest.approx(size * one.prior_scale_)
    np.testing.assert_allclose(other.components_, size * one.components_, rtol=1e-4)
    shift = X.shape[1] * np.log(size)
    assert other.score(size * X) == pytest.approx(one.score(X) - shift, abs=1e-4)


def test_summary(fitted):
    pd = pytest.importorskip("pandas")
    table = fitted.summary()
    assert isinstance(table, pd.DataFrame)
    assert list(table.index) == ["bayesianppca0", "bayesianppca1"]
    rest = 5 * fitted.noise_variance_ / np.trace(fitted.get_covariance())
    np.testing.assert_allclose(table["share"].sum() + rest, 1.0)


# Manners


def test_float32_comes_near():
    X = rows(200)
    model = BayesianPPCA(2, random_state=0).fit(X)
    single = BayesianPPCA(2, random_state=0).fit(X.astype(np.float32))
    assert single.components_.dtype == np.float32
    assert single.transform(X.astype(np.float32)).dtype == np.float32
    np.testing.assert_allclose(single.components_, model.components_, atol=1e-3)
    np.testing.assert_allclose(single.elbo_, model.elbo_, rtol=1e-5)


def test_seeds_and_pickles():
    X = rows()
    one, other = (BayesianPPCA(2, random_state=5).fit(X) for _ in range(2))
    np.testing.assert_array_equal(one.components_, other.components_)
    again = pickle.loads(pickle.dumps(one))
    np.testing.assert_array_equal(again.transform(X), one.transform(X))
    assert again.posterior_ == one.posterior_


@pytest.mark.parametrize(
    ("params", "X", "message"),
    [
        ({"n_components": 6}, rows(), "n_components=6 must be at most n_features=5"),
        ({"n_components": 0}, rows(), "n_components"),
        ({"prior_scale": 0.0}, rows(), "prior_scale"),
        ({"noise_variance": 0.0}, rows(), "noise_variance"),
        ({"noise_variance": "auto"}, rows(), "noise_variance"),
        ({"n_draws": "few"}, rows(), "n_draws"),
        ({"n_draws": 3}, rows(), "n_draws must be even"),
        ({}, np.ones((10, 3)), "All rows of X are the same"),
        ({}, rows(1), "minimum of 2"),
        ({}, np.full((4, 3), np.nan), "NaN"),
    ],
)
def test_bad_input(params, X, message):
    model = BayesianPPCA(random_state=0).fit(rows()).set_params(**params)
    untouched = Untouched(model)
    with pytest.raises(ValueError, match=message):
        model.fit(X)
    untouched.check()


def test_too_few_steps_are_warned_of():
    with pytest.warns(ConvergenceWarning, match="did not converge in 1 epochs"):
        model = BayesianPPCA(max_iter=1, random_state=0).fit(rows())
    assert not model.converged_
    assert BayesianPPCA(max_iter=0, random_state=0).fit(rows()).n_iter_ == 0


def test_history(capsys):
    model = BayesianPPCA(verbose=2, random_state=0).fit(rows())
    assert model.converged_
    assert capsys.readouterr().out.count("objective") == model.n_iter_
    assert len(model.history_["objective"]) == model.n_iter_ + 1
    assert (np.diff(model.history_["passes"]) > 0.0).all()


# Streams


@pytest.mark.parametrize(("n", "d"), [(40, 5), (9, 12), (30, 12)])
def test_a_stream_is_a_fit_to_all_rows(n, d):
    """Its batches may be single rows, have weights, and start from a fit."""
    X = rows(n, d)
    weight = np.arange(1.0, n + 1.0)
    stream = BayesianPPCA(2, tol=1e-4, noise_variance=0.4, random_state=0)
    whole = clone(stream).fit(X, sample_weight=weight)
    begin = stream.fit if n == 9 else stream.partial_fit
    begin(X[:6], sample_weight=weight[:6])
    for some in (slice(6, 7), slice(7, n - 1), slice(n - 1, n)):
        stream = pickle.loads(pickle.dumps(stream))
        stream.partial_fit(X[some], sample_weight=weight[some])
    np.testing.assert_allclose(stream.mean_, whole.mean_)
    np.testing.assert_allclose(stream.components_, whole.components_, atol=1e-4)
    np.testing.assert_allclose(stream.components_std_, whole.components_std_, rtol=1e-4)
    assert stream.elbo_ == pytest.approx(whole.elbo_, abs=1e-4)
    assert stream.n_samples_seen_ == n
    assert stream.fit(X[:5]).n_samples_seen_ == 5


def test_moments_add_up():
    X = rows(30, 6)
    weight = np.linspace(0.5, 2.0, 30)
    whole = SecondMoments.of(X, weight)
    for cut in (2, 15, 28):  # rows and matrix, in either order
        parts = (
            SecondMoments.of(X[some], weight[some])
            for some in (slice(cut), slice(cut, 30))
        )
        both = next(parts).merged(next(parts))
        assert both.weight == pytest.approx(whole.weight)
        np.testing.assert_allclose(both.mean, whole.mean)
        np.testing.assert_allclose(both.matrix, whole.matrix, atol=1e-12)
        np.testing.assert_allclose(both.diagonal, whole.diagonal)


def test_a_bad_batch_leaves_no_trace():
    model = BayesianPPCA(2, random_state=0)
    with pytest.raises(ValueError, match="minimum of 2"):
        model.partial_fit(rows()[:1])
    model.partial_fit(rows())
    untouched = Untouched(model)
    with pytest.raises(ValueError, match="5 features"):
        model.partial_fit(rows(d=4))
    untouched.check()


@pytest.mark.parametrize("learned", [False, True])
def test_deviations_are_of_all_loadings_together(learned):
    X = rows(40, 5, 2)
    noise = "learn" if learned else 0.8
    model = BayesianPPCA(2, prior_scale=1.0, noise_variance=noise, random_state=0).fit(
        X
    )
    W, n = model.components_.ravel(), len(X)

    def log_posterior(at):
        V, own = at[:-1].reshape(2, 5), model.noise_variance_ * np.exp(at[-1])
        C = V.T @ V + own * np.eye(5)
        away = X - X.mean(axis=0)
        fit = n * np.linalg.slogdet(C)[1] + np.sum(away * np.linalg.solve(C, away.T).T)
        return -0.5 * (fit + at[:-1] @ at[:-1])

    at, h = np.append(W, 0.0), 1e-3
    steps = h * np.eye(11)
    H = np.array(
        [
            [
                log_posterior(at + a + b)
                - log_posterior(at + a - b)
                - log_posterior(at - a + b)
                + log_posterior(at - a - b)
                for b in steps
            ]
            for a in steps
        ]
    ) / (4.0 * h**2)
    precision = -H[:10, :10]
    if learned:
        precision = precision + np.outer(H[10, :10], H[10, :10]) / H[10, 10]
    turn = np.concatenate([W[5:], -W[:5]])
    apart = np.linalg.svd(turn[:, None])[0][:, 1:]
    covariance = apart @ np.linalg.inv(apart.T @ precision @ apart) @ apart.T
    about = model.components_.T, np.zeros((5, 2)), model.noise_variance_
    root = joint_root(SecondMoments(*model._moments), *about, GivenScale(1.0), learned)
    root = root.reshape(5, 2, -1).swapaxes(0, 1).reshape(10, -1)
    np.testing.assert_allclose(root @ root.T, covariance, rtol=1e-4, atol=1e-6)
    # As the posterior expects it, it is hardly another.
    sd = np.sqrt(covariance.diagonal()).reshape(2, 5)
    np.testing.assert_allclose(model.components_std_, sd, rtol=0.1)
    draws = model.sample_posterior(100_000, random_state=0)["components"]
    np.testing.assert_allclose(draws.std(axis=0), model.components_std_, rtol=0.02)
    np.testing.assert_allclose(draws.reshape(-1, 10) @ turn, W @ turn, atol=1e-8)


@pytest.mark.parametrize("seed", range(4))
def test_components_of_no_use_vary_little(seed):
    """At a saddle the second order would let them be as long as the prior does."""
    rng, n = np.random.default_rng(seed), 300
    X = rng.normal(size=(n, 2))
    model = BayesianPPCA(1, prior_scale=1.0, noise_variance=1.0, random_state=0).fit(X)
    line, S = np.linspace(-1.0, 1.0, 81), np.cov(X.T, bias=True)
    W = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
    length = np.square(W).sum(axis=1)
    fit = np.log1p(length) - np.einsum("ij,jk,ik->i", W, S, W) / (1.0 + length)
    posterior = np.exp(-0.5 * (n * fit + length))
    expected = posterior @ length / posterior.sum()

    def expected_length(model):
        W = model.sample_posterior(5000, random_state=0)["components"]
        return np.square(W).sum(axis=(1, 2)).mean()

    assert 0.7 * expected < expected_length(model) < 1.1 * expected
    # Beside one that there is, and of a few hundred rows a little of it.
    X = np.outer(rng.normal(size=1000), np.ones(6)) + rng.normal(size=(1000, 6))
    pair = BayesianPPCA(2, random_state=0).fit(X)
    one = BayesianPPCA(1, random_state=0).fit(X)
    assert expected_length(pair) == pytest.approx(expected_length(one), rel=0.05)


def test_intervals_of_loadings_hold():
    """Independent loadings would hold 89 in 100."""
    rng, inside = np.random.default_rng(1), []
    for _ in range(150):
        W = rng.normal(size=(2, 6))
        X = rng.normal(size=(150, 2)) @ W + 0.7 * rng.normal(size=(150, 6))
        model = BayesianPPCA(2, random_state=0).fit(X)
        u, _, v = np.linalg.svd(model.components_ @ W.T)
        error = model.components_ - u @ v @ W
        inside.append(abs(error) < 1.96 * model.components_std_)
    assert 0.92 < np.mean(inside) < 0.98


def test_a_warm_start_goes_on():
    rng = np.random.default_rng(0)
    X = 3.0 * rng.integers(2, size=(400, 1)) + rng.normal(size=(400, 3))
    model = BayesianPPCA(2, random_state=0, warm_start=True).fit(X)
    first, objective = model.n_iter_, model.objective_
    assert model.fit(X).n_iter_ < first
    np.testing.assert_allclose(model.objective_, objective, atol=model.tol)
    # Other shapes begin anew.
    cold = BayesianPPCA(3, random_state=0).fit(X)
    warm = model.set_params(n_components=3).fit(X)
    np.testing.assert_array_equal(warm.components_, cold.components_)


def test_little_noise_is_found():
    """As of columns in units that are far apart: the least components are no noise."""
    rng, models = np.random.default_rng(0), []
    signal = rng.normal(size=(500, 2)) @ rng.normal(size=(2, 6))
    rest = rng.normal(size=signal.shape)
    for noise in (1e-2, 4e-4):
        X = signal + noise * rest
        model = BayesianPPCA(2, random_state=0).fit(X)
        assert model.noise_variance_ == pytest.approx(noise**2, rel=0.1)
        assert model.score(X) == pytest.approx(PCA(2).fit(X).score(X), abs=0.01)
        models.append(model)
    few, fewer = (model.components_std_ for model in models)
    np.testing.assert_allclose(few, fewer, rtol=0.03)


@pytest.mark.parametrize("far", [1e3, 1e4, 1e6])
@pytest.mark.parametrize("weighted", [False, True])
def test_columns_in_far_apart_units_end_at_the_highest_likelihood(far, weighted):
    """They ended 1 to 26 nats a row below principal components."""
    X = rows(2000, 6)
    X[:, 0] *= far
    weight = np.random.default_rng(1).integers(1, 3, len(X)) if weighted else None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = BayesianPPCA(2, random_state=0).fit(X, sample_weight=weight)
    again = X if weight is None else np.repeat(X, weight, axis=0)
    best = PCA(2).fit(again)
    assert model.score(again) == pytest.approx(best.score(again), abs=3e-3)
    # Tipping and Bishop's, with n in place of n - 1.
    values = best.singular_values_**2 / len(again)
    left = np.var(again, axis=0).sum() - values.sum()
    if far < 1e6:  # as it is lost to rounding there
        assert model.noise_variance_ == pytest.approx(left / 4.0, rel=0.01)
    assert model.converged_ and np.isfinite(model.components_std_).all()


def test_a_root_of_second_moments_says_what_they_do():
    X = rows(60)
    moments = SecondMoments.of(X)
    assert moments.with_root(X).root is None
    root = np.linalg.cholesky(moments.matrix).T
    rooted = SecondMoments(60.0, moments.mean, None, moments.matrix, root)
    rng = np.random.default_rng(0)
    W, V = rng.normal(size=(2, 3, 5, 2))
    plain, other = (likelihood(some, W, 0.3) for some in (moments, rooted))
    for name in ("value", "gradient", "by_noise", "a", "b", "P", "Q"):
        np.testing.assert_allclose(getattr(other, name), getattr(plain, name))
    diagonals = (
        hessian_diagonal(some, W, 0.3, at)
        for some, at in ((moments, plain), (rooted, other))
    )
    np.testing.assert_allclose(*diagonals)
    images = (
        hessian_times(some, W[0], 0.3, likelihood(some, W[0], 0.3), V)
        for some in (moments, rooted)
    )
    np.testing.assert_allclose(*images)


def test_columns_that_the_least_noise_hides_are_told_of():
    """As of costs beside shares; not those that are small for the noise that is."""
    rng = np.random.default_rng(0)
    X = rows(200, 6) * [1.0, 1.0, 1.0, 1.0, 1e6, 1e6]
    X[:, 0] = 3.0  # does not vary
    model = BayesianPPCA(2, random_state=0).partial_fit(X[:100])
    with pytest.warns(DataScaleWarning, match=r"nce: x[123] .*, x[123] [^x]*Scale"):
        model.partial_fit(X[100:])
    with pytest.warns(DataScaleWarning, match=r"nce: x[123] .*, x[123] [^x]*Scale"):
        BayesianPPCA(2, random_state=0).fit(X * [1.0, 1.0, 1.0, 1.0, 1e3, 1e3])
    quiet = X / X.std(axis=0).clip(1.0), X + 1e4 * rng.normal(size=X.shape)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for some in quiet:
            BayesianPPCA(2, random_state=0).fit(some)


def test_more_components_than_rows_tell_of_are_short():
    """A prior as wide as all variance lengthens each where features are many."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(540, 3)) @ rng.normal(size=(3, 120))
    X += rng.normal(size=X.shape)
    model = BayesianPPCA(8, random_state=0).fit(X[:40])
    best = PCA(3).fit(X[:40]).score(X[40:])
    assert model.score(X[40:]) > best
