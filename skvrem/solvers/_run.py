"""The only outer loop: epochs, certificates, roll-back, stopping, history."""

import math
import time
from functools import partial
from typing import Any

from skvrem.schedules import Constant
from skvrem.solvers._history import Epoch, Result
from skvrem.solvers._journal import new_slot
from skvrem.solvers._pace import Pace
from skvrem.solvers._prediction import GainPrediction
from skvrem.solvers._protocols import recentred
from skvrem.solvers.estimate._batch import Batch

ONE = Constant(1.0)
# What the loop itself counts.
COUNTS = "n_iter", "n_steps", "passes", "size", "current_temperature", "reason"


def _size_of_step(step_size, n_before, factor, number):
    """Return the size of a step, or of an array of them, by its number in an epoch."""
    return step_size(n_before + number) * factor


class Run:
    """A fit that can pause.

    The start is certified before anything moves. Then each epoch moves the point by
    the solver's steps, at a temperature that is frozen, and certifies where it has come
    to: if the objective decreased by more than rounding, the last good anchor comes
    back, with a step of batch EM from it, and the step size is halved.

    Parameters
    ----------
    model, solver, data : see ``_protocols.py``
    point : Any
        Where to start.
    tol : float
        Converged when less is left to gain a unit, by the solver's own prediction, or
        by the gains of the last epochs for as many epochs in a row as the solver's
        patience. 0 never stops a fit.
    rng : numpy.random.Generator
    step_size, temperature : callables, default=Constant(1.0)
        Functions of the number of updates and of epochs made. A temperature that has
        a method `observe` is told every point that has been certified.
    report : callable, default=None
        Called with each `Epoch` that moved and its point; a true answer stops the fit.
        Runs that report are those of an estimator's own fit: they are in checkpoints.
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
        tol,
        rng,
        step_size=ONE,
        temperature=ONE,
        report=None,
        passes=0.0,
        seconds=0.0,
    ):
        self.model, self.solver, self.data, self.rng = model, solver, data, rng
        self.step_size, self.temperature = step_size, temperature
        self.tol, self.report, self.passes = tol, report, passes
        self.began = time.perf_counter() - seconds
        self.history, self.reason = [], None
        self.n_iter = self.n_steps = self.n_decreases = 0
        self.pace, self.prospect = Pace(), GainPrediction(tol)
        self.anchor: Any = None
        self.good: Any = None
        self.current_temperature = math.nan  # of the anchor
        self.point = point
        self.rested: Any = None  # the generator, when the last epoch had ended
        self.slot = None if report is None else new_slot()

    def advance(self, n_epochs):
        """Make so many epochs more, or fewer if the fit ends before.

        Returns
        -------
        self : Run
        """
        goal = self.n_iter + n_epochs
        if self.slot is not None and self.slot.knows(goal):
            return self  # `result` tells where that led
        if self.anchor is None:
            self.solver.start(self.model, self.data, self.rng)
            saved = None if self.slot is None else self.slot.saved
            self._begin() if saved is None else self._resume(saved)
        self.rested = None
        while self.n_iter < goal and self.reason is None:
            self._epoch()
            if self.slot is not None and self.slot.see(self):
                self.reason = self.reason or "time"
        self.rested = self._drawn()
        return self

    def _begin(self):
        self._certify(self.point)
        self.point = None  # the anchor's alone
        self.good = self.anchor if self.solver.certifies else None
        self.prospect.begin(self.anchor)
        self.size = self.step_size(0)
        self._record(self.solver.name, math.nan)

    def _epoch(self):
        name, before = self.solver.name, self.anchor.objective
        temperature = self.current_temperature
        if getattr(self.temperature, "within_epochs", False):
            self.solver.follow(lambda share: self.temperature(self.n_iter + share))
        about = self.step_size, self.n_steps, self.pace.factor
        pace = partial(_size_of_step, *about)
        moved = self.solver.epoch(self.anchor, pace, self.rng)
        self.n_iter += 1
        self.n_steps += moved.n_steps
        self.passes += moved.passes
        self.size = moved.step_size
        self.anchor = None  # free to go, where it is not the last good one
        if self.good is not None and hasattr(self.model, "spent"):
            self.good = self.good._replace(point=self.model.spent(self.good.point))
        self._certify(moved.point, moved.certified)
        # Nothing to compare with: another temperature, another solver, a part that
        # was seeded anew, what a lost worker had beside its rows.
        fresh = temperature != self.current_temperature or name != self.solver.name
        fresh = fresh or bool(self.anchor.point.repaired)
        fresh = (hasattr(self.solver, "remade") and self.solver.remade()) or fresh
        decreased = self.good is not None and not fresh and self._decreased()
        if decreased:
            self.n_decreases += 1
            self.pace.slow_down()
            # One decrease of a bound means nothing.
            if self.n_decreases > (0 if self.solver.exact else 1):
                fresh, moved = True, moved._replace(gradient_variance=math.nan)
                self._roll_back()
        else:
            self.n_decreases = 0
            self.pace.adapt(moved.n_rejected / max(1, moved.n_steps))
        if not self.n_decreases:
            self.good = self.anchor if self.solver.certifies else None
        gain = math.nan if fresh else self.anchor.objective - before
        self.prospect.see(self.anchor, gain, self.solver, self._may_end)
        self._record(name, moved.gradient_variance)
        stalled = moved.stalled and not fresh
        stalled = stalled or self.prospect.is_flat(self.anchor, self.solver)
        self._end(stalled or self.pace.stalled)

    def _certify(self, point, anchor=None):
        """Make the anchor of a point, at the temperature of the next epoch."""
        temperature = self.temperature(self.n_iter)
        reseeded = point
        if hasattr(self.model, "reseed"):
            reseeded = self.model.reseed(point, self.data, self.rng)
        known = (
            anchor is not None
            and reseeded is point
            and temperature == self.current_temperature
        )
        if not known:
            point = recentred(self.model, reseeded)
            anchor = self.solver.certify(point, 1.0 / temperature)
            self.passes += anchor.passes
        self.anchor, self.current_temperature = anchor, temperature
        if hasattr(self.temperature, "observe"):
            self.temperature.observe(anchor.point)

    def _decreased(self):
        """Whether the objective decreased by more than rounding or the tolerance.

        The comparison is written so that a NaN counts as a decrease.
        """
        good = self.good.objective
        slack = 1e-10 * max(1.0, abs(good))
        if not self.solver.exact:
            slack = max(self.tol, slack)
        slack = max(slack, getattr(self.model, "slack", 0.0))
        return not self.anchor.objective >= good - slack

    def _roll_back(self):
        """Go to a step of batch EM from the last good anchor."""
        good = self.good
        point = self.model.update(good.point, good.mean, None, 1.0)
        self.solver.restore(good)
        self.anchor = None
        self._certify(point)
        self.n_decreases = 0

    def _may_end(self, anchor):
        """Whether model and solver have nothing to say against an end here."""
        may_end = getattr(self.model, "may_end", None)
        if may_end is not None and anchor.mean is not None:
            if not may_end(anchor.point, anchor.mean, self.tol):
                return False
        if not hasattr(self.solver, "may_end"):
            return True
        shown, passes = self.solver.may_end(anchor, self.tol)
        self.passes += passes
        return shown

    def _record(self, name, gradient_variance):
        self.history.append(
            Epoch(
                self.passes,
                time.perf_counter() - self.began,
                self.anchor.objective,
                self.size,
                self.current_temperature,
                self.prospect.left,
                gradient_variance,
                name,
            )
        )

    def _end(self, stalled):
        """Decide whether the fit ends here."""
        stopped = self.report is not None and bool(
            self.report(self.history[-1], self.anchor.point)
        )
        still = self.current_temperature == self.history[-2].temperature
        if self.prospect.enough and still:
            self.reason = "tol"
        elif stopped:
            self.reason = "callback"
        elif stalled:
            # Where steps no longer gain, their own prediction is all that is left.
            known = self.solver.exact and self.prospect.left < self.tol
            self.reason = "tol" if known and still else "stalled"

    def result(self):
        """End the fit and return what it has come to.

        Returns
        -------
        result : Result
            Of a point whose own objective is known. Where the solver knows only a
            bound, or the temperature is above 1, a pass more finds it, and the run
            cannot go on from there.
        """
        known = None if self.slot is None else self.slot.tell()
        if known is not None:
            known, drawn, learned = known
            self.n_iter = known.n_iter
            self._set_drawn(drawn)
            self._learn(learned)
            return known._replace(point=self._unpacked(known.point))
        anchor, history = self.anchor, self.history
        if not self.solver.exact or self.current_temperature != 1.0:
            point = anchor.point
            if self.solver.exact is False and self.n_iter:
                # What the bound is of.
                point = self.model.update(point, anchor.mean, None, 1.0)
                point = recentred(self.model, point)
            batch = Batch()
            batch.start(self.model, self.data, self.rng)
            anchor = batch.certify(point, 1.0)
            row = history[-1]._replace(
                passes=self.passes + anchor.passes,
                seconds=time.perf_counter() - self.began,
                objective=anchor.objective,
                temperature=1.0,
            )
            history = [*history, row]
        result = self._result(anchor)._replace(history=history)
        if self.slot is not None:
            packed = result._replace(point=self._packed(result.point))
            self.slot.keep(packed, self._drawn(), self._learned())
        return result

    def _result(self, anchor):
        reason, left = self.reason or "max_iter", self.prospect.left
        return Result(
            anchor.point, anchor.objective, self.n_iter, reason, left, self.history
        )

    def attributes(self):
        """Return the fitted attributes of where the run is, as of a fit ended there."""
        found, describe = self._result(self.anchor), self.report.attributes
        known = found.attributes() | {"converged_": False}
        return known | describe(found.point, found.objective)

    def state(self):
        """Return where the run is, to `resume` from it.

        The point, and what the loop, the solver, the temperature and the generator of
        random numbers know beside it, as numbers and arrays. Anchors and tables are not
        in it, nor what the model finds again by a pass.
        """
        state = {name: getattr(self, name) for name in COUNTS}
        return state | {
            "point": self._packed(self.anchor.point),
            "seconds": time.perf_counter() - self.began,
            "pace": self.pace.state(),
            "prospect": dict(vars(self.prospect)),
            "history": list(self.history),
            "solver": self.solver.state(),
            "learned": self._learned(),
            "drawn": self.rested or self._drawn(),
        }

    def _drawn(self):
        return None if self.rng is None else self.rng.bit_generator.state

    def _set_drawn(self, state):
        if self.rng is not None:
            self.rng.bit_generator.state = state

    def _packed(self, point):
        return self.model.pack(point) if hasattr(self.model, "pack") else point

    def _unpacked(self, point):
        unpacks = point is not None and hasattr(self.model, "unpack")
        return self.model.unpack(point) if unpacks else point

    def _learning(self):
        """What else knows more as a fit goes on, by name."""
        parts = {"temperature": self.temperature, "report": self.report}
        return {name: part for name, part in parts.items() if hasattr(part, "state")}

    def _learned(self):
        return {name: part.state() for name, part in self._learning().items()}

    def _learn(self, learned):
        for name, part in self._learning().items():
            part.resume(learned[name])

    def _resume(self, state):
        """Go on from a state: certify the point anew."""
        for name in COUNTS:
            setattr(self, name, state[name])
        self.began = time.perf_counter() - state["seconds"]
        vars(self.pace).update(state["pace"])
        vars(self.prospect).update(state["prospect"])
        self.history = list(state["history"])
        self.solver.resume(state["solver"])
        self._learn(state["learned"])
        if self.reason in ("callback", "time") and not _has_ended(self.report):
            self.reason = None
        point, self.point = self._unpacked(state["point"]), None
        self.anchor = self.solver.certify(point, 1.0 / self.current_temperature)
        self.passes += self.anchor.passes
        self.good = self.anchor if self.solver.certifies else None
        self.n_decreases = 0
        self._set_drawn(state["drawn"])


def _has_ended(report):
    """Whether what watches a fit wants no more of it, by rows held out."""
    return getattr(report, "ended", False)


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
