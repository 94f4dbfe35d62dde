"""Bayesian models by variational inference."""

from skvrem.vi._bradley_terry import BradleyTerry

__all__ = ["BradleyTerry"]
