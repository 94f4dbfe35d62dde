"""What is fitted stays as it was fitted; and what a stream does not have."""

import pickle

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning

from skvrem import (
    BayesianGLMRegressor,
    BayesianLogisticRegression,
    BayesianPPCA,
    BradleyTerry,
    GaussianDropoutClassifier,
    HierarchicalSoftmaxClassifier,
    VariationalInference,
)
from skvrem.exceptions import OneClassWarning, PosteriorWarning
from skvrem.solvers import Batch
from skvrem.utils._base import PREDICTION_PARAMETERS
from skvrem.vi import MinibatchSteps
from skvrem.vi.gaussian import _model_families
from skvrem.vi.gaussian._model import GaussianModel
from skvrem.vi.gaussian._model_families import Softmax
from tests.own_models import Logistic, logistic_problem

N = 60
rng = np.random.default_rng(0)
X = rng.normal(size=(N, 3))
y = (X[:, 0] + rng.normal(size=N) > 0.0).astype(int)
GROUP = np.arange(N) % 5
WITH_IDS = np.column_stack([X, GROUP])
PAIRS = rng.permuted(np.tile(np.arange(6), (40, 1)), axis=1)[:, :2]
RESULT = rng.choice([0.0, 0.5, 1.0], 40)


#: Of softmax regressions.
ROWS_AND_FEATURES = (9_999, 10), (10_000, 100), (10_000, 101)


def own():
    return Logistic(*logistic_problem())


def fitted():
    """Estimators, rows of a fit, and answers by name."""
    proba = {
        "proba": lambda m, *rows: m.predict_proba(*rows),
        "predict": lambda m, *rows: m.predict(*rows),
        "summary": lambda m, *rows: m.summary(),
    }
    draws = {"draws": lambda m, *rows: m.sample_posterior(3, random_state=0)}
    glm = {
        "std": lambda m, *rows: m.predict(*rows, return_std=True),
        "interval": lambda m, *rows: m.predict_mean_interval(*rows),
        "summary": lambda m, *rows: m.summary(),
        "k": lambda m, *rows: m.pareto_k_,
        "variance": lambda m, *rows: m.gradient_variance(X, y, random_state=0),
        **draws,
    }
    logistic = {
        **proba,
        **draws,
        "interval": lambda m, *rows: m.predict_proba_interval(*rows),
        "k": lambda m, *rows: m.pareto_k_,
        "variance": lambda m, *rows: m.gradient_variance(X, y, random_state=0),
        "arviz": lambda m, *rows: m._draws(X, y, 3, np.random.RandomState(0)),
    }
    groups = {
        **proba,
        **draws,
        "score": lambda m, *rows: m.score(WITH_IDS, y),
        "arviz": lambda m, *rows: m._draws(WITH_IDS, y, 3, np.random.RandomState(0)),
    }
    matches = {
        **proba,
        **draws,
        "score": lambda m, *rows: m.score(PAIRS, RESULT),
        "new": lambda m, *rows: m.predict_proba([[0, 77]]),
        "ranking": lambda m, *rows: m.ranking(),
        "k": lambda m, *rows: m.pareto_k_,
        "arviz": lambda m, *rows: m._draws(PAIRS, RESULT, 3, np.random.RandomState(0)),
    }
    rows = {
        "transform": lambda m, *rows: m.transform(*rows),
        "score": lambda m, *rows: m.score_samples(*rows),
        "covariance": lambda m, *rows: m.get_covariance(),
        "sample": lambda m, *rows: m.sample(3, random_state=0),
        "summary": lambda m, *rows: m.summary(),
        **draws,
    }
    of_own = {
        "score": lambda m, *rows: m.score_samples(),
        "summary": lambda m, *rows: m.summary(),
        "k": lambda m, *rows: m.pareto_k_,
        **draws,
    }
    dropout = {**proba, "plugin": lambda m, *rows: m.predict_proba(X, method="mc")}
    return {
        "logistic": (BayesianLogisticRegression(), (X, y), (X,), logistic),
        "gaussian": (BayesianGLMRegressor(), (X, X[:, 0]), (X,), glm),
        "poisson": (BayesianGLMRegressor("poisson"), (X, y), (X,), glm),
        "groups": (
            HierarchicalSoftmaxClassifier(3),
            (WITH_IDS, y),
            (WITH_IDS,),
            groups,
        ),
        "independent groups": (
            HierarchicalSoftmaxClassifier(3, posterior="meanfield"),
            (WITH_IDS, y),
            (WITH_IDS,),
            groups,
        ),
        "matches": (BradleyTerry(ties="davidson"), (PAIRS, RESULT), (PAIRS,), matches),
        "no ties": (BradleyTerry(), (PAIRS,), (PAIRS,), matches),
        "ppca": (BayesianPPCA(2, random_state=0), (X,), (X,), rows),
        "dropout": (
            GaussianDropoutClassifier((2,), max_iter=500, random_state=0, tol=1e-2),
            (X, y),
            (X,),
            dropout,
        ),
        "own": (VariationalInference(own(), random_state=0), (), (), of_own),
    }


def bits(answer):
    """Return what is equal for answers that are, to the last bit."""
    if isinstance(answer, np.ndarray):
        kind = answer.dtype.kind
        return answer.shape, answer.tolist() if kind in "OU" else answer.tobytes()
    if hasattr(answer, "attrs"):
        return bits(answer.to_numpy()), list(answer), repr(answer.attrs)
    if isinstance(answer, dict):
        return [(name, bits(value)) for name, value in answer.items()]
    if isinstance(answer, tuple | list):
        return [bits(part) for part in answer]
    return repr(answer)


ODD = {
    "fit_intercept": [False, ()],
    "ties": [None, "rao-kupper", 7],
    "family": ["poisson", "gaussian", None],
    "groups": [None, 0, "user"],
    "model": [None, Logistic(*logistic_problem(d=4))],
    "activation": ["identity", None],
    "noise_scale": [9.0, None, "x"],
    "dropout_scale": [9.0, None, "x"],
    "steps": [None, MinibatchSteps(optimizer="sgd"), 3],
    "hidden_layer_sizes": [(), 7],
    "n_components": [1, 3.5],
    "home_advantage": [True],
}


@pytest.mark.parametrize("kind", list(fitted()))
def test_parameters_that_change_after_the_fit_change_no_answer(kind):
    estimator, fit, rows, answers = fitted()[kind]
    estimator.fit(*fit)
    before = {name: bits(ask(estimator, *rows)) for name, ask in answers.items()}
    names = sorted(set(estimator.get_params(deep=False)) - PREDICTION_PARAMETERS)
    for number in range(4):
        odd = {name: (*ODD.get(name, ()), np.arange(4.0)) for name in names}
        odd = {name: some[min(number, len(some) - 1)] for name, some in odd.items()}
        estimator.set_params(**odd)
        vars(estimator).pop("_pareto_k", None)
        for what, ask in answers.items():
            assert bits(ask(estimator, *rows)) == before[what], f"{what} after {odd}"


@pytest.mark.parametrize("kind", list(fitted()))
def test_the_objective_is_that_of_what_is_returned(kind):
    estimator, fit, *_ = fitted()[kind]
    estimator.fit(*fit)
    assert isinstance(estimator.objective_, float)
    last = estimator.history_["objective"][-1]
    near = {"abs": 0.1} if kind == "ppca" else {"rel": 1e-12}
    assert estimator.objective_ == pytest.approx(last, **near)
    if kind == "dropout":
        assert estimator.objective_ == -estimator.loss_
    elif kind == "own":  # on the draws of the fit, and on others
        assert abs(estimator.objective_ - estimator.elbo_) < 10.0 * estimator.elbo_se_
    elif kind == "ppca":  # whose draws suit the loadings; and turned, it is more
        assert abs(estimator.objective_ - estimator.elbo_) < 1.0
    elif kind == "groups":  # nested: no bound, and the scales are left to integrate
        assert np.isfinite(estimator.log_marginal_likelihood_)
    else:
        assert estimator.objective_ == estimator.elbo_


@pytest.mark.parametrize(
    "kind",
    ["logistic", "gaussian", "independent groups", "matches", "no ties", "own"],
)
def test_a_stream_has_no_bound_and_says_why(kind):
    estimator, fit, _, _ = fitted()[kind]
    with pytest.raises(AttributeError) as unfitted:
        _ = estimator.elbo_
    assert "partial_fit" not in str(unfitted.value)
    more = {"classes": [0, 1]} if hasattr(estimator, "predict_proba") else {}
    more = {} if isinstance(estimator, BradleyTerry) else more
    estimator.partial_fit(*fit, **more)
    assert not hasattr(estimator, "elbo_")
    with pytest.raises(AttributeError, match="after partial_fit there is no bound"):
        _ = estimator.elbo_
    assert "elbo" not in str(getattr(estimator.summary(), "attrs", estimator.summary()))
    assert estimator.objective_ == estimator.history_["objective"][-1]
    again = pickle.loads(pickle.dumps(estimator)).partial_fit(*fit)
    assert not hasattr(again, "elbo_") and not hasattr(again, "no_such_thing")
    if kind == "own":
        assert not hasattr(again, "elbo_se_")
    assert np.isfinite(again.fit(*fit).elbo_)


def test_a_stream_that_begins_with_one_class_warns():
    model = HierarchicalSoftmaxClassifier(3, posterior="meanfield")
    with pytest.warns(OneClassWarning, match="rows of the class 1 only") as caught:
        model.partial_fit(WITH_IDS[y == 1], y[y == 1], classes=[0, 1])
    assert caught[0].filename == __file__
    model.partial_fit(WITH_IDS[y == 1], y[y == 1])  # later it may happen
    # That of a nested posterior ends near a fit.
    model = HierarchicalSoftmaxClassifier(3, posterior="nested")
    model.partial_fit(WITH_IDS[y == 1], y[y == 1], classes=[0, 1])


@pytest.mark.parametrize(
    ("kind", "params"),
    [
        ("logistic", {"fit_intercept": False}),
        ("gaussian", {"family": "poisson"}),
        ("groups", {"groups": None}),
        ("matches", {"ties": None}),
        ("dropout", {"activation": "tanh"}),
        ("dropout", {"hidden_layer_sizes": (3,)}),
    ],
)
def test_a_stream_keeps_the_parameters_that_shape_it(kind, params):
    estimator, fit, _, _ = fitted()[kind]
    estimator.fit(*fit).set_params(**params)
    with pytest.raises(ValueError, match="has changed since the first rows"):
        estimator.partial_fit(*fit)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("prior_scale", [1e2, 1e3, 1e5])
def test_vague_priors_of_classes_that_can_be_separated(prior_scale):
    X = np.random.default_rng(0).normal(size=(100, 3))
    y = (X[:, 0] > 0.0).astype(int)
    model = BayesianLogisticRegression(prior_scale=prior_scale).fit(X, y)
    assert model.stop_reason_ == "tol" and model.score(X, y) == 1.0
    assert (np.diff(model.history_["objective"]) > -1e-9).all()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("posterior", ["fullrank", "meanfield"])
def test_wide_posteriors_of_several_classes_converge(posterior):
    X, y = load_iris(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    model = BayesianLogisticRegression(posterior=posterior, max_iter=500)
    model.set_params(prior_scale=10.0).fit(X, y)
    assert model.stop_reason_ == "tol" and model.score(X, y) > 0.97
    assert 0.0 < model.elbo_error_ < 0.2


def standard_wine():
    X, y = load_wine(return_X_y=True)
    return (X - X.mean(axis=0)) / X.std(axis=0), y


def exact_bound(model):
    """The bound of a softmax regression of three classes, by 16,384 nodes."""
    rows, targets, prior = model._rows
    structure = "full" if model.posterior == "fullrank" else "diagonal"
    about = targets, prior, rows.total_weight, True, structure
    finest, solver = GaussianModel(Softmax(3, 0, 1 << 13), *about), Batch()
    solver.start(finest, rows, None)
    return solver.certify(finest.point_of(model.posterior_), 1.0).objective


@pytest.mark.parametrize("posterior", ["fullrank", "meanfield"])
@pytest.mark.parametrize("prior_scale", [1.0, 10.0])
def test_quadrature_is_refined_until_it_errs_little(posterior, prior_scale):
    X, y = standard_wine()
    model = BayesianLogisticRegression(posterior=posterior, max_iter=500)
    model.set_params(prior_scale=prior_scale).fit(X, y)
    assert abs(model.elbo_ - exact_bound(model)) < max(4.0 * model.elbo_error_, 0.04)
    assert model.elbo_error_ < 0.2


def test_some_rows_tell_what_nodes_err_by(monkeypatch):
    """Where finer nodes would take too long for all."""
    X, y = standard_wine()
    monkeypatch.setattr(_model_families, "MANY_PAIRS", 16)
    # Finer ones are 128 pairs, of three classes.
    monkeypatch.setattr(_model_families, "MOST_REFINED", 2 * 128 * 3 * 120)
    assert Softmax(3, len(X)).refined() is None
    model = BayesianLogisticRegression(posterior="fullrank", prior_scale=1.0).fit(X, y)
    error = abs(model.elbo_ - exact_bound(model))
    assert 0.5 * error < model.elbo_error_ < 2.0 * error


@pytest.mark.filterwarnings("error", "ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("affordable", [0, 99])
def test_few_rows_tell_nothing_of_nodes(monkeypatch, affordable):
    """As where there are so many classes that finer nodes are beyond all rows."""
    X, y = standard_wine()
    monkeypatch.setattr(_model_families, "MANY_PAIRS", 16)
    monkeypatch.setattr(_model_families, "MOST_REFINED", 2 * 128 * 3 * affordable)
    model = BayesianLogisticRegression(posterior="meanfield", max_iter=5).fit(X, y)
    assert np.isnan(model.elbo_error_)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_bound_that_nodes_miss_is_told_of(monkeypatch):
    X, y = standard_wine()
    monkeypatch.setattr(_model_families, "MANY_PAIRS", 8)
    monkeypatch.setattr(_model_families, "MOST_REFINED", 2 * 64 * 3 * 120)
    how = {"posterior": "fullrank", "max_iter": 50}
    model = BayesianLogisticRegression(prior_scale=10.0, **how)
    with pytest.warns(PosteriorWarning, match="known to within .* nats only"):
        model.fit(X, y)
    assert model.elbo_ - exact_bound(model) > 0.05 * abs(model.elbo_)


def test_many_nodes_for_many_features():
    n_pairs = [Softmax(3, n, n_features=d).n_pairs for n, d in ROWS_AND_FEATURES]
    assert n_pairs == [64, 16, 64]
    assert Softmax(3, 30_000, n_features=301).finer().n_pairs == 8 * 64


def test_nodes_take_no_longer_than_the_rest_of_a_pass():
    few, many = Softmax(10, 1000).beside(10 * 65), Softmax(10, 1000).beside(650**2)
    assert (few.n_pairs, many.n_pairs) == (64, 8 * 64)
    # Where rows say enough there are few, whatever they cost.
    assert Softmax(8, 100_000, n_features=65).beside(650**2).n_pairs == 16
    # Of many classes there are more anyway.
    few, many = Softmax(60, 1000).beside(1), Softmax(60, 1000).beside(4000**2)
    assert (few.n_pairs, many.n_pairs) == (128, 8 * 64)


def test_steps_are_few_where_logits_are_uncertain():
    """Pixels that are always dark, and rows that are few for each of the others."""
    X, y = load_digits(return_X_y=True)
    X = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-9)
    model = BayesianLogisticRegression().fit(X[:300], y[:300])
    assert model.converged_
    assert model.history_["passes"][-1] < 100  # 450 with few nodes


def test_probabilities_of_a_row_do_not_depend_on_how_many_there_are():
    X, y = load_iris(return_X_y=True)
    model = BayesianLogisticRegression(prior_scale=10.0).fit(X[::10], y[::10])
    many = model.predict_proba(np.tile(X, (80, 1)))
    np.testing.assert_allclose(many[:150], model.predict_proba(X), atol=1e-12)


def test_the_bound_of_two_classes_has_no_error():
    X, y = load_iris(return_X_y=True)
    assert BayesianLogisticRegression().fit(X, y > 0).elbo_error_ == 0.0


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("solver", ["stochastic", "svrg", "saga"])
def test_minibatches_end_within_tol_or_say_that_they_did_not(solver):
    # Features correlate: single coefficients predict a hundredth of what is left.
    X, y = load_breast_cancer(return_X_y=True)
    X = X / X.std(axis=0)
    best = BayesianLogisticRegression(posterior="meanfield", tol=1e-5).fit(X, y)
    model = BayesianLogisticRegression(
        solver=solver, posterior="meanfield", random_state=0
    ).fit(X, y)
    short = best.elbo_ - model.elbo_
    assert short < 0.02 or (model.gap_left_ > 0.3 * short and not model.converged_)


@pytest.mark.parametrize(
    "estimator",
    [
        BayesianLogisticRegression(max_iter=1, tol=1e-9, solver="svrg"),
        BayesianGLMRegressor(max_iter=1, tol=1e-9, solver="svrg"),
        GaussianDropoutClassifier((5,), max_iter=1, tol=1e-9, random_state=0),
    ],
)
def test_warnings_point_to_the_line_of_the_fit(estimator):
    with pytest.warns(ConvergenceWarning) as caught:
        estimator.fit(X, y)
    assert caught[0].filename == __file__


@pytest.mark.parametrize("offset", [None, 0.5])
@pytest.mark.parametrize("family", ["gaussian", "poisson", "negative-binomial"])
def test_new_targets_of_regressions(family, offset):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 2))
    y = X[:, 0] + 1.0 + 0.3 * rng.normal(size=12)
    y = y if family == "gaussian" else rng.poisson(np.exp(y))
    given = {} if offset is None else {"offset": np.full(12, offset)}
    model = BayesianGLMRegressor(family).fit(X, y, **given)
    new = model.sample_predictive(X, 100_000, random_state=0, **given)
    assert new.shape == (100_000, 12)
    mean, std = model.predict(X, return_std=True, **given)
    np.testing.assert_allclose(new.mean(axis=0), mean, rtol=0.03, atol=0.02)
    np.testing.assert_allclose(new.std(axis=0), std, rtol=0.1)
    low, high = model.predict_interval(X, level=0.8, **given).T
    inside = np.mean((low <= new) & (new <= high), axis=0)
    assert (inside > 0.79).all() and (family != "gaussian" or (inside < 0.81).all())
    if family != "gaussian":
        assert (new == np.round(new)).all()
    same = model.sample_predictive(X, 3, random_state=1, **given)
    again = model.sample_predictive(X, 3, random_state=1, **given)
    np.testing.assert_array_equal(same, again)


@pytest.mark.parametrize("k", [2, 3])
def test_new_labels_of_classes(k):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2))
    y = np.array(["a", "b", "c"])[np.digitize(X[:, 0], [0.0, 0.8][: k - 1])]
    model = BayesianLogisticRegression().fit(X, y)
    new = model.sample_predictive(X[:8], 40_000, random_state=0)
    shares = (new[..., None] == model.classes_).mean(axis=0)
    np.testing.assert_allclose(shares, model.predict_proba(X[:8]), atol=0.012)
