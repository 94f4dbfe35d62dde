"""What a family of emission distributions must say, and what all of them share."""

from collections.abc import Mapping
from copy import copy
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize
from sklearn.base import BaseEstimator

from skvrem.hmm.emissions._coordinates import (
    IMPOSSIBLE,
    LEFT_OVER,
    TWO_PI,
    RowPieces,
    bounded_log,
    numbered,
    rescale,
)
from skvrem.hmm.emissions._facts import SomeRows, fill, whole
from skvrem.hmm.emissions._given import given
from skvrem.utils._algebra import equal_pieces

# Kinds of values: which are outside, and what is said of them.
SUPPORTS = {
    "positive": (lambda X: X <= 0.0, "positive numbers"),
    "nonnegative": (lambda X: X < 0.0, "positive numbers or 0"),
    "angle": (
        lambda X: np.abs(X) > TWO_PI,
        "angles in radians, from -pi to pi or 0 to 2 pi",
    ),
    "count": (lambda X: ~whole(X), "counts 0, 1, 2, ..."),
    "event": (lambda X: ~(np.isnan(X) | (X == 0) | (X == 1)), "0 or 1"),
}
# Draws a state of what has no closed form, and the step of central differences.
DRAWS, STEP = 2000, 1e-5
# What a logarithm does not move by in an M step that has a maximum.
FAR = 30.0


def ratio(sums, weight, otherwise):
    """Return sums divided by weights; others where there is no weight."""
    empty = weight <= 0.0
    return np.where(empty, otherwise, sums / np.where(empty, 1.0, weight))


def of_width_one(sd, least, names, weight, mean=0.0):
    """Return what `Emission.widths` yields, in widths of the columns.

    Parameters
    ----------
    sd : ndarray of shape (n_states, n_columns)
        Widths of the states.
    least : float or ndarray of shape (n_columns,)
        What they do not fall below.
    names, weight : see `Emission.widths`
    mean : float or ndarray of shape (n_columns,)
        Of the data, where their values are near to each other beside it.
    """
    ones = np.ones(sd.shape[1])
    about = np.square(least) * ones, ones, mean * ones, names, "state"
    return *about, np.square(sd), weight


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
    merged : ndarray of int of shape (n_states or 1, n_features)
        Which of them is a feature of the family, in each state.
    """

    first: np.ndarray
    second: np.ndarray
    merged: np.ndarray

    def _of(self, rows):
        """Numbers of products for so many rows, of states or of their parts."""
        return np.repeat(self.merged, rows // len(self.merged), axis=0)

    def collapse(self, theta):
        """Return the coefficients of products from those of the features."""
        out = np.zeros((len(theta), self.first.size))
        np.add.at(out, (np.arange(len(theta))[:, None], self._of(len(theta))), theta)
        return out

    def expand(self, sums):
        """Return sums of products as those of the features."""
        return sums[np.arange(len(sums))[:, None], self._of(len(sums))]


class Emission(BaseEstimator):
    r"""Base of the families of distributions that states emit.

    A family that inherits this has a log-density that is linear in features of a row,

    .. math:: \log f_i(y) = \sum_p \theta_{ip} F_p(y) ;

    :class:`DensityEmission` is for all others. Parameters are one array, a row a
    state: those of `parameter_scales` side by side, each of shape (n_states,
    n_columns). What users give to the constructor as ``name`` is fixed but for NaN, as
    ``name_init`` a start; fitted attributes are ``name_``. A subclass must define

    - ``parameter_scales``: names of the parameters, and what they are, "real",
      "positive", "probability" or "direction" (an angle, from -pi to pi);
    - ``sufficient(X)``: the features F of rows, (n_rows, n_features), where NaN is any
      number. Before them come masks, 1 where a value of X is seen, one a column;
    - ``theta(parameters)``: the coefficients of masks and features, (n_states,
      n_columns + n_features);
    - ``draw(parameters, states, rng)``: a row for every state.

    It should define, where there are closed forms,

    - ``maximize(features, before, repair)``: the M step, parameters from sums of masks
      and features; states without any stay as they were `before`. None where the sums,
      of variance-reduced estimates, allow none and `repair` is false;
    - ``slopes(parameters, features)``: the gradient of
      ``sum(features * theta(parameters))`` in the coordinate of every parameter;
    - ``expected(parameters)`` and ``spread(parameters)``: mean and standard deviation
      of masks and features, roughly;
    - ``moments(parameters)``: mean and variance of the observed values, and
      ``tails(x, j, parameters)``: how much lies below and above x in column j;

    which are numerical, or averages over draws, otherwise. All else is there for
    families that need more:

    - ``prepare(X)`` looks at the rows of a fit (of dask arrays at some of them),
      ``check(X)`` at those of any use;
    - ``blank()``, ``start_columns(X)``, ``window``, ``few_rows``, ``unordered`` and
      ``shrinks`` are about starting values;
    - ``_kinds``, ``_seen(X)``, ``_pairs()``: features that are products of columns, and
      what is known of rows that are missing in part;
    - ``bound(X)``, ``kernel_theta(parameters)``, ``complete(sums, parameters)``: other
      features of rows than of the M step;
    - ``follows`` and ``collect(X, weights, parameters)``: none of rows at all;
    - ``reads``, ``enter(X)``, ``emits`` and the methods ``.._at``: columns of X that
      what is emitted depends on;
    - ``free``, ``bind`` and ``slope`` where parameters are tied to each other;
    - ``support`` says what values are, where it is one of a few kinds;
    - ``log_prior``, ``widths``, ``describe``, ``excludes``, ``allows_nan``.

    NaN is a missing value: all features that it would enter are 0, and so is its share
    of the log-density.

    Examples
    --------
    >>> import numpy as np
    >>> from skvrem.hmm import VRHMM, Emission
    >>> class Exponential(Emission):
    ...     parameter_scales = {"rate": "positive"}
    ...     def sufficient(self, X):
    ...         return X
    ...     def theta(self, parameters):
    ...         return np.hstack([np.log(parameters), -parameters])
    ...     def draw(self, parameters, states, rng):
    ...         return rng.exponential(1.0 / parameters[states])
    >>> scale = np.repeat([[1.0], [50.0]], 2000, axis=0)
    >>> X = np.random.default_rng(0).exponential(scale)
    >>> hmm = VRHMM(2, emission=Exponential(), random_state=0).fit(X)
    >>> np.sort(1.0 / hmm.emission_.rate_.ravel()).round(-1)
    array([ 0., 50.])
    """

    #: Names of the parameters, and their scales.
    parameter_scales: dict
    #: What values are, one of "positive", "nonnegative", "angle", "count", "event";
    #: None is any number, or what `check` says.
    support: str | None = None
    #: What a subclass has to define.
    required: tuple = "parameter_scales", "sufficient", "theta", "draw"
    #: Whether rows are looked at again at every step: kernels take log-densities of
    #: the states, of `columns`, and the M step what `collect` makes of posteriors.
    follows = False
    #: Whether starts need one M step only, as where what `collect` returns is the same
    #: for all parameters.
    exact = False
    #: Which family of ``_kernels_rows.py`` this is, if it is one.
    row_kernel: str | None = None
    ONE, MASK, IMPOSSIBLE, LEFT_OVER = -1, -2, IMPOSSIBLE, LEFT_OVER
    #: Whether single values may be missing, and not only whole rows.
    allows_nan = True
    #: Rows that are averaged before they are clustered to find a start.
    window = 1
    #: Rows, one after the other, that states of some starts fit in place of clusters:
    #: of families that tell states by how columns hang together; 0 is no such start.
    few_rows = 0
    #: Whether rows are codes, of which none is nearer to another.
    unordered = False
    #: Whether parameters can make values impossible that rows may hold.
    excludes = False
    #: Whether features depend on which values of a row are missing.
    patterned = False
    #: Whether the width of a state in a column follows rows down to one value, above 0.
    shrinks = False
    #: Parts of a mixture, for each of which coefficients and features have a row.
    n_parts = 1
    #: Levels of the columns that hold text, by number in X; rows hold their codes.
    text_levels: Mapping = {}
    #: Groups of first features that say what was seen and add up to 1; 0 is none, and
    #: then masks are the first features.
    _kinds = 0

    # Columns of X

    def reads(self, names, n_columns, rest):
        """Return the numbers of the columns of X that `open` and all others are given.

        `rest` are those that are neither ids nor inputs of transitions.
        """
        return list(rest)

    def factors(self, names, n_columns):
        """Return the numbers of the columns of X that may hold text."""
        return []

    @property
    def emits(self):
        """Numbers, among the columns it reads, of those that states emit."""
        return range(self.n_columns_)

    def enter(self, X):
        """Return rows as all methods but `check` are given them."""
        return X

    def open(self, X, n_states, names=None, numbers=None):
        """Remember what concerns the data: sizes, centres, names of columns.

        Parameters
        ----------
        X : ndarray of shape (n_rows, n_columns)
        n_states : int
        names : list of str, default=None
            Of the columns.
        numbers : list of int, default=None
            Of the columns, among all that users pass.

        Raises
        ------
        TypeError
            If the family lacks what it has to define.
        """
        lacks = [name for name in self.required if not hasattr(self, name)]
        if lacks:
            raise TypeError(
                f"The emission family {type(self).__name__} must define "
                f"{' and '.join(lacks)}: see the docstring of "
                f"skvrem.hmm.{'DensityEmission' if self.follows else 'Emission'}."
            )
        self.n_states_, self.n_columns_ = n_states, X.shape[1]
        self._centre = np.zeros(X.shape[1])
        self.prepare(X)
        self.check(X)
        return self

    def prepare(self, X):
        """Look at the rows of a fit."""

    def check(self, X):
        """Raise a ValueError where X holds values that the family does not know."""
        if self.support is not None:
            outside, expected = SUPPORTS[self.support]
            with np.errstate(invalid="ignore"):
                self._reject(X, outside(X), expected)

    def _reject(self, X, wrong, expected):
        rows, columns = np.nonzero(wrong)
        if rows.size:
            # Rows of a sample have other numbers than those of X.
            row = "" if isinstance(X, SomeRows) else f"row {rows[0]}, "
            raise ValueError(
                f"{type(self).__name__} emissions need {expected}: {row}"
                f"column {columns[0]} holds {X[rows[0], columns[0]]:g}."
            )

    # Features of rows, and those that the M step takes

    def _pairs(self):
        """Two columns for every feature: a number, ONE, or ``MASK - b`` for mask b.

        Columns are those of `sufficient`; ONE is always 1, a mask where it holds.
        """
        masks = range(0 if self._kinds else self._n_masks())
        columns = self._n_sufficient()
        firsts = [*(self.MASK - b for b in masks), *range(columns)]
        return [(first, self.ONE) for first in firsts]

    def _n_sufficient(self):
        with np.errstate(all="ignore"):  # 0 may be no value of the family
            return self.sufficient(np.zeros((1, self.n_columns_))).shape[1]

    def features(self, missing):
        """Return the columns of every feature, equal features merged.

        Without missing values the masks are 1.
        """
        if self.follows:  # of every state its log-density
            first = np.arange(self.n_states_)[:, None]
            return self._merge(np.stack([first, np.full_like(first, self.ONE)], axis=2))
        pairs = np.asarray(self._pairs(), np.int64)
        mask = pairs <= self.MASK
        if missing:
            n_data = self._n_sufficient()
            pairs = np.where(mask, n_data + self.MASK - pairs, pairs)
        else:
            pairs = np.where(mask, self.ONE, pairs)
        return self._merge(pairs)

    @staticmethod
    def _merge(pairs):
        flat = pairs.reshape(-1, 2)
        unique, where = np.unique(flat, axis=0, return_inverse=True)
        merged = where.reshape(-1, pairs.shape[-2])
        return Features(unique[:, 0].copy(), unique[:, 1].copy(), merged)

    def columns(self, X, missing, parameters=None):
        """Return the columns of some rows; they follow the parameters if `follows`."""
        X = np.asarray(X, np.float64)
        columns = self.sufficient(X)
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
        return np.ones((len(parameters), 1)) if self.follows else self.theta(parameters)

    def collect(self, X, weights, parameters):
        """Return sums of the family's features over rows that states weigh so.

        Of families that follow the parameters only, from rows and weights
        (n_rows, n_states).
        """
        raise NotImplementedError

    def complete(self, sums, parameters, collected=None):
        """Return sums of the family's features from those of the rows' features."""
        return collected if self.follows else sums

    def n_row_features(self):
        """Return how many features rows are made into."""
        return 1 if self.follows else self.n_features()

    def n_features(self):
        """Return how many features the M step takes."""
        return len(self._pairs())

    def row_weight(self, features):
        """Return the states' shares of the rows, from sums of features."""
        kinds = max(self._kinds, 1)
        seen = features[:, : kinds * self._n_masks()]
        return seen.reshape(len(seen), kinds, -1).sum(axis=1).max(axis=1)

    def weighted(self, parameters, weight):
        """Return the sums of features to expect where states have such weights."""
        return weight[:, None] * self.expected(parameters)

    def model_sums(self, parameters, features):
        """Return the sums that the model expects of states of the same weights."""
        weight = np.maximum(self.row_weight(features), 1e-12)
        return self.weighted(parameters, weight)

    def permute(self, sums, order):
        """Return sums of features with the states in another order."""
        parts = np.arange(len(sums)).reshape(len(order), -1)
        return sums[parts[order].ravel()]

    # Parameters, side by side by their names

    def _shape(self, name):
        return self.n_states_, self.n_columns_

    def _given(self, name):
        """What users gave for a parameter, or None; NaN is free."""
        if getattr(self, name, None) is None:
            return None
        return given(self, name, self._shape(name))

    #: The states in the order in which users gave parameters; None is as they are.
    given_order = None

    def _names_given(self):
        """Names of what users may give of every state."""
        ends = "", "_init", "_prior"
        names = [f"{name}{end}" for name in self.parameter_scales for end in ends]
        return [name for name in names if getattr(self, name, None) is not None]

    def _note_order(self, order):
        before = np.arange(self.n_states_)
        before = before if self.given_order is None else self.given_order
        self.given_order = before[order]

    def reorder(self, order):
        """Put what users gave of states into another order, in new arrays and parts."""
        self._note_order(order)
        for name in self._names_given():
            setattr(self, name, given(self, name, self._shape(name))[order])

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

    def is_given(self):
        """Whether users gave all parameters, so that nothing is left to fit."""
        values = [getattr(self, name, None) for name in self.parameter_scales]
        known = [value is not None and np.ndim(value) <= 3 for value in values]
        return all(known) and not any(
            np.isnan(np.asarray(v, float)).any() for v in values
        )

    def n_given(self):
        """Return how many columns the parameters that users gave are of."""
        sizes = [np.shape(getattr(self, name, None)) for name in self.parameter_scales]
        return max((size[1] for size in sizes if len(size) > 1), default=1)

    def _fix(self, name, estimate):
        value = self._given(name)
        return estimate if value is None else np.where(np.isnan(value), estimate, value)

    def _split(self, parameters):
        return equal_pieces(parameters, len(self.parameter_scales))

    def _named(self, parameters):
        return zip(self.parameter_scales, self._split(parameters), strict=True)

    def _join(self, *parts):
        return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)

    def blank(self):
        """Return parameters for states that have no rows at all."""
        middle = {"positive": 1.0, "probability": 0.5}
        row = [middle.get(scale, 0.0) for scale in self.scales()]
        return np.tile(row, (self.n_states_, 1))

    def start_columns(self, X):
        """Return what is clustered to find a start: a few numbers a row."""
        return fill(self.sufficient(X))

    def narrowing(self, X):
        """Return entered rows; NaN is what no state can come down to in its width.

        Zeros that have a probability of their own are known without a state.
        """
        if not self.shrinks:
            return np.full(X.shape, np.nan)
        return np.where(X == 0.0, np.nan, X) if self.excludes else X

    def given_start(self, parameters):
        """Put what the user gave in the place of starting values."""
        parts = self._named(parameters)
        return self._join(
            *(self._fix(name, self._fix(f"{name}_init", part)) for name, part in parts)
        )

    def publish(self, parameters, dtype):
        """Set the fitted attributes."""
        for name, part in self._named(parameters):
            setattr(self, f"{name}_", part.astype(dtype))

    def parameters(self):
        """Return the fitted parameters."""
        names = self.parameter_scales
        parts = [np.asarray(getattr(self, f"{name}_"), float) for name in names]
        return self._join(*parts)

    def describe(self, names):
        """Return columns of a summary: every parameter of each feature."""
        return {
            f"{feature} {name}": getattr(self, f"{name}_")[:, j]
            for j, feature in enumerate(names)
            for name in self.parameter_scales
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

    def floors(self, parameters, features, names):
        """Yield what `widths` does of every part, and whose the least of them is.

        Yields
        ------
        found : tuple
            Of `widths`.
        own : bool
            Whether what bounds the likelihood of one value is the family's own, and no
            choice of the user's.
        """
        own = self.shrinks and not hasattr(self, "reg_covar")
        for found in self.widths(parameters, features, names):
            yield found, own

    # What is numerical, or an average over draws, where a family has no closed form

    def maximize(self, features, before, repair):
        """Return the parameters where ``sum(features * theta)`` is largest."""
        if not repair and self.row_weight(features).min() < 0.0:
            return None
        size = max(np.abs(features).sum(), 1e-300)

        def loss(vector):
            parameters = self.bind(vector, before)
            value = np.sum(features * self.theta(parameters)) / size
            return -value, -self.slope(parameters, features) / size

        exact = {"ftol": 0.0, "gtol": 1e-12, "maxiter": 200}
        begin = self.free(before)
        end = minimize(loss, begin, jac=True, method="L-BFGS-B", options=exact).x
        if not repair and not np.abs(end - begin).max(initial=0.0) < FAR:
            return None  # sums that no rows have: there is no maximum
        return self.bind(end, before)

    def slopes(self, parameters, features):
        """Return the gradient of ``sum(features * theta)``, by central differences."""
        scales, out = self.scales(), np.empty(parameters.shape)
        coordinates = rescale(parameters, scales, "to")
        for column in range(parameters.shape[1]):
            ends = []
            for step in (STEP, -STEP):
                moved = coordinates.copy()
                moved[:, column] += step
                theta = self.theta(rescale(moved, scales, "back"))
                ends.append((features * theta).sum(axis=1))
            out[:, column] = (ends[0] - ends[1]) / (2.0 * STEP)
        return out

    def expected(self, parameters):
        """Return the means of the features."""
        return self._simulated(parameters)[1].mean(axis=1)

    def spread(self, parameters):
        """Return standard deviations of the features, 1 of what never varies."""
        sd = self._simulated(parameters)[1].std(axis=1)
        return np.where(sd > 0.0, sd, 1.0)

    def moments(self, parameters):
        """Return mean and variance of the observed values.

        Of angles the mean angle, and 2 less twice the mean resultant length.
        """
        return self._moments_of(self._simulated(parameters)[0], axis=1)

    def _moments_of(self, values, axis):
        """Return mean and variance of draws."""
        if self.support != "angle":
            return values.mean(axis=axis), values.var(axis=axis)
        resultant = np.exp(1j * values).mean(axis=axis)
        return np.angle(resultant), 2.0 * (1.0 - np.abs(resultant))

    def tails(self, x, j, parameters):
        """Return the probabilities of less and of more than x in column j."""
        values = np.sort(self._simulated(parameters)[0][:, :, j], axis=1)
        less, up_to = (
            np.stack([own.searchsorted(x, side) for own in values], axis=1)
            for side in ("left", "right")
        )
        # Half of what is as large; beyond all draws as much as half of one.
        below = (0.5 + 0.5 * (less + up_to)) / (DRAWS + 1.0)
        return below, 1.0 - below

    # Of given rows, for families that depend on columns of them

    #: Whether values have probabilities.
    discrete = False

    def families(self):
        """Return the families that the columns have."""
        return [self]

    def is_discrete(self, j):
        """Whether emitted column j has probabilities."""
        return self.discrete

    def angles(self):
        """Return which of the emitted columns are angles, bool."""
        return np.full(len(self.emits), self.support == "angle")

    def depends_on_rows(self):
        """Whether what states emit depends on other columns of a row."""
        return type(self).tails_at is not Emission.tails_at

    def value_places(self):
        """Return where the emitted columns are in rows that have been entered."""
        return list(range(len(self.emits)))

    def moments_at(self, parameters, X):
        """Return mean and variance of what is emitted, (n_rows, n_states, n)."""
        shape = len(X), self.n_states_, len(self.emits)
        return [np.broadcast_to(part, shape) for part in self.moments(parameters)]

    def draw_at(self, parameters, states, rng, X):
        """Return what is emitted for every state, in rows X."""
        return self.draw(parameters, states, rng)

    def tails_at(self, X, j, parameters):
        """Return the probabilities of less and of more than emitted column j of X."""
        return self.tails(X[:, j], j, parameters)

    def probabilities_at(self, parameters, X):
        """Return probabilities of categories, (n_rows, n_states, n), or None."""

    def _simulated(self, parameters):
        """Return the same draws (n_states, DRAWS, n_columns) again, and features."""
        n, rng = self.n_states_, np.random.default_rng(0)
        X = self.draw(parameters, np.repeat(np.arange(n), DRAWS), rng)
        if self.follows:
            return X.reshape(n, DRAWS, -1), None
        columns = self.columns(X, True)
        columns = np.hstack([columns, np.ones((len(X), 1))])  # column -1
        first, second, merged = self.features(True)
        products = (columns[:, first] * columns[:, second]).reshape(n, DRAWS, -1)
        merged = np.broadcast_to(merged, (n, merged.shape[1]))
        return X.reshape(n, DRAWS, -1), np.take_along_axis(
            products, merged[:, None], axis=2
        )

    # What gradient methods and confidence intervals ask for

    def scales(self):
        """Return the scale of every column of the parameters."""
        return np.repeat(list(self.parameter_scales.values()), self.n_columns_)

    def varies(self):
        """Return which parameters are free, bool of the parameters' shape."""
        parts = []
        for name in self.parameter_scales:
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

    # What is swept row by row

    def row_columns(self, X):
        """Return what the density of a family with a `row_kernel` takes of rows."""
        return self.sufficient(X)

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        own = vars(cls)
        if "theta" in own and not {"row_kernel", "row_pieces"} & own.keys():
            # What kernels know of a parent is another density.
            cls.row_kernel, cls.row_pieces = None, Emission.row_pieces

    def row_pieces(self, X):
        """Return a list of `RowPieces`, or None where no kernel of rows is known."""
        if self.row_kernel is None:
            return None
        varies = self.varies()
        given = self.given_start(self.blank())
        logs, others = (bounded_log(np.maximum(p, 0.0)) for p in (given, 1.0 - given))
        kinds = {"real": given, "positive": logs, "probability": logs - others}
        kinds["direction"] = given
        constants = np.choose(
            [list(kinds).index(scale) for scale in self.scales()], list(kinds.values())
        )
        columns = self.row_columns(np.asarray(X, float))
        found = columns, numbered(varies), constants
        return [RowPieces(self.row_kernel, self.n_columns_, *found)]
