r"""Fewer rows than coefficients: the same posterior, in the span of the rows.

With the prior :math:`N(\mu_0, S^2)` of a column of coefficients, S diagonal, and rows
:math:`X S = R^T Q^T` (a QR decomposition of the transpose, Q with one column a row),

.. math:: \theta = S (Q z + u), \qquad z \sim N(Q^T S^{-1} \mu_0, I), \quad Q^T u = 0,

rows know :math:`X \theta = R^T z` only, and u keeps its prior. So the posterior of as
many z as there are rows is all that has to be found, at the same bound.
"""

import numpy as np
from scipy import sparse
from scipy.linalg import qr

from skvrem.data import as_source, rows_of
from skvrem.utils._validation import check_magnitude
from skvrem.vi.gaussian._model_posterior import (
    FullRank,
    LowRank,
    MeanField,
    with_intercepts,
)
from skvrem.vi.gaussian._width import OF_SCALED, in_own_basis


def in_coordinates(data, prior):
    """Return a source of rows by their coordinates, and what a prior is of these.

    An intercept keeps its place behind the features.

    Parameters
    ----------
    data : source
        Of rows here.
    prior : MeanField or CentredMeanField
        Of one predictor. Its features, whose mean is zero, have the coordinates.

    Returns
    -------
    source : source
        With as many features as rows.
    of_coordinates : callable
        Returns the prior of the coordinates, of a prior that is so many times as wide
        for all features.
    """
    d, (rows, weight) = data.n_features, rows_of(data)
    rows = in_own_basis(rows, prior.scale[:d], prior.centre)

    def of_coordinates(other):
        other = other.own
        width = other.scale[0] / prior.scale[0]
        mean = np.append(np.zeros(len(rows)), other.mean[d:])
        return MeanField(mean, np.append(np.full(len(rows), width), other.scale[d:]))

    return as_source(rows, weight), of_coordinates


def in_coordinates_about(data, targets, prior, intercept):
    """Return the same of any Gaussian prior, an intercept's among the features.

    Returns
    -------
    source : source
        With as many features as rows, whose coefficients are standard normal.
    targets : ndarray of shape (n_rows,)
        Less what the prior's mean makes of the rows.
    """
    rows, weight = dense_rows(data, intercept)
    squares, axes = np.linalg.eigh(prior.covariance(rows))
    own = axes * np.sqrt(np.maximum(squares, 0.0))
    return as_source(own, weight), targets - rows @ prior.mean


def dense_rows(data, intercept):
    """Return rows in double precision, with a one behind them or not, and weights."""
    rows, weight = rows_of(data)
    rows = rows.toarray() if sparse.issparse(rows) else rows
    rows = np.asarray(rows, np.float64)
    if intercept:
        rows = np.column_stack([rows, np.ones(len(rows))])
    return rows, weight


class Span:
    """Coefficients in the span of the rows.

    Parameters
    ----------
    data : source
        Fewer rows than coefficients.
    prior : MeanField or CentredMeanField
        Of a column of p coefficients; S is of rows less its centre.
    intercept : bool
        Rows have a one behind their features.

    Attributes
    ----------
    data : source
        Rows of R^T, with the weights of the rows.
    """

    def __init__(self, data, prior, intercept):
        rows, weight = dense_rows(data, intercept)
        self.centre, own = prior.centre, prior.own
        self.mean, self.scale = own.mean, own.scale
        scaled = rows * self.scale
        check_magnitude(scaled, OF_SCALED)
        if self.centre.size:
            scaled[:, :-1] -= self.centre * self.scale[:-1]
        self.basis, R = qr(scaled.T, mode="economic")
        self.data = as_source(np.ascontiguousarray(R.T), weight)

    def prior(self, k):
        """Return that of the z of k columns."""
        mean = np.tile(self.basis.T @ (self.mean / self.scale), k)
        return MeanField(mean, np.ones(mean.size))

    def of_rows(self, form):
        """Return what a quadratic form (p, p) of rows is of coordinates, (n, n)."""
        rows = self.basis.T / self.scale
        if self.centre.size:
            rows[:, :-1] += self.centre * rows[:, -1:]
        return rows @ form @ rows.T

    def means(self, mean):
        """Return the z (n, k) of means (p, k)."""
        own = with_intercepts(mean.T, self.centre).T
        return self.basis.T @ (own / self.scale[:, None])

    def project(self, posterior, k):
        """Return the posterior of the z of k columns, of that of their coefficients."""
        posterior = posterior.with_origin(self.centre)
        A = np.kron(np.eye(k), (self.basis / self.scale[:, None]).T)
        factor = np.linalg.cholesky(posterior.covariance(A))
        return FullRank(A @ posterior.mean, factor)

    def lift(self, posterior, k):
        """Return the posterior of k columns of coefficients, of that of their z."""
        p, n = self.basis.shape
        change = posterior.mean - self.prior(k).mean
        mean = self.mean + self.scale * (change.reshape(k, n) @ self.basis.T)
        change = (posterior.covariance() - np.eye(k * n)).reshape(k, n, k, n)
        half = np.einsum("ambn,pm->apbn", change, self.basis, optimize=True)
        covariance = np.einsum("apbn,qn->apbq", half, self.basis, optimize=True)
        covariance = covariance.reshape(k * p, k * p) + np.eye(k * p)
        scale = np.tile(self.scale, k)
        factor = scale[:, None] * np.linalg.cholesky(covariance)
        return FullRank(mean.ravel(), factor).with_origin(-self.centre)

    def lift_low(self, posterior, k):
        """Return the same as the prior less a rank, that of the rows of k columns."""
        (p, n), size = self.basis.shape, posterior.n_dim
        change = posterior.mean - self.prior(k).mean
        mean = self.mean + self.scale * (change.reshape(k, n) @ self.basis.T)
        told, axes = np.linalg.eigh(np.eye(size) - posterior.covariance())
        axes *= np.sqrt(np.clip(np.abs(told), 0.0, 1.0))
        # Nodes of several predictors may err to less than nothing that rows have told.
        sign = np.where(told < 0.0, 1.0, -1.0)
        factor = self.scale[:, None] * (self.basis @ axes.reshape(k, n, size))
        variance = np.tile(np.square(self.scale), k)
        factor = factor.reshape(k * p, size)
        found = LowRank(mean.ravel(), variance, factor, sign)
        return found.with_origin(-self.centre)
