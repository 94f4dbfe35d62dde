"""Gaussian mixtures."""

from skvrem.mixture._description import ConditionalGaussian
from skvrem.mixture._estimator import VRGaussianMixture

__all__ = ["ConditionalGaussian", "VRGaussianMixture"]
