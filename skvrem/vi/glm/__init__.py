"""Bayesian generalised linear models."""

from skvrem.vi.glm._classifier import BayesianLogisticRegression
from skvrem.vi.glm._regressor import BayesianGLMRegressor

__all__ = ["BayesianGLMRegressor", "BayesianLogisticRegression"]
