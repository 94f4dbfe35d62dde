"""Products with a tile of rows, dense or CSR, with a column of ones behind or not.

Dense products are BLAS's, on tiles that stay in the second-level cache: a pass reads
every row from memory once for its logits and its share of the gradient.
"""

import numpy as np

from skvrem.utils import _csr_kernels

__all__ = ["tiles"]

# Elements of a dense tile, its least and most rows, and the rows of a CSR tile.
TILE_SIZE, FEWEST_ROWS, MOST_ROWS = 200_000, 256, 4096


def tiles(batch, start, stop, intercept, center=None):
    """Yield tiles of the rows start..stop of a batch, and their numbers (or a slice).

    Parameters
    ----------
    batch : skvrem.data.Batch
    start, stop : int
    intercept : bool
        Rows have a one behind them.
    center : ndarray of shape (n_features,) and the rows' dtype, or None
        Taken off every row, which must be dense.
    """
    csr = hasattr(batch.rows, "indptr")
    step = MOST_ROWS
    if not csr:
        step = min(max(TILE_SIZE // batch.rows.shape[1], FEWEST_ROWS), MOST_ROWS)
    for a in range(start, stop, step):
        b = min(a + step, stop)
        where = batch.index[a:b] if batch.index.size else slice(a, b)
        if csr:
            ids = where if batch.index.size else np.arange(a, b, dtype=np.int32)
            ids.flags.writeable = False  # as those of an index: one type to compile for
            yield CSRTile(batch.rows, ids, intercept), where
        else:
            rows = batch.rows[where]
            rows = rows if center is None else rows - center
            yield DenseTile(rows, intercept), where


class DenseTile:
    """Rows of an array, of shape (m, d)."""

    def __init__(self, x, intercept):
        self.x = x
        self.intercept = intercept

    def times(self, M):
        """Rows times M (p, c), in the dtype of the rows."""
        x, M = self.x, M.astype(self.x.dtype, copy=False)
        if not self.intercept:
            return x @ M
        out = x @ M[:-1]
        out += M[-1]
        return out

    def add_transposed(self, R, out):
        """Out (p, c) += rows, transposed, times R (m, c)."""
        R = R.astype(self.x.dtype, copy=False)
        d = self.x.shape[1]
        out[:d] += self.x.T @ R
        if self.intercept:
            out[d] += R.sum(axis=0, dtype=np.float64)

    def squares_times(self, M):
        """Squares of the rows times M (p, c), in the dtype of the rows."""
        return DenseTile(np.square(self.x), self.intercept).times(M)

    def quadratic(self, M):
        """The quadratic form x^T M x of each row, of shape (m,), for M (p, p)."""
        x, d = self.x, self.x.shape[1]
        M = M.astype(x.dtype, copy=False)
        image = x @ M[:d, :d]
        if self.intercept:
            image += M[:d, d] + M[d, :d]
        out = np.einsum("ij,ij->i", image, x)
        if self.intercept:
            out += M[d, d]
        return out

    def add_squares(self, R, out):
        """Out (p, c) += squares of the rows, transposed, times R (m, c)."""
        DenseTile(np.square(self.x), self.intercept).add_transposed(R, out)

    def add_gram(self, weight, out):
        """Out (p, p) += sum of weight x x^T."""
        root = np.sqrt(weight).astype(self.x.dtype)
        m, d = self.x.shape
        scaled = np.empty((m, d + self.intercept), self.x.dtype)
        np.multiply(self.x, root[:, None], out=scaled[:, :d])
        scaled[:, d:] = root[:, None]
        out += scaled.T @ scaled


class CSRTile:
    """Rows of a CSR matrix."""

    def __init__(self, rows, ids, intercept):
        self.parts = (rows.data, rows.indices, rows.indptr, ids)
        self.dtype = rows.data.dtype
        self.intercept = intercept

    def times(self, M):
        """Rows times M (p, c), in the dtype of the rows."""
        M = np.ascontiguousarray(M, self.dtype)
        out = np.empty((self.parts[3].size, M.shape[1]), self.dtype)
        _csr_kernels.csr_times(*self.parts, M, out)
        if self.intercept:
            out += M[-1]
        return out

    def squares_times(self, M):
        """Squares of the rows times M (p, c), in the dtype of the rows."""
        M = np.ascontiguousarray(M, self.dtype)
        out = np.empty((self.parts[3].size, M.shape[1]), self.dtype)
        _csr_kernels.csr_squares_times(*self.parts, M, out)
        if self.intercept:
            out += M[-1]
        return out

    def quadratic(self, M):
        """The quadratic form x^T M x of each row, of shape (m,), for M (p, p)."""
        M = np.ascontiguousarray(M, np.float64)
        out = np.empty(self.parts[3].size)
        _csr_kernels.csr_quadratic(*self.parts, self.intercept, M, out)
        return out

    def add_transposed(self, R, out):
        """Out (p, c) += rows, transposed, times R (m, c)."""
        R = np.ascontiguousarray(R, np.float64)
        _csr_kernels.csr_add_transposed(*self.parts, R, out)
        if self.intercept:
            out[-1] += R.sum(axis=0)

    def add_squares(self, R, out):
        """Out (p, c) += squares of the rows, transposed, times R (m, c)."""
        R = np.ascontiguousarray(R, np.float64)
        _csr_kernels.csr_add_squares(*self.parts, R, out)
        if self.intercept:
            out[-1] += R.sum(axis=0)

    def add_gram(self, weight, out):
        """Out (p, p) += sum of weight x x^T."""
        _csr_kernels.csr_add_gram(*self.parts, weight, self.intercept, out)
