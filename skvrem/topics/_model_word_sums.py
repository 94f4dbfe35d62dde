"""Statistics of words that a minibatch changes only where it touches them.

Rows of arrays start on cache lines, for loops over short contiguous rows.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from skvrem.topics._kernels_tokens import sum_over_words
from skvrem.topics._kernels_words import add_columns, add_rows, parameters_of
from skvrem.utils._algebra import Rows
from skvrem.utils._parallel import map_chunks, parallel_map, thread_count

__all__ = [
    "NO_WORDS",
    "SUM_WORDS",
    "TASK_WORDS",
    "WordRows",
    "WordSums",
    "by_topics",
    "column_sums",
    "cut_documents",
    "expected_counts",
    "pad",
    "padded_empty",
    "padded_zeros",
    "take_rows",
    "word_rows",
]

# Rows are padded to whole cache lines of float32.
LANES = 16
CACHE_LINE = 64
# The deviation is stored over a factor, which is folded in when it is smaller.
SMALLEST_FACTOR = 1e-5
# Multiplications that are worth a task of their own.
TASK_WORK = 1_000_000
# Words that are worth a task of their own: of sums, and of logarithms and the like.
SUM_WORDS = 4096
TASK_WORDS = 2048
# Tokens that show how words are distributed.
SAMPLE = 2000
# In place of the words of a batch: the whole vocabulary.
NO_WORDS = np.empty(0, np.int32)
NO_WORDS.flags.writeable = False


class WordSums(NamedTuple):
    """Mean statistics s a token, stored as ``base + factor * deviation``.

    Averaging decays all of s and adds to the words of the batch. Here the decay is one
    multiplication of `factor`, so a step costs the words that it touches and not the
    vocabulary.

    Attributes
    ----------
    base : ndarray of shape (n_features, K), or None for zero
        Mean of the solver's anchor, never written to.
    deviation : ndarray of shape (n_features, K)
        Where it is not frozen, `step` and `settle` write to it: older tuples that share
        it are spent.
    factor : float
    base_totals, deviation_totals : float64 ndarrays of shape (K,)
        Column sums.
    frozen : bool
        `deviation` is never written to, and there is no base.
    given : ndarray of shape (n_features, K), or None
        Topics to be used in place of those that the statistics give: where a fit
        starts, until its first step.
    """

    base: np.ndarray | None
    deviation: np.ndarray
    factor: float
    base_totals: np.ndarray
    deviation_totals: np.ndarray
    frozen: bool
    given: np.ndarray | None = None

    @classmethod
    def of(cls, array, factor=1.0, given=None):
        """Return ``factor * array``, frozen."""
        zero = np.zeros(array.shape[1])
        return cls(None, array, factor, zero, column_sums(array), True, given)

    @property
    def parts(self):
        """Base (one row of zeros for none), deviation and factor, for kernels."""
        base, deviation = self.base, self.deviation
        if base is None:
            base = padded_zeros(1, deviation.shape[1], deviation.dtype)
        return base, deviation, deviation.dtype.type(self.factor)

    @property
    def totals(self):
        """Column sums of s."""
        return self.base_totals + self.factor * self.deviation_totals

    def toarray(self):
        """Return s, not to be written to."""
        if self.base is None and self.factor == 1.0:
            return self.deviation
        base, deviation, factor = self.parts
        return base + factor * deviation

    def parameters(self, words, mass, prior, inverse):
        """Return (mass s + prior) inverse for words, s projected to zero at least.

        The topics that were given, where they were.

        Parameters
        ----------
        words : int32 ndarray
            None named: all.
        mass : float
        prior : ndarray of shape (n_features, K) or (1, K)
        inverse : ndarray of shape (K,)

        Returns
        -------
        parameters : ndarray of shape (n_words, K)
            Not to be written to where topics were given, else nobody else's.
        """
        if self.given is not None:
            return take_rows(self.given, words)
        n_features, width = self.deviation.shape
        dtype = self.deviation.dtype
        found = padded_empty(len(words) or n_features, width, dtype)
        inverse = inverse.astype(dtype)
        self._project(dtype.type(mass), prior, inverse, words, found)
        return found

    def _project(self, *arguments):
        """Write (mass max(s, 0) + prior) inverse for words to the last argument."""
        *given, out = arguments

        def fill(*rows):
            parameters_of(*self.parts, *given, *rows, out)

        map_chunks(fill, len(out), SUM_WORDS)

    def settle(self):
        """Return the statistics in one array, frozen.

        Variance reduction can lead s below zero; it goes on from the projection. At a
        fixed point s is a sum of probabilities, so no fixed point moves.
        """
        if self.frozen:
            return self

        width, dtype = self.deviation.shape[1], self.deviation.dtype
        nothing, one = padded_zeros(1, width, dtype), np.ones(width, dtype)
        self._project(one[0], nothing, one, NO_WORDS, self.deviation)
        return WordSums.of(self.deviation)

    def step(self, mean, correction, rho):
        r"""Return :math:`(1 - \rho) s + \rho (F + c)`.

        Parameters
        ----------
        mean : ndarray of shape (n_features, K), or None for zero
            F. The same object during an epoch.
        correction : WordRows, ndarray or None for zero
            c
        rho : float
        """
        if correction is None and rho == 1.0:
            return WordSums.of(mean)
        sums = self
        if self.frozen or mean is not self.base:
            sums = self._about(mean)
        factor = sums.factor * (1.0 - rho)
        if factor < SMALLEST_FACTOR:
            sums.deviation[:] *= factor
            sums.deviation_totals[:] *= factor
            factor = 1.0
        sums = sums._replace(factor=factor)
        if correction is not None:
            sums._add(correction, rho / factor)
        return sums

    def _about(self, mean):
        """Return the same statistics about another base."""
        totals = self.totals
        deviation = self.deviation
        if self.frozen:
            deviation = padded_empty(*deviation.shape, deviation.dtype)
        np.multiply(self.deviation, self.parts[-1], out=deviation)
        if self.base is not None:
            deviation += self.base
        if mean is None:
            return WordSums(None, deviation, 1.0, np.zeros_like(totals), totals, False)
        deviation -= mean
        base_totals = column_sums(mean)
        return WordSums(mean, deviation, 1.0, base_totals, totals - base_totals, False)

    def _add(self, change, coefficient):
        coefficient = self.deviation.dtype.type(coefficient)
        if not isinstance(change, WordRows):
            self.deviation[:] += change * coefficient
            self.deviation_totals[:] += coefficient * change.sum(axis=0, dtype=float)
            return

        def add(*rows):
            totals = np.zeros(self.deviation.shape[1])
            words = change.index, change.values
            add_rows(self.deviation, totals, *words, coefficient, *rows)
            return totals

        self.deviation_totals[:] += sum(map_chunks(add, len(change.index), SUM_WORDS))


class WordRows(Rows):
    """Rows of words, added by a kernel.

    NumPy would gather the rows, add and put them back, and let no other thread run
    meanwhile.
    """

    __slots__ = ()

    def add_to(self, total):
        """Add to an array, in place."""
        one = total.dtype.type(1.0)
        sums, n_words = np.zeros(total.shape[1]), len(self.index)
        add_rows(total, sums, self.index, self.values, one, 0, n_words)


def column_sums(array):
    """Return the float64 sums of a padded array's columns."""

    def add(*rows):
        total = np.zeros(array.shape[1])
        add_columns(array, *rows, total)
        return total

    return sum(map_chunks(add, len(array), SUM_WORDS))


def padded_zeros(n_rows, n_columns, dtype):
    """Return zeros of shape (n_rows, n_columns rounded up), aligned to 64 bytes."""
    return _padded(np.zeros, n_rows, n_columns, dtype)


def padded_empty(n_rows, n_columns, dtype):
    """Return such an array, its values to be written, padding included."""
    return _padded(np.empty, n_rows, n_columns, dtype)


def _padded(make, n_rows, n_columns, dtype):
    width = -(-n_columns // LANES) * LANES
    dtype = np.dtype(dtype)
    spare = CACHE_LINE // dtype.itemsize
    buffer = make(n_rows * width + spare, dtype)
    skip = -(buffer.ctypes.data // dtype.itemsize) % spare
    return buffer[skip : skip + n_rows * width].reshape(n_rows, width)


def pad(array, dtype):
    """Return a padded copy of a matrix, the new columns zero."""
    result = padded_zeros(*array.shape, dtype)
    result[:, : array.shape[1]] = array
    return result


def take_rows(matrix, rows):
    """Return rows of a padded matrix (none named: the matrix itself)."""
    if not rows.size:
        return matrix
    chosen = padded_empty(len(rows), matrix.shape[1], matrix.dtype)
    return np.take(matrix, rows, axis=0, out=chosen, mode="clip")


def expected_counts(batch, w, at, rows):
    """Return Σ_d w_dv t_dk rows_vk, the expected counts of words from topics.

    Parameters
    ----------
    batch : batch of documents
    w : ndarray of shape (n_nonzeros,)
        Counts over the tokens' sums; see `utils._token_kernels`.
    at : ndarray of shape (n_documents, K)
        t of the documents.
    rows : ndarray of shape (n_words, K)

    Returns
    -------
    sums : WordRows, or ndarray where the batch has all words
    """
    counts = batch.rows

    def add(words):
        sum_over_words(w, counts.index, counts.indptr, at, rows, *words, sums)

    sums = padded_empty(*rows.shape, rows.dtype)
    for _ in parallel_map(add, _cut_words(counts.index, len(rows))):
        pass
    return word_rows(batch, sums)


def _cut_words(index, n_words):
    """Cut the words into as many ranges as threads, of about equally many tokens."""
    n_parts = thread_count()
    if n_parts == 1 or len(index) < SAMPLE:
        return [(0, n_words)]
    sample = np.sort(index[:: len(index) // SAMPLE])
    inner = sample[[len(sample) * part // n_parts for part in range(1, n_parts)]]
    return list(pairwise([0, *inner.tolist(), n_words]))


def by_topics(function, width):
    """Call a function with ranges of topics, one for each thread."""
    share = -(-width // LANES // thread_count()) * LANES
    for _ in parallel_map(function, pairwise([*range(0, width, share), width])):
        pass


def word_rows(batch, sums):
    """Return sums over the words of a batch as rows of the vocabulary."""
    counts = batch.rows
    if not counts.words.size:
        return sums
    return WordRows(counts.words, sums, counts.n_features)


def cut_documents(indptr, work):
    """Cut documents into ranges worth a task, by their nonzeros times `work`."""
    n_tasks = max(1, int(indptr[-1] * work // TASK_WORK))
    targets = indptr[-1] * np.arange(1, n_tasks) / n_tasks
    edges = [0, *np.searchsorted(indptr, targets).tolist(), len(indptr) - 1]
    return [(a, b) for a, b in pairwise(edges) if b > a]
