"""How states follow each other, and which comes first."""

from collections.abc import Mapping
from operator import itemgetter
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from skvrem.hmm.emissions._coordinates import SimplexRows, are_negative, bounded_log
from skvrem.hmm.emissions._factors import as_numbers
from skvrem.hmm.emissions._given import check_shares
from skvrem.hmm.forward_backward._model_passes import long_run, stationary
from skvrem.utils._columns import Given

# Steps of an update, halvings of one, and a gain a unit, or a share of what the update
# has gained, that ends it.
STEPS, HALVINGS, LITTLE, ENOUGH = 30, 10, 1e-14, 0.01
# How far a state can go on, where not to any later one.
MASKS = {"left-right": 1, "upper-triangular": None}


class Transitions(BaseEstimator):
    """A family of transition probabilities.

    Its parameters are one array, of shape (n_states, n_states) or of several such. A
    transition may depend on *inputs*, columns of X in the row that it leads on from. A
    subclass defines

    - ``columns``: names or numbers of these columns, ``observed``: whether states emit
      them as well, ``check_inputs(inputs)``;
    - ``enter(inputs, bounds, carried)``: what rows must know of them;
    - ``chain(parameters, beta)``: what kernels take, to the power of beta;
    - ``tables(parameters, inputs)``: matrices, and which of them leads on from each
      row, empty where there is one only;
    - ``ahead(parameters, states, inputs, mean)``: the states after rows whose inputs
      are not known, with those of the last known row and their expectations by state;
    - ``first``: the states that sequences may start in, None for all;
    - ``start(before, after, inputs)``: starting values from guessed pairs of states;
    - ``maximize(sums, before, repair)``: the M step, or None where the sums, of
      variance-reduced estimates, allow none and `repair` is false;
    - ``open(n)``, ``log_prior(parameters)``, ``n_parameters()``;
    - ``free(parameters)``, ``bind(vector, parameters)`` and ``slope(parameters, sums,
      first)``, see ``_coordinates.py``;
    - ``publish(parameters, dtype)``: the fitted attributes, and the estimator's
      ``transmat_``; ``parameters(transmat)``.
    """

    columns, observed = (), False
    first = None
    #: Whether no state can come again once it is left.
    ordered = False
    #: Of the parameters, see ``_coordinates.py``.
    scale = "probability"
    #: Kinds of segments and phases of each, where rows come in segments.
    phases = None
    #: Whether starting values need no guess of the states.
    starts_given = False
    #: Whether nothing tells one state from another.
    alike = False
    #: Whether inputs may be text, and levels of those that are, by place in `columns`;
    #: inputs are their codes.
    takes_text = False
    text_levels: Mapping = {}

    def enter(self, inputs, bounds, carried=None):
        """Return what rows must know of their inputs."""
        return {}

    def chain(self, packed, beta=1.0):
        """Return what kernels take."""
        return {"transitions": packed**beta if beta != 1.0 else packed}

    def log_likelihood(self, sums, packed):
        """Return the expected log-probability of the transitions, from their sums."""
        if packed.min() > 0.0:
            return float(np.vdot(sums, np.log(packed)))
        seen = sums != 0.0
        with np.errstate(divide="ignore"):
            return float(sums[seen] @ np.log(packed[seen]))

    def expected(self, packed, weight):
        """Return the sums that states with such weights lead to."""
        return weight[:, None] * packed

    def squares(self, sums):
        """Return the squared length of a change of the sums, by state."""
        return np.square(sums).reshape(-1, *sums.shape[-2:]).sum(axis=(0, 2))

    def model_sums(self, packed, sums):
        """Return the sums that the model expects where as much leaves every state."""
        return packed * np.maximum(sums.sum(axis=-1, keepdims=True), 1e-12)

    def steps(self, packed, states, inputs):
        """Return the states' probabilities a row further, from those of some rows."""
        tables, which = self.tables(packed, inputs)
        if not which.size:
            return states @ tables[0]
        after = np.empty_like(states)
        for number, table in enumerate(tables):
            after[which == number] = states[which == number] @ table
        return after

    def matrices(self, packed, inputs):
        """Return the matrix of every row of inputs, (n_rows, n_states, n_states)."""
        tables, which = self.tables(packed, inputs)
        return tables[which] if which.size else tables

    def permute(self, packed, order):
        """Return the parameters, or sums, with the states in another order."""
        return packed[..., order[:, None], order]

    def reorder(self, order):
        """Put what has been opened into another order."""

    def prepare(self, inputs, fitted=None):
        """Look at the inputs of a fit, or at a family fitted before."""

    def check_inputs(self, inputs):
        """Return inputs, or raise a ValueError where they are none."""
        return inputs

    def read(self, Z, what="Z"):
        """Return rows of inputs that users give apart, as numbers.

        Raises
        ------
        ValueError
            If they are not the columns that transitions depend on.
        """
        columns = list(self.columns)
        if hasattr(Z, "columns") and all(isinstance(c, str) for c in columns):
            absent = [column for column in columns if column not in Z.columns]
            if absent:
                raise ValueError(f"{what} has no columns {absent}.")
            Z = Z[columns]
        shape = np.shape(Z)
        if len(shape) != 2 or shape[1] != len(columns):
            raise ValueError(
                f"{what} must have a column for each of {columns}, got shape {shape}."
            )
        return as_numbers(Z, self.text_levels, columns)

    def natural(self, packed):
        """Return the parameters as fitted attributes have them."""
        return packed

    def complete(self, sums, packed):
        """Return the statistics from what the passes add up."""
        return sums

    def row_logits(self):
        """Return what kernels of single rows take, or None where they cannot.

        Returns
        -------
        index : ndarray of int of shape (n_matrices, n_states, n_states, n_inputs)
            Numbers of the free coordinates that make a logit with the inputs, the first
            of which is 1; -1 is a coordinate of 0, and -2 is first where there is no
            such transition, or a fixed one.
        given : ndarray of shape (n_matrices, n_states, n_states)
            The fixed probabilities.
        ridge : float
            Half of it times the squared coordinates is a penalty.
        """
        return None


class Homogeneous(Transitions):
    """Transition probabilities that are the same at all times.

    Parameters
    ----------
    mask : {"left-right", "upper-triangular"} or array-like of bool, default=None
        Which transitions there are, shape (n_states, n_states); None is all. With
        "left-right" a state goes on or to the next one, with "upper-triangular" on or
        to any later one.
    fixed : array-like of shape (n_states, n_states), default=None
        Probabilities that are not estimated; NaN are free. They are 0 or NaN where
        `mask` allows no transition.
    init : array-like of shape (n_states, n_states), default=None
        Starting values; where `mask` or `fixed` leave no choice they count for nothing,
        and the others of a state are scaled.
    prior : float or array-like of shape (n_states, n_states), default=1.0
        Parameters, of at least 1, of Dirichlet distributions of the rows; 1 is none.

    Examples
    --------
    >>> from skvrem.hmm import VRHMM, Homogeneous
    >>> import numpy as np
    >>> X = np.repeat([[0.0], [5.0], [9.0]], 20, axis=0)
    >>> X += 0.1 * np.random.default_rng(0).normal(size=X.shape)
    >>> hmm = VRHMM(3, transitions=Homogeneous("left-right"), random_state=0).fit(X)
    >>> hmm.transmat_.round(2)
    array([[0.95, 0.05, 0.  ],
           [0.  , 0.95, 0.05],
           [0.  , 0.  , 1.  ]])
    """

    def __init__(
        self,
        mask: ArrayLike | Literal["left-right", "upper-triangular"] | None = None,
        *,
        fixed: Given = None,
        init: Given = None,
        prior: float | ArrayLike = 1.0,
    ):
        self.mask = mask
        self.fixed = fixed
        self.init = init
        self.prior = prior

    def open(self, n):
        """Check the parameters for n states.

        Raises
        ------
        ValueError
            If they have the wrong shape, leave a state without a way on, or fix a
            transition that the mask excludes.
        """
        allowed = np.ones((n, n), bool)
        if isinstance(self.mask, str):
            if self.mask not in MASKS:
                raise ValueError(
                    f"mask of Homogeneous must be an array or {' or '.join(MASKS)}, "
                    f"got {self.mask!r}."
                )
            allowed = np.triu(np.tri(n, k=MASKS[self.mask] or n, dtype=bool))
        elif self.mask is not None:
            allowed = np.asarray(self.mask)
            if allowed.shape != (n, n):
                raise ValueError(
                    f"mask of Homogeneous must have shape {(n, n)}, got "
                    f"{allowed.shape}."
                )
            allowed = allowed.astype(bool)
        fixed = np.full((n, n), np.nan) if self.fixed is None else self.fixed
        fixed = np.asarray(fixed, float)
        if fixed.shape != (n, n) or not (np.isnan(fixed) | (fixed >= 0.0)).all():
            raise ValueError(
                f"fixed of Homogeneous must be probabilities or NaN of shape {(n, n)}, "
                f"got {self.fixed!r}."
            )
        check_excluded(self, "fixed", fixed, allowed)
        fixed = np.where(allowed, fixed, 0.0)
        free = np.isnan(fixed)
        rest, full = 1.0 - np.nansum(fixed, axis=1), ~free.any(axis=1)
        wrong = np.where(full, abs(rest) > 1e-6, rest <= 0.0)
        if wrong.any():
            state = int(wrong.argmax())
            others = "no other is free" if full[state] else "others are free"
            raise ValueError(
                f"The transitions from state {state} cannot sum to 1: those given sum "
                f"to {1.0 - rest[state]:g}, and {others}."
            )
        prior = np.asarray(self.prior, float)
        if prior.shape not in ((), (n, n)) or not (prior >= 1.0).all():
            raise ValueError(
                "prior of Homogeneous must be at least 1, one number or an array of "
                f"shape {(n, n)}, got {self.prior!r}."
            )
        self._shares = SimplexRows(free, np.arange(n), fixed, prior - 1.0)
        if self.init is not None:
            check_shares(self.init, "init of Homogeneous", (n, n))
        self.ordered = n > 1 and not np.tril(free | (fixed > 0.0), -1).any()
        return self

    def tables(self, packed, inputs):
        """Return the matrix, which leads on from every row."""
        return packed[None], np.empty(0, np.int64)

    def ahead(self, packed, states, inputs, mean):
        """Return the states' probabilities a row ahead."""
        return states @ packed

    @property
    def alike(self):
        """Whether nothing tells one state from another."""
        free = all(part is None for part in (self.mask, self.fixed, self.init))
        return free and not np.ndim(self.prior)

    @property
    def starts_given(self):
        """Whether starting values need no guess of the states."""
        return self.init is not None

    def start(self, before, after, inputs):
        """Return the starting values, from a guess of states that follow each other."""
        shape = self._shares.allowed.shape
        pairs = np.bincount(before * shape[1] + after, minlength=shape[0] * shape[1])
        return self.start_counts(pairs.reshape(shape).astype(float))

    def start_counts(self, counts):
        """Return the starting values, from rough counts of transitions."""
        if self.init is not None:  # whatever the prior
            return self._shares.complete(np.asarray(self.init, float))
        even = np.full(counts.shape, 1.0 / len(counts))
        return self._shares.maximize(counts + 1.0 - self._shares.prior, even)

    def maximize(self, counts, before, repair=True):
        """Return the transition matrix from sums of pairs of states."""
        if not repair and are_negative(counts):
            return None
        return self._shares.maximize(counts, before)

    def maximize_stationary(self, counts, first, before):
        r"""Return the matrix that explains first states by its stationary distribution.

        Raises :math:`\sum_{ij} C_{ij} \log \Gamma_{ij}
        + \sum_i s_i \log \delta_i(\Gamma)` over the free entries of :math:`\Gamma`,
        with counts C, sums s of first states and :math:`\delta \Gamma = \delta`. Where
        the gradient is 0, rows are shares of the counts and what first states add to
        them; the way to such shares leads uphill. It ends near the top, as the next
        update goes on from there: EM needs no more of an M step than that it climbs.
        """
        shares = self._shares
        penalised = np.where(shares.allowed, counts + shares.prior, 0.0)
        scale = max(penalised.sum() + first.sum(), 1.0)

        def at(vector):
            transmat = self.bind(vector, before)
            delta, inverse = long_run(transmat)
            delta = np.maximum(delta, 1e-300)
            value = np.vdot(penalised, np.log(np.maximum(transmat, 1e-300)))
            value += first @ np.log(delta)
            return value / scale, vector, transmat, (delta, inverse)

        found = at(self.free(before))
        lowest = found[0]
        plain = at(self.free(self.maximize(counts, before)))
        found = max(found, plain, key=itemgetter(0))
        size = 1.0
        for _ in range(STEPS):
            value, vector, transmat, known = found
            added = _moved(first, *known)
            added = transmat * (added - added.min(axis=1, keepdims=True))
            step = self.free(self.maximize(counts + added, transmat)) - vector
            for _ in range(HALVINGS):
                after = at(vector + size * step)
                if after[0] > value:
                    break
                size *= 0.5
            gain = after[0] - value
            if not gain > 0.0:
                break
            found = after
            if gain < max(LITTLE, ENOUGH * (found[0] - lowest)):
                break
        return found[2]

    def free(self, transmat):
        """Return the free coordinates, log-ratios to staying where that is free."""
        return self._shares.free(transmat)

    def bind(self, vector, transmat):
        """Return the matrix with these free coordinates."""
        return self._shares.bind(vector)

    def slope(self, transmat, counts, first=None):
        """Return the gradient, in free coordinates, of Q and the prior.

        `first` are sums of first states where these follow the stationary
        distribution.
        """
        if first is not None:
            delta, inverse = long_run(transmat)
            delta = np.maximum(delta, 1e-300)
            counts = counts + transmat * _moved(first, delta, inverse)
        return self._shares.slope(transmat, counts)

    def log_prior(self, transmat):
        """Return the log-density of the prior, up to a constant."""
        return self._shares.log_prior(transmat)

    def n_parameters(self):
        """Return the number of free parameters."""
        return self._shares.n_parameters()

    def reorder(self, order):
        """Put what has been opened into another order."""
        both, own = np.ix_(order, order), self._shares
        allowed, given, prior = own.allowed[both], own.given[both], own.prior[both]
        self._shares = SimplexRows(allowed, np.arange(len(order)), given, prior)

    def row_logits(self):
        """Return what kernels of single rows take, or None where a prior is."""
        index = self._shares.row_index()
        if index is None:
            return None
        return index[None, :, :, None], self._shares.given[None], 0.0

    def publish(self, packed, dtype):
        """Return the estimator's ``transmat_``, which holds all there is."""
        return packed.astype(dtype)

    def parameters(self, transmat):
        """Return the fitted parameters."""
        return transmat


def _moved(first, delta, inverse):
    """Return the slopes of the log-likelihood of first states by entries of the matrix.

    They are known up to a number for each row, as entries of a row have a fixed sum.
    """
    return delta[:, None] * (inverse @ (first / delta))


class Initial:
    """The distribution of first states: free, fixed, or that in the long run.

    Parameters
    ----------
    startprob : "free", "stationary" or array-like of shape (n_states,)
    init : array-like of shape (n_states,), or None
    prior : float
    n : int
    allowed : ndarray of bool of shape (n_states,), default=None
        States that a sequence may start in; None is all.
    """

    def __init__(self, startprob, init, prior, n, allowed=None):
        allowed = np.ones(n, bool) if allowed is None else allowed
        self.stationary = isinstance(startprob, str) and startprob == "stationary"
        fixed = np.full(n, np.nan)
        if self.stationary:
            fixed = allowed / allowed.sum()  # of which nothing is used
        elif not isinstance(startprob, str):
            fixed = np.asarray(startprob, float)
        self.prior = prior - 1.0
        free = (np.isnan(fixed) & allowed)[None]
        self._shares = SimplexRows(free, None, np.nan_to_num(fixed), self.prior)
        self._first = allowed / allowed.sum() if init is None else init

    def is_free(self):
        """Whether sequences may start in every state."""
        return self.stationary or bool(self._shares.allowed.all())

    def start(self):
        """Return the starting values."""
        return self._shares.complete(np.asarray(self._first, float)[None])[0]

    def maximize(self, sums, before):
        """Return the distribution from sums of first states."""
        return self._shares.maximize(sums[None], before[None])[0]

    def free(self, startprob):
        """Return the free coordinates, log-ratios to the first."""
        return self._shares.free(startprob[None])

    def bind(self, vector, startprob, transmat):
        """Return the distribution with these coordinates, or that in the long run."""
        return stationary(transmat) if self.stationary else self._shares.bind(vector)[0]

    def slope(self, startprob, sums):
        """Return the gradient, in free coordinates, of Q and the prior."""
        return self._shares.slope(startprob[None], sums[None])

    def log_prior(self, startprob):
        """Return the log-density of the prior, up to a constant."""
        return self._shares.log_prior(startprob[None])

    def row_logits(self):
        """Return numbers of coordinates, and logarithms of what is fixed.

        None where a prior is, first states are those in the long run, or some
        probabilities are given and others are free.
        """
        index, shares = self._shares.row_index(), self._shares
        in_part = shares.allowed.any() and shares.given.any()
        if index is None or self.stationary or in_part:
            return None
        return index[0], bounded_log(self._shares.given[0])

    def n_parameters(self):
        """Return the number of free parameters."""
        return self._shares.n_parameters()


def check_excluded(transitions, name, values, allowed):
    """Raise a ValueError where what users gave is of transitions that a mask excludes.

    0 and NaN say nothing of them.
    """
    given = ~allowed & (np.nan_to_num(values) != 0.0)
    if given.any():
        i, j = np.argwhere(given)[0]
        named = isinstance(transitions.mask, str)
        raise ValueError(
            f"{name} of {type(transitions).__name__} is {values[i, j]:g} from state "
            f"{i} to state {j}, where mask{f'={transitions.mask!r}' if named else ''} "
            f"allows no transition: allow it there, or let {name} be 0 or NaN."
        )


def check_startprob(estimator):
    """Check what concerns the first state.

    Raises
    ------
    ValueError
        If probabilities do not sum to 1, or start where transitions forbid it.
    """
    n = estimator.n_components
    for name in ("startprob", "startprob_init"):
        value = getattr(estimator, name)
        if value is None and name == "startprob_init":
            continue
        options = ("free", "stationary") if name == "startprob" else ()
        if isinstance(value, str) and value in options:
            continue
        try:
            array = np.asarray(value, float)
        except (TypeError, ValueError):
            array = np.empty(0)
        whole = array.shape == (n,)
        if whole and name == "startprob":
            free, rest = np.isnan(array), 1.0 - np.nansum(array)
            whole = rest > 0.0 if free.any() else abs(rest) <= 1e-6
            whole = whole and not (array < 0.0).any()
        elif whole:
            whole = array.min() >= 0.0 and np.isclose(array.sum(), 1.0, atol=1e-6)
        if not whole:
            free = "'free', 'stationary' or " if name == "startprob" else ""
            nan = " (NaN are free)" if name == "startprob" else ""
            raise ValueError(
                f"{name} must be {free}{n} probabilities that sum to 1{nan}, got "
                f"{value!r}."
            )
        first = getattr(estimator.transitions, "first", None)
        if first is not None and len(first) == n and (array[~first] > 0.0).any():
            state = int((~first & (array > 0.0)).argmax())
            raise ValueError(
                f"With {type(estimator.transitions).__name__} a sequence cannot start "
                f"in state {state}, got {name}={value!r}."
            )
