"""The data of mixtures, simulated and real."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from benchmarks.harness import data

__all__ = [
    "FRESH",
    "Mixture",
    "alike",
    "chest",
    "digits_cloud",
    "heavy_tails",
    "mnist_pca",
    "overlapping",
    "rare_components",
    "true_parameters",
]


class Mixture(NamedTuple):
    """Rows of a simulated Gaussian mixture, and the mixture.

    Attributes
    ----------
    X : ndarray of shape (n, d)
    weights : ndarray of shape (k,)
    means : ndarray of shape (k, d)
    covariances : ndarray of shape (k, d, d)
    """

    X: np.ndarray
    weights: np.ndarray
    means: np.ndarray
    covariances: np.ndarray


def _sizes(rng, n, weights):
    """Rows of each component, as the edges of n rows sorted by component."""
    counts = rng.multinomial(n, weights)
    return np.concatenate(([0], np.cumsum(counts)))


def _shuffle(rng, X):
    """Put rows in random order in place, without a second array."""
    rng.shuffle(X)
    return X


def overlapping(n, d=10, k=10, *, separation=0.6, spread=0.4, seed=0):
    """Draw from strongly overlapping components with general covariances.

    Means are `separation` times standard normals, covariances ``A A^T`` with
    ``A = I + spread * Z / sqrt(d)``. With the defaults batch EM takes some 200 to
    300 passes from a k-means start; `spread` was chosen for that and nothing else.

    Parameters
    ----------
    n, d, k : int
        Rows, features, components.
    separation, spread : float
    seed : int

    Returns
    -------
    mixture : Mixture
    """
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.full(k, 5.0))
    means = separation * rng.standard_normal((k, d))
    factors = np.eye(d) + spread * rng.standard_normal((k, d, d)) / np.sqrt(d)
    X = rng.standard_normal((n, d))
    edges = _sizes(rng, n, weights)
    for j in range(k):
        rows = X[edges[j] : edges[j + 1]]
        for start in range(0, len(rows), 50_000):
            part = rows[start : start + 50_000]
            part[:] = part @ factors[j].T + means[j]
    covariances = factors @ factors.transpose(0, 2, 1)
    return Mixture(_shuffle(rng, X), weights, means, covariances)


def alike(n, seed, d=10, k=10):
    """Draw from components that are as close, each with correlations of its own."""
    rng = np.random.default_rng(seed)
    means = 0.4 * rng.normal(size=(k, d))
    labels = rng.integers(k, size=n)
    X = np.empty((n, d))
    for c in range(k):
        A = rng.normal(size=(d, d)) / np.sqrt(d)
        factor = np.linalg.cholesky(A @ A.T + 0.5 * np.eye(d))
        mine = labels == c
        X[mine] = means[c] + rng.normal(size=(mine.sum(), d)) @ factor.T
    return X


def true_parameters(mixture, covariance_type):
    """Return weights, means and precisions to start from, as the estimators want."""
    if covariance_type == "full":
        precisions = np.linalg.inv(mixture.covariances)
    else:
        precisions = 1.0 / np.diagonal(mixture.covariances, axis1=1, axis2=2)
    return mixture.weights, mixture.means, precisions


# Three problems that had no part in the making of any solver or rule. They were
# written down before anything was run on them: do not tune on them.


def heavy_tails(n, seed=0):
    """Draw 8 correlated clusters in 6 dimensions with Student tails of 4 degrees."""
    rng = np.random.default_rng(1000 + seed)
    k, d = 8, 6
    weights = rng.dirichlet(np.full(k, 3.0))
    edges = _sizes(rng, n, weights)
    X = rng.standard_normal((n, d))
    X /= np.sqrt(rng.chisquare(4, size=(n, 1)) / 4)
    for j in range(k):
        # One strong common factor a cluster, so that features are correlated.
        factor = 0.5 * np.eye(d) + np.outer(rng.standard_normal(d), [1.0] * d) / d
        mean = 2.0 * rng.standard_normal(d)
        X[edges[j] : edges[j + 1]] = X[edges[j] : edges[j + 1]] @ factor.T + mean
    return _shuffle(rng, X)


def rare_components(n, seed=0):
    """Draw 16 components in 4 dimensions, the largest 2000 times the smallest."""
    rng = np.random.default_rng(2000 + seed)
    k, d = 16, 4
    weights = 0.6 ** np.arange(k)
    weights /= weights.sum()
    edges = _sizes(rng, n, weights)
    X = rng.standard_normal((n, d))
    for j in range(k):
        scale = rng.uniform(0.3, 1.5, size=d)
        mean = 1.5 * rng.standard_normal(d)
        X[edges[j] : edges[j + 1]] = scale * X[edges[j] : edges[j + 1]] + mean
    return _shuffle(rng, X)


def digits_cloud(n, seed=0):
    """Draw scikit-learn's digits with replacement in 15 principal axes, with noise.

    A smoothed bootstrap: structure of real data, as many rows as wanted.
    """
    from sklearn.datasets import load_digits
    from sklearn.decomposition import PCA

    rng = np.random.default_rng(3000 + seed)
    axes = PCA(15, svd_solver="full").fit_transform(load_digits().data)
    X = axes[rng.integers(len(axes), size=n)]
    X += 0.2 * axes.std(axis=0) * rng.standard_normal(X.shape)
    return X


#: name -> (function of n and seed, rows, components, covariance type)
FRESH = {
    "heavy tails": (heavy_tails, 300_000, 12, "full"),
    "rare components": (rare_components, 400_000, 16, "diag"),
    "digits cloud": (digits_cloud, 100_000, 15, "full"),
}


# Real data


@lru_cache(maxsize=2)
def mnist_pca(n_axes=20):
    """Return the 60,000 training images of MNIST in their principal axes.

    Pixels lie in 0..1.
    """
    from sklearn.decomposition import PCA

    X = data.mnist() / 255.0
    return np.ascontiguousarray(
        PCA(n_axes, svd_solver="covariance_eigh").fit_transform(X)
    )


@lru_cache(maxsize=2)
def chest(n=500_000):
    """Return random rows of the chest accelerometer, three axes, standardised."""
    X = data.read("chest_accelerometer")["X"]
    rows = np.random.default_rng(0).choice(len(X), min(n, len(X)), replace=False)
    X = X[rows].astype(np.float64)
    return (X - X.mean(axis=0)) / X.std(axis=0)
