"""Fits and answers where sequences lie in the blocks of dask."""

from contextlib import contextmanager
from copy import copy
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from skvrem.data._sequences import lay
from skvrem.hmm._input import (
    Sequences,
    check_ignored,
    find_places,
    initial_of,
    levels_known,
    open_families,
    open_sequences,
    ready,
    split_columns,
)
from skvrem.hmm._model import HMMModel
from skvrem.hmm.emissions._base import Emission
from skvrem.hmm.emissions._factors import find_levels, joined_levels
from skvrem.hmm.emissions._facts import ColumnFacts, SomeRows
from skvrem.hmm.forward_backward._block_source import BlockSource, Prepared
from skvrem.hmm.forward_backward._model_passes import Impossible
from skvrem.utils._columns import column_number, column_of
from skvrem.utils._remote import is_frame, of_dask
from skvrem.utils._validation import check_weight, validate_data

# Rows that families look at beside what is found of all, and numbers in them.
MOST_ROWS, MOST_NUMBERS = 10_000, 1 << 17


def _lay(estimator, structure, X, groups, lengths, weight=None, labels=None):
    """Return the blocks of whole sequences of X."""
    from skvrem.data import _dask

    if not (is_frame(X) and X.ndim == 2):
        X = _dask.as_rows(X)
    column = None
    if structure.groups is not None:
        names = getattr(X, "columns", getattr(estimator, "feature_names_in_", ()))
        column = column_number(structure.groups, "groups", list(names), X.shape[1])
    if weight is not None and not of_dask(weight):
        if not np.ndim(weight):
            raise ValueError("sample_weight must have one number for each row of X.")
        weight = check_weight(weight, len(weight))
    return lay(X, column, groups, lengths, weight, labels)


@contextmanager
def numbered_from(first):
    """Say of an error in which rows of X it is."""
    try:
        yield
    except Impossible:
        raise
    except (TypeError, ValueError) as error:
        if not first:
            raise
        raise type(error)(
            f"{error} (Rows are counted from row {first} of X, where a block begins.)"
        ) from None


class SequenceOpener(NamedTuple):
    """What makes validated sequences of a block.

    Attributes
    ----------
    estimator : VRHMM
        That knows the columns.
    structure : object
        With the parameters that say what columns are for.
    by_lengths : bool
        A block must be told the lengths: no column of it holds ids.
    """

    estimator: Any
    structure: Any
    by_lengths: bool

    def open(self, block, beside):
        """Return the sequences of a block, None where they weigh nothing."""
        lengths, weight, labels, first = beside
        with numbered_from(first):
            if weight is not None:
                weight = np.asarray(weight)
                if weight.shape == (len(block),) and not weight.any():
                    return None
            return open_sequences(
                self.estimator,
                self.structure,
                block,
                False,
                sample_weight=weight,
                lengths=lengths if self.by_lengths else None,
                state_labels=None if labels is None else np.asarray(labels),
            )


class SequenceFacts(NamedTuple):
    """What is to be known of the sequences of a block.

    Attributes
    ----------
    lengths : ndarray of int
        Of the sequences that count.
    weight : ndarray, or None
        Of these.
    kept : ndarray of int of shape (n_sequences, 2), or None
        See `Sequences`.
    labelled : bool
    rows, inputs : ndarray or None
        Some of them.
    facts, input_facts : ColumnFacts or None
        Of all.
    """

    lengths: np.ndarray
    weight: Any
    kept: Any
    labelled: bool
    rows: np.ndarray
    inputs: Any
    facts: ColumnFacts
    input_facts: Any


def _look(opener, most, block, beside):
    sequences = opener.open(block, beside)
    if sequences is None:
        return None
    X, bounds, weight, labels, inputs, kept = sequences
    every = np.arange(0, len(X), max(1, len(X) // most))
    # A transformer is fitted to them, and has to have seen all levels.
    text = _text_columns(opener.estimator, block.shape[1])
    first = [np.unique(X[:, j], return_index=True)[1] for j in text]
    every = np.unique(np.concatenate([every, *first]))
    return SequenceFacts(
        np.diff(bounds),
        weight,
        kept,
        labels is not None,
        X[every],
        None if inputs is None else inputs[every],
        ColumnFacts.of(X),
        None if inputs is None else ColumnFacts.of(inputs),
    )


def _missing(opener, emission, block, beside):
    """Check the rows of a block; return what is missing together, True where it is."""
    sequences = opener.open(block, beside)
    with numbered_from(beside.first):
        emission.check(sequences.X)
    missing = np.isnan(emission.enter(sequences.X))
    if emission.patterned:
        return np.unique(missing, axis=0)
    return missing.any(axis=0)[None]


# Fits


def open_blocks(estimator, X, y, sample_weight, groups, lengths, state_labels):
    """Validate sequences in blocks for a fit, and all that is given with them.

    Returns
    -------
    sequences : Sequences
        Of some of the rows.
    data : BlockSource
    model : HMMModel
    """
    given = groups, lengths, sample_weight, state_labels
    laid = _lay(estimator, estimator, X, *given)
    if not of_dask(y):
        check_ignored(y, int(laid.bounds[-1]))
    head = _head(laid)
    known = levels_known(estimator, reset=True)
    split_columns(estimator, estimator, head, reset=True)
    estimator.levels_ = known | _levels(estimator, laid, head, known)
    opener = SequenceOpener(_unfitted(estimator), _unfitted(estimator), laid.by_lengths)
    most = min(MOST_ROWS, MOST_NUMBERS // head.shape[1]) // len(laid.blocks)
    looks = _everywhere(laid, partial(_look, opener, max(1, most)))
    seen = [look for look in looks if look is not None]
    if not seen:
        raise ValueError("sample_weight is zero for every sample: nothing to fit.")
    sequences = _some(laid, looks)
    emission, transitions = open_families(estimator, sequences)
    some = [look is not None for look in looks]
    missing = [None]
    nothing = all(look.facts.values.count.min() == look.facts.n_rows for look in seen)
    any_value = emission.support is None and type(emission).check is Emission.check
    if not (nothing and any_value):
        check = partial(_missing, opener, emission)
        missing = _everywhere(laid, check, some)
    missing = [own for own in missing if own is not None]
    head = emission.enter(np.asarray(sequences.X)[:1])
    found = head[:0]
    if any(own.any() for own in missing):
        found = np.where(np.unique(np.concatenate(missing), axis=0), np.nan, 0.0)
    labelled = any(look.labelled for look in seen)
    families = emission.bound(found), transitions, bool(len(found)), labelled
    prepared = Prepared(opener, *families)
    data = BlockSource(laid.blocks, laid.beside, looks, prepared, head)
    model = HMMModel(
        data.emission,
        data.features,
        initial_of(estimator, emission, transitions),
        transitions,
        data.total_weight,
        labelled=labelled,
    )
    return sequences, data, model


def _levels(estimator, laid, head, known):
    """Return the levels of columns of text, those of all blocks together, by name."""
    names = list(getattr(estimator, "feature_names_in_", ()))
    keys = names or range(head.shape[1])
    text = {
        keys[j]: j
        for j in find_places(estimator, names, head.shape[1]).factors
        if keys[j] not in known and column_of(head, j).dtype.kind not in "fiub"
    }
    if not text:
        return {}
    parts = _everywhere(laid, partial(_levels_of_block, text))
    found = {name: [part[name] for part in parts if name in part] for name in text}
    return {name: joined_levels(own) for name, own in found.items() if own}


def _levels_of_block(text, block, beside):
    found = {}
    for name, j in text.items():
        column = column_of(block, j)
        levels = find_levels(column, f"Column {name!r}")
        if levels is not None:
            found[name] = levels, getattr(column.dtype, "categories", None)
    return found


def _text_columns(estimator, n_columns):
    """Return which of the observed columns hold codes of text."""
    names = list(getattr(estimator, "feature_names_in_", ()))
    observed = find_places(estimator, names, n_columns).observed
    keys = names or range(n_columns)
    return [i for i, j in enumerate(observed) if keys[j] in estimator.levels_]


def _unfitted(estimator):
    """Return an estimator that knows its parameters and the columns of X."""
    made = type(estimator)(**estimator.get_params(deep=False))
    for name in ("n_features_in_", "feature_names_in_", "levels_"):
        if hasattr(estimator, name):
            setattr(made, name, getattr(estimator, name))
    return made


def _head(laid):
    """Return a row."""
    from skvrem.data import _dask

    return _dask.compute(_dask.call(_first_row, laid.blocks[0]))[0]


def _first_row(block):
    return block[:1]


def _everywhere(laid, function, some=None):
    """Return what a function says of blocks and what is beside, None elsewhere."""
    from skvrem.data import _dask

    function, chosen = _dask.send(function), some or [True] * len(laid.blocks)
    pairs = zip(laid.blocks, laid.beside, chosen, strict=True)
    tasks = [
        _dask.call(_dask.apply, function, block, beside) if own else None
        for block, beside, own in pairs
    ]
    return _dask.compute(*tasks)


def _some(laid, looks):
    """Return some rows as those of all, whose bounds are known."""
    kept = _kept(laid, looks)
    looks = [look for look in looks if look is not None]
    X = np.concatenate([look.rows for look in looks])
    X = SomeRows.of(X, ColumnFacts.pooled([look.facts for look in looks]))
    inputs = None
    if looks[0].inputs is not None:
        inputs = np.concatenate([look.inputs for look in looks])
        facts = ColumnFacts.pooled([look.input_facts for look in looks])
        inputs = SomeRows.of(inputs, facts)
    lengths = np.concatenate([look.lengths for look in looks])
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    return Sequences(X, bounds, inputs=inputs, kept=kept)


def _kept(laid, looks):
    """Return numbers and first rows of the sequences that count, None where all do."""
    if all(look is not None and look.kept is None for look in looks):
        return None
    found, first_row = [], 0
    for look, size in zip(looks, laid.sizes, strict=True):
        first = np.searchsorted(laid.bounds, first_row)
        stop = np.searchsorted(laid.bounds, first_row + size)
        if look is not None and look.kept is None:
            numbers = np.arange(first, stop)
            found.append(np.column_stack([numbers, laid.bounds[numbers]]))
        elif look is not None:
            found.append(look.kept + np.array([first, first_row]))
        first_row += size
    return np.concatenate(found)


# Answers

#: Methods that say something of every row: how many numbers, and of which type where
#: that is not X's.
BY_ROW = {
    "predict": (lambda estimator: (), np.int64),
    "score_samples": (lambda estimator: (), None),
    "predict_proba": (lambda estimator: (len(estimator.startprob_),), None),
    "filter_proba": (lambda estimator: (len(estimator.startprob_),), None),
    "pseudo_residuals": (lambda estimator: (len(estimator.emission_.emits),), float),
}


def answer(estimator, method, X, groups, lengths):
    """Return what a method says of every row, a lazy dask array.

    Where the sizes of blocks, or ids in them, are to be looked at, that is done at
    once.
    """
    from skvrem.data import _dask

    estimator, laid = _lay_for(estimator, X, groups, lengths)
    trailing, dtype = BY_ROW[method]
    if dtype is None:
        dtype = np.float64 if is_frame(X) or X.dtype != np.float32 else np.float32
    function = _dask.send(partial(_answer, estimator, method, laid.by_lengths, dtype))
    tasks = [
        _dask.call(_dask.apply, function, *own)
        for own in zip(laid.blocks, laid.beside, strict=True)
    ]
    return _dask.array_of(tasks, laid.sizes, trailing(estimator), dtype)


def _lay_for(estimator, X, groups, lengths, weight=None):
    """Return a fitted estimator, and the blocks of X for its answers."""
    structure = estimator._of_fit
    if hasattr(estimator, "transmat_"):
        about = X._meta if is_frame(X) else X
        validate_data(estimator, about, reset=False, skip_check_array=True)
    laid = _lay(estimator, structure, X, groups, lengths, weight)
    if not hasattr(estimator, "transmat_"):
        estimator = ready(estimator, _head(laid))
    return _light(estimator), laid


def _light(estimator):
    """Return a copy that travels: without those who watch a fit, and in one thread."""
    made = copy(estimator)
    for name in [name for name in vars(made) if name.startswith(("_skl_", "_callb"))]:
        del vars(made)[name]
    made.n_jobs = 1  # blocks run side by side
    return made


def _answer(estimator, method, by_lengths, dtype, block, beside):
    given = {"lengths": beside.lengths} if by_lengths else {}
    with numbered_from(beside.first):
        return getattr(estimator, method)(block, **given).astype(dtype, copy=False)


def total(estimator, log_likelihood, X, sample_weight, groups, lengths):
    """Return the log-likelihood of weighted sequences, and the weight of rows."""
    estimator, laid = _lay_for(estimator, X, groups, lengths, sample_weight)
    parts = _everywhere(
        laid, partial(_total, estimator, log_likelihood, laid.by_lengths)
    )
    found, weight = np.sum(parts, axis=0)
    if not weight:
        raise ValueError("sample_weight is zero for every sample: nothing to score.")
    return found, weight


def _total(estimator, log_likelihood, by_lengths, block, beside):
    weight = beside.weight
    weight = None if weight is None else np.asarray(weight)
    if weight is not None and not weight.any():
        return 0.0, 0.0
    lengths = beside.lengths if by_lengths else None
    with numbered_from(beside.first):
        return log_likelihood(estimator, block, None, weight, None, lengths)
