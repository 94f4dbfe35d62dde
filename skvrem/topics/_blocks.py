"""Documents that lie in the blocks of dask, evaluated where they are."""

import copy
from functools import partial
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from skvrem.data import open_remote
from skvrem.topics._documents import as_documents
from skvrem.utils._validation import check_block

# Documents of a block whose lengths are looked at.
LENGTHS = 1000


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
    """

    tokens: float
    counted: float
    n_nonzeros: int
    lengths: np.ndarray


def look_at(check, rows, columns):
    """Check a block of documents; return its `DocumentFacts`."""
    check_block(rows, columns, sparse=True, power=None)
    if not rows.shape[0]:
        return DocumentFacts(0.0, 0.0, 0, np.empty(0))
    check(rows)
    X = sp.csr_array(rows)
    lengths = np.asarray(X.sum(axis=1, dtype=np.float64)).ravel()
    weight = columns.weight
    tokens = lengths.sum() if weight is None else lengths @ np.asarray(weight, float)
    some = lengths[lengths > 0.0]
    some = some[:: max(1, len(some) // LENGTHS)]
    counted, n_nonzeros = float(lengths.sum()), int(np.count_nonzero(X.data))
    return DocumentFacts(float(tokens), counted, n_nonzeros, some)


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
    source, seen = open_remote(X, look, weight=weight, numbers=False)
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

    def __init__(self, source, seen, dtype):
        self.source, self.dtype = source, np.dtype(dtype)
        self.n_units, self.n_features = source.n_units, source.n_features
        self.n_weighted = source.n_weighted
        self.total_weight = float(sum(one.tokens for one in seen))
        counted = sum(one.counted for one in seen)
        #: Mean of the counts, and half of the lengths are below.
        self.mean_count = counted / max(1, sum(one.n_nonzeros for one in seen))
        lengths = np.concatenate([one.lengths for one in seen])
        self.usual_length = float(np.median(lengths)) if lengths.size else 0.0

    def chunks(self):
        """All documents, a block at a time."""
        return DocumentPartition(self)

    parts = chunks

    @property
    def word_totals(self):
        """Tokens of every word, each weighing as its document."""
        return self.source.chunks().sum(partial(_word_totals, self.dtype)).tokens

    def sample(self, n_units, rng):
        """Return a batch of at most `n_units` random documents, the same as of memory.

        They are fetched.
        """
        n_units = min(n_units, self.n_units)
        ids = np.sort(rng.choice(self.n_units, n_units, replace=False))
        documents = in_memory(self.dtype, self.source.fetch(ids))
        return documents.sample(n_units, np.random.default_rng(0))


class DocumentPartition:
    """Blocks of documents."""

    def __init__(self, documents):
        self.documents = documents
        self.total_weight = documents.total_weight
        self.partition = documents.source.chunks()

    def __len__(self):
        return len(self.partition)

    def sum(self, function):
        """Return the sum of ``function(batch)``, reduced in a tree near the rows.

        What `function`, a partial of a method of a model, is told first may be a point
        whose own live beside the documents: a named tuple that says what is `written`.
        """
        point, *others = function.args
        own = getattr(point, "own", None)
        if hasattr(own, "written"):
            point = point._replace(own=None)
        else:
            own = NOTHING
        how = function.func, others, function.keywords, self.documents.dtype
        return self.partition.sum(partial(_visit, point, own, how))


class Nothing(NamedTuple):
    """Nothing lives beside documents."""


NOTHING = Nothing()


def in_memory(dtype, batch):
    """Return the documents of a batch of rows as a source in memory."""
    rows = batch.rows
    if not isinstance(rows, np.ndarray):
        parts = rows.data, rows.indices, rows.indptr
        shape = len(rows.indptr) - 1, rows.n_features
        rows = sp.csr_array(parts, shape=shape)
    weight = batch.weight if batch.weight.size else None
    return as_documents(rows, weight, dtype)


class WordTotals(NamedTuple):
    """Tokens of every word."""

    tokens: np.ndarray


def _word_totals(dtype, batch):
    return WordTotals(in_memory(dtype, batch).word_totals)


def _visit(point, own, how, batch):
    """Return what a method of a model says of a block of documents."""
    method, others, keywords, dtype = how
    (documents,) = in_memory(dtype, batch).chunks().batches
    point, model = writeable(point), writeable(method.__self__)
    if hasattr(own, "written"):
        point = point._replace(own=model.own_of(writeable(own), point, documents))
    return method.__func__(model, point, *others, documents, **keywords)


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
