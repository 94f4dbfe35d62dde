"""Displays: pictures of what a fit did and found; models side by side."""

from skvrem.inspection._comparison import compare_models
from skvrem.inspection._fits import ConvergenceDisplay, GradientVarianceDisplay
from skvrem.inspection._parts import (
    ComponentsDisplay,
    TopicsDisplay,
    TopicStabilityDisplay,
)
from skvrem.inspection._sequences import EmissionsDisplay, TrackDisplay
from skvrem.inspection._states import ResidualsDisplay, StatesDisplay, StationaryDisplay

__all__ = [
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
]
