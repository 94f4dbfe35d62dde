"""Emissions of events, one or of several trials."""

from collections.abc import Sequence

import numpy as np
from scipy.special import gammaln

from skvrem.hmm.emissions._base import Emission, ratio
from skvrem.hmm.emissions._coordinates import are_negative, bounded_log
from skvrem.hmm.emissions._facts import extremes, fill, whole
from skvrem.hmm.emissions.discrete._numbers import binomial_tails
from skvrem.utils._algebra import equal_pieces
from skvrem.utils._columns import Given, column_number
from skvrem.utils._validation import check_integer


def _maximize(family, yes, no, before, repair):
    """Return the shares of `yes`, or None where sums are negative that may not be."""
    if not repair and (are_negative(yes) or are_negative(no)):
        return None
    yes, no = np.maximum(yes, 0.0), np.maximum(no, 0.0)
    return family._fix("probability", ratio(yes, yes + no, before))


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

    discrete, support = True, "event"
    parameter_scales = {"probability": "probability"}
    window, excludes, _kinds, row_kernel = 5, True, 2, "events"

    def __init__(self, probability: Given = None, *, probability_init: Given = None):
        self.probability = probability
        self.probability_init = probability_init

    def prepare(self, X):
        self._check_given("probability", 0.0, 1.0)

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
        yes, no = equal_pieces(features, 2)
        return _maximize(self, yes, no, before, repair)

    def slopes(self, parameters, features):
        """Return the gradient in the log-odds."""
        yes, no = equal_pieces(features, 2)
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
        probability: Given = None,
        probability_init: Given = None,
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
        self._typical = int(np.nanmax(extremes(trials)[1], initial=1))

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
            wrong = ~whole(x) | (x > trials)
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
        _, yes, no, _ = equal_pieces(features, 4)
        return _maximize(self, yes, no, before, repair)

    def slopes(self, parameters, features):
        """Return the gradient in the log-odds."""
        _, yes, no, _ = equal_pieces(features, 4)
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
        return binomial_tails(X[:, j, None], X[:, -1:], parameters[:, j])

    def draw(self, parameters, states, rng):
        """Return counts of the most trials seen in a row."""
        return rng.binomial(self._typical, parameters[states]).astype(float)

    def draw_at(self, parameters, states, rng, X):
        """Return counts of the trials of rows."""
        return rng.binomial(X[:, -1:].astype(int), parameters[states]).astype(float)
