"""The quadratic bound of a log-linear partition function, for models to build on."""

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_array

from skvrem.linear._model import log_linear_bound
from skvrem.utils._columns import check_one_each


class PartitionBound(NamedTuple):
    """A quadratic above the logarithm of a partition function.

    Attributes
    ----------
    log_z : float
        Logarithm of the partition function where the bound touches it.
    gradient : ndarray of shape (n_features,)
        Gradient of the logarithm there: the mean of the features.
    sigma : ndarray of shape (n_features, n_features)
        Curvature.
    """

    log_z: float
    gradient: np.ndarray
    sigma: np.ndarray


def bound(
    features: ArrayLike,
    theta: ArrayLike,
    log_prior: ArrayLike | None = None,
    order: Literal["descending", "given"] = "descending",
) -> PartitionBound:
    r"""Bound the partition function of a log-linear model by a quadratic.

    For :math:`Z(\theta) = \sum_y h(y) \exp(\theta^T f(y))` over finitely many y, find
    z, g and :math:`\Sigma` with

    .. math:: \log Z(\theta') \le \log z + (\theta' - \theta)^T g
              + \tfrac12 (\theta' - \theta)^T \Sigma\, (\theta' - \theta)

    for every :math:`\theta'`, with equality and equal gradients at :math:`\theta`
    (Choromanska and Jebara 2013, Algorithm 1 and Theorem 1; [1]_). Sums of such bounds
    majorize the negative log-likelihood of any model made of partition functions.

    Parameters
    ----------
    features : array-like of shape (n_outcomes, n_features)
        f(y), a row for each y.
    theta : array-like of shape (n_features,)
        Where the bound touches.
    log_prior : array-like of shape (n_outcomes,), default=None
        log h(y); -inf leaves y out, and None is h = 1.
    order : {"descending", "given"}, default="descending"
        Every order of the y gives a bound. The tightest is, as a rule, that of
        descending probability.

    Returns
    -------
    bound : PartitionBound
        ``(log_z, gradient, sigma)``, all in float64.

    Raises
    ------
    ValueError
        If shapes do not fit, numbers are not finite, or h is zero everywhere.

    References
    ----------
    .. [1] Choromanska, Jebara (2013). Stochastic bound majorization.

    Examples
    --------
    >>> import numpy as np
    >>> from skvrem.linear import bound
    >>> log_z, gradient, sigma = bound([[0.0], [1.0]], theta=[0.0])
    >>> float(round(log_z, 4)), float(gradient[0]), float(sigma[0, 0])
    (0.6931, 0.5, 0.25)

    Two outcomes give the bound of Jaakkola and Jordan for the logistic function:

    >>> bound([[0.0], [1.0]], theta=[2.0]).sigma.round(6)
    array([[0.190399]])
    """
    features = check_array(features, dtype=np.float64, order="C", input_name="features")
    theta = check_array(theta, dtype=np.float64, ensure_2d=False, input_name="theta")
    n, d = features.shape
    check_one_each(theta, "theta must have one number", d, "features")
    log_prior = np.zeros(n) if log_prior is None else np.asarray(log_prior, np.float64)
    check_one_each(log_prior, "log_prior must have one number", n, "outcomes")
    if not (log_prior < np.inf).all() or (log_prior == -np.inf).all():
        raise ValueError(
            "log_prior must hold finite numbers, or -inf for outcomes to leave out, "
            "and at least one must be finite."
        )
    if order not in ("descending", "given"):
        raise ValueError(f"order must be 'descending' or 'given', got {order!r}.")
    return PartitionBound(
        *log_linear_bound(features, theta, log_prior, order == "descending")
    )
