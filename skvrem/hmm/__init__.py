"""Hidden Markov models."""

from skvrem.hmm._estimator import VRHMM
from skvrem.hmm._tracks import prepare_tracks
from skvrem.hmm.emissions import (
    Bernoulli,
    Categorical,
    DensityEmission,
    Emission,
    Gamma,
    Gaussian,
    MixtureGaussian,
    Poisson,
    Product,
    VonMises,
)
from skvrem.hmm.transitions import Covariates, Hierarchical, Homogeneous

__all__ = [
    "VRHMM",
    "Bernoulli",
    "Categorical",
    "Covariates",
    "DensityEmission",
    "Emission",
    "Gamma",
    "Gaussian",
    "Hierarchical",
    "Homogeneous",
    "MixtureGaussian",
    "Poisson",
    "Product",
    "VonMises",
    "prepare_tracks",
]
