"""Batch EM of other packages' Gaussian mixtures, from given parameters.

A peer takes rows, weights, means, covariances, their type and a number of iterations.
"""

import numpy as np

__all__ = ["PEERS", "scikit_learn"]


def scikit_learn(X, start, kind, n_iter):
    """scikit-learn's GaussianMixture."""
    from sklearn.mixture import GaussianMixture

    weights, means, covariances = start
    full = covariances.ndim == 3
    model = GaussianMixture(
        len(weights),
        covariance_type=kind,
        weights_init=weights,
        means_init=means,
        precisions_init=np.linalg.inv(covariances) if full else 1.0 / covariances,
        tol=0.0,
        max_iter=n_iter,
    ).fit(X)
    return model.weights_, model.means_, model.covariances_


def gmr(X, start, kind, n_iter):
    """Full covariances only, without regularisation."""
    from gmr import GMM

    weights, means, covariances = (part.copy() for part in start)
    model = GMM(len(weights), weights, means, covariances)
    model.from_samples(X, R_diff=0.0, n_iter=n_iter)
    return model.priors, model.means, model.covariances


def pomegranate(X, start, kind, n_iter):
    """On torch, without regularisation, in float64."""
    import torch
    from pomegranate.distributions import Normal
    from pomegranate.gmm import GeneralMixtureModel

    torch.set_num_threads(1)
    weights, means, covariances = map(torch.tensor, start)
    parts = [
        Normal(mean, covariance, covariance_type=kind)
        for mean, covariance in zip(means, covariances, strict=True)
    ]
    model = GeneralMixtureModel(
        parts, priors=weights, max_iter=n_iter, tol=-float("inf")
    ).fit(torch.as_tensor(X))
    return (
        model.priors.detach().numpy(),
        np.array([part.means.detach().numpy() for part in model.distributions]),
        np.array([part.covs.detach().numpy() for part in model.distributions]),
    )


def stepmix(X, start, kind, n_iter):
    """Latent classes with Gaussian measurements."""
    from stepmix.stepmix import StepMix

    class FromStart(StepMix):
        """StepMix takes no starting parameters: put them in place of its own."""

        def _initialize_parameters(self, X, random_state):
            super()._initialize_parameters(X, random_state)
            weights, means, covariances = start
            self.weights_ = np.array(weights)
            self._mm.set_parameters({"means": means, "covariances": covariances})

    model = FromStart(
        n_components=len(start[0]),
        measurement=f"gaussian_{kind}",
        measurement_params={"reg_covar": 1e-6},
        max_iter=n_iter,
        abs_tol=0.0,
        rel_tol=0.0,
        progress_bar=0,
        random_state=0,
    )
    fitted = model.fit(X).get_parameters()
    measurement = fitted["measurement"]
    return fitted["weights"], measurement["means"], measurement["covariances"]


PEERS = {"gmr": gmr, "pomegranate": pomegranate, "stepmix": stepmix}
