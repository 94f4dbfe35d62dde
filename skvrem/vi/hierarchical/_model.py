r"""Coefficients of groups that are drawn from a population: the bound and its gradient.

Coefficient j of the group m, of M groups, has the prior

.. math:: z_{mj} \sim N(\mu_j, \tau_j^2), \qquad \mu_j \sim N(0, s_0^2), \qquad
          \log \tau_j \sim N(\lambda_0, \kappa^2),

and the posterior is independent along j, and structured: a group's coefficients follow
the population's mean,

.. math:: q(\mu) = N(m, v), \quad q(z_m | \mu) = N(a_m + b_m (\mu - m), s_m^2), \quad
          q(\log \tau) = N(c, t^2),

by the share :math:`b_m = \pi s_m^2` with :math:`\pi = E \tau^{-2} = e^{-2c + 2t^2}`,
which is the best one where the likelihood of the group is Gaussian: the fewer rows a
group has, the closer to one. So the mean of the population is as uncertain as the
groups leave it, and :math:`z_m` has the variance :math:`s_m^2 + b_m^2 v`. With the
gradient g by :math:`a_m` and the curvature h of the rows of m, as sums over them
(``_model.py``), and :math:`Q_j = \sum_m E (z_{mj} - \mu_j)^2`, the bound is

.. math:: L = E \log p(y | Z) - \sum_{mj} \big(c_j - \log s_{mj} - \tfrac12\big)
          - \tfrac12 \sum_j \pi_j Q_j - KL(q(\mu), p) - KL(q(\log\tau), p) .

Everything has closed form but the expectations of rows, which are sums over nodes; the
gradient is exact, and is followed along L-BFGS directions. Their metric is the Fisher
information of q with the two couplings that would else make steps short: of
:math:`m` with all :math:`a_m`, and of :math:`c` with all :math:`\log s_m`. Both are
arrow matrices, solved in one pass over the groups. Memory is M p k numbers, however
many rows there are.

A stream goes on from what a posterior says of the rows that it has seen. At the optimum
their gradient by :math:`a_m` is :math:`\pi (a_m - m)` and their curvature
:math:`s_m^{-2} - \pi`, and a Gaussian factor of :math:`z_m` that has both takes their
place: the prior stays what it was, and the population follows from all groups.
"""

from copy import copy
from functools import partial
from typing import NamedTuple

import numpy as np

from skvrem.utils._algebra import Rows, combination
from skvrem.vi.gaussian._model import LARGEST_CHANGE, PlainModel, Point
from skvrem.vi.hierarchical import _kernels


class HierarchicalPrior(NamedTuple):
    """Prior of the population.

    Attributes
    ----------
    variance : ndarray of shape (p, 1)
        Of the population's means.
    log_scale : float or ndarray of shape (p, 1)
        Mean of the logarithm of the population's scales.
    log_scale_std : float
    """

    variance: np.ndarray
    log_scale: float | np.ndarray
    log_scale_std: float


class GroupPosterior(NamedTuple):
    """The posterior of groups and population.

    Attributes
    ----------
    group_mean, group_log_scale : ndarray of shape (n_groups, p, k)
        Means, and logarithms of standard deviations where the population is known.
    mean, log_scale : ndarray of shape (p, k)
        The same of the population's means.
    log_tau, log_tau_log_scale : ndarray of shape (p, k)
        The same of the logarithms of the population's scales.
    """

    group_mean: np.ndarray
    group_log_scale: np.ndarray
    mean: np.ndarray
    log_scale: np.ndarray
    log_tau: np.ndarray
    log_tau_log_scale: np.ndarray

    @property
    def precision(self):
        """E of the inverse square of the population's scales, an array (p, k)."""
        return np.exp(2.0 * (np.exp(2.0 * self.log_tau_log_scale) - self.log_tau))

    @property
    def shares(self):
        """By how much groups follow the population's mean, (n_groups, p, k)."""
        return self.precision * np.exp(2.0 * self.group_log_scale)

    @property
    def group_variance(self):
        """Variances of the coefficients of groups, (n_groups, p, k)."""
        follows = np.square(self.shares) * np.exp(2.0 * self.log_scale)
        return np.exp(2.0 * self.group_log_scale) + follows

    @property
    def new_variance(self):
        """Variances (p, k) of the coefficients of a group that has not been seen."""
        inner = np.exp(2.0 * (self.log_tau + np.exp(2.0 * self.log_tau_log_scale)))
        return np.exp(2.0 * self.log_scale) + inner

    def predictor(self):
        """Return a function of a batch and the places of its rows: see `predictors`.

        A place of -1 is that of a group that has not been seen.
        """
        mean = np.concatenate([self.group_mean, self.mean[None]])
        variance = np.concatenate([self.group_variance, self.new_variance[None]])
        return partial(predictors, mean, variance)

    def variances_along(self, axis):
        """Return those of sums over features, of weights (p,), by group and class.

        Of groups, (n_groups, k), and of the population's mean, (k,).
        """
        square = np.square(axis)
        return square @ self.group_variance, square @ np.exp(2.0 * self.log_scale)

    def step(self, some):
        """Return how some more rows move means of groups, all else at rest."""
        return some.gradient / (1.0 / self.group_variance + some.curvature)

    def squares(self, away):
        """Return how far means of groups move, in squares of widths, (n_groups,)."""
        return (np.square(away) / self.group_variance).sum(axis=(1, 2))

    def among(self, numbers):
        """Return the posterior of some groups."""
        mean, log_scale = self.group_mean[numbers], self.group_log_scale[numbers]
        return self._replace(group_mean=mean, group_log_scale=log_scale)

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
        shape = (n_samples, *self.mean.shape)
        away = np.exp(self.log_scale) * rng.standard_normal(shape)
        spread = np.exp(self.log_tau_log_scale)
        log_tau = self.log_tau + spread * rng.standard_normal(shape)
        noise = rng.standard_normal((n_samples, *self.group_mean.shape))
        groups = self.group_mean + np.exp(self.group_log_scale) * noise
        groups += self.shares * away[:, None]
        return self.mean + away, np.exp(log_tau), groups


class Past(NamedTuple):
    """What rows that have been seen say of groups: a quadratic about `at`.

    Attributes
    ----------
    at, gradient, curvature : ndarray of shape (n_groups, p, k)
    level : float
        Its value where z is `at`, in nats.
    """

    at: np.ndarray
    gradient: np.ndarray
    curvature: np.ndarray
    level: float

    @classmethod
    def of(cls, q):
        """Return what is behind a posterior; its level is zero."""
        pull = q.precision * (q.group_mean - q.mean)
        curvature = np.exp(-2.0 * q.group_log_scale) - q.precision
        return cls(q.group_mean, pull, np.maximum(curvature, 0.0), 0.0)

    def slope(self, q):
        """Return its gradient by the means of groups."""
        return self.gradient - self.curvature * (q.group_mean - self.at)

    def expected(self, q):
        """Return its expectation, in nats."""
        away = q.group_mean - self.at
        square = np.square(away) + q.group_variance
        total = np.sum(self.gradient * away) - 0.5 * np.sum(self.curvature * square)
        return float(total + self.level)

    def without(self, some, empty):
        """Return it without some rows; nothing is left of groups that are `empty`."""
        empty = empty[:, None, None]
        gradient = np.where(empty, 0.0, self.gradient - some.gradient)
        curvature = np.where(empty, 0.0, self.curvature - some.curvature)
        level = self.level - some.level
        return Past(self.at, gradient, np.maximum(curvature, 0.0), level)


class GroupSums(NamedTuple):
    """Sums over rows, of expectations under q, by group.

    Attributes
    ----------
    gradient, curvature : Rows or ndarray of shape (n_groups, p, k)
        By the coefficients, and its diagonal.
    objective : float
        Expected log-likelihood.
    """

    gradient: np.ndarray
    curvature: np.ndarray
    objective: float


class HierarchicalModel(PlainModel):
    """Rows of groups with coefficients of their own.

    Parameters
    ----------
    family : Softmax
    y : ndarray of int32 of shape (n_rows,), or None
        Numbers of classes.
    group : ndarray of int64 of shape (n_rows,), or None
        Numbers of groups. None: batches bring both, as their targets and groups.
    n_groups : int
    prior : HierarchicalPrior
    total_weight : float
        Of the rows.
    past : Past, default=None
        What other rows have said.
    """

    def __init__(self, family, y, group, n_groups, prior, total_weight, past=None):
        self.family = family
        self.y = y
        self.group = group
        self.n_groups = n_groups
        self.prior = prior
        self.total_weight = total_weight
        self.past = past

    def of_prior(self, prior):
        """Return the model with another prior."""
        model = copy(self)
        model.prior = prior
        return model

    def of_population(self, point):
        """Return E mu^2, and the means of the logarithms of the scales, (p, k)."""
        q = point.parameters
        return np.square(q.mean) + np.exp(2.0 * q.log_scale), q.log_tau

    def volume_gained(self, other, point):
        """Return 0: of scales that are averaged over the bound knows the volume."""
        return 0.0

    def refined(self, point):
        """Return the model with finer quadrature, None where there is none."""
        model = copy(self)
        model.family = self.family.refined()
        return None if model.family is None else model

    def start(self, data):
        """Return the point at zero, as certain as rows there make it."""
        prior = self.prior
        p, k = len(prior.variance), self.family.n_predictors
        many, few = np.zeros((self.n_groups, p, k)), np.zeros((p, k))
        q = GroupPosterior(
            many,
            many - np.inf,
            few,
            few - np.inf,
            few + prior.log_scale,
            few - 0.5 * np.log(2.0 * self.n_groups + prior.log_scale_std**-2.0),
        )
        sums = data.chunks().sum(partial(self.statistics, Point(q), beta=1.0))
        # The best scales of groups and means for that curvature.
        curvature, precision = sums.curvature, q.precision
        of_mean = curvature * precision / (curvature + precision)
        total = 1.0 / prior.variance + of_mean.sum(axis=0)
        group_log_scale = -0.5 * np.log(curvature + precision)
        log_scale = -0.5 * np.log(total)
        return Point(q._replace(group_log_scale=group_log_scale, log_scale=log_scale))

    def resume(self, point, before, mean, old):
        """Return the point that another fit has led to, new groups as in `point`.

        `mean` are the groups' means, `old` their numbers in that fit, -1 for new ones.
        """
        q = point.parameters
        if not isinstance(before, GroupPosterior):
            return Point(q._replace(group_mean=mean, mean=before.mean))
        new = (old < 0)[:, None, None]
        log_scale = np.where(new, q.group_log_scale, before.group_log_scale[old])
        return Point(before._replace(group_mean=mean, group_log_scale=log_scale))

    def posterior(self, point, drawn=None):
        """Return the posterior where a fit has come to."""
        return point.parameters

    # Sums over rows

    def statistics(self, point, batch, beta):
        """Return the sums of a batch, of its own groups only."""
        rows = np.asarray(batch.ids, np.int64)
        y, group = self.y, self.group
        if group is None:
            y, group = batch.targets, batch.groups
        touched, place = np.unique(group[rows], return_inverse=True)
        q = point.parameters
        part = q.among(touched)
        place = place.astype(np.int64, copy=False)
        a, spread = predictors(part.group_mean, part.group_variance, batch, place)
        weight = batch.weight[rows] if batch.weight.size else batch.weight
        loss, first, second = self.family.expectations(a, spread, y[rows], weight)
        gradient, curvature = (np.zeros(part.group_mean.shape) for _ in range(2))
        _kernels.add_group_sums(
            batch.rows, rows, place, first, second, gradient, curvature
        )
        gradient = Rows(touched, gradient, self.n_groups)
        return GroupSums(gradient, Rows(touched, curvature, self.n_groups), -loss)

    def said(self, q, data):
        """Return the `Past` that rows become under a posterior."""
        sums = data.chunks().sum(partial(self.statistics, Point(q), beta=1.0))
        level = sums.objective + 0.5 * np.sum(sums.curvature * q.group_variance)
        return Past(q.group_mean, sums.gradient, sums.curvature, level)

    # What the solvers ask for

    def objective(self, point, mean):
        """Return the evidence lower bound, in nats."""
        q, prior = point.parameters, self.prior
        v, t = np.exp(2.0 * q.log_scale), np.exp(2.0 * q.log_tau_log_scale)
        of_groups = (q.group_log_scale + 0.5 - q.log_tau).sum()
        of_groups -= 0.5 * np.sum(q.precision * self._distances(q))
        ratio = (np.square(q.mean) + v) / prior.variance
        of_means = 0.5 * np.sum(1.0 - ratio + np.log(v / prior.variance))
        away, spread = q.log_tau - prior.log_scale, prior.log_scale_std**2
        ratio = (np.square(away) + t) / spread
        of_scales = 0.5 * np.sum(1.0 - ratio + np.log(t / spread))
        total = self.total_weight * mean.objective
        if self.past is not None:
            total += self.past.expected(q)
        return float(total + of_groups + of_means + of_scales)

    def _distances(self, q):
        """Return Q, of shape (p, k)."""
        square = np.square(q.group_mean - q.mean) + np.exp(2.0 * q.group_log_scale)
        square += np.square(1.0 - q.shares) * np.exp(2.0 * q.log_scale)
        return square.sum(axis=0)

    def gradient(self, point, mean):
        """Return the gradient by all parameters, one after the other."""
        q, prior = point.parameters, self.prior
        g, h = self.total_weight * mean.gradient, self.total_weight * mean.curvature
        if self.past is not None:
            g, h = g + self.past.slope(q), h + self.past.curvature
        precision, b = q.precision, q.shares
        s, v = np.exp(2.0 * q.group_log_scale), np.exp(2.0 * q.log_scale)
        pull = precision * (q.group_mean - q.mean)
        of_mean = h * np.square(b) + precision * np.square(1.0 - b)
        total = 1.0 / prior.variance + of_mean.sum(axis=0)
        # The shares move with the scales of groups and of the population.
        by_share = v * b * (precision * (1.0 - b) - h * b)
        fit = precision * self._distances(q) - 2.0 * by_share.sum(axis=0)
        spread, t = prior.log_scale_std**2, np.exp(2.0 * q.log_tau_log_scale)
        parts = GroupPosterior(
            g - pull,
            1.0 - s * (h + precision) + 2.0 * by_share,
            pull.sum(axis=0) - q.mean / prior.variance,
            1.0 - v * total,
            fit - self.n_groups - (q.log_tau - prior.log_scale) / spread,
            1.0 - t * (2.0 * fit + 1.0 / spread),
        )
        return np.concatenate([part.ravel() for part in parts])

    def _split(self, vector):
        """Return a vector as arrays of the shapes of the parameters."""
        shape = (len(self.prior.variance), self.family.n_predictors)
        groups = (self.n_groups, *shape)
        shapes = groups, groups, shape, shape, shape, shape
        ends = np.cumsum([np.prod(one) for one in shapes])[:-1]
        parts = np.split(vector, ends)
        return GroupPosterior(*map(np.reshape, parts, shapes))

    def move(self, point, step):
        """Return the point with its parameters moved."""
        short = self._split(np.clip(step, -LARGEST_CHANGE, LARGEST_CHANGE))
        whole = self._split(step)
        step = short._replace(group_mean=whole.group_mean, mean=whole.mean)
        return Point(GroupPosterior(*map(np.add, point.parameters, step)))

    def precondition(self, point, vector):
        """Multiply by the inverse of the metric: Fisher's, about, with two arrows."""
        q, r, prior = point.parameters, self._split(vector), self.prior
        precision, b = q.precision, q.shares
        s = np.exp(2.0 * q.group_log_scale)
        share = np.minimum(b, 1.0)
        total = 1.0 / prior.variance + precision * (1.0 - share).sum(axis=0)
        by_mean = (r.mean + (share * r.group_mean).sum(axis=0)) / total
        total = 2.0 * precision * self._distances(q) + prior.log_scale_std**-2.0
        total = total - 2.0 * np.square(share).sum(axis=0)
        by_tau = (r.log_tau + (share * r.group_log_scale).sum(axis=0)) / total
        parts = GroupPosterior(
            s * r.group_mean + share * by_mean,
            0.5 * r.group_log_scale + share * by_tau,
            by_mean,
            0.5 * r.log_scale,
            by_tau,
            0.5 * r.log_tau_log_scale,
        )
        return np.concatenate([part.ravel() for part in parts])

    def update(self, point, mean, correction, step):
        """Return the point after a step along the preconditioned gradient."""
        sums = combination((1.0, mean), (1.0, correction))
        direction = self.precondition(point, self.gradient(point, sums))
        return self.move(point, step * direction)


def predictors(mean, variance, batch, place):
    """Return means and standard deviations (m, k) of the predictors of rows.

    Parameters
    ----------
    mean, variance : ndarray of shape (n_groups, p, k)
    batch : skvrem.data.RowBatch
    place : ndarray of int64 of shape (m,)
        Number of the group of each row of the batch.
    """
    rows = np.asarray(batch.ids, np.int64)
    a, spread = (np.empty((rows.size, mean.shape[2])) for _ in range(2))
    _kernels.group_predictors(batch.rows, rows, place, mean, variance, a, spread)
    return a, spread
