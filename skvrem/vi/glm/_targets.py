"""What a regression does that depends on its targets: a class a family.

They have no state: what is learnt is set on the estimator, which is given.
"""

import warnings

import numpy as np
from scipy.special import betainc, pdtr, xlogy
from sklearn.metrics import d2_tweedie_score, r2_score
from sklearn.utils.validation import column_or_1d

from skvrem.data import column_moments
from skvrem.exceptions import PosteriorWarning
from skvrem.utils._reports import outside
from skvrem.vi.gaussian._answers import deviation, quantile
from skvrem.vi.gaussian._model import GaussianModel
from skvrem.vi.gaussian._model_families import (
    GaussianNoise,
    OverdispersedCounts,
    PoissonCounts,
)
from skvrem.vi.gaussian._model_posterior import MeanField
from skvrem.vi.glm._counts import (
    ConcentrationModel,
    ConcentrationSearch,
    count_quantile,
    log_rate_of,
)
from skvrem.vi.glm._evidence import (
    LEAST_DF,
    Evidence,
    least_noise,
    mean_variance,
    squares_of,
)
from skvrem.vi.glm._input import ColumnUnits, checked_offset, with_column
from skvrem.vi.glm._span import in_coordinates, in_coordinates_about
from skvrem.vi.glm.groups._model import GroupedModel
from skvrem.vi.glm.groups._model_posterior import VaryingPosterior
from skvrem.vi.glm.streams._width import Width

# Prior standard deviations of standardised coefficients, in those of the targets.
WIDE = 2.5
# Logarithm of the largest rate that is told from others, of 64 bits.
MOST_LOG = 700.0
# Standard deviation of the logarithm of a rate beyond which its mean, a hundred times
# its median, says nothing; rates up to which that misleads nobody.
WIDE_RATE, FEW_COUNTS = 3.0, 10.0


class NumberTargets:
    """What a regression does for real numbers with Gaussian noise, known or learnt."""

    name = "gaussian"
    are_counts = False
    #: Whether sums of squares and products of rows say all of them.
    has_sums = True

    def check(self, y):
        """Refuse targets (n,) that are no such numbers."""

    def beside(self, y, offset):
        """Return targets as models take them, given an offset (n,)."""
        return y - offset

    def of_none(self):
        """Return the targets of no rows, with an offset."""
        return np.empty(0)

    def likelihood(self, estimator):
        """Return the likelihood, with what the estimator has learnt."""
        return GaussianNoise(float(estimator.noise_scale_) ** 2)

    # Fits

    def moments(self, data, targets):
        """Return moments of the features, and of the targets as the last column."""
        features = column_moments(data).weighted
        return with_column(features, *mean_variance(data, targets))

    def units(self, seen):
        """Return the targets' mean and deviation, and the units of the features.

        Where features are at their means; seen: what `moments` returns.
        """
        units = np.where(seen.deviation > 0.0, seen.deviation, 1.0)
        return seen.mean[-1], seen.deviation[-1] or 1.0, units[:-1]

    def first_intercept(self, data, targets):
        """Return where a cold fit starts the intercept, None at its prior's mean."""

    def first_noise(self, data, targets):
        """Return the noise that a cold fit to groups starts from."""
        if data.remote:
            return float(column_moments(data, targets=True).plain.deviation[-1]) or 1.0
        return float(np.std(targets)) or 1.0

    def learn(self, estimator, data, targets, prior, n_seen, prior_of):
        """Learn how wide the prior is, and set the noise.

        As `_learn` of :class:`GaussianPosterior`. A noise that is learned is that of
        the largest evidence, pooled with that of a stream whose rows are not kept as
        sums.
        """
        scale, df = estimator.noise_scale, np.inf
        learned = scale == "learn"
        if not (learned or prior_of):
            estimator.noise_scale_, estimator.noise_df_ = float(scale), df
            return prior
        own, y, of_own = data, targets, lambda same: same
        intercept = estimator.fit_intercept
        if data.n_units < prior.n_dim:  # the same evidence, of as many coordinates
            if n_seen:
                own, y = in_coordinates_about(data, targets, prior, intercept)
                standard = MeanField(np.zeros(data.n_units), np.ones(data.n_units))
                of_own, intercept = lambda _: standard, False
            else:
                own, of_own = in_coordinates(data, prior)
        sums = squares_of(own, y, of_own(prior), intercept)
        sums = sums._replace(least=least_noise(*mean_variance(data, targets)))
        if prior_of:
            variance, of_features = of_own(prior).variance, sums
            if estimator.fit_intercept:  # nothing is known of it, whatever the width
                variance, of_features = variance[:-1], sums.without_intercept()
            known = None if learned else float(scale) ** 2
            evidence = Evidence(of_features, np.diag(1.0 / variance))
            width = Width.of(*evidence.width(WIDE, known), data.n_units)
            estimator._width, prior = width, prior_of(width.value)
        if learned:
            evidence = Evidence(sums, of_own(prior).precision)
            variance = evidence.noise()
            df = evidence.freedom(variance)
            if n_seen:
                share = data.n_units / (data.n_units + n_seen)
                before = estimator.noise_scale_**2
                variance = (1.0 - share) * before + share * variance
                df += estimator.noise_df_
            scale = np.sqrt(variance)
        estimator.noise_scale_, estimator.noise_df_ = float(scale), df
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
        """Return the model of rows of groups, with `moments` of all of a stream."""
        given = rows, prior, past
        if estimator.noise_scale != "learn":
            family = GaussianNoise(float(estimator.noise_scale) ** 2)
            return GroupedModel(family, *given, n_rows=n_rows)
        if seen is not None:
            variance = seen.square[-1] / seen.weight
            least = np.sqrt(least_noise(seen.mean[-1], variance))
        elif go_on:
            least = estimator._group_state["least"]
        else:
            least = np.sqrt(least_noise(*mean_variance(data, targets)))
        how = {"n_rows": n_rows, "least_noise": float(least)}
        return GroupedModel(GaussianNoise(1.0), *given, **how)

    def learnt_of_groups(self, estimator, model, found):
        """Return the fitted attributes of what a model of groups has learnt."""
        if model.n_noisy is None:
            return {"noise_scale_": float(estimator.noise_scale), "noise_df_": np.inf}
        scale, spread = VaryingPosterior(found, model.rows.order).noise
        # Of the logarithm of a chi with so many degrees of freedom.
        df = max(0.5 / spread**2, LEAST_DF)
        return {"noise_scale_": scale, "noise_df_": df}

    # Answers

    def means_and_deviations(self, estimator, X, offset, groups, deviations):
        """Return means and, if asked for, standard deviations of new targets, (n, 2).

        Without the second (n, 1).
        """
        if not deviations:
            found = estimator._predictors(X, lambda a, *_: a, groups, spread=False)
            return found + checked_offset(offset, len(found))[..., None]
        mean, variance, df = _noisy_rows(estimator, X, offset, groups, noisy=True)
        return np.column_stack([mean, np.sqrt(variance * deviation(df) ** 2)])

    def mean_interval(self, estimator, X, offset, groups, tail):
        """Return the ends (n, 2) of intervals of means, with a share beyond each."""
        return _ends(*_noisy_rows(estimator, X, offset, groups), tail)

    def interval(self, estimator, X, offset, groups, tail):
        """Return the ends (n, 2) of intervals of new targets."""
        return _ends(*_noisy_rows(estimator, X, offset, groups, noisy=True), tail)

    def loss(self, y, mean):
        """Return the deviance (n,) of targets from means."""
        return np.square(y - mean)

    def score(self, y, mean, sample_weight):
        """Return the share of the deviance that means of rows explain."""
        return r2_score(y, mean, sample_weight=sample_weight)


class CountTargets:
    """What a regression does for counts, here those of Poisson.

    As :class:`NumberTargets` does for real numbers.
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
        return ColumnUnits.of(data).with_constant(rate)

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

    def learnt_of_groups(self, estimator, model, found):
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
        return _exp(_ends(*_moments(estimator, X, offset, groups), np.inf, tail))

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


class OverdispersedTargets(CountTargets):
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
            others = past is not None
            known = getattr(estimator, "_slopes_known", None) if others else None
            search = ConcentrationSearch(known=known)
        family = OverdispersedCounts(float(concentration))
        return GroupedModel(family, rows, prior, past, search)

    def learnt_of_groups(self, estimator, model, found):
        """Return the fitted attributes of what a model of groups has learnt."""
        known = None if model.search is None else model.loss_slope(found).kept()
        return {"concentration_": model.family.concentration, "_slopes_known": known}

    def more_variance(self, estimator):
        """Return what counts vary by beside their mean, for a squared rate."""
        return 1.0 / estimator.concentration_

    def distribution(self, estimator):
        """Return the function of counts and rates that has their distribution."""
        r = estimator.concentration_
        return lambda counts, rate: betainc(r, counts + 1.0, r / (r + rate))


#: By the names of `family`.
TARGETS = {
    one.name: one for one in (NumberTargets(), CountTargets(), OverdispersedTargets())
}


def _ends(mean, variance, df, tail):
    """Return the ends (n, 2) of central intervals, of Student's t or normals."""
    half = -quantile(tail, df) * np.sqrt(variance)
    return np.column_stack([mean - half, mean + half])


def _noisy_rows(estimator, X, offset, groups, noisy=False):
    """Return means, squared scales and degrees of freedom of rows, or new targets."""
    about = estimator.posterior_, estimator._given_prior
    learnt, noise = estimator._learnt_noise(*about), 0.0
    if noisy:
        noise = estimator._noise
    if learnt is not None:
        spread = learnt.of_rows(estimator._of_fit.fit_intercept)

    def answer(a, v, family, model=None, batch=None):
        if learnt is None:
            return np.column_stack([a, v + noise, np.full(len(v), np.inf)])
        return np.column_stack([a, *spread(v[:, 0], noise, batch)])

    a, variance, df = estimator._predictors(X, answer, groups).T
    return a + checked_offset(offset, len(a)), variance, df


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
