"""Arrays whose rows are whole values of a kernel, and where large ones of a fit lie."""

import mmap
import weakref
from collections import deque
from contextlib import contextmanager

import numpy as np

from skvrem.utils._simd import CACHE_LINE, WIDTH

# Bytes that are worth pages of their own, and how the system is asked for them; Windows
# needs no asking.
LARGE = 1 << 20
PRIVATE = (
    {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS}
    if hasattr(mmap, "MAP_PRIVATE")
    else {}
)
# An array takes the place of one that was larger by at most so much.
SIMILAR = 1.25


class Pages:
    """Where large arrays of fits lie, places that others take when these are gone.

    Where large arrays that last lie among others that do not, the holes that these
    leave are too small for the next large ones, and count for nothing. Pages of their
    own leave none, but new ones for every array would cost a tenth of an epoch.
    """

    def __init__(self):
        self._fits, self._free = set(), deque()

    @contextmanager
    def reused(self):
        """Keep what arrays leave behind for others, until the last fit has ended."""
        fit = object()
        self._fits.add(fit)
        try:
            yield
        finally:
            self._fits.discard(fit)
            if not self._fits:
                self.clear()

    def clear(self):
        """Give back to the system what no array lies in."""
        self._free.clear()

    def empty(self, size, dtype):
        """Return a flat array, its values to be written."""
        n_bytes = size * np.dtype(dtype).itemsize
        if n_bytes < LARGE or not self._fits:
            return np.empty(size, dtype)
        place = self._find(n_bytes) or mmap.mmap(-1, n_bytes, **PRIVATE)
        # The base of all its views: when it is gone, so are they.
        array = np.frombuffer(place, dtype, size)
        weakref.finalize(array, self._leave, place).atexit = False
        return array

    def _find(self, n_bytes):
        """Return a place that is free, or None; give back one that has become small."""
        # Other threads look as well: what one has taken out no other finds.
        for _ in range(len(self._free)):
            try:
                place = self._free.popleft()
            except IndexError:
                return None
            if n_bytes <= len(place) <= SIMILAR * n_bytes:
                return place
            if not len(place) < n_bytes <= SIMILAR * len(place):
                self._free.append(place)
        return None

    def _leave(self, place):
        if self._fits:
            self._free.append(place)


places = Pages()


def padded_zeros(n_rows, n_columns, dtype):
    """Return zeros of shape (n_rows, n_columns rounded up), aligned to 64 bytes."""
    return padded_empty(n_rows, n_columns, dtype, np.zeros)


def padded_empty(n_rows, n_columns, dtype, make=np.empty):
    """Return such an array, its values to be written, padding included."""
    width = -(-n_columns // WIDTH) * WIDTH
    dtype = np.dtype(dtype)
    spare = CACHE_LINE // dtype.itemsize
    buffer = make(n_rows * width + spare, dtype)
    skip = -(buffer.ctypes.data // dtype.itemsize) % spare
    return buffer[skip : skip + n_rows * width].reshape(n_rows, width)


def pad(array, dtype, make=np.empty):
    """Return a padded copy of a matrix, the new columns zero."""
    result = padded_empty(*array.shape, dtype, make)
    result[:, : array.shape[1]] = array
    result[:, array.shape[1] :] = 0.0
    return result


def take_rows(matrix, rows):
    """Return rows of a padded matrix (none named: the matrix itself)."""
    if not rows.size:
        return matrix
    chosen = padded_empty(len(rows), matrix.shape[1], matrix.dtype, places.empty)
    return np.take(matrix, rows, axis=0, out=chosen, mode="clip")
