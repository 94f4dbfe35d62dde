"""Some units of a source, and blocks of them that are all units."""

from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from skvrem.utils._algebra import accumulate, dense, read_only
from skvrem.utils._parallel import parallel_map

# Where `Generator.choice` would take eight bytes for each of many units to draw one in
# DENSE to SPARSE; with fewer it keeps a set.
MANY_UNITS, DENSE, SPARSE = 100_000, 2, 50


class CSRRows(NamedTuple):
    """The arrays of a CSR matrix, as kernels take them."""

    data: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray
    n_features: int


def is_memmap(X):
    """Whether X is a memory map or a view of one."""
    while isinstance(X, np.ndarray):
        if isinstance(X, np.memmap):
            return True
        X = X.base
    return False


def _numbers(array, most):
    """Return columns or positions of a CSR matrix as kernels take them.

    Of one type, so that kernels compile once; but those of a memory map as they are.
    """
    if is_memmap(array):
        return read_only(np.asarray(array))
    dtype = np.int32 if most < 2**31 else np.int64
    return read_only(array.astype(dtype, copy=False))


def csr_rows(X):
    """Return a CSR matrix or array as kernels take it."""
    return CSRRows(
        read_only(np.asarray(X.data)),
        _numbers(X.indices, X.shape[1]),
        _numbers(X.indptr, X.nnz),
        X.shape[1],
    )


class RowBatch(NamedTuple):
    """Some units: rows `index[start:stop]`, or `start:stop` where index is empty.

    Attributes
    ----------
    rows : ndarray of shape (n, n_features) or CSRRows
        The container, never to be written to.
    index : ndarray of int, may be empty
    start, stop : int
    weight : ndarray of float64, one for each row of the container; empty means 1
    block : int
        Number of the block in its partition.
    targets, groups : ndarray of shape (n, ...), or None
        What a model is told of the rows of the container beside their weights.
    """

    rows: Any
    index: np.ndarray
    start: int
    stop: int
    weight: np.ndarray
    block: int = 0
    targets: Any = None
    groups: Any = None

    @property
    def n_units(self):
        """Number of units."""
        return self.stop - self.start

    @property
    def ids(self):
        """Row numbers in the container."""
        if self.index.size:
            return self.index[self.start : self.stop]
        return np.arange(self.start, self.stop)

    @property
    def total_weight(self):
        """Sum of the weights."""
        if not self.weight.size:
            return float(self.n_units)
        return float(self.weight[self.ids].sum())

    # So that some units are a source of their own.

    def chunks(self):
        """All units, in one block: models cut them by themselves."""
        return MemoryPartition([self], self.total_weight)

    def sample(self, n_units, rng):
        """Return at most `n_units` of the units, drawn without replacement.

        Of those with a weight, unless none has.
        """
        ids = self.ids
        if self.weight.size and self.weight[ids].any():
            ids = ids[self.weight[ids] > 0.0]
        n_units = min(n_units, ids.size)
        index = read_only(ids[draw(ids.size, n_units, rng)])
        return self._replace(index=index, start=0, stop=n_units)

    def some(self, n_units, rng):
        """Return the same."""
        return self.sample(n_units, rng)


class MemoryPartition:
    """Blocks in memory, together all units of a source."""

    def __init__(self, batches, total_weight):
        self.batches = batches
        self.total_weight = total_weight

    def __len__(self):
        return len(self.batches)

    def map(self, function):
        """Yield ``function(batch)`` in the order of the blocks."""
        return parallel_map(function, self.batches)

    def sum(self, function):
        """Return the sum of ``function(batch)``, reduced in a fixed order."""
        parts = iter(self.map(function))
        return reduce(accumulate, parts, dense(next(parts), copy=False))

    def reduce(self, function, merge):
        """Return what ``merge(a, b)`` makes of ``function(batch)``, in order."""
        return reduce(merge, self.map(function))

    def shuffled(self, rng):
        """Yield every batch once, in random order."""
        for block in rng.permutation(len(self.batches)):
            yield self.batches[block]

    def keep(self, function):
        """Return the sum of the first that ``function(batch)`` returns, and a table.

        That of the second, one a batch.
        """
        total, table = None, []
        for sums, entry in self.map(function):
            total = accumulate(total, sums)
            table.append(entry)
            del sums, entry  # before the next are made
        return total, table

    def visit(self, function, batch, entry=None):
        """Return ``function(batch, entry)``, of a batch and its entry of a table."""
        return function(batch, entry)

    def renew(self, function, batch, entry):
        """Return both that ``function(batch, entry)`` returns, a new entry behind."""
        return function(batch, entry)

    def mapped(self, function, table):
        """Return the table of ``function(entry)``."""
        return [function(entry) for entry in table]

    def total(self, table):
        """Return the sum of the entries of a table."""
        return reduce(accumulate, table, None)


def draw(n_units, size, rng):
    """Return `size` numbers below `n_units` in order, drawn without replacement.

    In memory of the order of `size`, where `Generator.choice` permutes all numbers.
    """
    if n_units < MANY_UNITS or not DENSE * size < n_units < SPARSE * size:
        return np.sort(rng.choice(n_units, size, replace=False, shuffle=False))
    dtype = np.int32 if n_units < 2**31 else np.int64
    found = np.empty(0, dtype)
    # Any set of so many distinct numbers is as probable as any other.
    while found.size < size:
        more = rng.integers(n_units, size=size - found.size + size // 8, dtype=dtype)
        found = np.sort(np.concatenate([found, more]))
        # np.unique may make a table of hashes, which is larger than all the rest.
        found = found[np.diff(found, prepend=-1) > 0]
    kept = np.ones(found.size, bool)
    kept[rng.choice(found.size, found.size - size, replace=False)] = False
    return found[kept]


def drawn_units(data, size, rng):
    """Return at most `size` units of a source, drawn without replacement, in order.

    Of those with a weight, as if others were not there; unless none has.
    """
    n = data.n_weighted or data.n_units
    places = draw(n, min(size, n), rng)
    return places if n == data.n_units else data.units_at(places)


def weighted(weight, places=None):
    """Return the units that have a weight, and their weights.

    Or, given places of the cumulative weight in order, units and how many of the places
    they have.
    """
    units = np.flatnonzero(weight)
    if places is None:
        return units, weight[units]
    found = np.searchsorted(np.cumsum(weight), places, side="right")
    return np.unique(np.minimum(found, units[-1]), return_counts=True)


def sparse(rows):
    """Whether a container holds sparse rows."""
    return isinstance(rows, CSRRows)
