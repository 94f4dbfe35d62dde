"""Mixtures of Gaussians as emissions."""

from copy import copy
from typing import Literal

import numpy as np

from skvrem.hmm.emissions._base import Emission
from skvrem.hmm.emissions._coordinates import (
    RowPieces,
    bounded_log,
    draw_codes,
)
from skvrem.hmm.emissions._gaussian import Gaussian
from skvrem.hmm.emissions._given import check_shares, given, given_shares
from skvrem.utils._algebra import pieces
from skvrem.utils._columns import Given
from skvrem.utils._validation import check_integer


class MixtureGaussian(Emission):
    """A mixture of Gaussians in each state.

    Components of a row are integrated out: `predict` is the most probable path of
    states, whatever their components.

    Parameters
    ----------
    n_mix : int, default=2
        Components of each state.
    covariance_type : {"diag", "full", "tied", "spherical"}, default="diag"
        As of :class:`Gaussian`; "tied" is one matrix for the components of a state.
    reg_covar : float or "auto", default="auto"
        Added to the variances in the M step.
    weight : array-like of shape (n_states, n_mix), default=None
        Fixed weights; NaN are free, and share what the others leave of 1.
    mean : array-like of shape (n_states, n_mix, n_features), default=None
        Fixed means; NaN are free.
    covariance : array-like, default=None
        Fixed covariances, shape as `covariance_`; NaN are free, and matrices are so as
        a whole.
    weight_init, mean_init, covariance_init : array-like, default=None
        Starting values.

    Attributes
    ----------
    weight_ : ndarray of shape (n_states, n_mix)
        Weights of the components, rows that sum to 1.
    mean_ : ndarray of shape (n_states, n_mix, n_features)
        Means of the components.
    covariance_ : ndarray
        Shape (n_states, n_mix, n_features) if "diag", (n_states, n_mix, n_features,
        n_features) if "full", (n_states, n_features, n_features) if "tied", (n_states,
        n_mix) if "spherical".

    Examples
    --------
    >>> import numpy as np
    >>> from skvrem.hmm import VRHMM, MixtureGaussian
    >>> rng = np.random.default_rng(0)
    >>> states = np.repeat([0, 1, 0, 1], 100)
    >>> low, high = rng.choice([-6.0, 0.0], 400), rng.choice([6.0, 12.0], 400)
    >>> X = np.where(states, high, low)[:, None] + rng.normal(size=(400, 1))
    >>> hmm = VRHMM(2, emission=MixtureGaussian(2), random_state=0).fit(X)
    >>> np.sort(hmm.emission_.moments(hmm.emission_.parameters())[0].ravel()).round()
    array([-3.,  9.])
    """

    required = ()  # it has components in the place of parameters

    def __init__(
        self,
        n_mix: int = 2,
        covariance_type: Literal["diag", "full", "tied", "spherical"] = "diag",
        *,
        reg_covar: float | Literal["auto"] = "auto",
        weight: Given = None,
        mean: Given = None,
        covariance: Given = None,
        weight_init: Given = None,
        mean_init: Given = None,
        covariance_init: Given = None,
    ):
        self.n_mix = n_mix
        self.covariance_type = covariance_type
        self.reg_covar = reg_covar
        self.weight = weight
        self.mean = mean
        self.covariance = covariance
        self.weight_init = weight_init
        self.mean_init = mean_init
        self.covariance_init = covariance_init

    def is_given(self):
        """Whether users gave all parameters."""
        values = self.weight, self.mean, self.covariance
        return not any(
            v is None or np.isnan(np.asarray(v, float)).any() for v in values
        )

    def n_given(self):
        """Return how many columns the means are of."""
        return np.shape(self.mean)[2]

    @property
    def patterned(self):
        """Whether features depend on which values of a row are missing."""
        return self._inner.patterned

    @property
    def n_parts(self):
        """Components of a state."""
        return self.n_mix

    def prepare(self, X):
        check_integer(self, "n_mix", least=1)
        #: Components of a state are the states of this.
        self._inner = Gaussian(self.covariance_type, reg_covar=self.reg_covar)
        self._inner.open(X, self.n_mix)
        n, m = self.n_states_, self.n_mix
        weight = given(self, "weight_init", (n, m))
        if weight is not None:
            check_shares(weight, "weight_init of MixtureGaussian", (n, m))
        self._shares = given_shares(self, "weight")
        #: The components of every state, with what users gave of them.
        self._states = [self._open_state(state, X) for state in range(n)]

    def _shape(self, name):
        return self.n_states_, self.n_mix  # of weights

    def _open_state(self, state, X):
        m, d = self.n_mix, self.n_columns_
        shapes = {"mean": (m, d), "covariance": self._inner._covariance_shape(m, d)}
        own = {}
        for name, shape in shapes.items():
            for end in ("", "_init"):
                value = given(self, f"{name}{end}", (self.n_states_, *shape))
                own[f"{name}{end}"] = None if value is None else value[state]
        family = Gaussian(self.covariance_type, reg_covar=self.reg_covar, **own)
        return family.open(X, m)

    def reorder(self, order):
        """Put what users gave of states into another order."""
        self._note_order(order)
        self._shares = self._shares.reordered(order)
        self._states = [self._states[state] for state in order]
        if self.weight_init is not None:
            self.weight_init = given(self, "weight_init", self._shape("weight"))[order]

    def _map(self, method, *parts):
        """What a method of every state's components returns of arguments of each."""
        return [
            getattr(family, method)(*own)
            for family, *own in zip(self._states, *parts, strict=True)
        ]

    def check(self, X):
        """Raise a ValueError where X holds values that the family does not know."""
        self._inner.check(X)

    # Features: 1, and those of a Gaussian

    def bound(self, X):
        """Return the family for the values that are missing in X."""
        family = copy(self)
        family._inner = self._inner.bound(X)
        # Only kernels that are given features know the components' shares of a row.
        family._inner.follows = False
        return family

    def n_row_features(self):
        """Return how many features rows are made into."""
        return 1 + self._inner.n_row_features()

    def features(self, missing):
        """Return the columns of every feature, equal features merged."""
        inner = self._inner.features(missing)
        one = np.array([[self.ONE, self.ONE]])
        pairs = np.column_stack([inner.first, inner.second])[inner.merged[0]]
        return self._merge(np.concatenate([one, pairs]))

    def columns(self, X, missing, parameters=None):
        """Return the columns of some rows."""
        return self._inner.columns(X, missing)

    def complete(self, sums, parameters, collected=None):
        """Return sums of complete rows, missing values by their conditional moments."""
        _, inner = self._split(parameters)
        sums = self._by_state(sums)
        parts = zip(sums[:, :, 1:], inner, strict=True)
        complete = np.stack([self._inner.complete(*part) for part in parts])
        complete = np.concatenate([sums[:, :, :1], complete], axis=2)
        return complete.reshape(-1, complete.shape[2])

    def _pairs(self):
        return [(self.ONE, self.ONE), *self._inner._pairs()]

    def row_weight(self, features):
        """Return the states' shares of the rows."""
        return self._by_state(features)[:, :, 0].sum(axis=1)

    def _by_state(self, features):
        return features.reshape(self.n_states_, self.n_mix, -1)

    # Parameters of a state: weights, then those of the components, one after another

    def _split(self, parameters):
        """Weights (n, n_mix), and the components' parameters (n, n_mix, ...)."""
        return parameters[:, : self.n_mix], self._by_state(parameters[:, self.n_mix :])

    def _join(self, weight, inner):
        return np.hstack([weight, np.reshape(inner, (len(weight), -1))])

    def _each(self, method, inner):
        return np.stack([getattr(self._inner, method)(own) for own in inner])

    def _rows(self, method, parameters, first=1.0):
        """A row for each component of each state; `first` is of the feature 1."""
        _, inner = self._split(parameters)
        rows = self._each(method, inner)
        first = np.broadcast_to(first, rows.shape[:2])[:, :, None]
        return np.concatenate([first, rows], axis=2).reshape(-1, rows.shape[2] + 1)

    def theta(self, parameters):
        """Return the coefficients, a row for each component of each state."""
        return self._rows("theta", parameters, self._log_weight(parameters))

    def kernel_theta(self, parameters):
        """Return the coefficients of the features that rows are made into."""
        return self._rows("kernel_theta", parameters, self._log_weight(parameters))

    def _log_weight(self, parameters):
        return bounded_log(parameters[:, : self.n_mix])

    def expected(self, parameters):
        """Return the means of the features in each component."""
        return self._rows("expected", parameters)

    def weighted(self, parameters, weight):
        """Return the sums of features to expect where states have such weights."""
        share = parameters[:, : self.n_mix] * weight[:, None]
        return share.reshape(-1, 1) * self.expected(parameters)

    def spread(self, parameters):
        """Return standard deviations of the features in each component."""
        return self._rows("spread", parameters)

    def maximize(self, features, before, repair):
        """Return weights, means and covariances, or None where there are none."""
        sums = self._by_state(features)
        counts = sums[:, :, 0]
        if not repair and counts.min() < 0.0:
            return None
        old, old_inner = self._split(before)
        repairs = [repair] * self.n_states_
        inner = self._map("maximize", sums[:, :, 1:], old_inner, repairs)
        if any(part is None for part in inner):
            return None
        return self._join(self._shares.maximize(counts, old), inner)

    def blank(self):
        """Return parameters for states that have no rows at all."""
        n, m = self.n_states_, self.n_mix
        inner = np.broadcast_to(self._inner.blank(), (n, *self._inner.blank().shape))
        return self._join(np.full((n, m), 1.0 / m), inner)

    def start_columns(self, X):
        """Return what is clustered to find a start."""
        return self._inner.start_columns(X)

    def given_start(self, parameters):
        """Put what the user gave in the place of starting values."""
        weight, inner = self._split(parameters)
        value = given(self, "weight_init", weight.shape)
        weight = self._shares.complete(weight if value is None else value)
        return self._join(weight, self._map("given_start", inner))

    # Free coordinates: log-ratios of weights, then those of every state's components

    def scales(self):
        """Return the scale of every parameter."""
        return ["probability"] * self.n_mix + self.n_mix * list(self._inner.scales())

    def free(self, parameters):
        """Return the free coordinates."""
        weight, inner = self._split(parameters)
        return np.concatenate([self._shares.free(weight), *self._map("free", inner)])

    def bind(self, vector, parameters):
        """Return the parameters with these free coordinates."""
        _, inner = self._split(parameters)
        n_weights = self._shares.n_parameters()
        vectors = pieces(vector[n_weights:], self._map("n_parameters"))
        return self._join(
            self._shares.bind(vector[:n_weights]), self._map("bind", vectors, inner)
        )

    def slope(self, parameters, features):
        """Return the gradient, in free coordinates, of Q."""
        weight, inner = self._split(parameters)
        sums = self._by_state(features)
        weights = self._shares.slope(weight, sums[:, :, 0])
        return np.concatenate([weights, *self._map("slope", inner, sums[:, :, 1:])])

    def n_parameters(self):
        """Return the number of free parameters of all states."""
        return self._shares.n_parameters() + sum(self._map("n_parameters"))

    def row_pieces(self, X):
        """Return what kernels of single rows take.

        None for rows missing in part, and where something is given.
        """
        inner = self._inner.row_pieces(X)
        given = self.weight, self.mean, self.covariance
        if inner is None or any(value is not None for value in given):
            return None
        n, m, free = self.n_states_, self.n_mix, self._inner.n_parameters()
        index, nothing = self._shares.row_index(), np.empty((len(X), 0))
        weights = nothing, index, np.zeros((n, m))
        (own,) = inner
        offsets = self._shares.n_parameters() + free * np.arange(n)
        index = (own.index + offsets[:, None, None]).reshape(n * m, -1)
        own = own._replace(index=index, constants=np.tile(own.constants, (n, 1)))
        return [RowPieces("weights", m, *weights), own]

    # Fitted attributes

    def publish(self, parameters, dtype):
        """Set the fitted attributes."""
        weight, inner = self._split(parameters)
        means, covariances, one = [], [], copy(self._inner)
        for own in inner:
            one.publish(own, dtype)
            means.append(one.mean_)
            covariances.append(one.covariance_)
        self.weight_ = weight.astype(dtype)
        self.mean_, self.covariance_ = np.stack(means), np.stack(covariances)

    def parameters(self):
        """Return the fitted parameters."""
        inner = []
        for mean, covariance in zip(self.mean_, self.covariance_, strict=True):
            spread = self._inner._spread_out(np.asarray(covariance, float))
            inner.append(self._inner._join(np.asarray(mean, float), spread))
        return self._join(np.asarray(self.weight_, float), inner)

    def draw(self, parameters, states, rng):
        """Return a row for every state."""
        weight, inner = self._split(parameters)
        component = draw_codes(weight, states, rng)
        X = np.empty((len(states), self.n_columns_))
        for state, own in enumerate(inner):
            rows = states == state
            X[rows] = self._inner.draw(own, component[rows], rng)
        return X

    def moments(self, parameters):
        """Return mean and variance of every feature."""
        weight, inner = self._split(parameters)
        means, variances = zip(*map(self._inner.moments, inner), strict=True)
        mean = np.einsum("km,kmd->kd", weight, means)
        second = np.einsum("km,kmd->kd", weight, np.square(means) + np.array(variances))
        return mean, second - np.square(mean)

    def tails(self, x, j, parameters):
        """Return the probabilities of less and of more than x in feature j."""
        weight, inner = self._split(parameters)
        tails = [self._inner.tails(x, j, own) for own in inner]
        return tuple(
            np.column_stack(
                [tail[side] @ w for tail, w in zip(tails, weight, strict=True)]
            )
            for side in (0, 1)
        )

    def widths(self, parameters, features, names):
        """Yield variances of the data and of the components of all states."""
        _, inner = self._split(parameters)
        found = [
            next(self._inner.widths(own, sums[:, 1:], names))
            for own, sums in zip(inner, self._by_state(features), strict=True)
        ]
        about = found[0][:4]
        parts, weight = (np.concatenate([f[i] for f in found]) for i in (5, 6))
        yield *about, "component", parts, weight

    def describe(self, names):
        """Return columns of a summary: mean and sd of features, weights."""
        mean, variance = self.moments(self.parameters())
        columns = {}
        for j, name in enumerate(names):
            columns[f"{name} mean"] = mean[:, j]
            columns[f"{name} sd"] = np.sqrt(variance[:, j])
        for m in range(self.n_mix):
            columns[f"weight {m}"] = self.weight_[:, m]
        return columns
