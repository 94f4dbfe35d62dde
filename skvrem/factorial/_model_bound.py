r"""Parameters, sums over rows, and the bound as a function of both.

.. math:: E_q \log p(x, Z | \mu) = -\tfrac{1}{2 \sigma^2}
          E_q |x - \sum_k Z_k \mu_k|^2 - \tfrac D2 \log(2 \pi \sigma^2)
          + \sum_k \nu_k \log \pi_k + (1 - \nu_k) \log(1 - \pi_k)

is linear in the sums, so it never needs the rows.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

LOG_2PI = float(np.log(2.0 * np.pi))


class Parameters(NamedTuple):
    """Posterior of the components, and what the M step learns.

    Attributes
    ----------
    means : ndarray of shape (n_components, n_features)
        M.
    covariance : ndarray of shape (n_components, n_components), or None at a start
        S, of the components' values at any feature.
    activation : ndarray of shape (n_components,)
        π.
    noise : float
        σ².
    spread : float
        σ_μ².
    """

    means: np.ndarray
    covariance: np.ndarray
    activation: np.ndarray
    noise: float
    spread: float


class Statistics(NamedTuple):
    """Sums over rows of a batch: b t, and the two numbers that solvers know.

    Attributes
    ----------
    sum_z : ndarray of shape (n_components,)
    sum_zz : ndarray of shape (n_components, n_components)
    sum_zx : ndarray of shape (n_components, n_features)
    sum_xx, sum_w : float
    objective : float
        The rows' share of the annealed bound.
    entropy : float
        Σ_n w_n H(ν_n).
    """

    sum_z: np.ndarray
    sum_zz: np.ndarray
    sum_zx: np.ndarray
    sum_xx: float
    sum_w: float
    objective: float
    entropy: float


def gram(parameters):
    """E[μ_kᵀ μ_l] under q: M Mᵀ + D S."""
    means = parameters.means
    return means @ means.T + means.shape[1] * parameters.covariance


def residual(parameters, sums):
    """Σ w E|x - Σ_k Z_k μ_k|², of sums."""
    cross = np.vdot(parameters.means, sums.sum_zx)
    return sums.sum_xx - 2.0 * cross + np.vdot(gram(parameters), sums.sum_zz)


def energy(parameters, sums):
    """Σ w E log p(x, Z | μ), of sums, without the constant of the Gaussian."""
    activation = parameters.activation
    off = np.log1p(-activation)
    prior = sums.sum_z @ (np.log(activation) - off) + sums.sum_w * off.sum()
    return float(prior - 0.5 * residual(parameters, sums) / parameters.noise)


def expected(parameters, sums):
    """Σ w E log p(x, Z | μ), of sums."""
    d = parameters.means.shape[1]
    constant = 0.5 * d * (LOG_2PI + np.log(parameters.noise))
    return energy(parameters, sums) - constant * float(sums.sum_w)


def divergence(parameters):
    """KL(q(μ) ‖ p(μ))."""
    means, covariance, _, _, spread = parameters
    k, d = means.shape
    _, log_det = np.linalg.slogdet(covariance)
    trace = (np.vdot(means, means) + d * np.trace(covariance)) / spread
    return 0.5 * (trace - k * d - d * log_det + k * d * np.log(spread))


def log_partition(parameters, inverse):
    r"""Log C(T) / N at inverse temperatures (Mandt et al. 2016, supplement C).

    .. math:: \log C(T) / N = \tfrac D2 \log T
              + \sum_k \log\left( \pi_k^{1/T} + (1 - \pi_k)^{1/T} \right)
    """
    activation, d = parameters.activation, parameters.means.shape[1]
    logs = np.log([activation, 1.0 - activation])
    log_c = logsumexp(inverse[:, None, None] * logs, axis=1).sum(axis=1)
    return log_c - 0.5 * d * np.log(inverse)


def calibration(point, inverse):
    """Return the energy a row at a point, and the log partition function a row."""
    parameters, sums = point.parameters, point.statistics
    return energy(parameters, sums) / float(sums.sum_w), log_partition(
        parameters, inverse
    )
