"""What a fitted hidden Markov model says of itself: draws, order, a summary."""

from numbers import Integral

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skvrem.hmm._forecast import input_places
from skvrem.hmm._opening import fitted_parameters, observed_names
from skvrem.utils._base import summary_table
from skvrem.utils._validation import check_order

__all__ = ["of_emission", "relabel", "sample", "summary"]


def of_emission(name, family, field, text):
    """Return a property of the estimator that is an attribute of one family."""

    def get(self):
        check_is_fitted(self)
        if type(self.emission_).__name__ != family:
            raise AttributeError(
                f"{name} is an attribute of {family} emissions; this model has "
                f"{type(self.emission_).__name__}, see emission_."
            )
        value = getattr(self.emission_, field)
        return value() if callable(value) else value

    return property(get, doc=text)


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


def relabel(estimator, order):
    """Put the states of a fitted model into another order, in place."""
    startprob, packed, emission = fitted_parameters(estimator)
    order = check_order(order, len(startprob))
    family, transitions = estimator.emission_, estimator.transitions_
    dtype = estimator.startprob_.dtype
    start, pairs, features = estimator._sums
    packed = transitions.permute(packed, order)
    pairs = transitions.permute(pairs, order)
    transitions.reorder(order)
    estimator.startprob_ = estimator.startprob_[order]
    estimator.transmat_ = transitions.publish(packed, dtype)
    family.publish(emission[order], dtype)
    estimator._sums = start[order], pairs, family.permute(features, order)


def summary(estimator):
    """Return a table of the states."""
    check_is_fitted(estimator)
    share = estimator.emission_.weight(estimator._sums[2])
    with np.errstate(divide="ignore"):
        staying = np.minimum(np.diagonal(estimator.transmat_), 1.0)
        duration = 1.0 / (1.0 - staying)
    columns = {"share": share / share.sum(), "duration": duration}
    columns |= estimator.emission_.describe(observed_names(estimator))
    facts = {
        name: getattr(estimator, f"{name}_")
        for name in ("log_likelihood", "n_parameters", "solver", "converged")
    }
    if hasattr(estimator, "history_"):  # a stream has none
        facts["passes"] = float(estimator.history_["passes"][-1])
    index = [f"state {k}" for k in range(len(share))]
    return summary_table(columns, index, facts)
