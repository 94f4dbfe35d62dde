"""What rows are to a hidden Markov model: sequences, their source, and the model.

X holds observed features, inputs of transitions and perhaps ids of sequences, which
stand in a column or beside X; or lengths do.
"""

import warnings
from contextlib import contextmanager
from copy import copy
from functools import partial
from typing import NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from skvrem.data._sequences import bounds_of_ids, bounds_of_lengths, given_twice
from skvrem.hmm._model import HMMModel, Parameters
from skvrem.hmm.emissions._base import Emission, published
from skvrem.hmm.emissions._factors import codes_of, find_levels
from skvrem.hmm.emissions._facts import SomeRows, all_missing, extremes, n_rows
from skvrem.hmm.forward_backward._model_passes import Impossible, stationary
from skvrem.hmm.forward_backward._source import SequenceSource
from skvrem.hmm.transitions._homogeneous import Homogeneous, Initial, Transitions
from skvrem.utils._columns import column_number, column_of, naming_columns
from skvrem.utils._remote import refuse_dask
from skvrem.utils._reports import outside
from skvrem.utils._validation import check_weight, validate_data

# Values so many times the median are too far for the squares of others to be told.
FAR = 1e10
naming = partial(
    naming_columns,
    needs="States emit numbers",
    advice="Leave such columns out; ids of sequences are named by groups, and a "
    "Product whose parts name their columns leaves the others alone.",
)


class Places(NamedTuple):
    """Numbers of columns of X.

    Attributes
    ----------
    ids : int or None
        Of the ids of sequences.
    inputs : list of int
        Of what transitions depend on.
    observed : list of int
        Of the features that states emit.
    factors : list of int
        Of what may be text.
    """

    ids: int | None
    inputs: list
    observed: list
    factors: list


def find_places(parameters, names, n_columns):
    """Return what each column of X is for.

    Parameters
    ----------
    parameters : object
        With the estimator's `groups`, `transitions` and `emission`.
    names : list of str
        Of the columns of X; empty where there are none.
    n_columns : int

    Raises
    ------
    ValueError
        If there is no such column, or one has two uses.
    """
    transitions = parameters.transitions
    ids = None
    if parameters.groups is not None:
        ids = column_number(parameters.groups, "groups", names, n_columns)
    columns = () if transitions is None else transitions.columns
    name = type(transitions).__name__
    if isinstance(columns, str):
        raise ValueError(
            f"columns of {name} must be a list of names or numbers of columns of X, "
            f"got {columns!r}."
        )
    inputs = [column_number(column, name, names, n_columns) for column in columns]
    if len(set(inputs)) < len(inputs) or ids in inputs:
        raise ValueError(
            f"A column of X is named twice, by {name}({list(columns)})"
            f"{'' if ids is None else f' and groups={parameters.groups!r}'}."
        )
    hidden = {ids} if not columns or transitions.observed else {ids, *inputs}
    rest = [j for j in range(n_columns) if j not in hidden]
    emission = parameters.emission
    if not isinstance(emission, Emission):
        text = inputs if inputs and transitions.takes_text else []
        return Places(ids, inputs, rest, sorted({*text} - {*rest}))
    observed = emission.reads(names, n_columns, rest)
    text = {*emission.factors(names, n_columns)}
    if inputs and transitions.takes_text:
        text |= {*inputs} - ({*observed} - text)
    return Places(ids, inputs, observed, sorted(text))


def _reads_all(emission):
    """Whether a family reads whatever columns are left to it."""
    return not isinstance(emission, Emission) or (
        type(emission).reads is Emission.reads
    )


def split_columns(estimator, parameters, X, reset):
    """Return the observed features, the inputs and the ids that stand in columns of X.

    Raises
    ------
    ValueError
        If a column is missing, or an observed one does not hold numbers.
    """
    options = {"order": "C", "ensure_all_finite": "allow-nan"}
    floats = {"dtype": (np.float64, np.float32), **options}
    known = levels_known(estimator, reset)
    if reset:
        estimator.levels_ = {}
    transitions = parameters.transitions
    whole = transitions is None or not transitions.columns
    if whole and parameters.groups is None and _reads_all(parameters.emission):
        with naming(X):
            X = validate_data(estimator, X, reset=reset, **floats)
        return X, None, None
    validate_data(estimator, X, reset=reset, skip_check_array=True)
    if not hasattr(X, "columns"):
        if isinstance(X, list | tuple):  # text would make text of all
            X = _as_array(X)
        X = check_array(X, dtype=None, ensure_all_finite="allow-nan")
    names = list(getattr(estimator, "feature_names_in_", getattr(X, "columns", ())))
    places, levels = find_places(parameters, names, X.shape[1]), {}
    keys = getattr(estimator, "feature_names_in_", range(X.shape[1]))
    for j in places.factors:
        own = known.get(keys[j])
        if own is None and reset:
            own = find_levels(column_of(X, j), f"Column {keys[j]!r}")
        if own is not None:
            levels[j] = own
            estimator.levels_[keys[j]] = own
    numbers = partial(_numbers, X, levels=levels, names=keys)
    observed = numbers(places.observed, estimator=estimator, **floats)
    ids = None if places.ids is None else np.asarray(column_of(X, places.ids))
    inputs = None
    if places.inputs:
        inputs = numbers(places.inputs, dtype=np.float64, **options)
    return observed, inputs, ids


def _as_array(X):
    try:
        objects = np.array(X, dtype=object)
    except ValueError:  # ragged
        return X
    text = objects.ndim == 2 and any(isinstance(value, str) for value in objects.flat)
    return objects if text else X


def levels_known(estimator, reset):
    """Return the levels that coefficients are of already, by name of the column."""
    if reset and not (hasattr(estimator, "transmat_") and estimator.warm_start):
        return {}
    return dict(getattr(estimator, "levels_", {}))


def _numbers(X, places, levels, names, **options):
    """Return some columns of X as numbers, of text the codes."""
    plain = [j for j in places if j not in levels]
    kept = len(plain) == X.shape[1] and not hasattr(X, "iloc")
    found, text = None, len(plain) < len(places)
    if plain or not text:
        found = X if kept else column_of(X, plain)
        with naming(found, numbers=plain):
            found = check_array(found, **options)
    if not text:
        return found
    whole = np.empty((X.shape[0], len(places)), float if found is None else found.dtype)
    rest = iter(() if found is None else found.T)
    for column, j in zip(whole.T, places, strict=True):
        if j in levels:
            column[:] = codes_of(column_of(X, j), levels[j], f"Column {names[j]!r}")
        else:
            column[:] = next(rest)
    return whole


def _levels_by_number(estimator):
    """Return the levels of columns of text by their numbers in X."""
    names = list(getattr(estimator, "feature_names_in_", ()))
    levels = getattr(estimator, "levels_", {})
    return {names.index(name) if names else name: levels[name] for name in levels}


def check_inputs(transitions, inputs, bounds, ends=True):
    """Return the inputs of transitions, or raise a ValueError where one is missing.

    Nothing depends on those of the last row of a sequence; unless `ends`, they may be
    missing, and are as in the row before, or 0.
    """
    unknown = ~np.isfinite(inputs)
    last = np.asarray(bounds[1:]) - 1
    if not ends and unknown[last].any():
        inputs = inputs.copy()
        before = np.maximum(last - 1, bounds[:-1])
        filled = np.where(unknown[last], inputs[before], inputs[last])
        inputs[last] = np.where(np.isfinite(filled), filled, 0.0)
        unknown[last] = False
    if unknown.any():
        row, column = np.argwhere(unknown)[0]
        raise ValueError(
            f"{type(transitions).__name__} needs its columns in every row that another "
            f"follows: row {row} of column {transitions.columns[column]!r} is not "
            "finite."
        )
    return transitions.check_inputs(inputs)


class Sequences(NamedTuple):
    """Validated rows of sequences, one after another.

    Attributes
    ----------
    X : ndarray of shape (n_rows, n_features)
        The observed features, float64 or float32; NaN is missing.
    bounds : ndarray of int of shape (n_sequences + 1,)
        Where sequences start, and the number of rows.
    weight : ndarray of shape (n_sequences,), or None
    labels : ndarray of int of shape (n_rows,), or None
        Known states, -1 where unknown.
    inputs : ndarray of shape (n_rows, n_inputs), or None
        What transitions depend on.
    kept : ndarray of int of shape (n_sequences, 2), or None
        Where some were dropped, the number and first row of each that is left.
    """

    X: np.ndarray
    bounds: np.ndarray
    weight: np.ndarray | None = None
    labels: np.ndarray | None = None
    inputs: np.ndarray | None = None
    kept: np.ndarray | None = None

    def place(self, row):
        """Return the number of a row of X, its sequence, and where it lies in that."""
        sequence = int(np.searchsorted(self.bounds, row, side="right")) - 1
        inside = row - self.bounds[sequence]
        if self.kept is None:
            return row, sequence, inside
        sequence, first = self.kept[sequence]
        return first + inside, sequence, inside


def open_sequences(
    estimator,
    parameters,
    X,
    reset,
    y=None,
    sample_weight=None,
    groups=None,
    lengths=None,
    state_labels=None,
    drop=True,
):
    """Validate rows and find out where sequences start.

    Raises
    ------
    ValueError
        If ids are not contiguous, lengths do not add up, both are given, or weights
        differ within a sequence; or if y, which is ignored, can only be meant for
        something else.
    TypeError
        For containers of dask.
    """
    if isinstance(X, Sequences):  # the first ones of a stream
        return _weighted(X) if drop and X.weight is not None else X
    refuse_dask(X, y, groups, lengths, sample_weight, state_labels)
    X, inputs, ids = split_columns(estimator, parameters, X, reset)
    n_rows = len(X)
    check_ignored(y, n_rows)
    ways = (
        ("lengths", bounds_of_lengths, lengths),
        ("groups", bounds_of_ids, groups),
        ("a column", bounds_of_ids, ids),
    )
    given = {name: find(own, n_rows) for name, find, own in ways if own is not None}
    if set(given) == {"groups", "a column"} and np.array_equal(*given.values()):
        # A search hands its groups on to whatever fits: no harm if they are the same.
        del given["groups"]
    if len(given) > 1:
        raise ValueError(given_twice(given))
    bounds = next(iter(given.values()), np.array([0, n_rows]))
    weight = check_weight(sample_weight, n_rows)
    if weight is not None:
        first = weight[bounds[:-1]]
        differs = weight != np.repeat(first, np.diff(bounds))
        if differs.any():
            row = int(differs.argmax())
            raise ValueError(
                "sample_weight must be the same for all rows of a sequence, as a "
                f"sequence counts as a whole: row {row} has another weight than the "
                "row where its sequence starts."
            )
        weight = first
    labels = _check_labels(state_labels, n_rows, parameters.n_components)
    if inputs is not None:
        # The last row of a stream may be followed by the next batch.
        inputs = check_inputs(parameters.transitions, inputs, bounds, ends=not drop)
    sequences = Sequences(X, bounds, weight, labels, inputs)
    if drop and weight is not None and not weight.all():
        return _weighted(sequences)
    return sequences


def _weighted(sequences):
    """Leave out sequences of weight 0, whose rows a model need not make possible."""
    X, bounds, weight, labels, inputs, _ = sequences
    keep = np.flatnonzero(weight)
    rows = np.repeat(weight > 0.0, np.diff(bounds))
    return Sequences(
        X[rows],
        np.concatenate([[0], np.cumsum(np.diff(bounds)[keep])]),
        weight[keep],
        None if labels is None else labels[rows],
        None if inputs is None else inputs[rows],
        np.column_stack([keep, bounds[keep]]),
    )


def _check_labels(labels, n_rows, n_states):
    """Return known states as integers, or None where none is known."""
    if labels is None:
        return None
    labels = np.asarray(labels)
    whole = labels.shape == (n_rows,) and labels.dtype.kind in "iuf"
    whole = whole and bool((labels == np.floor(labels)).all())
    if not (whole and labels.min() >= -1 and labels.max() < n_states):
        raise ValueError(
            f"state_labels must be one whole number from 0 to {n_states - 1} for each "
            f"of the {n_rows} rows, or -1 where the state is unknown."
        )
    return labels.astype(np.int64) if (labels >= 0).any() else None


def check_ignored(y, n_rows):
    """Let a y of one entry a row pass, as searches and pipelines hand one on."""
    if y is None:
        return
    shape = np.asarray(y, dtype=object).shape
    size = shape[0] if shape else "no sequence"
    if size != n_rows:
        raise ValueError(
            "The second argument, y, is ignored and would have one entry for each of "
            f"the {n_rows} rows, got {size}. "
            "Lengths of sequences are given by name, lengths=..., and states that are "
            "known as state_labels=..."
        )


def open_rows(estimator, X, *given, fresh=False, carried=None, **named):
    """Validate rows and all that is given with them.

    Parameters
    ----------
    estimator : VRHMM
    X : array-like
    fresh : bool
        The families are to be opened on these rows, or are those of the fit.
    carried : ndarray, default=None
        See :class:`SequenceSource`.
    *given, **named
        See :func:`open_sequences`.

    Returns
    -------
    sequences : Sequences
    data : SequenceSource
    model : HMMModel
    """
    structure = estimator if fresh else estimator._of_fit
    sequences = open_sequences(estimator, structure, X, fresh, *given, **named)
    if fresh:
        emission, transitions = open_families(estimator, sequences)
    else:
        emission, transitions = estimator.emission_, estimator.transitions_
        emission.check(sequences.X)
    initial = initial_of(structure, emission, transitions)
    rows = emission.enter(sequences.X)
    data = SequenceSource(sequences._replace(X=rows), emission, transitions, carried)
    model = HMMModel(
        data.emission,
        data.features,
        initial,
        transitions,
        data.total_weight,
        labelled=sequences.labels is not None,
    )
    return sequences, data, model


def initial_of(structure, emission, transitions):
    """Return the family of first states."""
    return Initial(
        _in_order(structure.startprob, emission.given_order),
        _in_order(structure.startprob_init, emission.given_order),
        structure.startprob_prior,
        structure.n_components,
        transitions.first,
    )


def _warn_empty(estimator, emission, X):
    """Say of which columns nothing is known: one of a fold or a stream may be such."""
    empty, names = np.isnan(extremes(X)[0]), observed_names(estimator)
    empty = ", ".join(str(names[j]) for j in emission.emits if empty[j])
    if empty:
        warnings.warn(
            f"No value of {empty} has been observed, all are NaN: states do not "
            "differ by it, and what is found of it means nothing. Leave it out.",
            stacklevel=outside(),
        )


def open_families(estimator, sequences):
    """Return emission and transitions, opened on the rows of a fit."""
    X, n = sequences.X, estimator.n_components
    if n_rows(X) < n:
        raise ValueError(
            f"Expected n_samples >= n_components but got n_components = {n}, "
            f"n_samples = {n_rows(X)}."
        )
    if all_missing(X):
        raise ValueError(
            "All values of X are NaN, which stands for missing: nothing has been "
            "observed that a model could be fitted to."
        )
    emission = _open_emission(estimator, X)
    _warn_empty(estimator, emission, X)
    transitions = clone(estimator.transitions or Homogeneous())
    levels, inputs = (
        _levels_by_number(estimator),
        find_columns(estimator, estimator).inputs,
    )
    own = {place: levels[j] for place, j in enumerate(inputs) if j in levels}
    transitions.text_levels = own
    transitions.open(n)
    fitted = vars(estimator).get("transitions_") if estimator.warm_start else None
    transitions.prepare(sequences.inputs, fitted)
    order = estimator.emission_.given_order if fitted is not None else None
    # What is given moves with the states of the last fit.
    if order is not None and len(order) == n:
        emission.reorder(order)
        transitions.reorder(order)
    return emission, transitions


def _in_order(given, order):
    """Return what users gave of states, as the states are now."""
    if order is None or given is None or isinstance(given, str):
        return given
    return np.asarray(given, float)[order]


def _open_emission(estimator, X):
    """Return the emission family, opened on observed columns."""
    names = observed_names(estimator, estimator)
    numbers = find_columns(estimator, estimator).observed
    family = estimator._family()
    family.text_levels = _levels_by_number(estimator)
    return family.open(X, estimator.n_components, names, numbers)


def attributes_of(model, point, dtype):
    """Return the fitted attributes of a point, and its statistics."""
    startprob, transmat, packed = point.parameters
    dtype, transitions = np.result_type(dtype, np.float32), copy(model.transitions)
    return {
        "startprob_": startprob.astype(dtype),
        "transmat_": transitions.publish(transmat, dtype),
        "transitions_": transitions,
        "emission_": published(model.emission, packed, dtype),
        "_sums": tuple(point.statistics[:3]),
    }


def ready(estimator, X=None):
    """Return the estimator if it is fitted, or one of the parameters it was given.

    Parameters
    ----------
    estimator : VRHMM
    X : array-like, default=None
        Rows to answer for, if there are any.

    Raises
    ------
    NotFittedError
        If it is not fitted, and something is left to fit.
    """
    if hasattr(estimator, "transmat_"):
        return estimator
    family, n = estimator._family(), estimator.n_components
    start, transitions = estimator.startprob, estimator.transitions or Homogeneous()
    free = isinstance(start, str) and start == "free" and n > 1
    if free or not family.is_given() or not isinstance(transitions, Transitions):
        check_is_fitted(estimator)
    transitions = clone(transitions).open(n)
    if transitions.n_parameters():
        check_is_fitted(estimator)
    made = clone(estimator)
    made._check_parameters()
    if X is None:
        n_inputs = 0 if transitions.observed else len(transitions.columns)
        X = np.full((1, family.n_given() + n_inputs), np.nan)
    sequences = Sequences(split_columns(made, made, X, True)[0], np.array([0, len(X)]))
    emission = _open_emission(made, sequences.X)
    initial = Initial(start, None, 1.0, n, transitions.first)
    data = SequenceSource(sequences._replace(X=emission.enter(sequences.X)), emission)
    model = HMMModel(data.emission, data.features, initial, transitions, 1.0)
    none = np.empty(0, np.int64)
    transitions.prepare(None)
    pairs = transitions.start(none, none, np.zeros((0, len(transitions.columns))))
    packed = emission.given_start(emission.blank())
    start = stationary(pairs) if initial.stationary else initial.start()
    point = model.start(Parameters(start, pairs, packed))
    vars(made).update(attributes_of(model, point, np.dtype(float)), n_parameters_=0)
    return made


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
    """Return the names of the columns of X that the emissions read."""
    names = getattr(estimator, "feature_names_in_", None)
    if names is None:
        names = [f"x{j}" for j in range(estimator.n_features_in_)]
    return [names[j] for j in find_columns(estimator, parameters).observed]


def emitted_columns(estimator):
    """Return numbers and names of the columns of X that states emit."""
    emits, names = estimator.emission_.emits, observed_names(estimator)
    numbers = find_columns(estimator).observed
    return [numbers[j] for j in emits], [names[j] for j in emits]


@contextmanager
def naming_impossible(sequences):
    """Say of which row of X it is that no path of states can reach it."""
    try:
        yield
    except Impossible as error:
        raise ValueError(_reason(error.row, sequences)) from None


def _reason(row, sequences):
    row, sequence, inside = sequences.place(row)
    where = (
        f"Row {row} of X (row {inside} of sequence {sequence}) has probability zero "
        "given the rows before it"
    )
    nothing = (
        f"{where}: no state that can follow emits it. Look at the mask, at fixed or "
        "zero transition and start probabilities, and at emission probabilities of "
        "zero."
    )
    if isinstance(sequences.X, SomeRows):  # the others are elsewhere
        return nothing
    # A value too far from the rest for sums of squares.
    size = np.abs(np.where(np.isnan(sequences.X), 0.0, sequences.X))
    top, middle = size.max(axis=0), np.median(size, axis=0)
    far = top > FAR * np.where(middle > 0.0, middle, 1.0)
    if far.any():
        column = int(far.argmax())
        row = int(size[:, column].argmax())
        return (
            f"{where}, in floating point: observed column {column} holds "
            f"{sequences.X[row, column]:g} in row {sequences.place(row)[0]}, too far "
            "from all other values. Look for outliers."
        )
    return nothing
