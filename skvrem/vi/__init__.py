"""Bayesian models by variational inference."""

from skvrem.vi.blackbox import JaxModel, VariationalInference
from skvrem.vi.bradley_terry import BradleyTerry
from skvrem.vi.dropout import GaussianDropoutClassifier
from skvrem.vi.gaussian import MinibatchSteps
from skvrem.vi.glm import BayesianGLMRegressor, BayesianLogisticRegression
from skvrem.vi.hierarchical import HierarchicalSoftmaxClassifier
from skvrem.vi.ppca import BayesianPPCA

__all__ = [
    "BayesianGLMRegressor",
    "BayesianLogisticRegression",
    "BayesianPPCA",
    "BradleyTerry",
    "GaussianDropoutClassifier",
    "HierarchicalSoftmaxClassifier",
    "JaxModel",
    "MinibatchSteps",
    "VariationalInference",
]
