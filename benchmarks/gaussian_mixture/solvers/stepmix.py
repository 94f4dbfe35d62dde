import numpy as np
from stepmix.stepmix import StepMix

from benchmark_utils.common import MixtureSolver


class FromStart(StepMix):
    """StepMix takes no starting parameters: put them in place of its own."""

    def _initialize_parameters(self, X, random_state):
        super()._initialize_parameters(X, random_state)
        weights, means, covariances = self.start
        self.weights_ = np.array(weights)
        self._mm.set_parameters({"means": means, "covariances": covariances})


class Solver(MixtureSolver):
    """StepMix: batch EM, latent classes with Gaussian measurements."""

    name = "stepmix"
    requirements = ["pip::stepmix"]

    def iterate(self, n_iter):
        model = FromStart(
            n_components=len(self.start[0]),
            measurement=f"gaussian_{self.covariance_type}",
            measurement_params={"reg_covar": self.reg_covar},
            max_iter=n_iter,
            abs_tol=0.0,
            rel_tol=0.0,
            progress_bar=0,
            random_state=0,
        )
        model.start = self.start
        model.fit(self.X)
        fitted = model.get_parameters()
        measurement = fitted["measurement"]
        return fitted["weights"], measurement["means"], measurement["covariances"]
