"""Where the variance of gradients comes from, against batches drawn by hand."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy.special import expit

from skvrem import (
    BayesianGLMRegressor,
    BayesianLogisticRegression,
    GradientVarianceDisplay,
)


@pytest.fixture
def fitted():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 2))
    y = (rng.random(50) < expit(X @ [1.0, -0.5])).astype(int)
    model = BayesianLogisticRegression(posterior="meanfield", fit_intercept=False)
    return model.fit(X, y), X, y


def test_against_batches(fitted):
    model, X, y = fitted
    found = model.gradient_variance(X, y, n_draws=1500, random_state=0)
    rng = np.random.default_rng(1)
    mean, scale = model.posterior_.mean, model.posterior_.scale
    p, kept = expit(X @ mean), {name: [] for name in ("naive", "cv", "joint", "scales")}
    for _ in range(8000):
        rows = rng.choice(50, 5, replace=False)
        noise = scale * rng.standard_normal(2)
        x, t = X[rows], X[rows] @ noise
        r = y[rows] - expit(x @ (mean + noise))
        taylor = y[rows] - p[rows] - p[rows] * (1.0 - p[rows]) * t
        for name, (first, second) in {
            "naive": (r, r),
            "cv": (r - taylor + y[rows] - p[rows], r),
            "joint": (r - taylor, r),
            "scales": (r - taylor, r - taylor),
        }.items():
            by_scale = x.T @ second * noise
            kept[name].append(10.0 * np.append(x.T @ first, by_scale))
    estimators = ("naive", "cv", "joint", "joint, scales")
    for name, estimator in zip(kept, estimators, strict=True):
        expected = np.var(kept[name], axis=0).sum()
        assert found[estimator] == pytest.approx(expected, rel=0.1), name


def test_the_decomposition(fitted):
    model, X, y = fitted
    found = model.gradient_variance(X, y, random_state=0)
    assert found["V(rows, draws)"] == found["naive"]
    assert found["V(rows)"] == found["quadrature"]
    assert found["naive"] > found["V(rows)"] + found["V(draws)"] > found["cv"] * 0.9
    assert found["naive"] > found["cv"] > found["joint"] > found["joint, scales"]
    # All rows in one batch: only the draws vary, and nothing is left by rows.
    whole = model.gradient_variance(X, y, batch_size=50, random_state=0)
    assert whole["V(rows)"] == pytest.approx(0.0, abs=1e-9)
    assert whole["naive"] == pytest.approx(found["V(draws)"])


def test_other_families(fitted):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = rng.integers(3, size=60)
    field = BayesianLogisticRegression(posterior="meanfield").fit(X, y)
    classes = field.gradient_variance(X, y)
    assert classes["naive"] > classes["cv"] > classes["joint, scales"]
    noise = BayesianGLMRegressor(noise_scale=0.5).fit(X, X[:, 0])
    # Taylor is exact, and the anchor is at the point.
    assert noise.gradient_variance(X, X[:, 0])["joint, scales"] < 1e-20
    counts = BayesianGLMRegressor("poisson").fit(X, y)
    weighted = counts.gradient_variance(X, y, np.full(60, 2.0), estimators=["naive"])
    alone = counts.gradient_variance(X, y, estimators=["naive"], random_state=0)
    assert list(alone) == ["V(rows, draws)", "V(rows)", "V(draws)", "naive"]
    assert weighted["V(rows)"] == pytest.approx(4.0 * alone["V(rows)"])


def test_display(fitted):
    model, X, y = fitted
    how = {"n_draws": 20, "random_state": 0}
    display = GradientVarianceDisplay.from_estimator(
        model, X, y, n_repetitions=4, **how
    )
    names = [label.get_text() for label in display.ax_.get_yticklabels()]
    assert names == list(display.variances)
    runs = np.array(list(display.variances.values()))
    assert runs.shape == (len(names), 4)
    drawn = display.points_.get_offsets()[:, 0]
    np.testing.assert_allclose(drawn, np.median(runs, axis=1))
    ends = [line[:, 0] for line in display.ranges_.get_segments()]
    np.testing.assert_allclose(ends, np.stack([runs.min(1), runs.max(1)], axis=1))
    # By draws the naive estimate differs, and rows integrated out do not.
    assert np.ptp(display.variances["naive"]) > 0.0
    assert np.ptp(display.variances["V(rows)"]) == 0.0
    again = GradientVarianceDisplay.from_estimator(model, X, y, n_repetitions=4, **how)
    np.testing.assert_array_equal(list(again.variances.values()), runs)
    once = GradientVarianceDisplay(model.gradient_variance(X, y, **how)).plot()
    np.testing.assert_allclose(
        once.points_.get_offsets()[:, 0], list(once.variances.values())
    )
    for shown in (display, again, once):
        plt.close(shown.figure_)
    with pytest.raises(
        ValueError, match="n_repetitions must be an integer of at least 1"
    ):
        GradientVarianceDisplay.from_estimator(model, X, y, n_repetitions=0)
    with pytest.raises(ValueError, match="no variances"):
        GradientVarianceDisplay({"naive": []}).plot()
    with pytest.raises(ValueError, match="no variances"):
        GradientVarianceDisplay({}).plot()
    with pytest.raises(ValueError, match="estimators are among"):
        model.gradient_variance(X, y, estimators=["inc"])
