"""Posteriors of a user's own model."""

from skvrem.vi.blackbox._estimator import VariationalInference
from skvrem.vi.blackbox._jax import JaxModel

__all__ = ["JaxModel", "VariationalInference"]
