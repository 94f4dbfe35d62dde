"""Emissions of positive numbers."""

import numpy as np
from scipy.special import digamma, gammainc, gammaincc, gammaln, ndtr, zeta

from skvrem.hmm.emissions._base import Emission, of_width_one, ratio
from skvrem.hmm.emissions._coordinates import LOG_2PI, bounded_log
from skvrem.hmm.emissions._facts import fill, filled_moments
from skvrem.utils._algebra import equal_pieces
from skvrem.utils._columns import Given
from skvrem.utils._validation import check_options

# The largest shape that is looked for, and Newton steps to find one.
MOST, STEPS = 1e8, 50
# Of the standard deviation of logarithms, or of the mean of waiting times, what that of
# a state does not fall below.
LEAST = 1e-6
# Of the width of a column, the most that the least width of the states is where they
# can be much narrower than it.
NARROW = 0.01


def log_columns(X):
    """Return logarithms, of 0 that of a tenth of the smallest value."""
    positive = X[X > 0.0]
    least = 0.1 * positive.min() if positive.size else 1.0
    return fill(np.log(np.maximum(X, least)))


class Gamma(Emission):
    """Positive numbers, independent given the state, as step lengths are.

    Parameters
    ----------
    zero_inflated : bool, default=False
        Values may be 0, with a probability of its own in each state.
    mean, sd : array-like of shape (n_states, n_features), default=None
        Fixed means and standard deviations of what is not 0; NaN are free.
    zero : array-like of shape (n_states, n_features), default=None
        Fixed probabilities of 0; NaN are free.
    mean_init, sd_init, zero_init : array-like, default=None
        Starting values.

    Attributes
    ----------
    mean_, sd_ : ndarray of shape (n_states, n_features)
        Mean and standard deviation of what is not 0.
    zero_ : ndarray of shape (n_states, n_features)
        Probability of 0; 0 unless `zero_inflated`.

    Examples
    --------
    >>> import numpy as np
    >>> from skvrem.hmm import VRHMM, Gamma
    >>> rng = np.random.default_rng(0)
    >>> X = rng.gamma(4.0, np.repeat([[1.0], [10.0], [1.0]], 100, axis=0))
    >>> hmm = VRHMM(2, emission=Gamma(), random_state=0).fit(X)
    >>> np.sort(hmm.emission_.mean_.ravel()).round()
    array([ 4., 39.])
    """

    parameter_scales = {"mean": "positive", "sd": "positive", "zero": "probability"}
    _kinds, row_kernel, shrinks = 2, "gamma", True

    def __init__(
        self,
        zero_inflated: bool = False,
        *,
        mean: Given = None,
        sd: Given = None,
        zero: Given = None,
        mean_init: Given = None,
        sd_init: Given = None,
        zero_init: Given = None,
    ):
        self.zero_inflated = zero_inflated
        self.mean = mean
        self.sd = sd
        self.zero = zero
        self.mean_init = mean_init
        self.sd_init = sd_init
        self.zero_init = zero_init

    @property
    def excludes(self):
        """Whether a state may never emit 0, or nothing else."""
        return self.zero_inflated

    def is_given(self):
        """Whether users gave all parameters."""
        names = ["mean", "sd"] + ["zero"] * bool(self.zero_inflated)
        values = [getattr(self, name) for name in names]
        return not any(
            v is None or np.isnan(np.asarray(v, float)).any() for v in values
        )

    def prepare(self, X):
        check_options(self, zero_inflated=(False, True))
        largest = np.finfo(float).max
        for name in ("mean", "sd"):
            self._check_given(name, np.finfo(float).tiny, largest)
        self._check_given("zero", 0.0, 1.0)
        if not self.zero_inflated and self.zero is not None:
            raise ValueError("zero of Gamma is of zero_inflated=True.")
        free, d = super().varies(), self.n_columns_
        sd = filled_moments(X, logs=True)[1]
        self._width_log = np.where(sd > 0.0, sd, 1.0)
        #: Whether a standard deviation is fixed and its mean is not: no closed form.
        self._open = bool((free[:, :d] & ~free[:, d : 2 * d]).any())

    def check(self, X):
        """Raise a ValueError where X holds what no gamma distribution emits."""
        with np.errstate(invalid="ignore"):
            if self.zero_inflated:
                self._reject(X, X < 0.0, "positive numbers or 0")
            else:
                self._reject(
                    X, X <= 0.0, "positive numbers (or zero_inflated=True for zeros)"
                )

    # Features: whether y is 0, whether not, y, log y

    def sufficient(self, X):
        zero = X == 0.0
        return np.hstack([zero, ~zero, X, np.log(np.where(zero, 1.0, X))])

    def row_columns(self, X):
        """Return the values and their logarithms."""
        return self.sufficient(X)[:, 2 * self.n_columns_ :]

    def start_columns(self, X):
        """Return logarithms, of 0 that of a tenth of the smallest value."""
        return log_columns(X)

    def theta(self, parameters):
        """Return the coefficients of the features."""
        mean, sd, zero = self._split(parameters)
        shape, rate = np.square(mean / sd), mean / np.square(sd)
        some = bounded_log(1.0 - zero) + shape * np.log(rate) - gammaln(shape)
        return np.hstack([bounded_log(zero), some, -rate, shape - 1.0])

    def expected(self, parameters):
        """Return the means of the features."""
        mean, sd, zero = self._split(parameters)
        shape, rate = np.square(mean / sd), mean / np.square(sd)
        some = 1.0 - zero
        logs = digamma(shape) - np.log(rate)
        return np.hstack([zero, some, some * mean, some * logs])

    def spread(self, parameters):
        """Return standard deviations of the features."""
        mean, sd, zero = self._split(parameters)
        event = np.sqrt(np.maximum(zero * (1.0 - zero), 1e-4))
        logs = np.sqrt(_trigamma(np.square(mean / sd)))
        return np.hstack([event, event, sd, logs])

    def widths(self, parameters, features, names):
        """Yield squares of sd over mean, which are about the variances of logarithms.

        Those of the data and of the states, in those of columns; of what is not 0.
        """
        mean, sd, _ = self._split(parameters)
        if self._split(self.varies())[1].all():
            # Columns that are nearly as narrow tell nothing.
            least = np.minimum(1.0 / np.sqrt(MOST) / self._width_log, NARROW)
            weight = equal_pieces(features, 4)[1].max(axis=1)
            yield of_width_one(sd / mean / self._width_log, least, names, weight)

    def blank(self):
        """Return parameters for states that have no rows at all."""
        ones = np.ones((self.n_states_, self.n_columns_))
        return np.hstack([ones, ones, np.full_like(ones, 0.1 * self.zero_inflated)])

    def maximize(self, features, before, repair):
        """Return mean, sd and probability of 0, or None where there are none."""
        zero, some, y, logs = equal_pieces(features, 4)
        if not repair and min(zero.min(), some.min(), y.min()) < 0.0:
            return None
        if self._open:
            return super().maximize(features, before, repair)
        old_mean, old_sd, old_zero = self._split(before)
        empty = (some <= 0.0) | (y <= 0.0)
        safe = np.where(empty, 1.0, some)
        estimate = np.where(empty, old_mean, y / safe)
        mean = self._fix("mean", estimate)
        # log mean - mean of logs, and what a fixed mean adds to the likelihood's slope
        gap = np.log(mean) - np.where(empty, np.log(mean), logs / safe)
        gap = gap + estimate / mean - 1.0
        if not repair and (gap[~empty] <= 0.0).any():
            return None
        shape = _gamma_shape(np.maximum(gap, 1e-12))
        sd = np.where(empty, old_sd, mean / np.sqrt(shape))
        share = ratio(np.maximum(zero, 0.0), zero + some, old_zero)
        return np.hstack([mean, self._fix("sd", sd), self._fix("zero", share)])

    def varies(self):
        """Return which parameters are free."""
        varies = super().varies()
        varies[:, 2 * self.n_columns_ :] &= self.zero_inflated
        return varies

    def slopes(self, parameters, features):
        """Return the gradient in log mean, log sd and the log-odds of 0."""
        zero, some, y, logs = equal_pieces(features, 4)
        mean, sd, p = self._split(parameters)
        shape, rate = np.square(mean / sd), mean / np.square(sd)
        by_shape = shape * (some * (np.log(rate) - digamma(shape)) + logs)
        by_rate = some * shape - rate * y
        return np.hstack(
            [
                2.0 * by_shape + by_rate,
                -2.0 * (by_shape + by_rate),
                zero * (1.0 - p) - some * p,
            ]
        )

    def moments(self, parameters):
        """Return mean and variance of every feature."""
        mean, sd, zero = self._split(parameters)
        some = 1.0 - zero
        second = some * (np.square(sd) + np.square(mean))
        return some * mean, second - np.square(some * mean)

    def tails(self, x, j, parameters):
        """Return the probabilities of less and of more than x in feature j."""
        mean, sd, zero = (part[:, j] for part in self._split(parameters))
        shape, rate = np.square(mean / sd), mean / np.square(sd)
        z, nought = rate * x[:, None], x[:, None] == 0.0
        below = np.where(nought, 0.5 * zero, zero + (1.0 - zero) * gammainc(shape, z))
        above = np.where(nought, 1.0 - 0.5 * zero, (1.0 - zero) * gammaincc(shape, z))
        return below, above

    def draw(self, parameters, states, rng):
        """Return a row for every state."""
        mean, sd, zero = (part[states] for part in self._split(parameters))
        drawn = rng.gamma(np.square(mean / sd), np.square(sd) / mean)
        return np.where(rng.random(drawn.shape) < zero, 0.0, drawn)


def _trigamma(x):
    """What `polygamma` makes of order 1, without the other orders' way there."""
    return zeta(2.0, x)


def _gamma_shape(gap):
    """Solve log a - digamma(a) = gap by Newton's method in 1 / a (Minka 2002)."""
    root = np.sqrt(np.square(gap - 3.0) + 24.0 * gap)
    shape = np.clip((3.0 - gap + root) / (12.0 * gap), 1e-8, MOST)
    for _ in range(STEPS):
        error = np.log(shape) - digamma(shape) - gap
        slope = 1.0 / shape - _trigamma(shape)
        inverse = 1.0 / shape + error / (np.square(shape) * slope)
        new = np.where(inverse > 0.0, 1.0 / np.maximum(inverse, 1.0 / MOST), 2 * shape)
        new = np.minimum(np.maximum(new, 1e-8), MOST)
        if np.all(np.abs(new - shape) <= 1e-13 * shape):
            break
        shape = new
    return shape


class Exponential(Emission):
    """Positive numbers or 0, as waiting times, independent given the state.

    Parameters
    ----------
    rate : array-like of shape (n_states, n_features), default=None
        Fixed rates; NaN are free.
    rate_init : array-like of shape (n_states, n_features), default=None
        Starting values.

    Attributes
    ----------
    rate_ : ndarray of shape (n_states, n_features)
        One over the means.

    Examples
    --------
    >>> import numpy as np
    >>> from skvrem.hmm import VRHMM, Exponential
    >>> rng = np.random.default_rng(0)
    >>> X = rng.exponential(np.repeat([[1.0], [50.0], [1.0]], 100, axis=0))
    >>> hmm = VRHMM(2, emission=Exponential(), random_state=0).fit(X)
    >>> np.sort(1.0 / hmm.emission_.rate_.ravel()).round()
    array([ 1., 54.])
    """

    parameter_scales = {"rate": "positive"}
    support = "nonnegative"

    def __init__(self, rate: Given = None, *, rate_init: Given = None):
        self.rate = rate
        self.rate_init = rate_init

    def prepare(self, X):
        self._check_given("rate", np.finfo(float).tiny, np.finfo(float).max)
        mean = filled_moments(X)[0]
        # Of zeros alone a rate would have no end.
        self._most = 1.0 / (LEAST * np.where(mean > 0.0, mean, 1.0))

    # Features: masks, y

    def sufficient(self, X):
        return X

    def start_columns(self, X):
        """Return logarithms, of 0 that of a tenth of the smallest value."""
        return log_columns(X)

    def theta(self, parameters):
        """Return the coefficients of masks and values."""
        return np.hstack([np.log(parameters), -parameters])

    def expected(self, parameters):
        """Return the means of the features."""
        return np.hstack([np.ones_like(parameters), 1.0 / parameters])

    def spread(self, parameters):
        """Return standard deviations of the features."""
        return self.expected(parameters)

    def maximize(self, features, before, repair):
        """Return one over the mean values."""
        weight, total = equal_pieces(features, 2)
        if not repair and total.min() <= 0.0:
            return None
        empty = weight <= 0.0
        total = np.maximum(total, weight / self._most)
        rate = np.where(empty, before, weight / np.where(empty, 1.0, total))
        return self._fix("rate", rate)

    def slopes(self, parameters, features):
        """Return the gradient in the logarithms of the rates."""
        weight, total = equal_pieces(features, 2)
        return weight - parameters * total

    def moments(self, parameters):
        """Return mean and variance of every feature."""
        return 1.0 / parameters, 1.0 / np.square(parameters)

    def tails(self, x, j, parameters):
        """Return the probabilities of less and of more than x in feature j."""
        above = np.exp(-parameters[:, j] * x[:, None])
        return 1.0 - above, above

    def draw(self, parameters, states, rng):
        """Return a row for every state."""
        return rng.exponential(1.0 / parameters[states])


class LogNormal(Emission):
    """Positive numbers whose logarithms are Gaussian, independent given the state.

    Parameters
    ----------
    mean, sd : array-like of shape (n_states, n_features), default=None
        Fixed means and standard deviations of the logarithms; NaN are free.
    mean_init, sd_init : array-like of shape (n_states, n_features), default=None
        Starting values.

    Attributes
    ----------
    mean_, sd_ : ndarray of shape (n_states, n_features)
        Mean and standard deviation of the logarithms.

    Examples
    --------
    >>> import numpy as np
    >>> from skvrem.hmm import VRHMM, LogNormal
    >>> rng = np.random.default_rng(0)
    >>> X = np.exp(np.repeat([[0.0], [4.0], [0.0]], 100, axis=0))
    >>> X = X * rng.lognormal(size=(300, 1))
    >>> hmm = VRHMM(2, emission=LogNormal(), random_state=0).fit(X)
    >>> np.sort(np.exp(hmm.emission_.mean_.ravel())).round()
    array([ 1., 52.])
    """

    parameter_scales = {"mean": "real", "sd": "positive"}
    support, shrinks = "positive", True

    def __init__(
        self,
        mean: Given = None,
        sd: Given = None,
        *,
        mean_init: Given = None,
        sd_init: Given = None,
    ):
        self.mean = mean
        self.sd = sd
        self.mean_init = mean_init
        self.sd_init = sd_init

    def prepare(self, X):
        self._check_given("mean", np.finfo(float).min, np.finfo(float).max)
        self._check_given("sd", np.finfo(float).tiny, np.finfo(float).max)
        self._centre, sd = filled_moments(X, logs=True)  # `check` says what is wrong
        self._width = np.where(sd > 0.0, sd, 1.0)
        self._least = LEAST * self._width

    def widths(self, parameters, features, names):
        """Yield variances of logarithms of the data and of the states, in columns'."""
        if self._split(self.varies())[1].all():
            sd, mean = self._split(parameters)[1], self._centre / self._width
            weight = self.row_weight(features)
            yield of_width_one(sd / self._width, LEAST, names, weight, mean)

    # Features: masks, log y, its square, both about a common centre, and log y itself

    def sufficient(self, X):
        logs = np.log(np.where(X > 0.0, X, 1.0))
        about = logs - self._centre
        return np.hstack([about, np.square(about), logs])

    def start_columns(self, X):
        """Return logarithms."""
        return fill(np.log(X))

    def theta(self, parameters):
        """Return the coefficients of the features."""
        mean, sd = self._split(parameters)
        z, precision = (mean - self._centre) / sd, 1.0 / np.square(sd)
        constant = -0.5 * (LOG_2PI + z * z) - np.log(sd)
        return np.hstack([constant, z / sd, -0.5 * precision, -np.ones_like(sd)])

    def expected(self, parameters):
        """Return the means of the features."""
        mean, sd = self._split(parameters)
        about = mean - self._centre
        return np.hstack([np.ones_like(sd), about, about**2 + sd**2, mean])

    def spread(self, parameters):
        """Return standard deviations of the features, roughly."""
        _, sd = self._split(parameters)
        return np.hstack([np.ones_like(sd), sd, np.sqrt(2.0) * sd**2, sd])

    def blank(self):
        """Return parameters for states that have no rows at all."""
        ones = np.ones((self.n_states_, self.n_columns_))
        return np.hstack([ones * self._centre, ones])

    def maximize(self, features, before, repair):
        """Return mean and standard deviation of the logarithms."""
        weight, x, xx, _ = equal_pieces(features, 4)
        old_mean, old_sd = self._split(before)
        empty = weight <= 0.0
        safe = np.where(empty, 1.0, weight)
        mean = np.where(empty, old_mean, self._centre + x / safe)
        mean = self._fix("mean", mean)
        about = mean - self._centre
        square = (xx - 2.0 * about * x) / safe + about**2
        if not repair and (square[~empty] <= 0.0).any():
            return None
        sd = np.sqrt(np.maximum(square, 0.0)) + (square <= 0.0) * self._least
        sd = np.maximum(sd, self._least)
        return np.hstack([mean, self._fix("sd", np.where(empty, old_sd, sd))])

    def slopes(self, parameters, features):
        """Return the gradient in means and logarithms of standard deviations."""
        weight, x, xx, _ = equal_pieces(features, 4)
        mean, sd = self._split(parameters)
        about = mean - self._centre
        square = xx - 2.0 * about * x + weight * about**2
        return np.hstack([(x - weight * about) / sd**2, square / sd**2 - weight])

    def moments(self, parameters):
        """Return mean and variance of the values, not of their logarithms."""
        mean, sd = self._split(parameters)
        middle, square = np.exp(mean + 0.5 * sd**2), np.square(sd)
        return middle, np.square(middle) * np.expm1(square)

    def tails(self, x, j, parameters):
        """Return the probabilities of less and of more than x in feature j."""
        mean, sd = (part[:, j] for part in self._split(parameters))
        logs = np.log(np.where(x > 0.0, x, 1.0))[:, None]
        return ndtr((logs - mean) / sd), ndtr((mean - logs) / sd)

    def draw(self, parameters, states, rng):
        """Return a row for every state."""
        mean, sd = self._split(parameters)
        return rng.lognormal(mean[states], sd[states])
