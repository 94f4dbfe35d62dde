"""What is looked at for a fit with groups, or for a batch of a stream of them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from skvrem.data import as_source, joined
from skvrem.vi.glm.groups._model_rows import Design, GroupBlocks, GroupRows

# What a stream keeps of a `GroupPrior`.
KEPT = "prior", "order", "q", "scales", "seen"


class OpenedGroups(NamedTuple):
    """Rows of groups, here or in the blocks of dask.

    Attributes
    ----------
    data : source
        In memory rows of a group are together; batches of dask bring targets and
        numbers of groups.
    targets : ndarray of shape (n_rows, ...), or None where batches bring them
    labels, counts : ndarray of shape (n_groups,)
        Ids of the groups, sorted, and how many rows they have.
    """

    data: Any
    targets: Any
    labels: np.ndarray
    counts: np.ndarray

    @classmethod
    def of(cls, rows, targets, weight, ids):
        """Return rows in memory, those of a group together."""
        labels, group = np.unique(ids, return_inverse=True)
        if (np.diff(group) < 0).any():
            turn = np.argsort(group, kind="stable")
            rows, targets = rows[turn], targets[turn]
            weight = weight[turn] if weight is not None and len(weight) else weight
        data = as_source(np.ascontiguousarray(rows), weight)
        return cls(data, targets, labels, np.bincount(group))

    @property
    def ids(self):
        """Ids of the groups of rows in memory, (n_rows,)."""
        return np.repeat(self.labels, self.counts)

    def beside(self, kept):
        """Return them beside the rows that a stream has kept."""
        data, targets = kept.beside(self.data, self.targets)
        return self.of(data.rows, targets, data.weight, joined(kept.groups, self.ids))

    def rows(self, order, q, at, n_groups, origin):
        """Return the rows for a model of groups of which these are the numbers at."""
        counts = np.zeros(n_groups, np.int64)
        counts[at] = self.counts
        if self.data.remote:
            return GroupBlocks(self.data, counts, order, q, origin)
        bounds = np.concatenate([[0], np.cumsum(counts)])
        design = Design(self.data.rows, bounds, order, q, origin)
        return GroupRows(design, self.targets, self.data.weight)


class GroupLook(NamedTuple):
    """The rows of a fit or a batch, and what is known of all groups so far.

    Attributes
    ----------
    opened : OpenedGroups
        With those before that are seen again.
    labels, counts : ndarray of shape (n_groups,)
        Ids of all groups, sorted, and how many rows they have had.
    now : ndarray of int
        Numbers of the groups of these rows.
    n_rows : float
        Weight of all rows so far.
    before : dict, default=None
        What a stream that goes on has kept.
    past : Quadratic, default=None
        Of the rows before, where they are not seen again.
    """

    opened: OpenedGroups
    labels: np.ndarray
    counts: np.ndarray
    now: np.ndarray
    n_rows: float
    before: dict | None = None
    past: Any = None

    @classmethod
    def of(cls, opened, before=None, again=False, groups=None, n_before=None):
        """Return what is known with these rows.

        before: what a stream has kept of those before, None for a fit; again: whether
        they are among these; groups, n_before (n_groups,): ids and rows of theirs.
        """
        labels, counts = opened.labels, opened.counts
        now, n_rows = np.arange(len(labels)), opened.data.total_weight
        if before is None or again:
            return cls(opened, labels, counts, now, n_rows, before)
        every = np.union1d(groups, labels)
        at, now = (np.searchsorted(every, ids) for ids in (groups, labels))
        each = np.zeros(len(every), int)
        each[now] = counts
        each[at] += n_before
        past = before["past"].spread(at, len(every))
        n_rows += before["n_rows"]
        return cls(opened, every, each, now, n_rows, before, past)


class GroupPrior(NamedTuple):
    """What coefficients by group, and how far apart they are, follow before rows.

    Attributes
    ----------
    prior : NestedPrior
    order : ndarray of int64 of shape (p,)
        Columns of the coefficients, those that differ first.
    q : int
        How many of them differ.
    scales : ndarray of shape (q,)
        Medians of the priors of the population's scales.
    seen : ColumnMoments, default=None
        Of all rows, which the prior follows; None for one that stands.
    of_width : callable, default=None
        Returns the prior of a width.
    """

    prior: Any
    order: np.ndarray
    q: int
    scales: np.ndarray
    seen: Any = None
    of_width: Callable | None = None

    @classmethod
    def before(cls, kept):
        """Return what a stream has kept; older pickles have no moments."""
        return cls(*map(kept.get, KEPT))

    def kept(self):
        """Return what a stream keeps of it."""
        return {name: getattr(self, name) for name in KEPT}
