"""What states emit."""

from skvrem.hmm.emissions._base import Emission
from skvrem.hmm.emissions._gaussian import Gaussian
from skvrem.hmm.emissions._mixture import MixtureGaussian
from skvrem.hmm.emissions._product import Product
from skvrem.hmm.emissions.continuous import (
    Exponential,
    Gamma,
    LogNormal,
    VonMises,
)
from skvrem.hmm.emissions.densities import (
    DensityEmission,
    NegativeBinomial,
    Regression,
    StudentT,
    Weibull,
    WrappedCauchy,
)
from skvrem.hmm.emissions.discrete import (
    Bernoulli,
    Binomial,
    Categorical,
    Multinomial,
    Poisson,
    ZeroInflatedPoisson,
)

__all__ = [
    "Bernoulli",
    "Binomial",
    "Categorical",
    "DensityEmission",
    "Emission",
    "Exponential",
    "Gamma",
    "Gaussian",
    "LogNormal",
    "MixtureGaussian",
    "Multinomial",
    "NegativeBinomial",
    "Poisson",
    "Product",
    "Regression",
    "StudentT",
    "VonMises",
    "Weibull",
    "WrappedCauchy",
    "ZeroInflatedPoisson",
]
