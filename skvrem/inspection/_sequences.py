"""Hidden Markov models: tracks by state, and densities over the values they explain."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from skvrem.inspection._axes import check_axes, one_axis, state_colours
from skvrem.inspection._comparison import sequence_numbers
from skvrem.utils._base import optional
from skvrem.utils._columns import Given

# Of a histogram of integers that are too many for a bar each.
MOST_BINS = 200


@dataclass(eq=False, repr=False)
class TrackDisplay:
    """Where something was, coloured by the state that it was in.

    Parameters
    ----------
    track : ndarray of shape (n_samples, 1) or (n_samples, 2)
        A series, or coordinates; rows with NaN are left out.
    states : ndarray of int of shape (n_samples,)
        State of each row.
    sequences : ndarray of int of shape (n_samples,), default=None
        Number of each row's sequence; None is one. Lines join rows of one.
    n_states : int, default=None
        How many there are; None is as many as `states` has.
    names : list of str, default=None
        Names of the coordinates.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
    figure_ : matplotlib.figure.Figure

    Examples
    --------
    >>> import numpy as np
    >>> from skvrem import TrackDisplay
    >>> track = np.random.default_rng(0).normal(size=(40, 2)).cumsum(axis=0)
    >>> TrackDisplay(track, np.repeat([0, 1], 20)).plot().ax_.get_aspect()
    1.0
    """

    track: np.ndarray
    states: np.ndarray
    sequences: np.ndarray | None = None
    n_states: int | None = None
    names: Sequence[str] | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: ArrayLike,
        track: ArrayLike,
        *,
        groups: Given = None,
        lengths: Given = None,
        ax: Any = None,
    ) -> Self:
        """Draw a track by the states that a fitted model gives to rows of X.

        Parameters
        ----------
        estimator : VRHMM
            Fitted.
        X : array-like of shape (n_samples, n_features)
            Rows as for its `predict`.
        track : array-like of shape (n_samples,), (n_samples, 1) or (n_samples, 2)
            Where each row was: one number, or two coordinates.
        groups : array-like of shape (n_samples,), default=None
            The id of each row's sequence; None is one sequence.
        lengths : array-like of int, default=None
            Lengths of the sequences, in place of `groups`.
        ax : matplotlib Axes, default=None
            A new figure if None.

        Returns
        -------
        display : TrackDisplay
            With the attributes ``ax_`` and ``figure_``.

        Raises
        ------
        ValueError
            If the track has another number of rows than X, or more than two columns.

        Examples
        --------
        >>> import numpy as np
        >>> from skvrem import TrackDisplay, VRHMM
        >>> rng = np.random.default_rng(0)
        >>> speed = np.repeat([1.0, 9.0, 1.0], 50) + rng.normal(size=150)
        >>> hmm = VRHMM(2, random_state=0).fit(speed[:, None])
        >>> display = TrackDisplay.from_estimator(hmm, speed[:, None], speed.cumsum())
        >>> display.ax_.get_xlabel()
        'row'
        """
        check_is_fitted(estimator)
        names = list(getattr(track, "columns", ())) or None
        states = estimator.predict(X, groups=groups, lengths=lengths)
        track = np.asarray(track, float)
        track = track[:, None] if track.ndim == 1 else track
        if track.ndim != 2 or len(track) != len(states) or track.shape[1] not in (1, 2):
            raise ValueError(
                "track must have one number or two coordinates for each of the "
                f"{len(states)} rows of X, got shape {track.shape}."
            )
        numbers = sequence_numbers(estimator, X, groups, lengths)
        n_states = len(estimator.startprob_)
        return cls(track, states, numbers, n_states, names).plot(ax=ax)

    def plot(self, *, ax: Any = None) -> Self:
        """Draw the track.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            A new figure if None.

        Returns
        -------
        display : TrackDisplay
            With the attributes ``ax_`` and ``figure_``.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        flat = self.track.shape[1] == 1
        self.ax_, self.figure_ = one_axis(self, ax)
        n_states = self.n_states or int(self.states.max()) + 1
        colours = state_colours(self, n_states)
        x = np.arange(len(self.track)) if flat else self.track[:, 0]
        y = self.track[:, -1]
        numbers = np.zeros(len(x), int) if self.sequences is None else self.sequences
        for number in np.unique(numbers):
            own = numbers == number
            self.ax_.plot(x[own], y[own], color="0.8", lw=0.8, zorder=1)
        for state in range(n_states):
            own = self.states == state
            label = f"state {state}"
            self.ax_.scatter(
                x[own], y[own], s=6, color=colours[state], label=label, zorder=2
            )
        names = self.names or (["value"] if flat else ["x", "y"])
        self.ax_.set(xlabel="row" if flat else names[0], ylabel=names[-1])
        if not flat:
            self.ax_.set_aspect("equal", adjustable="datalim")
        self.ax_.legend(fontsize="small")
        return self


@dataclass(eq=False, repr=False)
class EmissionsDisplay:
    """Histograms of the values, and over them what each state says of them.

    A state's curve is its density times its share of the rows; the dashed line is their
    sum, which has to follow the histogram where the model is right.

    Parameters
    ----------
    values : list of ndarray
        Observed values of each column, without those that are missing.
    points : list of ndarray of shape (n_points,)
        Where the densities of a column are evaluated. Probabilities have bars where
        these are 0, 1, 2 and so on; of other integers, some of many, the histogram is
        that of a density, which is the mean probability of an integer.
    densities : list of ndarray of shape (n_points, n_states)
        Densities there, or probabilities, times the states' shares.
    discrete : list of bool
        Whether a column has probabilities.
    names : list of str
        Names of the columns.

    Attributes
    ----------
    axes_ : ndarray of matplotlib.axes.Axes
        One for each column.
    figure_ : matplotlib.figure.Figure

    Examples
    --------
    >>> import numpy as np
    >>> from skvrem import EmissionsDisplay
    >>> points = np.linspace(-3, 3, 50)
    >>> density = np.exp(-0.5 * points**2) / np.sqrt(2 * np.pi)
    >>> X = np.random.default_rng(0).normal(size=100)
    >>> display = EmissionsDisplay([X], [points], [density[:, None]], [False], ["x"])
    >>> len(display.plot().axes_)
    1
    """

    values: Sequence[np.ndarray]
    points: Sequence[np.ndarray]
    densities: Sequence[np.ndarray]
    discrete: Sequence[bool]
    names: Sequence[str]

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: ArrayLike,
        *,
        groups: Given = None,
        lengths: Given = None,
        axes: Any = None,
    ) -> Self:
        """Draw the emissions of a fitted model over the values of rows.

        Parameters
        ----------
        estimator : VRHMM
            Fitted. Any family of emissions; of one that depends on columns of X, the
            density is that of the rows on average.
        X : array-like of shape (n_samples, n_features)
            Rows as for its `predict`.
        groups : array-like of shape (n_samples,), default=None
            The id of each row's sequence; None is one sequence.
        lengths : array-like of int, default=None
            Lengths of the sequences, in place of `groups`.
        axes : array-like of matplotlib Axes, default=None
            One for each column that states emit; a new figure if None.

        Returns
        -------
        display : EmissionsDisplay
            With the attributes ``axes_`` and ``figure_``.

        Examples
        --------
        >>> import numpy as np
        >>> from skvrem import EmissionsDisplay, VRHMM
        >>> X = np.repeat([[0.0], [5.0], [0.0]], 50, axis=0)
        >>> X += np.random.default_rng(0).normal(size=X.shape)
        >>> hmm = VRHMM(2, random_state=0).fit(X)
        >>> display = EmissionsDisplay.from_estimator(hmm, X)
        >>> whole = display.densities[0].sum(axis=1)
        >>> float(np.trapezoid(whole, display.points[0]).round(1))
        1.0
        """
        check_is_fitted(estimator)
        curves = estimator._emission_curves(X, groups, lengths)
        return cls(*curves).plot(axes=axes)

    def plot(self, *, axes: Any = None) -> Self:
        """Draw histograms and densities.

        Parameters
        ----------
        axes : array-like of matplotlib Axes, default=None
            One for each column; a new figure if None.

        Returns
        -------
        display : EmissionsDisplay
            With the attributes ``axes_`` and ``figure_``.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        ValueError
            If there are more or fewer axes than columns.
        """
        count = len(self.values)
        if axes is None:
            pyplot = optional("matplotlib.pyplot", "plot", type(self).__name__)
            size = 4.5 * count, 3.5
            _, axes = pyplot.subplots(1, count, figsize=size, layout="constrained")
        self.axes_ = check_axes(axes, count, "columns")
        self.figure_ = self.axes_[0].figure
        each = zip(
            self.axes_,
            self.values,
            self.points,
            self.densities,
            self.discrete,
            self.names,
            strict=True,
        )
        for ax, values, points, density, discrete, name in each:
            bars = discrete and np.array_equal(points, np.arange(len(points)))
            style = {"marker": "o", "ms": 3} if bars else {}
            if bars:
                share = np.bincount(values.astype(int), minlength=len(points))
                heights = share[: len(points)] / max(1, len(values))
                ax.bar(points, heights, width=0.9, color="0.85")
            else:
                bins = _integer_edges(values) if discrete else "auto"
                ax.hist(values, bins=bins, density=True, color="0.85")
            colours = state_colours(self, density.shape[1])
            for state, curve in enumerate(density.T):
                label = f"state {state}"
                ax.plot(points, curve, color=colours[state], label=label, **style)
            ax.plot(points, density.sum(axis=1), "k--", lw=1.0, label="all")
            ax.set(xlabel=name, ylabel="probability" if discrete else "density")
        self.axes_[-1].legend(fontsize="small")
        return self


def _integer_edges(values):
    """Return edges of bins that lie between integers, the same number in each bin."""
    n_bins = min(np.sqrt(len(values)), MOST_BINS)
    width = max(1.0, np.ceil(np.ptp(values) / n_bins))
    first = values.min() - 0.5
    return first + width * np.arange(np.ptp(values) // width + 2.0)
