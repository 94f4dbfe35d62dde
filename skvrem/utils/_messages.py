"""Warnings that all iterative estimators give."""

import math
import warnings

from skvrem.exceptions import MaxIterWarning, StalledWarning

__all__ = ["warn_annealing_too_long", "warn_not_converged"]


def warn_not_converged(estimator, result, unit="row", advice="", stacklevel=4):
    """Warn if a fit ended before its optimum, with what is left and what may help.

    A fit that was not to be tested (``tol=0``), not to move (``max_iter=0``), or that
    a callback has ended does what was asked for.

    Parameters
    ----------
    estimator : estimator
        With `tol`.
    result : Result
    unit : str
        That `tol` and gains are measured in nats a; empty for nats in all.
    advice : str
        What makes the problem easier.
    stacklevel : int
    """
    asked_for = result.n_iter == 0 or not estimator.tol > 0.0
    if result.reason not in ("max_iter", "stalled") or asked_for:
        return
    nats = f"nats a {unit}" if unit else "nats"
    left = f"an unknown number of {nats} is"
    if not math.isnan(result.left):
        left = f"about {result.left:.3g} {nats} are"
        if math.isinf(result.left):
            left = f"more {nats} than the last epochs tell are"
    start = f"{type(estimator).__name__} did not converge in {result.n_iter} epochs"
    advice = f"; {advice}" if advice else ""
    if result.reason == "stalled":
        message, kind = (
            f"{start}: no step gained any more, though {left} left to gain and tol is "
            f"{estimator.tol:g}. Raise tol if that is close enough{advice}.",
            StalledWarning,
        )
    else:
        if result.left < estimator.tol:
            left = f"by the last epoch alone, {left}"
        message, kind = (
            f"{start}: {left} left to gain, and tol is {estimator.tol:g}. Raise "
            f"max_iter, or tol if that is close enough{advice}.",
            MaxIterWarning,
        )
    warnings.warn(message, kind, stacklevel=stacklevel)


def warn_annealing_too_long(estimator):
    """Warn if a schedule of temperatures does not fit into the fit."""
    if (
        estimator.tempering not in (None, "auto")
        and estimator.annealing_iter > estimator.max_iter
    ):
        warnings.warn(
            f"annealing_iter={estimator.annealing_iter} epochs of annealing do not fit "
            f"into max_iter={estimator.max_iter}: raise max_iter.",
            UserWarning,
            stacklevel=4,
        )
