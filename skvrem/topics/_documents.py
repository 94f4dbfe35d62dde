"""Documents: rows of counts, of which only the nonzeros exist.

A batch of documents is a small CSR matrix of its own, over the words that occur in it.
What a step costs then depends on its nonzeros and never on the vocabulary.
"""

from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from skvrem.data._batch import MemoryPartition, is_memmap
from skvrem.utils._algebra import read_only
from skvrem.utils._parallel import parallel_map
from skvrem.utils._remote import refuse_dask
from skvrem.utils._tiles import csr_rows_renumbered

# Nonzeros that are looked at at a time, and of a part that rounds are made on: what is
# derived from them is in memory.
PIECE, PART = 1 << 15, 1 << 19
# Documents are alike that tell fewer nats a token from each other.
ALIKE = 0.02
# A probability in place of zero.
TINY = 1e-300


class Counts(NamedTuple):
    """The arrays of a CSR matrix whose columns are the words of a batch.

    Attributes
    ----------
    counts : float array of shape (n_nonzeros,)
    index : int32 array of shape (n_nonzeros,)
        Columns, as positions in `words`. Of a memory map of whatever type it is.
    indptr : int64 array of shape (n_documents + 1,)
    words : int32 array of shape (n_words,)
        The words of the batch in the vocabulary, ascending; empty for all of it.
    n_features : int
        Size of the vocabulary.
    """

    counts: np.ndarray
    index: np.ndarray
    indptr: np.ndarray
    words: np.ndarray
    n_features: int


class DocumentBatch(NamedTuple):
    """Some documents.

    Attributes
    ----------
    rows : Counts
        Those of the batch and no others.
    ids : int32 array of shape (n_units,)
        Their numbers in the source.
    weight : float64 array of shape (n_units,), or empty where all are 1
    block : int
        Number of the block in its partition.
    """

    rows: Counts
    ids: np.ndarray
    weight: np.ndarray
    block: int = 0

    @property
    def n_units(self):
        """Number of documents."""
        return len(self.ids)

    @property
    def lengths(self):
        """Tokens of every document."""
        return _lengths(self.rows.counts, self.rows.indptr)

    @property
    def total_weight(self):
        """Tokens, each weighing as its document."""
        return _tokens(self.rows.counts, self.rows.indptr, self.weight)


class DocumentSource:
    """A source of documents in memory.

    Parameters
    ----------
    X : CSR matrix or array of shape (n_documents, n_features), without explicit zeros
    weight : float64 array of shape (n_documents,), or empty
    dtype : dtype
        Of the counts as kernels see them.

    Notes
    -----
    Means are taken over tokens: `total_weight` is their weighted number.
    """

    remote = False

    def __init__(self, X, weight, dtype):
        self.X = X
        self.weight = weight
        self.dtype = dtype
        self.n_units, self.n_features = X.shape
        self.n_nonzeros = X.nnz
        self.n_weighted = int(np.count_nonzero(weight)) if weight.size else X.shape[0]
        self.total_weight = _tokens(X.data, X.indptr, weight)

    @property
    def mean_count(self):
        """Mean of the counts."""
        return self.X.data.mean(dtype=np.float64)

    @property
    def lengths(self):
        """Tokens of every document."""
        return _lengths(self.X.data, self.X.indptr)

    @property
    def usual_length(self):
        """Half of the documents that are not empty are as long."""
        tokens = self.lengths
        tokens = tokens if tokens.all() else tokens[tokens > 0.0]
        return float(np.median(tokens, overwrite_input=True))

    @property
    def mean_length(self):
        """Mean length of the documents that are not empty."""
        sizes = np.diff(self.X.indptr)
        return mean_length(self.total_weight, *documents_and_words(sizes, self.weight))

    @property
    def word_totals(self):
        """Tokens of every word, each weighing as its document."""
        X, totals = self.X, np.zeros(self.n_features)
        for first, last in _pieces(X.indptr):
            start, stop = X.indptr[first], X.indptr[last]
            counts = X.data[start:stop].astype(np.float64)
            if self.weight.size:
                each = np.diff(X.indptr[first : last + 1])
                counts *= np.repeat(self.weight[first:last], each)
            words = X.indices[start:stop]
            totals += np.bincount(words, counts, minlength=self.n_features)
        return totals

    @cached_property
    def alike(self):
        """Whether documents hardly differ, by the mutual information of them and words.

        It is the same in any unit of the counts, and few documents of a text are enough
        to exceed it.
        """
        X, told = self.X, 0.0
        # Words of documents without weight have no tokens.
        log_words = np.log(np.maximum(self.word_totals / self.total_weight, TINY))
        for first, last in _pieces(X.indptr):
            start, stop = X.indptr[first], X.indptr[last]
            counts = X.data[start:stop].astype(np.float64)
            each = np.diff(X.indptr[first : last + 1])
            lengths = _lengths(X.data, X.indptr[first : last + 1])
            ratio = np.log(counts / np.repeat(lengths, each))
            ratio -= log_words[X.indices[start:stop]]
            if self.weight.size:
                counts *= np.repeat(self.weight[first:last], each)
            told += counts @ ratio
            # Of every document it is not negative.
            if told >= ALIKE * self.total_weight:
                return False
        return True

    def chunks(self):
        """All documents in storage order, as one batch."""
        ids = np.arange(self.n_units, dtype=np.int32)
        if self.X.nnz < self.n_features:
            batch = self.compact(ids, 0)
        else:
            batch = self._batch(self.X, ids, read_only(np.empty(0, np.int32)), 0)
        return MemoryPartition([batch], self.total_weight)

    def parts(self):
        """All documents in storage order, some at a time, for what is kept of none."""
        if self.X.nnz < 2 * PART:
            return self.chunks()
        ids = np.arange(self.n_units, dtype=np.int32)
        some = [ids[a:b] for a, b in _pieces(self.X.indptr, PART)]
        return CutPartition(self.compact, some, self.total_weight)

    def blocks(self, n_blocks, rng):
        """Cut a random order of the documents into blocks.

        Each is a copy of its own while it is visited; what lasts are its words.
        """
        order = rng.permutation(np.arange(self.n_units, dtype=np.int32))
        edges = [self.n_units * i // n_blocks for i in range(n_blocks + 1)]
        ids = [np.sort(order[a:b]) for a, b in pairwise(edges)]
        return CutPartition(self.compact, ids, self.total_weight)

    def sample(self, n_units, rng):
        """Return a batch of at most `n_units` random documents; see `random_ids`."""
        return self.compact(random_ids(self, n_units, rng).astype(np.int32), 0)

    def units_at(self, places):
        """Return documents at places among those with a weight."""
        return np.flatnonzero(self.weight)[places]

    def compact(self, ids, block, words=None):
        """Return a batch of some documents, whose `words` may be known."""
        if words is not None and self._is_plain:
            return self._cut(ids, block, words)
        rows, seen = take(self.X, ids), np.zeros(self.n_features, bool)
        seen[rows.indices] = True
        words = np.flatnonzero(seen).astype(np.int32)
        position = np.empty(self.n_features, np.int32)
        position[words] = np.arange(len(words), dtype=np.int32)
        rows.indices = position[rows.indices]
        return self._batch(rows, ids, read_only(words), block)

    @cached_property
    def _is_plain(self):
        """Whether kernels take the matrix as it is, and are compiled for few types."""
        X = self.X
        plain = X.data.dtype == self.dtype or X.data.dtype.kind in "iub"
        arrays = X.data, X.indices, X.indptr
        native = all(a.dtype.isnative and a.flags.aligned for a in arrays)
        return plain and native and not any(map(is_memmap, arrays))

    def _cut(self, ids, block, words):
        X = self.X
        indptr = np.zeros(len(ids) + 1, np.int64)
        np.cumsum(X.indptr[ids + 1] - X.indptr[ids], out=indptr[1:])
        counts, index = np.empty(indptr[-1], self.dtype), np.empty(indptr[-1], np.int32)
        place = np.empty(self.n_features, np.int32)
        arrays = map(read_only, (X.data, X.indices, X.indptr))
        csr_rows_renumbered(*arrays, ids, words, indptr, place, counts, index)
        made = (read_only(array) for array in (counts, index, indptr))
        rows = Counts(*made, words, self.n_features)
        weight = read_only(self.weight[ids] if self.weight.size else self.weight)
        return DocumentBatch(rows, ids, weight, block)

    def _batch(self, rows, ids, words, block):
        # Of one type, so that kernels compile once; but those of a map as they are.
        index = np.asarray(rows.indices)
        index = index if is_memmap(index) else index.astype(np.int32, copy=False)
        counts = Counts(
            read_only(np.asarray(rows.data).astype(self.dtype, copy=False)),
            read_only(index),
            read_only(rows.indptr.astype(np.int64, copy=False)),
            words,
            self.n_features,
        )
        weight = read_only(self.weight[ids] if self.weight.size else self.weight)
        return DocumentBatch(counts, read_only(ids), weight, block)


class CutPartition(MemoryPartition):
    """Blocks of documents that are cut where they are visited, and not kept.

    Parameters
    ----------
    cut : callable
        ``cut(ids, block, words)`` returns the batch of some documents; words are those
        of the batch as it was before, or None.
    ids : list of int32 arrays
    total_weight : float
    """

    def __init__(self, cut, ids, total_weight):
        self.cut, self.total_weight = cut, total_weight
        self.ids = [read_only(some) for some in ids]
        self.words = [None] * len(ids)  # as bits

    def __len__(self):
        return len(self.ids)

    @property
    def batches(self):
        """All blocks."""
        return list(map(self.batch, range(len(self))))

    def map(self, function):
        """Yield ``function(batch)`` in the order of the blocks."""
        return parallel_map(lambda block: function(self.batch(block)), range(len(self)))

    def shuffled(self, rng):
        """Yield every batch once, in random order."""
        for block in rng.permutation(len(self)):
            yield self.batch(int(block))

    def batch(self, block):
        """Return a block."""
        ids, words = self.ids[block], self.words[block]
        if words is not None:
            return self.cut(ids, block, words_of_bits(*words))
        found = self.cut(ids, block, None)
        self.words[block] = bits_of_words(found.rows), found.rows.n_features
        return found


def random_ids(data, size, rng):
    """Return at most `size` documents, in order; of no weight only where all are."""
    n = data.n_weighted or data.n_units
    ids = np.sort(rng.choice(n, min(size, n), replace=False))
    return ids if n == data.n_units else data.units_at(ids)


def bits_of_words(rows):
    """Return which words of the vocabulary `Counts` have, as bits."""
    seen = np.zeros(rows.n_features, bool)
    seen[rows.words] = True
    return np.packbits(seen)


def words_of_bits(bits, n_features):
    """Return these words, ascending."""
    words = np.flatnonzero(np.unpackbits(bits, count=n_features))
    return read_only(words.astype(np.int32))


def _tokens(counts, indptr, weight):
    if not weight.size:
        return float(counts.sum(dtype=np.float64))
    return float(weight @ _lengths(counts, indptr))


def documents_and_words(sizes, weight):
    """Return how many documents are not empty, and their nonzeros, as each weighs."""
    if not weight.size:
        return float(np.count_nonzero(sizes)), float(sizes.sum())
    return float(weight[sizes > 0].sum()), float(weight @ sizes)


def mean_length(n_tokens, n_documents, n_nonzeros):
    """Return the mean length of documents, of such sums over all.

    A word that is there is a token at least: weights in place of counts, as TF-IDF, do
    not tell how long a document is.
    """
    return max(n_tokens, n_nonzeros) / n_documents


def _pieces(indptr, size=None):
    """Yield ranges of documents, first and last, of some nonzeros each."""
    size = PIECE if size is None else size
    targets = np.arange(int(indptr[0]) + size, int(indptr[-1]), size)
    inner = np.searchsorted(indptr, targets)
    return pairwise(np.unique([0, *inner, len(indptr) - 1]).tolist())


def _lengths(counts, indptr):
    lengths = np.empty(len(indptr) - 1)
    for first, last in _pieces(indptr):
        starts = indptr[first:last] - indptr[first]
        some = counts[indptr[first] : indptr[last]].astype(np.float64)
        found = np.add.reduceat(np.append(some, 0.0), starts)
        found[np.diff(indptr[first : last + 1]) == 0] = 0.0
        lengths[first:last] = found
    return lengths


def take(X, ids):
    """Return some rows, in memory. SciPy would copy positions of another type whole."""
    starts = X.indptr[ids].astype(np.int64)
    sizes = X.indptr[ids + 1] - starts
    indptr = np.append(0, np.cumsum(sizes))
    at = np.repeat(starts - indptr[:-1], sizes) + np.arange(indptr[-1])
    return _csr(X.data[at], X.indices[at], indptr, (len(ids), X.shape[1]))


def _csr(data, indices, indptr, shape):
    """Return a CSR array of parts as they are."""
    found = sp.csr_array(shape, dtype=data.dtype)
    found.data, found.indices, found.indptr = data, indices, indptr
    return found


def _is_canonical(X):
    """Whether words ascend within documents."""
    for first, last in _pieces(X.indptr):
        start, stop = X.indptr[first], X.indptr[last]
        words = X.indices[start:stop]
        ascends = np.append(words[1:] > words[:-1], True)
        ends = X.indptr[first + 1 : last + 1] - start - 1
        ascends[ends[ends >= 0]] = True
        if not ascends.all():
            return False
    return True


def as_documents(X, sample_weight=None, dtype=np.float64):
    """Return the source for counts.

    Parameters
    ----------
    X : validated CSR matrix or array, or ndarray, of shape (n_documents, n_features)
        Never written to.
    sample_weight : array of shape (n_documents,), or None
    dtype : dtype, default=float64
        Of the counts as kernels see them.

    Raises
    ------
    TypeError
        If X is a dask array.
    """
    refuse_dask(X)
    if sp.issparse(X) and X.format == "csr":
        X = _csr(X.data, X.indices, X.indptr, X.shape)
    else:
        X = sp.csr_array(X)
    if not _is_canonical(X):  # the order of its words is not a document's
        X = X.copy()
        X.sum_duplicates()
    dtype = np.dtype(dtype)
    narrow = X.data.dtype.kind == "f" and X.data.dtype.itemsize > dtype.itemsize
    # What kernels would see as nothing is nothing.
    least = np.finfo(dtype).smallest_subnormal if narrow else 0
    if X.nnz and (X.data.min() < least if narrow else not X.data.all()):
        X = X.copy()
        X.data[X.data < least] = 0
        X.eliminate_zeros()
    weight = np.empty(0) if sample_weight is None else np.asarray(sample_weight, float)
    return DocumentSource(X, read_only(weight), dtype)
