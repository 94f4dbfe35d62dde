"""Where fits begin, and what comes of it where features outnumber rows."""

import numpy as np
import pytest
from sklearn import datasets
from sklearn.base import clone

from skvrem import FactorialMixture
from skvrem.data import as_source
from skvrem.exceptions import CollapsedComponentWarning
from skvrem.factorial import _kinds, _start
from skvrem.factorial._kinds import KindOfStart, kinds_of_starts
from skvrem.factorial._start import _clusters, moments, starting_parameters


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


def kinds(X, weight=None, warm=False, **given):
    data = as_source(X, weight)
    estimator = FactorialMixture(3, **given)
    return kinds_of_starts(estimator, data, moments(data), warm=warm)


def without_noise(found):
    return [kind[:3] for kind in found]


def test_starts_of_an_integer_are_of_each_kind_in_turn():
    X = wide(0, 60, 60)
    tempered, plain = ("auto", "isotropic", False), (1.0, "isotropic", False)
    found = kinds(X, n_init=5)
    assert without_noise(found) == [tempered, plain, tempered, plain, tempered]
    assert [kind.noise for kind in found] == [0.3, 0.3, 0.3, 0.03, 0.3]
    few = kinds(X[:20] - X[:20].mean(axis=0), n_init=5)
    assert without_noise(few) == [
        ("auto", "rows", False),
        (1.0, "clusters", False),
        ("auto", "isotropic", False),
        (1.0, "rows", False),
        ("auto", "rows", False),
    ]
    # A temperature that is given is that of all.
    for given in ({"temperature": 5.0}, {"tempering": None}):
        first = {given.get("temperature", 1.0)}
        found = kinds(X, n_init=4, **given)
        assert {kind.temperature for kind in found} == first
        assert {kind.noise for kind in found} == {0.3}


@pytest.mark.parametrize(
    ("distance", "given", "expected"),
    [
        (0.4, {}, [(1.0, False), ("auto", False)]),
        (0.6, {}, [(1.0, False), (1.0, True), ("auto", False), ("auto", True)]),
        (0.6, {"tempering": None}, [(1.0, False), (1.0, True)]),
        (0.6, {"temperature": 5.0}, [(5.0, False), (5.0, True)]),
        (0.6, {"n_init": 1}, [("auto", False)]),
        (2.1, {"n_init": 1}, [("auto", True)]),
        (2.1, {"n_init": 3}, [("auto", True), ("auto", False), (1.0, True)]),
        (9.0, {"components_init": np.eye(3, 20)}, [(1.0, False), ("auto", False)]),
    ],
)
def test_starts_far_from_zero_have_twins_with_an_intercept(
    distance, given, expected, monkeypatch
):
    monkeypatch.setattr(_kinds, "WORTH", 1)
    X = wide(0, 200, 20)
    X += np.sqrt(distance * X.var(axis=0).mean())
    found = kinds(X, **given)
    assert [(kind.temperature, kind.intercept) for kind in found] == expected
    # By the weights of rows.
    twice = np.vstack([X, np.full((1, 20), 1e3)])
    weight = np.append(np.ones(200), 0.0)
    assert kinds(twice, weight, **given) == found
    (only,) = without_noise(kinds(X, warm=True, **given))
    assert only == (given.get("temperature", 1.0), None, False)


def test_twins_take_the_place_of_further_starts(monkeypatch):
    X = wide(0, 200, 20)
    monkeypatch.setattr(_kinds, "WORTH", 4.2 * 3 * X.size)
    assert len(kinds(X)) == 7
    assert len(kinds(X + 5.0)) == 8
    monkeypatch.setattr(_kinds, "WORTH", 99 * X.size)
    assert len(kinds(X + 5.0)) == len(kinds(X + 1.0)) == 36
    assert len(kinds(X + 1e3)) == 12  # where the bound prefers fewer components


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
        narrow = 2 * _kinds.MOST_PAIRS + _kinds.MOST_MORE
    assert len(fit.fit(X).init_scores_) == narrow
    assert len(fit.fit(X[:59]).init_scores_) == n_starts
    # Rows count as often as they weigh.
    twice = np.full(59, 2.0)
    assert len(fit.fit(X[:59], sample_weight=twice).init_scores_) == narrow


@pytest.mark.parametrize(
    ("share", "n_starts", "n_more"),
    [(1.0, 2, 0), (2.1, 4, 0), (3.9, 6, 0), (5.1, 6, 2), (99.0, 6, 24)],
)
def test_small_data_have_more_starts(share, n_starts, n_more, monkeypatch):
    """In turns without and with tempering, which is no start's where none is asked."""
    X = wide(0, 200, 20)
    monkeypatch.setattr(_kinds, "WORTH", share * 3 * X.size)
    fit = FactorialMixture(3, random_state=0).fit(X)
    assert len(fit.init_scores_) == n_starts + n_more
    assert fit.objective_ == fit.init_scores_.max()
    pair = [(1.0, "isotropic", False), ("auto", "isotropic", False)]
    assert without_noise(kinds(X)) == n_starts // 2 * pair + n_more * pair[:1]
    assert without_noise(kinds(X, tempering=None)) == pair[:1]
    # Every other one of those that follow begins with less noise.
    noises = [kind.noise for kind in kinds(X)]
    assert noises[: n_starts + 1 : 2] == [0.3] * len(noises[: n_starts + 1 : 2])
    assert noises[n_starts + 1 :: 2] == [0.03, 0.1, 0.01] * (n_more // 6) + (
        [0.03] if n_more == 2 else []
    )


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


def begin_with(X, kind, weight=None, k=4, **given):
    data = as_source(X, weight)
    estimator = FactorialMixture(k, **given)
    found = moments(data)
    rng = np.random.default_rng(3)
    return starting_parameters(estimator, found, data, rng, kind), found


def begin(X, directions, weight=None, k=4):
    begun, found = begin_with(X, KindOfStart(1.0, directions), weight, k)
    return begun.means, found


def test_an_intercept_is_the_mean_in_all_rows(rng):
    X = rng.normal([9.0, -9.0, 9.0, 0.0, 1.0], size=(30, 5))
    kind = KindOfStart("auto", "isotropic", intercept=True)
    begun, found = begin_with(X, kind)
    np.testing.assert_array_equal(begun.means[0], found.mean)
    np.testing.assert_array_equal(begun.activation, [_start.ALWAYS, 0.3, 0.3, 0.3])
    apart = begin(X, "isotropic")[0] - found.mean / 1.2
    np.testing.assert_allclose(begun.means[1:], apart[1:], atol=1e-12)
    # Where activations are given they stay, and the likeliest has it.
    prior = [0.1, 0.2, 0.8, 0.3]
    begun, _ = begin_with(X, kind, activation_prior=prior)
    np.testing.assert_array_equal(begun.means[2], found.mean)
    np.testing.assert_array_equal(begun.activation, prior)


TABLES = {"iris": 3, "wine": 4, "digits": 6}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("given", [{}, {"n_init": 2}, {"tempering": None}], ids=str)
def test_rows_far_from_zero_end_as_high_as_centred_ones_of_a_component_less(
    name, given
):
    X = getattr(datasets, f"load_{name}")().data[:400, :20].astype(float)
    k = TABLES[name]
    fits = [FactorialMixture(n, random_state=0, **given) for n in (k, k - 1)]
    raw, centred = fits[0].fit(X), fits[1].fit(X - X.mean(axis=0))
    # The mean costs the divergence of one component from its prior.
    n, d = X.shape
    square = n * np.square(X.mean(axis=0)).mean() / centred.noise_variance_
    assert raw.objective_ > centred.objective_ - 0.5 * d * np.log1p(square) / n
    assert (raw.activation_prior_ > 0.8).any()


@pytest.mark.parametrize("shift", [20.0, 1e3, 1e5])
def test_no_component_is_lost_to_the_mean(shift):
    X = datasets.load_iris().data
    near = FactorialMixture(3, random_state=0).fit(X)
    far = FactorialMixture(3, random_state=0).fit(X + shift)
    assert far.objective_ > near.objective_ - 1.0
    assert far.score(X + shift) == pytest.approx(near.score(X), abs=0.05)


@pytest.mark.parametrize(
    ("dtype", "near", "far"), [(np.float64, 1e6, 3e6), (np.float32, 40.0, 100.0)]
)
def test_rows_too_far_from_zero_are_refused(dtype, near, far):
    rng = np.random.default_rng(0)
    parts = rng.normal(size=(2, 4))
    X = rng.integers(2, size=(200, 2)) @ parts + 0.3 * rng.normal(size=(200, 4))
    X = (X - X.mean(axis=0)) / X.std()
    fit = FactorialMixture(3, random_state=0, tol=1e-2, annealing_iter=20)
    noise = clone(fit).fit((X + 10.0).astype(dtype)).noise_variance_
    fit.fit((X + near).astype(dtype))
    assert fit.noise_variance_ == pytest.approx(noise, rel=0.05)
    for method in ("fit", "partial_fit"):
        with pytest.raises(ValueError, match=r"too far .* in float\d\d. Subtract it"):
            getattr(FactorialMixture(3), method)((X + far).astype(dtype))


def test_a_stream_far_from_zero_begins_with_an_intercept():
    X = datasets.load_iris().data
    X = X[np.random.default_rng(0).permutation(len(X))]
    whole = FactorialMixture(3, random_state=0).fit(X)
    stream = FactorialMixture(3, random_state=0)
    for start in range(0, len(X), 30):
        stream.partial_fit(X[start : start + 30])
    assert stream.score(X) > whole.score(X) - 0.3


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


@pytest.mark.filterwarnings("ignore:Some components of FactorialMixture are nothing")
@pytest.mark.parametrize("given", [{}, {"n_init": 16}])
def test_clusters_near_each_other_are_told_apart(given):
    """Where noise is as wide as they are apart, starts end where they are one."""
    rng = np.random.default_rng(1)
    parts = rng.normal(size=(4, 2))
    codes = rng.uniform(size=(1000, 4)) < 0.4
    X = codes @ parts + 0.1 * rng.normal(size=(1000, 2))
    plain = FactorialMixture(4, n_init=2, random_state=0).fit(X)
    assert plain.noise_variance_ > 0.15
    fit = FactorialMixture(4, random_state=0, **given).fit(X)
    assert fit.objective_ > plain.objective_ + 1.0
    assert fit.noise_variance_ == pytest.approx(0.01, rel=0.3)


def test_noise_that_is_given_stays():
    X = wide(0, 200, 5)
    fit = FactorialMixture(3, noise_variance=0.5, random_state=0).fit(X)
    assert fit.noise_variance_ == 0.5
