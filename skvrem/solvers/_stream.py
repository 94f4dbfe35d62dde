"""A batch of a stream: one step of stochastic EM, and what it leaves behind."""

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from skvrem.schedules import Power
from skvrem.utils._algebra import rescale

# What a fit has and a stream has not: it goes where a stream goes on from a fit.
OF_A_FIT = ("history_", "init_scores_", "stop_reason_", "gap_left_", "_of_rows")


class Streamed(NamedTuple):
    """What one step has led to.

    Attributes
    ----------
    point : Any
        After the step.
    mean : NamedTuple
        Of the batch, where the step began.
    step_size : float
    """

    point: Any
    mean: Any
    step_size: float

    def record(self, estimator, attributes, n_units=None):
        """Set the fitted attributes of an estimator after the step.

        Parameters
        ----------
        estimator : estimator
        attributes : dict
            Its own.
        n_units : int, default=None
            Of the batch, of estimators that tell the size of batches and steps.
        """
        known = vars(estimator)
        for name in OF_A_FIT:
            known.pop(name, None)
        if n_units is not None:
            known.update(step_size_=self.step_size, batch_size_=n_units)
        known.update(
            attributes,
            converged_=False,
            n_iter_=known.get("n_iter_", 0) + 1,
            solver_="stochastic",
        )


def stream_step(
    estimator, model, point, data, count, *, mean=None, decay=None, share=1.0
):
    """Move a point by one step of stochastic EM (Cappé and Moulines 2009).

    The statistics move by ``step_size * (count + step_offset) ** -step_decay`` towards
    those of the batch. Nothing is changed in place but what `update` may write to, so
    that a failure leaves the estimator as it was.

    Parameters
    ----------
    estimator : estimator
        With `step_size`, of which "auto" is 1, `step_offset` and `step_decay`.
    model, point : see ``_protocols.py``
    data : Data
        The batch.
    count : float or None
        Batches of this size that have been seen; None if the step is to be 1.
    mean : NamedTuple, default=None
        Mean statistics of the batch where its units depend on the batch before.
    decay : tuple (step_offset, step_decay), default=None
        In place of the estimator's.
    share : float, default=1.0
        Part of a step that is made: as many such steps forget as much as a whole one.

    Returns
    -------
    step : Streamed
    """
    if mean is None:
        partition = data.chunks()
        sums = partition.sum(partial(model.statistics, point, beta=1.0))
        mean = rescale(sums, 1.0 / partition.total_weight)
    scale = 1.0 if estimator.step_size == "auto" else estimator.step_size
    offset, decay = decay or (estimator.step_offset, estimator.step_decay)
    step = 1.0 if count is None else Power(scale, offset, decay)(count)
    if share < 1.0:
        step = -np.expm1(share * np.log1p(-step)) if step < 1.0 else 1.0
    return Streamed(model.update(point, None, mean, step), mean, step)
