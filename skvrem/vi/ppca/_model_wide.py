r"""Components of many columns: along principal axes, of lengths that need no draws.

The likelihood sees loadings W (d, k) by :math:`M = \lambda^2 I + W^T W` and :math:`N =
W^T S W` only, which are sums over columns. Of many columns these hardly vary under q,
and the likelihood is expected to be what it is at their expectations,

.. math:: E_q \ell(W) \approx -\frac n2 \Big[ d \log 2 \pi + (d - k) \log \lambda^2 +
          \log |\bar M| + \frac{\mathrm{tr} S - \mathrm{tr}(\bar M^{-1} \bar N)}
          {\lambda^2} \Big] .

A few draws of so many loadings are worse: the means find directions in which just those
draws are good, and leave the rotation of the highest bound for them. By the means the
derivative is :math:`S \mu A - \mu B`, A and B (k, k). It is zero where they are along
eigenvectors of S, the columns of V, whatever deviations are; there M and N are
diagonal, and so is the precision of a row of loadings, which q takes it to be: at any
other rotation q loses :math:`\frac12 \log (\prod_j \Lambda_{jj} / |\Lambda|)` by each
of the d precisions :math:`\Lambda`. This leaves k lengths L and the noise to be found,

.. math:: \bar M_{jj} = \lambda^2 + L_j^2 + \sum_i h_i \sigma_{ij}^2, \qquad
          \bar N_{jj} = l_j L_j^2 + \sum_i r_i \sigma_{ij}^2,

with the eigenvalues l of S, and :math:`h_i = 1 - \sum_j V_{ij}^2` and :math:`r_i =
S_{ii} - \sum_j l_j V_{ij}^2`: loadings that vary within V turn components, or lengthen
them by less than sums tell, and explain nothing that is not explained. Given lengths
and noise, deviations and the prior are those of the highest bound,

.. math:: \sigma_{ij}^{-2} = T_{jj} + \frac n{\bar M_{jj}} \Big[ h_i \Big( 1 +
          \frac{\bar N_{jj}}{\lambda^2 \bar M_{jj}} \Big) - \frac{r_i}{\lambda^2}
          \Big],

so that by lengths and noise the bound has its partial derivatives only.
"""

import numpy as np

from skvrem.vi.ppca._model import (
    LARGEST_CHANGE,
    LEAST_PRECISION,
    LOG_2PI,
    Point,
    PPCAModel,
    Statistics,
)

# Columns of which sums say more than draws, and what axes may have of one: where a term
# is as large as its sum, that varies.
LEAST_COLUMNS, LARGEST_SHARE = 100, 0.25
# Deviations are settled with less than that to gain, in nats, or after so many cycles
# of three rounds.
SETTLED, CYCLES = 1e-6, 30
# Eigenvalues are zero below that share of the largest.
ROUNDING = 1e-14
# Extrapolation goes so many times as far as a round, at most.
FARTHEST = 50.0


def are_sums_enough(moments, k):
    """Return whether k components of such rows have so many columns that sums do."""
    if moments.d < LEAST_COLUMNS or moments.root is not None:
        return False
    share = np.square(found_axes(*moments.largest(k)[:2])).sum(axis=1)
    return bool(share.max() < LARGEST_SHARE)


def found_axes(values, axes):
    """Return axes (d, k), zero where no row is: these may be any."""
    return axes * (values > ROUNDING * values[0])


def gain_of(changes):
    """Return what changes (d, k) of the logarithms of deviations gain, about."""
    return float(np.square(changes).sum())


class WidePPCAModel(PPCAModel):
    """Rows of many columns: means are along principal axes.

    A point has the deviations and the prior of its lengths and noise. Parameters are
    those of `PPCAModel`; of draws the shape is looked at only.
    """

    def __init__(self, moments, prior, learn_noise, draws):
        super().__init__(moments, prior, learn_noise, draws)
        self.values, self.axes, _ = moments.largest(self.scale.shape[1])
        square = found_axes(self.values, self.axes) ** 2
        self.h = np.maximum(1.0 - square.sum(axis=1), 0.0)
        self.r = np.maximum(moments.diagonal - square @ self.values, 0.0)

    def start(self, noise=None):
        """Return a point. Of the noises to start at it has that of the best bound."""
        found = [
            self._settled(point._replace(scale=np.zeros(point.mean.shape)))
            for point in self._starts(noise)
        ]
        return max(found, key=lambda point: self.statistics(point, None, 1.0).objective)

    def resume(self, W, scale, noise):
        """Return the point of the lengths of a posterior that is known."""
        lengths = np.sort(np.sqrt(np.square(W).sum(axis=0)))[::-1]
        mean = self.axes * lengths
        return self._settled(Point(mean, float(np.log(noise)), scale=scale))

    def spread(self, point, step):
        """Return what a round would gain, in nats, about: a point has made many."""
        return gain_of(np.log(self._round(point).scale / point.scale))

    def _settled(self, point):
        """Return a point with its prior, and its deviations from those it has.

        In turns that extrapolate: deviations of components that rows have no use for
        are each other's, and come nearer by a small share a turn.
        """
        for _ in range(CYCLES):
            logs = []
            for _ in range(3):
                point = self._round(point)
                logs.append(np.log(point.scale))
            # Squared extrapolation (Varadhan, Roland 2008), of each component.
            first = logs[1] - logs[0]
            second = logs[2] - logs[1] - first
            lengths = (np.sqrt(np.square(part).sum(axis=0)) for part in (first, second))
            far = np.divide(*lengths, out=np.ones(second.shape[1]), where=second.any(0))
            far = np.clip(far, 1.0, FARTHEST)
            if gain_of(far * (first + second)) <= SETTLED:
                break
            logs = logs[0] + 2.0 * far * first + far**2 * second
            point = point._replace(scale=np.exp(logs))
        return self._round(point)

    def _round(self, point):
        """Return a point with its prior moved, then its deviations."""
        prior = self.prior.learned(point.mean, point.scale**2)
        noise, m, N, T = self._sums(point._replace(prior=prior))
        held = self.h[:, None] * (1.0 + N / (noise * m)) - self.r[:, None] / noise
        precision = np.maximum(T + self.n * held / m, LEAST_PRECISION * T)
        return point._replace(scale=precision**-0.5, prior=prior)

    def _sums(self, point):
        """Return the noise, and the diagonals of M, N and the prior precision, (k,)."""
        noise, variance = np.exp(point.log_noise), point.scale**2
        prior = np.diagonal(point.prior.precision(point.mean, variance))
        squares = np.square(point.mean).sum(axis=0)
        m = noise + squares + self.h @ variance
        return noise, m, self.values * squares + self.r @ variance, prior

    def _take(self, point):
        """Have the deviations and the prior of a point."""
        self.scale, self.prior = point.scale, point.prior

    def posterior(self, point):
        """Return q over the loadings, row after row."""
        self._take(point)
        return super().posterior(point)

    def bound(self, point, draws):
        """Return the bound by draws, (m, d, k), and its standard error."""
        self._take(point)
        return super().bound(point, draws)

    # What the solver asks for

    def statistics(self, point, batch, beta):
        """Return the bound and its gradient by lengths and noise."""
        self._take(point)
        noise, m, N, prior = self._sums(point)
        d, k = self.scale.shape
        fitted = N / m
        misfit = (self.moments.trace - fitted.sum()) / noise
        value = d * LOG_2PI + (d - k) * point.log_noise + np.log(m).sum() + misfit
        value = -0.5 * self.n * value - self.divergence(point)
        by_m = (1.0 + fitted / noise) / m
        by_square = -0.5 * (self.n * (by_m - self.values / (noise * m)) + prior)
        by_length = 2.0 * by_square * self._lengths(point)
        by_noise = -0.5 * self.n * (d - k - misfit + noise * by_m.sum())
        least = point.log_noise <= self.least_log_noise and by_noise < 0.0
        free = self.learn_noise and not least
        return Statistics(value, np.append(by_length, by_noise if free else 0.0))

    def _lengths(self, point):
        return (self.axes * point.mean).sum(axis=0)

    def move(self, point, step):
        """Return the point with its lengths and noise moved."""
        change = np.clip(step[-1], -LARGEST_CHANGE, LARGEST_CHANGE)
        mean = self.axes * (self._lengths(point) + step[:-1])
        log_noise = float(max(point.log_noise + change, self.least_log_noise))
        return self._settled(point._replace(mean=mean, log_noise=log_noise))

    def precondition(self, point, vector):
        """Multiply by what n rows tell of a length, and of the noise.

        And by what loadings vary by, of components of no length.
        """
        by_length = np.square(point.scale * self.axes).sum(axis=0)
        by_length += 0.5 * self._lengths(point) ** 2 / self.n
        by_noise = 2.0 / (self.n * self.moments.d)
        return np.append(by_length, by_noise) * vector
