"""Pictures of states and of pseudo-residuals."""

import numpy as np
import pytest

from skvrem import VRHMM, ResidualsDisplay, StatesDisplay, StationaryDisplay
from skvrem.hmm import Covariates

pyplot = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture
def fitted():
    X = np.repeat([[0.0, 1.0], [5.0, 2.0], [0.0, 1.0]], 30, axis=0)
    X += np.random.default_rng(0).normal(size=X.shape)
    yield VRHMM(2, random_state=0).fit(X), X
    pyplot.close("all")


def test_states(fitted):
    model, X = fitted
    display = StatesDisplay.from_estimator(model, X)
    assert [ax.get_ylabel() for ax in display.axes_] == ["x0", "x1", "probability"]
    drawn = [len(c.get_offsets()) for c in display.axes_[0].collections]
    assert drawn == np.bincount(display.states).tolist()
    depth = StatesDisplay.from_estimator(model, X, values=X[:, :1], names=["depth"])
    assert depth.axes_[0].get_ylabel() == "depth" and len(depth.axes_) == 2


def test_residuals(fitted):
    model, X = fitted
    X = X.copy()
    X[3, 0] = np.nan
    display = ResidualsDisplay.from_estimator(model, X)
    lines = display.ax_.get_lines()
    assert [len(line.get_xdata()) for line in lines[:2]] == [89, 90]
    np.testing.assert_array_equal(
        lines[1].get_ydata(), np.sort(model.pseudo_residuals(X)[:, 1])
    )


def test_the_long_run_along_a_covariate():
    rng = np.random.default_rng(0)
    states = np.repeat(rng.integers(2, size=100), 5)
    X = np.column_stack([5.0 * states, rng.normal(size=500), rng.normal(size=500)])
    X[:, 0] += rng.normal(size=500)
    model = VRHMM(2, transitions=Covariates([1, 2]), random_state=0).fit(X)
    display = StationaryDisplay.from_estimator(model, X, 2, n_points=7)
    np.testing.assert_allclose(display.estimate.sum(axis=1), 1.0)
    assert (display.lower < display.estimate).all()
    assert (display.upper > display.estimate).all()
    assert display.ax_.get_xlabel() == "x2" and len(display.ax_.get_lines()) == 2
    points = np.column_stack([np.full(7, X[:, 1].mean()), display.values])
    np.testing.assert_allclose(model.stationary_proba(points), display.estimate)
    with pytest.raises(ValueError, match="column must be one that transitions"):
        StationaryDisplay.from_estimator(model, X, 0)
    pyplot.close("all")
