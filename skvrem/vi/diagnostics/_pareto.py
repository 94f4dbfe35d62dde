"""How far importance weights can be trusted: the shape of their tail.

With weights p(z) / q(z) of draws from q, a generalised Pareto distribution is fitted to
the largest. Below k = 0.7 its shape k says that q is close enough to p for importance
sampling to correct what differs; above, it is not (Vehtari et al. 2024).
"""

import warnings
from typing import NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skvrem.exceptions import PosteriorWarning
from skvrem.utils._reports import outside

# Draws that the shape of importance weights is taken from, at first and at most, and
# rows that they are to look at: fewer draws where rows are many, more where k is so
# many errors from its limit, or nearer.
PARETO_DRAWS, MOST_DRAWS, LOOKS = (200, 1000), 16_000, 20_000_000
LIMIT, NEAR = 0.7, 2.0
# Shares of effective draws: with more the tail is not looked at more closely, with
# fewer a shape that may be above its limit is warned of. And a difference of log
# weights that is rounding.
CLOSE, POOR, EQUAL = 0.5, 0.25, 1e-9
# Draws that one of the corrected ones is chosen among.
CORRECTED = 4
# Looks that a fit takes without being asked, or such a share of its own.
UNASKED, SHARE = 50_000, 0.1
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


class Tail(NamedTuple):
    """The largest importance weights, as a generalised Pareto distribution.

    Attributes
    ----------
    shape, error : float
        k, and its standard error, that of maximum likelihood, (1 + k) / sqrt(n), of a
        shape that is drawn towards 0.5.
    efficiency : float
        How many draws from p all draws are worth, as a share: where that is near 1, q
        is near p, whatever the tail.
    """

    shape: float
    error: float
    efficiency: float


def pareto_k(log_weights):
    """Return the shape of the tail of importance weights.

    Parameters
    ----------
    log_weights : array-like of shape (n_draws,)
        log p - log q of draws from q, up to a constant.

    Returns
    -------
    tail : Tail
        The shape is minus infinity where all weights are equal, infinity where else
        fewer than five are in the tail, and NaN where a log weight is.

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
        return Tail(np.nan, np.nan, np.nan)
    log_w -= log_w[-1]
    if log_w[0] > -EQUAL:
        return Tail(-np.inf, 0.0, 1.0)
    efficiency = float(np.square(np.exp(log_w).mean()) / np.exp(2.0 * log_w).mean())
    n_tail = int(np.ceil(min(0.2 * log_w.size, 3.0 * np.sqrt(log_w.size))))
    # Weights below the smallest normal number are as good as none.
    cutoff = max(log_w[-n_tail - 1], np.log(np.finfo(float).tiny))
    tail = log_w[log_w > cutoff]
    if tail.size < SMALLEST_TAIL:
        return Tail(np.inf, np.nan, efficiency)
    shape, _ = generalized_pareto(np.exp(tail) - np.exp(cutoff))
    error = max(1.0 + shape, 0.0) * np.sqrt(tail.size) / (tail.size + PRIOR_WEIGHT)
    return Tail(shape, float(error), efficiency)


def smoothed_weights(log_weights):
    """Return importance weights (n_draws,) that add up to 1, the largest smoothed.

    Those of the tail are the quantiles of its generalised Pareto distribution, in their
    order, and none is larger than the largest was (Vehtari et al. 2024, section 2).
    """
    log_w = np.asarray(log_weights, np.float64)
    order = np.argsort(log_w)
    weights = np.exp(log_w - log_w[order[-1]])
    n_tail = int(np.ceil(min(0.2 * log_w.size, 3.0 * np.sqrt(log_w.size))))
    cutoff, tail = weights[order[-n_tail - 1]], order[-n_tail:]
    excess = weights[tail] - cutoff
    if n_tail >= SMALLEST_TAIL and excess[0] > 0.0:
        shape, scale = generalized_pareto(excess)
        p = (np.arange(n_tail) + 0.5) / n_tail
        quantiles = scale * np.expm1(-shape * np.log1p(-p)) / shape
        weights[tail] = np.minimum(cutoff + quantiles, 1.0)
    return weights / weights.sum()


class ParetoMixin:
    """`pareto_k_` of an estimator with ``posterior_``, and what its fit kept.

    That is ``_rows``, from which ``_log_joint(draws)`` finds the log density of
    parameters (n, d) and the rows together, up to a constant. Where it has been
    asked for, ``_pareto_k`` keeps the answer: pickles have it, the next fit drops it.
    """

    @property
    def _given_prior(self):
        """The posterior given the prior that `_log_joint` has.

        Another than ``posterior_`` where this has what is not known of the prior.
        """
        return self.posterior_

    def _remember_parameters(self):
        vars(self).pop("_pareto_k", None)  # of the fit before
        super()._remember_parameters()

    @property
    def pareto_k_(self):
        """How far the posterior can be trusted; below 0.7 it is near the exact one.

        The shape of the tail of importance weights, of 200 to 1,000 draws, the fewer
        the more rows, and of up to 16,000 where it is within two errors of 0.7 and the
        weights are uneven, or above 0.7 though they are even. Computed when it is first
        asked for, from the rows of the last fit, unless the fit has, and kept until the
        next.
        """
        return self._tail().shape

    @property
    def pareto_k_se_(self):
        """About the standard error of ``pareto_k_``, from the draws that it took."""
        return self._tail().error

    def _tail(self, looks=LOOKS):
        check_is_fitted(self)
        if "_pareto_k" not in vars(self):
            if "_rows" not in vars(self):
                raise AttributeError(
                    f"pareto_k_ of {type(self).__name__} needs the rows of the fit, "
                    "which are not in its pickle: ask for it before, or fit again."
                )
            rng, q = np.random.default_rng(0), self._given_prior
            n_rows = max(1, self._n_looked_at())
            n_draws = int(np.clip(LOOKS // n_rows, *PARETO_DRAWS))
            weights = np.empty(0)
            while True:
                draws = q.sample(n_draws, rng)
                more = self._log_joint(draws) - q.logpdf(draws)
                weights = np.append(weights, more)
                tail, n_draws = pareto_k(weights), weights.size
                unsure = abs(tail.shape - LIMIT) < NEAR * tail.error
                if tail.efficiency >= CLOSE:
                    # The weights are even, their tail that of a bend near the mode: of
                    # few draws it looks like a heavy one.
                    unsure = tail.shape > LIMIT
                most = min(MOST_DRAWS, looks // n_rows)
                if not unsure or 2 * n_draws > most:
                    break
            self._pareto_k = tail
        return self._pareto_k

    def _corrected(self, n_samples, rng):
        """Return draws that are resampled by their smoothed weights."""
        q = self._given_prior
        draws = q.sample(max(CORRECTED * n_samples, MOST_DRAWS // 4), rng)
        weights = smoothed_weights(self._log_joint(draws) - q.logpdf(draws))
        # Evenly, so that a draw comes as often as its weight says, but for one.
        ends = (rng.uniform() + np.arange(n_samples)) / n_samples
        chosen = np.searchsorted(np.cumsum(weights), ends * (1.0 - 1e-12))
        return draws[rng.permutation(np.minimum(chosen, len(draws) - 1))]

    def _take_pareto_k(self, n_passes):
        """Take the shape where it costs little beside a fit, and warn if it is large.

        Parameters
        ----------
        n_passes : float
            Evaluations of all rows that the fit has taken.
        """
        n_rows = max(1, self._n_looked_at())
        looks = max(UNASKED, int(SHARE * n_passes * n_rows))
        if PARETO_DRAWS[1] * n_rows > looks:
            return
        k, error, efficiency = self._tail(looks)
        if not k + error < LIMIT and efficiency < POOR:
            warnings.warn(
                f"The posterior of {type(self).__name__} is far from the exact one: "
                f"pareto_k_ is {k:.2f} +- {error:.2f}, and draws are worth "
                f"{efficiency:.0%} of exact ones. Above {LIMIT:g} means, deviations "
                "and the bound can be wrong by much. Other parameters may "
                "have a posterior nearer to a Gaussian, as deviations from a mean in "
                "units of their scale have.",
                PosteriorWarning,
                stacklevel=outside(),
            )

    def _fact_of_k(self):
        """Return what a summary says of the shape."""
        if "_pareto_k" not in vars(self):
            return {"pareto k": "not computed: ask for pareto_k_"}
        return {"pareto k": "{:.2f} +- {:.2f}".format(*self._pareto_k)}
