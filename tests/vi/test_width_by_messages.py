"""Widths by what rows of two classes tell each other, against sums over all logits."""

import numpy as np
import pytest
from scipy.special import expit, roots_hermitenorm
from scipy.stats import norm
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss

from skvrem import BayesianLogisticRegression
from skvrem.vi.glm.streams import _estimator
from skvrem.vi.glm.streams._width_by_messages import (
    MOST_ROUNDS,
    RowMessages,
    _limit,
    messages_tell,
    most_rows,
    too_few_for_bounds,
)

NOTHING = np.zeros(0)


def simulated(n, d, scale, seed, n_classes=2):
    rng = np.random.default_rng(seed)
    coef = scale * rng.normal(size=(d, n_classes - (n_classes == 2)))
    X = rng.normal(size=(n, d))
    logits = X @ coef
    if n_classes == 2:
        logits = np.column_stack([np.zeros(n), logits])
    return X, (logits + rng.gumbel(size=logits.shape)).argmax(axis=1), coef


def log_evidence(X, sign, weight, width):
    """Of one or two coefficients, by a grid as fine as it takes."""
    nodes, mass = roots_hermitenorm(151)
    grids = np.meshgrid(*[nodes] * X.shape[1], indexing="ij")
    coef = width * np.stack([grid.ravel() for grid in grids])
    mass = np.prod(np.meshgrid(*[mass / mass.sum()] * X.shape[1]), axis=0).ravel()
    log_p = weight @ np.log(expit(sign[:, None] * (X @ coef)))
    return np.log(mass @ np.exp(log_p - log_p.max())) + log_p.max()


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("width", [0.3, 1.0, 3.0])
def test_slopes_are_those_of_the_evidence(d, width):
    X, y, _ = simulated(12, d, 1.5, seed=d)
    sign, weight = 2.0 * y - 1.0, np.ones(12)
    weight[:3] = 2.0
    ahead, behind = (
        log_evidence(X, sign, weight, width * np.exp(step)) for step in (1e-3, -1e-3)
    )
    slope = RowMessages(X, sign, weight, False).slope(np.log(width))
    assert slope == pytest.approx((ahead - behind) / 2e-3, abs=0.06)


@pytest.mark.parametrize("width", [0.3, 1.0, 3.0])
def test_slopes_follow_the_prior_of_an_intercept(width):
    """Which is about an offset, and both widen with the logits."""
    X, y, _ = simulated(12, 1, 1.5, seed=3)
    y[:3] = 1  # of classes that are not as many
    sign = 2.0 * y - 1.0
    messages = RowMessages(X, sign, np.ones(12), True)
    log_odds = np.log((y.sum() + 0.5) / (12 - y.sum() + 0.5))

    def evidence(width):
        scale = np.sqrt(1.0 + np.pi / 8.0 * width**2 * messages.spread)
        nodes, mass = roots_hermitenorm(151)
        coef, intercept = np.meshgrid(width * nodes, scale * (nodes + log_odds))
        logits = X * coef.ravel() + intercept.ravel()
        log_p = np.log(expit(sign[:, None] * logits)).sum(axis=0)
        mass = np.outer(mass, mass).ravel() / mass.sum() ** 2
        return np.log(mass @ np.exp(log_p - log_p.max())) + log_p.max()

    ahead, behind = (evidence(width * np.exp(step)) for step in (1e-3, -1e-3))
    slope = messages.slope(np.log(width))
    assert slope == pytest.approx((ahead - behind) / 2e-3, abs=0.04)


def test_rows_of_whole_weights_are_as_often_there():
    X, y, _ = simulated(30, 50, 0.3, seed=0)
    sign, times = 2.0 * y - 1.0, 1 + np.arange(30) % 3
    once = RowMessages(X, sign, times.astype(float), True)
    repeated = X.repeat(times, axis=0), sign.repeat(times), np.ones(times.sum())
    often = RowMessages(*repeated, True)
    for log_width in (-2.0, -1.0, 0.5):
        assert once.slope(log_width) == pytest.approx(often.slope(log_width), abs=1e-6)


def test_alone_rows_have_the_moments_of_their_class():
    """A row whose logit no other tells of: by sums, also of far wider logits."""
    at = np.linspace(-12.0, 12.0, 48001)
    for width in (0.5, 2.0, 30.0):
        messages = RowMessages(np.eye(2), np.array([1.0, -1.0]), np.ones(2), False)
        messages.slope(np.log(width))
        *_, mean, variance = messages._posterior(np.full(2, width**-2.0), np.zeros(2))
        p = norm.pdf(at) * expit(width * at)
        p /= p.sum()
        found = width * at @ p
        np.testing.assert_allclose(mean, [found, -found], rtol=2e-3)
        own = np.square(width * at) @ p - found**2
        np.testing.assert_allclose(variance, own, rtol=5e-3)


def test_orthogonal_rows_tell_nothing_of_a_width():
    sign = np.where(np.arange(20) % 3, 1.0, -1.0)
    messages = RowMessages(5.0 * np.eye(20), sign, np.ones(20), False)
    for log_width in (-3.0, -1.0, 0.0, 1.0):
        assert abs(messages.slope(log_width)) < 0.05


def test_a_geometric_series_ends_at_its_limit():
    assert _limit([1.0, 1.5, 1.75]) == pytest.approx(2.0)
    assert _limit([1.0, 2.0]) == 2.0
    assert _limit([0.0, 1.0, 3.0]) == 3.0  # no such series
    assert _limit([1.0, 1.0, 1.0]) == 1.0
    assert MOST_ROUNDS > 3


@pytest.mark.parametrize(("n", "d", "scale"), [(80, 160, 0.4), (450, 500, 0.2)])
def test_intervals_hold_where_coefficients_outnumber_rows(n, d, scale):
    held, widths = [], []
    for seed in range(6):
        X, y, coef = simulated(n, d, scale, seed)
        fit = BayesianLogisticRegression().fit(X, y)
        held.append(np.abs(fit.coef_ - coef.T) < 1.96 * fit.coef_std_)
        widths.append(fit.prior_scale_.mean())
    assert np.mean(held) > 0.9
    assert scale / 1.5 < np.exp(np.mean(np.log(widths))) < 3.0 * scale


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("n", "d", "scale", "n_classes"), [(600, 120, 0.3, 2), (560, 40, 0.5, 4)]
)
def test_more_coefficients_than_a_full_rank_has(n, d, scale, n_classes, monkeypatch):
    monkeypatch.setattr(_estimator, "FULL_RANK", 100)
    X, y, _ = simulated(n, d, scale, 0, n_classes)
    fit = BayesianLogisticRegression(max_iter=1).fit(X, y)
    assert fit.prior_scale_.mean() == pytest.approx(scale, rel=0.3)


def test_rows_that_planes_tell_apart_are_foretold_better(monkeypatch):
    X, digits = load_digits(return_X_y=True)
    chosen = np.isin(digits, (3, 8))
    X, y = X[chosen], digits[chosen]
    assert too_few_for_bounds(150, 65, 1) and not too_few_for_bounds(150, 20, 1)
    assert too_few_for_bounds(64, 65, 3) and not too_few_for_bounds(65, 65, 3)

    def loss():
        fit = BayesianLogisticRegression().fit(X[:150], y[:150])
        return log_loss(y[150:], fit.predict_proba(X[150:]))

    by_messages = loss()
    monkeypatch.setattr(_estimator, "too_few_for_bounds", lambda *_: False)
    assert by_messages < 0.95 * loss()


def test_few_rows_of_several_classes_do_not_tell():
    class Data:
        n_features = 300

        def __init__(self, total_weight):
            self.total_weight = total_weight

    assert messages_tell(Data(10.0), 1)
    assert messages_tell(Data(1400.0), 3)
    assert not messages_tell(Data(1300.0), 3)
    assert messages_tell(Data(300.0), 3)  # of so few a bound says too little
    assert not messages_tell(Data(1e6), 10)
    Data.n_features = 5000
    assert not messages_tell(Data(1e9), 3)
    assert most_rows(5000, 3) < most_rows(5000, 1) < 1500
