"""Confidence intervals of a fitted model, and its hidden chain along covariates."""

import warnings
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri
from sklearn.utils.validation import check_is_fitted

from skvrem.hmm._input import fitted_parameters, naming_impossible, open_rows, ready
from skvrem.hmm._model import differences
from skvrem.hmm.emissions._base import published
from skvrem.hmm.emissions._coordinates import SCALES, rescale
from skvrem.hmm.forward_backward._model_passes import stationary
from skvrem.utils._algebra import pieces
from skvrem.utils._parallel import threads

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


class Band(NamedTuple):
    """Probabilities along covariates, and confidence intervals of each.

    Attributes
    ----------
    estimate, lower, upper, standard_error : ndarray
        Of one shape.
    """

    estimate: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    standard_error: np.ndarray


def confidence_intervals(
    self, X, level=0.95, *, sample_weight=None, groups=None, lengths=None
):
    """Return confidence intervals of the parameters, from the rows of the fit.

    The Hessian of the log-likelihood, and of priors where there are any, is taken
    by central differences of its exact gradient in free coordinates. Standard
    errors follow by the delta method. Intervals are symmetric on the scale of
    a parameter and are transformed back: logarithms of what is positive, log-odds
    of probabilities, real numbers as they are. So they hold no impossible value.

    Those of angles, as of the mean directions of `VonMises`, are the estimate less and
    plus as much, not wrapped: an end may lie beyond -pi or pi, and the lower one is
    below the upper. Where they would go round, or the rows say nothing of the angle,
    as with a concentration of 0, they are the whole circle, the estimate less and plus
    pi; the standard error is as it was found.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Rows of sequences, one after another: those that the model was fitted to.
    level : float, default=0.95
        Probability that an interval covers the true value, where there are many
        rows.
    sample_weight : array-like of shape (n_samples,), default=None
        The same for all rows of a sequence.
    groups : array-like of shape (n_samples,), default=None
        The id of each row's sequence; None is one sequence.
    lengths : array-like of int, default=None
        Lengths of the sequences, in place of `groups`.

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
        are alike. These are NaN, but for the ends of angles, see above.

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
    given = sample_weight, groups, lengths
    model, parameters, vector, hessian = _curvature(self, X, level, given)
    values, scales = _flatten(model, parameters)

    angles = scales == "direction"

    def on_scale(moved):
        at = model.bind(moved, parameters)
        at = rescale(_flatten(model, at)[0], scales, "to")
        # One that has been wrapped is a turn away from where it would have come to.
        near = values + SCALES["direction"].back(at - values)
        return np.where(angles, near, at)

    errors = _errors(on_scale, vector, hessian, len(scales))
    if np.isnan(errors).any():
        turns = ", of angles the whole circle" if np.isnan(errors[angles]).any() else ""
        warnings.warn(
            f"The rows say nothing of {int(np.isnan(errors).sum())} of the "
            f"{errors.size} parameters: they are at a boundary, as a probability "
            f"of 0, or the states are alike. Their intervals are NaN{turns}.",
            UserWarning,
            stacklevel=2,
        )
    found = _interval(values, scales, errors, level)
    return Intervals(*(_limits(model, parameters, part) for part in found))


def _flatten(model, parameters):
    """All parameters as one vector, and their scales."""
    start, transmat, emission = parameters
    transmat = model.transitions.natural(transmat)
    values = np.concatenate([np.ravel(p) for p in (start, transmat, emission)])
    scales = np.tile(np.asarray(model.emission.scales()), len(emission))
    of_chain = ["probability"] * start.size + [model.transitions.scale] * transmat.size
    scales = np.append(of_chain, scales)
    # However a family moves its angles, their intervals are alike.
    return values, np.where(scales == "angle", "direction", scales)


def _limits(model, parameters, values):
    parts = pieces(values, [part.size for part in parameters])
    start, transmat, packed = map(np.reshape, parts, map(np.shape, parameters))
    return Limits(start, transmat, published(model.emission, packed, float))


def transition_proba(
    self,
    covariates=None,
    *,
    X=None,
    level=0.95,
    sample_weight=None,
    groups=None,
    lengths=None,
):
    """Return the probabilities of the next state, by the values of covariates.

    Parameters
    ----------
    covariates : array-like of shape (n_rows, n_covariates), default=None
        The columns that transitions depend on, in their order, or a data frame
        that has them; None where there are none.
    X : array-like of shape (n_samples, n_features), default=None
        Rows that the model was fitted to: for confidence intervals.
    level : float, default=0.95
        That of the intervals.
    sample_weight, groups, lengths : array-like, default=None
        Of X, as given to the fit.

    Returns
    -------
    probabilities : ndarray of shape (n_rows, n_components, n_components), or Band
        Of the state in the last axis after that in the one before. With X a named
        tuple of `estimate`, `lower`, `upper` and `standard_error`: intervals by
        the delta method, symmetric on the scale of log-odds.

    Examples
    --------
    >>> import numpy as np
    >>> from skvrem import VRHMM
    >>> X = np.repeat([[0.0], [5.0], [0.0]], 30, axis=0)
    >>> X += np.random.default_rng(0).normal(size=X.shape)
    >>> hmm = VRHMM(2, random_state=0).fit(X)
    >>> band = hmm.transition_proba(X=X)
    >>> bool((band.lower < band.estimate).all())
    True
    """
    given = sample_weight, groups, lengths
    return _along(self, covariates, np.asarray, X, level, given)


def stationary_proba(
    self,
    covariates=None,
    *,
    X=None,
    level=0.95,
    sample_weight=None,
    groups=None,
    lengths=None,
):
    """Return how often states are in the long run, by the values of covariates.

    The stationary distributions of the matrices of :meth:`transition_proba`: of a
    chain whose covariates stayed as they are.

    Parameters
    ----------
    covariates : array-like of shape (n_rows, n_covariates), default=None
        The columns that transitions depend on, in their order, or a data frame
        that has them; None where there are none.
    X : array-like of shape (n_samples, n_features), default=None
        Rows that the model was fitted to: for confidence intervals.
    level : float, default=0.95
        That of the intervals.
    sample_weight, groups, lengths : array-like, default=None
        Of X, as given to the fit.

    Returns
    -------
    probabilities : ndarray of shape (n_rows, n_components), or Band
        With X a named tuple of `estimate`, `lower`, `upper` and `standard_error`.

    Examples
    --------
    >>> import numpy as np
    >>> from skvrem import VRHMM
    >>> X = np.repeat([[0.0], [5.0], [0.0]], 30, axis=0)
    >>> X += np.random.default_rng(0).normal(size=X.shape)
    >>> VRHMM(2, random_state=0).fit(X).stationary_proba().shape
    (1, 2)
    """
    given = sample_weight, groups, lengths
    return _along(self, covariates, long_run, X, level, given)


def long_run(matrices):
    """Return the stationary distribution of every matrix, (n_rows, n_states)."""
    return np.stack([stationary(np.asarray(own, float)) for own in matrices])


def _along(estimator, covariates, function, X, level, given):
    """Return what a function makes of transitions along covariates, or its bands.

    Parameters
    ----------
    estimator : VRHMM
    covariates : array-like of shape (n_rows, n_covariates), or None
    function : callable
        Makes an array of probabilities of matrices (n_rows, n_states, n_states).
    X : array-like, or None
        The rows of the fit, for bands.
    level : float
    given : tuple
        Weights, groups and lengths of X.
    """
    estimator = ready(estimator)
    transitions = estimator.transitions_
    Z = _inputs_along(transitions, covariates)
    if X is None:
        return function(transitions.matrices(fitted_parameters(estimator).transmat, Z))
    model, parameters, vector, hessian = _curvature(estimator, X, level, given)

    def value(packed):
        return function(model.transitions.matrices(packed, Z))

    estimate = value(parameters.transmat)
    scales = ["probability"] * estimate.size

    def on_scale(moved):
        packed = model.bind(moved, parameters).transmat
        return rescale(value(packed).ravel(), scales, "to")

    errors = _errors(on_scale, vector, hessian, estimate.size)
    found = _interval(estimate.ravel(), scales, errors, level)
    return Band(estimate, *(part.reshape(estimate.shape) for part in found))


def _inputs_along(transitions, covariates):
    """Return inputs of transitions, checked."""
    if not transitions.columns:
        if covariates is not None:
            raise ValueError("These transitions depend on no columns of X.")
        return np.zeros((1, 0))
    Z = transitions.read(covariates, "covariates")
    if not np.isfinite(Z).all():
        raise ValueError("covariates must be finite, and not missing.")
    return transitions.check_inputs(Z)


def _curvature(estimator, X, level, given):
    """Return model, parameters, their free coordinates, and the Hessian there."""
    number = isinstance(level, Real) and not isinstance(level, bool)
    if not (number and 0.0 < level < 1.0):
        raise ValueError(f"level must lie between 0 and 1, got {level!r}.")
    check_is_fitted(estimator)
    sequences, data, model = open_rows(estimator, X, None, *given)
    parameters = fitted_parameters(estimator)
    point, vector = model.start(parameters), model.free(parameters)

    def gradient(moved):
        at = point._replace(parameters=model.bind(moved, parameters))
        return model.gradient(at, model.mean(at, data)) * model.total

    with threads(estimator.n_jobs), naming_impossible(sequences):
        return model, parameters, vector, differences(gradient, vector)


def _errors(function, vector, hessian, size):
    """Standard errors of what a function makes of coordinates, NaN where none."""
    if not vector.size:
        return np.zeros(size)
    information = -0.5 * (hessian + hessian.T)
    values, vectors = np.linalg.eigh(information)
    known = values > LEAST
    jacobian = differences(function, vector)
    spread = jacobian @ (vectors[:, known] / np.sqrt(values[known]))
    errors = np.sqrt(np.square(spread).sum(axis=1))
    lost = np.abs(jacobian @ vectors[:, ~known]).max(axis=1, initial=0.0) > 1e-3
    return np.where(lost, np.nan, errors)


def _interval(values, scales, errors, level):
    """Return lower and upper ends, and standard errors, from those on the scales."""
    reach = ndtri(0.5 + 0.5 * level) * errors
    centre, angles = rescale(values, scales, "to"), np.asarray(scales) == "direction"
    reach = np.where(angles, np.fmin(reach, np.pi), reach)  # all of it where NaN
    ends = np.where(angles, "real", scales)  # they are not wrapped
    # Of what is fixed nothing but itself, not what a scale makes of it.
    low, high = (
        np.where(reach == 0.0, values, rescale(centre + way, ends, "back"))
        for way in (-reach, reach)
    )
    return low, high, errors * rescale(values, scales, "rate")
