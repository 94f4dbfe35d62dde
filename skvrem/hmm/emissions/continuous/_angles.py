"""Emissions of angles."""

import numpy as np
from scipy.special import i0e, i1e

from skvrem.hmm.emissions._base import Emission, of_width_one
from skvrem.hmm.emissions._coordinates import TWO_PI
from skvrem.utils._algebra import equal_pieces
from skvrem.utils._columns import Given

# The largest concentration that is looked for, and Newton steps to find one.
MOST, STEPS = 1e8, 50


class VonMises(Emission):
    r"""Angles in radians, independent given the state, as turning angles are.

    Parameters
    ----------
    mean : array-like of shape (n_states, n_features), default=None
        Fixed mean angles; NaN are free. One number, as 0, is that of all states.
    concentration : array-like of shape (n_states, n_features), default=None
        Fixed concentrations; NaN are free.
    mean_init, concentration_init : array-like, default=None
        Starting values.

    Attributes
    ----------
    mean_ : ndarray of shape (n_states, n_features)
        Mean angles in :math:`(-\pi, \pi]`.
    concentration_ : ndarray of shape (n_states, n_features)
        0 is the uniform distribution.

    Examples
    --------
    >>> import numpy as np
    >>> from skvrem.hmm import VRHMM, VonMises
    >>> rng = np.random.default_rng(0)
    >>> X = rng.vonmises(0.0, np.repeat([[8.0], [0.2], [8.0]], 200, axis=0))
    >>> hmm = VRHMM(2, emission=VonMises(mean=0.0), random_state=0).fit(X)
    >>> bool(hmm.emission_.concentration_.max() > 5.0)
    True
    """

    parameter_scales = {"mean": "direction", "concentration": "positive"}
    support, window, row_kernel = "angle", 10, "von mises"
    shrinks = True

    def __init__(
        self,
        mean: Given = None,
        *,
        concentration: Given = None,
        mean_init: Given = None,
        concentration_init: Given = None,
    ):
        self.mean = mean
        self.concentration = concentration
        self.mean_init = mean_init
        self.concentration_init = concentration_init

    def prepare(self, X):
        self._check_given("mean", -np.pi, np.pi)
        self._check_given("concentration", 0.0, MOST)

    # Features: masks, cos y, sin y

    def sufficient(self, X):
        return np.hstack([np.cos(X), np.sin(X)])

    def theta(self, parameters):
        """Return the coefficients of masks, cosines and sines."""
        mean, kappa = self._split(parameters)
        constant = -np.log(TWO_PI * i0e(kappa)) - kappa
        return np.hstack([constant, kappa * np.cos(mean), kappa * np.sin(mean)])

    def expected(self, parameters):
        """Return the means of the features."""
        mean, kappa = self._split(parameters)
        length = i1e(kappa) / i0e(kappa)
        return np.hstack(
            [np.ones_like(mean), length * np.cos(mean), length * np.sin(mean)]
        )

    def spread(self, parameters):
        """Return standard deviations of the features, roughly."""
        _, kappa = self._split(parameters)
        sd = np.sqrt(1.0 / (2.0 + kappa))
        return np.hstack([np.ones_like(kappa), sd, sd])

    def blank(self):
        """Return parameters for states that have no rows at all."""
        zeros = np.zeros((self.n_states_, self.n_columns_))
        return np.hstack([zeros, zeros])

    def maximize(self, features, before, repair):
        """Return mean angles and concentrations."""
        weight, cosine, sine = equal_pieces(features, 3)
        if not repair and (np.hypot(cosine, sine) > weight).any():
            return None
        old_mean, old_kappa = self._split(before)
        empty = weight <= 0.0
        mean = np.where(empty, old_mean, np.arctan2(sine, cosine))
        mean = self._fix("mean", mean)
        # The share along a fixed mean may be negative: then no concentration is best.
        along = cosine * np.cos(mean) + sine * np.sin(mean)
        length = np.clip(along / np.where(empty, 1.0, weight), 0.0, 1.0 - 1e-9)
        kappa = np.where(empty, old_kappa, _concentration(length))
        return np.hstack([mean, self._fix("concentration", kappa)])

    def widths(self, parameters, features, names):
        """Yield squared widths of the states, in radians, and the least of them."""
        if self._split(self.varies())[1].all():
            # That of no concentration is that of the circle, about 1 radian.
            width = 1.0 / np.sqrt(np.maximum(self._split(parameters)[1], 1.0))
            least, weight = 1.0 / np.sqrt(MOST), self.row_weight(features)
            yield of_width_one(width, least, names, weight)

    def slopes(self, parameters, features):
        """Return the gradient in mean angles and logarithms of concentrations."""
        weight, cosine, sine = equal_pieces(features, 3)
        mean, kappa = self._split(parameters)
        along = cosine * np.cos(mean) + sine * np.sin(mean)
        across = sine * np.cos(mean) - cosine * np.sin(mean)
        length = i1e(kappa) / i0e(kappa)
        return np.hstack([kappa * across, kappa * (along - weight * length)])

    def moments(self, parameters):
        """Return mean and variance of every feature, the latter of small angles."""
        mean, kappa = self._split(parameters)
        return mean, 2.0 * (1.0 - i1e(kappa) / i0e(kappa))

    def tails(self, x, j, parameters):
        """Return the probabilities below and above x of angles from -pi to pi."""
        from scipy.stats import vonmises

        mean, kappa = (part[:, j] for part in self._split(parameters))
        x = np.angle(np.exp(1j * x))[:, None]
        kappa = np.maximum(kappa, 1e-9)
        start = vonmises.cdf(-np.pi, kappa, loc=mean)
        below = np.clip(vonmises.cdf(x, kappa, loc=mean) - start, 0.0, 1.0)
        return below, 1.0 - below

    def draw(self, parameters, states, rng):
        """Return a row for every state."""
        mean, kappa = self._split(parameters)
        return rng.vonmises(mean[states], kappa[states])


def _concentration(length):
    """Solve I1(k) / I0(k) = length by Newton's method (Banerjee et al. 2005)."""
    kappa = length * (2.0 - np.square(length)) / (1.0 - np.square(length))
    for _ in range(STEPS):
        ratio = i1e(kappa) / i0e(kappa)
        safe = np.maximum(kappa, 1e-12)
        slope = np.where(kappa > 1e-6, 1.0 - np.square(ratio) - ratio / safe, 0.5)
        new = kappa - (ratio - length) / np.maximum(slope, 1e-300)
        new = np.clip(new, 0.5 * kappa, np.maximum(2.0 * kappa, 1e-3))
        if np.all(np.abs(new - kappa) <= 1e-12 * (1.0 + kappa)):
            break
        kappa = new
    return np.minimum(kappa, MOST)
