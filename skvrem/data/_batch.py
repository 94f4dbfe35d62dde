"""Some units of a source, and blocks of them that are all units."""

from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from skvrem.utils._algebra import accumulate, dense, read_only
from skvrem.utils._parallel import parallel_map


class CSRRows(NamedTuple):
    """The arrays of a CSR matrix, as kernels take them."""

    data: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray
    n_features: int


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
    """

    rows: Any
    index: np.ndarray
    start: int
    stop: int
    weight: np.ndarray
    block: int = 0

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
        """Return at most `n_units` of the units, drawn without replacement."""
        n_units = min(n_units, self.n_units)
        chosen = rng.choice(self.n_units, n_units, replace=False, shuffle=False)
        index = read_only(np.sort(self.ids[chosen]))
        return self._replace(index=index, start=0, stop=n_units)


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

    def shuffled(self, rng):
        """Yield every batch once, in random order."""
        for block in rng.permutation(len(self.batches)):
            yield self.batches[block]


def sparse(rows):
    """Whether a container holds sparse rows."""
    return isinstance(rows, CSRRows)
