"""The rows of sequences, as features of what states emit, and their layouts."""

import numpy as np

from skvrem.hmm.forward_backward._model_layout import Layout
from skvrem.hmm.forward_backward._model_passes import Passes

__all__ = ["SequenceRows"]

# Numbers made at a time where all rows are looked at.
BLOCK = 1 << 20


class SequenceRows:
    """The rows of many sequences, one after another.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_features)
    bounds : ndarray of int of shape (n_sequences + 1,)
        Where sequences start, and the number of rows.
    columns : callable
        Makes of some rows the columns that features are products of.
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
    ):
        self.X = X
        self.design = design
        self.switched = switched
        self.bounds = bounds
        self.columns = columns
        self.labels = labels
        self.n_states = n_states
        n_columns = columns(X[:1]).shape[1]
        added = np.arange(n_columns, n_columns + n_states)
        self.first = np.concatenate([first, added]).astype(np.int64)
        self.second = np.concatenate([second, np.full(n_states, -1)]).astype(np.int64)
        self._layouts, self._mean = {}, None

    @property
    def shape(self):
        """Number of sequences and of observed features."""
        return len(self.bounds) - 1, self.X.shape[1]

    def take(self, selection):
        """Return the columns of some rows."""
        columns = self.columns(self.X[selection])
        if self.labels is None:
            return columns
        labels = self.labels[selection, None]
        others = (labels >= 0) & (labels != np.arange(self.n_states))
        return np.hstack([columns, others])

    def features(self, selection):
        """Return the products of columns of some rows."""
        columns = self.take(selection)
        columns = np.hstack([columns, np.ones((len(columns), 1))])  # column -1
        return columns[:, self.first] * columns[:, self.second]

    def mean_features(self):
        """Return the means of the features over all rows, found once."""
        if self._mean is None:
            size, n = max(1, BLOCK // len(self.first)), len(self.X)
            parts = (slice(a, a + size) for a in range(0, n, size))
            self._mean = sum(self.features(part).sum(axis=0) for part in parts) / n
        return self._mean

    def forget(self):
        """Drop the layouts."""
        self._layouts = {}

    def passes(self, batch, chain, by_row=False):
        """Return the passes over a batch, not yet run."""
        return Passes(self.layout(batch), chain, by_row)

    def layout(self, batch):
        """Return the layout of a batch of sequences, made once."""
        key = id(batch.index) * bool(batch.index.size), batch.start, batch.stop
        if key not in self._layouts:
            weight = batch.weight[batch.ids] if batch.weight.size else None
            layout = Layout(self, batch.ids, weight)
            # The index is kept, so that no other gets its id.
            self._layouts[key] = layout, batch.index
        return self._layouts[key][0]
