"""Families of one's own: by their density, or by their sufficient statistics."""

import pickle
from functools import cache

import numpy as np
import pytest
from scipy import stats

from skvrem import VRHMM
from skvrem.hmm import DensityEmission, Emission, Gaussian, Poisson, Product
from skvrem.hmm._model import differences
from tests.hmm.oracle import recursions
from tests.hmm.own_emissions import (
    Exponential,
    NegativeBinomial,
    Normal,
    StudentT,
    Weibull,
)

SOLVERS = "auto", "batch", "stochastic", "svrg", "saga", "incremental"
STATES = np.random.default_rng(0).integers(2, size=60).repeat(20)


def rows(family):
    rng, s = np.random.default_rng(1), STATES
    drawn = {
        Exponential: lambda: rng.exponential(np.array([1.0, 20.0])[s]),
        Normal: lambda: rng.normal(np.array([0.0, 5.0])[s], np.array([1.0, 2.0])[s]),
        StudentT: lambda: np.array([500.0, 506.0])[s] + rng.standard_t(4.0, s.size),
        NegativeBinomial: lambda: rng.negative_binomial(np.array([3, 9])[s], 0.3),
        Weibull: lambda: np.array([1.0, 500.0])[s] * rng.weibull(2.0, s.size),
    }
    return np.asarray(drawn[family](), float)[:, None]


FAMILIES = Exponential, Normal, StudentT, NegativeBinomial, Weibull
EACH = pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.__name__)


def fit(family, **options):
    options = {"random_state": 0, "n_init": 1, "tol": 1e-8} | options
    return VRHMM(2, emission=family(), **options).fit(rows(family))


@cache
def best(family):
    """Return a fit that is only asked."""
    return fit(family)


def densities(model, X):
    family, parameters = model.emission_, model.emission_.parameters()
    if isinstance(family, Exponential):
        return stats.expon.logpdf(X[:, None], scale=1.0 / family.rate_).sum(axis=2)
    return family.log_density(X[:, None], *family._split(parameters)).sum(axis=2)


@EACH
def test_the_likelihood_is_that_of_recursions(family):
    model, X = fit(family, max_iter=50), rows(family)
    joint = densities(model, X)
    total, *_ = recursions(joint, model.startprob_, model.transmat_)
    assert model.score(X) == pytest.approx(total.sum() / len(X), rel=1e-10)
    assert model.objective_ == pytest.approx(model.score(X), rel=1e-12)


@EACH
def test_a_fit_ends_where_the_likelihood_is_largest(family):
    model, X = fit(family, tol=1e-12), rows(family)
    assert model.converged_
    packed = model.emission_.parameters()

    def likelihood(logs):
        moved = (packed.ravel() * np.exp(logs)).reshape(packed.shape)
        other = pickle.loads(pickle.dumps(model))
        other.emission_.publish(moved, float)
        return other.score(X)

    slope = differences(lambda u: np.array([likelihood(u)]), np.zeros(packed.size))
    np.testing.assert_allclose(slope, 0.0, atol=2e-5 * max(1.0, packed.max()))


@EACH
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("solver", SOLVERS)
def test_every_solver_fits_them(family, solver):
    found = fit(family, solver=solver, max_iter=60)
    assert found.objective_ == pytest.approx(best(family).objective_, abs=3e-3)


@pytest.mark.filterwarnings("ignore:The rows say nothing of")  # of the first state
def test_a_density_comes_to_what_closed_forms_do():
    X = rows(Normal)
    X[::13] = np.nan
    options = {"n_init": 1, "random_state": 0, "tol": 1e-10}
    ours = VRHMM(2, emission=Normal(), **options).fit(X)
    other = VRHMM(2, emission=Gaussian(reg_covar=0.0), **options).fit(X)
    assert ours.objective_ == pytest.approx(other.objective_, abs=1e-9)
    np.testing.assert_allclose(ours.emission_.mean_, other.means_, atol=1e-3)
    np.testing.assert_allclose(
        ours.emission_.sd_**2, other.emission_.covariance_, rtol=1e-3
    )
    np.testing.assert_array_equal(ours.predict(X), other.predict(X))
    low, high = (m.confidence_intervals(X).lower.emission for m in (ours, other))
    np.testing.assert_allclose(low.mean_, high.mean_, atol=2e-3)


def test_weights_known_states_and_streams():
    X, y = rows(Normal), STATES
    options = {"n_init": 1, "random_state": 0}
    labels = np.where(np.arange(len(y)) % 3 == 0, y, -1)
    for data in ({"y": labels}, {"sample_weight": np.full(len(X), 2.0)}):
        ours = VRHMM(2, emission=Normal(), **options).fit(X, **data)
        other = VRHMM(2, emission=Gaussian(reg_covar=0.0), **options).fit(X, **data)
        assert ours.objective_ == pytest.approx(other.objective_, abs=1e-7)
    stream = VRHMM(2, emission=Normal(), random_state=0)
    for start in range(0, len(X), 200):
        stream.partial_fit(X[start : start + 200])
    assert stream.score(X) > VRHMM(1, random_state=0).fit(X).score(X) + 0.1


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_as_a_part_of_a_product():
    rng = np.random.default_rng(2)
    X = np.hstack([rows(StudentT), rng.poisson(np.array([2.0, 9.0])[STATES])[:, None]])
    parts = [("t", StudentT(), [0]), ("count", Poisson(), [1])]
    options = {"random_state": 0, "n_init": 1}
    model = VRHMM(2, emission=Product(parts), **options).fit(X)
    t, count = (model.emission_[name] for name in ("t", "count"))
    values = np.array([t.location_, t.scale_, t.df_])
    joint = t.log_density(X[:, None, :1], *values)[:, :, 0]
    joint = joint + stats.poisson.logpmf(X[:, None, 1], count.rate_[:, 0])
    total, *_ = recursions(joint, model.startprob_, model.transmat_)
    assert model.score(X) == pytest.approx(total.sum() / len(X), rel=1e-9)
    assert (model.predict(X) == STATES).mean() in (
        pytest.approx(0.0, abs=0.05),
        pytest.approx(1.0, abs=0.05),
    )
    for solver in ("svrg", "incremental"):
        other = VRHMM(2, emission=Product(parts), solver=solver, max_iter=30, **options)
        assert other.fit(X).objective_ == pytest.approx(model.objective_, abs=3e-3)


@EACH
def test_what_follows_from_draws(family):
    model, X = best(family), rows(family)
    drawn, states = model.sample(4000, random_state=1)
    mean, variance = model.emission_.moments(model.emission_.parameters())
    for state in (0, 1):
        own = drawn[states == state]
        assert own.mean() == pytest.approx(mean[state, 0], rel=0.15, abs=0.15)
        assert own.std() == pytest.approx(np.sqrt(variance[state, 0]), rel=0.5)
    residuals = model.pseudo_residuals(X)
    assert abs(residuals.mean()) < 0.1 and residuals.std() == pytest.approx(1, abs=0.1)
    assert np.isfinite(model.forecast(X, 3)[0]).all()
    assert f"{next(iter(model.emission_.parameter_scales))}" in str(model.summary())
    again = pickle.loads(pickle.dumps(model))
    assert again.score(X) == model.score(X)


def test_tails_of_draws_are_near_those_of_the_distribution():
    model, X = fit(StudentT), rows(StudentT)
    family, parameters = model.emission_, model.emission_.parameters()
    exact = family.tails(X[:50, 0], 0, parameters)
    drawn = DensityEmission.__mro__[1].tails(family, X[:50, 0], 0, parameters)
    np.testing.assert_allclose(drawn, exact, atol=0.05)
    np.testing.assert_allclose(np.add(*exact), 1.0)
    family, parameters = NegativeBinomial().open(np.ones((3, 1)), 1), np.array([[2, 3]])
    below, above = family.tails(np.array([0.0, 2.0]), 0, parameters)
    chance = stats.nbinom.pmf([0, 1, 2], 3, 0.6)
    np.testing.assert_allclose(
        below[:, 0], [chance[0] / 2, chance[:2].sum() + chance[2] / 2]
    )
    np.testing.assert_allclose(above, 1.0 - below)


def test_given_parameters_are_kept():
    X = rows(Normal)
    fixed = Normal(mean=[[0.5], [np.nan]], sd=1.5)
    model = VRHMM(2, emission=fixed, random_state=0).fit(X)
    assert model.emission_.mean_[0] == 0.5 and (model.emission_.sd_ == 1.5).all()
    assert model.emission_.n_parameters() == 1
    free = model.emission_.mean_[1, 0]
    assert model.score(X) > VRHMM(
        2, emission=Normal(mean=[[0.5], [free + 0.1]], sd=1.5), random_state=0
    ).fit(X).score(X)
    with pytest.raises(ValueError, match="sd of Normal must lie between"):
        VRHMM(2, emission=Normal(sd=-1.0)).fit(X)
    rate = VRHMM(2, emission=Exponential(rate=[[1.0], [np.nan]]), random_state=0)
    assert rate.fit(rows(Exponential)).emission_.rate_[0] == 1.0


def test_sums_that_no_rows_have_are_no_estimates():
    family = Exponential().open(rows(Exponential), 2)
    before = np.array([[0.2], [0.02]])
    wrong = np.array([[300.0, -881.0], [299.0, 7460.0]])
    assert family.maximize(wrong, before, False) is None
    right = family.maximize(np.abs(wrong), before, False)
    np.testing.assert_allclose(right, [[300.0 / 881.0], [299.0 / 7460.0]], rtol=1e-4)


def test_what_is_missing_from_a_family_is_named():
    class Half(DensityEmission):
        parameter_scales = {"mean": "location"}

        def log_density(self, x, mean):
            return -np.abs(x - mean)

    class Nothing(Emission):
        pass

    X = np.arange(6.0)[:, None]
    with pytest.raises(TypeError, match="Half must define sample: see"):
        VRHMM(1, emission=Half()).fit(X)
    with pytest.raises(TypeError, match="parameter_scales and sufficient and theta"):
        VRHMM(1, emission=Nothing()).fit(X)
    with pytest.raises(ValueError, match="need counts"):
        VRHMM(1, emission=NegativeBinomial()).fit(X + 0.5)


def test_values_without_density_are_named():
    X = rows(Weibull)
    X[7] = -1.0
    with pytest.raises(ValueError, match="Row 7 of X"):
        VRHMM(2, emission=Weibull(), n_init=1, random_state=0).fit(np.abs(X)).score(X)


@pytest.mark.parametrize(
    ("support", "good", "bad"),
    [
        ("positive", [0.5, 3.0, np.nan], 0.0),
        ("nonnegative", [0.0, 3.0, np.nan], -0.1),
        ("angle", [-3.0, 6.2, np.nan], 6.4),
        ("count", [0.0, 3.0, np.nan], 1.5),
        ("event", [0.0, 1.0, np.nan], 2.0),
    ],
)
def test_a_support_refuses_other_values(support, good, bad):
    family = Normal()
    family.support = support
    family.check(np.array(good)[:, None])
    with pytest.raises(ValueError, match=r"Normal emissions need .*: row 3, column 0"):
        family.check(np.array([*good, bad])[:, None])
    with pytest.raises(ValueError, match="Normal emissions need"):
        family.check(np.array([*good, -np.inf])[:, None])
