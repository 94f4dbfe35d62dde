"""Counts as targets: their rate, their concentration, their quantiles."""

from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.optimize import brentq

from skvrem.vi.gaussian._model import GaussianModel
from skvrem.vi.gaussian._model_families import OverdispersedCounts
from skvrem.vi.glm.groups._model_rows import Slope, slopes_of_counts

# Concentrations that are learnt: beyond, counts vary as Poisson's do.
LEAST_CONCENTRATION, MOST_CONCENTRATION = 1e-4, 1e6
LOWEST, HIGHEST = np.log([LEAST_CONCENTRATION, MOST_CONCENTRATION]).tolist()
# Of logarithms: by how much equal ones may differ, and the longest step by a secant.
SAME, LONGEST = 1e-9, 3.0
# Those that slopes are kept at, which are smooth between them: four a decade.
CONCENTRATIONS = np.geomspace(LEAST_CONCENTRATION, MOST_CONCENTRATION, 41)
# Scale of the half-normal prior of one by the root of a concentration, how much rates
# vary beside their mean. Counts that are (nearly) all zero have any rate without it.
MOST_VARIATION = 3.0
# The least mean of counts.
LEAST_RATE = 1e-3
# Nodes of the quadrature for quantiles of counts, for each of their deviations that the
# mean may be off; rows at once.
COUNT_NODES, MOST_COUNT_NODES, COUNT_ROWS = 64, 4096, 256
# Share of large counts that their quantiles may be off by; the largest log-rate there.
COUNT_DIGITS, MOST_LOG_RATE = 1e-6, 600.0


class ConcentrationModel(GaussianModel):
    """Negative binomial counts whose concentration is that of the highest bound.

    Parameters
    ----------
    data : source
        Their rows.
    *given
        As of :class:`GaussianModel`.
    known : ndarray of shape (len(CONCENTRATIONS),), or None
        `slopes` of other rows.
    """

    def __init__(self, data, *given, known=None):
        super().__init__(*given)
        self.data, self.search = data, ConcentrationSearch(known=known)

    @property
    def left(self):
        """Nats that were left to gain by the concentration before this one."""
        return self.search.left

    def learned(self, point):
        """Return the model with the best concentration at a point."""
        return self.changed(family=counts_of_least(self._loss_slope(point)))

    def refined(self, point):
        """Return the model with a better concentration than one whose fit ended here.

        Every time another one: what was left to gain before it says when to end.
        """
        family, search = self.search.step(self._loss_slope(point), self.family)
        return self.changed(family=family, search=search)

    def _loss_slope(self, point):
        """Return the `LossSlope` at a point."""
        return self.search.slope(self._slopes_at(point))

    def slopes(self, point):
        """Return what is kept of all rows; see `LossSlope.kept`."""
        return self._loss_slope(point).kept()

    def _slopes_at(self, point):
        """Return the function of concentrations that rows have the slopes of."""
        if self.data.remote:
            # The rows stay where they are, and are asked again.
            travels = self.changed(data=None), point.parameters
            chunks = self.data.chunks()
            return lambda at: chunks.sum(partial(_slopes_of_block, *travels, at)).slope
        batch = self.data.batch(0, self.data.n_units)
        a, v = self.predictors(point.parameters, batch)
        about = a, v, self.targets_of(batch), self.data.weight
        return partial(slopes_of_counts, about)

    def changed(self, **changes):
        """Return the model with other attributes; see `GaussianModel`."""
        return super().changed(**({"data": self.data} | changes))

    def __getstate__(self):
        return vars(self) | {"data": None}  # rows stay where they are


def _slopes_of_block(model, parameters, concentrations, batch):
    a, v = model.predictors(parameters, batch)
    about = a, v, model.targets_of(batch), batch.weight
    return Slope(slopes_of_counts(about, concentrations))


class LossSlope:
    """The slope of the loss of counts by the logarithm of their concentration.

    A function of such counts.

    Parameters
    ----------
    of_rows : callable
        Returns the slopes of rows at concentrations.
    known : ndarray of shape (len(CONCENTRATIONS),), or None
        What is `kept` of other rows.
    """

    def __init__(self, of_rows, known):
        self.of_rows, self.known, self._of_others = of_rows, known, None
        if known is not None:
            self._of_others = CubicSpline(np.log(CONCENTRATIONS), known)

    def __call__(self, family):
        """Return the slope of all rows at the concentration of counts."""
        (slope,) = self.of_rows([family.concentration])
        if self._of_others is not None:
            slope = slope + self._of_others(np.log(family.concentration))
        return float(slope)

    def kept(self):
        """Return the slopes of all rows at `CONCENTRATIONS`.

        Whatever their number, rows add to them, which they do not to a concentration: a
        few counts have theirs at an end.
        """
        slopes = self.of_rows(CONCENTRATIONS)
        return slopes if self.known is None else slopes + self.known


class ConcentrationSearch(NamedTuple):
    """Concentrations that fits have ended with, on the way to the best.

    Where a fit has ended, the slope of its loss by the logarithm of the concentration,
    of a posterior that stands still, is that of the least loss of any posterior: a
    function of one number, whose root is found by secants. Of a posterior that stands
    still the loss bends more: steps to the root of its slope, of which the first is
    one, gain little of what is left where the posterior follows by much.

    Attributes
    ----------
    last : tuple (log_r, slope), or None
        Of the last fit.
    bend : float
        How the slope grows, NaN where it is not known yet.
    low, high : float
        Logarithms of concentrations that the root lies between.
    left : float
        Nats that were left to gain where the last fit ended, infinity where it is not
        known.
    known : ndarray of shape (len(CONCENTRATIONS),), default=None
        What is kept of rows that fits do not see; see `LossSlope`.
    """

    last: tuple | None = None
    bend: float = np.nan
    low: float = LOWEST
    high: float = HIGHEST
    left: float = np.inf
    known: np.ndarray | None = None

    def slope(self, of_rows):
        """Return the `LossSlope` of the rows of a fit, and of others."""
        return LossSlope(of_rows, self.known)

    def step(self, slope, family):
        """Return better counts than a fit ended with, and the search after them.

        ``slope`` is that of its posterior, as `counts_of_least` takes it.
        """
        at = float(np.log(family.concentration))
        here = _slope_with_prior(slope, at)
        low, high = (at, self.high) if here < 0.0 else (self.low, at)
        to, bend, left = np.nan, self.bend, np.inf
        if self.last is not None and self.last[0] != at:
            secant = (here - self.last[1]) / (at - self.last[0])
            bend = secant if secant > 0.0 else bend
        if high - low < SAME:  # at an end of what there is
            to, left = at, 0.0
        elif bend > 0.0:
            to = at + np.clip(-here / bend, -LONGEST, LONGEST)
            to = float(np.clip(to, LOWEST, HIGHEST))
            left = 0.5 * here**2 / bend
            if here * _slope_with_prior(slope, to) > 0.0:
                to = np.nan  # not even as far as where the posterior stands still
        if not low <= to <= high:
            to = float(np.log(counts_of_least(slope).concentration))
        if not low <= to <= high:
            to = 0.5 * (low + high)
        search = ConcentrationSearch((at, here), bend, low, high, left, self.known)
        return OverdispersedCounts(float(np.exp(to))), search


def counts_of_least(slope):
    """Return the negative binomial counts of the least loss.

    Of which ``slope`` is the derivative by the logarithm of the concentration, a
    function of such counts, and to which the prior is added. A root of it is found to
    all digits, which rows that are summed in another order find, too; the least of a
    loss is found to half of them.
    """
    of_log = partial(_slope_with_prior, slope)
    if of_log(LOWEST) >= 0.0:
        best = LOWEST
    elif of_log(HIGHEST) <= 0.0:
        best = HIGHEST
    else:
        best = brentq(of_log, LOWEST, HIGHEST)
    return OverdispersedCounts(float(np.exp(best)))


def _slope_with_prior(slope, log_r):
    r = np.exp(log_r)
    return slope(OverdispersedCounts(r)) - 0.5 / (MOST_VARIATION**2 * r)


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
