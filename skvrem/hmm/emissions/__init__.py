"""What states emit."""

from skvrem.hmm.emissions._base import Emission
from skvrem.hmm.emissions._continuous import Gamma, VonMises
from skvrem.hmm.emissions._density import DensityEmission
from skvrem.hmm.emissions._discrete import Bernoulli, Categorical, Poisson
from skvrem.hmm.emissions._gaussian import Gaussian
from skvrem.hmm.emissions._mixture import MixtureGaussian
from skvrem.hmm.emissions._product import Product

__all__ = [
    "Bernoulli",
    "Categorical",
    "DensityEmission",
    "Emission",
    "Gamma",
    "Gaussian",
    "MixtureGaussian",
    "Poisson",
    "Product",
    "VonMises",
]
