"""What the objective and the solvers share."""

import warnings

import numpy as np
from benchopt import BaseSolver
from sklearn.cluster import kmeans_plusplus
from sklearn.exceptions import ConvergenceWarning

__all__ = ["MixtureSolver", "cold_start", "log_likelihood", "precisions"]

TILE = 10_000


def cold_start(X, n_components, covariance_type, reg_covar):
    """Return weights, means and covariances of the rows nearest to each seed.

    Seeds are those of k-means++ on a subsample.
    """
    rng = np.random.default_rng(0)
    rows = rng.choice(len(X), min(len(X), 20_000), replace=False)
    X = X[rows].astype(np.float64)
    seeds, _ = kmeans_plusplus(X, n_components, random_state=0)
    distance = np.square(seeds).sum(axis=1) - 2.0 * X @ seeds.T
    labels = distance.argmin(axis=1)
    weights = np.bincount(labels, minlength=n_components) / len(X)
    means = np.array([X[labels == j].mean(axis=0) for j in range(n_components)])
    centered = X - means[labels]
    covariances = np.array(
        [
            centered[labels == j].T @ centered[labels == j] / np.sum(labels == j)
            for j in range(n_components)
        ]
    )
    covariances += reg_covar * np.eye(X.shape[1])
    if covariance_type == "diag":
        covariances = np.diagonal(covariances, axis1=1, axis2=2).copy()
    return weights, means, covariances


def precisions(covariances):
    """Return the inverses, of matrices or of variances."""
    return np.linalg.inv(covariances) if covariances.ndim == 3 else 1.0 / covariances


def log_likelihood(X, weights, means, covariances):
    """Return the mean log-likelihood of the rows, in NumPy: no solver's own code."""
    d = X.shape[1]
    if covariances.ndim == 3:
        factors = np.linalg.inv(np.linalg.cholesky(covariances))
        log_det = np.log(np.diagonal(factors, axis1=1, axis2=2)).sum(axis=1)
    else:
        factors = 1.0 / np.sqrt(covariances)
        log_det = np.log(factors).sum(axis=1)
    constants = np.log(weights) + log_det - 0.5 * d * np.log(2.0 * np.pi)
    total = 0.0
    for start in range(0, len(X), TILE):
        rows = X[start : start + TILE].astype(np.float64)
        log_joint = np.empty((len(rows), len(weights)))
        for j, (mean, factor) in enumerate(zip(means, factors, strict=True)):
            z = rows - mean
            z = z @ factor.T if factor.ndim == 2 else z * factor
            log_joint[:, j] = constants[j] - 0.5 * np.square(z).sum(axis=1)
        total += np.logaddexp.reduce(log_joint, axis=1).sum()
    return total / len(X)


class MixtureSolver(BaseSolver):
    """A solver that goes on from the given start for so many iterations.

    A subclass defines ``iterate(n_iter)``, which returns weights, means, covariances.
    """

    sampling_strategy = "iteration"

    def set_objective(self, X, start, covariance_type, reg_covar):
        self.X, self.start = X, start
        self.covariance_type, self.reg_covar = covariance_type, reg_covar

    def warm_up(self):
        self.run_once(2)

    def run(self, n_iter):
        self.result = self.start
        if n_iter > 0:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                self.result = self.iterate(n_iter)

    def get_result(self):
        weights, means, covariances = map(np.asarray, self.result)
        return {"weights": weights, "means": means, "covariances": covariances}
