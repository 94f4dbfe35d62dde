"""The only outer loop: epochs, certificates, roll-back, stopping, history."""

import math
import time
from typing import Any, NamedTuple

import numpy as np

from skvrem.solvers._batch import Batch

__all__ = ["Epoch", "Result", "run"]

# Share of an epoch's steps that may be infeasible before the step size is halved,
# and below which it recovers.
MANY_REJECTED, FEW_REJECTED = 0.10, 0.02
# Dips of the objective that leave no trace: those of the start.
FORGIVEN = 5


class Epoch(NamedTuple):
    """One row of the history.

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
    """

    passes: float
    seconds: float
    objective: float
    step_size: float
    temperature: float


class Result(NamedTuple):
    """What a fit came to."""

    point: Any
    objective: float
    n_iter: int
    converged: bool
    stopped: bool
    gain: float
    history: list


def run(
    model,
    solver,
    data,
    point,
    *,
    step_size,
    temperature,
    max_iter,
    tol,
    rng,
    report=None,
    passes=0.0,
    seconds=0.0,
):
    """Fit `model` to `data` from `point`.

    Every epoch the temperature is frozen and the solver begins: a pass that makes its
    anchor, a table put in place. The anchor's objective certifies the epoch before:
    if it fell by more than rounding, the last good anchor comes back, with a step of
    batch EM from it, and the step size is halved. Then each visit estimates and
    updates.

    Parameters
    ----------
    model, solver, data : see ``_protocols.py``
    point : Any
        Where to start.
    step_size, temperature : callables
        Functions of the number of updates and of epochs made. A temperature that has
        a method `observe` is told the point that every epoch begins at.
    max_iter : int
        Epochs.
    tol : float
        Converged when the objective gains less a unit in an epoch, for as many epochs
        in a row as the solver's patience, or when the solver promises no more.
    rng : numpy.random.Generator
    report : callable, default=None
        Called with each `Epoch` and its point; a true answer stops the fit.
    passes, seconds : float
        What the start has cost.

    Returns
    -------
    result : Result
        Ends with an update from the mean of the last anchor: for EM, a batch step.
    """
    began = time.perf_counter() - seconds
    solver.start(model, data, rng)
    pace = _Pace()
    step = 1.0 if solver.unit_step else step_size(0)
    n_steps = n_calm = dips = 0
    good = anchor = last_temperature = None
    last_objective = math.nan
    learns = hasattr(temperature, "observe")
    fresh, converged, stopped, gain = True, False, False, math.nan
    history = []
    for n_iter in range(1, max_iter + 1):
        hot = temperature(n_iter - 1)
        point = model.recentre(model.revive(point, data, rng))
        anchor = None  # free to go, where it is not the last good one
        anchor = solver.begin(point, 1.0 / hot)
        point = anchor.point
        passes += anchor.passes
        now = time.perf_counter() - began
        history.append(Epoch(passes, now, anchor.objective, step, hot))
        if learns:
            temperature.observe(point)
        stopped = report is not None and bool(report(history[-1], point))
        # Nothing to compare with: another temperature, a re-seeded part, a roll-back,
        # an epoch of a solver that does not certify.
        fresh = fresh or hot != last_temperature or bool(point.repaired)
        last_temperature = hot
        known = good is not None and not fresh
        fell = known and solver.certifies and _fell(anchor, good, tol)
        if fell:
            dips += 1
            pace.slow_down()
            if dips > (0 if solver.exact else 1):
                point = model.update(good.point, good.mean, None, 1.0)
                solver.restore(good)
                fresh, dips, n_calm = True, 0, 0
                if n_iter < max_iter and not stopped:
                    continue
                anchor = good
        else:
            gain = math.nan if fresh else anchor.objective - last_objective
            n_calm = n_calm + 1 if abs(gain) < tol else 0
            good, dips, fresh = anchor if solver.certifies else None, 0, False
        last_objective = anchor.objective
        calm = n_calm >= solver.patience or anchor.promise < tol
        converged = calm and hot == temperature(n_iter)
        if converged or stopped or (n_iter == max_iter and solver.exact is not None):
            break
        rejected = visited = 0
        for visit in solver.visits(rng):
            if not solver.unit_step:
                step = step_size(n_steps) * pace.factor
            # In one line, so that no name keeps the estimate longer than its step.
            point = model.update(point, *solver.estimate(visit, point), step)
            rejected += point.trials > 0
            visited += 1
            n_steps += 1
        passes += solver.passes
        if not fell:
            pace.adapt(rejected / max(1, visited))
    ends = (len(history), converged, stopped, gain)
    if not history or not solver.exact or last_temperature != 1.0:
        if history and solver.certifies:
            point = model.update(anchor.point, anchor.mean, None, 1.0)
        # The objective of the model itself, neither a bound nor heated.
        batch = Batch()
        batch.start(model, data, rng)
        anchor = batch.begin(model.recentre(point), 1.0)
        passes += anchor.passes
        now = time.perf_counter() - began
        history.append(Epoch(passes, now, anchor.objective, 1.0, 1.0))
    if max_iter and anchor.mean is not None:
        point = model.update(anchor.point, anchor.mean, None, 1.0)
    return Result(point, anchor.objective, *ends, history)


class _Pace:
    """Factor of the step size: down where steps fail, up again where they do not."""

    def __init__(self):
        self.factor = self.ceiling = 1.0
        self.n_slow = 0

    def slow_down(self):
        """After a dip of the objective. A fit that keeps dipping is slowed for good."""
        self.n_slow += 1
        if self.n_slow > FORGIVEN:
            self.ceiling *= 0.7
        self.factor = min(0.5 * self.factor, self.ceiling)

    def adapt(self, rejected):
        """After an epoch, of whose steps a share was infeasible."""
        if rejected > MANY_REJECTED:
            self.factor *= 0.5
        elif rejected <= FEW_REJECTED:
            # Recovery is essential: early steps fail where later ones do not.
            self.factor = min(self.ceiling, 2.0 * self.factor)


def _fell(anchor, good, tol):
    """Whether the objective fell by more than rounding, or than counts as calm.

    The comparison is written so that a NaN counts as a fall.
    """
    slack = max(tol, 1e-10 * max(1.0, abs(good.objective)))
    return not anchor.objective >= good.objective - slack


def as_history(epochs):
    """Return the rows of a history as a dict of arrays."""
    columns = zip(*epochs, strict=True) if epochs else [()] * len(Epoch._fields)
    return {
        name: np.asarray(column, dtype=float)
        for name, column in zip(Epoch._fields, columns, strict=True)
    }
