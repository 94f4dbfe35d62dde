"""Confidence intervals of a fitted hidden Markov model."""

import warnings
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri
from sklearn.base import clone

from skvrem.hmm._inference import explain_impossible
from skvrem.hmm._model_gradient import differences
from skvrem.hmm.emissions._coordinates import SCALES
from skvrem.hmm.forward_backward._model_passes import Impossible
from skvrem.hmm.forward_backward._source import of_sequences
from skvrem.utils._parallel import threads

__all__ = ["HMMIntervals", "Intervals"]

# Information about a direction, in squared units of the coordinates, below which it is
# that of none: a standard error of 30 on the scale of logarithms.
LEAST = 1e-3


class Limits(NamedTuple):
    """A number for every parameter, in the shapes of the fitted attributes.

    With `Hierarchical` transitions ``transmat`` has two matrices, within and between
    segments; with `Covariates` it has in its last axis the intercept and then a
    coefficient for each of them.
    """

    startprob: np.ndarray
    transmat: np.ndarray
    emission: Any


class Intervals(NamedTuple):
    """Confidence intervals, NaN where there is none.

    Attributes
    ----------
    lower, upper, standard_error : Limits
        Each with ``startprob``, ``transmat`` and ``emission``, an emission family whose
        fitted attributes (``emission.mean_``) are the limits.
    """

    lower: Limits
    upper: Limits
    standard_error: Limits


class HMMIntervals:
    """What the curvature of the likelihood says of a fitted model."""

    @of_sequences
    def confidence_intervals(
        self, X, level=0.95, *, sample_weight=None, groups=None, lengths=None
    ):
        """Return confidence intervals of the parameters, from the rows of the fit.

        The Hessian of the log-likelihood, and of priors where there are any, is taken
        by central differences of its exact gradient in free coordinates. Standard
        errors follow by the delta method. Intervals are symmetric on the scale of
        a parameter and are transformed back: logarithms of what is positive, log-odds
        of probabilities, real numbers as they are. So they hold no impossible value.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows of sequences, one after another: those that the model was fitted to.
        level : float, default=0.95
            Probability that an interval covers the true value, where there are many
            rows.
        sample_weight : array-like of shape (n_samples,), default=None
            The same for all rows of a sequence.
        {ids}

        Returns
        -------
        intervals : Intervals
            Named tuple of `lower`, `upper` and `standard_error`. What is fixed or
            masked has a standard error of 0.

        Warns
        -----
        UserWarning
            If the rows say nothing of some parameters, as at a boundary (a transition
            of probability 0, the first state of a single sequence) or where states
            are alike. These are NaN.

        Examples
        --------
        >>> import numpy as np
        >>> from skvrem import VRHMM
        >>> X = np.random.default_rng(0).normal(size=(400, 1))
        >>> intervals = VRHMM().fit(X).confidence_intervals(X)
        >>> intervals.standard_error.emission.mean_.round(3)  # sd / 20
        array([[0.05]])
        >>> bool(intervals.lower.emission.mean_ < 0.0 < intervals.upper.emission.mean_)
        True
        """
        number = isinstance(level, Real) and not isinstance(level, bool)
        if not (number and 0.0 < level < 1.0):
            raise ValueError(f"level must lie between 0 and 1, got {level!r}.")
        parameters = self._parameters()
        with threads(self.n_jobs):
            sequences, data, model = self._open(
                X, groups, lengths, sample_weight, None, first=False
            )
            point = model.start(parameters)
            vector = model.free(parameters)

            def gradient(moved):
                at = point._replace(parameters=model.bind(moved, parameters))
                return model.gradient(at, model.mean(at, data)) * model.total

            try:
                hessian = differences(gradient, vector)
            except Impossible as error:
                raise explain_impossible(error, sequences) from None
        errors = _standard_errors(model, parameters, vector, hessian)
        values, scales = _flatten(model, parameters)
        if np.isnan(errors).any():
            warnings.warn(
                f"The rows say nothing of {int(np.isnan(errors).sum())} of the "
                f"{errors.size} parameters: they are at a boundary, as a probability "
                "of 0, or the states are alike. Their intervals are NaN.",
                UserWarning,
                stacklevel=2,
            )
        reach = ndtri(0.5 + 0.5 * level) * errors
        centre = _rescale(values, scales, "to")
        # Of what is fixed nothing but itself, not what a scale makes of it.
        ends = [
            np.where(reach == 0.0, values, _rescale(centre + way, scales, "back"))
            for way in (-reach, reach)
        ]
        on_scale = errors * _rates(values, scales)
        return Intervals(
            *(self._limits(model, parameters, v) for v in (*ends, on_scale))
        )

    def _limits(self, model, parameters, values):
        sizes = [part.size for part in parameters]
        start, transmat, packed = np.split(values, np.cumsum(sizes)[:-1])
        emission = clone(model.emission)
        vars(emission).update(vars(model.emission))
        emission.publish(packed.reshape(parameters.emission.shape), float)
        return Limits(start, transmat.reshape(parameters.transmat.shape), emission)


def _flatten(model, parameters):
    """All parameters as one vector, and their scales."""
    start, transmat, emission = parameters
    transmat = model.transitions.natural(transmat)
    values = np.concatenate([np.ravel(p) for p in (start, transmat, emission)])
    scales = np.tile(np.asarray(model.emission.scales()), len(emission))
    of_chain = ["probability"] * start.size + [model.transitions.scale] * transmat.size
    return values, np.append(of_chain, scales)


def _rescale(values, scales, way):
    out = np.empty_like(values)
    for name in np.unique(scales):
        chosen = scales == name
        out[chosen] = getattr(SCALES[name], way)(values[chosen])
    return out


def _rates(values, scales):
    """Change of the parameters with their coordinates."""
    slopes = {"real": 1.0, "positive": values, "probability": values * (1.0 - values)}
    return np.choose(
        [list(slopes).index(name) for name in scales],
        [np.broadcast_to(slope, values.shape) for slope in slopes.values()],
    )


def _standard_errors(model, parameters, vector, hessian):
    """Standard errors on the scales of the parameters, NaN where there are none."""
    information = -0.5 * (hessian + hessian.T)
    values, vectors = np.linalg.eigh(information)
    known = values > LEAST
    _, scales = _flatten(model, parameters)

    def on_scale(moved):
        at = model.bind(moved, parameters)
        return _rescale(_flatten(model, at)[0], scales, "to")

    jacobian = differences(on_scale, vector)
    if not vector.size:
        return np.zeros(len(scales))
    spread = jacobian @ (vectors[:, known] / np.sqrt(values[known]))
    errors = np.sqrt(np.square(spread).sum(axis=1))
    lost = np.abs(jacobian @ vectors[:, ~known]).max(axis=1, initial=0.0) > 1e-3
    return np.where(lost, np.nan, errors)
