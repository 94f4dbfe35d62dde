"""Small probabilities of classes: they are not zero, but what draws of logits give."""

from itertools import permutations

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.metrics import log_loss

from skvrem import (
    BayesianLogisticRegression,
    GaussianDropoutClassifier,
    HierarchicalSoftmaxClassifier,
)
from skvrem.exceptions import FewGroupsWarning
from skvrem.vi.gaussian._model_families import (
    Logistic,
    Softmax,
    expected_probabilities,
)

N_DRAWS = 50_000


def by_draws(a, half):
    k = a.shape[1]
    noise = np.random.default_rng(1).standard_normal((N_DRAWS, k))
    means = []
    for mean, root in zip(a, half, strict=True):
        away = noise * root if len(root) == k else noise @ root.reshape(k, k).T
        means.append(softmax(mean + away, axis=1).mean(axis=0))
    return np.array(means)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("k", [3, 5, 9])
def test_small_probabilities_are_those_of_draws(k, full):
    rng = np.random.default_rng(0)
    a = rng.normal(scale=5.0, size=(5, k))
    half = rng.uniform(0.5, 3.0, size=(5, k))
    if full:
        lower = np.tril(rng.normal(size=(5, k, k)), -1)
        half = (lower + half[:, :, None] * np.eye(k)).reshape(5, k * k)
    truth, p = by_draws(a, half), expected_probabilities(Softmax(k), a, half)
    known = truth > 1e-4
    assert (p > 0.0).all()
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    assert np.abs(np.log(p / truth))[known].max() < np.log(1.5)
    assert np.abs(p - truth).max() < 0.03


@pytest.mark.parametrize("spread", [0.0, 1e-5, 1e-2])
def test_no_digits_cancel_whatever_the_order_of_the_classes(spread):
    for order in permutations([0.0, 40.0, -60.0]):
        a = np.array([order])
        p = expected_probabilities(Softmax(3), a, np.full((1, 3), spread))
        np.testing.assert_allclose(p, softmax(a, axis=1), rtol=1e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_wide_logits_in_another_order_have_the_same_probabilities(dtype):
    a, half = np.array([[9.0, 3.0, -4.0]], dtype), np.array([[2.0, 3.0, 4.0]], dtype)
    truth = by_draws(a, half)
    for order in permutations(range(3)):
        p = expected_probabilities(Softmax(3), a[:, order], half[:, order])
        np.testing.assert_allclose(p, truth[:, order], rtol=0.1)


def test_least_and_most_possible_logits():
    a, half = np.array([[3000.0, 0.0, -3000.0]]), np.array([[1.0, 0.0, 50.0]])
    assert np.isfinite(np.log(expected_probabilities(Softmax(3), a, half))).all()
    a, v = np.array([[-3000.0], [3000.0], [-4000.0]]), np.array([[1.0], [1.0], [1e4]])
    assert np.isfinite(np.log(expected_probabilities(Logistic(), a, v))).all()


def test_of_two_classes_both_have_digits():
    # Where z is far below zero, the logistic function is exp(z), but for exp(2 z).
    a, v = np.array([[-100.0], [100.0], [-100.0]]), np.array([[4.0], [4.0], [0.25]])
    small = np.exp(-100.0 + 0.5 * v[:, 0])
    p = expected_probabilities(Logistic(), a, v)
    np.testing.assert_allclose(p[[0, 1, 2], [1, 0, 1]], small, rtol=1e-6)
    np.testing.assert_array_equal(p[[0, 1, 2], [0, 1, 0]], 1.0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_wrong_label_costs_what_it_costs_by_draws(dtype):
    X = np.round(np.random.RandomState(0).randn(120, 4), 2).astype(dtype)
    y = np.digitize(X[:, 0], [-0.5, 0.5])
    model = BayesianLogisticRegression(random_state=0).fit(X[40:], y[40:])
    log_proba = model.predict_log_proba(X[:40])
    assert np.isfinite(log_proba).all()
    draws = model.sample_posterior(20_000, random_state=1)
    z = draws["coef"] @ X[1] + draws["intercept"]  # of a row of the last class
    truth = np.log(softmax(z, axis=1).mean(axis=0))
    assert log_loss([0], [np.exp(log_proba[1])], labels=[0, 1, 2]) == pytest.approx(
        -truth[0], abs=0.5
    )
    np.testing.assert_allclose(log_proba[1], truth, atol=0.5)


@pytest.mark.filterwarnings(f"ignore::{FewGroupsWarning.__module__}.FewGroupsWarning")
def test_groups_and_noise_leave_no_zeros():
    X = np.round(np.random.RandomState(0).randn(120, 4), 2)
    y = np.digitize(X[:, 0], [-0.5, 0.5])
    noisy = GaussianDropoutClassifier(tol=0.1, random_state=0)
    for model in (HierarchicalSoftmaxClassifier(), noisy):
        log_proba = model.fit(X[40:], y[40:]).predict_log_proba(100.0 * X[:40])
        assert np.isfinite(log_proba).all()
