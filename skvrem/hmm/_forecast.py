"""What a fitted hidden Markov model expects: the next rows, and how well it did."""

from numbers import Real
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from skvrem.hmm._inference import filtered_states
from skvrem.hmm._opening import find_columns, fitted_parameters

__all__ = ["Forecast", "forecast", "input_places", "pseudo_residuals"]

TINY = np.finfo(float).tiny


class Forecast(NamedTuple):
    """Distribution of the rows to come after the end of each sequence.

    Attributes
    ----------
    states : ndarray of shape (n_sequences, horizon, n_components)
        Probabilities of the states.
    mean, sd : ndarray of shape (n_sequences, horizon, n_features)
        Mean and standard deviation of the observed features, the spread between
        states included. Categories are numbers here: see `states`.
    """

    states: np.ndarray
    mean: np.ndarray
    sd: np.ndarray


def forecast(estimator, X, horizon, groups, lengths, inputs):
    """Return the distribution of the rows after the end of each sequence."""
    whole = isinstance(horizon, Real) and not isinstance(horizon, bool)
    if not (whole and horizon == np.floor(horizon) and 1 <= horizon < np.inf):
        raise ValueError(f"horizon must be an integer of at least 1, got {horizon!r}.")
    sequences, filtered = filtered_states(estimator, X, groups, lengths)
    ends, horizon = sequences.bounds[1:] - 1, int(horizon)
    emission, transitions = estimator.emission_, estimator.transitions_
    parameters = fitted_parameters(estimator)
    mean, variance = emission.moments(parameters.emission)
    future = _future_inputs(transitions, inputs, len(ends), horizon)
    # What states emit of what transitions depend on.
    emitted = mean[:, input_places(estimator)] if transitions.observed else None
    packed, state = parameters.transmat, filtered[ends]
    last = None if sequences.inputs is None else sequences.inputs[ends]
    states = np.empty((len(state), horizon, state.shape[1]))
    for step in range(horizon):
        if step and future is None:
            state = transitions.ahead(packed, state, last, emitted)
        else:
            known = future[:, step - 1] if step else last
            state = transitions.steps(packed, state, known)
        states[:, step] = state
    expected = states @ mean
    second = states @ (variance + np.square(mean))
    spread = np.sqrt(np.maximum(second - np.square(expected), 0.0))
    return Forecast(states, expected, spread)


def input_places(estimator):
    """Numbers, among the observed columns, of inputs that are observed too."""
    places = find_columns(estimator)
    return [places.observed.index(j) for j in places.inputs]


def _future_inputs(transitions, inputs, n_sequences, horizon):
    """Return the inputs of rows ahead, of every sequence, or None."""
    if inputs is None:
        return None
    shape = n_sequences, horizon - 1, len(transitions.columns)
    inputs = np.asarray(inputs, float)
    if shape[2] == 0 or inputs.shape not in (shape, shape[1:]):
        raise ValueError(
            "inputs of a forecast are what transitions depend on in the rows ahead "
            f"but the last, of shape {shape} or {shape[1:]}, got {inputs.shape}."
        )
    inputs = np.broadcast_to(inputs, shape)
    transitions.check_inputs(inputs.reshape(-1, shape[2]))
    return inputs


def pseudo_residuals(estimator, X, groups, lengths):
    """Return how each value lies in its distribution given the rows before it."""
    sequences, filtered = filtered_states(estimator, X, groups, lengths)
    parameters, inputs = fitted_parameters(estimator), sequences.inputs
    predicted = np.empty_like(filtered)
    before = None if inputs is None else inputs[:-1]
    predicted[1:] = estimator.transitions_.steps(
        parameters.transmat, filtered[:-1], before
    )
    predicted[sequences.bounds[:-1]] = parameters.startprob
    rows = np.asarray(sequences.X, np.float64)
    known = np.where(np.isnan(rows), 0.0, rows)
    residuals = np.empty_like(rows)
    for j, column in enumerate(known.T):
        tails = estimator.emission_.tails(column, j, parameters.emission)
        # Of each tail the one that keeps its digits.
        lower, upper = ((predicted * tail).sum(axis=1) for tail in tails)
        low = lower < upper
        tail = ndtri(np.clip(np.where(low, lower, upper), TINY, 0.5))
        residuals[:, j] = np.where(low, tail, -tail)
    return np.where(np.isnan(rows), np.nan, residuals)
