"""The noise of real numbers as targets, by the evidence."""

from functools import partial

import numpy as np
from scipy.linalg import solve_triangular

from skvrem.data import column_moments
from skvrem.vi.gaussian._model import Full, GaussianModel, Point
from skvrem.vi.gaussian._model_families import GaussianNoise

# Rounds in which the noise is learnt, and the relative change that ends them.
NOISE_ROUNDS, NOISE_CHANGE = 500, 1e-6
# Of the targets' root mean square the noise is at least this share.
LEAST_NOISE = 1e-3
# Where the curvature of the evidence is taken, and the fewest degrees of freedom: below
# 2 there would be no standard deviation.
TAU_STEP, LEAST_DF = 1e-2, 3.0


def mean_square(data, targets):
    """Return that of the targets of a source, whose batches may bring them."""
    if data.remote:
        moments = column_moments(data, targets=True).weighted
        square = moments.square[-1] / moments.weight + np.square(moments.mean[-1])
        return float(square)
    weight = data.weight if data.weight.size else None
    return float(np.average(np.square(targets), weights=weight))


def noise_of_rows(data, y, prior, fit_intercept):
    r"""Return the variance of the largest evidence, and its degrees of freedom.

    By EM on the sums over rows, along axes where prior and rows are diagonal. With
    :math:`\tau = \log \sigma^2`, an inverse chi-square of n degrees of freedom,
    the posterior of a normal's variance, has the curvature n / 2 at its top; here
    they are those of the evidence, whose rows have been used up by coefficients.
    """
    model = GaussianModel(
        GaussianNoise(1.0), y, prior, data.total_weight, fit_intercept, "full"
    )
    p = prior.n_dim
    origin = Point(Full(prior.mean[:, None], np.zeros((p, p)), np.eye(p)))
    sums = data.chunks().sum(partial(model.statistics, origin, beta=1.0))
    root = np.linalg.cholesky(prior.precision)
    half = solve_triangular(root, sums.curvature, lower=True)
    strength, axes = np.linalg.eigh(solve_triangular(root, half.T, lower=True))
    strength = np.maximum(strength, 0.0)
    cross = axes.T @ solve_triangular(root, sums.gradient[:, 0], lower=True)
    # The log-likelihood with noise 1 is -|y - X mu|^2 / 2 and a constant.
    n = data.total_weight
    of_targets = square = mean_square(data, y)
    if prior.mean.any():
        square = max(0.0, -2.0 * float(sums.objective) / n - np.log(2.0 * np.pi))
    # Rows that fit exactly, or are all zero, would leave no noise at all.
    least = LEAST_NOISE**2 * (of_targets or 1.0)
    variance = max(square, least)
    for _ in range(NOISE_ROUNDS):
        mean = cross / (strength + variance)
        fit = strength * mean**2 - 2.0 * mean * cross
        fit += strength * variance / (strength + variance)
        last, variance = variance, square + float(fit.sum()) / n
        variance = max(variance, least)
        if abs(variance - last) < NOISE_CHANGE * last:
            break

    def evidence(tau):
        v = np.exp(tau)
        left = n * square / v - float((cross**2 / (v * (strength + v))).sum())
        return -0.5 * (n * tau + float(np.log1p(strength / v).sum()) + left)

    tau = np.log(variance)
    near = [evidence(tau + change) for change in (-TAU_STEP, 0.0, TAU_STEP)]
    df = 2.0 * (2.0 * near[1] - near[0] - near[2]) / TAU_STEP**2
    return variance, float(max(df, LEAST_DF))
