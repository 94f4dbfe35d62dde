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


def test_values_of_one_dimension_and_names_of_frames(fitted):
    pd = pytest.importorskip("pandas")
    model, X = fitted
    for values in (X[:, 0], pd.Series(X[:, 0])):
        display = StatesDisplay.from_estimator(model, X, values=values)
        assert [ax.get_ylabel() for ax in display.axes_] == ["x0", "probability"]
    frame = pd.DataFrame({"depth": X[:, 0]})
    display = StatesDisplay.from_estimator(model, X, values=frame)
    assert display.axes_[0].get_ylabel() == "depth"


def test_states_have_an_axis_for_each_feature(fitted):
    model, X = fitted
    display = StatesDisplay.from_estimator(model, X)
    axes = pyplot.subplots(3, squeeze=False)[1]
    assert list(display.plot(axes=axes).axes_) == list(axes.ravel())
    for n in (2, 4):
        with pytest.raises(ValueError, match=f"axes must hold .* of the 3 .* got {n}"):
            display.plot(axes=pyplot.subplots(n)[1])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"names": ["a"]}, "names must be one for each of the 2 columns"),
        ({"names": ["a", "b", "c"]}, "names must be one for each of the 2 columns"),
        ({"values": np.ones(5)}, "one row for each of the 90 states"),
        ({"values": np.ones((90, 1, 1))}, "one row for each of the 90 states"),
    ],
)
def test_values_and_names_are_checked_before_a_figure_is_opened(fitted, given, message):
    model, X = fitted
    with pytest.raises(ValueError, match=message):
        StatesDisplay.from_estimator(model, X, **given)
    assert not pyplot.get_fignums()


def test_names_in_legends_and_levels_on_axes_are_no_formulas():
    residuals = np.random.default_rng(0).normal(size=(50, 1))
    display = ResidualsDisplay(residuals, [r"$\x1$"]).plot()
    display.figure_.canvas.draw()
    levels = np.array([r"$\x1$", "b"], dtype=object)
    display = StationaryDisplay(levels, np.full((2, 2), 0.5)).plot()
    display.figure_.canvas.draw()
    assert display.ax_.get_xticklabels()[0].get_text() == r"$\x1$"
    pyplot.close("all")


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
