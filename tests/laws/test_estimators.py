"""What fitted estimators report is true of what they return, for every one of them."""

import gc
import warnings

import numpy as np
import pytest
from scipy.special import log_expit, log_softmax
from scipy.stats import nbinom, norm, poisson
from sklearn.base import clone
from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_digits,
    load_iris,
    load_wine,
)
from sklearn.preprocessing import StandardScaler

from skvrem import (
    VRHMM,
    VRPLSA,
    BayesianGLMRegressor,
    BayesianLogisticRegression,
    BayesianPPCA,
    BradleyTerry,
    FactorialMixture,
    GaussianDropoutClassifier,
    HierarchicalSoftmaxClassifier,
    SBMLogisticRegression,
    TemperedLDA,
    VariationalInference,
    VRGaussianMixture,
)
from skvrem.exceptions import MaxIterWarning
from skvrem.solvers import Run
from skvrem.utils.discovery import all_estimators
from tests.documents import planted
from tests.own_models import Logistic, logistic_problem

pytestmark = pytest.mark.slow

REASONS = ("tol", "max_iter", "stalled", "callback")
OBJECTIVES = ("lower_bound_", "elbo_", "objective_", "loss_", "log_likelihood_")
quiet = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def scaled(load):
    X, y = load(return_X_y=True)
    return StandardScaler().fit_transform(X), y


def blobs(n=400):
    rng = np.random.default_rng(0)
    return 4.0 * rng.integers(2, size=(n, 1)) + rng.normal(size=(n, 2))


def regimes(n=600):
    rng = np.random.default_rng(0)
    states = np.repeat(np.arange(n // 30) % 2, 30)
    return rng.normal(4.0 * states[:, None], 1.0, (n, 2))


def matches(n=300):
    rng = np.random.default_rng(0)
    skills = rng.normal(size=8)
    a = rng.integers(8, size=n)
    b = (a + rng.integers(1, 8, size=n)) % 8
    won = rng.uniform(size=n) < 1.0 / (1.0 + np.exp(skills[b] - skills[a]))
    return np.where(won[:, None], np.c_[a, b], np.c_[b, a])


def topics():
    return (planted(200)[0],)


X, Y = scaled(load_iris)
BINARY = (Y == 2).astype(int)
GROUPS = np.arange(len(Y)) % 8
COUNTS = np.random.default_rng(0).poisson(np.exp(0.5 * X[:, 0]))

# Of every estimator its solvers, on small data.
FITS = {
    **{
        f"VRGaussianMixture-{solver}": (
            VRGaussianMixture(2, solver=solver, batch_size=40, random_state=0),
            (blobs(),),
            {},
        )
        for solver in ("auto", "batch", "stochastic", "svrg", "saga", "incremental")
    },
    **{
        f"VRPLSA-{solver}": (
            VRPLSA(4, solver=solver, batch_size=50, random_state=0),
            topics(),
            {},
        )
        for solver in ("batch", "stochastic", "svrg")
    },
    **{
        f"TemperedLDA-{solver}": (
            TemperedLDA(4, solver=solver, batch_size=50, random_state=0),
            topics(),
            {},
        )
        for solver in ("batch", "stochastic", "svrg")
    },
    **{
        f"FactorialMixture-{solver}": (
            FactorialMixture(1, solver=solver, batch_size=40, random_state=0),
            (blobs(),),
            {},
        )
        for solver in ("batch", "stochastic", "svrg", "saga", "incremental")
    },
    **{
        f"VRHMM-{solver}": (
            VRHMM(2, solver=solver, n_init=1, random_state=0, tol=1e-4),
            (regimes(),),
            {},
        )
        for solver in ("auto", "batch", "stochastic", "svrg", "saga", "incremental")
    },
    **{
        f"SBMLogisticRegression-{solver}": (
            SBMLogisticRegression(solver=solver, random_state=0, tol=1e-5),
            (X, Y),
            {},
        )
        for solver in ("auto", "batch", "stochastic", "svrg")
    },
    **{
        f"BayesianLogisticRegression-{solver}": (
            BayesianLogisticRegression(
                1.0, solver=solver, posterior="meanfield", random_state=0
            ),
            (X, BINARY),
            {},
        )
        for solver in ("batch", "stochastic", "svrg", "saga")
    },
    "BayesianLogisticRegression": (BayesianLogisticRegression(), (X, Y), {}),
    "BayesianGLMRegressor": (BayesianGLMRegressor(), (X[:, 1:], X[:, 0]), {}),
    "BayesianGLMRegressor-poisson": (
        BayesianGLMRegressor("poisson"),
        (X, COUNTS),
        {},
    ),
    "BayesianGLMRegressor-negative-binomial": (
        BayesianGLMRegressor("negative-binomial"),
        (X, COUNTS),
        {},
    ),
    "BayesianPPCA": (BayesianPPCA(2, random_state=0), (X,), {}),
    "BradleyTerry": (BradleyTerry(), (matches(),), {}),
    "HierarchicalSoftmaxClassifier": (
        HierarchicalSoftmaxClassifier(),
        (X, Y),
        {"groups": GROUPS},
    ),
    **{
        f"GaussianDropoutClassifier-{solver}": (
            GaussianDropoutClassifier((), solver=solver, random_state=0, max_iter=60),
            (X, Y),
            {},
        )
        for solver in ("batch", "svrg")
    },
    "VariationalInference": (
        VariationalInference(Logistic(*logistic_problem()), random_state=0),
        (),
        {},
    ),
}


@pytest.fixture(params=FITS)
def case(request):
    estimator, data, given = FITS[request.param]
    return clone(estimator), data, given


def test_every_estimator_has_a_case():
    fitted = {type(estimator) for estimator, _, _ in FITS.values()}
    assert fitted == {cls for _, cls in all_estimators()}


@quiet
def test_what_is_said_of_the_end_of_a_fit(case):
    estimator, data, given = case
    fit = estimator.fit(*data, **given)
    assert fit.stop_reason_ in REASONS
    assert fit.converged_ == (fit.stop_reason_ == "tol")
    if fit.converged_:
        assert fit.gap_left_ < fit.tol
    history = fit.history_
    assert {len(column) for column in history.values()} == {len(history["passes"])}
    assert len(history["passes"]) - np.max(fit.n_iter_) in (1, 2)
    assert history["solver"].dtype.kind == "U"
    if hasattr(fit, "solver_"):
        assert history["solver"][-1] == fit.solver_
    reported = [abs(getattr(fit, n)) for n in OBJECTIVES if hasattr(fit, n)]
    assert reported
    if not isinstance(fit, BayesianPPCA | VariationalInference | VRHMM):
        last = abs(history["objective"][-1])
        # Documents' posteriors settle anew, in single precision.
        slack = 1e-6 if isinstance(fit, TemperedLDA) else 1e-9
        assert min(abs(value - last) for value in reported) < slack * max(1.0, last)


@quiet
def test_one_epoch_moves(case):
    estimator, data, given = case
    ends = []
    for max_iter in (0, 1):
        fit = clone(estimator).set_params(max_iter=max_iter).fit(*data, **given)
        assert np.max(fit.n_iter_) == max_iter
        ends.append(fit)
    changed = [
        not np.array_equal(value, vars(ends[1])[name])
        for name, value in vars(ends[0]).items()
        if isinstance(value, np.ndarray) and value.dtype.kind == "f"
    ]
    if isinstance(ends[0], VariationalInference):
        return  # it starts at the mode, where it may stay
    assert any(changed)


def test_no_tolerance_is_no_test(case):
    estimator, data, given = case
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit = estimator.set_params(max_iter=3, tol=0.0).fit(*data, **given)
    assert fit.stop_reason_ in ("max_iter", "tol", "stalled")


def runs_alive():
    # Proxies of what is gone say nothing of their class but their own.
    return [thing for thing in gc.get_objects() if issubclass(type(thing), Run)]


@quiet
def test_what_a_fit_needed_is_free_to_go(case):
    # At once: cycles wait for the collector, and with them arrays as large as the data.
    estimator, data, given = case
    gc.collect()
    before = runs_alive()  # of other tests
    gc.disable()
    try:
        fit = estimator.set_params(max_iter=3).fit(*data, **given)
        left = [run for run in runs_alive() if all(run is not old for old in before)]
    finally:
        gc.enable()
    assert fit.history_
    assert not left


# The objective, evaluated anew


LIKELIHOODS = {"VRGaussianMixture": "objective_", "VRHMM": "log_likelihood_"}


@quiet
@pytest.mark.parametrize("name", [n for n in FITS if n.startswith(tuple(LIKELIHOODS))])
@pytest.mark.parametrize("max_iter", [1, 100])
def test_the_likelihood_of_mixtures_and_hidden_markov_models(name, max_iter):
    estimator, (rows,), _ = FITS[name]
    fit = clone(estimator).set_params(max_iter=max_iter).fit(rows)
    found = getattr(fit, LIKELIHOODS[type(fit).__name__])
    assert found == pytest.approx(fit.score(rows), rel=1e-12)


@quiet
@pytest.mark.parametrize("name", [n for n in FITS if n.startswith("SBM")])
@pytest.mark.parametrize("max_iter", [1, 100])
def test_the_objective_of_logistic_regression(name, max_iter):
    estimator, (rows, y), _ = FITS[name]
    fit = clone(estimator).set_params(max_iter=max_iter).fit(rows, y)
    each = fit.predict_log_proba(rows)[np.arange(len(y)), y]
    penalty = 0.5 * np.square(fit.coef_).sum() / (fit.C * len(y))
    assert fit.objective_ == pytest.approx(each.mean() - penalty, rel=1e-9)


@quiet
@pytest.mark.parametrize("name", [n for n in FITS if n.startswith("Tempered")])
@pytest.mark.parametrize("max_iter", [1, 60])
def test_the_bound_of_topics(name, max_iter):
    estimator, (counts,), _ = FITS[name]
    exact = {"mean_change_tol": 1e-10, "max_doc_update_iter": 3000}
    counts = counts.astype(float)
    exact |= {"max_iter": max_iter, "e_step": "mean_field"}
    fit = clone(estimator).set_params(**exact).fit(counts)
    found = fit.score(counts) / counts.sum()
    assert fit.objective_ == pytest.approx(found, rel=1e-6)


def log_likelihoods(name, fit, rows, y, coef, intercept):
    """Log-likelihood of all rows at each draw."""
    z = np.einsum("nd,s...d->ns...", rows, coef) + intercept
    if "poisson" in name:
        return poisson.logpmf(y[:, None], np.exp(z)).sum(axis=0)
    if "negative" in name:
        r = fit.concentration_
        return nbinom.logpmf(y[:, None], r, r / (r + np.exp(z))).sum(axis=0)
    if "GLM" in name:
        return norm.logpdf(y[:, None], z, fit.noise_scale_).sum(axis=0)
    if z.ndim == 2 or z.shape[2] == 1:
        z = z.reshape(len(rows), -1)
        return log_expit(np.where(y[:, None] == 1, z, -z)).sum(axis=0)
    return log_softmax(z, axis=2)[np.arange(len(y)), :, y].sum(axis=0)


@quiet
@pytest.mark.parametrize(
    "name",
    [n for n in FITS if n.startswith(("BayesianLogistic", "BayesianGLM"))],
)
@pytest.mark.parametrize("max_iter", [1, 200])
def test_the_bound_of_a_bayesian_regression(name, max_iter):
    estimator, (rows, y), _ = FITS[name]
    fit = clone(estimator).set_params(max_iter=max_iter).fit(rows, y)
    fit.posterior_ = fit._given_prior  # the bound is that of its width
    coef, intercept = fit.sample_posterior(20_000, random_state=0).values()
    values = log_likelihoods(name, fit, rows, y, coef, intercept)
    *_, prior = fit._rows
    divergence = fit.posterior_.kl(prior)
    error = values.std() / np.sqrt(values.size)
    off = abs(values.mean() - divergence - fit.elbo_)
    assert off < 4.0 * error + max(0.02, fit.elbo_error_)


def test_a_vague_prior_on_separable_classes_ends_at_the_reported_bound():
    rows, y = load_iris(return_X_y=True)
    with pytest.warns(match="nats"):
        fit = BayesianLogisticRegression(prior_scale=1e3).fit(rows, y)
    assert fit.score(rows, y) > 0.95
    assert not fit.converged_


# Going on


@quiet
@pytest.mark.parametrize(
    "estimator",
    [
        VRGaussianMixture(3, max_iter=1, warm_start=True, random_state=0),
        VRGaussianMixture(3, max_iter=2, warm_start=True, random_state=0),
        SBMLogisticRegression(max_iter=1, warm_start=True),
        BayesianLogisticRegression(max_iter=1, warm_start=True),
    ],
    ids=lambda e: f"{type(e).__name__}-{e.max_iter}",
)
def test_a_loop_of_warm_starts_ends(estimator):
    for _ in range(100):
        if estimator.fit(X, BINARY).converged_:
            break
    assert estimator.converged_


def test_out_of_epochs_it_warns_once():
    with pytest.warns(MaxIterWarning, match="nats a row") as caught:
        VRGaussianMixture(3, max_iter=1, random_state=0).fit(X)
    assert len(caught) == 1
    assert "nan" not in str(caught[0].message)


# Ordinary data


def ordinary():
    """Default fits that a user would make first, by name."""
    rng = np.random.default_rng(0)
    line = rng.normal(size=(300, 4))
    target = line @ [1.0, -0.5, 0.0, 0.3] + 0.5 * rng.normal(size=300)
    bits = rng.uniform(size=(300, 3)) < 0.4
    images = bits @ (3.0 * np.kron(np.eye(3), np.ones((1, 4))))
    images = images + 0.3 * rng.normal(size=images.shape)
    cancer, wine, iris = (scaled(f) for f in (load_breast_cancer, load_wine, load_iris))
    digits = load_digits(return_X_y=True)
    raw_iris = load_iris(return_X_y=True)
    return {
        "mixture, iris": (VRGaussianMixture(3), raw_iris),
        "mixture, iris, diag": (VRGaussianMixture(3, covariance_type="diag"), raw_iris),
        "mixture, wine": (VRGaussianMixture(3, covariance_type="diag"), wine),
        "mixture, cancer": (VRGaussianMixture(2), cancer),
        "mixture, blobs": (VRGaussianMixture(2), (blobs(),)),
        "mixture, many rows": (VRGaussianMixture(2), (blobs(20_000),)),
        "logistic, iris": (SBMLogisticRegression(), raw_iris),
        "logistic, wine": (SBMLogisticRegression(), wine),
        "logistic, cancer": (SBMLogisticRegression(), cancer),
        "logistic, digits": (SBMLogisticRegression(), (digits[0] / 16.0, digits[1])),
        "bayes, iris": (BayesianLogisticRegression(), iris),
        "bayes, wine": (BayesianLogisticRegression(), wine),
        "bayes, cancer": (BayesianLogisticRegression(), cancer),
        "glm, line": (BayesianGLMRegressor(), (line, target)),
        "glm, diabetes": (
            BayesianGLMRegressor(),
            tuple(
                StandardScaler().fit_transform(part.reshape(442, -1)).squeeze()
                for part in load_diabetes(return_X_y=True)
            ),
        ),
        "glm, counts": (
            BayesianGLMRegressor("poisson"),
            (line, rng.poisson(np.exp(0.5 * target))),
        ),
        "ppca, iris": (BayesianPPCA(2), iris),
        "ppca, wine": (BayesianPPCA(3), wine),
        "matches": (BradleyTerry(), (matches(),)),
        "dropout, iris": (GaussianDropoutClassifier(()), iris),
        "groups": (HierarchicalSoftmaxClassifier(), (*iris, GROUPS)),
        "hmm, regimes": (VRHMM(2), (regimes(),)),
        "hmm, counts": (
            VRHMM(2, emission="poisson"),
            (rng.poisson(np.repeat([[1.0], [9.0]] * 10, 30, axis=0)),),
        ),
        "hmm, codes": (
            VRHMM(2, emission="categorical"),
            (np.repeat([0, 2] * 10, 30)[:, None] + rng.integers(2, size=(600, 1)),),
        ),
        "plsa": (VRPLSA(4), topics()),
        "plsa, many": (VRPLSA(4), (planted(3000)[0],)),
        "lda": (TemperedLDA(4), topics()),
        "lda, many": (TemperedLDA(4), (planted(3000)[0],)),
        "factors": (FactorialMixture(3), (images,)),
        "own model": (VariationalInference(Logistic(*logistic_problem())), ()),
    }


@pytest.mark.parametrize("name", ordinary())
def test_a_default_fit_of_ordinary_data_does_not_warn(name):
    estimator, data = ordinary()[name]
    if "random_state" in estimator.get_params():
        estimator.set_params(random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if name == "groups":
            estimator.fit(*data[:2], groups=data[2])
        else:
            estimator.fit(*data)
    assert estimator.converged_
