"""A step of stochastic EM with a batch of a stream, or the next rows of a long one."""

import math
import warnings
from typing import NamedTuple

import numpy as np

from skvrem import solvers
from skvrem.data._first_rows import GROWTH, MOST, rows_of_a_start
from skvrem.hmm._input import (
    Sequences,
    attributes_of,
    fitted_parameters,
    naming_impossible,
    open_rows,
)
from skvrem.hmm._model import Statistics
from skvrem.hmm._plan import Led
from skvrem.hmm.forward_backward._model_layout import Layout
from skvrem.hmm.forward_backward._model_passes import Impossible, Passes
from skvrem.utils._algebra import scale
from skvrem.utils._averaging import AveragingPoint
from skvrem.utils._base import check_unchanged

# Shares of a fit's starts in the races on a stream's first rows, beside the winner of
# the race before: all in the last, which decides, and in the first, but fewer in
# proportion to its rows where these are less than so much of those that are enough;
# between them what is left of those of so many fits, or so many.
FEW, FITS, LEAST = 0.05, 2.4, 0.1
# Parameters that give a model its shape, which a stream goes on with.
LASTING = (
    "n_components",
    "emission",
    "covariance_type",
    "transitions",
    "startprob",
    "groups",
)
# What validation has found out of the columns of X.
OF_COLUMNS = ("n_features_in_", "feature_names_in_", "levels_")


class First(NamedTuple):
    """First sequences of a stream.

    Attributes
    ----------
    sequences : Sequences
    n_fitted : int
        How many rows they had when they were fitted.
    share : float
        Of the starts of a fit, those of each race to come but the last.
    """

    sequences: Sequences
    n_fitted: int
    share: float


def step(estimator, X, continues, *given):
    """Make a step of stochastic EM with a batch of a stream."""
    first = not hasattr(estimator, "transmat_")
    if continues and not hasattr(estimator, "_carried"):
        raise ValueError(
            "continues=True needs an earlier partial_fit, whose last row the "
            "first of these rows follows."
        )
    if not first:
        check_unchanged(estimator, *LASTING)
    carried, before = estimator._carried if continues else (None, None)
    # The last row, whatever it weighs, is what the next batch may follow.
    sequences, data, model = open_rows(
        estimator, X, *given, fresh=first, carried=before, drop=False
    )
    known, n_batch = estimator, len(sequences.X)
    seen = 0 if first else estimator.n_samples_seen_
    dtype = sequences.X.dtype if first else estimator.transmat_.dtype
    enough, kept = rows_of_a_start(model.n_parameters()), None
    begun = vars(estimator).get("_first")
    if first or begun is not None:
        sequences, n_fitted = _after(begun, sequences, continues)
        n_rows = len(sequences.X)
        if begun is None:
            share_now, between = _shares(n_rows, enough)
            led = Led(None, share_now)
        else:
            between = begun.share
            led = Led(estimator, between if n_rows < enough else 1.0)
        if n_rows >= min(GROWTH * n_fitted, enough):
            known, n_fitted = _fitted(estimator, sequences, led), n_rows
        kept = First(sequences, n_fitted, between) if n_rows < enough else None
        sequences, data, model = open_rows(known, sequences, drop=False)
        carried, continues, count, share = None, False, None, 1.0
    else:
        size = max(n_batch, enough)
        count, share = seen / size, n_batch / size
    statistics = Statistics(*known._sums, 0.0, 0.0)
    point = AveragingPoint(fitted_parameters(known), statistics)
    layout = Layout(data.rows, np.arange(data.n_units), sequences.weight, continues)

    def expect(parameters):
        at = point._replace(parameters=parameters)
        passes = Passes(layout, model.chain(parameters), carried=carried)
        return passes, model.collect(passes, at)

    try:
        passes, sums = expect(point.parameters)
    except Impossible:  # what the batches before did not hold
        with naming_impossible(sequences):
            passes, sums = expect(model.relax(point.parameters, data.rows))
    mean = scale(sums, 1.0 / data.total_weight)
    if continues and len(sequences.bounds) == 2:
        # Nothing has been seen of how sequences begin.
        mean = mean._replace(start=point.statistics.start)
    model.total = data.total_weight + (0 if count is None else seen)
    step = solvers.stream_step(
        estimator, model, point, data, count, mean=mean, share=share
    )
    inputs = sequences.inputs
    last_inputs = None if inputs is None else inputs[-1].copy()
    found = attributes_of(model, step.point, dtype) | {
        "objective_": model.objective(point, mean),
        "log_likelihood_": float(mean.objective),
        "n_parameters_": model.n_parameters(),
        "n_samples_seen_": seen + n_batch,
        "_carried": (passes.last(), last_inputs),
        "_first": kept,
    }
    step.record(estimator, found)


def _shares(n_rows, enough):
    """Return the shares of starts in a first race, and in each but the last."""
    first = min(1.0, n_rows / (FEW * enough))
    n_between = max(1, math.ceil(math.log(enough / n_rows, GROWTH)) - 1)
    return first, max(LEAST, (FITS - 1.0 - first) / n_between)


def _after(begun, sequences, continues):
    """Return the first sequences of a stream with those of a batch."""
    if begun is None:
        parts = (None if part is None else part.copy() for part in sequences)
        return Sequences(*parts), 0
    both, n_fitted = (begun.sequences, sequences), begun.n_fitted

    def join(name, blank=None, skip=0):
        parts = [getattr(some, name) for some in both]
        if parts[0] is parts[1] is None:
            return None
        one, other = (
            blank(some) if part is None else part
            for some, part in zip(both, parts, strict=True)
        )
        return np.concatenate([one, other[skip:]])

    skip = int(continues)  # the rest of the last sequence
    bounds = both[0].bounds, both[1].bounds[1:] + len(both[0].X)
    joined = Sequences(
        join("X"),
        np.delete(np.concatenate(bounds), [len(bounds[0]) - 1] * skip),
        join("weight", lambda some: np.ones(len(some.bounds) - 1), skip),
        join("labels", lambda some: np.full(len(some.X), -1)),
        join("inputs"),
    )
    return joined, n_fitted


def _fitted(estimator, sequences, led):
    """Return an estimator like another one, fitted to the first rows of sequences."""
    X, bounds, weight, labels, inputs, _ = sequences
    n = int(np.searchsorted(bounds[:-1], MOST))
    some = Sequences(
        X[:MOST],
        np.minimum(bounds[: n + 1], MOST),
        None if weight is None else weight[:n],
        None if labels is None else labels[:MOST],
        None if inputs is None else inputs[:MOST],
    )
    how = vars(estimator._of_fit) | {"verbose": 0, "warm_start": False}
    known = type(estimator)(**how)
    vars(known).update(
        {name: vars(estimator)[name] for name in OF_COLUMNS if name in vars(estimator)}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few rows are only those of a beginning
        known._fit(some, None, led=led)
    known._remember_parameters()
    return known
