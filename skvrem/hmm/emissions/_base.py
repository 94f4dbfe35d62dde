"""What a family of emission distributions must say, and what all of them share."""

from copy import copy
from typing import NamedTuple

import numpy as np
from sklearn.base import BaseEstimator

from skvrem.hmm.emissions._coordinates import SCALES

__all__ = ["IMPOSSIBLE", "Emission", "bounded_log", "fill", "given", "published"]

# Stands for log 0: finite, so that times a feature of 0 it is 0 and not NaN.
IMPOSSIBLE = -1e100


def bounded_log(x):
    """Return the logarithm, of 0 a number that stands for minus infinity."""
    with np.errstate(divide="ignore"):
        return np.maximum(np.log(x), IMPOSSIBLE)


def fill(X):
    """Return X with the mean of its column for every NaN, 0 where there is no other."""
    seen = ~np.isnan(X)
    sums = np.where(seen, X, 0.0).sum(axis=0)
    return np.where(seen, X, sums / np.maximum(seen.sum(axis=0), 1))


def given(emission, name, shape):
    """Return a parameter that the user gave, spread to `shape`, or None.

    Raises
    ------
    ValueError
        If it has another shape.
    """
    value = getattr(emission, name)
    if value is None:
        return None
    try:
        return np.array(np.broadcast_to(np.asarray(value, float), shape))
    except (TypeError, ValueError):
        raise ValueError(
            f"{name} of {type(emission).__name__} must be numbers of shape {shape}, "
            f"got {value!r}."
        ) from None


def published(family, parameters, dtype):
    """Return a copy of a family with parameters as its fitted attributes."""
    family = copy(family)
    family.publish(parameters, dtype)
    return family


class Features(NamedTuple):
    """Products of columns.

    Attributes
    ----------
    first, second : ndarray of int of shape (n_merged,)
        Numbers of the columns; -1 is a column of ones.
    merged : ndarray of int of shape (n_features,)
        Which of them is a feature of the family.
    """

    first: np.ndarray
    second: np.ndarray
    merged: np.ndarray

    def collapse(self, theta):
        """Return the coefficients of products from those of the features."""
        out = np.zeros((len(theta), self.first.size))
        np.add.at(out.T, self.merged, theta.T)
        return out

    def expand(self, sums):
        """Return sums of products as those of the features."""
        return sums[:, self.merged]


class Emission(BaseEstimator):
    r"""A family whose log-density is linear in features of a row.

    .. math:: \log f_i(y) = \sum_p \theta_{ip} F_p(y)

    A feature is a product of two *columns*, which are made of the rows once. NaN is a
    missing value: all features that it would enter are 0, and so is its share of the
    log-density. A subclass defines

    - ``_columns(X)``: (n_rows, n_columns), where NaN is treated as any number;
    - ``_seen(X)``: (n_rows, n_masks) of bool, what is not missing;
    - ``_pairs()``: for every feature its two columns; a column ``MASK - b`` is 1 where
      mask b holds, and ``ONE`` is always 1;
    - ``theta(parameters)``: (n_states, n_features);
    - ``maximize(features, before, repair)``: the M step, parameters from sums of
      features; states without any stay as they were `before`;
    - ``expected(parameters)`` and ``spread(parameters)``: mean and standard deviation
      of the features, roughly;
    - ``publish(parameters, dtype)`` and ``parameters()``: the fitted attributes;
    - ``moments(parameters)``: mean and variance of the observed values, and
      ``tails(x, j, parameters)``: how much lies below and above x in column j;
    - where rows need other features than the M step, ``bound(X)``, a copy that has
      looked at X, its ``kernel_theta(parameters)`` and ``complete(sums, parameters)``;
    - ``check(X)``, ``draw(parameters, states, rng)``, ``n_parameters()``,
      ``describe(names)``, ``given_start(parameters)``, ``blank()``.

    Parameters are one array, a row a state. Gradient methods and confidence intervals
    see them in free coordinates (``_coordinates.py``), for which a subclass says

    - ``scales()``: the scale of every column of the parameters;
    - ``varies()``: which of them are free, bool of the parameters' shape;
    - ``slopes(parameters, features)``: the gradient of
      ``sum(features * theta(parameters))`` in the coordinate of every parameter;

    or, where parameters are tied to each other, ``free``, ``bind`` and ``slope``.
    """

    ONE, MASK, IMPOSSIBLE = -1, -2, IMPOSSIBLE
    #: Whether single values may be missing, and not only whole rows.
    allows_nan = True
    #: Rows that are averaged before they are clustered to find a start.
    window = 1
    #: Whether parameters can make values impossible that rows may hold.
    excludes = False
    #: Parts of a mixture, for each of which coefficients and features have a row.
    n_parts = 1

    def open(self, X, n_states, names=None):
        """Remember what concerns the data: sizes, centres, names of columns."""
        self.n_states_, self.n_columns_ = n_states, X.shape[1]
        self._centre = np.zeros(X.shape[1])
        self._prepare(X)
        self.check(X)
        return self

    def _prepare(self, X):
        """Look at the rows of a fit."""

    def features(self, missing):
        """Return the columns of every feature, equal features merged.

        Without missing values the masks are 1.
        """
        pairs = np.asarray(self._pairs(), np.int64)
        mask = pairs <= self.MASK
        if missing:
            n_data = self._columns(np.zeros((1, self.n_columns_))).shape[1]
            pairs = np.where(mask, n_data + self.MASK - pairs, pairs)
        else:
            pairs = np.where(mask, self.ONE, pairs)
        return self._merge(pairs)

    @staticmethod
    def _merge(pairs):
        unique, where = np.unique(pairs, axis=0, return_inverse=True)
        return Features(unique[:, 0].copy(), unique[:, 1].copy(), where.ravel())

    def bound(self, X):
        """Return the family for the values that are missing in X."""
        return self

    def kernel_theta(self, parameters):
        """Return the coefficients of the features that rows are made into."""
        return self.theta(parameters)

    def complete(self, sums, parameters):
        """Return sums of the family's features from those of the rows' features."""
        return sums

    def n_row_features(self):
        """Return how many features rows are made into."""
        return len(self._pairs())

    def columns(self, X, missing):
        """Return the columns of some rows."""
        X = np.asarray(X, np.float64)
        if not missing:
            return self._columns(X)
        seen = self._seen(X)
        columns = np.where(self._column_seen(seen), self._columns(X), 0.0)
        return np.hstack([columns, seen])

    def _column_seen(self, seen):
        """Which mask goes with which column: one for each, or one for all."""
        return seen

    def _seen(self, X):
        return ~np.isnan(X)

    def weight(self, features):
        """Return the states' shares of the rows, from sums of features."""
        return features[:, : self._n_masks()].max(axis=1)

    def _n_masks(self):
        return self.n_columns_

    def weighted(self, parameters, weight):
        """Return the sums of features to expect where states have such weights."""
        return weight[:, None] * self.expected(parameters)

    def permute(self, sums, order):
        """Return sums of features with the states in another order."""
        parts = np.arange(len(sums)).reshape(len(order), -1)
        return sums[parts[order].ravel()]

    def widths(self, parameters, features, names):
        """Yield what a check of added variances needs of every Gaussian family.

        Yields
        ------
        reg_covar, variances, means, names : see
            :func:`~skvrem.utils._reports.warn_scale`
        kind : str
        parts : ndarray of shape (n_parts, n_columns)
            Variances of the states, or of their components.
        weight : ndarray of shape (n_parts,)
            Shares of the rows.
        """
        return iter(())

    def log_prior(self, parameters):
        """Return the log-density of the prior, up to a constant."""
        return 0.0

    def free(self, parameters):
        """Return the free coordinates."""
        return self._rescale(parameters, "to")[self.varies()]

    def bind(self, vector, parameters):
        """Return the parameters with these free coordinates."""
        varies = self.varies()
        coordinates = np.zeros(parameters.shape)
        coordinates[varies] = vector
        return np.where(varies, self._rescale(coordinates, "back"), parameters)

    def slope(self, parameters, features):
        """Return the gradient, in free coordinates, of Q and the prior."""
        return self.slopes(parameters, features)[self.varies()]

    def _rescale(self, values, way):
        out, scales = np.empty(values.shape), np.asarray(self.scales())
        for name in np.unique(scales):
            columns = scales == name
            out[:, columns] = getattr(SCALES[name], way)(values[:, columns])
        return out

    def check(self, X):
        """Raise a ValueError where X holds values that the family does not know."""

    def start_columns(self, X):
        """Return what is clustered to find a start: a few numbers a row."""
        return fill(self._columns(X))

    def blank(self):
        """Return parameters for states that have no rows at all."""
        return np.zeros((self.n_states_, self.n_columns_))

    def _reject(self, X, wrong, expected):
        rows, columns = np.nonzero(wrong)
        if rows.size:
            raise ValueError(
                f"{type(self).__name__} emissions need {expected}: row {rows[0]}, "
                f"column {columns[0]} holds {X[rows[0], columns[0]]:g}."
            )
