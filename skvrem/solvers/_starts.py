"""Fits from several starts, of which the best is kept."""

import time
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from skvrem.schedules import Constant
from skvrem.solvers._history import joined
from skvrem.solvers._run import run

__all__ = ["Start", "run_starts"]


class Start(NamedTuple):
    """Where a fit begins.

    Attributes
    ----------
    model, point : see ``_protocols.py``
    attributes : callable
        Turns a point into fitted attributes.
    passes : float
        What finding the point has cost.
    temperature : callable
    """

    model: Any
    point: Any
    attributes: Any
    passes: float = 0.0
    temperature: Any = Constant(1.0)


def run_starts(estimator, start, plan, data, progress, random_state, stop=None):
    """Run from several starts.

    Parameters
    ----------
    estimator : estimator
        With `max_iter` and `tol`.
    start : callable
        Called with a Generator, returns a Start.
    plan : Plan
        With a `lead`, starts are short and only the best goes on.
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

    def advance(solver, held, begin, n_epochs, passes, began):
        return run(
            begin.model,
            solver,
            data,
            held.pop(),  # the loop's alone, which can let it go
            step_size=plan.step_size,
            temperature=begin.temperature,
            max_iter=n_epochs,
            tol=estimator.tol,
            rng=rng,
            report=partial(_report, report, stop),
            passes=passes,
            seconds=time.perf_counter() - began,
        )

    max_iter, short = estimator.max_iter, plan.lead is not None
    solver, n_epochs = plan.solver, max_iter
    if short:
        solver, n_epochs = plan.lead, min(plan.lead_epochs, max_iter)
    begun, results = [], []
    for number in range(progress.n_init):
        began = time.perf_counter()
        seed = random_state.randint(2**31 - 1) if random_state is not None else 0
        rng = np.random.default_rng(seed)
        begin = start(rng)
        held, begin = [begin.point], begin._replace(point=None)
        report = progress.start(number, begin.attributes)
        results.append(advance(solver, held, begin, n_epochs, begin.passes, began))
        begun.append((begin, began))
        if not short and report.end():
            break
    scores = np.array([result.objective for result in results])
    at = int(np.where(np.isnan(scores), -np.inf, scores).argmax())
    best, (begin, began) = results[at], begun[at]
    left = max_iter - best.n_iter
    if short and left > 0 and not (best.converged or best.stopped):
        passes = best.history[-1].passes
        more = advance(plan.solver, [best.point], begin, left, passes, began)
        best = joined([best, more])
    if short:
        report.end()
    return best, {
        **begin.attributes(best.point),
        **best.attributes(),
        **plan.attributes(data.n_units),
        "solver_": best.history[-1].solver,
        "init_scores_": scores,
    }


def _report(report, stop, epoch, point):
    asked = report(epoch, point)
    return asked or (stop is not None and stop(epoch))
