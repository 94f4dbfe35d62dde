"""Containers of dask as blocks of whole rows, and what belongs to the rows of each."""

import sys
from typing import Any, NamedTuple

import dask.array as da
import numpy as np

from skvrem.data._dask._tasks import kept_slices
from skvrem.utils._remote import check_table, is_frame, of_dask

#: Names of arguments, for messages.
NAMES = {"weight": "sample_weight", "targets": "y"}


class Columns(NamedTuple):
    """What belongs to the rows of a block, or to those of all blocks (lists of each).

    None is what there is not.
    """

    weight: Any = None
    targets: Any = None
    groups: Any = None
    offset: Any = None


def as_rows(X):
    """Return a container of dask as an array of whole rows in every block.

    Parameters
    ----------
    X : dask array, DataFrame or Series
        Sizes of the blocks may be unknown; columns may be cut.

    Raises
    ------
    ValueError
        If it is not two-dimensional, or how many columns it has is not known.
    """
    check_table(X)
    if is_frame(X):
        X = X.to_dask_array()
    if X.ndim != 2:
        raise ValueError(
            f"Expected a 2-dimensional dask array, got {X.ndim} dimensions."
        )
    if np.isnan(X.shape[1]):
        raise ValueError(
            "X does not know how many columns its chunks have: call "
            "X.compute_chunk_sizes() first."
        )
    if X.shape[0] == 0:
        raise ValueError("Found array with 0 sample(s): X has no rows.")
    return X.rechunk({1: -1}) if X.numblocks[1] > 1 else X


def sized(X):
    """Return an array of blocks whose sizes are known, the caller's as it was."""
    known = not any(np.isnan(size) for size in X.chunks[0])
    return X if known else X.copy().compute_chunk_sizes()


def as_column(values, X, name):
    """Return what belongs to the rows of X, one by one, in the blocks of X.

    Parameters
    ----------
    values : array-like, dask array or Series of shape (n,), or None
    X : dask array
        Of whole rows.
    name : str
        For messages.

    Returns
    -------
    values : dask array or None
    X : dask array
        With the sizes of its blocks, where these had to be found.

    Raises
    ------
    ValueError
        If there are not as many as rows.
    """
    if values is None:
        return None, X
    if of_dask(values):
        if hasattr(values, "to_dask_array"):
            values = values.to_dask_array()
        if values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        unknown = np.isnan(values.shape[0]) or np.isnan(X.shape[0])
        if unknown and values.numblocks[0] == X.numblocks[0]:
            return values, X  # whose blocks are compared one by one
        values, X = sized(values), sized(X)
    else:
        X = sized(X)
        values = values if isinstance(values, np.ndarray) else np.asarray(values)
    if values.ndim != 1 or values.shape[0] != X.shape[0]:
        raise ValueError(
            f"Found input variables with inconsistent numbers of samples: {name} must "
            f"have one value for each of the {int(X.shape[0])} rows of X, got shape "
            f"{tuple(values.shape)}."
        )
    if of_dask(values):
        return values.rechunk((X.chunks[0],)), X
    return values, X


def blocks_of(column, X):
    """Return the blocks of a column, in memory sent to where the rows are."""
    if column is None:
        return None
    if of_dask(column):
        return list(column.to_delayed())
    edges = np.concatenate([[0], np.cumsum(X.chunks[0])]).astype(int)
    return kept_slices(column, edges)


def floats(X):
    """Return an array of numbers that kernels take.

    Raises
    ------
    ValueError
        If they are none.
    """
    if X.dtype.kind not in "fiubO":
        raise ValueError(f"X must be numeric, got dtype {X.dtype}.")
    if X.dtype in (np.float32, np.float64):
        return X
    return X.map_blocks(_as_floats, dtype=np.float64)


def _as_floats(block):
    """Return numbers of a block, NaN for what frames have for missing ones."""
    pandas = sys.modules.get("pandas")
    if pandas is not None and block.dtype == object:
        block = np.where(pandas.isna(block), np.nan, block)
    return block.astype(np.float64)


def rowwise(columns, n_blocks):
    """Yield the columns of each block."""
    nothing = [None] * n_blocks
    return zip(*(nothing if part is None else part for part in columns), strict=True)


def check_lengths(rows, columns):
    for name, values in columns.items():
        if values is not None and len(values) != rows.shape[0]:
            raise ValueError(
                f"Found input variables with inconsistent numbers of samples: a block "
                f"of X has {rows.shape[0]} rows, and that of {name} {len(values)}."
            )


def parts_of(X):
    """Return the blocks of a container, frames as frames, and their sizes.

    Parameters
    ----------
    X : dask array of shape (n,) or (n, n_columns), DataFrame or Series

    Returns
    -------
    parts : list of dask.delayed.Delayed
    sizes : tuple
        Rows of each; NaN where that is not known.
    """
    if is_frame(X):
        return list(X.to_delayed()), (np.nan,) * X.npartitions
    if getattr(X, "ndim", 1) == 1 and hasattr(X, "numblocks"):
        return list(X.to_delayed()), X.chunks[0]
    X = as_rows(X)
    return list(X.to_delayed()[:, 0]), X.chunks[0]


def array_of(tasks, sizes, trailing, dtype):
    """Return what tasks come to, of so many rows each, as a dask array."""
    meta = np.empty((0,) * (1 + len(trailing)), dtype)
    parts = [
        da.from_delayed(task, (int(size), *trailing), meta=meta)
        for task, size in zip(tasks, sizes, strict=True)
    ]
    return da.concatenate(parts)


def stacked(frames):
    """Return the rows of frames, one after another."""
    from dask.dataframe import methods

    return methods.concat(frames)
