"""Latent Dirichlet allocation."""

from skvrem.lda._estimator import TemperedLDA

__all__ = ["TemperedLDA"]
