"""Step lengths and turning angles of animals' tracks."""

import numpy as np
from sklearn.utils import check_array

EARTH_RADIUS_KM = 6371.0088


def prepare_tracks(positions, *, groups=None, coordinates="planar"):
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

    Returns
    -------
    steps : ndarray of shape (n_samples, 2)
        Step lengths, and turning angles in radians in :math:`(-\pi, \pi]`, to the left
        positive.

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
    options = {"ensure_all_finite": "allow-nan", "input_name": "positions"}
    positions = check_array(positions, dtype=np.float64, **options)
    if positions.shape[1] != 2:
        raise ValueError(
            f"positions must have 2 columns, got {positions.shape[1]}: x and y, or "
            "longitude and latitude."
        )
    if coordinates not in ("planar", "lonlat"):
        raise ValueError(
            f"coordinates must be 'planar' or 'lonlat', got {coordinates!r}."
        )
    n_rows = len(positions)
    same = np.ones(max(n_rows - 1, 0), bool)
    if groups is not None:
        groups = np.asarray(groups)
        if groups.shape != (n_rows,):
            raise ValueError(
                f"groups must have one id for each of the {n_rows} rows, got shape "
                f"{groups.shape}."
            )
        same = groups[1:] == groups[:-1]
    course_of = _planar if coordinates == "planar" else _great_circle
    length, course, arrival = course_of(positions[:-1], positions[1:])
    steps = np.full((n_rows, 2), np.nan)
    steps[:-1, 0] = np.where(same, length, np.nan)
    turn = np.angle(np.exp(1j * (course[1:] - arrival[:-1])))
    moved = (length[1:] > 0.0) & (length[:-1] > 0.0) & same[1:] & same[:-1]
    steps[1:-1, 1] = np.where(moved, np.where(turn <= -np.pi, np.pi, turn), np.nan)
    return steps


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
    return length, _course(here, there), _course(there, here) + np.pi


def _course(here, there):
    """Direction of the great circle to `there`, against the clock from the east."""
    (a, b), (c, d) = np.radians(here).T, np.radians(there).T
    east = np.sin(c - a) * np.cos(d)
    north = np.cos(b) * np.sin(d) - np.sin(b) * np.cos(d) * np.cos(c - a)
    return np.arctan2(north, east)
