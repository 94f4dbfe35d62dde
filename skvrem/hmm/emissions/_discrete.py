"""Emissions of counts, of events and of categories."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln, pdtr, pdtrc

from skvrem.hmm.emissions._base import Emission, check_shares, fill, ratio
from skvrem.hmm.emissions._coordinates import (
    RowPieces,
    Shares,
    bounded_log,
    draw_codes,
)
from skvrem.utils._validation import check_integer, check_real


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

    parameter_scales = {"rate": "positive"}
    window, excludes, row_kernel = 5, True, "poisson"

    def __init__(
        self, rate: ArrayLike | None = None, *, rate_init: ArrayLike | None = None
    ):
        self.rate = rate
        self.rate_init = rate_init

    def prepare(self, X):
        self._check_given("rate", 0.0, np.finfo(float).max)

    def check(self, X):
        """Raise a ValueError where X holds anything but counts."""
        self._reject(X, ~_whole(X), "counts 0, 1, 2, ...")

    # Features: masks, x, log x!

    def sufficient(self, X):
        return np.hstack([X, gammaln(X + 1.0)])

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
        return self._fix("rate", ratio(np.maximum(x, 0.0), weight, before))

    def slopes(self, parameters, features):
        """Return the gradient in the logarithms of the rates."""
        weight, x, _ = np.split(features, 3, axis=1)
        return x - weight * parameters

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
    prior : float, default=1.0
        Parameter of a symmetric Dirichlet distribution of the probabilities; 1 is none.
    probability : array-like of shape (n_states, n_categories), default=None
        Fixed probabilities, rows that sum to 1.
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

    parameter_scales = {"probability": "probability"}
    window, excludes = 5, True

    def __init__(
        self,
        n_categories: int | None = None,
        *,
        prior: float = 1.0,
        probability: ArrayLike | None = None,
        probability_init: ArrayLike | None = None,
    ):
        self.n_categories = n_categories
        self.prior = prior
        self.probability = probability
        self.probability_init = probability_init

    def prepare(self, X):
        check_integer(self, "n_categories", least=1, options=(None,))
        check_real(self, "prior", least=1.0)
        if X.shape[1] != 1:
            raise ValueError(
                f"Categorical emissions are one column of codes, got {X.shape[1]} "
                "columns."
            )
        self._reject(X, ~_whole(X), "codes 0, 1, 2, ...")
        largest = np.nanmax(X, initial=0)
        self.n_categories_ = self.n_categories or int(largest) + 1
        for name in ("probability", "probability_init"):
            value = self._given(name)
            if value is not None and np.isnan(value).any():
                raise ValueError(
                    f"{name} of Categorical must be given as a whole: single rows or "
                    "probabilities cannot be left free by NaN."
                )
            if value is not None:
                check_shares(value, f"{name} of Categorical", self._shape(name))
        fixed = self._given("probability")
        self._shares = Shares(
            np.full(self._shape("probability"), fixed is None),
            given=0.0 if fixed is None else fixed,
            prior=self.prior - 1.0,
        )

    @property
    def _kinds(self):
        return self.n_categories_

    def _shape(self, name):
        return self.n_states_, self.n_categories_

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

    # Features: one for each category

    def sufficient(self, X):
        return (X == np.arange(self.n_categories_)).astype(float)

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
        """Return what kernels of single rows take, or None where a prior is."""
        index, given = self._shares.row_index(), self._given("probability")
        if index is None:
            return None
        kernel, constants = "codes", np.zeros(index.shape)
        if given is not None:
            kernel, constants = "table", bounded_log(given)
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

    def describe(self, names):
        """Return columns of a summary: the probabilities of the categories."""
        return {
            f"{names[0]}={c}": self.probability_[:, c]
            for c in range(self.n_categories_)
        }
