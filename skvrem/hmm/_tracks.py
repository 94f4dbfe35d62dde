"""What rows are made of: steps and turns of animals' tracks, rows before."""

from datetime import UTC, date, timedelta
from numbers import Integral, Real

import numpy as np
from sklearn.utils import check_array

from skvrem.data._sequences import bounds_of_ids
from skvrem.utils._columns import check_one_each, naming_columns

EARTH_RADIUS_KM = 6371.0088
# So many rows are named where more are wrong.
NAMED = 5
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
        The id of each row's track, all rows of which follow each other; None is one
        track.
    coordinates : {"planar", "lonlat"}, default="planar"
        Steps have the unit of x and y; of "lonlat" they are great-circle distances in
        kilometres, and angles are those between the courses at the row.
    times : array-like of shape (n_samples,), default=None
        When the positions were taken, numbers or dates, with a time zone or without:
        fixes that were missed become rows, as by :func:`fill_gaps`.
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
        If positions are not two columns, latitudes lie beyond 90 degrees, groups are
        not one id a row or rows of a track come apart, or as by :func:`fill_gaps`.

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
    if coordinates == "lonlat":
        _check_latitudes(positions[:, 1])
    rows = missed = None
    if times is not None:
        times = _instants(times)
        check_one_each(times, "times must have one value", len(positions), "positions")
        rows, missed = fill_gaps(times, interval=interval, groups=groups)
        positions = np.where(missed[:, None], np.nan, positions[rows])
        groups = None if groups is None else np.asarray(groups)[rows]
    n_rows = len(positions)
    same = _goes_on(groups, n_rows)
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
        Numbers, or dates, that increase within a sequence. Dates with a time zone are
        instants, also where clocks change; messages name them in UTC.
    interval : number or timedelta, default=None
        Time from row to row, of dates a timedelta; None is the median of what lies
        between two rows. Times between rows are rounded to multiples of it.
    groups : array-like of shape (n_samples,), default=None
        The id of each row's sequence, all rows of which follow each other; None is one
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
        If two rows of a sequence are nearer to each other than half an interval, times
        are missing or infinite, an interval is not positive, or rows of a sequence come
        apart.

    Examples
    --------
    >>> import numpy as np
    >>> from skvrem.hmm import fill_gaps
    >>> times, X = [0.0, 1.0, 2.0, 5.0], np.array([[7.0], [8.0], [9.0], [5.0]])
    >>> rows, missed = fill_gaps(times)
    >>> np.where(missed[:, None], np.nan, X[rows]).ravel()
    array([ 7.,  8.,  9., nan, nan,  5.])
    """
    times = _instants(times)
    same = _goes_on(groups, len(times))
    between = np.diff(times)
    nothing = between.dtype.type(0)
    if interval is not None:
        interval = _checked(interval, times)
    elif same.any():
        interval = np.median(between[same])
    else:
        return np.arange(len(times)), np.zeros(len(times), bool)
    near = same & (between <= nothing)
    if not near.any():  # a median is positive, too
        steps = np.where(same, np.rint(between / interval), 1.0)
        near = steps < 1.0
    if near.any():
        row = int(near.argmax())
        least = f", by half an interval ({_in_words(interval)}) or more"
        raise ValueError(
            f"Times must increase{least if interval > nothing else ''}: those of rows "
            f"{row} and {row + 1} are {times[row]} and {times[row + 1]}."
        )
    repeats = np.append(steps, 1.0).astype(np.int64)
    rows = np.repeat(np.arange(len(times)), repeats)
    missed = np.append(False, rows[1:] == rows[:-1])
    return rows, missed


def _instants(times):
    """Return times as an array of numbers or of dates, those with a zone in UTC."""
    dtype = getattr(times, "dtype", None)
    if getattr(dtype, "tz", None) is not None:  # of pandas
        times = np.asarray(times, f"M8[{dtype.unit}]")
    times = np.asarray(times)
    if times.ndim == 1 and times.dtype.kind == "O":
        times = _dates(times)
    if times.ndim != 1 or len(times) < 1 or times.dtype.kind not in "iufM":
        raise ValueError(
            f"times must be numbers or dates, one a row, got shape {times.shape} of "
            f"{times.dtype}."
        )
    wrong = np.flatnonzero(~np.isfinite(times))
    if wrong.size:
        rows = ", ".join(map(str, wrong[:NAMED]))
        more = f" and {wrong.size - NAMED} more" if wrong.size > NAMED else ""
        raise ValueError(
            f"times must be finite, and not missing, unlike those of rows "
            f"{rows}{more}: the first is {times[wrong[0]]}. Leave such rows out."
        )
    # Differences of small or unsigned integers would wrap around.
    return times.astype(np.int64) if times.dtype.kind in "iu" else times


def _dates(values):
    """Return objects that are dates as numpy's; others as they are."""
    known = np.array([value is not None and value == value for value in values], bool)
    if not all(isinstance(value, date | np.datetime64) for value in values[known]):
        return values
    zoned = np.array([getattr(value, "tzinfo", None) is not None for value in values])
    if zoned.any() and not zoned[known].all():
        raise ValueError(
            "times mix dates with a time zone and without: those of rows "
            f"{zoned.argmax()} and {(known & ~zoned).argmax()}."
        )
    return np.array([_instant(value) for value in values])


def _instant(value):
    if getattr(value, "tzinfo", None) is not None:
        value = value.astimezone(UTC).replace(tzinfo=None)
    exact = hasattr(value, "to_datetime64")  # nanoseconds
    return value.to_datetime64() if exact else np.datetime64(value)


def _checked(interval, times):
    """Return an interval of the kind of differences of times."""
    dated = times.dtype.kind == "M"
    timed = isinstance(interval, timedelta | np.timedelta64)
    if timed != dated or not (timed or isinstance(interval, Real)):
        raise ValueError(
            f"interval must be a {'timedelta' if dated else 'number'}, as times are "
            f"{'dates' if dated else 'numbers'}, got {interval!r}."
        )
    interval = np.timedelta64(interval) if dated else float(interval)
    if not (np.isfinite(interval) and interval > type(interval)(0)):
        raise ValueError(f"interval must be positive and finite, got {interval}.")
    return interval


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
        The id of each row's sequence, all rows of which follow each other; None is one
        sequence.

    Returns
    -------
    rows : ndarray of shape (n_samples, n_columns * (1 + n_lags))
        The columns of X, those of every lag behind them; NaN where a sequence has not
        begun. Rows with a missing lag say nothing of the states.

    Raises
    ------
    ValueError
        If lags are no positive integers, groups are not one id a row, or rows of a
        sequence come apart.

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
    bounds = _bounds(groups, len(X))
    begins = np.repeat(bounds[:-1], np.diff(bounds))
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


def _check_latitudes(latitudes):
    beyond = np.abs(latitudes) > 90.0
    if beyond.any():
        row = int(beyond.argmax())
        raise ValueError(
            "Latitudes lie between -90 and 90 degrees: that of row "
            f"{row} is {latitudes[row]:g}. With coordinates='lonlat' the longitude "
            "comes first, then the latitude."
        )


def _bounds(groups, n_rows):
    """Return where sequences begin, and the number of rows."""
    return np.array([0, n_rows]) if groups is None else bounds_of_ids(groups, n_rows)


def _goes_on(groups, n_rows):
    """Return whether the next row is of the same sequence, (n_rows - 1,)."""
    same = np.ones(n_rows - 1, bool)
    same[_bounds(groups, n_rows)[1:-1] - 1] = False
    return same


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
