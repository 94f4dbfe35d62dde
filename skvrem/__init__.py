"""Latent-variable and log-linear models, fitted by the solver that suits the data.

Every estimator follows scikit-learn's conventions. See the user guide for the
models, and :func:`skvrem.show_versions` for the state of an installation.

What a name needs is imported when the name is first used: to declare the kernels of all
models takes longer than to load scikit-learn's mixtures.
"""

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
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

_ROOM_OF = {
    name: room
    for room, names in {
        "checkpoint": ["Checkpoint"],
        "factorial": ["FactorialMixture"],
        "hmm": ["VRHMM"],
        "inspection": [
            "ComponentsDisplay",
            "ConvergenceDisplay",
            "EmissionsDisplay",
            "GradientVarianceDisplay",
            "ResidualsDisplay",
            "StatesDisplay",
            "StationaryDisplay",
            "TopicStabilityDisplay",
            "TopicsDisplay",
            "TrackDisplay",
            "compare_models",
        ],
        "linear": ["SBMLogisticRegression"],
        "mixture": ["VRGaussianMixture"],
        "topics": ["TemperedLDA", "VRPLSA"],
        "utils": ["show_versions", "warm_up"],
        "vi": [
            "BayesianGLMRegressor",
            "BayesianLogisticRegression",
            "BayesianPPCA",
            "BradleyTerry",
            "GaussianDropoutClassifier",
            "HierarchicalSoftmaxClassifier",
            "VariationalInference",
        ],
    }.items()
    for name in names
}
_ROOMS = {module.name for module in iter_modules(__path__)}


def __getattr__(name):
    if name in _ROOM_OF:
        found = getattr(import_module(f"{__name__}.{_ROOM_OF[name]}"), name)
    elif name in _ROOMS:
        found = import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found  # Python asks once
    return found


def __dir__():
    return sorted({*__all__, *_ROOMS, "__version__"})
