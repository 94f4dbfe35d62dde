"""Columns of X that a parameter names: by name for a frame, else by number."""

from numbers import Integral

__all__ = ["check_column", "column_number"]


def check_column(estimator, name):
    """Check that a parameter is None, or can be the name or number of a column.

    Raises
    ------
    ValueError
        If it is something else, as ids themselves are.
    """
    value = getattr(estimator, name)
    if not (value is None or isinstance(value, str | Integral)):
        raise ValueError(
            f"{name} of the constructor is the name or number of a column of X; ids "
            f"themselves go to fit(X, {name}=...), got {value!r}."
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
            "columns."
        )
    return int(column)
