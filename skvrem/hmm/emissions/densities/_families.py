"""Families without closed forms, with derivatives that are exact."""

import numpy as np
from scipy.special import betainc, gamma, stdtr

from skvrem.hmm.emissions._base import of_width_one
from skvrem.hmm.emissions._coordinates import TWO_PI
from skvrem.hmm.emissions._facts import filled_moments
from skvrem.hmm.emissions.densities._density import DensityEmission
from skvrem.hmm.emissions.densities._model import (
    negative_binomial,
    student_t,
    weibull,
    wrapped_cauchy,
)
from skvrem.utils._columns import Given

# Of the width of a column, the least that a state has: what is of one value would have
# none. Of angles, the least of one less the mean resultant length.
LEAST = 1e-6
# The standard deviation of the logarithm of a Weibull variable of shape 1.
GUMBEL = np.pi / np.sqrt(6.0)


class NegativeBinomial(DensityEmission):
    """Counts that vary more than those of Poisson, independent given the state.

    Parameters
    ----------
    mean, size : array-like of shape (n_states, n_features), default=None
        Fixed parameters; NaN are free.
    mean_init, size_init : array-like of shape (n_states, n_features), default=None
        Starting values.

    Attributes
    ----------
    mean_ : ndarray of shape (n_states, n_features)
        Expected counts.
    size_ : ndarray of shape (n_states, n_features)
        The variance is ``mean + mean**2 / size``; large is nearly Poisson.

    Examples
    --------
    >>> import numpy as np
    >>> from skvrem.hmm import VRHMM, NegativeBinomial
    >>> rng = np.random.default_rng(0)
    >>> rate = rng.gamma(4.0, np.repeat([[0.5], [5.0], [0.5]], 200, axis=0))
    >>> hmm = VRHMM(2, emission=NegativeBinomial(), random_state=0)
    >>> hmm = hmm.fit(rng.poisson(rate))
    >>> np.sort(hmm.emission_.mean_.ravel()).round()
    array([ 2., 19.])
    """

    parameter_scales = {"mean": "positive", "size": "positive"}
    discrete, support, window = True, "count", 5

    def __init__(
        self,
        mean: Given = None,
        size: Given = None,
        *,
        mean_init: Given = None,
        size_init: Given = None,
    ):
        self.mean = mean
        self.size = size
        self.mean_init = mean_init
        self.size_init = size_init

    def log_density(self, x, mean, size):
        """Return the log-probabilities of counts."""
        return negative_binomial.value(x, mean, size)

    def derivatives(self, x, mean, size):
        """Return these, and derivatives by logarithms of mean and size."""
        return negative_binomial.expansion(x, mean, size)

    def mean_variance(self, mean, size):
        """Return mean and variance."""
        return mean, mean + np.square(mean) / size

    def cdf(self, x, mean, size):
        """Return the probability of no more than x."""
        return betainc(size, np.floor(x) + 1.0, size / (size + mean))

    def sample(self, rng, mean, size):
        """Return counts."""
        return rng.poisson(rng.gamma(size, mean / size))

    def start_columns(self, X):
        """Return square roots of the counts."""
        return np.sqrt(super().start_columns(X))


class StudentT(DensityEmission):
    """Real numbers with heavy tails, independent given the state.

    Parameters
    ----------
    location, scale, df : array-like of shape (n_states, n_features), default=None
        Fixed parameters; NaN are free. One number, as ``df=4``, is that of all states.
    location_init, scale_init, df_init : array-like, default=None
        Starting values.

    Attributes
    ----------
    location_, scale_ : ndarray of shape (n_states, n_features)
        Middle, and what the distance from it is divided by.
    df_ : ndarray of shape (n_states, n_features)
        Degrees of freedom.

    Examples
    --------
    >>> import numpy as np
    >>> from skvrem.hmm import VRHMM, StudentT
    >>> rng = np.random.default_rng(0)
    >>> X = np.repeat([[2.0], [9.0], [2.0]], 300, axis=0) + rng.standard_t(3, (900, 1))
    >>> hmm = VRHMM(2, emission=StudentT(), random_state=0).fit(X)
    >>> np.sort(hmm.emission_.location_.ravel()).round()
    array([2., 9.])
    """

    parameter_scales = {"location": "location", "scale": "positive", "df": "positive"}
    shrinks = True

    def __init__(
        self,
        location: Given = None,
        scale: Given = None,
        df: Given = None,
        *,
        location_init: Given = None,
        scale_init: Given = None,
        df_init: Given = None,
    ):
        self.location = location
        self.scale = scale
        self.df = df
        self.location_init = location_init
        self.scale_init = scale_init
        self.df_init = df_init

    def prepare(self, X):
        """Look at the rows of a fit: units, and what users gave."""
        super().prepare(X)
        self._ends = {"scale": (LEAST * self._unit[0], np.inf)}

    def widths(self, parameters, features, names):
        """Yield squared widths of the data and of the states, in those of columns."""
        if self._split(self.varies())[1].all():
            scale = self._split(parameters)[1] / self._unit[0]
            mean, weight = self._zero[0] / self._unit[0], self.row_weight(features)
            yield of_width_one(scale, LEAST, names, weight, mean)

    def blank(self):
        """Return parameters for states that have no rows at all."""
        location, _, df = self._split(super().blank())
        unit = np.broadcast_to(self._unit[0], location.shape)
        return np.hstack([location, unit, np.full_like(df, 5.0)])

    def log_density(self, x, location, scale, df):
        """Return the log-densities."""
        return student_t.value(x, location, scale, df)

    def derivatives(self, x, location, scale, df):
        """Return these, and derivatives by location and by logarithms of the others.

        Those of second order are, for location and scale, of EM's surrogate.
        """
        return student_t.expansion(x, location, scale, df)

    def mean_variance(self, location, scale, df):
        """Return location and variance, infinite where there is none."""
        variance = np.where(df > 2.0, df / np.where(df > 2.0, df - 2.0, 1.0), np.inf)
        return location + 0.0 * scale, np.square(scale) * variance

    def cdf(self, x, location, scale, df):
        """Return the probability of no more than x."""
        return stdtr(df, (x - location) / scale)

    def sample(self, rng, location, scale, df):
        """Return values."""
        return location + scale * rng.standard_t(df)


class Weibull(DensityEmission):
    """Positive numbers, as waiting times and wind speeds, independent given the state.

    Parameters
    ----------
    scale, shape : array-like of shape (n_states, n_features), default=None
        Fixed parameters; NaN are free.
    scale_init, shape_init : array-like of shape (n_states, n_features), default=None
        Starting values.

    Attributes
    ----------
    scale_, shape_ : ndarray of shape (n_states, n_features)
        ``exp(-(x / scale) ** shape)`` is the probability of more than x.

    Examples
    --------
    >>> import numpy as np
    >>> from skvrem.hmm import VRHMM, Weibull
    >>> rng = np.random.default_rng(0)
    >>> X = np.repeat([[1.0], [30.0], [1.0]], 200, axis=0) * rng.weibull(2.0, (600, 1))
    >>> hmm = VRHMM(2, emission=Weibull(), random_state=0).fit(X)
    >>> np.sort(hmm.emission_.scale_.ravel()).round()
    array([ 1., 32.])
    """

    parameter_scales = {"scale": "positive", "shape": "positive"}
    support, shrinks = "positive", True

    def __init__(
        self,
        scale: Given = None,
        shape: Given = None,
        *,
        scale_init: Given = None,
        shape_init: Given = None,
    ):
        self.scale = scale
        self.shape = shape
        self.scale_init = scale_init
        self.shape_init = shape_init

    def prepare(self, X):
        """Look at the rows of a fit: units, and what users gave."""
        super().prepare(X)
        self._mean_log, width = filled_moments(X, logs=True)
        self._width_log = np.where(width > 0.0, width, 1.0)
        self._ends = {"shape": (0.0, GUMBEL / (LEAST * self._width_log))}

    def widths(self, parameters, features, names):
        """Yield variances of logarithms of the data and of the states, in columns'."""
        if self._split(self.varies())[1].all():
            sd = GUMBEL / self._split(parameters)[1] / self._width_log
            mean, weight = self._mean_log / self._width_log, self.row_weight(features)
            yield of_width_one(sd, LEAST, names, weight, mean)

    def blank(self):
        """Return parameters for states that have no rows at all."""
        ones = np.ones((self.n_states_, self.n_columns_))
        return np.hstack([ones * np.exp(self._mean_log), ones])

    def log_density(self, x, scale, shape):
        """Return the log-densities."""
        return weibull.value(x, scale, shape)

    def derivatives(self, x, scale, shape):
        """Return these, and derivatives by logarithms of scale and shape."""
        return weibull.expansion(x, scale, shape)

    def mean_variance(self, scale, shape):
        """Return mean and variance."""
        first, second = gamma(1.0 + 1.0 / shape), gamma(1.0 + 2.0 / shape)
        return scale * first, np.square(scale) * (second - np.square(first))

    def cdf(self, x, scale, shape):
        """Return the probability of no more than x."""
        return -np.expm1(-((np.maximum(x, 0.0) / scale) ** shape))

    def sample(self, rng, scale, shape):
        """Return values."""
        return scale * rng.weibull(shape)

    def start_columns(self, X):
        """Return logarithms."""
        return np.log(super().start_columns(X))


class WrappedCauchy(DensityEmission):
    r"""Angles in radians with heavy tails, independent given the state.

    Parameters
    ----------
    mean, concentration : array-like of shape (n_states, n_features), default=None
        Fixed parameters; NaN are free. One number is that of all states.
    mean_init, concentration_init : array-like, default=None
        Starting values.

    Attributes
    ----------
    mean_ : ndarray of shape (n_states, n_features)
        Mean angles in :math:`(-\pi, \pi]`.
    concentration_ : ndarray of shape (n_states, n_features)
        Mean resultant lengths, from 0, the uniform distribution, to 1.

    Examples
    --------
    >>> import numpy as np
    >>> from skvrem.hmm import VRHMM, WrappedCauchy
    >>> rng = np.random.default_rng(0)
    >>> width = np.repeat([[0.1], [2.0], [0.1]], 300, axis=0)
    >>> X = np.angle(np.exp(1j * width * rng.standard_cauchy((900, 1))))
    >>> hmm = VRHMM(2, emission=WrappedCauchy(mean=0.0), random_state=0).fit(X)
    >>> np.sort(hmm.emission_.concentration_.ravel()).round(1)
    array([0.1, 0.9])
    """

    parameter_scales = {"mean": "direction", "concentration": "probability"}
    support, window, shrinks = "angle", 10, True

    def __init__(
        self,
        mean: Given = None,
        concentration: Given = None,
        *,
        mean_init: Given = None,
        concentration_init: Given = None,
    ):
        self.mean = mean
        self.concentration = concentration
        self.mean_init = mean_init
        self.concentration_init = concentration_init

    def prepare(self, X):
        """Look at the rows of a fit: units, and what users gave."""
        super().prepare(X)
        self._ends = {"concentration": (0.0, 1.0 - LEAST)}

    def widths(self, parameters, features, names):
        """Yield squared widths of the states, in radians, and the least of them."""
        if self._split(self.varies())[1].all():
            width = 1.0 - self._split(parameters)[1]
            yield of_width_one(width, LEAST, names, self.row_weight(features))

    def log_density(self, x, mean, concentration):
        """Return the log-densities."""
        return wrapped_cauchy.value(x, mean, concentration)

    def derivatives(self, x, mean, concentration):
        """Return these, and derivatives by the mean and the log-odds of the other."""
        return wrapped_cauchy.expansion(x, mean, concentration)

    def mean_variance(self, mean, concentration):
        """Return mean angle and variance, the latter of small angles."""
        return mean, 2.0 * (1.0 - concentration)

    def cdf(self, x, mean, concentration):
        """Return the probability of less than angles x from -pi to pi."""
        x = np.angle(np.exp(1j * x))
        k = (1.0 + concentration) / np.maximum(1.0 - concentration, 1e-12)

        def around(angle):
            turns = np.floor((angle + np.pi) / TWO_PI)
            return np.arctan(k * np.tan(0.5 * angle)) / np.pi + turns

        return np.clip(around(x - mean) - around(-np.pi - mean), 0.0, 1.0)

    def sample(self, rng, mean, concentration):
        """Return angles from -pi to pi."""
        width = -np.log(np.maximum(concentration, 1e-300))
        angle = mean + width * rng.standard_cauchy(np.shape(concentration))
        return np.angle(np.exp(1j * angle))

    def start_columns(self, X):
        """Return cosines and sines."""
        seen = ~np.isnan(X)
        return np.hstack(
            [np.where(seen, np.cos(X), 0.0), np.where(seen, np.sin(X), 0.0)]
        )
