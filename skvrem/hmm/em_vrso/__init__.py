"""Stochastic M steps with variance reduction (Sidrow et al. 2023)."""
