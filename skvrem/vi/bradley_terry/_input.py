"""Matches as they come in: labels, results and weights; and as the model wants them."""

import contextlib
from copy import copy
from functools import partial
from numbers import Real
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from sklearn.utils import check_array, column_or_1d

from skvrem.data import of_dask, open_remote
from skvrem.utils._columns import check_one_each, holds_times, naming_columns
from skvrem.utils._remote import check_chunks
from skvrem.utils._validation import (
    check_columns_of,
    check_weight,
    check_weighted,
    validate_data,
)
from skvrem.vi.bradley_terry._model import Matches
from skvrem.vi.gaussian._guards import check_in_memory


def open_labels(estimator, X, reset):
    """Return the labels of the items of each match, and which of them is at home.

    Returns
    -------
    labels : ndarray of shape (n_matches, 2)
    home : ndarray of shape (n_matches,)
        1 where the first is at home, 0 neither, -1 the second; 1 without a column.

    Raises
    ------
    ValueError
        Unless there are two columns of labels, none missing, different in each row;
        with an advantage of being at home, perhaps a third of these numbers.
    """
    check_in_memory(X=X)
    if _holds_dates(X):
        raise ValueError(
            f"X of {type(estimator).__name__} has a column of dates: labels of items "
            "are strings or numbers. Give the two columns of items only, or make "
            "dates strings."
        )
    # Missing labels are looked for below, where the row can be named.
    given = _as_objects(X) if isinstance(X, list | tuple) else X
    labels = validate_data(
        estimator, given, reset=reset, dtype=None, ensure_all_finite=False
    )
    name = type(estimator).__name__
    # Further rows have as many columns as the first ones.
    third = labels.shape[1] == 3 and (estimator.home_advantage or not reset)
    if labels.shape[1] != 2 + third:
        more = ""
        if labels.shape[1] == 3:
            more = " A third one that says who is at home asks for home_advantage=True."
        raise ValueError(
            f"X of {name} must have two columns, the items that meet in each match; "
            f"got {labels.shape[1]}.{more}"
        )
    home = _home(labels[:, 2]) if third else np.ones(len(labels))
    labels = labels[:, :2]
    if given is not X:
        labels = _of_one_kind(labels)
    missing = _missing(labels)
    if missing.any():
        row = int(missing.any(axis=1).argmax())
        raise ValueError(f"A label is missing in row {row} of X: {labels[row]!r}.")
    same = np.asarray(labels[:, 0] == labels[:, 1], bool)
    if same.any():
        row = int(same.argmax())
        item = labels[row].tolist()[0]
        raise ValueError(
            f"Row {row} of X is a match of {item!r} against itself: leave "
            f"such rows out ({int(same.sum())} of {len(same)})."
        )
    return labels, home


def _as_objects(rows):
    """Return lists as an array whose elements are as they were given.

    Not strings of numbers, and of what is missing, that stand beside strings.
    """
    try:
        found = np.array(rows, dtype=object)
    except ValueError:  # ragged, as will be said
        return rows
    if found.ndim != 3 or not isinstance(rows[0][0], tuple):
        return found
    pairs = np.empty(found.shape[:2], object)  # of labels that are tuples
    for row, labels in zip(pairs, rows, strict=True):
        row[:] = np.fromiter(labels, object, len(labels))
    return pairs


def _of_one_kind(labels):
    """Return objects as an array of strings or of numbers, where they all are."""
    flat = labels.ravel().tolist()
    for kind in (str, bytes, Real):
        if all(isinstance(label, kind) for label in flat):
            return np.array(labels.tolist())
    return labels


def _home(column):
    """Return the numbers (n_matches,) of a column that says who is at home."""
    home = np.full(len(column), np.nan)
    for row, value in enumerate(column):
        with contextlib.suppress(TypeError, ValueError):
            home[row] = value
    bad = ~np.isin(home, (-1.0, 0.0, 1.0))
    if bad.any():
        row = int(bad.argmax())
        raise ValueError(
            "The third column of X must be 1 where the first item is at home, 0 on "
            f"neutral ground, -1 where the second is; got {column[row]!r} in row {row}."
        )
    return home


def _holds_dates(X):
    """Whether numpy would find dates or spans of time, which are no labels."""
    try:
        return holds_times(X if hasattr(X, "dtypes") else np.asarray(X))
    except ValueError:  # ragged, as will be said
        return False


def _missing(labels):
    if labels.dtype.kind == "f":
        return np.isnan(labels)
    if labels.dtype.kind != "O":
        return np.zeros(labels.shape, bool)
    flat = [
        label is None or type(label).__name__ == "NAType" or label != label
        for label in labels.ravel()
    ]
    return np.asarray(flat, bool).reshape(labels.shape)


def open_matches(estimator, X, y, sample_weight, ties, reset):
    """Return labels, who is at home, results of the first, and weights of matches.

    Those without weight are left out.

    Raises
    ------
    ValueError
        As `open_labels`, or for a result out of range, with its row.
    """
    if any(map(of_dask, (X, y, sample_weight))):
        return _open_blocks(estimator, X, y, sample_weight, ties, reset)
    labels, home = open_labels(estimator, X, reset)
    n = len(labels)
    result = np.ones(n) if y is None else _results(y, labels, ties)
    weight = check_weight(sample_weight, n)
    if weight is None:
        return labels, home, result, np.ones(n)
    kept = weight > 0.0
    return labels[kept], home[kept], result[kept], weight[kept]


class Counted(NamedTuple):
    """Different matches (labels, who is at home, result), and what each of them weighs.

    A row of weight that is zero for all is none.
    """

    labels: np.ndarray
    home: np.ndarray
    result: np.ndarray
    weight: np.ndarray

    @classmethod
    def of(cls, labels, home, result, weight):
        """Return the matches of some, each once."""
        items, codes = numbered_labels(labels)
        keys = np.column_stack([codes, home, result])
        keys, where = np.unique(keys, axis=0, return_inverse=True)
        weight = np.bincount(where.ravel(), weight, len(keys))
        return cls(items[keys[:, :2].astype(int)], keys[:, 2], keys[:, 3], weight)

    def merged(self, other):
        """Return the matches of both."""
        return Counted.of(*map(appended, self, other))


def appended(a, b):
    """Return labels, or what else belongs to matches, of both."""
    if len(a) and len(b) and (a.dtype.kind in "US") != (b.dtype.kind in "US"):
        a, b = a.astype(object), b.astype(object)  # which are told of, not converted
    return b if not len(a) else a if not len(b) else np.concatenate([a, b])


def numbered_labels(labels):
    """Return all labels in order, and the number of each.

    Raises
    ------
    ValueError
        If they are of types that have no order.
    """
    try:
        found, where = np.unique(labels, return_inverse=True)
    except TypeError:
        kinds = sorted({type(label).__name__ for label in labels.ravel()})
        raise ValueError(
            f"Labels of items must be of one type that can be sorted, got "
            f"{' and '.join(kinds)}: make them all strings."
        ) from None
    return found, where.reshape(labels.shape)


def _open_blocks(estimator, X, y, sample_weight, ties, reset):
    """Return matches that lie in the blocks of dask, counted where they lie."""
    y, weight = check_columns_of(estimator, X, y, sample_weight, reset=reset)
    light = copy(estimator)
    vars(light).pop("_rows", None)
    vars(light).pop("feature_names_in_", None)
    light.n_features_in_ = X.shape[1]
    count = partial(_counted, light, ties, reset)
    data, _ = open_remote(X, _look, weight, y, numbers=False)
    check_weighted(data)
    return tuple(data.chunks().reduce(count, Counted.merged))


def _look(rows, columns):
    check_chunks(rows, sparse=False)


def _counted(estimator, ties, reset, batch):
    """Return the `Counted` matches of a block."""
    weight = batch.weight if batch.weight.size else None
    if weight is not None and not weight.any():
        labels = np.empty((0, 2), batch.rows.dtype)
        return Counted(labels, *(np.empty(0) for _ in range(3)))
    given = batch.rows, batch.targets, weight, ties
    return Counted.of(*open_matches(copy(estimator), *given, reset=reset))


def _results(y, labels, ties):
    if ties is None:
        allowed = "between 0 and 1: 1 where the first item of the row won, 0 where it "
        allowed += "lost, 0.5 for half a win each"
    else:
        allowed = "1, 0.5 or 0: the first item of the row won, tied or lost"
    given = np.asarray(y)
    advice = _advice(given, labels) if given.dtype.kind in "OUS" else ""
    with naming_columns(y, f"y must be {allowed}", advice):
        result = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
        if result.ndim == 2 and result.shape[1] == 1:
            result = column_or_1d(result, warn=True)
    check_one_each(result, "y must have one result", len(labels), "matches")
    if ties is None:
        bad = (result < 0.0) | (result > 1.0)
    else:
        bad = ~np.isin(result, (0.0, 0.5, 1.0))
    if bad.any():
        row = int(bad.argmax())
        raise ValueError(
            f"y must be {allowed}; got {result[row]:g} in row {row}. "
            f"{_advice(result, labels)}"
        )
    return result


def _advice(y, labels):
    """Return what to do about results that are none, as the names of the winners."""
    if y.shape == (len(labels),):
        named = labels.astype(object) == y.astype(object)[:, None]
        if named.any(axis=1).all():
            return (
                "It names the winners: pass np.asarray(y) == np.asarray(X)[:, 0], or "
                "rows with the winner first and no y."
            )
    return "Write each result as such a number."


def aggregate(codes, home, result, weight, ties):
    """Return the `Matches`, those of the same two items counted together.

    Parameters
    ----------
    codes : ndarray of shape (n_matches, 2)
        Numbers of the parameters of the items.
    home : ndarray of shape (n_matches,) or (0,)
        As of `Matches`.
    result, weight : ndarray of shape (n_matches,)
    ties : bool
        0.5 is a result of its own, not half a win each.
    """
    a, b = codes.T
    tie = weight * (result == 0.5) if ties else np.zeros(len(result))
    win = weight * (result - 0.5 * (result == 0.5) * ties)
    loss = weight - tie - win
    swap = a > b
    a, b = np.where(swap, b, a), np.where(swap, a, b)
    win, loss = np.where(swap, loss, win), np.where(swap, win, loss)
    home = np.where(swap, -home, home) if home.size else home
    return counted_together(a, b, home, win, loss, tie)


def counted_together(first, second, home, *counts):
    """Return the `Matches` of some, first < second, the same ones counted together."""
    n = int(second.max()) + 1
    keys = first.astype(np.int64) * n + second
    if home.size:
        keys = 3 * keys + home.astype(np.int64) + 1
    keys, where = np.unique(keys, return_inverse=True)
    counts = [np.bincount(where, part, keys.size) for part in counts]
    if home.size:
        keys, home = np.divmod(keys, 3)
        home = home - 1.0
    first, second = (part.astype(np.int32) for part in np.divmod(keys, n))
    return Matches(first, second, home, *counts)


def count_groups(codes, n_items):
    """Return the sizes of the groups of items that are connected by matches."""
    ones = np.ones(len(codes), bool)
    graph = sparse.coo_array((ones, tuple(codes.T)), shape=(n_items, n_items))
    _, groups = connected_components(graph, directed=False)
    return np.sort(np.bincount(groups))[::-1]
