"""Emission families that are not linear in products of columns, and one that is."""

import numpy as np
from scipy import stats

from skvrem.hmm import DensityEmission, Emission


class Exponential(Emission):
    """With nothing in closed form but what a family must define."""

    parameter_scales = {"rate": "positive"}

    def __init__(self, rate=None):
        self.rate = rate

    def sufficient(self, X):
        return X

    def theta(self, parameters):
        return np.hstack([np.log(parameters), -parameters])

    def draw(self, parameters, states, rng):
        return rng.exponential(1.0 / parameters[states])


class Normal(DensityEmission):
    """What `Gaussian` knows in closed form."""

    parameter_scales = {"mean": "location", "sd": "positive"}

    def __init__(self, mean=None, sd=None, mean_init=None):
        self.mean = mean
        self.sd = sd
        self.mean_init = mean_init

    def log_density(self, x, mean, sd):
        return stats.norm.logpdf(x, mean, sd)

    def sample(self, rng, mean, sd):
        return rng.normal(mean, sd)


class StudentT(DensityEmission):
    parameter_scales = {"location": "location", "scale": "positive", "df": "positive"}

    def log_density(self, x, location, scale, df):
        return stats.t.logpdf(x, df, location, scale)

    def sample(self, rng, location, scale, df):
        return location + scale * rng.standard_t(df)

    def cdf(self, x, location, scale, df):
        return stats.t.cdf(x, df, location, scale)


class NegativeBinomial(DensityEmission):
    parameter_scales = {"mean": "positive", "size": "positive"}
    discrete = True

    def check(self, X):
        self._reject(X, ~(np.isnan(X) | (X >= 0) & (X % 1 == 0)), "counts 0, 1, 2, ...")

    def log_density(self, x, mean, size):
        return stats.nbinom.logpmf(x, size, size / (size + mean))

    def sample(self, rng, mean, size):
        return rng.negative_binomial(size, size / (size + mean))

    def cdf(self, x, mean, size):
        return stats.nbinom.cdf(x, size, size / (size + mean))


class Weibull(DensityEmission):
    parameter_scales = {"scale": "positive", "shape": "positive"}

    def log_density(self, x, scale, shape):
        return stats.weibull_min.logpdf(x, shape, scale=scale)

    def sample(self, rng, scale, shape):
        return scale * rng.weibull(shape)

    def start_columns(self, X):
        return np.log(super().start_columns(X))
