"""What is looked at in the rows of a fit, column by column.

Rows that are not in one place have been looked at where they are: then some of them
stand for all, and carry what was found of all.
"""

from typing import NamedTuple

import numpy as np

from skvrem.utils._parallel import row_chunks

# Rows looked at at a time.
BLOCK = 8192
# Rows that are taken as one.
TOGETHER = 64


class ObservedMoments(NamedTuple):
    """Numbers of values that are not missing, their means and squares about these."""

    count: np.ndarray
    mean: np.ndarray
    scatter: np.ndarray

    @classmethod
    def of(cls, X):
        """Return those of the columns of X."""
        seen = ~np.isnan(X)
        count = seen.sum(axis=0).astype(float)
        mean = np.where(seen, X, 0.0).sum(axis=0) / np.maximum(count, 1.0)
        scatter = np.square(np.where(seen, X - mean, 0.0)).sum(axis=0)
        return cls(count, mean, scatter)

    @classmethod
    def pooled(cls, parts):
        """Return those of all rows from those of parts of them."""
        count, mean, scatter = (np.stack(own) for own in zip(*parts, strict=True))
        total = count.sum(axis=0)
        middle = (count * mean).sum(axis=0) / np.maximum(total, 1.0)
        between = (count * np.square(mean - middle)).sum(axis=0)
        return cls(total, middle, scatter.sum(axis=0) + between)


class ColumnFacts(NamedTuple):
    """What is known of the columns of rows.

    Attributes
    ----------
    n_rows : int
    values, logs : ObservedMoments
        Of the values, and of the logarithms of those that are positive.
    least, largest : ndarray of shape (n_columns,)
        NaN where nothing is observed.
    """

    n_rows: int
    values: ObservedMoments
    logs: ObservedMoments
    least: np.ndarray
    largest: np.ndarray

    @classmethod
    def of(cls, X):
        """Return those of rows in memory."""
        X = np.asarray(X, float)
        with np.errstate(all="ignore"):
            logs = np.log(np.where(X > 0.0, X, np.nan))
            moments = ObservedMoments.of(X), ObservedMoments.of(logs)
        ends = np.fmin.reduce(X, initial=np.nan), np.fmax.reduce(X, initial=np.nan)
        return cls(len(X), *moments, *ends)

    @classmethod
    def pooled(cls, parts):
        """Return those of all rows from those of parts of them."""
        sizes, values, logs, least, largest = zip(*parts, strict=True)
        with np.errstate(all="ignore"):
            moments = ObservedMoments.pooled(values), ObservedMoments.pooled(logs)
        ends = np.fmin.reduce(np.stack(least)), np.fmax.reduce(np.stack(largest))
        return cls(sum(sizes), *moments, *ends)

    def take(self, columns):
        """Return those of some columns."""
        moments = (
            ObservedMoments(*(part[columns] for part in own)) for own in self[1:3]
        )
        return ColumnFacts(self.n_rows, *moments, *(own[columns] for own in self[3:]))


class SomeRows(np.ndarray):
    """Some rows that stand for all, whose `facts` are known.

    An array like others, of whose columns the facts are those of its own.
    """

    facts: ColumnFacts | None

    @classmethod
    def of(cls, X, facts):
        """Return the rows of X as some of those that the facts are of."""
        rows = np.asarray(X).view(cls)
        rows.facts = facts
        return rows

    def __array_finalize__(self, made_from):
        self.facts = None

    def __getitem__(self, key):
        found = np.asarray(self)[key]
        whole = isinstance(key, tuple) and len(key) == 2 and key[0] == slice(None)
        if not whole or self.facts is None or np.ndim(found) != 2:
            return found
        return SomeRows.of(found, self.facts.take(key[1]))


def _facts(X):
    return X.facts if isinstance(X, SomeRows) else None


def n_rows(X):
    """Return how many rows there are."""
    facts = _facts(X)
    return len(X) if facts is None else facts.n_rows


def all_missing(X):
    """Whether nothing has been observed."""
    facts = _facts(X)
    if facts is not None:
        return not facts.values.count.any()
    return bool(np.isnan(X[0]).all() and np.isnan(X).all())


def extremes(X):
    """Return the least and the largest value of every column, NaN where none is."""
    facts = _facts(X)
    if facts is not None:
        return facts.least, facts.largest
    nothing = np.full(X.shape[1], np.nan)
    if not len(X):
        return nothing, nothing
    return np.fmin.reduce(X), np.fmax.reduce(X)


def moments(X):
    """Return mean and variance of every column, over what is not missing."""
    facts = _facts(X)
    if facts is not None:
        count, mean, scatter = facts.values
        return mean, scatter / np.maximum(count, 1.0)
    mean = _means(X)
    return mean, _means(X, lambda x: np.square(x - mean))


def _means(X, of=np.asarray):
    """Return column means of what a function makes of X, over what is not missing."""
    counts, sums = np.zeros(X.shape[1]), np.zeros(X.shape[1])
    for a, b in row_chunks(0, len(X), BLOCK):
        seen, ones = ~np.isnan(X[a:b]), np.ones(b - a)  # as a product, it is quicker
        counts += ones @ seen
        sums += ones @ np.where(seen, of(X[a:b]), 0.0)
    return sums / np.maximum(counts, 1.0)


def filled_moments(X, logs=False):
    """Return mean and standard deviation of columns whose missing values are the mean.

    With `logs`, of logarithms, where what is not positive is missing.
    """
    facts = _facts(X)
    if facts is not None:
        _, mean, scatter = facts.logs if logs else facts.values
        return mean, np.sqrt(scatter / max(facts.n_rows, 1))
    X = np.asarray(X, float)
    if logs:
        with np.errstate(all="ignore"):
            X = np.log(np.where(X > 0.0, X, np.nan))
    filled = fill(X)
    return filled.mean(axis=0), filled.std(axis=0)


def fill(X):
    """Return X with the mean of its column for every NaN, 0 where there is no other."""
    seen = ~np.isnan(X)
    if seen.all():
        return X
    sums = np.where(seen, X, 0.0).sum(axis=0)
    return np.where(seen, X, sums / np.maximum(seen.sum(axis=0), 1))


def minus_row(X, row):
    """Return X - row in float64, quick where there are few columns.

    There numpy goes through rows one by one, which takes three times as long.
    """
    X = np.asarray(X)
    whole, wide = len(X) // TOGETHER * TOGETHER, (-1, TOGETHER * len(row))
    if not (whole and X.flags.c_contiguous and len(row) < TOGETHER):
        return np.subtract(X, row, dtype=np.float64)
    out = np.empty(X.shape)
    together = X[:whole].reshape(wide), np.tile(row, TOGETHER)
    np.subtract(*together, out=out[:whole].reshape(wide))
    np.subtract(X[whole:], row, out=out[whole:])
    return out


def whole(X):
    """Return where X is missing or a whole number of at least 0."""
    with np.errstate(invalid="ignore"):
        return np.isnan(X) | ((X >= 0) & (X == np.floor(X)) & np.isfinite(X))
