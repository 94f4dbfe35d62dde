"""Corpora, real and simulated."""

import ast
import importlib
import warnings
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import sparse
from sklearn.feature_extraction.text import CountVectorizer

from benchmarks.harness import Unavailable, data

__all__ = [
    "CORPORA",
    "INSTALLED",
    "Corpus",
    "completion",
    "installed",
    "load",
    "simulated",
    "split",
]

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


def _news():
    """The first of the broadcasts of Lee, Pincombe and Welsh (2005), 300 of them."""
    try:
        from gensim.test.utils import datapath
    except ImportError as error:
        raise Unavailable("gensim has the texts") from error
    return Path(datapath("lee_background.cor")).read_text("utf-8").splitlines()


def _docstrings():
    """Those of what NumPy, SciPy and scikit-learn define, of a paragraph at least."""
    texts = set()
    for name in ("numpy", "scipy", "sklearn"):
        folder = Path(importlib.import_module(name).__file__).parent
        for path in folder.rglob("*.py"):
            if "tests" in path.parts:
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of escapes
                tree = ast.parse(path.read_text("utf-8"))
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
                    texts.add(ast.get_docstring(node) or "")
    return sorted(text for text in texts if len(text) > 400)


#: Texts that come with packages: short name -> (texts, name in tables)
INSTALLED = {
    "news": (_news, "broadcast news"),
    "docstrings": (_docstrings, "docstrings"),
}


@lru_cache(maxsize=1)
def _counts(key, least):
    texts, _ = INSTALLED[key]
    words = CountVectorizer(
        stop_words="english", min_df=3, max_df=0.5, token_pattern="[a-zA-Z]{3,}"
    )
    X = words.fit_transform(texts()).astype(np.float32).tocsr()
    long = np.asarray(X.sum(axis=1)).ravel() >= least
    return X[long], words.get_feature_names_out()


def installed(key, seed, least=20):
    """Return texts that come with packages, a quarter held out, at most 430."""
    X, vocabulary = _counts(key, least)
    n_test = min(X.shape[0] // 4, 430)
    return split(X, vocabulary, INSTALLED[key][1], seed, n_test)
