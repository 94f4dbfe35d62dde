"""Columns of X: named by parameters, without numbers, with values that come again."""

import math
from contextlib import contextmanager
from datetime import date
from numbers import Integral

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import sparray, spmatrix

#: Rows as users pass them, frames among them.
MatrixLike = ArrayLike | sparray | spmatrix
#: What may be given for rows or parameters, or not.
Given = ArrayLike | None
# All values of codes are atoms, as of classes and answers: few, of many rows each. Else
# two at most, so many times as frequent as any other, as gains and losses that are
# mostly none; fewer times where a scale ends, as at zeros of rainfall or of income, and
# where measurements are cut off, and where the same rows have such a value of another
# column, so many of those that have either: one city's.
MOST_CODES, ROWS_A_CODE, N_FREQUENT, TIMES, FEWER_TIMES = 10, 10, 2, 10, 3
TOGETHER, MOST_TOGETHER = 0.8, 1000  # of more, all pairs would take memory
# Share of distinct values from which on a column is as if it were not rounded.
DISTINCT = 0.75
BEYOND_FLOATS = "too large for floating point"


def column_names(X):
    """Return the names of the columns of a frame, a list that is empty for others."""
    # `columns` of a table of pyarrow are its columns themselves.
    return list(getattr(X, "column_names", getattr(X, "columns", ())))


def column_of(X, at):
    """Return a column of a frame or an array by its number, or some by a list."""
    if hasattr(X, "iloc"):
        return X.iloc[:, at]
    if hasattr(X, "column_names"):  # a table of pyarrow
        return X.select(at) if np.iterable(at) else X.column(at)
    return X[:, at]


def check_column(estimator, name):
    """Check that a parameter is None, or can be the name or number of a column.

    Raises
    ------
    ValueError
        If it is something else, as ids themselves are.
    """
    value = getattr(estimator, name)
    is_number = isinstance(value, Integral) and not isinstance(value, bool | np.bool_)
    if not (value is None or isinstance(value, str) or is_number):
        raise ValueError(
            f"{name} of the constructor is the name or number of a column of X; ids "
            f"themselves go to fit(X, {name}=...), got {value!r}."
        )


def check_one_each(values, what, n, units):
    """Check that there is one value for each of n units.

    Parameters
    ----------
    values : ndarray
    what : str
        Names them: "groups must have one id".
    n : int
    units : str
        What they belong to: "rows".

    Raises
    ------
    ValueError
        If their shape is another.
    """
    if values.shape != (n,):
        raise ValueError(
            f"{what} for each of the {n} {units}, got shape {values.shape}."
        )


def column_number(column, use, names, n_columns):
    """Return the number of a column.

    Parameters
    ----------
    column : str or int
    use : str
        What the column is for, named in messages.
    names : list of str
        Of the columns of X; empty where it is no frame.
    n_columns : int

    Raises
    ------
    ValueError
        If there is no such column.
    """
    if isinstance(column, str):
        if column not in names:
            raise ValueError(
                f"{use}={column!r} names a column of X: X "
                f"{f'has the columns {names}' if names else 'is no data frame'}. Give "
                "a frame with such a column, or the number of a column."
            )
        return names.index(column)
    if not 0 <= column < n_columns:
        raise ValueError(
            f"{use}={column} is the number of a column of X, which has {n_columns} "
            f"columns, 0 to {n_columns - 1}."
        )
    return int(column)


@contextmanager
def naming_columns(X, needs, advice, numbers=None):
    """Say which columns of X hold something else than numbers, where some do.

    Or which element is none, of what has one dimension. Integers that no floating
    point number is near are none either.

    Parameters
    ----------
    X : array-like
        As the caller passed it.
    needs : str
        Who takes numbers, as a clause.
    advice : str
        What to do with such columns.
    numbers : sequence of int, default=None
        Of the columns, where X is a part of what the caller passed.

    Raises
    ------
    ValueError, TypeError
        In place of what the conversion of such columns raises.
    """
    if hasattr(X, "collect_schema") and hasattr(X, "collect"):
        raise TypeError(f"{needs}, in memory: pass X.collect().")
    try:
        # Dates would be converted to nanoseconds.
        if holds_times(X):
            raise ValueError("dates")
        yield
    except (TypeError, ValueError, OverflowError) as error:
        wrong = _not_numbers(X, numbers)
        if wrong:
            raise ValueError(f"{needs}, but {', '.join(wrong)}. {advice}") from None
        if isinstance(X, str | bytes):
            raise ValueError(f"{needs}, in an array, but got the text {X!r}.") from None
        if hasattr(X, "columns") and not len(X.columns):
            raise ValueError(f"{needs}, but X has no columns.") from None
        if "float() argument" in str(error):
            raise TypeError(f"{needs}: {error}.") from None
        if isinstance(error, OverflowError):
            raise ValueError(f"{needs}, but got one {BEYOND_FLOATS}.") from None
        raise


def _not_numbers(X, numbers):
    """Describe the columns of a container that hold no numbers."""
    if isinstance(X, list | tuple):
        try:
            X = np.array(X, dtype=object)
        except ValueError:  # ragged
            return []
    if getattr(X, "ndim", 0) == 1:
        found = _no_number(np.asarray(X))
        return [] if found is None else [f"element {found[0]} is {found[1]}"]
    if hasattr(X, "iloc") and X.ndim == 2:
        columns = [np.asarray(X.iloc[:, j]) for j in range(X.shape[1])]
    elif hasattr(X, "get_columns"):  # polars
        columns = [np.asarray(column) for column in X.get_columns()]
    elif getattr(X, "ndim", 0) == 2 and not hasattr(X, "tocsr"):
        columns = list(np.asarray(X).T)
    else:
        return []
    names, wrong = getattr(X, "columns", None), []
    for j, column in enumerate(columns):
        name = numbers[j] if names is None and numbers is not None else j
        name = f"column {name if names is None else repr(names[j])}"
        if column.dtype.kind in "mM":
            wrong.append(f"{name} holds dates or times")
            continue
        found = _no_number(column)
        if found is not None:
            wrong.append(f"{name} holds {found[1]}")
    return wrong


def _no_number(column):
    """Return place and description of the first element that is no number, or None."""
    if column.dtype.kind not in "OUSmM":
        return None
    for place, value in enumerate(column):
        if isinstance(value, date | np.datetime64 | np.timedelta64):
            return place, _shown(value)
        try:
            float(value)
        except OverflowError:
            about = ""
            if isinstance(value, Integral):
                about = f"of about {'-' * (value < 0)}1e{math.log10(abs(value)):.0f}, "
            return place, f"a number {about}{BEYOND_FLOATS}"
        except (TypeError, ValueError):
            if isinstance(value, str):
                return place, _shown(value)
    return None


def _shown(value):
    return repr(value.item() if isinstance(value, np.generic) else value)


def holds_times(X):
    """Whether a frame, a column or an array has a type of dates or durations."""
    dtypes = getattr(X, "dtypes", [getattr(X, "dtype", None)])
    # One column of a frame has one.
    return any(map(_is_of_times, dtypes if np.iterable(dtypes) else [dtypes]))


def _is_of_times(dtype):
    """Whether a type, of numpy, pandas or polars, is that of dates or durations."""
    temporal = getattr(dtype, "is_temporal", None)
    return getattr(dtype, "kind", None) in ("m", "M") or bool(temporal and temporal())


def native(X):
    """Return numbers in a type of the machine's own that kernels and scipy can take."""
    if not X.dtype.isnative:
        X = X.astype(X.dtype.newbyteorder("="))
    if X.dtype.kind == "f" and X.dtype not in (np.float32, np.float64):
        X = X.astype(np.float64)
    return X


def values_of(rows):
    """Return atoms, values that come again for a reason, and columns of any that do.

    A component all of whose rows have one is no wider than `reg_covar` along that
    column, and no worse for it, as the next rows will have it too; unlike one on a
    value that rows share by chance, or as they were rounded.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_features)
        NaN is missing.

    Returns
    -------
    atoms : ndarray of shape (MOST_CODES, n_features)
        NaN where a column has fewer.
    again : ndarray of shape (n_features,), bool
        Columns of rows of which a quarter have a value that others have, too.
    """
    atoms, again = np.full((MOST_CODES, rows.shape[1]), np.nan), []
    likely = []
    for j, (column, found) in enumerate(zip(rows.T, atoms.T, strict=True)):
        known = column[~np.isnan(column)]
        values, counts = np.unique(known, return_counts=True)
        again.append(len(values) < DISTINCT * len(known))
        if not are_codes(values, len(rows)):
            often = frequent(counts, FEWER_TIMES) & (counts >= ROWS_A_CODE)
            likely += [(j, value) for value in values[often]]
            values = values[_stand_out(counts)]
        else:
            likely += [(j, value) for value in values]
        found[: len(values)] = values
    for j, value in _together(rows, likely[:MOST_TOGETHER]):
        if not (atoms[:, j] == value).any():
            atoms[np.isnan(atoms[:, j]).argmax(), j] = value
    return atoms, np.array(again)


def _stand_out(counts):
    """Return which values of a column, in their order, are far more frequent, bool."""
    ends = np.zeros(len(counts), bool)
    ends[[0, -1]] = True
    ends &= counts >= FEWER_TIMES * counts[~ends].max(initial=1)
    return frequent(counts, TIMES) | ends & (counts >= ROWS_A_CODE)


def are_codes(values, n_rows):
    """Whether the distinct values of so many rows are few, of many rows each."""
    return len(values) <= min(MOST_CODES, n_rows // ROWS_A_CODE)


def frequent(counts, times):
    """Return which two at most are so many times as frequent as any other, bool."""
    most = np.zeros(len(counts), bool)
    most[np.argsort(counts)[::-1][:N_FREQUENT]] = True
    return most & (counts >= times * counts[~most].max(initial=1))


def _together(rows, likely):
    """Return those of pairs (column, value) that the same rows have as another one."""
    if not likely:
        return []
    columns, values = map(np.array, zip(*likely, strict=True))
    have = (rows[:, columns] == values).astype(float)
    both, each = have.T @ have, have.sum(axis=0)
    same = both >= TOGETHER * (each[:, None] + each - both)
    same &= columns[:, None] != columns
    return [pair for pair, found in zip(likely, same.any(axis=1), strict=True) if found]
