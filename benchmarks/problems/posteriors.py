"""Rows of the Bayesian regressions."""

import numpy as np

from benchmarks.harness import data

__all__ = ["load", "simulate"]


def load(name):
    """Return rows and classes of a real set: MNIST's pixels in 0..1, others scaled."""
    file = data.read(name)
    if name == "mnist":
        X = file["X_train"].reshape(-1, 784).astype(np.float32) / 255.0
        return X, file["y_train"].astype(int)
    X = file["X"].astype(float)
    return (X - X.mean(axis=0)) / X.std(axis=0), file["y"].astype(int)


def simulate(n):
    """Return n rows of 50 columns and one of 10 classes each."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 50))
    z = X @ rng.normal(size=(50, 10)) * 2.0 / np.sqrt(50)
    return X, (z + rng.gumbel(size=z.shape)).argmax(axis=1)
