"""Rows of a stream that are kept, with their targets: all, or a sample."""

from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from skvrem.data._reservoir import weight_of
from skvrem.data._source import as_source

#: Bytes that estimators keep of a stream at most, to see its rows again.
MOST_BYTES = 8_000_000
#: Share of the bytes allowed that is left when rows take more.
LEFT = 0.75


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

    @property
    def n_bytes(self):
        """What the rows take, with all that belongs to them."""
        rows, targets, weight, keys, _, share, groups = self
        return _bytes_of(rows, targets, weight, keys, share, groups)

    def beside(self, data, targets, times=1.0):
        """Return a source of the rows kept and of new ones, and their targets."""
        if not self.n_seen:
            return data, targets
        return _beside(self, self.weight * times, data, targets)


class StoredRows(NamedTuple):
    """Rows of a stream that lie together.

    Attributes
    ----------
    rows : ndarray or CSR of shape (n_rows, n_features)
    targets : ndarray of shape (n_rows, ...)
    weight : ndarray of shape (n_rows,)
        The users' own.
    share : ndarray of shape (n_rows,)
        How many rows each of them stands for.
    """

    rows: Any
    targets: np.ndarray
    weight: np.ndarray
    share: np.ndarray

    @property
    def n_rows(self):
        """How many they are."""
        return len(self.share)

    @property
    def n_bytes(self):
        """What the rows take, with all that belongs to them."""
        return _bytes_of(*self)

    def some(self, which):
        """Return a copy of rows of some numbers."""
        return StoredRows(*(array[which] for array in self))


class StreamRows(NamedTuple):
    """Rows of a stream: all of them up to a number of bytes, then a sample.

    Sums over the sample, of rows times their shares, have the means of sums over all
    rows: a row that is drawn with probability p stands for 1 / p times as many.

    Attributes
    ----------
    parts : tuple of StoredRows
        As they came, each of twice as many rows as the next, so that a row is copied
        as often as their number has doubled, and a batch costs by its own size.
    n_seen : int
    """

    parts: tuple = ()
    n_seen: int = 0

    def after(self, data, targets, most, least, spread_of):
        """Return what is kept after some more rows.

        Parameters
        ----------
        data : source
        targets : ndarray of shape (n_rows, ...)
        most : int
            Bytes. Where rows take more, their number falls by more than it has to, so
            that it does so seldom.
        least : int
            Rows that are kept, however long they are.
        spread_of : callable
            Returns numbers that rows matter by, (n_rows,), none below zero. The
            probability to be kept, of rows kept before as well, is in proportion to
            1 plus the share of the mean, times weight.
        """
        n_new, weight = data.n_units, weights_of(data)
        new = StoredRows(container(data.rows), targets, weight, np.ones(n_new))
        parts, n_kept = (*self.parts, new), self.n_kept + n_new
        n_bytes = sum(part.n_bytes for part in parts)
        if n_bytes > most and n_kept > least:
            n_left = max(least, int(LEFT * most / n_bytes * n_kept))
            # Of the number of rows before, so that a stream does not depend on a seed.
            rng = np.random.default_rng(self.n_seen)
            parts = _drawn(parts, n_left, spread_of, rng)
        else:  # a copy, as users may use arrays again
            parts = *self.parts, new.some(np.arange(n_new))
        merged = []
        for part in parts:
            if part.n_rows:
                merged.append(part)
            while len(merged) > 1 and merged[-2].n_rows < 2 * merged[-1].n_rows:
                last = merged.pop()
                merged[-1] = StoredRows(*map(joined, merged[-1], last))
        return StreamRows(tuple(merged), self.n_seen + n_new)

    @property
    def n_kept(self):
        """How many rows there are."""
        return sum(part.n_rows for part in self.parts)

    @property
    def are_all(self):
        """Whether nothing has been left out."""
        return self.n_kept == self.n_seen

    def whole(self):
        """Return all rows that are kept, as one part."""
        return reduce(
            lambda first, last: StoredRows(*map(joined, first, last)), self.parts
        )

    def beside(self, data, targets):
        """Return a source that stands for all rows and for new ones, and targets."""
        if not self.n_kept:
            return data, targets
        kept = self.whole()
        return _beside(kept, kept.weight * kept.share, data, targets)


def _beside(kept, weight, data, targets):
    """Return a source of rows that are kept, of some weight, and new ones; targets."""
    rows = joined(kept.rows, container(data.rows))
    source = as_source(rows, joined(weight, weights_of(data)))
    return source, joined(kept.targets, targets)


def _drawn(parts, n, spread_of, rng):
    """Return at most n rows of some parts; see :meth:`StreamRows.after`.

    By systematic sampling, which leaves each part of a stream its share. Rows that
    hardly matter have at least half the probability of a uniform sample.
    """
    sizes = np.concatenate([part.weight * part.share for part in parts])
    spread = np.concatenate([spread_of(part.rows) for part in parts])
    least, n = np.finfo(float).tiny, min(n, np.count_nonzero(sizes))
    sizes *= 1.0 + spread / max(np.average(spread, weights=sizes), least)
    certain = np.zeros(len(sizes), bool)
    while True:
        p = (n - certain.sum()) * sizes / max(sizes[~certain].sum(), least)
        p[certain] = 1.0
        more = p > 1.0
        if not more.any():
            break
        certain |= more
    passed = np.floor(np.cumsum(p) + rng.random())
    chosen, drawn, first = np.diff(passed, prepend=0.0) > 0.0, [], 0
    for part in parts:
        here = first + np.flatnonzero(chosen[first : first + part.n_rows])
        some = part.some(here - first)
        drawn.append(some._replace(share=some.share / p[here]))
        first += part.n_rows
    return drawn


def _bytes_of(rows, *others):
    """Return what rows take, with what belongs to them; some may not be there."""
    parts = [rows]
    if sp.issparse(rows):
        parts = [rows.data, rows.indices, rows.indptr]
    return sum(part.nbytes for part in (*parts, *others) if part is not None)


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
