"""Loops over CSR rows: products with dense matrices, sums over rows, quadratic forms.

Rows are ``ids`` of (data, indices, indptr). Columns are read as uint32: numba would
check the sign of a signed one, to count backwards, for as long as a product takes.
"""

import numpy as np

from skvrem.utils._jit import REDUCE, kernel


@kernel(fastmath=REDUCE)
def csr_times(data, indices, indptr, ids, M, out):
    """Out (m, c) = rows of the CSR matrix times M (d, c)."""
    c = M.shape[1]
    for i in range(ids.size):
        start, stop = np.int64(indptr[ids[i]]), np.int64(indptr[ids[i] + 1])
        if c == 1:  # a loop of one turn would take as long as the rest
            total = out.dtype.type(0.0)
            for at in range(start, stop):
                total += data[at] * M[np.uint32(indices[at]), 0]
            out[i, 0] = total
            continue
        for j in range(c):
            out[i, j] = 0.0
        for at in range(start, stop):
            row, x = np.uint32(indices[at]), data[at]
            for j in range(c):
                out[i, j] += x * M[row, j]


@kernel(fastmath=REDUCE)
def csr_add_transposed(data, indices, indptr, ids, R, out):
    """Out (d, c) += rows of the CSR matrix, transposed, times R (m, c)."""
    c = R.shape[1]
    for i in range(ids.size):
        start, stop = np.int64(indptr[ids[i]]), np.int64(indptr[ids[i] + 1])
        if c == 1:
            for at in range(start, stop):
                x = data[at]
                out[np.uint32(indices[at]), 0] += x * R[i, 0]
            continue
        for at in range(start, stop):
            row, x = np.uint32(indices[at]), data[at]
            for j in range(c):
                out[row, j] += x * R[i, j]


@kernel(fastmath=REDUCE)
def csr_add_squares(data, indices, indptr, ids, R, out):
    """Out (d, c) += squares of the rows of the CSR matrix, transposed, times R."""
    c = R.shape[1]
    for i in range(ids.size):
        start, stop = np.int64(indptr[ids[i]]), np.int64(indptr[ids[i] + 1])
        if c == 1:
            for at in range(start, stop):
                x = data[at]
                out[np.uint32(indices[at]), 0] += x * x * R[i, 0]
            continue
        for at in range(start, stop):
            row, x = np.uint32(indices[at]), data[at]
            for j in range(c):
                out[row, j] += x * x * R[i, j]


@kernel
def csr_add_gram(data, indices, indptr, ids, weight, intercept, out):
    """Out (p, p) += sum of weight x x^T, x with a one behind it where asked for."""
    d = out.shape[0] - 1
    for i in range(ids.size):
        start, stop = np.int64(indptr[ids[i]]), np.int64(indptr[ids[i] + 1])
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
def csr_squares_times(data, indices, indptr, ids, M, out):
    """Out (m, c) = squares of the rows of the CSR matrix times M (d, c)."""
    c = M.shape[1]
    for i in range(ids.size):
        start, stop = np.int64(indptr[ids[i]]), np.int64(indptr[ids[i] + 1])
        for j in range(c):
            out[i, j] = 0.0
        for at in range(start, stop):
            row, x = np.uint32(indices[at]), data[at] * data[at]
            for j in range(c):
                out[i, j] += x * M[row, j]


@kernel(fastmath=REDUCE)
def csr_quadratic(data, indices, indptr, ids, intercept, M, out):
    """Out (m,) = x^T M x of rows x, with a one behind them where asked for."""
    d = M.shape[0] - 1
    for i in range(ids.size):
        start, stop = np.int64(indptr[ids[i]]), np.int64(indptr[ids[i] + 1])
        total = M[d, d] if intercept else 0.0
        for at in range(start, stop):
            row, x = np.uint32(indices[at]), data[at]
            for other in range(start, stop):
                total += x * M[row, np.uint32(indices[other])] * data[other]
            if intercept:
                total += x * (M[row, d] + M[d, row])
        out[i] = total
