"""Values that come again, at which a start has a state.

A state all of whose rows have one value of a column, as no change of a price, is no
wider there than `reg_covar`, or the least of its family. EM does not shrink to it where
the state has begun with others: the clusters of other starts are wide.
"""

from typing import NamedTuple

import numpy as np

from skvrem.data import draw
from skvrem.utils._columns import are_codes, frequent

# Rows that are looked at.
MOST_ROWS = 20_000
# Of two states the other one would have all other rows, whatever these are.
FEWEST_STATES = 3
# Rows that have such values at least, as a number and a share; and how many times as
# many as any other: that rows of few decimals share a value is no reason to do so.
FEWEST, SHARE, TIMES = 5, 0.02, 5
# Parts of the rows, one after the other, and of its even share what each has at least:
# what has come for a while need not come again.
PARTS, EVEN = 4, 1.0 / 3.0
# Of a standard deviation, what differences of rounded numbers vary by where they are
# equal.
SAME = 1e-6
# The most frequent sets of columns that have such values in the same rows.
MOST_SETS = 50


class Atoms(NamedTuple):
    """Values of some columns that the same rows have.

    Attributes
    ----------
    columns : ndarray of int of shape (n_atoms,)
        Of rows that have been entered.
    values, widths : ndarray of shape (n_atoms,)
        What is as near to a value as `widths` is equal to it.
    """

    columns: np.ndarray
    values: np.ndarray
    widths: np.ndarray

    def each(self, X):
        """Return which rows have which value, bool of shape (n_rows, n_atoms)."""
        return np.abs(X[:, self.columns] - self.values) <= self.widths

    def at(self, X):
        """Return which rows have all of them."""
        return self.each(X).all(axis=1)


def find_atoms(emission, X):
    """Return the `Atoms` of a start, None where it would be no better for them.

    Of all columns that have one, or of some: those where the rows that have all, times
    their number, are the most, which is what a state of these rows gains most by.

    Parameters
    ----------
    emission : Emission
        Opened.
    X : ndarray of shape (n_rows, n_columns)
        Rows of the fit, in their order, as users give them.
    """
    if emission.n_states_ < FEWEST_STATES:
        return None
    some = draw(len(X), min(len(X), MOST_ROWS), np.random.default_rng(0))
    X = emission.narrowing(emission.enter(np.asarray(X)[some]))
    found = [(j, *atom) for j, column in enumerate(X.T) for atom in _atom_of(column)]
    if not found:
        return None
    atoms = Atoms(*map(np.array, zip(*found, strict=True)))
    each = atoms.each(X)
    sets, counts = np.unique(each, axis=0, return_counts=True)
    best, most = None, 0
    for columns in sets[np.argsort(-counts, kind="stable")[:MOST_SETS]]:
        rows = each[:, columns].all(axis=1)
        size = rows.sum() * columns.sum()
        if size > most and _come_again(rows):
            best, most = columns, size
    return None if best is None else Atoms(*(own[best] for own in atoms))


def _atom_of(column):
    """Return a list of the value of a column that stands out, and its width, if any."""
    known = column[~np.isnan(column)].astype(np.float64)
    width = SAME * known.std() if known.size else 0.0
    if not width > 0.0:
        return []
    steps = np.round((known - known.min()) / width)
    _, first, counts = np.unique(steps, return_index=True, return_counts=True)
    top = counts.argmax()
    if are_codes(counts, len(column)) or not frequent(counts, TIMES)[top]:
        return []
    return [(known[first[top]], width)]


def _come_again(at):
    """Whether rows are many, and so everywhere."""
    least = EVEN * at.mean()
    parts = np.array_split(at, PARTS)
    return at.sum() >= max(FEWEST, SHARE * len(at)) and all(
        part.mean() >= least for part in parts
    )
