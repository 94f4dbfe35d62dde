"""Emissions of positive numbers and of angles."""

from skvrem.hmm.emissions.continuous._angles import VonMises
from skvrem.hmm.emissions.continuous._positive import Exponential, Gamma, LogNormal

__all__ = ["Exponential", "Gamma", "LogNormal", "VonMises"]
