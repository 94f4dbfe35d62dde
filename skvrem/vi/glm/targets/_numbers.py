"""Real numbers with Gaussian noise as the targets of a regression."""

import numpy as np
from sklearn.metrics import r2_score

from skvrem.data import column_moments
from skvrem.vi.gaussian._answers import deviation, quantile
from skvrem.vi.gaussian._model import GaussianModel
from skvrem.vi.gaussian._model_families import GaussianNoise
from skvrem.vi.gaussian._model_posterior import MeanField
from skvrem.vi.glm._evidence import (
    LEAST_DF,
    Evidence,
    least_noise,
    mean_variance,
    squares_of,
)
from skvrem.vi.glm._input import checked_offset, with_column
from skvrem.vi.glm._span import in_coordinates, in_coordinates_about
from skvrem.vi.glm.groups._model import GroupedModel
from skvrem.vi.glm.groups._model_posterior import VaryingPosterior
from skvrem.vi.glm.streams._width import Width

# Prior standard deviations of standardised coefficients, in those of the targets.
WIDE = 2.5


class Numbers:
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
            precision, of_features = of_own(prior).precision, sums
            if estimator.fit_intercept:  # nothing is known of it, whatever the width
                precision = precision[:-1, :-1]
                of_features = sums.without_intercept()
            known = None if learned else float(scale) ** 2
            evidence = Evidence(of_features, precision)
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

    def learnt_of_groups(self, estimator, model, found, share):
        """Return the fitted attributes of what a model of groups has learnt.

        The rows are such a share of all of a stream.
        """
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
        mean, variance, df = _about(estimator, X, offset, groups, noisy=True)
        return np.column_stack([mean, np.sqrt(variance * deviation(df) ** 2)])

    def mean_interval(self, estimator, X, offset, groups, tail):
        """Return the ends (n, 2) of intervals of means, with a share beyond each."""
        return ends(*_about(estimator, X, offset, groups), tail)

    def interval(self, estimator, X, offset, groups, tail):
        """Return the ends (n, 2) of intervals of new targets."""
        return ends(*_about(estimator, X, offset, groups, noisy=True), tail)

    def loss(self, y, mean):
        """Return the deviance (n,) of targets from means."""
        return np.square(y - mean)

    def score(self, y, mean, sample_weight):
        """Return the share of the deviance that means of rows explain."""
        return r2_score(y, mean, sample_weight=sample_weight)


def ends(mean, variance, df, tail):
    """Return the ends (n, 2) of central intervals, of Student's t or normals."""
    half = -quantile(tail, df) * np.sqrt(variance)
    return np.column_stack([mean - half, mean + half])


def _about(estimator, X, offset, groups, noisy=False):
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
