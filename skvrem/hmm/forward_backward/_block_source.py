"""The rows of sequences that lie in the blocks of dask, evaluated where they are.

The client holds where sequences begin, and what a pass adds up.
"""

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from skvrem.data._cut import Cut
from skvrem.hmm.forward_backward._model_passes import Impossible
from skvrem.hmm.forward_backward._source import (
    SequenceRows,
    SequenceSource,
    some_sequences,
)


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


class Kept(Prepared):
    """The same of blocks that are kept as sources."""

    def source(self, block, beside):
        """Return the block."""
        return block


class KnownBlock(NamedTuple):
    """What is known of the sequences of a block."""

    lengths: np.ndarray
    weight: Any
    inputs: Any = None


class SequenceCut(Cut):
    """How the sequences of a block are cut into batches.

    What belongs to a block is its `BlockColumns`, what makes a source of it
    (`Prepared`), how many sequences it has that count, and the number of its first row.
    """

    def n_units(self, block, beside, prepared, n_sequences, first):
        """Return how many sequences a block has."""
        return n_sequences

    def batch(self, number, index, *where):
        """Return some sequences of a block."""
        return self._of(_opened(*where), number, index)

    def batches(self, *where):
        """Return all batches of a block, which is opened once."""
        source, index = _opened(*where), self.index(self.n_units(*where))
        return [self._of(source, number, index) for number in range(self.n_batches)]

    def _of(self, source, number, index):
        start, stop = self.edges(source.n_units)[number : number + 2]
        return source.batch(start, stop, self.first + number, index)


def _opened(block, beside, prepared, n_sequences, first):
    source = prepared.source(block, beside)
    source.rows.first_row = first
    return source


def _numbered(function, batch, *entry):
    """Return what a function says of a batch; errors count the rows of all blocks."""
    try:
        return function(batch, *entry)
    except Impossible as error:
        raise Impossible(error.row + batch.rows.first_row) from None


def _picked(prepared, runs, block, beside):
    """Return rows of a block with all that goes beside them, weights of 1 too."""
    X, lengths, weight, *rest = prepared.source(block, beside).picked(runs)
    return X, lengths, np.ones(len(lengths)) if weight is None else weight, *rest


def _brought(make, prepared, *parts):
    """Return what is made of stretches of several blocks."""
    parts = (
        None if own[0] is None else np.concatenate(own)
        for own in zip(*parts, strict=True)
    )
    source = some_sequences(*parts, prepared.emission, prepared.missing)
    return source if make is None else make(source)


class BlockSource:
    """Sequences as units, in blocks; means are a row.

    Parameters
    ----------
    blocks, beside : list of dask.delayed.Delayed
        Rows, and what belongs to them.
    looks : list
        With the lengths and weights of the sequences of each block, and some inputs;
        None are blocks that weigh nothing.
    prepared : Prepared
    head : ndarray of shape (n, n_columns)
        Some entered rows.
    """

    remote = True

    def __init__(self, blocks, beside, looks, prepared, head):
        from skvrem.data import _dask

        some = [number for number, look in enumerate(looks) if look is not None]
        looks = [looks[number] for number in some]
        self.parts = [blocks[number] for number in some]
        self.beside = [beside[number] for number in some]
        self.emission, self.here = prepared.emission, prepared
        (self.prepared,) = _dask.keep([_dask.send(prepared)])
        self.features = self.emission.features(prepared.missing)
        lengths = np.concatenate([look.lengths for look in looks])
        weight = [
            np.ones(len(look.lengths)) if look.weight is None else look.weight
            for look in looks
        ]
        self.n_units, self.weight = len(lengths), np.concatenate(weight)
        self.total_weight = float(lengths @ self.weight)
        self.edges = np.cumsum([0, *(int(look.lengths.sum()) for look in looks)])
        bounds = np.concatenate([[0], np.cumsum(lengths)])
        self.inputs = looks[0].inputs  # some of them
        first, second, _ = self.features
        self.rows = BlockRows(
            head,
            bounds,
            partial(self.emission.columns, missing=prepared.missing),
            first,
            second,
            np.empty(0, np.int64) if prepared.labelled else None,
            self.emission.n_states_ if prepared.labelled else 0,
            collect=self.emission.collect,
        )
        self.sizes = [len(look.lengths) for look in looks]
        own = zip(looks, weight, strict=True)
        self._weights = [look.lengths * each for look, each in own]
        facts = zip(self.beside, self.sizes, self.edges.tolist(), strict=False)
        self.by_block = [(own, self.prepared, n, first) for own, n, first in facts]
        self.rows.partition = self.chunks()

    #: How a block is cut into batches.
    cut = SequenceCut

    def weights_of(self, cuts):
        """Return the weights of the batches that blocks are cut into."""
        own = zip(cuts, self.sizes, self._weights, strict=True)
        return [weight for cut, n, each in own for weight in cut.weights(n, each)]

    def hold(self, runs, make):
        """Return what a worker makes of some stretches, to be asked there."""
        from skvrem.data import _dask

        runs = np.asarray(runs)
        parts = np.split(runs, np.searchsorted(runs[:, 0], self.edges)[1:-1])
        own = zip(parts, self.edges, self.parts, self.beside, strict=False)
        tasks = [
            _dask.call(_picked, self.prepared, part - edge, *at)
            for part, edge, *at in own
            if len(part)
        ]
        held = _dask.HeldAway(partial(_brought, make), self.prepared, *tasks)
        return held.keep()

    def stretches(self, runs):
        """Return some stretches of sequences, which a worker holds, as sequences."""
        start, stop = np.transpose(runs)
        within = np.searchsorted(self.rows.bounds, start, side="right") - 1
        known = KnownBlock(stop - start, self.weight[within])
        block, how = self.hold(runs, None).tasks, Kept(*self.here)
        return BlockSource(block, [None], [known], how, self.rows.X)

    def chunks(self):
        """All sequences, a block at a time."""
        return BlockPartition(self, [1] * len(self.parts), None)

    def blocks(self, n_blocks, rng):
        """Cut every block into minibatches of sequences, about `n_blocks` in all."""
        shares = np.diff(self.edges) / self.edges[-1]
        counts = [
            int(np.clip(round(n_blocks * share), 1, n))
            for share, n in zip(shares, self.sizes, strict=True)
        ]
        return BlockPartition(self, counts, int(rng.integers(2**31)))


class BlockPartition:
    """Batches of whole sequences, which are evaluated where they lie.

    Parameters
    ----------
    source : BlockSource
    counts : list of int
        Batches of each block.
    seed : int or None
        Orders the sequences within the blocks. None: as they are.
    """

    def __init__(self, source, counts, seed):
        from skvrem.data._dask import DaskPartition

        self.source, self.total_weight = source, source.total_weight
        self.partition = DaskPartition(source, counts, seed)
        #: Rows of each block, where a batch is one.
        self.sizes = np.diff(source.edges).tolist()
        for name in ("mapped", "total"):
            setattr(self, name, getattr(self.partition, name))

    def __len__(self):
        return len(self.partition)

    def map(self, function):
        """Yield ``function(batch)`` in the order of the batches."""
        return self.partition.map(partial(_numbered, function))

    def sum(self, function):
        """Return the sum of ``function(batch)``, reduced in a tree near the rows."""
        return self.partition.sum(partial(_numbered, function))

    def keep(self, function):
        """Return the sum of the first that ``function(batch)`` returns, and a table."""
        return self.partition.keep(partial(_numbered, function))

    def shuffled(self, rng):
        """Yield a visit to every batch."""
        return self.partition.shuffled(rng)

    def visit(self, function, visit, entry=None):
        """Return ``function(batch, entry)``, of a visit and its entry of a table."""
        return self.partition.visit(partial(_numbered, function), visit, entry)

    def renew(self, function, visit, entry):
        """Return both that ``function(batch, entry)`` returns, a new entry behind."""
        return self.partition.renew(partial(_numbered, function), visit, entry)


class BlockTotal(NamedTuple):
    """An array that is added up over blocks."""

    values: np.ndarray


class BlockRows(SequenceRows):
    """What is known of the rows of all blocks, and the first of them."""

    def mean_features(self):
        """Return the means of the features over all rows, made once."""
        if self.means is None:
            total = self.partition.sum(_sum_features).values
            self.means = total / self.bounds[-1]
        return self.means

    def mean_collected(self, n_states, parameters):
        """Return the means of what families collect, the same in every state."""
        total = self.partition.sum(partial(_sum_collected, n_states, parameters))
        return total.values / self.bounds[-1]


def _sum_features(batch):
    return BlockTotal(batch.rows.mean_features() * len(batch.rows.X))


def _sum_collected(n_states, parameters, batch):
    return BlockTotal(
        batch.rows.mean_collected(n_states, parameters) * len(batch.rows.X)
    )
