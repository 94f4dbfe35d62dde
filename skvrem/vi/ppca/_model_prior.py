r"""What loadings are before any data: of a scale that is given, or of scales unknown.

With :math:`W_{ij} \sim N(0, s^2)` of a given s, the squared length of a component is
:math:`d s^2` up to a share of :math:`\sqrt{2 / d}` before any row is seen: of many
columns that says more of it than the rows do, who tell it up to :math:`\sqrt{2 / n}`,
and all components are drawn to one length. So where nothing is given, rows of W have a
covariance V that nobody knows either,

.. math:: W_{i \cdot} \sim N(0, V), \qquad V \sim \mathrm{IW}(\nu, \nu s^2 I),

which with V integrated out is a matrix t distribution [1]_,

.. math:: \log p(W) = -\frac{\nu + d}2 \log |b I + W^T W| + \frac{\nu k}2 \log b
          - \frac{d k}2 \log \pi + \log \frac{\Gamma_k((\nu + d) / 2)}{\Gamma_k(\nu /
          2)}, \qquad b = \nu s^2 .

It is the same for all rotations of components, and convex in :math:`W^T W`: what it is
at the expectation of that is below its own expectation, so that the bound stays one.
The two numbers are those of the highest bound: s is the scale that components have in
common, and the larger :math:`\nu`, the more they have.

.. [1] Gupta, Nagar (2000). Matrix variate distributions. Chapman and Hall. Chapter 4.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import multigammaln

# Of nu over its least, k: from and to, and how many are tried at a time and how often,
# each time between the neighbours of the best.
FREEDOMS, TRIED, ROUNDS = (1.0, 1e6), 15, 4
# Steps of log b, at most, and the last that is made; the least s, as a share of what
# features have.
HALVINGS, ENOUGH, LEAST_SCALE = 50, 1e-12, 1e-3


class GivenScale(NamedTuple):
    """Independent loadings N(0, s^2).

    Attributes
    ----------
    scale : float
        s.
    """

    scale: float

    @property
    def start_scale(self):
        """Deviation of loadings for a start."""
        return self.scale

    def learned(self, mean, variance):
        """Return the prior of the highest bound, means and variances (d, k)."""
        return self

    def precision(self, mean, variance):
        """Return the precision (k, k) of a row of loadings, expected under q."""
        return np.eye(mean.shape[1]) / self.scale**2

    def expected(self, mean, variance):
        """Return the expectation of the log density, means and variances (d, k)."""
        square = (mean**2 + variance) / self.scale**2
        return -0.5 * (square + np.log(2.0 * np.pi * self.scale**2)).sum()

    def curvature(self, W, precision, V):
        """Return minus the Hessian of the log density at W times V (..., d, k)."""
        return V @ precision


class UnknownScales(NamedTuple):
    """Rows of loadings N(0, V) of an unknown V.

    Attributes
    ----------
    scale : float
        s.
    freedom : float
        nu.
    d : int
        Rows of loadings.
    least : float
        Of s.
    """

    scale: float
    freedom: float
    d: int
    least: float

    @classmethod
    def of(cls, scale, shape):
        """Return one to begin with, of loadings (d, k) of a scale about that."""
        return cls(scale, float(shape[1]), shape[0], LEAST_SCALE * scale)

    @property
    def start_scale(self):
        """Deviation of loadings for a start: that of the highest likelihood."""
        return np.inf

    @property
    def b(self):
        """Of the scale matrix."""
        return self.freedom * self.scale**2

    def _second_moment(self, mean, variance):
        """Return E W^T W."""
        return mean.T @ mean + np.diag(variance.sum(axis=0))

    def learned(self, mean, variance):
        """Return the prior of the highest bound, means and variances (d, k)."""
        k = mean.shape[1]
        values = np.linalg.eigvalsh(self._second_moment(mean, variance))
        low, high = (np.log(k * share) for share in FREEDOMS)
        for _ in range(ROUNDS):
            nu = np.exp(np.linspace(low, high, TRIED))
            b = best_b(nu, values, self.d, self.least)
            found = log_density(nu, b, values, self.d)
            at = int(np.argmax(found))
            low, high = np.log(nu[[max(at - 1, 0), min(at + 1, TRIED - 1)]])
        best = np.sqrt(b[at] / nu[at])
        return self._replace(scale=float(best), freedom=float(nu[at]))

    def precision(self, mean, variance):
        """Return the precision (k, k) of a row of loadings, expected under q."""
        second = self._second_moment(mean, variance) + self.b * np.eye(mean.shape[1])
        return (self.freedom + self.d) * np.linalg.inv(second)

    def expected(self, mean, variance):
        """Return a bound of the expectation of the log density."""
        values = np.linalg.eigvalsh(self._second_moment(mean, variance))
        nu, b = np.array([self.freedom]), np.array([self.b])
        return float(log_density(nu, b, values, self.d)[0])

    def curvature(self, W, precision, V):
        """Return minus the Hessian of the log density at W times V (..., d, k).

        That at the best s: components that lengthen take their scales along, and all
        of them together s, so that nothing holds them. Of some components precision is
        theirs.
        """
        weight, b = self.freedom + self.d, self.b
        across = np.swapaxes(V, -1, -2) @ W
        both = across + np.swapaxes(across, -1, -2)
        out = V @ precision - W @ (precision @ both @ precision) / weight
        # By log b, and by it twice.
        by_b = W @ precision @ precision * (b / weight)
        shares = precision * (b / weight)
        twice = 0.5 * weight * np.trace(shares - shares @ shares)
        along = np.einsum("...ij,ij->...", V, by_b)[..., None, None]
        return out - along * by_b / twice


def best_b(nu, values, d, least):
    r"""Return b (m,) of the highest `log_density`, of s that is at least that.

    :math:`\sum_i b / (b + l_i) = \nu k / (\nu + d)`, by Newton's steps for log b of the
    log odds of both sides, which are straight for a single l; by halving where these
    would leave what is left of the interval.
    """
    wanted = np.log(nu / d)
    low = np.log(nu * least**2)
    high = np.maximum(np.log(nu * max(values.max(), least**2)) + 1.0, low)
    middle = low
    for _ in range(HALVINGS):
        b = np.exp(middle)[:, None]
        total = b + values
        first, second = b / total, values / total
        sums = first.sum(axis=1), second.sum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            missing = wanted - np.log(sums[0] / sums[1])
            # The slope of the log odds: that of both logarithms.
            slope = (first * second).sum(axis=1) * (1.0 / sums[0] + 1.0 / sums[1])
            to = middle + missing / slope
        below = missing > 0.0
        low, high = np.where(below, middle, low), np.where(below, high, middle)
        inside = (low <= to) & (to <= high)
        before, middle = middle, np.where(inside, to, 0.5 * (low + high))
        if np.all(abs(middle - before) <= ENOUGH):
            break
    return np.exp(middle)


def log_density(nu, b, values, d):
    """Return log p (m,) of loadings whose W^T W has the eigenvalues (k,).

    Parameters
    ----------
    nu, b : ndarrays of shape (m,)
    values : ndarray of shape (k,)
    d : int
    """
    k = values.size
    # In terms of l / b: both logarithms are large where nu is.
    value = -0.5 * (nu + d) * np.log1p(values / b[:, None]).sum(axis=1)
    value += multigammaln_ratio(nu, d, k)
    return value - 0.5 * d * k * np.log(np.pi * b)


def multigammaln_ratio(nu, d, k):
    """Return that of (nu + d) / 2 over that of nu / 2, in k dimensions."""
    return multigammaln(0.5 * (nu + d), k) - multigammaln(0.5 * nu, k)


def prior_of(scale, freedom, d):
    """Return the prior of loadings of d columns, of a given scale without freedom."""
    if freedom is None:
        return GivenScale(scale)
    return UnknownScales(scale, freedom, d, LEAST_SCALE * scale)
