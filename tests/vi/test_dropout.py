"""Networks with Gaussian dropout: gradients, estimates, what a user meets."""

import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits, make_classification, make_moons
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from skvrem import GaussianDropoutClassifier
from skvrem.data import as_source
from skvrem.solvers._protocols import Anchor
from skvrem.vi import MinibatchSteps
from skvrem.vi.dropout import _stream
from skvrem.vi.dropout._model import (
    DropoutModel,
    DropoutSteps,
    Network,
    Weights,
)
from skvrem.vi.gaussian._model import Point
from skvrem.vi.gaussian._model_families import Logistic, ScatteredSoftmax
from tests.watching import Untouched


def rows(n=200, k=2, seed=0):
    X, y = make_classification(
        n, 5, n_informative=4, n_redundant=0, n_classes=k, random_state=seed
    )
    return X, y


def small_model(k, hidden, weighted=False, n=24):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(n, 4)), rng.integers(k, size=n)
    weight = rng.uniform(0.5, 2.0, n) if weighted else None
    family = Logistic() if k == 2 else ScatteredSoftmax(k, n)
    y = y.astype(float) if k == 2 else y.astype(np.int32)
    network = Network((4, *hidden, family.n_predictors), "tanh", 0.6)
    data = as_source(X, weight)
    model = DropoutModel(family, y, network, 0.3, data)
    return model, 2.0 * network.start(rng), rng


def objective(model, vector):
    """And its gradient."""
    point = Point(Weights(vector))
    sums = model.data.chunks().sum(lambda batch: model.statistics(point, batch, 1.0))
    mean = type(sums)(*(part / model.total_weight for part in sums))
    return model.objective(point, mean), model.gradient(point, mean)


def estimates(model, kind, control, vector, before, rng):
    """Of the minibatches of an epoch at one point, six rows each."""
    steps = DropoutSteps(model, kind, control, "adam", 6)
    here, earlier = (
        Anchor(None, np.nan, 0.0, Point(Weights(v))) for v in (vector, before)
    )
    known = steps.known_at(earlier, rng) if kind == "svrg" else None
    work, rows = steps.open(here), steps.visits(known, rng)
    return steps.estimates(work, known, rows, steps.noise(work, rows, rng))


# The model


@pytest.mark.parametrize("hidden", [(), (3,), (3, 2)])
@pytest.mark.parametrize(("k", "atol"), [(2, 1e-7), (3, 5e-3)])
def test_gradient_is_that_of_the_objective(k, atol, hidden):
    """To rounding for two classes; of three, the nodes err a little."""
    model, vector, _ = small_model(k, hidden, weighted=True)
    gradient = objective(model, vector)[1]
    numeric = np.empty_like(gradient)
    for i in range(vector.size):
        step = np.zeros(vector.size)
        step[i] = 1e-5
        up, down = (objective(model, vector + s)[0] for s in (step, -step))
        numeric[i] = (up - down) / 2e-5
    np.testing.assert_allclose(gradient, numeric, atol=atol)


@pytest.mark.parametrize("k", [2, 3])
def test_objective_is_an_average_over_the_noise(k):
    model, vector, rng = small_model(k, (3,))
    layers = model.network.layers(vector)
    inputs, _ = model.network.forward(layers, model.data.rows)
    noise = 1.0 + 0.6 * rng.standard_normal((5_000, 1, 3))
    W, b = layers[-1]
    # One draw for all rows has the same mean.
    values = model.family.log_likelihood((noise * inputs[-1]) @ W + b, model.y)
    each = values.mean(axis=1)
    penalty = 0.5 * model.penalty @ vector**2
    error = each.std() / np.sqrt(len(each))
    assert abs(each.mean() - penalty - objective(model, vector)[0]) < 4.0 * error


@pytest.mark.parametrize(
    ("kind", "control"),
    [
        ("stochastic", None),
        ("stochastic", "taylor"),
        ("stochastic", "quadrature"),
        ("svrg", "taylor"),
        ("svrg", "quadrature"),
    ],
)
@pytest.mark.parametrize(("k", "hidden"), [(2, (3,)), (3, ()), (3, (3,))])
def test_estimates_are_unbiased(kind, control, k, hidden):
    """Over all batches of a partition and many draws, against the noiseless sums."""
    model, vector, rng = small_model(k, hidden, weighted=True)
    before = vector + 0.1 * rng.normal(size=vector.size)
    found = [
        estimates(model, kind, control, vector, before, rng).mean(axis=0)
        for _ in range(1 if control == "quadrature" else 500)
    ]
    expected = objective(model, vector)[1] + model.penalty * vector
    off = np.mean(found, axis=0) - expected
    if control == "quadrature":
        np.testing.assert_allclose(off, 0.0, atol=1e-12)
        return
    error = np.std(found, axis=0) / np.sqrt(len(found))
    # The slopes of nodes for three classes err by some 1e-3 themselves.
    assert np.all(abs(off) < 4.5 * error + (0.0 if k == 2 else 3e-3))
    assert error.max() < 0.05


def test_the_first_step_of_adam_is_as_long_as_asked_for():
    """Whatever the gradient; the next knows of it."""
    model, vector, rng = small_model(2, ())
    steps = DropoutSteps(model, "stochastic", "quadrature", "adam", 24)
    begin = Anchor(None, np.nan, 0.0, Point(Weights(vector)))
    work, rows = steps.open(begin), steps.visits(None, rng)
    steps.sweep(work, None, rows, None, np.array([0.01]))
    np.testing.assert_allclose(abs(work.vector - vector), 0.01, rtol=1e-4)
    again = steps.open(begin._replace(point=steps.close(work)))
    assert again.count == 1 and (again.moments == work.moments).all()


def test_controls_take_out_noise():
    variances = {}
    for name, kind, control in [
        ("naive", "stochastic", None),
        ("cv", "stochastic", "taylor"),
        ("rows", "stochastic", "quadrature"),
        ("joint", "svrg", "taylor"),
        ("none", "svrg", "quadrature"),
    ]:
        model, vector, rng = small_model(3, (3,))
        vector *= 0.5
        some = [
            each
            for _ in range(125)
            for each in estimates(model, kind, control, vector, vector, rng)
        ]
        variances[name] = np.var(some, axis=0).sum()
    assert variances["naive"] > 1.2 * variances["cv"] > 1.1 * variances["rows"]
    assert variances["joint"] < 0.5 * variances["cv"]
    assert variances["none"] < 1e-25


# Fits


def test_without_noise_it_is_a_logistic_regression():
    for k in (2, 3):
        X, y = rows(k=k)
        model = GaussianDropoutClassifier((), dropout_scale=0.0, alpha=1.0, tol=1e-10)
        model.fit(X, y)
        peer = LogisticRegression(C=1.0, tol=1e-8).fit(X, y)
        np.testing.assert_allclose(
            model.predict_proba(X), peer.predict_proba(X), atol=1e-4
        )


def test_scales_of_features_do_not_matter():
    """Of a linear classifier without a penalty: nor does the path to the optimum."""
    X, y = rows()
    scales = np.array([1e-3, 1.0, 30.0, 1e3, 0.2])
    plain = GaussianDropoutClassifier((), alpha=0.0, tol=1e-8).fit(X, y)
    scaled = clone(plain).fit(X * scales, y)
    assert plain.n_iter_ <= 20 and scaled.n_iter_ == plain.n_iter_
    found = scaled.coefs_[0] * scales[:, None]
    np.testing.assert_allclose(found, plain.coefs_[0], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("k", [2, 3])
def test_a_network_does_not_mind_the_units_of_wide_features(k):
    X, y = rows(k=k)
    X *= 2.0 / np.sqrt(np.mean(np.square(X), axis=0))
    network = GaussianDropoutClassifier(
        (5,), alpha=0.0, activation="tanh", random_state=0
    )
    if k == 2:  # nodes of more classes are scattered by what rows hold
        same = clone(network).fit(X, y).objective_
        # Powers of two leave no rounding, so that the steps are the same.
        wide = clone(network).fit(X * 2.0 ** np.arange(0, 25, 5), y)
        assert wide.objective_ == pytest.approx(same, rel=1e-12)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        huge = clone(network).set_params(max_iter=30).fit(1e60 * X, y)
    assert huge.objective_ > -np.log(k)


def test_networks_make_full_passes_and_converge():
    """Which 200 epochs of minibatches do not."""
    X, y = rows(1500, 3)
    model = GaussianDropoutClassifier((5,), alpha=1.0, random_state=0).fit(X, y)
    assert model.solver_ == "batch" and model.converged_
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        steps = clone(model).set_params(solver="stochastic").fit(X, y)
    assert steps.objective_ < model.objective_
    more = GaussianDropoutClassifier((2,), alpha=1.0, max_iter=1)
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        more.fit(*rows(20_001))
    assert more.solver_ == "stochastic"


def test_noise_shrinks_and_spreads():
    X, y = rows()
    quiet, loud = (
        GaussianDropoutClassifier((), dropout_scale=s).fit(X, y) for s in (0.1, 1.0)
    )
    assert np.linalg.norm(loud.coefs_[0]) < 0.8 * np.linalg.norm(quiet.coefs_[0])
    np.testing.assert_allclose(loud.coef_std_, abs(loud.coefs_[0]))
    p = loud.predict_proba(X)
    np.testing.assert_allclose(p, loud.predict_proba(X, "mc"), atol=0.12)
    assert loud.predict_proba(X, "plugin").max(axis=1).mean() > p.max(axis=1).mean()


@pytest.mark.parametrize(
    "params", [{}, {"steps": MinibatchSteps(expectation="mc")}], ids=str
)
@pytest.mark.parametrize("solver", ["stochastic", "svrg"])
def test_steps_end_where_full_passes_end(solver, params):
    X, y = rows(400, 3)
    full = GaussianDropoutClassifier((), tol=1e-8).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        steps = GaussianDropoutClassifier(
            (), solver=solver, batch_size=40, max_iter=60, random_state=0, **params
        ).fit(X, y)
    assert steps.solver_ == solver and steps.optimizer_ == "adam"
    # Gradients of an epoch, those at the anchor of svrg too, what is known of all rows
    # there, and the certificate.
    passes = np.diff(steps.history_["passes"])  # more where an epoch is taken back
    assert passes.min() == {"stochastic": 2.0, "svrg": 4.0}[solver]
    assert full.loss_ - 1e-6 < steps.loss_ < full.loss_ + 4e-3


def test_a_network_learns_what_is_not_linear():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (600, 2))
    y = (X[:, 0] * X[:, 1] > 0.0).astype(int)
    model = GaussianDropoutClassifier(
        (20,), dropout_scale=0.2, solver="batch", random_state=0
    )
    assert model.fit(X, y).score(X, y) > 0.95
    assert GaussianDropoutClassifier(()).fit(X, y).score(X, y) < 0.7
    assert [W.shape for W in model.coefs_] == [(2, 20), (20, 1)]
    assert len(model.summary()) == 2 if hasattr(model.summary(), "index") else True


def test_the_same_seed_gives_the_same_bits():
    X, y = rows(300, 3)
    model = GaussianDropoutClassifier(
        (8,), solver="svrg", max_iter=20, tol=9.0, random_state=0, n_jobs=1
    ).fit(X, y)
    again = clone(model).set_params(n_jobs=3).fit(X, y)
    for a, b in zip(model.coefs_, again.coefs_, strict=True):
        np.testing.assert_array_equal(a, b)
    single = clone(model).fit(X.astype(np.float32), y)
    assert single.coefs_[0].dtype == np.float32
    np.testing.assert_allclose(single.coefs_[0], model.coefs_[0], atol=1e-3)
    loaded = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))


def test_early_stopping_keeps_the_best():
    X, y = load_digits(return_X_y=True)
    X = X[:600] / 16.0
    model = GaussianDropoutClassifier(
        (20,),
        solver="stochastic",
        step_size=0.01,
        early_stopping=True,
        random_state=0,
    ).fit(X, y[:600])
    scores = model.validation_scores_
    assert model.stop_reason_ == "callback"  # the scores are one
    assert model.n_iter_ == len(scores) < 200
    assert scores.max() > 0.85 and scores[-10:].max() <= scores.max()
    plain = clone(model).set_params(early_stopping=False, max_iter=2)
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        plain.fit(X, y[:600])
    assert not hasattr(plain, "validation_scores_")


def test_a_stream_learns():
    X, y = rows(600, 3)
    model = GaussianDropoutClassifier((), random_state=0, step_size=0.05)
    with pytest.raises(ValueError, match="classes must be passed"):
        model.partial_fit(X[:50], y[:50])
    for start in range(0, 600, 50):
        some = slice(start, start + 50)
        model.partial_fit(X[some], y[some], classes=[0, 1, 2])
    assert model.n_iter_ == 12 and model.score(X, y) > 0.6
    middle = pickle.loads(pickle.dumps(model))
    for other in (model, middle):
        other.partial_fit(X[:50], y[:50])
    np.testing.assert_array_equal(model.coefs_[0], middle.coefs_[0])
    model.set_params(solver="batch").fit(X, y).partial_fit(X, y)
    assert model.n_samples_seen_ == 1200 and model.n_iter_ > 1


def test_warm_start_goes_on():
    X, y = rows(k=3)
    model = GaussianDropoutClassifier((), warm_start=True, tol=1e-6).fit(X, y)
    cold, loss = model.n_iter_, model.loss_
    assert model.fit(X, y).n_iter_ < cold
    assert model.loss_ == pytest.approx(loss, abs=1e-5)


@pytest.mark.parametrize("state", ["new", "fitted"])
def test_bad_input_is_explained_and_leaves_no_trace(state):
    X, y = rows()
    model = GaussianDropoutClassifier(())
    if state == "fitted":
        model.fit(X, y)
    untouched = Untouched(model)
    missing = X.copy()
    missing[7, 1] = np.nan
    for args, message in [
        ((X, np.zeros(200)), "only one class"),
        ((missing, y), "NaN"),
        ((X, y[:50]), "inconsistent"),
        ((X, y, -np.ones(200)), "sample_weight"),
    ]:
        with pytest.raises(ValueError, match=message):
            model.fit(*args)
        untouched.check()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"hidden_layer_sizes": (3, 0)}, "hidden_layer_sizes"),
        ({"hidden_layer_sizes": 2**70}, "at most"),
        ({"dropout_scale": -0.1}, "dropout_scale"),
        ({"alpha": -1.0}, "alpha"),
        ({"activation": "step"}, "activation"),
        (
            {"solver": "batch", "steps": MinibatchSteps(optimizer="adam")},
            "full passes",
        ),
        (
            {"solver": "svrg", "steps": MinibatchSteps(optimizer="lbfgs")},
            "full passes",
        ),
        (
            {"solver": "batch", "steps": MinibatchSteps(expectation="mc")},
            "without noise",
        ),
        ({"steps": MinibatchSteps(control_scale=False)}, "no use for control_scale"),
        (
            {"steps": MinibatchSteps(n_draws=2)},
            "no use for n_draws .* at 'auto', got 2",
        ),
        (
            {
                "solver": "svrg",
                "steps": MinibatchSteps(expectation="mc", control_variate=None),
            },
            "control_variate='taylor'",
        ),
        ({"validation_fraction": 1.0}, "validation_fraction"),
    ],
)
def test_bad_parameters(params, message):
    with pytest.raises(ValueError, match=message):
        GaussianDropoutClassifier(**params).fit(*rows())


def test_what_answers_refuse():
    X, y = rows()
    model = GaussianDropoutClassifier(())
    with pytest.raises(NotFittedError):
        model.predict(X)
    model.fit(X, y)
    with pytest.raises(ValueError, match="method"):
        model.predict_proba(X, "guess")


def brute_loss(model, X, y, n_draws=400):
    """The loss by pairs of draws of the noise, and its standard error."""
    (W,), (b,) = model.coefs_, model.intercepts_
    rng, a = np.random.default_rng(1), X @ W + b
    each = np.zeros(n_draws)
    for draw in range(n_draws):
        t = (model.dropout_scale * rng.standard_normal(X.shape) * X) @ W
        for z in (a + t, a - t):
            top = z.max(axis=1)
            mass = top + np.log(np.exp(z - top[:, None]).sum(axis=1))
            each[draw] += 0.5 * (mass - z[np.arange(len(z)), y]).mean()
    penalty = 0.5 * model.alpha_ * np.square(W).sum() / len(X)
    return each.mean() + penalty, each.std() / np.sqrt(n_draws)


@pytest.mark.parametrize(
    "params",
    [
        {"tol": 1e-3, "max_iter": 30},
        {
            "solver": "svrg",
            "step_size": 2.0,
            "max_iter": 10,
            "steps": MinibatchSteps(expectation="mc", optimizer="sgd"),
        },
    ],
    ids=["batch", "svrg"],
)
def test_the_loss_of_many_classes_is_that_of_what_is_returned(params):
    """Within four errors of the nodes: shared by all rows they err by ten."""
    X, y = load_digits(return_X_y=True)
    X = (X[:500] - X.mean(axis=0)) / (X.std(axis=0) + 1e-9)
    model = GaussianDropoutClassifier((), random_state=0, **params)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y[:500])
    expected, error = brute_loss(model, X, y[:500])
    assert abs(model.loss_ - expected) < 4.0 * np.hypot(5e-4, error)
    weighted = GaussianDropoutClassifier((), tol=1e-3, max_iter=3, random_state=0)
    with pytest.warns(ConvergenceWarning):
        weighted.fit(X[:100], y[:100], sample_weight=np.full(100, 2.0))
    with pytest.warns(ConvergenceWarning):
        twice = clone(weighted).fit(
            np.repeat(X[:100], 2, axis=0), np.repeat(y[:100], 2)
        )
    assert twice.loss_ == pytest.approx(weighted.loss_, abs=1e-10)


@pytest.mark.filterwarnings("ignore::skvrem.exceptions.MaxIterWarning")
@pytest.mark.parametrize("hidden", [(), (50,)])
@pytest.mark.parametrize("size", [50, 400])
@pytest.mark.parametrize("ordered", [False, True])
def test_one_pass_of_a_stream_comes_near_a_fit(hidden, size, ordered, monkeypatch):
    """By full passes, and by minibatches of rows that are new and of those kept."""
    monkeypatch.setattr(_stream, "KEPT", 1700)
    X, y = make_moons(4000, noise=0.25, random_state=0)
    X, X_new, y, y_new = X[:2000], X[2000:], y[:2000], y[2000:]
    if ordered:
        order = np.argsort(y, kind="stable")
        X, y = X[order], y[order]
    whole = GaussianDropoutClassifier(hidden, random_state=0).fit(X, y)
    stream = clone(whole)
    for start in range(0, 2000, size):
        some = slice(start, start + size)
        stream.partial_fit(X[some], y[some], classes=[0, 1])
    assert stream.n_samples_seen_ == 2000 and len(stream._kept.rows) == 1700
    losses = [log_loss(y_new, one.predict_proba(X_new)) for one in (whole, stream)]
    assert losses[1] < losses[0] + 0.02


def test_a_stream_pays_the_penalty_once():
    X, y = rows(300, 2)
    whole = GaussianDropoutClassifier((), tol=1e-9).fit(X, y)
    stream = clone(whole)
    used = X[:30].copy()
    for start in range(0, 300, 30):
        used[:] = X[start : start + 30]  # one array, filled with batch after batch
        stream.partial_fit(used, y[start : start + 30], classes=[0, 1])
    np.testing.assert_allclose(stream.coefs_[0], whole.coefs_[0], atol=1e-3)
    # Goes on from a fit by its rows; from one that was pickled by its weights.
    fitted = clone(whole).fit(X[:270], y[:270])
    for begun, near in ((pickle.loads(pickle.dumps(fitted)), 0.1), (fitted, 1e-3)):
        begun.partial_fit(X[270:], y[270:])
        assert begun.n_samples_seen_ == 300
        np.testing.assert_allclose(begun.coefs_[0], whole.coefs_[0], atol=near)
