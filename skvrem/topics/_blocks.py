"""Documents that lie in the blocks of dask, evaluated where they are."""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from skvrem.data import open_remote
from skvrem.topics._documents import (
    as_documents,
    bits_of_words,
    documents_and_words,
    mean_length,
    random_ids,
    take,
    words_of_bits,
)
from skvrem.topics._model import SomeWords
from skvrem.utils._algebra import read_only, writeable
from skvrem.utils._validation import check_block

# Documents of a block whose lengths are looked at.
LENGTHS = 1000

#: Types of numbers that arrays have, and matrices of SciPy have not.
UNKNOWN_TO_SCIPY = np.dtype(object), np.dtype(np.float16)


class DocumentFacts(NamedTuple):
    """What has been seen of a block of documents.

    Attributes
    ----------
    tokens : float
        Each weighing as its document.
    counted : float
        Their number without weights.
    n_nonzeros : int
    lengths : ndarray
        Of some documents that are not empty.
    documents, words : float
        Documents that are not empty, and their nonzeros, as each weighs.
    """

    tokens: float
    counted: float
    n_nonzeros: int
    lengths: np.ndarray
    documents: float = 0.0
    words: float = 0.0


def look_at(check, rows, columns):
    """Check a block of documents; return its `DocumentFacts`."""
    check_block(rows, columns, sparse=True, power=None)
    if not rows.shape[0]:
        return DocumentFacts(0.0, 0.0, 0, np.empty(0))
    check(rows)
    X = sp.csr_array(rows)
    lengths = np.asarray(X.sum(axis=1, dtype=np.float64)).ravel()
    weight = columns.weight
    weight = np.empty(0) if weight is None else np.asarray(weight, float)
    tokens = lengths @ weight if weight.size else lengths.sum()
    some = lengths[lengths > 0.0]
    some = some[:: max(1, len(some) // LENGTHS)]
    sizes = np.asarray((X != 0).sum(axis=1)).ravel()
    weighed = documents_and_words(sizes, weight)
    counted, n_nonzeros = float(lengths.sum()), int(sizes.sum())
    return DocumentFacts(float(tokens), counted, n_nonzeros, some, *weighed)


def open_documents(X, weight, dtype, check):
    """Return the source of documents of dask.

    Parameters
    ----------
    X : dask array or DataFrame
        Of counts, sparse or not.
    weight : ndarray or dask array of shape (n_documents,), or None
    dtype : dtype
        Of the counts as kernels see them.
    check : callable
        Raises what is wrong with a block.
    """
    look = partial(look_at, check)
    if hasattr(X, "to_dask_array"):
        X = X.to_dask_array()
    numbers = X.dtype in UNKNOWN_TO_SCIPY
    source, seen = open_remote(X, look, weight=weight, numbers=numbers)
    return DocumentBlocks(source, seen, dtype)


class DocumentBlocks:
    """A source of documents that lie in blocks elsewhere.

    Parameters
    ----------
    source : DaskSource
    seen : list of DocumentFacts
    dtype : dtype
    """

    remote = True
    alike = False  # which nobody has looked at

    def __init__(self, source, seen, dtype):
        self.source, self.dtype = source, np.dtype(dtype)
        self.n_units, self.n_features = source.n_units, source.n_features
        self.n_weighted = source.n_weighted
        self.total_weight = float(sum(one.tokens for one in seen))
        self.n_nonzeros = sum(one.n_nonzeros for one in seen)
        #: Mean of the counts, and half of the lengths are below.
        counted = sum(one.counted for one in seen)
        self.mean_count = counted / max(1, self.n_nonzeros)
        weighed = ((one.documents, one.words) for one in seen)
        self._documents_and_words = [sum(each) for each in zip(*weighed, strict=True)]
        lengths = np.concatenate([one.lengths for one in seen])
        self.usual_length = float(np.median(lengths)) if lengths.size else 0.0

    @property
    def mean_length(self):
        """Mean length of the documents that are not empty."""
        return mean_length(self.total_weight, *self._documents_and_words)

    def chunks(self):
        """All documents, a block at a time."""
        return DocumentPartition(self, self.source.chunks())

    parts = chunks

    def blocks(self, n_blocks, rng):
        """Cut every block of dask into minibatches, about `n_blocks` in all."""
        return DocumentPartition(self, self.source.blocks(n_blocks, rng))

    @property
    def word_totals(self):
        """Tokens of every word, each weighing as its document."""
        return self.source.chunks().sum(partial(_word_totals, self.dtype)).tokens

    def sample(self, n_units, rng):
        """Return a batch of at most `n_units` random documents, the same as of memory.

        They are fetched.
        """
        ids = random_ids(self, n_units, rng)
        documents = in_memory(self.dtype, self.source.fetch(ids))
        return documents.sample(len(ids), np.random.default_rng(0))

    def units_at(self, places):
        """Return documents at places among those with a weight."""
        return self.source.units_at(places)


class DocumentPartition:
    """Batches of documents, evaluated where they lie.

    What functions are told may be a point whose own live beside the documents: a named
    tuple that says what is `written`. The model, whose method a function is or which is
    its first argument, makes what a batch sees of it (`own_of`).

    Parameters
    ----------
    documents : DocumentBlocks
    partition : DaskPartition
    """

    def __init__(self, documents, partition):
        self.documents, self.partition = documents, partition
        self.total_weight = documents.total_weight
        self.facts = None

    def __len__(self):
        return len(self.partition)

    @property
    def remade(self):
        """Something that lives beside documents was lost."""
        return self.partition.remade

    @remade.setter
    def remade(self, value):
        self.partition.remade = value

    def map(self, function):
        """Yield ``function(batch)`` in the order of the batches."""
        return self.partition.map(self._where(function))

    def sum(self, function):
        """Return the sum of ``function(batch)``, reduced in a tree near the rows."""
        return self.partition.sum(self._where(function))

    def keep(self, function):
        """Return the sum of the first that ``function(batch)`` returns, and a table.

        That of the second, one a batch.
        """
        return self.partition.keep(self._where(function))

    def shuffled(self, rng):
        """Yield a `DocumentVisit` for every batch."""
        if self.facts is None:
            self.facts = list(self.map(partial(_facts_of_batch)))
        for visit in self.partition.shuffled(rng):
            facts, n_features = self.facts[visit.block], self.documents.n_features
            yield DocumentVisit(
                visit.block, facts.tokens, facts.words, n_features, visit
            )

    def visit(self, function, visit, entry=None):
        """Return ``function(batch, entry)``, of a visit and its entry of a table."""
        return self.partition.visit(self._where(function), visit.where, entry)

    def _where(self, function):
        """Return a function of batches of rows, made of one of documents."""
        arguments, place, own = list(function.args), None, NOTHING
        for number, argument in enumerate(arguments):
            if hasattr(getattr(argument, "own", None), "written"):
                place, own = number, argument.own
                arguments[number] = argument._replace(own=None)
        function = partial(function.func, *arguments, **function.keywords)
        return partial(_visit, own, (function, place, self.documents.dtype))


class BatchFacts(NamedTuple):
    """Tokens of a batch, each weighing as its document, and its words as bits."""

    tokens: float
    words: np.ndarray


def _facts_of_batch(batch):
    return BatchFacts(batch.total_weight, bits_of_words(batch.rows))


class DocumentVisit(NamedTuple):
    """A batch of documents that lies elsewhere.

    Attributes
    ----------
    block : int
    total_weight : float
    bits : ndarray of uint8
        Which words it has.
    n_features : int
    where : RemoteBatch
    """

    block: int
    total_weight: float
    bits: np.ndarray
    n_features: int
    where: Any

    @property
    def words(self):
        """Words that it has, ascending."""
        return words_of_bits(self.bits, self.n_features)


class Nothing(NamedTuple):
    """Nothing lives beside documents."""


NOTHING = Nothing()


class VisitedWhereTheyLie:
    """What models of words have in common whose documents lie in blocks elsewhere.

    A batch is told the statistics of its own words, and keeps its sums at an anchor.
    """

    #: Sums are kept where the batches are.
    recall_passes = 0.0

    def for_batches(self, point, visit):
        """Return the point with the statistics of the words of a visit."""
        if visit is None:
            return point
        return point._replace(sums=SomeWords.of(point.sums, visit.words))

    def remember(self, point, batch, beta):
        """Return the sums of a batch, which are what it remembers."""
        sums, _ = super().remember(point, batch, beta)
        return sums, sums

    def recall(self, memory, point, batch):
        """Return the sums where `memory` was made."""
        return memory

    def own_of(self, own, point, documents):
        """Return what a point has of the documents of a block."""
        return own


def in_memory(dtype, batch):
    """Return the documents of a batch of rows as a source in memory."""
    weight = batch.weight if batch.weight.size else None
    return as_documents(matrix_of(batch.rows), weight, dtype)


def matrix_of(rows):
    """Return rows as kernels take them as an array or a matrix."""
    if isinstance(rows, np.ndarray):
        return rows
    shape = len(rows.indptr) - 1, rows.n_features
    return sp.csr_array((rows.data, rows.indices, rows.indptr), shape=shape)


class WordTotals(NamedTuple):
    """Tokens of every word."""

    tokens: np.ndarray


def _word_totals(dtype, batch):
    return WordTotals(in_memory(dtype, batch).word_totals)


def documents_of(dtype, batch):
    """Return the documents of a batch of rows, numbered as in their block."""
    if not batch.index.size:  # all of the block
        (documents,) = in_memory(dtype, batch).chunks().batches
        return documents
    ids, rows = batch.ids, matrix_of(batch.rows)
    rows = take(rows, ids) if sp.issparse(rows) else rows[ids]
    weight = batch.weight[ids] if batch.weight.size else None
    documents = as_documents(rows, weight, dtype)
    made = documents.compact(np.arange(len(ids), dtype=np.int32), batch.block)
    return made._replace(ids=read_only(ids.astype(np.int32, copy=False)))


def _visit(own, how, batch, *entry):
    """Return what a function of a model, and more, says of some documents."""
    function, place, dtype = how
    documents, arguments = documents_of(dtype, batch), map(writeable, function.args)
    method, arguments = function.func, list(arguments)
    if hasattr(method, "__self__"):
        model = writeable(method.__self__)
        method = partial(method.__func__, model)
    elif arguments:
        model = arguments[0]
    if place is not None:
        point = arguments[place]
        seen = model.own_of(writeable(own), point, documents)
        arguments[place] = point._replace(own=seen)
    return method(*arguments, documents, *entry, **function.keywords)
