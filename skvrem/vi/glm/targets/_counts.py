"""Counts as the targets of a regression: their rates, and intervals of them."""

import warnings
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.special import betainc, pdtr, xlogy
from sklearn.metrics import d2_tweedie_score, r2_score
from sklearn.utils.validation import column_or_1d

from skvrem.exceptions import PosteriorWarning
from skvrem.utils._reports import outside
from skvrem.vi.gaussian._model import GaussianModel
from skvrem.vi.gaussian._model_families import OverdispersedCounts, PoissonCounts
from skvrem.vi.glm._input import ColumnUnits, checked_offset, with_column
from skvrem.vi.glm.groups._model import GroupedModel
from skvrem.vi.glm.targets._concentration import ConcentrationModel, ConcentrationSearch
from skvrem.vi.glm.targets._numbers import ends

# Logarithm of the largest rate that is told from others, of 64 bits.
MOST_LOG = 700.0
# Standard deviation of the logarithm of a rate beyond which its mean, a hundred times
# its median, says nothing; rates up to which that misleads nobody.
WIDE_RATE, FEW_COUNTS = 3.0, 10.0
# The least mean of counts.
LEAST_RATE = 1e-3
# Nodes of the quadrature for quantiles of counts, for each of their deviations that the
# mean may be off; rows at once.
COUNT_NODES, MOST_COUNT_NODES, COUNT_ROWS = 64, 4096, 256
# Share of large counts that their quantiles may be off by; the largest log-rate there.
COUNT_DIGITS, MOST_LOG_RATE = 1e-6, 600.0


class Counts:
    """What a regression does for counts, here those of Poisson.

    As :class:`Numbers` does for real numbers.
    """

    name = "poisson"
    are_counts = True
    has_sums = False

    def check(self, y):
        """Refuse counts (n,) that are negative."""
        if y.min() < 0.0:
            raise ValueError(
                f"family={self.name!r} is for counts, which are not negative: y is "
                f"{y.min():g} in row {int(y.argmin())}."
            )

    def beside(self, y, offset):
        """Return targets as models take them, given an offset (n,)."""
        return np.column_stack([y, offset])

    def of_none(self):
        """Return the targets of no rows, with an offset."""
        return np.empty((0, 2))

    def likelihood(self, estimator):
        """Return the likelihood, with what the estimator has learnt."""
        return PoissonCounts()

    # Fits

    def moments(self, data, targets):
        """Return moments of the features, and the rate, which does not vary."""
        rate = np.exp(np.clip(log_rate_of(data, targets), -MOST_LOG, MOST_LOG))
        moments, sides = ColumnUnits.of(data)
        sides = np.column_stack([sides, [-rate, rate]])
        return ColumnUnits(with_column(moments, rate, 0.0), sides)

    def units(self, seen):
        """Return the logarithm of the rate, its unit, and the units of the features.

        These are wide enough for rare columns: predictors of the few rows there, whose
        exponentials they are told by, had any mean else.
        """
        return np.log(seen.mean[-1]), 1.0, seen.units[:-1]

    def first_intercept(self, data, targets):
        """Return where a cold fit starts the intercept."""
        return log_rate_of(data, targets)

    def first_noise(self, data, targets):
        """Return one: there is no noise."""
        return 1.0

    def learn(self, estimator, data, targets, prior, n_seen, prior_of):
        """Learn nothing before a fit: a width is learned by the bound."""
        return prior

    def model(self, estimator, data, *given, alone):
        """Return the model of rows, as `_model` of :class:`GaussianPosterior`."""
        return GaussianModel(*given)

    def learnt(self, model, point):
        """Return the fitted attributes of what a model has learnt."""
        return {}

    # Fits to groups

    def grouped_model(
        self, estimator, rows, data, targets, prior, past, n_rows, go_on, seen
    ):
        """Return the model of rows of groups."""
        return GroupedModel(PoissonCounts(), rows, prior, past)

    def learnt_of_groups(self, estimator, model, found, share):
        """Return the fitted attributes of what a model of groups has learnt."""
        return {}

    # Answers

    def more_variance(self, estimator):
        """Return what counts vary by beside their mean, for a squared rate."""
        return 0.0

    def distribution(self, estimator):
        """Return the function of counts and rates that has their distribution."""
        return pdtr

    def means_and_deviations(self, estimator, X, offset, groups, deviations):
        """Return means and standard deviations of new counts, (n, 2)."""
        a, v = _moments(estimator, X, offset, groups)
        mean = _exp(a + 0.5 * v)
        _warn_of_rates(estimator, mean, v)
        wider = np.expm1(np.minimum(v, MOST_LOG))
        wider = wider + self.more_variance(estimator) * _exp(v)
        with np.errstate(over="ignore"):
            std = np.hypot(np.sqrt(mean), mean * np.sqrt(wider))
        return np.column_stack([mean, np.minimum(std, np.exp(MOST_LOG))])

    def mean_interval(self, estimator, X, offset, groups, tail):
        """Return the ends (n, 2) of intervals of rates, with a share beyond each."""
        return _exp(ends(*_moments(estimator, X, offset, groups), np.inf, tail))

    def interval(self, estimator, X, offset, groups, tail):
        """Return the ends (n, 2) of intervals of new counts."""
        a, v = _moments(estimator, X, offset, groups)
        given = a, np.sqrt(v), self.distribution(estimator)
        more = self.more_variance(estimator)
        sides = [count_quantile(*given, p, more) for p in (tail, 1.0 - tail)]
        return np.stack(sides, axis=1)

    def loss(self, y, mean):
        """Return Poisson's deviance (n,) of counts from rates."""
        return 2.0 * (xlogy(y, y / mean) - y + mean)

    def score(self, y, mean, sample_weight):
        """Return the share of Poisson's deviance that rates of rows explain."""
        if len(mean) < 2:
            return r2_score(y, mean, sample_weight=sample_weight)
        y = column_or_1d(y)
        if len(y) == len(mean) and (y == y[0]).all():
            return float(np.array_equal(y, mean))
        return d2_tweedie_score(y, mean, sample_weight=sample_weight, power=1)


class OverdispersedTargets(Counts):
    """What a regression does for negative binomial counts."""

    name = "negative-binomial"

    def likelihood(self, estimator):
        """Return the likelihood, with what the estimator has learnt."""
        return OverdispersedCounts(estimator.concentration_)

    def learn(self, estimator, data, targets, prior, n_seen, prior_of):
        """Set where a concentration starts."""
        start = estimator.concentration_ if n_seen else 1.0
        if estimator.concentration != "learn":
            start = float(estimator.concentration)
        estimator.concentration_ = start
        return prior

    def model(self, estimator, data, *given, alone):
        """Return the model of rows, as `_model` of :class:`GaussianPosterior`."""
        if estimator.concentration != "learn" or alone is None:
            return GaussianModel(*given)
        known = None if alone else getattr(estimator, "_slopes_known", None)
        return ConcentrationModel(data, *given, known=known)

    def learnt(self, model, point):
        """Return the fitted attributes of what a model has learnt."""
        if not isinstance(model, ConcentrationModel):
            return {}
        known = model.slopes(point)
        return {"concentration_": model.family.concentration, "_slopes_known": known}

    def grouped_model(
        self, estimator, rows, data, targets, prior, past, n_rows, go_on, seen
    ):
        """Return the model of rows of groups."""
        concentration, search = estimator.concentration, None
        if concentration == "learn":
            concentration = estimator.concentration_ if go_on else 1.0
            search = ConcentrationSearch()
        family = OverdispersedCounts(float(concentration))
        return GroupedModel(family, rows, prior, past, search)

    def learnt_of_groups(self, estimator, model, found, share):
        """Return the fitted attributes of what a model of groups has learnt."""
        of_rows, before = model.family.concentration, 1.0
        if share < 1.0:
            before = estimator.concentration_
        return {"concentration_": before ** (1.0 - share) * of_rows**share}

    def more_variance(self, estimator):
        """Return what counts vary by beside their mean, for a squared rate."""
        return 1.0 / estimator.concentration_

    def distribution(self, estimator):
        """Return the function of counts and rates that has their distribution."""
        r = estimator.concentration_
        return lambda counts, rate: betainc(r, counts + 1.0, r / (r + rate))


def _exp(logarithms):
    """Return exponentials, of logarithms that are too large the largest."""
    return np.exp(np.minimum(logarithms, MOST_LOG))


def _moments(estimator, X, offset, groups):
    """Return means and variances of the linear predictors of rows."""
    both = estimator._predictors(X, lambda a, v, *_: np.column_stack([a, v]), groups)
    a, v = both.T
    return a + checked_offset(offset, len(a)), v


def _warn_of_rates(estimator, mean, variance):
    """Warn of means that say nothing of rates, by the variances of their logarithms.

    Of rates of a few counts at most, as where all counts were zero, they may say so.
    """
    far = (variance > WIDE_RATE**2) & (mean > FEW_COUNTS)
    if far.any():
        warnings.warn(
            "The logarithm of the rate has a posterior standard deviation above "
            f"{WIDE_RATE:g}, up to {np.sqrt(variance[far].max()):.3g}, for {far.sum()} "
            f"of {far.size} rows of predict of {type(estimator).__name__}: the mean of "
            "such a rate says nothing, as hardly likely coefficients make most of it. "
            "Where columns go farther than in the fit, give np.log1p of those with "
            "long tails, or limits to them; else a smaller prior_scale. The ends of "
            "predict_mean_interval say what is known.",
            PosteriorWarning,
            stacklevel=outside(),
        )


def log_rate_of(data, targets=None):
    """Return `log_rate` of a source, whose batches may bring the targets."""
    if data.remote:
        top = data.chunks().reduce(_top_of_block, max)
        sums = data.chunks().sum(partial(_rates_of_block, top))
        rate = sums.counts / sums.exposure
        return float(np.log(max(rate, LEAST_RATE)) - top)
    return log_rate(targets, data.weight if data.weight.size else None)


class Rates(NamedTuple):
    """Sums of counts, and of what they were counted in."""

    counts: float
    exposure: float


def _top_of_block(batch):
    return float(batch.targets[:, 1].max()) if batch.targets.ndim > 1 else 0.0


def _rates_of_block(top, batch):
    y, weight = batch.targets, batch.weight if batch.weight.size else 1.0
    exposure, counts = np.ones(len(y)), y
    if y.ndim > 1:
        exposure, counts = np.exp(y[:, 1] - top), y[:, 0]
    return Rates(float(np.sum(weight * counts)), float(np.sum(weight * exposure)))


def log_rate(targets, weight):
    """Return the logarithm of the mean of counts where the offset is zero."""
    if targets.ndim == 1:
        return float(np.log(max(np.average(targets, weights=weight), LEAST_RATE)))
    top = targets[:, 1].max()
    exposure = np.exp(targets[:, 1] - top)
    rate = np.average(targets[:, 0], weights=weight)
    rate /= np.average(exposure, weights=weight)
    return float(np.log(max(rate, LEAST_RATE)) - top)


def count_quantile(a, sd, distribution, p, more=0.0):
    """Return the least counts (m,) that are not exceeded with probability p.

    Of counts whose logarithmic means are normal, with means a (m,) and standard
    deviations sd (m,); ``distribution(counts, mean)`` is that of a count, whose
    variance is mean + more mean^2. Counts above a million are so to six digits.
    """
    # Where counts vary little about their means, the probability is nearly a step.
    variance = np.exp(-np.clip(a, -MOST_LOG_RATE, MOST_LOG_RATE))
    steps = COUNT_NODES * (1.0 + sd / np.sqrt(variance + more))
    order, found = np.argsort(steps), np.empty(a.shape)
    for start in range(0, a.size, COUNT_ROWS):
        some = order[start : start + COUNT_ROWS]
        most = min(steps[some[-1]], MOST_COUNT_NODES)
        nodes = np.linspace(-8.0, 8.0, int(most) + 1)
        weights = np.exp(-0.5 * nodes**2)
        weights /= weights.sum()
        rates = a[some, None] + sd[some, None] * nodes
        rates = np.exp(np.minimum(rates, MOST_LOG_RATE))

        def is_short(counts, rates=rates, weights=weights):
            return distribution(counts[:, None], rates) @ weights < p

        low, high = np.full(len(rates), -1.0), np.ceil(rates @ weights)
        while (short := is_short(high)).any():
            low, high = np.where(short, high, low), high + short * (high + 1.0)
        while (high - low > np.maximum(1.0, COUNT_DIGITS * high)).any():
            far = high > 4.0 * low + 8.0  # by magnitudes first
            middle = np.where(
                far, np.sqrt(low + 1.0) * np.sqrt(high), 0.5 * (low + high)
            )
            middle = np.floor(middle)
            # Of ends that have met, the middle is the lower one.
            short = is_short(middle) | (middle <= low)
            low, high = np.where(short, middle, low), np.where(short, high, middle)
        found[some] = high
    return found
