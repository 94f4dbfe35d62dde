"""SBMLogisticRegression: scikit-learn's optimum, streams, what it is given badly."""

import pickle
import tracemalloc
import warnings
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import log_softmax
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import normalize, scale

from skvrem import SBMLogisticRegression
from skvrem.data import as_source
from skvrem.linear import _stream
from skvrem.linear._arguments import OTHER_SOLVERS
from skvrem.linear._model import LogisticModel, Online, Parameters
from skvrem.linear._model_curvature import Curvature
from skvrem.linear._stream import ClassOrder, RowsAgain
from skvrem.solvers import Batch, Stochastic
from skvrem.utils._algebra import scale as scale_sums

TIGHT = {"tol": 1e-15, "max_iter": 5000}
SOLVERS = {
    "auto": {},
    "batch": {"solver": "batch"},
    "bound": {"solver": "batch", "curvature": "bound"},
    "hessian": {"solver": "batch", "curvature": "hessian"},
    "bound, lbfgs": {"acceleration": "lbfgs", "curvature": "bound"},
    "rank": {"curvature_rank": 3},
    "svrg": {"solver": "svrg"},
}


def draw(n=1000, d=8, k=2, seed=0):
    """Columns of unequal spread and mean, classes by the model itself."""
    rng = np.random.default_rng(seed)
    scale = np.geomspace(1.0, 0.3, d)
    X = (rng.normal(size=(n, d)) + 0.2) * scale
    theta = rng.normal(size=(d, k)) / scale[:, None] / np.sqrt(d)
    return X, (X @ theta + rng.gumbel(size=(n, k))).argmax(axis=1)


def twin(X, y, sample_weight=None, **params):
    params = {"solver": "newton-cholesky", "tol": 1e-12, "max_iter": 500, **params}
    with warnings.catch_warnings():
        # newton-cholesky cannot go below rounding, and says so.
        warnings.simplefilter("ignore")
        return LogisticRegression(**params).fit(X, y, sample_weight)


def loss(model, X, y, C=1.0, weight=None):
    p = model.predict_log_proba(X)[
        np.arange(len(y)), np.searchsorted(model.classes_, y)
    ]
    weight = np.ones(len(y)) if weight is None else weight
    return -weight @ p + 0.5 * np.square(model.coef_).sum() / C


def assert_same_optimum(model, other, atol=1e-6):
    np.testing.assert_allclose(model.coef_, other.coef_, atol=atol, rtol=1e-6)
    # scikit-learn leaves the sum over classes of free intercepts where it began.
    a, b = model.intercept_, other.intercept_
    if len(a) > 1:
        a, b = a - a.mean(), b - b.mean()
    np.testing.assert_allclose(a, b, atol=10 * atol, rtol=1e-6)


# The optimum


@pytest.mark.parametrize("load", [load_iris, load_wine, load_breast_cancer])
@pytest.mark.parametrize("tol", [1e-4, 1e-6, 1e-8])
@pytest.mark.parametrize("solver", ["auto", "batch", "svrg"])
def test_tol_bounds_the_derivatives_and_so_the_coefficients(solver, tol, load):
    X, y = load(return_X_y=True)
    X = scale(X)
    model = SBMLogisticRegression(solver=solver, tol=tol, max_iter=2000).fit(X, y)
    assert model.stop_reason_ == "tol"
    assert model.gap_left_ < tol
    residuals = (y[:, None] == model.classes_) - model.predict_proba(X)
    residuals = residuals[:, -len(model.coef_) :]
    slopes = (X.T @ residuals - model.coef_.T) / len(X), residuals.mean(axis=0)
    # Rounding of the objective hides what is below the square root of it.
    assert max(abs(part).max() for part in slopes) <= max(tol, 2e-8)
    if tol == 1e-8:
        assert abs(model.coef_ - twin(X, y).coef_).max() < 1e-5


def test_slow_epochs_that_gain_are_no_standstill():
    # What the metric predicts is far too much here at first.
    X, y = load_digits(return_X_y=True)
    model = SBMLogisticRegression(solver="batch", tol=1e-6, max_iter=1000)
    model.fit(scale(X), y)
    assert model.stop_reason_ == "tol"
    assert loss(model, scale(X), y) == pytest.approx(
        loss(twin(scale(X), y), scale(X), y), rel=1e-6
    )


@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", SOLVERS)
def test_it_ends_at_the_optimum_of_scikit_learn(name, sparse, k):
    X, y = draw(k=k)
    if sparse:
        X = sp.csr_matrix(np.where(np.abs(X) > 0.3, X, 0.0))
    model = SBMLogisticRegression(random_state=0, **SOLVERS[name], **TIGHT).fit(X, y)
    other = twin(X.toarray() if sparse else X, y)
    assert_same_optimum(model, other)
    assert loss(model, X, y) <= loss(other, X, y) * (1.0 + 1e-9)
    assert model.converged_


@pytest.mark.parametrize(
    "params", [{"C": 0.01}, {"C": 100.0}, {"fit_intercept": False}]
)
@pytest.mark.parametrize("k", [2, 3])
def test_parameters_of_the_objective(params, k):
    X, y = draw(k=k)
    assert_same_optimum(
        SBMLogisticRegression(**params, **TIGHT).fit(X, y), twin(X, y, **params)
    )


@pytest.mark.parametrize("class_weight", [None, "balanced", {0: 0.3, 1: 2.0}])
def test_weights(class_weight, rng):
    X, y = draw()
    weight = rng.uniform(size=len(y)) * (rng.uniform(size=len(y)) < 0.8)
    params = {"class_weight": class_weight}
    model = SBMLogisticRegression(**params, **TIGHT).fit(X, y, weight)
    assert_same_optimum(model, twin(X, y, weight, **params))


@pytest.mark.parametrize("name", SOLVERS)
def test_weights_are_repetitions(name, rng):
    X, y = draw(n=300, k=3)
    weight = rng.integers(4, size=300)
    model = SBMLogisticRegression(random_state=0, **SOLVERS[name], **TIGHT)
    weighted = model.fit(X, y, weight).coef_
    repeated = model.fit(np.repeat(X, weight, axis=0), np.repeat(y, weight)).coef_
    np.testing.assert_allclose(weighted, repeated, atol=1e-6)


def test_the_penalty_of_the_intercept_is_that_of_liblinear():
    X, y = draw()
    model = SBMLogisticRegression(penalize_intercept=True, C=0.05, **TIGHT).fit(X, y)
    other = twin(X, y, solver="liblinear", C=0.05, max_iter=10_000)
    assert_same_optimum(model, other)


def test_no_penalty():
    X, y = draw()
    for params in ({"C": np.inf}, {"penalty": None}):
        model = SBMLogisticRegression(**params, **TIGHT).fit(X, y)
        assert_same_optimum(model, twin(X, y, C=np.inf))


@pytest.mark.parametrize("name", SOLVERS)
def test_class_sorted_rows(name):
    X, y = draw(k=3)
    order = np.argsort(y, kind="stable")
    model = SBMLogisticRegression(random_state=0, **SOLVERS[name], **TIGHT)
    assert_same_optimum(model.fit(X[order], y[order]), twin(X, y))


def test_separable_but_regularised():
    X, y = load_iris(return_X_y=True)
    X, y = X[y < 2], y[y < 2]
    for params in SOLVERS.values():
        model = SBMLogisticRegression(random_state=0, **params, **TIGHT).fit(X, y)
        assert_same_optimum(model, twin(X, y))


@pytest.mark.parametrize("n, d, C, seed", [(5, 5000, 1e3, 108), (6, 500, 700.0, 148)])
def test_few_rows_that_are_soon_far_on_their_side(n, d, C, seed):
    # Where the first steps overshoot, a free intercept has no curvature left.
    rng = np.random.default_rng(seed)
    X = sp.random(n, d, 0.2, "csr", random_state=rng)
    y = np.arange(n) % 2
    ours = SBMLogisticRegression(C=C, tol=1e-8).fit(X, y)
    theirs = LogisticRegression(C=C, tol=1e-10, max_iter=10000).fit(X, y)
    assert ours.converged_
    ours, theirs = ours.decision_function(X), theirs.decision_function(X)
    np.testing.assert_allclose(ours, theirs, rtol=1e-2)


@pytest.mark.parametrize("seed", [1, 4, 10])
def test_few_rows_of_many_classes_far_from_zero(seed):
    """Matrices of the classes one by one are far from the Hessian, old ones too."""
    rng = np.random.default_rng(seed)
    X = (rng.normal(size=(11, 5)) + 1e4) * (rng.uniform(size=(11, 5)) < 0.5)
    X, y = sp.csr_matrix(X), np.arange(11) % 5
    model = SBMLogisticRegression().fit(X, y)
    twin = LogisticRegression(solver="newton-cg", tol=1e-9, max_iter=5000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        twin.fit(X.toarray(), y)
    Z = log_softmax(twin.decision_function(X.toarray()), axis=1)
    best = 0.5 * np.square(twin.coef_).sum() - Z[np.arange(11), y].sum()
    assert model.converged_
    assert -model.objective_ < best / 11 + 1e-6


@pytest.mark.parametrize("size, shape, C, seed", [
    (1e8, (200, 3), 1.0, 0), (10.0, (6, 200), 1e4, 1)
])  # fmt: skip
def test_a_fit_that_rounding_ends_has_converged(size, shape, C, seed):
    """Derivatives of large float32 rows are never as small as tol."""
    rng = np.random.default_rng(seed)
    X = size * rng.normal(size=shape)
    y = np.arange(len(X)) % 2 if len(X) < 10 else (X[:, 0] > 0).astype(int)
    model = SBMLogisticRegression(C=C).fit(X.astype(np.float32), y)  # no warning
    assert model.converged_
    best = SBMLogisticRegression(C=C, tol=1e-12, max_iter=5000).fit(X, y)
    assert model.objective_ > best.objective_ - 1e-6


def test_rows_enough_for_a_start_on_a_sample():
    X, y = draw(n=30_000, d=20)
    model = SBMLogisticRegression(**TIGHT).fit(X, y)
    passes = model.history_["passes"]
    assert 1.0 < passes[0] < 2.0 and passes[-1] < 15.0
    assert_same_optimum(model, twin(X, y))


def test_many_features_for_the_rows(rng):
    X = rng.normal(size=(60, 300))
    y = rng.integers(3, size=60)
    for rank in (None, 5):
        model = SBMLogisticRegression(curvature_rank=rank, **TIGHT).fit(X, y)
        assert_same_optimum(model, twin(X, y, solver="lbfgs", max_iter=5000))
    sparse = SBMLogisticRegression(**TIGHT).fit(sp.csr_matrix(X), y)
    assert_same_optimum(sparse, model)


def draw_text(n=300, d=2500, seed=0, dtype=np.float64):
    """Sparse rows of unit length, columns by Zipf's law, two classes."""
    rng = np.random.default_rng(seed)
    share = 1.0 / np.arange(20, d + 20)
    columns = rng.choice(d, size=(n, 40), p=share / share.sum())
    parts = (np.repeat(np.arange(n), 40), columns.ravel())
    X = sp.csr_array((np.ones(40 * n), parts), shape=(n, d))
    X.sum_duplicates()
    X = normalize(X).astype(dtype)
    theta = 4.0 * rng.normal(size=d)
    return X, (X @ theta + rng.logistic(size=n) > 0.5).astype(int)


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"fit_intercept": False},
        {"penalize_intercept": True},
        {"C": 0.1},
        {"C": 30.0},
        {"class_weight": "balanced"},
    ],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_sparse_rows_of_two_classes(params, weighted, rng):
    X, y = draw_text()
    weight = rng.uniform(0.0, 3.0, len(y)) if weighted else None
    if weighted:
        weight[::7] = 0.0
    model = SBMLogisticRegression(random_state=0, **params, **TIGHT)
    model.fit(X, y, weight)
    if "penalize_intercept" in params:
        ones = sp.hstack([X, np.ones((len(y), 1))], format="csr")
        other = twin(ones, y, weight, solver="newton-cg", fit_intercept=False)
        coef = np.append(model.coef_, model.intercept_)
        np.testing.assert_allclose(coef, other.coef_[0], atol=1e-6)
        return
    # Where rounding hides what is left, errors are C times those of the gradient.
    atol = 1e-6 * max(1.0, params.get("C", 1.0))
    assert_same_optimum(model, twin(X, y, weight, solver="newton-cg", **params), atol)


def test_sparse_rows_take_few_passes():
    X, y = draw_text(2000)
    tight = SBMLogisticRegression(**TIGHT).fit(X, y)
    for params in ({}, {"fit_intercept": False}):
        tight.set_params(**params).fit(X, y)
        model = SBMLogisticRegression(**params).fit(X, y)
        assert model.converged_ and model.history_["passes"][-1] < 18.0
        assert loss(model, X, y) < loss(tight, X, y) * (1.0 + 1e-6)
        # The start was all that it took, which is known without a step.
        if params:
            assert model.n_iter_[0] == 1
            assert model.history_["passes"][0] == model.history_["passes"][1]


def test_sparse_rows_that_are_long_for_the_penalty():
    X, y = draw_text()
    model = SBMLogisticRegression(random_state=0, C=1e6).fit(X, y)
    # The start was given up, and cost no more than it said.
    assert model.history_["passes"][0] < 6.0
    assert model.history_["objective"][0] == pytest.approx(-np.log(2.0))
    free = SBMLogisticRegression(C=np.inf).fit(X, y)
    assert free.history_["passes"][0] < 3.0


def test_sparse_rows_by_any_number_of_threads_and_types():
    X, y = draw_text(20_000)
    a, b, other = (
        SBMLogisticRegression(n_jobs=n, random_state=seed).fit(X, y)
        for n, seed in ((1, 0), (3, 0), (1, 1))
    )
    np.testing.assert_array_equal(a.coef_, b.coef_)
    assert (a.coef_ != other.coef_).any()  # another order of the rows
    np.testing.assert_allclose(a.coef_, other.coef_, atol=1e-3)
    low = SBMLogisticRegression(random_state=0).fit(X.astype(np.float32), y)
    assert low.coef_.dtype == np.float32
    np.testing.assert_allclose(low.coef_, a.coef_, atol=1e-3)


def test_warm_starts_on_sparse_rows():
    X, y = draw_text()
    model = SBMLogisticRegression(warm_start=True, **TIGHT).fit(X, y)
    passes = model.history_["passes"][-1]
    again = model.fit(X, y)
    assert again.history_["passes"][-1] < 0.5 * passes
    assert_same_optimum(again, twin(X, y, solver="newton-cg"))


def test_what_the_ridge_proves_is_left(rng):
    X, y = draw(n=200, d=4)
    penalty = np.full(4, 2.0)
    model = LogisticModel(2, penalty, 200.0, False, Curvature("gram", 4, 1))
    source = as_source(X, None, y.astype(np.int8))
    best = -loss(twin(X, y, C=0.5, fit_intercept=False), X, y, C=0.5) / 200.0
    for size in (0.0, 0.1, 3.0):
        point = model.start(Parameters(size * rng.normal(size=(4, 1))))
        sums = source.chunks().sum(partial(model.statistics, point, beta=1.0))
        mean = scale_sums(sums, 1.0 / 200.0)
        left = best - model.objective(point, mean)
        assert 0.0 <= left <= model.most_left(point, mean)
    free = LogisticModel(2, 0.0 * penalty, 200.0, False, model.curvature)
    assert free.most_left(point, mean) == np.inf


def test_float32(rng):
    X, y = draw()
    model = SBMLogisticRegression().fit(X.astype(np.float32), y)
    exact = SBMLogisticRegression(**TIGHT).fit(X, y)
    assert model.coef_.dtype == model.intercept_.dtype == np.float32
    assert model.predict_proba(X.astype(np.float32)).dtype == np.float32
    np.testing.assert_allclose(model.coef_, exact.coef_, atol=2e-2)
    assert loss(model, X, y) < loss(exact, X, y) * (1.0 + 1e-5)


def test_default_tolerance_is_a_relative_gap_of_a_millionth():
    for k in (2, 5):
        X, y = draw(n=5000, k=k)
        best = loss(SBMLogisticRegression(**TIGHT).fit(X, y), X, y)
        assert loss(SBMLogisticRegression().fit(X, y), X, y) < best * (1.0 + 1e-6)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_same_bits_for_any_number_of_threads():
    X, y = draw(n=40_000, k=3)
    for solver in ("auto", "batch", "stochastic", "svrg"):
        params = {"solver": solver, "max_iter": 3, "random_state": 0}
        a, b = (SBMLogisticRegression(n_jobs=n, **params).fit(X, y) for n in (1, 3))
        np.testing.assert_array_equal(a.coef_, b.coef_)


# Stochastic bound majorization


def model_and_data(k=2, **options):
    from skvrem.data import as_source

    X, y = draw(n=60, d=4, k=k)
    columns = 1 if k == 2 else k
    curvature = Curvature("gram", 5, 1)
    ridge = np.array([1.0, 1.0, 1.0, 1.0, 0.0])
    y = y.astype(np.int32)
    model = LogisticModel(k, ridge, 60, True, curvature, **options)
    theta = 0.3 * np.random.default_rng(3).normal(size=(5, columns))
    if k > 2:
        theta -= theta.mean(axis=1, keepdims=True)
    return model, as_source(X, targets=y), theta, X, y


@pytest.mark.parametrize("k", [2, 3])
def test_with_frozen_parameters_an_epoch_is_a_batch_step(k):
    """All gradients remembered and nothing moved but at the end: Eq. 2."""
    online = Online(memory=1.0, share=1.0)
    model, data, theta, *_ = model_and_data(k, online=online)
    plain, *_ = model_and_data(k)
    point = plain.start(Parameters(theta))
    batch = Batch()
    batch.start(plain, data, None)
    expected = plain.update(point, batch.certify(point, 1.0).mean, None, 1.0)
    solver = Stochastic(12)
    solver.start(model, data, np.random.default_rng(0))
    solver.certify(point, 1.0)
    for count, visit in enumerate(solver.partition.batches, start=1):
        frozen = point._replace(parameters=Parameters(theta))
        _, mean = solver.estimate(visit, frozen)
        point = model.update(frozen, None, mean, 1.0 / count)
    np.testing.assert_allclose(
        point.parameters.theta, expected.parameters.theta, rtol=1e-12, atol=1e-13
    )


def test_without_memory_steps_follow_the_newest_block():
    """Every block's own gradient, by the mean of the curvatures seen."""
    model, data, theta, *_ = model_and_data()
    solver = Stochastic(3)
    solver.start(model, data, np.random.default_rng(0))
    point, curvatures = model.start(Parameters(theta)), []
    solver.certify(point, 1.0)
    for count, visit in enumerate(solver.partition.batches, start=1):
        _, mean = solver.estimate(visit, point)
        curvatures.append(np.diag(model.ridge) + mean.curvature.reshape(5, 5))
        gradient = mean.gradient - model.ridge[:, None] * theta
        step = np.linalg.solve(np.mean(curvatures, axis=0), gradient)
        theta = theta + step / count
        point = model.update(point, None, mean, 1.0 / count)
        np.testing.assert_allclose(point.parameters.theta, theta, rtol=1e-7)


def test_algorithm_2_corrected_and_printed():
    """phi = M mu, rank-one update by rank-one update; the printed xi is another."""
    _, _, theta, X, y = model_and_data()
    features = np.column_stack([X, np.ones(60)])
    t, lam, theta = 60, 1.0, theta[:, 0]

    def epoch(printed):
        M, mu, phi = np.eye(5) / lam, np.zeros(5), np.zeros(5)
        for x, label in zip(features, y, strict=True):
            z, g = 0.0, np.zeros(5)
            for outcome in range(2):
                f = outcome * x
                alpha, difference = np.exp(theta @ f), f - g
                ratio = np.log(alpha / z) if z else np.inf
                small = abs(ratio) < 1e-8
                beta = 0.25 if small else np.tanh(ratio / 2) / (2 * ratio)
                kappa = alpha / (z + alpha)
                xi = kappa * difference
                if printed or outcome == 0:  # once for each row
                    xi = xi - label * x + lam * theta / t
                Ml = M @ difference
                N = beta * np.outer(Ml, Ml) / (1.0 + beta * difference @ Ml)
                M = M - N
                phi += M @ xi - N @ mu
                g, mu, z = g + kappa * difference, mu + xi, z + alpha
        return M, mu, phi

    M, mu, phi = epoch(printed=False)
    np.testing.assert_allclose(phi, M @ mu, rtol=1e-12)
    s = features @ theta
    p = 1.0 / (1.0 + np.exp(-s))
    gradient = features.T @ (p - y) + lam * theta
    sigma = (features.T * (np.tanh(s / 2) / (2 * s))) @ features + lam * np.eye(5)
    np.testing.assert_allclose(phi, np.linalg.solve(sigma, gradient), rtol=1e-10)
    *_, wrong = epoch(printed=True)
    assert np.linalg.norm(wrong - phi) > np.linalg.norm(phi)


@pytest.mark.parametrize("k", [2, 4])
def test_one_pass_reaches_the_sampling_error(k):
    X, y = draw(n=20_000, d=10, k=k)
    best = loss(SBMLogisticRegression(**TIGHT).fit(X, y), X, y)
    model = SBMLogisticRegression(solver="stochastic", max_iter=1, random_state=0)
    with pytest.warns(ConvergenceWarning):
        model.fit(X, y)
    assert loss(model, X, y) < best * (1.0 + 2e-3)
    # A pass over the blocks, and one that says what was reached.
    assert model.history_["passes"][-1] == 2.0


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_all_gradients_remembered_is_slow():
    X, y = draw(n=5000)
    gaps = []
    for memory in (0.0, 1.0):
        model = SBMLogisticRegression(
            solver="stochastic",
            gradient_memory=memory,
            step_size=1.0,
            max_iter=1,
            random_state=0,
        )
        gaps.append(loss(model.fit(X, y), X, y))
    best = loss(SBMLogisticRegression(**TIGHT).fit(X, y), X, y)
    assert gaps[1] - best > 5.0 * (gaps[0] - best)


@pytest.mark.parametrize("tol", [1e-3, 1e-6])
@pytest.mark.parametrize(
    "params", [{}, {"curvature": "bound"}, {"gradient_memory": 1.0}], ids=str
)
def test_stochastic_fits_converge_to_the_optimum(params, tol):
    """Little that batches gain while the coefficients move is no end."""
    for k, n, d in (2, 400, 3), (2, 3000, 20), (4, 1000, 8):
        X, y = draw(n=n, d=d, k=k)
        best = loss(SBMLogisticRegression(**TIGHT).fit(X, y), X, y)
        model = SBMLogisticRegression(
            solver="stochastic", tol=tol, random_state=0, max_iter=500, **params
        )
        model.fit(X, y)
        assert model.converged_
        assert loss(model, X, y) < best + n * tol
        # What a full pass found, not what batches saw.
        assert -n * model.history_["objective"][-1] == pytest.approx(loss(model, X, y))


@pytest.mark.parametrize("k", [2, 4])
def test_stochastic_fits_go_over_to_full_passes_early(k):
    """Three epochs tell that steps that shrink would take long; fewer are kept to."""
    X, y = draw(n=3000, d=20, k=k)
    given = {"solver": "stochastic", "random_state": 0}
    whole = SBMLogisticRegression(**given).fit(X, y)
    names = list(whole.history_["solver"])
    n_epochs = names.count("stochastic") - 1
    assert 2 <= n_epochs <= 4 and whole.converged_
    assert names == ["stochastic"] * (n_epochs + 1) + ["batch+lbfgs"] * (
        len(names) - n_epochs - 1
    )
    with pytest.warns(ConvergenceWarning):
        few = SBMLogisticRegression(**given, max_iter=2).fit(X, y)
    assert set(few.history_["solver"]) == {"stochastic"}
    # Without a tolerance, and with a curvature that is asked for, they go on.
    for params in {"tol": 0.0}, {"curvature": "bound"}:
        model = SBMLogisticRegression(**given, max_iter=8, **params)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(X, y)
        assert set(model.history_["solver"]) == {"stochastic"}


# Streams


def blocks(X, y, size):
    for start in range(0, len(y), size):
        yield X[start : start + size], y[start : start + size]


def stream(model, X, y, size=200):
    for rows, classes in blocks(X, y, size):
        model.partial_fit(rows, classes, classes=np.unique(y))
    return model


@pytest.fixture
def forgets(monkeypatch):
    """Streams are as those of too many rows to keep."""
    monkeypatch.setattr(_stream, "MOST_BYTES", 0)


@pytest.mark.usefixtures("forgets")
@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("sparse", [False, True])
def test_a_stream_comes_near_the_optimum(k, sparse):
    X, y = draw(n=10_000, k=k)
    X = sp.csr_matrix(X) if sparse else X
    model = stream(SBMLogisticRegression(), X, y)
    best = loss(SBMLogisticRegression(**TIGHT).fit(X, y), X, y)
    assert loss(model, X, y) < best * (1.0 + 5e-3)
    assert model.n_samples_seen_ == 10_000
    assert model.step_size_ == pytest.approx(200 / 10_000)


@pytest.mark.usefixtures("forgets")
@pytest.mark.parametrize("k", [2, 3])
def test_a_class_sorted_stream_beats_sgd(k):
    X, y = draw(n=10_000, k=k)
    order = np.argsort(y, kind="stable")
    ours = stream(SBMLogisticRegression(), X[order], y[order])
    sgd = stream(SGDClassifier("log_loss", random_state=0), X[order], y[order])
    shuffled = stream(SBMLogisticRegression(), X, y)
    assert ours.score(X, y) > sgd.score(X, y)
    assert ours.score(X, y) > shuffled.score(X, y) - 0.05


@pytest.mark.usefixtures("forgets")
@pytest.mark.parametrize("within", [False, True])
@pytest.mark.parametrize("size", [50, 1000])
def test_a_stream_does_what_one_stochastic_epoch_does(size, within):
    """The bound of rows far out is loose; their order in a batch tells nothing."""
    rng = np.random.default_rng(0)
    X = rng.standard_t(2.5, size=(20_000, 5))
    y = (X @ [2.0, 1.0, 0.5, -1.0, 0.0] + rng.logistic(size=len(X)) > 0).astype(int)
    once = SBMLogisticRegression(solver="stochastic", max_iter=1, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        best = loss(once.fit(X, y), X, y)
    bound = SBMLogisticRegression(curvature="bound", random_state=0)
    ours = SBMLogisticRegression(random_state=0)
    order = np.arange(len(y))
    if within:
        order = np.lexsort((y, order // size))
    ours, bound = (stream(m, X[order], y[order], size) for m in (ours, bound))
    gap, wide = loss(ours, X, y) - best, loss(bound, X, y) - best
    assert gap < 0.02 * best and gap < 0.2 * wide


@pytest.mark.usefixtures("forgets")
@pytest.mark.parametrize("size", [1, 10, 100, 1000, 4000])
@pytest.mark.parametrize("k", [2, 3])  # the 3,974 of two come before 26 others
def test_a_stream_that_comes_class_by_class_keeps_the_bound(k, size):
    X, y = draw(n=10_000, k=k)
    order = np.argsort(y, kind="stable")
    n = 2000 if size < 10 else None
    some = order[:: len(y) // n] if n else order
    bound = SBMLogisticRegression(curvature="bound", random_state=0)
    ours = stream(SBMLogisticRegression(random_state=0), X[some], y[some], size)
    np.testing.assert_array_equal(
        ours.coef_, stream(bound, X[some], y[some], size).coef_
    )


def test_classes_are_mixed_where_batches_are_as_diverse_as_all_rows():
    y = np.random.default_rng(0).choice(3, 600, p=[0.7, 0.2, 0.1])
    for size in (1, 7, 200):
        order = ClassOrder.unknown(3)
        for start in range(0, 600, size):
            order = order.after(y[start : start + size])
        counts = order.seen + order.newest
        np.testing.assert_array_equal(counts, np.bincount(y))
        pairs = (y[:200, None] != y[None, :200]).sum() / 200
        if size == 200:
            first = ClassOrder.unknown(3).after(y[:200])
            assert first.within == pytest.approx(pairs)
        assert order.mixed
    # The first rows of a class, after a long run of another, are no evidence.
    order = ClassOrder.unknown(2)
    for rows in (*np.zeros((5, 100), int), np.arange(100) // 95):
        order = order.after(rows)
        assert not order.mixed


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("order", ["random", "by a column", "by class"])
def test_a_stream_of_rows_that_are_kept_ends_at_the_fit(order, k, sparse):
    X, y = draw(n=2000, k=k)
    by = {"random": np.arange(2000), "by a column": X[:, 0], "by class": y}[order]
    at = np.argsort(by, kind="stable")
    X, y = (sp.csr_matrix(X[at]) if sparse else X[at]), y[at]
    weight = np.random.default_rng(0).uniform(0.5, 2.0, 2000)
    best = SBMLogisticRegression(**TIGHT).fit(X, y, sample_weight=weight)
    for size in (7, 100):  # all are seen again at the end where a hundredth is new
        model = SBMLogisticRegression()
        for first in range(0, 2000, size):
            rows = slice(first, first + size)
            given = {"classes": np.unique(y), "sample_weight": weight[rows]}
            model.partial_fit(X[rows], y[rows], **given)
        assert loss(model, X, y) < loss(best, X, y) * 1.001
        if size == 100:
            np.testing.assert_allclose(model.coef_, best.coef_, atol=5e-3)
    assert model._again.kept.are_all and model._again.n_looked == 2000


@pytest.mark.parametrize("order", ["random", "by class"])
def test_a_stream_of_more_rows_than_are_kept_goes_on_by_steps(order, monkeypatch):
    """From the fit to those kept, but where that would take the last class for rare."""
    X, y = draw(n=10_000, k=3)
    at, found = np.argsort(y * (order == "by class"), kind="stable"), []
    for most in (0, 600_000):  # of 7,000 rows
        monkeypatch.setattr(_stream, "MOST_BYTES", most)
        model = SBMLogisticRegression(random_state=0)
        found.append(stream(model, X[at], y[at]))
        assert model._again == RowsAgain()
    steps, from_fit = found
    if order == "by class":
        np.testing.assert_allclose(from_fit.coef_, steps.coef_, rtol=1e-9, atol=1e-12)
        return
    best = loss(SBMLogisticRegression(**TIGHT).fit(X, y), X, y)
    assert loss(from_fit, X, y) - best < 0.8 * (loss(steps, X, y) - best)


def test_a_stream_loses_nothing_where_rows_become_too_many(monkeypatch):
    X, y = draw(n=10_000)
    monkeypatch.setattr(_stream, "MOST_BYTES", 400_000)
    model, losses = SBMLogisticRegression(random_state=0), []
    for rows, classes in blocks(X, y, 500):
        model.partial_fit(rows, classes, classes=[0, 1])
        losses.append(loss(model, X, y))
    assert model._again == RowsAgain()
    best = loss(SBMLogisticRegression(**TIGHT).fit(X, y), X, y)
    few = losses[5] - best  # 3,000 rows, all of which are kept
    assert max(losses[6:]) - best < few and losses[-1] - best < 0.5 * few


@pytest.mark.parametrize("k", [2, 3])
def test_a_stream_that_begins_after_a_fit_is_no_worse_than_that(k):
    X, y = draw(n=10_000, k=k)
    model = SBMLogisticRegression(random_state=0).fit(X[:5000], y[:5000])
    best = loss(SBMLogisticRegression(**TIGHT).fit(X, y), X, y)
    before = loss(model, X, y) - best
    for rows, classes in blocks(X[5000:], y[5000:], 1000):
        model.partial_fit(rows, classes)
        assert loss(model, X, y) - best < 1.2 * before
    assert loss(model, X, y) - best < 0.7 * before


def test_a_stream_looks_again_when_all_classes_have_come():
    X, y = draw(n=2000)
    order = np.argsort(y, kind="stable")
    first, both = order[:500], np.append(order[:500], order[-500:])
    model = SBMLogisticRegression()
    for rows, looked in ((first, 0), (order[-500:], 1000)):
        model.partial_fit(X[rows], y[rows], classes=[0, 1])
        assert model._again.n_looked == looked
    # What is asked for are steps.
    for steps in ({"step_size": 1.0}, {"curvature": "bound"}, {"gradient_memory": 0.5}):
        model = stream(SBMLogisticRegression(**steps), X[both], y[both])
        assert model._again == RowsAgain()


def test_a_stream_has_no_standard_errors():
    X, y = draw(n=400)
    model = SBMLogisticRegression(compute_std=True).fit(X, y)
    assert not hasattr(model.partial_fit(X, y), "coef_std_")


def test_a_stream_is_pickled_midway():
    X, y = draw(n=3000, k=3)
    whole = stream(SBMLogisticRegression(random_state=0), X, y)
    parts = SBMLogisticRegression(random_state=0)
    for rows, labels in blocks(X, y, 200):
        parts = pickle.loads(pickle.dumps(parts))
        parts.partial_fit(rows, labels, classes=[0, 1, 2])
    np.testing.assert_array_equal(whole.coef_, parts.coef_)


def test_a_stream_goes_on_from_a_fit():
    X, y = draw(n=4000)
    model = SBMLogisticRegression().fit(X[:3000], y[:3000])
    before = model.coef_
    model.partial_fit(X[3000:], y[3000:])
    assert 0.0 < abs(model.coef_ - before).max() < 0.5
    assert model.n_samples_seen_ == 4000 and not hasattr(model, "history_")


def test_total_samples_is_what_the_penalty_is_spread_over():
    X, y = draw(n=400)
    few = SBMLogisticRegression(C=0.01).partial_fit(X, y, classes=[0, 1])
    many = SBMLogisticRegression(C=0.01, total_samples=1e6)
    many.partial_fit(X, y, classes=[0, 1])
    assert np.linalg.norm(many.coef_) > 1.5 * np.linalg.norm(few.coef_)


def test_classes_of_a_stream():
    X, y = draw(n=100, k=3)
    model = SBMLogisticRegression()
    with pytest.raises(ValueError, match="first call"):
        model.partial_fit(X, y)
    model.partial_fit(X[y < 2], y[y < 2], classes=[0, 1])
    before = dict(vars(model))
    with pytest.raises(ValueError, match=r"classes \[2\]"):
        model.partial_fit(X, y)
    with pytest.raises(ValueError, match="not the same as on last call"):
        model.partial_fit(X, y, classes=[0, 1, 2])
    assert vars(model) == before
    # A batch of one class is as good as any.
    model.partial_fit(X[y == 0], y[y == 0])


# What it is given badly


def test_one_class():
    with pytest.raises(ValueError, match="only one class"):
        SBMLogisticRegression().fit([[1.0], [2.0]], [3, 3])
    with pytest.raises(ValueError, match="rows of positive weight"):
        SBMLogisticRegression().fit([[1.0], [2.0]], [3, 4], sample_weight=[1.0, 0.0])


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"C": 0.0}, "C of SBMLogisticRegression must be a number above 0"),
        ({"C": -1.0}, "above 0"),
        ({"C": np.nan}, "above 0"),
        ({"C": "1"}, "above 0"),
        ({"penalty": "l1"}, "solver='saga'"),
        ({"l1_ratio": 0.5}, "solver='saga'"),
        ({"dual": True}, "dual=False"),
        ({"intercept_scaling": 2.0}, "penalize_intercept=True"),
        ({"solver": "liblinear"}, "penalize_intercept=True"),
        ({"solver": "saga2"}, "solver of"),
        ({"solver": "svrg", "acceleration": "lbfgs"}, "goes with solver='batch'"),
        ({"gradient_memory": 1.5}, "gradient_memory of"),
        ({"curvature_rank": 0}, "curvature_rank of"),
        ({"max_iter": 1.5}, "max_iter of"),
        ({"tol": -1.0}, "tol of"),
        ({"fit_intercept": "yes"}, "fit_intercept of"),
    ],
)
def test_parameters_out_of_range(params, message):
    X, y = draw(n=50)
    model = SBMLogisticRegression(**params)
    for method in (model.fit, lambda X, y: model.partial_fit(X, y, classes=[0, 1])):
        with pytest.raises(ValueError, match=message):
            method(X, y)
        assert not hasattr(model, "n_features_in_")


@pytest.mark.parametrize("solver", OTHER_SOLVERS)
def test_solvers_of_scikit_learn_mean_auto(solver):
    X, y = draw(n=200)
    model = SBMLogisticRegression(solver=solver).fit(X, y)  # warnings are errors
    assert model.solver_ == "batch+lbfgs"


def test_no_penalty_has_no_strength():
    X, y = draw(n=200)
    without = SBMLogisticRegression(penalty=None).fit(X, y)
    with pytest.warns(UserWarning, match="penalty=None will ignore the C") as caught:
        model = SBMLogisticRegression(penalty=None, C=0.1).fit(X, y)
    assert [w.filename for w in caught] == [__file__]
    np.testing.assert_array_equal(model.coef_, without.coef_)


def test_numpy_booleans():
    X, y = draw(n=200)
    expected = SBMLogisticRegression(fit_intercept=False).fit(X, y)
    no = np.array([False])[0]
    model = SBMLogisticRegression(fit_intercept=no, dual=no, warm_start=no, verbose=no)
    np.testing.assert_array_equal(model.fit(X, y).coef_, expected.coef_)


def test_n_iter_counts_the_batches_of_a_stream():
    X, y = draw(n=200)
    model = SBMLogisticRegression()
    for n in (1, 2):
        model.partial_fit(X, y, classes=[0, 1])
        np.testing.assert_array_equal(model.n_iter_, [n])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("solver", ["auto", "batch", "stochastic", "svrg"])
def test_rows_that_are_not_finite(bad, solver):
    X, y = draw(n=20_000, d=3)
    X[19_000, 1] = bad
    model = SBMLogisticRegression(solver=solver, max_iter=3, random_state=0)
    with pytest.raises(ValueError, match="Input X contains"):
        model.fit(X, y)
    assert vars(model) == vars(
        SBMLogisticRegression(solver=solver, max_iter=3, random_state=0)
    )


def test_rows_whose_logits_overflow(rng):
    X, y = 1e300 * rng.normal(size=(50, 3)), rng.integers(2, size=50)
    try:
        assert np.isfinite(SBMLogisticRegression().fit(X, y).coef_).all()
    except ValueError as error:
        assert "scale the columns" in str(error)


def far_rows(offset, k=2):
    """Rows that are centred exactly, and the same far from zero."""
    rng = np.random.default_rng(3)
    R = rng.integers(-64, 65, size=(200, 3)) / 32.0
    y = (R @ rng.normal(size=(3, k)) + rng.gumbel(size=(200, k))).argmax(axis=1)
    return R, R + offset, y


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("offset", [1e8, 1e11])
@pytest.mark.parametrize("name", SOLVERS)
def test_rows_far_from_zero_have_the_same_coefficients(name, offset, k):
    R, X, y = far_rows(np.array([0.0, offset, -offset]), k)
    weight = np.arange(200) % 3 + 0.5
    model = SBMLogisticRegression(**SOLVERS[name], **TIGHT).set_params(random_state=0)
    model.fit(X, y, weight)
    other = twin(R, y, weight)
    np.testing.assert_allclose(model.coef_, other.coef_, atol=2e-5)
    assert model.converged_
    proba = model.predict_proba(X)
    np.testing.assert_allclose(proba, other.predict_proba(R), atol=2e-4)


@pytest.mark.parametrize("k", [2, 3])
def test_standard_errors_far_from_zero(k):
    R, X, y = far_rows(np.array([0.0, 1e6, -3e6]), k)
    near = SBMLogisticRegression(compute_std=True, **TIGHT).fit(R, y)
    far = SBMLogisticRegression(compute_std=True, **TIGHT).fit(X, y)
    np.testing.assert_allclose(far.coef_std_, near.coef_std_, rtol=1e-6)
    # At no great distance the same formula without a shift.
    _, X, y = far_rows(np.array([0.0, 100.0, 200.0]), k)
    far = SBMLogisticRegression(compute_std=True, **TIGHT).fit(X, y)
    plain = SBMLogisticRegression(compute_std=True, **TIGHT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("skvrem.linear._estimator.find_center", lambda *_: None)
        plain.fit(X, y)
    assert far._center is not None and plain._center is None
    for name in ("coef_std_", "intercept_std_", "curvature_"):
        a, b = getattr(far, name), getattr(plain, name)
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6 * np.abs(b).max())


def test_a_stream_far_from_zero():
    R, X, y = far_rows(1e8)
    near, far = SBMLogisticRegression(), SBMLogisticRegression()
    for start in range(0, 200, 50):
        rows = slice(start, start + 50)
        near.partial_fit(R[rows], y[rows], classes=[0, 1])
        far.partial_fit(X[rows], y[rows], classes=[0, 1])
    np.testing.assert_allclose(far.coef_, near.coef_, atol=1e-4)
    far = pickle.loads(pickle.dumps(far)).fit(X, y).partial_fit(X, y)
    assert far.score(X, y) > 0.6


@pytest.mark.parametrize(
    "params, sparse, message",
    [
        ({"fit_intercept": False}, False, "without a free intercept"),
        ({"penalize_intercept": True}, False, "without a free intercept"),
        ({}, True, "in a sparse matrix"),
    ],
)
def test_rows_too_far_from_zero_to_be_moved(params, sparse, message):
    _, X, y = far_rows(1e8)
    X = sp.csr_matrix(X) if sparse else X
    model = SBMLogisticRegression(**params)
    with pytest.raises(ValueError, match=f"Column 0 of X .*{message}.*Subtract"):
        model.fit(X, y)
    with pytest.raises(ValueError, match=message):
        model.partial_fit(X, y, classes=[0, 1])
    # A column that does not vary is no harm.
    ones = np.c_[np.full(200, 1e8), far_rows(0.0)[0]]
    ones = sp.csr_matrix(ones) if sparse else ones
    model.fit(ones, y)


@pytest.mark.parametrize("dtype, offset", [(np.float32, 1e7), (np.float64, 1e16)])
def test_rows_further_than_their_numbers_can_tell(dtype, offset):
    R, _, y = far_rows(0.0)
    X = (4.0 * np.sign(R) + offset).astype(dtype)
    with pytest.raises(ValueError, match="cannot tell their logits"):
        SBMLogisticRegression().fit(X, y)


@pytest.mark.parametrize("params", [{}, {"solver": "batch"}, {"curvature_rank": 3}])
def test_a_default_fit_repeats_to_the_bit(params):
    X, y = draw(n=6000, d=3)
    a, b = (SBMLogisticRegression(**params).fit(X, y).coef_ for _ in range(2))
    np.testing.assert_array_equal(a, b)


def test_a_stream_keeps_its_intercept():
    X, y = draw(n=100)
    model = SBMLogisticRegression().fit(X, y).set_params(fit_intercept=False)
    with pytest.raises(ValueError, match="fit_intercept=False, but"):
        model.partial_fit(X, y)


def test_large_indices():
    X, y = draw(n=300)
    X = sp.csr_matrix(X)
    expected = SBMLogisticRegression(**TIGHT).fit(X, y).coef_
    large = X.copy()
    large.indices, large.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    np.testing.assert_array_equal(
        SBMLogisticRegression(**TIGHT).fit(large, y).coef_, expected
    )
    assert large.indices.dtype == np.int64


@pytest.mark.parametrize("k", [2, 3])
def test_maps_of_sparse_rows(k, tmp_path):
    X, y = draw(k=k)
    X = sp.csr_array(np.where(X > 0.3, X, 0.0))
    expected = SBMLogisticRegression(tol=1e-10).fit(X, y)
    for index, indptr in (("i4", "i8"), ("i8", "i8")):
        mapped = sp.csr_array(X.shape)
        parts = X.data, X.indices.astype(index), X.indptr.astype(indptr)
        for name, part in zip(("data", "indices", "indptr"), parts, strict=True):
            part.tofile(tmp_path / name)
            setattr(mapped, name, np.memmap(tmp_path / name, part.dtype, "r"))
        model = SBMLogisticRegression(tol=1e-10).fit(mapped, y)
        assert np.array_equal(model.coef_, expected.coef_)


@pytest.mark.parametrize("labels", [int, str, object])
@pytest.mark.parametrize("solver", ["auto", "stochastic", "svrg"])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_fit_takes_eight_bytes_a_row(solver, labels, rng):
    n = 400_000
    X = rng.normal(size=(n, 2)).astype(np.float32)
    y = np.where(X[:, 0] + rng.normal(size=n) > 0.0, "1", "0").astype(labels)
    model = SBMLogisticRegression(
        solver=solver, batch_size=20_000 if solver == "stochastic" else "auto"
    )
    model.set_params(max_iter=2, n_jobs=1, random_state=0)
    # Half the rows take what does not depend on their number.
    peaks = []
    for rows in (n // 2, n):
        tracemalloc.start()
        model.fit(X[:rows], y[:rows])
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert (peaks[1] - peaks[0]) / (n - n // 2) < 8.0


def test_columns_without_information():
    X, y = draw(n=500)
    X[:, 2], X[:, 3] = 0.0, 7.0
    for C in (1.0, np.inf):
        model = SBMLogisticRegression(C=C, **TIGHT).fit(X, y)
        assert model.coef_[0, 2] == 0.0
        assert np.isfinite(model.coef_).all()
        if C == 1.0:
            assert_same_optimum(model, twin(X, y))
    constant = SBMLogisticRegression().fit(np.ones_like(X), y)
    share = y.mean()
    np.testing.assert_allclose(constant.predict_proba(X)[:, 1], share, atol=0.3)


def test_wildly_scaled_columns():
    X, y = draw(n=3000)
    scale = 10.0 ** np.linspace(-6, 6, X.shape[1])
    model = SBMLogisticRegression(C=np.inf, **TIGHT).fit(X * scale, y)
    plain = SBMLogisticRegression(C=np.inf, **TIGHT).fit(X, y)
    np.testing.assert_allclose(model.coef_ * scale, plain.coef_, rtol=1e-4)


def test_separable_without_penalty_is_finite():
    X, y = load_iris(return_X_y=True)
    model = SBMLogisticRegression(C=1e10, max_iter=8)
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        model.fit(X[y < 2], y[y < 2])
    assert np.isfinite(model.coef_).all()
    assert model.score(X[y < 2], y[y < 2]) == 1.0


def test_rare_classes(rng):
    X = rng.normal(size=(40_000, 5))
    y = (X[:, 0] + rng.logistic(size=40_000) > 7.5).astype(int)
    assert 10 < y.sum() < 120
    assert_same_optimum(SBMLogisticRegression(**TIGHT).fit(X, y), twin(X, y))


# The rest


def test_standard_errors_are_those_of_the_hessian():
    X, y = draw(n=3000)
    model = SBMLogisticRegression(compute_std=True, **TIGHT).fit(X, y)
    p = model.predict_proba(X)[:, 1]
    features = np.column_stack([X, np.ones(len(y))])
    hessian = (features.T * (p * (1 - p))) @ features
    hessian[np.arange(8), np.arange(8)] += 1.0
    np.testing.assert_allclose(model.curvature_, hessian, rtol=1e-9)
    expected = np.sqrt(np.diag(np.linalg.inv(hessian)))
    np.testing.assert_allclose(model.coef_std_[0], expected[:-1], rtol=1e-7)
    np.testing.assert_allclose(model.intercept_std_[0], expected[-1], rtol=1e-7)


def test_standard_errors_of_several_classes(rng):
    """By the pseudo-inverse where columns sum to zero; two classes agree with one."""
    X, y = draw(n=2000, d=3, k=3)
    model = SBMLogisticRegression(compute_std=True, **TIGHT).fit(X, y)
    center = np.kron(np.eye(3) - 1.0 / 3.0, np.eye(4))
    expected = np.linalg.pinv(center @ model.curvature_ @ center, rcond=1e-9)
    expected = np.sqrt(np.diag(expected)).reshape(3, 4)
    np.testing.assert_allclose(model.coef_std_, expected[:, :3], rtol=1e-6)
    np.testing.assert_allclose(model.intercept_std_, expected[:, 3], rtol=1e-6)
    assert not hasattr(model.set_params(compute_std=False).fit(X, y), "coef_std_")


def test_a_path_of_penalties_is_cheap():
    X, y = load_digits(return_X_y=True)
    X = X / 16.0
    model = SBMLogisticRegression(warm_start=True)
    cold = warm = 0
    for C in np.geomspace(0.01, 1.0, 8):
        warm += model.set_params(C=C).fit(X, y).n_iter_[0]
        cold += SBMLogisticRegression(C=C).fit(X, y).n_iter_[0]
    assert warm < 0.8 * cold


def test_a_warm_start_at_the_optimum_makes_no_step():
    X, y = draw(k=3)
    model = SBMLogisticRegression(warm_start=True).fit(X, y)
    assert model.fit(X, y).n_iter_[0] <= 2


def test_grid_search(rng):
    X, y = draw(n=400)
    search = GridSearchCV(SBMLogisticRegression(), {"C": [0.01, 1.0]}, cv=3)
    assert search.fit(X, y).best_params_["C"] in (0.01, 1.0)


def test_inference_agrees_with_scikit_learn():
    for k in (2, 3):
        X, y = draw(k=k)
        y = np.array(["a", "b", "c"])[y]
        model, other = SBMLogisticRegression(**TIGHT).fit(X, y), twin(X, y)
        for method in ("decision_function", "predict_proba", "predict_log_proba"):
            a, b = (getattr(m, method)(X) for m in (model, other))
            if method == "decision_function" and k > 2:
                a, b = (z - z.mean(axis=1, keepdims=True) for z in (a, b))
            np.testing.assert_allclose(a, b, atol=1e-5)
        np.testing.assert_array_equal(model.predict(X), other.predict(X))


def test_sparse_coefficients():
    X, y = draw(k=3)
    model = SBMLogisticRegression(warm_start=True).fit(X, y)
    expected = model.predict_proba(X)
    dense = model.coef_
    assert sp.issparse(model.sparsify().coef_)
    np.testing.assert_allclose(model.predict_proba(X), expected, rtol=1e-12)
    model.partial_fit(X, y)
    assert isinstance(model.coef_, np.ndarray)
    model.sparsify().densify()
    assert isinstance(model.coef_, np.ndarray) and model.coef_.shape == dense.shape


def test_summary():
    X, y = draw(n=500, d=2)
    model = SBMLogisticRegression(compute_std=True).fit(X, y)
    text = str(model.summary())
    assert "intercept" in text and "1 se" in text
    table = model.summary()
    if hasattr(table, "attrs"):
        assert table.attrs["solver"] == "batch+lbfgs"
        assert table.shape == (3, 4)


def test_acceleration_is_left_out_where_it_is_none():
    X, y = draw(k=3)
    for params, solver in [
        ({}, "batch+lbfgs"),
        ({"solver": "batch"}, "batch"),
        ({"acceleration": None}, "batch"),
        ({"solver": "batch", "acceleration": "lbfgs"}, "batch+lbfgs"),
    ]:
        # The bound to the end: that of the Hessian takes over where it is slow.
        params = {"curvature": "bound"} | params
        model = SBMLogisticRegression(**params, **TIGHT).fit(X, y)
        assert model.solver_ == solver
        assert_same_optimum(model, twin(X, y))


def test_the_objective_is_that_of_scikit_learn_with_the_other_sign(rng):
    X, y = draw()
    weight, C = rng.uniform(size=len(y)), 0.3
    model = SBMLogisticRegression(C=C, **TIGHT).fit(X, y, weight)
    expected = -loss(model, X, y, C, weight) / weight.sum()
    assert model.objective_ == pytest.approx(expected, rel=1e-12)
    assert model.history_["objective"][-1] == model.objective_


def test_history():
    X, y = draw(n=3000)
    model = SBMLogisticRegression(solver="batch", tol=1e-9).fit(X, y)
    objective = model.history_["objective"]
    assert (np.diff(objective) > -1e-13).all()
    assert model.objective_ == objective[-1]
    assert model.n_iter_.shape == (1,)
    assert len(objective) == model.n_iter_[0] + 1  # the start first


def test_a_stream_whose_curvature_changes_shape_goes_on():
    X, y = draw(n=400)
    model = SBMLogisticRegression().partial_fit(X[:200], y[:200], classes=[0, 1])
    model.set_params(curvature_rank=2).partial_fit(X[200:], y[200:])
    assert np.isfinite(model.coef_).all()


def test_balanced_weights_are_not_for_streams():
    X, y = draw(n=100)
    with pytest.raises(ValueError, match="not for partial_fit"):
        SBMLogisticRegression(class_weight="balanced").partial_fit(X, y, classes=[0, 1])
    weighted = SBMLogisticRegression(class_weight={0: 1.0, 1: 3.0})
    weighted.partial_fit(X, y, classes=[0, 1])
    plain = SBMLogisticRegression().partial_fit(X, y, classes=[0, 1])
    assert weighted.predict_proba(X)[:, 1].mean() > plain.predict_proba(X)[:, 1].mean()


def test_classes_given_again_keep_their_type(rng):
    X, y = rng.normal(size=(6, 2)), np.arange(6) % 2
    model = SBMLogisticRegression().partial_fit(X, y, classes=[0, 1])
    assert model.partial_fit(X, y, classes=[0.0, 1.0]).classes_.dtype.kind == "i"


@pytest.mark.parametrize("method", ["fit", "partial_fit", "later", "classes"])
def test_labels_without_an_order(method, rng):
    X, y = rng.normal(size=(6, 2)), [None, "a", "b", "a", "b", "a"]
    model = SBMLogisticRegression()
    if method == "later":
        model.partial_fit(X, ["a", "b"] * 3, classes=["a", "b"])
    before = dict(vars(model))
    calls = {
        "fit": lambda: model.fit(X, y),
        "partial_fit": lambda: model.partial_fit(X, y, classes=["a", "b"]),
        "later": lambda: model.partial_fit(X, y),
        "classes": lambda: model.partial_fit(X, ["a", "b"] * 3, classes=["a", None]),
    }
    with pytest.raises(ValueError, match="got NoneType and str: leave out the rows"):
        calls[method]()
    assert vars(model) == before


@pytest.mark.parametrize(
    ("solver", "k", "C"), [("batch", 2, 100.0), ("batch", 4, 100.0), ("svrg", 2, 1e4)]
)
def test_a_loose_bound_is_left_for_the_hessian(solver, k, C):
    """Of rows far on the right side the bound is wide, and its rate is slow."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 8))
    y = (X @ rng.normal(size=(8, k)) + 0.05 * rng.gumbel(size=(600, k))).argmax(axis=1)
    params = {"C": C, "solver": solver, "tol": 1e-13, "random_state": 0}
    model = SBMLogisticRegression(max_iter=300, **params).fit(X, y)
    bound = SBMLogisticRegression(curvature="bound", max_iter=300, **params)
    with pytest.warns(ConvergenceWarning, match="did not converge in 300"):
        bound.fit(X, y)
    assert model.converged_
    if solver == "batch":
        for fit in (model, bound):
            assert np.all(np.diff(fit.history_["objective"]) > -1e-12)
    first = (fit.history_["objective"][:3] for fit in (model, bound))
    np.testing.assert_allclose(*first, rtol=1e-12)  # bounds, to begin with
    with np.errstate(divide="ignore"):  # the twin's, of the other class
        best = loss(twin(X, y, C=C), X, y, C)
    assert loss(model, X, y, C) <= best * (1.0 + 1e-9)
    assert loss(bound, X, y, C) > best * 1.00001


@pytest.mark.parametrize("params", [{}, {"curvature_rank": 3}])
@pytest.mark.parametrize("k", [2, 3])
def test_batch_steps_of_a_part_of_the_curvature_only_climb(params, k, rng):
    """A diagonal is no bound: on rows of common words its whole steps diverge."""
    X = sp.random(120, 2100, 0.01, "csr", random_state=0)
    X.data[:] = 1.0
    X = sp.hstack([np.ones((120, 20)) / 3.0, X], "csr")
    y = rng.integers(k, size=120)
    model = SBMLogisticRegression(
        solver="batch", tol=1e-14, max_iter=3000, fit_intercept=False, **params
    ).fit(X, y)
    twin = LogisticRegression(solver="newton-cg", tol=1e-9, fit_intercept=False)
    assert np.all(np.diff(model.history_["objective"]) > -1e-12)
    assert model.solver_ == "batch"
    np.testing.assert_allclose(model.coef_, twin.fit(X, y).coef_, atol=1e-5)


def test_a_stream_of_plain_arrays_is_checked_all_the_same():
    """What needs no conversion takes a short way, and ends at the same place."""
    X, y = draw(n=200)
    fast, slow = SBMLogisticRegression(), SBMLogisticRegression()
    for a in range(0, 200, 50):
        fast.partial_fit(X[a : a + 50], y[a : a + 50], classes=[0, 1])
        slow.partial_fit(X[a : a + 50].tolist(), y[a : a + 50].tolist(), [0, 1])
    np.testing.assert_array_equal(fast.coef_, slow.coef_)
    before = fast.coef_.copy()
    for rows, labels, message in [
        (X[:5, :3], y[:5], "has 3 features"),
        (X[:5], y[:4], "inconsistent numbers of samples"),
        (X[:5], np.array([0, 1, 2, 0, 3]), r"classes \[2, 3\]"),
        (np.full((5, 8), np.nan), y[:5], "NaN"),
        (X[:0], y[:0], "0 sample"),
        (X[0], y[:1], "2D array"),
        (X[:5], np.array(1), "1d array"),
    ]:
        with pytest.raises(ValueError, match=message):
            fast.partial_fit(rows, labels)
    np.testing.assert_array_equal(fast.coef_, before)


# Rows of weight zero


@pytest.mark.parametrize("share", [0.02, 0.6])
@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("solver", ["auto", "batch", "svrg", "stochastic"])
def test_rows_of_weight_zero_cost_no_iterations(solver, container, share, rng):
    X, y = draw(10_000, k=3)
    told = rng.random(len(y)) < share
    weight = told * rng.integers(1, 4, len(y))
    model = SBMLogisticRegression(solver=solver, max_iter=500, random_state=0)
    alone = pickle.loads(pickle.dumps(model))
    alone.fit(container(X[told]), y[told], sample_weight=weight[told])
    model.fit(container(X), y, sample_weight=weight)
    assert model.n_iter_[0] <= alone.n_iter_[0] + 3
    assert model.n_samples_seen_ == len(y)
    np.testing.assert_allclose(model.coef_, alone.coef_, atol=1e-3)
    assert model.objective_ == pytest.approx(alone.objective_, abs=1e-6)


def test_rows_of_weight_zero_in_blocks_cost_no_iterations(rng):
    da = pytest.importorskip("dask.array")
    X, y = draw(10_000, k=3)
    told = rng.random(len(y)) < 0.02
    told[:2000] = False
    alone = SBMLogisticRegression().fit(X[told], y[told])
    rows, weight = da.from_array(X, (1000, 8)), told.astype(float)
    model = SBMLogisticRegression().fit(rows, y, sample_weight=weight)
    assert model.n_iter_[0] <= alone.n_iter_[0] + 3
    np.testing.assert_allclose(model.coef_, alone.coef_, atol=1e-4)


def test_rows_of_weight_zero_are_checked_too():
    X, y = draw()
    weight = np.zeros(len(y))
    weight[:100] = 1.0
    X[-1, 0] = np.nan
    with pytest.raises(ValueError, match="Input X contains NaN"):
        SBMLogisticRegression().fit(X, y, sample_weight=weight)
