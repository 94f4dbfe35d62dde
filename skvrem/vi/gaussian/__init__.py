"""Gaussian posteriors of linear predictors: what Bayesian estimators build on."""

from skvrem.vi.gaussian._minibatch import MinibatchSteps

__all__ = ["MinibatchSteps"]
