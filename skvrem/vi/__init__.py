"""Bayesian models by variational inference."""

from skvrem.vi._classifier import BayesianLogisticRegression
from skvrem.vi._regressor import BayesianGLMRegressor

__all__ = ["BayesianGLMRegressor", "BayesianLogisticRegression"]
