r"""Free coordinates: real numbers that any value of which stands for parameters.

Gradient methods need parameters without constraints. A number of some *scale* has one
coordinate: itself where it is real, its logarithm where it is positive, its log-odds
where it is a probability. Probabilities that sum to a total have, in place of
:math:`p_j`, the logarithms of their ratios to one of them (Sidrow et al. 2023, Eq. 2).

A part of the model (an emission family, the transitions, the first state) has

- ``free(parameters)``: the coordinates of what is neither fixed nor masked, a vector;
- ``bind(vector, parameters)``: the parameters with these coordinates; what is not free
  is as in `parameters`;
- ``slope(parameters, sums)``: the gradient, in these coordinates, of the part's share
  in the expected complete-data log-likelihood of given statistics, and of its prior.

By Fisher's identity the last is the gradient of the log-likelihood where the statistics
are those of the parameters.
"""

from typing import Any, NamedTuple

import numpy as np

# Stands for log 0: finite, so that times a feature of 0 it is 0 and not NaN.
IMPOSSIBLE = -1e100
# Of all counts, what control variates leave of rounding where there are none.
LEFT_OVER = 1e-12
# A share or probability this close to 0 has the coordinates of this one.
EDGE = 1e-12
# Angles this close to pi have the coordinate of this one.
MOST_ANGLE = np.pi - 1e-9
TWO_PI = 2.0 * np.pi
LOG_2PI = float(np.log(TWO_PI))


def are_negative(counts):
    """Whether some of the counts are below zero, by more than rounding."""
    return counts.min() < -LEFT_OVER * np.abs(counts).sum()


class Scale(NamedTuple):
    """How numbers of a kind become real ones (`to`), the way back, and its slope."""

    to: Any
    back: Any
    rate: Any


def _log(x):
    return np.log(np.maximum(x, 1e-300))


def _exp(x):
    return np.exp(np.minimum(np.maximum(x, -700.0), 700.0))  # `clip` takes a while


def _log_odds(p):
    p = np.clip(p, EDGE, 1.0 - EDGE)
    return np.log(p) - np.log1p(-p)


SCALES = {
    "real": Scale(np.asarray, np.asarray, np.ones_like),
    "positive": Scale(_log, _exp, np.asarray),
    "probability": Scale(
        _log_odds,
        lambda x: 1.0 / (1.0 + np.exp(-np.maximum(x, -700))),
        lambda p: p * (1.0 - p),
    ),
    # From -pi to pi, as it is.
    "direction": Scale(
        np.asarray,
        lambda x: x - TWO_PI * np.ceil(x / TWO_PI - 0.5),
        np.ones_like,
    ),
    # Half of it by its tangent, from -pi to pi.
    "angle": Scale(
        lambda x: np.tan(0.5 * np.clip(x, -MOST_ANGLE, MOST_ANGLE)),
        lambda x: 2.0 * np.arctan(x),
        lambda x: 1.0 + np.cos(x),
    ),
}


def rescale(values, scales, way):
    """Return what a function of `Scale` makes of values, a scale for every column."""
    out, scales = np.empty(values.shape), np.asarray(scales)
    for name in np.unique(scales):
        columns = scales == name
        out[..., columns] = getattr(SCALES[name], way)(values[..., columns])
    return out


def bounded_log(x):
    """Return the logarithm, of 0 a number that stands for minus infinity."""
    with np.errstate(divide="ignore"):
        return np.maximum(np.log(x), IMPOSSIBLE)


class RowPieces(NamedTuple):
    """A family as kernels of single rows take it, see ``_kernels_rows.py``.

    Attributes
    ----------
    kernel : str
        Which of the families there it is.
    size : int
        Values of a row, or entries of a table.
    columns : ndarray of shape (n_rows, n_columns)
        What the density takes of rows.
    index : ndarray of int of shape (n_pieces, n_coordinates)
        Number of each coordinate among the free ones of the family, -1 where it is
        none; a row for each state, or for each component of each state.
    constants : ndarray of shape (n_pieces, n_coordinates)
        The coordinates that are not free.
    fixed : ndarray of shape (n_kinds, size)
        Other constants, the same in all states.
    """

    kernel: str
    size: int
    columns: np.ndarray
    index: np.ndarray
    constants: np.ndarray
    fixed: np.ndarray = np.empty((0, 0))


def numbered(varies):
    """Return the numbers of what varies, -1 of all else."""
    return np.where(varies, np.cumsum(varies).reshape(varies.shape) - 1, -1)


class SimplexRows:
    """Rows of shares that sum to 1, free as in Eq. 2 but for what is given of them.

    Parameters
    ----------
    allowed : ndarray of bool of shape (n_rows, n)
        Entries that are free.
    reference : ndarray of int of shape (n_rows,), default=None
        The entry that others are compared with, where it is free; otherwise, and
        by default, the first that is.
    given : ndarray of shape (n_rows, n), or 0
        The other entries.
    prior : ndarray of shape (n_rows, n), or float
        Parameters of Dirichlet distributions of the rows, less 1.
    """

    def __init__(self, allowed, reference=None, given=0.0, prior=0.0):
        rows = np.arange(len(allowed))
        first = allowed.argmax(axis=1)
        if reference is not None:
            first = np.where(allowed[rows, reference], reference, first)
        self.allowed = allowed
        self.reference = rows, first
        self.varies = allowed.copy()
        self.varies[self.reference] = False
        self.given = np.where(allowed, 0.0, given)
        self.rest = np.maximum(1.0 - self.given.sum(axis=1, keepdims=True), 0.0)
        self.prior = np.where(allowed, prior, 0.0)

    def reordered(self, order):
        """Return the same of rows in another order."""
        prior = np.broadcast_to(self.prior, self.allowed.shape)
        reference = self.reference[1][order]
        return SimplexRows(
            self.allowed[order], reference, self.given[order], prior[order]
        )

    def maximize(self, counts, before):
        """Return the shares that are likeliest; those without counts are as before."""
        counts = np.where(self.allowed, np.maximum(counts, 0.0) + self.prior, 0.0)
        total = counts.sum(axis=1, keepdims=True)
        if total.min() > 0.0:
            share = counts / total
        else:
            before = np.where(self.allowed, before, 0.0)
            share = _normalised(counts, _normalised(before, self._even()))
        return self.given + self.rest * share

    def complete(self, shares):
        """Return shares with what is given in its place; NaN stay where free."""
        shares = np.where(self.allowed, shares, 0.0)
        whole = self.given + self.rest * _normalised(shares, self._even())
        return np.where(np.isnan(shares), np.nan, whole)

    def _even(self):
        return self.allowed / np.maximum(self.allowed.sum(axis=1, keepdims=True), 1)

    def free(self, shares):
        """Return the logarithms of ratios to the reference."""
        logs = np.log(np.maximum(shares - self.given, EDGE))
        return (logs - logs[self.reference][:, None])[self.varies]

    def bind(self, vector):
        """Return the shares with these coordinates."""
        logs = np.zeros(self.allowed.shape)
        logs[self.varies] = vector
        top = np.max(logs, axis=1, keepdims=True, where=self.allowed, initial=-np.inf)
        top = np.where(np.isfinite(top), top, 0.0)  # a row without any
        shares = np.exp(np.minimum(logs - top, 0.0)) * self.allowed
        shares = shares / np.maximum(shares.sum(axis=1, keepdims=True), 1e-300)
        return self.given + self.rest * shares

    def slope(self, shares, counts):
        """Return the gradient of the sum of counts times log shares, and the prior.

        Of sums of xi it is minus that of Eq. 33 of Sidrow et al. (2023), over all rows.
        """
        counts = np.where(self.allowed, counts + self.prior, 0.0)
        shares = (shares - self.given) / np.where(self.rest > 0.0, self.rest, 1.0)
        return (counts - shares * counts.sum(axis=1, keepdims=True))[self.varies]

    def log_prior(self, shares):
        """Return the log-density of the prior, up to a constant."""
        if not np.count_nonzero(self.prior):
            return 0.0
        known = self.prior > 0.0
        return float(self.prior[known] @ bounded_log(shares[known]))

    def n_parameters(self):
        """Return how many coordinates there are."""
        return int(self.varies.sum())

    def row_index(self):
        """Return the number of each entry's coordinate, or None where a prior is.

        -1 is the reference, whose coordinate is 0, and -2 what is not free.
        """
        if np.any(self.prior):
            return None
        return np.where(self.allowed, numbered(self.varies), -2)


def draw_codes(shares, rows, rng):
    """Return an entry of each of some rows, drawn by their shares."""
    edges, u = np.cumsum(shares, axis=1)[:, :-1], rng.random(len(rows))
    codes = np.empty(len(rows), np.int64)
    for row in range(len(shares)):
        own = rows == row
        codes[own] = np.searchsorted(edges[row], u[own])
    return codes


def _normalised(counts, otherwise):
    """Rows divided by their sums; others where these are 0."""
    total = counts.sum(axis=1, keepdims=True)
    return np.where(total > 0.0, counts / np.where(total > 0.0, total, 1.0), otherwise)
