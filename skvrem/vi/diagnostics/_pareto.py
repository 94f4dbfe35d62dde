"""How far importance weights can be trusted: the shape of their tail.

With weights p(z) / q(z) of draws from q, a generalised Pareto distribution is fitted to
the largest. Below k = 0.7 its shape k says that q is close enough to p for importance
sampling to correct what differs; above, it is not (Vehtari et al. 2024).
"""

import numpy as np
from sklearn.utils.validation import check_is_fitted

# Draws that the shape of importance weights is taken from.
PARETO_DRAWS = 1000
# Fewer weights in the tail say nothing of its shape.
SMALLEST_TAIL = 5
# Weight of the prior of the shape, an average of 0.5, in draws.
PRIOR_WEIGHT, PRIOR_SHAPE = 10.0, 0.5


def generalized_pareto(excess):
    """Fit the shape and scale of a generalised Pareto distribution.

    The estimate of Zhang and Stephens (2009): the mean of a profile posterior over a
    grid, with the shape drawn towards 0.5 by as much as ten observations say (Vehtari
    et al. 2024, appendix C).

    Parameters
    ----------
    excess : array-like of shape (n,)
        How far observations lie above the threshold, all positive.

    Returns
    -------
    shape, scale : float
        k and sigma; the tail has finite moments up to 1 / k.
    """
    x = np.sort(np.asarray(excess, np.float64))
    n = x.size
    grid = np.arange(1, 31 + int(np.sqrt(n)))
    quartile = x[int(n / 4.0 + 0.5) - 1]
    b = 1.0 / x[-1] + (1.0 - np.sqrt(grid.size / (grid - 0.5))) / (3.0 * quartile)
    # The shape given b = -k / sigma; the grid's point nearest to b = 0 stays off it.
    shapes = np.log1p(-b[:, None] * x).mean(axis=1)
    log_profile = n * (np.log(-b / shapes) - shapes - 1.0)
    weight = np.exp(log_profile - log_profile.max())
    b = weight @ b / weight.sum()
    shape = np.log1p(-b * x).mean()
    scale = -shape / b
    shape = (n * shape + PRIOR_WEIGHT * PRIOR_SHAPE) / (n + PRIOR_WEIGHT)
    return float(shape), float(scale)


def pareto_k(log_weights):
    """Return the shape of the tail of importance weights.

    Parameters
    ----------
    log_weights : array-like of shape (n_draws,)
        log p - log q of draws from q, up to a constant.

    Returns
    -------
    k : float
        Infinity where fewer than five weights are in the tail, and NaN where a log
        weight is.

    Notes
    -----
    Of n draws the min(n / 5, 3 sqrt(n)) largest are the tail, as in [1]_.

    References
    ----------
    .. [1] Vehtari, Simpson, Gelman, Yao, Gabry (2024). Pareto smoothed importance
       sampling. Journal of Machine Learning Research 25.
    """
    log_w = np.sort(np.asarray(log_weights, np.float64))  # which puts NaN last
    if np.isnan(log_w[-1]):
        return np.nan
    log_w -= log_w[-1]
    n_tail = int(np.ceil(min(0.2 * log_w.size, 3.0 * np.sqrt(log_w.size))))
    # Weights below the smallest normal number are as good as none.
    cutoff = max(log_w[-n_tail - 1], np.log(np.finfo(float).tiny))
    tail = log_w[log_w > cutoff]
    if tail.size < SMALLEST_TAIL:
        return np.inf
    return generalized_pareto(np.exp(tail) - np.exp(cutoff))[0]


class ParetoMixin:
    """`pareto_k_` of an estimator with ``posterior_``, and what its fit kept.

    That is ``_rows``, from which ``_log_joint(draws)`` finds the log density of
    parameters (n, d) and the rows together, up to a constant. Where it has been
    asked for, ``_pareto_k`` keeps the answer: pickles have it, the next fit drops it.
    """

    def _remember_parameters(self):
        vars(self).pop("_pareto_k", None)  # of the fit before
        super()._remember_parameters()

    @property
    def pareto_k_(self):
        """How far the posterior can be trusted; below 0.7 it is near the exact one.

        The shape of the tail of importance weights, from 1,000 draws: computed when it
        is first asked for, from the rows of the last fit, and kept until the next.
        """
        check_is_fitted(self)
        if "_pareto_k" not in vars(self):
            if "_rows" not in vars(self):
                raise AttributeError(
                    f"pareto_k_ of {type(self).__name__} needs the rows of the fit, "
                    "which are not in its pickle: ask for it before, or fit again."
                )
            draws = self.posterior_.sample(PARETO_DRAWS, np.random.default_rng(0))
            weights = self._log_joint(draws) - self.posterior_.logpdf(draws)
            self._pareto_k = pareto_k(weights)
        return self._pareto_k
