"""Softmax regression with coefficients by group."""

from skvrem.vi.hierarchical._estimator import HierarchicalSoftmaxClassifier

__all__ = ["HierarchicalSoftmaxClassifier"]
