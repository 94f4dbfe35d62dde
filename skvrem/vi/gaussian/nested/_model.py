r"""Groups whose scales are integrated out last: nested Gaussian approximations.

Rows of the group m know the coefficients :math:`z_m` of the group and the coefficients
:math:`\beta` that all groups share. With the logarithms t of the population's scales,
one a coefficient, :math:`T = \mathrm{diag}\, e^{-2t}`, and the population's means
:math:`\mu`,

.. math:: z_m \sim N(\mu, T^{-1}), \qquad b = (\mu, \beta) \sim N(b_0, S_0) .

The log-likelihood of the rows of m has the gradient :math:`g_m` by :math:`z_m`, minus
its Hessian is :math:`H_m`, and :math:`X_m` with :math:`\beta` (:math:`H_\beta` with
itself, over all groups). Given t, the log-density of all coefficients is concave; its
Hessian is an arrow,

.. math:: P_m = H_m + T, \qquad C_m = (-T, X_m), \qquad S = S_0^{-1} +
          \mathrm{diag}(M T, H_\beta) - \sum_m C_m^T P_m^{-1} C_m,

of whose inverse the blocks are :math:`\mathrm{cov}(b) = S^{-1}` and, with
:math:`K_m = -P_m^{-1} C_m`,

.. math:: \mathrm{cov}(z_m) = P_m^{-1} + K_m S^{-1} K_m^T, \qquad
          \mathrm{cov}(z_m, b) = K_m S^{-1} .

Newton's method finds the mode, and Laplace's method the marginal of t,

.. math:: L(t) = \log p(y, b^*, Z^* | t) - \tfrac12 \sum_m \log |P_m|
          - \tfrac12 \log |S| + \log p(t) .

To first order the mean of the coefficients is their mode and
:math:`\delta = -\tfrac12 A^{-1} v`, A the arrow and v the gradient of
:math:`\mathrm{tr}(\Sigma H)`: this shift is also what L is differentiated by,

.. math:: \frac{dL}{dt_j} = \sum_m T_j \left( e_{mj}^2 + 2 e_{mj} (\delta_{mj} -
          \delta_{\mu j}) + D_{mjj} \right) - M - \frac{t_j - \lambda_j}{\kappa^2},

with :math:`e_m = z_m^* - \mu^*` and :math:`D_m = \mathrm{cov}(z_m - \mu)`. The metric
of the steps that climb L is the information of Louis (1982),

.. math:: 2 \sum_m T (e_m^2 + D_m) + \kappa^{-2} I - \sum_m T (2 D_m \circ D_m
          + 4 e_m e_m^T \circ P_m^{-1}) T - 4 W S^{-1} W^T, \quad
          W = \sum_m \mathrm{diag}(T e_m) (K_m - (I, 0)) .

Where targets have Gaussian noise that is learnt, the logarithm l of its deviation is
one more number beside t. Laplace's method is exact then, and with n rows, the residuals
r and the curvature H at the mode

.. math:: \frac{dL}{dl} = -n + e^{-2l} |r|^2 + \mathrm{tr}(\Sigma H) .

The posterior is :math:`q(t) = N(t^*, V)`, with V from differences of the gradient, and
the Gaussian of the coefficients given t, about their shifted mode. What is kept of it
are its mean and its covariances, of a mixture over draws of t that do not lead too far
away. A q(t) that does not
know the coefficients, as that of independent ones, has a deviation of :math:`(2 M +
1)^{-1/2}` however little the rows of a group say; this has not.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import ndtri
from scipy.stats import qmc

from skvrem.vi.gaussian._model import PlainModel, Point
from skvrem.vi.gaussian.nested._model_drawn import Drawn
from skvrem.vi.gaussian.nested._model_modes import (
    Local,
    Modes,
    Parts,
    Quadratic,
)

# Newton's method ends where a step would gain less, in nats; steps, and halvings.
SETTLED, STEPS, HALVINGS = 1e-9, 60, 30
# Scales lie within so many powers of e of their prior's median, and move by so many;
# and the least information of them that is believed, a group.
FARTHEST, LONGEST, LEAST = 7.0, 1.0, 0.3
# Numbers in the matrices of points at once.
ROOM = 1 << 22
# Draws of the scales at most; multiplications that they, or differences, may cost;
# passes of one of them, about; and the step of the differences.
N_DRAWS, WORTH, PASSES, APART = 128, 1.5e8, 5, 0.1
# Deviations that coefficients of a draw may be away from where they move linearly.
REACH = 2.0


class NestedPrior(NamedTuple):
    """Prior of what groups have in common, q of its p coefficients by group.

    Attributes
    ----------
    mean, variance : ndarray of shape (p,)
        Of the population's means and, behind them, of coefficients that groups share.
    log_scale : ndarray of shape (q,)
        Means of the logarithms of the population's scales.
    log_scale_std : float
    precision : ndarray of shape (p, p), default=None
        Of the same as `variance`, where they are not independent.
    centre : ndarray of shape (p,), default=None
        The origin of rows of which they are, zero for the intercept's column; None is
        zero for all.
    """

    mean: np.ndarray
    variance: np.ndarray
    log_scale: np.ndarray
    log_scale_std: float
    precision: np.ndarray | None = None
    centre: np.ndarray | None = None

    @property
    def log_det(self):
        """Log-determinant of S_0."""
        if self.precision is None:
            return float(np.log(self.variance).sum())
        return -float(np.linalg.slogdet(self.precision)[1])

    @property
    def whole_precision(self):
        """The inverse of S_0, (p, p)."""
        if self.precision is None:
            return np.diag(1.0 / self.variance)
        return self.precision

    def pull(self, mean):
        """Return the gradient of the log-density at means (..., p)."""
        away = self.mean - mean
        return away / self.variance if self.precision is None else away @ self.precision

    def seen_from(self, origin, at):
        """Return the same prior, of independent means, of rows with another origin.

        Parameters
        ----------
        origin : ndarray of shape (p,)
            Of the columns, zero for the intercept's.
        at : int
            The place of the intercept.
        """
        change = origin if self.centre is None else origin - self.centre
        if not change.any():
            return self
        mean, variance = self.mean.copy(), self.variance.copy()
        mean[at] += change @ mean
        variance[at] += np.square(change) @ variance
        back = np.eye(len(change))
        back[at] -= change
        precision = back.T @ (back / self.variance[:, None])
        return self._replace(mean=mean, variance=variance, precision=precision)


class Scales(NamedTuple):
    """Where a fit stands: the scales, and where Newton's method begins.

    Attributes
    ----------
    scales : ndarray of shape (q,) or (q + 1,)
        Logarithms of the population's scales, and of the noise's where it is learnt.
    mean : ndarray of shape (p,)
        b
    groups : ndarray of shape (n_groups, q)
    """

    scales: np.ndarray
    mean: np.ndarray
    groups: np.ndarray


class ScaleSums(NamedTuple):
    """What a pass finds: L, and its gradient by the logarithms of the scales."""

    objective: float
    gradient: np.ndarray


class NestedModel(PlainModel):
    """Rows of groups, and the marginal of the population's scales.

    Parameters
    ----------
    likelihood : object
        With ``local(groups, shared)``, which returns a `Local`, with ``skewness(groups,
        shared, *joint)`` of covariances as `Modes.joint` has them, which returns the
        gradient of tr(Sigma H) by both, and with ``n_rows``.
    prior : NestedPrior
    n_groups : int
    past : Quadratic, default=None
        What other rows have said.
    n_noisy : float, default=None
        Rows with Gaussian noise that is learnt: likelihoods are those of noise one,
        without its constant.
    least_noise : float, default=0.0
        Of its deviation.
    """

    longest_step = LONGEST
    #: Share of a log-density that may be rounding.
    uncertain = 1e-10
    #: Draws of the scales that are enough.
    enough_draws = N_DRAWS

    def __init__(
        self, likelihood, prior, n_groups, past=None, n_noisy=None, least_noise=0.0
    ):
        self.likelihood, self.prior, self.n_groups = likelihood, prior, n_groups
        self.past, self.n_noisy = past, n_noisy
        self.least_noise = least_noise
        self.q, self.n_scales = prior.log_scale.size, prior.log_scale.size
        if n_noisy is not None:
            self.n_scales += 1
        self._known = None, None

    def start(self, data=None, mean=None, noise=1.0):
        """Return the point to start from: groups like the prior's mean, or another."""
        prior, q = self.prior, self.q
        mean = prior.mean if mean is None else mean
        scales = prior.log_scale
        if self.n_noisy is not None:
            scales = np.append(scales, np.log(noise))
        return Point(Scales(scales, mean, np.tile(mean[:q], (self.n_groups, 1))))

    # The coefficients given the scales

    def _local(self, scales, mean, groups):
        """Return what all rows say of coefficients."""
        shared = mean[:, self.q :]
        local = self.likelihood.local(groups, shared)
        if self.past is not None:
            past = self.past.local(groups, shared)
            local = Local(*(a + b for a, b in zip(local, past, strict=True)))
        if self.n_noisy is None:
            return local
        log_noise = scales[:, -1]
        factor = np.exp(-2.0 * log_noise)
        local = Local(
            *(part * factor.reshape(-1, *[1] * (part.ndim - 1)) for part in local)
        )
        constant = self.n_noisy * (log_noise + 0.5 * np.log(2.0 * np.pi))
        return local._replace(value=local.value - constant)

    def _log_prior(self, scales, mean, groups):
        """Return log p(b, Z | t) without the powers of 2 pi."""
        log_tau, prior = scales[:, : self.q], self.prior
        T = np.exp(-2.0 * log_tau)
        square = np.square(groups - mean[:, None, : self.q]).sum(axis=1)
        of_groups = (-self.n_groups * log_tau - 0.5 * T * square).sum(axis=1)
        square = ((prior.mean - mean) * prior.pull(mean)).sum(axis=1)
        return of_groups - 0.5 * (square + prior.log_det)

    def _about(self, scales, mean, groups):
        """Return coefficients of groups, what rows say there, and what is climbed."""
        local = self._local(scales, mean, groups)
        return groups, local, local.value + self._log_prior(scales, mean, groups)

    def settle(self, scales, mean, groups):
        """Return the `Modes` given scales (s, h), found from such coefficients."""
        q, prior = self.q, self.prior
        T = np.exp(-2.0 * scales[:, :q])[:, None]
        groups, local, density = self._about(scales, mean, groups)
        stuck = np.zeros(len(mean), bool)  # nothing higher to be told by rounding
        for step in range(STEPS + 1):
            modes = self._modes(scales, mean, groups, local)
            pull = T * modes.away
            of_groups, of_mean = local.gradient - pull, prior.pull(mean)
            of_mean[:, :q] += pull.sum(axis=1)
            of_mean[:, q:] += local.of_shared
            by_groups, by_mean = (
                part[..., 0]
                for part in modes.solve(of_groups[..., None], of_mean[..., None])
            )
            gain = 0.5 * (of_groups * by_groups).sum(axis=(1, 2))
            gain += 0.5 * (of_mean * by_mean).sum(axis=1)
            if step == STEPS or (stuck | (gain < SETTLED)).all():
                return modes._replace(objective=self._marginal(modes, density))
            length = np.ones(len(mean))
            for _ in range(HALVINGS):
                moved = mean + length[:, None] * by_mean
                others = groups + length[:, None, None] * by_groups
                others, local, reached = self._about(scales, moved, others)
                lower = ~(reached >= density - self.uncertain * np.abs(density))
                if not lower.any():
                    break
                length[lower] *= 0.5
            stuck = lower
            mean, groups, density = moved, others, reached

    def _modes(self, scales, mean, groups, local):
        """Return the arrow at some coefficients, L left open."""
        q, H = self.q, local.hessian
        T = np.exp(-2.0 * scales[:, :q])
        P = np.array(H)
        P.reshape(*P.shape[:2], q * q)[..., :: q + 1] += T[:, None]
        inverses = np.linalg.inv(P)
        p = mean.shape[1]
        S = np.zeros((len(mean), p, p))
        # T - T P^-1 T without a difference of large numbers.
        S[:, :q, :q] = (H @ inverses).sum(axis=1) * T[:, None]
        if p > q:
            towards = inverses @ local.cross
            S[:, :q, q:] = towards.sum(axis=1) * T[..., None]
            S[:, q:, :q] = S[:, :q, q:].swapaxes(1, 2)
            taken = np.einsum("smjl,smjr->slr", local.cross, towards)
            S[:, q:, q:] = local.within_shared - taken
        S = 0.5 * (S + S.swapaxes(1, 2))
        S += self.prior.whole_precision
        of_mean = np.linalg.inv(S)
        return Modes(scales, mean, groups, inverses, of_mean, np.nan, local)

    def _marginal(self, modes, density):
        """Return L where the log-density of rows and coefficients is `density`."""
        prior = self.prior
        away = (modes.scales[:, : self.q] - prior.log_scale) / prior.log_scale_std
        log_det = np.linalg.slogdet(modes.inverses)[1].sum(axis=1)
        log_det += np.linalg.slogdet(modes.of_mean)[1]
        return density + 0.5 * log_det - 0.5 * np.square(away).sum(axis=1)

    def shift(self, modes):
        """Return what leads from modes to means: of groups (s, n_groups, q), of b."""
        groups, shared = modes.groups, modes.mean[:, self.q :]
        by_groups, by_shared = self.likelihood.skewness(groups, shared, *modes.joint())
        of_mean = np.zeros((*modes.mean.shape, 1))
        of_mean[:, self.q :, 0] = -0.5 * by_shared
        by_groups, by_mean = modes.solve(-0.5 * by_groups[..., None], of_mean)
        return by_groups[..., 0], by_mean[..., 0]

    def slope(self, modes):
        """Return dL / dt, and dL / dl behind it, (s, h)."""
        e, prior, q = modes.away, self.prior, self.q
        by_groups, by_mean = self.shift(modes)
        spread = np.diagonal(modes.covariances(against=1.0), axis1=2, axis2=3)
        square = np.square(e) + 2.0 * e * (by_groups - by_mean[:, None, :q]) + spread
        total = (modes.precision * square).sum(axis=1) - self.n_groups
        log_tau = modes.scales[:, :q]
        slope = total - (log_tau - prior.log_scale) / prior.log_scale_std**2
        if self.n_noisy is None:
            return slope
        log_noise = modes.scales[:, -1]
        constant = self.n_noisy * (log_noise + 0.5 * np.log(2.0 * np.pi))
        square = -2.0 * (modes.local.value + constant)
        of_noise = square - self.n_noisy + self._known_to_rows(modes)
        return np.column_stack([slope, of_noise])

    def _known_to_rows(self, modes):
        """Return tr(Sigma H): how many coefficients rows have used up, (s,)."""
        own, cross, shared = modes.joint()
        local = modes.local
        found = np.einsum("smij,smij->s", own, local.hessian)
        found += 2.0 * np.einsum("smij,smij->s", cross, local.cross)
        return found + np.einsum("sij,sij->s", shared, local.within_shared)

    def information(self, modes):
        """Return Louis' information (h, h) at the first of the modes."""
        T, e = modes.precision[0, 0], modes.away[0]
        D, P, q = modes.covariances(against=1.0)[0], modes.inverses[0], self.q
        spread = np.diagonal(D, axis1=1, axis2=2)
        own = 2.0 * T * (np.square(e) + spread).sum(axis=0)
        inner = 2.0 * np.square(D) + 4.0 * e[:, :, None] * e[:, None] * P
        K = modes.follow[0]
        W = ((T * e)[:, :, None] * (K - np.eye(q, K.shape[2]))).sum(axis=0)
        found = np.diag(own) - T[:, None] * inner.sum(axis=0) * T
        found -= 4.0 * W @ modes.of_mean[0] @ W.T
        found += np.eye(q) / self.prior.log_scale_std**2
        if self.n_noisy is None:
            return found
        whole = np.zeros((q + 1, q + 1))
        whole[:q, :q] = found
        free = self.n_noisy - float(self._known_to_rows(modes)[0])
        whole[q, q] = 2.0 * max(free, 1.0)
        return whole

    # What the solver asks for

    def modes(self, point):
        """Return the modes at a point, kept until another point is looked at."""
        scales = point.parameters
        if self._known[0] is not scales:
            self._known = scales, self.settle(*(part[None] for part in scales))
        return self._known[1]

    def statistics(self, point, batch, beta):
        """Return L and its gradient."""
        modes = self.modes(point)
        slope = self.slope(modes)[0]
        if self._noise_is_least(modes) and slope[-1] < 0.0:
            slope[-1] = 0.0
        return ScaleSums(float(modes.objective[0]), slope)

    def _noise_is_least(self, modes):
        """Whether less noise than there is could not be."""
        least = self.least_noise
        return self.n_noisy is not None and modes.scales[0, -1] <= np.log(least)

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

    def _within(self, scales):
        """Return scales (..., h) no farther from their prior than they may be."""
        prior, q = self.prior, self.q
        ends = prior.log_scale - FARTHEST, prior.log_scale + FARTHEST
        found = np.array(scales)
        found[..., :q] = np.clip(found[..., :q], *ends)
        if self.n_noisy is not None:
            with np.errstate(divide="ignore"):
                found[..., q] = np.maximum(found[..., q], np.log(self.least_noise))
        return found

    def move(self, point, step):
        """Return the point with its scales moved, and where its modes will be."""
        modes = self.modes(point)
        scales = self._within(modes.scales[0] + step)
        moved, of_mean = modes.response((scales - modes.scales[0])[:, None])
        mean = modes.mean[0] + of_mean[0, :, 0]
        return Point(Scales(scales, mean, modes.groups[0] + moved[0, ..., 0]))

    # What the width of a prior is judged by

    def of_population(self, point):
        """Return E b^2, as L has it, (p,), and the logarithms of the scales, (h,).

        L differs by the square of the shift from that of the posterior, which is large
        where classes of groups can be separated.
        """
        modes = self.modes(point)
        mean, by_mean = modes.mean[0], self.shift(modes)[1][0]
        square = mean * (mean + 2.0 * by_mean) + np.diagonal(modes.of_mean[0])
        return square, modes.scales[0]

    def volume_gained(self, other, point):
        """Return what half the log-determinant of V gains where the prior is another.

        The mode of the scales follows the prior to first order. Noise is known.
        """
        root = self._root(self.information(self.modes(point)))
        away = other.prior.log_scale - self.prior.log_scale
        change = root @ (root.T @ (away / self.prior.log_scale_std**2))
        scales, mean, groups = point.parameters
        there = other.modes(Point(Scales(scales + change, mean, groups)))
        wider = other._root(other.information(there))
        return float(np.linalg.slogdet(wider)[1] - np.linalg.slogdet(root)[1])

    # What a fit leaves

    def seen(self, point):
        """Return what all rows say of groups, as the past of those to come.

        It lies about the mean of the coefficients, which is their mode by then: with
        nothing new neither they nor, but for a square of the shift, the scales move.
        """
        modes, q, prior = self.modes(point), self.q, self.prior
        local = Local(*(part[0] for part in modes.local))
        by_groups, by_mean = (part[0] for part in self.shift(modes))
        by_shared = by_mean[q:]
        at, mean = modes.groups[0] + by_groups, modes.mean[0] + by_mean
        pull = modes.precision[0] * (at - mean[:q])
        bent = (local.hessian @ by_groups[..., None])[..., 0]
        bent += local.cross @ by_shared
        of_shared = np.einsum("mjl,mj->l", local.cross, by_groups)
        of_shared += local.within_shared @ by_shared
        gain = (by_groups * (local.gradient - 0.5 * bent)).sum()
        gain += by_shared @ (local.of_shared - 0.5 * of_shared)
        level, back = float(local.value + gain), -prior.pull(mean)
        rest = local.hessian, back[q:], local.cross, local.within_shared
        return Quadratic(at, mean[q:], level, pull, *rest)

    def log_marginal(self, point, parts):
        """Return log p(y) by Laplace's method over the scales as well.

        That of noise which is learnt has a flat prior: beside its logarithm.
        """
        p = parts.mean.size
        log_det = np.linalg.slogdet(parts.covariance[p:, p:])[1]
        spread = self.q * np.log(self.prior.log_scale_std)
        more = 0.0 if self.n_noisy is None else 0.5 * np.log(2.0 * np.pi)
        found = float(self.modes(point).objective[0] + 0.5 * log_det - spread)
        return found + more

    def posterior(self, point, final=True, drawn=None):
        """Return the posterior where a fit has come to.

        Parameters
        ----------
        point : Point
        final : bool, default=True
            Take what it costs to know the scales better: differences of the gradient
            and draws, where they are worth their time.
        drawn : Drawn, default=None
            What that has led to before, which takes its place.

        Returns
        -------
        posterior : Parts
        """
        modes, h, p = self.modes(point), self.n_scales, self.prior.mean.size
        size = self.likelihood.n_rows * p + self.n_groups * self.q * p
        work = PASSES * size * max(p, 1)
        information, final = self.information(modes), final and drawn is None
        if final and 2 * h * work < WORTH:
            information = self._differences(modes)
        root = self._root(information)
        n_draws = min(N_DRAWS, self.enough_draws, int(WORTH / work))
        # Points of Sobol's are even where they are a power of two.
        n_draws = 1 << (n_draws.bit_length() - 1) if n_draws else 0
        if final and n_draws >= 2 * h:
            if self.past is not None:  # which errs by more than a few draws do
                n_draws = min(n_draws, 1 << (2 * h - 1).bit_length())
            found = self._mixture(modes, root, n_draws)
        else:
            found = self._linear(modes, root)
        parts = _parts(modes, found)
        return parts if drawn is None else drawn.on(parts)

    def drawn(self, point, parts, n_seen):
        """Return the `Drawn` of `Parts` that draws have led to."""
        modes = self.modes(point)
        root = self._root(self.information(modes))
        return Drawn.of(parts, _parts(modes, self._linear(modes, root)), n_seen)

    def _at(self, modes, scales):
        """Yield modes at other scales (s, h), as many at a time as have room."""
        size = max(1, ROOM // (modes.inverses.size + modes.local.cross.size))
        for first in range(0, len(scales), size):
            some = scales[first : first + size]
            moved, of_mean = modes.response((some - modes.scales).T)
            mean, groups = modes.mean + of_mean[0].T, np.moveaxis(moved[0], 2, 0)
            yield self.settle(some, mean, modes.groups + groups)

    def _differences(self, modes):
        """Return minus the Hessian of L, by central differences of its gradient."""
        steps = APART * np.eye(modes.scales.size)
        scales = modes.scales + np.concatenate([steps, -steps])
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
        h, p, q = root.shape[0], modes.mean.shape[1], self.q
        near, spread, near_mean, both, _ = self._linear(modes, root)
        reach = REACH * np.sqrt(np.diagonal(spread, axis1=1, axis2=2))
        of_means = REACH * np.sqrt(np.diagonal(both)[:p])
        noise = ndtri(qmc.Sobol(h, seed=0).random(n_draws).clip(1e-6, 1.0 - 1e-6))
        # With the mean and the covariance that they stand for.
        noise -= noise.mean(axis=0)
        scatter = np.linalg.cholesky(noise.T @ noise / n_draws)
        noise = np.linalg.solve(scatter, noise.T).T
        away = noise @ root.T
        scales = self._within(modes.scales + away)
        means, groups = np.empty((n_draws, p)), np.empty((n_draws, self.n_groups, q))
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
            follows = some.follow @ some.of_mean[:, None]
            coupling = coupling + (short * follows).sum(axis=0)
            first = here.stop
        np.clip(means, -of_means, of_means, out=means)
        np.clip(groups, -reach, reach, out=groups)
        mean, group = means.mean(axis=0), groups.mean(axis=0)
        both, apart = np.hstack([means - mean, away]), (groups - group).swapaxes(0, 1)
        covariance = both.T @ both / n_draws
        covariance[:p, :p] += of_mean / n_draws
        across = apart.swapaxes(1, 2)
        within = within / n_draws + across @ apart / n_draws
        beside = across @ both / n_draws
        beside[:, :, :p] += coupling / n_draws
        return near + group, within, near_mean + mean, covariance, beside

    def _linear(self, modes, root):
        """Return the same, of modes that move linearly with the scales."""
        p = modes.mean.shape[1]
        by_groups, by_mean = self.shift(modes)
        groups, mean = (part[0] for part in modes.response(root))
        both = np.concatenate([mean, root])
        covariance = both @ both.T
        covariance[:p, :p] += modes.of_mean[0]
        within = modes.covariances()[0] + groups @ groups.swapaxes(1, 2)
        coupling = groups @ both.T
        coupling[:, :, :p] += modes.follow[0] @ modes.of_mean[0]
        group = modes.groups[0] + by_groups[0]
        return group, within, modes.mean[0] + by_mean[0], covariance, coupling


def _parts(modes, found):
    """Return the `Parts` about the scales of the first of the modes."""
    groups, of_groups, mean, covariance, coupling = found
    return Parts(groups, of_groups, mean, modes.scales[0], covariance, coupling)
