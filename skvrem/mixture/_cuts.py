r"""Cuts of a component in two at a value of one column, where the covariance is shared.

A cut that sets apart w' and w'' of the w rows, of n in all, whose means differ by
:math:`\delta`, takes :math:`\frac{w' w''}{w n} \delta \delta^T` out of the shared
covariance :math:`\Sigma`. By the matrix determinant lemma the log-likelihood of all
rows, if each is of one component, gains

.. math:: -\frac{n}{2} \log(1 - q) - w H(w' / w), \qquad
          q = \frac{w' w''}{w n} \delta^T \Sigma^{-1} \delta

nats, with the entropy H of two shares. A column of few values gains much: where no
component has two of them, nothing of its variance is left. Other columns are not cut,
along which components come apart by themselves.
"""

from typing import NamedTuple

import numpy as np

from skvrem.data import drawn_rows
from skvrem.mixture._model import Parameters

# Rows that are cut to start with, of more.
MOST_ROWS = 2000
# Values of a column that is cut, at most; and the rows for each.
MOST_CODES, ROWS_A_CODE = 100, 10


def shrinkage(shares, differences, share, factors, reg_covar):
    """Return q, what cuts take out of the determinant of the covariance, as a share.

    Parameters
    ----------
    shares : ndarray of shape (n_cuts,)
        Of the rows below, in those that are cut.
    differences : ndarray of shape (n_cuts, n_features)
        Of the means.
    share : float
        Of the rows that are cut, in the weight of all.
    factors : ndarray of shape (n_features, n_features)
        Of the shared precision, as in `Parameters`.
    reg_covar : float

    Returns
    -------
    q : ndarray of shape (n_cuts,)
    """
    between = share * shares * (1.0 - shares)
    q = between * np.square(np.einsum("ij,jk->ik", differences, factors)).sum(axis=1)
    # What is left is no less than reg_covar along any axis, also where the rows are
    # some of those that the covariance is of.
    most = between * np.square(differences).sum(axis=1)
    most = most / (most + max(reg_covar, np.finfo(float).tiny))
    return np.minimum(q, np.minimum(most, 1.0 - np.finfo(float).eps))


class Cuts(NamedTuple):
    """The best cut of some rows along each column that has one.

    Attributes
    ----------
    low : ndarray of shape (n_rows, n_cuts), bool
        Which rows are below it.
    shares : ndarray of shape (n_cuts,)
        Of their weight in that of the rows.
    means : ndarray of shape (2, n_cuts, n_features)
        Of the rows below and above it.
    """

    low: np.ndarray
    shares: np.ndarray
    means: np.ndarray

    def gains(self, share, factors, reg_covar):
        """Return what they gain, nats for each row of all; as `shrinkage`."""
        differences = self.means[1] - self.means[0]
        q = shrinkage(self.shares, differences, share, factors, reg_covar)
        return -0.5 * np.log1p(-q) - share * entropy(self.shares)


def find_cuts(rows, weight, variances, share, fewest):
    """Return the best cuts, along each column as if there were no other.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_features)
    weight : ndarray of shape (n_rows,)
    variances : ndarray of shape (n_features,)
        The diagonal of the shared covariance.
    share : float
        Of the rows, in the weight of all.
    fewest : float
        Share of the weight of the rows that each side has at least.

    Returns
    -------
    cuts : Cuts
    """
    weight = weight / weight.sum()
    mean = np.einsum("i,ij->j", weight, rows)
    centred = np.ascontiguousarray((rows - mean).T)
    order = np.argsort(centred, axis=1)
    values, each = np.take_along_axis(centred, order, axis=1), weight[order]
    below = np.cumsum(each, axis=1)[:, :-1]
    possible = values[:, 1:] > values[:, :-1]
    n_values = 1 + np.count_nonzero(possible, axis=1)
    possible &= (n_values <= _most_codes(len(rows)))[:, None]
    possible &= (below >= fewest) & (below <= 1.0 - fewest)
    columns = np.flatnonzero(possible.any(axis=1))
    at, shares = np.empty(len(columns)), np.empty(len(columns))
    for cut, column in enumerate(columns):
        places = np.flatnonzero(possible[column])
        sums = np.cumsum(each[column] * values[column])[places]
        some = below[column, places]
        q = share * np.square(sums) / (some * (1.0 - some)) / variances[column]
        q = np.minimum(q, 1.0 - np.finfo(float).eps)
        best = np.argmax(-0.5 * np.log1p(-q) - share * entropy(some))
        at[cut], shares[cut] = values[column, places[best]], some[best]
    low = centred[columns] <= at[:, None]
    sums = np.einsum("ji,li->jl", low * weight, centred)
    means = np.stack([sums / shares[:, None], -sums / (1.0 - shares)[:, None]])
    return Cuts(low.T, shares, mean + means)


def has_codes(data):
    """Whether a column of the rows of a source has few values, and more than one."""
    rows = data.rows[:MOST_ROWS]
    n_values = np.array([len(np.unique(column)) for column in rows.T])
    return bool(((n_values > 1) & (n_values <= _most_codes(len(rows)))).any())


def _most_codes(n_rows):
    return min(MOST_CODES, n_rows // ROWS_A_CODE)


def entropy(share):
    """Return the entropy of two shares, in nats."""
    return -(share * np.log(share) + (1.0 - share) * np.log1p(-share))


class _Side(NamedTuple):
    """Rows of a component that is cut, their share of all, mean, scatter and cuts."""

    rows: np.ndarray
    share: float
    mean: np.ndarray
    scatter: np.ndarray
    cuts: Cuts


def rows_to_cut(data, most, rng):
    """Return some rows of a source, so many at most, in float64, and their weights."""
    X, weight, _ = drawn_rows(data, most, rng)
    return X.astype(np.float64), np.ones(len(X)) if weight is None else weight


def cut_start(model, data, n_components, rng):
    """Return parameters of components that one is cut into, the best cut first.

    Parameters
    ----------
    model : GaussianMixtureModel
        Of a shared covariance.
    data : ArraySource
    n_components : int
    rng : numpy.random.Generator

    Returns
    -------
    parameters : Parameters
        None where rows have not so many cuts.
    passes : float
    """
    X, weight = rows_to_cut(data, MOST_ROWS, rng)
    size = len(X)
    weight = weight / weight.sum()
    fewest = model.fewest_rows(X.shape[1]) / size
    constant = model.reg_covar * np.eye(X.shape[1])
    whole = np.diag(_scatter(X, weight)[1] + constant)
    parts, passes = [_part(X, weight, np.arange(size), whole, fewest)], size
    while True:
        covariance = constant + sum(part.scatter for part in parts)
        factors, bad = model.precisions_cholesky(covariance)
        if bad.any():
            break
        if len(parts) == n_components:
            weights = np.array([part.share for part in parts])
            means = np.stack([part.mean for part in parts])
            parameters = Parameters(weights, means, covariance, factors)
            return parameters, passes / data.n_units
        found = [
            part.cuts.gains(part.share, factors, model.reg_covar) for part in parts
        ]
        highest = [gains.max(initial=-np.inf) for gains in found]
        at = int(np.argmax(highest))
        if highest[at] == -np.inf:
            break
        rows, low = parts[at].rows, parts[at].cuts.low[:, found[at].argmax()]
        passes += len(rows)
        parts[at : at + 1] = [
            _part(X, weight, rows[side], np.diag(covariance), fewest)
            for side in (low, ~low)
        ]
    return None, passes / data.n_units


def _part(X, weight, rows, variances, fewest):
    """Return some rows as a component that may be cut; `fewest` is a share of all."""
    share, some = weight[rows].sum(), X[rows]
    mean, scatter = _scatter(some, weight[rows])
    cuts = find_cuts(some, weight[rows], variances, share, fewest / share)
    return _Side(rows, share, mean, scatter, cuts)


def _scatter(rows, weight):
    """Return the mean of rows, and the sum of their weighted products about it."""
    mean = np.einsum("i,ij->j", weight / weight.sum(), rows)
    centred = rows - mean
    return mean, np.einsum("ij,il->jl", weight[:, None] * centred, centred)
