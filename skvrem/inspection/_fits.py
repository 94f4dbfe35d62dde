"""How fits went: the objective by time or passes, the variance of their gradients."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skvrem.inspection._axes import one_axis
from skvrem.utils._validation import check_size

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


@dataclass(eq=False, repr=False)
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
    last entry of every history is exact. The passes of a start (k-means, short runs)
    count, and a curve begins after them.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skvrem import ConvergenceDisplay, VRGaussianMixture
    >>> mixture = VRGaussianMixture(3, random_state=0).fit(load_iris().data)
    >>> display = ConvergenceDisplay({"iris": mixture.history_})
    >>> display.plot().ax_.get_xlabel()
    'passes over the data'
    """

    histories: Mapping[str, Mapping[str, ArrayLike]]

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        x: Literal["passes", "seconds", "epoch"] = "passes",
        y: Literal["objective", "gap", "step_size", "temperature"] = "objective",
        best: float | None = None,
        ax: Any = None,
        name: str | Sequence[str] | None = None,
        **kwargs: Any,
    ) -> Self:
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

    def plot(
        self,
        ax: Any = None,
        *,
        x: Literal["passes", "seconds", "epoch"] = "passes",
        y: Literal["objective", "gap", "step_size", "temperature"] = "objective",
        best: float | None = None,
        **kwargs: Any,
    ) -> Self:
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
        self.ax_, self.figure_ = one_axis(self, ax)
        kwargs = {"marker": ".", **kwargs}
        self.lines_ = [
            self.ax_.plot(*curve, label=label, **kwargs)[0]
            for label, curve in zip(self.histories, curves, strict=True)
        ]
        self.ax_.set(xlabel=X_LABELS[x], ylabel=Y_LABELS[y])
        if y == "gap":
            self.ax_.set_yscale("log")
        self.ax_.legend()
        return self


@dataclass(eq=False, repr=False)
class GradientVarianceDisplay:
    """Variances of gradient estimates, a dot each, and a line where they are ranges.

    Grey are the parts of the naive estimate's variance, where "V(rows)" and "V(draws)"
    are what is left of it once draws or rows are exact; blue are the estimates
    themselves, of which "cv" corrects for the draws and "joint" for the rows too.

    Parameters
    ----------
    variances : dict of str to float, or to array-like of shape (n_repetitions,)
        What ``gradient_variance`` of an estimator returns: the decomposition, whose
        names begin with "V", and the estimators. Of repetitions the median is the dot,
        and a line goes from the least to the largest.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
    figure_ : matplotlib.figure.Figure
    points_ : matplotlib.collections.PathCollection
    ranges_ : matplotlib.collections.LineCollection
        A line for each, of no length where there are no repetitions.

    Examples
    --------
    >>> from skvrem import GradientVarianceDisplay
    >>> variances = {"V(rows)": 9e4, "V(draws)": 2e3, "naive": 1e5, "joint": 3e2}
    >>> GradientVarianceDisplay(variances).plot().ax_.get_xscale()
    'log'
    """

    variances: Mapping[str, ArrayLike]

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: ArrayLike,
        y: ArrayLike,
        *,
        n_repetitions: int = 5,
        random_state: int | np.random.RandomState | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Measure the variances at a fitted posterior and draw them.

        Parameters
        ----------
        estimator : BayesianLogisticRegression or BayesianGLMRegressor
            Fitted.
        X : array-like of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,)
            Their targets.
        n_repetitions : int, default=5
            Times that they are measured, each with draws of its own: a line shows how
            much of a difference is of the draws.
        random_state : int, RandomState instance or None, default=None
            Seeds the draws.
        ax : matplotlib Axes, default=None
            Drawn on a new figure if None.
        **kwargs : dict
            Passed to the estimator's ``gradient_variance``.

        Returns
        -------
        display : GradientVarianceDisplay

        Raises
        ------
        ValueError
            If `n_repetitions` is not a positive integer.
        """
        check_size("n_repetitions", n_repetitions)
        rng = check_random_state(random_state)
        runs = [
            estimator.gradient_variance(X, y, random_state=rng, **kwargs)
            for _ in range(n_repetitions)
        ]
        variances = {name: np.array([run[name] for run in runs]) for name in runs[0]}
        return cls(variances).plot(ax=ax)

    def plot(self, ax: Any = None, **kwargs: Any) -> Self:
        """Draw a dot for each variance, on a logarithmic scale.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Drawn on a new figure if None.
        **kwargs : dict
            Passed to :meth:`matplotlib.axes.Axes.scatter`.

        Returns
        -------
        display : GradientVarianceDisplay
            With the attributes ``ax_``, ``figure_``, ``points_`` and ``ranges_``.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        ValueError
            If there is nothing to draw.
        """
        found = [np.atleast_1d(v).astype(float) for v in self.variances.values()]
        if not all(v.size for v in found) or not found:
            raise ValueError("There are no variances to draw.")
        self.ax_, self.figure_ = one_axis(self, ax, layout="constrained")
        names = list(self.variances)
        colors = ["C7" if name.startswith("V(") else "C0" for name in names]
        values = np.array([np.median(v) for v in found])
        # Dots: on a logarithmic scale the length of a bar says nothing.
        kwargs = {"color": colors, "zorder": 2, **kwargs}
        self.points_ = self.ax_.scatter(values, names, **kwargs)
        lows, highs = np.array([(v.min(), v.max()) for v in found]).T
        self.ranges_ = self.ax_.hlines(names, lows, highs, colors=colors, zorder=1)
        self.ax_.set(xscale="log", xlabel="variance of the gradient (trace)")
        self.ax_.grid(axis="y", alpha=0.3)
        # Labels of ticks between the decades would overlap.
        if values.max() > 100.0 * values.min():
            self.ax_.xaxis.set_minor_formatter("")
        self.ax_.invert_yaxis()
        return self


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
    labels = [
        type(one).__name__ + (f" ({one.solver_})" if hasattr(one, "solver_") else "")
        for one in estimators
    ]
    return [
        f"{label} {labels[: i + 1].count(label)}" if labels.count(label) > 1 else label
        for i, label in enumerate(labels)
    ]


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
