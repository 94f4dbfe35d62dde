"""Families that ship beside the first ones, and what all take of users."""

from functools import cache

import numpy as np
import pytest
from scipy import stats
from sklearn.exceptions import ConvergenceWarning

from skvrem import VRHMM
from skvrem.exceptions import CollapsedComponentWarning
from skvrem.hmm import (
    Bernoulli,
    Binomial,
    Categorical,
    DensityEmission,
    Exponential,
    Gamma,
    Gaussian,
    Homogeneous,
    LogNormal,
    MixtureGaussian,
    Multinomial,
    NegativeBinomial,
    Poisson,
    Product,
    Regression,
    StudentT,
    VonMises,
    Weibull,
    WrappedCauchy,
    ZeroInflatedPoisson,
)
from skvrem.hmm._input import fitted_parameters, open_rows
from skvrem.hmm.emissions.densities._responses import Positive
from tests.hmm.oracle import check_gradient, recursions
from tests.hmm.test_emissions import features

SOLVERS = "batch", "stochastic", "svrg", "saga", "incremental"
STATES = np.random.default_rng(0).integers(2, size=60).repeat(20)


def zip_density(f, X):
    x = X[:, None]
    counts = np.log1p(-f.zero_) + stats.poisson.logpmf(x, f.rate_)
    return np.where(x == 0, np.logaddexp(np.log(f.zero_), counts), counts).sum(axis=2)


def cauchy_density(f, X):
    turned = np.mod(X[:, None] - f.mean_, 2 * np.pi)
    return stats.wrapcauchy.logpdf(turned, f.concentration_).sum(axis=2)


def nbinom_density(f, X):
    p = f.size_ / (f.size_ + f.mean_)
    return stats.nbinom.logpmf(X[:, None], f.size_, p).sum(axis=2)


def multinomial_density(f, X):
    n = X.sum(axis=1)
    return np.column_stack([stats.multinomial.logpmf(X, n, p) for p in f.probability_])


def summed(log_density):
    return lambda f, X: log_density(f, X[:, None]).sum(axis=2)


# Family, rows by state, log-density by scipy, true parameters
CASES = {
    "exponential": (
        Exponential,
        lambda rng, s: rng.exponential(np.array([1.0, 20.0])[s]),
        summed(lambda f, x: stats.expon.logpdf(x, scale=1 / f.rate_)),
        {"rate": [0.05, 1.0]},
    ),
    "log-normal": (
        LogNormal,
        lambda rng, s: rng.lognormal(np.array([0.0, 3.0])[s], np.array([0.5, 1.0])[s]),
        summed(lambda f, x: stats.lognorm.logpdf(x, f.sd_, scale=np.exp(f.mean_))),
        {"mean": [0.0, 3.0], "sd": [0.5, 1.0]},
    ),
    "negative binomial": (
        NegativeBinomial,
        lambda rng, s: rng.negative_binomial(np.array([3, 9])[s], 0.3),
        nbinom_density,
        {"mean": [7.0, 21.0]},
    ),
    "zero-inflated poisson": (
        ZeroInflatedPoisson,
        lambda rng, s: (
            rng.poisson(np.array([2.0, 9.0])[s]) * (rng.random(s.size) > 0.3)
        ),
        zip_density,
        {"rate": [2.0, 9.0], "zero": [0.3, 0.3]},
    ),
    "binomial": (
        lambda **given: Binomial(12, **given),
        lambda rng, s: rng.binomial(12, np.array([0.2, 0.6])[s]),
        summed(lambda f, x: stats.binom.logpmf(x, 12, f.probability_)),
        {"probability": [0.2, 0.6]},
    ),
    "multinomial": (
        Multinomial,
        lambda rng, s: rng.multinomial(
            6, np.array([[0.6, 0.3, 0.1], [0.2] * 2 + [0.6]])[s]
        ),
        multinomial_density,
        {"probability": [0.2, 0.6]},
    ),
    "t": (
        StudentT,
        lambda rng, s: np.array([500.0, 506.0])[s] + rng.standard_t(4.0, s.size),
        summed(lambda f, x: stats.t.logpdf(x, f.df_, f.location_, f.scale_)),
        {"location": [500.0, 506.0]},
    ),
    "weibull": (
        Weibull,
        lambda rng, s: np.array([1.0, 50.0])[s] * rng.weibull(2.0, s.size),
        summed(lambda f, x: stats.weibull_min.logpdf(x, f.shape_, scale=f.scale_)),
        {"scale": [1.0, 50.0], "shape": [2.0, 2.0]},
    ),
    "wrapped cauchy": (
        WrappedCauchy,
        lambda rng, s: np.angle(
            np.exp(
                1j * (3.0 * s + np.array([0.1, 0.4])[s] * rng.standard_cauchy(s.size))
            )
        ),
        cauchy_density,
        {"mean": [0.0, 3.0]},
    ),
}
EACH = pytest.mark.parametrize("name", CASES)


def rows(name):
    X = np.asarray(CASES[name][1](np.random.default_rng(1), STATES), float)
    return X[:, None] if X.ndim == 1 else X


def fit(name, given=None, X=None, **options):
    options = {"random_state": 0, "n_init": 1, "tol": 1e-9} | options
    family = CASES[name][0](**(given or {}))
    return VRHMM(2, emission=family, **options).fit(rows(name) if X is None else X)


@cache
def best(name):
    """Return a fit that is only asked."""
    return fit(name)


@EACH
def test_the_likelihood_is_that_of_recursions(name):
    model, X = best(name), rows(name)
    joint = CASES[name][2](model.emission_, X)
    total, *_ = recursions(joint, model.startprob_, model.transmat_)
    assert model.score(X) == pytest.approx(total.sum() / len(X), rel=1e-9)


CLOSED = "exponential", "log-normal", "zero-inflated poisson", "binomial", "multinomial"


@pytest.mark.parametrize("name", CLOSED)
def test_means_of_features_are_those_of_draws(name):
    family, n = best(name).emission_, 40_000
    packed, states = family.parameters(), np.repeat([0, 1], n)
    drawn = family.draw(packed, states, np.random.default_rng(0))
    found = features(family, family.enter(drawn)).reshape(2, n, -1)
    # What tells the states apart; the others are of no account.
    told = np.ptp(family.theta(packed), axis=0) > 0.0
    assert told.any()
    mean, sd = found.mean(axis=1)[:, told], found.std(axis=1)[:, told]
    expected = family.expected(packed)[:, told]
    assert (np.abs(expected - mean) < 5.0 * sd / np.sqrt(n) + 1e-12).all()


@EACH
def test_parameters_are_found_again(name):
    model = best(name)
    for parameter, expected in CASES[name][3].items():
        found = np.sort(getattr(model.emission_, f"{parameter}_")[:, 0])
        np.testing.assert_allclose(found, expected, rtol=0.2, atol=0.12)
    agree = np.mean(model.predict(rows(name)) == STATES)
    assert max(agree, 1.0 - agree) > 0.8


@EACH
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_gradient_is_that_of_the_likelihood(name):
    check_gradient(fit(name, max_iter=3), rows(name))


@EACH
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_fits_end_where_the_gradient_is_zero(name):
    model, X = fit(name, tol=1e-12, max_iter=200), rows(name)
    _, data, inner = open_rows(model, X)
    point = inner.start(fitted_parameters(model))
    gradient = inner.gradient(point, inner.mean(point, data))
    cut = inner.n_chain_coordinates()
    assert np.abs(gradient[cut:]).max() < 1e-5


@EACH
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("solver", SOLVERS)
def test_every_solver_comes_to_the_same(name, solver):
    expected = best(name).objective_
    found = fit(name, solver=solver, max_iter=60).objective_
    assert found == pytest.approx(expected, abs=3e-3)


@EACH
def test_missing_rows_say_nothing(name):
    X = rows(name)
    holes = X.copy()
    holes[::7] = np.nan
    model = fit(name, X=holes)
    joint = CASES[name][2](model.emission_, np.where(np.isnan(holes), X, holes))
    joint[::7] = 0.0
    total, *_ = recursions(joint, model.startprob_, model.transmat_)
    assert model.score(holes) == pytest.approx(total.sum() / len(X), rel=1e-9)
    assert np.isnan(model.pseudo_residuals(holes)[::7]).all()


@EACH
def test_given_parameters_are_kept(name):
    free = best(name).emission_
    first = next(iter(free.parameter_scales))
    value = np.array(getattr(free, f"{first}_"), float)
    value[1] = np.nan
    model = fit(name, {first: value})
    kept = getattr(model.emission_, f"{first}_")
    np.testing.assert_array_equal(kept[0], value[0])
    n_free = free.n_parameters() // 2
    per_state = n_free // len(free.parameter_scales)
    assert model.emission_.n_parameters() == 2 * n_free - per_state
    assert model.objective_ == pytest.approx(best(name).objective_, abs=1e-3)


@EACH
@pytest.mark.filterwarnings("ignore:The rows say nothing of")  # of the first state
def test_residuals_draws_and_intervals(name):
    model, X = best(name), rows(name)
    residuals = model.pseudo_residuals(X)
    assert abs(residuals.mean()) < 0.1 and residuals.std() == pytest.approx(1, abs=0.2)
    drawn, states = model.sample(20_000, random_state=1)
    assert drawn.shape == (20_000, X.shape[1])
    mean, variance = model.emission_.moments(model.emission_.parameters())
    if name != "wrapped cauchy":
        for state in (0, 1):
            own = drawn[states == state]
            close = 6 * own.std(axis=0) / np.sqrt(len(own))
            assert (abs(own.mean(axis=0) - mean[state]) < close + 1e-9).all()
            np.testing.assert_allclose(own.var(axis=0), variance[state], rtol=0.35)
    model.emission_.check(drawn)
    intervals = model.confidence_intervals(X)
    for parameter, expected in CASES[name][3].items():
        low, high = (
            getattr(end.emission, f"{parameter}_")[:, 0]
            for end in (intervals.lower, intervals.upper)
        )
        order = np.argsort(getattr(model.emission_, f"{parameter}_")[:, 0])
        inside = (low[order] - 0.1 * abs(np.array(expected)) - 0.05 <= expected) & (
            high[order] + 0.1 * abs(np.array(expected)) + 0.05 >= expected
        )
        assert inside.all()


@pytest.mark.parametrize(
    "name", ["negative binomial", "t", "weibull", "wrapped cauchy"]
)
def test_derivatives_are_those_of_differences(name):
    family = CASES[name][0]().open(rows(name), 2)
    packed = family.maximize(
        family.collect(rows(name), np.ones((1200, 2)), family.blank()),
        family.blank(),
        True,
    )
    u, x = family._coordinates(packed) + 0.05, rows(name)[:60]
    u[1] -= 0.1
    exact = family._expand(x, u, [None] * 3)
    eta = family._predictors(u, [None] * 3)
    values, slopes, curves = family._differences(x[:, None], eta)
    np.testing.assert_allclose(exact[0], values, rtol=1e-10)
    for found, expected in zip(exact[1], slopes, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    # Of t, curvatures of location and scale are those of EM's surrogate.
    surrogate = {0, 1, 3} if name == "t" else ()
    for k, (found, expected) in enumerate(zip(exact[2], curves, strict=True)):
        if k in surrogate:
            assert (found <= 0.0).all()
        else:
            np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


@EACH
@pytest.mark.parametrize("init_params", ["kmeans", "random"])
def test_batch_steps_do_not_lower_the_likelihood(name, init_params):
    model = fit(name, solver="batch", init_params=init_params)
    assert np.diff(model.history_["objective"]).min() > -1e-7


@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("factor", [1, 40])  # 40: few values, but large
def test_a_table_of_counts_is_what_rows_are(columns, factor):
    rng = np.random.default_rng(0)
    X = factor * rng.permuted(np.repeat(rows("negative binomial"), columns, 1), axis=0)
    X[rng.random(X.shape) < 0.1] = np.nan
    packed = np.repeat([[6.0, 2.0], [20.0, 4.0]], columns, axis=1)
    packed *= rng.uniform(0.5, 2.0, packed.shape)
    family = NegativeBinomial().open(X, 2)
    weights = rng.random((len(X), 2))
    table = family.columns(X, True, packed), family.collect(X, weights, packed)
    values, codes = family._table(X, [None])
    np.testing.assert_array_equal(np.sort(values[:, 0]), np.unique(X[~np.isnan(X)]))
    own = np.where(codes < 0, np.nan, values[codes, 0])
    np.testing.assert_array_equal(own, X)
    family.discrete = False
    each = family.columns(X, True, packed), family.collect(X, weights, packed)
    np.testing.assert_allclose(table[0], each[0], rtol=1e-12)
    np.testing.assert_allclose(table[1], each[1], rtol=1e-9, atol=1e-8)


@pytest.mark.parametrize(
    "odd", [0.5, -1.0, 1e9, np.inf], ids=["half", "negative", "huge", "infinite"]
)
def test_there_is_no_table_of_other_than_counts(odd):
    family, X = NegativeBinomial(), np.ones((50, 1))
    assert family._table(X, [None]) is not None
    X[7] = odd
    assert family._table(X, [None]) is None
    assert family._table(np.arange(50.0)[:, None], [None]) is None  # of no use
    assert family._table(np.full((50, 1), np.nan), [None]) is None


@pytest.mark.parametrize(
    "family, x, parameters",
    [
        (NegativeBinomial, [0.0, 3.0, 90.0], [[1.0, 4.0, 1.0], [2.0, 2.0, 500.0]]),
        (
            StudentT,
            [-2.0, 0.1, 8.0],
            [[1.0, 4.0, 1.0], [2.0, 2.0, 5.0], [3.0, 9.0, 9.0]],
        ),
        (Weibull, [0.1, 3.0, 9.0], [[1.0, 4.0, 1.0], [2.0, 2.0, 5.0]]),
        (WrappedCauchy, [-2.0, 0.1, 3.0], [[1.0, -2.0, 1.0], [0.2, 0.2, 0.9]]),
        (Positive, [0.1, 3.0, 9.0], [[1.0, 4.0, 1.0], [2.0, 2.0, 5.0]]),
    ],
)
def test_parameters_of_rows_are_those_of_each(family, x, parameters):
    """Of rows, states and columns, or the same for all of these, in any order."""
    family, x, parameters = family(), np.array(x), np.array(parameters)
    alone = []
    for row in range(3):
        here, slopes, curves = family.derivatives(x[row], *parameters[:, row])
        alone.append([here, *slopes, *curves])
        assert family.log_density(x[row], *parameters[:, row]) == here
    for axis in range(3):
        shape = np.where(np.arange(3) == axis, 3, 1)
        spread = [part.reshape(shape) for part in (x, *parameters)]
        here, slopes, curves = family.derivatives(*spread)
        found = np.stack([here, *slopes, *curves])
        assert found.shape[1:] == tuple(shape)
        np.testing.assert_array_equal(found.reshape(-1, 3).T, alone)
    both = family.derivatives(x[:, None, None], *parameters[:, None, :, None])[0]
    assert both.shape == (3, 3, 1)
    np.testing.assert_array_equal(
        np.diagonal(both[:, :, 0]), np.ravel(alone)[:: len(alone[0])]
    )


def test_trials_may_be_a_column():
    rng = np.random.default_rng(2)
    trials = rng.integers(5, 30, size=STATES.size)
    x = rng.binomial(trials, np.array([0.2, 0.6])[STATES])
    X = np.column_stack([trials, x])
    options = {"random_state": 0, "n_init": 1}
    model = VRHMM(2, emission=Binomial([0]), **options).fit(X)
    joint = stats.binom.logpmf(
        x[:, None], trials[:, None], model.emission_.probability_[:, 0]
    )
    total, *_ = recursions(joint, model.startprob_, model.transmat_)
    assert model.score(X) == pytest.approx(total.sum() / len(X), rel=1e-9)
    assert model.pseudo_residuals(X).shape == (len(X), 1)
    drawn, _ = model.sample(500, covariates=X[:500])
    assert (drawn[:, 0] <= trials[:500]).all()
    ahead = model.forecast(X, 2, covariates=[[10, np.nan], [1000, np.nan]])
    assert ahead.mean[0, 1, 0] > 10 * ahead.mean[0, 0, 0]
    with pytest.raises(ValueError, match="counts from 0 to the number of trials"):
        VRHMM(2, emission=Binomial([1]), **options).fit(X)


def test_units_of_trials_are_their_deviations():
    family = Binomial(12).open(np.full((3, 2), 12.0), 2)
    shares = np.array([[0.1, 0.5], [0.7, 0.95]])
    deviations = np.sqrt(12.0 * shares * (1.0 - shares))
    found = family.spread(shares)
    np.testing.assert_allclose(found[:, 2:4], deviations)
    np.testing.assert_allclose(found[:, 4:6], deviations)


def test_counts_without_zeros_are_poisson():
    """Fewer zeros than Poisson's leave the mean as the rate, and inflate none."""
    X = 1.0 + np.random.default_rng(5).poisson(0.4, (400, 1))
    model = VRHMM(1, emission=ZeroInflatedPoisson(), random_state=0).fit(X)
    assert model.emission_.rate_[0, 0] == pytest.approx(X.mean(), rel=1e-6)
    assert model.emission_.zero_[0, 0] == 0.0


def test_bernoulli_rows_are_a_trial_each():
    rng = np.random.default_rng(3)
    X = (rng.random(1200) < np.array([0.1, 0.8])[STATES])[:, None] + 0.0
    options = {"random_state": 0, "n_init": 1, "tol": 1e-10}
    one = VRHMM(2, emission=Binomial(1), **options).fit(X)
    other = VRHMM(2, emission=Bernoulli(), **options).fit(X)
    assert one.objective_ == pytest.approx(other.objective_, abs=1e-9)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_many_categories_are_looked_up():
    rng = np.random.default_rng(4)
    X = np.where(STATES, rng.integers(0, 25, 1200), rng.integers(15, 40, 1200))[:, None]
    X = X.astype(float)
    X[5] = np.nan
    options = {"random_state": 0, "n_init": 1, "tol": 1e-9}
    model = VRHMM(2, emission=Categorical(40, prior=1.5), **options).fit(X)
    assert model.emission_.follows
    codes = np.where(np.isnan(X), 0, X)[:, 0].astype(int)
    joint = np.log(model.emissionprob_[:, codes]).T
    joint[5] = 0.0
    total, *_ = recursions(joint, model.startprob_, model.transmat_)
    assert model.score(X) == pytest.approx(total.sum() / len(X), rel=1e-9)
    agree = np.mean(model.predict(X) == STATES)
    assert max(agree, 1 - agree) > 0.9
    ahead = model.forecast(X, 3).probability
    np.testing.assert_allclose(ahead.sum(axis=2), 1.0)
    for solver in SOLVERS:
        options = {"random_state": 0, "n_init": 1, "solver": solver, "max_iter": 40}
        other = VRHMM(2, emission=Categorical(40, prior=1.5), **options).fit(X)
        assert other.objective_ == pytest.approx(model.objective_, abs=2e-2)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_few_and_many_categories_are_fitted_alike(monkeypatch):
    from skvrem.hmm.emissions.discrete import _categories

    X = np.random.default_rng(5).integers(0, 9, (600, 1))
    options = {"random_state": 0, "n_init": 1, "solver": "batch", "max_iter": 5}
    found = []
    for few in (16, 1):
        monkeypatch.setattr(_categories, "FEW", few)
        found.append(VRHMM(2, emission="categorical", tol=0.0, **options).fit(X))
    np.testing.assert_allclose(*(m.emissionprob_ for m in found), rtol=1e-9)
    assert found[0].objective_ == pytest.approx(found[1].objective_, rel=1e-12)


# Angles


class Cardioid(DensityEmission):
    """Angles whose moments are averages over draws."""

    parameter_scales = {"mean": "direction", "length": "probability"}
    support = "angle"

    def __init__(self, mean=None, length=None):
        self.mean, self.length = mean, length

    def log_density(self, x, mean, length):
        return np.log1p(length * np.cos(x - mean)) - np.log(2 * np.pi)

    def sample(self, rng, mean, length):
        u = 2 * np.pi * rng.random((50, *np.shape(mean))) - np.pi
        kept = 2.0 * rng.random(u.shape) < 1.0 + length * np.cos(u)
        first = np.take_along_axis(u, kept.argmax(axis=0)[None], axis=0)[0]
        return np.angle(np.exp(1j * (first + mean)))


FACING = [[3.0], [-2.9]]
ANGULAR = {
    "von mises": lambda: VonMises(FACING, concentration=[[8.0], [4.0]]),
    "uniform": lambda: VonMises([[3.0], [1.0]], concentration=[[8.0], [0.0]]),
    "wrapped cauchy": lambda: WrappedCauchy(FACING, concentration=[[0.9], [0.6]]),
    "by draws": lambda: Cardioid(FACING, [[0.9], [0.9]]),
    "regression": lambda: Regression(
        "vonmises",
        [1],
        intercept=np.tan(0.5 * np.array(FACING)),
        coef=[[[0.5]], [[0.0]]],
        fixed={"concentration": [[8.0], [4.0]]},
    ),
    "product": lambda: Product(
        [
            ("length", Gamma(mean=[[1.0], [9.0]], sd=[[1.0], [2.0]]), [0]),
            ("angle", VonMises(FACING, concentration=[[8.0], [4.0]]), [1]),
        ]
    ),
}


@pytest.mark.parametrize("name", ANGULAR)
@pytest.mark.parametrize("share", [0.5, 0.8])
def test_forecasts_of_angles_are_circular(name, share):
    """The mean of 3 and -2.9 is near pi, in a state and between states."""
    hmm = VRHMM(
        2,
        emission=ANGULAR[name](),
        startprob=[share, 1.0 - share],
        transitions=Homogeneous(fixed=[[share, 1.0 - share]] * 2),
    )
    n, how = 200_000, {}
    if name == "regression":
        how = {"covariates": np.column_stack([np.zeros(n), np.full(n, -1.0)])}
    X, _ = hmm.sample(n, random_state=0, **how)
    rows = X[:50]
    if name == "regression":
        rows = np.column_stack([X, np.full(n, -1.0)])[:50]
        how = {"covariates": rows[:3]}
    ahead = hmm.forecast(rows, 3, **how)
    resultant = np.exp(1j * X[:, -1]).mean()
    off = np.angle(np.exp(1j * (ahead.mean[0, :, -1] - np.angle(resultant))))
    close = 0.03 if name == "by draws" else 0.01
    assert np.abs(off).max() < 2.0 * close
    assert (np.abs(ahead.mean[..., -1]) <= np.pi).all()
    spread = np.sqrt(-2.0 * np.log(np.abs(resultant)))
    np.testing.assert_allclose(ahead.sd[0, :, -1], spread, rtol=close)
    if name == "product":
        np.testing.assert_allclose(ahead.mean[0, :, 0], X[:, 0].mean(), rtol=0.02)
        np.testing.assert_allclose(ahead.sd[0, :, 0], X[:, 0].std(), rtol=0.02)


def test_angles_without_a_mean_have_no_end_of_spread():
    hmm = VRHMM(1, emission=VonMises([[1.0]], concentration=[[0.0]]), startprob=[1.0])
    hmm.set_params(transitions=Homogeneous(fixed=[[1.0]]))
    assert hmm.forecast([[0.3], [2.0]]).sd.item() == np.inf


# What is given in part


@pytest.mark.filterwarnings("ignore:The rows say nothing of")  # of the first state
def test_covariances_are_free_where_they_are_nan():
    X = np.random.default_rng(6).normal(size=(1200, 2)) * (1.0 + 3.0 * STATES[:, None])
    X = X + 5.0 * STATES[:, None]
    options = {"random_state": 0, "n_init": 1}
    start = {"mean_init": [[0.0, 0.0], [5.0, 5.0]]}
    for kind, given in {
        "diag": [[1.0, np.nan], [np.nan, 9.0]],
        "spherical": [1.0, np.nan],
        "full": [np.eye(2), np.full((2, 2), np.nan)],
    }.items():
        family = Gaussian(kind, covariance=given, **start)
        model = VRHMM(2, emission=family, **options).fit(X)
        known = ~np.isnan(np.asarray(given))
        found = model.emission_.covariance_
        np.testing.assert_array_equal(found[known], np.asarray(given)[known])
        free = {"diag": 2, "spherical": 1, "full": 3}[kind]
        assert model.emission_.n_parameters() == 4 + free
        lbfgs = VRHMM(2, emission=family, acceleration="lbfgs", **options).fit(X)
        assert lbfgs.objective_ == pytest.approx(model.objective_, abs=1e-5)
        errors = model.confidence_intervals(X).standard_error.emission.covariance_
        assert (errors[known] == 0.0).all() and (errors[~known] > 0.0).all()


def test_probabilities_and_first_states_are_free_where_they_are_nan():
    rng = np.random.default_rng(7)
    X = np.where(STATES, rng.integers(0, 2, 1200), rng.integers(1, 4, 1200))[:, None]
    given = [[0.5, np.nan, np.nan, 0.0], [np.nan] * 4]
    model = VRHMM(
        2,
        emission=Categorical(4, probability=given),
        startprob=[np.nan, 0.25],
        random_state=0,
        n_init=1,
    ).fit(X, lengths=[400, 800])
    found = model.emissionprob_
    np.testing.assert_array_equal(found[0, [0, 3]], [0.5, 0.0])
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    np.testing.assert_array_equal(model.startprob_, [0.75, 0.25])
    assert model.emission_.n_parameters() == 1 + 3
    three = VRHMM(3, startprob=[0.5, np.nan, np.nan], random_state=0, n_init=1)
    three.fit(X + rng.normal(size=X.shape), lengths=[100] * 12)
    assert three.startprob_[0] == 0.5 and three.startprob_.sum() == pytest.approx(1.0)


@pytest.mark.filterwarnings("ignore:The rows say nothing of")  # of the first state
def test_mixtures_may_be_given_in_part():
    rng = np.random.default_rng(8)
    X = (
        np.where(STATES, 8.0, 0.0)
        + rng.choice([-2.0, 2.0], 1200)
        + rng.normal(size=1200)
    )
    nan = np.nan
    family = MixtureGaussian(
        2,
        weight=[[0.5, 0.5], [nan, nan]],
        mean=[[[-2.0], [2.0]], [[nan], [nan]]],
        covariance=[[[1.0], [nan]], [[nan], [nan]]],
    )
    model = VRHMM(2, emission=family, random_state=0, n_init=4).fit(X[:, None])
    np.testing.assert_array_equal(model.emission_.weight_[0], 0.5)
    np.testing.assert_array_equal(model.emission_.mean_[0, :, 0], [-2.0, 2.0])
    assert model.emission_.covariance_[0, 0, 0] == 1.0
    assert model.emission_.n_parameters() == 0 + 1 + 0 + 1 + 2 + 2
    np.testing.assert_allclose(
        np.sort(model.emission_.mean_[1, :, 0]), [6, 10], atol=0.4
    )
    intervals = model.confidence_intervals(X[:, None])
    assert (intervals.standard_error.emission.mean_[0] == 0.0).all()
    lbfgs = VRHMM(2, emission=family, random_state=0, n_init=4, acceleration="lbfgs")
    assert lbfgs.fit(X[:, None]).objective_ == pytest.approx(model.objective_, abs=1e-4)


def test_gammas_of_a_given_spread():
    X = np.random.default_rng(9).gamma(4.0, np.where(STATES, 5.0, 1.0))[:, None]
    options = {"random_state": 0, "n_init": 1, "tol": 1e-9}
    model = VRHMM(2, emission=Gamma(sd=[[2.0], [10.0]]), **options).fit(X)
    np.testing.assert_array_equal(model.emission_.sd_.ravel(), [2.0, 10.0])
    np.testing.assert_allclose(model.emission_.mean_.ravel(), [4.0, 20.0], rtol=0.15)
    X[::5] = 0.0
    zero = VRHMM(2, emission=Gamma(True, zero=[[0.2], [np.nan]]), **options).fit(X)
    assert zero.emission_.zero_[0, 0] == 0.2
    assert zero.emission_.zero_[1, 0] == pytest.approx(0.2, abs=0.05)


# Priors


def test_priors_of_counts_are_rows_that_were_not_seen():
    X = np.random.default_rng(10).poisson(np.where(STATES, 9.0, 2.0))[:, None]
    prior = Poisson(rate_prior=[[1.0], [20.0]], rate_weight=300.0)
    options = {"random_state": 0, "n_init": 1, "tol": 1e-12, "max_iter": 2000}
    model = VRHMM(2, emission=prior, **options).fit(X)
    weight = model.predict_proba(X).sum(axis=0)
    sums = model.predict_proba(X).T @ X
    expected = (sums + 300.0 * np.array([[1.0], [20.0]])) / (weight[:, None] + 300.0)
    np.testing.assert_allclose(model.lambdas_, expected, rtol=1e-4)
    lbfgs = VRHMM(2, emission=prior, acceleration="lbfgs", **options).fit(X)
    assert lbfgs.objective_ == pytest.approx(model.objective_, abs=1e-7)
    assert model.objective_ != model.log_likelihood_


@pytest.mark.parametrize("kind", ["diag", "spherical", "full", "tied"])
def test_priors_of_gaussian_states_are_conjugate(kind):
    rng = np.random.default_rng(11)
    X = rng.normal(size=(1200, 2)) + 6.0 * STATES[:, None]
    shape = {"diag": (2, 2), "spherical": (2,), "full": (2, 2, 2), "tied": (2, 2)}[kind]
    squares = np.broadcast_to(
        4.0 * np.eye(2) if kind in ("full", "tied") else 4.0, shape
    )
    prior = Gaussian(
        kind,
        mean_prior=[[-1.0, -1.0], [9.0, 9.0]],
        mean_weight=200.0,
        covariance_prior=squares,
        covariance_weight=100.0,
        mean_init=[[0.0, 0.0], [6.0, 6.0]],
        reg_covar=0.0,
    )
    options = {"random_state": 0, "n_init": 1, "tol": 1e-12}
    model = VRHMM(2, emission=prior, **options).fit(X)
    gamma = model.predict_proba(X)
    weight, mean = gamma.sum(axis=0)[:, None], np.array([[-1.0, -1.0], [9.0, 9.0]])
    expected = (gamma.T @ X + 200.0 * mean) / (weight + 200.0)
    np.testing.assert_allclose(model.means_, expected, rtol=1e-5)
    scatter = np.stack(
        [
            ((X - m).T * g) @ (X - m) + 200.0 * np.outer(m - p, m - p)
            for m, p, g in zip(expected, mean, gamma.T, strict=True)
        ]
    )
    added = 400.0 * np.eye(2)
    if kind == "tied":
        want = np.broadcast_to((scatter.sum(axis=0) + added) / 1300.0, (2, 2, 2))
    else:
        want = (scatter + added) / (weight[:, :, None] + 100.0)
    if kind in ("diag", "spherical"):
        want = want * np.eye(2)
    if kind == "spherical":
        want = np.eye(2) * np.trace(want, axis1=1, axis2=2)[:, None, None] / 2.0
    np.testing.assert_allclose(model.covars_, want, rtol=1e-4, atol=1e-8)
    lbfgs = VRHMM(2, emission=prior, acceleration="lbfgs", **options).fit(X)
    assert lbfgs.objective_ == pytest.approx(model.objective_, abs=1e-7)


NAN = np.nan
IN_PART = {
    "gaussian prior": (
        Gaussian(mean_prior=[[3.0], [3.0]], mean_weight=100.0, covariance_weight=80.0),
        lambda rng: rng.normal(size=1200) + 6.0 * STATES,
    ),
    "gaussian variance": (
        Gaussian(covariance=[[1.5], [NAN]], mean_init=[[0.0], [6.0]]),
        lambda rng: rng.normal(size=1200) + 6.0 * STATES,
    ),
    "poisson prior": (
        Poisson(rate_prior=5.0, rate_weight=200.0),
        lambda rng: rng.poisson(np.where(STATES, 9.0, 2.0)),
    ),
    "codes": (
        Categorical(3, probability=[[0.6, NAN, NAN], [NAN, NAN, NAN]]),
        lambda rng: (rng.random(1200) > np.where(STATES, 0.9, 0.5)) + 0.0,
    ),
    "code priors": (
        Categorical(2, prior=[[30.0, 1.0], [1.0, 1.0]]),
        lambda rng: (rng.random(1200) > np.where(STATES, 0.9, 0.3)) + 0.0,
    ),
    "zeros": (
        Gamma(
            True,
            zero=[[0.3], [NAN]],
            mean_init=[[4.0], [36.0]],
            sd_init=[[2.0], [18.0]],
        ),
        lambda rng: (
            rng.gamma(4.0, np.where(STATES, 9.0, 1.0)) * (rng.random(1200) > 0.3)
        ),
    ),
}


@pytest.mark.parametrize("name", IN_PART)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("solver", ["svrg", "saga", "incremental", "stochastic"])
def test_every_solver_knows_priors_and_what_is_given_in_part(name, solver):
    family, draw = IN_PART[name]
    X = np.asarray(draw(np.random.default_rng(13)), float)[:, None]
    options = {"random_state": 0, "n_init": 1}
    best = VRHMM(2, emission=family, tol=1e-9, max_iter=2000, **options).fit(X)
    found = VRHMM(2, emission=family, solver=solver, max_iter=80, **options).fit(X)
    assert found.objective_ == pytest.approx(best.objective_, abs=1e-2)
    assert found.n_parameters_ == best.n_parameters_


def test_hmmlearn_has_the_same_prior():
    hmmlearn = pytest.importorskip("hmmlearn.hmm")
    X = np.random.default_rng(12).normal(size=(400, 1)) + 5.0 * STATES[:400, None]
    theirs = hmmlearn.GaussianHMM(
        2,
        "diag",
        means_prior=np.ones((2, 1)),
        means_weight=30.0,
        covars_prior=50.0,
        covars_weight=11.0,
        init_params="",
        n_iter=500,
        tol=1e-10,
        min_covar=0.0,
    )
    theirs.startprob_, theirs.transmat_ = np.full(2, 0.5), np.full((2, 2), 0.5)
    theirs.means_, theirs.covars_ = np.array([[0.0], [5.0]]), np.ones((2, 1))
    theirs.fit(X)
    ours = Gaussian(
        mean_prior=[[1.0], [1.0]],
        mean_weight=30.0,
        covariance_prior=[[5.0], [5.0]],
        covariance_weight=10.0,
        mean_init=[[0.0], [5.0]],
        covariance_init=np.ones((2, 1)),
        reg_covar=0.0,
    )
    model = VRHMM(
        2,
        emission=ours,
        transitions=Homogeneous(init=np.full((2, 2), 0.5)),
        random_state=0,
        tol=1e-12,
    ).fit(X)
    np.testing.assert_allclose(model.means_, theirs.means_, rtol=1e-4)
    np.testing.assert_allclose(model.covars_, theirs.covars_, rtol=1e-4)


@pytest.mark.parametrize(
    ("family", "X", "message"),
    [
        (Exponential(), -1.0, "positive numbers or 0"),
        (LogNormal(), 0.0, "positive numbers"),
        (Weibull(), 0.0, "positive numbers"),
        (NegativeBinomial(), 0.5, "counts"),
        (ZeroInflatedPoisson(), -1.0, "counts"),
        (Multinomial(), 0.5, "counts"),
        (Binomial(3), 4.0, "number of trials"),
        (WrappedCauchy(), 9.0, "radians"),
        (Poisson(rate_prior=-1.0), 1.0, "rate_prior"),
        (Categorical(prior=0.5), 1.0, "prior of Categorical"),
        (VonMises(concentration=-1.0), 1.0, "between"),
    ],
    ids=str,
)
def test_bad_values(family, X, message):
    rows = np.ones((30, 1))
    rows[3] = X
    with pytest.raises(ValueError, match=message):
        VRHMM(2, emission=family).fit(rows)


def test_all_density_families_have_exact_derivatives():
    from skvrem.hmm import emissions

    for name in emissions.__all__:
        family = getattr(emissions, name)
        if issubclass(family, DensityEmission) and family is not DensityEmission:
            assert hasattr(family, "derivatives") or name == "Regression"


def test_starts_do_not_chase_what_rows_do_not_tell():
    """Rows of all states have light tails, and states may yet have heavy ones."""
    X = np.arcsinh(np.random.default_rng(0).normal(size=(600, 1)))
    hmm = VRHMM(2, emission=StudentT(), max_iter=1, n_init=1, random_state=0)
    with pytest.warns(ConvergenceWarning):
        hmm.fit(X)
    assert hmm.emission_.df_.max() < 1e4


def test_shapes_that_nothing_tells_end_a_fit_as_soon_as_others():
    """Of light tails and of counts that vary as Poisson's, more is hardly better."""
    rng = np.random.default_rng(2)
    states = np.repeat(np.arange(200) % 2, 20)[:, None]
    shapes = {
        StudentT: rng.normal(2.0 * states, 1.0 + states),
        NegativeBinomial: rng.poisson(2.0 + 5.0 * states),
    }
    for family, X in shapes.items():
        hmm = VRHMM(2, emission=family(), n_init=1, random_state=0).fit(X)
        assert hmm.n_iter_ < 30


def test_starts_look_at_some_rows_of_every_cluster():
    class Counted(StudentT):
        def collect(self, X, weights, parameters):
            seen.append(len(X))
            return super().collect(X, weights, parameters)

    seen = []
    X = np.random.default_rng(0).normal(np.repeat([[0.0], [9.0]], 10_000, axis=0))
    X[-50:] = 40.0 + np.arange(50.0)[:, None] / 50.0  # in a cluster of their own
    hmm = VRHMM(3, emission=Counted(), max_iter=1, n_init=1, random_state=0)
    with pytest.warns(ConvergenceWarning):
        hmm.fit(X)
    assert max(seen[:-2]) < 3 * 1100
    assert hmm.emission_.location_.max() > 40.0


@pytest.mark.parametrize("family", [StudentT, Weibull, WrappedCauchy])
def test_states_of_one_value_end(family):
    rng = np.random.default_rng(0)
    states = np.repeat(np.arange(60) % 3, 20)
    X = np.exp(rng.normal(states - 1.5, 0.3))
    X[states == 2] = 2.7
    hmm = VRHMM(3, emission=family(), random_state=0)
    with pytest.warns(CollapsedComponentWarning, match=r": \d \(400 rows\)"):
        hmm.fit(X[:, None])
    assert hmm.n_iter_ < 50
    assert (hmm.predict(X[:, None]).reshape(-1, 20).std(axis=1) == 0.0)[2::3].all()


@pytest.mark.parametrize(
    "family",
    [StudentT, Weibull, LogNormal, Gamma, VonMises, WrappedCauchy, "regression"],
)
def test_states_on_few_rows_of_one_value_are_named(family):
    rng = np.random.default_rng(0)
    X = rng.normal(3.0 * np.repeat(np.arange(60) % 2, 50), 0.3)[:, None]
    X[1000:1015] = 9.0
    if family in (Weibull, LogNormal, Gamma):
        X = np.exp(X)
    if family in (VonMises, WrappedCauchy):
        X = np.angle(np.exp(0.5j * X))
    if family == "regression":
        X = np.column_stack([X, rng.normal(size=(3000, 2))])
        X[1000:1015, 0] = 9.0 + 5.0 * X[1000:1015, 1]

    def make():
        return family() if callable(family) else Regression("gaussian", [1, 2])

    match = r"states of .*: \d \(15 rows\)"
    with pytest.warns(CollapsedComponentWarning, match=match):
        VRHMM(3, emission=make(), n_init=1, random_state=0).fit(X)
    found = VRHMM(3, emission=make(), random_state=0).fit(X)  # others come before it
    assert found.predict_proba(X).sum(axis=0).min() > 30.0
    # What users give is theirs.
    width = {StudentT: "scale", Weibull: "shape", LogNormal: "sd", Gamma: "sd"}
    if family in width:
        given = family(**{width[family]: [[1.0], [1.0], [1.0]]})
        VRHMM(3, emission=given, n_init=1, random_state=0).fit(X)


def test_narrow_states_of_many_rows_are_found():
    """As zeros of a rounded scale are, which come again."""
    rng = np.random.default_rng(0)
    states = np.repeat(np.arange(60) % 3, 20)
    for family in (LogNormal, Gamma):
        X = np.exp(rng.normal(states - 1.5, 0.3))
        X[states == 2] = 2.7
        hmm = VRHMM(3, emission=family(), random_state=0)
        with pytest.warns(CollapsedComponentWarning, match=r": \d \(400 rows\)"):
            hmm.fit(X[:, None])
        assert (hmm.predict(X[:, None]).reshape(-1, 20).std(axis=1) == 0.0)[2::3].all()
        assert hmm.emission_.sd_.min() < 1e-3


@pytest.mark.parametrize("families", [(LogNormal, Gamma), (Gaussian, LogNormal)])
def test_narrow_states_of_parts_are_named(families):
    """As of the families alone: of Gaussians the least width is a parameter."""
    rng = np.random.default_rng(0)
    states = np.repeat(np.arange(60) % 3, 20)
    X = np.exp(rng.normal(states - 1.5, 0.3))
    X[states == 2] = 2.7
    X = np.column_stack([X, rng.gamma(4.0, 1.0 + states)])
    parts = [(f"part {j}", family(), [j]) for j, family in enumerate(families)]
    hmm = VRHMM(3, emission=Product(parts), random_state=0)
    if Gaussian in families:
        hmm.fit(X)
    else:
        with pytest.warns(CollapsedComponentWarning, match=r": \d \(400 rows\)"):
            hmm.fit(X)


def test_columns_without_width_are_fitted_by_gamma():
    X = 1e6 + np.random.default_rng(0).normal(size=(300, 1))
    found = VRHMM(2, emission=Gamma(), random_state=0).fit(X)
    assert np.isfinite(found.log_likelihood_)


# Annual flow of the Nile at Aswan, 1871 to 1970, in 10^8 m^3 (Cobb 1978).
NILE = """1120 1160 963 1210 1160 1160 813 1230 1370 1140 995 935 1110 994 1020 960 1180
799 958 1140 1100 1210 1150 1250 1260 1220 1030 1100 774 840 874 694 940 833 701 916 692
1020 1050 969 831 726 456 824 702 1120 1100 832 764 821 768 845 864 862 698 845 744 796
1040 759 781 865 845 944 984 897 822 1010 771 676 649 846 812 742 801 1040 860 874 848
890 744 749 838 1050 918 986 797 923 975 815 1020 906 901 1170 912 746 919 718 714 740
"""


@pytest.mark.parametrize("family", [LogNormal, Gamma])
@pytest.mark.parametrize("seed", [1, 4])
def test_states_of_single_rows_lose_to_others(family, seed):
    """Those that come down to one are ahead of all others before they are there."""
    X = np.array(NILE.split(), float)[:, None]
    # A warning of what has collapsed is an error.
    found = VRHMM(3, emission=family(), random_state=seed).fit(X)
    assert found.predict_proba(X).sum(axis=0).min() > 2.0
    assert -630.0 < found.log_likelihood_ * len(X) < -625.0


def test_states_of_no_more_rows_than_columns_are_named():
    """They lie on a plane; rows whose columns are sums of others do everywhere."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 5))
    X[40:44] += 30.0
    emission = Gaussian("full")
    with pytest.warns(CollapsedComponentWarning, match=r"states of .* \(4 rows\)"):
        VRHMM(2, emission=emission, n_init=1, random_state=0).fit(X)
    found = VRHMM(2, emission=emission, random_state=0).fit(X)  # others come before it
    assert found.predict_proba(X).sum(axis=0).min() > 5.0
    X[40:44] -= 30.0
    X[:40] += 2.0
    VRHMM(2, emission=emission, random_state=0).fit(np.column_stack([X, X.sum(axis=1)]))


def test_rates_of_states_of_zeros_end():
    """Of zeros alone an exponential distribution has no likeliest rate."""
    rng = np.random.default_rng(0)
    X = rng.exponential(np.repeat([1.0, 50.0], 300))[:, None]
    X[100:120] = 0.0
    X[::40] = 0.0
    for seed in range(3):
        hmm = VRHMM(3, emission=Exponential(), random_state=seed).fit(X)
        assert hmm.n_iter_ < 50
        assert hmm.emission_.rate_.max() < 1e6


class Inverse(DensityEmission):
    """Waiting times of rates, whose unit is one over theirs."""

    parameter_scales = {"rate": "positive"}
    support = "positive"

    def log_density(self, x, rate):
        return np.log(rate) - rate * x

    def sample(self, rng, rate):
        return rng.exponential(1.0 / rate)


@pytest.mark.parametrize("unit", [1e30, 1e-6])
def test_a_search_for_starting_values_does_not_depend_on_units(unit):
    rng = np.random.default_rng(0)
    X = rng.exponential(np.where(np.repeat([0, 1, 0], 100), 30.0, 1.0))[:, None]
    expected, found = (
        VRHMM(2, emission=Inverse(), random_state=0, n_init=1).fit(rows).score(rows)
        for rows in (X, unit * X)
    )
    assert found + np.log(unit) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("mean", [1300.0, 1e5])
def test_large_counts_have_as_many_states_as_small_ones(mean):
    rng, states = np.random.default_rng(0), np.repeat([0, 1, 0], 100)
    means = np.array([mean, 1.4 * mean])
    X = rng.poisson(rng.gamma(60.0, means[states] / 60.0))[:, None].astype(float)
    start = NegativeBinomial(mean_init=means[:, None], size_init=[[60.0], [60.0]])
    told = VRHMM(2, emission=start, random_state=0).fit(X)
    found = VRHMM(2, emission=NegativeBinomial(), random_state=0).fit(X)
    assert found.score(X) > told.score(X) - 1e-5
