"""Rows and the groups they belong to: ids in a column of X, or beside X; few groups."""

from functools import partial

import numpy as np
from sklearn.utils import check_array, check_X_y

from skvrem.data import open_remote
from skvrem.utils._columns import check_one_each, column_names, column_number, column_of
from skvrem.utils._remote import is_frame, of_dask
from skvrem.utils._validation import (
    check_block,
    check_columns_of,
    check_magnitude,
    check_weighted,
    validate_data,
)
from skvrem.vi.gaussian._guards import check_in_memory

# Groups that say something of what groups have in common; and how many times the prior
# scale the deviation of their mean may be: beyond, the prior takes two thirds of it.
FEW_GROUPS, WIDE = 4, 1.5
OPTIONS = {"dtype": (np.float64, np.float32), "order": "C"}


def open_groups(estimator, X, y=None, groups=None, column=None, *, reset):
    """Return rows without the column of ids, targets, and ids or None.

    `column` is the constructor's `groups`: of now for a fit, of the fit for an answer.

    Raises
    ------
    ValueError
        If ids are given twice, are missing, or are not one a row.
    TypeError
        For a dask array.
    """
    check_in_memory(X=X, y=y, groups=groups)
    target = {} if y is None else {"y": y}
    if column is None:
        rows = validate_data(estimator, X, reset=reset, **target, **OPTIONS)
        rows, y = rows if target else (rows, None)
    else:
        validate_data(estimator, X, reset=reset, skip_check_array=True)
        names = column_names(X)
        if not names:
            X = check_array(X, dtype=None)
        at, rest = _apart(column, names, X.shape[1])
        checked = {**OPTIONS, "estimator": estimator}
        if y is None:
            rows = check_array(column_of(X, rest), input_name="X", **checked)
        else:
            rows, y = check_X_y(column_of(X, rest), y, **checked)
        ids = np.asarray(column_of(X, at))
        if groups is not None and not np.array_equal(ids, np.asarray(groups)):
            raise ValueError(
                f"Groups are given twice, by the column {column!r} and by "
                "groups, and differ: give one of the two."
            )
        groups = ids
    check_magnitude(rows)
    return rows, y, None if groups is None else check_ids(groups, len(rows))


def open_group_blocks(
    estimator, X, y, groups, sample_weight, kind, offset=None, weighed=False
):
    """Return a source of rows of dask, and the groups of all of its blocks.

    Parameters
    ----------
    estimator : estimator
        Whose `groups` may be the column of ids.
    X : dask array or DataFrame
    y, groups, sample_weight, offset : array-like or dask array of shape (n,), or None
    kind : {"labels", "numbers"}
        Of the targets.
    weighed : bool, default=False
        Rows without weight are left out, and groups of nothing else.

    Returns
    -------
    data : source
        Whose batches bring ids, but for a column of numbers: see `numbered_groups`.
    seen : list of Seen
        Of each block.
    labels, counts : ndarray of shape (n_groups,), or None
        Ids of the groups, each once, and how many rows they have.
    """
    y, weight = check_columns_of(estimator, X, y, sample_weight, reset=True)
    if estimator.groups is not None:
        X, groups = _parted(X, estimator.groups, groups)
    if groups is not None and not of_dask(groups):
        groups = check_ids(groups, len(groups))
    look = partial(_look, kind, weighed)
    data, both = open_remote(X, look, weight, y, groups, offset=offset)
    check_weighted(data)
    data = data.without_weightless() if weighed else data
    seen = [one for one, _ in both]
    if groups is None:
        return data, seen, None, None
    parts = [ids for _, ids in both if ids is not None]
    for ids, _ in parts[1:]:
        check_kind(ids, parts[0][0])
    labels, place = np.unique(
        np.concatenate([ids for ids, _ in parts]), return_inverse=True
    )
    each = np.concatenate([n for _, n in parts])
    return data, seen, labels, np.bincount(place, each, len(labels)).astype(int)


def _look(kind, weighed, rows, columns):
    """Check a block; return what was seen, its ids and how many rows each has."""
    seen = check_block(rows, columns, y=kind)
    if columns.groups is None or not len(columns.groups):
        return seen, None
    ids = check_ids(columns.groups, len(rows))
    if weighed and columns.weight is not None:
        ids = ids[np.flatnonzero(columns.weight)]
    return seen, np.unique(ids, return_counts=True) if len(ids) else None


def numbered_groups(labels, columns):
    """Return the columns of a block with numbers of groups; of one without labels."""
    if labels is None:
        place = np.zeros(len(columns.targets), np.int64)
    else:
        place = np.searchsorted(labels, columns.groups).astype(np.int64)
    return columns._replace(groups=place)


def _parted(X, column, groups):
    """Return the features of X and its column of ids."""
    if groups is not None:
        raise ValueError(
            f"Groups are given twice, by the column {column!r} and by groups: give one "
            "of the two."
        )
    names = list(X.columns) if is_frame(X) else []
    at, rest = _apart(column, names, X.shape[1])
    if is_frame(X):
        return X[[names[j] for j in rest]], X[names[at]]
    return X[:, rest], X[:, at]


def _apart(column, names, n_columns):
    """Return the number of the column of ids, and those of all others."""
    at = column_number(column, "groups", names, n_columns)
    rest = [j for j in range(n_columns) if j != at]
    if not rest:
        raise ValueError("X has no columns of features beside the ids of groups.")
    return at, rest


def check_ids(ids, n_rows):
    """Return ids of groups as an array: one a row, of one type, none missing."""
    ids = np.asarray(ids)
    check_one_each(ids, "groups must have one id", n_rows, "rows")
    missing = np.zeros(n_rows, bool)
    if ids.dtype.kind in "fOMm":
        missing = np.array([_is_missing(one) for one in ids.tolist()], bool)
    if missing.any():
        raise ValueError(f"groups has no id in row {int(missing.argmax())}.")
    if ids.dtype.kind == "O" and len({type(one) for one in ids.tolist()}) > 1:
        raise ValueError("groups has ids of several types, which have no order.")
    return ids


def _is_missing(one):
    """Whether an id is None, pandas' NA, or NaN, which is not itself."""
    return one is None or type(one).__name__ == "NAType" or bool(one != one)


def check_kind(ids, groups):
    """Check that ids are of the kind of those of the fit.

    Raises
    ------
    ValueError
        If none of them could be one of the fit's, as "1" is not 1.
    """
    kinds = [_kind(some) for some in (ids, groups)]
    if ids.size and kinds[0] != kinds[1]:
        raise ValueError(
            f"groups has ids that are {kinds[0]}, as {ids.tolist()[0]!r}, and those of "
            f"the fit are {kinds[1]}, as {groups.tolist()[0]!r}: none of these is one "
            "of those. Convert them."
        )


def _kind(ids):
    """Return what ids are, in words."""
    kind = ids.dtype.kind
    if kind == "O" and ids.size:
        kind = np.asarray(ids.tolist()[:1]).dtype.kind
    words = {"U": "strings", "S": "bytes", "M": "dates", "m": "time spans"}
    if kind in "biufc":
        return "numbers"
    return words.get(kind) or f"of type {type(ids.tolist()[0]).__name__}"


def number_groups(ids, groups):
    """Return the numbers of ids among groups (int64), and -1 for others."""
    known = {group: number for number, group in enumerate(groups.tolist())}
    return np.array([known.get(one, -1) for one in ids.tolist()], np.int64)


def few_groups(name, n_groups, instead):
    """Return what to warn of where groups are few, None where they are not."""
    if n_groups >= FEW_GROUPS:
        return None
    return (
        f"{name} was given {n_groups} groups, too few to learn what groups have in "
        "common: predictions for a group that is not among them are little better "
        f"than the prior. {instead}"
    )


def widest(log_tau, log_tau_std, prior_scale, n_groups):
    """Return where groups lie so far apart that the prior holds their mean.

    As far as is known with some certainty.

    Returns
    -------
    at : tuple of int or None
        Into the arrays.
    times : float
        How many times as far, there, as the prior's standard deviation.
    """
    wide = np.exp(log_tau - log_tau_std) / prior_scale
    at = np.unravel_index(wide.argmax(), wide.shape)
    if wide[at] <= WIDE * np.sqrt(n_groups):
        return None, float(wide[at])
    return at, float(wide[at])


def wide_groups(what, times, which):
    """Return what to warn of there."""
    return (
        f"Coefficients of {what} spread {times:.3g} times as far from group to group "
        "as the prior lets their mean lie from zero: predictions for a group that is "
        f"not in the fit may be poor. Raise {which}prior_scale, or put features on one "
        "scale."
    )
