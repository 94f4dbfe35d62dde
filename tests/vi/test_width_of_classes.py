"""The width of a prior of many coefficients of many classes."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.special import log_softmax
from sklearn.metrics import log_loss

from skvrem import BayesianLogisticRegression
from skvrem.vi.glm.streams import _width_of_classes
from skvrem.vi.glm.streams._width_of_classes import LaplaceOfClasses, wider


def laplace_by_coefficients(A, y, weight, variance, k):
    """Return the log evidence by Newton's steps in all coefficients at once."""
    W, Y = np.zeros((k, A.shape[1])), np.eye(k)[y]
    for _ in range(200):
        log_p = log_softmax(A @ W.T, axis=1)
        p = np.exp(log_p)
        slope = (weight[:, None] * (Y - p)).T @ A - W / variance
        rows = p[:, :, None] * (np.eye(k) - p[:, None])
        bent = np.einsum("i,iab,ix,iy->axby", weight, rows, A, A)
        precision = bent.reshape(W.size, -1) + np.diag(np.tile(1.0 / variance, k))
        W = W + 0.7 * np.linalg.solve(precision, slope.ravel()).reshape(W.shape)
    told = weight @ np.sum(Y * log_p, axis=1) - 0.5 * np.sum(W**2 / variance)
    volume = np.linalg.slogdet(precision)[1] + k * np.log(variance).sum()
    return told - 0.5 * volume


@pytest.mark.parametrize("intercept", [0.0, 100.0])
def test_evidence_is_that_of_laplace_in_coefficients(intercept, rng, monkeypatch):
    monkeypatch.setattr(_width_of_classes, "LEFT", 1e-13)
    n, d, k = 14, 5, 4
    X, y, weight = rng.normal(size=(n, d)), rng.integers(k, size=n), rng.uniform(0.5, 2)
    weight = weight * rng.uniform(0.5, 2.0, n)
    laplace = LaplaceOfClasses(X @ X.T, y, weight, k, intercept)
    A = np.column_stack([X, np.ones(n)]) if intercept else X
    found, expected = [], []
    for width in (0.3, 1.0, 2.0):
        variance = np.full(A.shape[1], width**2)
        variance[d:] = intercept
        found.append(laplace.evidence(np.log(width)))
        expected.append(laplace_by_coefficients(A, y, weight, variance, k))
    # But for a constant of the weights.
    np.testing.assert_allclose(np.diff(found), np.diff(expected), atol=1e-6)


def test_wider_ones_are_tried_as_long_as_they_have_more_evidence():
    def peak(at, curvature):  # with the prior of a width
        return lambda x: 0.5 * x**2 - 0.5 * curvature * (x - at) ** 2

    assert wider(peak(-2.0, 50.0), -1.0, 7.0) == (-1.0, 7.0)
    np.testing.assert_allclose(wider(peak(-0.4, 50.0), -1.0, 7.0), (-0.4, 50.0))
    far, curvature = wider(peak(9.0, 50.0), -1.0, 7.0)
    assert (far, curvature) == (1.0, 7.0)


def rows_of_classes(n, d, k, effect, rank=None, seed=0):
    rng = np.random.default_rng(seed)
    if rank is None:
        X = rng.normal(size=(n + 3000, d))
    else:
        X = rng.normal(size=(n + 3000, rank)) @ rng.normal(size=(rank, d))
        X = X / np.sqrt(rank) + 0.3 * rng.normal(size=X.shape)
    Z = X @ rng.normal(size=(d, k)) * effect / np.sqrt(d)
    y = (Z + rng.gumbel(size=Z.shape)).argmax(axis=1)
    y[:k] = np.arange(k)
    return X[:n], y[:n], X[n:], y[n:]


def loss_of(model, X, y):
    return log_loss(y, model.predict_proba(X), labels=model.classes_)


@pytest.mark.parametrize(
    "problem",
    [(600, 60, 25, 1.0), (600, 60, 25, 3.0), (600, 60, 25, 3.0, 5), (900, 40, 60, 2.0)],
)
def test_default_predicts_about_as_well_as_the_best_width(problem):
    X, y, X_new, y_new = rows_of_classes(*problem)
    model = BayesianLogisticRegression(random_state=0).fit(X, y)
    unit = model.prior_scale_ / model._width.value
    losses = {}
    for width in (0.05, 0.1, 0.2, 0.4, 0.8):
        given = BayesianLogisticRegression(width * unit, random_state=0).fit(X, y)
        losses[width] = loss_of(given, X_new, y_new)
    assert loss_of(model, X_new, y_new) < min(losses.values()) + 0.03
    assert max(losses.values()) > min(losses.values()) + 0.2


def test_width_does_not_depend_on_zeros_units_or_layout():
    X, y, *_ = rows_of_classes(600, 60, 25, 2.0, 10)
    known = None
    for rows in (X, X + 5.0, X * np.geomspace(0.01, 100.0, 60), csr_array(X + 1.0)):
        model = BayesianLogisticRegression(random_state=0, max_iter=1, tol=1e3)
        width = model.fit(rows, y)._width.value
        known = width if known is None else known
        assert width == pytest.approx(known, rel=1e-2)


def test_streams_learn_it_from_all_rows():
    X, y, X_new, y_new = rows_of_classes(600, 60, 25, 1.0)
    stream, classes = BayesianLogisticRegression(random_state=0), np.arange(25)
    for at in range(0, 600, 100):
        stream.partial_fit(X[at : at + 100], y[at : at + 100], classes=classes)
    whole = BayesianLogisticRegression(random_state=0).fit(X, y)
    assert stream._width.value == pytest.approx(whole._width.value, rel=0.1)
    assert loss_of(stream, X_new, y_new) < loss_of(whole, X_new, y_new) + 0.02


def test_weights_are_rows_where_some_are_drawn(monkeypatch):
    monkeypatch.setattr(_width_of_classes, "PRODUCTS_TELL", 2e7)  # 122 rows
    X, y, *_ = rows_of_classes(300, 91, 11, 2.0, 5)

    def fit(X, y, weight=None, seed=0):
        model = BayesianLogisticRegression(random_state=seed, max_iter=1, tol=1e3)
        return model.fit(X, y, sample_weight=weight)._width.value

    for n_kept in (110, 250):
        weight = (np.arange(300) < n_kept).astype(float)
        expected = fit(X[:n_kept], y[:n_kept])
        assert fit(X, y, weight) == pytest.approx(expected, rel=1e-6)
    widths = {}
    twice = np.repeat(X, 2, axis=0), np.repeat(y, 2)
    for name, rows in {"twice": twice, "two": (X, y, np.full(300, 2.0))}.items():
        own = [fit(*rows, seed=seed) for seed in range(6)]
        widths[name] = np.exp(np.mean(np.log(own)))
    assert widths["two"] == pytest.approx(widths["twice"], rel=0.25)
    assert min(own) < max(own)
