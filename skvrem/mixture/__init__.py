"""Gaussian mixtures."""

from skvrem.mixture._estimator import VRGaussianMixture
from skvrem.mixture._inference import ConditionalGaussian

__all__ = ["ConditionalGaussian", "VRGaussianMixture"]
