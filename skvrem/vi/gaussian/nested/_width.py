"""How wide the priors of a population are, by the highest evidence."""

import numpy as np

from skvrem import solvers
from skvrem.vi.gaussian._width import WIDTH_TOL, few_steps, most_likely_width

# Steps of the posterior of a width: slopes are those of the evidence at its end only.
STEPS = 50
# Of the logarithms of widths, for the difference of volumes.
APART = 0.1


def learned_width(
    model, data, point, prior_of, features, common=False, at=1.0, curvature=None
):
    r"""Return how wide priors most likely are, and the posterior then, about.

    The width w is the deviation of d means of the population, of features in units,
    and, where it is common to both, what the median of all scales is a share c of. What
    it leads to is the evidence, or a bound of it, whose slope is that of the prior at
    the posterior,

    .. math:: \frac{dL}{d \log w} = \sum E \mu^2 / w^2 - d
              + \sum E (\log \tau - \log (c w)) / \kappa^2 ,

    and where scales are at their mode what the logarithm of the volume about it gains.

    Parameters
    ----------
    model : NestedModel or HierarchicalModel
    data : source
    point : Point
    prior_of : callable
        Returns the `HierarchicalPrior` or `NestedPrior` of a width.
    features : slice or ndarray of bool
        Coefficients of which it is the width: all but the intercept.
    common : bool, default=False
        Medians of the population's scales are a share of it.
    at, curvature : float, default=1.0, None
        A width to start from, and what is known of the curvature there.

    Returns
    -------
    width, curvature : float
    point : Point
    passes : float
        Made over the rows.
    """
    passes = 0.0

    def slope(log_width):
        nonlocal model, point, passes
        prior = prior_of(np.exp(log_width))
        model = model.of_prior(prior)
        solver = solvers.QuasiNewton(WIDTH_TOL)
        result = few_steps(model, data, point, solver, STEPS, WIDTH_TOL)
        point, passes = result.point, passes + result.history[-1].passes
        square, log_tau = model.of_population(point)
        found = np.sum(square[features] / prior.variance[features] - 1.0)
        if common:
            found += np.sum(log_tau - prior.log_scale) / prior.log_scale_std**2
        wider = model.of_prior(prior_of(np.exp(log_width + APART)))
        return float(found + model.volume_gained(wider, point) / APART)

    log_width, curvature = most_likely_width(slope, float(np.log(at)), curvature)
    return float(np.exp(log_width)), curvature, point, passes
