"""Bayesian models by variational inference."""

from skvrem.vi._bradley_terry import BradleyTerry
from skvrem.vi._classifier import BayesianLogisticRegression
from skvrem.vi._dropout import GaussianDropoutClassifier
from skvrem.vi._hierarchical import HierarchicalSoftmaxClassifier
from skvrem.vi._jax import JaxModel
from skvrem.vi._own import VariationalInference
from skvrem.vi._ppca import BayesianPPCA
from skvrem.vi._regressor import BayesianGLMRegressor

__all__ = [
    "BayesianGLMRegressor",
    "BayesianLogisticRegression",
    "BayesianPPCA",
    "BradleyTerry",
    "GaussianDropoutClassifier",
    "HierarchicalSoftmaxClassifier",
    "JaxModel",
    "VariationalInference",
]
