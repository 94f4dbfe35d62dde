"""The strength of the penalty that `GaussianDropoutClassifier` chooses."""

from functools import partial

import numpy as np
import pytest
from sklearn.datasets import make_circles
from sklearn.metrics import log_loss

from skvrem import GaussianDropoutClassifier
from skvrem.vi.dropout import _strength
from skvrem.vi.dropout._strength import FEW, FOLDS, PLAIN, STRENGTHS, folds_of


def noisy(n=150, d=6, seed=0):
    """Rows of three classes, of which two columns tell a little."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    scores = X[:, :2] @ rng.normal(size=(2, 3)) + rng.gumbel(size=(n, 3))
    return X, scores.argmax(axis=1)


@pytest.mark.parametrize("k", [2, 3])
def test_it_foretells_rows_held_out_best(monkeypatch, k):
    X, y = noisy()
    X, y = X[y < k], y[y < k]
    used = []
    known = _strength.folds_of
    monkeypatch.setattr(
        _strength, "folds_of", lambda *args: used.append(known(*args)) or used[0]
    )
    params = {"hidden_layer_sizes": (), "tol": 1e-7, "random_state": 0}
    found = GaussianDropoutClassifier(**params).fit(X, y)

    (folds,), losses = used, []
    for strength in STRENGTHS:
        total = 0.0
        for fold in range(FOLDS):
            out = folds == fold
            one = GaussianDropoutClassifier(alpha=strength * np.mean(~out), **params)
            p = one.fit(X[~out], y[~out]).predict_proba(X[out])
            total += log_loss(y[out], p, labels=np.arange(k), normalize=False)
        losses.append(total)
    assert found.alpha_ == STRENGTHS[int(np.argmin(losses))]
    same = GaussianDropoutClassifier(alpha=found.alpha_, **params).fit(X, y)
    np.testing.assert_array_equal(found.coefs_[0], same.coefs_[0])


def test_labels_that_nothing_tells_of_ask_for_a_strong_one():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(100, 8)), rng.integers(2, size=100)
    new, labels = rng.normal(size=(2000, 8)), rng.integers(2, size=2000)
    found = GaussianDropoutClassifier((20,), random_state=0).fit(X, y)
    plain = GaussianDropoutClassifier((20,), alpha=1.0, random_state=0).fit(X, y)
    assert found.alpha_ >= 10.0
    assert log_loss(labels, found.predict_proba(new)) < 0.75
    assert log_loss(labels, plain.predict_proba(new)) > 0.85


def test_circles_ask_for_a_weak_one():
    X, y = make_circles(100, noise=0.1, factor=0.5, random_state=0)
    new, labels = make_circles(1000, noise=0.1, factor=0.5, random_state=1)
    found = GaussianDropoutClassifier((20,), random_state=0).fit(X, y)
    assert found.alpha_ < 1.0
    assert log_loss(labels, found.predict_proba(new)) < 0.2


def test_folds_hold_every_class_and_keep_rows_that_are_the_same_together():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 2)), np.repeat([0, 1, 2], 20)
    twice = np.concatenate([X, X[::2]]), np.concatenate([y, y[::2]])
    folds = folds_of(*twice, rng)
    np.testing.assert_array_equal(folds[60:], folds[:60:2])
    for number in range(3):
        counts = np.bincount(folds[:60][y == number], minlength=FOLDS)
        assert counts.min() == counts.max()
    assert folds_of(X[: FEW - 1], y[: FEW - 1], rng) is None
    assert folds_of(np.repeat(X[:5], 30, axis=0), np.repeat(y[:5], 30), rng) is None


def table(n, levels=5, seed=0):
    """Rows of two columns of few levels, whose sum tells one of two classes."""
    rng = np.random.default_rng(seed)
    X = rng.integers(levels, size=(n, 2)) - (levels - 1) / 2
    return X, (1.5 * X.sum(axis=1) + rng.logistic(size=n) > 0.0).astype(int)


def test_folds_hold_features_with_all_their_classes_and_spread_rare_ones():
    rng = np.random.default_rng(0)
    X = np.repeat(np.arange(40.0)[:, None], 10, axis=0)
    y = np.tile([0] * 7 + [1] * 3, 40)
    some = np.arange(0, 400, 40)
    y[some] = 2  # Of ten features, and the class of most rows of none.
    folds = folds_of(X, y, rng)
    assert (folds.reshape(40, 10) == folds[::10, None]).all()
    np.testing.assert_array_equal(np.bincount(folds), 80)
    np.testing.assert_array_equal(np.bincount(folds[some]), 2)
    few = X[:, 0] < FEW - 1
    assert folds_of(X[few], y[few], rng) is None


def test_features_of_several_classes_ask_for_no_stronger_one():
    X, y = table(500)
    new, labels = table(4000, seed=1)
    found = GaussianDropoutClassifier((20,), random_state=0).fit(X, y)
    apart = X + 1e-3 * np.random.default_rng(0).normal(size=X.shape)
    other = GaussianDropoutClassifier((20,), random_state=0).fit(apart, y)
    loss = log_loss(labels, found.predict_proba(new))
    assert loss < log_loss(labels, other.predict_proba(new)) + 0.003


@pytest.mark.parametrize("rows", [noisy, partial(table, levels=7)])
def test_weights_are_rows(rows):
    X, y = rows(60)
    weight = np.random.default_rng(1).integers(0, 4, 60)
    params = {"hidden_layer_sizes": (), "tol": 1e-6, "random_state": 0}
    weighted = GaussianDropoutClassifier(**params).fit(X, y, weight)
    repeated = GaussianDropoutClassifier(**params)
    repeated.fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    assert weighted.alpha_ == repeated.alpha_ != PLAIN
    np.testing.assert_allclose(weighted.coefs_[0], repeated.coefs_[0], atol=1e-3)


@pytest.mark.parametrize("hidden", [(), (5,)])
def test_many_rows_of_weight_zero_are_as_if_removed(hidden):
    X, y = noisy(25_000)
    kept = np.arange(0, 25_000, 125)
    weight = np.zeros(25_000)
    weight[kept] = 1.0
    found = GaussianDropoutClassifier(hidden, random_state=0).fit(X, y, weight)
    other = GaussianDropoutClassifier(hidden, random_state=0).fit(X[kept], y[kept])
    assert found.alpha_ == other.alpha_
    np.testing.assert_array_equal(found.coefs_[0], other.coefs_[0])


def test_warm_starts_keep_it_and_streams_ask_as_rows_double(monkeypatch):
    X, y = noisy(200)
    asked = []
    monkeypatch.setattr(
        "skvrem.vi.dropout._estimator.strength_of",
        lambda model, start, rows, *rest: asked.append(len(rows[0])) or 3.0,
    )
    model = GaussianDropoutClassifier((), warm_start=True, random_state=0)
    assert model.fit(X[:50], y[:50]).alpha_ == 3.0
    assert model.fit(X[:60], y[:60]).alpha_ == 3.0
    assert asked == [50]
    stream = GaussianDropoutClassifier((), random_state=0)
    for start in range(0, 200, 10):
        stream.partial_fit(
            X[start : start + 10], y[start : start + 10], classes=[0, 1, 2]
        )
    assert asked[1:] == [10, 20, 40, 80, 160]
    assert stream.alpha_ == 3.0


def test_without_hidden_layers_nothing_depends_on_the_seed():
    X, y = noisy(80)
    first, second = (
        GaussianDropoutClassifier((), random_state=seed).fit(X, y) for seed in (0, 1)
    )
    assert first.alpha_ == second.alpha_
    np.testing.assert_array_equal(first.coefs_[0], second.coefs_[0])
