"""How wide a prior is most likely, and what a stream knows of it as it grows."""

from typing import NamedTuple

import numpy as np

from skvrem.vi.gaussian._model import as_vector
from skvrem.vi.gaussian._model_posterior import MeanField
from skvrem.vi.gaussian._width import (
    curvature_about,
    few_steps,
    most_likely_width,
    width_taken,
)

# Share of what steps leave to gain elsewhere, where a width is to be told from the last
# one by a single slope; not of several predictors, whose last steps gain little each.
CLOSER = 0.05


class Width(NamedTuple):
    """How wide a prior is most likely, in units of standardised features.

    Attributes
    ----------
    log : float
        Its logarithm, where that is most likely.
    curvature : float
        Of minus the logarithm of its density, there.
    n_rows : int
        That tell it.
    value : float
        The width that is taken.
    slope : float
        Of the logarithm of the density there.
    """

    log: float
    curvature: float
    n_rows: int
    value: float
    slope: float

    @classmethod
    def of(cls, log_width, curvature, n_rows):
        """Return the one that is taken where another is most likely."""
        value = width_taken(log_width, curvature)
        slope = -curvature * (np.log(value) - log_width)
        return cls(float(log_width), float(curvature), n_rows, value, float(slope))

    def moved(self, *about):
        """Return by how much its logarithm is another by a posterior, about.

        about: as of `rested`.
        """
        return (self._slope_at(*about) - self.slope) / self.curvature

    def rested(self, posterior, prior, k, intercept):
        """Return the width with what the posterior tells that it has led to.

        Parameters
        ----------
        posterior : MeanField, FullRank or LowRank
        prior : MeanField
            As wide as the width taken.
        k : int
            Predictors.
        intercept : bool
        """
        return self._replace(slope=self._slope_at(posterior, prior, k, intercept))

    def _slope_at(self, posterior, prior, k, intercept):
        features = features_of(prior, k, intercept)
        square = _squares(posterior.mean, posterior.variance, prior)[features]
        return float(square.sum()) - square.size - np.log(self.value)


def of_predictors(one, k):
    """Return the prior over the coefficients of k predictors, one that of each."""
    return MeanField(np.tile(one.mean, k), np.tile(one.scale, k))


def features_of(prior, k, intercept):
    """Return which coefficients (D,) of k predictors are not their intercepts."""
    features = np.full((k, prior.n_dim // k), True)
    features[:, features.shape[1] - intercept :] = False
    return features.ravel()


def _squares(mean, variance, prior):
    """Return expected squares of coefficients (D,), in those of a prior's scales."""
    return (np.square(mean) + variance) / prior.variance


def width_of_prior(model, data, point, prior_of, before=None):
    """Return how wide a prior is most likely, and where the posterior is then, about.

    Parameters
    ----------
    model : GaussianModel
        With any covariance. What its family learns is learned along.
    data : source
    point : Point
    prior_of : callable
        Returns the prior over the coefficients of a predictor, of a width.
    before : Width, default=None
        Of fewer rows, to start from.

    Returns
    -------
    width : Width
    point : Point
    family : object
    passes : float
        Made over the rows.
    """
    passes, share = 0.0, 1.0 if before is None or model.k > 1 else CLOSER

    def slope(log_width):
        nonlocal model, point, passes
        prior = of_predictors(prior_of(np.exp(log_width)), model.k)
        result = few_steps(model.changed(prior=prior), data, point, share=share)
        point, passes = result.point, passes + result.history[-1].passes
        model = model.learned(point)
        q, features = point.parameters, features_of(prior, model.k, model.intercept)
        square = _squares(as_vector(q.mean), q.covariance.diagonal(), prior)[features]
        return float(square.sum()) - square.size

    start = () if before is None else before[:2]
    log_width, curvature = most_likely_width(slope, *start)
    near, family = point, model.family
    share = CLOSER  # the posterior comes to the end of a secant, too
    curvature = curvature_about(slope, log_width, curvature)
    width = Width.of(log_width, curvature, data.n_units)
    return width, near, family, passes
