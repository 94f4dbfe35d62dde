"""Fits from several starts, of which the best is kept."""

import time

import numpy as np

from skvrem.solvers._run import as_history, run

__all__ = ["run_starts"]


def run_starts(start, n_init, *, plan, data, progress, random_state, tol, **options):
    """Run from several starts.

    Parameters
    ----------
    start : callable
        Called with a Generator, returns (model, point, passes, attributes): where to
        begin, what that has cost, and a function that turns a point into fitted
        attributes.
    n_init : int
    plan : Plan
    data : see ``_protocols.py``
    progress : Progress
    random_state : numpy.random.RandomState
    tol, **options :
        Of :func:`run`.

    Returns
    -------
    best : Result
        Of the start that ended highest.
    attributes : dict
        Fitted attributes: those of its point, and what all estimators say of a fit.
    """
    results, describe = [], []
    for number in range(n_init):
        began = time.perf_counter()
        rng = np.random.default_rng(random_state.randint(2**31 - 1))
        model, point, passes, attributes = start(rng)
        report = progress.start(number, attributes)
        result = run(
            model,
            plan.solver,
            data,
            point,
            step_size=plan.step_size,
            tol=tol,
            rng=rng,
            report=report,
            passes=passes,
            seconds=time.perf_counter() - began,
            **options,
        )
        results.append(result)
        describe.append(attributes)
        if report.end():
            break
    scores = np.array([result.objective for result in results])
    at = int(np.where(np.isnan(scores), -np.inf, scores).argmax())
    best = results[at]
    return best, {
        **describe[at](best.point),
        "converged_": best.converged,
        "n_iter_": best.n_iter,
        "history_": as_history(best.history),
        "solver_": plan.name,
        "step_size_": float(plan.step_size(0)),
        "batch_size_": -(-data.n_units // plan.n_blocks),
        "init_scores_": scores,
    }
