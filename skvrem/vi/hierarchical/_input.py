"""Rows of groups as the two posteriors want them: here, or in the blocks of dask."""

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from skvrem import solvers
from skvrem.data import as_source, column_moments
from skvrem.data._moments import BothMoments
from skvrem.utils._validation import classes_of, numbered
from skvrem.vi.gaussian._model_families import Softmax
from skvrem.vi.gaussian.nested._input import numbered_groups, open_group_blocks
from skvrem.vi.hierarchical._model import GroupPosterior, HierarchicalModel
from skvrem.vi.hierarchical._model_nested import (
    NestedSoftmax,
    SoftmaxBlocks,
    sorted_rows,
)
from skvrem.vi.hierarchical._units import Units


class GroupedRows(NamedTuple):
    """Rows in memory that weigh something, in any order, and the groups they are of.

    Attributes
    ----------
    rows : ndarray of shape (n_rows, n_features)
    numbers : ndarray of shape (n_rows,)
        Of classes.
    classes : ndarray of shape (k,)
    weight : ndarray of shape (n_rows,), or None
    ids : ndarray of shape (n_rows,)
    alone : bool
        There are no groups: all rows are of one.
    fit_intercept : bool
    """

    rows: np.ndarray
    numbers: np.ndarray
    classes: np.ndarray
    weight: Any
    ids: np.ndarray
    alone: bool
    fit_intercept: bool

    @classmethod
    def of(cls, rows, numbers, classes, weight, ids, alone, estimator):
        """Return them; without ids all are of one group.

        Rows without weight are left out, and so are groups of nothing else: these would
        count among those that tell how far groups lie apart.
        """
        ids = np.zeros(len(rows), int) if alone else ids
        seen = cls(rows, numbers, classes, weight, ids, alone, estimator.fit_intercept)
        every = weight is None or weight.all()
        return seen if every else seen.part(np.flatnonzero(weight))

    @property
    def units(self):
        """Of the features."""
        moments = column_moments(as_source(self.rows, self.weight))
        return Units.of(moments, self.fit_intercept)

    def within(self, units):
        """Return the same in units, where there are any."""
        return self if units is None else self._replace(rows=units(self.rows))

    @property
    def labels(self):
        """Ids of the groups, each once."""
        return np.unique(self.ids)

    @property
    def n_features(self):
        """Number of features."""
        return self.rows.shape[1]

    @property
    def dtype(self):
        """Of the rows."""
        return self.rows.dtype

    @property
    def mean_square(self):
        """Of each feature."""
        rows, weight = self.rows, self.weight
        if weight is None:
            return np.einsum("nj,nj->j", rows, rows, dtype=np.float64) / len(rows)
        return np.einsum("n,nj,nj->j", weight, rows, rows) / weight.sum()

    @property
    def class_weights(self):
        """What the rows of each class weigh."""
        return np.bincount(self.numbers, self.weight, len(self.classes))

    def count(self, labels):
        """Return how many rows groups have."""
        place = np.searchsorted(labels, self.ids)
        return np.bincount(place, minlength=len(labels))

    def _sorted(self, labels):
        """Return rows, classes, weights or none and groups, those of a group together.

        Groups are numbered among all labels.
        """
        group = np.searchsorted(labels, self.ids)
        order = np.argsort(group, kind="stable")
        weight = None if self.weight is None else self.weight[order]
        parts = self.rows, self.numbers.astype(np.int32), group.astype(np.int64)
        rows, numbers, place = (np.ascontiguousarray(part[order]) for part in parts)
        return rows, numbers, weight, place

    def begin_mean_field(self, labels, prior, past):
        """Return a model of independent coefficients, its data, and passes made."""
        rows, numbers, weight, place = self._sorted(labels)
        data = as_source(rows, weight, numbers, place)
        return mean_field(data, len(self.classes), len(labels), prior, past)

    def begin_nested(self, labels, prior, past):
        """Return a model that integrates over scales last, its data, and no passes."""
        rows, numbers, weight, place = self._sorted(labels)
        shape = len(prior.variance), len(self.classes)
        rows = sorted_rows(rows, numbers, weight, place, len(labels), shape)
        return NestedSoftmax(rows, len(labels), prior, past), solvers.Whole(), 0.0

    def part(self, some):
        """Return some of them."""
        weight = None if self.weight is None else self.weight[some]
        rows, numbers, ids = (
            part[some] for part in (self.rows, self.numbers, self.ids)
        )
        return self._replace(rows=rows, numbers=numbers, weight=weight, ids=ids)

    def said(self, labels, posterior):
        """Return what they say of groups, all among `labels`, under a posterior."""
        parts, n_groups = self._sorted(labels), len(labels)
        if isinstance(posterior, GroupPosterior):
            rows, numbers, weight, place = parts
            data = as_source(rows, weight, numbers, place)
            model, *_ = mean_field(data, len(self.classes), n_groups, None, None)
            return model.said(posterior, data)
        return posterior.said(sorted_rows(*parts, n_groups, posterior.mean.shape))


def mean_field(data, n_classes, n_groups, prior, past):
    """Return a model of independent coefficients, its data, and passes made."""
    # Coefficients of a group vary too much for nodes to be trusted so far.
    of_groups = n_groups * data.n_features
    family = Softmax(n_classes, data.n_units, by_root=False, n_features=of_groups)
    known = n_groups, prior, data.total_weight, past
    return HierarchicalModel(family, None, None, *known), data, 1.0


class GroupedBlocks(NamedTuple):
    """Rows in the blocks of dask, as `GroupedRows` has them in memory; of a fit.

    Attributes
    ----------
    data : source
        With numbers of classes and groups.
    classes, class_weights : ndarray of shape (k,)
    labels, counts : ndarray of shape (n_groups,)
    alone : bool
    moments : BothMoments
        Of the features.
    fit_intercept : bool
    """

    data: Any
    classes: np.ndarray
    class_weights: np.ndarray
    labels: np.ndarray
    counts: np.ndarray
    alone: bool
    moments: Any
    fit_intercept: bool

    @classmethod
    def of(cls, estimator, X, y, groups, sample_weight):
        """Return them, checked where they lie."""
        given = estimator, X, y, groups, sample_weight, "labels"
        data, seen, labels, counts = open_group_blocks(*given, weighed=True)
        classes, class_weights = classes_of(estimator, seen)
        data = data.with_columns(partial(_numbered, classes, labels))
        alone, moments = labels is None, column_moments(data)
        if alone:
            labels, counts = np.zeros(1, int), np.array([data.n_units])
        seen = data, classes, class_weights, labels, counts, alone, moments
        return cls(*seen, estimator.fit_intercept)

    @property
    def mean_square(self):
        """Of each feature."""
        moments = self.moments.weighted
        return np.square(moments.mean) + moments.square / moments.weight

    @property
    def units(self):
        """Of the features."""
        return Units.of(self.moments, self.fit_intercept)

    def within(self, units):
        """Return the same in units, where there are any."""
        if units is None:
            return self
        data = self.data.with_rows(units)
        moments = (
            one._replace(
                mean=(one.mean - units.centre) / units.deviation,
                square=one.square / np.square(units.deviation),
            )
            for one in self.moments
        )
        return self._replace(data=data, moments=BothMoments(*moments))

    @property
    def n_features(self):
        """Number of features."""
        return self.data.n_features

    @property
    def dtype(self):
        """Of the rows."""
        return self.data.dtype

    def count(self, labels):
        """Return how many rows groups have."""
        return self.counts

    def begin_mean_field(self, labels, prior, past):
        """Return a model of independent coefficients, its data, and passes made."""
        return mean_field(self.data, len(self.classes), len(labels), prior, past)

    def begin_nested(self, labels, prior, past):
        """Return a model that integrates over scales last, its data, and no passes."""
        shape = len(prior.variance), len(self.classes)
        rows = SoftmaxBlocks(self.data, len(labels), shape)
        return NestedSoftmax(rows, len(labels), prior, past), solvers.Whole(), 0.0


def _numbered(classes, labels, columns):
    return numbered_groups(labels, numbered(classes, columns))
