"""A uniform sample of the rows of a stream, with their targets."""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from skvrem.data._reservoir import weight_of
from skvrem.data._source import as_source


class KeptRows(NamedTuple):
    """Rows of a stream, each of a group with the same probability among those kept.

    Attributes
    ----------
    rows : ndarray or CSR of shape (n_kept, n_features)
    targets : ndarray of shape (n_kept, ...)
    weight : ndarray of shape (n_kept,)
        The users' own.
    keys : ndarray of shape (n_kept,)
        Random numbers: rows are kept whose keys are least.
    n_seen : int
    share : ndarray of shape (n_kept,)
        How many rows of its group one that is kept stands for.
    groups : ndarray of shape (n_kept,), or None
        Their ids, where each has a sample of its own.
    """

    rows: Any = None
    targets: Any = None
    weight: Any = None
    keys: np.ndarray = np.empty(0)
    n_seen: int = 0
    share: np.ndarray = np.empty(0)
    groups: Any = None

    def after(self, data, targets, most, groups=None):
        """Return what is kept after some more rows: of a group, at most so many.

        Without groups all rows are of one. Later `most` are not larger.
        """
        n, n_seen, ids = data.n_units, self.n_seen, groups
        # Of the number of rows before, so that a stream does not depend on a seed.
        keys = np.random.default_rng(n_seen).random(n)
        parts = container(data.rows), targets, weights_of(data), keys, np.ones(n)
        if n_seen:
            before = *self[:4], self.share
            parts = [joined(*both) for both in zip(before, parts, strict=True)]
            ids = None if groups is None else joined(self.groups, groups)
        *parts, keys, share = parts
        if ids is None:
            kept = np.arange(len(keys))  # copies, as users may use arrays again
            if len(keys) > most:
                kept = np.sort(np.argpartition(keys, most)[:most])
            share = np.full(len(kept), (n_seen + n) / len(kept))
        else:
            kept, share = _of_each(ids, keys, share, most)
            ids = ids[kept]
        parts = (part[kept] for part in (*parts, keys))
        return KeptRows(*parts, n_seen + n, share, ids)

    @property
    def are_all(self):
        """Whether nothing has been left out."""
        return len(self.keys) == self.n_seen

    def beside(self, data, targets, times=1.0):
        """Return a source of the rows kept and of new ones, and their targets."""
        if not self.n_seen:
            return data, targets
        weight = joined(self.weight * times, weights_of(data))
        rows = joined(self.rows, container(data.rows))
        return as_source(rows, weight), joined(self.targets, targets)


def _of_each(ids, keys, share, most):
    """Return which rows of groups are kept, at most so many of each, and shares."""
    place = np.unique(ids, return_inverse=True)[1]
    order, n_rows = np.lexsort((keys, place)), np.bincount(place)
    rank = np.arange(len(keys)) - np.repeat(np.cumsum(n_rows) - n_rows, n_rows)
    kept = np.sort(order[rank < most])
    total = np.rint(np.bincount(place, share))
    return kept, (total / np.minimum(n_rows, most))[place[kept]]


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
