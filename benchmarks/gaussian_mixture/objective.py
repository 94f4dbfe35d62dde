from benchopt import BaseObjective

from benchmark_utils.common import cold_start, log_likelihood


class Objective(BaseObjective):
    """Negative log-likelihood a row of a Gaussian mixture, in nats.

    All solvers go on from the same starting parameters, so that batch EM makes the
    same iterations everywhere. The likelihood has many maxima: curves of one data set
    need not end at one value.
    """

    name = "Gaussian mixture"
    min_benchopt_version = "1.7"
    requirements = ["scikit-learn"]
    parameters = {"covariance_type": ["full", "diag"], "reg_covar": [1e-6]}
    sampling_strategy = "iteration"

    def skip(self, X, n_components):
        return (True, X) if isinstance(X, str) else (False, None)

    def set_data(self, X, n_components):
        self.X = X
        self.start = cold_start(X, n_components, self.covariance_type, self.reg_covar)

    def get_objective(self):
        return {
            "X": self.X,
            "start": self.start,
            "covariance_type": self.covariance_type,
            "reg_covar": self.reg_covar,
        }

    def evaluate_result(self, weights, means, covariances):
        return {"value": -log_likelihood(self.X, weights, means, covariances)}

    def get_one_result(self):
        weights, means, covariances = self.start
        return {"weights": weights, "means": means, "covariances": covariances}
