from sklearn.mixture import GaussianMixture

from benchmark_utils.common import MixtureSolver, precisions


class Solver(MixtureSolver):
    """scikit-learn's GaussianMixture: batch EM."""

    name = "sklearn"
    requirements = ["scikit-learn"]

    def iterate(self, n_iter):
        weights, means, covariances = self.start
        estimator = GaussianMixture(
            len(weights),
            covariance_type=self.covariance_type,
            reg_covar=self.reg_covar,
            weights_init=weights,
            means_init=means,
            precisions_init=precisions(covariances),
            tol=0.0,
            max_iter=n_iter,
        ).fit(self.X)
        return estimator.weights_, estimator.means_, estimator.covariances_
