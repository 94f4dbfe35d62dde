"""Fits of a bound, with nodes that get finer until they say the same."""

import math
import time
import warnings

import numpy as np

from skvrem import schedules, solvers
from skvrem.exceptions import PosteriorWarning
from skvrem.utils._reports import outside

# Times `tol` that nodes may err by if those after them are to be the last, and what the
# finer ones err by at most, as a share of what they have changed, as seen.
LAST, SHARE_LEFT = 8.0, 1.0 / 3.0
# The same of what else is learned, and the share of `tol` that no step is for: each
# squares what is left, and this is known roughly.
LAST_LEARNED, NOTHING = 1.0, 0.01
# Nats that nodes leave to gain where finer ones go on from what they have led to, and
# the share of `tol` that these leave: few steps hardly show how slow the slowest are.
ROUGH, AFTER = 0.1, 0.5
# Nats, and the share of the bound, that nodes may err by in silence.
SILENT, SILENT_SHARE = 1.0, 0.05


def fit_bound(
    estimator,
    model,
    data,
    solver,
    point,
    report,
    began,
    *,
    passes=0.0,
    once=False,
    **how,
):
    """Run a solver, and go on with finer quadrature until it errs by at most `tol`.

    Parameters
    ----------
    estimator : BaseEstimator
        With `tol` and `max_iter`, of epochs of all runs.
    model : object
        Whose ``refined(point)``, where it has one, is the same model with finer nodes,
        or with what else is better chosen at the end of a fit, or None. Of the latter
        ``left`` says how many nats were left to gain before. A true ``coarse`` says
        that there are finer nodes: then a fit comes to its end only by the last ones.
    data : source
    solver : Solver
    point : Point
        To start from.
    report : callable
        See :class:`~skvrem.utils._reports.Progress`.
    began : float
        When, by ``time.perf_counter``, the fit began.
    passes : float
        Made already.
    once : bool, default=False
        Whether quadrature is made finer no more than once: of a stream, which fits as
        often as batches come, and has no bound to be known. What nodes change after
        that is little of what its posterior leaves open.
    **how : step_size, rng
        Of `solvers.run`.

    Returns
    -------
    result : Result
        Of all runs.
    model : object
        The last one's.
    error : float
        What its quadrature errs by, about, in nats: what finer one changes, or a
        third of that where the finer was taken; as some rows tell where all would take
        too long. NaN of models that cannot tell.
    """
    how = {"step_size": schedules.Constant(1.0), "rng": None} | how

    def fit(model, point, max_iter, passes, tol=estimator.tol):
        """Return the result of one run."""
        return solvers.run(
            model,
            solver,
            data,
            point,
            temperature=schedules.Constant(1.0),
            max_iter=max_iter,
            tol=tol,
            report=report,
            passes=passes,
            seconds=time.perf_counter() - began,
            **how,
        )

    def enough(model, share=1.0):
        """Return what a fit leaves to gain, more if finer nodes may go on from it."""
        # A fit that has no end but `max_iter` goes on as one that is resumed does.
        coarse = estimator.tol > 0.0 and getattr(model, "coarse", False)
        rough = ROUGH if coarse else 0.0
        return max(share * estimator.tol, rough)

    tol = enough(model)
    result = fit(model, point, estimator.max_iter, passes, tol)
    refined, error = getattr(model, "refined", lambda point: None), math.nan
    while (finer := refined(result.point)) is not None:
        learns = getattr(finer, "left", None) is not None
        if learns:
            error = finer.left
        else:
            mean = solvers.Batch()
            mean.start(finer, data, None)
            found = abs(mean.certify(result.point, 1.0).objective - result.objective)
            error = float(np.fmax(error, found))  # nodes may agree by chance
        left = estimator.max_iter - result.n_iter
        ended = result.reason in ("tol", "stalled")
        if not ended or error <= (NOTHING if learns else 1.0) * estimator.tol:
            break
        last = error <= (LAST_LEARNED if learns else LAST) * estimator.tol
        last |= once and not learns
        if not left:
            if learns and not last:  # nodes that err are no gain that is left
                result = result._replace(reason="max_iter", left=error)
            break
        model, refined = finer, finer.refined
        error *= SHARE_LEFT
        share = AFTER if tol > estimator.tol else 1.0
        tol = share * estimator.tol if last else enough(model, share)
        more = fit(model, result.point, left, result.history[-1].passes, tol)
        result = solvers.joined([result, more])
        if last:
            break
    left = estimator.max_iter - result.n_iter
    if tol > estimator.tol and result.left > estimator.tol:
        tol = AFTER * estimator.tol
        more = fit(model, result.point, left, result.history[-1].passes, tol)
        result = solvers.joined([result, more])
    if math.isnan(error) and hasattr(model, "sampled_error"):
        error = model.sampled_error(result.point, data)
    report.end()
    return result, model, error


def warn_quadrature(estimator, error, bound):
    """Warn where quadrature errs by much of a bound."""
    if error > max(SILENT, SILENT_SHARE * abs(bound)):
        warnings.warn(
            f"The bound of this {type(estimator).__name__} is known to within "
            f"{error:.3g} nats only, of {bound:.4g}: logits are so uncertain that sums "
            "over nodes miss much of it, and a fit goes where they do. Give a smaller "
            "prior_scale, or leave out features that say little.",
            PosteriorWarning,
            stacklevel=outside(),
        )
