"""What a stream keeps of its rows while they are few: all, which are fitted anew."""

import warnings
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from skvrem.data._reservoir import FORGETS, Reservoir, weight_of
from skvrem.data._source import as_source

# Rows that a stream begins with: so many, and for each parameter, but no more.
FEWEST, ROWS_A_PARAMETER, MOST = 1000, 2, 10_000
# Steps (t + 1)^-1, with which all rows count the same.
EQUAL = 1.0, 1.0
# They are fitted again when they have become so many times as many.
GROWTH = 2.0


class FirstRows(NamedTuple):
    """Rows of a stream that has begun.

    Attributes
    ----------
    rows : ndarray of shape (n_kept, n_features)
    weight : ndarray of shape (n_kept,)
    n_fitted : int
        How many of them there were when they were fitted.
    """

    rows: np.ndarray
    weight: np.ndarray
    n_fitted: int


class Begun(NamedTuple):
    """What a batch of a stream goes on from.

    Attributes
    ----------
    estimator : estimator
        With the fitted attributes to go on from: that of the stream, or one like it
        that was fitted to the rows so far.
    data : source
        Rows of the step.
    kept : FirstRows or None
    count : float or None
        Batches that have been seen, of at least the rows that a stream begins with;
        None where the rows are all that it has brought.
    share : float
        Of such a batch, the rows of the step; at most 1.
    decay : tuple (step_offset, step_decay), or None
        Of its step, where it is not the estimator's.
    sample : callable or None
        ``sample(level, step_size)`` returns the `Reservoir` after the step.
    looks : bool
        The stream may begin again after the step.
    """

    estimator: Any
    data: Any
    kept: FirstRows | None = None
    count: float | None = None
    share: float = 1.0
    decay: Any = None
    sample: Any = None
    looks: bool = False

    def end(self, estimator, step, seen, rng, attributes):
        """Keep rows after the step; begin again where a fit explains them better.

        Not before the next step: the last batch may be a large part of the stream.

        Parameters
        ----------
        estimator : estimator
            After the step.
        step : Streamed
        seen : int
            Rows of all batches.
        rng : numpy.random.Generator
        attributes : callable
            ``attributes(other)`` returns what the estimator takes over from another one
            that it goes on from.
        """
        sample = self.sample and self.sample(float(step.mean.objective), step.step_size)
        if self.looks:

            def fitted(rows, weight):
                return fitted_to_some(estimator, as_source(rows, weight), MOST, rng)

            other, sample = sample.begin_again(estimator, seen, fitted)
            if other is not estimator:
                vars(estimator).update(attributes(other))
        vars(estimator).update(_first_rows=self.kept, _reservoir=sample)


def begin_stream(estimator, data, n_parameters, seen, rng):
    """Return what the batch of a stream goes on from.

    A first batch may be small, or of one kind: a start from it can be one that steps
    never leave. So the first rows are kept, and fitted again each time that they have
    doubled; the last time when there are enough for a start. From then on a uniform
    sample of so many rows is kept. Where a batch is explained far worse than those
    before, as its rows are of kinds that had not come yet, or the sample worse than it
    was, as steps follow the order of the rows, it is fitted in its turn, after the step
    of the batch (`Begun.end`). If that helps the rows have an order: each counts the
    same from then on.

    Parameters
    ----------
    estimator : estimator
        With ``_first_rows``, unless it has enough.
    data : source
        The batch.
    n_parameters : int
    seen : int
        Rows of the batches before.
    rng : numpy.random.Generator

    Returns
    -------
    begun : Begun
    """
    enough = rows_of_a_start(n_parameters)
    before = vars(estimator).get("_first_rows")
    if seen and (before is None or data.remote):
        size, decay, sample = max(data.n_units, enough), None, None
        reservoir = vars(estimator).get("_reservoir")
        if reservoir is not None and not data.remote:
            if reservoir.equal and estimator.step_decay > FORGETS:
                decay = EQUAL
            sample = partial(reservoir.after, data, seen)
        how = seen / size, data.n_units / size, decay, sample, sample is not None
        return Begun(estimator, data, None, *how)
    n_fitted = 0
    if before is not None:
        rows = np.concatenate([before.rows, data.rows])
        data = as_source(rows, np.concatenate([before.weight, weight_of(data)]))
        n_fitted = before.n_fitted
    n_rows = data.n_weighted
    if n_rows >= min(GROWTH * n_fitted, enough):
        estimator, n_fitted = fitted_to_some(estimator, data, MOST, rng), n_rows
    if data.remote:
        return Begun(estimator, data)
    if n_rows >= enough:

        def sample(level, step_size):
            return Reservoir.of(estimator, data, enough, n_parameters, level)

        return Begun(estimator, data, sample=sample)
    kept = FirstRows(np.array(data.rows), weight_of(data), n_fitted)
    return Begun(estimator, data, kept)


def forget_stream(estimator):
    """Forget what was kept of a stream, which a fit has ended."""
    for name in ("_first_rows", "_reservoir"):
        vars(estimator).pop(name, None)


def rows_of_a_start(n_parameters):
    """Return how many rows are enough to begin a stream with."""
    return int(np.clip(ROWS_A_PARAMETER * n_parameters, FEWEST, MOST))


def fitted_to_some(estimator, data, n_rows, rng, **chosen):
    """Return an estimator like another one, fitted to so many of the rows at most.

    Parameters
    ----------
    estimator : estimator
    data : source
    n_rows : int
    rng : numpy.random.Generator
        Draws them.
    **chosen
        Values of these parameters in place of the estimator's.
    """
    some = data.sample(n_rows, rng)
    rows = some.rows[some.ids]
    weight = some.weight[some.ids] if some.weight.size else None
    how = estimator.get_params(deep=False) | {"verbose": 0, "warm_start": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few rows are only those of a beginning
        return type(estimator)(**how | chosen).fit(rows, sample_weight=weight)
