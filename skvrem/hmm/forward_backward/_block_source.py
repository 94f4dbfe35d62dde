"""The rows of sequences that lie in the blocks of dask, evaluated where they are.

The client holds where sequences begin, and what a pass adds up.
"""

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from skvrem.hmm.forward_backward._model_passes import Impossible
from skvrem.hmm.forward_backward._source import SequenceRows, SequenceSource


class Prepared(NamedTuple):
    """What makes a source of a block.

    Attributes
    ----------
    opener : object
        Its `open` makes validated sequences of a block.
    emission : Emission
        For what is missing in any block.
    transitions : Transitions
    missing : bool
    labelled : bool
        Some rows, of any block, are of a known state.
    """

    opener: Any
    emission: Any
    transitions: Any
    missing: bool
    labelled: bool

    def source(self, block, beside):
        """Return the sequences of a block as a source in memory."""
        sequences = self.opener.open(block, beside)
        X, labels = sequences.X, sequences.labels
        if self.labelled and labels is None:
            labels = np.full(len(X), -1)
        sequences = sequences._replace(X=self.emission.enter(X), labels=labels)
        families = self.emission, self.transitions
        source = SequenceSource(sequences, *families, missing=self.missing)
        source.rows.streamed = True  # rows are held once, and laid out in every pass
        return source


def _visit(prepared, function, first, block, beside):
    """Return what a function says of the sequences of a block."""
    try:
        return function(prepared.source(block, beside).whole())
    except Impossible as error:
        raise Impossible(error.row + first) from None


def _pick(prepared, rows, block, beside):
    """Return some rows of a block, with labels and inputs."""
    source = prepared.source(block, beside)
    of = source.rows.X, source.rows.labels, source.inputs
    return tuple(None if part is None else part[rows] for part in of)


class BlockSource:
    """Sequences as units, in blocks; means are a row.

    Parameters
    ----------
    laid : Laid
    looks : list of Look or None
        Of its blocks; None weigh nothing.
    prepared : Prepared
    head : ndarray of shape (n, n_columns)
        Some entered rows.
    """

    remote = True

    def __init__(self, laid, looks, prepared, head):
        from skvrem.data import _dask

        some = [number for number, look in enumerate(looks) if look is not None]
        looks = [looks[number] for number in some]
        self.blocks = [laid.blocks[number] for number in some]
        self.beside = [laid.beside[number] for number in some]
        self.emission, self.prepared = prepared.emission, _dask.send(prepared)
        self.features = self.emission.features(prepared.missing)
        lengths = np.concatenate([look.lengths for look in looks])
        weight = [
            np.ones(len(look.lengths)) if look.weight is None else look.weight
            for look in looks
        ]
        self.n_units = len(lengths)
        self.total_weight = float(lengths @ np.concatenate(weight))
        self.edges = np.cumsum([0, *(int(look.lengths.sum()) for look in looks)])
        bounds = np.concatenate([[0], np.cumsum(lengths)])
        picked = Picked(self)
        has_inputs = looks[0].inputs is not None
        self.inputs = picked.of(2) if has_inputs else None
        first, second, _ = self.features
        self.rows = BlockRows(
            picked.of(0, head),
            bounds,
            partial(self.emission.columns, missing=prepared.missing),
            first,
            second,
            picked.of(1) if prepared.labelled else None,
            self.emission.n_states_ if prepared.labelled else 0,
            collect=self.emission.collect,
        )
        self.rows.partition = self.chunks()

    def __len__(self):
        return len(self.blocks)

    def chunks(self):
        """All sequences, a block at a time."""
        return BlockPartition(self)


class BlockPartition:
    """Blocks of whole sequences, which are visited where they lie."""

    def __init__(self, source):
        self.source = source
        self.total_weight = source.total_weight

    def __len__(self):
        return len(self.source)

    def _tasks(self, function):
        from skvrem.data import _dask

        source, function = self.source, _dask.send(function)
        places = zip(source.edges, source.blocks, source.beside, strict=False)
        return [
            _dask.call(_visit, source.prepared, function, int(first), *own)
            for first, *own in places
        ]

    def map(self, function):
        """Yield ``function(batch)`` in the order of the blocks."""
        from skvrem.data import _dask

        yield from _dask.compute(*self._tasks(function))

    def sum(self, function):
        """Return the sum of ``function(batch)``, reduced in a tree near the rows."""
        from skvrem.data import _dask

        return _dask.add_up(self._tasks(function))


class Picked:
    """Rows that are fetched by their numbers, the last of which are remembered."""

    def __init__(self, source):
        self.source = source
        self.key, self.found = None, None

    def of(self, part, head=None):
        """Return rows, labels or inputs as what looks like an array."""
        return Column(self, part, head)

    def fetch(self, rows):
        """Return rows of any numbers, with labels and inputs."""
        from skvrem.data import _dask

        rows = np.asarray(rows)
        if self.key is None or not np.array_equal(self.key, rows):
            numbers, back = np.unique(rows, return_inverse=True)
            source, edges = self.source, self.source.edges
            cuts = np.searchsorted(numbers, edges)
            tasks = [
                _dask.call(_pick, source.prepared, numbers[a:b] - edges[i], *own)
                for i, (a, b, *own) in enumerate(
                    zip(cuts[:-1], cuts[1:], source.blocks, source.beside, strict=True)
                )
                if a < b
            ]
            parts = zip(*_dask.compute(*tasks), strict=True)
            self.found = [
                None if own[0] is None else np.concatenate(own)[back] for own in parts
            ]
            self.key = rows.copy()
        return self.found


class Column:
    """Rows, labels or inputs of all blocks, of which some can be fetched."""

    def __init__(self, picked, part, head):
        self.picked, self.part, self.head = picked, part, head

    def __getitem__(self, rows):
        if isinstance(rows, slice):
            return self.head[rows]
        return self.picked.fetch(rows)[self.part]


class BlockTotal(NamedTuple):
    """An array that is added up over blocks."""

    values: np.ndarray


class BlockRows(SequenceRows):
    """The rows of all blocks, of which some can be fetched."""

    def mean_features(self, parameters=None):
        """Return the means of the features over all rows, of no parameters once."""
        if self._mean is None or parameters is not None:
            total = self.partition.sum(partial(_sum_features, parameters)).values
            self._mean = total / self.bounds[-1]
        return self._mean

    def mean_collected(self, n_states, parameters):
        """Return the means of what families collect, the same in every state."""
        total = self.partition.sum(partial(_sum_collected, n_states, parameters))
        return total.values / self.bounds[-1]


def _sum_features(parameters, batch):
    return BlockTotal(batch.rows.mean_features(parameters) * len(batch.rows.X))


def _sum_collected(n_states, parameters, batch):
    return BlockTotal(
        batch.rows.mean_collected(n_states, parameters) * len(batch.rows.X)
    )
