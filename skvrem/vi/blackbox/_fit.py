"""How a user's own model is fitted: by full passes, or by minibatches."""

import numpy as np
from scipy.optimize import minimize

from skvrem import solvers
from skvrem.vi.blackbox._input import check_names
from skvrem.vi.blackbox._model import (
    LEAST_SHARE,
    DrawnModel,
    convex,
    finite,
    least_precision,
    opposite_draws,
    probed_curvature,
)
from skvrem.vi.blackbox._model_density import FEW_PARAMETERS
from skvrem.vi.blackbox._model_low_rank import krylov
from skvrem.vi.blackbox._model_steps import MeanSteps, TargetSteps
from skvrem.vi.gaussian._minibatch import steps_of
from skvrem.vi.gaussian._model_posterior import FlatPrior
from skvrem.vi.gaussian._plan import FULL_RANK

# Pairs of draws of full passes: fewer where rows are many, as these leave the log
# density close to its second order, which the draws are not needed for.
PAIRS, ROWS_OF_PAIRS = (4, 64), 200_000
# They are doubled, up to so many, while that changes the posterior by more than `tol`.
MOST_PAIRS = 2048
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
# A mode is no place to start from where so many pairs of draws differ by so many nats,
# for each parameter or at least, from what its curvature tells of them; or where the
# largest precision was so small a share of its own at the model's start.
LOOKS, SURPRISE_EACH, SURPRISE, COLLAPSED = 4, 0.1, 1.0, 1e-6
# Pairs of draws, steps and tolerance of the diagonal posterior that is tried instead;
# and numbers, rows times parameters, up to which draws are then as many as parameters.
INDEPENDENT_PAIRS, INDEPENDENT_STEPS, INDEPENDENT_TOL = 16, 200, 0.05
MOST_LOOKS = 5_000_000
# Least share of a curvature that a covariance takes, where all of it is too much.
LEAST_CHANGE = 0.01
# Steps to the mode of the density, where a fit starts, and random signs for the
# diagonal of a Hessian.
MODE_STEPS, PROBES = 200, 200
# Share of the largest curvature that is none; and how far away, at least, a density
# with no curvature must have fallen.
FLAT, AWAY = 1e-8, 1e6
# Saddles that a search for the mode goes on from; products that it looks for a negative
# curvature with, which of few parameters finds any.
SADDLES, SADDLE_PRODUCTS = 10, 12
# Nats that a step from a saddle gains by its curvature, tried from the first on, and
# the share of them that it has to gain.
SADDLE_GAINS, LEAST_GAINED = (1.0, 0.25, 0.06, 0.015), 0.25


def pairs_of_draws(estimator, plan, n_rows, width):
    """Return how many pairs of draws full passes have."""
    n_draws = steps_of(estimator).n_draws
    if n_draws != "auto":
        return n_draws // 2
    few = int(np.clip(ROWS_OF_PAIRS // n_rows, *PAIRS))
    if plan.name != "batch":  # passes certify, and are a part of the work only
        return max(few // 4, PAIRS[0])
    return max(few, width) if n_rows * width**2 <= CHEAP else few


class Fit:
    """A fit on its way: the model, and runs of its solver.

    Parameters
    ----------
    estimator : VariationalInference
    model : DrawnModel
    plan : PosteriorPlan
    start : ndarray of shape (d,)
        Where to look for the mode of the density.
    rng : numpy.random.Generator
    began : float
    report : callable
    """

    def __init__(self, estimator, model, plan, start, rng, began, report):
        self.model, self.plan, self.start, self.rng = model, plan, start, rng
        steps = steps_of(estimator)
        self.controlled = steps.control_variate == "taylor"
        self.n_draws = steps.n_draws
        options = {"tol": estimator.tol, "rng": rng, "report": report}
        self.runs = solvers.Runs(estimator.max_iter, began, **options)
        #: The model of the solver.
        self.moved, self.step_size = model, 1.0
        self.batch_size = n = model.target.rows.size
        if plan.name != "batch":
            size = estimator.batch_size
            size = int(np.clip(n // 64, 5, 500)) if size == "auto" else size
            self.step_size, self.batch_size = estimator.step_size, min(size, n)
            kind = TargetSteps if plan.posterior == "meanfield" else MeanSteps
            controls = steps.control_variate, steps.control_scale
            moves = plan.optimizer, self.batch_size
            self.moved = kind(model, plan.name, *controls, *moves)

    def double_draws(self, point, curvature):
        """Go on with twice the draws until that changes the posterior by little.

        The top of a bound on few draws is found to a tolerance that means nothing
        where other draws have their top elsewhere.

        Returns
        -------
        point : Point
        curvature : DensityCurvature
        """
        model, tol = self.model, self.runs.options["tol"]
        most = min(MOST_PAIRS, ROWS_OF_PAIRS // model.target.model.n_samples)
        fixed = self.n_draws != "auto" or self.plan.name != "batch" or self.plan.rank
        while not (fixed or self.runs.ended) and 2 * len(model.draws) <= most:
            n_pairs, width = model.draws.shape
            model.draws = opposite_draws(self.rng, 2 * n_pairs, width)
            before = model.posterior(point.parameters)
            point, curvature = self.run(point)
            if model.posterior(point.parameters).kl(before) < tol:
                break
        return point, curvature

    def run(self, point):
        """Fit from a point or, where that is None, from the mode of the density.

        Returns
        -------
        point : Point
            Where the fit ended.
        curvature : DensityCurvature
            The last that was seen.
        """
        batch = self.plan.name == "batch"
        if self.plan.rank or (self.model.full and not batch):
            return fit_alternating(self, point)
        return fit_full(self, point) if batch else fit_minibatch(self, point)

    def go_on(self, point):
        """Run the solver from a point; return where it ended."""
        if self.step_size == "auto":
            self.step_size = self.moved.auto_step(point)
        self.step_size = float(self.step_size)
        size, solver = self.step_size, self.plan.solver
        self.model.begins = True
        return self.runs.go_on(self.moved, solver, point, step_size=size).point


def fit_full(fit, point):
    """Fit by full passes, with a control variate that follows the point."""
    model, target = fit.model, fit.model.target
    whole, curvature = model.full or target.n_dim <= FULL_RANK, None

    def see(at):
        found = _curvature(model, at, fit.rng, whole)
        if whole and not model.full:
            model.scale_by(found)
        return found

    if point is None:
        point, curvature = first_point(fit, see)
    centre = means_of(point)
    for _ in range(TURNS):
        if curvature is None or model.distance(point, centre) > FAR:
            centre = means_of(point)
            curvature = see(centre)
        if fit.controlled:
            model.control(curvature, point)
        before = model.posterior(point.parameters)
        point = fit.go_on(point)
        near = model.distance(point, centre) < FAR
        if fit.controlled and model.full and len(model.draws) < target.n_dim:
            near = near and model.posterior(point.parameters).kl(before) < MOVED
        if near or fit.runs.ended:
            break
    return point, curvature


def _draw_enough(fit):
    """Let draws be no fewer than parameters, far from where a control is right.

    With fewer, a covariance is fitted to what the draws have beside the second order.
    """
    n_pairs, width = fit.model.draws.shape
    fixed = fit.n_draws != "auto" or fit.plan.name != "batch" or not fit.model.full
    cheap = width * fit.model.target.rows.size <= MOST_LOOKS
    if n_pairs < width and cheap and not fixed:
        fit.model.draws = opposite_draws(fit.rng, width, width)


def fit_alternating(fit, point):
    """Fit means and, by the curvature at some draws, a covariance, in turns."""
    model, seed, curvature = fit.model, fit.rng.integers(2**31), None

    def see(at):
        if model.full:
            return _curvature(model, at, fit.rng, True)
        # Of the same signs: differences are those of the points.
        return probed_curvature(model.target, at, np.random.default_rng(seed), PROBES)

    def covariance(point):
        """Return the point with the covariance of the curvature it sees, and that."""
        for _ in range(TURNS):
            before, at = model.posterior(point.parameters), model.typical(point)
            point = _with_curvature(model, point, see(at), fit.rng)
            moved = model.posterior(point.parameters).kl(before)
            if _is_little(moved, before.n_dim):
                break
        return point, model.curvature

    if point is None:
        point, _ = first_point(fit, lambda at: see(at[None]))
        point, curvature = covariance(point)
    for _ in range(TURNS):
        if curvature is None:
            curvature = see(model.typical(point))
        if fit.controlled:
            model.control(curvature, point)
        centre = means_of(point)
        point = fit.go_on(point)
        if model.distance(point, centre) < FAR or fit.runs.ended:
            break
        point, curvature = covariance(point)
    return point, curvature


def fit_minibatch(fit, point):
    """Fit a diagonal by minibatch steps, which see the curvature at every pass."""
    model = fit.model
    if point is None:
        whole = model.target.knows_hessian
        point, _ = first_point(fit, lambda at: _curvature(model, at, fit.rng, whole))
    return fit.go_on(point), fit.moved.curvature


def means_of(point):
    """Return the means (d,) of a point."""
    return point.parameters.mean[:, 0]


def first_point(fit, see):
    """Return where a fit starts, and the curvature there.

    That is a mode, with the curvature there, where this tells what draws find. Where it
    does not, as where a density rises without end while less and less of it is around,
    it may be a narrow spike that no bound is high at: then a diagonal posterior is
    fitted from the model's own start, and a fit goes on from the better of both.

    Parameters
    ----------
    fit : Fit
    see : callable
        Returns the curvature at parameters (d,).
    """
    model, centre, failed = fit.model, _mode(fit.model, fit.start), None
    try:
        curvature = see(centre)
        point = model.start(centre, curvature, fit.rng)
        bound = _bound(model, point, model.curvature)
        least = _told(model, point) - max(SURPRISE, SURPRISE_EACH * centre.size)
        if bound > least and not _has_collapsed(fit, point):
            return point, curvature
    except (ValueError, np.linalg.LinAlgError) as error:
        point, curvature, bound, failed = None, None, -np.inf, error
    other = _independent(fit)
    if other is not None and _bound(model, other) > bound:
        try:
            found = other, see(means_of(other))
        except (ValueError, np.linalg.LinAlgError) as error:  # beside a kink, say
            failed = failed or error
        else:
            _draw_enough(fit)
            return found
    if point is None:
        raise failed
    return point, curvature


def _bound(model, point, curvature=None):
    """Return the bound of a point by a few draws, minus infinity without one."""
    try:
        with np.errstate(all="ignore"):
            found, _ = model.bound(point, model.draws[:LOOKS], curvature)
    except (ValueError, np.linalg.LinAlgError):
        return -np.inf
    return found if np.isfinite(found) else -np.inf


def _told(model, point):
    """Return the bound that a start would have were the density of second order."""
    q = model.posterior(point.parameters)
    level = model.target.log_density(q.mean)
    return level - 0.5 * model.curvature.trace(q) - q.kl(model.prior)


def _has_collapsed(fit, point):
    """Whether the parameter known best, given the others, was hardly at the start."""
    model = fit.model
    precision = model.posterior(point.parameters).precision_diagonal
    best = precision.argmax()
    axis = np.zeros(precision.size)
    axis[best] = 1.0
    before = abs(model.target.hessian_times(fit.start, axis)[best])
    before += model.prior.precision_diagonal[best]
    return before < COLLAPSED * precision[best]


def _independent(fit):
    """Return the point of a diagonal posterior, fitted from the start of a model.

    Or None, where the bound is no number at the start.
    """
    model, target = fit.model, fit.model.target
    rng = np.random.default_rng(0)
    draws = opposite_draws(rng, INDEPENDENT_PAIRS, target.n_dim)
    plain = DrawnModel(target, model.prior, "diagonal", draws)
    precision = np.maximum(_widths(model, fit.start) ** -2.0, 1.0)
    point = plain.spread(fit.start[:, None], precision, rng)
    options = {"tol": INDEPENDENT_TOL, "rng": rng}
    runs = solvers.Runs(INDEPENDENT_STEPS, fit.runs.began, **options)
    solver = solvers.QuasiNewton(INDEPENDENT_TOL, trusted=False)
    try:
        with np.errstate(all="ignore"):
            q = runs.go_on(plain, solver, point).point.parameters
    except (ValueError, np.linalg.LinAlgError):
        return None
    return model.independent(q.mean, q.log_scale)


def _with_curvature(model, point, curvature, rng):
    """Return a point with the covariance of a curvature, where its bound is no lower.

    Where it is, of as much of the curvature, beside the precision that the point has,
    as makes it none. Far from a normal density the curvature at draws that are too wide
    makes them wider.
    """
    q, prior = model.posterior(point.parameters), model.prior
    after = model.start(q.mean, curvature, rng, point.parameters)
    if _is_little(model.posterior(after.parameters).kl(q), q.n_dim):
        return after
    least, share = _bound(model, point) - SURPRISE, 1.0
    while not _bound(model, after) >= least:
        share *= 0.5
        if share < LEAST_CHANGE:
            return point
        some = curvature.mixed(q, prior, share)
        after = model.start(q.mean, some, rng, point.parameters)
    return after


def _is_little(moved, n_dim):
    """Whether so many nats are hardly a move, of as many parameters."""
    return moved < MOVED + LITTLE * n_dim


def _curvature(model, at, rng, whole):
    """Return the mean curvature at points (n, d), as a matrix or by products."""
    at = np.atleast_2d(at)
    if whole:
        matrix = -sum(model.target.hessian(z) for z in at) / len(at)
        return convex(finite(model.target, at, matrix), model.prior)
    return probed_curvature(model.target, at, rng, PROBES)


def _mode(model, start):
    """Return a mode of a model's log density, which has to fall away from it.

    A search that starts where the density is symmetric, as at zero of a product of
    parameters, is led to a saddle and stays. From there it goes on.
    """
    lack = _lack(model.target, model.prior, start)
    if (model.target.units == 1.0).all():
        found = _lowest(lack, start)
    else:
        # Priors may be far wider than what rows say, and some more than others: steps
        # of their size would lead to where no model is made for.
        found = _lowest(lack, start, _widths(model, start))
        found = _lowest(lack, found.x, _widths(model, found.x))
    for _ in range(SADDLES):
        beside = _beside_saddle(model.target, model.prior, lack, found)
        if beside is None:
            break
        found = _lowest(lack, beside)
    mode = found.x
    if isinstance(model.prior, FlatPrior) and model.target.knows_hessian:
        _check_proper(model.target, mode)
    return mode


def mode_of(target, prior, start):
    """Return where the log density is highest, or as far as that is to be found."""
    return _lowest(_lack(target, prior, start), start).x


def _lack(target, prior, start):
    """Return the function that says what parameters lack of a start, and its slope."""
    first = target.log_density(start)

    def lack(z):
        away = prior.precision_times(z - prior.mean)
        value = first - target.log_density(z) + 0.5 * (z - prior.mean) @ away
        slope = away - target.gradient(z)
        if np.isfinite(value) and np.isfinite(slope).all():
            return value, slope
        return 1e10 * (1.0 + abs(first)), np.zeros(z.size)  # a step too far

    return lack


def _lowest(lack, start, scale=1.0):
    """Return where a function is lowest, searched in steps of a scale, by scipy."""

    def scaled(z):
        value, slope = lack(scale * z)
        return value, scale * slope

    options = {"method": "L-BFGS-B", "options": {"maxiter": MODE_STEPS}}
    found = minimize(scaled, start / scale, jac=True, **options)
    found.x, found.jac = scale * found.x, found.jac / scale
    return found


def _widths(model, z):
    """Return the deviations (d,) of each parameter given the others at z, about.

    Where that would take many products, one for all by the curvature along the slope.
    """
    target = model.target
    if target.knows_diagonal:
        curvature = target.hessian_diagonal(z)
    else:
        slope = target.gradient(z)
        slope /= max(np.linalg.norm(slope), LEAST_SHARE)
        curvature = np.full(z.size, slope @ target.hessian_times(z, slope))
    curvature = np.where(np.isfinite(curvature), curvature, 0.0)
    return 1.0 / np.sqrt(least_precision(model.prior.precision_diagonal, curvature))


def _beside_saddle(target, prior, lack, found):
    """Return parameters beside a saddle where the density is higher, or None.

    The direction is one in the span of all those in which it rises, in general
    position: where several parameters are exchangeable, no eigenvector parts them all.
    Ritz values are bounds of eigenvalues: none is negative at a mode. One that
    differences make up, as beside a kink, leads nowhere.
    """
    z, d = found.x, found.x.size
    if not found.success:  # cut short, it is on a slope
        return None
    here = target.gradient(z)

    def precision_times(v):
        change = target.difference(target.gradient, z, v, here)
        return prior.precision_times(v) - change

    known, rng = prior.precision_diagonal, np.random.default_rng(0)
    scale = 1.0 / np.sqrt(np.where(known > 0.0, known, 1.0))
    n_products = d if d <= FEW_PARAMETERS else SADDLE_PRODUCTS
    with np.errstate(all="ignore"):
        products = scale, rng.standard_normal(d), n_products, rng
        B, PB = krylov(precision_times, *products)
        if not np.isfinite(PB).all():
            return None
        values, vectors = np.linalg.eigh(0.5 * (B @ PB.T + PB @ B.T))
        rising = values < -target.step * np.abs(values).max()
        if not rising.any():
            return None
        part = vectors[0, rising]  # of the start, which is the first of B
        direction = (vectors[:, rising] @ part) @ B
        direction *= np.sqrt(2.0 / -(values[rising] @ part**2))  # gains a nat
        if abs(found.jac @ direction) > SADDLE_GAINS[-1]:  # not yet flat
            return None
        for gain in SADDLE_GAINS:
            both = [z + sign * np.sqrt(gain) * direction for sign in (1.0, -1.0)]
            ahead, behind = (found.fun - lack(at)[0] for at in both)
            if max(ahead, behind) > LEAST_GAINED * gain:
                # Where it is symmetric, rounding does not choose.
                return both[int(behind > ahead + LEAST_GAINED * gain)]
    return None


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
    # As far as each parameter may go alone: scales of parameters may lie far apart.
    diagonal = np.diagonal(curvature)
    scale = 1.0 / np.sqrt(np.where(diagonal > 0.0, diagonal, 1.0))
    values, vectors = np.linalg.eigh(scale[:, None] * curvature * scale)
    flat = scale[:, None] * vectors[:, values < FLAT * max(values[-1], 0.0)]
    flat *= AWAY * np.maximum(1.0, 1.0 / np.linalg.norm(flat, axis=0))
    axes = np.diag(np.maximum(AWAY, 10.0 * scale))
    axes = axes[:, diagonal < FLAT * diagonal.max(initial=0.0)]
    top = target.log_density(mode)
    for step in np.hstack([flat, axes]).T:
        for sign in (1.0, -1.0):
            with np.errstate(all="ignore"):
                there = target.log_density(mode + sign * step)
            if there > top - 1.0:
                number = int(np.abs(step).argmax())
                name, away = check_names(target.model)[number], target.units * step
                where = (target.units * mode)[number]
                raise ValueError(
                    f"The posterior is improper in the direction of {name}: "
                    f"{np.linalg.norm(away):.3g} away from {where:.3g} the log density "
                    "has not fallen. Give the model a proper log_prior."
                )
