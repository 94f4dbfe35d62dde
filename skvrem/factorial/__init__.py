"""Binary latent factors by annealed variational inference."""

from skvrem.factorial._estimator import FactorialMixture

__all__ = ["FactorialMixture"]
