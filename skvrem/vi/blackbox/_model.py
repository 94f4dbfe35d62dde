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

from collections.abc import Callable
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_solve, solve_triangular

from skvrem.utils._control import regressed_mean
from skvrem.vi.gaussian._model import GaussianModel, Statistics
from skvrem.vi.gaussian._model_posterior import FullRank, MeanField, cholesky

# A precision is at least this share of the prior's, and of its own largest eigenvalue:
# away from the optimum a log density may be convex.
LEAST_PRECISION, LEAST_SHARE = 0.1, 1e-10
# Rows that the curvature is taken from at draws from q, about.
TYPICAL_ROWS = 5000
# Steps in a row that may lead to where the log density is no number.
MOST_FAILED = 100
ELSEWHERE = (
    "Let the model be finite there, or start elsewhere, by `initial` of the model."
)
# Of the relative precision that a step of a full covariance aims at.
LEAST_RELATIVE = 0.05


class DensityCurvature(NamedTuple):
    """A curvature A.

    Attributes
    ----------
    diagonal : ndarray of shape (d,)
        Of A, or an unbiased estimate that does not depend on the draws.
    times : callable
        Multiplies A with vectors, one a row.
    matrix : ndarray of shape (d, d), or None
        A, if it is formed.
    probes : ndarray of shape (n_probes, d), or None
        Random signs, if the diagonal is an estimate: the mean of these times A times
        these.
    """

    diagonal: np.ndarray
    times: Callable
    matrix: np.ndarray | None = None
    probes: np.ndarray | None = None

    def trace(self, posterior):
        """Return the trace of A times the covariance of a Gaussian."""
        if isinstance(posterior, MeanField):
            return float(self.diagonal @ posterior.variance)
        columns = posterior.factor.T
        each = np.sum(columns * self.times(columns), axis=1)
        if isinstance(posterior, FullRank):
            return float(each.sum())
        return float(self.diagonal @ posterior.diagonal + each @ posterior.sign)

    def mixed(self, posterior, prior, share):
        """Return a share of it, and of what a posterior has beside a prior the rest."""
        if share == 1.0:
            return self
        known = prior.precision_diagonal

        def times(V):
            rest = posterior.precision_times(V) - known * V
            return share * self.times(V) + (1.0 - share) * rest

        if self.matrix is not None:
            return dense(times(np.eye(known.size)))
        if self.probes is None:
            diagonal = posterior.precision_diagonal - known
        else:  # by the same signs, whose noise products take out
            own = posterior.precision_times(self.probes)
            diagonal = (self.probes * own).mean(axis=0) - known
        diagonal = share * self.diagonal + (1.0 - share) * diagonal
        return self._replace(diagonal=diagonal, times=times)


def dense(matrix):
    """Return a matrix as a curvature."""
    return DensityCurvature(matrix.diagonal(), lambda V: V @ matrix, matrix)


def finite(target, at, found):
    """Return second derivatives at points (n, d), or raise where they are not finite.

    Raises
    ------
    ValueError
        With the method and the row that they come from.
    """
    if np.isfinite(found).all():
        return found
    where = target.not_finite_at(target.around(at), "A second derivative")
    raise ValueError(f"{where}. {ELSEWHERE}")


def convex(matrix, prior):
    """Return a curvature that with a prior's is positive definite."""
    P = np.diag(prior.precision_diagonal)
    values, vectors = np.linalg.eigh(P + matrix)
    least = LEAST_PRECISION * prior.precision_diagonal.min()
    values = np.maximum(np.abs(values), max(least, LEAST_SHARE * np.abs(values).max()))
    return dense((vectors * values) @ vectors.T - P)


def probed_curvature(target, at, rng, n_probes):
    """Return the curvature by products, its diagonal by random signs if need be.

    Parameters
    ----------
    target : Target
    at : ndarray of shape (n_points, d)
        It is the mean over these points, at each of which some of the signs are tried.
    rng : numpy.random.Generator
    n_probes : int
        Of the diagonal, where it is not known.
    """
    d = target.n_dim

    def times(V):
        if len(V) > d:
            return V @ times(np.eye(d))
        out = np.zeros(V.shape)
        for row, v in zip(out, V, strict=True):
            for point in at:
                row -= target.hessian_times(point, v) / len(at)
        return finite(target, at, out)

    if target.knows_diagonal or d <= n_probes:
        diagonal = sum(target.hessian_diagonal(z) for z in at) / -len(at)
        return DensityCurvature(finite(target, at, diagonal), times)
    signs = rng.choice([-1.0, 1.0], size=(n_probes, d))
    diagonal = np.zeros(d)
    for k, v in enumerate(signs):
        diagonal -= v * target.hessian_times(at[k % len(at)], v) / n_probes
    return DensityCurvature(finite(target, at, diagonal), times, probes=signs)


def least_precision(known, diagonal):
    """Return precisions (d,), of a prior's and of a curvature that may be negative."""
    least = np.maximum(LEAST_PRECISION * known, LEAST_SHARE)
    return np.maximum(known + np.abs(diagonal), least)


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
    factor : ndarray of shape (d, d) or (d,), or 0
        K, of a full covariance or of a diagonal.
    level : float
        c
    """

    factor: np.ndarray | float = 0.0
    level: float = 0.0


class DrawnModel(GaussianModel):
    """A log density on fixed draws.

    Parameters
    ----------
    target : Target
    prior : MeanField or FlatPrior
        What is not in the target's own log density.
    structure : {"full", "diagonal"}
    draws : ndarray of shape (n_pairs, n_parameters)
        As `opposite_draws` makes them; each is used with both signs.
    """

    def __init__(self, target, prior, structure, draws):
        one_column = SimpleNamespace(n_predictors=1, turns=False)
        super().__init__(one_column, None, prior, 1.0, False, structure)
        self.target = target
        self.draws = draws
        self._metric, self._control = None, Control()
        self._n_failed = 0
        #: Whether the next point that is looked at is the first of a run.
        self.begins = True
        #: That of the last start.
        self.curvature = None

    def start(self, mean, curvature, rng, near=None):
        """Return the point at a mean with the precisions of a curvature.

        near: the parameters of a point nearby, which is not needed here.
        """
        self.curvature = curvature
        known = self.prior.precision_diagonal
        if curvature.matrix is not None:
            precision = np.diag(known) + curvature.matrix
        else:
            precision = least_precision(known, curvature.diagonal)
        return self.spread(mean[:, None], precision, rng)

    def independent(self, mean, log_scale):
        """Return the point of independent parameters, of means and scales (d, 1)."""
        rng = np.random.default_rng(0)
        return self.spread(mean, np.diag(np.exp(-2.0 * log_scale[:, 0])), rng)

    def scale_by(self, curvature):
        """Take a dense curvature as the metric of the means, where q has none."""
        P = np.diag(self.prior.precision_diagonal)
        self._metric = cholesky(P + curvature.matrix)

    def control(self, curvature, point):
        """Take the control variate of a curvature at a point."""
        q, E = point.parameters, self.draws
        images = curvature.times(self.away(q))
        if self.full:
            root = np.linalg.cholesky(q.covariance)
            K = np.tril(images.T @ E / len(E) - curvature.times(root.T).T)
            self._control = Control(K, 0.5 * np.sum(K * root))
            return
        scale = np.exp(q.log_scale[:, 0])
        k = (images * E).mean(axis=0) - curvature.diagonal * scale
        self._control = Control(k, 0.5 * (k @ scale))

    def typical(self, point):
        """Return a few draws from q (n, d), in pairs, for the curvature there."""
        some = self.draws[: max(1, TYPICAL_ROWS // self.target.rows.size)]
        away = self.away(point.parameters, some)
        return point.parameters.mean[:, 0] + np.concatenate([away, -away])

    def away(self, q, draws=None):
        """Return draws, those of the fit by default, about the mean, (s, d)."""
        E = self.draws if draws is None else draws
        if self.full:
            return E @ np.linalg.cholesky(q.covariance).T
        return np.exp(q.log_scale[:, 0]) * E

    def statistics(self, point, batch, beta):
        """Return the averages over all draws. There is nothing latent to temper."""
        q = point.parameters
        V, mean = self.away(q), q.mean[:, 0]
        density, slope = self.target.log_density, self.target.gradient
        even, odd = np.zeros(mean.size), np.zeros(V.shape)
        objective = -self._control.level
        for s, v in enumerate(V):
            objective += 0.5 * (density(mean + v) + density(mean - v)) / len(V)
            ahead, behind = slope(mean + v), slope(mean - v)
            even += 0.5 * (ahead + behind) / len(V)
            odd[s] = 0.5 * (ahead - behind)
        sums = self._sums(q, even, odd, objective)
        slopes = np.isfinite(even).all() and np.isfinite(sums.curvature).all()
        if not slopes and self.begins:  # no step can be made
            where = self.target.not_finite_at(
                self._ends(q), "The gradient of the bound"
            )
            raise ValueError(f"{where}. {ELSEWHERE}")
        self.begins = False
        if slopes and np.isfinite(sums.objective):
            self._n_failed = 0
            return sums
        # Too far: whoever tries a step makes it shorter.
        self._n_failed += 1
        if self._n_failed > MOST_FAILED:
            raise ValueError(
                f"{self.target.not_finite_at(self._ends(q))}. {self._n_failed} "
                f"posteriors in a row were tried that reach there. {ELSEWHERE}"
            )
        return sums._replace(objective=-np.inf)

    def _ends(self, q):
        """Yield the parameters at which q is looked at."""
        mean = q.mean[:, 0]
        for v in self.away(q):
            yield mean + v
            yield mean - v

    def _sums(self, q, even, odd, objective):
        """Return the averages over all draws of what their ends say."""
        E, control = self.draws, self._control
        if self.full:
            root = np.linalg.cholesky(q.covariance)
            objective += np.sum(control.factor * root)
            within = -root.T @ (odd.T @ E / len(E) + control.factor)
            curvature = self._whole(root, within)
        else:
            scale = np.exp(q.log_scale[:, 0])
            objective += np.sum(control.factor * scale)
            curvature = -((odd * E).mean(axis=0) + control.factor) / scale
            curvature = curvature[:, None]
        image = np.zeros((*even.shape, 1, 0))
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
        except np.linalg.LinAlgError:  # a covariance beyond all measure
            return -np.inf

    def predicted_gain(self, point, mean):
        """Return what a natural-gradient step is about to gain, in nats."""
        if self.full:
            return super().predicted_gain(point, mean)
        # The curvature of the draws is a noisy one, and may be negative.
        q = point.parameters
        slope, variance = self._slope(q, mean), np.exp(2.0 * q.log_scale[:, 0])
        relative = variance * self._target(mean) - 1.0
        by_mean = slope @ self.preconditioned(slope, variance)
        return float(0.5 * by_mean + 0.25 * relative @ relative)

    def preconditioned(self, slope, variance):
        """Return the natural direction of the means, in the metric of a diagonal q."""
        if self._metric is None:
            return variance * slope
        if not np.isfinite(slope).all():
            raise np.linalg.LinAlgError("gradients are not finite")
        return cho_solve(self._metric, slope)

    def bound(self, point, draws, curvature=None):
        """Return the bound by other draws, controlled by a curvature; and its error.

        So is it by the log density of q, whose mean is known. The curvature is that at
        the mode, and may say little of the density at the draws, or nothing, as that of
        a kink: the draws say how much of each control there is.

        Raises
        ------
        ValueError
            If the log density is no number somewhere, with the method, the parameters
            and the share of the draws.
        """
        q = point.parameters
        V, mean = self.away(q, draws), q.mean[:, 0]
        density = self.target.log_density
        points = np.stack([mean + V, mean - V], axis=1)
        values = np.array([[density(z) for z in both] for both in points])
        wrong = ~np.isfinite(values)
        if wrong.any():
            raise ValueError(
                f"{self.target.not_finite_at(points[wrong])}, and no number at "
                f"{wrong.sum()} of {values.size} draws from the posterior that was "
                "found. A Gaussian posterior reaches everywhere: let the model be "
                "finite there, or write parameters that have bounds as functions of "
                "free ones, as exp(p)."
            )
        posterior = self.posterior(q)
        controls = [0.5 * (np.square(draws).sum(axis=1) - mean.size)]
        if curvature is not None:
            drawn = 0.5 * np.einsum("sj,sj->s", V, curvature.times(V))
            controls.append(drawn - 0.5 * curvature.trace(posterior))
        expected, error = regressed_mean(
            values.mean(axis=1), np.stack(controls, axis=1)
        )
        return expected - posterior.kl(self.prior), error

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
            out[:d] = self.preconditioned(vector[:d], None)
        return out
