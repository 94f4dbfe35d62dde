"""What a function says of the blocks of a container: lazily, summed, or one by one."""

from functools import partial

import dask.array as da
import numpy as np

from skvrem.data._dask._containers import (
    as_column,
    as_rows,
    blocks_of,
    check_lengths,
)
from skvrem.data._dask._tasks import apply, compute, delayed, joined, send
from skvrem.utils._remote import is_frame, of_dask


def answers(function, X, columns, trailing, dtype):
    """Return what a function says of rows, lazily, block by block.

    Parameters
    ----------
    function : callable
        ``function(rows, **columns)`` returns an array of shape (n, *trailing).
    X : dask array or DataFrame
    columns : dict of str to array-like or dask array of shape (n,), or None
    trailing : tuple of int
    dtype : dtype

    Returns
    -------
    answer : dask array of shape (n, *trailing)
    """
    rows = as_rows(X)
    given = {}
    for name, values in columns.items():
        values, rows = as_column(values, rows, name)
        if values is not None:
            chunks = (rows.chunks[0],)
            given[name] = values if of_dask(values) else da.from_array(values, chunks)
    function = partial(_answer, function, list(given), trailing, dtype)
    if is_frame(X):  # whose parts know the names of their columns
        parts = [values.to_delayed() for values in given.values()]
        blocks = zip(X.to_delayed(), *parts, strict=True)
        blocks = [delayed(function)(*block) for block in blocks]
        sizes = rows.chunks[0]
        arrays = [
            da.from_delayed(block, (size, *trailing), dtype)
            for block, size in zip(blocks, sizes, strict=True)
        ]
        return da.concatenate(arrays, allow_unknown_chunksizes=True)
    axes = tuple(f"k{i}" for i in range(len(trailing)))
    return da.blockwise(
        function,
        ("i", *axes),
        rows,
        ("i", "j"),
        *(part for values in given.values() for part in (values, ("i",))),
        new_axes=dict(zip(axes, trailing, strict=True)),
        dtype=dtype,
        meta=np.empty((0,) * (1 + len(trailing)), dtype),
        concatenate=True,
        align_arrays=False,
    )


def _answer(function, names, trailing, dtype, rows, *columns):
    if not rows.shape[0]:
        return np.empty((0, *trailing), dtype)
    return function(rows, **dict(zip(names, columns, strict=True)))


def total(function, X, columns):
    """Return the sum over blocks of what a function says of them.

    Parameters
    ----------
    function : callable
        ``function(rows, **columns)`` returns an array of numbers.
    X : dask array or DataFrame
    columns : dict of str to array-like or dask array of shape (n,), or None
    """
    blocks, names, parts = _opened(X, columns)
    function = send(partial(_part_of_total, function, names))
    layer = [
        delayed(apply)(function, *block) for block in zip(blocks, *parts, strict=True)
    ]
    return joined(layer, np.add)


def _part_of_total(function, names, rows, *columns):
    columns = dict(zip(names, columns, strict=True))
    check_lengths(rows, columns)
    return function(rows, **columns)


def fetched(X, columns):
    """Yield the blocks of X that have rows, in memory, one after the other.

    Parameters
    ----------
    X : dask array or DataFrame
    columns : dict of str to array-like or dask array of shape (n,), or None

    Yields
    ------
    rows : ndarray, sparse matrix or pandas.DataFrame
    columns : dict of str to ndarray, those that are not None
    """
    blocks, names, parts = _opened(X, columns)
    for block, *own in zip(blocks, *parts, strict=True):
        rows, *own = compute(block, *own)
        if rows.shape[0]:
            given = dict(zip(names, own, strict=True))
            check_lengths(rows, given)
            yield rows, given


def _opened(X, columns):
    """Return the blocks of X, the names of its columns, and their blocks."""
    rows, given = as_rows(X), {}
    for name, values in columns.items():
        values, rows = as_column(values, rows, name)
        if values is not None:
            given[name] = values
    blocks = X.to_delayed() if is_frame(X) else rows.to_delayed()[:, 0]
    return list(blocks), list(given), [blocks_of(v, rows) for v in given.values()]
