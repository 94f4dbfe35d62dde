"""Statistics, bound and M step against brute force."""

import numpy as np
import pytest

from skvrem.data import as_source
from skvrem.factorial._model import FactorialModel
from skvrem.factorial._model_bound import Parameters
from tests.factorial import oracle

N, K, D = 60, 3, 4
PATTERNS = {
    "all learned": (True, True, True),
    "noise learned": (True, False, False),
    "all given": (False, False, False),
}


@pytest.fixture
def parts(rng):
    """Rows, weights, and parameters away from any optimum."""
    means = 2.0 * rng.normal(size=(K, D))
    codes = rng.uniform(size=(N, K)) < 0.4
    X = codes @ means + 0.5 * rng.normal(size=(N, D))
    parameters = Parameters(
        means + 0.5 * rng.normal(size=(K, D)),
        None,
        np.array([0.3, 0.4, 0.6]),
        0.4,
        1.5,
    )
    return X, rng.uniform(0.5, 2.0, N), parameters


def build(parts, weighted=True, **options):
    X, weight, parameters = parts
    data = as_source(X, weight if weighted else None)
    model = FactorialModel(data.total_weight, X.dtype, inner_tol=0.0, **options)
    return model, model.start(parameters, data), data


def codes_of(parts, point, beta, n_sweeps):
    nu = np.tile(np.rint(parts[2].activation * 65535) / 65535, (N, 1))
    for _ in range(n_sweeps):
        oracle.sweep(parts[0], nu, point.parameters, beta)
    return nu


@pytest.mark.parametrize("beta", [1.0, 0.25])
@pytest.mark.parametrize("full", [True, False])
def test_statistics_and_bound(parts, full, beta):
    X, w, _ = parts
    model, point, data = build(parts, full=full, inner_iter=2)
    sums = data.chunks().sum(lambda batch: model.statistics(point, batch, beta))
    nu = codes_of(parts, point, beta, 2)
    second = np.einsum("n,nk,nl->kl", w, nu, nu)
    np.fill_diagonal(second, w @ nu)
    expected = (
        w @ nu,
        second,
        (w[:, None] * nu).T @ X,
        w @ np.square(X).sum(1),
        w.sum(),
    )
    for found, value in zip(sums[:5], expected, strict=True):
        np.testing.assert_allclose(found, beta * value, rtol=1e-10)
    value = oracle.bound(X, nu, point.parameters, beta, w)
    assert sums.objective / w.sum() == pytest.approx(value, rel=1e-10)
    q = np.clip(nu, 1e-300, 1 - 1e-16)
    entropy = -(q * np.log(q) + (1 - q) * np.log1p(-q)).sum(axis=1)
    assert sums.entropy == pytest.approx(w @ entropy, rel=1e-8)


@pytest.mark.parametrize("beta", [1.0, 0.25])
@pytest.mark.parametrize("full", [True, False])
def test_the_posterior_of_the_components_is_the_best(parts, full, beta, rng):
    X, w, _ = parts
    model, point, data = build(parts, full=full, learn=(False, False, False))
    sums = data.chunks().sum(lambda batch: model.statistics(point, batch, beta))
    nu = codes_of(parts, point, beta, model.inner_iter)
    mean = type(sums)(*(part / w.sum() for part in sums))
    best, repaired = model.maximize(mean, point, False)
    assert repaired == ()
    top = oracle.bound(X, nu, best, beta, w)
    assert top > oracle.bound(X, nu, point.parameters, beta, w)
    for _ in range(20):
        step = 1e-3 * rng.normal(size=(K, K))
        change = np.diag(np.exp(step.diagonal())) if not full else np.eye(K) + step
        moved = change @ best.covariance @ change.T
        other = best._replace(covariance=moved)
        assert oracle.bound(X, nu, other, beta, w) < top
        other = best._replace(means=best.means + 1e-3 * rng.normal(size=(K, D)))
        assert oracle.bound(X, nu, other, beta, w) < top
    if not full:
        np.testing.assert_array_equal(
            best.covariance, np.diag(np.diag(best.covariance))
        )


@pytest.mark.parametrize("learn", PATTERNS.values(), ids=PATTERNS)
def test_what_is_learned_is_the_best_given_the_rest(parts, learn):
    X, w, start = parts
    model, point, data = build(parts, learn=learn)
    sums = data.chunks().sum(lambda batch: model.statistics(point, batch, 1.0))
    nu = codes_of(parts, point, 1.0, model.inner_iter)
    mean = type(sums)(*(part / w.sum() for part in sums))
    best, _ = model.maximize(mean, point, False)
    top = oracle.bound(X, nu, best, 1.0, w)
    for name, learned in zip(("noise", "spread", "activation"), learn, strict=True):
        value = getattr(best, name)
        if not learned:
            np.testing.assert_array_equal(value, getattr(start, name))
            continue
        for factor in (0.99, 1.01):
            other = best._replace(**{name: factor * value})
            assert oracle.bound(X, nu, other, 1.0, w) < top


def test_annealing_tempers_rows_and_not_the_prior(parts):
    """The M step of b times the sums is the one of the annealed model (Eq. 8)."""
    model, point, data = build(parts, learn=(False,) * 3, full=False)
    sums = data.chunks().sum(lambda batch: model.statistics(point, batch, 0.5))
    mean = type(sums)(*(part / data.total_weight for part in sums))
    found, _ = model.maximize(mean, point, False)
    counts = 2.0 * sums.sum_z  # the sums are b times those of the rows
    noise, spread = point.parameters.noise, point.parameters.spread
    expected = 1.0 / (1.0 / spread + 0.5 * counts / noise)
    np.testing.assert_allclose(np.diag(found.covariance), expected, rtol=1e-12)


@pytest.mark.parametrize("full", [True, False])
def test_a_start_has_statistics_that_give_it(parts, full):
    model, point, _ = build(parts, full=full, learn=(True, False, True))
    again, _ = model.maximize(point.statistics, point, False)
    for found, value in zip(again, point.parameters, strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-9)


def test_infeasible_statistics_are_refused_and_repaired(parts):
    model, point, _ = build(parts)
    statistics = point.statistics
    worse = statistics._replace(sum_zz=-statistics.sum_zz)
    assert model.maximize(worse, point, False) is None
    assert model.maximize(worse, point, True)[0] is point.parameters
    worse = statistics._replace(sum_xx=-100.0)
    assert model.maximize(worse, point, False) is None
    repaired, _ = model.maximize(worse, point, True)
    assert repaired.noise == point.parameters.noise


def test_components_that_became_one_are_told_apart(parts, rng):
    model, point, data = build(parts)
    means = point.parameters.means.copy()
    means[2] = means[0] * (1.0 + 1e-6)
    point = model.start(point.parameters._replace(means=means), data)
    reseeded = model.reseed(point, data, rng)
    assert reseeded.repaired == (2,)
    np.testing.assert_array_equal(reseeded.parameters.means[:2], means[:2])
    gap = np.linalg.norm(reseeded.parameters.means[2] - means[0])
    assert 0.02 < gap / np.linalg.norm(means[0]) < 0.5
    # The statistics go with the parameters.
    again, _ = model.maximize(reseeded.statistics, reseeded, False)
    np.testing.assert_allclose(again.means, reseeded.parameters.means, rtol=1e-8)
    # At a temperature of 1 not for ever.
    last = model.reseed(point._replace(n_reseeded=K - 1), data, rng)
    assert last.repaired == (2,) and last.n_reseeded == K
    assert model.reseed(point._replace(n_reseeded=K), data, rng).repaired == ()
