"""What rows are to a hidden Markov model: sequences, their source, and the model."""

from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from skvrem.hmm._model import HMMModel, Parameters
from skvrem.hmm.forward_backward._input import Sequences, find_places, open_sequences
from skvrem.hmm.forward_backward._model_passes import Impossible
from skvrem.hmm.forward_backward._source import SequenceSource
from skvrem.hmm.transitions._homogeneous import Homogeneous, Initial

__all__ = [
    "Opened",
    "find_columns",
    "fitted_parameters",
    "naming_impossible",
    "observed_names",
    "open_rows",
]

# Values so many times the median are too far for the squares of others to be told.
FAR = 1e10


class Opened(NamedTuple):
    """Validated sequences, the source of their rows, and the model of these."""

    sequences: Sequences
    data: SequenceSource
    model: HMMModel


def open_rows(estimator, X, *, fresh=False, carried=None, **given):
    """Validate rows and all that is given with them.

    Parameters
    ----------
    estimator : VRHMM
    X : array-like
    fresh : bool
        The families are to be opened on these rows, or are those of the fit.
    carried : ndarray, default=None
        See :class:`SequenceSource`.
    **given
        See :func:`open_sequences`.

    Returns
    -------
    opened : Opened
    """
    if not fresh:
        check_is_fitted(estimator)
    sequences = open_sequences(estimator, X, reset=fresh, **given)
    if fresh:
        emission, transitions = _open_families(estimator, sequences)
    else:
        emission, transitions = estimator.emission_, estimator.transitions_
        emission.check(sequences.X)
    structure = estimator if fresh else estimator._of_fit
    initial = Initial(
        structure.startprob,
        structure.startprob_init,
        structure.startprob_prior,
        structure.n_components,
        transitions.first,
    )
    data = SequenceSource(sequences, emission, transitions, carried)
    model = HMMModel(
        data.emission,
        data.features,
        initial,
        transitions,
        data.total_weight,
        labelled=sequences.labels is not None,
    )
    return Opened(sequences, data, model)


def _open_families(estimator, sequences):
    """Return emission and transitions, opened on the rows of a fit."""
    X, n = sequences.X, estimator.n_components
    if len(X) < n:
        raise ValueError(
            f"Expected n_samples >= n_components but got n_components = {n}, "
            f"n_samples = {len(X)}."
        )
    if np.isnan(X[0]).all() and np.isnan(X).all():
        raise ValueError(
            "All values of X are NaN, which stands for missing: nothing has been "
            "observed that a model could be fitted to."
        )
    names = observed_names(estimator, estimator)
    emission = estimator._family().open(X, n, names)
    transitions = clone(estimator.transitions or Homogeneous()).open(n)
    fitted = vars(estimator).get("transitions_") if estimator.warm_start else None
    transitions.prepare(sequences.inputs, fitted)
    return emission, transitions


def fitted_parameters(estimator):
    """Return the parameters of a fitted estimator."""
    check_is_fitted(estimator)
    transmat = np.asarray(estimator.transmat_, float)
    return Parameters(
        np.asarray(estimator.startprob_, float),
        estimator.transitions_.parameters(transmat),
        estimator.emission_.parameters(),
    )


def find_columns(estimator, parameters=None):
    """Return what the columns of X are for, by the fit or by other parameters."""
    names = list(getattr(estimator, "feature_names_in_", ()))
    parameters = estimator._of_fit if parameters is None else parameters
    return find_places(parameters, names, estimator.n_features_in_)


def observed_names(estimator, parameters=None):
    """Return the names of the columns of X that are observed."""
    names = getattr(estimator, "feature_names_in_", None)
    if names is None:
        names = [f"x{j}" for j in range(estimator.n_features_in_)]
    return [names[j] for j in find_columns(estimator, parameters).observed]


@contextmanager
def naming_impossible(sequences):
    """Say of which row of X it is that no path of states can reach it."""
    try:
        yield
    except Impossible as error:
        raise ValueError(_explain(error.row, sequences)) from None


def _explain(row, sequences):
    row, sequence, inside = sequences.place(row)
    where = (
        f"Row {row} of X (row {inside} of sequence {sequence}) has probability zero "
        "given the rows before it"
    )
    far = _far_value(sequences.X)
    if far is not None:
        value, row, column = far
        return (
            f"{where}, in floating point: observed column {column} holds {value:g} in "
            f"row {sequences.place(row)[0]}, too far from all other values. Look for "
            "outliers."
        )
    return (
        f"{where}: no state that can follow emits it. Look at the mask, at fixed or "
        "zero transition and start probabilities, and at emission probabilities of "
        "zero."
    )


def _far_value(X):
    """A value too far from the rest for sums of squares, its row and column."""
    size = np.abs(np.where(np.isnan(X), 0.0, X))
    top, middle = size.max(axis=0), np.median(size, axis=0)
    far = top > FAR * np.where(middle > 0.0, middle, 1.0)
    if not far.any():
        return None
    column = int(far.argmax())
    row = int(size[:, column].argmax())
    return X[row, column], row, column
