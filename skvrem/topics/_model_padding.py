"""Arrays whose rows start on cache lines, for loops over short contiguous rows."""

import numpy as np

__all__ = ["LANES", "pad", "padded_empty", "padded_zeros"]

# Rows are padded to whole cache lines of float32.
LANES = 16
CACHE_LINE = 64


def padded_zeros(n_rows, n_columns, dtype):
    """Return zeros of shape (n_rows, n_columns rounded up), aligned to 64 bytes."""
    return _padded(np.zeros, n_rows, n_columns, dtype)


def padded_empty(n_rows, n_columns, dtype):
    """Return such an array, its values to be written, padding included."""
    return _padded(np.empty, n_rows, n_columns, dtype)


def _padded(make, n_rows, n_columns, dtype):
    width = -(-n_columns // LANES) * LANES
    dtype = np.dtype(dtype)
    spare = CACHE_LINE // dtype.itemsize
    buffer = make(n_rows * width + spare, dtype)
    skip = -(buffer.ctypes.data // dtype.itemsize) % spare
    return buffer[skip : skip + n_rows * width].reshape(n_rows, width)


def pad(array, dtype):
    """Return a padded copy of a matrix, the new columns zero."""
    result = padded_zeros(*array.shape, dtype)
    result[:, : array.shape[1]] = array
    return result
