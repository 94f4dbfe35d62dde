"""The M step of Gaussian emissions: means, covariances, and their conjugate priors."""

from functools import partial

import numpy as np

from skvrem.hmm.emissions._base import Emission, ratio
from skvrem.hmm.emissions.patterns import _model_patterns
from skvrem.utils._validation import check_real


class GaussianMStep(Emission):
    """Means and covariances at the maximum of Q, with what is given of them.

    Sums are of masks, x and x x^T (x^2 if not `_dense`) about `_centre`, as the class
    that inherits this makes features; parameters are what its `_split` reads.
    """

    def _prepare_priors(self):
        """Find the sums that priors add: of x, of squares, and for how many rows."""
        check_real(self, "mean_weight", "covariance_weight")
        n, d = self.n_states_, self.n_columns_
        prior = self._given("mean_prior")
        self._prior_mean = np.zeros((n, d)) if prior is None else prior - self._centre
        if np.isnan(self._prior_mean).any():
            raise ValueError("mean_prior of Gaussian must not be NaN.")
        squares = self._given("covariance_prior")
        if squares is None:
            own = np.where(self._variance > 0.0, self._variance, 1.0)
            own = np.diag(own) if self._dense else own
            squares = np.broadcast_to(own, (n, *own.shape))
        self._prior_squares = self.covariance_weight * squares
        if np.isnan(squares).any():
            raise ValueError("covariance_prior of Gaussian must not be NaN.")

    def maximize(self, features, before, repair):
        """Return means and covariances, or None where there are none."""
        masks, x, _ = sums = self._split_features(features)
        old_mean, old_covariance = self._split(before)
        k = self.mean_weight * (masks > 0.0)
        unbound = old_mean - self._centre
        unbound = ratio(x + k * self._prior_mean, masks + k, unbound)
        spreads = partial(self._covariance_about, sums, old_covariance, repair)
        mean = self._means(unbound, old_mean - self._centre, spreads)
        covariance = None if mean is None else spreads(mean)
        if covariance is None:
            return None
        return self._join(mean + self._centre, covariance)

    def _means(self, unbound, old, spreads):
        r"""The means that are likeliest where some are fixed, or None.

        What is fixed, c, away from where all free means were at most, draws the others
        of its state along as covariances S tell,

        .. math:: m_f = \bar x_f - S_{fc} S_{cc}^{-1} (\bar x_c - m_c) .

        With S about the means where none was fixed, this and the covariances about m
        are the joint maximum. States of one covariance whose fixed columns are others
        take turns, those of the same columns together, so each turn leads uphill.
        """
        given = self._given("mean")
        if given is None:
            return unbound
        given, free = given - self._centre, np.isnan(given)
        partly = self._dense & free.any(axis=1) & ~free.all(axis=1)
        mean = np.where(free, np.where(partly[:, None], old, unbound), given)
        for columns in np.unique(free[partly], axis=0):
            own = np.flatnonzero((free == columns).all(axis=1))
            about = mean.copy()
            about[own] = unbound[own]
            covariance = spreads(about)
            if covariance is None:
                return None
            f, c = np.flatnonzero(columns), np.flatnonzero(~columns)
            away = unbound[own][:, c] - given[own][:, c]
            inside, across = (covariance[own][:, c][:, :, at] for at in (c, f))
            drawn = np.linalg.solve(inside, away[:, :, None])
            drawn = (across.swapaxes(1, 2) @ drawn)[:, :, 0]
            mean[own[:, None], f] = unbound[own][:, f] - drawn
        return mean

    def _covariance_about(self, sums, old, repair, mean):
        """The covariances that are likeliest with these means, or None."""
        covariance = fixed = self._given("covariance")
        if fixed is None or np.isnan(fixed).any():
            scatter, weight = self._scatter_of(mean, *sums)
            axis = {"tied": 0, "spherical": 1}.get(self.covariance_type)
            if axis is not None:  # what several have in common
                scatter, weight = (
                    np.broadcast_to(part.sum(axis, keepdims=True), part.shape)
                    for part in (scatter, weight)
                )
            empty = weight <= 0.0
            covariance = scatter / np.where(empty, 1.0, weight)
            if repair and not self._dense:  # rounding
                covariance = np.maximum(covariance, 0.0)
            added = np.eye(self.n_columns_) if self._dense else 1.0
            covariance = covariance + self.added * added
            covariance = np.where(empty, old, covariance)
            if fixed is not None:
                covariance = np.where(np.isnan(fixed), covariance, fixed)
        bad = self._factor(covariance) is None
        if bad and not repair:
            return None
        if bad:
            good = np.array([self._factor(c[None]) is not None for c in covariance])
            good = good.reshape(-1, *[1] * (covariance.ndim - 1))
            covariance = np.where(good, covariance, old)
        return covariance

    def _scatter_of(self, mean, masks, x, xx):
        """Sums of squares, or products, about means, and weights, with the priors'."""
        scatter = self._scatter(mean, masks, x, xx)
        weight = masks[:, :, None] if self._dense else masks
        if not (self.mean_weight or self.covariance_weight):
            return scatter, weight
        away = mean - self._prior_mean
        square = away[:, :, None] * away[:, None] if self._dense else np.square(away)
        scatter = scatter + self.mean_weight * square
        tied = self.covariance_type == "tied"
        share = 1.0 / len(mean) if tied else 1.0  # once, not in every state
        scatter = scatter + share * self._prior_squares
        return scatter, weight + share * self.covariance_weight * (weight > 0.0)

    def log_prior(self, parameters):
        """Return the log-density of the conjugate priors, up to a constant."""
        if not (self.mean_weight or self.covariance_weight):
            return 0.0
        mean, covariance = self._split(parameters)
        none = np.zeros((len(mean), self._n_masks()))
        d = self.n_columns_
        size = len(self._upper[0]) if self._dense else d
        zeros = np.zeros((len(mean), d)), np.zeros((len(mean), size))
        scatter, _ = self._scatter_of(mean - self._centre, none, *zeros)
        tied = self.covariance_type == "tied"
        weight = self.covariance_weight / (len(mean) if tied else 1.0)
        if self._dense:
            precision, logs = _model_patterns.inverses(covariance)
            return -0.5 * float(weight * logs.sum() + (precision * scatter).sum())
        logs = np.log(covariance).sum()
        return -0.5 * float(weight * logs + (scatter / covariance).sum())

    def _scatter(self, mean, masks, x, xx):
        """Sums of squares, or products, about means."""
        if not self._dense:
            return xx - 2.0 * mean * x + masks * mean**2
        products = np.zeros((len(mean), self.n_columns_, self.n_columns_))
        products[:, *self._upper] = xx
        products = products + np.triu(products, 1).swapaxes(1, 2)
        cross = x[:, :, None] * mean[:, None, :]
        # By sums and products that are one number for both triangles.
        scatter = products - (cross + cross.swapaxes(1, 2))
        return scatter + masks[:, :, None] * (mean[:, :, None] * mean[:, None, :])

    def _factor(self, covariance):
        """Cholesky factors, or None where one does not exist."""
        if not np.isfinite(covariance).all():
            return None
        if not self._dense:
            return None if covariance.min() <= 0.0 else np.sqrt(covariance)
        try:
            return np.linalg.cholesky(covariance)
        except np.linalg.LinAlgError:
            return None
