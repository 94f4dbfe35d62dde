"""Bayesian models by variational inference."""

from skvrem.vi._bradley_terry import BradleyTerry
from skvrem.vi._ppca import BayesianPPCA

__all__ = ["BayesianPPCA", "BradleyTerry"]
