"""A uniform sample of the rows of a stream, with their targets."""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from skvrem.data._reservoir import weight_of
from skvrem.data._source import as_source


class KeptRows(NamedTuple):
    """Rows of a stream, each with the same probability among those kept.

    Attributes
    ----------
    rows : ndarray or CSR of shape (n_kept, n_features)
    targets : ndarray of shape (n_kept, ...)
    weight : ndarray of shape (n_kept,)
        The users' own.
    keys : ndarray of shape (n_kept,)
        Random numbers: rows are kept whose keys are least.
    n_seen : int
    """

    rows: Any = None
    targets: Any = None
    weight: Any = None
    keys: np.ndarray = np.empty(0)
    n_seen: int = 0

    def after(self, data, targets, most):
        """Return what is kept after some more rows: of all, at most so many."""
        n, n_seen, weight = data.n_units, self.n_seen, weights_of(data)
        # Of the number of rows before, so that a stream does not depend on a seed.
        keys = np.random.default_rng(n_seen).random(n)
        rows = container(data.rows)
        if n_seen:
            rows, targets, weight, keys = (
                joined(*parts)
                for parts in zip(self[:4], (rows, targets, weight, keys), strict=True)
            )
        kept = np.arange(len(keys))  # copies, as users may use arrays again
        if len(keys) > most:
            kept = np.sort(np.argpartition(keys, most)[:most])
        parts = (part[kept] for part in (rows, targets, weight, keys))
        return KeptRows(*parts, n_seen + n)

    @property
    def are_all(self):
        """Whether nothing has been left out."""
        return len(self.keys) == self.n_seen

    @property
    def share(self):
        """How many rows of the stream one that is kept stands for."""
        return self.n_seen / len(self.keys)

    def beside(self, data, targets, times=1.0):
        """Return a source of the rows kept and of new ones, and their targets."""
        if not self.n_seen:
            return data, targets
        weight = joined(self.weight * times, weights_of(data))
        rows = joined(self.rows, container(data.rows))
        return as_source(rows, weight), joined(self.targets, targets)


def weights_of(data):
    """Return the weights of all rows of a source, in double precision."""
    return np.asarray(weight_of(data), float)


def container(rows):
    """Return rows of a source as an array or a sparse one."""
    if isinstance(rows, np.ndarray):
        return rows
    values, indices, starts, n_features = rows
    return sp.csr_array((values, indices, starts), (len(starts) - 1, n_features))


def joined(before, now):
    """Return one after the other; a batch may be sparse, or have an offset, alone."""
    if sp.issparse(before) or sp.issparse(now):
        return sp.vstack([before, now], format="csr")
    if before.ndim < now.ndim:
        before = np.column_stack([before, np.zeros_like(before)])
    if now.ndim < before.ndim:
        now = np.column_stack([now, np.zeros_like(now)])
    return np.concatenate([before, now])
