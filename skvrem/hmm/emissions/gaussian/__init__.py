"""Gaussian emissions, and mixtures of them."""

from skvrem.hmm.emissions.gaussian._gaussian import Gaussian
from skvrem.hmm.emissions.gaussian._mixture import MixtureGaussian

__all__ = ["Gaussian", "MixtureGaussian"]
