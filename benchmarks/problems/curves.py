"""Training objective against time of our solvers: CPU seconds of one thread."""

import time
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.harness import quiet
from skvrem import VRPLSA

__all__ = ["Curve", "cost", "exact_curve", "fit", "seconds_an_epoch", "try_grid"]


class Curve(NamedTuple):
    """The best that fits had reached, and when.

    Attributes
    ----------
    seconds, objective : ndarray of shape (n_points,)
        Objective in nats a token.
    passes : ndarray of shape (n_points,)
        Over the documents, anchors counted.
    """

    seconds: np.ndarray
    objective: np.ndarray
    passes: np.ndarray

    def at(self, seconds):
        """Return the best objective at a time, -inf before the first point."""
        place = np.searchsorted(self.seconds, seconds, side="right") - 1
        return np.where(place < 0, -np.inf, self.objective[np.maximum(place, 0)])


def fit(X, n_topics, n_iter, *, seed=0, **parameters):
    """Return an estimator after so many epochs.

    The seconds of its ``history_`` are put into CPU seconds by the fit's ratio of both,
    so that a busy machine matters less.
    """
    model = VRPLSA(
        n_topics, max_iter=n_iter, tol=0.0, random_state=seed, n_jobs=1, **parameters
    )
    wall, cpu = time.perf_counter(), time.process_time()
    with quiet(), threadpool_limits(1):
        model.fit(X)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    model.history_["seconds"] *= cpu / wall
    return model


def try_grid(grid, value, n_epochs, survivors=8):
    """Return values after a quarter of the epochs, and of the best of these after all.

    Parameters
    ----------
    grid : list
    value : callable
        Takes one of the grid and a number of epochs.
    n_epochs : int
    survivors : int

    Returns
    -------
    short, long : dicts of {int: float}
        By place in the grid.
    """

    def finite(i, n):
        result = float(value(grid[i], n))
        return result if np.isfinite(result) else -np.inf

    few = max(1, n_epochs // 4)
    short = {i: finite(i, few) for i in range(len(grid))}
    best = sorted(short, key=short.get)[-survivors:]
    return short, {i: finite(i, n_epochs) for i in best}


def seconds_an_epoch(model):
    """Return the median epoch of a fit."""
    seconds = model.history_["seconds"]
    # "stochastic" ends with a pass that is no epoch.
    return float(np.median(np.diff(seconds[: model.n_iter_])))


def cost(model):
    """Return seconds and passes of a fit.

    Without the pass over all documents in which "stochastic" finds its objective at
    the end, which the other solvers do not need.
    """
    history = model.history_
    if model.solver_ != "stochastic" or model.n_iter_ < 2:
        return float(history["seconds"][-1]), float(history["passes"][-1])
    seconds = history["seconds"][-2] + seconds_an_epoch(model)
    return float(seconds), float(model.n_iter_)


def exact_curve(X, n_topics, epochs, **parameters):
    """Return the `Curve` of a solver.

    "batch" and "svrg" find the objective on the way. What "stochastic" records on the
    way is that of documents before they are visited, which is too low: a fit for each
    number of epochs tells the true one.
    """
    if parameters["solver"] != "stochastic":
        history = fit(X, n_topics, max(epochs), **parameters).history_
        seconds, objective, passes = (
            history[name] for name in ("seconds", "objective", "passes")
        )
    else:
        fits = [
            fit(X, n_topics, n_iter, **parameters) for n_iter in sorted(set(epochs))
        ]
        seconds, passes = np.array([cost(model) for model in fits]).T
        objective = [model.objective_ for model in fits]
    # An epoch of "stochastic" begins a fit of "svrg", and has no exact one: NaN.
    return Curve(seconds, np.fmax.accumulate(objective), passes)
