r"""Two components of a Gaussian mixture in one, which has the moments of both.

Components i and j that share one cluster lose little where one takes the place of both,

.. math:: \ell_{ij} = -\sum_n w_n \log \left(1 - r_{ni} - r_{nj}
          + \frac{(\pi_i + \pi_j) N(x_n; \mu, \Sigma)}{p(x_n)}\right)

nats over rows n, exactly, with the mean and the covariance of the two together. To
delete j instead, whose rows i explains as it is, may lose far more, as where a plane is
between the two. Which other component is the one to merge with says a bound of what is
lost in the limit of many rows (Runnalls 2007),

.. math:: \tfrac12 \left((\pi_i + \pi_j) \log |\Sigma| - \pi_i \log |\Sigma_i|
          - \pi_j \log |\Sigma_j|\right) .

Where all share the covariance, no component can be as wide as two.
"""

from typing import NamedTuple

import numpy as np

from skvrem.mixture._model import Parameters

# Of a density, beside that of the best component; and the least.
MOST_EXPONENT, LEAST = 700.0, float(np.finfo(float).tiny)


class Merges(NamedTuple):
    """Pairs of components that may be merged.

    Attributes
    ----------
    first, second : ndarray of int of shape (n_pairs,)
    parameters : Parameters
        Of what each pair comes to, whose weights do not sum to one.
    """

    first: np.ndarray
    second: np.ndarray
    parameters: Parameters

    def losses(self, log_joint, of_pairs):
        """Return what rows lose with each merge, nats, shape (n_rows, n_pairs).

        Parameters
        ----------
        log_joint : ndarray of shape (n_rows, n_components)
            log p(x, k) of each row.
        of_pairs : ndarray of shape (n_rows, n_pairs)
            The same of the merged components.
        """
        top = log_joint.max(axis=1, keepdims=True)
        each = np.exp(log_joint - top)
        total = each.sum(axis=1, keepdims=True)
        # What is left of the others may be rounding, and less than nothing.
        rest = np.maximum(total - each[:, self.first] - each[:, self.second], 0.0)
        both = np.exp(np.minimum(of_pairs - top, MOST_EXPONENT))
        return np.log(total) - np.log(np.maximum(rest + both, LEAST))


def merge(model, parameters, first, second):
    """Return merged components, and which have no covariance.

    Parameters
    ----------
    model : GaussianMixtureModel
        Of any covariance but a shared one.
    parameters : Parameters
    first, second : ndarray of int of shape (n_pairs,)

    Returns
    -------
    merged : Parameters
    bad : ndarray of bool of shape (n_pairs,)
    """
    weights, means, covariances, _ = parameters
    total = weights[first] + weights[second]
    share = weights[second] / np.maximum(total, LEAST)
    apart = means[second] - means[first]
    if model.covariance_type == "full":
        between = apart[:, :, None] * apart[:, None]
    else:
        between = np.square(apart)
        if model.covariance_type == "spherical":
            between = between.mean(axis=1)
    means = means[first] + share[:, None] * apart
    share = share.reshape((-1,) + (1,) * (covariances.ndim - 1))
    widths = (1.0 - share) * covariances[first] + share * covariances[second]
    widths += share * (1.0 - share) * between
    factors, bad = model.precisions_cholesky(widths)
    return Parameters(total, means, widths, factors), bad


def find_merges(model, parameters):
    """Return for each component the merge that loses least by its bound, once each.

    Parameters
    ----------
    model : GaussianMixtureModel
    parameters : Parameters

    Returns
    -------
    merges : Merges
        None where there is none.
    """
    k = len(parameters.weights)
    if model.covariance_type == "tied" or k < 3:  # of two, one is to be split
        return None
    each, bounds = _weighted_log_det(model, parameters), np.full((k, k), np.inf)
    for one in range(1, k):
        others = np.arange(one)
        merged, bad = merge(model, parameters, np.full(one, one), others)
        bound = _weighted_log_det(model, merged) - each[one] - each[:one]
        bounds[one, :one] = bounds[:one, one] = np.where(bad, np.inf, 0.5 * bound)
    best = bounds.argmin(axis=1)
    pairs = np.sort(np.stack([np.arange(k), best], axis=1), axis=1)
    pairs = np.unique(pairs[np.isfinite(bounds.min(axis=1))], axis=0)
    if not len(pairs):
        return None
    first, second = pairs.T
    return Merges(first, second, merge(model, parameters, first, second)[0])


def _weighted_log_det(model, parameters):
    """Return the log determinant of each covariance, times its weight."""
    roots = model.by_component(parameters.precisions_cholesky)
    if model.dense:
        roots = np.diagonal(roots, axis1=1, axis2=2)
    roots = np.broadcast_to(roots, parameters.means.shape)
    with np.errstate(divide="ignore", invalid="ignore"):  # those that are bad
        return -2.0 * parameters.weights * np.log(roots).sum(axis=1)
