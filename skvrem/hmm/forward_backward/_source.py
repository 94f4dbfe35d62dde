"""Where sequences start: ids in a column, ids beside X, or lengths."""

import textwrap
from functools import partial
from typing import NamedTuple

import numpy as np

from skvrem.data._batch import Batch, Partition
from skvrem.data._source import ArraySource
from skvrem.hmm.forward_backward._columns import split_columns
from skvrem.hmm.forward_backward._model_blocks import Relay, Stretch
from skvrem.hmm.forward_backward._model_rows import SequenceRows
from skvrem.utils._algebra import read_only
from skvrem.utils._remote import refuse_dask
from skvrem.utils._validation import check_weight

__all__ = [
    "Blocks",
    "SequenceSource",
    "Sequences",
    "has_missing",
    "of_sequences",
    "open_sequences",
]


def _documented(**parts):
    """Return a decorator that fills in docstrings.

    Parameters
    ----------
    **parts : str
        What a line ``{name}`` of a docstring, of that name, becomes.
    """

    def fill(function):
        if function.__doc__ is None:  # python -OO
            return function
        lines = []
        for line in function.__doc__.split("\n"):
            name = line.strip().removeprefix("{").removesuffix("}")
            if line.strip() == f"{{{name}}}" and name in parts:
                indent = line[: line.index("{")]
                line = textwrap.indent(parts[name], indent)
            lines.append(line)
        function.__doc__ = "\n".join(lines)
        return function

    return fill


# What methods of a fitted model say of the rows that they take.
of_sequences = _documented(
    rows="""X : array-like of shape (n_samples, n_features)
    Rows of sequences, one after another.""",
    ids="""groups : array-like of shape (n_samples,), default=None
    The id of each row's sequence; None is one sequence.
lengths : array-like of int, default=None
    Lengths of the sequences, in place of `groups`.""",
)


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
    X,
    groups=None,
    lengths=None,
    sample_weight=None,
    state_labels=None,
    reset=False,
    y=None,
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
    refuse_dask(X, y, groups, lengths, sample_weight, state_labels)
    X, inputs, ids = split_columns(estimator, X, reset)
    n_rows = len(X)
    _check_ignored(y, n_rows)
    given = [
        name
        for name, value in (("lengths", lengths), ("groups", groups), ("a column", ids))
        if value is not None
    ]
    if ids is not None and groups is not None and lengths is None:
        # A search hands its groups on to whatever fits: no harm if they are the same.
        same = np.array_equal(
            _bounds_of_ids(ids, n_rows), _bounds_of_ids(groups, n_rows)
        )
        given = given[same:]
    if len(given) > 1:
        raise ValueError(
            f"Sequences are given twice, by {' and by '.join(given)}: give one of them."
        )
    if lengths is not None:
        bounds = _bounds_of_lengths(lengths, n_rows)
    elif given:
        bounds = _bounds_of_ids(groups if ids is None else ids, n_rows)
    else:
        bounds = np.array([0, n_rows])
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
    parameters = estimator if reset else estimator._of_fit
    labels = _check_labels(state_labels, n_rows, parameters.n_components)
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


def _check_ignored(y, n_rows):
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


def _bounds_of_lengths(lengths, n_rows):
    lengths = np.asarray(lengths)
    whole = lengths.ndim == 1 and lengths.size and lengths.dtype.kind in "iuf"
    whole = bool(whole and (lengths == np.floor(lengths)).all() and lengths.min() >= 1)
    whole = whole and bool(lengths.max() < np.inf)
    # Of numbers that are too large a sum may wrap around.
    fits = whole and lengths.max() <= n_rows and lengths.size <= n_rows
    total = sum(map(int, lengths)) if whole else None
    if not (fits and total == n_rows):
        raise ValueError(
            f"lengths must be positive whole numbers that add up to the {n_rows} rows "
            f"of X, got {lengths!r}{f', which add up to {total}' if whole else ''}. "
            "Cross-validation does not cut lengths: give the ids of the sequences as "
            "groups, or as a column of X that the constructor names."
        )
    return np.concatenate([[0], np.cumsum(lengths.astype(np.int64))])


def _bounds_of_ids(ids, n_rows):
    ids = np.asarray(ids)
    if ids.shape != (n_rows,):
        raise ValueError(
            f"groups must have one id for each of the {n_rows} rows, got shape "
            f"{ids.shape}."
        )
    missing = _missing(ids)
    if missing.any():
        raise ValueError(f"groups has no id in row {int(missing.argmax())}.")
    starts = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]]))
    first = ids[starts]
    try:
        values, counts = np.unique(first, return_counts=True)
    except TypeError:
        kinds = sorted({type(value).__name__ for value in first})
        raise ValueError(
            f"groups mixes ids of several types, {' and '.join(kinds)}: give them one "
            "type, as text by astype(str)."
        ) from None
    if (counts > 1).any():
        twice = values[counts > 1][0]
        where = starts[first == twice]
        raise ValueError(
            f"The rows of a sequence must follow each other: id {twice} comes again in "
            f"row {where[1]} after others. Sort X by sequence, then by time."
        )
    return np.concatenate([starts, [n_rows]])


def _missing(ids):
    """Which ids are None, NaN, NaT or NA."""
    if ids.dtype.kind in "fc":
        return np.isnan(ids)
    if ids.dtype.kind in "mM":
        return np.isnat(ids)
    if ids.dtype.kind != "O":
        return np.zeros(ids.shape, bool)
    return np.array([_is_missing(value) for value in ids], bool)


def _is_missing(value):
    if isinstance(value, float):
        return value != value
    return value is None or type(value).__name__ in ("NAType", "NaTType")


class SequenceBatch(Batch):
    """Some sequences, which weigh what their rows do."""

    @property
    def total_weight(self):
        """Sum of the weights of all rows."""
        ids, bounds = self.ids, np.asarray(self.rows.bounds)
        lengths = bounds[ids + 1] - bounds[ids]
        return float(lengths @ self.weight[ids] if self.weight.size else lengths.sum())


class SequenceSource(ArraySource):
    """Sequences as units; means are a row.

    Parameters
    ----------
    sequences : Sequences
    emission : Emission
        Opened on data like these.
    transitions : Transitions, default=None
        The same; needed where they depend on inputs.
    carried : ndarray of shape (n_inputs,), default=None
        Inputs of the row before, where the first sequence goes on from another.
    """

    def __init__(self, sequences, emission, transitions=None, carried=None):
        X, bounds, weight, labels, inputs, _ = sequences
        missing = has_missing(X)
        #: The family, for what is missing in these rows.
        self.emission = emission = emission.bound(X if missing else X[:0])
        self.features = emission.features(missing)
        columns = partial(emission.columns, missing=missing)
        first, second, _ = self.features
        n_states = 0 if labels is None else emission.n_states_
        self.inputs, entered = inputs, {}
        if inputs is not None:
            entered = transitions.enter(inputs, bounds, carried)
        rows = SequenceRows(
            X, bounds, columns, first, second, labels, n_states, **entered
        )
        lengths = np.diff(bounds)
        unit = np.empty(0) if weight is None else np.asarray(weight, float)
        super().__init__(rows, len(lengths), read_only(unit))
        self.total_weight = float(lengths.sum() if weight is None else lengths @ weight)

    def batch(self, *where, **options):
        """Return some sequences, by number."""
        return SequenceBatch(*super().batch(*where, **options))

    def whole(self):
        """All sequences as one batch, which is cut for threads inside."""
        return self.batch(0, self.n_units)

    def chunks(self):
        """The same as a partition."""
        return Partition([self.whole()], self.total_weight)

    def blocks(self, n_blocks, rng):
        """Return a fixed random partition of the sequences."""
        self.rows.forget()
        return super().blocks(n_blocks, rng)


class Blocks:
    """Sequences cut into blocks of consecutive rows, whatever their lengths.

    Parameters
    ----------
    source : SequenceSource
    """

    def __init__(self, source):
        self.source = source
        self.n_units, self.total_weight = source.n_units, source.total_weight

    def chunks(self):
        """All sequences as one batch."""
        return self.source.chunks()

    def blocks(self, n_blocks, rng):
        """Return a fixed partition of the rows."""
        layout = self.source.rows.layout(self.source.whole())
        return Stretches(Relay(layout, n_blocks), self)


class Stretches(Partition):
    """Blocks of consecutive rows, which hand on their messages."""

    def __init__(self, relay, source):
        batches = [Stretch(relay, block) for block in range(relay.n_blocks)]
        super().__init__(batches, source.total_weight)

    def map(self, function):
        """Yield ``function(batch)`` in the order of the blocks; messages are exact."""
        return (function(batch._replace(full=True)) for batch in self.batches)

    def shuffled(self, rng):
        """Yield every batch once, in order: each finds a fresh message from before."""
        yield from self.batches


def has_missing(X):
    """Whether X holds NaN."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isnan(X.sum(dtype=float))) and bool(np.isnan(X).any())
