"""What a fitted hidden Markov model says of rows to come: forecasts and draws."""

from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from skvrem.hmm._inference import generator_of, mean_resultant, run
from skvrem.hmm._input import (
    check_inputs,
    find_columns,
    fitted_parameters,
    ready,
    split_columns,
)
from skvrem.utils._validation import check_size


class Forecast(NamedTuple):
    r"""Distribution of the rows to come after the end of each sequence.

    Attributes
    ----------
    states : ndarray of shape (n_sequences, horizon, n_components)
        Probabilities of the states.
    mean, sd : ndarray of shape (n_sequences, horizon, n_features)
        Mean and standard deviation of the features that states emit, the spread between
        states included. Categories are numbers here. Of angles, with the mean resultant
        vector :math:`R e^{i \mu}` of all states, the mean angle :math:`\mu` in
        :math:`(-\pi, \pi]` and the circular standard deviation
        :math:`\sqrt{-2 \log R}`, which is infinite where no angle is the mean.
    probability : ndarray of shape (n_sequences, horizon, n_categories), or None
        Of categories; of a `Product` a dict of such arrays by name of the part.
    """

    states: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    probability: Any = None


def forecast(
    self,
    X,
    horizon=1,
    *,
    groups=None,
    lengths=None,
    inputs=None,
    covariates=None,
):
    """Return the distribution of the rows after the end of each sequence.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Rows of sequences, one after another.
    horizon : int, default=1
        How many rows ahead.
    groups : array-like of shape (n_samples,), default=None
        The id of each row's sequence; None is one sequence.
    lengths : array-like of int, default=None
        Lengths of the sequences, in place of `groups`.
    inputs : array-like, default=None
        Where transitions depend on columns of X: these in the rows ahead but the
        last, shape (n_sequences, horizon - 1, n_inputs), or without the first axis
        where they are the same for all. None is as in the last row of a sequence
        with `Covariates`, and with `Hierarchical` the probability that the states
        emit them, or no boundary.
    covariates : array-like of shape (n_sequences * horizon, n_features), \
            default=None
        In place of `inputs`: the rows ahead of every sequence, one sequence after
        another, with the columns of X, of which those that transitions and
        emissions depend on are looked at. None is as in the last rows.

    Returns
    -------
    forecast : Forecast
        Named tuple of `states`, `mean`, `sd`, and of categories `probability`.

    Examples
    --------
    >>> import numpy as np
    >>> from skvrem import VRHMM
    >>> X = np.repeat([[0.0], [5.0], [0.0]], 30, axis=0)
    >>> X += np.random.default_rng(0).normal(size=X.shape)
    >>> hmm = VRHMM(2, random_state=0).fit(X)
    >>> hmm.forecast(X, horizon=3).mean.shape
    (1, 3, 1)
    """
    whole = isinstance(horizon, Real) and not isinstance(horizon, bool)
    if not (whole and horizon == np.floor(horizon) and 1 <= horizon < np.inf):
        raise ValueError(f"horizon must be an integer of at least 1, got {horizon!r}.")
    estimator = ready(self, X)
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
    expected, spread = _over_states(states, mean, variance, emission.angles())

    def mixed(shares):
        shares = shares.reshape(*shape, *shares.shape[1:])
        return np.einsum("thk,thkc->thc", states, shares)

    shares = emission.probabilities_at(parameters.emission, rows)
    if isinstance(shares, dict):
        shares = {name: mixed(own) for name, own in shares.items()}
    elif shares is not None:
        shares = mixed(shares)
    return Forecast(states, expected, spread, shares)


def _over_states(states, mean, variance, angles):
    """Return mean and standard deviation of what is emitted in any of the states."""

    def average(values):
        return np.einsum("thk,thkd->thd", states, values)

    expected = average(mean)
    second = average(variance + np.square(mean))
    spread = np.sqrt(np.maximum(second - np.square(expected), 0.0))
    if angles.any():
        resultant = mean_resultant(states, mean[..., angles], variance[..., angles])
        expected[..., angles] = np.angle(resultant)
        with np.errstate(divide="ignore"):
            logs = np.log(np.minimum(np.abs(resultant), 1.0))
        spread[..., angles] = np.sqrt(-2.0 * logs)
    return expected, spread


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


def sample(
    self,
    n_samples=1,
    random_state=None,
    *,
    inputs=None,
    covariates=None,
    lengths=None,
    currstate=None,
):
    """Draw a sequence, or several, from the model.

    Parameters
    ----------
    n_samples : int, default=1
        Length of the sequence.
    random_state : int, RandomState instance or None, default=None
        None is that of the constructor.
    inputs : array-like of shape (n_samples, n_inputs), default=None
        The columns that transitions depend on, where they do. Not needed where
        states emit them.
    covariates : array-like of shape (n_samples, n_features), default=None
        In place of `inputs`: rows with the columns of X, of which those that
        transitions and emissions depend on are looked at.
    lengths : array-like of int, default=None
        Lengths of several sequences, in place of `n_samples`.
    currstate : int or array-like of shape (n_sequences,), default=None
        The states that sequences start in; None is drawn.

    Returns
    -------
    X : ndarray of shape (n_samples, n_features)
        The features that states emit, of one sequence after another.
    states : ndarray of int of shape (n_samples,)
        The states that they were drawn in.
    """
    estimator = ready(self, covariates)
    parameters = fitted_parameters(estimator)
    check_size("n_samples", n_samples)
    rng = generator_of(estimator, random_state)
    emission, transitions = estimator.emission_, estimator.transitions_
    lengths = [n_samples] if lengths is None else np.asarray(lengths)
    for length in lengths:
        check_size("Every one of lengths", length)
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
