"""How wide a prior is most likely, and what a stream knows of it as it grows."""

from typing import NamedTuple

import numpy as np

from skvrem import solvers
from skvrem.vi.gaussian._model import Full, Point, as_vector
from skvrem.vi.gaussian._model_posterior import MeanField, cholesky, inverse_of
from skvrem.vi.gaussian._width import (
    WIDTH_EACH,
    WIDTH_TOL,
    curvature_about,
    few_steps,
    most_likely_width,
    width_taken,
)

# Share of what steps leave to gain elsewhere, where a width is to be told from the last
# one by a single slope; not of several predictors, whose last steps gain little each.
CLOSER = 0.05
# The slope by the width, for each coefficient, from which on what steps leave of each
# of many coefficients leads secants astray: then they leave no more than of few, and of
# several predictors, whose coefficients move as one, this share of it.
NEAR, CLOSE = 0.05, 0.3
# Points of several predictors that steps mix with the last one, of one none; and steps
# of theirs, at most: from where they lead the next width goes on.
MEMORY, MOST_STEPS = 3, 12
# How far a line through two posteriors goes on beyond the last, by their distance.
FARTHEST = 2.0


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
        square = squares(posterior.mean, posterior.variance, prior)[features]
        return float(square.sum()) - square.size - np.log(self.value)


def features_of(prior, k, intercept):
    """Return which coefficients (D,) of k predictors are not their intercepts."""
    features = np.full((k, prior.n_dim // k), True)
    features[:, features.shape[1] - intercept :] = False
    return features.ravel()


def squares(mean, variance, prior):
    """Return expected squares of coefficients (D,), in those of a prior's scales."""
    return (np.square(mean) + variance) / prior.variance


class Told(NamedTuple):
    """The posterior of a width.

    Attributes
    ----------
    log_width : float
    prior : MeanField
        Of that width.
    q : Full
    factor : ndarray of shape (D, D)
        Lower triangular root of its covariance.
    """

    log_width: float
    prior: MeanField
    q: Full
    factor: np.ndarray


def point_under(prior, log_width, known):
    """Return about where the posterior of a width is, by those of one or two others.

    Means and roots of covariances, whose squares are covariances, go on along a line
    through two of them. By one alone, or where that leads too far, rows tell of the
    coefficients what they tell there.

    Parameters
    ----------
    prior : MeanField
        Of that width.
    log_width : float
    known : list of Told
        The newest last.
    """
    *others, last = known
    for other in others:
        times = (log_width - last.log_width) / (last.log_width - other.log_width)
        times = float(np.clip(times, -FARTHEST, FARTHEST))
        factor = last.factor + times * (last.factor - other.factor)
        if (factor.diagonal() > 0.0).all():
            mean = last.q.mean + times * (last.q.mean - other.q.mean)
            return Point(Full(mean, factor @ factor.T, inverse_of((factor, True))))
    mean, precision = as_vector(last.q.mean), last.q.precision
    change = prior.precision_diagonal - last.prior.precision_diagonal
    try:
        covariance = inverse_of(cholesky(precision + np.diag(change)))
    except np.linalg.LinAlgError:
        # By nodes of quadrature rows may tell less than nothing along a direction.
        return Point(last.q)
    mean = mean - covariance @ (change * mean)
    mean = mean.reshape(last.q.mean.shape[::-1]).T
    return Point(Full(mean, covariance, precision + np.diag(change)))


def curvature_about_rows(q, prior, features):
    """Return minus the derivative of a slope by the log width, if rows tell the same.

    Of few rows they tell less the wider the prior: then it is too much.

    Parameters
    ----------
    q : Full
    prior : MeanField
    features : ndarray of shape (D,)
        Which coefficients are of that width.
    """
    precision, mean = np.where(features, 1.0 / prior.variance, 0.0), as_vector(q.mean)
    pull, left = precision * mean, q.covariance * precision
    square = precision @ (np.square(mean) + q.covariance.diagonal())
    moved = 2.0 * pull @ q.covariance @ pull + np.einsum("ij,ji->", left, left)
    return float(2.0 * (square - moved) + 1.0)


class Posteriors:
    """Posteriors of one width after another, each from where those before it lead.

    Parameters
    ----------
    model : GaussianModel
        With any covariance. What its family learns is learned along.
    data : source
    point : Point
    prior_of : callable
        Returns the prior over the coefficients of a predictor, of a width.
    far : bool
        Whether the first widths may be far from the most likely one: a few steps tell
        by how much, and more only where one is near.
    closer : float
        What steps leave to gain elsewhere, as a share of the least that counts.

    Attributes
    ----------
    passes : float
        Made over the rows.
    """

    def __init__(self, model, data, point, prior_of, *, far, closer):
        self.model, self.data, self.point, self.prior_of = model, data, point, prior_of
        self.far, self.closer = far, closer
        self.known: list[Told] = []
        self.passes = 0.0

    def prior(self, log_width):
        """Return the prior over all coefficients, of a width."""
        return self.prior_of(np.exp(log_width)).repeated(self.model.k)

    def features(self):
        """Return which coefficients (D,) have a prior of that width."""
        return features_of(self.model.prior, self.model.k, self.model.intercept)

    def start(self, log_width):
        """Return about where the posterior of a width is."""
        # Rates may overflow where nothing but a line leads.
        if not self.known or self.model.family.overflows:
            return self.point
        return point_under(self.prior(log_width), log_width, self.known)

    def slope(self, log_width):
        """Return the slope of the log evidence by a log width, from its posterior."""
        about = self.start(log_width)
        self.model = self.model.changed(prior=self.prior(log_width))
        if self.far:
            about = self._steps(about, None)
            found, size = self._slope_at(about)
            self.far = abs(found - log_width) > NEAR * size
        if not self.far:
            about = self._steps(about, self.closer * WIDTH_TOL)
            found, _ = self._slope_at(about)
        self.point, self.model = about, self.model.learned(about)
        if not self.model.family.overflows:
            q = about.parameters
            root = np.linalg.cholesky(q.covariance)
            self.known[:-1] = []
            self.known.append(Told(log_width, self.model.prior, q, root))
        return found

    def curvature(self):
        """Return minus the derivative of the last slope, if rows tell the same."""
        return curvature_about_rows(
            self.point.parameters, self.model.prior, self.features()
        )

    def _steps(self, about, tol):
        one = self.model.k == 1
        solver = solvers.Ascent(memory=0 if one else MEMORY)
        how = {} if one else {"max_iter": MOST_STEPS}
        result = few_steps(self.model, self.data, about, solver, tol=tol, **how)
        self.passes += result.history[-1].passes
        return result.point

    def _slope_at(self, point):
        q = point.parameters
        mean, variance = as_vector(q.mean), q.covariance.diagonal()
        square = squares(mean, variance, self.model.prior)[self.features()]
        return float(square.sum()) - square.size, square.size


def width_of_prior(model, data, point, prior_of, before=None):
    """Return how wide a prior is most likely, and where the posterior is then, about.

    Parameters
    ----------
    model, data, point, prior_of
        As of `Posteriors`.
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
    one = model.k == 1
    many = max(1.0, WIDTH_EACH * model.prior.n_dim / WIDTH_TOL) if one else 1.0
    last = closer = CLOSER * many
    if not one:
        closer = CLOSE
    elif before is None:
        closer = np.sqrt(many)  # its first secant may be long
    told = Posteriors(
        model, data, point, prior_of, far=before is None and not one, closer=closer
    )
    begin = (0.0, None) if before is None else before[:2]
    how = {} if one else {"first": told.curvature, "rough": lambda: told.far}
    log_width, curvature = most_likely_width(told.slope, *begin, **how)
    near, family = told.point, told.model.family
    # The posterior comes to the end of a secant, too.
    told.far, told.closer = False, last
    curvature = curvature_about(told.slope, log_width, curvature)
    width = Width.of(log_width, curvature, data.n_units)
    if told.known:
        near = told.start(np.log(width.value))
    return width, near, family, told.passes
