from gmr import GMM

from benchmark_utils.common import MixtureSolver


class Solver(MixtureSolver):
    """gmr: batch EM, full covariances, without regularisation."""

    name = "gmr"
    requirements = ["pip::gmr"]

    def skip(self, X, start, covariance_type, reg_covar):
        if covariance_type != "full":
            return True, "full covariances only"
        return False, None

    def iterate(self, n_iter):
        weights, means, covariances = (part.copy() for part in self.start)
        model = GMM(len(weights), weights, means, covariances)
        model.from_samples(self.X, R_diff=0.0, n_iter=n_iter)
        return model.priors, model.means, model.covariances
