"""Latent Dirichlet allocation."""

from skvrem.topics.lda._estimator import TemperedLDA

__all__ = ["TemperedLDA"]
