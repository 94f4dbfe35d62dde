"""What a family of emission distributions must say, and what all of them share."""

from copy import copy
from typing import NamedTuple

import numpy as np
from sklearn.base import BaseEstimator

from skvrem.hmm.emissions._coordinates import IMPOSSIBLE, rescale

__all__ = ["Emission", "check_shares", "fill", "given", "published", "ratio"]


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


def check_shares(value, what, shape):
    """Return rows of probabilities that sum to 1.

    Raises
    ------
    ValueError
        If they do not, beginning with `what` they are.
    """
    array = np.asarray(value, float)
    if array.shape != shape or not (
        array.min() >= 0.0 and np.allclose(array.sum(axis=-1), 1.0, atol=1e-6)
    ):
        raise ValueError(
            f"{what} must be rows of probabilities of shape {shape} that sum to 1, got "
            f"{value!r}."
        )
    return array


def ratio(sums, weight, otherwise):
    """Return sums divided by weights; others where there is no weight."""
    empty = weight <= 0.0
    return np.where(empty, otherwise, sums / np.where(empty, 1.0, weight))


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

    Parameters are one array, a row a state: those of `_names` side by side, each of
    shape (n_states, n_columns) unless `_split` says otherwise. A subclass must define

    - ``_names`` and ``_scales``: names of the parameters, and their scales
      (``_coordinates.py``). What users give as ``name`` is fixed but for NaN, as
      ``name_init`` a start; fitted attributes are ``name_``;
    - ``_columns(X)``: (n_rows, n_features), the features F of rows, where NaN is any
      number; masks come before them, see `_kinds`;
    - ``theta(parameters)``: their coefficients, (n_states, n_features), those of masks
      first;
    - ``maximize(features, before, repair)``: the M step, parameters from sums of
      features; states without any stay as they were `before`. None where the sums,
      of variance-reduced estimates, allow none and `repair` is false;
    - ``expected(parameters)`` and ``spread(parameters)``: mean and standard deviation
      of the features, roughly;
    - ``slopes(parameters, features)``: the gradient of
      ``sum(features * theta(parameters))`` in the coordinate of every parameter;
    - ``draw(parameters, states, rng)``: a row for every state, ``moments(parameters)``:
      mean and variance of the observed values, ``tails(x, j, parameters)``: how much
      lies below and above x in column j.

    All else has a default, and is there for families that need more:

    - ``_prepare(X)`` looks at the rows of a fit, ``check(X)`` at those of any use;
    - ``blank()``, ``start_columns(X)`` and ``window`` are about starting values;
    - ``_kinds``, ``_seen(X)``, ``_pairs()``: features that are products of columns, and
      what is known of rows that are missing in part;
    - ``bound(X)``, ``kernel_theta(parameters)``, ``complete(sums, parameters)``: other
      features of rows than of the M step;
    - ``free``, ``bind`` and ``slope`` where parameters are tied to each other;
    - ``log_prior``, ``widths``, ``describe``, ``excludes``, ``allows_nan``.

    NaN is a missing value: all features that it would enter are 0, and so is its share
    of the log-density.
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
    #: Groups of first features that say what was seen and add up to 1; 0 is none, and
    #: then masks are the first features.
    _kinds = 0

    def open(self, X, n_states, names=None):
        """Remember what concerns the data: sizes, centres, names of columns."""
        self.n_states_, self.n_columns_ = n_states, X.shape[1]
        self._centre = np.zeros(X.shape[1])
        self._prepare(X)
        self.check(X)
        return self

    def _prepare(self, X):
        """Look at the rows of a fit."""

    def check(self, X):
        """Raise a ValueError where X holds values that the family does not know."""

    def _reject(self, X, wrong, expected):
        rows, columns = np.nonzero(wrong)
        if rows.size:
            raise ValueError(
                f"{type(self).__name__} emissions need {expected}: row {rows[0]}, "
                f"column {columns[0]} holds {X[rows[0], columns[0]]:g}."
            )

    # Features of rows, and those that the M step takes

    def _pairs(self):
        """Two columns for every feature: a number, ONE, or ``MASK - b`` for mask b.

        Columns are those of `_columns`; ONE is always 1, a mask where it holds.
        """
        masks = range(0 if self._kinds else self._n_masks())
        columns = self._columns(np.zeros((1, self.n_columns_))).shape[1]
        firsts = [*(self.MASK - b for b in masks), *range(columns)]
        return [(first, self.ONE) for first in firsts]

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

    def columns(self, X, missing):
        """Return the columns of some rows."""
        X = np.asarray(X, np.float64)
        columns = self._columns(X)
        if not missing:
            return columns
        seen = self._seen(X)
        each = np.tile(seen, columns.shape[1] // seen.shape[1])
        return np.hstack([np.where(each, columns, 0.0), seen])

    def _seen(self, X):
        """What is not missing, (n_rows, n_masks)."""
        return ~np.isnan(X)

    def _n_masks(self):
        return self.n_columns_

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

    def weight(self, features):
        """Return the states' shares of the rows, from sums of features."""
        kinds = max(self._kinds, 1)
        seen = features[:, : kinds * self._n_masks()]
        return seen.reshape(len(seen), kinds, -1).sum(axis=1).max(axis=1)

    def weighted(self, parameters, weight):
        """Return the sums of features to expect where states have such weights."""
        return weight[:, None] * self.expected(parameters)

    def permute(self, sums, order):
        """Return sums of features with the states in another order."""
        parts = np.arange(len(sums)).reshape(len(order), -1)
        return sums[parts[order].ravel()]

    # Parameters, side by side by their names

    def _shape(self, name):
        return self.n_states_, self.n_columns_

    def _given(self, name):
        """What users gave for a parameter, or None; NaN is free."""
        if not hasattr(self, name):
            return None
        return given(self, name, self._shape(name))

    def _check_given(self, name, least, most):
        for which in (name, f"{name}_init"):
            value = self._given(which)
            if (
                value is not None
                and not (np.isnan(value) | ((value >= least) & (value <= most))).all()
            ):
                raise ValueError(
                    f"{which} of {type(self).__name__} must lie between {least:g} and "
                    f"{most:g}, got {value.tolist()}."
                )

    def _fix(self, name, estimate):
        value = self._given(name)
        return estimate if value is None else np.where(np.isnan(value), estimate, value)

    def _split(self, parameters):
        return np.split(parameters, len(self._names), axis=1)

    def _join(self, *parts):
        return np.hstack([part.reshape(len(part), -1) for part in parts])

    def blank(self):
        """Return parameters for states that have no rows at all."""
        return np.zeros((self.n_states_, self.n_columns_))

    def start_columns(self, X):
        """Return what is clustered to find a start: a few numbers a row."""
        return fill(self._columns(X))

    def given_start(self, parameters):
        """Put what the user gave in the place of starting values."""
        parts = [
            self._fix(name, self._fix(f"{name}_init", part))
            for name, part in zip(self._names, self._split(parameters), strict=True)
        ]
        return self._join(*parts)

    def publish(self, parameters, dtype):
        """Set the fitted attributes."""
        for name, part in zip(self._names, self._split(parameters), strict=True):
            setattr(self, f"{name}_", part.astype(dtype))

    def parameters(self):
        """Return the fitted parameters."""
        parts = [np.asarray(getattr(self, f"{name}_"), float) for name in self._names]
        return self._join(*parts)

    def describe(self, names):
        """Return columns of a summary: every parameter of each feature."""
        return {
            f"{feature} {name}": getattr(self, f"{name}_")[:, j]
            for j, feature in enumerate(names)
            for name in self._names
        }

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

    # What gradient methods and confidence intervals ask for

    def scales(self):
        """Return the scale of every column of the parameters."""
        return np.repeat(self._scales, self.n_columns_)

    def varies(self):
        """Return which parameters are free, bool of the parameters' shape."""
        parts = []
        for name in self._names:
            value = self._given(name)
            free = (
                np.ones(self._shape(name), bool) if value is None else np.isnan(value)
            )
            parts.append(free)
        return self._join(*parts)

    def n_parameters(self):
        """Return the number of free parameters of all states."""
        return int(self.varies().sum())

    def log_prior(self, parameters):
        """Return the log-density of the prior, up to a constant."""
        return 0.0

    def free(self, parameters):
        """Return the free coordinates."""
        return rescale(parameters, self.scales(), "to")[self.varies()]

    def bind(self, vector, parameters):
        """Return the parameters with these free coordinates."""
        varies = self.varies()
        coordinates = np.zeros(parameters.shape)
        coordinates[varies] = vector
        bound = rescale(coordinates, self.scales(), "back")
        return np.where(varies, bound, parameters)

    def slope(self, parameters, features):
        """Return the gradient, in free coordinates, of Q and the prior."""
        return self.slopes(parameters, features)[self.varies()]
