"""The corpora of the topic-model benchmarks, real and simulated.

Real ones are read from the folder named by the environment variable ``SKVREM_DATA``;
`Unavailable` is raised where a file is not there, and the benchmarks leave it out.
"""

import os
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import sparse

__all__ = ["CORPORA", "Corpus", "Unavailable", "load", "simulated", "split"]

#: short name -> (file, name in tables)
CORPORA = {
    "nips": ("nips.npz", "NIPS"),
    "ap": ("ap.npz", "AP"),
    "20news": ("20news.npz", "20 Newsgroups"),
    "arxiv": ("arxiv_abstracts.npz", "arXiv abstracts"),
}
#: Of the documents, held out for evaluation.
HELD_OUT = 0.1


class Unavailable(Exception):
    """The data is not in SKVREM_DATA."""


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
    folder = os.environ.get("SKVREM_DATA")
    path = Path(folder) / file_name if folder else None
    if path is None or not path.exists():
        raise Unavailable(f"{file_name}: set SKVREM_DATA")
    with np.load(path) as file:
        # Narrow integer types on disk overflow in arithmetic.
        X = sparse.csr_matrix(
            (
                file["data"].astype(np.float32),
                file["indices"].astype(np.int32),
                file["indptr"].astype(np.int32),
            ),
            shape=tuple(file["shape"]),
        )
        return X, np.array([word.decode() for word in file["vocab"]])


def split(X, vocabulary, name, seed=0):
    """Hold out a tenth of the documents at random."""
    X = X[X.getnnz(axis=1) > 0]
    order = np.random.default_rng(seed).permutation(X.shape[0])
    n_test = round(HELD_OUT * X.shape[0])
    train, test = X[order[n_test:]], X[order[:n_test]]
    known = np.flatnonzero(train.getnnz(axis=0))
    train, test = train[:, known], test[:, known]
    test = test[test.getnnz(axis=1) > 1]  # one word cannot be halved
    for part in (train, test):
        part.sort_indices()
    return Corpus(name, train, test, vocabulary[known])


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
