"""Columns of X that are not observed features: ids of sequences, inputs."""

from typing import NamedTuple

import numpy as np
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data

from skvrem.utils._columns import column_number

__all__ = ["Places", "find_places", "split_columns"]


class Places(NamedTuple):
    """Numbers of columns of X.

    Attributes
    ----------
    ids : int or None
        Of the ids of sequences.
    inputs : list of int
        Of what transitions depend on.
    observed : list of int
        Of the features that states emit.
    """

    ids: int | None
    inputs: list
    observed: list


def find_places(estimator, names, n_columns):
    """Return what each column of X is for.

    Raises
    ------
    ValueError
        If there is no such column, or one has two uses.
    """
    transitions = estimator.transitions
    ids = None
    if estimator.groups is not None:
        ids = column_number(estimator.groups, "groups", names, n_columns)
    columns = () if transitions is None else transitions.columns
    name = type(transitions).__name__
    if isinstance(columns, str):
        raise ValueError(
            f"columns of {name} must be a list of names or numbers of columns of X, "
            f"got {columns!r}."
        )
    inputs = [column_number(column, name, names, n_columns) for column in columns]
    if len(set(inputs)) < len(inputs) or ids in inputs:
        raise ValueError(
            f"A column of X is named twice, by {name}({list(columns)})"
            f"{'' if ids is None else f' and groups={estimator.groups!r}'}."
        )
    hidden = {ids} if not columns or transitions.observed else {ids, *inputs}
    return Places(ids, inputs, [j for j in range(n_columns) if j not in hidden])


def split_columns(estimator, X, reset):
    """Return the observed features, the inputs and the ids that stand in columns of X.

    Raises
    ------
    ValueError
        If a column is missing, or an input is.
    """
    options = {
        "dtype": (np.float64, np.float32),
        "order": "C",
        "ensure_all_finite": "allow-nan",
    }
    transitions = estimator.transitions
    if estimator.groups is None and (transitions is None or not transitions.columns):
        return validate_data(estimator, X, reset=reset, **options), None, None
    validate_data(estimator, X, reset=reset, skip_check_array=True)
    names = list(getattr(X, "columns", ()))
    if not names:
        X = check_array(X, dtype=None, ensure_all_finite="allow-nan")
    places = find_places(estimator, names, X.shape[1])
    take = (lambda at: X.iloc[:, at]) if names else (lambda at: X[:, at])
    observed = check_array(take(places.observed), estimator=estimator, **options)
    ids = None if places.ids is None else np.asarray(take(places.ids))
    inputs = None
    if places.inputs:
        inputs = check_array(
            take(places.inputs),
            dtype=np.float64,
            order="C",
            ensure_all_finite="allow-nan",
        )
        unknown = ~np.isfinite(inputs)
        if unknown.any():
            row, column = np.argwhere(unknown)[0]
            raise ValueError(
                f"{type(transitions).__name__} needs its columns in every row: row "
                f"{row} of column {transitions.columns[column]!r} is not finite."
            )
        inputs = transitions.check_inputs(inputs)
    return observed, inputs, ids
