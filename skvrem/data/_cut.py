"""How the units of a block that lies elsewhere are cut into batches."""

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from skvrem.data._batch import RowBatch, csr_rows, sparse
from skvrem.utils._algebra import read_only


class Cut(NamedTuple):
    """How the rows of a block are cut into batches.

    Attributes
    ----------
    n_batches, first : int
        How many, and the number of the first.
    seed : list of int, or None
        Orders the rows, the same wherever the block is read. None: as they are.
    """

    n_batches: int
    first: int
    seed: Any

    def edges(self, n_rows):
        """Return where batches begin, and the number of rows."""
        return [n_rows * i // self.n_batches for i in range(self.n_batches + 1)]

    def index(self, n_rows):
        """Return the rows in the order of the batches; empty: as they are."""
        if self.seed is None:
            return np.empty(0, np.int32)
        index = np.arange(n_rows, dtype=np.int32)
        np.random.default_rng(self.seed).shuffle(index)
        for start, stop in pairwise(self.edges(n_rows)):
            index[start:stop].sort()
        return index

    def n_units(self, rows, *columns):
        """Return how many units a block has."""
        return rows.shape[0]

    def batch(self, number, index, rows, *columns):
        """Return a batch of a block, of so many of its own before it."""
        ends = self.edges(rows.shape[0])[number : number + 2]
        return batch_of(rows, columns, index, *ends, self.first + number)

    def batches(self, rows, *columns):
        """Return all batches of a block."""
        if not self.n_batches:
            return []
        index = self.index(self.n_units(rows, *columns))
        numbers = range(self.n_batches)
        return [self.batch(number, index, rows, *columns) for number in numbers]

    def weights(self, n_rows, weight):
        """Return the weights of the batches of a block."""
        if not self.n_batches:
            return []
        index, edges = self.index(n_rows), self.edges(n_rows)
        if index.size:
            weight = weight[index]
        return [float(weight[start:stop].sum()) for start, stop in pairwise(edges)]


def batch_of(rows, columns, index, start, stop, block):
    """Return some rows of a block as models take them."""
    if sp.issparse(rows):
        rows = csr_rows(rows)
    elif not sparse(rows):
        rows = read_only(np.ascontiguousarray(rows))
    weight, targets, groups = columns[:3]
    weight = np.empty(0) if weight is None else weight
    ends = read_only(index), start, stop, read_only(np.asarray(weight, float)), block
    return RowBatch(rows, *ends, _own(targets), _own(groups))


def _own(values):
    """Return an array that could be written to: what came by wire is another type."""
    writeable = values is None or values.flags.writeable
    return values if writeable else values.copy()
