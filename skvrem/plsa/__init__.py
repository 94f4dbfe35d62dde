"""Probabilistic latent semantic analysis."""

from skvrem.plsa._estimator import VRPLSA

__all__ = ["VRPLSA"]
