"""The scales of a prior of coefficients: checked, and one for each."""

import numpy as np

__all__ = ["check_prior_scale", "prior_scales"]


def check_prior_scale(estimator):
    """Check `prior_scale`, of an estimator whose rows have not been seen.

    Raises
    ------
    ValueError
        If it is neither a positive number nor a row of them.
    """
    scale = np.asarray(estimator.prior_scale)
    if not (
        np.issubdtype(scale.dtype, np.number)
        and scale.ndim < 2
        and np.isfinite(scale).all()
        and (scale > 0.0).all()
    ):
        raise ValueError(
            f"prior_scale of {type(estimator).__name__} must be a positive number, or "
            f"one for each feature, got {estimator.prior_scale!r}."
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
