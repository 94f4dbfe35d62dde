"""The scales of a prior of coefficients: checked, and one for each."""

import numpy as np

from skvrem.vi.gaussian._guards import LEAST_SCALE, MOST_SCALE

__all__ = ["check_prior_scale", "prior_scales"]


def check_prior_scale(estimator):
    """Check `prior_scale`, of an estimator whose rows have not been seen.

    Raises
    ------
    ValueError
        If it is neither a positive number nor a row of them.
    """
    try:
        scale = np.asarray(estimator.prior_scale)
    except ValueError:  # ragged
        scale = np.array("")
    if not (
        scale.dtype.kind in "fiu"
        and scale.ndim < 2
        and (scale >= LEAST_SCALE).all()
        and (scale <= MOST_SCALE).all()
    ):
        raise ValueError(
            f"prior_scale of {type(estimator).__name__} must be a positive number, or "
            f"one for each feature, from {LEAST_SCALE:g} to {MOST_SCALE:g}, got "
            f"{estimator.prior_scale!r}."
        )


def prior_scales(estimator, n_features):
    """Return a scale for each feature and, behind them, for the intercept.

    Raises
    ------
    ValueError
        If `prior_scale` has another number of them.
    """
    scale = np.asarray(estimator.prior_scale, np.float64)
    if scale.ndim and scale.shape != (n_features,):
        raise ValueError(
            f"prior_scale must be one number, or one for each of the {n_features} "
            f"features, got {scale.size}."
        )
    scale = np.broadcast_to(scale, n_features)
    if estimator.fit_intercept:
        scale = np.append(scale, estimator.intercept_prior_scale)
    return scale
