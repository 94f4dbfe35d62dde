"""Displays: pictures of what a fit did and found."""

from collections import Counter

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from skvrem.text._topics import check_names, find_topics, largest, word_probabilities
from skvrem.text._words import check_size
from skvrem.utils._base import optional

__all__ = ["ComponentsDisplay", "ConvergenceDisplay", "TopicsDisplay"]

X_LABELS = {
    "passes": "passes over the data",
    "seconds": "seconds",
    "epoch": "epoch",
}
Y_LABELS = {
    "objective": "objective (nats a unit)",
    "gap": "gap to the best objective (nats a unit)",
    "step_size": "step size",
    "temperature": "temperature",
}


class ConvergenceDisplay:
    """The course of one fit or of several, by passes over the data or by seconds.

    Use :meth:`from_estimator` to make one from fitted estimators.

    Parameters
    ----------
    histories : dict of str to dict
        The ``history_`` of every fit by its label: arrays of one length, "objective"
        and "passes" or "seconds" among them. The history of another library's fit can
        be put in by hand.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
    figure_ : matplotlib.figure.Figure
    lines_ : list of matplotlib.lines.Line2D
        One for each history, in its order.

    Notes
    -----
    An epoch's objective is that of the point at which the epoch began. For "saga" and
    "incremental" it is a lower bound that the objective meets at convergence, for
    "stochastic" the average of what the minibatches saw while the point moved; the
    last entry of every history is exact.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skvrem import ConvergenceDisplay, VRGaussianMixture
    >>> mixture = VRGaussianMixture(3, random_state=0).fit(load_iris().data)
    >>> display = ConvergenceDisplay({"iris": mixture.history_})
    >>> display.plot().ax_.get_xlabel()
    'passes over the data'
    """

    def __init__(self, histories):
        self.histories = histories

    @classmethod
    def from_estimator(
        cls,
        estimator,
        *,
        x="passes",
        y="objective",
        best=None,
        ax=None,
        name=None,
        **kwargs,
    ):
        """Draw the ``history_`` of fitted estimators on one axis.

        Parameters
        ----------
        estimator : estimator, list of estimators, or dict of str to estimator
            The keys of a dict are the labels.
        x : {"passes", "seconds", "epoch"}, default="passes"
        y : {"objective", "gap", "step_size", "temperature"}, default="objective"
            See :meth:`plot`.
        best : float, default=None
            What "gap" is measured from.
        ax : matplotlib Axes, default=None
            Drawn on a new figure if None.
        name : str or list of str, default=None
            Labels; by default class and solver.
        **kwargs : dict
            Passed to :meth:`matplotlib.axes.Axes.plot`.

        Returns
        -------
        display : ConvergenceDisplay

        Raises
        ------
        sklearn.exceptions.NotFittedError
            If an estimator is not fitted.
        ValueError
            If an estimator has no ``history_``, or labels do not match.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from skvrem import ConvergenceDisplay, VRGaussianMixture
        >>> X = load_iris().data
        >>> fits = [
        ...     VRGaussianMixture(3, solver=solver, random_state=0).fit(X)
        ...     for solver in ("batch", "svrg")
        ... ]
        >>> display = ConvergenceDisplay.from_estimator(fits, y="gap")
        >>> [line.get_label() for line in display.lines_]
        ['VRGaussianMixture (batch)', 'VRGaussianMixture (svrg)']
        """
        labels, estimators = _labelled(estimator, name)
        histories = {
            label: _history(one) for label, one in zip(labels, estimators, strict=True)
        }
        return cls(histories).plot(ax=ax, x=x, y=y, best=best, **kwargs)

    def plot(self, ax=None, *, x="passes", y="objective", best=None, **kwargs):
        """Draw the histories.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Drawn on a new figure if None.
        x : {"passes", "seconds", "epoch"}, default="passes"
        y : {"objective", "gap", "step_size", "temperature"}, default="objective"
            "gap" is `best` minus the objective, on a logarithmic scale; entries
            that reach `best` have no place there and are left out.
        best : float, default=None
            By default the highest objective of all these histories. The curve of
            the fit that holds it then falls to nothing at its end, whether or not
            it has converged: give the value of a longer fit to avoid that.
        **kwargs : dict
            Passed to :meth:`matplotlib.axes.Axes.plot`.

        Returns
        -------
        display : ConvergenceDisplay
            With the attributes ``ax_``, ``figure_`` and ``lines_``.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        ValueError
            If there is nothing to draw, or a history has no such column.
        """
        if x not in X_LABELS:
            raise ValueError(f"x must be one of {sorted(X_LABELS)}, got {x!r}.")
        if y not in Y_LABELS:
            raise ValueError(f"y must be one of {sorted(Y_LABELS)}, got {y!r}.")
        if not self.histories:
            raise ValueError("There is no history to draw.")
        curves = [_curve(*item, x, y) for item in self.histories.items()]
        if y == "gap":
            if best is None:
                best = max((v.max() for _, v in curves if v.size), default=np.nan)
            curves = [(u[v < best], best - v[v < best]) for u, v in curves]
        if ax is None:
            pyplot = optional("matplotlib.pyplot", "plot", type(self).__name__)
            _, ax = pyplot.subplots()
        kwargs = {"marker": ".", **kwargs}
        self.ax_, self.figure_ = ax, ax.figure
        self.lines_ = [
            ax.plot(*curve, label=label, **kwargs)[0]
            for label, curve in zip(self.histories, curves, strict=True)
        ]
        ax.set(xlabel=X_LABELS[x], ylabel=Y_LABELS[y])
        if y == "gap":
            ax.set_yscale("log")
        ax.legend()
        return self


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

    def __init__(self, words, probabilities, titles=None):
        self.words = words
        self.probabilities = probabilities
        self.titles = titles

    @classmethod
    def from_estimator(
        cls,
        estimator,
        *,
        feature_names=None,
        n_words=10,
        topics=None,
        titles=None,
        ax=None,
        n_columns=5,
        **kwargs,
    ):
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
        topics = np.arange(len(components)) if topics is None else np.asarray(topics)
        if topics.ndim != 1 or not np.isin(topics, np.arange(len(components))).all():
            raise ValueError(
                f"topics must be a list of numbers from 0 to {len(components) - 1}, "
                f"got {topics.tolist()}."
            )
        if titles is None:
            titles = [f"topic {topic}" for topic in topics]
        probabilities = word_probabilities(components[topics])[0].T
        top = largest(probabilities, n_words)
        display = cls(names[top], np.take_along_axis(probabilities, top, 1), titles)
        return display.plot(ax=ax, n_columns=n_columns, **kwargs)

    def plot(self, ax=None, *, n_columns=5, **kwargs):
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
        titles = self.titles
        if titles is None:
            titles = [f"topic {k}" for k in range(n_topics)]
        if len(titles) != n_topics:
            raise ValueError(f"Expected {n_topics} titles, got {len(titles)}.")
        if ax is None:
            ax = self._new_axes(n_topics, n_words, n_columns)
        axes = np.array(ax, dtype=object).ravel()
        if len(axes) != n_topics:
            raise ValueError(
                f"ax must hold one axis for each of the {n_topics} topics, got "
                f"{len(axes)}."
            )
        self.axes_, self.figure_, self.bars_ = axes, axes[0].figure, []
        for one, top, p, title in zip(axes, words, probabilities, titles, strict=True):
            # By place, not by word: matplotlib merges bars of equal labels.
            place = np.arange(n_words)
            self.bars_.append(one.barh(place, p, **kwargs))
            one.set_yticks(place, [str(word) for word in top])
            one.invert_yaxis()
            one.set_title(title)
        return self

    def _new_axes(self, n_topics, n_words, n_columns):
        axes = _new_axes(
            type(self).__name__,
            n_topics,
            n_columns,
            (2.4, 0.3 + 0.2 * n_words),
            sharex=True,
        )
        for bottom in axes[max(0, n_topics - n_columns) :]:
            # Where the last row is short, the picture above has the lowest axis.
            bottom.tick_params(labelbottom=True)
        axes[0].figure.supxlabel("probability in the topic")
        return axes


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

    def __init__(self, components, image_shape, titles=None):
        self.components = components
        self.image_shape = image_shape
        self.titles = titles

    @classmethod
    def from_estimator(
        cls,
        estimator,
        image_shape,
        *,
        components=None,
        titles=None,
        ax=None,
        n_columns=8,
        **kwargs,
    ):
        """Draw the components of a fitted model.

        Parameters
        ----------
        estimator : estimator
            Fitted, with ``components_`` or ``means_``.
        image_shape : tuple of int
            (height, width) of an image.
        components : array-like of int, default=None
            Those to draw, all of them by default.
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
        numbers = np.arange(len(rows)) if components is None else np.asarray(components)
        if numbers.ndim != 1 or not np.isin(numbers, np.arange(len(rows))).all():
            raise ValueError(
                f"components must be a list of numbers from 0 to {len(rows) - 1}, got "
                f"{numbers.tolist()}."
            )
        if titles is None:
            titles = [f"component {number}" for number in numbers]
        display = cls(np.asarray(rows)[numbers], image_shape, titles)
        return display.plot(ax=ax, n_columns=n_columns, **kwargs)

    def plot(self, ax=None, *, n_columns=8, **kwargs):
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
        check_size("n_columns", n_columns)
        rows = np.asarray(self.components, dtype=float)
        height, width = self.image_shape
        if rows.ndim != 2 or not rows.size or rows.shape[1] != height * width:
            raise ValueError(
                f"components must have shape (n_components, {height} * {width}) for "
                f"images of shape {(height, width)}, got {rows.shape}."
            )
        titles = self.titles
        if titles is None:
            titles = [f"component {k}" for k in range(len(rows))]
        if len(titles) != len(rows):
            raise ValueError(f"Expected {len(rows)} titles, got {len(titles)}.")
        if ax is None:
            ax = _new_axes(
                type(self).__name__, len(rows), n_columns, (1.3, 1.3 * height / width)
            )
        axes = np.array(ax, dtype=object).ravel()
        if len(axes) != len(rows):
            raise ValueError(
                f"ax must hold one axis for each of the {len(rows)} components, got "
                f"{len(axes)}."
            )
        size = np.abs(rows).max()
        kwargs = {"cmap": "RdBu_r", "vmin": -size, "vmax": size, **kwargs}
        self.axes_, self.figure_, self.images_ = axes, axes[0].figure, []
        for one, row, title in zip(axes, rows, titles, strict=True):
            self.images_.append(one.imshow(row.reshape(height, width), **kwargs))
            one.set(title=title, xticks=[], yticks=[])
        return self


def _new_axes(name, n_axes, n_columns, size, **kwargs):
    """Return axes on a new figure, `n_columns` in a row, each of the size in inches."""
    pyplot = optional("matplotlib.pyplot", "plot", name)
    n_columns = min(n_columns, n_axes)
    n_rows = -(-n_axes // n_columns)
    width, height = size
    _, axes = pyplot.subplots(
        n_rows,
        n_columns,
        squeeze=False,
        layout="constrained",
        figsize=(width * n_columns, n_rows * (0.3 + height)),
        **kwargs,
    )
    axes = axes.ravel()
    for unused in axes[n_axes:]:
        unused.remove()
    return axes[:n_axes]


def _labelled(estimator, name):
    """Return labels and estimators as two lists of one length."""
    if isinstance(estimator, dict):
        if name is not None:
            raise ValueError("The keys of the dict are the labels: leave name away.")
        return list(estimator), list(estimator.values())
    one = not isinstance(estimator, list | tuple)
    estimators = [estimator] if one else list(estimator)
    if name is None:
        return _default_labels(estimators), estimators
    names = [name] if isinstance(name, str) else list(name)
    if len(names) != len(estimators) or len(set(names)) < len(names):
        raise ValueError(
            f"name must be a different label for each of the {len(estimators)} "
            f"estimators, got {names}."
        )
    return names, estimators


def _default_labels(estimators):
    """Class and solver, numbered where several have the same."""
    labels = []
    for one in estimators:
        label = type(one).__name__
        if hasattr(one, "solver_"):
            label += f" ({one.solver_})"
        labels.append(label)
    counts, seen = Counter(labels), Counter()
    for i, label in enumerate(labels):
        if counts[label] > 1:
            seen[label] += 1
            labels[i] = f"{label} {seen[label]}"
    return labels


def _history(estimator):
    if not isinstance(estimator, BaseEstimator):
        raise ValueError(
            "Expected an estimator, a list of estimators or a dict of them by label, "
            f"got {estimator!r}."
        )
    check_is_fitted(estimator)
    if not hasattr(estimator, "history_"):
        raise ValueError(
            f"This {type(estimator).__name__} has no history_: it is an attribute of "
            "skvrem's estimators after fit (partial_fit writes none). Of a pipeline or "
            "a search, give the estimator inside."
        )
    return estimator.history_


def _curve(label, history, x, y):
    """Return the finite points of a history as two arrays."""
    y = "objective" if y == "gap" else y
    missing = {x, y} - {"epoch"} - set(history)
    if missing:
        raise ValueError(
            f"The history {label!r} has no {' and no '.join(sorted(missing))}, only "
            f"{', '.join(sorted(history))}."
        )
    v = np.asarray(history[y], dtype=float)
    u = np.arange(1.0, v.size + 1.0) if x == "epoch" else np.asarray(history[x], float)
    known = np.isfinite(u) & np.isfinite(v)
    return u[known], v[known]
