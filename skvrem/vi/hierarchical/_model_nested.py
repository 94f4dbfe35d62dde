"""Softmax regression by group, with the scales of the population integrated out last.

The posterior is that of ``skvrem.vi.gaussian.nested``: all coefficients differ by group
and none is shared.
"""

from functools import partial
from typing import NamedTuple

import numpy as np

from skvrem.utils._parallel import map_chunks
from skvrem.vi.gaussian._kernels import roots
from skvrem.vi.gaussian._model import Point
from skvrem.vi.gaussian.nested._model import NestedModel, NestedPrior, Scales
from skvrem.vi.gaussian.nested._model_modes import Local, Parts, Quadratic, Skewness
from skvrem.vi.hierarchical import _kernels_nested as kernels

# Groups a thread takes at a time.
GROUPS = 64


class NestedPosterior(NamedTuple):
    """The posterior of groups and population: its means and covariances.

    Coefficients (p, k) have the order of J = p k numbers, those of a feature together.

    Attributes
    ----------
    group_mean : ndarray of shape (n_groups, p, k)
    group_covariance : ndarray of shape (n_groups, J, J)
    mean, log_tau : ndarray of shape (p, k)
        Of the population's means, and of the logarithms of its scales.
    covariance : ndarray of shape (2 J, 2 J)
        Of both, one after the other.
    coupling : ndarray of shape (n_groups, J, 2 J)
        Covariances of the coefficients of groups with both.
    """

    group_mean: np.ndarray
    group_covariance: np.ndarray
    mean: np.ndarray
    log_tau: np.ndarray
    covariance: np.ndarray
    coupling: np.ndarray

    @property
    def parts(self):
        """The same with coefficients in a row each."""
        flat = (len(self.group_mean), -1)
        of_groups = self.group_mean.reshape(flat), self.group_covariance
        common = self.mean.ravel(), self.log_tau.ravel(), self.covariance
        return Parts(*of_groups, *common, self.coupling)

    @property
    def group_variance(self):
        """Variances of the coefficients of groups, (n_groups, p, k)."""
        variance = np.diagonal(self.group_covariance, axis1=1, axis2=2)
        return variance.reshape(self.group_mean.shape)

    @property
    def _deviations(self):
        return np.sqrt(np.diagonal(self.covariance)).reshape(2, *self.mean.shape)

    @property
    def log_scale(self):
        """Logarithms of the standard deviations of the population's means, (p, k)."""
        return np.log(self._deviations[0])

    @property
    def log_tau_log_scale(self):
        """The same of the logarithms of its scales."""
        return np.log(self._deviations[1])

    @property
    def new_covariance(self):
        """Covariance (J, J) of the coefficients of a group that has not been seen.

        About the population's mean they have the square of the mean scale, with which
        probabilities are near those of draws; the mean of its square is that of a few
        draws far out.
        """
        size = self.mean.size
        inner = np.exp(2.0 * self.log_tau + np.square(self._deviations[1])).ravel()
        return self.covariance[:size, :size] + np.diag(inner)

    @property
    def new_variance(self):
        """Variances (p, k) of the coefficients of a group that has not been seen."""
        return np.diagonal(self.new_covariance).reshape(self.mean.shape)

    def variances_along(self, axis):
        """Return those of sums over features, of weights (p,), by group and class.

        Of groups, (n_groups, k), and of the population's mean, (k,).
        """
        p, k = self.mean.shape
        size = self.mean.size
        of_groups = self.group_covariance.reshape(-1, p, k, p, k)
        of_mean = self.covariance[:size, :size].reshape(p, k, p, k)
        return (
            np.einsum("mjkhk,j,h->mk", of_groups, axis, axis),
            np.einsum("jkhk,j,h->k", of_mean, axis, axis),
        )

    def said(self, rows):
        """Return the `Quadratic` that `SoftmaxRows` become under the posterior.

        With their mean slope, to second order.
        """
        at = self.group_mean.reshape(1, len(self.group_mean), -1)
        none = np.zeros((1, 0))
        value, gradient, *rest = (part[0] for part in rows.local(at, none))
        skewness = rows.skewness(at, none, self.group_covariance[None], None, None)
        gradient = gradient - 0.5 * skewness[0][0]
        return Quadratic(at[0], none[0], float(value), gradient, *rest)

    def step(self, some):
        """Return how some more rows move means of groups, all else at rest."""
        precision = np.linalg.inv(self.group_covariance) + some.hessian
        step = np.linalg.solve(precision, some.gradient[..., None])
        return step.reshape(self.group_mean.shape)

    def squares(self, away):
        """Return how far means of groups move, in squares of widths, (n_groups,)."""
        away = away.reshape(len(away), -1, 1)
        return (away * np.linalg.solve(self.group_covariance, away)).sum(axis=(1, 2))

    def among(self, numbers):
        """Return the posterior of some groups."""
        names = "group_mean", "group_covariance", "coupling"
        return self._replace(**{name: getattr(self, name)[numbers] for name in names})

    def predictor(self):
        """Return a function of a batch and the places of its rows: see `predictors`.

        A place of -1 is that of a group that has not been seen.
        """
        mean = np.concatenate([self.group_mean, self.mean[None]])
        covariance = np.concatenate([self.group_covariance, self.new_covariance[None]])
        return partial(predictors, mean, covariance)

    def sample(self, n_samples, rng):
        """Draw means and scales of the population, and coefficients of groups.

        Parameters
        ----------
        n_samples : int
        rng : numpy.random.Generator

        Returns
        -------
        means, scales : ndarray of shape (n_samples, p, k)
        groups : ndarray of shape (n_samples, n_groups, p, k)
        """
        means, log_tau, groups = self.parts.sample(n_samples, rng)
        many = (n_samples, *self.mean.shape)
        return (
            means.reshape(many),
            np.exp(log_tau).reshape(many),
            groups.reshape(n_samples, -1, *self.mean.shape),
        )


def predictors(mean, covariance, batch, place):
    """Return means (m, k) of predictors of rows, and roots (m, k * k) of covariances.

    Parameters
    ----------
    mean : ndarray of shape (n_groups, p, k)
    covariance : ndarray of shape (n_groups, J, J)
    batch : skvrem.data.RowBatch
    place : ndarray of int64 of shape (m,)
        Number of the group of each row of the batch.
    """
    rows, k = np.asarray(batch.ids, np.int64), mean.shape[2]
    a, V = np.empty((rows.size, k)), np.empty((rows.size, k, k))
    kernels.fill_predictors(batch.rows, rows, place, mean, covariance, a, V)
    half = V.reshape(rows.size, k * k)
    roots(half, k)
    return a, half


def sorted_rows(rows, numbers, weight, place, n_groups, shape):
    """Return the `SoftmaxRows` of groups, whose numbers are in order."""
    bounds = np.searchsorted(place, np.arange(n_groups + 1))
    weight = np.empty(0) if weight is None else weight
    return SoftmaxRows(rows, numbers, weight, bounds, shape)


class SoftmaxRows:
    """Rows of groups and their classes; see `NestedModel`.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, d)
        Those of a group together.
    y : ndarray of int32 of shape (n_rows,)
        Numbers of classes.
    weight : ndarray of shape (n_rows,)
        Empty for ones.
    bounds : ndarray of int64 of shape (n_groups + 1,)
        Where groups begin, and the number of rows.
    shape : tuple
        (p, k)
    """

    def __init__(self, rows, y, weight, bounds, shape):
        self.rows, self.y, self.weight = rows, y, weight
        self.bounds, self.shape, self.n_rows = bounds, shape, len(rows)

    def local(self, groups, shared):
        """Return the `Local` of groups (s, n_groups, J)."""
        many, none = groups.shape, shared.shape[1]
        value, gradient = np.empty(many[:2]), np.empty(many)
        hessian = np.empty((*many, many[2]))
        Z = groups.reshape(*many[:2], *self.shape)
        of_rows = self.rows, self.y, self.weight, self.bounds

        def fill(first, last):
            about = *of_rows, first, last, Z
            kernels.fill_likelihood(*about, value, gradient, hessian)

        map_chunks(fill, many[1], GROUPS)
        empty = np.zeros((many[0], none, none))
        rest = np.zeros(shared.shape), np.zeros((*many, none)), empty
        return Local(value.sum(axis=1), gradient, hessian, *rest)

    def skewness(self, groups, shared, covariance, cross, within_shared):
        """Return the gradient of tr(Sigma H) by groups, and that by none."""
        out = np.empty(groups.shape)
        Z = groups.reshape(*groups.shape[:2], *self.shape)
        of_rows = self.rows, self.weight, self.bounds

        def fill(first, last):
            about = *of_rows, first, last, Z
            kernels.fill_skewness(*about, covariance, out)

        map_chunks(fill, groups.shape[1], GROUPS)
        return out, np.zeros(shared.shape)


class SoftmaxBlocks:
    """Rows of groups that lie in blocks elsewhere, in any order; as `SoftmaxRows`.

    Parameters
    ----------
    data : source
        Whose batches bring numbers of classes and groups.
    n_groups : int
    shape : tuple
        (p, k)
    """

    def __init__(self, data, n_groups, shape):
        self.data, self.n_groups, self.shape = data, n_groups, shape
        self.n_rows = data.n_units

    def local(self, groups, shared):
        """Return the `Local` of groups (s, n_groups, J)."""
        return self._sum("local", groups, shared)

    def skewness(self, groups, shared, *about):
        """Return the gradient of tr(Sigma H) by groups, and that by none."""
        return tuple(self._sum("skewness", groups, shared, *about))

    def _sum(self, what, *given):
        function = partial(_sum_of_block, what, self.n_groups, self.shape, given)
        return self.data.chunks().sum(function)


def _sum_of_block(what, n_groups, shape, given, batch):
    """Return what the rows of a block add to a sum."""
    order = np.argsort(batch.groups, kind="stable")
    bounds = np.searchsorted(batch.groups[order], np.arange(n_groups + 1))
    weight = batch.weight[order] if batch.weight.size else batch.weight
    rows = SoftmaxRows(batch.rows[order], batch.targets[order], weight, bounds, shape)
    found = getattr(rows, what)(*given)
    return found if what == "local" else Skewness(*found)


class NestedSoftmax(NestedModel):
    """The marginal of the scales of softmax regressions.

    Parameters
    ----------
    rows : SoftmaxRows or SoftmaxBlocks
    n_groups : int
    prior : HierarchicalPrior
    past : Quadratic, default=None
        What other rows have said.
    """

    def __init__(self, rows, n_groups, prior, past=None):
        self.shape = rows.shape
        p, n_classes = rows.shape
        J = p * n_classes
        each = np.broadcast_arrays(prior.variance, prior.log_scale)
        variance, log_scale = (np.repeat(part.ravel(), n_classes) for part in each)
        of_population = NestedPrior(
            np.zeros(J), variance, log_scale, prior.log_scale_std
        )
        super().__init__(rows, of_population, n_groups, past)

    def of_prior(self, prior):
        """Return the model with another prior."""
        return NestedSoftmax(self.likelihood, self.n_groups, prior, self.past)

    def of_population(self, point):
        """Return E mu^2 and the logarithms of the scales, (p, k)."""
        return tuple(part.reshape(self.shape) for part in super().of_population(point))

    def resume(self, point, before, mean, old):
        """Return the point that another fit has led to; `mean` are the groups'."""
        flat = mean.reshape(self.n_groups, -1)
        return Point(Scales(before.log_tau.ravel(), before.mean.ravel(), flat))

    def posterior(self, point, drawn=None):
        """Return the `NestedPosterior` where a fit has come to."""
        parts = super().posterior(point, drawn=drawn)
        return NestedPosterior(
            parts.groups.reshape(-1, *self.shape),
            parts.of_groups,
            parts.mean.reshape(self.shape),
            parts.scales.reshape(self.shape),
            parts.covariance,
            parts.coupling,
        )

    def drawn(self, point, posterior, n_seen):
        """Return the `Drawn` of a `NestedPosterior` that draws have led to."""
        return super().drawn(point, posterior.parts, n_seen)

    def log_marginal(self, point, posterior):
        """Return log p(y) by Laplace's method over the scales as well."""
        flat = posterior._replace(mean=posterior.mean.ravel())
        return super().log_marginal(point, flat)
