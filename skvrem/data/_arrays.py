"""Rows of a source as arrays: all of them, those of a block, some that are drawn."""

import scipy.sparse as sp

from skvrem.data._batch import draw, sparse


def rows_of_block(batch):
    """Return rows, as an array or a sparse one, and their weights or None."""
    rows = batch.rows
    if sparse(rows):
        *parts, d = rows
        rows = sp.csr_array(tuple(parts), (batch.n_units, d))
    return rows, batch.weight if batch.weight.size else None


def rows_of(data):
    """Return the same of a source in memory, with one entry a place."""
    rows, weight = data.rows, data.weight if data.weight.size else None
    if hasattr(rows, "indptr"):
        parts = rows.data, rows.indices, rows.indptr
        rows = sp.csr_array(parts, (data.n_units, data.n_features))
        if not rows.has_canonical_format:
            rows = rows.copy()
            rows.sum_duplicates()
    return rows, weight


def drawn_rows(data, targets, size, rng):
    """Return some rows of a source, their weights or None, and their targets."""
    units = draw(data.n_units, min(size, data.n_units), rng)
    if data.remote:
        batch = data.fetch(units)
        return *rows_of_block(batch), batch.targets
    rows, weight = rows_of(data)
    return rows[units], None if weight is None else weight[units], targets[units]
