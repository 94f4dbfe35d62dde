"""Corpora, real and simulated."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy import sparse

from benchmarks.harness import data

__all__ = ["CORPORA", "Corpus", "completion", "load", "simulated", "split"]

#: short name -> (file, name in tables)
CORPORA = {
    "nips": ("nips", "NIPS"),
    "ap": ("ap", "AP"),
    "20news": ("20news", "20 Newsgroups"),
    "arxiv": ("arxiv_abstracts", "arXiv abstracts"),
}
#: Of the documents, held out for evaluation.
HELD_OUT = 0.1


class Corpus(NamedTuple):
    """Word counts.

    Attributes
    ----------
    name : str
    train, test : csr_matrix of shape (n_documents, n_words), of float32
        Words that the training part does not have are left out of both, as are
        documents without words.
    vocabulary : ndarray of shape (n_words,)
    """

    name: str
    train: sparse.csr_matrix
    test: sparse.csr_matrix
    vocabulary: np.ndarray


def _read(file_name):
    file = data.read(file_name)
    # Narrow integer types on disk overflow in arithmetic.
    parts = (
        file["data"].astype(np.float32),
        file["indices"].astype(np.int32),
        file["indptr"].astype(np.int32),
    )
    X = sparse.csr_matrix(parts, shape=tuple(file["shape"]))
    return X, np.array([word.decode() for word in file["vocab"]])


def split(X, vocabulary, name, seed=0, n_test=None, n_train=None):
    """Hold out documents at random, a tenth unless told how many."""
    X = X[X.getnnz(axis=1) > 0]
    order = np.random.default_rng(seed).permutation(X.shape[0])
    n_test = round(HELD_OUT * X.shape[0]) if n_test is None else n_test
    train, test = X[order[n_test:][:n_train]], X[order[:n_test]]
    known = np.flatnonzero(train.getnnz(axis=0))
    train, test = train[:, known], test[:, known]
    test = test[test.getnnz(axis=1) > 1]  # one word cannot be halved
    for part in (train, test):
        part.sort_indices()
    return Corpus(name, train, test, vocabulary[known])


@lru_cache(maxsize=1)
def completion(key, n_train, n_test=430, least=10):
    """Return so many documents of a real corpus, of at least so many tokens."""
    file_name, name = CORPORA[key]
    X, vocabulary = _read(file_name)
    X = X[np.asarray(X.sum(axis=1)).ravel() >= least]
    return split(X, vocabulary, name, n_test=n_test, n_train=n_train)


@lru_cache(maxsize=1)
def load(key, n_documents=None):
    """Return a real corpus, split; of its first documents only where asked for."""
    file_name, name = CORPORA[key]
    X, vocabulary = _read(file_name)
    return split(X[:n_documents], vocabulary, name)


def simulated(
    n_documents=2_000, n_words=2_000, n_topics=20, length=100, alpha=0.1, seed=0
):
    """Draw a corpus from latent Dirichlet allocation, of Zipf-like word frequencies."""
    rng = np.random.default_rng(seed)
    base = 1.0 / (10.0 + np.arange(n_words))
    topics = rng.gamma(50.0 * base / base.sum() + 1e-3, size=(n_topics, n_words))
    topics += 1e-12
    topics /= topics.sum(axis=1, keepdims=True)
    rows = []
    for n_tokens in 2 + rng.poisson(length, size=n_documents):
        theta = rng.dirichlet(np.full(n_topics, alpha))
        rows.append(sparse.csr_matrix(rng.multinomial(n_tokens, theta @ topics)))
    X = sparse.vstack(rows, format="csr").astype(np.float32)
    words = np.array([f"w{v}" for v in range(n_words)])
    return split(X, words, "simulated", seed)
