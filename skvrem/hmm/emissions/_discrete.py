"""Emissions of counts, of events and of categories."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc, gammaln, pdtr, pdtrc

from skvrem.hmm.emissions._base import (
    Emission,
    check_shares,
    fill,
    given,
    given_shares,
    ratio,
)
from skvrem.hmm.emissions._coordinates import (
    RowPieces,
    bounded_log,
    draw_codes,
)
from skvrem.utils._columns import column_number
from skvrem.utils._validation import check_integer, check_real

# Categories that have a feature of rows each; columns of them to find a start by; and
# those that a summary shows.
FEW, MOST_COLUMNS, MOST_SHOWN = 16, 32, 100


def _whole(X):
    with np.errstate(invalid="ignore"):
        return np.isnan(X) | ((X >= 0) & (X == np.floor(X)) & np.isfinite(X))


class Poisson(Emission):
    """Counts, independent given the state.

    Parameters
    ----------
    rate : array-like of shape (n_states, n_features), default=None
        Fixed rates; NaN are free.
    rate_init : array-like of shape (n_states, n_features), default=None
        Starting values.
    rate_prior : float or array-like of shape (n_states, n_features), default=1.0
        Mean counts of a conjugate prior, a Gamma distribution.
    rate_weight : float, default=0.0
        How many rows of every state the prior is worth; 0 is none.

    Attributes
    ----------
    rate_ : ndarray of shape (n_states, n_features)
        Expected counts.

    Examples
    --------
    >>> import numpy as np
    >>> from skvrem.hmm import VRHMM, Poisson
    >>> rng = np.random.default_rng(0)
    >>> X = rng.poisson(np.repeat([[2.0], [20.0], [2.0]], 50, axis=0))
    >>> hmm = VRHMM(2, emission=Poisson(), random_state=0).fit(X)
    >>> np.sort(hmm.emission_.rate_.ravel()).round(1)
    array([ 2.2, 21.1])
    """

    discrete = True
    parameter_scales = {"rate": "positive"}
    window, excludes, row_kernel = 5, True, "poisson"

    def __init__(
        self,
        rate: ArrayLike | None = None,
        *,
        rate_init: ArrayLike | None = None,
        rate_prior: float | ArrayLike = 1.0,
        rate_weight: float = 0.0,
    ):
        self.rate = rate
        self.rate_init = rate_init
        self.rate_prior = rate_prior
        self.rate_weight = rate_weight

    def prepare(self, X):
        self._check_given("rate", 0.0, np.finfo(float).max)
        check_real(self, "rate_weight")
        prior = given(self, "rate_prior", self._shape("rate"))
        if prior is None or not (prior >= 0.0).all():
            raise ValueError(
                f"rate_prior of Poisson must be mean counts, got {self.rate_prior!r}."
            )
        #: The counts that the prior adds.
        self._added = self.rate_weight * prior

    def reorder(self, order):
        """Put what users gave of states into another order."""
        super().reorder(order)
        self._added = self._added[order]

    def check(self, X):
        """Raise a ValueError where X holds anything but counts."""
        self._reject(X, ~_whole(X), "counts 0, 1, 2, ...")

    # Features: masks, x, log x!

    def sufficient(self, X):
        return np.hstack([X, gammaln(X + 1.0)])

    def row_pieces(self, X):
        """Return what kernels of single rows take, or None where a prior is."""
        return None if self.rate_weight else super().row_pieces(X)

    def row_columns(self, X):
        """Return the counts."""
        return X

    def start_columns(self, X):
        """Return square roots of the counts, whose variance is the same everywhere."""
        return fill(np.sqrt(X))

    def theta(self, parameters):
        """Return the coefficients of masks, counts and logarithms of factorials."""
        ones = np.ones_like(parameters)
        return np.hstack([-parameters, bounded_log(parameters), -ones])

    def expected(self, parameters):
        """Return the means of the features; the last is not used."""
        ones = np.ones_like(parameters)
        return np.hstack([ones, parameters, gammaln(parameters + 1.0)])

    def spread(self, parameters):
        """Return standard deviations of the features."""
        ones = np.ones_like(parameters)
        sd = np.sqrt(np.maximum(parameters, 1e-3))
        return np.hstack([ones, sd, np.maximum(sd, 1.0)])

    def maximize(self, features, before, repair):
        """Return the mean counts."""
        weight, x, _ = np.split(features, 3, axis=1)
        if not repair and x.min() < 0.0:
            return None
        total = np.maximum(x, 0.0) + self._added
        rate = ratio(total, weight + self.rate_weight, before)
        return self._fix("rate", np.where(weight <= 0.0, before, rate))

    def slopes(self, parameters, features):
        """Return the gradient, and that of the prior, in the logarithms of rates."""
        weight, x, _ = np.split(features, 3, axis=1)
        return x + self._added - (weight + self.rate_weight) * parameters

    def log_prior(self, parameters):
        """Return the log-density of the prior of the free rates."""
        if not self.rate_weight:
            return 0.0
        logs = self._added * bounded_log(parameters)
        terms = logs - self.rate_weight * parameters
        return float(terms[self.varies()].sum())

    def moments(self, parameters):
        """Return mean and variance of every feature."""
        return parameters, parameters

    def tails(self, x, j, parameters):
        """Return the probabilities of less and of more than x, and half that of x."""
        below = np.where(x[:, None] > 0, pdtr(x[:, None] - 1, parameters[:, j]), 0.0)
        above = pdtrc(x[:, None], parameters[:, j])
        return below + 0.5 * (1 - below - above), above + 0.5 * (1 - below - above)

    def draw(self, parameters, states, rng):
        """Return a row for every state."""
        return rng.poisson(parameters[states]).astype(float)


class Bernoulli(Emission):
    """Events, 0 or 1, independent given the state.

    Parameters
    ----------
    probability : array-like of shape (n_states, n_features), default=None
        Fixed probabilities of 1; NaN are free.
    probability_init : array-like of shape (n_states, n_features), default=None
        Starting values.

    Attributes
    ----------
    probability_ : ndarray of shape (n_states, n_features)
        Probabilities of 1.

    Examples
    --------
    >>> import numpy as np
    >>> from skvrem.hmm import VRHMM, Bernoulli
    >>> X = np.repeat([[0], [1], [0], [1]], 20, axis=0)
    >>> hmm = VRHMM(2, emission=Bernoulli(), random_state=0).fit(X)
    >>> np.sort(hmm.emission_.probability_.ravel()).round(2)
    array([0., 1.])
    """

    discrete = True
    parameter_scales = {"probability": "probability"}
    window, excludes, _kinds, row_kernel = 5, True, 2, "events"

    def __init__(
        self,
        probability: ArrayLike | None = None,
        *,
        probability_init: ArrayLike | None = None,
    ):
        self.probability = probability
        self.probability_init = probability_init

    def prepare(self, X):
        self._check_given("probability", 0.0, 1.0)

    def check(self, X):
        """Raise a ValueError where X holds anything but 0 and 1."""
        self._reject(X, ~(np.isnan(X) | (X == 0) | (X == 1)), "0 or 1")

    # Features: x, 1 - x. Apart, so that no log 0 cancels another.

    def sufficient(self, X):
        return np.hstack([X, 1.0 - X])

    def row_columns(self, X):
        """Return the events."""
        return X

    def start_columns(self, X):
        """Return the events, and their frequency where they are missing."""
        return fill(X)

    def theta(self, parameters):
        """Return the coefficients of x and of 1 - x."""
        return np.hstack([bounded_log(parameters), bounded_log(1.0 - parameters)])

    def expected(self, parameters):
        """Return the means of the features."""
        return np.hstack([parameters, 1.0 - parameters])

    def spread(self, parameters):
        """Return standard deviations of the features."""
        sd = np.sqrt(np.maximum(parameters * (1.0 - parameters), 1e-4))
        return np.hstack([sd, sd])

    def maximize(self, features, before, repair):
        """Return the frequencies of 1."""
        yes, no = np.split(features, 2, axis=1)
        if not repair and min(yes.min(), no.min()) < 0.0:
            return None
        yes, no = np.maximum(yes, 0.0), np.maximum(no, 0.0)
        return self._fix("probability", ratio(yes, yes + no, before))

    def slopes(self, parameters, features):
        """Return the gradient in the log-odds."""
        yes, no = np.split(features, 2, axis=1)
        return yes * (1.0 - parameters) - no * parameters

    def moments(self, parameters):
        """Return mean and variance of every feature."""
        return parameters, parameters * (1.0 - parameters)

    def tails(self, x, j, parameters):
        """Return the probabilities of less and of more than x, and half that of x."""
        yes = parameters[:, j]
        one = x[:, None] > 0
        return np.where(one, 1.0 - 0.5 * yes, 0.5 * (1.0 - yes)), np.where(
            one, 0.5 * yes, 0.5 * (1.0 + yes)
        )

    def draw(self, parameters, states, rng):
        """Return a row for every state."""
        return (rng.random((len(states), self.n_columns_)) < parameters[states]) + 0.0


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

    discrete = True
    parameter_scales = {"probability": "probability"}
    window, excludes = 5, True

    def __init__(
        self,
        n_categories: int | None = None,
        *,
        prior: float | ArrayLike = 1.0,
        probability: ArrayLike | None = None,
        probability_init: ArrayLike | None = None,
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
        self._reject(X, ~_whole(X), "codes 0, 1, 2, ...")
        largest = np.nanmax(X, initial=0)
        rows = np.shape(self.probability if self.n_categories is None else None)
        many = rows[1] if len(rows) > 1 else int(largest) + 1
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
        self._reject(X, ~_whole(X), f"codes from 0 to {self.n_categories_ - 1}")
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
        if not repair and features.min() < 0.0:
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


class Binomial(Emission):
    """Counts of so many trials, independent given the state.

    Parameters
    ----------
    trials : int, or list of one str or int, default=1
        How many trials there are in every row; or the name or number of the column of
        X that says so, as ``["n"]``, which states do not emit.
    probability : array-like of shape (n_states, n_features), default=None
        Fixed probabilities; NaN are free.
    probability_init : array-like of shape (n_states, n_features), default=None
        Starting values.

    Attributes
    ----------
    probability_ : ndarray of shape (n_states, n_features)
        Probabilities that a trial counts.

    Examples
    --------
    >>> import numpy as np
    >>> from skvrem.hmm import VRHMM, Binomial
    >>> rng = np.random.default_rng(0)
    >>> X = rng.binomial(20, np.repeat([[0.1], [0.8], [0.1]], 100, axis=0))
    >>> hmm = VRHMM(2, emission=Binomial(20), random_state=0).fit(X)
    >>> np.sort(hmm.emission_.probability_.ravel()).round(1)
    array([0.1, 0.8])
    """

    discrete = True
    parameter_scales = {"probability": "probability"}
    window, excludes = 5, True

    def __init__(
        self,
        trials: int | Sequence[str | int] = 1,
        *,
        probability: ArrayLike | None = None,
        probability_init: ArrayLike | None = None,
    ):
        self.trials = trials
        self.probability = probability
        self.probability_init = probability_init

    @property
    def _by_row(self):
        return isinstance(self.trials, list | tuple)

    def _column(self, names, n_columns):
        if len(self.trials) != 1:
            raise ValueError(f"trials of Binomial name one column, got {self.trials}.")
        return column_number(self.trials[0], "trials", names, n_columns)

    def reads(self, names, n_columns, rest):
        """Return the numbers of the columns of X with counts and trials."""
        own = {self._column(names, n_columns)} if self._by_row else set()
        return sorted({*rest, *own})

    def open(self, X, n_states, names=None, numbers=None):
        """Remember what concerns the data."""
        d = X.shape[1]
        self._emits, self._of = list(range(d)), []
        if self._by_row:
            (column,) = self.trials
            numbers = list(range(d)) if numbers is None else list(numbers)
            place = names.index(column) if isinstance(column, str) else column
            place = place if isinstance(column, str) else numbers.index(place)
            self._of = [place]
            self._emits.remove(place)
        super().open(X, n_states)
        self.n_columns_ = len(self._emits)
        return self

    def prepare(self, X):
        if not self._by_row:
            check_integer(self, "trials", least=1)
        self.n_columns_ = len(self._emits)
        self._check_given("probability", 0.0, 1.0)
        trials = self._trials(X)
        #: Trials of a row that is drawn without saying how many.
        self._typical = int(np.nanmax(trials, initial=1))

    def _trials(self, X):
        return X[:, self._of] if self._of else np.full((len(X), 1), float(self.trials))

    @property
    def emits(self):
        """Which of the columns it reads are counts."""
        return self._emits

    def check(self, X):
        """Raise a ValueError where X holds anything but counts of the trials."""
        x, trials = X[:, self._emits], self._trials(X)
        with np.errstate(invalid="ignore"):
            wrong = ~_whole(x) | (x > trials)
        self._reject(x, wrong, "counts from 0 to the number of trials")

    def enter(self, X):
        """Return counts, then trials; what is of unknown trials is missing."""
        trials = self._trials(X)
        x = np.where(np.isnan(trials), np.nan, X[:, self._emits])
        return np.hstack([x, np.where(np.isnan(trials), 0.0, trials)])

    # Features: masks, x, n - x, log n! / x! / (n - x)!

    def sufficient(self, X):
        x, n = X[:, :-1], X[:, -1:]
        ways = gammaln(n + 1.0) - gammaln(x + 1.0) - gammaln(n - x + 1.0)
        return np.hstack([x, n - x, ways])

    def _seen(self, X):
        return ~np.isnan(X[:, :-1])

    def _n_sufficient(self):
        return 3 * self.n_columns_

    def start_columns(self, X):
        """Return the shares of trials that count."""
        return fill(X[:, :-1] / np.maximum(X[:, -1:], 1.0))

    def theta(self, parameters):
        """Return the coefficients of the features."""
        yes, no = bounded_log(parameters), bounded_log(1.0 - parameters)
        return np.hstack([np.zeros_like(yes), yes, no, np.ones_like(yes)])

    def expected(self, parameters):
        """Return the means of the features; the last is not used."""
        ones, n = np.ones_like(parameters), self._typical
        return np.hstack([ones, n * parameters, n * (1.0 - parameters), ones])

    def spread(self, parameters):
        """Return standard deviations of the features."""
        sd = np.sqrt(self._typical * np.maximum(parameters * (1 - parameters), 1e-4))
        return np.hstack([np.ones_like(sd), sd, sd, np.ones_like(sd)])

    def maximize(self, features, before, repair):
        """Return the shares of trials that count."""
        _, yes, no, _ = np.split(features, 4, axis=1)
        if not repair and min(yes.min(), no.min()) < 0.0:
            return None
        yes, no = np.maximum(yes, 0.0), np.maximum(no, 0.0)
        return self._fix("probability", ratio(yes, yes + no, before))

    def slopes(self, parameters, features):
        """Return the gradient in the log-odds."""
        _, yes, no, _ = np.split(features, 4, axis=1)
        return yes * (1.0 - parameters) - no * parameters

    def moments(self, parameters):
        """Return mean and variance of the most trials seen in a row."""
        n = self._typical
        return n * parameters, n * parameters * (1.0 - parameters)

    def moments_at(self, parameters, X):
        """Return mean and variance of counts of the trials of rows."""
        mean = X[:, -1, None, None] * parameters
        return mean, mean * (1.0 - parameters)

    def tails_at(self, X, j, parameters):
        """Return the probabilities of less and of more than x, and half that of x."""
        return _binomial_tails(X[:, j, None], X[:, -1:], parameters[:, j])

    def draw(self, parameters, states, rng):
        """Return counts of the most trials seen in a row."""
        return rng.binomial(self._typical, parameters[states]).astype(float)

    def draw_at(self, parameters, states, rng, X):
        """Return counts of the trials of rows."""
        return rng.binomial(X[:, -1:].astype(int), parameters[states]).astype(float)


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

    discrete = True
    parameter_scales = {"probability": "probability"}
    window, excludes, allows_nan = 5, True, False

    def __init__(
        self,
        *,
        prior: float | ArrayLike = 1.0,
        probability: ArrayLike | None = None,
        probability_init: ArrayLike | None = None,
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

    def check(self, X):
        """Raise a ValueError where X holds anything but counts."""
        self._reject(X, ~_whole(X), "counts 0, 1, 2, ...")

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
        if not repair and counts.min() < 0.0:
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
        return _binomial_tails(X[:, j, None], total, parameters[:, j])

    def draw(self, parameters, states, rng):
        """Return a row of so many trials for every state."""
        return rng.multinomial(self._typical, parameters[states]).astype(float)


class ZeroInflatedPoisson(Emission):
    r"""Counts with more zeros than Poisson's, independent given the state.

    .. math:: P(0) = \pi + (1 - \pi) e^{-\lambda}, \qquad
              P(x) = (1 - \pi) e^{-\lambda} \lambda^x / x! \quad (x > 0)

    Parameters
    ----------
    rate, zero : array-like of shape (n_states, n_features), default=None
        Fixed parameters; NaN are free.
    rate_init, zero_init : array-like of shape (n_states, n_features), default=None
        Starting values.

    Attributes
    ----------
    rate_ : ndarray of shape (n_states, n_features)
        :math:`\lambda`, the mean of what is not an extra zero.
    zero_ : ndarray of shape (n_states, n_features)
        :math:`\pi`, the probability of an extra zero.

    Examples
    --------
    >>> import numpy as np
    >>> from skvrem.hmm import VRHMM, ZeroInflatedPoisson
    >>> rng = np.random.default_rng(0)
    >>> X = rng.poisson(np.repeat([[2.0], [20.0], [2.0]], 200, axis=0))
    >>> X[rng.random(600) < 0.3] = 0
    >>> hmm = VRHMM(2, emission=ZeroInflatedPoisson(), random_state=0).fit(X)
    >>> np.sort(hmm.emission_.rate_.ravel()).round()
    array([ 2., 20.])
    """

    discrete = True
    parameter_scales = {"rate": "positive", "zero": "probability"}
    window, excludes, _kinds = 5, True, 2

    def __init__(
        self,
        rate: ArrayLike | None = None,
        zero: ArrayLike | None = None,
        *,
        rate_init: ArrayLike | None = None,
        zero_init: ArrayLike | None = None,
    ):
        self.rate = rate
        self.zero = zero
        self.rate_init = rate_init
        self.zero_init = zero_init

    def prepare(self, X):
        self._check_given("rate", np.finfo(float).tiny, np.finfo(float).max)
        self._check_given("zero", 0.0, 1.0)
        free, d = self.varies(), self.n_columns_
        #: Whether a share of zeros is fixed and its rate is not: no closed form.
        self._open = bool((free[:, :d] & ~free[:, d:]).any())

    def check(self, X):
        """Raise a ValueError where X holds anything but counts."""
        self._reject(X, ~_whole(X), "counts 0, 1, 2, ...")

    # Features: whether x is 0, whether not, x, log x!

    def sufficient(self, X):
        zero = X == 0.0
        return np.hstack([zero, ~zero, X, gammaln(X + 1.0)])

    def start_columns(self, X):
        """Return square roots of the counts."""
        return fill(np.sqrt(X))

    def theta(self, parameters):
        """Return the coefficients of the features."""
        rate, zero = self._split(parameters)
        nothing = bounded_log(zero + (1.0 - zero) * np.exp(-rate))
        some = bounded_log(1.0 - zero) - rate
        return np.hstack([nothing, some, np.log(rate), -np.ones_like(rate)])

    def expected(self, parameters):
        """Return the means of the features; the last is not used."""
        rate, zero = self._split(parameters)
        nothing = zero + (1.0 - zero) * np.exp(-rate)
        counts = (1.0 - zero) * rate
        return np.hstack([nothing, 1.0 - nothing, counts, gammaln(counts + 1.0)])

    def spread(self, parameters):
        """Return standard deviations of the features."""
        rate, zero = self._split(parameters)
        nothing = zero + (1.0 - zero) * np.exp(-rate)
        event = np.sqrt(np.maximum(nothing * (1.0 - nothing), 1e-4))
        sd = np.sqrt(np.maximum(self.moments(parameters)[1], 1e-3))
        return np.hstack([event, event, sd, np.maximum(sd, 1.0)])

    def blank(self):
        """Return parameters for states that have no rows at all."""
        ones = np.ones((self.n_states_, self.n_columns_))
        return np.hstack([ones, 0.1 * ones])

    def maximize(self, features, before, repair):
        """Return rate and extra zeros: the mean of what is not 0 says the rate.

        Where there are fewer zeros than Poisson's, there are no extra ones.
        """
        zero, some, x, _ = np.split(features, 4, axis=1)
        if not repair and min(zero.min(), some.min(), (x - some).min()) < 0.0:
            return None
        if self._open:
            return super().maximize(features, before, repair)
        zero, some = np.maximum(zero, 0.0), np.maximum(some, 0.0)
        old_rate, old_zero = self._split(before)
        rate = self._fix("rate", _truncated_rate(ratio(x, some, 0.0), old_rate))
        weight = zero + some
        share, alone = ratio(zero, weight, 0.0), np.exp(-rate)
        extra = (share - alone) / np.maximum(-np.expm1(-rate), 1e-300)
        least = np.finfo(float).tiny
        plain = np.where(
            some > 0.0, np.maximum(ratio(x, weight, old_rate), least), rate
        )
        rate = self._fix("rate", np.where(extra < 0.0, plain, rate))
        empty = weight <= 0.0
        extra = np.where(empty, old_zero, np.clip(extra, 0.0, 1.0))
        rate = np.where(empty, old_rate, rate)
        return np.hstack([self._fix("rate", rate), self._fix("zero", extra)])

    def slopes(self, parameters, features):
        """Return the gradient in log rates and the log-odds of extra zeros."""
        zero, some, x, _ = np.split(features, 4, axis=1)
        rate, extra = self._split(parameters)
        alone = np.exp(-rate)
        share = zero / np.maximum(extra + (1.0 - extra) * alone, 1e-300)
        by_rate = x - some * rate - share * (1.0 - extra) * alone * rate
        gain = share * extra * (1.0 - extra) * -np.expm1(-rate)
        return np.hstack([by_rate, gain - some * extra])

    def moments(self, parameters):
        """Return mean and variance of every feature."""
        rate, zero = self._split(parameters)
        mean = (1.0 - zero) * rate
        return mean, mean * (1.0 + zero * rate)

    def tails(self, x, j, parameters):
        """Return the probabilities of less and of more than x, and half that of x."""
        rate, zero = (part[:, j] for part in self._split(parameters))
        less = zero + (1.0 - zero) * pdtr(np.maximum(x[:, None] - 1, 0), rate)
        below = np.where(x[:, None] > 0, less, 0.0)
        above = (1.0 - zero) * pdtrc(x[:, None], rate)
        return below + 0.5 * (1 - below - above), above + 0.5 * (1 - below - above)

    def draw(self, parameters, states, rng):
        """Return a row for every state."""
        rate, zero = (part[states] for part in self._split(parameters))
        return np.where(rng.random(rate.shape) < zero, 0.0, rng.poisson(rate))


def _binomial_tails(x, n, p):
    """Return the probabilities of less and of more than x of n, and half that of x."""
    below = betainc(n - x + 1.0, np.maximum(x, 1.0), 1.0 - p)
    above = betainc(x + 1.0, np.maximum(n - x, 1.0), p)
    below, above = np.where(x > 0.0, below, 0.0), np.where(x < n, above, 0.0)
    half = 0.5 * (1.0 - below - above)
    return below + half, above + half


def _truncated_rate(mean, otherwise):
    """Solve rate / (1 - exp(-rate)) = mean, above 1, by Newton's method."""
    known = mean > 1.0
    rate = np.where(known, mean, 1.0)
    target = np.where(known, mean, 2.0)
    for _ in range(50):
        some = -np.expm1(-rate)
        error = rate / some - target
        slope = (some - rate * np.exp(-rate)) / np.square(some)
        new = np.maximum(rate - error / np.maximum(slope, 1e-12), 0.1 * rate)
        if np.all(np.abs(new - rate) <= 1e-14 * rate):
            break
        rate = new
    # Of a mean of 1 all counts are 1: the limit, where there are any.
    tiny = np.where(mean > 0.0, 1e-8, otherwise)
    return np.where(known, rate, tiny)
