"""Columns of text that rows depend on: codes of their levels, and what is made of them.

Rows hold the codes, 0 for the first level, NaN where the text is missing. A transformer
is given the levels back; where there is none, each level but the first is an indicator
(treatment coding).
"""

import numpy as np

from skvrem.utils._columns import column_of

# A code and its level may not be compared with these.
_NOTHING = "NAType", "NaTType", "NoneType"


def find_levels(column, name):
    """Return the levels of a column, or None where it holds numbers.

    They are those that are seen, in the order of a categorical dtype, or sorted.

    Raises
    ------
    ValueError
        If it holds text and numbers.
    """
    order = getattr(column.dtype, "categories", None)
    values = np.asarray(column)
    if order is None and not _holds_text(values):
        return None
    values = values.astype(object)
    seen = {value for value in values if not _is_missing(value)}
    if order is not None:
        return np.array([level for level in order if level in seen], dtype=object)
    for value in seen:
        if not isinstance(value, str):
            raise ValueError(
                f"{name} holds text and {value!r}: make it all text, or all numbers."
            )
    return np.array(sorted(seen), dtype=object)


def joined_levels(parts):
    """Return the levels of a column whose parts have these.

    Parameters
    ----------
    parts : list of tuple (levels, categories)
        What `find_levels` returned, and the categories of a categorical dtype or None.
    """
    seen = {level for levels, _ in parts for level in levels}
    order = parts[0][1]
    if order is None or not seen <= {*order}:
        order = sorted(seen)
    return np.array([level for level in order if level in seen], dtype=object)


def _holds_text(values):
    if values.dtype.kind == "O":
        return any(isinstance(value, str) for value in values)
    if values.dtype.kind not in "UT":
        return False
    try:  # numbers beside text become text in a numpy array
        values.astype(float)
    except ValueError:
        return True
    return False


def _is_missing(value):
    if isinstance(value, float | np.floating):
        return bool(np.isnan(value))
    return type(value).__name__ in _NOTHING


def codes_of(column, levels, name):
    """Return the codes of a column, NaN where it is missing.

    Raises
    ------
    ValueError
        If it holds what is none of the levels.
    """
    values = np.asarray(column).astype(object)
    table = {level: float(code) for code, level in enumerate(levels)}
    codes = np.fromiter((table.get(value, np.nan) for value in values), float)
    for row in np.flatnonzero(np.isnan(codes)):
        if not _is_missing(values[row]):
            raise ValueError(
                f"{name} holds {values[row]!r} in row {row}, which is none of the "
                f"levels of the fit, {list(levels)}."
            )
    return codes


def as_numbers(Z, levels, names):
    """Return columns as numbers, of text the codes.

    Parameters
    ----------
    Z : array-like of shape (n_rows, n_columns)
    levels : dict of int to ndarray
        Of the columns that hold text, by number.
    names : list
        Of the columns.
    """
    if not levels:
        return np.asarray(Z, float)
    Z = Z if hasattr(Z, "iloc") else np.asarray(Z, dtype=object)
    columns = [
        codes_of(column_of(Z, j), levels[j], f"Column {name!r}")
        if j in levels
        else np.asarray(column_of(Z, j), float)
        for j, name in enumerate(names)
    ]
    return np.column_stack(columns)


def as_levels(codes, levels):
    """Return rows with the levels for their codes, where there are any."""
    if not levels:
        return codes
    rows = np.asarray(codes).astype(object)
    for j, own in levels.items():
        rows[:, j] = own[codes[:, j].astype(int)]
    return rows


def indicators(codes, levels):
    """Return rows with indicators of all levels but the first for codes."""
    if not levels:
        return codes
    columns = []
    for j, column in enumerate(np.asarray(codes, float).T):
        one = column[:, None]
        if j in levels:
            is_level = (one == np.arange(1.0, len(levels[j]))).astype(float)
            one = np.where(np.isnan(one), np.nan, is_level)
        columns.append(one)
    return np.hstack(columns)


def indicator_names(names, levels):
    """Return the names of what `indicators` returns."""
    return [
        own
        for j, name in enumerate(names)
        for own in (
            [f"{name}_{level}" for level in levels[j][1:]] if j in levels else [name]
        )
    ]
