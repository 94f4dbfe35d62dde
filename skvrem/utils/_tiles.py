"""Products with a tile of rows, dense or CSR, with a column of ones behind or not.

Dense products are BLAS's, on tiles that stay in the second-level cache: a pass reads
every row from memory once for its logits and its share of the gradient. CSR rows are
``ids`` of (data, indices, indptr). Columns are uint32 and positions uint64: numba would
check the sign of a signed one, to count backwards, for as long as a product takes.
"""

import numpy as np

from skvrem.utils._jit import REDUCE, kernel

# What kernels take of the rows: their length is known where they are compiled.
ROWS, SQUARES = (), (0,)
# Steps of positions.
ONE, TWO, THREE, FOUR = map(np.uint64, (1, 2, 3, 4))


@kernel(fastmath=REDUCE)
def _entry(data, at, power):
    """An entry of a CSR matrix, or its square."""
    x = data[at]
    return x * x if len(power) else x


# Sums of gathered vectors, or a chain of fused products and sums, would take longer.
@kernel
def csr_times(data, indices, indptr, ids, power, M, out):
    """Out (m, c) = rows of the CSR matrix, or their squares, times M (d, c)."""
    c = M.shape[1]
    column = M.ravel()  # of which a matrix of one column is a view
    for i in range(ids.size):
        start, stop = np.uint64(indptr[ids[i]]), np.uint64(indptr[ids[i] + 1])
        if c == 1:  # a loop of one turn would take as long as the rest
            total = out.dtype.type(0.0)
            for at in range(start, stop):
                total += _entry(data, at, power) * column[np.uint32(indices[at])]
            out[i, 0] = total
            continue
        for j in range(c):
            out[i, j] = 0.0
        # Four at a time, as each sum waits for the one before.
        middle = stop - (stop - start) % FOUR
        for at in range(start, middle, FOUR):
            at1, at2, at3 = at + ONE, at + TWO, at + THREE
            row0, x0 = np.uint32(indices[at]), _entry(data, at, power)
            row1, x1 = np.uint32(indices[at1]), _entry(data, at1, power)
            row2, x2 = np.uint32(indices[at2]), _entry(data, at2, power)
            row3, x3 = np.uint32(indices[at3]), _entry(data, at3, power)
            for j in range(c):
                some = (x0 * M[row0, j] + x1 * M[row1, j]) + x2 * M[row2, j]
                out[i, j] += some + x3 * M[row3, j]
        for at in range(middle, stop):
            row, x = np.uint32(indices[at]), _entry(data, at, power)
            for j in range(c):
                out[i, j] += x * M[row, j]


@kernel(fastmath=REDUCE)
def csr_add_transposed(data, indices, indptr, ids, power, R, out):
    """Out (d, c) += rows of the CSR matrix, or their squares, transposed, times R."""
    c = R.shape[1]
    for i in range(ids.size):
        start, stop = np.uint64(indptr[ids[i]]), np.uint64(indptr[ids[i] + 1])
        if c == 1:
            for at in range(start, stop):
                x = _entry(data, at, power)
                out[np.uint32(indices[at]), 0] += x * R[i, 0]
            continue
        for at in range(start, stop):
            row, x = np.uint32(indices[at]), _entry(data, at, power)
            for j in range(c):
                out[row, j] += x * R[i, j]


@kernel
def csr_add_gram(data, indices, indptr, ids, weight, intercept, out):
    """Out (p, p) += sum of weight x x^T, x with a one behind it where asked for."""
    d = out.shape[0] - 1
    for i in range(ids.size):
        start, stop = np.uint64(indptr[ids[i]]), np.uint64(indptr[ids[i] + 1])
        for at in range(start, stop):
            x, row = weight[i] * data[at], np.uint32(indices[at])
            for other in range(start, stop):
                out[row, np.uint32(indices[other])] += x * data[other]
            if intercept:
                out[row, d] += x
                out[d, row] += x
        if intercept:
            out[d, d] += weight[i]


@kernel(fastmath=REDUCE)
def csr_quadratic(data, indices, indptr, ids, intercept, M, out):
    """Out (m,) = x^T M x of rows x, with a one behind them where asked for."""
    d = M.shape[0] - 1
    for i in range(ids.size):
        start, stop = np.uint64(indptr[ids[i]]), np.uint64(indptr[ids[i] + 1])
        total = M[d, d] if intercept else 0.0
        for at in range(start, stop):
            row, x = np.uint32(indices[at]), data[at]
            for other in range(start, stop):
                total += x * M[row, np.uint32(indices[other])] * data[other]
            if intercept:
                total += x * (M[row, d] + M[d, row])
        out[i] = total


@kernel
def products_of_pairs(x, intercept, out):
    """Fill out (m, q) with x_i x_j, i <= j, of rows, a one behind them if asked for."""
    m, d = x.shape
    for row in range(m):
        at = 0
        for i in range(d):
            for j in range(i, d):
                out[row, at + j - i] = x[row, i] * x[row, j]
            at += d - i
            if intercept:
                out[row, at] = x[row, i]
                at += 1
        if intercept:
            out[row, at] = 1.0


@kernel
def csr_rows_renumbered(data, indices, starts, ids, kept, indptr, place, counts, index):
    """Copy rows of a CSR matrix, their columns by their places among those `kept`.

    Parameters
    ----------
    data, indices, starts : arrays of the matrix
    ids : int32 array of shape (n_rows,)
    kept : int32 array of shape (n_kept,)
        All columns that the rows have.
    indptr : int64 array of shape (n_rows + 1,)
        Where they begin in the copy.
    place : int32 array of shape (n_features,)
        Written: scratch.
    counts, index : arrays of shape (n_nonzeros,)
        Written.
    """
    for j in range(kept.size):
        place[kept[j]] = j
    for i in range(ids.size):
        first, last = starts[ids[i]], starts[ids[i] + 1]
        old_counts, old_columns = data[first:last], indices[first:last]
        new_counts = counts[indptr[i] : indptr[i + 1]]
        new_columns = index[indptr[i] : indptr[i + 1]]
        for j in range(last - first):
            new_counts[j] = old_counts[j]
        for j in range(last - first):
            new_columns[j] = place[old_columns[j]]


# Products of pairs of columns that are made at once, and the fewest rows: few enough
# for a cache. Matrices for each column from which on they are made at all.
PRODUCTS, FEWEST_PRODUCTS, MATRICES_A_COLUMN = 250_000, 16, 0.5
# Elements of a dense tile, its least and most rows, and the rows of a CSR tile.
TILE_SIZE, FEWEST_ROWS, MOST_ROWS = 200_000, 256, 4096


def tiles(batch, start, stop, intercept, center=None):
    """Yield tiles of the rows start..stop of a batch, and their numbers (or a slice).

    Parameters
    ----------
    batch : skvrem.data.RowBatch
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

    sparse = False

    def __init__(self, x, intercept):
        self.x = x
        self.intercept = intercept

    def take(self, rows):
        """The tile of some of the rows."""
        return DenseTile(self.x[rows], self.intercept)

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

    def squared(self):
        """The tile of the rows' squares."""
        return DenseTile(np.square(self.x), self.intercept)

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

    def add_gram(self, weight, out):
        """Out (p, p) += sum of weight x x^T."""
        root = np.sqrt(weight).astype(self.x.dtype)
        m, d = self.x.shape
        scaled = np.empty((m, d + self.intercept), self.x.dtype)
        np.multiply(self.x, root[:, None], out=scaled[:, :d])
        scaled[:, d:] = root[:, None]
        out += scaled.T @ scaled

    def quadratics(self, matrices):
        """Return the quadratic forms (m, n) of each row for `matrices` (n, p, p).

        Of many they are products with the row's pairs of columns, half as many.
        """
        n, p, _ = matrices.shape
        if n < MATRICES_A_COLUMN * p:
            return np.stack([self.quadratic(M) for M in matrices], axis=1)
        first, second = np.triu_indices(p)
        packed = matrices[:, first, second] + matrices[:, second, first]
        packed[:, first == second] *= 0.5
        packed = np.ascontiguousarray(packed.T, self.x.dtype)
        out = np.empty((len(self.x), n), self.x.dtype)
        for some, products in self._products():
            np.matmul(products, packed, out=out[some])
        return out

    def add_grams(self, weights, out):
        """Out (n, p, p) += sums of weight x x^T, for weights (m, n) of any sign."""
        n, p, _ = out.shape
        weights = weights.astype(self.x.dtype, copy=False)
        if n < MATRICES_A_COLUMN * p:
            rows = self.x
            if self.intercept:
                rows = np.column_stack([rows, np.ones(len(rows), rows.dtype)])
            for i in range(n):
                out[i] += rows.T @ (rows * weights[:, i, None])
            return
        packed = np.zeros((p * (p + 1) // 2, n))
        for some, products in self._products():
            packed += products.T @ weights[some]
        first, second = np.triu_indices(p)
        out[:, first, second] += packed.T
        below = first != second
        out[:, second[below], first[below]] += packed[below].T

    def _products(self):
        """Yield some rows after the others, and products of their pairs of columns."""
        m, p = len(self.x), self.x.shape[1] + self.intercept
        n_pairs = p * (p + 1) // 2
        size = min(m, max(PRODUCTS // n_pairs, FEWEST_PRODUCTS))
        products = np.empty((size, n_pairs), self.x.dtype)
        for start in range(0, m, size):
            x = self.x[start : start + size]
            products_of_pairs(x, self.intercept, products)
            yield slice(start, start + len(x)), products[: len(x)]


class CSRTile:
    """Rows of a CSR matrix."""

    sparse = True

    def __init__(self, rows, ids, intercept, power=ROWS):
        self.rows, self.ids, self.intercept, self.power = rows, ids, intercept, power
        self.parts = (rows.data, rows.indices, rows.indptr, ids)
        self.dtype = rows.data.dtype

    def take(self, rows):
        """The tile of some of the rows."""
        ids = self.ids[rows]
        ids.flags.writeable = False
        return CSRTile(self.rows, ids, self.intercept, self.power)

    def squared(self):
        """The tile of the rows' squares, for products with vectors."""
        return CSRTile(self.rows, self.ids, self.intercept, SQUARES)

    def times(self, M):
        """Rows times M (p, c), in the dtype of the rows."""
        M = np.ascontiguousarray(M, self.dtype)
        out = np.empty((self.ids.size, M.shape[1]), self.dtype)
        csr_times(*self.parts, self.power, M, out)
        if self.intercept:
            out += M[-1]
        return out

    def quadratic(self, M):
        """The quadratic form x^T M x of each row, of shape (m,), for M (p, p)."""
        M = np.ascontiguousarray(M, np.float64)
        out = np.empty(self.ids.size)
        csr_quadratic(*self.parts, self.intercept, M, out)
        return out

    def add_transposed(self, R, out):
        """Out (p, c) += rows, transposed, times R (m, c)."""
        R = np.ascontiguousarray(R, np.float64)
        csr_add_transposed(*self.parts, self.power, R, out)
        if self.intercept:
            out[-1] += R.sum(axis=0)

    def add_gram(self, weight, out):
        """Out (p, p) += sum of weight x x^T."""
        csr_add_gram(*self.parts, weight, self.intercept, out)

    def quadratics(self, matrices):
        """Return the quadratic forms (m, n) of each row for `matrices` (n, p, p)."""
        return np.stack([self.quadratic(M) for M in matrices], axis=1)

    def add_grams(self, weights, out):
        """Out (n, p, p) += sums of weight x x^T, for weights (m, n) of any sign."""
        for weight, gram in zip(np.ascontiguousarray(weights.T), out, strict=True):
            self.add_gram(weight, gram)
