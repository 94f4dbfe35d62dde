"""What pLSA and LDA average, statistics of words, and how a step changes it.

A minibatch changes only the words that it touches. Rows of arrays are whole values
of the kernels, for loops over short contiguous rows.
"""

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from skvrem.topics._kernels import (
    add_columns,
    add_rows,
    parameters_of,
    sum_over_words,
)
from skvrem.topics._model_arrays import (
    pad,
    padded_empty,
    padded_zeros,
    places,
    take_rows,
)
from skvrem.utils._algebra import Rows
from skvrem.utils._averaging import Averaging
from skvrem.utils._parallel import map_chunks, parallel_map, thread_count

# The deviation is stored over a factor, which is folded in when it is smaller.
SMALLEST_FACTOR = 1e-5
# Multiplications that are worth a task of their own.
TASK_WORK = 1_000_000
# Words that are worth a task of their own: of sums, and of logarithms and the like.
SUM_WORDS = 4096
TASK_WORDS = 2048
# Numbers of words that are in memory at a time, where not all are needed at once.
ROOM = 1 << 16
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
    def n_features(self):
        """Words there are."""
        return len(self.deviation)

    @property
    def totals(self):
        """Column sums of s."""
        return self.base_totals + self.factor * self.deviation_totals

    @property
    def given_totals(self):
        """Column sums of the topics that were given."""
        return column_sums(self.given)

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
            Nobody else's.
        """
        dtype = self.deviation.dtype
        if self.given is not None:
            known = self.given
            if words.size:
                return take_rows(known, words)
            return pad(known, dtype, places.empty)
        n_features, width = self.deviation.shape
        n_words = len(words) or n_features
        found = padded_empty(n_words, width, dtype, places.empty)
        inverse = inverse.astype(dtype)
        self._project(found, dtype.type(mass), prior, inverse, words)
        return found

    def _project(self, out, *given):
        """Write (mass max(s, 0) + prior) inverse for words to `out`."""

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
        self._project(self.deviation, one[0], nothing, one, NO_WORDS)
        return WordSums.of(self.deviation)

    def step(self, mean, correction, rho):
        r"""Return :math:`(1 - \rho) s + \rho (F + c)`, lazily.

        Eqs. 4 and 5 of Chen et al. (2018).

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
            deviation = padded_empty(*deviation.shape, deviation.dtype, places.empty)
        np.multiply(self.deviation, self.parts[-1], out=deviation)
        if self.base is not None:
            deviation += self.base
        base_totals = np.zeros_like(totals)
        if mean is not None:
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


class SomeWords(NamedTuple):
    """Mean statistics of some words, all that a batch needs which has no others.

    They stand for `WordSums` where a batch lies elsewhere.

    Attributes
    ----------
    sums : WordSums
        Of these words alone.
    totals, given_totals : ndarray of shape (K,)
        Column sums over all words, of s and of the topics that were given.
    n_features : int
        All words there are.
    """

    sums: WordSums
    totals: np.ndarray
    given_totals: np.ndarray | None
    n_features: int

    @classmethod
    def of(cls, sums, words):
        """Return those of words (none named: all)."""
        base, deviation, factor = sums.parts
        rows = take_rows(deviation, words) * factor
        if sums.base is not None:
            rows += take_rows(base, words)
        given = totals = None
        if sums.given is not None:
            given, totals = take_rows(sums.given, words), sums.given_totals
        return cls(WordSums.of(rows, 1.0, given), sums.totals, totals, sums.n_features)

    @property
    def given(self):
        """Topics of these words, where they were given."""
        return self.sums.given

    def parameters(self, words, mass, prior, inverse):
        """See `WordSums.parameters`; the words are known."""
        prior = prior[words] if len(prior) > 1 and words.size else prior
        return self.sums.parameters(NO_WORDS, mass, prior, inverse)


class WordRows(Rows):
    """Rows of words, added by a kernel.

    NumPy would gather the rows, add and put them back, and let no other thread run
    meanwhile.
    """

    __slots__ = ()

    def __isub__(self, other):
        """Take away the same rows, in place; see `RowsInParts`."""
        if not isinstance(other, RowsInParts):
            return super().__isub__(other)
        other.take_from(self.values)
        return self

    def toarray(self):
        """The array, zeros included."""
        shape, dtype = (self.n_rows, self.values.shape[1]), self.values.dtype
        full = padded_empty(*shape, dtype, places.empty)
        full[:] = 0.0
        full[self.index] = self.values
        return full

    def add_to(self, total, factor=1.0):
        """Add `factor` times this to an array, in place."""
        factor = total.dtype.type(factor)
        sums, n_words = np.zeros(total.shape[1]), len(self.index)
        add_rows(total, sums, self.index, self.values, factor, 0, n_words)


class RowsInParts(WordRows):
    """Rows of words that are made where they are needed, some at a time.

    Parameters
    ----------
    index, n_rows : as `WordRows`
    make : callable
        Returns the values from a first to a last.
    parts : list of tuples (first, last)
        All there are.
    """

    __slots__ = ("make", "parts")

    def __init__(self, index, make, parts, n_rows):
        self.index, self.make, self.parts, self.n_rows = index, make, parts, n_rows

    @property
    def values(self):
        """All of them."""
        return np.concatenate(list(parallel_map(lambda p: self.make(*p), self.parts)))

    def take_from(self, values):
        """Take them away from an array, in place."""

        def take(part):
            values[slice(*part)] -= self.make(*part)

        for _ in parallel_map(take, self.parts):
            pass


def column_sums(array):
    """Return the float64 sums of a padded array's columns."""

    def add(*rows):
        total = np.zeros(array.shape[1])
        add_columns(array, *rows, total)
        return total

    return sum(map_chunks(add, len(array), SUM_WORDS))


def expected_counts(batch, w, at, rows, again=False):
    """Return Σ_d w_dv t_dk rows_vk, the expected counts of words from topics.

    Parameters
    ----------
    batch : batch of documents
    w : ndarray of shape (n_nonzeros,)
        Counts over the tokens' sums; see `_kernels.py`.
    at : ndarray of shape (n_documents, K)
        t of the documents.
    rows : ndarray of shape (n_words, K), or callable
        Written: the counts take their place. A function of words of the vocabulary
        makes them, some at a time, where the counts are needed.
    again : bool, default=False
        `w` has the counts themselves: the sums are found again.

    Returns
    -------
    sums : WordRows, or ndarray where the batch has all words
    """
    counts, K = batch.rows, at.shape[1]
    n_words = len(counts.words) or counts.n_features
    documents = w, counts.index, counts.indptr, at

    def multiply(first, last, known):
        found = padded_empty(last - first, K, at.dtype)
        sum_over_words(*documents, known if again else None, first, last, found)
        known *= found
        return known

    # A part looks at all documents, which are to be near at hand for no more.
    n_parts = max(thread_count(), n_words * K // max(ROOM, at.size))
    n_parts = min(n_parts, n_words)
    parts = list(pairwise(n_words * i // n_parts for i in range(n_parts + 1)))

    if not callable(rows):
        for _ in parallel_map(lambda part: multiply(*part, rows[slice(*part)]), parts):
            pass
        return word_rows(batch, rows)

    def make(first, last):
        words = counts.words[first:last]
        words = words if words.size else np.arange(first, last, dtype=np.int32)
        return multiply(first, last, rows(words))

    made = RowsInParts(counts.words, make, parts, counts.n_features)
    return made if counts.words.size else made.values


def expected_again(batch, at, rows, beta):
    """Return b times `expected_counts`, of tokens that are weighed again.

    That takes a product a number more, and no memory by token.
    """
    w = at.dtype.type(beta) * batch.rows.counts
    if batch.weight.size:
        each = np.diff(batch.rows.indptr)
        w *= np.repeat(batch.weight.astype(at.dtype), each)
    return expected_counts(batch, w, at, rows, again=True)


def cut_words(index, n_words):
    """Cut the words into as many ranges as threads, of about equally many tokens."""
    n_parts = thread_count()
    if n_parts == 1 or len(index) < SAMPLE:
        return [(0, n_words)]
    sample = np.sort(index[:: len(index) // SAMPLE])
    inner = sample[[len(sample) * part // n_parts for part in range(1, n_parts)]]
    return list(pairwise([0, *inner.tolist(), n_words]))


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


class Statistics(NamedTuple):
    """Sums over the documents of a batch.

    Attributes
    ----------
    sum_z : Rows of an array of shape (n_features, K), or the array
        Σ_d c_dv q(z_dv = k), the expected tokens of a word from a topic; in LDA times
        the inverse temperature.
    objective : float
        The documents' share of the objective.
    """

    sum_z: Any
    objective: float


class TopicPoint(NamedTuple):
    """Where a fit stands.

    Attributes
    ----------
    sums : WordSums
        The statistics, which topics are made of where they are needed.
    own : Any
        What else the model visits documents with, as of the last `recentre`.
    of_topics : float
        The topics' share of the objective, a token, as of then.
    settled : bool
        There was no update since.
    """

    sums: WordSums
    own: Any = None
    of_topics: float = 0.0
    settled: bool = False
    reference: None = None
    trials: int = 0
    repaired: tuple = ()

    @property
    def statistics(self):
        """The mean statistics a token."""
        return Statistics(self.sums.toarray(), 0.0)


class WordModel(Averaging):
    """Topics from the averaged expected counts of words.

    A model that inherits this defines ``of_topics(sums)``, ``parameters(point, words)``
    with topics word by word (none named: all), and ``renew(own, sums)``
    where its points have something of their own.

    Parameters
    ----------
    doc_prior : array of shape (n_components,)
        Of the documents' shares.
    word_prior : array of shape (n_components, n_features), or ()
        Of the topics.
    n_tokens : float
        Tokens that the topics are learned from.
    dtype : dtype
    inner_iter : int, default=1
        Most rounds on a document a visit.
    inner_tol : float, default=0.0
        No more of them where one changes the document by less than this.
    """

    def __init__(
        self, doc_prior, word_prior, n_tokens, dtype, inner_iter=1, inner_tol=0.0
    ):
        self.n_components, self.n_tokens = len(doc_prior), n_tokens
        self.dtype = np.dtype(dtype)
        self.doc_prior = pad(doc_prior[None], self.dtype)[0]
        if not word_prior.ndim:  # the same for all words
            word_prior = np.full((self.n_components, 1), word_prior)
        self.word_prior = pad(word_prior.T, self.dtype)
        self.inner_iter, self.inner_tol = inner_iter, self.dtype.type(inner_tol)

    def prior_totals(self, n_features):
        """Return the sums over words of their prior."""
        totals = self.word_prior.sum(axis=0, dtype=np.float64)
        return totals * n_features if len(self.word_prior) == 1 else totals

    def update(self, point, mean, correction, step):
        r"""Return the point after one step; see :meth:`WordSums.step`.

        Of LDA it is Eq. 8 of Mandt et al. (2016).

        Its deviation is written to, so `point` must not be updated again.
        """
        mean, correction = (
            None if part is None else part.sum_z for part in (mean, correction)
        )
        sums = point.sums.step(mean, correction, step)
        return point._replace(sums=sums, settled=False)

    def gone_on(self, sums, own):
        """Return the point of statistics and of what is known of the same documents.

        Only of models that know something, and `pack` their points.

        Parameters
        ----------
        sums : ndarray of shape (n_features, n_components)
            Mean statistics a token.
        own : Any
            Of a packed point.
        """
        sums = WordSums.of(pad(sums, self.dtype))
        of_topics = self.of_topics(sums)
        return self.unpack(TopicPoint(sums, own, of_topics, settled=True))

    def recentre(self, point):
        """Return the point with its statistics in one array, and all that is of them.

        What its last steps wrote to is written to, so `point` is spent.
        """
        if point.settled:
            return point
        sums = point.sums.settle()
        own, of_topics = self.renew(point.own, sums), self.of_topics(sums)
        return point._replace(sums=sums, own=own, of_topics=of_topics, settled=True)

    def spent(self, point):
        """Return the point without topics, which a whole step replaces."""
        width = point.sums.deviation.shape[1]
        return point._replace(sums=WordSums.of(padded_zeros(0, width, self.dtype)))

    def components(self, point):
        """Return the topics of a point, (n_components, n_features), not padded."""
        k, n_features = self.n_components, point.sums.n_features
        places.clear()
        found = np.empty((k, n_features), self.dtype)

        def fill(*part):
            words = np.arange(*part, dtype=np.int32)
            found[:, slice(*part)] = self.parameters(point, words).topics[:, :k].T

        map_chunks(fill, n_features, TASK_WORDS)
        return found

    def over_documents(self, kernel, batch, rounds, *arguments):
        """Run a kernel on ranges of documents; return its sum, and what it writes.

        Parameters
        ----------
        kernel : callable
            Of the documents (counts, their words, where documents begin, weights), the
            first and the last of a range, these arguments, and what it writes: t of the
            documents, and the counts over the tokens' sums.
        batch : batch of documents
        rounds : int
            On a document, about: for the size of tasks only.
        """
        counts = batch.rows
        documents = *counts[:3], batch.weight.astype(self.dtype)
        at = np.empty((batch.n_units, len(self.doc_prior)), self.dtype)
        w = np.empty(len(counts.counts), self.dtype)

        def infer(some):
            return kernel(documents, *some, *arguments, at, w)

        tasks = cut_documents(counts.indptr, rounds * at.shape[1])
        return sum(parallel_map(infer, tasks)), at, w

    def renew(self, own, sums):
        """Return what a point has of its own, where epochs begin."""
        return own

    def objective(self, point, mean):
        """Return the objective a token, from statistics taken at `point`.

        Of LDA it is the bound, Eq. 4 of Mandt et al. (2016).
        """
        return float(mean.objective + point.of_topics)

    def norm(self, point, sums):
        """Return the length of a change of statistics."""
        return float(np.sqrt(np.square(sums.sum_z, dtype=np.float64).sum()))
