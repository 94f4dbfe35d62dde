from skvrem import VRGaussianMixture

from benchmark_utils.common import MixtureSolver, precisions


class Solver(MixtureSolver):
    """skvrem: an iteration is an epoch, of one pass ("svrg": two)."""

    name = "skvrem"
    parameters = {
        "solver": ["batch", "squarem", "svrg", "saga", "stochastic", "incremental"]
    }
    requirements = ["pip::skvrem"]

    def iterate(self, n_iter):
        weights, means, covariances = self.start
        squarem = self.solver == "squarem"
        estimator = VRGaussianMixture(
            len(weights),
            covariance_type=self.covariance_type,
            reg_covar=self.reg_covar,
            weights_init=weights,
            means_init=means,
            precisions_init=precisions(covariances),
            solver="batch" if squarem else self.solver,
            acceleration="squarem" if squarem else None,
            tol=0.0,
            max_iter=n_iter,
            random_state=0,
        ).fit(self.X)
        return estimator.weights_, estimator.means_, estimator.covariances_
