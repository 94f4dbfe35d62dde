"""How a user's own model is fitted: by full passes, or by minibatches."""

import time
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize

from skvrem import schedules, solvers
from skvrem.vi._model_draws import convex, probed_curvature
from skvrem.vi._model_target_steps import TargetSteps
from skvrem.vi._plan import FULL_RANK

__all__ = ["climb", "pairs_of_draws", "step"]

# Pairs of draws of full passes: fewer where rows are many, as these leave the log
# density close to its second order, which the draws are not needed for.
PAIRS, ROWS_OF_PAIRS = (4, 64), 200_000
# Full passes have as many pairs as parameters where that costs no more than so many
# numbers: rows times parameters twice.
CHEAP = 100_000_000
# The curvature is taken anew where a fit ends so many standard deviations away from
# where it was taken, and so often at most.
FAR, TURNS = 0.3, 5
# Steps to the mode of the density, where a fit starts, and random signs for the
# diagonal of a Hessian.
MODE_STEPS, PROBES = 200, 32


class Fit(NamedTuple):
    """What a fit came to.

    Attributes
    ----------
    point : Point
    runs : list of Result
    curvature : Dense or Products, or None
        The last one.
    attributes : dict
        What has been used, and the history.
    """

    point: Any
    runs: list
    curvature: Any
    attributes: dict


def pairs_of_draws(estimator, plan, n_rows, width):
    """Return how many pairs of draws full passes have."""
    if estimator.n_draws != "auto":
        return estimator.n_draws // 2
    few = int(np.clip(ROWS_OF_PAIRS // n_rows, *PAIRS))
    if plan.solver != "batch":  # one pass of many, which only checks
        return max(few // 4, PAIRS[0])
    return max(few, width) if n_rows * width**2 <= CHEAP else few


def _warm(estimator, model):
    """Return the point of the last posterior, or None."""
    last = getattr(estimator, "posterior_", None) if estimator.warm_start else None
    if last is None or last.n_dim != model.target.n_dim:
        return None
    return model.point_of(last)


def _curvature(model, at, rng, whole):
    """Return the curvature at a point, as a matrix or by products."""
    if whole:
        return convex(-model.target.hessian(at), model.prior)
    return probed_curvature(model.target, at, rng, PROBES)


def climb(estimator, model, plan, start, rng, began, report):
    """Return the `Fit` by full passes."""
    target, runs, promises = model.target, [], []
    point, left, passes = _warm(estimator, model), estimator.max_iter, 0.0
    centre = _mode(model, start) if point is None else point.parameters.mean[:, 0]
    for _ in range(TURNS):
        whole = target.n_dim <= FULL_RANK
        curvature = _curvature(model, centre, rng, whole)
        if point is None:
            point = model.start(centre, curvature, rng)
        if whole and not model.full:
            model.scale_by(curvature)
        if estimator.control_variate == "taylor":
            model.control(curvature, point)
        solver = plan.ascent(estimator.tol)
        result = solvers.run(
            model,
            solver,
            target,
            point,
            step_size=schedules.Constant(1.0),
            temperature=schedules.Constant(1.0),
            max_iter=left,
            tol=estimator.tol,
            rng=rng,
            report=report,
            passes=passes,
            seconds=time.perf_counter() - began,
        )
        runs.append(result)
        promises += solver.promises
        point, left = result.point, left - result.n_iter
        near = model.distance(point, centre) < FAR
        if near or result.stopped or left <= 0:
            break
        passes, centre = result.history[-1].passes, point.parameters.mean[:, 0]
    history = solvers.as_history([epoch for run in runs for epoch in run.history])
    history["predicted_gain"] = np.array(promises, dtype=float)
    fitted = {"history_": history, "step_size_": 1.0}
    fitted["batch_size_"] = target.rows.size
    return Fit(point, runs, curvature, fitted)


def step(estimator, model, plan, start, rng, began, report):
    """Return the `Fit` by minibatches."""
    target, point, batch_size = (
        model.target,
        _warm(estimator, model),
        estimator.batch_size,
    )
    if point is None:
        start = _mode(model, start)
        curvature = _curvature(model, start, rng, target.knows_hessian)
        point = model.start(start, curvature, rng)
    if batch_size == "auto":
        batch_size = int(np.clip(target.rows.size // 64, 5, 500))
    batch_size = min(batch_size, target.rows.size)
    steps = TargetSteps(
        model,
        plan.solver,
        estimator.control_variate,
        estimator.control_scale,
        plan.optimizer,
        batch_size,
    )
    size = estimator.step_size
    size = float(steps.auto_step(point) if size == "auto" else size)
    solver = solvers.Sweeps(1.0)
    result = solvers.run(
        steps,
        solver,
        target,
        point,
        step_size=schedules.Constant(size),
        temperature=schedules.Constant(1.0),
        max_iter=estimator.max_iter,
        tol=estimator.tol,
        rng=rng,
        report=report,
        seconds=time.perf_counter() - began,
    )
    history = solvers.as_history(result.history)
    history["predicted_gain"] = np.array(solver.promises, dtype=float)
    history["gradient_variance"] = np.array(steps.variances)
    fitted = {"history_": history, "step_size_": size, "batch_size_": batch_size}
    return Fit(result.point, [result], steps.curvature, fitted)


def _mode(model, start):
    """Return where the log density is highest, or as far as that is to be found."""
    target, prior = model.target, model.prior
    first = target.log_density(start)

    def lack(z):
        away = prior.precision_times(z - prior.mean)
        value = first - target.log_density(z) + 0.5 * (z - prior.mean) @ away
        slope = away - target.gradient(z)
        if np.isfinite(value) and np.isfinite(slope).all():
            return value, slope
        return 1e10 * (1.0 + abs(first)), np.zeros(z.size)  # a step too far

    return minimize(
        lack, start, jac=True, method="L-BFGS-B", options={"maxiter": MODE_STEPS}
    ).x
