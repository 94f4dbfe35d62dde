"""Hidden Markov models."""

from skvrem.hmm._emission_continuous import Gamma, VonMises
from skvrem.hmm._emission_discrete import Bernoulli, Categorical, Poisson
from skvrem.hmm._emission_gaussian import Gaussian
from skvrem.hmm._emission_mixture import MixtureGaussian
from skvrem.hmm._emission_product import Product
from skvrem.hmm._estimator import VRHMM
from skvrem.hmm._tracks import prepare_tracks
from skvrem.hmm._transitions import Homogeneous
from skvrem.hmm._transitions_covariates import Covariates
from skvrem.hmm._transitions_hierarchical import Hierarchical

__all__ = [
    "VRHMM",
    "Bernoulli",
    "Categorical",
    "Covariates",
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
