"""Densities of single values that regressions are of, with their derivatives."""

import numpy as np
from scipy.special import gammainc, gammaln, i0e, i1e, ndtr, pdtr

from skvrem.hmm.emissions._base import of_width_one
from skvrem.hmm.emissions._coordinates import LOG_2PI
from skvrem.hmm.emissions._facts import extremes, filled_moments, whole
from skvrem.hmm.emissions.densities._density import DensityEmission
from skvrem.hmm.emissions.densities._least_squares import LEAST
from skvrem.hmm.emissions.densities._model import gamma

# What probabilities of 0 and of 1 are by rounding.
TINY, BELOW_ONE = np.finfo(float).tiny, 1.0 - 0.5 * np.finfo(float).eps


class Normal(DensityEmission):
    """Real numbers."""

    parameter_scales = {"mean": "location", "sd": "positive"}

    def prepare(self, X):
        super().prepare(X)
        self._ends = {"sd": (np.sqrt(LEAST) * self._unit[0], np.inf)}

    def widths(self, parameters, features, names):
        if self._split(self.varies())[1].all():
            sd, weight = self._split(parameters)[1], self.row_weight(features)
            yield of_width_one(sd / self._unit[0], np.sqrt(LEAST), names, weight)

    def log_density(self, x, mean, sd):
        z = (x - mean) / sd
        return -0.5 * (LOG_2PI + z * z) - np.log(sd)

    def derivatives(self, x, mean, sd):
        z = (x - mean) / sd
        square = z * z
        log_f = -0.5 * (LOG_2PI + square) - np.log(sd)
        second = np.broadcast_to(-1.0 / np.square(sd), square.shape)
        return log_f, [z / sd, square - 1.0], [second, -2.0 * z / sd, -2.0 * square]

    def mean_variance(self, mean, sd):
        return np.broadcast_arrays(mean, np.square(sd))

    def cdf(self, x, mean, sd):
        return ndtr((x - mean) / sd)

    def sample(self, rng, mean, sd):
        return rng.normal(mean, sd)


class Count(DensityEmission):
    """Counts whose variance is their mean."""

    parameter_scales = {"rate": "positive"}
    discrete, support = True, "count"

    def log_density(self, x, rate):
        return x * np.log(rate) - rate - gammaln(x + 1.0)

    def derivatives(self, x, rate):
        slope = x - rate
        curve = np.broadcast_to(-rate, slope.shape)
        return self.log_density(x, rate), [slope], [curve]

    def mean_variance(self, rate):
        return rate, rate

    def cdf(self, x, rate):
        return pdtr(x, rate)

    def sample(self, rng, rate):
        return rng.poisson(rate)

    def start_columns(self, X):
        return np.sqrt(super().start_columns(X))


class Event(DensityEmission):
    """0 or 1."""

    parameter_scales = {"probability": "probability"}
    discrete, support = True, "event"

    def log_density(self, x, probability):
        # A row far out may have no probability but of rounding; it is not impossible.
        yes, no = np.maximum(probability, TINY), np.minimum(probability, BELOW_ONE)
        return np.where(x > 0.0, np.log(yes), np.log1p(-no))

    def derivatives(self, x, probability):
        slope = x - probability
        curve = np.broadcast_to(-probability * (1.0 - probability), slope.shape)
        return self.log_density(x, probability), [slope], [curve]

    def mean_variance(self, probability):
        return probability, probability * (1.0 - probability)

    def cdf(self, x, probability):
        return np.where(x >= 1.0, 1.0, 1.0 - probability)

    def sample(self, rng, probability):
        return (rng.random(np.shape(probability)) < probability) + 0.0


class Positive(DensityEmission):
    """Positive numbers, of a mean and a shape, one over the squared variation."""

    parameter_scales = {"mean": "positive", "shape": "positive"}
    support = "positive"

    def prepare(self, X):
        super().prepare(X)
        _, width = filled_moments(X, logs=True)
        self._width_log = np.where(width > 0.0, width, 1.0)
        self._ends = {"shape": (0.0, 1.0 / (LEAST * np.square(self._width_log)))}

    def widths(self, parameters, features, names):
        if self._split(self.varies())[1].all():
            width = 1.0 / np.sqrt(self._split(parameters)[1]) / self._width_log
            weight = self.row_weight(features)
            yield of_width_one(width, np.sqrt(LEAST), names, weight)

    def log_density(self, x, mean, shape):
        return gamma.value(x, mean, shape)

    def derivatives(self, x, mean, shape):
        return gamma.expansion(x, mean, shape)

    def mean_variance(self, mean, shape):
        return np.broadcast_arrays(mean, np.square(mean) / shape)

    def cdf(self, x, mean, shape):
        return gammainc(shape, shape / mean * x)

    def sample(self, rng, mean, shape):
        return rng.gamma(shape, mean / shape)

    def start_columns(self, X):
        return np.log(super().start_columns(X))


class Angle(DensityEmission):
    """Angles of a von Mises distribution."""

    parameter_scales = {"mean": "angle", "concentration": "positive"}
    support = "angle"

    def prepare(self, X):
        super().prepare(X)
        self._ends = {"concentration": (0.0, 1.0 / LEAST)}

    def widths(self, parameters, features, names):
        if self._split(self.varies())[1].all():
            width = 1.0 / np.sqrt(np.maximum(self._split(parameters)[1], 1.0))
            weight = self.row_weight(features)
            yield of_width_one(width, np.sqrt(LEAST), names, weight)

    def log_density(self, x, mean, concentration):
        constant = LOG_2PI + np.log(i0e(concentration))
        return concentration * (np.cos(x - mean) - 1.0) - constant

    def derivatives(self, x, mean, concentration):
        k, turn = concentration, x - mean
        cosine, sine, rate = np.cos(turn), np.sin(turn), 1.0 + np.cos(mean)
        length = i1e(k) / i0e(k)
        # k dA / dk, of A = I1 / I0
        change = k * (1.0 - np.square(length)) - length
        log_f = k * (cosine - 1.0) - LOG_2PI - np.log(i0e(k))
        by_mean = k * sine * rate
        by_k = k * (cosine - length)
        # The slope of the link changes by -sin(mean) rate.
        second = -k * cosine * np.square(rate) - k * sine * np.sin(mean) * rate
        return log_f, [by_mean, by_k], [second, by_mean, by_k - k * change]

    def mean_variance(self, mean, concentration):
        length = i1e(concentration) / i0e(concentration)
        return np.broadcast_arrays(mean, 2.0 * (1.0 - length))

    def cdf(self, x, mean, concentration):
        from scipy.stats import vonmises

        x, k = np.angle(np.exp(1j * x)), np.maximum(concentration, 1e-9)
        x, mean, k = np.broadcast_arrays(x, mean, k)
        below = vonmises.cdf(x, k, loc=mean) - vonmises.cdf(-np.pi, k, loc=mean)
        return np.clip(below, 0.0, 1.0)

    def sample(self, rng, mean, concentration):
        return rng.vonmises(mean, concentration)

    def start_columns(self, X):
        X = super().start_columns(X)
        return np.hstack([np.cos(X), np.sin(X)])


class Choice(DensityEmission):
    """One of some categories; parameters are log-odds against the first."""

    discrete = True

    def __init__(self, n_categories=None):
        self.n_categories = n_categories

    def prepare(self, X):
        if X.shape[1] != 1:
            raise ValueError(
                f"Categories are one column of codes, got {X.shape[1]} columns."
            )
        self._reject(X, ~whole(X), "codes 0, 1, 2, ...")
        largest = np.nanmax(extremes(X)[1], initial=1)
        self.n_categories_ = self.n_categories or int(largest) + 1
        names = [f"logit_{code}" for code in range(1, self.n_categories_)]
        self.parameter_scales = dict.fromkeys(names, "real")
        super().prepare(X)

    parameter_scales = {}

    def check(self, X):
        n = self.n_categories_
        with np.errstate(invalid="ignore"):
            unknown = ~whole(X) | (X >= n)
        self._reject(X, unknown, f"codes from 0 to {n - 1}")

    def probabilities(self, *logits):
        """Return the probabilities of all categories, in the first axis."""
        logits = _with_first(*logits)
        shares = np.exp(logits - logits.max(axis=0))
        return shares / shares.sum(axis=0)

    def log_density(self, x, *logits):
        logits = _with_first(*logits)
        logits = logits - logits.max(axis=0)
        return _entries(logits, x) - np.log(np.exp(logits).sum(axis=0))

    def derivatives(self, x, *logits):
        log_f, shares = self.log_density(x, *logits), self.probabilities(*logits)
        shares, pairs = shares[1:], zip(*np.triu_indices(len(logits)), strict=True)
        slopes = [(x == code + 1) - p for code, p in enumerate(shares)]
        curves = [shares[k] * shares[m] - (k == m) * shares[k] for k, m in pairs]
        return log_f, slopes, [np.broadcast_to(c, log_f.shape) for c in curves]

    def mean_variance(self, *logits):
        shares = self.probabilities(*logits)
        codes = np.arange(len(shares)).reshape(-1, *[1] * (shares.ndim - 1))
        mean = (codes * shares).sum(axis=0)
        return mean, (codes**2 * shares).sum(axis=0) - mean**2

    def cdf(self, x, *logits):
        return _entries(np.cumsum(self.probabilities(*logits), axis=0), x)

    def sample(self, rng, *logits):
        edges = np.cumsum(self.probabilities(*logits), axis=0)[:-1]
        return (rng.random(edges.shape[1:]) > edges).sum(axis=0)

    def start_columns(self, X):
        X = super().start_columns(X)
        return (np.rint(X) == np.arange(self.n_categories_)) + 0.0


def _with_first(*logits):
    """Return log-odds of all categories, in the first axis."""
    logits = np.stack(np.broadcast_arrays(*logits))
    return np.concatenate([np.zeros_like(logits[:1]), logits])


def _entries(table, x):
    """Values of a table (n_categories, ...) at codes x."""
    shape = np.broadcast_shapes(table.shape[1:], x.shape)
    table = np.broadcast_to(table, (len(table), *shape))
    codes = np.broadcast_to(x, shape).astype(np.int64)
    return np.take_along_axis(table, codes[None], axis=0)[0]
