"""How far skills lie apart, by messages between items."""

import numpy as np

from skvrem.solvers import Whole
from skvrem.vi.bradley_terry._model_messages import Messages
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

    That is where the evidence of expectation propagation and the logarithm of the
    scale's prior peak: the highest bound does at too small a scale.

    Parameters
    ----------
    model : SkillModel
        Of independent skills.
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
    first = of_scale(model, np.exp(known[0] if known else 0.0))
    result = few_steps(first, Whole(), first.adopt(point))
    messages = Messages(first, result.point)

    def slope(log_scale):
        return messages.slope(of_scale(model, np.exp(log_scale)))

    known = most_likely_width(slope, *known)
    posterior = result.point.posterior.moved(messages.mean)
    point = result.point._replace(posterior=posterior, eta=messages.eta)
    passes = result.history[-1].passes + messages.rounds
    return width_taken(*known), point, known, passes
