r"""A Gaussian posterior of parameters whose log density is a user's own function.

Expectations under :math:`q = N(\mu, L L^T)` are averages over fixed draws
:math:`\mu \pm v_s`, :math:`v_s = L \epsilon_s`, in pairs of opposite sign, so that the
bound is a smooth function of q with an exact gradient. Its control variate is a
quadratic with a fixed curvature A, near the negative Hessian:

.. math:: E \ell \approx \frac1S \sum_s \Big[ \tfrac12 \ell(\mu + v_s)
          + \tfrac12 \ell(\mu - v_s) + \tfrac12 v_s^T A v_s \Big]
          - \tfrac12 \mathrm{tr}(A L L^T) .

The mean over the draws is that of what the log density has beyond its second order,
and it is unbiased for any A. With the gradients :math:`g_s^\pm` at the two ends, the
derivatives by :math:`\mu` and L are the means of

.. math:: \tfrac12 (g_s^+ + g_s^-), \qquad
          \big(\tfrac12 (g_s^+ - g_s^-) + A v_s\big) \epsilon_s^T - A L ,

which `GaussianModel` knows as G and, divided by L, as -C. For a full covariance L is
triangular, and so is what counts of the second.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from skvrem.vi._model import GaussianModel, Statistics

__all__ = ["DrawnModel", "dense_curvature", "probed_curvature"]

# A precision is at least this share of the prior's, and of its own largest eigenvalue:
# away from the optimum a log density may be convex.
LEAST_PRECISION, LEAST_SHARE = 0.1, 1e-10
# Of the relative precision that a step of a full covariance aims at.
LEAST_RELATIVE = 0.05


class Dense(NamedTuple):
    """A curvature A as a matrix.

    Attributes
    ----------
    matrix : ndarray of shape (d, d)
        With the prior's precision, positive definite.
    """

    matrix: np.ndarray

    @property
    def diagonal(self):
        """Diagonal of A."""
        return self.matrix.diagonal()

    def times(self, V):
        """Return A times vectors, one a row."""
        return V @ self.matrix


class Products(NamedTuple):
    """The curvature at a point, by products with vectors.

    Attributes
    ----------
    target : Target
    at : ndarray of shape (d,)
    diagonal : ndarray of shape (d,)
        Of A, or an unbiased estimate that does not depend on the draws.
    """

    target: object
    at: np.ndarray
    diagonal: np.ndarray

    def times(self, V):
        """Return A times vectors, one a row."""
        rows = [-self.target.hessian_times(self.at, v) for v in V]
        return np.stack(rows) if rows else np.zeros(V.shape)


class Free(NamedTuple):
    """No control variate: A = 0."""

    diagonal: float = 0.0

    def times(self, V):
        """Return zeros."""
        return np.zeros(V.shape)


def dense_curvature(target, at, prior):
    """Return the negative Hessian at a point, made convex where it is not."""
    P = prior.precision_times(np.eye(target.n_dim))
    values, vectors = np.linalg.eigh(P - target.hessian(at))
    least = LEAST_PRECISION * prior.precision_diagonal.min()
    values = np.maximum(np.abs(values), max(least, LEAST_SHARE * np.abs(values).max()))
    return Dense((vectors * values) @ vectors.T - P)


def probed_curvature(target, at, rng, n_probes):
    """Return the curvature by products, its diagonal by random signs if need be."""
    if target.knows_diagonal:
        return Products(target, at, -target.hessian_diagonal(at))
    signs = rng.choice([-1.0, 1.0], size=(n_probes, target.n_dim))
    found = Products(target, at, None)
    return found._replace(diagonal=(signs * found.times(signs)).mean(axis=0))


def natural_start(mean, curvature, prior, full):
    """Return the precisions (d, d) or (d,) that a fit starts with at a mean."""
    if full:
        return prior.precision_times(np.eye(mean.size)) + curvature.matrix
    least = np.maximum(LEAST_PRECISION * prior.precision_diagonal, 1e-12)
    return np.maximum(prior.precision_diagonal + np.abs(curvature.diagonal), least)


class Parameters:
    """Parameters as the coefficients of one predictor."""

    n_predictors = 1


class DrawnModel(GaussianModel):
    """A log density on fixed draws.

    Parameters
    ----------
    target : Target
    prior : MeanField, FullRank or Flat
        What is not in the target's own log density.
    structure : {"full", "diagonal"}
    rank : int
    draws : ndarray of shape (n_pairs, n_parameters + rank)
        Standard normal numbers, each used with both signs.
    """

    def __init__(self, target, prior, structure, rank, draws):
        super().__init__(Parameters, None, prior, 1.0, False, structure, rank)
        self.target = target
        self.draws = draws
        self.curvature = Free()
        self.error = np.nan

    def control(self, curvature):
        """Use another curvature from here on, for the draws and as the metric."""
        self.curvature, self._metric = curvature, None
        if isinstance(curvature, Dense) and not self.full:
            P = self.prior.precision_times(np.eye(self.target.n_dim))
            self._metric = cho_factor(P + curvature.matrix, lower=True)

    def start(self, mean, rng):
        """Return the point at a mean with the precisions of the curvature."""
        precision = natural_start(mean, self.curvature, self.prior, self.full)
        return self.spread(mean[:, None], precision, rng)

    def statistics(self, point, batch, beta):
        """Return the averages over all draws. There is nothing latent to temper."""
        q = point.parameters
        mean, d = q.mean[:, 0], q.mean.shape[0]
        E, low = self.draws[:, :d], self.draws[:, d:]
        if self.full:
            root = np.linalg.cholesky(q.covariance)
            V = E @ root.T
        else:
            scale, factor = np.exp(q.log_scale[:, 0]), q.factor[:, 0]
            V = scale * E + low @ factor.T
        bent = self.curvature.times(V)
        each = 0.5 * np.einsum("sj,sj->s", V, bent)
        even, odd = np.zeros(V.shape), bent
        density, slope = self.target.log_density, self.target.gradient
        for s, v in enumerate(V):
            up, down = mean + v, mean - v
            each[s] += 0.5 * (density(up) + density(down))
            ahead, behind = slope(up), slope(down)
            even[s] = 0.5 * (ahead + behind)
            odd[s] += 0.5 * (ahead - behind)
        self.error = each.std() / np.sqrt(max(1, len(each) - 1))
        gradient, objective = even.mean(axis=0)[:, None], each.mean()
        n = len(E)
        if self.full:
            within = self.curvature.times(root.T) @ root
            objective -= 0.5 * within.trace()
            curvature = self._whole(root, within - root.T @ (odd.T @ E) / n)
            image = np.zeros((d, 1, 0))
        else:
            known = self.curvature.times(factor.T).T
            objective -= 0.5 * np.sum(self.curvature.diagonal * scale**2)
            objective -= 0.5 * np.sum(factor * known)
            curvature = self.curvature.diagonal - (odd * E).mean(axis=0) / scale
            curvature = curvature[:, None]
            image = (known - odd.T @ low / n)[:, None]
        finite = np.isfinite(objective) and np.isfinite(gradient).all()
        if not (finite and np.isfinite(curvature).all()):
            objective = -np.inf  # too far: whoever tries a step makes it shorter
        return Statistics(gradient, curvature, image, float(objective))

    def _whole(self, root, within):
        """Return C of what it is in the metric of q, of which the lower half counts."""
        within = np.tril(within) + np.tril(within, -1).T
        if not np.isfinite(within).all():
            return within
        known = root.T @ self.prior.precision_times(root.T).T
        values, vectors = np.linalg.eigh(known + within)
        if values[0] < LEAST_RELATIVE:
            values = np.maximum(values, LEAST_RELATIVE)
            within = (vectors * values) @ vectors.T - known
        half = solve_triangular(root, within, lower=True, trans="T")
        return solve_triangular(root, half.T, lower=True, trans="T")

    def bound(self, point, draws):
        """Return the bound on other draws, and its standard error."""
        kept, self.draws = self.draws, draws
        value = self.objective(point, self.statistics(point, None, 1.0))
        self.draws = kept
        return value, float(self.error)

    def distance(self, point, mean):
        """Return how far a point is from a mean, in its standard deviations."""
        posterior = self.posterior(point.parameters)
        away = posterior.mean - mean
        return np.sqrt(away @ posterior.precision_times(away) / away.size)

    def precondition(self, point, vector):
        """Multiply by the inverse of the Fisher information, about.

        The means' part is that of the curvature where it is at hand: a diagonal
        posterior knows nothing of how parameters go together.
        """
        out = super().precondition(point, vector)
        if self._metric is not None:
            d = self.target.n_dim
            out[:d] = cho_solve(self._metric, vector[:d])
        return out
