"""Logistic regression by bound majorization, and the bound itself."""

from skvrem.linear._bound import PartitionBound, bound
from skvrem.linear._estimator import SBMLogisticRegression

__all__ = ["PartitionBound", "SBMLogisticRegression", "bound"]
