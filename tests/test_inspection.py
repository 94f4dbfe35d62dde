import sys

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import make_pipeline

from skvrem import (
    ComponentsDisplay,
    ConvergenceDisplay,
    TopicsDisplay,
    TopicStabilityDisplay,
    VRGaussianMixture,
)
from skvrem.text import topic_stability

plt = pytest.importorskip("matplotlib.pyplot")
X = load_iris().data


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def fits():
    return [
        VRGaussianMixture(3, solver=solver, random_state=0).fit(X)
        for solver in ("batch", "svrg")
    ]


def history(objective, **columns):
    objective = np.asarray(objective, float)
    passes = np.arange(1.0, objective.size + 1)
    return {"passes": passes, "objective": objective, **columns}


def test_one_estimator(fits):
    display = ConvergenceDisplay.from_estimator(fits[0])
    (line,) = display.lines_
    np.testing.assert_array_equal(line.get_xdata(), fits[0].history_["passes"])
    np.testing.assert_array_equal(line.get_ydata(), fits[0].history_["objective"])
    assert line.get_label() == "VRGaussianMixture (batch)"
    assert display.figure_ is display.ax_.figure
    assert display.ax_.get_yscale() == "linear"
    assert "nats" in display.ax_.get_ylabel()


@pytest.mark.parametrize("x", ["passes", "seconds", "epoch"])
@pytest.mark.parametrize("y", ["objective", "gap", "step_size", "temperature"])
def test_every_pair_of_columns(fits, x, y):
    display = ConvergenceDisplay.from_estimator(fits, x=x, y=y)
    assert len(display.lines_) == 2
    assert display.ax_.get_yscale() == ("log" if y == "gap" else "linear")
    display.figure_.canvas.draw()


def test_labels(fits):
    def labels(*args, **kwargs):
        display = ConvergenceDisplay.from_estimator(*args, **kwargs)
        legend = display.ax_.get_legend().get_texts()
        return [text.get_text() for text in legend]

    assert labels(fits) == ["VRGaussianMixture (batch)", "VRGaussianMixture (svrg)"]
    twice = ["VRGaussianMixture (batch) 1", "VRGaussianMixture (batch) 2"]
    assert labels([fits[0], fits[0]]) == twice
    assert labels({"a": fits[0], "b": fits[1]}) == ["a", "b"]
    assert labels(fits, name=["c", "d"]) == ["c", "d"]
    assert labels(fits[0], name="e") == ["e"]


def test_draws_on_the_axis_it_is_given_and_passes_styles_on(fits):
    figure, ax = plt.subplots()
    display = ConvergenceDisplay.from_estimator(fits[0], ax=ax, color="red", lw=3)
    assert display.ax_ is ax and display.figure_ is figure
    assert display.lines_[0].get_color() == "red"
    assert display.lines_[0].get_linewidth() == 3


def test_gap_is_to_the_best_of_all_or_to_a_given_value():
    display = ConvergenceDisplay({"a": history([0, 2, 3]), "b": history([1, 4])})
    gaps = [line.get_ydata() for line in display.plot(y="gap").lines_]
    np.testing.assert_array_equal(gaps[0], [4, 2, 1])
    np.testing.assert_array_equal(gaps[1], [3])  # the best itself has no place
    gaps = [line.get_ydata() for line in display.plot(y="gap", best=5).lines_]
    np.testing.assert_array_equal(gaps[1], [4, 1])


def test_leaves_out_what_is_not_known():
    (line,) = ConvergenceDisplay({"a": history([np.nan, 1, 2])}).plot().lines_
    np.testing.assert_array_equal(line.get_xdata(), [2, 3])
    display = ConvergenceDisplay({"a": history([np.nan])}).plot(y="gap")
    assert display.lines_[0].get_xdata().size == 0


def test_a_fit_that_did_not_converge_has_a_picture():
    with pytest.warns(UserWarning, match="did not converge"):
        mixture = VRGaussianMixture(3, max_iter=1, random_state=0).fit(X)
    ConvergenceDisplay.from_estimator(mixture)


def test_needs_fitted_estimators_with_a_history(fits):
    draw = ConvergenceDisplay.from_estimator
    with pytest.raises(NotFittedError):
        draw(VRGaussianMixture())
    with pytest.raises(NotFittedError):
        draw([fits[0], VRGaussianMixture()])
    with pytest.raises(ValueError, match="no history_"):
        draw(GaussianMixture().fit(X))
    with pytest.raises(ValueError, match=r"no history_.*partial_fit"):
        draw(VRGaussianMixture(random_state=0).partial_fit(X))
    with pytest.raises(ValueError, match="the estimator inside"):
        draw(make_pipeline(VRGaussianMixture()).fit(X))
    with pytest.raises(ValueError, match="Expected an estimator"):
        draw("saga")


def test_says_what_is_wrong_with_its_arguments(fits):
    draw = ConvergenceDisplay.from_estimator
    with pytest.raises(ValueError, match="x must be one of"):
        draw(fits, x="minutes")
    with pytest.raises(ValueError, match="y must be one of"):
        draw(fits, y="loss")
    with pytest.raises(ValueError, match="different label for each of the 2"):
        draw(fits, name="one")
    with pytest.raises(ValueError, match="different label"):
        draw(fits, name=["one", "one"])
    with pytest.raises(ValueError, match="keys"):
        draw({"a": fits[0]}, name="b")
    with pytest.raises(ValueError, match="no history to draw"):
        draw([])
    with pytest.raises(ValueError, match="'a' has no seconds"):
        ConvergenceDisplay({"a": history([1, 2])}).plot(x="seconds")


def test_names_the_extra_that_brings_matplotlib(monkeypatch, fits):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"skvrem\[plot\]"):
        ConvergenceDisplay.from_estimator(fits[0])


# TopicsDisplay

TOPICS = np.array([[8.0, 1.0, 3.0, 0.0], [0.5, 6.0, 2.0, 0.0], [1.0, 1.0, 1.0, 9.0]])
NAMES = ["rain", "goal", "win", "tax"]


def labels_of(ax):
    return [label.get_text() for label in ax.get_yticklabels()]


def test_topics_are_bars_of_their_top_words():
    display = TopicsDisplay.from_estimator(TOPICS, feature_names=NAMES, n_words=2)
    assert [ax.get_title() for ax in display.axes_] == ["topic 0", "topic 1", "topic 2"]
    assert [labels_of(ax) for ax in display.axes_] == [
        ["rain", "win"],
        ["goal", "win"],
        ["tax", "rain"],
    ]
    widths = [[bar.get_width() for bar in bars] for bars in display.bars_]
    expected = [[8 / 12, 3 / 12], [6 / 8.5, 2 / 8.5], [9 / 12, 1 / 12]]
    np.testing.assert_allclose(widths, expected)
    for ax in display.axes_:
        assert ax.figure is display.figure_
        assert ax.yaxis_inverted()  # the most probable on top
    display.figure_.canvas.draw()


def test_topics_of_models_and_pipelines():
    texts = ["sun rain wind sun cloud", "goal ball goal win team"] * 10
    model = LatentDirichletAllocation(2, random_state=0)
    pipeline = make_pipeline(CountVectorizer(), model).fit(texts)
    display = TopicsDisplay.from_estimator(pipeline, n_words=3)
    assert {labels_of(ax)[0] for ax in display.axes_} == {"sun", "goal"}
    again = TopicsDisplay.from_estimator(model, feature_names=pipeline, n_words=3)
    for one, other in zip(display.axes_, again.axes_, strict=True):
        assert labels_of(one) == labels_of(other)
    numbered = TopicsDisplay.from_estimator(model, n_words=1)
    assert {labels_of(ax)[0] for ax in numbered.axes_} == {"x4", "x2"}


def test_some_topics_on_the_axes_given():
    figure, axes = plt.subplots(2, 1)
    display = TopicsDisplay.from_estimator(
        TOPICS, topics=[2, 0], titles=["money", "weather"], ax=axes, color="gray"
    )
    assert list(display.axes_) == list(axes) and display.figure_ is figure
    assert [ax.get_title() for ax in axes] == ["money", "weather"]
    assert labels_of(axes[0])[0] == "x3" and labels_of(axes[1])[0] == "x0"
    assert display.bars_[0][0].get_facecolor() == (0.5019607843137255,) * 3 + (1.0,)
    _, ax = plt.subplots()
    assert TopicsDisplay.from_estimator(TOPICS, topics=[1], ax=ax).axes_[0] is ax


@pytest.mark.parametrize(
    ("n_columns", "shape"), [(1, (3, 1)), (2, (2, 2)), (5, (1, 3))]
)
def test_grid_of_topics(n_columns, shape):
    display = TopicsDisplay.from_estimator(TOPICS, n_columns=n_columns)
    grid = display.axes_[0].get_subplotspec().get_gridspec()
    assert (grid.nrows, grid.ncols) == shape
    assert len(display.figure_.axes) == 3  # no empty picture is left
    limits = {ax.get_xlim() for ax in display.axes_}
    assert len(limits) == 1
    # The lowest picture of each column has numbers below it.
    lowest = display.axes_[-min(n_columns, 3) :]
    display.figure_.canvas.draw()
    assert all(ax.xaxis.get_ticklabels()[0].get_visible() for ax in lowest)


def test_words_that_are_equal_keep_their_bars():
    display = TopicsDisplay([["a", "a", "b"]], [[0.5, 0.3, 0.1]]).plot()
    assert labels_of(display.axes_[0]) == ["a", "a", "b"]
    assert len(display.bars_[0]) == 3


def test_topics_display_says_what_is_wrong():
    draw = TopicsDisplay.from_estimator
    with pytest.raises(NotFittedError):
        draw(LatentDirichletAllocation())
    with pytest.raises(ValueError, match="Expected a fitted topic model"):
        draw(VRGaussianMixture(random_state=0).fit(X))
    for topics in ([3], [-1], ["tax"], [[0]], 0):
        with pytest.raises(ValueError, match="topics must be a list of numbers from 0"):
            draw(TOPICS, topics=topics)
    with pytest.raises(ValueError, match="Expected 3 titles, got 1"):
        draw(TOPICS, titles=["one"])
    with pytest.raises(ValueError, match="one axis for each of the 3 topics, got 1"):
        draw(TOPICS, ax=plt.subplots()[1])
    with pytest.raises(ValueError, match="4 words"):
        draw(TOPICS, feature_names=NAMES[1:])
    with pytest.raises(ValueError, match="n_words must be"):
        draw(TOPICS, n_words=0)
    with pytest.raises(ValueError, match="n_columns must be"):
        draw(TOPICS, n_columns=0)
    with pytest.raises(ValueError, match="one shape"):
        TopicsDisplay([["a"]], [[0.5, 0.5]]).plot()
    with pytest.raises(ValueError, match="one shape"):
        TopicsDisplay([], []).plot()


def test_topics_display_names_the_extra_that_brings_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"TopicsDisplay .*skvrem\[plot\]"):
        TopicsDisplay.from_estimator(TOPICS)


def test_components_are_drawn_as_images():
    mixture = VRGaussianMixture(3, random_state=0).fit(X)
    display = ComponentsDisplay.from_estimator(mixture, (2, 2), components=[2, 0])
    assert [ax.get_title() for ax in display.axes_] == ["component 2", "component 0"]
    drawn = display.images_[0].get_array()
    np.testing.assert_array_equal(drawn, mixture.means_[2].reshape(2, 2))
    # One scale for all, with zero in its middle.
    limits = {image.get_clim() for image in display.images_}
    size = abs(mixture.means_[[2, 0]]).max()
    assert limits == {(-size, size)}
    # A bar of colours on a figure of its own, none on the caller's.
    assert len(display.figure_.axes) == 3
    figure, axes = plt.subplots(1, 2)
    display.plot(ax=axes)
    assert len(figure.axes) == 2


def test_components_display_says_what_is_wrong():
    draw = ComponentsDisplay.from_estimator
    with pytest.raises(NotFittedError):
        draw(VRGaussianMixture(), (2, 2))
    mixture = VRGaussianMixture(3, random_state=0).fit(X)
    with pytest.raises(ValueError, match=r"images of shape \(2, 3\)"):
        draw(mixture, (2, 3))
    with pytest.raises(ValueError, match="numbers from 0 to 2"):
        draw(mixture, (2, 2), components=[3])
    with pytest.raises(ValueError, match="Expected 3 titles, got 1"):
        draw(mixture, (2, 2), titles=["one"])
    with pytest.raises(ValueError, match="one axis for each of the 3"):
        draw(mixture, (2, 2), ax=[None])
    with pytest.raises(ValueError, match="neither components_ nor means_"):
        draw(NearestNeighbors().fit(X), (2, 2))


# TopicStabilityDisplay


def test_stable_topics_are_at_the_top(rng):
    noisy = TOPICS + [[0.1], [0.1], [8.0]] * rng.random((3, 4))
    models = [TOPICS, noisy[[2, 0, 1]], TOPICS]
    draw = TopicStabilityDisplay.from_estimators
    display = draw(models, feature_names=NAMES, n_words=2)
    stability = topic_stability(models)
    np.testing.assert_array_equal(display.similarity, stability.similarity)
    mean = np.sort(stability.similarity.mean(axis=0))[::-1]
    np.testing.assert_allclose([bar.get_width() for bar in display.bars_], mean)
    labels = labels_of(display.ax_)
    assert sorted(labels) == ["0: rain win", "1: goal win", "2: tax rain"]
    assert labels[2] == "2: tax rain" and display.ax_.yaxis_inverted()
    dots = [line.get_xdata() for line in display.ax_.lines]
    np.testing.assert_allclose(np.mean(dots, axis=0), mean)
    _, ax = plt.subplots()
    assert TopicStabilityDisplay([[0.5]]).plot(ax=ax, color="red").ax_ is ax
    for bad in (np.ones(3), np.ones((0, 3))):
        with pytest.raises(ValueError, match="similarity must have the shape"):
            TopicStabilityDisplay(bad).plot()
    with pytest.raises(ValueError, match="labels must be 2, got 1"):
        TopicStabilityDisplay(np.ones((1, 2)), ["a"]).plot()


@pytest.mark.parametrize("chosen", [[], [1.0], [[0]], [True], [False] * 3, ["0"]])
def test_chosen_parts_are_numbers_or_a_mask(chosen):
    topics = np.eye(3, 4) + 0.1
    with pytest.raises(ValueError, match="topics must be a list of numbers from 0"):
        TopicsDisplay.from_estimator(topics, topics=chosen)
    assert not plt.get_fignums()


def test_a_mask_chooses_parts():
    topics = np.eye(3, 4) + 0.1
    mask = np.array([True, False, True])
    display = TopicsDisplay.from_estimator(topics, topics=mask)
    assert [ax.get_title() for ax in display.axes_] == ["topic 0", "topic 2"]


@pytest.mark.parametrize("shape", [6, (6,), (2.0, 3.0), (-2, -3)])
def test_the_shape_of_images_is_two_integers(shape):
    with pytest.raises(ValueError, match="image_shape must be two positive integers"):
        ComponentsDisplay(np.eye(3, 6), shape).plot()


def test_stability_display_needs_words():
    with pytest.raises(ValueError, match="n_words must be an integer"):
        TopicStabilityDisplay.from_estimators([np.eye(2)] * 2, n_words=0)


def test_words_are_no_formulas():
    names = [r"$\x1$", "$"]
    display = TopicsDisplay.from_estimator(np.eye(2) + 0.1, feature_names=names)
    display.figure_.canvas.draw()
    assert display.axes_[0].get_yticklabels()[0].get_text() == names[0]
    fits = [np.eye(2) + 0.1] * 2
    display = TopicStabilityDisplay.from_estimators(fits, feature_names=names)
    display.figure_.canvas.draw()
