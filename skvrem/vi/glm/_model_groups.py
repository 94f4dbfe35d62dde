r"""Generalised linear models some of whose coefficients differ by group.

The posterior is that of ``skvrem.vi.gaussian.nested``; rows are summed in
``_kernels_groups.py``, here or in the blocks where they lie.

Laplace's method takes the posterior of a group's coefficient for a Gaussian. Of few
rows it is none: the scales come out too small where rows have two classes, and with
them what groups share. Where one coefficient differs by group its integral is one of
one dimension, F in ``_kernels_groups.py``, and with :math:`b = (\mu, \beta)`

.. math:: L(t) = \log p(b^*) + \sum_m F_m(b^*, t) - \tfrac12 \log |S| + \log p(t),
          \qquad S = S_0^{-1} - \sum_m \partial_b^2 F_m(b^*, t),

at the mode of b. Means and variances of coefficients given b, and how means follow b,
are those of the quadrature: they stand where Laplace's method has modes, inverses of
:math:`P_m` and :math:`K_m`, so that the arrow of ``nested._model`` is that of these.
With :math:`\Sigma = S^{-1}` the mean of b lies at :math:`\delta = \tfrac12 \Sigma
\sum_m \partial_b \mathrm{tr}(\Sigma \partial_b^2 F_m)` from its mode, and

.. math:: \frac{dL}{dt} = \sum_m \partial_t F_m + \delta^T \sum_m \partial_b \partial_t
          F_m + \tfrac12 \sum_m \partial_t \mathrm{tr}(\Sigma \partial_b^2 F_m)
          - \frac{t - \lambda}{\kappa^2} .
"""

from copy import copy
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln

from skvrem.utils._algebra import read_only
from skvrem.utils._parallel import map_chunks
from skvrem.vi.gaussian._model_families import (
    GaussianNoise,
    OverdispersedCounts,
    PoissonCounts,
)
from skvrem.vi.gaussian.nested._model import NestedModel
from skvrem.vi.gaussian.nested._model_modes import Local, Parts, Quadratic, Skewness
from skvrem.vi.glm import _kernels_groups as kernels

# Groups a thread takes at a time.
GROUPS = 64
LOGISTIC, COUNTS, NORMAL = 0, 1, 2
# Rows of half of the groups up to which their posteriors are no Gaussians: scales by
# Laplace's method are too small at ten rows still, and hardly at fifty, and quadrature
# takes some times as long.
FEW_ROWS = 30


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

    def slope(self, posterior):
        """Return a function of overdispersed counts: their `slope`."""
        place = np.repeat(np.arange(self.n_groups), np.diff(self.design.bounds))
        a, v = posterior.predictors(self.design.rows, place)
        about = a[:, None], v[:, None], self.y, self.weight
        return lambda family: family.slope(*about)

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

    def slope(self, posterior):
        """Return a function of overdispersed counts: their `slope`."""
        return lambda family: self.sum(_slope_of_block, family, posterior).slope

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

    A number, or an array of those at several concentrations.
    """

    slope: Any


def _slope_of_block(rows, family, posterior):
    return Slope(rows.slope(posterior)(family))


def _local_of_block(rows, family, *about):
    return rows.likelihood(family).local(*about)


def _skewness_of_block(rows, family, *about):
    return Skewness(*rows.likelihood(family).skewness(*about))


class GroupedModel(NestedModel):
    """Rows of groups with a predictor each.

    Parameters
    ----------
    family : Logistic, PoissonCounts, OverdispersedCounts or GaussianNoise
    rows : GroupRows or GroupBlocks
    prior : NestedPrior
        Of rows whose origin is zero.
    past : Quadratic, default=None
        What other rows have said.
    search : object, default=None
        Of a better family: ``step(slope, family)`` returns one and the search after
        it, of the function that returns the slope of one. See `ConcentrationSearch`.
    n_rows : float, default=0.0
        Of Gaussian noise: rows of now and of the past, which is of noise one then.
    least_noise : float, default=None
        Of Gaussian noise that is learnt.
    """

    #: How coefficients are integrated out.
    expectation = "laplace"

    def __init__(
        self,
        family,
        rows,
        prior,
        past=None,
        search=None,
        n_rows=0.0,
        least_noise=None,
    ):
        self.family, self.rows, self.of_zero = family, rows, prior
        prior = prior.seen_from(rows.origin, rows.intercept)
        self.search, noise, self.sums = search, {}, None
        of_rows = rows.likelihood(family)
        if isinstance(family, GaussianNoise):
            of_rows = of_rows.quadratic(prior.mean, rows.n_groups)
            self.sums = of_rows if past is None else of_rows.plus(past)
            of_rows, past = self.sums, None
            if least_noise is None:
                constant = -0.5 * n_rows * np.log(2.0 * np.pi * family.variance)
                of_rows = of_rows.scaled(1.0 / family.variance, constant)
            else:
                noise = {"n_noisy": n_rows, "least_noise": least_noise}
        super().__init__(of_rows, prior, rows.n_groups, past, **noise)

    def of_prior(self, prior):
        """Return the model with another prior."""
        model, rows = copy(self), self.rows
        model.of_zero, model._known = prior, (None, None)
        model.prior = prior.seen_from(rows.origin, rows.intercept)
        return model

    def seen_from(self, origin):
        """Return the model of the same rows with another origin."""
        model, at = copy(self), self.rows.intercept
        model.rows = self.rows.seen_from(origin)
        change = (origin - self.rows.origin)[: self.q], at
        if self.sums is None:
            model.likelihood = model.rows.likelihood(self.family)
        else:
            model.likelihood = self.likelihood.seen_from(*change)
            model.sums = self.sums.seen_from(*change)
        if self.past is not None:
            model.past = self.past.seen_from(*change)
        return model.of_prior(self.of_zero)

    def at(self, point):
        """Return itself and the point, as `OriginModel` returns what it is there."""
        return self, point

    @property
    def left(self):
        """Nats that were left to gain before this family, None if it is not learned."""
        return None if self.search is None else self.search.left

    def refined(self, point):
        """Return the model with a better family, None where it is known."""
        if self.search is None:
            return None
        about = self.rows.order, self.rows.origin
        posterior = VaryingPosterior(self.posterior(point, False), *about)
        family, search = self.search.step(self.rows.slope(posterior), self.family)
        return type(self)(family, self.rows, self.of_zero, self.past, search)

    def seen(self, point):
        """Return what all rows say of groups, as the past of those to come.

        That of Gaussian noise is exact, and of noise one.
        """
        return super().seen(point) if self.sums is None else self.sums


class IntegratedModel(GroupedModel):
    r"""Rows of groups with a predictor each, and one coefficient by group.

    Sums over nodes are of columns that are seen from their means c, where intercepts
    are what differs: :math:`\mu + c^T \beta` is known far better than both where c is
    large, and what sums err by counts as often as b varies.
    """

    expectation = "quadrature"
    #: Sums over nodes err by so much where scales are a hundred times a row's.
    uncertain = 1e-7
    #: Of one number, by points that are spread evenly.
    enough_draws = 16

    def __init__(self, *given, **how):
        super().__init__(*given, **how)
        design = self.rows.design
        self._centre = np.zeros(len(design.order))
        if design.order[0] == design.rows.shape[1]:
            columns = design.order[1:]
            self._centre[1:] = design.rows.mean(axis=0, dtype=np.float64)[columns]
        self._centred = self.rows.seen_from(self._centre).likelihood(self.family)

    def _sums(self, kernel, outputs, sums, scales, mean, groups, *given):
        mean, level = mean.copy(), mean @ self._centre
        mean[:, 0] += level
        about = scales[:, 0].copy(), mean, groups[..., 0] + level[:, None]
        return self._centred.sums(kernel, outputs, sums, *about, *given)

    def _about(self, scales, mean, groups):
        """Return means of coefficients, the `Local` of their moments, and log p(b, y).

        Rows of a normal density with that slope and curvature at the means would lead
        to these means and variances.
        """
        (s, M, _), f = groups.shape, mean.shape[1] - 1
        value, means, variance = (np.empty((s, M)) for _ in range(3))
        outputs, sums = (
            [value, means, variance, np.empty((s, M, f))],
            [(s, f), (s, f, f)],
        )
        about = scales, mean, groups
        of_shared, within = self._sums(kernels.fill_integrals, outputs, sums, *about)
        c, T = self._centre[1:], np.exp(-2.0 * scales)
        means -= (mean @ self._centre)[:, None]
        slope, curvature = T * (means - mean[:, :1]), 1.0 / variance - T
        cross = -outputs[3] / variance[..., None]
        within -= np.einsum("sml,smr->slr", cross, outputs[3])
        # Where columns are zero.
        of_shared += c * slope.sum(axis=1)[:, None]
        beside = cross.sum(axis=1)[:, None] * c[:, None]
        within += beside + beside.swapaxes(1, 2)
        within += np.outer(c, c) * curvature.sum(axis=1)[:, None, None]
        cross += c * curvature[..., None]
        value = value.sum(axis=1) + self.likelihood.constant
        local = Local(
            value,
            slope[..., None],
            curvature[..., None, None],
            of_shared,
            cross[:, :, None],
            within,
        )
        prior = self.prior
        square = ((prior.mean - mean) * prior.pull(mean)).sum(axis=1)
        return means[..., None], local, value - 0.5 * (square + prior.log_det)

    def _marginal(self, modes, density):
        """Return L where log p(b, y) is `density`."""
        of_groups = np.linalg.slogdet(modes.inverses)[1].sum(axis=1)
        return super()._marginal(modes, density) - 0.5 * of_groups

    def _bends(self, modes):
        """Return what the curvature of F does; see `kernels.fill_bends`."""
        (s, M, _), p = modes.groups.shape, modes.mean.shape[1]
        bent, sums, seen = np.empty((s, M)), [(s, p), (s,), (s, p)], np.eye(p)
        seen[0] += self._centre
        about = modes.scales, modes.mean, modes.groups, seen @ modes.of_mean @ seen.T
        found = self._sums(kernels.fill_bends, [bent], sums, *about)
        by_mean, by_scale, mixed = found
        return bent, by_mean @ seen, by_scale, mixed @ seen

    def _shift(self, modes, bent, by_mean):
        of_mean = 0.5 * (modes.of_mean @ by_mean[..., None])[..., 0]
        of_groups = (modes.follow @ of_mean[:, None, :, None])[..., 0]
        return of_groups + 0.5 * bent[..., None], of_mean

    def shift(self, modes):
        """Return what leads to means, of groups from those given b, of b from modes."""
        return self._shift(modes, *self._bends(modes)[:2])

    def slope(self, modes):
        """Return dL / dt, (s, 1)."""
        bent, by_mean, by_scale, mixed = self._bends(modes)
        _, of_mean = self._shift(modes, bent, by_mean)
        square = np.square(modes.away) + modes.inverses[..., 0]
        slope = (modes.precision * square).sum(axis=(1, 2)) - self.n_groups
        slope += (of_mean * mixed).sum(axis=1) + 0.5 * by_scale
        away = modes.scales - self.prior.log_scale
        return slope[:, None] - away / self.prior.log_scale_std**2

    def seen(self, point):
        """Return what all rows say of groups, as the past of those to come.

        That is a quadratic about modes, for which Laplace's method goes on.
        """
        given = self.family, self.rows, self.of_zero, None, self.search
        return GroupedModel(*given).seen(point)


def integrated(model):
    """Return a `GroupedModel` with quadrature, where it can be had and is needed.

    Rows of a group have to lie together, which in the blocks of dask they do not; and
    what is known of rows of the past is a quadratic, about a mode.
    """
    rows = model.rows
    if model.q > 1 or isinstance(model.family, GaussianNoise):
        return model
    if model.past is not None or not isinstance(rows, GroupRows):
        return model
    if np.median(np.diff(rows.design.bounds)) > FEW_ROWS:
        return model
    return IntegratedModel(model.family, rows, model.of_zero, None, model.search)


class VaryingPosterior(NamedTuple):
    """The posterior of coefficients that groups share, and of those that differ.

    Attributes
    ----------
    parts : Parts
        Means and covariances of all of them and of the logarithms of the scales.
    order : ndarray of int64 of shape (p,)
        Columns of the coefficients, those that differ by group first.
    origin : ndarray of shape (p,), default=None
        As of `Design`, which `parts` are of; None is zero. All that is said of
        intercepts is of rows whose columns are zero, but for the population's scale,
        which is of rows at the origin.
    """

    parts: Parts
    order: np.ndarray
    origin: np.ndarray | None = None

    @property
    def q(self):
        """How many coefficients differ by group."""
        return self.parts.groups.shape[1]

    @property
    def _place(self):
        """The intercept's place, and what it is where columns are zero, of all (p,)."""
        if self.origin is None or not self.origin.any():
            return None
        at = int(np.argmax(self.order))
        axis = -self.origin
        axis[at] = 1.0
        return at, axis

    def _at_zero(self, values):
        """Return coefficients (..., p) with the intercept where columns are zero."""
        if self._place is None:
            return values
        at, axis = self._place
        values = np.array(values)
        values[..., at] = values @ axis
        return values

    def _variances(self, covariance):
        """Return variances (..., r) of the same, of covariances (..., r, r)."""
        found = np.array(np.diagonal(covariance, axis1=-2, axis2=-1))
        if self._place is not None:
            at, axis = self._place
            axis = axis[: found.shape[-1]]
            found[..., at] = np.maximum(covariance @ axis @ axis, 0.0)
        return found

    def _unordered(self, values):
        """Return values (..., p), or (..., q) and zeros, by column."""
        out = np.zeros((*values.shape[:-1], self.order.size))
        out[..., self.order[: values.shape[-1]]] = values
        return out

    @property
    def mean(self):
        """Of the coefficients that groups share and of the population's means, (p,)."""
        return self._unordered(self._at_zero(self.parts.mean))

    @property
    def scale(self):
        """Standard deviations of the same, (p,)."""
        p = self.order.size
        variance = self._variances(self.parts.covariance[:p, :p])
        return self._unordered(np.sqrt(variance))

    @property
    def population(self):
        """Medians of the population's scales, and deviations of their logarithms."""
        p, q = self.order.size, self.q
        spread = np.sqrt(np.diagonal(self.parts.covariance)[p : p + q])
        scales = np.exp(self.parts.scales[:q])
        return self._unordered(scales), self._unordered(spread)

    @property
    def noise(self):
        """Median of a noise that is learnt, and the deviation of its logarithm."""
        spread = np.sqrt(self.parts.covariance[-1, -1])
        return float(np.exp(self.parts.scales[-1])), float(spread)

    @property
    def group_mean(self):
        """Coefficients of groups, (n_groups, p)."""
        q, groups = self.q, self.parts.groups
        shared = np.broadcast_to(
            self.parts.mean[q:], (len(groups), len(self.order) - q)
        )
        return self._unordered(self._at_zero(np.hstack([groups, shared])))

    @property
    def group_scale(self):
        """Their standard deviations, (n_groups, p)."""
        q, p = self.q, self.order.size
        own = self._variances(self.parts.of_groups)
        shared = np.diagonal(self.parts.covariance)[q:p]
        shared = np.broadcast_to(shared, (len(own), p - q))
        return self._unordered(np.sqrt(np.hstack([own, shared])))

    def predictors(self, rows, place):
        """Return means and variances (n,) of the predictors of rows (n, d).

        place (n,) are the numbers of their groups, -1 for one that has not been seen.
        """
        parts, q, p = self.parts, self.q, self.order.size
        # About the mean, of the mean scale: the mean of its square is of few draws.
        spread = np.diagonal(parts.covariance)[p : p + q]
        inner = np.exp(2.0 * parts.scales[:q] + spread)
        place = np.asarray(place, np.int64)
        a, v = np.empty(len(place)), np.empty(len(place))
        shared = np.ascontiguousarray(parts.covariance[:p, :p])
        cross = np.ascontiguousarray(parts.coupling[:, :, q:p])
        of_groups = parts.groups, parts.of_groups, cross, shared
        origin = np.zeros(p) if self.origin is None else self.origin
        about = read_only(rows), self.order, read_only(origin), place
        about += *of_groups, parts.mean, inner
        kernels.fill_moments(*about, a, v)
        return a, np.maximum(v, 0.0)

    def among(self, numbers):
        """Return the posterior of some groups."""
        names = "groups", "of_groups", "coupling"
        some = {name: getattr(self.parts, name)[numbers] for name in names}
        return self._replace(parts=self.parts._replace(**some))

    def sample(self, n_samples, rng):
        """Draw coefficients and scales.

        Returns
        -------
        mean : ndarray of shape (n_samples, p)
        scales : ndarray of shape (n_samples, p)
            Zero where groups do not differ.
        noise : ndarray of shape (n_samples, h - q)
            Where it is learnt, of one number.
        groups : ndarray of shape (n_samples, n_groups, p)
        new : ndarray of shape (n_samples, p)
            Of a group that has not been seen.
        """
        q = self.q
        mean, scales, groups = self.parts.sample(n_samples, rng)
        many = (*groups.shape[:2], self.order.size - q)
        shared = np.broadcast_to(mean[:, None, q:], many)
        whole = np.concatenate([groups, shared], axis=2)
        spread, noise = np.exp(scales[:, :q]), np.exp(scales[:, q:])
        new = mean.copy()
        new[:, :q] += spread * rng.standard_normal(spread.shape)
        mean, whole, new = (
            self._unordered(self._at_zero(part)) for part in (mean, whole, new)
        )
        return mean, self._unordered(spread), noise, whole, new
