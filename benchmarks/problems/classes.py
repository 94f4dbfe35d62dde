"""Problems of logistic regression, simulated and real.

All have the penalty C = 1 and no intercept, so that the objective of every package,
liblinear's penalised intercept included, is the same.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from benchmarks.harness.data import read

__all__ = ["PROBLEMS", "Problem", "objective"]


class Problem(NamedTuple):
    """Training rows and, where there are some, test rows."""

    X: Any
    y: np.ndarray
    X_test: Any
    y_test: np.ndarray


def _split(X, y, n_test):
    return Problem(X[:-n_test], y[:-n_test], X[-n_test:], y[-n_test:])


def _binary(X, theta, rng):
    return (rng.uniform(size=len(X)) < 1.0 / (1.0 + np.exp(-X @ theta))).astype(int)


def dense(n=100_000, d=100, seed=0):
    """Independent columns whose standard deviations span a factor of 100."""
    rng = np.random.default_rng(seed)
    scale = np.geomspace(1.0, 0.01, d)
    X = rng.normal(size=(n + n // 5, d)) * scale
    theta = 2.0 * rng.normal(size=d) / scale / np.sqrt(d)
    return _split(X, _binary(X, theta, rng), n // 5)


def multinomial(n=60_000, d=50, k=10, seed=0):
    """Columns whose standard deviations span 10, classes by the model itself."""
    rng = np.random.default_rng(seed)
    scale = np.geomspace(1.0, 0.1, d)
    X = rng.normal(size=(n + n // 5, d)) * scale
    theta = 2.0 * rng.normal(size=(d, k)) / scale[:, None] / np.sqrt(d)
    y = (X @ theta + rng.gumbel(size=(len(X), k))).argmax(axis=1)
    return _split(X, y, n // 5)


def wide(n=20_000, d=500, seed=2):
    """As `dense`, with many columns for the rows."""
    return dense(n, d, seed)


def big(n=400_000, d=50, seed=1):
    """As `dense`, with more rows of fewer columns."""
    return dense(n, d, seed)


def a9a():
    """Adult, one-hot; its own test part."""
    z = read("a9a")

    def matrix(suffix):
        indices = z["indices" + suffix].astype(np.int32)
        parts = (np.ones(len(indices)), indices, z["indptr" + suffix])
        return sp.csr_matrix(parts, shape=tuple(z["shape" + suffix]))

    return Problem(matrix(""), z["y"].astype(int), matrix("_test"), z["y_test"])


def mnist():
    """Pixels in 0..1; its own test part."""
    z = read("mnist")
    X, X_test = (z[f"X_{part}"].reshape(-1, 784) / 255.0 for part in ("train", "test"))
    return Problem(X, z["y_train"].astype(int), X_test, z["y_test"].astype(int))


def secstr():
    """Secondary structure of proteins: 15 amino acids, one-hot; a tenth for testing."""
    z = read("ssl_secstr")
    order = np.random.default_rng(0).permutation(len(z["X"]))
    codes, y = z["X"][order].astype(np.int32), z["y"][order].astype(int)
    n, d = codes.shape
    indices = (codes + 21 * np.arange(d, dtype=np.int32)).ravel()
    X = sp.csr_matrix((np.ones(n * d), indices, d * np.arange(n + 1)), (n, 21 * d))
    return _split(X, y, n // 10)


def digits():
    """The digits of scikit-learn, pixels in 0..1; a fifth for testing."""
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    return _split(X[order] / 16.0, y[order], len(y) // 5)


def _news():
    from sklearn.feature_extraction.text import TfidfTransformer

    z = read("20news")
    parts = (z["data"].astype(float), z["indices"].astype(np.int32), z["indptr"])
    counts = sp.csr_matrix(parts, shape=tuple(z["shape"]))
    n = int(z["n_train"])
    tfidf = TfidfTransformer().fit(counts[:n])
    return tfidf.transform(counts[:n]), tfidf.transform(counts[n:]), z["y"], n


def news():
    """20 Newsgroups, tf-idf, all 20 classes; its own test part."""
    X, X_test, y, n = _news()
    y = y.astype(int)
    return Problem(X, y[:n], X_test, y[n:])


def news_binary():
    """20 Newsgroups, tf-idf, the first ten classes against the others."""
    X, X_test, y, n = _news()
    y = (y >= 10).astype(int)
    return Problem(X, y[:n], X_test, y[n:])


PROBLEMS = {
    "dense": dense,
    "multinomial": multinomial,
    "wide": wide,
    "big": big,
    "a9a": a9a,
    "mnist": mnist,
    "secstr": secstr,
    "digits": digits,
    "news": news,
    "news-binary": news_binary,
}


def objective(X, y, coef, intercept=0.0, C=1.0):
    """Return the penalised negative log-likelihood, in NumPy: no solver's own code."""
    coef = np.atleast_2d(coef)
    Z = X @ coef.T + intercept
    if coef.shape[0] == 1:
        z = Z[:, 0]
        loss = np.logaddexp(0.0, z) - y * z
    else:
        loss = np.logaddexp.reduce(Z, axis=1) - Z[np.arange(len(y)), y]
    return float(loss.sum() + 0.5 * np.square(coef).sum() / C)
