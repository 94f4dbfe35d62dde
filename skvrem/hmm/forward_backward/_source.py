"""The rows of sequences, as features of what states emit, and blocks of them."""

from functools import partial

import numpy as np

from skvrem.data._batch import MemoryPartition, RowBatch
from skvrem.data._source import ArraySource, Held, is_memmap
from skvrem.hmm.forward_backward._model_blocks import BlockChain, RowBlock
from skvrem.hmm.forward_backward._model_layout import Layout
from skvrem.hmm.forward_backward._model_passes import Passes
from skvrem.hmm.forward_backward._model_sums import SummedPasses, suits
from skvrem.utils._algebra import read_only
from skvrem.utils._parallel import row_chunks

# Numbers made at a time where all rows are looked at.
BLOCK = 1 << 20
# Rows whose features are made at a time where some rows are looked at.
FEATURE_ROWS = 1024
# Numbers that are worth their memory where the same rows are looked at often.
KEPT = 1 << 18
# Rows that say which state has the widest density.
SOME_ROWS = 256


class SequenceRows:
    """The rows of many sequences, one after another.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_features)
    bounds : ndarray of int of shape (n_sequences + 1,)
        Where sequences start, and the number of rows.
    columns : callable
        Makes of some rows the columns that features are products of, by parameters
        where these are given.
    first, second : ndarray of int
        Columns of every feature; -1 is a column of ones.
    labels : ndarray of int of shape (n_rows,), or None
        Known states, -1 where unknown. They add a column for every state, 1 where a
        row is known to be in another.
    n_states : int
        Needed with labels.
    switched : ndarray of bool of shape (n_rows,), or None
        Rows that the other matrix of transitions leads to; no first one of a sequence.
    design : ndarray of shape (n_rows, n_inputs), or None
        What transitions into the rows depend on.
    collect : callable, or None
        Makes sums of rows, their weights in the states, and parameters.
    """

    def __init__(
        self,
        X,
        bounds,
        columns,
        first,
        second,
        labels=None,
        n_states=0,
        switched=None,
        design=None,
        collect=None,
    ):
        self.X = X
        #: Some of long data, which the same kernels pass over.
        self.sampled = False
        self._collect = collect
        #: Laid out anew in every pass, so that a memory map need not fit in memory.
        self.streamed = is_memmap(X)
        self.design = design
        self.switched = switched
        self.bounds = bounds
        self.columns = columns
        self.labels = labels
        self.n_states = n_states
        n_columns = columns(X[:1], parameters=None).shape[1]
        added = np.arange(n_columns, n_columns + n_states)
        self.first = np.concatenate([first, added]).astype(np.int64)
        self.second = np.concatenate([second, np.full(n_states, -1)]).astype(np.int64)
        # Columns, then products of two; and features that are 1.
        ones, single = self.first < 0, (self.first >= 0) & (self.second < 0)
        order = np.append(np.flatnonzero(single), np.flatnonzero(~ones & ~single))
        pairs = self.first[order], self.second[order], int(single.sum())
        self.plain_features = *pairs, order, np.flatnonzero(ones)
        #: Of the features over all rows, once they are known.
        self.means = None
        #: What all rows collect on average beyond what these do, which are some.
        self.beyond = 0.0
        self._layouts, self._some = {}, None

    @property
    def shape(self):
        """Number of sequences and of observed features."""
        return len(self.bounds) - 1, self.X.shape[1]

    def take(self, selection, parameters=None):
        """Return the columns of some rows."""
        columns = self.columns(self.X[selection], parameters=parameters)
        if self.labels is None:
            return columns
        labels = self.labels[selection][:, None]
        others = (labels >= 0) & (labels != np.arange(self.n_states))
        return np.hstack([columns, others])

    def collect(self, selection, weights, parameters):
        """Return sums over rows that states have such weights in."""
        return self._collect(self.X[selection], weights, parameters)

    def features(self, selection, parameters=None):
        """Return the products of columns of some rows."""
        columns = self.take(selection, parameters)
        columns = np.hstack([columns, np.ones((len(columns), 1))])  # column -1
        return columns[:, self.first] * columns[:, self.second]

    @property
    def some_features(self):
        """Of some rows, in columns: 1, and the features as in `plain_features`."""
        if self._some is None:
            n_rows = int(self.bounds[-1])
            picked = np.unique(np.linspace(0, n_rows - 1, SOME_ROWS).astype(np.int64))
            found = self.features(picked)[:, self.plain_features[3]]
            self._some = np.vstack([np.ones(len(found)), found.T])
        return self._some

    def few_features(self, selection):
        """Return the features of some rows, None where they are too many to keep."""
        if len(selection) * len(self.first) > KEPT:
            return None
        return self.features(selection)

    def weighted_features(self, selection, weights, features=None):
        """Return the sums of features over rows that states have such weights in.

        Weights are of shape (n_rows, n_states), features what `few_features` has
        returned. Products of a few rows at a time: there may be many of them. Families
        that follow their parameters have none.
        """
        total = np.zeros((weights.shape[1], len(self.first)))
        for start, stop in row_chunks(0, len(selection), FEATURE_ROWS):
            if features is None:
                products = self.features(selection[start:stop])
            else:
                products = features[start:stop]
            total += weights[start:stop].T @ products
        return total

    def mean_features(self):
        """Return the means of the features over all rows, made once."""
        if self.means is None:
            size, n = max(1, BLOCK // len(self.first)), len(self.X)
            parts = (slice(a, a + size) for a in range(0, n, size))
            sums = (self.features(part).sum(axis=0) for part in parts)
            self.means = sum(sums) / n
        return self.means

    def mean_collected(self, n_states, parameters):
        """Return the means of what families collect, the same in every state."""
        every = np.broadcast_to(1.0 / len(self.X), (len(self.X), n_states))
        return self.collect(slice(None), every, parameters) + self.beyond

    def forget(self):
        """Drop the layouts."""
        self._layouts = {}

    def passes(self, batch, chain, by_row=False):
        """Return the passes over a batch, not yet run."""
        layout = self.layout(batch)
        if not by_row and suits(layout, chain):
            return SummedPasses(layout, chain)
        return Passes(layout, chain, by_row)

    def layout(self, batch):
        """Return the layout of a batch of sequences, made once."""
        key = id(batch.index) * bool(batch.index.size), batch.start, batch.stop
        if key not in self._layouts:
            weight = batch.weight[batch.ids] if batch.weight.size else None
            layout = Layout(self, batch.ids, weight)
            # The index is kept, so that no other gets its id.
            self._layouts[key] = layout, batch.index
        return self._layouts[key][0]


class SequenceBatch(RowBatch):
    """Some sequences, which weigh what their rows do."""

    @property
    def total_weight(self):
        """Sum of the weights of all rows."""
        ids, bounds = self.ids, np.asarray(self.rows.bounds)
        lengths = bounds[ids + 1] - bounds[ids]
        return float(lengths @ self.weight[ids] if self.weight.size else lengths.sum())


class SequenceSource(ArraySource):
    """Sequences as units; means are a row.

    Parameters
    ----------
    sequences : Sequences
    emission : Emission
        Opened on data like these.
    transitions : Transitions, default=None
        The same; needed where they depend on inputs.
    carried : ndarray of shape (n_inputs,), default=None
        Inputs of the row before, where the first sequence goes on from another.
    missing : bool, default=None
        Whether something is, of rows that the emission is for already. None: that is
        to be found out.
    """

    def __init__(
        self, sequences, emission, transitions=None, carried=None, missing=None
    ):
        X, bounds, weight, labels, inputs, _ = sequences
        if missing is None:
            missing = has_missing(X)
            emission = emission.bound(X if missing else X[:0])
        #: The family, for what is missing in these rows.
        self.emission, self.missing = emission, missing
        self.features = emission.features(missing)
        columns = partial(emission.columns, missing=missing)
        first, second, _ = self.features
        n_states = 0 if labels is None else emission.n_states_
        self.inputs, entered = inputs, {}
        if inputs is not None:
            entered = transitions.enter(inputs, bounds, carried)
        rows = SequenceRows(
            X,
            bounds,
            columns,
            first,
            second,
            labels,
            n_states,
            collect=emission.collect,
            **entered,
        )
        lengths = np.diff(bounds)
        unit = np.empty(0) if weight is None else np.asarray(weight, float)
        super().__init__(rows, len(lengths), read_only(unit))
        self.total_weight = float(lengths.sum() if weight is None else lengths @ weight)

    def batch(self, *where, **options):
        """Return some sequences, by number."""
        return SequenceBatch(*super().batch(*where, **options))

    def picked(self, runs):
        """Return rows of stretches, from row to row, and all that goes beside them."""
        rows, (start, stop) = self.rows, np.transpose(runs)
        picked = np.concatenate([np.arange(a, b) for a, b in runs])
        weight, beside = None, (rows.labels, self.inputs)
        if self.weight.size:
            within = np.searchsorted(rows.bounds, start, side="right") - 1
            weight = self.weight[within]
        beside = (None if part is None else part[picked] for part in beside)
        return np.asarray(rows.X[picked]), stop - start, weight, *beside

    def stretches(self, runs):
        """Return some stretches of sequences, from row to row, as sequences."""
        return some_sequences(*self.picked(runs), self.emission, self.missing)

    def hold(self, runs, make):
        """Return what is made of some stretches, to be asked where it is."""
        return Held(make(self.stretches(runs)))

    def whole(self):
        """All sequences as one batch, which is cut for threads inside."""
        return self.batch(0, self.n_units)

    def chunks(self):
        """The same as a partition."""
        return MemoryPartition([self.whole()], self.total_weight)

    def blocks(self, n_blocks, rng):
        """Return a fixed random partition of the sequences."""
        self.rows.forget()
        return super().blocks(n_blocks, rng)


def some_sequences(X, lengths, weight, labels, inputs, emission, missing):
    """Return a source of some rows of long data, which inputs are only kept beside."""
    some = X, np.append(0, np.cumsum(lengths)), weight, labels, None, None
    source = SequenceSource(some, emission, missing=missing)
    source.rows.sampled, source.inputs = True, inputs
    return source


class RowBlockSource:
    """Sequences cut into blocks of consecutive rows, whatever their lengths.

    Parameters
    ----------
    source : SequenceSource
    """

    def __init__(self, source):
        self.source = source
        self.n_units, self.total_weight = source.n_units, source.total_weight

    def chunks(self):
        """All sequences as one batch."""
        return self.source.chunks()

    def blocks(self, n_blocks, rng):
        """Return a fixed partition of the rows."""
        layout = self.source.rows.layout(self.source.whole())
        return RowBlocks(BlockChain(layout, n_blocks), self)


class RowBlocks(MemoryPartition):
    """Blocks of consecutive rows, which hand on their messages."""

    def __init__(self, blocks, source):
        batches = [RowBlock(blocks, block) for block in range(blocks.n_blocks)]
        super().__init__(batches, source.total_weight)

    def map(self, function):
        """Yield ``function(batch)`` in the order of the blocks; messages are exact."""
        return (function(batch._replace(full=True)) for batch in self.batches)

    def shuffled(self, rng):
        """Yield every batch once, in order: each finds a fresh message from before."""
        yield from self.batches


def has_missing(X):
    """Whether X holds NaN."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isnan(X.sum(dtype=float))) and bool(np.isnan(X).any())
