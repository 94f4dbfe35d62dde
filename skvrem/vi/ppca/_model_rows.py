r"""The density of a row, averaged over the posterior of the loadings.

Given its latent variables z, a row has independent features: loadings with the
variances :math:`\sigma_{ij}^2` about their means W are noise of a size that all
features of the row share,

.. math:: p(x) = \int N(z; 0, I) \prod_i N\Big(x_i - m_i; \sum_j W_{ij} z_j, v_i(z)
          \Big) dz, \qquad v_i(z) = \lambda^2 + \sum_j \sigma_{ij}^2 z_j^2 .

A Gaussian of the same covariance has the noise :math:`v_i` of a typical z in every
row. It is nearly the same where rows of the fit were many. Where they were few, long
and wide loadings beside short z are as likely as short and narrow ones, and that
Gaussian may be far below.

The integral goes over k numbers, by importance sampling about its highest point: a few
pairs of draws that are the same for every row, from the Gaussian whose precision is the
information of z there,

.. math:: I + W^T \mathrm{diag}(v)^{-1} W + 2 z z^T \circ (\sigma^2)^T
          \mathrm{diag}(v)^{-2} \sigma^2 .
"""

from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

# Rows at a time: arrays of so many numbers.
TILE = 300_000
# Pairs of draws: enough for a few components; with a dozen, where rows of the fit are
# few, densities are found a little too low.
PAIRS = 32
# Scoring steps, at most; they end with less than that to gain, in nats.
STEPS, ENOUGH, HALVINGS = 50, 1e-4, 12
# Of the squares of all variances by the noise: with less, rows are Gaussian.
GAUSSIAN = 1e-4
LOG_2PI = np.log(2.0 * np.pi)


class RowDensity(NamedTuple):
    """The density that rows are drawn from.

    Attributes
    ----------
    W, variance : ndarray of shape (d, k)
        Means and variances of the loadings.
    noise : float
        Noise variance.
    """

    W: np.ndarray
    variance: np.ndarray
    noise: float

    @property
    def gaussian(self):
        """Whether the Gaussian of the same covariance is as good."""
        return np.square(self.variance / self.noise).sum() < GAUSSIAN

    def joint(self, rows, z, unsure=0.0):
        """Return log p(x, z), variances and residuals of rows (n, d) at z (n, k).

        With variances (k,) of z, squares of z are averaged over them.
        """
        v = self.noise + (z**2 + unsure) @ self.variance.T
        residual = rows - z @ self.W.T
        value = (LOG_2PI + np.log(v) + residual**2 / v).sum(axis=1)
        return -0.5 * (value + (z**2 + LOG_2PI).sum(axis=1)), v, residual

    def information(self, z, v):
        """Return eigenvalues (n, k) and vectors (n, k, k) of the information of z."""
        by_mean, by_variance = (
            M.T @ (M / power[:, :, None])
            for power, M in ((v, self.W), (v**2, self.variance))
        )
        total = by_mean + 2.0 * by_variance * z[:, :, None] * z[:, None, :]
        values, vectors = np.linalg.eigh(total)
        # But for rounding they are not negative, before the identity is added.
        return np.maximum(values, 0.0) + 1.0, vectors

    def about(self, rows):
        """Return means, eigenvalues and vectors of Gaussians near p(z | x).

        Where p(x, z) is highest, by Fisher scoring, but for the noise: squares of z are
        averaged over what a row leaves open at the least noise, as the highest point
        itself may be the end of a funnel, narrow where all z are near zero.
        """
        values, vectors = np.linalg.eigh(self.W.T @ self.W)
        values = np.maximum(values, 0.0) + self.noise
        z = rows @ self.W @ (vectors / values) @ vectors.T
        unsure = np.square(vectors) @ (self.noise / values)
        # A loading with the mean zero has a saddle point at zero.
        z += np.where(z < 0.0, -1.0, 1.0) * np.sqrt(unsure)
        value, v, residual = self.joint(rows, z, unsure)
        going = np.arange(len(rows))
        for _ in range(STEPS):
            at, noise, away = z[going], v[going], residual[going]
            by_variance = (1.0 / noise - (away / noise) ** 2) @ self.variance
            slope = (away / noise) @ self.W - at * (1.0 + by_variance)
            values, vectors = self.information(at, noise)
            along = np.einsum("njk,nj->nk", vectors, slope)
            step = np.einsum("njk,nk->nj", vectors, along / values)
            left = 0.5 * (along**2 / values).sum(axis=1)
            length = np.ones((len(going), 1))
            for _ in range(HALVINGS):
                to = at + length * step
                there = self.joint(rows[going], to, unsure)
                better = there[0] >= value[going]
                if better.all():
                    break
                length[~better] *= 0.5
            moved = going[better]
            z[moved] = to[better]
            value[moved], v[moved], residual[moved] = (part[better] for part in there)
            going = going[better & (left > ENOUGH)]
            if not going.size:
                break
        return z, *self.information(z, v)

    def _log_densities(self, rows, draws):
        z, values, vectors = self.about(rows)
        root = vectors / np.sqrt(values)[:, None, :]
        each = np.empty((2 * len(draws), len(rows)))
        for i, draw in enumerate(draws):
            away = root @ draw
            for j, sign in enumerate((1.0, -1.0)):
                each[2 * i + j] = self.joint(rows, z + sign * away)[0]
                each[2 * i + j] += 0.5 * (draw @ draw + LOG_2PI * draw.size)
        volume = 0.5 * np.log(values).sum(axis=1)
        return logsumexp(each, axis=0) - np.log(len(each)) - volume

    def log_densities(self, rows):
        """Return log p(x), (n,), of rows (n, d) about their mean."""
        d, k = self.W.shape
        draws = np.random.default_rng(0).standard_normal((PAIRS, k))
        # The same draws serve all rows: what their second moments are off by is too.
        left, _, right = np.linalg.svd(draws, full_matrices=False)
        draws = np.sqrt(max(PAIRS, k)) * left @ right
        out, tile = np.empty(len(rows)), max(1, TILE // (d * k))
        for start in range(0, len(rows), tile):
            some = slice(start, start + tile)
            out[some] = self._log_densities(rows[some].astype(np.float64), draws)
        return out

    def sample(self, n, rng):
        """Return rows (n, d) about their mean."""
        z = rng.standard_normal((n, self.W.shape[1]))
        scale = np.sqrt(self.noise + z**2 @ self.variance.T)
        return z @ self.W.T + scale * rng.standard_normal(scale.shape)
