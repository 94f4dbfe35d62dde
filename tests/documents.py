"""Small corpora, and the forms that counts come in, for tests of topic models."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import linear_sum_assignment

from skvrem.topics._documents import as_documents

N_WORDS, N_TOPICS = 60, 4


def planted(n=600, length=60, seed=0):
    """Draw documents of four topics; return dense counts and the topics.

    The topics are the same for every seed.
    """
    prior = np.full(N_WORDS, 0.1)
    topics = np.random.default_rng(99).dirichlet(prior, size=N_TOPICS)
    rng = np.random.default_rng(seed)
    theta = rng.dirichlet(np.full(N_TOPICS, 0.2), size=n)
    return rng.multinomial(1 + rng.poisson(length, n), theta @ topics), topics


def of_two_topics():
    """Forty documents, half of them of four words, the others of four others."""
    rng = np.random.default_rng(0)
    return rng.poisson(np.kron(np.eye(2), np.full((20, 4), 2.0)))


def normalized(topics):
    return topics / topics.sum(axis=1, keepdims=True)


def matched(found, topics):
    """Return the found topics in the order of the planted ones, and their distances."""
    distance = abs(found[None] - topics[:, None]).sum(axis=2) / 2
    order = linear_sum_assignment(distance)[1]
    return order, distance[np.arange(len(topics)), order]


def batch_of_documents(dtype, weighted=False, n_words=20):
    """Return ten documents in falling order, numbered by their own words.

    Document 4 is empty; the others have 1 to 12 different words, so that every
    remainder of a division by four occurs. The first and the last word of the
    vocabulary occur nowhere.
    """
    rng = np.random.default_rng(0)
    X = np.zeros((10, n_words))
    for d, n in enumerate([5, 1, 2, 3, 0, 4, 7, 8, 9, 12]):
        words = 1 + rng.choice(n_words - 2, n, replace=False)
        X[d, words] = rng.integers(1, 9, n) - 0.25
    weight = rng.uniform(0.5, 2.0, 10) if weighted else None
    data = as_documents(sp.csr_array(X), weight, dtype)
    ids = np.arange(10, dtype=np.int32)[::-1]
    return data.compact(ids, 0)


def dense_counts(batch):
    """The counts of a batch, one nonzero at a time."""
    rows = batch.rows
    X = np.zeros((batch.n_units, rows.n_features))
    for i in range(batch.n_units):
        for j in range(rows.indptr[i], rows.indptr[i + 1]):
            X[i, rows.words[rows.index[j]]] += rows.counts[j]
    return X


def frame_of(X):
    pd = pytest.importorskip("pandas")
    return pd.DataFrame(X, columns=[f"word{v}" for v in range(X.shape[1])])


def unsorted_duplicates(X):
    """CSR with falling columns and every count in two entries."""
    X = sp.csr_array(X)
    data = np.stack([X.data - X.data // 2, X.data // 2], axis=1)
    made = sp.csr_array(
        (data.ravel(), np.repeat(X.indices, 2), 2 * X.indptr), shape=X.shape
    )
    for a, e in zip(made.indptr[:-1], made.indptr[1:], strict=True):
        made.data[a:e] = made.data[a:e][::-1].copy()
        made.indices[a:e] = made.indices[a:e][::-1].copy()
    made.has_sorted_indices = made.has_canonical_format = False
    return made


def wide_indices(X):
    X = sp.csr_array(X)
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    return X


CONTAINERS = [
    sp.csr_matrix,
    sp.csc_array,
    sp.coo_array,
    sp.lil_array,
    np.asfortranarray,
    np.ndarray.tolist,
    unsorted_duplicates,
    wide_indices,
    frame_of,
]


def arrays_of(X):
    """The arrays that a container of counts is made of."""
    if sp.issparse(X):
        names = ("data", "indices", "indptr", "row", "col")
        return [getattr(X, name) for name in names if hasattr(X, name)]
    return [np.asarray(X)]


def hard_corpora():
    """Counts that are hardly documents, by name."""
    rng = np.random.default_rng(0)
    X = planted(100)[0]
    return {
        "one document": X[:1],
        "one word": X[:, :1] + 1,
        "one token": np.eye(1, 7, dtype=int),
        "mostly empty": X * (np.arange(100) % 10 == 0)[:, None],
        "same documents": np.repeat(X[:1], 50, axis=0),
        "huge counts": X * 1_000_000,
        "tiny counts": X * 1e-6,
        "one long document": np.vstack([X, 100_000 * X[:1]]),
        "diagonal": np.eye(30, dtype=int),
        "binary": rng.integers(0, 2, (50, 20)),
    }


def assert_same_state(a, b):
    """Two fitted models hold the same attributes, but for their generator.

    What they know of documents stays in memory.
    """
    a, b = (dict(vars(one)) for one in (a, b))
    a.pop("_of_rows", None), b.pop("_of_rows", None)
    assert a.keys() == b.keys()
    for name in a.keys() - {"random_state_"}:
        np.testing.assert_equal(a[name], b[name], err_msg=name)


def nearly_alike(n_documents=100, apart=0.1):
    """Counts of a million tokens a document, of three topics that hardly differ."""
    rng = np.random.default_rng(0)
    words = rng.dirichlet(np.ones(200))
    own = rng.dirichlet(np.full(200, 0.3), size=3)
    topics = (1.0 - apart) * words + apart * own
    shares = rng.dirichlet(np.full(3, 0.3), size=n_documents)
    return np.array([rng.multinomial(10**6, p) for p in shares @ topics]), topics
