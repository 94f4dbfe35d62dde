"""How states follow each other."""

from skvrem.hmm.transitions._covariates import Covariates
from skvrem.hmm.transitions._hierarchical import Hierarchical
from skvrem.hmm.transitions._homogeneous import Homogeneous

__all__ = ["Covariates", "Hierarchical", "Homogeneous"]
