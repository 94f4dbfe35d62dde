r"""A Gaussian posterior of parameters whose log density is a user's own function.

Expectations under :math:`q = N(\mu, L L^T)` are averages over fixed draws
:math:`\mu \pm v_s`, :math:`v_s = L \epsilon_s`, in pairs of opposite sign, so that the
bound is a smooth function of q with an exact gradient:

.. math:: E \ell \approx \frac1S \sum_s \tfrac12 \ell(\mu + v_s)
          + \tfrac12 \ell(\mu - v_s) + \mathrm{tr}(K^T L) - c .

With the gradients :math:`g_s^\pm` at the two ends its derivatives by :math:`\mu` and L
are the means of

.. math:: \tfrac12 (g_s^+ + g_s^-), \qquad \tfrac12 (g_s^+ - g_s^-) \epsilon_s^T + K ,

which `GaussianModel` knows as G and, divided by L, as -C. For a full covariance L is
triangular, and so is what counts of the second.

K and c are the control variate. Were the log density quadratic, with a curvature A, the
draws would make the error :math:`A L (\hat E - I)` in the second derivative, where
:math:`\hat E` is the mean of :math:`\epsilon_s \epsilon_s^T`; K is minus that, at the L
where the control variate is taken, and unbiased for any A. It stays when L moves: a
quadratic that moved along would leave the bound without a maximum where draws are fewer
than parameters. Where they are more, they are made to have :math:`\hat E = I`, and
there is nothing to control.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from skvrem.vi._model import Diagonal, GaussianModel, Point, Statistics

__all__ = [
    "Dense",
    "DrawnModel",
    "Products",
    "convex",
    "opposite_draws",
    "probed_curvature",
]

# A precision is at least this share of the prior's, and of its own largest eigenvalue:
# away from the optimum a log density may be convex.
LEAST_PRECISION, LEAST_SHARE = 0.1, 1e-10
# Share of a variance that is left beside a low rank, at least.
LEAST_VARIANCE = 0.01
# Of the relative precision that a step of a full covariance aims at.
LEAST_RELATIVE = 0.05


class Dense(NamedTuple):
    """A curvature A as a matrix.

    Attributes
    ----------
    matrix : ndarray of shape (d, d)
    """

    matrix: np.ndarray

    @property
    def diagonal(self):
        """Diagonal of A."""
        return self.matrix.diagonal()

    def times(self, V):
        """Return A times vectors, one a row."""
        return V @ self.matrix

    def trace(self, posterior):
        """Return the trace of A times a covariance."""
        return float(np.sum(self.matrix * posterior.covariance()))


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

    def trace(self, posterior):
        """Return the trace of A times a covariance, a diagonal and a low rank."""
        own = getattr(posterior, "diagonal", posterior.variance)
        low = getattr(posterior, "factor", np.zeros((own.size, 0))).T
        return float(self.diagonal @ own + np.sum(low * self.times(low)))


def convex(matrix, prior):
    """Return a curvature that with a prior's is positive definite."""
    P = np.diag(prior.precision_diagonal)
    values, vectors = np.linalg.eigh(P + matrix)
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


def opposite_draws(rng, n_pairs, width):
    """Return standard normal numbers (n_pairs, width), for both signs.

    Draws are orthogonal, as many as there are dimensions at a time; where there are
    as many or more, their second moments are made those of the normal.
    """
    blocks, left = [], n_pairs
    while left > 0:
        block = rng.standard_normal((width, min(left, width)))
        length = np.sqrt(rng.chisquare(width, block.shape[1]))
        blocks.append((np.linalg.qr(block)[0] * length).T)
        left -= block.shape[1]
    draws = np.concatenate(blocks)
    if n_pairs < width:
        return draws
    root = np.linalg.cholesky(draws.T @ draws / n_pairs)
    return solve_triangular(root, draws.T, lower=True).T


class Control(NamedTuple):
    """The control variate of a `DrawnModel`.

    Attributes
    ----------
    own : ndarray of shape (d, d) or (d,), or 0
        K, of a full covariance or of a diagonal.
    low : ndarray of shape (d, r), or 0
        K of a low rank.
    level : float
        c
    """

    own: np.ndarray | float = 0.0
    low: np.ndarray | float = 0.0
    level: float = 0.0


class Parameters:
    """Parameters as the coefficients of one predictor."""

    n_predictors = 1


class DrawnModel(GaussianModel):
    """A log density on fixed draws.

    Parameters
    ----------
    target : Target
    prior : MeanField or Flat
        What is not in the target's own log density.
    structure : {"full", "diagonal"}
    rank : int
    draws : ndarray of shape (n_pairs, n_parameters + rank)
        As `opposite_draws` makes them; each is used with both signs.
    """

    def __init__(self, target, prior, structure, rank, draws):
        super().__init__(Parameters, None, prior, 1.0, False, structure, rank)
        self.target = target
        self.draws = draws
        self._metric, self._control = None, Control()

    def start(self, mean, curvature, rng):
        """Return the point at a mean with the precisions of a curvature."""
        known = self.prior.precision_diagonal
        if isinstance(curvature, Dense):
            precision = np.diag(known) + curvature.matrix
            if self.rank:
                return Point(Diagonal(mean[:, None], *self._split(precision)))
        else:
            least = np.maximum(LEAST_PRECISION * known, LEAST_SHARE)
            precision = np.maximum(known + np.abs(curvature.diagonal), least)
        return self.spread(mean[:, None], precision, rng)

    def _split(self, precision):
        """Return log scales and a low rank near the inverse of a precision.

        By the largest eigenvalues of the correlations, as principal components do.
        """
        covariance = cho_solve(
            cho_factor(precision, lower=True), np.eye(len(precision))
        )
        sd = np.sqrt(covariance.diagonal())
        values, vectors = np.linalg.eigh(covariance / sd / sd[:, None])
        rest, values = values[: -self.rank], values[-self.rank :]
        level = rest.mean() if rest.size else 0.5 * values[0]
        factor = sd[:, None] * vectors[:, -self.rank :]
        factor *= np.sqrt(np.maximum(values - level, LEAST_VARIANCE))
        own = sd**2 - np.square(factor).sum(axis=1)
        own = np.maximum(own, LEAST_VARIANCE * sd**2)
        return 0.5 * np.log(own)[:, None], factor[:, None]

    def scale_by(self, curvature):
        """Take a dense curvature as the metric of the means, where q has none."""
        P = np.diag(self.prior.precision_diagonal)
        self._metric = cho_factor(P + curvature.matrix, lower=True)

    def control(self, curvature, point):
        """Take the control variate of a curvature at a point."""
        q, n = point.parameters, len(self.draws)
        d = q.mean.size
        E, low = self.draws[:, :d], self.draws[:, d:]
        bent = curvature.times(self._away(q))
        if self.full:
            root = np.linalg.cholesky(q.covariance)
            K = np.tril(bent.T @ E / n - curvature.times(root.T).T)
            self._control = Control(K, 0.0, 0.5 * np.sum(K * root))
            return
        scale, factor = np.exp(q.log_scale[:, 0]), q.factor[:, 0]
        k = (bent * E).mean(axis=0) - curvature.diagonal * scale
        K = bent.T @ low / n - curvature.times(factor.T).T
        self._control = Control(k, K, 0.5 * (k @ scale + np.sum(K * factor)))

    def _away(self, q):
        """Return the draws about the mean, (s, d)."""
        d = q.mean.size
        E, low = self.draws[:, :d], self.draws[:, d:]
        if self.full:
            return E @ np.linalg.cholesky(q.covariance).T
        return np.exp(q.log_scale[:, 0]) * E + low @ q.factor[:, 0].T

    def statistics(self, point, batch, beta):
        """Return the averages over all draws. There is nothing latent to temper."""
        q, n, control = point.parameters, len(self.draws), self._control
        d = q.mean.size
        E, low = self.draws[:, :d], self.draws[:, d:]
        V, mean = self._away(q), q.mean[:, 0]
        density, slope = self.target.log_density, self.target.gradient
        objective, even, odd = -control.level, np.zeros(d), np.zeros(V.shape)
        for s, v in enumerate(V):
            objective += 0.5 * (density(mean + v) + density(mean - v)) / n
            ahead, behind = slope(mean + v), slope(mean - v)
            even += 0.5 * (ahead + behind) / n
            odd[s] = 0.5 * (ahead - behind)
        image = np.zeros((d, 1, 0))
        if self.full:
            root = np.linalg.cholesky(q.covariance)
            objective += np.sum(control.own * root)
            curvature = self._whole(root, -root.T @ (odd.T @ E / n + control.own))
        else:
            scale, factor = np.exp(q.log_scale[:, 0]), q.factor[:, 0]
            objective += np.sum(control.own * scale) + np.sum(control.low * factor)
            by_scale = (odd * E).mean(axis=0) + control.own
            curvature = -(by_scale / scale)[:, None]
            image = -(odd.T @ low / n + control.low)[:, None]
        finite = np.isfinite(objective) and np.isfinite(even).all()
        if not (finite and np.isfinite(curvature).all()):
            objective = -np.inf  # too far: whoever tries a step makes it shorter
        return Statistics(even[:, None], curvature, image, float(objective))

    def _whole(self, root, within):
        """Return C of what it is in the metric of q, of which the lower half counts."""
        within = np.tril(within) + np.tril(within, -1).T
        if not np.isfinite(within).all():
            return within
        known = root.T @ (self.prior.precision_diagonal[:, None] * root)
        values, vectors = np.linalg.eigh(known + within)
        if values[0] < LEAST_RELATIVE:
            values = np.maximum(values, LEAST_RELATIVE)
            within = (vectors * values) @ vectors.T - known
        half = solve_triangular(root, within, lower=True, trans="T")
        return solve_triangular(root, half.T, lower=True, trans="T")

    def objective(self, point, mean):
        """Return the bound, in nats; minus infinity where there is none."""
        if not np.isfinite(mean.objective):
            return -np.inf
        try:
            return super().objective(point, mean)
        except np.linalg.LinAlgError:  # a low rank beyond all measure
            return -np.inf

    def promise(self, point, mean):
        """Return what a natural-gradient step is about to gain, in nats."""
        if self.full:
            return super().promise(point, mean)
        # The curvature of the draws is a noisy one, and may be negative.
        q = point.parameters
        slope, variance = self._slope(q, mean), np.exp(2.0 * q.log_scale[:, 0])
        relative = variance * self._target(mean) - 1.0
        by_mean = slope @ self.turned(slope, variance)
        return float(0.5 * by_mean + 0.25 * relative @ relative)

    def turned(self, slope, variance):
        """Return the natural direction of the means, in the metric of a diagonal q."""
        if self._metric is None:
            return variance * slope
        return cho_solve(self._metric, slope)

    def bound(self, point, draws, curvature=None):
        """Return the bound by other draws, controlled by a curvature; and its error."""
        q = point.parameters
        kept, self.draws = self.draws, draws
        V, mean = self._away(q), q.mean[:, 0]
        self.draws = kept
        density = self.target.log_density
        each = np.array([0.5 * (density(mean + v) + density(mean - v)) for v in V])
        posterior, trace = self.posterior(q), 0.0
        if curvature is not None:
            each += 0.5 * np.einsum("sj,sj->s", V, curvature.times(V))
            trace = curvature.trace(posterior)
        error = np.std(each) / np.sqrt(max(1, len(each) - 1))
        value = each.mean() - 0.5 * trace - posterior.kl(self.prior)
        return float(value), float(error)

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
        out, d = super().precondition(point, vector), self.target.n_dim
        if self._metric is not None:
            out[:d] = self.turned(vector[:d], None)
        return out
