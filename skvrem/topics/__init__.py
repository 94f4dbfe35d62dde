"""Topic models."""

from skvrem.topics.lda import TemperedLDA
from skvrem.topics.plsa import VRPLSA

__all__ = ["VRPLSA", "TemperedLDA"]
