"""Rows of a source as arrays: all of them, those of a block, some that are drawn."""

import numpy as np
import scipy.sparse as sp

from skvrem.data._batch import draw, sparse

# Places of weights that some are drawn from, at most.
MOST_PLACES = 2**53
# Multiples of it are spread evenly between whole numbers.
GOLDEN = 0.5 * (np.sqrt(5.0) - 1.0)


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


def drawn_rows(data, size, rng, targets=None):
    """Return some rows of a source, their weights or None, and their targets.

    All that have a weight, where these are few. Of more, `size` are drawn as if each
    were there as often as its weight says.

    Parameters
    ----------
    data : source
    size : int
    rng : numpy.random.Generator
    targets : ndarray of shape (n_units, ...), default=None
        Of rows in memory, where the source has none of its own.

    Returns
    -------
    rows : ndarray or csr_array of shape (n_rows, n_features)
    weight : ndarray of shape (n_rows,), or None
    targets : ndarray of shape (n_rows, ...), or None
    """
    few, total = data.n_weighted <= size, data.total_weight
    n_places = data.n_weighted if few else MOST_PLACES
    if size <= total < n_places:
        n_places = int(total)
    # Also where all are taken: what is drawn next is as if others were not there.
    places = draw(n_places, min(size, n_places), rng)
    if not data.has_weights:
        units, weight = places, None
    elif few:
        units, weight = data.weighted()
    else:
        # A place of whole weights is within one row, of others between two or more.
        at = (places + np.arange(size) * GOLDEN % 1.0) * (total / n_places)
        units, times = data.weighted(np.minimum(at, np.nextafter(total, 0.0)))
        weight = times * min(1.0, total / size)
    if data.remote:
        batch = data.fetch(units)
        return rows_of_block(batch)[0], weight, batch.targets
    rows, _ = rows_of(data)
    return rows[units], weight, None if targets is None else targets[units]
