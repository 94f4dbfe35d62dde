"""Rows whose coefficients differ by group, and their sums by group.

Sums are made in ``_kernels.py``, here or in the blocks where rows lie.
"""

from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from skvrem.utils._algebra import read_only
from skvrem.utils._parallel import map_chunks
from skvrem.vi.gaussian._model_families import (
    GaussianNoise,
    OverdispersedCounts,
    PoissonCounts,
)
from skvrem.vi.gaussian.nested._model_modes import Local, Quadratic, Skewness
from skvrem.vi.glm.groups import _kernels as kernels

# Groups a thread takes at a time.
GROUPS = 64
LOGISTIC, COUNTS, NORMAL = 0, 1, 2


class Design(NamedTuple):
    """Rows of groups, and which of their coefficients differ by group.

    Attributes
    ----------
    rows : ndarray of shape (n_rows, d)
        Those of a group together.
    bounds : ndarray of int64 of shape (n_groups + 1,)
        Where groups begin, and the number of rows.
    order : ndarray of int64 of shape (p,)
        Columns of the coefficients, those that differ first; d is the intercept's.
    q : int
        How many of them differ.
    origin : ndarray of shape (p,)
        Where columns are zero to the model, in the same order; zero for coefficients
        that do not differ.
    """

    rows: np.ndarray
    bounds: np.ndarray
    order: np.ndarray
    q: int
    origin: np.ndarray


class Predictors:
    """A likelihood of rows with a predictor each; see `NestedModel`."""

    def quadratic(self, at, n_groups):
        """Return rows of `NORMAL` as the quadratic that they are, about groups at."""
        q = self.q
        groups = np.tile(at[:q], (n_groups, 1))
        found = self.local(groups[None], at[None, q:])
        value, *rest = (part[0] for part in found)
        return Quadratic(groups, at[q:].copy(), float(value), *rest)


class PredictorRows(Predictors):
    """Rows of groups and their targets, in memory.

    Parameters
    ----------
    design : Design
    code : int
        Of the likelihood, as the kernels have it.
    y, trials : ndarray of shape (n_rows,)
    offset : ndarray of shape (n_rows,)
        Empty for zeros.
    constant : float, default=0.0
        What the kernels leave out of the log-likelihood, in nats.
    """

    def __init__(self, design, code, y, trials, offset, constant=0.0):
        self.design, self.constant = design, constant
        self.n_rows, self.n_groups = len(design.rows), len(design.bounds) - 1
        rows, bounds, order, self.q, origin = design
        # Of one type to compile for, wherever they come from.
        about = map(read_only, (rows, order, origin, y, trials, offset))
        self._about = *about, code, bounds

    def sums(self, kernel, outputs, sums, *given):
        """Call a kernel for all groups, and return sums over them."""
        n_chunks = max(1, round(self.n_groups / GROUPS))
        parts = [np.zeros((n_chunks, *shape)) for shape in sums]
        edges = [self.n_groups * i // n_chunks for i in range(n_chunks + 1)]

        def fill(first, last):
            here = edges.index(first)
            own = (part[here] for part in parts)
            kernel(*self._about, first, last, *given, *outputs, *own)

        map_chunks(fill, self.n_groups, GROUPS)
        return [part.sum(axis=0) for part in parts]

    def local(self, groups, shared):
        """Return the `Local` of groups (s, n_groups, q) and shared ones (s, p - q)."""
        (s, M, q), f = groups.shape, shared.shape[1]
        shapes = (s, M), (s, M, q), (s, M, q, q), (s, M, q, f)
        outputs = [np.empty(shape) for shape in shapes]
        sums = (s, f), (s, f, f)
        found = self.sums(kernels.fill_local, outputs, sums, groups, shared)
        value, gradient, hessian, cross = outputs
        value = value.sum(axis=1) + self.constant
        return Local(value, gradient, hessian, found[0], cross, found[1])

    def skewness(self, groups, shared, *joint):
        """Return the gradient of tr(Sigma H) by groups and by shared ones."""
        out, given = np.empty(groups.shape), (groups, shared, *joint)
        sums = (shared.shape,)
        return out, self.sums(kernels.fill_skewness, [out], sums, *given)[0]


def rows_of(family, design, y, weight):
    """Return the `PredictorRows` of a family.

    Parameters
    ----------
    family : Logistic, PoissonCounts, OverdispersedCounts or GaussianNoise
        Of the last, rows have the noise one, and no constant.
    design : Design
    y : ndarray of shape (n_rows,) or (n_rows, 2)
        Targets, and offsets behind them.
    weight : ndarray of shape (n_rows,)
        Empty for ones.
    """
    y, offset = (y, np.empty(0)) if y.ndim == 1 else y.T.copy()
    y = np.asarray(y, np.float64)
    w = weight if weight.size else np.ones(len(y))
    if isinstance(family, GaussianNoise):
        return PredictorRows(design, NORMAL, y, w, offset)
    if isinstance(family, PoissonCounts):
        constant = -float(w @ gammaln(y + 1.0))
        return PredictorRows(design, COUNTS, w * y, w, offset, constant)
    if isinstance(family, OverdispersedCounts):
        r = family.concentration
        shifted = (offset if offset.size else np.zeros(len(y))) - np.log(r)
        known = design, LOGISTIC, w * y, w * (y + r), shifted
        return PredictorRows(*known, float(w @ family._constant(y)))
    return PredictorRows(design, LOGISTIC, w * y, w, offset)


class GroupColumns:
    """What rows of groups are, wherever they lie: `order`, `q` and `origin`."""

    @property
    def intercept(self):
        """Its place in the order of the coefficients, where there is one."""
        return int(np.argmax(self.order))


class GroupRows(GroupColumns):
    """Rows of groups in memory.

    Parameters
    ----------
    design : Design
    y, weight : ndarray
        As of `rows_of`.
    """

    def __init__(self, design, y, weight):
        self.design, self.y, self.weight = design, y, weight
        self.order, self.q, self.origin = design.order, design.q, design.origin
        self.n_groups = len(design.bounds) - 1

    def likelihood(self, family):
        """Return the likelihood of a family."""
        return rows_of(family, self.design, self.y, self.weight)

    def slopes(self, posterior):
        """Return a function of concentrations: the slopes of the loss there."""
        place = np.repeat(np.arange(self.n_groups), np.diff(self.design.bounds))
        a, v = posterior.predictors(self.design.rows, place)
        about = a[:, None], v[:, None], self.y, self.weight
        return partial(slopes_of_counts, about)

    def some(self, step):
        """Return every `step`-th group, and their share of the rows."""
        bounds = self.design.bounds
        groups = np.arange(0, self.n_groups, step)
        sizes = np.diff(bounds)[groups]
        few = np.concatenate([[0], np.cumsum(sizes)])
        rows = np.arange(few[-1]) + np.repeat(bounds[groups] - few[:-1], sizes)
        design = self.design._replace(rows=self.design.rows[rows], bounds=few)
        weight = self.weight[rows] if self.weight.size else self.weight
        share = few[-1] / len(self.design.rows)
        return GroupRows(design, self.y[rows], weight), share

    def seen_from(self, origin):
        """Return the same rows with another origin."""
        return GroupRows(self.design._replace(origin=origin), self.y, self.weight)


class GroupBlocks(GroupColumns):
    """Rows of groups that lie in blocks elsewhere, in any order; as `GroupRows`.

    Parameters
    ----------
    data : source
        Whose batches bring targets and numbers of groups.
    counts : ndarray of int of shape (n_groups,)
        Rows of all groups.
    order, q, origin : ndarray, int, ndarray
        As of `Design`.
    step : int, default=1
        Every so many groups are looked at.
    """

    def __init__(self, data, counts, order, q, origin, step=1):
        self.data, self.counts, self.order, self.q = data, counts, order, q
        self.origin, self.step = origin, step
        self.n_groups = len(counts[::step])

    def likelihood(self, family):
        """Return the likelihood of a family."""
        return PredictorBlocks(self, family)

    def slopes(self, posterior):
        """Return a function of concentrations: the slopes of the loss there."""
        return lambda at: self.sum(_slopes_of_block, at, posterior).slope

    def some(self, step):
        """Return every `step`-th group, and their share of the rows."""
        given = self.data, self.counts, self.order, self.q, self.origin
        return GroupBlocks(*given, step), self.counts[::step].sum() / self.counts.sum()

    def seen_from(self, origin):
        """Return the same rows with another origin."""
        given = self.data, self.counts, self.order, self.q
        return GroupBlocks(*given, origin, self.step)

    def sum(self, function, *given):
        """Return the sum of a function of the `GroupRows` of blocks."""
        about = self.n_groups, self.order, self.q, self.origin, self.step
        return self.data.chunks().sum(partial(_of_block, about, function, given))


def _of_block(about, function, given, batch):
    """Return what a function says of the rows of a block, those of a group together."""
    n_groups, columns, q, origin, step = about
    order = np.argsort(batch.groups, kind="stable")
    if step > 1:
        order = order[batch.groups[order] % step == 0]
    bounds = np.searchsorted(batch.groups[order] // step, np.arange(n_groups + 1))
    weight = batch.weight[order] if batch.weight.size else batch.weight
    design = Design(batch.rows[order], bounds, columns, q, origin)
    return function(GroupRows(design, batch.targets[order], weight), *given)


class PredictorBlocks(Predictors):
    """Rows of groups and their targets, in blocks elsewhere; as `PredictorRows`.

    Parameters
    ----------
    blocks : GroupBlocks
    family : object
        As of `rows_of`.
    """

    def __init__(self, blocks, family):
        self.blocks, self.family, self.q = blocks, family, blocks.q
        self.n_rows = blocks.data.n_units

    def local(self, groups, shared):
        """Return the `Local` of groups (s, n_groups, q) and shared ones (s, p - q)."""
        return self.blocks.sum(_local_of_block, self.family, groups, shared)

    def skewness(self, *about):
        """Return the gradient of tr(Sigma H) by groups and by shared ones."""
        return tuple(self.blocks.sum(_skewness_of_block, self.family, *about))


class Slope(NamedTuple):
    """Of the expected loss of some rows, by the log-concentration of their counts.

    At several concentrations.
    """

    slope: np.ndarray


def slopes_of_counts(about, concentrations):
    """Return slopes of the loss of counts at concentrations, by their logarithms.

    about: means and variances of predictors, counts and weights.
    """
    return np.array([OverdispersedCounts(r).slope(*about) for r in concentrations])


def _slopes_of_block(rows, concentrations, posterior):
    return Slope(rows.slopes(posterior)(concentrations))


def _local_of_block(rows, family, *about):
    return rows.likelihood(family).local(*about)


def _skewness_of_block(rows, family, *about):
    return Skewness(*rows.likelihood(family).skewness(*about))
