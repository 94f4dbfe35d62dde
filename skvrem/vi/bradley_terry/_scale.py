"""How far skills lie apart, by the highest bound."""

import numpy as np

from skvrem.solvers import Whole
from skvrem.vi.gaussian._model_posterior import MeanField
from skvrem.vi.gaussian._width import few_steps, most_likely_width, width_taken


def of_scale(model, scale):
    """Return the model with a prior of skills of another scale.

    That of the advantage of being at home, where there is one, stays as it is.
    """
    scales = np.full(model.prior.n_dim, scale)
    scales[: model.n_others] = model.prior.scale[: model.n_others]
    return model.changed(MeanField(model.prior.mean, scales))


def learned_scale(model, point, known=()):
    """Return how far skills are likely to lie apart, and the posterior then, about.

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

    known = most_likely_width(slope, *known)
    return width_taken(*known), point, known, passes
