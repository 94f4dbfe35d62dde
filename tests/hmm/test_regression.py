"""Emissions that depend on other columns of X."""

import warnings
from functools import cache

import numpy as np
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import GammaRegressor, LogisticRegression, PoissonRegressor
from sklearn.preprocessing import OneHotEncoder, SplineTransformer

from skvrem import VRHMM
from skvrem.exceptions import CollapsedComponentWarning
from skvrem.hmm import (
    Categorical,
    Covariates,
    DensityEmission,
    Gaussian,
    Homogeneous,
    NegativeBinomial,
    Poisson,
    Product,
    Regression,
    StudentT,
    Weibull,
    WrappedCauchy,
    add_lags,
)
from tests.hmm.oracle import check_gradient, enumerate_paths, recursions

SOLVERS = "batch", "stochastic", "svrg", "saga", "incremental"
N = 1500
STATES = np.random.default_rng(0).integers(2, size=N // 30).repeat(30)
Z = np.random.default_rng(1).normal([3.0, -50.0], [1.0, 20.0], (N, 2))
ETA = np.where(STATES, 0.8, -0.6) * (Z[:, 0] - 3.0) + 0.01 * (Z[:, 1] + 50.0)
ETA = ETA + np.where(STATES, 0.5, -0.5)
OPTIONS = {"random_state": 0, "n_init": 1, "tol": 1e-9}


def values(name):
    rng = np.random.default_rng(2)
    share = 1.0 / (1.0 + np.exp(-2.0 * ETA))
    return {
        "gaussian": lambda: ETA + 0.4 * rng.normal(size=N),
        "poisson": lambda: rng.poisson(np.exp(ETA + 1.0)),
        "bernoulli": lambda: rng.random(N) < share,
        "categorical": lambda: np.where(rng.random(N) < 0.3, 2, rng.random(N) < share),
        "gamma": lambda: rng.gamma(3.0, np.exp(ETA) / 3.0),
        "vonmises": lambda: rng.vonmises(2.0 * np.arctan(ETA), 6.0),
        "negative binomial": lambda: rng.negative_binomial(
            4, 4 / (4 + np.exp(ETA + 1.5))
        ),
    }[name]() + 0.0


FAMILIES = {
    "gaussian": "gaussian",
    "poisson": "poisson",
    "bernoulli": "bernoulli",
    "categorical": "categorical",
    "gamma": "gamma",
    "vonmises": "vonmises",
    "negative binomial": NegativeBinomial(),
}
EACH = pytest.mark.parametrize("name", FAMILIES)


def rows(name):
    return np.column_stack([values(name), Z])


def fit(name, X=None, alpha=0.0, given=None, **options):
    emission = Regression(FAMILIES[name], [1, 2], alpha=alpha, **(given or {}))
    model = VRHMM(2, emission=emission, **(OPTIONS | options))
    return model.fit(rows(name) if X is None else X)


@cache
def best(name, alpha=0.0):
    """Return a fit that is only asked."""
    return fit(name, alpha=alpha)


def densities(name, family, X):
    """Log-densities by scipy, (n_rows, n_states)."""
    y = X[:, 0, None]
    eta = np.einsum("tp,kop->tko", X[:, 1:], family.coef_) + family.intercept_
    mean = eta[:, :, 0]
    if name == "gaussian":
        return stats.norm.logpdf(y, mean, family.sd_[:, 0])
    if name == "poisson":
        return stats.poisson.logpmf(y, np.exp(mean))
    if name == "bernoulli":
        return stats.bernoulli.logpmf(y, 1.0 / (1.0 + np.exp(-mean)))
    if name == "gamma":
        shape = family.shape_[:, 0]
        return stats.gamma.logpdf(y, shape, scale=np.exp(mean) / shape)
    if name == "vonmises":
        kappa = family.concentration_[:, 0]
        return stats.vonmises.logpdf(y, kappa, loc=2.0 * np.arctan(mean))
    if name == "negative binomial":
        size = family.size_[:, 0]
        return stats.nbinom.logpmf(y, size, size / (size + np.exp(mean)))
    logits = np.concatenate([np.zeros_like(eta[:, :, :1]), eta], axis=2)
    shares = np.exp(logits) / np.exp(logits).sum(axis=2, keepdims=True)
    codes = X[:, 0].astype(int)
    return np.log(shares[np.arange(len(X)), :, codes])


@EACH
def test_the_likelihood_is_that_of_recursions(name):
    model, X = best(name), rows(name)
    joint = densities(name, model.emission_, X)
    total, *_ = recursions(joint, model.startprob_, model.transmat_)
    assert model.score(X) == pytest.approx(total.sum() / N, rel=1e-9)
    total, gamma, _, path, score = enumerate_paths(
        joint[:9], model.startprob_, model.transmat_
    )
    assert model.score_samples(X[:9]).sum() == pytest.approx(total, rel=1e-9)
    np.testing.assert_allclose(model.predict_proba(X[:9]), gamma, atol=1e-9)
    found = model.decode(X[:9])
    assert found[0] == pytest.approx(score, rel=1e-9)
    np.testing.assert_array_equal(found[1], path)


@EACH
def test_states_are_found_again(name):
    agree = np.mean(best(name).predict(rows(name)) == STATES)
    assert max(agree, 1.0 - agree) > 0.9


@EACH
@pytest.mark.parametrize("alpha", [0.0, 5.0])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_gradient_is_that_of_the_likelihood(name, alpha):
    check_gradient(fit(name, alpha=alpha, max_iter=2), rows(name))


@EACH
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("solver", [*SOLVERS, "lbfgs"])
def test_every_solver_comes_to_the_same(name, solver):
    options = {"solver": solver, "max_iter": 60}
    if solver == "lbfgs":
        options = {"acceleration": "lbfgs"}
    found = fit(name, alpha=1.0, **options).objective_
    assert found == pytest.approx(best(name, 1.0).objective_, abs=3e-3)


@EACH
@pytest.mark.parametrize("init_params", ["kmeans", "random"])
def test_batch_steps_do_not_lower_the_likelihood(name, init_params):
    model = fit(name, solver="batch", init_params=init_params, alpha=1.0)
    assert np.diff(model.history_["objective"]).min() > -1e-7


def test_gaussian_regressions_are_weighted_least_squares():
    X = rows("gaussian")
    model = fit("gaussian", tol=1e-13)
    gamma, design = model.predict_proba(X), np.column_stack([np.ones(N), Z])
    for state, w in enumerate(gamma.T):
        exact = np.linalg.solve((design.T * w) @ design, (design.T * w) @ X[:, 0])
        found = np.append(
            model.emission_.intercept_[state], model.emission_.coef_[state]
        )
        np.testing.assert_allclose(found, exact, rtol=1e-4, atol=1e-5)
        left = X[:, 0] - design @ exact
        sd = np.sqrt(w @ left**2 / w.sum())
        assert model.emission_.sd_[state, 0] == pytest.approx(sd, rel=1e-5)


@pytest.mark.parametrize("name", ["poisson", "gamma", "bernoulli", "categorical"])
def test_states_are_weighted_generalized_linear_models(name):
    X = rows(name)
    model = fit(name, tol=1e-13, max_iter=3000)
    exact = {"tol": 1e-10, "max_iter": 2000}
    own = {
        "poisson": lambda: PoissonRegressor(
            alpha=0.0, solver="newton-cholesky", **exact
        ),
        "gamma": lambda: GammaRegressor(alpha=0.0, solver="newton-cholesky", **exact),
    }.get(name, lambda: LogisticRegression(C=np.inf, solver="newton-cg", **exact))
    middle, scale = Z.mean(axis=0), Z.std(axis=0)
    for state, w in enumerate(model.predict_proba(X).T):
        glm = own().fit((Z - middle) / scale, X[:, 0], sample_weight=w)
        coef = np.atleast_2d(glm.coef_)
        if name == "categorical":
            coef = coef[1:] - coef[:1]
        found = model.emission_.coef_[state] * scale
        np.testing.assert_allclose(found, coef, atol=2e-3)


def test_ridge_shrinks_towards_zero():
    coef = [
        np.abs(fit("poisson", alpha=a).emission_.coef_).sum() for a in (0, 1e2, 1e6)
    ]
    assert coef[0] > coef[1] > coef[2] and coef[2] < 1e-2


@EACH
@pytest.mark.filterwarnings("ignore:The rows say nothing of")  # of the first state
def test_intervals_residuals_forecasts_and_draws(name):
    model, X = best(name), rows(name)
    residuals = model.pseudo_residuals(X)
    assert residuals.shape == (N, 1)
    discrete = name in ("bernoulli", "categorical", "poisson", "negative binomial")
    assert residuals.std() == pytest.approx(1.0, abs=0.45 if discrete else 0.05)
    intervals = model.confidence_intervals(X)
    low, high = (end.emission.coef_ for end in (intervals.lower, intervals.upper))
    assert (low < model.emission_.coef_).all() and (high > model.emission_.coef_).all()
    ahead = model.forecast(X, 4, covariates=X[:4])
    assert ahead.mean.shape == (1, 4, 1) and np.isfinite(ahead.sd).all()
    last = model.forecast(X, 2)
    same = model.forecast(X, 2, covariates=X[[-1, -1]])
    np.testing.assert_allclose(last.mean, same.mean)
    drawn, states = model.sample(N, random_state=3, covariates=X)
    assert drawn.shape == (N, 1)
    joint = densities(name, model.emission_, np.column_stack([drawn, Z]))
    assert np.isfinite(joint[np.arange(N), states]).all()
    again = fit(name, X=np.column_stack([drawn, Z]))
    agree = np.mean(again.predict(np.column_stack([drawn, Z])) == states)
    assert max(agree, 1.0 - agree) > 0.8
    assert any("x1" in column for column in map(str, model.summary().columns))
    with pytest.raises(ValueError, match="depend on columns of X"):
        model.sample(3)


@EACH
def test_missing_values_and_covariates_say_nothing(name):
    X = rows(name)
    X[::7, 0] = np.nan
    X[3::11, 1] = np.nan
    model = fit(name, X=X)
    joint = densities(name, model.emission_, np.where(np.isnan(X), 0.0, X))
    joint[np.isnan(X[:, :2]).any(axis=1)] = 0.0
    total, *_ = recursions(joint, model.startprob_, model.transmat_)
    assert model.score(X) == pytest.approx(total.sum() / N, rel=1e-8)


@EACH
@pytest.mark.filterwarnings("ignore:The rows say nothing of")
def test_given_coefficients_are_kept(name):
    free = best(name)
    coef, intercept = (
        np.array(getattr(free.emission_, f"{n}_")) for n in ("coef", "intercept")
    )
    coef[0, 0, 1] = 0.01
    wanted = np.full_like(coef, np.nan)
    wanted[0, 0] = coef[0, 0]
    begin = np.full_like(intercept, np.nan)
    begin[1, 0] = intercept[1, 0]
    given = {"coef": wanted, "intercept": begin, "coef_init": coef}
    model = fit(name, given=given)
    np.testing.assert_array_equal(model.emission_.coef_[0, 0], coef[0, 0])
    assert model.emission_.intercept_[1, 0] == intercept[1, 0]
    assert model.n_parameters_ == free.n_parameters_ - 3
    errors = model.confidence_intervals(rows(name)).standard_error.emission
    assert (errors.coef_[0, 0] == 0.0).all() and errors.intercept_[1, 0] == 0.0
    assert (errors.coef_[1] > 0.0).all()


def test_transformers_are_applied_again():
    rng = np.random.default_rng(4)
    hour = rng.integers(0, 24, N).astype(float)
    wave = np.where(STATES, 3.0 * np.sin(2 * np.pi * hour / 24), 0.0)
    X = np.column_stack([wave + 0.3 * rng.normal(size=N), hour])
    spline = SplineTransformer(
        8, knots=np.linspace(0, 24, 9)[:, None], extrapolation="periodic"
    )
    for transformer in (spline, OneHotEncoder()):
        emission = Regression("gaussian", [1], transformer=transformer)
        model = VRHMM(2, emission=emission, **OPTIONS).fit(X)
        agree = np.mean(model.predict(X) == STATES)
        assert max(agree, 1.0 - agree) > 0.85
        day = np.column_stack([np.full(24, np.nan), np.arange(24)])
        mean = model.forecast(X, 24, covariates=day).mean[0, :, 0]
        state = int(
            np.argmax(
                model.emission_.moments_at(
                    model.emission_.parameters(), model.emission_.enter(day)
                )[0][:, :, 0].std(axis=0)
            )
        )
        own = model.forecast(X, 24, covariates=day).states[0, :, state]
        expected = own * 3.0 * np.sin(2 * np.pi * np.arange(24) / 24)
        np.testing.assert_allclose(mean, expected, atol=0.35)
        assert model.emission_.coef_.shape[2] == (8 if transformer is spline else 24)


def test_autoregressions():
    rng = np.random.default_rng(5)
    x, slope = np.zeros(N), np.where(STATES, 0.9, -0.6)
    for t in range(1, N):
        x[t] = slope[t] * x[t - 1] + rng.normal()
    ids = np.repeat(np.arange(5), N // 5)
    X = np.column_stack([add_lags(x[:, None], 2, groups=ids), ids])
    model = VRHMM(2, emission=Regression("gaussian", [1, 2]), groups=3, **OPTIONS).fit(
        X
    )
    found = np.sort(model.emission_.coef_[:, 0, 0])
    np.testing.assert_allclose(found, [-0.6, 0.9], atol=0.15)
    joint = np.where(
        np.isnan(X[:, 2, None]), 0.0, densities("gaussian", model.emission_, X[:, :3])
    )
    total, *_ = recursions(joint[: N // 5], model.startprob_, model.transmat_)
    assert model.score_samples(X)[: N // 5].sum() == pytest.approx(
        total.sum(), rel=1e-8
    )


def test_an_offset_is_an_exposure():
    rng = np.random.default_rng(6)
    exposure = rng.uniform(1.0, 50.0, N)
    y = rng.poisson(exposure * np.exp(np.where(STATES, 0.5, -0.5) * Z[:, 0]))
    X = np.column_stack([y, Z[:, 0], np.log(exposure)])
    emission = Regression("poisson", [1], offset=2, alpha=0.0)
    model = VRHMM(2, emission=emission, **OPTIONS).fit(X)
    np.testing.assert_allclose(
        np.sort(model.emission_.coef_.ravel()), [-0.5, 0.5], atol=0.05
    )
    more = model.forecast(X, 1, covariates=[[np.nan, 3.0, 2.0 + X[-1, 2]]]).mean
    less = model.forecast(X, 1, covariates=[[np.nan, 3.0, X[-1, 2]]]).mean
    np.testing.assert_allclose(more, less * np.exp(2.0))


def test_two_parameters_may_depend_on_covariates():
    rng = np.random.default_rng(7)
    z = rng.normal(size=N)
    y = np.where(STATES, 2.0, -2.0) * z + np.exp(
        np.where(STATES, 0.5, -0.5) * z
    ) * rng.normal(size=N)
    emission = Regression("gaussian", [1], depends=["mean", "sd"], alpha=0.0)
    model = VRHMM(2, emission=emission, **OPTIONS).fit(np.column_stack([y, z]))
    model.relabel(np.argsort(model.emission_.coef_[:, 0, 0]))
    np.testing.assert_allclose(
        model.emission_.coef_[:, :, 0], [[-2.0, -0.5], [2.0, 0.5]], atol=0.15
    )


def test_gaussian_in_closed_form_and_by_steps_are_the_same():
    X = rows("gaussian")
    closed = fit("gaussian", tol=1e-12)

    class Normal(DensityEmission):
        parameter_scales = {"mean": "location", "sd": "positive"}

        def log_density(self, x, mean, sd):
            return stats.norm.logpdf(x, mean, sd)

        def sample(self, rng, mean, sd):
            return rng.normal(mean, sd)

    emission = Regression(Normal(), [1, 2], alpha=0.0)
    steps = VRHMM(2, emission=emission, **(OPTIONS | {"tol": 1e-12})).fit(X)
    assert closed.emission_.exact and not steps.emission_.exact
    assert steps.objective_ == pytest.approx(closed.objective_, abs=1e-7)
    np.testing.assert_allclose(steps.emission_.coef_, closed.emission_.coef_, atol=1e-3)


def test_no_covariate_that_matters_is_a_plain_family():
    X = np.column_stack([values("gaussian"), np.ones(N)])
    model = VRHMM(2, emission=Regression("gaussian", [1]), **OPTIONS).fit(X)
    plain = VRHMM(2, emission=Gaussian(reg_covar=0.0), **OPTIONS).fit(X[:, :1])
    assert model.objective_ == pytest.approx(plain.objective_, abs=1e-6)


def test_as_a_part_of_a_product_beside_transitions():
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(8)
    counts = rng.poisson(np.where(STATES, 9.0, 3.0))
    frame = pd.DataFrame(
        {
            "tag": "a",
            "y": values("gaussian"),
            "id": np.repeat(np.arange(5), N // 5),
            "u": Z[:, 0],
            "n": counts,
            "v": Z[:, 1],
        }
    )
    emission = Product(
        [
            ("y", Regression("gaussian", ["u", "v"]), ["y"]),
            ("n", Poisson(), ["n"]),
        ]
    )
    model = VRHMM(
        2, emission=emission, transitions=Covariates(["u"]), groups="id", **OPTIONS
    ).fit(frame)
    agree = np.mean(model.predict(frame) == STATES)
    assert max(agree, 1.0 - agree) > 0.95
    joint = densities(
        "gaussian", model.emission_["y"], frame[["y", "u", "v"]].to_numpy()
    )
    joint = joint + stats.poisson.logpmf(
        counts[:, None], model.emission_["n"].rate_[:, 0]
    )
    steps = model.transitions_.matrix(frame[["u"]].to_numpy())[: N // 5 - 1]
    total, *_ = recursions(joint[: N // 5], model.startprob_, steps)
    assert model.score_samples(frame)[: N // 5].sum() == pytest.approx(total.sum())
    ahead = model.forecast(frame, 3, covariates=frame[:15])
    assert ahead.mean.shape == (5, 3, 2)
    drawn, _ = model.sample(20, random_state=0, covariates=frame[:20])
    assert drawn.shape == (20, 2) and (drawn[:, 1] % 1 == 0).all()
    assert model.pseudo_residuals(frame).shape == (N, 2)
    columns = [str(c) for c in model.summary().columns]
    assert "y mean ~ u" in columns and "n rate" in columns
    numbers = Product(
        [("y", Regression("gaussian", [3, 5]), [1]), ("n", Poisson(), [4])]
    )
    other = VRHMM(2, emission=numbers, transitions=Covariates([3]), groups=2, **OPTIONS)
    assert other.fit(frame).objective_ == pytest.approx(model.objective_, rel=1e-12)


def test_regressions_of_heavy_tails():
    rng = np.random.default_rng(9)
    y = ETA * 3.0 + 0.3 * rng.standard_t(2.5, N)
    X = np.column_stack([y, Z])
    model = VRHMM(2, emission=Regression(StudentT(df=2.5), [1, 2]), **OPTIONS).fit(X)
    np.testing.assert_allclose(
        np.sort(model.emission_.coef_[:, 0, 0]), [-1.8, 2.4], atol=0.1
    )
    np.testing.assert_array_equal(model.emission_.df_, 2.5)


@pytest.mark.parametrize("name", [n for n in FAMILIES if isinstance(FAMILIES[n], str)])
def test_derivatives_are_those_of_differences(name):
    family = Regression(FAMILIES[name], [1, 2]).open(rows(name), 2)
    inner, X = family.family_, family.enter(rows(name))[:50]
    rng = np.random.default_rng(10)
    u = family._coordinates(family.blank())
    u = u + 0.3 * rng.normal(size=u.shape)
    x, designs = family._read(X)
    eta = family._predictors(u, designs)
    exact = inner._expand_at(x[:, None], eta)
    values, slopes, curves = inner._differences(x[:, None], eta)
    np.testing.assert_allclose(exact[0], values, rtol=1e-9)
    for found, expected in zip(exact[1], slopes, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    for found, expected in zip(exact[2], curves, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


def test_streams_and_sequences_drawn_together():
    X = rows("poisson")
    model = VRHMM(2, emission=Regression("poisson", [1, 2]), random_state=0)
    for start in range(0, N, 300):
        model.partial_fit(X[start : start + 300])
    assert model.score(X) > fit("poisson").score(X) - 0.05
    drawn, states = model.sample(
        covariates=X[:30], lengths=[10, 20], currstate=[0, 1], random_state=0
    )
    assert drawn.shape == (30, 1) and states[0] == 0 and states[10] == 1


@pytest.mark.parametrize(
    ("emission", "message"),
    [
        (Regression("gaussian"), "covariates of Regression must be a list"),
        (Regression("gaussian", "x1"), "covariates of Regression must be a list"),
        (Regression("gaussian", [9]), "covariate of Regression=9"),
        (Regression("weird", [1]), "family of Regression"),
        (Regression("gaussian", [0, 1, 2]), "none is left"),
        (Regression("gaussian", [1], depends=["rate"]), "depends of Regression"),
        (Regression("gaussian", [1], alpha=-1.0), "alpha"),
        (
            Regression("gaussian", [1, 2], coef=np.zeros((2, 1, 3))),
            "coef of Regression",
        ),
        (Regression("poisson", [1, 2]), "counts"),
        (Regression(Categorical(2), [1, 2]), "codes"),
    ],
    ids=str,
)
def test_misuse(emission, message):
    with pytest.raises(ValueError, match=message):
        VRHMM(2, emission=emission).fit(rows("gaussian"))


@pytest.mark.parametrize("lags", [0, [1, 0], 1.5, "2"])
def test_lags_are_positive(lags):
    with pytest.raises(ValueError, match="lags must be positive integers"):
        add_lags(np.ones((4, 1)), lags)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", ["gaussian", "poisson"])
def test_threads_do_not_change_bits(name):
    X = np.tile(rows(name), (80, 1))  # several groups of lanes
    options = {"max_iter": 2, "alpha": 1.0}
    one, two = (fit(name, X=X, n_jobs=n, **options) for n in (1, 2))
    np.testing.assert_array_equal(one.emission_.coef_, two.emission_.coef_)
    assert one.objective_ == two.objective_


GIVEN = {
    "gaussian": {"fixed": {"sd": [[0.3], [0.5]]}},
    "poisson": {},
    "bernoulli": {},
    "categorical": {},
    "gamma": {"fixed": {"shape": [[3.0], [5.0]]}},
    "vonmises": {"fixed": {"concentration": [[4.0], [9.0]]}},
    "negative binomial": {
        "family": NegativeBinomial(),
        "fixed": {"size": [[3.0], [5.0]]},
    },
}


@pytest.mark.parametrize("name", GIVEN)
def test_given_coefficients_need_no_fit(name):
    """A model of what another was fitted to says the same, but for rounding."""
    rng, n = np.random.default_rng(0), 3000
    options = {"family": name} | GIVEN[name]
    outputs = 2 if name == "categorical" else 1
    coef = np.linspace(-1.0, 1.0, 2 * outputs).reshape(2, outputs, 1)
    intercept = np.linspace(0.5, -0.5, 2 * outputs).reshape(2, outputs)
    regression = Regression(covariates=[1], coef=coef, intercept=intercept, **options)
    model = VRHMM(
        2,
        emission=regression,
        transitions=Homogeneous(fixed=[[0.95, 0.05], [0.1, 0.9]]),
        startprob=[0.5, 0.5],
    )
    rows = np.column_stack([np.full(n, np.nan), rng.normal(size=n)])
    X, states = model.sample(n, covariates=rows, random_state=0)
    X = np.column_stack([X, rows[:, 1]])
    assert (model.predict(X) == states).mean() > 0.55
    fitted = clone(model).fit(X)
    assert fitted.n_parameters_ == 0
    assert model.score(X) == pytest.approx(fitted.score(X), rel=1e-10)
    assert model.score(X[:50]) == pytest.approx(fitted.score(X[:50]), rel=1e-10)
    np.testing.assert_allclose(
        model.predict_proba(X), fitted.predict_proba(X), atol=1e-10
    )
    ahead = model.forecast(X, 3, covariates=X[:3])
    wanted = fitted.forecast(X, 3, covariates=X[:3])
    np.testing.assert_allclose(ahead.mean, wanted.mean, rtol=1e-9)
    options |= {"coef": coef * np.nan, "coef_init": 0.8 * coef}
    free = Regression(covariates=[1], intercept=intercept, **options)
    with pytest.raises(NotFittedError):
        clone(model).set_params(emission=free).score(X)
    free = clone(model).set_params(emission=free, max_iter=30, n_init=1)
    found = free.fit(X).emission_
    np.testing.assert_allclose(found.intercept_, intercept)
    assert np.abs(found.coef_ - coef).max() < 0.3


def test_given_coefficients_of_named_columns_and_of_a_frozen_transformer():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    z = rng.uniform(-1.0, 1.0, 500)
    splines = SplineTransformer(3, degree=2).fit(z[:, None])
    options = {"coef": rng.normal(size=(2, 1, 4)), "intercept": [[0.0], [1.0]]}
    model = VRHMM(
        2,
        emission=Regression(
            "poisson", ["z"], transformer=FrozenEstimator(splines), **options
        ),
        transitions=Homogeneous(fixed=np.full((2, 2), 0.5)),
        startprob="stationary",
    )
    frame = pandas.DataFrame({"y": np.zeros(500), "z": z})
    frame["y"] = model.sample(500, covariates=frame, random_state=0)[0][:, 0]
    eta = splines.transform(z[:, None]) @ options["coef"][:, 0].T + [0.0, 1.0]
    joint = stats.poisson.logpmf(frame["y"].to_numpy()[:, None], np.exp(eta))
    wanted = np.log(0.5 * np.exp(joint).sum(axis=1)).mean()
    assert model.score(frame) == pytest.approx(wanted, rel=1e-10)
    with pytest.raises(ValueError, match="data frame"):
        model.sample(5)
    melting = clone(model).set_params(emission__transformer=SplineTransformer(3))
    with pytest.raises(NotFittedError):
        melting.score(frame)


@pytest.mark.parametrize("fixed", [{"rate": 1.0}, {"sd": 0.0}, {"mean": 1.0}, [1.0]])
def test_what_is_fixed_must_be_there(fixed):
    regression = Regression(covariates=[1], fixed=fixed)
    with pytest.raises(ValueError, match=r"fixed|sd"):
        VRHMM(2, emission=regression).fit(np.random.default_rng(0).normal(size=(50, 2)))


def test_values_beyond_floating_point_are_said_to_be_so():
    X = np.random.default_rng(0).uniform(0.0, 1e300, (50, 1))
    with pytest.raises(ValueError, match="beyond floating point"):
        VRHMM(2, emission=StudentT()).fit(X)


@pytest.mark.parametrize("unit", [1e3, 1e6])
def test_positive_numbers_of_any_unit_are_fitted_alike(unit):
    X = rows("gamma") * [unit, 1.0, 1.0]
    expected = best("gamma").score(rows("gamma")) - np.log(unit)
    assert fit("gamma", X).score(X) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("family", ["poisson", NegativeBinomial()])
def test_exposures_of_any_unit_are_fitted_alike(family):
    rng = np.random.default_rng(7)
    exposure = rng.uniform(1.0, 3.0, N)
    y = rng.poisson(50.0 * exposure * (1 + STATES))
    emission = Regression(family, [1], offset=2, alpha=0.0)
    few, many = (
        np.column_stack([y, Z[:, 0], np.log(unit * exposure)]) for unit in (1.0, 1e6)
    )
    expected, found = (
        VRHMM(2, emission=emission, **OPTIONS).fit(X).score(X) for X in (few, many)
    )
    assert found == pytest.approx(expected, abs=1e-6)


def crossing(n, n_states, seed, of):
    """Rows of a value that is another line of two covariates in each state."""
    rng = np.random.default_rng(seed)
    states = np.zeros(n, int)
    for i in range(1, n):
        stays = rng.random() < 0.9
        states[i] = states[i - 1] if stays else rng.integers(n_states)
    Z, lines = rng.normal(size=(n, 2)), rng.normal(size=(n_states, 3))
    y = lines[states, 0] + (lines[states, 1:] * Z).sum(axis=1)
    return np.column_stack([of(y + 0.4 * rng.standard_t(6, n)), Z])


def angles(y):
    return np.angle(np.exp(1j * y))


#: Families, what depends on covariates, what values are, and the widths of states.
CONTINUOUS = {
    "gaussian": ("gaussian", None, np.asarray, lambda fit: fit.sd_),
    "both": ("gaussian", ["mean", "sd"], np.asarray, None),
    "gamma": ("gamma", None, np.exp, lambda fit: fit.shape_**-0.5),
    "vonmises": ("vonmises", None, angles, lambda fit: fit.concentration_**-0.5),
    "t": (StudentT(), None, np.asarray, lambda fit: fit.scale_),
    "weibull": (Weibull(), None, np.exp, lambda fit: 1.0 / fit.shape_),
    "cauchy": (WrappedCauchy(), None, angles, lambda fit: 1.0 - fit.concentration_),
}


@pytest.mark.parametrize("name", CONTINUOUS)
def test_states_of_as_many_rows_as_coefficients_lose_to_others(name):
    family, depends, of, _ = CONTINUOUS[name]
    emission = Regression(family, [1, 2], depends=depends)
    for seed in range(3):
        X = crossing(150, 2, seed, of)
        with warnings.catch_warnings():
            warnings.simplefilter("error", CollapsedComponentWarning)
            fitted = VRHMM(2, emission=emission, random_state=0).fit(X)
        assert np.bincount(fitted.predict(X)).min() > 3
        assert np.isfinite(fitted.objective_)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", [n for n in CONTINUOUS if CONTINUOUS[n][3]])
def test_what_a_state_of_few_rows_adds_is_bounded_and_said(name):
    family, _, of, widths = CONTINUOUS[name]
    X, labels = crossing(150, 1, 0, of), np.zeros(150, int)
    labels[70:73] = 1
    hmm = VRHMM(2, emission=Regression(family, [1, 2], alpha=0.0), max_iter=2000)
    with pytest.warns(CollapsedComponentWarning, match=r"1 \(3 rows"):
        hmm.fit(X, state_labels=labels)
    assert np.isfinite(hmm.objective_)
    assert 1e-8 < widths(hmm.emission_)[1, 0] < 1e-3
