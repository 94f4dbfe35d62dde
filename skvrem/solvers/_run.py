"""The only outer loop: epochs, certificates, roll-back, stopping, history."""

import math
import time
from typing import Any, NamedTuple

import numpy as np

from skvrem.solvers._batch import Batch
from skvrem.solvers._prediction import left_to_gain

__all__ = ["Epoch", "Result", "Run", "as_history", "joined", "run"]

# Share of an epoch's steps that may be infeasible before the step size is halved,
# and below which it recovers.
MANY_REJECTED, FEW_REJECTED = 0.10, 0.02
# Dips of the objective that leave no trace: those of the start.
FORGIVEN = 5
# A solver has stalled where so many epochs together gain less than this share of what
# it predicts and of the tolerance.
FLAT, LITTLE = 5, 0.01
# And where epochs fell so often that steps are this share of what they were.
LEAST_PACE = 1e-6
# A gain of this share of the tolerance is little even at the slowest rate believed.
TINY, TINY_RATE = 1e-6, 1e-3
# The most epochs over which a solver's noisy gains are added up.
MOST_NOISY = 10


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
    solver : str
        Which solver made the epoch.
    """

    passes: float
    seconds: float
    objective: float
    step_size: float
    temperature: float
    predicted_gain: float
    solver: str


class Result(NamedTuple):
    """What a fit came to.

    Attributes
    ----------
    point : Any
    objective : float
        Of this very point: of the model itself, neither a bound nor heated.
    n_iter : int
        Epochs that moved the point.
    reason : str
        Why no more were made: "tol", "stalled", "callback" or "max_iter".
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
        """Whether a callback has ended the fit."""
        return self.reason == "callback"

    def attributes(self):
        """Return the fitted attributes that all estimators have."""
        return {
            "converged_": self.converged,
            "n_iter_": self.n_iter,
            "history_": as_history(self.history),
            "stop_reason_": self.reason,
            "gap_left_": float(self.left),
        }


class Run:
    """A fit that can pause.

    The start is certified before anything moves. Then each epoch moves the point by
    the solver's steps, at a temperature that is frozen, and certifies where it has come
    to: if the objective fell by more than rounding, the last good anchor comes back,
    with a step of batch EM from it, and the step size is halved.

    Parameters
    ----------
    model, solver, data : see ``_protocols.py``
    point : Any
        Where to start.
    step_size, temperature : callables
        Functions of the number of updates and of epochs made. A temperature that has
        a method `observe` is told every point that has been certified.
    tol : float
        Converged when less is left to gain a unit, by the solver's own prediction, or
        by the gains of the last epochs for as many epochs in a row as the solver's
        patience. 0 never stops a fit.
    rng : numpy.random.Generator
    report : callable, default=None
        Called with each `Epoch` that moved and its point; a true answer stops the fit.
    passes, seconds : float
        What the start has cost.
    """

    def __init__(
        self,
        model,
        solver,
        data,
        point,
        *,
        step_size,
        temperature,
        tol,
        rng,
        report=None,
        passes=0.0,
        seconds=0.0,
    ):
        self.model, self.solver, self.data, self.rng = model, solver, data, rng
        self.step_size, self.temperature = step_size, temperature
        self.tol, self.report, self.passes = tol, report, passes
        self.began = time.perf_counter() - seconds
        self.history, self.reason = [], None
        self.n_iter = self.n_steps = self.n_small = self.n_dips = 0
        self.pace, self.size = _Pace(), 1.0
        self.gains, self.left = [], math.nan
        self.anchor: Any = None
        self.good: Any = None
        self.heat = math.nan  # temperature of the anchor
        self.point = point

    def advance(self, n_epochs):
        """Make so many epochs more, or fewer if the fit ends before.

        Returns
        -------
        self : Run
        """
        if not self.history:
            self.solver.start(self.model, self.data, self.rng)
            self._certify(self.point)
            self.point = None  # the anchor's alone
            self.good = self.anchor if self.solver.certifies else None
            self.left = self._finite(self.anchor.predicted_gain)
            self.size = self.step_size(0)
            self.n_small = int(self.left < self.tol)
            self._record(self.solver.name)
        for _ in range(n_epochs):
            if self.reason is not None:
                break
            self._epoch()
        return self

    def _epoch(self):
        name, before = self.solver.name, self.anchor.objective
        heat = self.heat
        moved = self.solver.epoch(self.anchor, self._size_of_step, self.rng)
        self.n_iter += 1
        self.n_steps += moved.n_steps
        self.passes += moved.passes
        self.size = moved.step_size
        self.anchor = None  # free to go, where it is not the last good one
        self._certify(moved.point, moved.certified)
        # Nothing to compare with: another temperature, another solver, a part that
        # was seeded anew.
        fresh = heat != self.heat or name != self.solver.name
        fresh = fresh or bool(self.anchor.point.repaired)
        fell = self.good is not None and not fresh and self._fell()
        if fell:
            self.n_dips += 1
            self.pace.slow_down()
            # One dip of a bound means nothing.
            if self.n_dips > (0 if self.solver.exact else 1):
                fresh = True
                self._roll_back()
        else:
            self.n_dips = 0
            self.pace.adapt(moved.n_rejected / max(1, moved.n_steps))
        if not self.n_dips:
            self.good = self.anchor if self.solver.certifies else None
        gain = self.anchor.objective - before
        comparable = not fresh and not math.isnan(gain)
        self.gains = [*self.gains[1 - 2 * MOST_NOISY :], gain] if comparable else []
        self._predict()
        self._record(name)
        still = moved.stalled and not fresh
        self._end(still or self._flat() or self.pace.factor < LEAST_PACE)

    def _size_of_step(self, number):
        return self.step_size(self.n_steps + number) * self.pace.factor

    def _certify(self, point, anchor=None):
        """Make the anchor of a point, at the temperature of the next epoch."""
        heat = self.temperature(self.n_iter)
        revived = self.model.revive(point, self.data, self.rng)
        known = anchor is not None and revived is point and heat == self.heat
        if not known:
            point = self.model.recentre(revived)
            anchor = self.solver.certify(point, 1.0 / heat)
            self.passes += anchor.passes
        self.anchor, self.heat = anchor, heat
        if hasattr(self.temperature, "observe"):
            self.temperature.observe(anchor.point)

    def _fell(self):
        """Whether the objective fell by more than rounding, or than is to be gained.

        The comparison is written so that a NaN counts as a fall.
        """
        good = self.good.objective
        slack = 1e-10 * max(1.0, abs(good))
        if not self.solver.exact:
            slack = max(self.tol, slack)
        return not self.anchor.objective >= good - slack

    def _roll_back(self):
        """Go to a step of batch EM from the last good anchor."""
        good = self.good
        point = self.model.update(good.point, good.mean, None, 1.0)
        self.solver.restore(good)
        self.anchor = None
        self._certify(point)
        self.n_dips = 0

    def _predict(self):
        """Say what is left to gain, and count the epochs that leave little."""
        own = self.anchor.predicted_gain
        if math.isnan(own):
            noisy = self.solver.patience if self.solver.noisy else 0
            self.left = left_to_gain(self.gains, self.anchor.objective, noisy)
            if math.isinf(self.left) and abs(self.gains[-1]) < TINY * self.tol:
                # At the end, where gains are rounding, they need not fall.
                self.left = abs(self.gains[-1]) / TINY_RATE
            hidden = self.left == 0.0 and self.solver.exact
        else:
            # What rounding hides is not left.
            hidden = abs(own) <= 1e-14 * max(1.0, abs(self.anchor.objective))
            self.left = 0.0 if hidden else own
        small = self.left < self.tol
        self.n_small = self.n_small + 1 if small else 0
        needed = 1 if self.solver.noisy else self.solver.patience
        if not math.isnan(own):
            needed = self.solver.confirms
        # Where rounding hides what is left, no further epoch can show more.
        shown = self.n_small >= needed and self._may_end()
        self.calm = small and (shown or hidden)

    def _may_end(self):
        """Whether the model has nothing to say against an end here."""
        may_end, mean = getattr(self.model, "may_end", None), self.anchor.mean
        if may_end is None or mean is None:
            return True
        return may_end(self.anchor.point, mean, self.tol)

    def _flat(self):
        """Whether steps gain nothing of what the solver predicts.

        As where nodes of quadrature err by more than is left to gain.
        """
        own, last = self.anchor.predicted_gain, self.gains[-FLAT:]
        if math.isnan(own) or self.solver.noisy or len(last) < FLAT:
            return False
        return sum(last) < LITTLE * min(self.tol, own)

    def _record(self, name):
        self.history.append(
            Epoch(
                self.passes,
                time.perf_counter() - self.began,
                self.anchor.objective,
                self.size,
                self.heat,
                self.left,
                name,
            )
        )

    def _end(self, stalled):
        """Decide whether the fit ends here."""
        stopped = self.report is not None and bool(
            self.report(self.history[-1], self.anchor.point)
        )
        still = self.heat == self.history[-2].temperature
        if self.calm and still:
            self.reason = "tol"
        elif stopped:
            self.reason = "callback"
        elif stalled:
            self.reason = "stalled"

    @staticmethod
    def _finite(number):
        return number if math.isfinite(number) else math.nan

    def result(self):
        """End the fit and return what it has come to.

        Returns
        -------
        result : Result
            Of a point whose own objective is known. Where the solver knows only a
            bound, or the temperature is above 1, a pass more finds it, and the run
            cannot go on from there.
        """
        anchor, history = self.anchor, self.history
        if not self.solver.exact or self.heat != 1.0:
            point = anchor.point
            if self.solver.exact is False and self.n_iter:
                # What the bound is of.
                point = self.model.update(point, anchor.mean, None, 1.0)
            batch = Batch()
            batch.start(self.model, self.data, self.rng)
            anchor = batch.certify(self.model.recentre(point), 1.0)
            row = history[-1]._replace(
                passes=self.passes + anchor.passes,
                seconds=time.perf_counter() - self.began,
                objective=anchor.objective,
                temperature=1.0,
            )
            history = [*history, row]
        reason = self.reason or "max_iter"
        return Result(
            anchor.point, anchor.objective, self.n_iter, reason, self.left, history
        )

    def state(self):
        """Return the state of the loop and of the solver, as plain numbers and arrays.

        The point is the model's; anchors and tables are not in it, as a pass makes
        them again.
        """
        return {
            "n_iter": self.n_iter,
            "n_steps": self.n_steps,
            "n_small": self.n_small,
            "passes": self.passes,
            "seconds": time.perf_counter() - self.began,
            "pace": self.pace.state(),
            "gains": np.array(self.gains, dtype=float),
            "history": as_history(self.history),
            "solver": {"name": self.solver.name, **self.solver.state()},
        }


def run(model, solver, data, point, *, max_iter, **options):
    """Fit `model` to `data` from `point`, by at most `max_iter` epochs.

    Parameters
    ----------
    model, solver, data, point, **options : as `Run`
    max_iter : int
        Epochs that move the point. With 0, the start is certified and returned.

    Returns
    -------
    result : Result
    """
    fit = Run(model, solver, data, point, **options)
    del point  # the run's alone, which can let it go
    return fit.advance(max_iter).result()


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

    def state(self):
        """Return its numbers."""
        return {"factor": self.factor, "ceiling": self.ceiling, "n_slow": self.n_slow}


def joined(results):
    """Return runs that went on from each other as one result.

    The start of every run but the first is where the one before it ended, so its row
    is left out.
    """
    last = results[-1]
    history = list(results[0].history)
    for result in results[1:]:
        history += result.history[1:]
    return last._replace(n_iter=sum(r.n_iter for r in results), history=history)


def as_history(epochs):
    """Return the rows of a history as a dict of arrays."""
    columns = zip(*epochs, strict=True) if epochs else [()] * len(Epoch._fields)
    return {
        name: np.asarray(column, dtype=str if name == "solver" else float)
        for name, column in zip(Epoch._fields, columns, strict=True)
    }
