"""Where pickles of fits with groups look for their posterior."""

from skvrem.vi.glm.groups._model_posterior import VaryingPosterior

__all__ = ["VaryingPosterior"]
