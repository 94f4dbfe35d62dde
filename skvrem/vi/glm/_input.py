"""Rows of generalised linear models that lie in the blocks of dask."""

from functools import partial

import numpy as np
import scipy.sparse as sp

from skvrem.data import as_source, open_remote
from skvrem.data._batch import sparse
from skvrem.utils._validation import check_block, check_columns_of, check_weighted


def open_blocks(estimator, X, y, sample_weight, reset, kind, offset=None):
    """Return a source of rows that lie elsewhere, and what was seen of their blocks.

    `kind` is that of targets, "labels" or "numbers".
    """
    y, weight = check_columns_of(estimator, X, y, sample_weight, reset=reset)
    look = partial(check_block, sparse=True, y=kind)
    data, seen = open_remote(X, look, weight, y, offset=offset)
    check_weighted(data)
    return data, seen


def few_in_memory(estimator, data):
    """Return a source and its targets, here where rows are fewer than coefficients.

    They fit, then, beside the coefficients, and are turned into their span. Targets of
    rows elsewhere are None: batches bring them.
    """
    if data.n_units >= data.n_features + estimator.fit_intercept:
        return data, None
    batch = data.fetch(np.arange(data.n_units))
    rows = batch.rows
    if sparse(rows):
        *parts, d = rows
        rows = sp.csr_array(tuple(parts), (data.n_units, d))
    weight = batch.weight if batch.weight.size else None
    return as_source(rows, weight), batch.targets
