"""Sequences of rows: where they begin, and how they lie in the blocks of dask.

Blocks are cut where sequences are: one that goes on in the next block is put together
where it begins. Then a block is some whole sequences.
"""

from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from skvrem.utils._columns import check_one_each
from skvrem.utils._remote import is_frame, of_dask, refuse_dask

# Bytes of a block that sequences may be put together to, where none is as large.
LARGEST = 1 << 30

# Where sequences begin


def given_twice(ways):
    """Return what is wrong where sequences are given in several ways."""
    return f"Sequences are given twice, by {' and by '.join(ways)}: give one of them."


def bounds_of_lengths(lengths, n_rows):
    """Return where sequences of such lengths begin, and the number of rows."""
    lengths = np.asarray(lengths)
    whole = lengths.ndim == 1 and lengths.size and lengths.dtype.kind in "iuf"
    whole = whole and (lengths == np.floor(lengths)).all()
    whole = whole and lengths.min() >= 1 and lengths.max() < np.inf
    total = sum(map(int, lengths)) if whole else None  # an array's might wrap around
    if total != n_rows:
        raise ValueError(
            f"lengths must be positive whole numbers that add up to the {n_rows} rows "
            f"of X, got {lengths!r}{f', which add up to {total}' if whole else ''}. "
            "Cross-validation does not cut lengths: give the ids of the sequences as "
            "groups, or as a column of X that the constructor names."
        )
    return np.concatenate([[0], np.cumsum(lengths.astype(np.int64))])


def bounds_of_ids(ids, n_rows):
    """Return where sequences of such ids begin, and the number of rows."""
    return np.append(check_once(*find_starts(np.asarray(ids), n_rows)), n_rows)


def find_starts(ids, n_rows):
    """Return the rows in which ids of sequences change, and the ids from there on."""
    check_one_each(ids, "groups must have one id", n_rows, "rows")
    missing = _missing(ids)
    if missing.any():
        raise ValueError(f"groups has no id in row {int(missing.argmax())}.")
    starts = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]]))
    return starts, ids[starts]


def check_once(starts, first):
    """Return where sequences of such ids begin, none of which may come again."""
    try:
        values, counts = np.unique(first, return_counts=True)
    except TypeError:
        kinds = sorted({type(value).__name__ for value in first})
        raise ValueError(
            f"groups mixes ids of several types, {' and '.join(kinds)}: give them one "
            "type, as text by astype(str)."
        ) from None
    if (counts > 1).any():
        twice = values[counts > 1][0]
        where = starts[first == twice]
        raise ValueError(
            f"The rows of a sequence must follow each other: id {twice} comes again in "
            f"row {where[1]} after others. Sort rows by sequence, then by time."
        )
    return starts


def _missing(ids):
    """Which ids are None, NaN, NaT or NA."""
    if ids.dtype.kind != "O":
        return ids != ids
    return np.array([_is_missing(value) for value in ids], bool)


def _is_missing(value):
    if isinstance(value, float):
        return value != value
    return value is None or type(value).__name__ in ("NAType", "NaTType")


# In blocks


class BlockColumns(NamedTuple):
    """What belongs to a block.

    Attributes
    ----------
    lengths : ndarray of int
        Of its sequences.
    weight, labels : ndarray of shape (n_rows,), or None
    first : int
        Number of its first row among all.
    """

    lengths: np.ndarray
    weight: Any
    labels: Any
    first: int


class Laid(NamedTuple):
    """Blocks of whole sequences.

    Attributes
    ----------
    blocks, beside : list of dask.delayed.Delayed
        Rows, and the `BlockColumns` of each.
    sizes : list of int
        Rows of the blocks.
    bounds : ndarray of int of shape (n_sequences + 1,)
    by_lengths : bool
        A block must be told the lengths: no column of it holds ids.
    """

    blocks: list
    beside: list
    sizes: list
    bounds: np.ndarray
    by_lengths: bool


def lay(X, column, groups, lengths, weight=None, labels=None):
    """Return the blocks of whole sequences of a container of dask.

    Parameters
    ----------
    X : dask array or DataFrame
    column : int or None
        Of the ids, where a column of X holds them.
    groups : array-like or dask array of shape (n_rows,), or None
    lengths : array-like of int, or None
    weight, labels : array-like or dask array of shape (n_rows,), or None
        What goes beside the rows.

    Returns
    -------
    laid : Laid

    Raises
    ------
    ValueError
        As of rows in memory; or if a sequence is too long to be put together.
    """
    from skvrem.data import _dask

    given = {"lengths": lengths, "groups": groups, "a column": column}
    given = [name for name, value in given.items() if value is not None]
    if len(given) > 1:
        raise ValueError(given_twice(given))
    refuse_dask(lengths)
    parts, sizes = _dask.parts_of(X)
    by_block = column is not None or of_dask(groups)
    if by_block or any(size != size for size in sizes):
        ids = _parts_beside(groups if of_dask(groups) else None, sizes, "groups")
        look = _dask.send(partial(_look_at_ids, column))
        tasks = [
            _dask.call(_dask.apply, look, *pair)
            for pair in zip(parts, ids, strict=True)
        ]
        seen = _dask.compute(*tasks)
        sizes = [own[0] for own in seen]
    edges = np.concatenate([[0], np.cumsum(sizes)]).astype(int)
    n_rows = int(edges[-1])
    if not n_rows:
        raise ValueError("Found array with 0 sample(s): X has no rows.")
    bounds = np.array([0, n_rows])
    if by_block:
        bounds = _bounds_of_blocks([own[1:] for own in seen], edges)
    elif groups is not None:
        ids = np.asarray(groups)
        bounds = np.append(check_once(*find_starts(ids, n_rows)), n_rows)
    elif lengths is not None:
        bounds = bounds_of_lengths(lengths, n_rows)
    # A sequence that goes on is put together where it begins.
    cuts = np.unique(bounds[np.searchsorted(bounds, edges)])
    _check_joined(X, edges, cuts, bounds)
    pieces = [_pieces(edges, a, b) for a, b in pairwise(cuts)]
    beside = []
    columns = [
        _cut(_parts_beside(values, sizes, name, n_rows), pieces, cuts)
        for name, values in (("sample_weight", weight), ("state_labels", labels))
    ]
    for a, b, *own in zip(cuts[:-1], cuts[1:], *columns, strict=True):
        first, last = np.searchsorted(bounds, [a, b])
        inside = np.diff(bounds[first : last + 1])
        beside.append(_dask.call(BlockColumns, inside, *own, int(a)))
    return Laid(
        _cut(parts, pieces, cuts),
        _dask.keep(beside),
        np.diff(cuts).tolist(),
        bounds,
        column is None,
    )


def _look_at_ids(column, block, ids):
    """Return how many rows a block has, where ids change, which come, and the last."""
    n = block.shape[0]
    if column is not None:
        ids = (block.iloc if hasattr(block, "iloc") else block)[:, column]
    if ids is None or not n:
        return n, None, None, None
    ids = np.asarray(ids)
    starts, first = find_starts(ids, n)
    return n, starts, first, ids[-1]


def _bounds_of_blocks(seen, edges):
    """Return where sequences begin, from where ids change in every block."""
    starts, first, last, begun = [], [], None, False
    for (at, ids, end), edge in zip(seen, edges, strict=False):
        if at is None:
            continue
        goes_on = int(begun and ids[0] == last)
        starts.append(at[goes_on:] + edge)
        first.append(ids[goes_on:])
        last, begun = end, True
    return np.append(
        check_once(np.concatenate(starts), np.concatenate(first)), edges[-1]
    )


def _check_joined(X, edges, cuts, bounds):
    """Raise a ValueError where a sequence is too long to be put together."""
    width = 8 * X.shape[1] if is_frame(X) else X.dtype.itemsize * X.shape[1]
    most = max(LARGEST, width * int(np.diff(edges).max()))
    rows = np.diff(cuts)
    if width * rows.max() <= most:
        return
    block = int(rows.argmax())
    where = np.searchsorted(bounds, cuts[block : block + 2])
    longest = int(np.diff(bounds[where[0] : where[1] + 1]).max())
    raise ValueError(
        f"A sequence of {longest} rows lies in many blocks of X: it would have to be "
        f"put together to one of {width * rows[block] / 2**30:.1f} GiB. If the memory "
        "of a worker holds that, say so by X.rechunk({0: -1}); else cut X into "
        "sequences by lengths or groups, or pass block after block to partial_fit "
        "with continues=True."
    )


def _pieces(edges, a, b):
    """Return (number, start, stop) of the old blocks that rows a to b lie in."""
    first, last = np.searchsorted(edges, a, "right") - 1, np.searchsorted(edges, b)
    found = []
    for number in range(first, last):
        start, stop = edges[number : number + 2]
        own = max(a, start) - start, min(b, stop) - start
        if own[0] < own[1]:
            whole = own == (0, stop - start)
            found.append((number, None if whole else own))
    return found


def _parts_beside(values, sizes, name, n_rows=None):
    """Return what belongs to rows in the blocks of X, or an array in memory."""
    from skvrem.data import _dask

    if values is None:
        return [None] * len(sizes)
    if not of_dask(values):
        values = np.asarray(values)
        check_one_each(values, f"{name} must have one value", n_rows, "rows of X")
        return values
    if getattr(values, "ndim", 1) == 2 and values.shape[1] == 1:
        values = values[:, 0]
    parts, own = _dask.parts_of(values)
    known = not any(size != size for size in (*sizes, *own))
    if known and tuple(sizes) != tuple(own) and sum(sizes) == sum(own):
        values = values.rechunk((tuple(map(int, sizes)),))
        parts, own = _dask.parts_of(values)
    if len(parts) != len(sizes) or (known and tuple(sizes) != tuple(own)):
        raise ValueError(
            f"{name} must have one value for each row of X, in blocks as those of X: "
            f"it has {len(parts)} blocks of {sum(own)} rows, and X {len(sizes)} of "
            f"{sum(sizes)}."
        )
    return parts


def _cut(parts, pieces, cuts):
    """Return blocks of whole sequences from those that there are."""
    from skvrem.data import _dask

    if isinstance(parts, np.ndarray):
        return [parts[a:b] for a, b in pairwise(cuts)]
    found = []
    for own in pieces:
        taken = [parts[number] for number, _ in own]
        if taken[0] is None or (len(own) == 1 and own[0][1] is None):
            found.append(taken[0])
        else:
            found.append(_dask.call(_join, [place for _, place in own], *taken))
    return found


def _join(places, *parts):
    """Return stretches of blocks as one."""
    frames = hasattr(parts[0], "iloc")
    taken = [
        part if place is None else (part.iloc if frames else part)[slice(*place)]
        for part, place in zip(parts, places, strict=True)
    ]
    if len(taken) == 1:
        return taken[0]
    from skvrem.data import _dask

    if sp.issparse(taken[0]):  # refused when it is looked at
        return sp.vstack(taken)
    return _dask.stacked(taken) if frames else np.concatenate(taken)
