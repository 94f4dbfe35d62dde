"""Confidence intervals of a fitted hidden Markov model."""

import warnings
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri
from sklearn.utils.validation import check_is_fitted

from skvrem.hmm._input import fitted_parameters, naming_impossible, open_rows
from skvrem.hmm._model_gradient import differences
from skvrem.hmm.emissions._base import published
from skvrem.hmm.emissions._coordinates import rescale
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


def _curvature(estimator, X, level, given):
    """Return model, parameters, their free coordinates, and the Hessian there."""
    number = isinstance(level, Real) and not isinstance(level, bool)
    if not (number and 0.0 < level < 1.0):
        raise ValueError(f"level must lie between 0 and 1, got {level!r}.")
    sequences, data, model = open_rows(estimator, X, **given)
    parameters = fitted_parameters(estimator)
    point, vector = model.start(parameters), model.free(parameters)

    def gradient(moved):
        at = point._replace(parameters=model.bind(moved, parameters))
        return model.gradient(at, model.mean(at, data)) * model.total

    with threads(estimator.n_jobs), naming_impossible(sequences):
        return model, parameters, vector, differences(gradient, vector)


def probability_bands(estimator, function, covariates, X, level, given):
    """Return what a function makes of transitions along covariates, with its bands.

    Parameters
    ----------
    estimator : VRHMM
    function : callable
        Makes an array of probabilities of matrices (n_rows, n_states, n_states).
    covariates : ndarray of shape (n_rows, n_covariates)
    X : array-like
        The rows of the fit.
    level : float
    given : dict
        What is given with X.
    """
    check_is_fitted(estimator)
    model, parameters, vector, hessian = _curvature(estimator, X, level, given)

    def value(packed):
        return function(model.transitions.matrices(packed, covariates))

    estimate = value(parameters.transmat)
    scales = ["probability"] * estimate.size

    def on_scale(moved):
        packed = model.bind(moved, parameters).transmat
        return rescale(value(packed).ravel(), scales, "to")

    errors = _errors(on_scale, vector, hessian, estimate.size)
    found = _interval(estimate.ravel(), scales, errors, level)
    return Band(estimate, *(part.reshape(estimate.shape) for part in found))


def _interval(values, scales, errors, level):
    """Return lower and upper ends, and standard errors, from those on the scales."""
    reach = ndtri(0.5 + 0.5 * level) * errors
    centre = rescale(values, scales, "to")
    # Of what is fixed nothing but itself, not what a scale makes of it.
    low, high = (
        np.where(reach == 0.0, values, rescale(centre + way, scales, "back"))
        for way in (-reach, reach)
    )
    return low, high, errors * rescale(values, scales, "rate")


def confidence_intervals(estimator, X, level, sample_weight, groups, lengths):
    """Return confidence intervals of the parameters, from the rows of the fit."""
    check_is_fitted(estimator)
    given = {"sample_weight": sample_weight, "groups": groups, "lengths": lengths}
    model, parameters, vector, hessian = _curvature(estimator, X, level, given)
    values, scales = _flatten(model, parameters)
    errors = _standard_errors(model, parameters, scales, vector, hessian)
    if np.isnan(errors).any():
        warnings.warn(
            f"The rows say nothing of {int(np.isnan(errors).sum())} of the "
            f"{errors.size} parameters: they are at a boundary, as a probability "
            "of 0, or the states are alike. Their intervals are NaN.",
            UserWarning,
            stacklevel=3,
        )
    found = _interval(values, scales, errors, level)
    return Intervals(*(_limits(model, parameters, part) for part in found))


def _limits(model, parameters, values):
    parts = pieces(values, [part.size for part in parameters])
    start, transmat, packed = map(np.reshape, parts, map(np.shape, parameters))
    return Limits(start, transmat, published(model.emission, packed, float))


def _flatten(model, parameters):
    """All parameters as one vector, and their scales."""
    start, transmat, emission = parameters
    transmat = model.transitions.natural(transmat)
    values = np.concatenate([np.ravel(p) for p in (start, transmat, emission)])
    scales = np.tile(np.asarray(model.emission.scales()), len(emission))
    of_chain = ["probability"] * start.size + [model.transitions.scale] * transmat.size
    return values, np.append(of_chain, scales)


def _standard_errors(model, parameters, scales, vector, hessian):
    """Standard errors on the scales of the parameters, NaN where there are none."""

    def on_scale(moved):
        at = model.bind(moved, parameters)
        return rescale(_flatten(model, at)[0], scales, "to")

    return _errors(on_scale, vector, hessian, len(scales))


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
