r"""A diagonal that is stretched along a few directions: a low rank of many parameters.

The covariance of q is

.. math:: \Sigma = \mathrm{diag}(s) \big( I + V (e^{2 \kappa} - I) V^T \big)
          \mathrm{diag}(s)

with r orthonormal directions V. A direction along which parameters go together has a
positive :math:`\kappa`; one that rows know far better than each of its parameters, a
negative one, and there the covariance is less than the diagonal.

For a log density that is quadratic, with the precision P of the posterior, the q of
least divergence has the :math:`\Sigma` that minimises

.. math:: F(\Sigma) = \tfrac12 \mathrm{tr}(P \Sigma) - \tfrac12 \log |\Sigma| .

Given s that is :math:`\kappa_i = -\tfrac12 \log \lambda_i` along eigenvectors of
:math:`\mathrm{diag}(s) P\, \mathrm{diag}(s)`, those r whose :math:`\lambda - 1 - \log
\lambda` are largest, at either end of the spectrum. Lanczos' method finds them, and
Ritz pairs need not have converged: among the vectors that it has multiplied P with they
are the best, for any s, and F is a function of s alone,

.. math:: 2 F(s) = \sum_j P_{jj} s_j^2 - 2 \log s_j
          + \sum_i 1 - \lambda_i + \log \lambda_i, \qquad
          s_j \frac{\partial F}{\partial s_j}
          = P_{jj} s_j^2 - 1 - \sum_i V_{ji}^2 (\lambda_i - 1),

which is minimised without another product.

The curvature of a log density that is not quadratic is the mean over a few draws from
q itself: where parameters are many all draws are alike, at the distance from the mean
that nearly all of q has. So a fit goes in turns: means, by the draws of `DrawnModel`,
given :math:`\Sigma`; and :math:`\Sigma` where these have led.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh
from scipy.optimize import Bounds, minimize

from skvrem.vi.blackbox._model import Control, DrawnModel, least_precision
from skvrem.vi.gaussian._model import LARGEST_CHANGE, Point, Statistics
from skvrem.vi.gaussian._model_posterior import LowRank

# Vectors that a precision is multiplied with, for each column of the low rank and at
# least; how often anew, from where that has led; and nats for which that is done.
PRODUCTS, LEAST_PRODUCTS, ROUNDS, GAINED = 3, 40, 4, 1.0
# Steps to the scales beside a low rank.
SCALE_STEPS = 100
# Share of a diagonal that is outside of what is known of it, at least.
LEAST_REST = 0.01
# Least relative precision along a direction that counts: away from the optimum, or
# where there is hardly a prior, it may be zero or less.
LEAST_RITZ = 1e-6


class StretchedDiagonal(NamedTuple):
    """A diagonal that is stretched along directions.

    Attributes
    ----------
    mean, log_scale : ndarray of shape (d, 1)
        Means, and log s.
    directions : ndarray of shape (d, r)
        V
    stretch : ndarray of shape (r,)
        kappa
    """

    mean: np.ndarray
    log_scale: np.ndarray
    directions: np.ndarray
    stretch: np.ndarray

    @property
    def scale(self):
        """s, (d,)."""
        return np.exp(self.log_scale[:, 0])

    def white(self, draws):
        """Return draws (n, d) stretched, and yet to be multiplied by s."""
        V = self.directions
        return draws + ((draws @ V) * np.expm1(self.stretch)) @ V.T


def nearest_low_rank(curvature, prior, rank, rng, near=None):
    """Return log s (d,), V (d, r) and kappa (r,) of least divergence; and A's diagonal.

    To the Gaussian whose precision is a prior's plus a curvature, as a fit by draws
    starts from it.

    Parameters
    ----------
    curvature : DensityCurvature
    prior : MeanField or FlatPrior
    rank : int
        At most the number of dimensions.
    rng : numpy.random.Generator
    near : Stretched, default=None
        What is to be improved.
    """
    known, best = prior.precision_diagonal, np.inf
    if near is None:
        precision = least_precision(known, curvature.diagonal)
        log_scale = -0.5 * np.log(precision)
        start = rng.standard_normal(log_scale.size)
    else:
        log_scale, start = near.log_scale[:, 0], near.directions.sum(axis=1)
    n_products = min(log_scale.size, max(LEAST_PRODUCTS, PRODUCTS * rank))
    for _ in range(ROUNDS):
        B, PB = krylov(
            lambda v: known * v + curvature.times(v[None])[0],
            np.exp(log_scale),
            start,
            n_products,
            rng,
        )
        AB = PB - known * B
        if not np.isfinite(AB).all():
            raise np.linalg.LinAlgError("products with the curvature are not finite")
        values, C = np.linalg.eigh(0.5 * (B @ AB.T + AB @ B.T))
        rows = C.T @ (B * np.exp(-log_scale)) * np.exp(-log_scale)
        diagonal = _refined(curvature, values, rows)
        precision = least_precision(known, diagonal)
        inner = 0.5 * (B @ PB.T + PB @ B.T)
        if (values < 0.0).any():
            # Where the log density curves up it tells as much as where it curves down:
            # with the prior alone, or less, the next curvature would be that of far
            # away, where products of parameters know each other the better.
            inner += (C * (np.abs(values) - values)) @ C.T
        log_scale, V, ritz, value = _best_scales(precision, B, inner, rank, log_scale)
        if value > best - GAINED:
            break
        best, start = value, V.sum(axis=1)
    return log_scale, V, -0.5 * np.log(ritz), diagonal


def krylov(precision_times, scale, start, n_products, rng):
    """Return vectors B (m, d), orthonormal over s, and the precision times them.

    Parameters
    ----------
    precision_times : callable
        Multiplies the precision with a vector (d,).
    scale : ndarray of shape (d,)
        s
    start : ndarray of shape (d,)
        The first of the vectors over s, up to its length.
    n_products : int
        m, at most d.
    rng : numpy.random.Generator
        Goes on where all that can be reached from the start has been.

    Returns
    -------
    B, PB : ndarray of shape (m, d)
    """
    Q, images = np.empty((2, n_products, scale.size))
    vector, length = start, np.linalg.norm(start)
    for m in range(n_products):
        vector = _orthogonal(vector, Q[:m])
        if np.linalg.norm(vector) < 1e-8 * length:
            vector = _orthogonal(rng.standard_normal(scale.size), Q[:m])
        Q[m] = vector / np.linalg.norm(vector)
        images[m] = precision_times(scale * Q[m])
        vector = scale * images[m]
        length = np.linalg.norm(vector)
    return Q * scale, images


def _orthogonal(vector, Q):
    """Return a vector without its parts along the rows of Q."""
    for _ in range(2):  # twice is enough
        vector = vector - (Q @ vector) @ Q
    return vector


def _refined(curvature, ritz, rows):
    """Return the diagonal of the curvature A, with what products know of it if need be.

    Of signs z the estimate is the mean of z (A z); what lies in the span of the rows
    (m, d), A times its Ritz vectors over its Ritz values, makes no noise if it is taken
    out of A and its own diagonal put in.
    """
    if curvature.probes is None:
        return curvature.diagonal
    signs = curvature.probes
    inner = ritz * (signs @ rows.T)
    rest = curvature.diagonal - (signs * (inner @ rows)).mean(axis=0)
    known = np.abs(ritz) @ np.square(rows)
    # Were there less than products have, F would fall without end.
    return known + np.maximum(rest, LEAST_REST * np.abs(known))


def _best_scales(diagonal, B, inner, rank, log_scale):
    """Return log s, V, lambda and the F that the precision within B allows."""

    def ritz(log_scale):
        W = B * np.exp(-log_scale)
        values, vectors = eigh(inner, W @ W.T)
        values = np.maximum(values, LEAST_RITZ)
        some = np.argsort(np.log(values) - values, kind="stable")[:rank]
        return values[some], W.T @ vectors[:, some]

    def lack(log_scale):
        values, V = ritz(log_scale)
        relative = diagonal * np.exp(2.0 * log_scale)
        value = 0.5 * (relative.sum() + np.sum(1.0 - values + np.log(values)))
        slope = relative - 1.0 - np.square(V) @ (values - 1.0)
        return value - log_scale.sum(), slope

    # Orders of magnitude from the start, rounding makes of directions what it likes.
    found = minimize(
        lack,
        log_scale,
        jac=True,
        method="L-BFGS-B",
        bounds=Bounds(log_scale - LARGEST_CHANGE, log_scale + LARGEST_CHANGE),
        options={"maxiter": SCALE_STEPS},
    )
    values, V = ritz(found.x)
    return found.x, V, values, found.fun


class LowRankModel(DrawnModel):
    """A log density on fixed draws, which move the means given the covariance.

    Parameters
    ----------
    target : Target
    prior : MeanField or FlatPrior
    rank : int
    draws : ndarray of shape (n_pairs, d)
    """

    def __init__(self, target, prior, rank, draws):
        super().__init__(target, prior, "diagonal", draws)
        self.rank = rank

    def start(self, mean, curvature, rng, near=None):
        """Return the point at a mean that is best for a quadratic log density."""
        log_scale, V, stretch, diagonal = nearest_low_rank(
            curvature, self.prior, self.rank, rng, near
        )
        self.curvature = curvature._replace(diagonal=diagonal, probes=None)
        return Point(StretchedDiagonal(mean[:, None], log_scale[:, None], V, stretch))

    def independent(self, mean, log_scale):
        """Return the point of independent parameters, of means and scales (d, 1)."""
        shape, rng = (mean.size, self.rank), np.random.default_rng(0)
        V = np.linalg.qr(rng.standard_normal(shape))[0]
        return Point(StretchedDiagonal(mean, log_scale, V, np.zeros(self.rank)))

    def posterior(self, q):
        """Return q as a distribution over all parameters."""
        more = np.expm1(2.0 * q.stretch)
        factor = q.scale[:, None] * q.directions * np.sqrt(np.abs(more))
        sign = np.where(more < 0.0, -1.0, 1.0)
        return LowRank(q.mean[:, 0], q.scale**2, factor, sign)

    def point_of(self, posterior):
        """Return the point of a distribution, None where its structure is another."""
        if not isinstance(posterior, LowRank) or posterior.sign.size != self.rank:
            return None
        V, variance = posterior.directions()
        log_scale = 0.5 * np.log(posterior.diagonal)
        stretch = 0.5 * np.log(variance)
        return Point(
            StretchedDiagonal(posterior.mean[:, None], log_scale[:, None], V, stretch)
        )

    def control(self, curvature, point):
        """Take the control variate of a curvature at a point."""
        away = self.away(point.parameters)
        drawn = np.sum(away * curvature.times(away)) / len(away)
        exact = curvature.trace(self.posterior(point.parameters))
        self._control = Control(level=0.5 * (exact - drawn))

    def away(self, q, draws=None):
        """Return draws, those of the fit by default, about the mean, (s, d)."""
        return q.scale * q.white(self.draws if draws is None else draws)

    def _sums(self, q, even, odd, objective):
        """Return the averages over all draws of what their ends say."""
        nothing = np.zeros((even.size, 0))
        return Statistics(even[:, None], nothing, nothing, objective)

    # What solvers ask for

    def gradient(self, point, mean):
        """Return the gradient by the means."""
        return self._slope(point.parameters, mean)

    def move(self, point, step):
        """Return the point with its means moved."""
        q = point.parameters
        return Point(q._replace(mean=q.mean + step[:, None]))

    def precondition(self, point, vector):
        """Multiply by the covariance, the inverse of the Fisher information."""
        return self.posterior(point.parameters).covariance_times(vector)
