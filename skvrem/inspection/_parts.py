"""Parts of models, one picture each: components that are images, topics by words."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from skvrem.inspection._axes import check_axes, one_axis
from skvrem.text._matching import topic_stability
from skvrem.text._topics import (
    check_names,
    find_topics,
    largest,
    word_probabilities,
)
from skvrem.utils._base import optional
from skvrem.utils._columns import Given
from skvrem.utils._validation import check_size


@dataclass(eq=False, repr=False)
class ComponentsDisplay:
    """Components that are images, one picture a component.

    Use :meth:`from_estimator` to make one from a fitted model.

    Parameters
    ----------
    components : array-like of shape (n_components, n_features)
        The images, row by row.
    image_shape : tuple of int
        (height, width) of an image, whose product is n_features.
    titles : list of str, default=None
        By default "component 0", "component 1" and so on.

    Attributes
    ----------
    axes_ : ndarray of matplotlib.axes.Axes of shape (n_components,)
    figure_ : matplotlib.figure.Figure
    images_ : list of matplotlib.image.AxesImage
        One for each component.

    Examples
    --------
    >>> import numpy as np
    >>> from skvrem import ComponentsDisplay
    >>> display = ComponentsDisplay(np.eye(3, 6), (2, 3)).plot()
    >>> [ax.get_title() for ax in display.axes_]
    ['component 0', 'component 1', 'component 2']
    """

    components: ArrayLike
    image_shape: tuple[int, int]
    titles: Sequence[str] | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        image_shape: tuple[int, int],
        *,
        components: Given = None,
        titles: Sequence[str] | None = None,
        ax: Any = None,
        n_columns: int = 8,
        **kwargs: Any,
    ) -> Self:
        """Draw the components of a fitted model.

        Parameters
        ----------
        estimator : estimator
            Fitted, with ``components_`` or ``means_``.
        image_shape : tuple of int
            (height, width) of an image.
        components : array-like of int or bool, default=None
            Numbers of those to draw, or whether to draw each; all of them by default.
        titles : list of str, default=None
            Titles of these; by default their numbers.
        ax : array-like of matplotlib Axes, default=None
            One for each component; drawn on a new figure if None.
        n_columns : int, default=8
            Pictures in a row of the new figure.
        **kwargs : dict
            Passed to :meth:`matplotlib.axes.Axes.imshow`.

        Returns
        -------
        display : ComponentsDisplay

        Raises
        ------
        sklearn.exceptions.NotFittedError
            If the estimator is not fitted.
        ValueError
            If it has no components or no such one, or shapes do not match.

        Examples
        --------
        >>> from sklearn.datasets import load_digits
        >>> from skvrem import ComponentsDisplay, VRGaussianMixture
        >>> X = load_digits().data
        >>> mixture = VRGaussianMixture(4, covariance_type="diag", reg_covar=1.0)
        >>> mixture = mixture.set_params(random_state=0).fit(X)
        >>> display = ComponentsDisplay.from_estimator(mixture, (8, 8), components=[2])
        >>> len(display.images_)
        1
        """
        check_is_fitted(estimator)
        rows = getattr(estimator, "components_", getattr(estimator, "means_", None))
        if rows is None:
            raise ValueError(
                f"This {type(estimator).__name__} has neither components_ nor means_."
            )
        numbers, titles = _chosen(components, titles, len(rows), "component")
        display = cls(np.asarray(rows)[numbers], image_shape, titles)
        return display.plot(ax=ax, n_columns=n_columns, **kwargs)

    def plot(self, ax: Any = None, *, n_columns: int = 8, **kwargs: Any) -> Self:
        """Draw the images.

        Parameters
        ----------
        ax : array-like of matplotlib Axes, default=None
            One for each component; drawn on a new figure if None.
        n_columns : int, default=8
            Pictures in a row of the new figure.
        **kwargs : dict
            Passed to :meth:`matplotlib.axes.Axes.imshow`. Without `vmin` and `vmax`
            all images share one symmetric scale, so that zero has one colour.

        Returns
        -------
        display : ComponentsDisplay
            With the attributes ``axes_``, ``figure_`` and ``images_``.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        ValueError
            If there is nothing to draw, or shapes or numbers of titles or axes do not
            match.
        """
        rows = np.asarray(self.components, dtype=float)
        sides = np.asarray(self.image_shape)
        if sides.shape != (2,) or sides.dtype.kind not in "iu" or sides.min() < 1:
            raise ValueError(
                "image_shape must be two positive integers, (height, width), got "
                f"{self.image_shape!r}."
            )
        height, width = sides.tolist()
        if rows.ndim != 2 or not rows.size or rows.shape[1] != height * width:
            raise ValueError(
                f"components must have shape (n_components, {height} * {width}) for "
                f"images of shape {(height, width)}, got {rows.shape}."
            )
        size = 1.3, 1.3 * height / width
        self.axes_, self.figure_ = _titled_axes(
            self, ax, len(rows), "component", n_columns, size
        )
        most = np.abs(rows).max()
        kwargs = {"cmap": "RdBu_r", "vmin": -most, "vmax": most, **kwargs}
        self.images_ = []
        for one, row in zip(self.axes_, rows, strict=True):
            self.images_.append(one.imshow(row.reshape(height, width), **kwargs))
            one.set(xticks=[], yticks=[])
        if ax is None:
            self.figure_.colorbar(self.images_[0], ax=list(self.axes_))
        return self


@dataclass(eq=False, repr=False)
class TopicsDisplay:
    """The top words of topics as bars, one picture a topic.

    Use :meth:`from_estimator` to make one from a fitted topic model.

    Parameters
    ----------
    words : array-like of str of shape (n_topics, n_words)
        Words of each topic, the most probable first.
    probabilities : array-like of shape (n_topics, n_words)
        Their probabilities in the topic.
    titles : list of str, default=None
        By default "topic 0", "topic 1" and so on.

    Attributes
    ----------
    axes_ : ndarray of matplotlib.axes.Axes of shape (n_topics,)
    bars_ : list of matplotlib.container.BarContainer
        One for each topic.
    figure_ : matplotlib.figure.Figure

    Examples
    --------
    >>> from skvrem import TopicsDisplay
    >>> words = [["rain", "sun"], ["goal", "ball"]]
    >>> display = TopicsDisplay(words, [[0.5, 0.3], [0.6, 0.2]]).plot()
    >>> [ax.get_title() for ax in display.axes_]
    ['topic 0', 'topic 1']
    """

    words: ArrayLike
    probabilities: ArrayLike
    titles: Sequence[str] | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        feature_names: Any = None,
        n_words: int = 10,
        topics: Given = None,
        titles: Sequence[str] | None = None,
        ax: Any = None,
        n_columns: int = 5,
        **kwargs: Any,
    ) -> Self:
        """Draw the top words of a fitted topic model.

        Parameters
        ----------
        estimator : estimator or array-like of shape (n_topics, n_features)
            A fitted model with ``components_``, a fitted pipeline that ends with one,
            or topics in any scale.
        feature_names : array-like of str, fitted vectorizer or Pipeline, default=None
            The words of the columns; see :func:`skvrem.text.top_words`.
        n_words : int, default=10
            Words a topic.
        topics : array-like of int or bool, default=None
            Numbers of those to draw, or whether to draw each; all of them by default.
        titles : list of str, default=None
            Titles of these; by default their numbers.
        ax : array-like of matplotlib Axes, default=None
            One for each topic; drawn on a new figure if None.
        n_columns : int, default=5
            Pictures in a row of the new figure.
        **kwargs : dict
            Passed to :meth:`matplotlib.axes.Axes.barh`.

        Returns
        -------
        display : TopicsDisplay

        Raises
        ------
        sklearn.exceptions.NotFittedError
            If the estimator is not fitted.
        ValueError
            If there is no such topic, or numbers of names, titles or axes do not match.

        Examples
        --------
        >>> from skvrem import TopicsDisplay
        >>> topics = [[8.0, 1.0, 3.0], [0.5, 6.0, 2.0]]
        >>> display = TopicsDisplay.from_estimator(
        ...     topics, feature_names=["rain", "goal", "win"], n_words=2
        ... )
        >>> display.words
        array([['rain', 'win'],
               ['goal', 'win']], dtype=object)
        """
        check_size("n_words", n_words)
        components, _ = find_topics(estimator, None)
        names = check_names(feature_names, components.shape[1], estimator)
        numbers, titles = _chosen(topics, titles, len(components), "topic")
        probabilities = word_probabilities(components[numbers])[0].T
        top = largest(probabilities, n_words)
        display = cls(names[top], np.take_along_axis(probabilities, top, 1), titles)
        return display.plot(ax=ax, n_columns=n_columns, **kwargs)

    def plot(self, ax: Any = None, *, n_columns: int = 5, **kwargs: Any) -> Self:
        """Draw the bars.

        Parameters
        ----------
        ax : array-like of matplotlib Axes, default=None
            One for each topic; drawn on a new figure if None.
        n_columns : int, default=5
            Pictures in a row of the new figure, all of one scale.
        **kwargs : dict
            Passed to :meth:`matplotlib.axes.Axes.barh`.

        Returns
        -------
        display : TopicsDisplay
            With the attributes ``axes_``, ``bars_`` and ``figure_``.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        ValueError
            If there is nothing to draw, or numbers of titles or axes do not match.
        """
        words = np.asarray(self.words, dtype=object)
        probabilities = np.asarray(self.probabilities, dtype=float)
        if words.ndim != 2 or not words.size or words.shape != probabilities.shape:
            raise ValueError(
                "words and probabilities must have one shape (n_topics, n_words), got "
                f"{words.shape} and {probabilities.shape}."
            )
        n_topics, n_words = words.shape
        size = 2.4, 0.3 + 0.2 * n_words
        self.axes_, self.figure_ = _titled_axes(
            self, ax, n_topics, "topic", n_columns, size, sharex=True
        )
        if ax is None:
            for bottom in self.axes_[max(0, n_topics - n_columns) :]:
                # Where the last row is short, the picture above has the lowest axis.
                bottom.tick_params(labelbottom=True)
            self.figure_.supxlabel("probability in the topic")
        self.bars_ = []
        for one, top, p in zip(self.axes_, words, probabilities, strict=True):
            # By place, not by word: matplotlib merges bars of equal labels.
            place = np.arange(n_words)
            self.bars_.append(one.barh(place, p, **kwargs))
            # No word is a formula, whatever its characters.
            one.set_yticks(place, [str(word) for word in top], parse_math=False)
            one.invert_yaxis()
        return self


@dataclass(eq=False, repr=False)
class TopicStabilityDisplay:
    """How much of each topic other fits find again, a bar a topic, a dot a fit.

    Use :meth:`from_estimators` to make one from fitted topic models.

    Parameters
    ----------
    similarity : array-like of shape (n_models - 1, n_topics)
        Of the first model's topics to those of each other model that they are matched
        with, as of :func:`skvrem.text.topic_stability`.
    labels : list of str, default=None
        Of the topics; by default "topic 0", "topic 1" and so on.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
    bars_ : matplotlib.container.BarContainer
        Of the means, the most stable topic at the top.
    figure_ : matplotlib.figure.Figure

    Examples
    --------
    >>> from skvrem import TopicStabilityDisplay
    >>> display = TopicStabilityDisplay([[0.2, 0.9], [0.4, 0.7]]).plot()
    >>> [label.get_text() for label in display.ax_.get_yticklabels()]
    ['topic 1', 'topic 0']
    """

    similarity: ArrayLike
    labels: Sequence[str] | None = None

    @classmethod
    def from_estimators(
        cls,
        models: Sequence[Any],
        *,
        feature_names: Any = None,
        n_words: int = 4,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the stability of the first model's topics.

        Parameters
        ----------
        models : sequence of estimators or array-likes
            As of :func:`skvrem.text.topic_stability`.
        feature_names : array-like of str, fitted vectorizer or Pipeline, default=None
            The words of the columns; see :func:`skvrem.text.top_words`.
        n_words : int, default=4
            Top words that label a topic.
        ax : matplotlib Axes, default=None
            Drawn on a new figure if None.
        **kwargs : dict
            Passed to :meth:`matplotlib.axes.Axes.barh`.

        Returns
        -------
        display : TopicStabilityDisplay

        Raises
        ------
        ValueError
            As :func:`skvrem.text.topic_stability`, and if `n_words` is no positive
            integer.

        Examples
        --------
        >>> from skvrem import TopicStabilityDisplay
        >>> fits = [[[0.7, 0.3], [0.1, 0.9]], [[0.1, 0.9], [0.6, 0.4]]]
        >>> names = ["rain", "goal"]
        >>> display = TopicStabilityDisplay.from_estimators(fits, feature_names=names)
        >>> display.labels
        ['0: rain goal', '1: goal rain']
        """
        check_size("n_words", n_words)
        stability = topic_stability(models)
        components, _ = find_topics(models[0], None)
        names = check_names(feature_names, components.shape[1], models[0])
        words = names[largest(components, n_words)]
        labels = [f"{k}: {' '.join(map(str, row))}" for k, row in enumerate(words)]
        return cls(stability.similarity, labels).plot(ax=ax, **kwargs)

    def plot(self, ax: Any = None, **kwargs: Any) -> Self:
        """Draw the bars.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Drawn on a new figure if None.
        **kwargs : dict
            Passed to :meth:`matplotlib.axes.Axes.barh`.

        Returns
        -------
        display : TopicStabilityDisplay
            With the attributes ``ax_``, ``bars_`` and ``figure_``.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        ValueError
            If there is nothing to draw, or another number of labels.
        """
        similarity = np.asarray(self.similarity, dtype=float)
        if similarity.ndim != 2 or not similarity.size:
            raise ValueError(
                "similarity must have the shape (n_models - 1, n_topics), got "
                f"{similarity.shape}."
            )
        n_topics = similarity.shape[1]
        labels = self.labels or [f"topic {k}" for k in range(n_topics)]
        if len(labels) != n_topics:
            raise ValueError(f"labels must be {n_topics}, got {len(labels)}.")
        self.ax_, self.figure_ = one_axis(
            self, ax, figsize=(6.0, 0.6 + 0.22 * n_topics), layout="constrained"
        )
        mean, place = similarity.mean(axis=0), np.arange(n_topics)
        order = np.argsort(-mean, kind="stable")
        self.bars_ = self.ax_.barh(place, mean[order], **{"alpha": 0.5, **kwargs})
        for row in similarity:
            self.ax_.plot(row[order], place, "k.", markersize=4)
        # Labels are words, no formulas.
        self.ax_.set_yticks(place, [labels[k] for k in order], parse_math=False)
        self.ax_.set(xlim=(0.0, 1.0), xlabel="similarity to the matched topic")
        self.ax_.invert_yaxis()
        return self


def _titled_axes(display, ax, n_parts, part, n_columns, size, **kwargs):
    """Return the axes of a display with `titles`, one for each part, and their figure.

    Where `ax` is None they are those of a new figure, `n_columns` in a row, each of the
    size in inches.

    Raises
    ------
    ValueError
        If there are other numbers of titles or axes.
    """
    check_size("n_columns", n_columns)
    titles = display.titles
    if titles is None:
        titles = [f"{part} {k}" for k in range(n_parts)]
    if len(titles) != n_parts:
        raise ValueError(f"Expected {n_parts} titles, got {len(titles)}.")
    if ax is None:
        pyplot = optional("matplotlib.pyplot", "plot", type(display).__name__)
        n_columns = min(n_columns, n_parts)
        n_rows = -(-n_parts // n_columns)
        _, grid = pyplot.subplots(
            n_rows,
            n_columns,
            squeeze=False,
            layout="constrained",
            figsize=(size[0] * n_columns, n_rows * (0.3 + size[1])),
            **kwargs,
        )
        ax = grid.ravel()[:n_parts]
        for unused in grid.ravel()[n_parts:]:
            unused.remove()
    axes = check_axes(ax, n_parts, f"{part}s", "ax")
    for one, title in zip(axes, titles, strict=True):
        one.set_title(title)
    return axes, axes[0].figure


def _chosen(parts, titles, n_parts, part):
    """Return the numbers of the parts to draw, all where none are chosen, and titles.

    Raises
    ------
    ValueError
        If there is no such part, or none is left.
    """
    given = np.arange(n_parts) if parts is None else np.asarray(parts)
    is_mask = given.dtype == bool and given.shape == (n_parts,)
    numbers = np.flatnonzero(given) if is_mask else given
    whole = numbers.ndim == 1 and numbers.size and numbers.dtype.kind in "iu"
    if not (whole and np.isin(numbers, np.arange(n_parts)).all()):
        raise ValueError(
            f"{part}s must be a list of numbers from 0 to {n_parts - 1}, or true for "
            f"some of {n_parts}, got {given.tolist()}."
        )
    return numbers, [f"{part} {k}" for k in numbers] if titles is None else titles
