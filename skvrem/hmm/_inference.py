"""What a fitted hidden Markov model says of rows: those seen, and those to come."""

from numbers import Integral, Real
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri
from sklearn.utils import check_random_state

from skvrem.hmm._input import (
    find_columns,
    fitted_parameters,
    naming_impossible,
    open_rows,
)
from skvrem.utils._parallel import threads

TINY = np.finfo(float).tiny


def run(estimator, X, groups, lengths, backward=False):
    """Run over rows; return the sequences and the passes."""
    sequences, data, model = open_rows(estimator, X, groups=groups, lengths=lengths)
    parameters = fitted_parameters(estimator)
    passes = model.passes(parameters, data.whole(), by_row=True)
    with threads(estimator.n_jobs), naming_impossible(sequences):
        passes.forward()
        if backward:
            passes.backward()
    return sequences, passes


def filtered_states(estimator, X, groups, lengths):
    """Return sequences, and the states' probabilities given what is up to each row."""
    sequences, passes = run(estimator, X, groups, lengths)
    return sequences, passes.layout.gather(passes.alpha, passes.n)


def state_probabilities(estimator, X, groups, lengths, smoothed):
    """Return the states' probabilities, given the whole sequence or up to each row."""
    sequences, passes = run(estimator, X, groups, lengths, smoothed)
    laid = passes.posteriors if smoothed else passes.alpha
    probabilities = np.maximum(passes.layout.gather(laid, passes.n), 0.0)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    return probabilities.astype(sequences.X.dtype, copy=False)


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


def sample(estimator, n_samples, random_state, inputs):
    """Draw a sequence from a fitted model; return its rows and states."""
    parameters = fitted_parameters(estimator)
    whole = isinstance(n_samples, Integral) and not isinstance(n_samples, bool)
    if not (whole and n_samples >= 1):
        raise ValueError(
            f"n_samples must be an integer of at least 1, got {n_samples!r}."
        )
    seed = estimator.random_state if random_state is None else random_state
    rng = np.random.default_rng(check_random_state(seed).randint(2**31 - 1))
    u, states = rng.random(n_samples), np.empty(n_samples, np.int64)
    emission, transitions = estimator.emission_, estimator.transitions_
    edges, packed = np.cumsum(parameters.startprob), parameters.transmat
    if transitions.columns and inputs is None and transitions.observed:
        # Row by row, as transitions depend on what has been drawn.
        rows = np.empty((n_samples, emission.n_columns_))
        places = input_places(estimator)
        for t in range(n_samples):
            states[t] = _pick(edges, u[t])
            rows[t] = emission.draw(parameters.emission, states[t : t + 1], rng)
            tables, which = transitions.tables(packed, rows[t : t + 1, places])
            edges = np.cumsum(tables[which[0], states[t]])
        return rows, states
    if transitions.columns:
        inputs = _check_inputs(transitions, inputs, n_samples)
    tables, which = transitions.tables(packed, inputs)
    after = np.cumsum(tables, axis=2)
    for t in range(n_samples):
        states[t] = _pick(edges, u[t])
        edges = after[which[t] if which.size else 0, states[t]]
    return emission.draw(parameters.emission, states, rng), states


def _check_inputs(transitions, inputs, n_samples):
    shape = n_samples, len(transitions.columns)
    inputs = np.asarray(np.nan if inputs is None else inputs, float)
    inputs = inputs[:, None] if inputs.ndim == 1 else inputs
    if inputs.shape != shape or not np.isfinite(inputs).all():
        raise ValueError(
            f"Transitions depend on the columns {list(transitions.columns)} of X: "
            f"give them as inputs, an array of shape {shape}."
        )
    return transitions.check_inputs(inputs)


def _pick(edges, u):
    """Number of the interval that u, in [0, 1), falls into."""
    # Rounding may leave the last sum below 1.
    place = np.searchsorted(edges, u * edges[-1], side="right")
    return min(place, len(edges) - 1)
