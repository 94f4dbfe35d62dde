r"""Transitions that depend on covariates: multinomial logistic regressions.

The expected log-likelihood of transitions has no closed maximum here. Its statistics
are those of a quadratic surrogate about the coefficients :math:`\beta_0` that a batch
was evaluated at, with gradient g and minus the Hessian H there:

.. math:: Q(\beta) \approx c + b^T \beta - \tfrac12 \beta^T H \beta, \qquad
          b = H \beta_0 + g

They add up over batches that were evaluated at different points, so every solver that
averages statistics does so with these; the M step is a damped Newton step.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from skvrem.hmm.emissions._coordinates import IMPOSSIBLE, numbered
from skvrem.hmm.emissions._factors import indicator_names, indicators
from skvrem.hmm.emissions._facts import extremes, filled_moments
from skvrem.hmm.emissions._given import given
from skvrem.hmm.transitions._homogeneous import (
    Homogeneous,
    Transitions,
    check_excluded,
)
from skvrem.utils._columns import Given
from skvrem.utils._validation import check_integer, check_parameters


class Covariates(Transitions):
    r"""Transition probabilities that depend on covariates.

    Out of a row with covariates z lead the transitions

    .. math:: \Gamma_{ij}(z) = \frac{e^{\eta_{ij}}}{\sum_k e^{\eta_{ik}}}, \qquad
              \eta_{ij} = \beta_{ij0} + \beta_{ij}^T z,

    with :math:`\eta_{ii} = 0` [1]_ (Eq. 2): coefficients are log-odds against staying.

    Parameters
    ----------
    columns : list of str or int
        Names or numbers of the columns of X that hold the covariates. Those of a row
        have to do with the transition to the next row. Of text, or of a categorical
        dtype, each level but the first has an indicator.
    mask : {"left-right", "upper-triangular"} or array-like of bool, default=None
        Which transitions there are, as of :class:`Homogeneous`. Where a state cannot
        stay, the first that can follow takes its place as reference.
    intercept : array-like of shape (n_states, n_states), default=None
        Fixed values of :math:`\beta_{ij0}`; NaN are free.
    coef : array-like of shape (n_states, n_states, n_covariates), default=None
        Fixed values of :math:`\beta_{ij}`, in units of the columns; NaN are free. With
        these and `intercept` all given, a model needs no fit. Both are 0 or NaN where
        `mask` allows no transition.
    init : array-like of shape (n_states, n_states), default=None
        Starting values: the transition matrix at the mean of the covariates. Those of
        transitions that `mask` excludes count for nothing, nor do they in `coef_init`.
    coef_init : array-like of shape (n_states, n_states, n_covariates), default=None
        Starting values of :math:`\beta_{ij}`; None is 0.
    alpha : float, default=1e-3
        Penalty ``alpha / 2`` times the squares of the coefficients of covariates that
        are scaled to variance 1, and of the intercepts at the mean of the covariates
        (at 0 where any intercept is fixed), which keeps those of transitions that never
        happen finite. The log-likelihood it adds to is that of all rows. What is fixed
        is not penalised.
    reference : int, default=None
        The state whose logit is 0, out of every state; None is staying.
    observed : bool, default=False
        Whether states emit the covariates as well.

    Attributes
    ----------
    intercept_ : ndarray of shape (n_states, n_states)
        :math:`\beta_{ij0}`; -inf where the mask allows no transition.
    coef_ : ndarray of shape (n_states, n_states, n_covariates)
        :math:`\beta_{ij}`, in units of the columns. The estimator's ``transmat_`` is
        the matrix at the mean of the covariates.
    terms_ : list of str
        Names of the covariates, of text with a level, as the last axis of ``coef_``.

    References
    ----------
    .. [1] Sidrow, Heckman, Bouchard-Côté, Fortune, Trites, Auger-Méthé (2024).
       Variance-reduced stochastic optimization for efficient inference of hidden
       Markov models. Journal of Computational and Graphical Statistics, 33.

    Examples
    --------
    >>> import numpy as np
    >>> from skvrem.hmm import VRHMM, Covariates
    >>> rng = np.random.default_rng(0)
    >>> day = rng.uniform(size=2000) < 0.5
    >>> states = [0]
    >>> for light in day[:-1]:
    ...     states.append(int(rng.uniform() < (0.9 if light else 0.2)))
    >>> X = 3.0 * np.array(states) + rng.normal(size=2000)
    >>> hmm = VRHMM(2, transitions=Covariates([1]), random_state=0)
    >>> hmm = hmm.fit(np.column_stack([X, day])).relabel([0, 1])
    >>> if hmm.means_[0, 0] > hmm.means_[1, 0]:
    ...     hmm = hmm.relabel([1, 0])
    >>> hmm.transitions_.matrix([[0.0], [1.0]])[:, 0].round(1)
    array([[0.8, 0.2],
           [0.1, 0.9]])
    """

    def __init__(
        self,
        columns: Sequence[str | int],
        *,
        mask: ArrayLike | Literal["left-right", "upper-triangular"] | None = None,
        intercept: Given = None,
        coef: Given = None,
        init: Given = None,
        coef_init: Given = None,
        alpha: float = 1e-3,
        reference: int | None = None,
        observed: bool = False,
    ):
        self.columns = columns
        self.mask = mask
        self.intercept = intercept
        self.coef = coef
        self.init = init
        self.coef_init = coef_init
        self.alpha = alpha
        self.reference = reference
        self.observed = observed

    scale = "real"
    takes_text = True

    def open(self, n):
        """Check the parameters for n states."""
        check_parameters(self, reference=None)
        if self.reference is not None:
            check_integer(self, "reference")
            if self.reference >= n:
                raise ValueError(
                    f"reference of Covariates must be a state from 0 to {n - 1}, got "
                    f"{self.reference}."
                )
        self._against = self.reference
        if not len(self.columns):
            raise ValueError(
                "columns of Covariates must be a list of names or numbers of columns "
                f"of X, got {self.columns!r}."
            )
        plain = Homogeneous(self.mask, init=self.init).open(n)
        self._plain, self.ordered = plain, plain.ordered
        self._allowed = plain._shares.allowed
        self._refer()
        self._read_given()
        return self

    def _refer(self):
        """Find the references, and which logits vary."""
        self._reference = self._references(self._allowed, self._against)
        self._varies = self._allowed.copy()
        self._varies[self._reference] = False

    def _read_given(self):
        """Check what the user gave: of intercepts and coefficients what is fixed."""
        n, p = len(self._allowed), len(self.terms_)
        shapes = {"intercept": (n, n), "coef": (n, n, p), "coef_init": (n, n, p)}
        found = {name: given(self, name, shape) for name, shape in shapes.items()}
        for name, value in found.items():
            if value is not None and np.isinf(value).any():
                raise ValueError(
                    f"{name} of Covariates must be finite, NaN where free, got "
                    f"{getattr(self, name)!r}; which transitions there are is for "
                    "`mask` to say."
                )
        none = np.full((n, n, 1 + p), np.nan)
        self._given, self._start_coef = none, np.zeros((n, n, p))
        if found["intercept"] is not None:
            none[..., 0] = found["intercept"]
        if found["coef"] is not None:
            none[..., 1:] = found["coef"]
        for term, own in enumerate(np.moveaxis(none, 2, 0)):
            check_excluded(self, "coef" if term else "intercept", own, self._allowed)
        if found["coef_init"] is not None:
            self._start_coef = np.nan_to_num(found["coef_init"])
        if (np.nan_to_num(none[self._reference]) != 0.0).any():
            raise ValueError(
                "intercept and coef of Covariates must be 0 or NaN where a state "
                "stays, or leads to `reference`: there the logit is 0."
            )

    def _fix(self):
        """Find which coordinates are free, and the values of those that are not."""
        scaled = self._given * np.append(1.0, self._scale)
        self._free = self._varies[..., None] & np.isnan(scaled)
        self._fixed = np.where(
            self._free | ~self._varies[..., None], 0.0, np.nan_to_num(scaled)
        )

    def prepare(self, inputs, fitted=None):
        """Remember how covariates are scaled, as in an earlier fit or as these are."""
        if isinstance(fitted, Covariates):
            if fitted.terms_ != self.terms_:
                raise ValueError(
                    "The earlier fit cannot be gone on from with other covariates, "
                    f"{self.terms_} after {fitted.terms_}: use a new estimator, or "
                    "warm_start=False."
                )
            if fitted._is_centred() != self._is_centred():
                raise ValueError(
                    "The earlier fit cannot be gone on from with intercepts of "
                    "Covariates that are fixed now and were not, or the other way: "
                    "use a new estimator, or warm_start=False."
                )
            self._mean, self._scale = fitted._mean, fitted._scale
            self._centre, self._reach = fitted._centre, fitted._reach
        elif inputs is None:  # what is given needs no scale
            none = np.zeros(len(self.terms_))
            self._mean = self._centre = none
            self._scale, self._reach = none + 1.0, np.ones(1 + len(none))
        else:
            inputs = indicators(inputs, self.text_levels)
            self._mean, scale = filled_moments(inputs)
            self._scale = np.where(scale > 0.0, scale, 1.0)
            self._centre = self._mean if self._is_centred() else np.zeros_like(scale)
            ends = np.vstack(extremes(inputs))
            self._reach = np.abs(self._scaled(ends)).max(axis=0)
        self._fix()

    def _is_centred(self):
        """Whether covariates are: an intercept is fixed where they are 0."""
        return bool(np.isnan(self._given[..., 0][self._varies]).all())

    @property
    def terms_(self):
        """Names of the covariates, as the last axis of ``coef_`` has them."""
        names = [c if isinstance(c, str) else f"x{c}" for c in self.columns]
        return indicator_names(names, self.text_levels)

    def _design(self, inputs):
        return self._scaled(indicators(inputs, self.text_levels))

    def _scaled(self, inputs):
        scaled = (inputs - self._centre) / self._scale
        return np.column_stack([np.ones(len(inputs)), scaled])

    def enter(self, inputs, bounds, carried=None):
        """Return the scaled covariates of the row before each, 0 at first rows."""
        design = self._design(inputs)
        entering = np.zeros_like(design)
        entering[1:] = design[:-1]
        entering[bounds[:-1]] = 0.0
        if carried is not None:
            entering[0] = self._design(carried[None])[0]
        return {"design": entering}

    def chain(self, packed, beta=1.0):
        """Return what kernels take: coefficients, and a power."""
        packed = packed.copy()
        packed[..., 0] = np.where(self._allowed, packed[..., 0], IMPOSSIBLE)
        n = len(packed)
        return {"transitions": np.zeros((n, n)), "coefficients": packed, "beta": beta}

    def tables(self, packed, inputs):
        """Return the matrix that leads on from each row."""
        return self._matrices(packed, self._design(inputs)), np.arange(len(inputs))

    def _matrices(self, packed, design):
        logits = np.einsum("ijp,tp->tij", packed, design)
        logits = np.where(self._allowed, logits, -np.inf)
        shares = np.exp(logits - logits.max(axis=2, keepdims=True))
        return shares / shares.sum(axis=2, keepdims=True)

    def matrix(self, Z):
        """Return the transition matrices at given covariates.

        Parameters
        ----------
        Z : array-like of shape (n_rows, n_covariates)
            In the order of `columns`.

        Returns
        -------
        matrices : ndarray of shape (n_rows, n_states, n_states)
            Rows sum to 1.
        """
        return self.matrices(self.parameters(None), self.read(Z))

    def steps(self, packed, states, inputs):
        """Return the states' probabilities a row further."""
        tables, _ = self.tables(packed, inputs)
        return np.einsum("ti,tij->tj", states, tables)

    def ahead(self, packed, states, inputs, mean):
        """Return the states a row ahead, with covariates as they were last."""
        return self.steps(packed, states, inputs)

    # Statistics: xi, then c, b and the upper triangles of H, flat

    def _parts(self, sums):
        n, p = len(self._allowed), len(self._reach)
        cuts = np.cumsum([n * n, 1, n * n * p])
        counts, value, b, h = np.split(sums, cuts)
        return counts.reshape(n, n), float(value[0]), b.reshape(n, n, p), h

    def _whole(self, h):
        """H of every state, (n, n, p, n, p), from the upper triangles."""
        n, p = len(self._allowed), len(self._reach)
        (j, k), (r, s) = np.triu_indices(n), np.triu_indices(p)
        h = h.reshape(n, len(j), len(r))
        whole = np.empty((n, n, p, n, p))
        for a, b in ((j, k), (k, j)):
            for c, d in ((r, s), (s, r)):
                whole[:, a[:, None], c, b[:, None], d] = h
        return whole

    def complete(self, sums, packed):
        """Return the surrogate's statistics from sums of xi, Q, g and H."""
        counts, value, g, h = self._parts(sums)
        curved = np.einsum("ijpkq,ikq->ijp", self._whole(h), packed)
        value -= np.sum((g + 0.5 * curved) * packed)
        return np.concatenate([counts.ravel(), [value], (g + curved).ravel(), h])

    def log_likelihood(self, sums, packed):
        """Return the surrogate, exact where the sums were made."""
        _, value, b, h = self._parts(sums)
        curved = np.einsum("ijpkq,ikq->ijp", self._whole(h), packed)
        return float(value + np.sum((b - 0.5 * curved) * packed))

    def expected(self, packed, weight):
        """Return xi alone; about the rest nothing is known without rows."""
        n, p = len(packed), packed.shape[2]
        size = n * n * (1 + p) + 1 + n * (n * (n + 1) // 2) * (p * (p + 1) // 2)
        sums = np.zeros(size)
        sums[: n * n] = (weight[:, None] * self._mean_matrix(packed)).ravel()
        return sums

    def _mean_matrix(self, packed):
        return self._matrices(packed, self._scaled(self._mean[None]))[0]

    def squares(self, sums):
        """Return the squared length of a change of xi, by state."""
        return np.square(self._parts(sums)[0]).sum(axis=1)

    def model_sums(self, packed, sums):
        """Return the same sums: the surrogate's curvature is the information."""
        return sums

    # M step

    def start(self, before, after, inputs):
        """Return the starting values, from a guess of states that follow each other."""
        matrix = self._plain.start(before, after, None)
        packed = np.zeros((*matrix.shape, len(self._reach)))
        packed[..., 1:] = self._start_coef * self._scale
        packed = np.where(self._free, packed, self._fixed)
        logs = np.log(np.maximum(matrix, 1e-12))
        logs -= logs[self._reference][:, None]
        logs -= packed @ (
            self._scaled(self._mean[None])[0] - np.eye(1, len(self._reach))[0]
        )
        packed[..., 0] = np.where(self._free[..., 0], logs, self._fixed[..., 0])
        return packed

    def maximize(self, sums, before, repair=True):
        r"""Return the coefficients after a damped Newton step.

        Along a Newton step :math:`\delta` logits differ by no more than d in any row,
        and the curvature grows by no more than a factor of :math:`e^{d}`; the step
        :math:`\log(1 + d) / d` of it never lowers the expected log-likelihood.
        """
        counts, _, b, h = self._parts(sums)
        if not repair and not counts.min() >= 0.0:
            return None
        whole, packed = self._whole(h), np.where(self._free, before, self._fixed)
        for i, free in enumerate(self._free):
            if not free.any() or not counts[i].sum() > 0.0:
                continue
            rest = b[i] - np.einsum("jpkq,kq->jp", whole[i], packed[i])
            matrix = whole[i][free][:, free] + self.alpha * np.eye(free.sum())
            found = _solve(matrix, rest[free] - self.alpha * packed[i][free], repair)
            if found is None:
                return None
            step = np.zeros(free.shape)
            step[free] = found
            d = 2.0 * (np.abs(step) @ self._reach).max()
            packed[i] += step * (np.log1p(d) / d if d > 0.0 else 1.0)
        return packed

    def log_prior(self, packed):
        """Return the penalty."""
        return -0.5 * self.alpha * float(np.square(packed[self._free]).sum())

    def n_parameters(self):
        """Return the number of free parameters."""
        return int(np.isnan(self._given[self._varies]).sum())

    # Free coordinates are the coefficients

    def free(self, packed):
        """Return the free coordinates."""
        return packed[self._free]

    def bind(self, vector, packed):
        """Return the coefficients with these free coordinates."""
        out = self._fixed.copy()
        out[self._free] = vector
        return out

    def slope(self, packed, sums, first=None):
        """Return the gradient, in free coordinates, of surrogate and penalty."""
        _, _, b, h = self._parts(sums)
        curved = np.einsum("ijpkq,ikq->ijp", self._whole(h), packed)
        return (b - curved - self.alpha * packed)[self._free]

    def row_logits(self):
        """Return what kernels of single rows take, None where a logit has more."""
        if self._fixed.any():
            return None
        index, n = numbered(self._free), len(self._allowed)
        index[~self._allowed, 0] = -2
        return index[None], np.zeros((1, n, n)), self.alpha

    # Fitted attributes

    def publish(self, packed, dtype):
        """Set the fitted attributes; return the matrix at mean covariates."""
        natural = self.natural(packed).astype(dtype)
        self.coef_ = natural[..., 1:]
        self.intercept_ = np.where(self._allowed, natural[..., 0], dtype.type(-np.inf))
        return self._mean_matrix(packed).astype(dtype)

    def natural(self, packed):
        """Return intercepts and coefficients in the units of the columns."""
        coef = packed[..., 1:] / self._scale
        intercept = packed[..., :1] - coef @ self._centre[:, None]
        natural = np.concatenate([intercept, coef], axis=2)
        fixed = self._varies[..., None] & ~np.isnan(self._given)
        return np.where(fixed, self._given, natural)

    def parameters(self, transmat):
        """Return the fitted parameters."""
        coef = np.asarray(self.coef_, float)
        intercept = np.where(self._allowed, self.intercept_, 0.0).astype(float)
        first = intercept + coef @ self._centre * self._allowed
        return np.concatenate([first[..., None], coef * self._scale], axis=2)

    def permute(self, packed, order):
        """Return coefficients, or sums, with the states in another order."""
        both = np.ix_(order, order)
        if packed.ndim == 3:
            packed, allowed = packed[both], self._allowed[both]
            rows, first = self._references(allowed, self._moved(order))
            return (packed - packed[rows, first][:, None]) * allowed[..., None]
        counts, value, b, h = self._parts(packed)
        (j, k), (r, s) = (np.triu_indices(len(x)) for x in (order, self._reach))
        whole = self._whole(h)[order][:, order][:, :, :, order]
        h = whole[:, j[:, None], r, k[:, None], s]
        parts = counts[both], [value], b[both], h
        return np.concatenate([np.ravel(part) for part in parts])

    def reorder(self, order):
        """Put what has been opened into another order."""
        self._against = self._moved(order)
        self._allowed = self._allowed[np.ix_(order, order)]
        self._given = self._given[np.ix_(order, order)]
        self._start_coef = self._start_coef[np.ix_(order, order)]
        self._refer()
        self._fix()

    def _moved(self, order):
        """The reference, where states are in another order."""
        if self._against is None:
            return None
        return int(np.flatnonzero(np.equal(order, self._against))[0])

    @staticmethod
    def _references(allowed, state):
        """Rows and columns of the entries whose logits are 0."""
        rows = np.arange(len(allowed))
        wanted = rows if state is None else np.full(len(rows), state)
        return rows, np.where(allowed[rows, wanted], wanted, allowed.argmax(axis=1))


def _solve(matrix, vector, repair):
    """Solve a positive definite system; of others return None, or do what can be."""
    scale = np.sqrt(np.maximum(np.diagonal(matrix), 1e-300))
    values, vectors = np.linalg.eigh(matrix / np.outer(scale, scale))
    if values[0] <= 0.0 and not repair:
        return None
    # Directions that rounding has made flat or worse are left alone.
    inverse = np.where(values > 1e-13 * values[-1], 1.0 / np.abs(values), 0.0)
    return (vectors * inverse) @ (vectors.T @ (vector / scale)) / scale
