"""Problems of factorial mixtures: images, small dense tables, sums of known parts."""

from functools import partial

import numpy as np

from benchmarks.harness.data import mnist, read

__all__ = ["PROBLEMS", "split"]

#: Rows of a problem, at most.
MOST = 1500


def standardized(X):
    X = np.asarray(X, float)
    X = X[:, X.std(axis=0) > 0.0]
    return (X - X.mean(axis=0)) / X.std(axis=0)


def shrunken(images, n):
    """Return images averaged over blocks of n x n pixels, as rows, less their mean."""
    rows, a, b = len(images), images.shape[1] // n, images.shape[2] // n
    blocks = images[:, : a * n, : b * n].reshape(rows, a, n, b, n)
    X = blocks.mean(axis=(2, 4)).reshape(rows, -1) / 255.0
    return X - X.mean(axis=0)


def book(name):
    X = read(name)["X"].astype(float)
    return X - X.mean(axis=0)


def bundled(name):
    """Return one of scikit-learn's own sets; digits are images of one scale."""
    from sklearn import datasets

    X = getattr(datasets, f"load_{name}")().data
    return (X - X.mean(axis=0)) / 16.0 if name == "digits" else standardized(X)


def shapes(noise, n=MOST):
    """Return sums of eight overlapping images of 4 x 4, after Mandt et al. (2016)."""
    from benchmarks.papers.factorial_mixture import toy

    return toy(0, noise, n)[0]


#: Rows, and the number of components.
PROBLEMS = {
    "COIL": (partial(book, "ssl_coil"), 16),
    "USPS": (partial(book, "ssl_usps"), 16),
    "faces": (lambda: shrunken(read("yaleb_cropped")["X"], 4), 16),
    "MNIST": (lambda: shrunken(mnist().reshape(-1, 28, 28)[:MOST], 2), 16),
    "digits": (partial(bundled, "digits"), 12),
    "wine": (partial(bundled, "wine"), 4),
    "cancer": (partial(bundled, "breast_cancer"), 8),
    "sonar": (lambda: standardized(read("sonar")["X"]), 8),
    "ecoli": (lambda: standardized(read("ecoli")["X"]), 5),
    "shapes, noisy": (partial(shapes, 0.1), 8),
    "shapes, clear": (partial(shapes, 0.01), 8),
}


def split(key, seed):
    """Return training rows, held-out rows (a fifth) and the number of components."""
    load, k = PROBLEMS[key]
    X = load()
    X = X[np.random.default_rng(seed).permutation(len(X))[:MOST]]
    n = len(X) * 4 // 5
    return X[:n], X[n:], k
