"""Fits from several starts, of which the best is kept."""

import math
import time
from functools import cmp_to_key, partial
from itertools import compress
from typing import Any, NamedTuple

import numpy as np

from skvrem.schedules import Constant
from skvrem.solvers._history import joined
from skvrem.solvers._run import Run

# Objectives that differ by less, relative to them, are equal: sums of rows differ by so
# much as the rows lie in one block or in many.
ROUNDING = 1e-12
# Epochs from which on they foretell how high a start may come; before, they do not even
# tell who will be degenerate.
FORETELLING = 10


class Start(NamedTuple):
    """Where a fit begins.

    Attributes
    ----------
    model, point : see ``_protocols.py``
    attributes : callable
        Turns a point and its objective into fitted attributes.
    passes : float
        What finding the point has cost.
    temperature : callable
    degenerate : callable, default=None
        Whether the objective of a point is high for what is no structure of the data,
        as of a component of a single row, or how much of it: who has more loses.
    again : callable, default=None
        Called with the Result of where the start has led and the epochs that are left;
        returns a point to begin from once more, or None, the passes that it cost to
        find out, and whether the point has nothing to do with that end. The best of
        these ends is that of the start. Where it has a false attribute `moved`, the
        point has the parameters of that end, and no row of the history. Who has other
        starts beside it looks at the point of the Result by a third argument alone, as
        that may be left behind where a fit is resumed: called with a name and a search
        that returns a point or None, and passes, it returns these.
    n_points : int
        To begin from at most, of which each has all epochs: this one, and such as have
        nothing to do with an end.
    apart : bool
        It goes to its end whatever a race says, and has no part in that: as one that
        begins near an end, whom others could overtake but late.
    beside : bool
        Others race as if it were not there: as one that is soon above some who end
        higher. It goes on by its own place among all.
    """

    model: Any
    point: Any
    attributes: Any
    passes: float = 0.0
    temperature: Any = Constant(1.0)
    degenerate: Any = None
    again: Any = None
    n_points: int = 1
    apart: bool = False
    beside: bool = False


def run_starts(estimator, start, plan, data, progress, random_state, stop=None):
    """Run from several starts, to their ends or in a race.

    In a race all starts make a few epochs, some go on, and few to the end. Objectives
    decide who goes on, and the first of equal ones; who is degenerate comes last, and
    nobody goes on to whom the first is out of reach. Who is on the way to a degenerate
    end is ahead of all others before it is there: where all ends are, the best of those
    that were left behind go on, one after the other until an end is not, and no more of
    them than had gone on before. The first epochs may look at a sample of the data:
    history and `n_iter` leave them out.

    Parameters
    ----------
    estimator : estimator
        With `max_iter` and `tol`.
    start : callable
        Called with a Generator, returns a Start.
    plan : Plan
        With `rungs` where this is a race.
    data : see ``_protocols.py``
    progress : Progress
        Of as many starts as it was made for.
    random_state : numpy.random.RandomState or None
        None: every start has the same fixed seed.
    stop : callable, default=None
        Called with each `Epoch`; a true answer ends the start.

    Returns
    -------
    best : Result
        Of the start that ended highest.
    attributes : dict
        Fitted attributes: those of its point, and what all estimators say of a fit.
    """
    scores, epochs = np.full((2, progress.n_init), np.nan)

    def enter(number):
        seed = random_state.randint(2**31 - 1) if random_state is not None else 0
        known = {**plan.attributes(data.n_units), "init_scores_": scores}
        given = estimator, start, plan, data, progress, number, seed, stop
        return _Entrant(*given, known)

    def see(entrant, result):
        scores[entrant.number] = result.objective
        epochs[entrant.number] = result.n_iter
        return *entrant.found, entrant.number

    # One at a time, but in a race.
    entrants: Any = map(enter, range(progress.n_init))
    behind: list = []
    for n_epochs, n_left in plan.rungs:
        entrants = list(entrants)
        for entrant in entrants:
            entrant.advance(n_epochs)
        apart = [entrant for entrant in entrants if entrant.apart]
        for entrant in apart:
            see(entrant, entrant.pause())
            entrant.see_all()
        entrants = [entrant for entrant in entrants if not entrant.apart]
        entrants.sort(key=lambda entrant: by_loss(see(entrant, entrant.pause())))
        others = [entrant for entrant in entrants if not entrant.beside]
        going = []
        for entrant in entrants:
            field = entrants if entrant.beside else others
            good = entrant is field[0] or entrant.may_overtake(field[0])
            going.append(good and field.index(entrant) < n_left)
        for entrant, goes_on in zip(entrants, going, strict=True):
            if goes_on:
                entrant.see_all()
            elif entrant.degenerate is None or see(entrant, entrant.paused)[0]:
                entrant.leave()
            elif entrant.beside:  # it would be called in place of another
                entrant.leave()
            else:
                behind.append(entrant)
        entrants = apart + list(compress(entrants, going))
    best: Any = None
    describe: Any = None
    degenerate: Any = 0
    kept: list = []
    lowest: Any = None
    behind.sort(key=lambda entrant: by_loss(see(entrant, entrant.paused)))

    def going_on():
        yield from entrants
        called = plan.rungs[-1][1] if behind else 0
        while called and behind and degenerate:
            behind[0].see_all()
            called -= 1
            yield behind.pop(0)

    for entrant in going_on():
        result = entrant.finish()
        found = see(entrant, result)
        loss = by_loss(found)
        if best is None or loss < lowest:
            drop(kept)
            lowest, best, kept = loss, result, entrant.slots
            degenerate, describe = found[0], entrant.attributes
        else:
            drop(entrant.slots)
        ended = entrant.report.end() or result.reason == "time"
        del entrant, result  # free to go before the next begins
        if ended:
            break
    for entrant in behind:
        entrant.leave()
    return best, {
        **describe(best.point, best.objective),
        "objective_": best.objective,
        **best.attributes(),
        **plan.attributes(data.n_units),
        "solver_": best.history[-1].solver,
        "init_scores_": scores,
        "init_epochs_": np.nan_to_num(epochs).astype(int),
    }


class _Entrant:
    """A start on its way: runs that go on from each other, and what they report to."""

    def __init__(
        self, estimator, start, plan, data, progress, number, seed, stop, known
    ):
        self.number, self.plan, self.most = number, plan, estimator.max_iter
        self.known, self.data = known, data
        self.seen = data if plan.sample is None else plan.sample
        self.paused: Any = None
        self.found: Any = None  # the loss of where it has come to
        self.began, rng = time.perf_counter(), np.random.default_rng(seed)
        begin = start(rng)
        self.attributes, self.degenerate = begin.attributes, begin.degenerate
        self.again, self.apart, self.beside = begin.again, begin.apart, begin.beside
        self.n_begun, self.n_points = 1, begin.n_points
        most = self.most * self.n_points
        self.report = progress.start(number, self.describe, stop, most)
        self.open = partial(
            Run,
            begin.model,
            step_size=plan.step_size,
            temperature=begin.temperature,
            tol=estimator.tol,
            rng=rng,
            report=self.report,
        )
        solver = plan.leading()
        cost = {"passes": begin.passes, "seconds": time.perf_counter() - self.began}
        self.run = self.open(solver, self.seen, point=begin.point, **cost)
        self.slots = [self.run.slot]

    def describe(self, point, objective):
        """Return the fitted attributes of where the start is."""
        scores = self.known["init_scores_"].copy()
        scores[self.number] = objective
        return {
            "solver_": self.run.solver.name,
            "objective_": objective,
            **self.known,
            "init_scores_": scores,
            **self.attributes(point, objective),
        }

    def advance(self, n_epochs):
        """Make so many epochs more, of those that there may be."""
        self.run.advance(min(n_epochs, self.most - self.run.n_iter))

    def pause(self):
        """Return where the start has come to."""
        self.paused = self.run.result()
        self.found = self.loss(self.paused)
        return self.paused

    def may_overtake(self, first):
        """Whether as many epochs more, each as good as the last, lead higher."""
        paused = self.paused  # its history is that of the run, which may have gone on
        if paused.n_iter < FORETELLING:
            return True
        before, last = (paused.history[paused.n_iter - i] for i in (1, 0))
        gain = paused.n_iter * (last.objective - before.objective)
        ahead = first.paused.objective
        return paused.objective + gain > ahead + ROUNDING * abs(ahead)

    def leave(self):
        """End where the start has come to, for good."""
        self.report.end()
        drop(self.slots)

    def see_all(self):
        """Go on with all of the data, if it was a sample so far."""
        if self.seen is self.data:
            return
        led, share = self.paused, self.seen.total_weight / self.data.total_weight
        self.seen, self.most = self.data, self.most - led.n_iter
        cost = {
            "passes": share * led.history[-1].passes,
            "seconds": time.perf_counter() - self.began,
        }
        how = {"report": None} if led.stopped else {}  # what is not to be gone on from
        self.run = self.open(
            self.plan.lead(), self.data, point=led.point, **cost, **how
        )
        self.slots.append(self.run.slot)
        if led.stopped:
            self.run.advance(0).reason = led.reason

    def loss(self, result):
        """Return what is lower the better, as its run's slot knows it."""
        slot, find = self.run.slot, partial(self._loss, result)
        if slot is None or result.stopped:  # the latter are not kept
            return find()
        return slot.loss(find)

    def _loss(self, result):
        """Return whether, or how much, it is degenerate, then what it is worth."""
        degenerate = self.degenerate is not None and self.degenerate(result.point)
        return int(degenerate), -np.nan_to_num(result.objective, nan=-np.inf)

    def finish(self):
        """Go on to the end, and from there; points of other origin have all epochs."""
        best = end = self._to_the_end()
        self.found = loss = self.loss(end)
        left = self.most - end.n_iter
        while self.again is not None and not end.stopped:
            point, passes, anew = self.again(end, left, self._search)
            if point is None:
                return self._spent(best, end.history[-1].passes + passes)
            if anew:
                self.n_begun, left = self.n_begun + 1, self.most
            if self.n_begun > self.n_points:
                break
            # It comes from where the temperature has come down.
            how = {"temperature": Constant(1.0)}
            led, self.run = end, self._go_on(end, point, passes, **how)
            end = self.run.advance(left).result()
            left -= end.n_iter
            apart, loss = anew or loss[0], self.loss(end)
            if not apart:  # what is degenerate has no part in the rest
                moved = getattr(self.again, "moved", True)
                end = joined([led, end], moved=moved)
            if by_loss(loss) < by_loss(self.found):
                best, self.found = end, loss
        return best

    def _search(self, name, find):
        """Return where a search from the last end leads, and what it has cost."""
        slot = self.run.slot
        return find() if slot is None else slot.lead(name, find)

    def _spent(self, result, passes):
        """Return a result that more passes have gone into."""
        last = result.history[-1]
        last = last._replace(passes=passes, seconds=time.perf_counter() - self.began)
        return result._replace(history=[*result.history[:-1], last])

    def _go_on(self, led, point, passes=0.0, **how):
        """Return a run by the solver of the plan, at the cost of what has led there."""
        seconds = time.perf_counter() - self.began
        cost = {"passes": led.history[-1].passes + passes, "seconds": seconds}
        run = self.open(self.plan.solver, self.data, point=point, **cost, **how)
        self.slots.append(run.slot)
        return run

    def _to_the_end(self):
        plan, led = self.plan, self.run
        if not plan.rungs or plan.lead in (None, type(plan.solver)):
            return led.advance(self.most - led.n_iter).result()
        result = led.result()
        left = self.most - result.n_iter
        if result.converged or result.stopped or not left:
            return result
        self.run = self._go_on(result, result.point)
        return joined([result, self.run.advance(left).result()])


def _compare(one, other):
    """Return whether one loss comes before (< 0) or after (> 0) another.

    Losses are tuples of what is degenerate, the objective's negative, and a number that
    decides between those that are equal but for rounding.
    """
    equal = math.isclose(one[1], other[1], rel_tol=ROUNDING, abs_tol=ROUNDING)
    if one[0] == other[0] and equal:
        one, other = one[2:], other[2:]
    return -1 if one < other else int(one > other)


#: Key of losses, to sort by and to compare.
by_loss = cmp_to_key(_compare)


def drop(slots):
    """Let a checkpoint forget the points of a start that others have left behind."""
    for slot in slots:
        if slot is not None:
            slot.drop()
