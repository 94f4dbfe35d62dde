"""Rows of a dask array: passes travel to the blocks, minibatches come block-wise.

A full pass sends the model and its parameters to every block and reduces the
statistics in a tree, so only statistics travel. An epoch of minibatches fetches every
block once, the next two while the last two are at work: a task a minibatch would cost
a round trip each. The array as a whole is never in one place.
"""

from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import reduce
from itertools import pairwise
from operator import getitem

import dask
import numpy as np

from skvrem.data._batch import RowBatch
from skvrem.utils._algebra import accumulate, dense, read_only

# Blocks that are shuffled into each other, in case each holds rows of one kind.
WINDOW = 2


class DaskSource:
    """Rows of a two-dimensional dask array.

    Parameters
    ----------
    X : dask.array.Array of shape (n_units, n_features)
        Of floats, with known sizes, and whole rows in every block.
    sample_weight : ndarray of shape (n_units,), or None
    """

    remote = True

    def __init__(self, X, sample_weight):
        self.n_units, self.n_features = X.shape
        self.parts = [block for row in X.to_delayed() for block in row]
        self.edges = np.concatenate([[0], np.cumsum(X.chunks[0])]).astype(int)
        self.weight = weight = np.empty(0) if sample_weight is None else sample_weight
        self.total_weight = float(weight.sum() if weight.size else self.n_units)
        self.n_weighted = np.count_nonzero(weight) if weight.size else self.n_units

    def any(self, function):
        """Whether ``function(rows)`` holds of any block; errors come through."""
        check = dask.delayed(function)
        return any(dask.compute(*map(check, self.parts)))

    def chunks(self):
        """All units, a block at a time."""
        return DaskPartition(self, [1] * len(self.parts), None)

    def blocks(self, n_blocks, rng):
        """Cut every dask block into minibatches, about `n_blocks` in all."""
        sizes = np.diff(self.edges)
        counts = [
            max(1, round(n_blocks * size / self.n_units)) if size else 0
            for size in sizes
        ]
        return DaskPartition(self, counts, int(rng.integers(2**31)))

    def sample(self, n_units, rng):
        """Fetch at most `n_units` random rows."""
        n_units = min(n_units, self.n_units)
        rows = np.sort(rng.choice(self.n_units, n_units, replace=False, shuffle=False))
        cuts = np.searchsorted(rows, self.edges)
        tasks = [
            dask.delayed(getitem)(part, rows[cuts[i] : cuts[i + 1]] - self.edges[i])
            for i, part in enumerate(self.parts)
        ]
        fetched = np.concatenate(dask.compute(*tasks))
        weight = self.weight[rows] if self.weight.size else self.weight
        index = np.arange(n_units, dtype=np.int32)
        return _batch(fetched, weight, index, 0, n_units, 0)


class DaskPartition:
    """Minibatches of the blocks of a dask array.

    Parameters
    ----------
    source : DaskSource
    counts : list of int
        Minibatches of each block.
    seed : int or None
        Orders the rows within the blocks, the same wherever a block is read. None:
        as they are.
    """

    def __init__(self, source, counts, seed):
        self.source = source
        self.total_weight = source.total_weight
        self.n_batches, self.specs = 0, []
        for part, count in enumerate(counts):
            seeds = None if seed is None else [seed, part]
            weight = source.weight[source.edges[part] : source.edges[part + 1]]
            self.specs.append((count, self.n_batches, seeds, weight))
            self.n_batches += count

    def __len__(self):
        return self.n_batches

    def map(self, function):
        """Yield ``function(batch)`` in the order of the batches."""
        for results in dask.compute(*self._tasks(_map, function)):
            yield from results

    def sum(self, function):
        """Return the sum of ``function(batch)``, reduced in a tree near the rows."""
        layer, add = self._tasks(_sum, function), dask.delayed(_add)
        while len(layer) > 1:
            pairs = [add(*layer[i : i + 2]) for i in range(0, len(layer) - 1, 2)]
            layer = pairs + layer[2 * len(pairs) :]
        return layer[0].compute()

    def _tasks(self, what, function):
        """One for each block, to be made where its rows are."""
        return [
            dask.delayed(what)(part, function, *spec)
            for part, spec in zip(self.source.parts, self.specs, strict=True)
        ]

    def shuffled(self, rng):
        """Yield every batch once, from two blocks at a time, fetching ahead."""
        order = rng.permutation(len(self.specs))
        windows = [order[i : i + WINDOW] for i in range(0, len(order), WINDOW)]
        # The context carries the client into the thread that fetches.
        with ThreadPoolExecutor(1) as pool:
            coming = pool.submit(copy_context().run, self._fetch, windows[0])
            for following in [*windows[1:], None]:
                batches = coming.result()
                if following is not None:
                    coming = pool.submit(copy_context().run, self._fetch, following)
                for i in rng.permutation(len(batches)):
                    yield batches[i]

    def _fetch(self, window):
        blocks = dask.compute(*[self.source.parts[part] for part in window])
        return [
            batch
            for part, block in zip(window, blocks, strict=True)
            for batch in _batches(block, *self.specs[part])
        ]


def _batch(rows, weight, index, start, stop, block):
    rows = np.ascontiguousarray(rows)
    return RowBatch(
        read_only(rows), read_only(index), start, stop, read_only(weight), block
    )


def _batches(rows, count, first, seed, weight):
    """Cut the rows of one dask block into batches."""
    if count == 0:
        return []
    n_rows = len(rows)
    index = np.empty(0, np.int32)
    edges = [n_rows * i // count for i in range(count + 1)]
    if seed is not None:
        index = np.arange(n_rows, dtype=np.int32)
        np.random.default_rng(seed).shuffle(index)
        for start, stop in pairwise(edges):
            index[start:stop].sort()
    return [
        _batch(rows, weight, index, start, stop, first + i)
        for i, (start, stop) in enumerate(pairwise(edges))
    ]


def _map(rows, function, *spec):
    return [function(batch) for batch in _batches(rows, *spec)]


def _sum(rows, function, *spec):
    return reduce(accumulate, _map(rows, function, *spec), None)


def _add(a, b):
    # A copy, as a task must not write to what another has made.
    return accumulate(dense(a), b)
