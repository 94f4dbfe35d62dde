"""Probabilistic latent semantic analysis."""

from skvrem.topics.plsa._estimator import VRPLSA

__all__ = ["VRPLSA"]
