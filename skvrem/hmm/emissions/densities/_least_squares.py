"""Gaussian regressions: sums over rows say all, an M step is weighted least squares."""

import numpy as np

from skvrem.hmm.emissions._coordinates import LOG_2PI
from skvrem.hmm.emissions.densities._density import DensityEmission

# Of the variance of a column, what a state's noise does not fall below.
LEAST = 1e-8


class LeastSquares(DensityEmission):
    """Densities of values by regressors, whose sums of products may say all of rows.

    They do where a class that inherits this has set ``exact``: of normal values with
    means by regressors and one sd in each state. Others are what they are without.
    Sums are of 1, y^2, z y and z z^T, in widths of the columns.
    """

    def _settle(self, u, sums):
        """Return masks, y^2, z y, z z^T and what is left of y^2, by column."""
        n, p, d = u.shape
        sums = sums.reshape(n, -1, d)
        weight, square = sums[:, 0], sums[:, 1]
        b, packed = sums[:, 2 : 2 + p], sums[:, 2 + p :]
        C = np.zeros((n, p, p, d))
        i, j = np.triu_indices(p)
        C[:, i, j] = C[:, j, i] = packed
        left = (
            square - 2.0 * (b * u).sum(axis=1) + np.einsum("ipd,ipqd,iqd->id", u, C, u)
        )
        return weight, b, C, left

    def _noise(self, parameters):
        """Return coordinates of means, 0 in the place of sd, and sd in widths."""
        u = self._coordinates(parameters)
        sd = np.exp(u[:, -1]) / self._unit[0]
        u = u.copy()
        u[:, -1] = 0.0
        return u, sd

    def collect(self, X, weights, parameters):
        """Return the sums over rows that states weigh so."""
        if not self.exact:
            return super().collect(X, weights, parameters)
        x, (design, _, offset) = self._read(np.asarray(X, float))
        y = (x - (offset if offset.shape[1] else 0.0) - self._zero[0]) / self._unit[0]
        seen = ~np.isnan(y)
        y = np.where(seen, y, 0.0)
        n, p, d = weights.shape[1], design.shape[1] + 1, y.shape[1]
        i, j = np.triu_indices(p)
        sums = np.zeros((n, 2 + p + len(i), d))
        inner = np.flatnonzero(j < p - 1)
        for column in range(d):
            products = np.zeros((n, p - 1, p - 1))
            for state in range(n):
                w = weights[:, state] * seen[:, column]
                weighted = design * w[:, None]
                products[state] = design.T @ weighted
                sums[state, 0, column] = w.sum()
                sums[state, 1, column] = w @ np.square(y[:, column])
                sums[state, 2 : 1 + p, column] = y[:, column] @ weighted
            sums[:, 2 + p + inner, column] = products[:, i[inner], j[inner]]
        return sums.reshape(n, -1)

    def theta(self, parameters):
        """Return the coefficients of the sums."""
        if not self.exact:
            return super().theta(parameters)
        u, sd = self._noise(parameters)
        i, j = np.triu_indices(u.shape[1])
        one, inverse = np.ones_like(sd[:, None]), 1.0 / np.square(sd)[:, None]
        log_sd = np.log(sd * self._unit[0])[:, None]
        square = np.where(i == j, 0.5, 1.0)[:, None] * u[:, i] * u[:, j]
        parts = -0.5 * LOG_2PI - log_sd, -0.5 * inverse, u * inverse, -square * inverse
        return np.concatenate([one * parts[0], *parts[1:]], axis=1).reshape(len(u), -1)

    def expected(self, parameters):
        """Return sums at which the parameters are the maximum."""
        if not self.exact:
            return super().expected(parameters)
        u, sd = self._noise(parameters)
        i, j = np.triu_indices(u.shape[1])
        C = ((i == j) & (j < u.shape[1] - 1))[:, None]
        C = np.broadcast_to(C, (len(u), len(i), u.shape[2]))
        square = (np.square(sd) + np.square(u).sum(axis=1))[:, None]
        parts = np.ones_like(square), square, u, C
        return np.concatenate(parts, axis=1).reshape(len(u), -1)

    def spread(self, parameters):
        """Return what changes of the sums are compared with."""
        if not self.exact:
            return super().spread(parameters)
        return np.ones((len(parameters), self.n_features()))

    def _quadratic(self, parameters, features):
        if not self.exact:
            return super()._quadratic(parameters, features)
        u, sd = self._noise(parameters)
        weight, b, C, left = self._settle(u, features)
        inverse = 1.0 / np.square(sd)
        ridge = self._ridge(u.shape[1])
        slope = (b - np.einsum("ipqd,iqd->ipd", C, u)) * inverse[:, None]
        slope -= ridge[:, None] * u
        slope[:, -1] = left * inverse - weight
        curved = -np.moveaxis(C * inverse[:, None, None], 3, 1) - np.diag(ridge)
        curved[:, :, -1, -1] = -2.0 * np.maximum(weight, 1e-300)
        return u.swapaxes(1, 2), slope.swapaxes(1, 2), curved

    def maximize(self, features, before, repair):
        """Return the parameters: weighted least squares, or a Newton step."""
        if not self.exact:
            return super().maximize(features, before, repair)
        weight = features[:, : self.n_columns_]
        if not repair and weight.min() < 0.0:
            return None
        varies = self.varies()
        step = self._newton(*self._quadratic(before, features)[1:], weight, varies)
        step[:, -1] = 0.0
        u = self._coordinates(before) + step
        *_, left = self._settle(
            u * (np.arange(u.shape[1]) < u.shape[1] - 1)[:, None], features
        )
        empty = weight <= 0.0
        square = left / np.where(empty, 1.0, weight)
        if not repair and (square[~empty] <= 0.0).any():
            return None
        log_sd = 0.5 * np.log(np.maximum(square, LEAST)) + np.log(self._unit[0])
        u[:, -1] = np.where(empty, u[:, -1], log_sd)
        return np.where(varies, self._values(u), before)
