"""Where fits begin, and what comes of it where features outnumber rows."""

import numpy as np
import pytest

from skvrem import FactorialMixture
from skvrem.data import as_source
from skvrem.exceptions import CollapsedComponentWarning
from skvrem.factorial import _start
from skvrem.factorial._start import (
    _clusters,
    kinds_of_starts,
    moments,
    starting_parameters,
)


def wide(seed, n=48, d=3000, n_features=None, size=0.5):
    """Few rows of three parts, which some or all of many noisy features hold."""
    n_features = n_features or d
    rng = np.random.default_rng(seed)
    parts = np.zeros((3, d))
    parts[:, :n_features] = size * rng.normal(size=(3, n_features))
    codes = rng.uniform(size=(n, 3)) < 0.4
    X = codes @ parts + rng.normal(size=(n, d))
    return X - X.mean(axis=0)


def noise_alone(X):
    """The likelihood of a row without components, at its best."""
    return -0.5 * X.shape[1] * (np.log(2.0 * np.pi * np.square(X).mean()) + 1.0)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("given", [{}, {"tempering": None}], ids=str)
def test_few_rows_of_many_features_have_components(seed, given):
    X = wide(seed)
    fit = FactorialMixture(3, random_state=seed, **given).fit(X)
    assert fit.predict(X).any(axis=0).all()
    assert fit.objective_ > noise_alone(X) + 5.0


def test_every_other_start_has_directions_of_the_rows():
    few = as_source(wide(0, 20, 60))
    kinds = kinds_of_starts(FactorialMixture(3, n_init=3), few, warm=False)
    assert [directions for _, directions in kinds] == ["rows", "isotropic", "rows"]
    many = as_source(wide(0, 60, 60))
    kinds = kinds_of_starts(FactorialMixture(3, n_init=3), many, warm=False)
    assert {directions for _, directions in kinds} == {"isotropic"}


@pytest.mark.parametrize(
    ("given", "n_starts"),
    [
        ({}, 3),
        ({"tempering": "global"}, 3),
        ({"tempering": None}, 2),
        ({"temperature": 5.0}, 1),
        ({"n_init": 2}, 2),
        ({"components_init": np.eye(3, 60)}, 2),
        ({"components_init": np.eye(3, 60), "tempering": None}, 1),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
@pytest.mark.filterwarnings("ignore::skvrem.exceptions.CollapsedComponentWarning")
def test_more_features_than_rows_have_one_start_more(given, n_starts):
    X = wide(0, 60, 60)
    short = {"max_iter": 30, "annealing_iter": 5, "tol": 1.0, "random_state": 0}
    fit = FactorialMixture(3, **short, **given)
    narrow = n_starts - (given.keys() <= {"tempering"})  # where starts are not given
    if given.keys() <= {"tempering"} and narrow == 2:  # with tempering
        narrow = 2 * _start.MOST_PAIRS
    assert len(fit.fit(X).init_scores_) == narrow
    assert len(fit.fit(X[:59]).init_scores_) == n_starts
    # Rows count as often as they weigh.
    twice = np.full(59, 2.0)
    assert len(fit.fit(X[:59], sample_weight=twice).init_scores_) == narrow


@pytest.mark.parametrize(("share", "n_starts"), [(1.0, 2), (2.1, 4), (9.0, 6)])
def test_small_data_have_more_starts(share, n_starts, monkeypatch):
    """In turns without and with tempering, which is no start's where none is asked."""
    X = wide(0, 200, 20)
    monkeypatch.setattr(_start, "WORTH", share * 3 * X.size)
    fit = FactorialMixture(3, random_state=0).fit(X)
    assert len(fit.init_scores_) == n_starts
    assert fit.objective_ == fit.init_scores_.max()
    kinds = kinds_of_starts(fit, as_source(X), warm=False)
    assert kinds == n_starts // 2 * [(1.0, "isotropic"), ("auto", "isotropic")]
    fit.set_params(tempering=None)
    assert kinds_of_starts(fit, as_source(X), warm=False) == [(1.0, "isotropic")]


def test_plain_inference_is_among_the_starts():
    X = wide(1)
    fit = FactorialMixture(3, random_state=0)
    scores = fit.fit(X).init_scores_
    assert scores[0] == fit.set_params(tempering=None).fit(X).init_scores_[0]


def test_noise_alone_is_reported_and_fewer_features_help():
    X = wide(0, 60, 5000, 50, size=1.5)
    with pytest.warns(CollapsedComponentWarning, match="those that vary the most"):
        fit = FactorialMixture(3, random_state=0).fit(X)
    assert not fit.predict(X).any()
    assert fit.objective_ == pytest.approx(noise_alone(X), abs=0.1)
    most = np.argsort(X.var(axis=0))[-len(X) :]
    fit.fit(X[:, most])
    assert fit.predict(X[:, most]).any(axis=0).all()
    assert fit.objective_ > noise_alone(X[:, most]) + 1.0


@pytest.mark.parametrize("given", [{}, {"activation_prior": 0.3}], ids=str)
def test_rows_of_noise_are_reported(given):
    X = np.random.default_rng(0).normal(size=(1000, 10))
    X -= X.mean(axis=0)
    with pytest.warns(CollapsedComponentWarning, match="noise alone"):
        FactorialMixture(2, random_state=0, **given).fit(X)


def begin(X, directions, weight=None, k=4, **given):
    data = as_source(X, weight)
    estimator = FactorialMixture(k, **given)
    found = moments(data)
    rng = np.random.default_rng(3)
    return starting_parameters(estimator, found, data, rng, directions).means, found


def test_directions_of_rows_are_isotropic_ones_times_the_covariance(rng):
    X = rng.normal(size=(20, 50)) * np.linspace(0.1, 3.0, 50) + 1.0
    isotropic, found = begin(X, "isotropic")
    of_rows, _ = begin(X, "rows")
    middle = found.mean / (0.3 * 4)
    expected = (isotropic - middle) @ np.cov(X.T, bias=True)
    expected *= np.linalg.norm(isotropic - middle) / np.linalg.norm(expected)
    np.testing.assert_allclose(of_rows - middle, expected, rtol=1e-9, atol=1e-12)


def test_clusters_are_means_of_the_rows_next_to_far_ones(rng):
    centres = 10.0 * rng.normal(size=(4, 30))
    label = np.repeat(np.arange(4), 5)
    rows = centres[label] + rng.normal(size=(20, 30))
    share = rng.uniform(size=20)
    share /= share.sum()
    found = _clusters(rows, share, 4, seed=0)
    for j in range(4):
        own = label == j
        mean = np.average(rows[own], axis=0, weights=share[own])
        assert np.abs(found - mean).max(axis=1).min() < 1e-9
    isotropic, moments_ = begin(rows, "isotropic")
    apart = (begin(rows, "clusters")[0] - isotropic) / 0.3 + moments_.mean
    for j in range(4):
        mean = rows[label == j].mean(axis=0)
        assert np.abs(apart - mean).max(axis=1).min() < 1e-9


@pytest.mark.parametrize("directions", ["rows", "clusters"])
def test_components_may_outnumber_rows(directions):
    X = np.random.default_rng(0).normal(size=(3, 50))
    means, _ = begin(X, directions, k=5)
    assert np.isfinite(means).all()
    assert np.linalg.matrix_rank(means) >= 2


@pytest.mark.parametrize("directions", ["rows", "clusters"])
@pytest.mark.parametrize("factor", [1e-140, 1e140])
def test_starts_have_the_scale_of_the_rows(directions, factor):
    X = wide(0, 20, 40)
    means, _ = begin(X, directions)
    scaled, _ = begin(X * factor, directions)
    np.testing.assert_allclose(scaled / factor, means, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("directions", ["rows", "clusters"])
def test_starts_do_not_tell_weights_from_repetitions(directions):
    X = wide(0, 20, 100)
    rng = np.random.default_rng(0)
    weight = rng.integers(3, size=20)
    order = rng.permutation(weight.sum())
    weighted, _ = begin(X, directions, weight.astype(float), k=12)
    repeated, _ = begin(np.repeat(X, weight, axis=0)[order], directions, k=12)
    np.testing.assert_allclose(weighted, repeated, rtol=0, atol=1e-12)


def test_starts_are_the_same_wherever_rows_are(tmp_path):
    X = wide(2, d=400, size=1.0)
    np.save(tmp_path / "X.npy", X)

    def fit(X, **given):
        return FactorialMixture(3, random_state=0, **given).fit(X)

    expected = fit(X, n_jobs=1)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    for other in (fit(X, n_jobs=3), fit(mapped)):
        np.testing.assert_array_equal(other.components_, expected.components_)
        np.testing.assert_array_equal(other.init_scores_, expected.init_scores_)
    single = fit(X.astype(np.float32))
    assert single.components_.dtype == np.float32
    np.testing.assert_allclose(single.init_scores_, expected.init_scores_, atol=0.05)


def test_starts_are_the_same_of_dask():
    da = pytest.importorskip("dask.array")
    X = wide(2, d=400, size=1.0)
    weight = np.random.default_rng(0).uniform(0.5, 1.5, len(X))
    fit = FactorialMixture(3, random_state=0).fit(X, sample_weight=weight)
    rows, weights = da.from_array(X, (20, -1)), da.from_array(weight, 20)
    there = FactorialMixture(3, random_state=0).fit(rows, sample_weight=weights)
    np.testing.assert_allclose(there.init_scores_, fit.init_scores_, rtol=1e-9)
    np.testing.assert_allclose(there.components_, fit.components_, atol=1e-6)
