"""SBMLogisticRegression where the penalty leaves the coefficients to the rows."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import scale

from skvrem import SBMLogisticRegression
from skvrem.linear._model_curvature import Curvature


def draw_rare(k, sparse, seed=0):
    """Common columns, and as many of one or two entries; classes by the common ones."""
    rng = np.random.default_rng(seed)
    n, d = (6000, 1100) if sparse else (3000, 20)
    X = sp.random_array((n, d), density=0.02 if sparse else 0.5, rng=rng).toarray()
    rare = np.zeros((n, d))
    rare[rng.integers(n, size=2 * d), np.repeat(np.arange(d), 2)] = 1.0
    Z = X @ rng.normal(size=(d, k)) + rng.gumbel(size=(n, k))
    X = np.hstack([X, rare])
    return (sp.csr_matrix(X) if sparse else X), Z.argmax(axis=1)


def draw_factors(k, seed=0):
    """Factors of many levels, some of them rare, standardised and so collinear."""
    rng = np.random.default_rng(seed)
    n, levels = 3000, 12
    share = np.geomspace(1.0, 0.004, levels)
    codes = rng.choice(levels, size=(n, 3), p=share / share.sum())
    X = np.eye(levels)[codes].reshape(n, -1)
    Z = X @ rng.normal(size=(X.shape[1], k)) + 2.0 * rng.gumbel(size=(n, k))
    return scale(X), Z.argmax(axis=1)


def objective(model, X, y, C):
    """The objective a row, from what is fitted."""
    p = model.predict_log_proba(X)[np.arange(len(y)), y]
    return p.mean() - 0.5 * np.square(model.coef_).sum() / (C * len(y))


def best_objective(X, y, C):
    """Return that of scikit-learn's Newton steps, to the last digits."""
    solver = "newton-cg" if sp.issparse(X) else "newton-cholesky"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LogisticRegression(C=C, solver=solver, tol=1e-10, max_iter=1000)
        return objective(model.fit(X, y), X, y, C)


@pytest.mark.parametrize(
    ("k", "sparse", "C"),
    [(2, False, 1e6), (4, False, 1e6), (2, True, 1e3), (3, True, 1e3)],
)
def test_columns_that_a_sample_misses(k, sparse, C):
    X, y = draw_rare(k, sparse)
    best = best_objective(X, y, C)
    model = SBMLogisticRegression(C=C)
    for max_iter in (20, 60, 500):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.set_params(max_iter=max_iter).fit(X, y)
        missing = best - objective(model, X, y, C)
        # What is left, and is told: no fit claims much less.
        assert missing < 10.0 * model.gap_left_ + 1e-9
    assert model.converged_ and missing < 1e-5


@pytest.mark.parametrize("k", [2, 4])
def test_the_smallest_penalties_are_as_none(k):
    X, y = draw_factors(k)
    best = best_objective(X, y, 1e8)
    for seed in (None, 1, 2):
        for C in (1e10, 1e12, 1e15, np.inf):
            model = SBMLogisticRegression(C=C, random_state=seed).fit(X, y)
            assert model.converged_
            assert objective(model, X, y, C) == pytest.approx(best, abs=2e-6)


def test_large_weights_are_a_small_penalty():
    X, y = draw_factors(3)
    weight = np.full(len(y), 1e6)
    for seed in (None, 1, 2):
        model = SBMLogisticRegression(C=1e6, random_state=seed).fit(X, y, weight)
        same = SBMLogisticRegression(C=1e12, random_state=seed).fit(X, y)
        assert model.converged_ and same.converged_
        assert model.objective_ == pytest.approx(same.objective_, abs=1e-6)
        assert model.objective_ == pytest.approx(best_objective(X, y, 1e8), abs=2e-6)


def test_separable_rows_without_an_end():
    """Gains go on for ever: what is left is all that the loss is."""
    X, y = draw_rare(3, sparse=True)
    y = np.arange(len(y)) % 3
    X = sp.hstack([X[:, :1100], sp.csr_matrix(np.eye(3)[y])]).tocsr()
    for C in (1e8, np.inf):
        model = SBMLogisticRegression(C=C).fit(X, y)
        assert model.converged_ and objective(model, X, y, C) > -1e-5


def test_a_start_that_is_worse_than_none_is_given_up():
    X, y = draw_factors(2)
    model = SBMLogisticRegression(warm_start=True).fit(X, y)
    model.coef_ = -100.0 * model.coef_
    again = model.fit(X, y)
    assert again.history_["objective"][1] == pytest.approx(-np.log(2.0))


@pytest.mark.parametrize("kind", ["gram", "joint", "diagonal", "sketch"])
def test_a_diagonal_is_raised_where_it_is_less_than_half(kind, rng):
    columns = 1 if kind == "sketch" else 2
    curvature = Curvature(kind, 3, columns, 2)
    total = rng.uniform(1.0, 2.0, size=curvature.shape)
    before, expected = total.copy(), total.copy()
    least = curvature.diagonal(total) * np.array([[0.5], [1.5], [3.0]])
    for column in range(columns):
        where = {
            "gram": (column, 2, 2),
            "joint": (column, 2, column, 2),
            "diagonal": (2, column),
            "sketch": (2, 0),
        }[kind]
        expected[where] = 3.0 * before[where]
    curvature.raise_diagonal(total, least)
    np.testing.assert_allclose(total, expected)
