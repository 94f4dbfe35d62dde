"""Latent-variable and log-linear models, fitted by the solver that suits the data.

Every estimator follows scikit-learn's conventions. See the user guide for the
models, and :func:`skvrem.show_versions` for the state of an installation.
"""

__version__ = "0.1.0"

from skvrem.checkpoint import Checkpoint
from skvrem.factorial import FactorialMixture
from skvrem.hmm import VRHMM
from skvrem.inspection import (
    ComponentsDisplay,
    ConvergenceDisplay,
    EmissionsDisplay,
    GradientVarianceDisplay,
    ResidualsDisplay,
    StatesDisplay,
    StationaryDisplay,
    TopicsDisplay,
    TopicStabilityDisplay,
    TrackDisplay,
    compare_models,
)
from skvrem.linear import SBMLogisticRegression
from skvrem.mixture import VRGaussianMixture
from skvrem.topics import VRPLSA, TemperedLDA
from skvrem.utils import show_versions, warm_up
from skvrem.vi import (
    BayesianGLMRegressor,
    BayesianLogisticRegression,
    BayesianPPCA,
    BradleyTerry,
    GaussianDropoutClassifier,
    HierarchicalSoftmaxClassifier,
    VariationalInference,
)

__all__ = [  # noqa: RUF022, sorted as strings are
    "BayesianGLMRegressor",
    "BayesianLogisticRegression",
    "BayesianPPCA",
    "BradleyTerry",
    "Checkpoint",
    "ComponentsDisplay",
    "ConvergenceDisplay",
    "EmissionsDisplay",
    "FactorialMixture",
    "GaussianDropoutClassifier",
    "GradientVarianceDisplay",
    "HierarchicalSoftmaxClassifier",
    "ResidualsDisplay",
    "SBMLogisticRegression",
    "StatesDisplay",
    "StationaryDisplay",
    "TemperedLDA",
    "TopicStabilityDisplay",
    "TopicsDisplay",
    "TrackDisplay",
    "VRGaussianMixture",
    "VRHMM",
    "VRPLSA",
    "VariationalInference",
    "compare_models",
    "show_versions",
    "warm_up",
]
