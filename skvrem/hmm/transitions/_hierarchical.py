"""Transitions within segments of the rows, and from one segment to the next."""

from copy import copy

import numpy as np
from sklearn.base import BaseEstimator

from skvrem.hmm.transitions._homogeneous import Homogeneous, Transitions
from skvrem.utils._algebra import pieces
from skvrem.utils._validation import AT_LEAST_1, check_parameters


class Hierarchical(Transitions):
    r"""Kinds of segments, as of dives, and phases within each.

    State ``kind * n_fine + phase``. Within a segment the kind stays and the phase
    changes by the transition matrix :math:`\Gamma^{(k)}` of the kind; after a row whose
    boundary flag is 1 a new segment starts, of a kind drawn by the coarse matrix
    :math:`\Gamma^{(c)}`, and with its first phase
    (Sidrow et al. 2023, Eqs. 36 and 37; [1]_):

    .. math:: \Gamma_t = \mathrm{diag}(\Gamma^{(1)}, \dots, \Gamma^{(K)})
              \quad \text{or} \quad
              \Gamma_t = \Gamma^{(c)} \otimes [\mathbf{1}, \mathbf{0}, \dots]

    A sequence starts with the first phase of some kind.

    Parameters
    ----------
    n_coarse, n_fine : int
        Kinds, and phases of each; `n_components` is their product.
    boundary : str or int
        Name or number of the column of X that is 1 in the last row of a segment, else
        0.
    upper_triangular : bool, default=False
        Whether phases only go on, never back.
    observed : bool, default=False
        Whether the boundary column is a feature that states emit as well, as in [1]_,
        where only last phases may end.
    coarse : Homogeneous, default=None
        Masks, fixed entries, starting values and priors of the coarse matrix.
    fine : Homogeneous, default=None
        The same of the matrices of phases: arrays of shape (n_fine, n_fine) for all
        kinds, or (n_coarse, n_fine, n_fine).

    Attributes
    ----------
    coarse_transmat_ : ndarray of shape (n_coarse, n_coarse)
        Probability of the kind in the column after that in the row. The estimator's
        ``transmat_`` is the matrix within segments.
    fine_transmat_ : ndarray of shape (n_coarse, n_fine, n_fine)
        Of the phases of each kind.

    References
    ----------
    .. [1] Sidrow, Heckman, Bouchard-Côté, Fortune, Trites, Auger-Méthé (2024).
       Variance-reduced stochastic optimization for efficient inference of hidden
       Markov models. Journal of Computational and Graphical Statistics, 33.

    Examples
    --------
    >>> import numpy as np
    >>> from skvrem.hmm import VRHMM, Hierarchical
    >>> rng = np.random.default_rng(0)
    >>> kinds = np.repeat([0, 1, 1, 0, 1, 0, 0, 1] * 4, 20)
    >>> down = np.tile(np.repeat([1.0, -1.0], 10), 32)
    >>> X = (1 + 4 * kinds) * down + rng.normal(size=640)
    >>> ends = np.tile(np.arange(20) == 19, 32)
    >>> transitions = Hierarchical(2, 2, boundary=1, upper_triangular=True)
    >>> hmm = VRHMM(4, transitions=transitions, random_state=0)
    >>> hmm = hmm.fit(np.column_stack([X, ends]))
    >>> hmm.means_.shape, hmm.transitions_.coarse_transmat_.shape
    ((4, 1), (2, 2))
    """

    def __init__(
        self,
        n_coarse: int,
        n_fine: int,
        boundary: str | int,
        *,
        upper_triangular: bool = False,
        observed: bool = False,
        coarse: BaseEstimator | None = None,
        fine: BaseEstimator | None = None,
    ):
        self.n_coarse = n_coarse
        self.n_fine = n_fine
        self.boundary = boundary
        self.upper_triangular = upper_triangular
        self.observed = observed
        self.coarse = coarse
        self.fine = fine

    @property
    def columns(self):
        """The column of X that transitions depend on."""
        return (self.boundary,)

    @property
    def first(self):
        """Which states a sequence may start in."""
        return np.arange(self.n_coarse * self.n_fine) % self.n_fine == 0

    @property
    def phases(self):
        """Kinds of segments, and phases of each."""
        return self.n_coarse, self.n_fine

    def open(self, n):
        """Check the parameters for n states."""
        check_parameters(self, n_coarse=AT_LEAST_1, n_fine=AT_LEAST_1)
        if self.n_coarse * self.n_fine != n:
            raise ValueError(
                f"Hierarchical({self.n_coarse}, {self.n_fine}, ...) has "
                f"{self.n_coarse * self.n_fine} states: set n_components to that, not "
                f"to {n}."
            )
        for name in ("coarse", "fine"):
            part = getattr(self, name)
            if not (part is None or isinstance(part, Homogeneous)):
                raise ValueError(
                    f"{name} of Hierarchical must be Homogeneous(...), got {part!r}."
                )
        parts = self.coarse or Homogeneous(), self.fine or Homogeneous()
        coarse, fine = (part.get_params() for part in parts)
        if self.upper_triangular and fine.get("mask") is None:
            fine["mask"] = "upper-triangular"
        what = "fine of Hierarchical"
        what += " with upper_triangular=True" if self.upper_triangular else ""
        kinds = range(self.n_coarse)
        own = [{k: _of_kind(v, kind) for k, v in fine.items()} for kind in kinds]
        #: The coarse matrix, and that of every kind.
        self._matrices = [
            _opened(coarse, self.n_coarse, "coarse of Hierarchical"),
            *(_opened(given, self.n_fine, what) for given in own),
        ]
        back = self.n_fine > 1 and not all(m.ordered for m in self._matrices[1:])
        if self.upper_triangular and back:
            raise ValueError(
                "upper_triangular=True of Hierarchical lets phases only go on, and the "
                "mask of `fine` lets them go back: leave one of them out."
            )
        return self

    def check_inputs(self, inputs):
        """Raise a ValueError where flags are not 0 or 1."""
        wrong = ~np.isin(inputs, (0.0, 1.0))
        if wrong.any():
            row = int(wrong[:, 0].argmax())
            raise ValueError(
                f"The boundary column {self.boundary!r} must be 0 or 1, and 1 in the "
                f"last row of a segment: row {row} holds {inputs[row, 0]:g}."
            )
        return inputs

    def enter(self, inputs, bounds, carried=None):
        """Return which rows begin a segment after another."""
        flags = inputs[:, 0] > 0.0
        before = False if carried is None else carried[0] > 0.0
        switched = np.append(before, flags[:-1])
        switched[bounds[:-1] if carried is None else bounds[1:-1]] = False
        return {"switched": switched}

    def chain(self, packed, beta=1.0):
        """Return what kernels take: the matrix within segments and that between."""
        within, between = packed**beta if beta != 1.0 else packed
        return {"transitions": within, "other": between}

    def tables(self, packed, inputs):
        """Return the two matrices, and which of them leads on from each row."""
        return packed, (inputs[:, 0] > 0.0).astype(np.int64)

    def ahead(self, packed, states, inputs, probability):
        """Return the states a row ahead where flags are not known."""
        if probability is None:  # no segment ends
            return states @ packed[0]
        ends = probability[:, :1]
        return states @ ((1.0 - ends) * packed[0] + ends * packed[1])

    # M step

    def _coarse_of(self, between):
        """Sums over phases, or entries, of the matrix between segments."""
        k, f = self.n_coarse, self.n_fine
        return between.reshape(k, f, k, f)[:, :, :, 0]

    def _join(self, coarse, *fine):
        k, f = self.n_coarse, self.n_fine
        packed = np.zeros((2, k, f, k, f))
        packed[0, range(k), :, range(k), :] = fine
        packed[1, :, :, :, 0] = coarse[:, None, :]
        return packed.reshape(2, k * f, k * f)

    def _split(self, packed):
        """The coarse matrix, and that of every kind."""
        return self._coarse_of(packed[1])[:, 0], *self._fine_of(packed[0])

    def _counts(self, sums):
        """The same of sums of pairs of states."""
        return self._coarse_of(sums[1]).sum(axis=1), *self._fine_of(sums[0])

    def _fine_of(self, within):
        k, f = self.n_coarse, self.n_fine
        return within.reshape(k, f, k, f)[range(k), :, range(k), :]

    def _map(self, method, *arguments):
        """What a method of every matrix returns of arguments, a list of each."""
        return [
            getattr(matrix, method)(*own)
            for matrix, *own in zip(self._matrices, *arguments, strict=True)
        ]

    def start(self, before, after, inputs):
        """Return the starting values, from a guess of states that follow each other."""
        n = self.n_coarse * self.n_fine
        counts = np.zeros((2, n, n))
        ends = (inputs[:, 0] > 0.0).astype(np.int64)
        # Any phase of a kind stands for its first.
        np.add.at(counts, (ends, before, after - ends * (after % self.n_fine)), 1.0)
        return self._join(*self._map("start_counts", self._counts(counts)))

    def maximize(self, sums, before, repair=True):
        """Return both matrices from sums of pairs of states."""
        if not repair and sums.min() < 0.0:
            return None
        counts = self._counts(np.maximum(sums, 0.0))
        return self._join(*self._map("maximize", counts, self._split(before)))

    # Free coordinates: those of the coarse matrix, then of every kind's

    def free(self, packed):
        """Return the free coordinates."""
        return np.concatenate(self._map("free", self._split(packed)))

    def bind(self, vector, packed):
        """Return the parameters with these free coordinates."""
        vectors = pieces(vector, self._map("n_parameters"))
        return self._join(*self._map("bind", vectors, self._split(packed)))

    def slope(self, packed, sums, first=None):
        """Return the gradient, in free coordinates, of Q and the priors."""
        parts = self._split(packed), self._counts(sums)
        return np.concatenate(self._map("slope", *parts))

    def log_prior(self, packed):
        """Return the log-density of the priors, up to a constant."""
        return sum(self._map("log_prior", self._split(packed)))

    def n_parameters(self):
        """Return the number of free parameters."""
        return sum(self._map("n_parameters"))

    def row_logits(self):
        """Return what kernels of single rows take, or None where a prior is."""
        logits, offset, index = self._map("row_logits"), 0, []
        if any(own is None for own in logits):
            return None
        for (own, _, _), size in zip(logits, self._map("n_parameters"), strict=True):
            # 0 is left for what does not come to be
            index.append(np.where(own >= 0, own + offset, own)[0, :, :, 0] + 2)
            offset += size
        index = self._join(*index).astype(np.int64) - 2
        return index[..., None], self._join(*(given[0] for _, given, _ in logits)), 0.0

    # Fitted attributes

    def publish(self, packed, dtype):
        """Set the fitted attributes; return the estimator's ``transmat_``."""
        coarse, *fine = self._split(packed)
        self.coarse_transmat_ = coarse.astype(dtype)
        self.fine_transmat_ = np.stack(fine).astype(dtype)
        return packed[0].astype(dtype)

    def parameters(self, transmat):
        """Return the fitted parameters."""
        return self._join(
            np.asarray(self.coarse_transmat_, float),
            *np.asarray(self.fine_transmat_, float),
        )

    def permute(self, packed, order):
        """Return the parameters, or sums, with the states in another order.

        Raises
        ------
        ValueError
            If phases leave their kind or change places.
        """
        kinds = order[:: self.n_fine]
        whole = kinds[:, None] + np.arange(self.n_fine)
        if (kinds % self.n_fine).any() or not np.array_equal(whole.ravel(), order):
            raise ValueError(
                "order must move kinds as a whole, with their phases in order, as "
                f"{list(range(self.n_fine, 2 * self.n_fine))} before "
                f"{list(range(self.n_fine))}; got {order.tolist()}."
            )
        return super().permute(packed, order)

    def reorder(self, order):
        """Put what has been opened into another order."""
        kinds = order[:: self.n_fine] // self.n_fine
        coarse, *fine = self._matrices
        coarse = copy(coarse)
        coarse.reorder(kinds)
        self._matrices = [coarse, *(fine[kind] for kind in kinds)]


def _opened(given, n, what):
    """The matrix of these parameters; errors say `what` it is."""
    try:
        return Homogeneous(**given).open(n)
    except ValueError as error:
        raise ValueError(f"In {what}: {error}") from None


def _of_kind(value, kind):
    """A parameter of Homogeneous for one kind."""
    if value is None or isinstance(value, str):
        return value
    value = np.asarray(value)
    return value[kind] if value.ndim == 3 else value
