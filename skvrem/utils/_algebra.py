"""Arithmetic on statistics: NamedTuples of arrays, numbers and sparse rows.

Statistics are sums over units, so all a solver ever does with them is linear:
add, subtract, combine. The leaves of a NamedTuple are

- numbers and arrays, added element by element;
- :class:`Rows`, an array that is zero outside a few of its rows. A minibatch of
  documents touches few words, and its statistics cost what it touches.

Where all are dense, :class:`Packed` has them in one array: one leaf, a fifth the cost.
"""

import copy
import math
from typing import ClassVar

import numpy as np


class Rows:
    """An array of `n_rows` rows that is zero but for the rows in `index`.

    Parameters
    ----------
    index : ndarray of shape (n_touched,)
        Distinct row numbers.
    values : ndarray of shape (n_touched, ...)
    n_rows : int
    """

    __slots__ = ("index", "n_rows", "values")

    def __init__(self, index, values, n_rows):
        self.index = index
        self.values = values
        self.n_rows = n_rows

    def __sub__(self, other):
        """Difference of two of the same rows (two evaluations of one batch)."""
        _check_same_rows(self, other)
        return type(self)(self.index, self.values - other.values, self.n_rows)

    def __isub__(self, other):
        """Take away the same rows, in place."""
        _check_same_rows(self, other)
        self.values -= other.values
        return self

    def __mul__(self, factor):
        return type(self)(self.index, self.values * factor, self.n_rows)

    def add_to(self, total, factor=1.0):
        """Add `factor` times this to an array, in place."""
        total[self.index] += self.values if factor == 1.0 else factor * self.values

    def toarray(self):
        """The array, zeros included."""
        full = np.zeros((self.n_rows, *self.values.shape[1:]), self.values.dtype)
        full[self.index] = self.values
        return full


def _check_same_rows(a, b):
    if not np.array_equal(a.index, b.index):
        raise ValueError("two evaluations of a batch must touch the same rows")


class Packed:
    """Arrays and numbers of names side by side in one array; a base class.

    To read, it is like a NamedTuple: parts by name, number, or one after the other are
    views of the array.

    Parameters
    ----------
    values : ndarray of shape (size,)
    shapes : tuple
        Of the parts, () of a number.
    """

    __slots__ = ("shapes", "values")
    #: Of the parts.
    names: ClassVar[tuple] = ()

    def __init__(self, values, shapes):
        self.values = values
        self.shapes = shapes

    @classmethod
    def of(cls, *parts):
        """Return them side by side."""
        values = np.concatenate([np.ravel(part) for part in parts])
        return cls(values.astype(float, copy=False), tuple(map(np.shape, parts)))

    def __iter__(self):
        stop = 0
        for shape in self.shapes:
            start, stop = stop, stop + math.prod(shape)
            yield self.values[start:stop].reshape(shape)

    def __getitem__(self, number):
        return tuple(self)[number]

    def __getattr__(self, name):
        if name not in self.names:
            raise AttributeError(name)
        return self[self.names.index(name)]

    def _replace(self, **changes):
        parts = zip(self.names, self, strict=True)
        return self.of(*(changes.get(name, part) for name, part in parts))


def _map(function, first, *others):
    if isinstance(first, Packed):
        values = [other.values for other in others]
        return type(first)(function(first.values, *values), first.shapes)
    return type(first)(*map(function, first, *others))


def dense(sums, copy=True):
    """Return a copy of `sums` without sparse rows, for `accumulate` to write into.

    `copy=False` leaves arrays as they are, for sums that nobody else has.
    """

    def leaf(part):
        if isinstance(part, Rows):
            return part.toarray()
        return np.array(part, copy=copy or None)

    return _map(leaf, sums)


def _accumulate_leaf(total, part, factor):
    if isinstance(part, Rows):
        part.add_to(total, factor)
    elif total.ndim == 0:
        return total + factor * part
    else:
        total += part if factor == 1.0 else factor * part
    return total


def accumulate(total, part, factor=1.0):
    """Add `factor * part` to `total` in place, or start a total if it is None.

    Returns
    -------
    total : NamedTuple
        To be used in place of the argument, as numbers cannot change in place.
    """
    if total is None:
        return dense(part)
    if isinstance(total, Packed):
        _accumulate_leaf(total.values, part.values, factor)
        return total
    return _map(lambda *leaves: _accumulate_leaf(*leaves, factor), total, part)


def scale(sums, factor):
    """Return `factor * sums`."""
    return _map(lambda leaf: leaf * factor, sums)


def rescale(total, factor):
    """Return `factor * total`, in the place of sums that nobody else has."""

    def leaf(part):
        array = part.values if isinstance(part, Rows) else part
        if not np.ndim(array):
            return part * factor
        np.multiply(array, factor, out=array)
        return part

    return _map(leaf, total)


def difference(a, b):
    """Return `a - b`."""
    return _map(lambda x, y: x - y, a, b)


def correction(now, then, factor, in_place=False):
    """Return ``factor * (now - then)``, what a control variate adds to a known mean.

    See :func:`~skvrem.utils._control.controlled`, of which this is the part beside the
    mean, for sums: an update takes the two apart, as the mean is dense and touched once
    a step, the rest as sparse as a batch. `in_place`, in that of `now`, which nobody
    else has: sparse rows only, as numbers cannot change in place.
    """
    if isinstance(now, Packed):
        values = now.values - then.values
        values *= factor
        return type(now)(values, now.shapes)

    def leaf(x, y):
        if not (in_place and isinstance(x, Rows)):
            return x - y
        x -= y
        return x

    return rescale(_map(leaf, now, then), factor)


def combination(*terms):
    """Return the sum of `coefficient * sums` over `terms`, a dense NamedTuple.

    Parameters
    ----------
    *terms : tuples (coefficient, sums)
        `sums` may be None, which counts as zero; the first that is not None must
        be dense.
    """
    (coefficient, first), *others = [t for t in terms if t[1] is not None]
    total = _map(lambda leaf: np.asarray(leaf * coefficient), first)
    for coefficient, sums in others:
        if coefficient != 0:
            total = accumulate(total, sums, coefficient)
    return total


def read_only(X):
    """A read-only view, so that one compiled kernel serves maps and plain arrays."""
    view = X.view()
    view.flags.writeable = False
    return view


def writeable(thing):
    """Return a thing whose arrays can be written to, for which kernels are compiled.

    What has come by wire cannot.
    """
    if isinstance(thing, np.ndarray):
        return thing if thing.flags.writeable else thing.copy()
    if isinstance(thing, tuple) and hasattr(thing, "_fields"):
        return type(thing)(*map(writeable, thing))
    if not hasattr(thing, "__dict__"):
        return thing
    made = copy.copy(thing)
    vars(made).update({k: writeable(v) for k, v in vars(thing).items()})
    return made


def pieces(array, sizes):
    """Return views of the columns of an array, so many at a time.

    What `numpy.split` does, which takes a while to find out where.
    """
    views, stop = [], 0
    for size in sizes:
        start, stop = stop, stop + size
        views.append(array[..., start:stop])
    return views


def equal_pieces(array, n):
    """Return views of n equal parts of the columns of an array."""
    return pieces(array, [array.shape[-1] // n] * n)
