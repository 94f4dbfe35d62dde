"""Emission families: densities of scipy, M steps that maximize, fixed parameters."""

import numpy as np
import pytest
from scipy import stats

from skvrem import VRHMM
from skvrem.hmm import (
    Bernoulli,
    Categorical,
    Gamma,
    Gaussian,
    Poisson,
    Product,
    VonMises,
)
from skvrem.hmm.emissions._facts import minus_row


def gaussian_density(family, X):
    covariance = family.full_covariance()
    return np.column_stack(
        [
            stats.multivariate_normal.logpdf(X, m, c)
            for m, c in zip(family.mean_, covariance, strict=True)
        ]
    )


def gamma_density(family, X):
    mean, sd, zero = family.mean_, family.sd_, family.zero_
    shape, scale = (mean / sd) ** 2, sd**2 / mean
    x = X[:, None]
    with np.errstate(divide="ignore"):
        positive = np.log(1 - zero) + stats.gamma.logpdf(x, shape, scale=scale)
        return np.where(x == 0, np.log(zero), positive).sum(axis=2)


DENSITIES = {
    "gaussian": gaussian_density,
    "full": gaussian_density,
    "tied": gaussian_density,
    "spherical": gaussian_density,
    "poisson": lambda f, X: stats.poisson.logpmf(X[:, None], f.rate_).sum(axis=2),
    "bernoulli": lambda f, X: stats.bernoulli.logpmf(X[:, None], f.probability_).sum(
        axis=2
    ),
    "categorical": lambda f, X: np.log(f.probability_[:, X[:, 0].astype(int)]).T,
    "gamma": gamma_density,
    "zero-inflated gamma": gamma_density,
    "von mises": lambda f, X: stats.vonmises.logpdf(
        X[:, None], f.concentration_, loc=f.mean_
    ).sum(axis=2),
}


def make(name, n=2):
    """A family opened on rows of its own, and weights of the states' rows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2)) @ [[1.0, 0.4], [0.0, 2.0]] + [50.0, -3.0]
    family = Gaussian("diag" if name == "gaussian" else name)
    if name == "poisson":
        X, family = rng.poisson([2.0, 9.0], (200, 2)), Poisson()
    elif name == "bernoulli":
        X, family = rng.integers(2, size=(200, 2)), Bernoulli()
    elif name == "categorical":
        X, family = rng.integers(4, size=(200, 1)), Categorical()
    elif name.endswith("gamma"):
        X, family = rng.gamma([2.0, 9.0], 3.0, (200, 2)), Gamma(name != "gamma")
        if name != "gamma":
            X[::7] = 0.0
    elif name == "von mises":
        X, family = rng.vonmises([0.5, 3.0], [1.0, 9.0], (200, 2)), VonMises()
    X = X.astype(float)
    weight = rng.uniform(size=(200, n)) * (X[:, :1] > np.median(X[:, 0]) - 1.0)
    return family.open(X, n), X, weight + 0.01


def features(family, X, missing=False):
    first, second, merged = family.features(missing)
    columns = family.columns(X, missing)
    columns = np.hstack([columns, np.ones((len(X), 1))])
    return (columns[:, first] * columns[:, second])[:, merged[0]]


def fitted(name):
    family, X, weight = make(name)
    sums = weight.T @ features(family, X)
    packed = family.maximize(sums, family.blank(), True)
    family.publish(packed, np.float64)
    return family, X, sums, packed


@pytest.mark.parametrize("name", DENSITIES)
def test_density(name):
    family, X, _, packed = fitted(name)
    expected = DENSITIES[name](family, X)
    found = features(family, X) @ family.theta(packed).T
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(family.parameters(), packed)
    np.testing.assert_allclose(
        family.features(False).collapse(family.theta(packed))[0].sum(),
        family.theta(packed)[0].sum(),
    )


@pytest.mark.parametrize("name", DENSITIES)
def test_the_m_step_maximizes(name):
    family, _, sums, packed = fitted(name)
    if isinstance(family, Gaussian):
        family.reg_covar = 0.0
        packed = family.maximize(sums, packed, True)
    best = np.sum(sums * family.theta(packed))
    rng = np.random.default_rng(1)
    for _ in range(200):
        near = packed + 1e-3 * rng.normal(size=packed.shape) * np.abs(packed)
        if name == "categorical":
            near /= near.sum(axis=1, keepdims=True)
        elif name == "gamma":
            near[:, -2:] = 0.0
        elif name in ("full", "tied"):
            mean, covariance = map(np.array, family._split(near))
            covariance = (covariance + covariance.swapaxes(1, 2)) / 2
            if name == "tied":
                covariance[:] = covariance[:1]
            near = family._join(mean, covariance)
        elif name == "spherical":
            near[:, -1] = near[:, -2]
        assert np.sum(sums * family.theta(near)) <= best + 1e-9 * abs(best)


@pytest.mark.parametrize("name", DENSITIES)
def test_expected_features_are_those_of_draws(name):
    family, _, _, packed = fitted(name)
    states = np.repeat([0, 1], 60_000)
    drawn = family.draw(packed, states, np.random.default_rng(0))
    found = features(family, drawn).reshape(2, 60_000, -1).mean(axis=1)
    sd = features(family, drawn).reshape(2, 60_000, -1).std(axis=1)
    expected = family.expected(packed)
    if name == "poisson":  # of the logarithms of factorials nothing is needed
        found, sd, expected = found[:, :4], sd[:, :4], expected[:, :4]
    np.testing.assert_array_less(np.abs(found - expected), 5 * sd / 245 + 2e-2)
    # Units of changes, which are of the order of standard deviations.
    spread, varies = family.spread(packed)[:, : sd.shape[1]], sd > 0.1
    assert (np.abs(np.log(spread[varies] / sd[varies])) < np.log(4.0)).all()
    mean, variance = family.moments(packed)
    for state in (0, 1):
        rows = drawn[states == state]
        if name == "von mises":
            rows = np.angle(np.exp(1j * (rows - mean[state]))) + mean[state]
        np.testing.assert_allclose(
            rows.mean(axis=0), mean[state], atol=5 * rows.std() / 245
        )
        if name != "von mises":
            np.testing.assert_allclose(rows.var(axis=0), variance[state], rtol=0.05)


@pytest.mark.parametrize("name", DENSITIES)
def test_tails(name):
    family, X, _, packed = fitted(name)
    for j in range(X.shape[1]):
        below, above = family.tails(X[:, j], j, packed)
        assert below.shape == (200, 2) and below.min() >= 0.0 and above.min() >= 0.0
        np.testing.assert_allclose(below + above, 1.0, atol=1e-9)
        order = np.argsort(X[:, j])
        assert (np.diff(below[order], axis=0) >= -1e-12).all()


@pytest.mark.parametrize("name", DENSITIES)
def test_states_without_rows(name):
    family, _, sums, packed = fitted(name)
    sums = sums.copy()
    sums[1] = 0.0
    found = family.maximize(sums, packed, True)
    if name == "tied":  # one matrix for both
        found, packed = found[:, :2], packed[:, :2]
    np.testing.assert_allclose(found[1], packed[1])
    assert np.isfinite(found).all()


@pytest.mark.parametrize(
    "name", ["gaussian", "poisson", "bernoulli", "gamma", "von mises"]
)
def test_missing_values_are_left_out(name):
    family, X, _, packed = fitted(name)
    holes = X.copy()
    holes[3, 0] = holes[4] = np.nan
    joint = features(family, holes, True) @ family.theta(packed).T
    whole = features(family, X, True) @ family.theta(packed).T
    np.testing.assert_allclose(joint[4], 0.0, atol=1e-12)
    np.testing.assert_allclose(joint[5:], whole[5:])
    assert not np.allclose(joint[3], whole[3])


@pytest.mark.parametrize(
    ("family", "names"),
    [
        (Gamma(mean=[[2.0, np.nan], [np.nan, 3.0]]), ["mean"]),
        (Gamma(mean=[[2.0, 3.0]] * 2, sd=[[1.0, np.nan]] * 2), ["mean", "sd"]),
        (VonMises(mean=0.0), ["mean"]),
        (VonMises(concentration=[[1.0, np.nan]] * 2), ["concentration"]),
    ],
    ids=str,
)
def test_fixed_parameters_maximize_the_rest(family, names):
    source, X, weight = make("gamma" if isinstance(family, Gamma) else "von mises")
    assert type(source) is type(family)
    family.open(X, 2)
    sums = weight.T @ features(family, X)
    packed = family.maximize(sums, family.given_start(family.blank()), True)
    family.publish(packed, np.float64)
    free = np.ones_like(packed, bool)
    for i, name in enumerate(family.parameter_scales):
        value = getattr(family, name, None)
        if value is not None:
            value = np.broadcast_to(value, (2, 2))
            fixed = ~np.isnan(value)
            np.testing.assert_array_equal(
                getattr(family, f"{name}_")[fixed], value[fixed]
            )
            free[:, 2 * i : 2 * i + 2] = ~fixed
    assert set(names) == {
        n for n in family.parameter_scales if getattr(family, n, None) is not None
    }
    if isinstance(family, Gamma):
        free[:, 4:] = False
    assert family.n_parameters() == free.sum()
    best = np.sum(sums * family.theta(packed))
    rng = np.random.default_rng(1)
    for _ in range(100):
        near = packed * (1 + 1e-3 * rng.normal(size=packed.shape) * free)
        assert np.sum(sums * family.theta(near)) <= best + 1e-9 * abs(best)


def test_a_product_is_its_parts():
    rng = np.random.default_rng(0)
    states = np.repeat(rng.integers(2, size=60), 10)
    step = rng.gamma(4.0, np.where(states, 5.0, 1.0))
    angle = rng.vonmises(0.0, np.where(states, 9.0, 0.5))
    dives = rng.poisson(np.where(states, 1.0, 6.0))
    X = np.column_stack([angle, step, dives])
    product = Product(
        [
            ("step", Gamma(), [1]),
            ("angle", VonMises(mean=0.0), [0]),
            ("n", Poisson(), [2]),
        ]
    )
    model = VRHMM(2, emission=product, random_state=0).fit(X)
    agree = np.mean(model.predict(X) == states)
    assert max(agree, 1 - agree) > 0.95
    np.testing.assert_array_equal(model.emission_["angle"].mean_, 0.0)
    parts = model.emission_.parts_
    assert model.n_parameters_ == 3 + 4 + 2 + 2
    joint = sum(
        features(parts[name], X[:, [j]]) @ parts[name].theta(parts[name].parameters()).T
        for name, j in (("step", 1), ("angle", 0), ("n", 2))
    )
    whole = (
        features(model.emission_, X)
        @ model.emission_.theta(model.emission_.parameters()).T
    )
    np.testing.assert_allclose(whole, joint)
    X[5, 1] = X[9, 2] = np.nan
    X[11] = np.nan
    again = VRHMM(2, emission=product, random_state=0).fit(X)
    assert np.isfinite(again.score(X)) and again.pseudo_residuals(X).shape == X.shape
    assert again.sample(10)[0].shape == (10, 3)
    model.relabel([1, 0])
    np.testing.assert_array_equal(
        model.emission_["step"].mean_, parts["step"].mean_[[1, 0]]
    )


def test_a_product_over_names_and_its_parameters():
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    states = np.repeat([0, 1] * 10, 15)
    frame = pd.DataFrame(
        {
            "ID": np.repeat(np.arange(10), 30),
            "depth": 5.0 * states + rng.normal(size=300),
            "end": (rng.random(300) < 0.1 + 0.5 * states).astype(float),
        }
    )
    product = Product([("d", Gaussian(), ["depth"]), ("e", Bernoulli(), ["end"])])
    model = VRHMM(2, emission=product, groups="ID", random_state=0)
    model.set_params(emission__d__covariance_type="full").fit(frame)
    assert model.emission_["d"].covariance_.shape == (2, 1, 1)
    assert "depth mean" in model.summary().columns


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([], "must be a list"),
        ([("a", Gaussian(), [0, 0]), ("b", Gaussian(), [1])], "one part only"),
        ([("a", Gaussian(), [0]), ("b", Gaussian(), [0, 1])], r"several take \[0\]"),
        ([("a", Gaussian(), [0]), ("a", Gaussian(), [1])], "Two parts"),
        ([("a", Gaussian(), [0]), ("b", Gaussian(), [5])], "part 'b'=5 is the number"),
        ([("a", Gaussian(), ["x"]), ("b", Gaussian(), [1])], "'x' names a column"),
        ([("a", "gaussian", [0, 1])], "must be a family"),
    ],
)
def test_parts_that_do_not_add_up(parts, message):
    X = np.random.default_rng(0).normal(size=(30, 2))
    with pytest.raises(ValueError, match=message):
        VRHMM(2, emission=Product(parts)).fit(X)


@pytest.mark.parametrize(
    ("emission", "message"),
    [
        (Gamma(), "positive numbers .* row 3, column 0 holds 0"),
        (Gamma(zero=0.5), "zero of Gamma is of zero_inflated=True"),
        (Gamma(mean=-1.0), "between"),
        (VonMises(mean=7.0), "between"),
        (VonMises(), "radians"),
    ],
    ids=str,
)
def test_bad_values(emission, message):
    X = np.random.default_rng(0).gamma(2.0, 9.0, size=(30, 1))
    X[3] = 0.0
    with pytest.raises(ValueError, match=message):
        VRHMM(2, emission=emission).fit(X)


@pytest.mark.parametrize("largest", [1e9, 1e15, 1e300])
def test_numbers_are_no_codes(largest):
    """They would be as many categories, which no memory holds."""
    X = np.array([[0.0], [1.0], [largest]])
    with pytest.raises(ValueError, match="OrdinalEncoder"):
        VRHMM(2, emission=Categorical()).fit(X)


@pytest.mark.parametrize("n_rows", [0, 1, 63, 64, 200])
@pytest.mark.parametrize("d", [1, 3, 70])
def test_rows_less_their_centre(n_rows, d):
    rng = np.random.default_rng(0)
    X, row = rng.normal(size=(n_rows, d)), rng.normal(size=d)
    for rows in (X, X.astype(np.float32), np.asfortranarray(X), X[::-1]):
        found = minus_row(rows, row)
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found, rows.astype(float) - row)
