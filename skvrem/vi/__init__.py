"""Bayesian models by variational inference."""

__all__ = []
