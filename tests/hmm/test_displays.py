"""Pictures of states and of pseudo-residuals."""

import numpy as np
import pytest

from skvrem import VRHMM, ResidualsDisplay, StatesDisplay

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
