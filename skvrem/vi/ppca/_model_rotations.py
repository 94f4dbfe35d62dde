r"""What the bound gains where the posterior is turned every way.

Neither likelihood nor prior changes where components are rotated or reflected among
each other, W to :math:`W R` with R in O(k). Independent Gaussians q sit at one R. The
average of q over all of them, :math:`\bar q(W) = \int q(W R) dR`, expects the same
log-likelihood and the same log prior, and has the larger entropy: it bounds the
evidence more closely by

.. math:: H(\bar q) - H(q) \approx \log \mathrm{vol}\, O(k) + \frac12 \log |F|
          - \frac m2 \log 2 \pi e,

Laplace's method for the m = k (k - 1) / 2 angles :math:`A_{ij}`, i < j, of
:math:`R = \exp A`, A antisymmetric. F is their information, the second order of the
divergence between q and q turned by A,

.. math:: A^T F A = \sum_{ij} \frac{(\mu A)_{ij}^2}{\sigma_{ij}^2} + \sum_{jl} A_{lj}^2
          \sum_i \Big( \frac{\sigma_{il}^2}{\sigma_{ij}^2} - 1 \Big).

The s shortest components may be such that q is the same however they are turned among
each other: their angles are left out then, and :math:`\log \mathrm{vol}\, O(s)` is
subtracted. Whichever s says most is taken.
"""

import numpy as np
from scipy.special import gammaln

# So many components are turned, the longest: F has the fourth power of their number.
MOST_TURNED = 50
# Of an angle's information, for each angle, what others leave of it at least: less is
# rounding.
ROUNDING = 1e-12
LOG_2PI_E = np.log(2.0 * np.pi) + 1.0


def rotation_entropy(mean, scale):
    """Return the entropy that q gains where it is turned every way, in nats.

    Parameters
    ----------
    mean, scale : ndarrays of shape (k, d)
        Means and standard deviations of the loadings, the longest components first.
    """
    mean, scale = mean[:MOST_TURNED], scale[:MOST_TURNED]
    k = len(mean)
    volumes = log_volumes(k)
    F = information_of_angles(mean, scale)
    # As correlations: angles may be known by many orders of magnitude more or less.
    own = np.maximum(np.diagonal(F), ROUNDING)
    F = F / np.sqrt(np.outer(own, own))
    root = np.linalg.cholesky(F + ROUNDING * len(F) * np.eye(len(F)))
    each = np.log(own) + 2.0 * np.log(np.diagonal(root)) - LOG_2PI_E
    # Angles come in rows i: those among the last s components are the last.
    sums = np.append(0.0, 0.5 * np.cumsum(each))
    s = np.arange(k + 1)
    return float(np.max(volumes[k] - volumes[s] + sums[len(F) - s * (s - 1) // 2]))


def log_volumes(k):
    """Return the logarithms of the volumes of O(0) to O(k), by angles.

    That of O(n) is twice the product of the surfaces of the spheres in 2 to n
    dimensions.
    """
    n = np.arange(1, k + 1)
    spheres = np.log(2.0) + 0.5 * n * np.log(np.pi) - gammaln(0.5 * n)
    return np.append(0.0, np.cumsum(spheres))


def information_of_angles(mean, scale):
    """Return F (m, m), for angles (i, j), i < j, in the order of `triu_indices`.

    Parameters
    ----------
    mean, scale : ndarrays of shape (k, d)
    """
    k = len(mean)
    first, second = np.triu_indices(k, 1)
    angle = np.zeros((k, k), int)
    angle[first, second] = angle[second, first] = np.arange(len(first))
    F = np.zeros((len(first), len(first)))
    for j in range(k):
        others = np.delete(np.arange(k), j)
        sign = np.where(others < j, 1.0, -1.0)  # A is antisymmetric
        which = angle[others, j]
        moved = sign[:, None] * mean[others] / scale[j]
        wider = np.square(scale[others] / scale[j]) - 1.0
        F[np.ix_(which, which)] += moved @ moved.T + np.diag(wider.sum(axis=1))
    return F
