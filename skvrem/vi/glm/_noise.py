r"""What is not known of a noise that is learnt, in what a posterior says.

A posterior given the noise moves with it, where it is learnt. With the precisions
:math:`P_0` of the prior, about :math:`\mu_0`, and :math:`G / \sigma^2` of the rows, it
is :math:`N(\mu, \Sigma)` with :math:`\Sigma = (P_0 + G / \sigma^2)^{-1}`, and by
:math:`\tau = \log \sigma^2`

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
from scipy.linalg import block_diag
from scipy.special import psi

from skvrem.utils._tiles import DenseTile, tiles
from skvrem.vi.gaussian._answers import deviation
from skvrem.vi.gaussian._model_posterior import (
    FullRank,
    MeanField,
    of_shear,
    with_intercepts,
)
from skvrem.vi.gaussian._width import shift_by_width
from skvrem.vi.glm._estimator import GaussianPosterior

# Variance of a logarithm below which nothing is unknown.
LEAST_VARIANCE = 1e-30
# What numbers that are the same differ by at most.
SAME = 1e-12


def log_variance(df):
    """Return the variance of the logarithm of a chi-square, to second order.

    At 3 degrees of freedom, the fewest, it is a twentieth too small.
    """
    return 2.0 * (df + 1.0) / df**2


def freedom_of(variance):
    """Return the degrees of freedom whose `log_variance` is given."""
    variance = np.maximum(variance, LEAST_VARIANCE)
    return (1.0 + np.sqrt(1.0 + 2.0 * variance)) / variance


class LearntNoise:
    """What is not known of the noise, in a posterior given its most likely value.

    Parameters
    ----------
    posterior : MeanField, FullRank or LowRank
        Of p coefficients, given the width of the prior.
    prior : MeanField or CentredMeanField
    df : float
        Degrees of freedom of the noise.
    by_width : ndarray of shape (p,), default=0.0
        How far means move with one deviation of a width that is not known, which no
        noise changes; see `shift_by_width`.
    """

    def __init__(self, posterior, prior, df, by_width=0.0):
        self.posterior, self.prior, self.df = posterior, prior, df
        self.by_width = by_width
        away = prior.precision_times(posterior.mean - prior.mean)
        #: Derivative of the mean.
        self.shift = -posterior.covariance_times(away[None])[0]

    def _moving(self):
        """Return what the covariance's derivative is made of, and its diagonal.

        A matrix; or the diagonal d, U and C of diag(d) + U C U^T.
        """
        q, prior = self.posterior, self.prior
        if isinstance(q, FullRank):
            covariance = q.covariance()
            matrix = covariance - prior.precision_times(covariance) @ covariance
            return (matrix,), matrix.diagonal()
        # With intercepts of rows where the prior is independent, and back.
        q, precision = q.with_origin(prior.centre), 1.0 / prior.own.variance
        own = getattr(q, "diagonal", q.variance)
        U = getattr(q, "factor", np.zeros((own.size, 0)))
        sign = getattr(q, "sign", np.zeros(0))
        C, left = np.diag(sign), own * precision
        inner = C - (sign[:, None] * (U.T @ (U * precision[:, None]))) * sign
        if np.ptp(left) < SAME:  # the diagonal is that of the prior
            C = inner - 2.0 * left.mean() * C
        else:
            U = np.column_stack([U, left[:, None] * U])
            C = np.block([[inner, -C], [-C, np.zeros_like(C)]])
        own = own * (1.0 - left)
        if prior.centre.any():
            more, sign = of_shear(own, -prior.centre)
            U = with_intercepts(U.T, -prior.centre).T
            U, C = np.column_stack([U, more]), block_diag(C, np.diag(sign))
        return (own, U, C), own + _quadratic(U, C)

    def of_coefficients(self):
        """Return the squared scales (p,) of Student's t, and degrees of freedom."""
        moved = self._moving()[1]
        by_width = np.square(self.by_width)
        return self._spread(self.posterior.variance, moved, self.shift, by_width)

    def of_rows(self, intercept):
        """Return a function that has the same of the predictors of a batch.

        It takes their variances (m,) given the noise, with what is not known of the
        width, the variance of a noise on top of them, or zero, and the batch.
        """
        parts, _ = self._moving()
        along = np.stack([self.shift, np.broadcast_to(self.by_width, self.shift.shape)])

        def spread(variance, noise, batch):
            moved, shifts = [], []
            for tile, _ in tiles(batch, batch.start, batch.stop, intercept):
                if not tile.sparse:  # of single precision no digit may be left
                    tile = DenseTile(tile.x.astype(np.float64, copy=False), intercept)
                shifts.append(tile.times(along.T))
                if len(parts) == 1:
                    moved.append(tile.quadratic(parts[0]))
                    continue
                own, U, C = parts
                moved.append(tile.squared().times(own[:, None])[:, 0])
                moved[-1] = moved[-1] + _quadratic(tile.times(U), C)
            shift, by_width = np.concatenate(shifts).T
            by_width = np.minimum(np.square(by_width), variance)
            about = np.concatenate(moved), shift, by_width, noise
            return self._spread(variance - by_width, *about)

        return spread

    def _spread(self, variance, moved, shift, by_width, noise=0.0):
        moved = np.clip(moved, 0.0, variance)
        of_mean = np.minimum(np.square(shift) * log_variance(self.df), moved)
        whole = variance + noise
        share = (moved + noise) / np.maximum(whole, np.finfo(float).tiny)
        # A width has tails as well: what it adds leaves the degrees of freedom.
        whole = whole + by_width
        return whole + of_mean, freedom_of(np.square(share) * log_variance(self.df))

    def draws(self, n_samples, rng):
        """Return draws (n_samples, p), and factors (n_samples, 1) of the variance.

        Along axes where the posterior is independent in units of the prior. Where one
        that is an approximation is wider than its diagonal, it stays so many times as
        wide.
        """
        centre, own_prior = self.prior.centre, self.prior.own
        q, scale = self.posterior.with_origin(centre), own_prior.scale
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
            own *= np.sqrt(_share_at(times, variance / own_prior.variance))
        expected = np.log(0.5 * self.df) - psi(0.5 * self.df)
        mean = self.posterior.mean + (np.log(times) - expected) * self.shift
        mean = mean + rng.standard_normal((n_samples, 1)) * self.by_width
        return mean + with_intercepts(scale * own, -centre), times


def _quadratic(images, C):
    return np.einsum("ij,ij->i", images @ C, images)


def _share_at(times, share):
    """Return the share of the prior's variance at so many times that of the noise."""
    share = np.clip(share, 0.0, 1.0)
    return times * share / (1.0 - share + times * share)


class NoisyPosterior(GaussianPosterior):
    """Estimators whose targets may have a noise that is learnt.

    Where it is, they have ``noise_scale_`` and ``noise_df_``, and the answers of their
    posterior have what is not known of it.
    """

    @property
    def _df(self):
        if self._grouped:
            return np.inf  # what is not known of the noise is in the covariances
        return vars(self).get("noise_df_", np.inf)

    def _learnt_noise(self, whole, given_prior):
        """Return the `LearntNoise` of a posterior, None where the noise is known."""
        if not np.isfinite(self._df):
            return None
        shift = 0.0
        if whole != given_prior:
            scales = self._scales_by_width(given_prior.n_dim, 1)
            shift = shift_by_width(given_prior, scales, self._width.curvature)
        return LearntNoise(given_prior, self._prior_of_fit(), self._df, shift)

    def _prior_of_fit(self):
        """Return the prior of the coefficients, which older pickles have in parts."""
        if "_prior" in vars(self):
            return self._prior
        mean, scale = np.zeros(self.prior_scale_.size), self.prior_scale_
        if self._of_fit.fit_intercept:
            mean = np.append(mean, self.intercept_prior_mean_)
            scale = np.append(scale, self.intercept_prior_scale_)
        return MeanField(mean, scale)

    def _scale_and_df(self, whole, given_prior):
        noise = self._learnt_noise(whole, given_prior)
        if noise is None:
            return super()._scale_and_df(whole, given_prior)
        variance, df = noise.of_coefficients()
        return np.sqrt(variance), df

    def _attributes(self, posterior, k, dtype):
        fitted = super()._attributes(posterior, k, dtype)
        scale, df = self._scale_and_df(fitted["posterior_"], posterior)
        coef, intercept = self._columns(deviation(df) * scale, k, self)
        return fitted | {"coef_std_": coef, "intercept_std_": intercept}

    def _sample(self, n_samples, rng):
        noise = self._learnt_noise(self.posterior_, self._given_prior)
        if noise is None:
            return super()._sample(n_samples, rng)
        return noise.draws(n_samples, rng)

    def _draw_targets(self, model, draws, times, data, offset, rng):
        found = super()._draw_targets(model, draws, times, data, offset, rng)
        if np.isfinite(self._df):  # the noise differs from draw to draw
            z = model.draws_of_predictors(draws, data.batch(0, data.n_units))
            mean = (z + offset)[..., 0]
            found = mean + np.sqrt(times) * (found - mean)
        return found

    def _dispersed(self, each, times):
        if not np.isfinite(self._df):
            return each, {}
        constant = 0.5 * np.log(2.0 * np.pi * self.noise_scale_**2)
        each = (each + constant) / times - constant - 0.5 * np.log(times)
        return each, {"noise_scale": self.noise_scale_ * np.sqrt(times[:, 0])}

    @property
    def _noise(self):
        """Variance of the noise, with groups its mean."""
        own = deviation(self.noise_df_) if self._grouped else 1.0
        return np.square(own * self.noise_scale_)

    def _draw_at(self, z, noise, rng):
        if not noise.shape[1]:
            return super()._draw_at(z, noise, rng)
        return rng.normal(z[..., 0], noise)

    def _log_likelihood_at(self, z, noise, targets):
        if not noise.shape[1]:
            return super()._log_likelihood_at(z, noise, targets)
        square = np.square((targets - z[..., 0]) / noise)
        return -0.5 * (square + np.log(2.0 * np.pi * noise**2))
