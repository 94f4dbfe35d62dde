"""Where the rows live: the one place that looks at the type of X.

A *source* knows its units (rows, documents) and offers them three ways:

- ``chunks()``: everything in storage order, for full passes;
- ``blocks(n_blocks, rng)``: a fixed random partition, whose blocks are the
  minibatches of every epoch (variance reduction needs to meet them again);
- ``sample(n_units, rng)``: a few random units in memory, for starting values;
  ``ask(function, units, rng)`` brings a function to units that may be many.

The first two are *partitions*: ``sum(f)`` is the map-reduce of a full pass,
``map(f)`` the same without the reduction, ``shuffled(rng)`` the visits of an epoch.
"""

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from skvrem.data._batch import (
    MemoryPartition,
    RowBatch,
    csr_rows,
    drawn_units,
    is_memmap,
    sparse,
    weighted,
)
from skvrem.utils._algebra import read_only
from skvrem.utils._parallel import row_chunks
from skvrem.utils._remote import is_dask

# Rows a task of a full pass: enough to hide the 20-50 µs that a task costs.
CHUNK_ROWS = 16384
# A memory-mapped block is made of runs this long, so that reading it reads pages, where
# the map is larger than the least. The system keeps smaller ones in memory, and they
# are drawn from as arrays: joblib makes maps of these on its own, and what is found is
# not to depend on where a fit runs.
MEMMAP_RUN_BYTES, MEMMAP_LEAST_BYTES = 1 << 18, 1 << 30


class ArraySource:
    """Rows of an array, a CSR matrix or a memory map.

    Parameters
    ----------
    rows : ndarray of shape (n_units, n_features), C-contiguous, or CSRRows
    n_units : int
    weight : ndarray of float64 of shape (n_units,), or empty
    run : int
        Rows that stay together when blocks are drawn: 1 where any row is as cheap
        to reach as its neighbour.
    targets, groups : ndarray of shape (n_units, ...), or None
        What a model is told of the rows beside their weights.
    stands_for : int or None
        How many rows have the same sums, where these were made of more.
    """

    #: Rows live elsewhere: full passes travel light, minibatches do not.
    remote = False

    def __init__(
        self,
        rows,
        n_units,
        weight,
        run=1,
        targets=None,
        groups=None,
        stands_for=None,
    ):
        self.rows, self.stands_for = rows, stands_for
        self.n_units = n_units
        self.weight = weight
        self.run = run
        self.targets, self.groups = targets, groups
        self.total_weight = float(weight.sum()) if weight.size else float(n_units)
        self.n_weighted = int(np.count_nonzero(weight)) if weight.size else n_units
        self.sparse = sparse(rows)
        self.n_features = rows.n_features if self.sparse else rows.shape[1]

    @property
    def n_entries(self):
        """Numbers that the rows have, those of sparse rows that are not zero."""
        return self.rows.data.size if self.sparse else self.rows.size

    @property
    def dtype(self):
        """Of the rows."""
        return (self.rows.data if self.sparse else self.rows).dtype

    def batch(self, start, stop, block=0, index=None):
        """Return rows `index[start:stop]`, or `start:stop` without an index."""
        if index is None:
            index = np.empty(0, self._index_dtype)
        # Always read-only: a writable index would be another type to compile for.
        ends = read_only(index), start, stop, self.weight, block
        return RowBatch(self.rows, *ends, self.targets, self.groups)

    def chunks(self):
        """All units in storage order."""
        ranges = row_chunks(0, self.n_units, CHUNK_ROWS)
        return MemoryPartition(
            [self.batch(a, b, i) for i, (a, b) in enumerate(ranges)],
            self.total_weight,
        )

    @property
    def _index_dtype(self):
        return np.int32 if self.n_units < 2**31 else np.int64

    def blocks(self, n_blocks, rng):
        """Cut a random order of the units into `n_blocks` blocks of near equal size.

        Costs one index a unit (4 bytes). Within a block the units are sorted: their
        order changes no sum, and memory is read in one direction.
        """
        run = min(self.run, max(1, self.n_units // (8 * n_blocks)))
        order = np.arange(-(-self.n_units // run), dtype=self._index_dtype)
        rng.shuffle(order)
        if run > 1:
            order = self._units_of(order, run)
        edges = [self.n_units * i // n_blocks for i in range(n_blocks + 1)]
        ranges = list(pairwise(edges))
        for a, b in ranges:
            order[a:b].sort()
        return MemoryPartition(
            [self.batch(a, b, i, order) for i, (a, b) in enumerate(ranges)],
            self.total_weight,
        )

    def _units_of(self, runs, length):
        """Return the units of runs that are so long, but for the last of all."""
        order = np.empty((len(runs), length), runs.dtype)
        np.multiply(runs[:, None], runs.dtype.type(length), out=order)
        order += np.arange(length, dtype=order.dtype)
        order = order.ravel()
        missing = order.size - self.n_units
        if missing:
            end = (int(np.argmax(runs)) + 1) * length
            order[end - missing : order.size - missing] = order[end:]
        return order[: self.n_units]

    def sample(self, n_units, rng):
        """Return at most `n_units` random units, drawn without replacement.

        Of those with a weight, unless none has: others would tell nothing.
        """
        return self.fetch(drawn_units(self, n_units, rng))

    def units_at(self, places):
        """Return units at places among those with a weight, in order."""
        return np.flatnonzero(self.weight)[places]

    def without_weightless(self):
        """Return a source of the rows with a weight, where they are half or fewer.

        They are copied: more would take nearly as much memory again, and those of a
        large memory map more than there is.
        """
        if 2 * self.n_weighted > self.n_units or self.run > 1:
            return self
        kept, rows = np.flatnonzero(self.weight), self.rows
        if self.sparse:
            *parts, d = rows
            rows = sp.csr_array(tuple(parts), (self.n_units, d))
        columns = (self.weight, self.targets, self.groups)
        columns = (None if part is None else part[kept] for part in columns)
        return as_source(rows[kept], *columns, self.stands_for)

    @property
    def has_weights(self):
        """Whether rows have weights, zero ones maybe."""
        return self.weight.size > 0

    def weighted(self, places=None):
        """Return units with a weight, or at places of it: see `weighted`."""
        return weighted(self.weight, places)

    def fetch(self, units):
        """Return units of increasing numbers, as a batch."""
        index = units.astype(self._index_dtype, copy=False)
        return self.batch(0, len(units), index=index)

    def ask(self, function, units, rng):
        """Return what a function says of units, and of random numbers."""
        return Held(self.fetch(units)).ask(function, rng)

    def beside(self, fresh, again=None):
        """Return numbers of each row, ``fresh(n_rows)``, which passes may write to.

        Those of rows that lie elsewhere can be lost, and are found `again`.
        """
        return fresh(self.n_units)

    def beside_again(self, again, point):
        """Return numbers of each row, ``again(point, rows)``."""
        return again(point, self.rows)

    def some(self, n_units, rng):
        """Return a source of random units, which lie where all do."""
        return self.sample(n_units, rng)

    def every(self, step):
        """Return every `step`-th unit of dense rows, as a batch."""
        columns = (self.weight, self.targets, self.groups)
        weight, targets, groups = (
            part if part is None else part[::step] for part in columns
        )
        rows, index = self.rows[::step], np.empty(0, self._index_dtype)
        ends = read_only(index), 0, len(rows), weight, 0
        return RowBatch(rows, *ends, targets, groups)


class Held(NamedTuple):
    """A thing that is asked where it is: here."""

    thing: Any

    def ask(self, function, rng):
        """Return what a function says of it, and of random numbers."""
        return function(self.thing, rng)


def as_source(X, sample_weight=None, targets=None, groups=None, stands_for=None):
    """Return the source for X, chosen by its type.

    Parameters
    ----------
    X : validated ndarray, memmap, CSR matrix or array, or dask array
    sample_weight : array-like of shape (n_units,), or None
        One positive weight a unit.
    targets, groups : ndarray of shape (n_units, ...), default=None
        What the model is told of the rows beside their weights.
    stands_for : int, default=None
        How many rows have the same sums, where these were made of more.
    """
    if is_dask(X):
        from skvrem.data._dask import Columns, open_blocks

        columns = Columns(sample_weight, targets, groups)
        return open_blocks(X, lambda rows, columns: None, columns)[0]
    weight = read_only(
        np.empty(0) if sample_weight is None else np.asarray(sample_weight, float)
    )
    beside = {"targets": targets, "groups": groups, "stands_for": stands_for}
    if sp.issparse(X):
        rows, stored = csr_rows(X), X.data
        row_bytes = X.nnz * (stored.itemsize + rows.indices.itemsize) // X.shape[0]
    else:
        rows, stored, row_bytes = read_only(np.asarray(X)), X, X.strides[0]
    run = 1
    if is_memmap(stored) and row_bytes * X.shape[0] > MEMMAP_LEAST_BYTES:
        run = max(1, MEMMAP_RUN_BYTES // max(1, row_bytes))
    return ArraySource(rows, X.shape[0], weight, run, **beside)
