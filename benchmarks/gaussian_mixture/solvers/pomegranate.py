import torch
from pomegranate.distributions import Normal
from pomegranate.gmm import GeneralMixtureModel

from benchmark_utils.common import MixtureSolver


class Solver(MixtureSolver):
    """pomegranate: batch EM on torch, without regularisation, in float64."""

    name = "pomegranate"
    requirements = ["pip::pomegranate"]

    def iterate(self, n_iter):
        weights, means, covariances = map(torch.tensor, self.start)
        parts = [
            Normal(mean, covariance, covariance_type=self.covariance_type)
            for mean, covariance in zip(means, covariances, strict=True)
        ]
        model = GeneralMixtureModel(
            parts, priors=weights, max_iter=n_iter, tol=-float("inf")
        )
        model.fit(torch.as_tensor(self.X))
        return (
            model.priors.detach().numpy(),
            [part.means.detach().numpy() for part in model.distributions],
            [part.covs.detach().numpy() for part in model.distributions],
        )
