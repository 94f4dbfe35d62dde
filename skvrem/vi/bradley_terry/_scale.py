"""How far skills lie apart, by the highest bound."""

import numpy as np

from skvrem.solvers import Whole
from skvrem.vi.gaussian._model_posterior import FullRank, MeanField
from skvrem.vi.gaussian._width import few_steps, most_likely_width


def of_scale(model, scale):
    """Return the model with a prior of skills of another scale.

    That of the advantage of being at home, where there is one, stays as it is.
    """
    scales = np.full(model.prior.n_dim, scale)
    scales[: model.n_others] = model.prior.scale[: model.n_others]
    return model.changed(MeanField(model.prior.mean, scales))


def learned_scale(model, point, known=()):
    r"""Return how far skills are likely to lie apart, and the posterior then, about.

    The mean of a log-normal number is wider than its peak by half the variance of the
    logarithm, one over the curvature c there, which keeps intervals from being short.
    The share of it that matches tell of, all but the 1 in c of the scale's own prior,
    is added: :math:`(c - 1) / (2 c^2)`. Without matches the scale is 1.

    Parameters
    ----------
    model : SkillModel
    point : Point
    known : tuple, default=()
        Of the logarithm of the scale, what `most_likely_width` takes and returns.

    Returns
    -------
    scale : float
    point : Point
    known : tuple (log_scale, curvature)
    passes : float
        Made over the matches.
    """
    passes = 0.0

    def slope(log_scale):
        nonlocal point, passes
        scale = np.exp(log_scale)
        other = of_scale(model, scale)
        result = few_steps(other, Whole(), other.adopt(point))
        point, passes = result.point, passes + result.history[-1].passes
        q = point.posterior
        square = (np.square(q.mean) + q.variance)[model.n_others :] / scale**2
        return float(square.sum()) - square.size

    known = log_scale, c = most_likely_width(slope, *known)
    return float(np.exp(log_scale + 0.5 * (c - 1.0) / c**2)), point, known, passes


def with_unknown_scale(q, scale, n_others, curvature):
    r"""Return the posterior of skills with what is not known of their scale.

    Given the scale s it says too much: means move with it by
    :math:`v = d\mu / d\log s = 2 \Sigma P_0 \mu`, and :math:`\log s` has the variance
    1 / c. So :math:`v v^T / c` is added to the covariance, which is next to nothing
    where many items tell of the scale.

    Parameters
    ----------
    q : FullRank, MeanField or LowRank
        Given the scale. But for a covariance of a full rank it stays as it is.
    scale : float
    n_others : int
        Parameters before the skills, whose prior stays as it is.
    curvature : float
        That of the logarithm of the scale, c.
    """
    if not isinstance(q, FullRank):
        return q
    pull = q.mean / scale**2
    pull[:n_others] = 0.0
    shift = 2.0 * q.covariance_times(pull)
    covariance = q.covariance() + np.outer(shift, shift) / curvature
    return FullRank(q.mean, np.linalg.cholesky(covariance))
