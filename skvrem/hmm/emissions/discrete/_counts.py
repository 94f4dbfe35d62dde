"""Emissions of counts without a bound."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln, pdtr, pdtrc

from skvrem.hmm.emissions._base import Emission, ratio
from skvrem.hmm.emissions._coordinates import bounded_log
from skvrem.hmm.emissions._facts import fill
from skvrem.hmm.emissions._given import given
from skvrem.utils._algebra import equal_pieces
from skvrem.utils._columns import Given
from skvrem.utils._validation import check_real


class Poisson(Emission):
    """Counts, independent given the state.

    Parameters
    ----------
    rate : array-like of shape (n_states, n_features), default=None
        Fixed rates; NaN are free.
    rate_init : array-like of shape (n_states, n_features), default=None
        Starting values.
    rate_prior : float or array-like of shape (n_states, n_features), default=1.0
        Mean counts of a conjugate prior, a Gamma distribution.
    rate_weight : float, default=0.0
        How many rows of every state the prior is worth; 0 is none.

    Attributes
    ----------
    rate_ : ndarray of shape (n_states, n_features)
        Expected counts.

    Examples
    --------
    >>> import numpy as np
    >>> from skvrem.hmm import VRHMM, Poisson
    >>> rng = np.random.default_rng(0)
    >>> X = rng.poisson(np.repeat([[2.0], [20.0], [2.0]], 50, axis=0))
    >>> hmm = VRHMM(2, emission=Poisson(), random_state=0).fit(X)
    >>> np.sort(hmm.emission_.rate_.ravel()).round(1)
    array([ 2.2, 21.1])
    """

    discrete, support = True, "count"
    parameter_scales = {"rate": "positive"}
    window, excludes, row_kernel = 5, True, "poisson"

    def __init__(
        self,
        rate: Given = None,
        *,
        rate_init: Given = None,
        rate_prior: float | ArrayLike = 1.0,
        rate_weight: float = 0.0,
    ):
        self.rate = rate
        self.rate_init = rate_init
        self.rate_prior = rate_prior
        self.rate_weight = rate_weight

    def prepare(self, X):
        self._check_given("rate", 0.0, np.finfo(float).max)
        check_real(self, "rate_weight")
        prior = given(self, "rate_prior", self._shape("rate"))
        if prior is None or not (prior >= 0.0).all():
            raise ValueError(
                f"rate_prior of Poisson must be mean counts, got {self.rate_prior!r}."
            )
        #: The counts that the prior adds.
        self._added = self.rate_weight * prior

    def reorder(self, order):
        """Put what users gave of states into another order."""
        super().reorder(order)
        self._added = self._added[order]

    # Features: masks, x, log x!

    def sufficient(self, X):
        return np.hstack([X, gammaln(X + 1.0)])

    def row_pieces(self, X):
        """Return what kernels of single rows take, or None where a prior is."""
        return None if self.rate_weight else super().row_pieces(X)

    def row_columns(self, X):
        """Return the counts."""
        return X

    def start_columns(self, X):
        """Return square roots of the counts, whose variance is the same everywhere."""
        return fill(np.sqrt(X))

    def theta(self, parameters):
        """Return the coefficients of masks, counts and logarithms of factorials."""
        ones = np.ones_like(parameters)
        return np.hstack([-parameters, bounded_log(parameters), -ones])

    def expected(self, parameters):
        """Return the means of the features; the last is not used."""
        ones = np.ones_like(parameters)
        return np.hstack([ones, parameters, gammaln(parameters + 1.0)])

    def spread(self, parameters):
        """Return standard deviations of the features."""
        ones = np.ones_like(parameters)
        sd = np.sqrt(np.maximum(parameters, 1e-3))
        return np.hstack([ones, sd, np.maximum(sd, 1.0)])

    def maximize(self, features, before, repair):
        """Return the mean counts."""
        weight, x, _ = equal_pieces(features, 3)
        if not repair and x.min() < 0.0:
            return None
        total = np.maximum(x, 0.0) + self._added
        rate = ratio(total, weight + self.rate_weight, before)
        return self._fix("rate", np.where(weight <= 0.0, before, rate))

    def slopes(self, parameters, features):
        """Return the gradient, and that of the prior, in the logarithms of rates."""
        weight, x, _ = equal_pieces(features, 3)
        return x + self._added - (weight + self.rate_weight) * parameters

    def log_prior(self, parameters):
        """Return the log-density of the prior of the free rates."""
        if not self.rate_weight:
            return 0.0
        logs = self._added * bounded_log(parameters)
        terms = logs - self.rate_weight * parameters
        return float(terms[self.varies()].sum())

    def moments(self, parameters):
        """Return mean and variance of every feature."""
        return parameters, parameters

    def tails(self, x, j, parameters):
        """Return the probabilities of less and of more than x, and half that of x."""
        below = np.where(x[:, None] > 0, pdtr(x[:, None] - 1, parameters[:, j]), 0.0)
        above = pdtrc(x[:, None], parameters[:, j])
        return below + 0.5 * (1 - below - above), above + 0.5 * (1 - below - above)

    def draw(self, parameters, states, rng):
        """Return a row for every state."""
        return rng.poisson(parameters[states]).astype(float)


class ZeroInflatedPoisson(Emission):
    r"""Counts with more zeros than Poisson's, independent given the state.

    .. math:: P(0) = \pi + (1 - \pi) e^{-\lambda}, \qquad
              P(x) = (1 - \pi) e^{-\lambda} \lambda^x / x! \quad (x > 0)

    Parameters
    ----------
    rate, zero : array-like of shape (n_states, n_features), default=None
        Fixed parameters; NaN are free.
    rate_init, zero_init : array-like of shape (n_states, n_features), default=None
        Starting values.

    Attributes
    ----------
    rate_ : ndarray of shape (n_states, n_features)
        :math:`\lambda`, the mean of what is not an extra zero.
    zero_ : ndarray of shape (n_states, n_features)
        :math:`\pi`, the probability of an extra zero.

    Examples
    --------
    >>> import numpy as np
    >>> from skvrem.hmm import VRHMM, ZeroInflatedPoisson
    >>> rng = np.random.default_rng(0)
    >>> X = rng.poisson(np.repeat([[2.0], [20.0], [2.0]], 200, axis=0))
    >>> X[rng.random(600) < 0.3] = 0
    >>> hmm = VRHMM(2, emission=ZeroInflatedPoisson(), random_state=0).fit(X)
    >>> np.sort(hmm.emission_.rate_.ravel()).round()
    array([ 2., 20.])
    """

    discrete, support = True, "count"
    parameter_scales = {"rate": "positive", "zero": "probability"}
    window, excludes, _kinds = 5, True, 2

    def __init__(
        self,
        rate: Given = None,
        zero: Given = None,
        *,
        rate_init: Given = None,
        zero_init: Given = None,
    ):
        self.rate = rate
        self.zero = zero
        self.rate_init = rate_init
        self.zero_init = zero_init

    def prepare(self, X):
        self._check_given("rate", np.finfo(float).tiny, np.finfo(float).max)
        self._check_given("zero", 0.0, 1.0)
        free, d = self.varies(), self.n_columns_
        #: Whether a share of zeros is fixed and its rate is not: no closed form.
        self._open = bool((free[:, :d] & ~free[:, d:]).any())

    # Features: whether x is 0, whether not, x, log x!

    def sufficient(self, X):
        zero = X == 0.0
        return np.hstack([zero, ~zero, X, gammaln(X + 1.0)])

    def start_columns(self, X):
        """Return square roots of the counts."""
        return fill(np.sqrt(X))

    def theta(self, parameters):
        """Return the coefficients of the features."""
        rate, zero = self._split(parameters)
        nothing = bounded_log(zero + (1.0 - zero) * np.exp(-rate))
        some = bounded_log(1.0 - zero) - rate
        return np.hstack([nothing, some, np.log(rate), -np.ones_like(rate)])

    def expected(self, parameters):
        """Return the means of the features; the last is not used."""
        rate, zero = self._split(parameters)
        nothing = zero + (1.0 - zero) * np.exp(-rate)
        counts = (1.0 - zero) * rate
        return np.hstack([nothing, 1.0 - nothing, counts, gammaln(counts + 1.0)])

    def spread(self, parameters):
        """Return standard deviations of the features."""
        rate, zero = self._split(parameters)
        nothing = zero + (1.0 - zero) * np.exp(-rate)
        event = np.sqrt(np.maximum(nothing * (1.0 - nothing), 1e-4))
        sd = np.sqrt(np.maximum(self.moments(parameters)[1], 1e-3))
        return np.hstack([event, event, sd, np.maximum(sd, 1.0)])

    def blank(self):
        """Return parameters for states that have no rows at all."""
        ones = np.ones((self.n_states_, self.n_columns_))
        return np.hstack([ones, 0.1 * ones])

    def maximize(self, features, before, repair):
        """Return rate and extra zeros: the mean of what is not 0 says the rate.

        Where there are fewer zeros than Poisson's, there are no extra ones.
        """
        zero, some, x, _ = equal_pieces(features, 4)
        if not repair and min(zero.min(), some.min(), (x - some).min()) < 0.0:
            return None
        if self._open:
            return super().maximize(features, before, repair)
        zero, some = np.maximum(zero, 0.0), np.maximum(some, 0.0)
        old_rate, old_zero = self._split(before)
        rate = self._fix("rate", _truncated_rate(ratio(x, some, 0.0), old_rate))
        weight = zero + some
        share, alone = ratio(zero, weight, 0.0), np.exp(-rate)
        extra = (share - alone) / np.maximum(-np.expm1(-rate), 1e-300)
        least = np.finfo(float).tiny
        plain = np.where(
            some > 0.0, np.maximum(ratio(x, weight, old_rate), least), rate
        )
        rate = self._fix("rate", np.where(extra < 0.0, plain, rate))
        empty = weight <= 0.0
        extra = np.where(empty, old_zero, np.clip(extra, 0.0, 1.0))
        rate = np.where(empty, old_rate, rate)
        return np.hstack([self._fix("rate", rate), self._fix("zero", extra)])

    def slopes(self, parameters, features):
        """Return the gradient in log rates and the log-odds of extra zeros."""
        zero, some, x, _ = equal_pieces(features, 4)
        rate, extra = self._split(parameters)
        alone = np.exp(-rate)
        share = zero / np.maximum(extra + (1.0 - extra) * alone, 1e-300)
        by_rate = x - some * rate - share * (1.0 - extra) * alone * rate
        gain = share * extra * (1.0 - extra) * -np.expm1(-rate)
        return np.hstack([by_rate, gain - some * extra])

    def moments(self, parameters):
        """Return mean and variance of every feature."""
        rate, zero = self._split(parameters)
        mean = (1.0 - zero) * rate
        return mean, mean * (1.0 + zero * rate)

    def tails(self, x, j, parameters):
        """Return the probabilities of less and of more than x, and half that of x."""
        rate, zero = (part[:, j] for part in self._split(parameters))
        less = zero + (1.0 - zero) * pdtr(np.maximum(x[:, None] - 1, 0), rate)
        below = np.where(x[:, None] > 0, less, 0.0)
        above = (1.0 - zero) * pdtrc(x[:, None], rate)
        return below + 0.5 * (1 - below - above), above + 0.5 * (1 - below - above)

    def draw(self, parameters, states, rng):
        """Return a row for every state."""
        rate, zero = (part[states] for part in self._split(parameters))
        return np.where(rng.random(rate.shape) < zero, 0.0, rng.poisson(rate))


def _truncated_rate(mean, otherwise):
    """Solve rate / (1 - exp(-rate)) = mean, above 1, by Newton's method."""
    known = mean > 1.0
    rate = np.where(known, mean, 1.0)
    target = np.where(known, mean, 2.0)
    for _ in range(50):
        some = -np.expm1(-rate)
        error = rate / some - target
        slope = (some - rate * np.exp(-rate)) / np.square(some)
        new = np.maximum(rate - error / np.maximum(slope, 1e-12), 0.1 * rate)
        if np.all(np.abs(new - rate) <= 1e-14 * rate):
            break
        rate = new
    # Of a mean of 1 all counts are 1: the limit, where there are any.
    tiny = np.where(mean > 0.0, 1e-8, otherwise)
    return np.where(known, rate, tiny)
