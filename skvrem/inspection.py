"""Displays: pictures of what a fit did and found."""

from collections import Counter

import numpy as np
from scipy.special import ndtri
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from skvrem.utils._base import optional

__all__ = ["ConvergenceDisplay", "ResidualsDisplay", "StatesDisplay"]

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


class StatesDisplay:
    """A series coloured by the states of a hidden Markov model, and their posterior.

    Use :meth:`from_estimator` to make one from a fitted model.

    Parameters
    ----------
    values : ndarray of shape (n_samples, n_features)
        What is drawn.
    states : ndarray of int of shape (n_samples,)
        State of each row.
    probabilities : ndarray of shape (n_samples, n_states)
        Their probabilities.
    names : list of str
        Names of the features.

    Attributes
    ----------
    axes_ : ndarray of matplotlib.axes.Axes
        One for each feature, and one for the probabilities.
    figure_ : matplotlib.figure.Figure
        The figure.

    Examples
    --------
    >>> import numpy as np
    >>> from skvrem import StatesDisplay, VRHMM
    >>> X = np.repeat([[0.0], [5.0], [0.0]], 30, axis=0)
    >>> X += np.random.default_rng(0).normal(size=X.shape)
    >>> hmm = VRHMM(2, random_state=0).fit(X)
    >>> display = StatesDisplay(X, hmm.predict(X), hmm.predict_proba(X), ["depth"])
    >>> len(display.plot().axes_)
    2
    """

    def __init__(self, values, states, probabilities, names):
        self.values = values
        self.states = states
        self.probabilities = probabilities
        self.names = names

    @classmethod
    def from_estimator(cls, estimator, X, *, values=None, names=None, **kwargs):
        """Draw rows of X with the states that a fitted model gives them.

        Parameters
        ----------
        estimator : VRHMM
            Fitted.
        X : array-like of shape (n_samples, n_features)
            Rows as for its `predict`.
        values : array-like of shape (n_samples, n_drawn), default=None
            What to draw instead of the columns of X.
        names : list of str, default=None
            Names of what is drawn.
        **kwargs : dict
            Passed to `predict` and `predict_proba`, as `groups`.

        Returns
        -------
        display : StatesDisplay
            With the attributes ``axes_`` and ``figure_``.

        Examples
        --------
        >>> import numpy as np
        >>> from skvrem import StatesDisplay, VRHMM
        >>> X = np.repeat([[0.0], [5.0], [0.0]], 30, axis=0)
        >>> X += np.random.default_rng(0).normal(size=X.shape)
        >>> display = StatesDisplay.from_estimator(VRHMM(2, random_state=0).fit(X), X)
        >>> display.axes_[0].get_ylabel()
        'x0'
        """
        check_is_fitted(estimator)
        states = estimator.predict(X, **kwargs)
        probabilities = estimator.predict_proba(X, **kwargs)
        if names is None and values is None:
            names = getattr(estimator, "feature_names_in_", None)
        values = np.asarray(X if values is None else values)
        if names is None:
            names = [f"x{j}" for j in range(values.shape[1])]
        return cls(values, states, probabilities, list(names)).plot()

    def plot(self, *, axes=None):
        """Draw the series and, below, the probabilities of the states.

        Parameters
        ----------
        axes : sequence of matplotlib Axes, default=None
            One for each feature and one more; drawn on a new figure if None.

        Returns
        -------
        display : StatesDisplay
            With the attributes ``axes_`` and ``figure_``.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        count = self.values.shape[1] + 1
        pyplot = optional("matplotlib.pyplot", "plot", type(self).__name__)
        if axes is None:
            _, axes = pyplot.subplots(
                count, sharex=True, figsize=(10, 1.8 * count), layout="constrained"
            )
        self.axes_ = np.atleast_1d(np.asarray(axes))
        self.figure_ = self.axes_[0].figure
        n_states = self.probabilities.shape[1]
        colours = pyplot.get_cmap("tab10" if n_states <= 10 else "tab20").colors
        time = np.arange(len(self.values))
        for j, ax in enumerate(self.axes_[:-1]):
            ax.plot(time, self.values[:, j], color="0.8", lw=0.8, zorder=1)
            for state in range(n_states):
                rows = self.states == state
                colour = [colours[state % len(colours)]]
                ax.scatter(time[rows], self.values[rows, j], s=4, c=colour, zorder=2)
            ax.set_ylabel(self.names[j])
        self.axes_[-1].stackplot(
            time,
            self.probabilities.T,
            colors=[colours[k % len(colours)] for k in range(n_states)],
            labels=[f"state {k}" for k in range(n_states)],
        )
        self.axes_[-1].set(xlabel="row", ylabel="probability", ylim=(0.0, 1.0))
        self.axes_[-1].legend(loc="upper right", fontsize="small", ncols=n_states)
        return self


class ResidualsDisplay:
    """Quantiles of pseudo-residuals against those of the normal distribution.

    Points on the diagonal: the model describes how its values are distributed.

    Parameters
    ----------
    residuals : ndarray of shape (n_samples, n_features)
        As ``VRHMM.pseudo_residuals`` returns them; NaN are left out.
    names : list of str
        Names of the features.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
        The axis.
    figure_ : matplotlib.figure.Figure
        The figure.

    Examples
    --------
    >>> import numpy as np
    >>> from skvrem import ResidualsDisplay, VRHMM
    >>> X = np.random.default_rng(0).normal(size=(200, 1))
    >>> hmm = VRHMM(1).fit(X)
    >>> display = ResidualsDisplay(hmm.pseudo_residuals(X), ["x"]).plot()
    >>> display.ax_.get_xlabel()
    'normal quantiles'
    """

    def __init__(self, residuals, names):
        self.residuals = residuals
        self.names = names

    @classmethod
    def from_estimator(cls, estimator, X, *, ax=None, **kwargs):
        """Draw the pseudo-residuals of X under a fitted model.

        Parameters
        ----------
        estimator : VRHMM
            Fitted.
        X : array-like of shape (n_samples, n_features)
            Rows as for its `predict`.
        ax : matplotlib Axes, default=None
            Drawn on a new figure if None.
        **kwargs : dict
            Passed to `pseudo_residuals`, as `groups`.

        Returns
        -------
        display : ResidualsDisplay
            With the attributes ``ax_`` and ``figure_``.

        Examples
        --------
        >>> import numpy as np
        >>> from skvrem import ResidualsDisplay, VRHMM
        >>> X = np.random.default_rng(0).normal(size=(200, 1))
        >>> display = ResidualsDisplay.from_estimator(VRHMM(1).fit(X), X)
        >>> display.ax_.get_ylabel()
        'pseudo-residuals'
        """
        check_is_fitted(estimator)
        residuals = estimator.pseudo_residuals(X, **kwargs)
        names = [f"x{j}" for j in range(residuals.shape[1])]
        return cls(residuals, names).plot(ax=ax)

    def plot(self, ax=None):
        """Draw the quantiles.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Drawn on a new figure if None.

        Returns
        -------
        display : ResidualsDisplay
            With the attributes ``ax_`` and ``figure_``.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        if ax is None:
            pyplot = optional("matplotlib.pyplot", "plot", type(self).__name__)
            _, ax = pyplot.subplots()
        self.ax_, self.figure_ = ax, ax.figure
        for name, column in zip(self.names, np.transpose(self.residuals), strict=True):
            column = np.sort(column[np.isfinite(column)])
            expected = ndtri((np.arange(len(column)) + 0.5) / max(1, len(column)))
            ax.plot(expected, column, ".", ms=3, label=name)
        ax.axline((0.0, 0.0), slope=1.0, color="0.5", lw=1.0)
        ax.set(xlabel="normal quantiles", ylabel="pseudo-residuals")
        ax.legend()
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
