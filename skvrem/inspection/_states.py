"""Hidden Markov models: states along a series, and whether they explain it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri
from sklearn.utils.validation import check_is_fitted

from skvrem.inspection._axes import check_axes, one_axis, state_colours
from skvrem.inspection._comparison import autocorrelations, sequence_numbers
from skvrem.utils._base import optional
from skvrem.utils._columns import Given, column_names, column_of


@dataclass(eq=False, repr=False)
class StatesDisplay:
    """A series coloured by the states of a hidden Markov model, and their posterior.

    Use :meth:`from_estimator` to make one from a fitted model.

    Parameters
    ----------
    values : ndarray of shape (n_samples, n_features) or (n_samples,)
        What is drawn; without a second dimension it is one feature.
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

    values: np.ndarray
    states: np.ndarray
    probabilities: np.ndarray
    names: Sequence[str]

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: ArrayLike,
        *,
        values: Given = None,
        names: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw rows of X with the states that a fitted model gives them.

        Parameters
        ----------
        estimator : VRHMM
            Fitted.
        X : array-like of shape (n_samples, n_features)
            Rows as for its `predict`.
        values : array-like of shape (n_samples, n_drawn) or (n_samples,), default=None
            What to draw instead of the columns that states emit.
        names : list of str, default=None
            Names of what is drawn; by default those of columns of a frame, else "x0",
            "x1" and so on.
        **kwargs : dict
            Passed to `predict` and `predict_proba`, as `groups`.

        Returns
        -------
        display : StatesDisplay
            With the attributes ``axes_`` and ``figure_``.

        Raises
        ------
        ValueError
            If values have another number of rows than X, or names than values columns.

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
        if values is None:
            numbers, own_names = estimator._emitted_columns()
            source = X if hasattr(X, "columns") else np.asarray(X, dtype=object)
            values = np.asarray(column_of(source, numbers), float)
            names = own_names if names is None else names
        if names is None:
            names = [str(name) for name in column_names(values)]
        values = np.asarray(values)
        if not len(names):
            names = [f"x{j}" for j in range(values.shape[1] if values.ndim > 1 else 1)]
        return cls(values, states, probabilities, list(names)).plot()

    def plot(self, *, axes: Any = None) -> Self:
        """Draw the series and, below, the probabilities of the states.

        Parameters
        ----------
        axes : array-like of matplotlib Axes, default=None
            One for each feature and one more; drawn on a new figure if None.

        Returns
        -------
        display : StatesDisplay
            With the attributes ``axes_`` and ``figure_``.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        ValueError
            If numbers of rows, of names or of axes do not match.
        """
        values, n_rows = np.asarray(self.values), len(self.states)
        values = values[:, None] if values.ndim == 1 else values
        if values.ndim != 2 or len(values) != n_rows:
            raise ValueError(
                f"values must have one row for each of the {n_rows} states, got shape "
                f"{values.shape}."
            )
        if len(self.names) != values.shape[1]:
            raise ValueError(
                f"names must be one for each of the {values.shape[1]} columns of "
                f"values, got {list(self.names)}."
            )
        count = values.shape[1] + 1
        pyplot = optional("matplotlib.pyplot", "plot", type(self).__name__)
        if axes is None:
            _, axes = pyplot.subplots(
                count, sharex=True, figsize=(10, 1.8 * count), layout="constrained"
            )
        self.axes_ = check_axes(axes, count, "features and probabilities")
        self.figure_ = self.axes_[0].figure
        n_states = self.probabilities.shape[1]
        colours = state_colours(self, n_states)
        time = np.arange(n_rows)
        for j, ax in enumerate(self.axes_[:-1]):
            ax.plot(time, values[:, j], color="0.8", lw=0.8, zorder=1)
            for state in range(n_states):
                rows = self.states == state
                colour = colours[state]
                ax.scatter(time[rows], values[rows, j], s=4, color=colour, zorder=2)
            ax.set_ylabel(self.names[j])
        self.axes_[-1].stackplot(
            time,
            self.probabilities.T,
            colors=colours,
            labels=[f"state {k}" for k in range(n_states)],
        )
        self.axes_[-1].set(xlabel="row", ylabel="probability", ylim=(0.0, 1.0))
        # Above the panel, which the probabilities fill.
        place = {
            "loc": "lower right",
            "bbox_to_anchor": (1.0, 1.0),
            "borderaxespad": 0.2,
            "handlelength": 1.0,
            "columnspacing": 1.0,
        }
        self.axes_[-1].legend(**place, fontsize="small", ncols=n_states)
        return self


@dataclass(eq=False, repr=False)
class ResidualsDisplay:
    """Pseudo-residuals: quantiles beside the normal ones, and autocorrelations.

    Where the model describes how its values are distributed, their quantiles lie on the
    diagonal; where it describes how they follow each other, their autocorrelations lie
    within the bounds.

    Parameters
    ----------
    residuals : ndarray of shape (n_samples, n_features)
        As ``VRHMM.pseudo_residuals`` returns them; NaN are left out.
    names : list of str
        Names of the features.
    sequences : ndarray of int of shape (n_samples,), default=None
        Number of each row's sequence; None is one.

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

    residuals: np.ndarray
    names: Sequence[str]
    sequences: np.ndarray | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: ArrayLike,
        *,
        kind: Literal["quantiles", "autocorrelation"] = "quantiles",
        ax: Any = None,
        groups: Given = None,
        lengths: Given = None,
    ) -> Self:
        """Draw the pseudo-residuals of X under a fitted model.

        Parameters
        ----------
        estimator : VRHMM
            Fitted.
        X : array-like of shape (n_samples, n_features)
            Rows as for its `predict`.
        kind : {"quantiles", "autocorrelation"}, default="quantiles"
            Quantiles against those of the normal distribution, or autocorrelations by
            lag within sequences.
        ax : matplotlib Axes, default=None
            Drawn on a new figure if None.
        groups : array-like of shape (n_samples,), default=None
            The id of each row's sequence; None is one sequence.
        lengths : array-like of int, default=None
            Lengths of the sequences, in place of `groups`.

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
        residuals = estimator.pseudo_residuals(X, groups=groups, lengths=lengths)
        _, names = estimator._emitted_columns()
        numbers = sequence_numbers(estimator, X, groups, lengths)
        return cls(residuals, names, numbers).plot(kind=kind, ax=ax)

    def plot(
        self,
        ax: Any = None,
        *,
        kind: Literal["quantiles", "autocorrelation"] = "quantiles",
        n_lags: int = 20,
    ) -> Self:
        """Draw quantiles, or autocorrelations.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Drawn on a new figure if None.
        kind : {"quantiles", "autocorrelation"}, default="quantiles"
            What is drawn.
        n_lags : int, default=20
            Lags of autocorrelations, over pairs of values that are both seen. Bounds
            are two standard errors of what has none.

        Returns
        -------
        display : ResidualsDisplay
            With the attributes ``ax_`` and ``figure_``.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        ValueError
            For another kind.
        """
        if kind not in ("quantiles", "autocorrelation"):
            raise ValueError(
                f"kind must be 'quantiles' or 'autocorrelation', got {kind!r}."
            )
        self.ax_, self.figure_ = one_axis(self, ax)
        columns = zip(self.names, np.transpose(self.residuals), strict=True)
        if kind == "quantiles":
            for name, column in columns:
                self._quantiles(name, column)
            self.ax_.axline((0.0, 0.0), slope=1.0, color="0.5", lw=1.0)
            self.ax_.set(xlabel="normal quantiles", ylabel="pseudo-residuals")
        else:
            lags, found = np.arange(1, n_lags + 1), []
            for name, column in columns:
                values, pairs = autocorrelations(column, self.sequences, n_lags)
                self.ax_.plot(lags, values, "o", ms=4, label=name)
                found.append(pairs)
            # Of the column that is seen least.
            error = 1.0 / np.sqrt(np.maximum(1, np.min(found, axis=0)))
            for bound in (-2.0, 0.0, 2.0):
                style = "--" if bound else "-"
                self.ax_.plot(lags, bound * error, color="0.5", lw=1.0, ls=style)
            self.ax_.set(xlabel="lag", ylabel="autocorrelation")
        for text in self.ax_.legend().get_texts():
            text.set_parse_math(False)  # a column's name is no formula
        return self

    def _quantiles(self, name, column):
        column = np.sort(column[np.isfinite(column)])
        expected = ndtri((np.arange(len(column)) + 0.5) / max(1, len(column)))
        self.ax_.plot(expected, column, ".", ms=3, label=name)


@dataclass(eq=False, repr=False)
class StationaryDisplay:
    """How often states are in the long run, along a covariate of their transitions.

    Use :meth:`from_estimator` to make one from a fitted model.

    Parameters
    ----------
    values : ndarray of shape (n_points,)
        Of the covariate: numbers, or levels of text.
    estimate : ndarray of shape (n_points, n_states)
        Probabilities of the states.
    lower, upper : ndarray of shape (n_points, n_states), default=None
        Ends of their confidence intervals.
    name : str, default="covariate"
        What the covariate is called.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
        What it is drawn on.
    figure_ : matplotlib.figure.Figure
        The figure.

    Examples
    --------
    >>> import numpy as np
    >>> from skvrem import StationaryDisplay
    >>> share = np.linspace(0.1, 0.9, 5)
    >>> display = StationaryDisplay(np.arange(5), np.column_stack([share, 1 - share]))
    >>> len(display.plot().ax_.get_lines())
    2
    """

    values: np.ndarray
    estimate: np.ndarray
    lower: np.ndarray | None = None
    upper: np.ndarray | None = None
    name: str = "covariate"

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: ArrayLike,
        column: str | int | None = None,
        *,
        n_points: int = 50,
        level: float = 0.95,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the long run of a fitted model along one of its covariates.

        Parameters
        ----------
        estimator : VRHMM
            Fitted, with `Covariates` as transitions.
        X : array-like of shape (n_samples, n_features)
            Rows that it was fitted to: the covariate goes through their range, and the
            others stay at their means, text at the most frequent level. Of a column
            of text it goes through the levels.
        column : str or int, default=None
            Which of ``transitions_.columns`` is varied; None is the first.
        n_points : int, default=50
            How many values of it.
        level : float, default=0.95
            Of the confidence intervals.
        ax : matplotlib Axes, default=None
            A new figure if None.
        **kwargs : dict
            Of X, as given to the fit: `groups`, `lengths`, `sample_weight`.

        Returns
        -------
        display : StationaryDisplay
            With the attributes ``ax_`` and ``figure_``.

        Raises
        ------
        ValueError
            If transitions do not depend on such a column.

        Examples
        --------
        >>> import numpy as np
        >>> from skvrem import StationaryDisplay, VRHMM
        >>> from skvrem.hmm import Covariates
        >>> rng = np.random.default_rng(0)
        >>> states = np.repeat([0, 1, 0, 1], 50)
        >>> X = rng.normal(size=(200, 2)) + np.outer(5 * states, [1, 0])
        >>> hmm = VRHMM(2, transitions=Covariates([1]), random_state=0).fit(X)
        >>> display = StationaryDisplay.from_estimator(hmm, X)
        >>> display.estimate.shape
        (50, 2)
        """
        check_is_fitted(estimator)
        columns = list(estimator.transitions_.columns)
        column = columns[0] if column is None and columns else column
        if column not in columns:
            raise ValueError(
                f"column must be one that transitions depend on, {columns}, got "
                f"{column!r}."
            )
        whole, place = hasattr(X, "columns"), columns.index(column)
        levels = estimator.transitions_.text_levels
        X_array = None if whole else np.asarray(X, dtype=object)

        def values_of(name):
            if isinstance(name, str):
                return np.asarray(X[name])
            return np.asarray(column_of(X if whole else X_array, name))

        others = [
            _typical(values_of(name), levels.get(j)) for j, name in enumerate(columns)
        ]
        if place in levels:
            along = levels[place]
        else:
            varied = values_of(column).astype(float)
            along = np.linspace(np.nanmin(varied), np.nanmax(varied), n_points)
        points = np.empty((len(along), len(columns)), dtype=object)
        points[:] = others
        points[:, place] = along
        points = points if levels else points.astype(float)
        band = estimator.stationary_proba(points, X=X, level=level, **kwargs)
        name = column
        if not isinstance(column, str):
            names = getattr(estimator, "feature_names_in_", None)
            name = f"x{column}" if names is None else str(names[column])
        made = cls(along, band.estimate, band.lower, band.upper, name)
        return made.plot(ax=ax)

    def plot(self, *, ax: Any = None) -> Self:
        """Draw a curve, with its band, for every state.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            A new figure if None.

        Returns
        -------
        display : StationaryDisplay
            With the attributes ``ax_`` and ``figure_``.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        self.ax_, self.figure_ = one_axis(self, ax)
        text = np.asarray(self.values).dtype.kind in "OU"
        places = np.arange(len(self.values)) if text else self.values
        for state, curve in enumerate(self.estimate.T):
            if text:
                ends = None
                if self.lower is not None and self.upper is not None:
                    ends = curve - self.lower[:, state], self.upper[:, state] - curve
                beside = places + 0.1 * (state - 0.5 * (self.estimate.shape[1] - 1))
                style = {"fmt": "o", "capsize": 3, "label": f"state {state}"}
                self.ax_.errorbar(beside, curve, ends, **style)
                continue
            (line,) = self.ax_.plot(places, curve, label=f"state {state}")
            if self.lower is not None and self.upper is not None:
                self.ax_.fill_between(
                    places,
                    self.lower[:, state],
                    self.upper[:, state],
                    color=line.get_color(),
                    alpha=0.2,
                    linewidth=0.0,
                )
        if text:
            # No level is a formula, whatever its characters.
            levels = [str(value) for value in self.values]
            self.ax_.set_xticks(places, levels, parse_math=False)
        self.ax_.set(xlabel=self.name, ylabel="probability in the long run")
        self.ax_.set_ylim(0.0, 1.0)
        self.ax_.legend()
        return self


def _typical(values, levels):
    """Return the mean of numbers, of text the most frequent level."""
    if levels is None:
        return np.nanmean(values.astype(float))
    counts = [np.count_nonzero(values.astype(object) == level) for level in levels]
    return levels[int(np.argmax(counts))]
