"""What a fitted hidden Markov model says of rows: those seen, and those to come."""

from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from skvrem.hmm._input import (
    check_inputs,
    find_columns,
    fitted_parameters,
    naming_impossible,
    open_rows,
    ready,
    split_columns,
)
from skvrem.hmm._intervals import probability_bands
from skvrem.hmm.emissions._coordinates import bounded_log
from skvrem.hmm.forward_backward._model_passes import stationary
from skvrem.hmm.forward_backward._model_viterbi import draw_paths, most_probable_paths
from skvrem.utils._parallel import threads
from skvrem.utils._validation import as_generator

TINY = np.finfo(float).tiny


def run(estimator, X, groups, lengths, backward=False):
    """Run over rows; return the sequences and the passes."""
    estimator = ready(estimator, X)
    sequences, data, model = open_rows(estimator, X, groups=groups, lengths=lengths)
    parameters = fitted_parameters(estimator)
    passes = model.passes(parameters, data.whole(), by_row=True)
    with threads(estimator.n_jobs), naming_impossible(sequences):
        passes.forward()
        if backward:
            passes.backward()
    return sequences, passes


def log_likelihood(estimator, X, *given):
    """Return the log-likelihood of weighted sequences, and the weight of rows."""
    estimator = ready(estimator, X)
    sequences, data, model = open_rows(estimator, X, *given)
    with threads(estimator.n_jobs), naming_impossible(sequences):
        total = model.log_likelihood(fitted_parameters(estimator), data)
    return total, data.total_weight


def most_probable_path(estimator, X, groups, lengths):
    """Return the log-probability of the rows and their likeliest paths, and these."""
    estimator = ready(estimator, X)
    sequences, data, model = open_rows(estimator, X, groups=groups, lengths=lengths)
    parameters = fitted_parameters(estimator)
    chain = model.chain(parameters)
    tables, which = model.transitions.tables(parameters.transmat, sequences.inputs)
    logs = bounded_log(chain.start), bounded_log(tables)
    with threads(estimator.n_jobs):
        states, scores = most_probable_paths(data.rows, chain, *logs, which)
    if scores.min() < -1e99:
        run(estimator, X, groups, lengths)  # says which row
    return float(scores.sum()), states


def state_probabilities(estimator, X, groups, lengths, smoothed):
    """Return the states' probabilities, given the whole sequence or up to each row."""
    sequences, passes = run(estimator, X, groups, lengths, smoothed)
    probabilities = passes.smoothed() if smoothed else passes.filtered()
    probabilities = np.maximum(probabilities, 0.0)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    return probabilities.astype(sequences.X.dtype, copy=False)


class Forecast(NamedTuple):
    """Distribution of the rows to come after the end of each sequence.

    Attributes
    ----------
    states : ndarray of shape (n_sequences, horizon, n_components)
        Probabilities of the states.
    mean, sd : ndarray of shape (n_sequences, horizon, n_features)
        Mean and standard deviation of the features that states emit, the spread between
        states included. Categories are numbers here.
    probability : ndarray of shape (n_sequences, horizon, n_categories), or None
        Of categories; of a `Product` a dict of such arrays by name of the part.
    """

    states: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    probability: Any = None


def forecast(estimator, X, horizon, groups, lengths, inputs, covariates):
    """Return the distribution of the rows after the end of each sequence."""
    whole = isinstance(horizon, Real) and not isinstance(horizon, bool)
    if not (whole and horizon == np.floor(horizon) and 1 <= horizon < np.inf):
        raise ValueError(f"horizon must be an integer of at least 1, got {horizon!r}.")
    estimator = ready(estimator, X)
    sequences, passes = run(estimator, X, groups, lengths)
    filtered = passes.filtered()
    ends, horizon = sequences.bounds[1:] - 1, int(horizon)
    emission, transitions = estimator.emission_, estimator.transitions_
    parameters = fitted_parameters(estimator)
    rows = np.repeat(passes.layout.rows.X[ends], horizon, axis=0)
    future = _future_inputs(transitions, inputs, len(ends), horizon)
    if covariates is not None:
        if inputs is not None:
            raise ValueError("Give covariates or inputs of a forecast, not both.")
        rows, future = _rows_ahead(estimator, covariates, len(ends), horizon)
    moments = emission.moments_at(parameters.emission, rows)
    shape = len(ends), horizon
    mean, variance = (part.reshape(*shape, *part.shape[1:]) for part in moments)
    # What states emit of what transitions depend on.
    emitted = None
    if transitions.observed:
        emitted = emission.moments(parameters.emission)[0][:, input_places(estimator)]
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
    expected = np.einsum("thk,thkd->thd", states, mean)
    second = np.einsum("thk,thkd->thd", states, variance + np.square(mean))
    spread = np.sqrt(np.maximum(second - np.square(expected), 0.0))

    def mixed(shares):
        shares = shares.reshape(*shape, *shares.shape[1:])
        return np.einsum("thk,thkc->thc", states, shares)

    shares = emission.probabilities_at(parameters.emission, rows)
    if isinstance(shares, dict):
        shares = {name: mixed(own) for name, own in shares.items()}
    elif shares is not None:
        shares = mixed(shares)
    return Forecast(states, expected, spread, shares)


def _rows_ahead(estimator, covariates, n_sequences, horizon):
    """Return the rows ahead as the emissions want them, and inputs of transitions."""
    observed, inputs, _ = split_columns(
        estimator, estimator._of_fit, covariates, reset=False
    )
    if len(observed) != n_sequences * horizon:
        raise ValueError(
            f"covariates of a forecast must be the {horizon} rows ahead of each of the "
            f"{n_sequences} sequences, one sequence after another, with the columns of "
            f"X: {n_sequences * horizon} rows, got {len(observed)}."
        )
    if inputs is not None:
        inputs = inputs.reshape(n_sequences, horizon, -1)[:, :-1]
        estimator.transitions_.check_inputs(inputs.reshape(-1, inputs.shape[2]))
        if not np.isfinite(inputs).all():
            raise ValueError(
                "covariates of a forecast must be finite but for the last."
            )
    return estimator.emission_.enter(observed), inputs


def input_places(estimator):
    """Numbers, among the emitted columns, of inputs that are emitted too."""
    places, emits = find_columns(estimator), estimator.emission_.emits
    emitted = [places.observed[j] for j in emits]
    return [emitted.index(j) for j in places.inputs]


def _future_inputs(transitions, inputs, n_sequences, horizon):
    """Return the inputs of rows ahead, of every sequence, or None."""
    if inputs is None:
        return None
    shape = n_sequences, horizon - 1, len(transitions.columns)
    inputs = np.asarray(inputs, dtype=object if transitions.text_levels else float)
    if shape[2] == 0 or inputs.shape not in (shape, shape[1:]):
        raise ValueError(
            "inputs of a forecast are what transitions depend on in the rows ahead "
            f"but the last, of shape {shape} or {shape[1:]}, got {inputs.shape}."
        )
    inputs = transitions.read(inputs.reshape(-1, shape[2]), "inputs")
    inputs = np.broadcast_to(inputs.reshape(-1, *shape[1:]), shape)
    transitions.check_inputs(inputs.reshape(-1, shape[2]))
    return inputs


def pseudo_residuals(estimator, X, groups, lengths):
    """Return how each value lies in its distribution given the rows before it."""
    estimator = ready(estimator, X)
    sequences, passes = run(estimator, X, groups, lengths)
    filtered = passes.filtered()
    emission, inputs = estimator.emission_, sequences.inputs
    parameters = fitted_parameters(estimator)
    predicted = np.empty_like(filtered)
    before = None if inputs is None else inputs[:-1]
    predicted[1:] = estimator.transitions_.steps(
        parameters.transmat, filtered[:-1], before
    )
    predicted[sequences.bounds[:-1]] = parameters.startprob
    rows = np.asarray(passes.layout.rows.X, np.float64)
    known = np.where(np.isnan(rows), 0.0, rows)
    # Missing is as well what depends on a covariate that is.
    residuals = rows[:, emission.value_places()]
    for j, column in enumerate(residuals.T):
        tails = emission.tails_at(known, j, parameters.emission)
        # Of each tail the one that keeps its digits.
        lower, upper = ((predicted * tail).sum(axis=1) for tail in tails)
        low = lower < upper
        tail = ndtri(np.clip(np.where(low, lower, upper), TINY, 0.5))
        column[:] = np.where(np.isnan(column), np.nan, np.where(low, tail, -tail))
    return residuals


def sample_states(estimator, X, n_paths, random_state, groups, lengths):
    """Draw paths of states from their distribution given the rows."""
    _check_count(n_paths, "n_paths")
    estimator = ready(estimator, X)
    sequences, passes = run(estimator, X, groups, lengths)
    filtered = passes.log_filtered()
    parameters = fitted_parameters(estimator)
    tables, which = estimator.transitions_.tables(parameters.transmat, sequences.inputs)
    uniform = _generator(estimator, random_state).random((int(n_paths), len(filtered)))
    with threads(estimator.n_jobs):
        return draw_paths(filtered, sequences.bounds, tables, which, uniform)


def _check_count(value, name):
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not (whole and value >= 1):
        raise ValueError(f"{name} must be an integer of at least 1, got {value!r}.")


def _generator(estimator, random_state):
    seed = estimator.random_state if random_state is None else random_state
    return as_generator(seed)


def sample(estimator, n_samples, random_state, inputs, covariates, lengths, currstate):
    """Draw sequences from a model; return their rows and states."""
    estimator = ready(estimator, covariates)
    parameters = fitted_parameters(estimator)
    _check_count(n_samples, "n_samples")
    rng = _generator(estimator, random_state)
    emission, transitions = estimator.emission_, estimator.transitions_
    lengths = [n_samples] if lengths is None else np.asarray(lengths)
    for length in lengths:
        _check_count(length, "Every one of lengths")
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    n_samples, packed = int(bounds[-1]), parameters.transmat
    begins = _check_states(currstate, len(lengths), len(parameters.startprob))
    rows = None
    if covariates is not None:
        rows, inputs = _rows_given(estimator, covariates, n_samples, inputs)
    elif len(emission.emits) < len(find_columns(estimator).observed):
        raise ValueError(
            "Emissions depend on columns of X: give rows that hold them as covariates."
        )
    u, states = rng.random(n_samples), np.empty(n_samples, np.int64)
    start = np.cumsum(parameters.startprob)
    first = dict(zip(bounds[:-1].tolist(), begins, strict=True))
    if transitions.columns and inputs is None and transitions.observed:
        # Row by row, as transitions depend on what has been drawn.
        X = np.empty((n_samples, len(emission.emits)))
        places, edges = input_places(estimator), start
        for t in range(n_samples):
            edges = start if t in first else edges
            states[t] = _interval(edges, u[t], first.get(t))
            at = None if rows is None else rows[t : t + 1]
            X[t] = _draw(emission, parameters, states[t : t + 1], rng, at)
            tables, which = transitions.tables(packed, X[t : t + 1, places])
            edges = np.cumsum(tables[which[0], states[t]])
        return X, states
    if transitions.columns:
        if covariates is None:
            inputs = _read_inputs(transitions, inputs, n_samples)
        inputs = check_inputs(transitions, inputs, bounds, ends=False)
    tables, which = transitions.tables(packed, inputs)
    after, edges = np.cumsum(tables, axis=2), start
    for t in range(n_samples):
        edges = start if t in first else edges
        states[t] = _interval(edges, u[t], first.get(t))
        edges = after[which[t] if which.size else 0, states[t]]
    return _draw(emission, parameters, states, rng, rows), states


def _draw(emission, parameters, states, rng, rows):
    if rows is None:
        return emission.draw(parameters.emission, states, rng)
    return emission.draw_at(parameters.emission, states, rng, rows)


def _rows_given(estimator, covariates, n_samples, inputs):
    """Return rows as the emissions want them, and inputs of transitions."""
    if inputs is not None:
        raise ValueError("Give covariates or inputs, not both.")
    observed, inputs, _ = split_columns(
        estimator, estimator._of_fit, covariates, reset=False
    )
    if len(observed) != n_samples:
        raise ValueError(
            f"covariates must have a row for each of the {n_samples} to be drawn, got "
            f"{len(observed)}."
        )
    if estimator.transitions_.observed:
        inputs = None
    return estimator.emission_.enter(observed), inputs


def _check_states(currstate, n_sequences, n):
    """Return the first state of every sequence, or None for each."""
    if currstate is None:
        return [None] * n_sequences
    states = np.asarray(currstate)
    whole = states.dtype.kind in "iu" and states.shape in ((), (n_sequences,))
    if not (whole and states.min() >= 0 and states.max() < n):
        raise ValueError(
            f"currstate must be a state from 0 to {n - 1}, or one for each of the "
            f"{n_sequences} sequences, got {currstate!r}."
        )
    return np.broadcast_to(states, n_sequences).tolist()


def _read_inputs(transitions, inputs, n_samples):
    shape = n_samples, len(transitions.columns)
    text = transitions.text_levels
    inputs = np.asarray(inputs, dtype=object if text else float)
    inputs = inputs[:, None] if inputs.ndim == 1 else inputs
    if inputs.shape == shape:
        inputs = transitions.read(inputs, "inputs")
    if inputs.shape != shape or np.isnan(inputs).all():
        raise ValueError(
            f"Transitions depend on the columns {list(transitions.columns)} of X: "
            f"give them as inputs, an array of shape {shape}."
        )
    return inputs


def _interval(edges, u, known=None):
    """Number of the interval that u, in [0, 1), falls into, where it is not known."""
    if known is not None:
        return known
    # Rounding may leave the last sum below 1.
    place = np.searchsorted(edges, u * edges[-1], side="right")
    return min(place, len(edges) - 1)


def long_run(matrices):
    """Return the stationary distribution of every matrix, (n_rows, n_states)."""
    return np.stack([stationary(np.asarray(own, float)) for own in matrices])


def along(estimator, covariates, function, X, level, given):
    """Return what a function makes of transitions along covariates, or its bands."""
    estimator = ready(estimator)
    transitions = estimator.transitions_
    Z = _inputs_along(transitions, covariates)
    if X is not None:
        return probability_bands(estimator, function, Z, X, level, given)
    return function(transitions.matrices(fitted_parameters(estimator).transmat, Z))


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
