"""Bayesian models by variational inference."""

from skvrem.vi._classifier import BayesianLogisticRegression

__all__ = ["BayesianLogisticRegression"]
