"""BayesianPPCA of many columns: means along principal axes, without draws."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime, brentq
from scipy.stats import ortho_group

from skvrem import BayesianPPCA
from skvrem.vi.ppca._model import Point, PPCAModel, SecondMoments
from skvrem.vi.ppca._model_prior import GivenScale, UnknownScales, best_b
from skvrem.vi.ppca._model_wide import WidePPCAModel, are_sums_enough

# Root mean squares of loadings: the last are hardly longer than the noise.
LENGTHS = (1.0, 0.5, 0.3)


def rows(n, d, lengths=LENGTHS, seed=0):
    rng, k = np.random.default_rng(seed), len(lengths)
    W = np.asarray(lengths)[:, None] * rng.normal(size=(k, d))
    return rng.normal(size=(n, k)) @ W + rng.normal(size=(n, d)), W


def wide(X, k, prior=None, n_draws=2):
    """A model, and where its fit begins."""
    moments, shape = SecondMoments.of(X), (X.shape[1], k)
    draws = np.random.default_rng(1).standard_normal((n_draws, *shape))
    model = WidePPCAModel(moments, prior or UnknownScales.of(1.0, shape), True, draws)
    return model, model.start()


@pytest.fixture(scope="module")
def ended():
    """A model and a point where nothing is left to gain."""
    model, point = wide(rows(60, 400)[0], 3)
    for _ in range(30):
        gradient = model.statistics(point, None, 1.0).gradient
        point = model.move(point, model.precondition(point, gradient))
    assert gradient @ model.precondition(point, gradient) < 1e-3
    return model, point


@pytest.mark.parametrize("prior", [None, GivenScale(0.5)])
def test_gradient_by_lengths_and_noise(prior):
    """That of the bound with deviations and prior at their best: `move` finds them."""
    model, point = wide(rows(40, 150)[0], 3, prior)
    point = model.move(point, np.array([-0.5, 0.3, -0.4, 0.05]))

    def bound(step):
        return model.statistics(model.move(point, step), None, 1.0).objective

    numeric = approx_fprime(np.zeros(4), bound, 1e-4)
    found = model.statistics(point, None, 1.0).gradient
    np.testing.assert_allclose(found, numeric, rtol=1e-2, atol=0.2)


def test_deviations_and_prior_are_the_best(ended):
    model, point = ended
    best = model.statistics(point, None, 1.0).objective
    rng = np.random.default_rng(0)
    for size in 0.01, 0.1:
        others = np.exp(size * rng.normal(size=point.scale.shape)), 1.0 + size
        for factor in (*others, 1.0 - size):
            other = point._replace(scale=factor * point.scale)
            assert model.statistics(other, None, 1.0).objective < best + 1e-6
    for name in "scale", "freedom":
        changed = {name: 1.2 * getattr(point.prior, name)}
        other = point._replace(prior=point.prior._replace(**changed))
        assert model.statistics(other, None, 1.0).objective < best + 1e-3


def test_the_bound_is_nearly_that_of_many_draws(ended):
    model, point = ended
    draws = np.random.default_rng(2).standard_normal((200, *point.scale.shape))
    value, error = model.bound(point, draws)
    # What is left out is of the angles of components and their lengths.
    assert abs(model.statistics(point, None, 1.0).objective - value) < 3.0 + 3.0 * error


def test_no_rotation_has_a_higher_bound(ended):
    """Deviations are the best of each, by draws; all bounds have the same ones."""
    model, point = ended
    draws = np.random.default_rng(3).standard_normal((50, *point.scale.shape))

    def bound(R):
        turned = PPCAModel(model.moments, point.prior, True, draws)
        turned.scale = point.scale
        at = Point(point.mean @ R, point.log_noise)
        for _ in range(4):
            turned.spread(at, 1.0)
        return turned.bound(at, draws)[0]

    close = np.eye(3)
    close[:2, :2] = np.array([[12.0, 5.0], [-5.0, 12.0]]) / 13.0
    turned = [bound(R) for R in (*ortho_group.rvs(3, size=6, random_state=0), close)]
    assert max(turned) < bound(np.eye(3))


def test_draws_do_not_find_a_higher_bound(ended):
    """Steps of all means by fifty pairs of draws end below it, by other draws."""
    model, point = ended
    shape, rng = point.scale.shape, np.random.default_rng(4)
    led = PPCAModel(model.moments, point.prior, True, rng.standard_normal((50, *shape)))
    led.scale = point.scale
    at = Point(point.mean, point.log_noise)
    led.spread(at, 1.0)
    for _ in range(10):
        step = led.precondition(at, led.statistics(at, None, 1.0).gradient)
        at = led.move(at, 0.5 * step)
    draws = rng.standard_normal((100, *shape))
    value, error = model.bound(point, draws)
    assert led.bound(at, draws)[0] < value + 0.5 + 2.0 * error


@pytest.mark.parametrize("seed", [0, 1])
def test_components_hardly_longer_than_the_noise(seed):
    """Led by draws they were of more equal lengths, after many more steps."""
    X, _ = rows(60, 1500, (1.0, 0.4, 0.25), seed)
    model = BayesianPPCA(3, random_state=0).fit(X)
    assert model.converged_ and model.n_iter_ < 30
    lengths = np.sqrt(np.square(model.components_).mean(axis=1))
    assert lengths[0] > 0.8 and lengths[2] < 0.3
    axes = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2][:3]
    along = np.abs(model.components_ @ axes.T) / np.linalg.norm(
        model.components_, axis=1, keepdims=True
    )
    np.testing.assert_allclose(along, np.eye(3), atol=1e-6)


def test_the_end_is_no_worse_than_that_of_draws(monkeypatch):
    X, _ = rows(50, 300, (1.0, 0.5, 0.5))
    found = BayesianPPCA(5, random_state=0).fit(X)
    name = "skvrem.vi.ppca._estimator.are_sums_enough"
    monkeypatch.setattr(name, lambda moments, k: False)
    led = BayesianPPCA(5, random_state=0).fit(X)
    assert found.elbo_ > led.elbo_ - 3.0 * (found.elbo_se_ + led.elbo_se_)
    assert found.n_iter_ < led.n_iter_


def test_a_warm_start_is_there():
    X, _ = rows(60, 300)
    model = BayesianPPCA(3, random_state=0, warm_start=True).fit(X)
    before = model.objective_
    model.fit(X)
    assert model.n_iter_ == 1
    assert model.objective_ == pytest.approx(before, abs=model.tol)


def test_more_components_than_rows():
    """Their axes may be any, and may be columns: draws ended in an error."""
    X, _ = rows(10, 500)
    model = BayesianPPCA(12, random_state=0).fit(X)
    lengths = np.square(model.components_).sum(axis=1)
    assert np.all(lengths[9:] < 1e-3 * lengths[0])


def test_sums_are_not_enough():
    """Of few columns, and where a column is a component."""
    X, _ = rows(50, 120)
    assert are_sums_enough(SecondMoments.of(X), 3)
    assert not are_sums_enough(SecondMoments.of(X[:, :50]), 3)
    X[:, 7] *= 100.0
    assert not are_sums_enough(SecondMoments.of(X), 3)


@pytest.mark.parametrize("spread", [0.1, 3.0, 15.0])
def test_the_scale_matrix_is_where_its_equation_says(spread):
    """By bisection, of values that are alike and by many orders apart, and zero."""
    rng, d, least = np.random.default_rng(0), 50, 1e-3
    for k in 1, 2, 7:
        values = np.exp(spread * rng.normal(size=k))
        values[1:2] = 0.0
        nu = k * np.array([1.0, 3.0, 1e3, 1e6])
        found = best_b(nu, values, d, least)
        for each, b in zip(nu, found, strict=True):

            def missing(log_b, share=each * k / (each + d), values=values):
                b = np.exp(log_b)
                return np.sum(b / (b + values)) - share

            low = np.log(each * least**2)
            high = np.log(each * max(values.max(), least**2)) + 1.0
            ends = missing(low) > 0.0
            expected = low if ends else brentq(missing, low, high, xtol=1e-13)
            assert np.log(b) == pytest.approx(expected, abs=1e-8)
