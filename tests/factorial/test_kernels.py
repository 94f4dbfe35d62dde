"""Codes and bounds against sums over all codes of every row."""

import numpy as np
import pytest

from skvrem.factorial import _kernels
from skvrem.factorial._model import NO_IDS, FactorialModel, no_codes
from skvrem.factorial._model_bound import Parameters
from tests.factorial import oracle

K, D = 5, 3


@pytest.fixture
def parameters(rng):
    A = 0.2 * rng.normal(size=(K, K))
    return Parameters(
        rng.normal(size=(K, D)),
        A @ A.T + 0.01 * np.eye(K),
        rng.uniform(0.1, 0.9, K),
        0.5,
        1.3,
    )


@pytest.fixture
def X(rng, parameters):
    codes = rng.uniform(size=(150, K)) < parameters.activation
    return codes @ parameters.means + 0.7 * rng.normal(size=(150, D))


def infer(parameters, X, n_steps, *, tol=0.0, beta=1.0, codes=None, ids=NO_IDS, at=0):
    model = FactorialModel(1.0, X.dtype, inner_iter=n_steps, inner_tol=tol)
    tables = model.tables(parameters, beta)
    nothing = no_codes(parameters.activation[None])
    codes = nothing if codes is None else codes
    after = np.zeros_like(codes)
    nu, entropy, _ = model.infer(tables, X, ids, at, codes, after)
    return nu.T, entropy, after


@pytest.mark.parametrize("n_features", [1, 7, 300])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_squares(n_features, dtype, rng):
    X = rng.normal(size=(10, n_features)).astype(dtype)
    total = np.empty(10)
    _kernels.squares(X, total)
    expected = np.square(X.astype(np.float64)).sum(axis=1)
    np.testing.assert_allclose(total, expected, rtol=1e-13)


@pytest.mark.parametrize("beta", [1.0, 0.3])
@pytest.mark.parametrize(("dtype", "atol"), [(np.float64, 1e-12), (np.float32, 3e-5)])
def test_a_sweep_is_the_best_of_each_coordinate_in_turn(
    parameters, X, dtype, atol, beta
):
    nu = np.tile(parameters.activation, (len(X), 1))
    for n_steps in (1, 2):
        oracle.sweep(X, nu, parameters, beta)
        found, entropy, _ = infer(parameters, X.astype(dtype), n_steps, beta=beta)
        assert found.dtype == dtype
        np.testing.assert_allclose(found, nu, atol=atol)
        q = np.clip(nu, 1e-300, 1.0 - 1e-16)
        expected = -(q * np.log(q) + (1.0 - q) * np.log1p(-q)).sum(axis=1)
        np.testing.assert_allclose(entropy, expected, atol=20 * atol)


def test_every_sweep_raises_every_bound(parameters, X):
    last = oracle.annealed_rows(
        X, np.tile(parameters.activation, (len(X), 1)), parameters
    )
    for n_steps in range(1, 8):
        nu, _, _ = infer(parameters, X, n_steps)
        now = oracle.annealed_rows(X, nu, parameters)
        assert (now >= last - 1e-12).all()
        last = now


def test_a_row_does_not_depend_on_its_neighbours(parameters, X):
    options = {"tol": 1e-2, "n_steps": 50}
    together, _, _ = infer(parameters, X, **options)
    alone = np.vstack([infer(parameters, X[i : i + 1], **options)[0] for i in range(9)])
    np.testing.assert_allclose(alone, together[:9], rtol=0, atol=1e-14)
    turned, _, _ = infer(parameters, X[::-1].copy(), **options)
    np.testing.assert_allclose(turned[::-1], together, rtol=0, atol=1e-14)
    # The tolerance does end sweeps.
    exact, _, _ = infer(parameters, X, 50)
    change = abs(exact - together)
    assert change.max() > 1e-6
    assert np.median(change) < 1e-2


@pytest.mark.parametrize("index", [False, True])
def test_codes_go_on_where_they_were_left(parameters, X, index, rng):
    order = rng.permutation(len(X)).astype(np.int32) if index else np.arange(len(X))
    codes = rng.integers(0, 65536, (len(X) + 2, K)).astype(np.uint16)
    at = 0 if index else 2
    mine = order if index else order + 2
    nu = codes[mine] / 65535.0
    oracle.sweep(X, nu, parameters)
    ids = order if index else NO_IDS
    found, _, after = infer(parameters, X, 1, codes=codes, ids=ids, at=at)
    np.testing.assert_allclose(found, nu, atol=1e-12)
    np.testing.assert_array_equal(after[mine], np.rint(nu * 65535.0))


def test_bounds_are_those_of_all_codes(parameters, X):
    model = FactorialModel(1.0, X.dtype, inner_iter=100, inner_tol=1e-12)
    bounds, nu = model.bounds(parameters, X)
    expected = oracle.annealed_rows(X, nu.T, parameters)
    np.testing.assert_allclose(bounds, expected, rtol=1e-10)
    certain = parameters._replace(covariance=np.zeros((K, K)))
    bounds, _ = model.bounds(certain, X)
    arguments = (certain.means, certain.activation, certain.noise)
    exact = oracle.log_likelihood(X, *arguments)
    assert (bounds <= exact + 1e-12).all()
    assert np.mean(exact - bounds) < 0.7
    # Where a code is certain there is no gap.
    apart = certain._replace(means=10.0 * np.eye(K, D) + np.eye(K, D, -3), noise=1e-3)
    rows = np.array([[10.0, 0.0, 10.0], [0.0, 10.0, 0.0]])
    bounds, _ = model.bounds(apart, rows)
    exact = oracle.log_likelihood(rows, apart.means, apart.activation, apart.noise)
    np.testing.assert_allclose(bounds, exact, atol=1e-6)


def test_cooling_finds_better_codes_of_rows_with_many_features(rng):
    n, k, d = 200, 7, 150
    common = rng.normal(size=d)
    means = common + 0.6 * rng.normal(size=(k, d))
    activation = np.full(k, 0.4)
    X = (rng.uniform(size=(n, k)) < activation) @ means + rng.normal(size=(n, d))
    parameters = Parameters(means, np.zeros((k, k)), activation, 1.0, 1.0)
    model = FactorialModel(1.0, X.dtype, inner_iter=100, inner_tol=1e-9)
    exact = oracle.log_likelihood(X, means, activation, 1.0)
    plain, _ = model.bounds(parameters, X)
    bounds, nu = model.bounds(parameters, X, model.cooling(parameters))
    expected = oracle.annealed_rows(X, nu.T, parameters)
    np.testing.assert_allclose(bounds, expected, rtol=1e-10)
    assert (bounds >= plain).all()
    assert (bounds <= exact + 1e-9).all()
    assert np.mean(exact - bounds) < 0.2 * np.mean(exact - plain)


def test_components_that_do_not_compete_need_no_cooling(parameters):
    model = FactorialModel(1.0, np.float64)
    assert model.cooling(parameters._replace(noise=1e6)).size == 0
    # It depends on the largest eigenvalue, in units of the noise, against 1.
    parameters = parameters._replace(covariance=np.zeros((K, K)))
    (weight,) = oracle.code_weights(parameters.activation[None])
    deviations = (oracle.all_codes(K) - parameters.activation) @ parameters.means
    scatter = deviations.T @ (weight[:, None] * deviations)
    hottest = np.linalg.eigvalsh(scatter)[-1]
    assert model.cooling(parameters._replace(noise=1.01 * hottest)).size == 0
    near = model.cooling(parameters._replace(noise=0.99 * hottest))
    assert near.size and near[0] == pytest.approx(0.99)
    cooling = model.cooling(parameters._replace(noise=1e-6))
    assert (np.diff(cooling) > 0.0).all()
    assert 0.0 < cooling[0] and cooling[-1] < 1.0


def test_extreme_logits_stay_finite(parameters):
    X = np.array([[1e6, -1e6, 0.0], [0.0, 0.0, 0.0]], np.float32)
    nu, entropy, _ = infer(parameters._replace(noise=1e-6), X, 5)
    assert np.isfinite(nu).all()
    assert (nu >= 0.0).all() and (nu <= 1.0).all()
    assert np.isfinite(entropy).all() and (entropy >= 0.0).all()
