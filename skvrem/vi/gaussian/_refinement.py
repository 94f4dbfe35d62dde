"""Bounds by quadrature: a fit goes on with finer nodes until they say the same."""

import math
import time

from skvrem import solvers

__all__ = ["refine"]

# Times `tol` that nodes may err by if those after them are to be the last, and what the
# finer ones err by at most, as a share of what they have changed, as seen.
LAST, SHARE_LEFT = 8.0, 1.0 / 3.0


def refine(model, data, result, tol, max_iter, fit, began):
    """Go on with finer quadrature until it errs by no more than `tol`.

    Parameters
    ----------
    model : object
        Whose ``refined()`` is the same model with finer nodes, or None.
    data : source
    result : Result
        Of a fit that its first nodes have led to.
    tol : float
    max_iter : int
        Epochs of all runs.
    fit : callable
        Runs a solver as ``fit(model, point=, max_iter=, passes=, seconds=)``.
    began : float
        When, by ``time.perf_counter``, the fit began.

    Returns
    -------
    result : Result
        Of all runs.
    model : object
        The last one's.
    error : float
        What its quadrature errs by, about, in nats: what finer one changes, or a
        third of that where the finer was taken. NaN where it would take too long.
    """
    error = math.nan
    while (finer := model.refined()) is not None:
        mean = solvers.Batch()
        mean.start(finer, data, None)
        error = abs(mean.certify(result.point, 1.0).objective - result.objective)
        left = max_iter - result.n_iter
        if result.reason not in ("tol", "stalled") or not left or error <= tol:
            break
        last, model = error <= LAST * tol, finer
        error *= SHARE_LEFT
        more = fit(
            model,
            point=result.point,
            max_iter=left,
            passes=result.history[-1].passes,
            seconds=time.perf_counter() - began,
        )
        result = solvers.joined([result, more])
        if last:
            break
    return result, model, error
