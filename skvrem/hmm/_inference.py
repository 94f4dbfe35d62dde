"""What a fitted hidden Markov model says of rows: states, probabilities, densities."""

import numpy as np

from skvrem.hmm._opening import fitted_parameters, naming_impossible, open_rows
from skvrem.hmm.emissions._coordinates import bounded_log
from skvrem.hmm.forward_backward._model_viterbi import most_probable_paths
from skvrem.utils._parallel import threads
from skvrem.utils._validation import among

__all__ = ["decode", "filtered_states", "run", "score", "state_probabilities"]


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


def decode(estimator, X, groups, lengths, algorithm):
    """Return how probable states are, and the states, by an algorithm."""
    if not among(algorithm, ("viterbi", "map")):
        raise ValueError(f"algorithm must be 'viterbi' or 'map', got {algorithm!r}.")
    if algorithm == "map":
        posterior = state_probabilities(estimator, X, groups, lengths, True)
        return float(posterior.max(axis=1).sum(dtype=float)), posterior.argmax(axis=1)
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


def score(estimator, X, y, sample_weight, groups, lengths):
    """Return the log-likelihood in nats a row."""
    given = {"y": y, "sample_weight": sample_weight}
    given |= {"groups": groups, "lengths": lengths}
    sequences, data, model = open_rows(estimator, X, **given)
    with threads(estimator.n_jobs), naming_impossible(sequences):
        total = model.passes(fitted_parameters(estimator), data.whole()).forward()
    return float(total / data.total_weight)
