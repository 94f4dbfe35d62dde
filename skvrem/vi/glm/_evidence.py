"""What the evidence says of the noise of targets, and of the width of a prior."""

from copy import copy
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

from skvrem.data import column_moments
from skvrem.vi.gaussian._model import Full, GaussianModel, Point
from skvrem.vi.gaussian._model_families import GaussianNoise

# Rounds in which the noise is learnt, and the relative change that ends them.
NOISE_ROUNDS, NOISE_CHANGE = 500, 1e-6
# Of the targets' standard deviation the noise is at least this share. Of constant ones,
# whose variance is rounding, it is that of their mean.
LEAST_NOISE, ROUNDING = 1e-3, 1e-20
# Fewest degrees of freedom: below 2 there would be no standard deviation.
LEAST_DF = 3.0
# Widths of a prior, in its units, between which the best is looked for, and the step of
# the logarithm by which the curvature there is taken.
WIDTHS, STEP = np.geomspace(1e-3, 1e3, 13), 1e-2


def mean_variance(data, targets):
    """Return those of the targets of a source, whose batches may bring them."""
    if data.remote:
        moments = column_moments(data, targets=True).weighted
        return moments.mean[-1], moments.square[-1] / moments.weight
    weight = data.weight if data.weight.size else None
    mean = np.average(targets, weights=weight)
    return mean, np.average(np.square(targets - mean), weights=weight)


def least_noise(mean, variance):
    """Return the least variance of the noise, of targets that differ or are constant.

    Where they lie far from zero, as years do, that says nothing of the noise.
    """
    if variance <= ROUNDING * mean**2:
        variance = mean**2 or 1.0
    return float(LEAST_NOISE**2 * variance)


class Squares(NamedTuple):
    """Sums over rows about the mean of a prior, with noise 1.

    Attributes
    ----------
    n : float
        Weight of the rows.
    square : float
        Mean square of what the prior's mean leaves of the targets.
    least : float
        Variance that the noise has at least: rows that fit exactly, or are all zero,
        would leave none.
    gradient, curvature : ndarray of shape (p,), (p, p)
    """

    n: float
    square: float
    least: float
    gradient: np.ndarray
    curvature: np.ndarray

    def without_intercept(self):
        """Return the sums about the best intercept, the last of the coefficients.

        It is averaged over, with nothing known of it before, and uses up a row.
        """
        C, g = self.curvature, self.gradient
        own = C[:-1, -1] / C[-1, -1]
        n = max(self.n - 1.0, 0.5 * self.n)
        left = max(0.0, self.n * self.square - g[-1] ** 2 / C[-1, -1])
        about = g[:-1] - own * g[-1], C[:-1, :-1] - np.outer(own, C[-1, :-1])
        return Squares(n, left / n, self.least, *about)


def squares_of(data, y, prior, fit_intercept):
    """Return the sums over the rows of a source, y None where batches bring theirs."""
    n, p, least = data.total_weight, prior.n_dim, least_noise(*mean_variance(data, y))
    # By a noise of the targets' own size no digit of their squares is lost.
    unit = least / LEAST_NOISE**2
    model = GaussianModel(GaussianNoise(unit), y, prior, n, fit_intercept, "full")
    origin = Point(Full(prior.mean[:, None], np.zeros((p, p)), np.eye(p)))
    sums = data.chunks().sum(partial(model.statistics, origin, beta=1.0))
    # The log-likelihood is -|y - X mu|^2 / 2 over the noise, and a constant.
    square = -2.0 * float(sums.objective) / n - np.log(2.0 * np.pi * unit)
    square, gradient = unit * max(0.0, square), unit * sums.gradient[:, 0]
    return Squares(n, square, least, gradient, unit * sums.curvature)


class Evidence:
    r"""The evidence of real numbers as targets, by noise and width of the prior.

    Along axes where prior and rows are diagonal. With :math:`\tau = \log \sigma^2`, an
    inverse chi-square of n degrees of freedom, the posterior of a normal's variance,
    has the curvature n / 2 at its top; degrees of freedom are those of the evidence,
    whose rows have been used up by coefficients.

    The axes are those of rows and prior together, with noise as wide as the targets:
    one that the prior leaves open, as that of an intercept may be, takes no digits from
    the others then.

    Parameters
    ----------
    sums : Squares
    precision : ndarray of shape (p, p)
        Of the prior.
    """

    def __init__(self, sums, precision):
        self.n, self.square, self.least = sums.n, sums.square, sums.least
        noise = sums.least / LEAST_NOISE**2
        both = sums.curvature + noise * precision
        with np.errstate(invalid="ignore"):  # of rounding alone: refused below
            unit = 1.0 / np.sqrt(both.diagonal())
        size, axes = np.linalg.eigh(unit[:, None] * both * unit)
        told = size > len(size) * np.finfo(float).eps * size[-1]
        white = unit[:, None] * axes[:, told] / np.sqrt(size[told])
        rows, axes = np.linalg.eigh(white.T @ sums.curvature @ white)
        #: Precisions times the noise, by rows and, of noise 1, by the prior.
        self.rows = np.clip(rows, 0.0, 1.0)
        self.prior = np.maximum(1.0 - self.rows, np.finfo(float).eps) / noise
        self.cross = axes.T @ (white.T @ sums.gradient)

    def widened(self, times):
        """Return the evidence with a prior that is so many times as wide."""
        wider = copy(self)
        wider.prior = self.prior / times**2
        return wider

    def noise(self):
        """Return the variance of the noise that is most likely, by EM."""
        variance = max(self.square, self.least)
        for _ in range(NOISE_ROUNDS):
            of_axes = self.rows + self.prior * variance
            mean = self.cross / of_axes
            fit = self.rows * (mean**2 + variance / of_axes) - 2.0 * mean * self.cross
            last, variance = variance, self.square + float(fit.sum()) / self.n
            variance = max(variance, self.least)
            if abs(variance - last) < NOISE_CHANGE * last:
                break
        return variance

    def at(self, variance):
        """Return the logarithm of the evidence, but for a constant."""
        of_axes = self.rows + self.prior * variance
        left = self.n * self.square - float((self.cross**2 / of_axes).sum())
        spread = float(np.log(of_axes / (self.prior * variance)).sum())
        return -0.5 * (self.n * np.log(variance) + spread + left / variance)

    def freedom(self, variance):
        """Return the degrees of freedom of the noise: twice the curvature by tau."""
        of_axes = self.rows + self.prior * variance
        open_, fit = self.prior * variance / of_axes, self.cross**2 / of_axes
        fit *= 1.0 + open_ + 2.0 * open_**2
        left = self.n * self.square - float(fit.sum())
        used = float((open_ * self.rows / of_axes).sum())
        return float(max(left / variance + used, LEAST_DF))

    def width(self, unit, variance=None):
        """Return how wide a prior is most likely, and what is known of that.

        Its width in units has a prior of its own, a log-normal one of median one and
        spread one: where there is nothing to find it does not shrink to nothing.

        Parameters
        ----------
        unit : float
            Width of the prior as it is.
        variance : float, default=None
            Of a noise that is known.

        Returns
        -------
        log_width, curvature : float
            The logarithm of the width, and the curvature of minus its log density.
        """

        def near(log_width):
            wider = self.widened(np.exp(log_width) / unit)
            return wider, wider.noise() if variance is None else variance

        def loss(log_width):
            wider, noise = near(log_width)
            return 0.5 * log_width**2 - wider.at(noise)

        def slope(log_width):  # the noise is the best one: it adds nothing
            wider, noise = near(log_width)
            of_axes = wider.rows + wider.prior * noise
            change = wider.rows - wider.prior * wider.cross**2 / of_axes
            return log_width + float((change / of_axes).sum())

        grid = np.log(WIDTHS)
        i = int(np.argmin([loss(x) for x in grid]))
        low, high = grid[max(0, i - 1)], grid[min(i + 1, len(grid) - 1)]
        best = grid[i]
        if slope(low) < 0.0 < slope(high):
            best = brentq(slope, low, high)
        curvature = (slope(best + STEP) - slope(best - STEP)) / (2.0 * STEP)
        return float(best), max(float(curvature), 1.0)
