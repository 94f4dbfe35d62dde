"""Warnings that all iterative estimators give."""

import warnings

from sklearn.exceptions import ConvergenceWarning

__all__ = ["warn_annealing_too_long", "warn_nats_left", "warn_not_converged"]


def warn_not_converged(estimator, result, unit="row"):
    """Warn if a fit ran out of epochs, with the last gain and what to raise."""
    if result.converged or result.stopped or estimator.max_iter == 0:
        return
    warnings.warn(
        f"{type(estimator).__name__} did not converge in {result.n_iter} epochs: the "
        f"last gained {result.gain:.3g} a {unit}, and tol is {estimator.tol:g}. Raise "
        "max_iter, or tol if that is close enough.",
        ConvergenceWarning,
        stacklevel=4,
    )


def warn_nats_left(estimator, n_iter, left, advice, stacklevel):
    """Warn that a fit of a bound ran out of epochs, with what is left to gain."""
    warnings.warn(
        f"{type(estimator).__name__} did not converge in {n_iter} epochs: {left:.3g} "
        f"nats are left to gain, and tol is {estimator.tol:g}. Raise max_iter, or tol "
        f"if that is close enough; {advice}.",
        ConvergenceWarning,
        stacklevel=stacklevel + 1,
    )


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
