"""Topics by their words."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from skvrem.inspection._axes import numbers_of_parts, titled_axes
from skvrem.text._topics import (
    check_names,
    check_size,
    find_topics,
    largest,
    word_probabilities,
)

__all__ = ["TopicsDisplay"]


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
        topics: ArrayLike | None = None,
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
        topics : array-like of int, default=None
            The topics to draw, all of them by default.
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
        numbers = numbers_of_parts(topics, len(components), "topic")
        if titles is None:
            titles = [f"topic {topic}" for topic in numbers]
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
        check_size("n_columns", n_columns)
        words = np.asarray(self.words, dtype=object)
        probabilities = np.asarray(self.probabilities, dtype=float)
        if words.ndim != 2 or not words.size or words.shape != probabilities.shape:
            raise ValueError(
                "words and probabilities must have one shape (n_topics, n_words), got "
                f"{words.shape} and {probabilities.shape}."
            )
        n_topics, n_words = words.shape
        size = 2.4, 0.3 + 0.2 * n_words
        self.axes_, self.figure_ = titled_axes(
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
            one.set_yticks(place, [str(word) for word in top])
            one.invert_yaxis()
        return self
