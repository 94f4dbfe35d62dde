"""Confidence intervals, against textbook formulas and the likelihood's curvature."""

import numpy as np
import pytest
from scipy.special import ndtri

from skvrem import VRHMM
from skvrem.hmm import (
    Bernoulli,
    Categorical,
    Gaussian,
    Homogeneous,
    Poisson,
    Product,
    Regression,
    VonMises,
    WrappedCauchy,
)

Z = ndtri(0.975)


def test_one_gaussian_is_the_textbook():
    rng = np.random.default_rng(0)
    X = 50.0 + rng.normal(size=(400, 2)) * [1.0, 3.0]
    found = VRHMM(reg_covar=0.0).fit(X).confidence_intervals(X)
    sd = X.std(axis=0)
    error = found.standard_error.emission
    np.testing.assert_allclose(error.mean_[0], sd / 20.0, rtol=1e-5)
    np.testing.assert_allclose(
        error.covariance_[0], sd**2 * np.sqrt(2.0 / 400), rtol=1e-5
    )
    np.testing.assert_allclose(
        found.lower.emission.mean_[0], X.mean(axis=0) - Z * sd / 20.0, rtol=1e-7
    )
    # Of a variance the interval of its logarithm.
    ratio = found.upper.emission.covariance_[0] / sd**2
    np.testing.assert_allclose(ratio, np.exp(Z * np.sqrt(2.0 / 400)), rtol=1e-5)
    np.testing.assert_array_equal(found.standard_error.transmat, 0.0)
    assert found.lower.transmat == 1.0 == found.upper.startprob


@pytest.mark.parametrize("emission", ["full", "poisson", "bernoulli", "categorical"])
def test_one_state_of_other_families(emission):
    rng = np.random.default_rng(1)
    if emission == "full":
        X = rng.normal(size=(500, 2)) @ [[1.0, 0.5], [0.0, 2.0]]
        model = VRHMM(emission=Gaussian("full", reg_covar=0.0)).fit(X)
        c = model.emission_.covariance_[0]
        wanted = np.sqrt((np.outer(np.diag(c), np.diag(c)) + c**2) / 500)
        error = model.confidence_intervals(X).standard_error.emission
        np.testing.assert_allclose(error.covariance_[0], wanted, rtol=1e-5)
        np.testing.assert_allclose(error.mean_[0], np.sqrt(np.diag(c) / 500), rtol=1e-5)
        return
    X = rng.poisson(3.0, (500, 1))
    X = np.minimum(X, {"bernoulli": 1, "categorical": 2}.get(emission, X.max()))
    model = VRHMM(emission=emission).fit(X)
    found = model.confidence_intervals(X, level=0.9)
    if emission == "poisson":
        rate = model.emission_.rate_[0, 0]
        assert found.standard_error.emission.rate_ == pytest.approx(np.sqrt(rate / 500))
        upper = rate * np.exp(ndtri(0.95) / np.sqrt(500 * rate))
        assert found.upper.emission.rate_ == pytest.approx(upper)
        return
    p = model.emission_.probability_[0]
    error, upper = (f.emission.probability_[0] for f in (found[2], found[1]))
    np.testing.assert_allclose(error, np.sqrt(p * (1 - p) / 500), rtol=1e-5)
    odds = np.log(p / (1 - p)) + ndtri(0.95) / np.sqrt(500 * p * (1 - p))
    np.testing.assert_allclose(upper, 1 / (1 + np.exp(-odds)), rtol=1e-5)


@pytest.fixture(scope="module")
def two():
    rng = np.random.default_rng(2)
    lengths = [30] * 20
    first = rng.random(20) < 0.4
    states = np.concatenate(
        [(s + np.cumsum(rng.random(30) < 0.15)) % 2 for s in first]
    ).astype(int)
    X = np.array([0.0, 2.0])[states, None] + rng.normal(size=(600, 1))
    emission = Gaussian(covariance=[[1.0], [1.0]], mean_init=[[0.0], [2.0]])
    return VRHMM(2, emission=emission, n_init=1, tol=1e-12), X, lengths


def test_two_states_have_the_curvature_of_their_likelihood(two):
    model, X, lengths = two
    model.fit(X, lengths=lengths)
    error = model.confidence_intervals(X, lengths=lengths).standard_error

    # mean, mean, p01, p10, start: second differences of the likelihood itself.
    def likelihood(v):
        other = VRHMM(
            2,
            emission=Gaussian(covariance=[[1.0], [1.0]], mean_init=[[v[0]], [v[1]]]),
            transitions=Homogeneous(init=[[1 - v[2], v[2]], [v[3], 1 - v[3]]]),
            startprob_init=[v[4], 1 - v[4]],
            n_init=1,
            max_iter=0,
        ).fit(X, lengths=lengths)
        return other.score(X, lengths=lengths) * len(X)

    at = np.array([*model.means_.ravel(), model.transmat_[0, 1], model.transmat_[1, 0]])
    at = np.append(at, model.startprob_[0])
    steps, hessian = np.eye(5) * 2e-3, np.empty((5, 5))
    for i in range(5):
        for j in range(i + 1):
            a, b = steps[i], steps[j]
            four = [(a + b, 1), (a - b, -1), (b - a, -1), (-a - b, 1)]
            second = sum(sign * likelihood(at + move) for move, sign in four)
            hessian[i, j] = hessian[j, i] = second / (4 * 2e-3**2)
    wanted = np.sqrt(np.diag(np.linalg.inv(-hessian)))
    found = [*error.emission.mean_.ravel(), error.transmat[0, 1], error.transmat[1, 0]]
    np.testing.assert_allclose([*found, error.startprob[0]], wanted, rtol=2e-3)
    np.testing.assert_array_equal(error.emission.covariance_, 0.0)


def test_boundaries_are_nan():
    rng = np.random.default_rng(0)
    states = np.repeat([0, 1], 200)
    X = 5.0 * states[:, None] + rng.normal(size=(400, 1))
    model = VRHMM(2, random_state=0).fit(X)  # it never goes back, and starts once
    model.relabel(np.argsort(model.means_.ravel()))
    with pytest.warns(UserWarning, match="say nothing"):
        found = model.confidence_intervals(X)
    error = found.standard_error
    assert np.isnan(error.startprob).all() and np.isnan(error.transmat[1]).all()
    assert np.isfinite(error.transmat[0]).all()
    np.testing.assert_allclose(error.emission.mean_.ravel(), 1 / np.sqrt(200), rtol=0.1)
    masked = VRHMM(
        2,
        startprob=[1, 0],
        transitions=Homogeneous("left-right"),
        emission=Gaussian(mean_init=[[0.0], [5.0]]),
    ).fit(X)
    error = masked.confidence_intervals(X).standard_error
    assert error.transmat[1].tolist() == [0.0, 0.0] and error.transmat[0, 0] > 0.0


def test_weights_fixed_parameters_and_bad_levels(two):
    model, X, lengths = two
    model.fit(X, lengths=lengths)
    once = model.confidence_intervals(X, lengths=lengths)
    weighted = model.confidence_intervals(
        X, lengths=lengths, sample_weight=np.full(600, 4.0)
    )
    np.testing.assert_allclose(
        2.0 * weighted.standard_error.transmat, once.standard_error.transmat, rtol=1e-6
    )
    for level in (0.0, 1.0, True):
        with pytest.raises(ValueError, match="level must lie"):
            model.confidence_intervals(X, level, lengths=lengths)
    fixed = VRHMM(
        2,
        emission=Bernoulli(probability=[[0.1], [0.9]]),
        transitions=Homogeneous(fixed=np.full((2, 2), 0.5)),
        startprob=[0.5, 0.5],
    ).fit(X > 1.0)
    found = fixed.confidence_intervals(X > 1.0)
    assert found.lower.emission.probability_.tolist() == [[0.1], [0.9]]


def test_intervals_of_products_and_categories():
    rng = np.random.default_rng(4)
    states = rng.integers(2, size=60).repeat(10)
    X = np.column_stack(
        [4.0 * states + rng.normal(size=600), rng.poisson(2 + 5 * states)]
    )
    product = Product([("n", Poisson(), [1]), ("x", Gaussian(), [0])])
    model = VRHMM(2, emission=product, n_init=1, random_state=0).fit(
        X, lengths=[60] * 10
    )
    found = model.confidence_intervals(X, lengths=[60] * 10)
    for part, name in (("n", "rate_"), ("x", "mean_")):
        lower, upper = (getattr(f.emission[part], name) for f in found[:2])
        value = getattr(model.emission_[part], name)
        assert (lower < value).all() and (value < upper).all()
    codes = VRHMM(emission=Categorical(prior=2.0)).fit((X[:, :1] > 2.0).astype(int))
    assert np.isfinite(
        codes.confidence_intervals(X[:, :1] > 2.0)[2].emission.probability_
    ).all()


def of_mean(found, part=None):
    """Lower and upper end of every mean angle, and its standard error."""
    return [
        (f.emission if part is None else f.emission[part]).mean_.ravel() for f in found
    ]


@pytest.mark.parametrize("family", [VonMises, WrappedCauchy])
@pytest.mark.parametrize("around", [3.1, -3.1, np.pi])
def test_ends_of_angles_are_not_wrapped(family, around):
    rng = np.random.default_rng(0)
    apart = rng.vonmises(0.0, 4.0, 60)
    apart = np.append(apart, -apart)  # so that the mean is `around`
    moved, X = (np.angle(np.exp(1j * (apart + to)))[:, None] for to in (0.2, around))
    model = VRHMM(emission=family(mean_init=around)).fit(X)
    low, high, error = of_mean(model.confidence_intervals(X))
    mean = model.emission_.mean_.ravel()
    assert low < mean < high and (low < -np.pi or high > np.pi)
    np.testing.assert_allclose([mean - low, high - mean], [Z * error] * 2)
    # As far from the cut, of which the likelihood knows nothing.
    wanted = VRHMM(emission=family(mean_init=0.2)).fit(moved)
    wanted = of_mean(wanted.confidence_intervals(moved))[2]
    np.testing.assert_allclose(error, wanted, rtol=1e-4)


@pytest.mark.parametrize("family", [VonMises, WrappedCauchy])
def test_an_angle_that_is_hardly_known_has_the_whole_circle(family):
    X = np.random.default_rng(1).uniform(-np.pi, np.pi, (300, 1))
    model = VRHMM(emission=family(), random_state=0).fit(X)
    found = model.confidence_intervals(X)
    low, high, error = of_mean(found)
    mean = model.emission_.mean_.ravel()
    assert Z * error > np.pi
    np.testing.assert_allclose([low, high], [mean - np.pi, mean + np.pi])
    # At no concentration rows say nothing of it, nor of the concentration.
    X = np.linspace(-np.pi, np.pi, 101)[1:, None]
    model = VRHMM(emission=family(), random_state=0).fit(X)
    with pytest.warns(UserWarning, match="are NaN, of angles the whole circle"):
        found = model.confidence_intervals(X)
    low, high, error = of_mean(found)
    mean = model.emission_.mean_.ravel()
    np.testing.assert_allclose([low, high], [mean - np.pi, mean + np.pi])
    assert np.isnan(error) and np.isnan(found.lower.emission.concentration_)
    fixed = VRHMM(emission=family(mean=3.0)).fit(X)
    with pytest.warns(UserWarning, match="are NaN\\."):
        found = of_mean(fixed.confidence_intervals(X))
    np.testing.assert_array_equal(found, [[3.0], [3.0], [0.0]])


def test_angles_of_parts_and_of_regressions_have_intervals_alike():
    rng = np.random.default_rng(2)
    z = rng.normal(size=400)
    angle = np.angle(np.exp(1j * (2.9 + rng.vonmises(0.0, np.exp(0.3 * z - 2.3)))))
    X = np.column_stack([angle, z])
    parts = [("turn", VonMises(), [0]), ("x", Gaussian(), [1])]
    model = VRHMM(emission=Product(parts), random_state=0).fit(X)
    alone = VRHMM(emission=VonMises(), random_state=0).fit(X[:, :1])
    found = of_mean(model.confidence_intervals(X), "turn")
    np.testing.assert_allclose(
        found, of_mean(alone.confidence_intervals(X[:, :1])), rtol=1e-4
    )
    spread = Regression("vonmises", covariates=[1], depends=["concentration"])
    model = VRHMM(emission=spread, random_state=0).fit(X)
    low, high, error = of_mean(model.confidence_intervals(X))
    mean, reach = model.emission_.mean_.ravel(), np.minimum(Z * error, np.pi)
    np.testing.assert_allclose([low, high], [mean - reach, mean + reach])
    assert low < -np.pi or high > np.pi
