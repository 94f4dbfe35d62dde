"""Latent-variable and log-linear models, fitted by the solver that suits the data.

Every estimator follows scikit-learn's conventions. See the user guide for the
models, and :func:`skvrem.show_versions` for the state of an installation.
"""

__version__ = "0.1.0"

from skvrem.factorial import FactorialMixture
from skvrem.inspection import ComponentsDisplay, ConvergenceDisplay, TopicsDisplay
from skvrem.mixture import VRGaussianMixture
from skvrem.plsa import VRPLSA
from skvrem.utils import show_versions

__all__ = [
    "VRPLSA",
    "ComponentsDisplay",
    "ConvergenceDisplay",
    "FactorialMixture",
    "TopicsDisplay",
    "VRGaussianMixture",
    "show_versions",
]
