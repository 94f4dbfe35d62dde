"""Emissions of categories, one or how often each."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln

from skvrem.hmm.emissions._base import Emission
from skvrem.hmm.emissions._coordinates import (
    RowPieces,
    are_negative,
    bounded_log,
    draw_codes,
)
from skvrem.hmm.emissions._facts import extremes, fill, whole
from skvrem.hmm.emissions._given import check_shares, given_shares
from skvrem.hmm.emissions.discrete._numbers import binomial_tails
from skvrem.utils._columns import Given
from skvrem.utils._validation import check_integer

# Categories that have a feature of rows each; columns of them to find a start by; and
# those that a summary shows.
FEW, MOST_COLUMNS, MOST_SHOWN = 16, 32, 100
# Largest code that is taken for one of as many categories where nobody says how many.
LARGEST_CODE = 10_000_000


class Categorical(Emission):
    """One of some categories, a single column of codes 0, 1, 2, ...

    Parameters
    ----------
    n_categories : int, default=None
        How many; None is one more than the largest code of the fit.
    prior : float or array-like of shape (n_states, n_categories), default=1.0
        Parameters of Dirichlet distributions of the probabilities; 1 is none.
    probability : array-like of shape (n_states, n_categories), default=None
        Fixed probabilities; NaN are free, and share what the others leave of 1.
    probability_init : array-like of shape (n_states, n_categories), default=None
        Starting values.

    Attributes
    ----------
    probability_ : ndarray of shape (n_states, n_categories)
        Probabilities of the categories.

    Examples
    --------
    >>> import numpy as np
    >>> from skvrem.hmm import VRHMM, Categorical
    >>> X = np.repeat([[0], [2], [1], [2]], 20, axis=0)
    >>> hmm = VRHMM(2, emission=Categorical(), random_state=0).fit(X)
    >>> hmm.emission_.probability_.shape
    (2, 3)
    """

    discrete, unordered = True, True
    parameter_scales = {"probability": "probability"}
    window, excludes = 5, True

    def __init__(
        self,
        n_categories: int | None = None,
        *,
        prior: float | ArrayLike = 1.0,
        probability: Given = None,
        probability_init: Given = None,
    ):
        self.n_categories = n_categories
        self.prior = prior
        self.probability = probability
        self.probability_init = probability_init

    def prepare(self, X):
        check_integer(self, "n_categories", least=1, options=(None,))
        if X.shape[1] != 1:
            raise ValueError(
                f"Categorical emissions are one column of codes, got {X.shape[1]} "
                "columns."
            )
        self._reject(X, ~whole(X), "codes 0, 1, 2, ...")
        largest = np.nanmax(extremes(X)[1], initial=0)
        rows = np.shape(self.probability if self.n_categories is None else None)
        many = rows[1] if len(rows) > 1 else int(largest) + 1
        if self.n_categories is None and many > LARGEST_CODE:
            raise ValueError(
                f"Categorical emissions hold codes as large as {largest:.0f}, of as "
                "many categories: number those that there are as 0, 1, 2, ..., as "
                "sklearn.preprocessing.OrdinalEncoder does."
            )
        self.n_categories_ = self.n_categories or many
        self.follows = self.exact = self.n_categories_ > FEW
        start = self._given("probability_init")
        if start is not None:
            check_shares(
                start, "probability_init of Categorical", self._shape("probability")
            )
        self._shares = given_shares(self, "probability", self.prior)

    def given_start(self, parameters):
        """Put what the user gave in the place of starting values."""
        start = self._given("probability_init")
        return self._shares.complete(parameters if start is None else start)

    @property
    def _kinds(self):
        return self.n_categories_

    def _shape(self, name):
        return self.n_states_, self.n_categories_

    def n_given(self):
        """Return how many columns there are: one of codes."""
        return 1

    def reorder(self, order):
        """Put what users gave of states into another order."""
        super().reorder(order)
        self._shares = self._shares.reordered(order)

    def check(self, X):
        """Raise a ValueError where X holds codes that there are not."""
        self._reject(X, ~whole(X), f"codes from 0 to {self.n_categories_ - 1}")
        with np.errstate(invalid="ignore"):
            unknown = X >= self.n_categories_
        if unknown.any():
            row = int(unknown.any(axis=1).argmax())
            raise ValueError(
                "Categorical emissions were fitted to codes from 0 to "
                f"{self.n_categories_ - 1}: row {row}, column 0 holds {X[row, 0]:g}. "
                "If more codes can come than the first rows hold, give their number, "
                "as Categorical(n_categories=...)."
            )

    # Features: one for each category. Where these are many, none is made of rows,
    # which look their log-densities up.

    def sufficient(self, X):
        return (X == np.arange(self.n_categories_)).astype(float)

    def n_features(self):
        """Return how many features the M step takes."""
        return self.n_categories_

    def start_columns(self, X):
        """Return a column for each category, or of many as many random ones."""
        codes, k = np.where(np.isnan(X), 0.0, X)[:, 0].astype(np.int64), MOST_COLUMNS
        if self.n_categories_ <= k:
            columns = (codes[:, None] == np.arange(self.n_categories_)) + 0.0
        else:
            directions = np.random.default_rng(0).normal(size=(self.n_categories_, k))
            columns = directions[codes]
        return fill(np.where(np.isnan(X), np.nan, columns))

    def columns(self, X, missing, parameters=None):
        """Return the log-probabilities of codes in every state, 0 where missing."""
        if not self.follows:
            return super().columns(X, missing)
        if parameters is None:
            return np.zeros((len(X), self.n_states_))
        if not missing:
            return bounded_log(parameters).T[X[:, 0].astype(np.int64)]
        seen = ~np.isnan(X[:, 0])
        logs = bounded_log(parameters).T[np.where(seen, X[:, 0], 0.0).astype(np.int64)]
        return np.where(seen[:, None], logs, 0.0)

    def collect(self, X, weights, parameters):
        """Return the sums of weights by category."""
        seen, k = ~np.isnan(X[:, 0]), self.n_categories_
        if not seen.all():
            X, weights = X[seen], weights[seen]
        codes = X[:, 0].astype(np.int64)
        return np.stack([np.bincount(codes, own, minlength=k) for own in weights.T])

    def theta(self, parameters):
        """Return the logarithms of the probabilities."""
        return bounded_log(parameters)

    def expected(self, parameters):
        """Return the means of the features."""
        return parameters

    def spread(self, parameters):
        """Return standard deviations of the features."""
        return np.sqrt(np.maximum(parameters, 1e-4))

    def log_prior(self, parameters):
        """Return the log-density of the Dirichlet prior."""
        return self._shares.log_prior(parameters)

    def maximize(self, features, before, repair):
        """Return the frequencies of the categories, with the prior's counts."""
        if not repair and are_negative(features):
            return None
        return self._shares.maximize(features, before)

    def scales(self):
        """Return the scale of every parameter."""
        return ["probability"] * self.n_categories_

    def free(self, parameters):
        """Return the free coordinates, log-ratios to the first category."""
        return self._shares.free(parameters)

    def bind(self, vector, parameters):
        """Return the probabilities with these free coordinates."""
        return self._shares.bind(vector)

    def slope(self, parameters, features):
        """Return the gradient, in free coordinates, of Q and the prior."""
        return self._shares.slope(parameters, features)

    def n_parameters(self):
        """Return the number of free parameters of all states."""
        return self._shares.n_parameters()

    def row_pieces(self, X):
        """Return what kernels of single rows take.

        None where a prior is, or probabilities are given in part.
        """
        index, free = self._shares.row_index(), self._shares.allowed
        if index is None or (free.any() and not free.all()):
            return None
        kernel, constants = "codes", np.zeros(index.shape)
        if not free.any():
            kernel, constants = "table", bounded_log(self._shares.given)
        index = np.maximum(index, -1)
        X = np.asarray(X, float)
        return [RowPieces(kernel, self.n_categories_, X, index, constants)]

    def blank(self):
        """Return parameters for states that have no rows at all."""
        k = self.n_categories_
        return np.full((self.n_states_, k), 1.0 / k)

    def moments(self, parameters):
        """Return mean and variance of the code."""
        codes = np.arange(self.n_categories_)
        mean = (parameters @ codes)[:, None]
        return mean, (parameters @ codes**2)[:, None] - mean**2

    def tails(self, x, j, parameters):
        """Return the probabilities of less and of more than x, and half that of x."""
        code = x.astype(int)
        up_to = np.cumsum(parameters, axis=1)[:, code].T
        half = 0.5 * parameters[:, code].T
        return up_to - half, 1.0 - up_to + half

    def draw(self, parameters, states, rng):
        """Return a row for every state."""
        return draw_codes(parameters, states, rng)[:, None].astype(float)

    def probabilities_at(self, parameters, X):
        """Return the probabilities of the categories."""
        return np.broadcast_to(parameters, (len(X), *parameters.shape))

    def describe(self, names):
        """Return columns of a summary: probabilities of the likeliest categories."""
        likely = np.argsort(-self.probability_.max(axis=0), kind="stable")
        codes = np.sort(likely[:MOST_SHOWN])
        return {f"{names[0]}={c}": self.probability_[:, c] for c in codes}


class Multinomial(Emission):
    """Counts of categories in a row, a column a category, given how many there are.

    A row with a missing value counts as missing.

    Parameters
    ----------
    prior : float or array-like of shape (n_states, n_features), default=1.0
        Parameters of Dirichlet distributions of the probabilities; 1 is none.
    probability : array-like of shape (n_states, n_features), default=None
        Fixed probabilities; NaN are free, and share what the others leave of 1.
    probability_init : array-like of shape (n_states, n_features), default=None
        Starting values.
    trials : int, default=None
        Sum of the rows that `sample` draws and `forecast` is of; None is the mean of
        the rows of the fit.

    Attributes
    ----------
    probability_ : ndarray of shape (n_states, n_features)
        Probabilities of the categories.

    Examples
    --------
    >>> import numpy as np
    >>> from skvrem.hmm import VRHMM, Multinomial
    >>> rng = np.random.default_rng(0)
    >>> p = np.array([[0.8, 0.1, 0.1], [0.1, 0.1, 0.8]])
    >>> X = rng.multinomial(9, p[np.repeat([0, 1, 0], 100)])
    >>> hmm = VRHMM(2, emission=Multinomial(), random_state=0).fit(X)
    >>> np.sort(hmm.emission_.probability_[:, 0]).round(1)
    array([0.1, 0.8])
    """

    discrete, support = True, "count"
    parameter_scales = {"probability": "probability"}
    window, excludes, allows_nan = 5, True, False

    def __init__(
        self,
        *,
        prior: float | ArrayLike = 1.0,
        probability: Given = None,
        probability_init: Given = None,
        trials: int | None = None,
    ):
        self.prior = prior
        self.probability = probability
        self.probability_init = probability_init
        self.trials = trials

    def prepare(self, X):
        check_integer(self, "trials", least=1, options=(None,))
        total = X.sum(axis=1)
        total = total[~np.isnan(total)]
        mean = total.mean() if total.size else 1.0
        self._typical = self.trials or max(1, round(float(mean)))
        start = self._given("probability_init")
        if start is not None:
            shape = self._shape("probability")
            check_shares(start, "probability_init of Multinomial", shape)
        self._shares = given_shares(self, "probability", self.prior)

    def given_start(self, parameters):
        """Put what the user gave in the place of starting values."""
        start = self._given("probability_init")
        return self._shares.complete(parameters if start is None else start)

    def reorder(self, order):
        """Put what users gave of states into another order."""
        super().reorder(order)
        self._shares = self._shares.reordered(order)

    # Features: a mask, counts, log n! / x_1! / x_2! ...

    def sufficient(self, X):
        ways = gammaln(X.sum(axis=1) + 1.0) - gammaln(X + 1.0).sum(axis=1)
        return np.column_stack([X, ways])

    def _seen(self, X):
        return ~np.isnan(X).any(axis=1, keepdims=True)

    def _n_masks(self):
        return 1

    def start_columns(self, X):
        """Return the shares of the categories."""
        return fill(X / np.maximum(X.sum(axis=1, keepdims=True), 1.0))

    def theta(self, parameters):
        """Return the coefficients of the features."""
        n = len(parameters)
        return np.hstack([np.zeros((n, 1)), bounded_log(parameters), np.ones((n, 1))])

    def expected(self, parameters):
        """Return the means of the features; the last is not used."""
        ones = np.ones((len(parameters), 1))
        return np.hstack([ones, self._typical * parameters, ones])

    def spread(self, parameters):
        """Return standard deviations of the features."""
        ones = np.ones((len(parameters), 1))
        return np.hstack([ones, np.sqrt(self._typical * parameters + 1e-4), ones])

    def log_prior(self, parameters):
        """Return the log-density of the Dirichlet prior."""
        return self._shares.log_prior(parameters)

    def maximize(self, features, before, repair):
        """Return the shares of the categories, with the prior's counts."""
        counts = features[:, 1:-1]
        if not repair and are_negative(counts):
            return None
        return self._shares.maximize(counts, before)

    def free(self, parameters):
        """Return the free coordinates, log-ratios to the first category."""
        return self._shares.free(parameters)

    def bind(self, vector, parameters):
        """Return the probabilities with these free coordinates."""
        return self._shares.bind(vector)

    def slope(self, parameters, features):
        """Return the gradient, in free coordinates, of Q and the prior."""
        return self._shares.slope(parameters, features[:, 1:-1])

    def n_parameters(self):
        """Return the number of free parameters of all states."""
        return self._shares.n_parameters()

    def blank(self):
        """Return parameters for states that have no rows at all."""
        shape = self._shape("probability")
        return np.full(shape, 1.0 / shape[1])

    def moments(self, parameters):
        """Return mean and variance of rows of so many trials."""
        mean = self._typical * parameters
        return mean, mean * (1.0 - parameters)

    def tails_at(self, X, j, parameters):
        """Return the probabilities of less and of more than x, and half that of x."""
        total = X.sum(axis=1, keepdims=True)
        return binomial_tails(X[:, j, None], total, parameters[:, j])

    def draw(self, parameters, states, rng):
        """Return a row of so many trials for every state."""
        return rng.multinomial(self._typical, parameters[states]).astype(float)
