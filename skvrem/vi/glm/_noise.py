r"""How a posterior moves with a noise that is learnt.

With the precisions :math:`P_0` of the prior, about :math:`\mu_0`, and :math:`G /
\sigma^2` of the rows, the posterior :math:`N(\mu, \Sigma)` has :math:`\Sigma = (P_0 + G
/ \sigma^2)^{-1}` and, with :math:`\tau = \log \sigma^2`,

.. math:: \frac{\partial \Sigma}{\partial \tau} = \Sigma - \Sigma P_0 \Sigma,
          \qquad \frac{\partial \mu}{\partial \tau} = -\Sigma P_0 (\mu - \mu_0).

So of a variance v the share :math:`r = s / v` moves, as :math:`(\sigma^2)^r`, where s
is that of the first derivative: all where rows say all, and none where they say
nothing. The noise's variance is a mean of squares over a chi-square of :math:`\nu`
degrees of freedom; the logarithm of v varies :math:`r^2` times as much as its
logarithm, which is as that of more degrees. Student's t of so many, with the variance v
and that of the mean, is that of least squares at r = 1, and a normal at r = 0. Of what
the mean adds no more than s is taken: no standard deviation is above the prior's, then.
"""

import numpy as np
from scipy.special import psi

from skvrem.utils._tiles import DenseTile, tiles
from skvrem.vi.gaussian._model_posterior import FullRank

# Variance of a logarithm below which nothing is unknown.
LEAST = 1e-30
# What numbers that are the same differ by at most.
ROUNDING = 1e-12


def log_variance(df):
    """Return the variance of the logarithm of a chi-square, to second order.

    At 3 degrees of freedom, the fewest, it is a twentieth too small.
    """
    return 2.0 * (df + 1.0) / df**2


def freedom_of(variance):
    """Return the degrees of freedom whose `log_variance` is given."""
    variance = np.maximum(variance, LEAST)
    return (1.0 + np.sqrt(1.0 + 2.0 * variance)) / variance


class LearntNoise:
    """What is not known of the noise, in a posterior given its most likely value.

    Parameters
    ----------
    posterior : MeanField, FullRank or LowRank
        Of p coefficients.
    prior : MeanField
    df : float
        Degrees of freedom of the noise.
    """

    def __init__(self, posterior, prior, df):
        self.posterior, self.prior, self.df = posterior, prior, df
        away = (posterior.mean - prior.mean) / prior.variance
        #: Derivative of the mean.
        self.shift = -posterior.covariance_times(away[None])[0]

    def _moving(self):
        """Return what the covariance's derivative is made of, and its diagonal.

        A matrix; or the diagonal d, U and C of diag(d) + U C U^T.
        """
        q, precision = self.posterior, 1.0 / self.prior.variance
        if isinstance(q, FullRank):
            covariance = q.covariance()
            matrix = covariance - (covariance * precision) @ covariance
            return (matrix,), matrix.diagonal()
        own = getattr(q, "diagonal", q.variance)
        U = getattr(q, "factor", np.zeros((own.size, 0)))
        sign = getattr(q, "sign", np.zeros(0))
        C, left = np.diag(sign), own * precision
        inner = C - (sign[:, None] * (U.T @ (U * precision[:, None]))) * sign
        if np.ptp(left) < ROUNDING:  # the diagonal is that of the prior
            C = inner - 2.0 * left.mean() * C
        else:
            U = np.column_stack([U, left[:, None] * U])
            C = np.block([[inner, -C], [-C, np.zeros_like(C)]])
        own = own * (1.0 - left)
        return (own, U, C), own + _quadratic(U, C)

    def of_coefficients(self):
        """Return the squared scales (p,) of Student's t, and degrees of freedom."""
        moved = self._moving()[1]
        return self._spread(self.posterior.variance, moved, self.shift)

    def of_rows(self, intercept):
        """Return a function that has the same of the predictors of a batch.

        It takes their variances (m,) given the noise, the variance of a noise on top of
        them, or zero, and the batch.
        """
        parts, _ = self._moving()

        def spread(variance, noise, batch):
            moved, shift = [], []
            for tile, _ in tiles(batch, batch.start, batch.stop, intercept):
                if not tile.sparse:  # of single precision no digit may be left
                    tile = DenseTile(tile.x.astype(np.float64, copy=False), intercept)
                shift.append(tile.times(self.shift[:, None])[:, 0])
                if len(parts) == 1:
                    moved.append(tile.quadratic(parts[0]))
                    continue
                own, U, C = parts
                moved.append(tile.squared().times(own[:, None])[:, 0])
                moved[-1] = moved[-1] + _quadratic(tile.times(U), C)
            return self._spread(variance, *map(np.concatenate, (moved, shift)), noise)

        return spread

    def _spread(self, variance, moved, shift, noise=0.0):
        moved = np.clip(moved, 0.0, variance)
        of_mean = np.minimum(np.square(shift) * log_variance(self.df), moved)
        whole = variance + noise
        share = (moved + noise) / np.maximum(whole, np.finfo(float).tiny)
        return whole + of_mean, freedom_of(np.square(share) * log_variance(self.df))

    def draws(self, n_samples, rng):
        """Return draws (n_samples, p), and factors (n_samples, 1) of the variance.

        Along axes where the posterior is independent in units of the prior. Where one
        that is an approximation is wider than its diagonal, it stays so many times as
        wide.
        """
        q, scale = self.posterior, self.prior.scale
        times = self.df / rng.chisquare(self.df, (n_samples, 1))
        own = rng.standard_normal((n_samples, q.n_dim))
        if isinstance(q, FullRank):
            white = q.factor / scale[:, None]
            share, axes = np.linalg.eigh(white @ white.T)
            own = (own * np.sqrt(_share_at(times, share))) @ axes.T
        else:
            if hasattr(q, "directions"):
                axes, share = q.directions()
                wider = np.maximum(share, 1.0)
                share = wider * _share_at(times, share / wider)
                own += ((own @ axes) * (np.sqrt(share) - 1.0)) @ axes.T
            variance = getattr(q, "diagonal", q.variance)
            own *= np.sqrt(_share_at(times, variance / self.prior.variance))
        expected = np.log(0.5 * self.df) - psi(0.5 * self.df)
        mean = q.mean + (np.log(times) - expected) * self.shift
        return mean + scale * own, times


def _quadratic(images, C):
    return np.einsum("ij,ij->i", images @ C, images)


def _share_at(times, share):
    """Return the share of the prior's variance at so many times that of the noise."""
    share = np.clip(share, 0.0, 1.0)
    return times * share / (1.0 - share + times * share)
