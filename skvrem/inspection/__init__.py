"""Displays: pictures of what a fit did and found."""

from skvrem.inspection._components import ComponentsDisplay
from skvrem.inspection._convergence import ConvergenceDisplay
from skvrem.inspection._gradients import GradientVarianceDisplay
from skvrem.inspection._states import ResidualsDisplay, StatesDisplay
from skvrem.inspection._topics import TopicsDisplay

__all__ = [
    "ComponentsDisplay",
    "ConvergenceDisplay",
    "GradientVarianceDisplay",
    "ResidualsDisplay",
    "StatesDisplay",
    "TopicsDisplay",
]
