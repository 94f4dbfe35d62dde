"""Probabilistic principal components."""

from skvrem.vi.ppca._estimator import BayesianPPCA

__all__ = ["BayesianPPCA"]
