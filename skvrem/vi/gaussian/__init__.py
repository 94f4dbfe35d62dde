"""Gaussian posteriors of linear predictors: what Bayesian estimators build on."""
