"""Columns of X that are not observed features: ids of sequences, inputs."""

from functools import partial
from typing import NamedTuple

import numpy as np
from sklearn.utils import check_array

from skvrem.utils._columns import column_number, naming_columns
from skvrem.utils._validation import validate_data

__all__ = ["Places", "find_places", "split_columns"]

naming = partial(
    naming_columns,
    needs="States emit numbers",
    advice="Leave such columns out; ids of sequences are named by groups, and a "
    "Product whose parts name their columns leaves the others alone.",
)


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


def find_places(parameters, names, n_columns):
    """Return what each column of X is for.

    Parameters
    ----------
    parameters : object
        With the estimator's `groups`, `transitions` and `emission`.
    names : list of str
        Of the columns of X; empty where there are none.
    n_columns : int

    Raises
    ------
    ValueError
        If there is no such column, or one has two uses.
    """
    transitions = parameters.transitions
    ids = None
    if parameters.groups is not None:
        ids = column_number(parameters.groups, "groups", names, n_columns)
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
            f"{'' if ids is None else f' and groups={parameters.groups!r}'}."
        )
    hidden = {ids} if not columns or transitions.observed else {ids, *inputs}
    taken = _taken(parameters.emission) if names else None
    if taken is not None:
        # Parts that name their columns leave the others of a frame alone.
        taken = [j for j in range(n_columns) if names[j] in taken or j in inputs]
        return Places(ids, inputs, [j for j in taken if j not in hidden])
    return Places(ids, inputs, [j for j in range(n_columns) if j not in hidden])


def _taken(emission):
    return getattr(emission, "column_names", None)


def split_columns(estimator, X, reset):
    """Return the observed features, the inputs and the ids that stand in columns of X.

    Raises
    ------
    ValueError
        If a column is missing, an input is, or an observed one does not hold numbers.
    """
    options = {
        "dtype": (np.float64, np.float32),
        "order": "C",
        "ensure_all_finite": "allow-nan",
    }
    parameters = estimator if reset else estimator._of_fit
    transitions = parameters.transitions
    whole = transitions is None or not transitions.columns
    whole = whole and parameters.groups is None and _taken(parameters.emission) is None
    if whole:
        with naming(X):
            X = validate_data(estimator, X, reset=reset, **options)
        return X, None, None
    validate_data(estimator, X, reset=reset, skip_check_array=True)
    framed = hasattr(X, "columns")
    if not framed:
        X = check_array(X, dtype=None, ensure_all_finite="allow-nan")
    names = list(getattr(estimator, "feature_names_in_", getattr(X, "columns", ())))
    places = find_places(parameters, names, X.shape[1])
    source = X.iloc if hasattr(X, "iloc") else X
    observed = source[:, places.observed]
    with naming(observed, numbers=places.observed):
        observed = check_array(observed, estimator=estimator, **options)
    ids = None if places.ids is None else np.asarray(source[:, places.ids])
    inputs = None
    if places.inputs:
        inputs = source[:, places.inputs]
        with naming(inputs, numbers=places.inputs):
            inputs = check_array(
                inputs, dtype=np.float64, order="C", ensure_all_finite="allow-nan"
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
