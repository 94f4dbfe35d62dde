"""Counts of which there are few distinct values, at which a density is evaluated."""

from typing import NamedTuple

import numpy as np

from skvrem.hmm.emissions.densities import _kernels_counts as kernels

# Rows for every value, and how many times as large as their number a count may be.
ROWS, LARGEST = 2, 16


class CountTable(NamedTuple):
    """The distinct values of counts.

    Attributes
    ----------
    values : ndarray of shape (n_values, 1)
    codes : ndarray of int of shape (n_rows, n_columns)
        Which of them rows hold, -1 where missing.
    """

    values: np.ndarray
    codes: np.ndarray

    @classmethod
    def of(cls, x):
        """Return the table of rows, None where it would be no use or there is none."""
        codes, values = np.empty(x.shape, np.int64), np.empty(len(x) // ROWS)
        places = np.full(LARGEST * len(x), -1)
        n = kernels.number_counts(x, places, codes, values)
        return cls(values[:n, None], codes) if n > 0 else None

    def look_up(self, found, out):
        """Add to rows (n_rows, n_states) what was found (n_values, n_states, n)."""
        kernels.look_up(self.codes, found, out)

    def tally(self, weights):
        """Return the weights of the values, (n_states, n_columns, n_values)."""
        out = np.zeros((weights.shape[1], self.codes.shape[1], len(self.values)))
        kernels.tally(self.codes, weights, out)
        return out
