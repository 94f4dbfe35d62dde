"""What a fit leaves: rows of a history, and what it came to."""

from typing import Any, NamedTuple

import numpy as np


class Epoch(NamedTuple):
    """One row of the history: what was known at the start, or after an epoch.

    Attributes
    ----------
    passes : float
        Passes over the data so far, anchors and starting values included.
    seconds : float
        Wall-clock time so far.
    objective : float
        Objective a unit, in nats (or its bound, for a solver with a table).
    step_size : float
        Step of the last update.
    temperature : float
        At which the objective was evaluated.
    predicted_gain : float
        What is left to gain a unit; NaN where nothing is known of it.
    gradient_variance : float
        Of the estimates that the epoch's steps were made of, in all coordinates; NaN
        where the model does not keep it, and for an epoch that was taken back.
    solver : str
        Which solver made the epoch.
    """

    passes: float
    seconds: float
    objective: float
    step_size: float
    temperature: float
    predicted_gain: float
    gradient_variance: float
    solver: str


class Result(NamedTuple):
    """What a fit came to.

    Attributes
    ----------
    point : Any
    objective : float
        Of this very point: of the model itself, neither a bound nor tempered.
    n_iter : int
        Epochs that moved the point.
    reason : str
        Why no more were made: "tol", "stalled", "callback", "time" or "max_iter".
    left : float
        What is left to gain a unit, NaN where nothing is known of it.
    history : list of Epoch
        The start, every epoch, and the pass at the end where one was needed. The last
        row is that of the point.
    """

    point: Any
    objective: float
    n_iter: int
    reason: str
    left: float
    history: list

    @property
    def converged(self):
        """Whether less than the tolerance is left to gain."""
        return self.reason == "tol"

    @property
    def stopped(self):
        """Whether a callback has ended the fit, or the time it was given."""
        return self.reason in ("callback", "time")

    def attributes(self):
        """Return the fitted attributes that all estimators have."""
        return {
            "converged_": self.converged,
            "n_iter_": self.n_iter,
            "history_": as_history(self.history),
            "stop_reason_": self.reason,
            "gap_left_": float(self.left),
        }


def joined(results, moved=False):
    """Return runs that went on from each other as one result.

    The start of every run but the first is where the one before it ended, so its row
    is left out, unless the point was `moved` between them.
    """
    last = results[-1]
    history = list(results[0].history)
    for result in results[1:]:
        history += result.history[0 if moved else 1 :]
    return last._replace(n_iter=sum(r.n_iter for r in results), history=history)


def as_history(epochs):
    """Return the rows of a history, one at least, as a dict of arrays."""
    columns = zip(Epoch._fields, zip(*epochs, strict=True), strict=True)
    return {
        name: np.asarray(column, dtype=str if name == "solver" else float)
        for name, column in columns
    }
