r"""Groups whose scales are integrated out last: nested Gaussian approximations.

With the logarithms t of the population's scales, one a coefficient, :math:`T =
\mathrm{diag}\, e^{-2t}`, coefficients :math:`z_m` of the group m and their population's
means :math:`\mu`, the log-likelihood of the rows of m has the gradient :math:`g_m` and
the Hessian :math:`-H_m` (``_kernels_nested.py``). Given t, the log-density of all
coefficients is concave; its Hessian is an arrow,

.. math:: P_m = H_m + T, \qquad S = s_0^{-2} I + \sum_m (T - T P_m^{-1} T),

of whose inverse the blocks are :math:`\mathrm{cov}(\mu) = S^{-1}` and, with
:math:`K_m = P_m^{-1} T`,

.. math:: \mathrm{cov}(z_m) = P_m^{-1} + K_m S^{-1} K_m^T, \qquad
          \mathrm{cov}(z_m, \mu) = K_m S^{-1} .

Newton's method finds the mode, and Laplace's method the marginal of t,

.. math:: L(t) = \log p(y, \mu^*, Z^* | t) - \tfrac12 \sum_m \log |P_m|
          - \tfrac12 \log |S| + \log p(t) .

To first order the mean of the coefficients is their mode and
:math:`\delta = -\tfrac12 A^{-1} v`, A the arrow and v the gradient of
:math:`\mathrm{tr}(\Sigma H)`: this shift is also what L is differentiated by,

.. math:: \frac{dL}{dt_j} = \sum_m T_j \left( e_{mj}^2 + 2 e_{mj} (\delta_{mj} -
          \delta_{\mu j}) + C_{mjj} \right) - M - \frac{t_j - \lambda_0}{\kappa^2},

with :math:`e_m = z_m^* - \mu^*` and :math:`C_m = \mathrm{cov}(z_m - \mu)`. The metric
of the steps that climb L is the information of Louis (1982),

.. math:: 2 \sum_m T (e_m^2 + C_m) + \kappa^{-2} I - \sum_m T (2 C_m \circ C_m
          + 4 e_m e_m^T \circ P_m^{-1}) T - 4 W S^{-1} W^T, \quad
          W = \sum_m \mathrm{diag}(T e_m) (K_m - I) .

The posterior is :math:`q(t) = N(t^*, V)`, with V from differences of the gradient, and
the Gaussian of the coefficients given t, about their shifted mode. What is kept of it
are its mean and its covariances, of a mixture over draws of t that do not lead too far
away. A q(t) that does not
know the coefficients, as that of ``_model.py``, has a deviation of :math:`(2 M +
1)^{-1/2}` however little the rows of a group say; this has not.
"""

from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri
from scipy.stats import qmc

from skvrem.utils._parallel import map_chunks
from skvrem.vi.gaussian._model import PlainModel, Point
from skvrem.vi.hierarchical import _kernels_nested as kernels

# Newton's method ends where a step would gain less, in nats; steps, and halvings.
SETTLED, STEPS, HALVINGS = 1e-9, 60, 30
# Scales lie within so many powers of e of their prior's median, and move by so many;
# and the least information of them that is believed, a group.
FARTHEST, LONGEST, LEAST = 7.0, 1.0, 0.3
# Groups a thread takes at a time, and numbers in the matrices of points at once.
GROUPS, ROOM = 64, 1 << 22
# Draws of the scales at most; multiplications that they, or differences, may cost;
# passes of one of them, about; and the step of the differences.
N_DRAWS, WORTH, PASSES, APART = 128, 1.5e8, 5, 0.1
# Deviations that coefficients of a draw may be away from where they move linearly.
REACH = 2.0


class Scales(NamedTuple):
    """Where a fit stands: the scales, and where Newton's method begins.

    Attributes
    ----------
    log_tau, mean : ndarray of shape (p, k)
    group_mean : ndarray of shape (n_groups, p, k)
    """

    log_tau: np.ndarray
    mean: np.ndarray
    group_mean: np.ndarray


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
        shape, size = self.mean.shape, self.mean.size
        away = rng.standard_normal((n_samples, 2 * size)) @ _root(self.covariance).T
        follow = np.linalg.solve(self.covariance, self.coupling.swapaxes(1, 2))
        left = self.group_covariance - self.coupling @ follow
        noise = rng.standard_normal((n_samples, len(left), size))
        groups = np.einsum("mij,smj->smi", _root(left), noise)
        groups += np.einsum("mji,sj->smi", follow, away)
        means, log_tau = away[:, :size], away[:, size:]
        return (
            self.mean + means.reshape(n_samples, *shape),
            np.exp(self.log_tau + log_tau.reshape(n_samples, *shape)),
            self.group_mean + groups.reshape(n_samples, -1, *shape),
        )


def predictors(mean, covariance, batch, place):
    r"""Return means and standard deviations (m, k) of the predictors of rows.

    Only differences of predictors have probabilities. Their variances :math:`v_{ab}`
    are those of independent predictors with :math:`\sigma_a^2 = \frac{1}{k - 2}
    (\sum_b v_{ab} - \frac{1}{2 (k - 1)} \sum_{bc} v_{bc})` for three classes, nearly so
    for more, and for two with half of theirs each.

    Parameters
    ----------
    mean : ndarray of shape (n_groups, p, k)
    covariance : ndarray of shape (n_groups, J, J)
    batch : skvrem.data.RowBatch
    place : ndarray of int64 of shape (m,)
        Number of the group of each row of the batch.
    """
    rows, k = np.asarray(batch.ids, np.int64), mean.shape[2]
    a, G = np.empty((rows.size, k)), np.empty((rows.size, k, k))
    kernels.fill_predictors(batch.rows, rows, place, mean, covariance, a, G)
    own = np.diagonal(G, axis1=1, axis2=2)
    apart = own[:, :, None] + own[:, None] - 2.0 * G
    each = apart.sum(axis=2)
    total = each.sum(axis=1, keepdims=True)
    if k == 2:
        variance = 0.25 * total.repeat(2, axis=1)
    else:
        variance = (each - total / (2.0 * (k - 1.0))) / (k - 2.0)
    return a, np.sqrt(np.maximum(variance, 0.0))


def _root(covariance):
    """Return R with R R^T = covariance; rounding may have left it singular."""
    values, vectors = np.linalg.eigh(covariance)
    return vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]


class Past(NamedTuple):
    """What rows that have been seen say of groups: a quadratic about `at`.

    Attributes
    ----------
    at, gradient : ndarray of shape (n_groups, J)
    hessian : ndarray of shape (n_groups, J, J)
        Minus the Hessian.
    level : float
        Its value where coefficients are `at`, in nats.
    """

    at: np.ndarray
    gradient: np.ndarray
    hessian: np.ndarray
    level: float


class Sums(NamedTuple):
    """What a pass finds: L, and its gradient by the logarithms of the scales."""

    objective: float
    gradient: np.ndarray


class Modes(NamedTuple):
    """Coefficients of largest density given the scales, at s points at once.

    Attributes
    ----------
    log_tau, mean : ndarray of shape (s, J)
    groups : ndarray of shape (s, n_groups, J)
    inverses : ndarray of shape (s, n_groups, J, J)
        Of P.
    of_mean : ndarray of shape (s, J, J)
        The inverse of S.
    objective : ndarray of shape (s,)
        L
    likelihood : ndarray of shape (s,)
        log p(y | Z)
    gradient : ndarray of shape (s, n_groups, J)
        g
    hessian : ndarray of shape (s, n_groups, J, J)
        H
    """

    log_tau: np.ndarray
    mean: np.ndarray
    groups: np.ndarray
    inverses: np.ndarray
    of_mean: np.ndarray
    objective: np.ndarray
    likelihood: np.ndarray
    gradient: np.ndarray
    hessian: np.ndarray

    @property
    def precision(self):
        """T, (s, 1, J)."""
        return np.exp(-2.0 * self.log_tau)[:, None]

    @property
    def away(self):
        """E, (s, n_groups, J)."""
        return self.groups - self.mean[:, None]

    def solve(self, of_groups, of_mean):
        """Return the inverse of the arrow times (s, n_groups, J, r) and (s, J, r)."""
        T = self.precision.swapaxes(1, 2)
        w = self.inverses @ of_groups
        u = self.of_mean @ (of_mean + T * w.sum(axis=1))
        return w + self.inverses @ (T * u)[:, None], u

    def response(self, changes):
        """Return the first-order changes of modes with those of the scales (J, r)."""
        turn = 2.0 * (self.precision * self.away)[..., None] * changes
        return self.solve(turn, -turn.sum(axis=1))

    def covariances(self, against=0.0):
        """Return cov(z - against mu), (s, n_groups, J, J)."""
        K = self.inverses * self.precision[:, None] - against * np.eye(len(self.mean.T))
        return self.inverses + K @ self.of_mean[:, None] @ K.swapaxes(2, 3)


class NestedModel(PlainModel):
    """Rows of groups, and the marginal of the population's scales.

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
    n_classes : int
    prior : HierarchicalPrior
    past : Past, default=None
        What other rows have said.
    """

    longest_step = LONGEST

    def __init__(self, rows, y, weight, bounds, n_classes, prior, past=None):
        self.rows, self.y, self.weight = rows, y, weight
        self.bounds, self.prior, self.past = bounds, prior, past
        self.shape = len(prior.variance), n_classes
        self.variance = np.repeat(prior.variance.ravel(), n_classes)
        self._known = None, None

    @property
    def n_groups(self):
        """Number of groups."""
        return len(self.bounds) - 1

    def start(self, data):
        """Return the point to start from: zero."""
        few = np.zeros(self.shape)
        return Point(Scales(few + self.prior.log_scale, few, np.zeros(self._many())))

    def resume(self, point, before, mean, old):
        """Return the point that another fit has led to; `mean` are the groups'."""
        return Point(Scales(before.log_tau, before.mean, mean))

    def _many(self):
        return (self.n_groups, *self.shape)

    # The coefficients given the scales

    def _likelihood(self, groups):
        """Return log p(y | Z) of groups, its gradient and minus its Hessian."""
        many = groups.shape
        value, gradient = np.empty(many[:2]), np.empty(many)
        hessian = np.empty((*many, many[2]))
        Z = groups.reshape(*many[:2], *self.shape)
        of_rows = self.rows, self.y, self.weight, self.bounds

        def fill(first, last):
            about = *of_rows, first, last, Z
            kernels.fill_likelihood(*about, value, gradient, hessian)

        map_chunks(fill, self.n_groups, GROUPS)
        value = value.sum(axis=1)
        if self.past is not None:
            at, slope, curvature, level = self.past
            away = groups - at
            bent = (curvature @ away[..., None])[..., 0]
            value = value + level + (away * (slope - 0.5 * bent)).sum(axis=(1, 2))
            gradient, hessian = gradient + slope - bent, hessian + curvature
        return value, gradient, hessian

    def _log_prior(self, log_tau, mean, groups):
        """Return log p(mu, Z | t) without the powers of 2 pi."""
        T = np.exp(-2.0 * log_tau)
        square = np.square(groups - mean[:, None]).sum(axis=1)
        of_groups = (-self.n_groups * log_tau - 0.5 * T * square).sum(axis=1)
        ratio = np.square(mean) / self.variance
        return of_groups - 0.5 * (ratio + np.log(self.variance)).sum(axis=1)

    def settle(self, log_tau, mean, groups):
        """Return the `Modes` given scales (s, J), found from such coefficients."""
        T = np.exp(-2.0 * log_tau)[:, None]
        likelihood, g, H = self._likelihood(groups)
        density = likelihood + self._log_prior(log_tau, mean, groups)
        for step in range(STEPS + 1):
            modes = self._modes(log_tau, mean, groups, likelihood, g, H)
            pull = T * (groups - mean[:, None])
            of_groups, of_mean = g - pull, pull.sum(axis=1) - mean / self.variance
            by_groups, by_mean = (
                part[..., 0]
                for part in modes.solve(of_groups[..., None], of_mean[..., None])
            )
            gain = 0.5 * (of_groups * by_groups).sum(axis=(1, 2))
            gain += 0.5 * (of_mean * by_mean).sum(axis=1)
            if step == STEPS or (gain < SETTLED).all():
                return modes._replace(objective=self._marginal(modes, density))
            length = np.ones(len(mean))
            for _ in range(HALVINGS):
                moved = mean + length[:, None] * by_mean
                others = groups + length[:, None, None] * by_groups
                likelihood, g, H = self._likelihood(others)
                reached = likelihood + self._log_prior(log_tau, moved, others)
                lower = ~(reached >= density - 1e-10 * np.abs(density))
                if not lower.any():
                    break
                length[lower] *= 0.5
            mean, groups, density = moved, others, reached

    def _modes(self, log_tau, mean, groups, likelihood, g, H):
        """Return the arrow at some coefficients, L left open."""
        T, J = np.exp(-2.0 * log_tau), log_tau.shape[1]
        P = H.copy()
        P.reshape(*P.shape[:2], J * J)[..., :: J + 1] += T[:, None]
        inverses = np.linalg.inv(P)
        # T - T P^-1 T without a difference of large numbers.
        S = (H @ inverses).sum(axis=1) * T[:, None]
        S = 0.5 * (S + S.swapaxes(1, 2))
        S.reshape(len(S), J * J)[:, :: J + 1] += 1.0 / self.variance
        known = np.nan, likelihood, g, H
        return Modes(log_tau, mean, groups, inverses, np.linalg.inv(S), *known)

    def _marginal(self, modes, density):
        """Return L where the log-density of rows and coefficients is `density`."""
        away = (modes.log_tau - self.prior.log_scale) / self.prior.log_scale_std
        log_det = np.linalg.slogdet(modes.inverses)[1].sum(axis=1)
        log_det += np.linalg.slogdet(modes.of_mean)[1]
        return density + 0.5 * log_det - 0.5 * np.square(away).sum(axis=1)

    def shift(self, modes):
        """Return what leads from modes to means: of groups (s, n_groups, J), of mu."""
        covariance, out = modes.covariances(), np.empty(modes.groups.shape)
        Z = modes.groups.reshape(*modes.groups.shape[:2], *self.shape)
        of_rows = self.rows, self.weight, self.bounds

        def fill(first, last):
            about = *of_rows, first, last, Z
            kernels.fill_skewness(*about, covariance, out)

        map_chunks(fill, self.n_groups, GROUPS)
        zero = np.zeros((*modes.mean.shape, 1))
        by_groups, by_mean = modes.solve(-0.5 * out[..., None], zero)
        return by_groups[..., 0], by_mean[..., 0]

    def slope(self, modes):
        """Return dL / dt, (s, J)."""
        e, prior = modes.away, self.prior
        by_groups, by_mean = self.shift(modes)
        spread = np.diagonal(modes.covariances(against=1.0), axis1=2, axis2=3)
        square = np.square(e) + 2.0 * e * (by_groups - by_mean[:, None]) + spread
        total = (modes.precision * square).sum(axis=1) - self.n_groups
        return total - (modes.log_tau - prior.log_scale) / prior.log_scale_std**2

    def information(self, modes):
        """Return Louis' information (J, J) at the first of the modes."""
        T, e, C = (
            modes.precision[0, 0],
            modes.away[0],
            modes.covariances(against=1.0)[0],
        )
        P, one = modes.inverses[0], np.eye(len(T))
        spread = np.diagonal(C, axis1=1, axis2=2)
        own = 2.0 * T * (np.square(e) + spread).sum(axis=0)
        inner = 2.0 * np.square(C) + 4.0 * e[:, :, None] * e[:, None] * P
        W = ((T * e)[:, :, None] * (P * T - one)).sum(axis=0)
        found = np.diag(own) - T[:, None] * inner.sum(axis=0) * T
        found -= 4.0 * W @ modes.of_mean[0] @ W.T
        return found + one / self.prior.log_scale_std**2

    # What the solver asks for

    def modes(self, point):
        """Return the modes at a point, kept until another point is looked at."""
        scales = point.parameters
        if self._known[0] is not scales:
            flat = (part.reshape(1, *part.shape[:-2], -1) for part in scales)
            self._known = scales, self.settle(*flat)
        return self._known[1]

    def statistics(self, point, batch, beta):
        """Return L and its gradient."""
        modes = self.modes(point)
        return Sums(float(modes.objective[0]), self.slope(modes)[0])

    def objective(self, point, mean):
        """Return L, Laplace's approximation of the marginal, in nats."""
        return float(mean.objective)

    def gradient(self, point, mean):
        """Return the gradient of L."""
        return mean.gradient

    def precondition(self, point, vector):
        """Multiply by the inverse of Louis' information."""
        information = self.information(self.modes(point))
        root = self._root(information, LEAST * self.n_groups)
        return root @ (root.T @ vector)

    def _root(self, information, least=0.0):
        """Return R with R R^T the inverse of an information, of so much at least."""
        values, vectors = np.linalg.eigh(information)
        least = max(least, 0.25 / self.prior.log_scale_std**2)
        return vectors / np.sqrt(np.maximum(values, least))

    def move(self, point, step):
        """Return the point with its scales moved, and where its modes will be."""
        modes, prior = self.modes(point), self.prior
        ends = prior.log_scale - FARTHEST, prior.log_scale + FARTHEST
        log_tau = np.clip(modes.log_tau[0] + step, *ends)
        moved, of_mean = modes.response((log_tau - modes.log_tau[0])[:, None])
        mean = (modes.mean + of_mean[..., 0]).reshape(self.shape)
        groups = (modes.groups + moved[..., 0]).reshape(self._many())
        return Point(Scales(log_tau.reshape(self.shape), mean, groups))

    # What a fit leaves

    def seen(self, point):
        """Return what all rows say of groups, as the `Past` of those to come.

        It lies about the mean of the coefficients, which is their mode by then: with
        nothing new neither they nor, but for a square of the shift, the scales move.
        """
        modes = self.modes(point)
        by_groups, by_mean = self.shift(modes)
        at = modes.groups + by_groups
        pull = modes.precision * (at - (modes.mean + by_mean)[:, None])
        bent = (modes.hessian @ by_groups[..., None])[..., 0]
        gain = (by_groups * (modes.gradient - 0.5 * bent)).sum()
        level = float(modes.likelihood[0] + gain)
        return Past(at[0], pull[0], modes.hessian[0], level)

    def log_marginal(self, point, posterior):
        """Return log p(y) by Laplace's method over the scales as well."""
        size = self.variance.size
        log_det = np.linalg.slogdet(posterior.covariance[size:, size:])[1]
        spread = size * np.log(self.prior.log_scale_std)
        return float(self.modes(point).objective[0] + 0.5 * log_det - spread)

    def posterior(self, point, final=True):
        """Return the posterior where a fit has come to.

        Parameters
        ----------
        point : Point
        final : bool, default=True
            Take what it costs to know the scales better: differences of the gradient
            and draws, where they are worth their time.

        Returns
        -------
        posterior : NestedPosterior
        """
        modes, J = self.modes(point), self.variance.size
        work = PASSES * (len(self.rows) + self.n_groups * J) * J**2
        information = self.information(modes)
        if final and 2 * J * work < WORTH:
            information = self._differences(modes)
        root = self._root(information)
        n_draws = min(N_DRAWS, int(WORTH / work))
        if final and n_draws >= 2 * J:
            # Points of Sobol's are even where they are a power of two.
            n_draws = 1 << (n_draws.bit_length() - 1)
            parts = self._mixture(modes, root, n_draws)
        else:
            parts = self._linear(modes, root)
        groups, of_groups, mean, covariance, coupling = parts
        mean = mean.reshape(self.shape)
        groups = groups.reshape(self._many())
        log_tau = modes.log_tau[0].reshape(self.shape)
        return NestedPosterior(groups, of_groups, mean, log_tau, covariance, coupling)

    def _at(self, modes, scales):
        """Yield modes at other scales (s, J), as many at a time as have room."""
        size = max(1, ROOM // modes.inverses.size)
        for first in range(0, len(scales), size):
            some = scales[first : first + size]
            moved, of_mean = modes.response((some - modes.log_tau).T)
            mean, groups = modes.mean + of_mean[0].T, np.moveaxis(moved[0], 2, 0)
            yield self.settle(some, mean, modes.groups + groups)

    def _differences(self, modes):
        """Return minus the Hessian of L, by central differences of its gradient."""
        steps = APART * np.eye(modes.log_tau.size)
        scales = modes.log_tau + np.concatenate([steps, -steps])
        slopes = np.concatenate([self.slope(some) for some in self._at(modes, scales)])
        ahead, behind = np.split(slopes, 2)
        hessian = (ahead - behind) / (2.0 * APART)
        return -0.5 * (hessian + hessian.T)

    def _mixture(self, modes, root, n_draws):
        """Return means and covariances of coefficients, of a mixture over scales.

        Coefficients of a draw stay within `REACH` deviations of those that move
        linearly: where classes of a group can be separated they grow with the scales
        without end, and a Gaussian that followed would be of a few draws.
        """
        J, M = root.shape[0], self.n_groups
        near, spread, near_mean, both, _ = self._linear(modes, root)
        reach = REACH * np.sqrt(np.diagonal(spread, axis1=1, axis2=2))
        of_means = REACH * np.sqrt(np.diagonal(both)[:J])
        noise = ndtri(qmc.Sobol(J, seed=0).random(n_draws).clip(1e-6, 1.0 - 1e-6))
        # With the mean and the covariance that they stand for.
        noise -= noise.mean(axis=0)
        scatter = np.linalg.cholesky(noise.T @ noise / n_draws)
        noise = np.linalg.solve(scatter, noise.T).T
        away, prior = noise @ root.T, self.prior
        ends = prior.log_scale - FARTHEST, prior.log_scale + FARTHEST
        scales = np.clip(modes.log_tau + away, *ends)
        means, groups = np.empty((n_draws, J)), np.empty((n_draws, M, J))
        within, of_mean, coupling, first = 0.0, 0.0, 0.0, 0
        for some in self._at(modes, scales):
            here = slice(first, first + len(some.mean))
            by_groups, by_mean = self.shift(some)
            means[here] = some.mean + by_mean - near_mean
            groups[here] = some.groups + by_groups - near
            covariance = some.covariances()
            own = np.sqrt(np.diagonal(covariance, axis1=2, axis2=3))
            short = np.minimum(1.0, reach / own)[..., None]
            covariance *= short * short.swapaxes(2, 3)
            within = within + covariance.sum(axis=0)
            of_mean = of_mean + some.of_mean.sum(axis=0)
            K = some.inverses * some.precision[:, None]
            coupling = coupling + (short * (K @ some.of_mean[:, None])).sum(axis=0)
            first = here.stop
        np.clip(means, -of_means, of_means, out=means)
        np.clip(groups, -reach, reach, out=groups)
        mean, group = means.mean(axis=0), groups.mean(axis=0)
        both, apart = np.hstack([means - mean, away]), (groups - group).swapaxes(0, 1)
        covariance = both.T @ both / n_draws
        covariance[:J, :J] += of_mean / n_draws
        across = apart.swapaxes(1, 2)
        within = within / n_draws + across @ apart / n_draws
        beside = across @ both / n_draws
        beside[:, :, :J] += coupling / n_draws
        return near + group, within, near_mean + mean, covariance, beside

    def _linear(self, modes, root):
        """Return the same, of modes that move linearly with the scales."""
        J = len(root)
        by_groups, by_mean = self.shift(modes)
        groups, mean = (part[0] for part in modes.response(root))
        both = np.concatenate([mean, root])
        covariance = both @ both.T
        covariance[:J, :J] += modes.of_mean[0]
        within = modes.covariances()[0] + groups @ groups.swapaxes(1, 2)
        coupling = groups @ both.T
        K = modes.inverses[0] * modes.precision[0]
        coupling[:, :, :J] += K @ modes.of_mean[0]
        group = modes.groups[0] + by_groups[0]
        return group, within, modes.mean[0] + by_mean[0], covariance, coupling
