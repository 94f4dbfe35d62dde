"""Families that are known by their densities, and regressions of them."""

from skvrem.hmm.emissions.densities._density import DensityEmission
from skvrem.hmm.emissions.densities._families import (
    NegativeBinomial,
    StudentT,
    Weibull,
    WrappedCauchy,
)
from skvrem.hmm.emissions.densities._regression import Regression

__all__ = [
    "DensityEmission",
    "NegativeBinomial",
    "Regression",
    "StudentT",
    "Weibull",
    "WrappedCauchy",
]
