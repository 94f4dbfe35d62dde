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

__all__ = ["EDGE", "SCALES", "Shares"]

# A share or probability this close to 0 has the coordinates of this one.
EDGE = 1e-12


class Scale(NamedTuple):
    """How numbers of a kind become real ones (`to`), and the way back."""

    to: Any
    back: Any


def _log(x):
    return np.log(np.maximum(x, 1e-300))


def _log_odds(p):
    p = np.clip(p, EDGE, 1.0 - EDGE)
    return np.log(p) - np.log1p(-p)


SCALES = {
    "real": Scale(np.asarray, np.asarray),
    "positive": Scale(_log, lambda x: np.exp(np.clip(x, -700.0, 700.0))),
    "probability": Scale(
        _log_odds, lambda x: 1.0 / (1.0 + np.exp(-np.maximum(x, -700)))
    ),
}


class Shares:
    """Rows of shares that sum to 1, over some entries each; free as in Eq. 2.

    Parameters
    ----------
    allowed : ndarray of bool of shape (n_rows, n)
        Entries that have a share.
    reference : ndarray of int of shape (n_rows,), default=None
        The entry that others are compared with, where it is allowed; otherwise, and
        by default, the first that is.
    """

    def __init__(self, allowed, reference=None):
        rows = np.arange(len(allowed))
        first = allowed.argmax(axis=1)
        if reference is not None:
            first = np.where(allowed[rows, reference], reference, first)
        self.allowed = allowed
        self.reference = rows, first
        self.varies = allowed.copy()
        self.varies[self.reference] = False

    def free(self, shares):
        """Return the logarithms of ratios to the reference."""
        logs = np.log(np.maximum(shares, EDGE))
        return (logs - logs[self.reference][:, None])[self.varies]

    def bind(self, vector):
        """Return the shares, 0 where none is allowed."""
        logs = np.zeros(self.allowed.shape)
        logs[self.varies] = vector
        top = np.max(logs, axis=1, keepdims=True, where=self.allowed, initial=-np.inf)
        top = np.where(np.isfinite(top), top, 0.0)  # a row without any
        shares = np.exp(np.minimum(logs - top, 0.0)) * self.allowed
        return shares / np.maximum(shares.sum(axis=1, keepdims=True), 1e-300)

    def slope(self, shares, counts):
        """Return the gradient of the sum of counts times log shares."""
        counts = np.where(self.allowed, counts, 0.0)
        return (counts - shares * counts.sum(axis=1, keepdims=True))[self.varies]
