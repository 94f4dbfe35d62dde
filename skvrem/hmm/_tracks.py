"""What rows are made of: steps and turns of animals' tracks, rows before."""

from numbers import Integral

import numpy as np
from sklearn.utils import check_array

from skvrem.utils._columns import check_one_each, naming_columns

EARTH_RADIUS_KM = 6371.0088
# Of numpy's times, the longest first.
UNITS = {
    "D": "day",
    "h": "hour",
    "m": "minute",
    "s": "second",
    "ms": "millisecond",
    "us": "microsecond",
    "ns": "nanosecond",
}


def prepare_tracks(
    positions, *, groups=None, coordinates="planar", times=None, interval=None
):
    r"""Return step length and turning angle of every row of some tracks.

    The step of a row goes to the next row of its track, and the angle of a row is the
    turn from the step to it to the step from it: NaN at the ends of a track, beside
    missing positions, and the angle where the animal did not move.

    Parameters
    ----------
    positions : array-like of shape (n_samples, 2)
        x and y, or longitude and latitude in degrees. NaN is missing.
    groups : array-like of shape (n_samples,), default=None
        The id of each row's track, rows of which follow each other; None is one track.
    coordinates : {"planar", "lonlat"}, default="planar"
        Steps have the unit of x and y; of "lonlat" they are great-circle distances in
        kilometres, and angles are those between the courses at the row.
    times : array-like of shape (n_samples,), default=None
        When the positions were taken: fixes that were missed become rows, as by
        :func:`fill_gaps`.
    interval : number or timedelta, default=None
        The usual time between two of them; None is the median.

    Returns
    -------
    steps : ndarray of shape (n_samples, 2)
        Step lengths, and turning angles in radians in :math:`(-\pi, \pi]`, to the left
        positive.
    rows, missed : ndarray
        With `times` only, for (n_filled,) rows of steps: see :func:`fill_gaps`.

    Raises
    ------
    ValueError
        If positions are not two columns, or groups not one id a row.

    Examples
    --------
    >>> import numpy as np
    >>> from skvrem.hmm import prepare_tracks
    >>> prepare_tracks([[0, 0], [3, 4], [3, 5], [2, 5]]).round(2)
    array([[5.  ,  nan],
           [1.  , 0.64],
           [1.  , 1.57],
           [ nan,  nan]])
    """
    positions = _numbers(positions, "positions")
    if positions.shape[1] != 2:
        raise ValueError(
            f"positions must have 2 columns, got {positions.shape[1]}: x and y, or "
            "longitude and latitude."
        )
    if coordinates not in ("planar", "lonlat"):
        raise ValueError(
            f"coordinates must be 'planar' or 'lonlat', got {coordinates!r}."
        )
    rows = missed = None
    if times is not None:
        rows, missed = fill_gaps(times, interval=interval, groups=groups)
        positions = np.where(missed[:, None], np.nan, positions[rows])
        groups = None if groups is None else np.asarray(groups)[rows]
    n_rows = len(positions)
    same = np.ones(max(n_rows - 1, 0), bool)
    if groups is not None:
        groups = _check_groups(groups, n_rows)
        same = groups[1:] == groups[:-1]
    course_of = _planar if coordinates == "planar" else _great_circle
    length, course, arrival = course_of(positions[:-1], positions[1:])
    steps = np.full((n_rows, 2), np.nan)
    steps[:-1, 0] = np.where(same, length, np.nan)
    turn = np.angle(np.exp(1j * (course[1:] - arrival[:-1])))
    moved = (length[1:] > 0.0) & (length[:-1] > 0.0) & same[1:] & same[:-1]
    steps[1:-1, 1] = np.where(moved, np.where(turn <= -np.pi, np.pi, turn), np.nan)
    return steps if rows is None else (steps, rows, missed)


def fill_gaps(times, *, interval=None, groups=None):
    """Return which rows to take so that those of a sequence are equally far in time.

    A hidden Markov model takes a step of time from row to row. Where rows are left out,
    as many are to be put in, with NaN in the place of what was not observed.

    Parameters
    ----------
    times : array-like of shape (n_samples,)
        Numbers, or dates, that increase within a sequence.
    interval : number or timedelta, default=None
        Time from row to row; None is the median of what lies between two rows. Times
        between rows are rounded to multiples of it.
    groups : array-like of shape (n_samples,), default=None
        The id of each row's sequence, rows of which follow each other; None is one
        sequence.

    Returns
    -------
    rows : ndarray of int of shape (n_filled,)
        Numbers of the rows; where one was missed, of the last row before it.
    missed : ndarray of bool of shape (n_filled,)
        Which rows are put in.

    Raises
    ------
    ValueError
        If two rows of a sequence are nearer to each other than half an interval.

    Examples
    --------
    >>> import numpy as np
    >>> from skvrem.hmm import fill_gaps
    >>> times, X = [0.0, 1.0, 2.0, 5.0], np.array([[7.0], [8.0], [9.0], [5.0]])
    >>> rows, missed = fill_gaps(times)
    >>> np.where(missed[:, None], np.nan, X[rows]).ravel()
    array([ 7.,  8.,  9., nan, nan,  5.])
    """
    times = np.asarray(times)
    if times.ndim != 1 or len(times) < 1 or times.dtype.kind not in "iufM":
        raise ValueError(
            f"times must be numbers or dates, one a row, got shape {times.shape} of "
            f"{times.dtype}."
        )
    same = np.ones(len(times) - 1, bool)
    if groups is not None:
        groups = _check_groups(groups, len(times))
        same = groups[1:] == groups[:-1]
    between = np.diff(times)
    if interval is None:
        if not same.any():
            return np.arange(len(times)), np.zeros(len(times), bool)
        interval = np.median(between[same])
    elif times.dtype.kind == "M":
        interval = np.timedelta64(interval)
    steps = np.where(same, np.rint(between / interval), 1.0)
    if not (steps >= 1.0).all():
        row = int(np.flatnonzero(~(steps >= 1.0))[0])
        raise ValueError(
            f"Times must increase, by half an interval ({_in_words(interval)}) or "
            f"more: those of rows {row} and {row + 1} are {times[row]} and "
            f"{times[row + 1]}."
        )
    repeats = np.append(steps, 1.0).astype(np.int64)
    rows = np.repeat(np.arange(len(times)), repeats)
    missed = np.append(False, rows[1:] == rows[:-1])
    return rows, missed


def _in_words(interval):
    """Return a time as people say it; numbers, months and years as they are."""
    dated = isinstance(interval, np.timedelta64)
    if not dated or np.datetime_data(interval.dtype)[0] in ("Y", "M"):
        return str(interval)
    lengths = [interval / np.timedelta64(1, unit) for unit in UNITS]
    length, name = next(
        (pair for pair in zip(lengths, UNITS.values(), strict=True) if pair[0] >= 1.0),
        (lengths[-1], "nanosecond"),
    )
    return f"{length:.4g} {name}{'' if length == 1.0 else 's'}"


def add_lags(X, lags=1, *, groups=None):
    """Return rows with the values of the rows before them, for autoregressive models.

    The new columns are regressors of a :class:`~skvrem.hmm.Regression`.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_columns)
        Values of sequences, one after another; NaN is missing.
    lags : int or list of int, default=1
        How many rows before: that many, or these.
    groups : array-like of shape (n_samples,), default=None
        The id of each row's sequence, rows of which follow each other; None is one
        sequence.

    Returns
    -------
    rows : ndarray of shape (n_samples, n_columns * (1 + n_lags))
        The columns of X, those of every lag behind them; NaN where a sequence has not
        begun. Rows with a missing lag say nothing of the states.

    Raises
    ------
    ValueError
        If lags are no positive integers, or groups not one id a row.

    Examples
    --------
    >>> from skvrem.hmm import add_lags
    >>> add_lags([[1.0], [2.0], [3.0], [9.0]], 2, groups=[0, 0, 0, 1])
    array([[ 1., nan, nan],
           [ 2.,  1., nan],
           [ 3.,  2.,  1.],
           [ 9., nan, nan]])

    >>> import numpy as np
    >>> from skvrem.hmm import VRHMM, Regression
    >>> rng = np.random.default_rng(0)
    >>> x, slopes = np.zeros(3000), np.repeat([0.9, -0.5, 0.9], 1000)
    >>> for t in range(1, 3000):
    ...     x[t] = slopes[t] * x[t - 1] + rng.normal()
    >>> rows = add_lags(x[:, None])
    >>> hmm = VRHMM(2, emission=Regression(covariates=[1]), random_state=0).fit(rows)
    >>> np.sort(hmm.emission_.coef_.ravel()).round(1)
    array([-0.5,  0.9])
    """
    X = _numbers(X, "X")
    each = np.atleast_1d(range(1, lags + 1) if isinstance(lags, Integral) else lags)
    whole = each.ndim == 1 and each.size and each.dtype.kind in "iu"
    if not whole or each.min() < 1:
        raise ValueError(f"lags must be positive integers, got {lags!r}.")
    begins = np.zeros(len(X), np.int64)
    if groups is not None:
        groups = _check_groups(groups, len(X))
        changes = np.append(0, np.flatnonzero(groups[1:] != groups[:-1]) + 1)
        sizes = np.diff(np.append(changes, len(X)))
        begins = np.repeat(changes, sizes)
    at = np.arange(len(X))
    columns = [X]
    for lag in each:
        has = at - lag >= begins
        columns.append(np.where(has[:, None], X[np.maximum(at - lag, 0)], np.nan))
    return np.hstack(columns)


def _numbers(X, name):
    with naming_columns(X, f"{name} must be numbers", "Take the columns that are."):
        options = {"ensure_all_finite": "allow-nan", "input_name": name}
        return check_array(X, dtype=np.float64, **options)


def _check_groups(groups, n_rows):
    groups = np.asarray(groups)
    check_one_each(groups, "groups must have one id", n_rows, "rows")
    return groups


def _planar(here, there):
    """Length, and course at both ends, counted against the clock."""
    dx, dy = (there - here).T
    course = np.arctan2(dy, dx)
    return np.hypot(dx, dy), course, course


def _great_circle(here, there):
    """The same on the sphere; the course changes on the way."""
    (a, b), (c, d) = np.radians(here).T, np.radians(there).T
    half = np.sin((d - b) / 2) ** 2 + np.cos(b) * np.cos(d) * np.sin((c - a) / 2) ** 2
    length = EARTH_RADIUS_KM * 2.0 * np.arcsin(np.sqrt(np.clip(half, 0.0, 1.0)))
    return length, _bearing(here, there), _bearing(there, here) + np.pi


def _bearing(here, there):
    """Direction of the great circle to `there`, against the clock from the east."""
    (a, b), (c, d) = np.radians(here).T, np.radians(there).T
    east = np.sin(c - a) * np.cos(d)
    north = np.cos(b) * np.sin(d) - np.sin(b) * np.cos(d) * np.cos(c - a)
    return np.arctan2(north, east)
