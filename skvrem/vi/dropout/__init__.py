"""Networks with Gaussian dropout."""

from skvrem.vi.dropout._estimator import GaussianDropoutClassifier

__all__ = ["GaussianDropoutClassifier"]
