"""Displays: pictures of what a fit did and found."""

from skvrem.inspection._fits import ConvergenceDisplay, GradientVarianceDisplay
from skvrem.inspection._parts import (
    ComponentsDisplay,
    TopicsDisplay,
    TopicStabilityDisplay,
)
from skvrem.inspection._states import ResidualsDisplay, StatesDisplay, StationaryDisplay

__all__ = [
    "ComponentsDisplay",
    "ConvergenceDisplay",
    "GradientVarianceDisplay",
    "ResidualsDisplay",
    "StatesDisplay",
    "StationaryDisplay",
    "TopicStabilityDisplay",
    "TopicsDisplay",
]
