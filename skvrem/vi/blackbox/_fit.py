"""How a user's own model is fitted: by full passes, or by minibatches."""

import time
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize

from skvrem import schedules, solvers
from skvrem.vi.blackbox._model import convex, probed_curvature
from skvrem.vi.blackbox._model_steps import MeanSteps, TargetSteps
from skvrem.vi.gaussian._minibatch import steps_of
from skvrem.vi.gaussian._model_posterior import Flat
from skvrem.vi.gaussian._plan import FULL_RANK

__all__ = ["climb", "climb_in_turns", "pairs_of_draws", "step"]

# Pairs of draws of full passes: fewer where rows are many, as these leave the log
# density close to its second order, which the draws are not needed for.
PAIRS, ROWS_OF_PAIRS = (4, 64), 200_000
# Full passes have as many pairs as parameters where that costs no more than so many
# numbers: rows times parameters twice.
CHEAP = 100_000_000
# The curvature is taken anew where a fit ends so many standard deviations away from
# where it was taken; the control variate, which few draws need, where the posterior is
# so many nats away. Both so often at most.
FAR, MOVED, TURNS = 0.3, 0.1, 10
# And the covariance of a low rank, where that moves it by more than so many nats for
# each parameter beside.
LITTLE = 1e-3
# Steps to the mode of the density, where a fit starts, and random signs for the
# diagonal of a Hessian.
MODE_STEPS, PROBES = 200, 200
# Share of the largest curvature that is none; and how far away a density with no
# curvature must have fallen.
FLAT, AWAY = 1e-8, 1e6


class Fit(NamedTuple):
    """What a fit came to.

    Attributes
    ----------
    point : Point
    whole : Result
        Of all runs.
    curvature : Dense or Products, or None
        The last one.
    attributes : dict
        What has been used, and the history.
    """

    point: Any
    whole: Any
    curvature: Any
    attributes: dict


def pairs_of_draws(estimator, plan, n_rows, width):
    """Return how many pairs of draws full passes have."""
    n_draws = steps_of(estimator).n_draws
    if n_draws != "auto":
        return n_draws // 2
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


def climb(estimator, model, plan, start, rng, began, report):
    """Return the `Fit` by full passes."""
    target, fit = model.target, Runs(estimator, model, plan, rng, began, report)
    point = _warm(estimator, model)
    centre = _mode(model, start) if point is None else point.parameters.mean[:, 0]
    whole, curvature = target.n_dim <= FULL_RANK, None
    controlled = steps_of(estimator).control_variate == "taylor"
    for _ in range(TURNS):
        if curvature is None or model.distance(point, centre) > FAR:
            if curvature is not None:
                centre = point.parameters.mean[:, 0]
            curvature = _curvature(model, centre, rng, whole)
            if whole and not model.full:
                model.scale_by(curvature)
        if point is None:
            point = model.start(centre, curvature, rng)
        if controlled:
            model.control(curvature, point)
        before = model.posterior(point.parameters)
        point = fit.go_on(model, point)
        near = model.distance(point, centre) < FAR
        if controlled and model.full and len(model.draws) < target.n_dim:
            near = near and model.posterior(point.parameters).kl(before) < MOVED
        if near or fit.ended:
            break
    return fit.result(point, curvature, target.rows.size)


def climb_in_turns(estimator, model, plan, start, rng, began, report):
    """Return the `Fit` whose covariance is that of the curvature, not of the draws."""
    fit = Runs(estimator, model, plan, rng, began, report)
    steps = fit.steps(model) if plan.solver != "batch" else None
    point, seed = _warm(estimator, model), rng.integers(2**31)

    def see(at):
        if model.full:
            mean = sum(model.target.hessian(z) for z in at) / len(at)
            return convex(-mean, model.prior)
        # Of the same signs: differences are those of the points.
        return probed_curvature(model.target, at, np.random.default_rng(seed), PROBES)

    curvature = None
    if point is None:
        centre = _mode(model, start)
        point = model.start(centre, see(centre[None]), rng)
        point, curvature = _covariance(model, point, see, rng)
    for _ in range(TURNS):
        if curvature is None:
            curvature = see(model.typical(point))
        if steps_of(estimator).control_variate == "taylor":
            model.control(curvature, point)
        centre = point.parameters.mean[:, 0]
        point = fit.go_on(model if steps is None else steps, point)
        if model.distance(point, centre) < FAR or fit.ended:
            break
        point, curvature = _covariance(model, point, see, rng)
    return fit.result(point, curvature, fit.batch_size)


def step(estimator, model, plan, start, rng, began, report):
    """Return the `Fit` of a diagonal by minibatches."""
    target, point = model.target, _warm(estimator, model)
    if point is None:
        centre = _mode(model, start)
        curvature = _curvature(model, centre, rng, target.knows_hessian)
        point = model.start(centre, curvature, rng)
    fit = Runs(estimator, model, plan, rng, began, report)
    steps = fit.steps(model)
    point = fit.go_on(steps, point)
    return fit.result(point, steps.curvature, fit.batch_size)


class Runs:
    """Runs of a solver, one after the other, that are one fit.

    Parameters
    ----------
    estimator : VariationalInference
    model : DrawnModel
    plan : Choices
    rng : numpy.random.Generator
    began : float
    report : callable
    """

    def __init__(self, estimator, model, plan, rng, began, report):
        self.estimator, self.target, self.plan = estimator, model.target, plan
        self.rng, self.began, self.report = rng, began, report
        self.runs = []
        self.left, self.passes, self.size = estimator.max_iter, 0.0, 1.0
        self.batch_size = self.target.rows.size

    def steps(self, model):
        """Return the model of minibatch steps."""
        estimator, plan = self.estimator, self.plan
        if estimator.batch_size == "auto":
            self.batch_size = int(np.clip(self.batch_size // 64, 5, 500))
        else:
            self.batch_size = min(estimator.batch_size, self.batch_size)
        self.batch_size = min(self.batch_size, self.target.rows.size)
        kind = TargetSteps if plan.posterior == "meanfield" else MeanSteps
        self.size = None
        return kind(
            model,
            plan.solver,
            steps_of(estimator).control_variate,
            steps_of(estimator).control_scale,
            plan.optimizer,
            self.batch_size,
        )

    def go_on(self, model, point):
        """Run the solver from a point; return where it ended."""
        estimator, plan = self.estimator, self.plan
        if self.size is None:
            size = estimator.step_size
            self.size = float(model.auto_step(point) if size == "auto" else size)
        solver = (
            plan.ascent(estimator.tol)
            if plan.solver == "batch"
            else solvers.Sweeps(plan.solver)
        )
        result = solvers.run(
            model,
            solver,
            self.target,
            point,
            step_size=schedules.Constant(self.size),
            temperature=schedules.Constant(1.0),
            max_iter=self.left,
            tol=estimator.tol,
            rng=self.rng,
            report=self.report,
            passes=self.passes,
            seconds=time.perf_counter() - self.began,
        )
        self.runs.append(result)
        self.left -= result.n_iter
        self.passes = result.history[-1].passes
        return result.point

    @property
    def ended(self):
        """Whether there is nothing to be gone on with."""
        return self.runs[-1].stopped or self.left <= 0

    def result(self, point, curvature, batch_size):
        """Return the `Fit`."""
        whole = solvers.joined(self.runs)
        used = whole.attributes()
        used |= {"step_size_": self.size, "batch_size_": batch_size}
        return Fit(point, whole, curvature, used)


def _curvature(model, at, rng, whole):
    """Return the curvature at a point, as a matrix or by products."""
    if whole:
        return convex(-model.target.hessian(at), model.prior)
    return probed_curvature(model.target, at[None], rng, PROBES)


def _covariance(model, point, see, rng):
    """Return the point with the covariance of the curvature it sees, and that."""
    for _ in range(TURNS):
        q = point.parameters
        point = model.start(q.mean[:, 0], see(model.typical(point)), rng, q)
        moved = model.posterior(point.parameters).kl(model.posterior(q))
        if moved < MOVED + LITTLE * q.mean.size:
            break
    return point, model.curvature


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

    mode = minimize(
        lack, start, jac=True, method="L-BFGS-B", options={"maxiter": MODE_STEPS}
    ).x
    if isinstance(prior, Flat) and target.knows_hessian:
        _check_proper(target, mode)
    return mode


def _check_proper(target, mode):
    """Check that the density falls along directions in which it has no curvature.

    Raises
    ------
    ValueError
        With the parameter that has the largest part of such a direction.
    """
    curvature = -target.hessian(mode)
    if not np.isfinite(curvature).all():
        return
    values, vectors = np.linalg.eigh(curvature)
    top = target.log_density(mode)
    for direction in vectors[:, values < FLAT * max(values[-1], 0.0)].T:
        for sign in (1.0, -1.0):
            with np.errstate(all="ignore"):
                there = target.log_density(mode + sign * AWAY * direction)
            if there > top - 1.0:
                number = int(np.abs(direction).argmax())
                names = getattr(target.model, "parameter_names", None)
                name = f"p{number}" if names is None else names[number]
                raise ValueError(
                    f"The posterior is improper in the direction of {name}: {AWAY:g} "
                    f"away from {mode[number]:.3g} the log density has not fallen. "
                    "Give the model a proper log_prior."
                )
