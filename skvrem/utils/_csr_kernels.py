"""Loops over CSR rows: products with dense matrices, sums over rows, quadratic forms.

Rows are ``ids`` of (data, indices, indptr).
"""

from skvrem.utils._jit import REDUCE, kernel


@kernel(fastmath=REDUCE)
def csr_times(data, indices, indptr, ids, M, out):
    """Out (m, c) = rows of the CSR matrix times M (d, c)."""
    c = M.shape[1]
    for i in range(ids.size):
        if c == 1:  # a loop of one turn would take as long as the rest
            total = out.dtype.type(0.0)
            for at in range(indptr[ids[i]], indptr[ids[i] + 1]):
                total += data[at] * M[indices[at], 0]
            out[i, 0] = total
            continue
        for j in range(c):
            out[i, j] = 0.0
        for at in range(indptr[ids[i]], indptr[ids[i] + 1]):
            row, x = indices[at], data[at]
            for j in range(c):
                out[i, j] += x * M[row, j]


@kernel(fastmath=REDUCE)
def csr_add_transposed(data, indices, indptr, ids, R, out):
    """Out (d, c) += rows of the CSR matrix, transposed, times R (m, c)."""
    c = R.shape[1]
    for i in range(ids.size):
        for at in range(indptr[ids[i]], indptr[ids[i] + 1]):
            row, x = indices[at], data[at]
            for j in range(c):
                out[row, j] += x * R[i, j]


@kernel(fastmath=REDUCE)
def csr_add_squares(data, indices, indptr, ids, R, out):
    """Out (d, c) += squares of the rows of the CSR matrix, transposed, times R."""
    c = R.shape[1]
    for i in range(ids.size):
        for at in range(indptr[ids[i]], indptr[ids[i] + 1]):
            row, x = indices[at], data[at]
            for j in range(c):
                out[row, j] += x * x * R[i, j]


@kernel
def csr_add_gram(data, indices, indptr, ids, weight, intercept, out):
    """Out (p, p) += sum of weight x x^T, x with a one behind it where asked for."""
    d = out.shape[0] - 1
    for i in range(ids.size):
        start, stop = indptr[ids[i]], indptr[ids[i] + 1]
        for at in range(start, stop):
            x, row = weight[i] * data[at], indices[at]
            for other in range(start, stop):
                out[row, indices[other]] += x * data[other]
            if intercept:
                out[row, d] += x
                out[d, row] += x
        if intercept:
            out[d, d] += weight[i]


@kernel(fastmath=REDUCE)
def csr_squares_times(data, indices, indptr, ids, M, out):
    """Out (m, c) = squares of the rows of the CSR matrix times M (d, c)."""
    c = M.shape[1]
    for i in range(ids.size):
        for j in range(c):
            out[i, j] = 0.0
        for at in range(indptr[ids[i]], indptr[ids[i] + 1]):
            row, x = indices[at], data[at] * data[at]
            for j in range(c):
                out[i, j] += x * M[row, j]


@kernel(fastmath=REDUCE)
def csr_quadratic(data, indices, indptr, ids, intercept, M, out):
    """Out (m,) = x^T M x of rows x, with a one behind them where asked for."""
    d = M.shape[0] - 1
    for i in range(ids.size):
        start, stop = indptr[ids[i]], indptr[ids[i] + 1]
        total = M[d, d] if intercept else 0.0
        for at in range(start, stop):
            row, x = indices[at], data[at]
            for other in range(start, stop):
                total += x * M[row, indices[other]] * data[other]
            if intercept:
                total += x * (M[row, d] + M[d, row])
        out[i] = total
