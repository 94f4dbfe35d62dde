r"""Skills of items that meet in pairs: the bound, its curvature and its Newton steps.

The parameters :math:`\theta` are the skills and, where the first of a pair has an
advantage, that behind them. A pair's predictor :math:`u_p = x_p^T \theta` is a
difference of two skills, so that everything a step needs costs a few operations a pair,
and matches of one pair are counted once. The bound

.. math:: L(q) = \sum_p E_q \log p(y_p | u_p) - KL(q, p)

has no noise: expectations are quadratures in one dimension, however many items there
are. With the expected slopes g and curvatures h of the pairs under q and the prior's
precision :math:`P_0`, a step goes to

.. math:: \mu + \rho P^{-1} (X^T g - P_0 (\mu - \mu_0)), \qquad
          P = P_0 + X^T \mathrm{diag}(h) X,

and to the best covariance for the curvatures :math:`(1 - \rho) h_q + \rho h`, where
:math:`h_q` are those that the covariance of q is the best one for: a natural-gradient
step of size :math:`\rho`. A tie parameter has its part in the Newton step.
"""

from typing import Any, NamedTuple

import numpy as np

from skvrem.utils._parallel import parallel_map, row_chunks
from skvrem.vi.bradley_terry import _kernels as kernels
from skvrem.vi.bradley_terry._model_posterior import KINDS

__all__ = [
    "Expectation",
    "Pairs",
    "PairsModel",
    "Point",
    "hermite",
    "rule_for",
    "trapezoid",
]

# Pairs that a thread takes at a time.
CHUNK = 1 << 15
# Nodes by the largest standard deviation of a predictor up to which their probabilities
# err by less than 3e-6; the kernels do without nodes where it is larger than all.
NODES = ((1.2, 10), (1.8, 20), (np.inf, 40))
# Deviations that the trapezoidal rule spans on each side, and its most intervals.
SPAN, MOST_INTERVALS = 8.0, 4096


def hermite(largest_sd):
    """Return nodes and weights of a quadrature for the standard Gaussian.

    Parameters
    ----------
    largest_sd : float
        Of the predictors that the likelihood is a function of.
    """
    n_nodes = next(n for sd, n in NODES if largest_sd <= sd)
    nodes, weights = np.polynomial.hermite_e.hermegauss(n_nodes)
    return nodes, weights / weights.sum()


def trapezoid(largest_sd):
    """Return nodes and weights for smooth bounded functions, however wide the Gaussian.

    One node for each unit of the predictor: the outcomes of a match, whose poles are no
    nearer than pi to the real line, are integrated to 3e-9 where that varies by more
    than 2 or so.
    """
    n = min(int(2.0 * SPAN * largest_sd) + 1, MOST_INTERVALS)
    nodes = np.linspace(-SPAN, SPAN, n + 1)
    weights = np.exp(-0.5 * nodes**2)
    return nodes, weights / weights.sum()


def rule_for(largest_sd):
    """Return nodes and weights for probabilities of differences up to as wide."""
    rule = hermite if largest_sd <= kernels.MOST_SPREAD else trapezoid
    return rule(largest_sd)


class Pairs(NamedTuple):
    """Pairs of items, each with the counts (weights) of its results.

    Attributes
    ----------
    first, second : ndarray of shape (n_pairs,), int32
        Numbers of the items.
    home : int
        Number of the parameter that is the advantage of the first item, or -1.
    win, loss, tie : ndarray of shape (n_pairs,)
        Results of the first item.
    """

    first: np.ndarray
    second: np.ndarray
    home: int
    win: np.ndarray
    loss: np.ndarray
    tie: np.ndarray

    @property
    def index(self):
        """What says which parameters a pair has."""
        return self.first, self.second, self.home

    # A source of data with one block: full passes are all that a fit needs.

    total_weight = 1.0

    def chunks(self):
        """All pairs, at once."""
        return self

    def sum(self, function):
        """Return the function of all pairs."""
        return function(self)

    # Rows of the design X, two or three of whose entries are not zero

    def predictor(self, theta):
        """Return X theta (n_pairs,)."""
        out = np.empty(self.first.size)
        kernels.differences(*self.index, theta, out)
        return out

    def gather(self, value, n_dim):
        """Return X^T value (n_dim,)."""
        out = np.zeros(n_dim)
        kernels.add_rows(*self.index, value, -1.0, out)
        return out

    def curvature_diagonal(self, value, n_dim):
        """Return the diagonal (n_dim,) of X^T diag(value) X."""
        out = np.zeros(n_dim)
        kernels.add_rows(*self.index, value, 1.0, out)
        return out

    def curvature_times(self, value, theta):
        """Return X^T diag(value) X theta (n_dim,)."""
        out = np.zeros(theta.size)
        kernels.add_curvature_times(*self.index, value, theta, out)
        return out

    def curvature_matrix(self, value, n_dim):
        """Return X^T diag(value) X (n_dim, n_dim)."""
        out = np.zeros((n_dim, n_dim))
        kernels.add_curvature(*self.index, value, out)
        return out

    def variance(self, q):
        """Return the diagonal (n_pairs,) of X Sigma X^T, for a Gaussian q."""
        out = np.empty(self.first.size)
        if hasattr(q, "diagonal"):
            kernels.independent_variances(*self.index, q.diagonal, out)
            kernels.add_difference_norms(*self.index, q.factor, out)
        elif hasattr(q, "factor"):
            kernels.difference_variances(*self.index, q.covariance(), out)
        else:
            kernels.independent_variances(*self.index, q.variance, out)
        return out


class Expectation(NamedTuple):
    """Expectations under q: a sum over pairs, and one a pair.

    Attributes
    ----------
    objective : float
        Expected log-likelihood.
    slope, curvature : ndarray of shape (n_pairs,)
        First derivative by the predictor, and minus the second.
    cross : ndarray of shape (n_pairs,)
        Minus the second derivative by predictor and tie parameter.
    tie_slope, tie_curvature : float
        First derivative by the tie parameter, and minus the second.
    """

    objective: float
    slope: np.ndarray
    curvature: np.ndarray
    cross: np.ndarray
    tie_slope: float = 0.0
    tie_curvature: float = 0.0


class Point(NamedTuple):
    """Where a fit stands.

    Attributes
    ----------
    posterior : MeanField, FullRank or LowRank
        q
    eta : float
        Tie parameter.
    curvature : ndarray of shape (n_pairs,)
        The covariance of q is the best one for these curvatures of the pairs.
    variance : ndarray of shape (n_pairs,)
        Of the predictors under q.
    repaired : tuple
        Nothing here collapses.
    trials : int
        No step is infeasible.
    """

    posterior: Any
    eta: float
    curvature: np.ndarray
    variance: np.ndarray
    repaired: tuple = ()
    trials: int = 0


class Direction(NamedTuple):
    """Where a step from a point leads.

    Attributes
    ----------
    step : ndarray of shape (n_dim,)
        Of the mean.
    eta_step : float
    best : MeanField, FullRank or LowRank
        The posterior at the end of a whole step.
    variance : ndarray of shape (n_pairs,)
        Of the predictors there.
    predicted_gain : float
        What a whole step is about to gain.
    eta_precision : float
        Minus the second derivative of the bound by eta where the mean follows.
    """

    step: np.ndarray
    eta_step: float
    best: Any
    variance: np.ndarray
    predicted_gain: float
    eta_precision: float


class PairsModel:
    """Matches with a likelihood, skills with a Gaussian prior and posterior.

    Parameters
    ----------
    pairs : Pairs
    prior : MeanField, FullRank or LowRank
        Of all parameters.
    kind : {"meanfield", "fullrank", "lowrank"}
        Of the posterior.
    ties : {None, "davidson", "rao-kupper"}
    tie_prior : tuple (mean, precision)
        Of a Gaussian prior of the tie parameter; precision 0 is none.
    rank : int
        Of a low rank.
    """

    def __init__(self, pairs, prior, kind, ties=None, tie_prior=(0.0, 0.0), rank=0):
        self.pairs = pairs
        self.prior = prior
        self.kind = KINDS[kind](pairs, prior, rank)
        self.ties = ties
        self.eta_mean, self.eta_precision = tie_prior
        largest = np.sqrt(pairs.variance(prior).max(initial=0.0))
        self.nodes, self.weights = hermite(largest)
        self._directed = None, None, None

    def start(self, mean, eta):
        """Return the point with the curvature that the pairs have at the mean."""
        nothing = np.zeros(self.pairs.first.size)
        found = self.expectation(self.pairs.predictor(mean), nothing, eta)
        return self._point(self.kind.best(found.curvature).moved(mean), eta, found)

    def _point(self, posterior, eta, found):
        return Point(posterior, eta, found.curvature, self.pairs.variance(posterior))

    # Sums over pairs

    def statistics(self, point, batch, beta):
        """Return the expectations under q. There is nothing latent to temper."""
        mean = self.pairs.predictor(point.posterior.mean)
        return self.expectation(mean, point.variance, point.eta)

    def log_likelihood(self, theta, eta):
        """Return the log-likelihood of parameters (n_dim,), up to a constant."""
        nothing = np.zeros(self.pairs.first.size)
        u = self.pairs.predictor(theta)
        return self.expectation(u, nothing, eta, (np.zeros(1), np.ones(1))).objective

    def expectation(self, mean, variance, eta, rule=None):
        """Return the `Expectation` for Gaussian predictors.

        Parameters
        ----------
        mean, variance : ndarray of shape (n_pairs,)
        eta : float
            Tie parameter.
        rule : tuple (nodes, weights), default=None
            Of the quadrature; None is that of the prior.
        """
        pairs = self.pairs
        out = np.empty((3, mean.size))
        arguments = [mean, variance, pairs.win, pairs.loss]
        if self.ties is None:
            function, out = kernels.expect_no_ties, out[:2]
        else:
            arguments += [pairs.tie, eta]
            function = kernels.expect_davidson
            if self.ties == "rao-kupper":
                function = kernels.expect_rao_kupper
        arguments += rule or (self.nodes, self.weights)
        chunks = row_chunks(0, mean.size, CHUNK)
        parts = parallel_map(lambda rows: function(*arguments, *rows, *out), chunks)
        if self.ties is None:
            return Expectation(sum(parts), *out, np.empty(0))
        value, *by_eta = map(sum, zip(*parts, strict=True))
        return Expectation(value, *out, *by_eta)

    # What the solver asks for

    def objective(self, point, mean):
        """Return the evidence lower bound, in nats."""
        penalty = 0.5 * self.eta_precision * (point.eta - self.eta_mean) ** 2
        return mean.objective - point.posterior.kl(self.prior) - penalty

    def predicted_gain(self, point, mean):
        """Return what a step is about to gain, in nats."""
        return self.direction(point, mean).predicted_gain

    def update(self, point, mean, correction, step):
        """Return the point after a natural-gradient step of size `step`."""
        way = self.direction(point, mean)
        moved = point.posterior.mean + step * way.step
        eta = point.eta + step * way.eta_step
        if step == 1.0:
            best, curvature, variance = way.best, mean.curvature, way.variance
        else:
            curvature = point.curvature + step * (mean.curvature - point.curvature)
            best = self.kind.best(curvature)
            variance = self.pairs.variance(best)
        return Point(best.moved(moved), eta, curvature, variance)

    def recentre(self, point):
        """Return the point: there is no reference."""
        return point

    def reseed(self, point, data, rng):
        """Return the point: no part of it can collapse."""
        return point

    # Steps

    def direction(self, point, found):
        """Return the `Direction` of a point; that of the last one is kept."""
        if self._directed[0] is not point or self._directed[1] is not found:
            self._directed = point, found, self._direct(point, found)
        return self._directed[2]

    def _direct(self, point, found):
        q, curvature = point.posterior, found.curvature
        away = q.mean - self.prior.mean
        gather = self.pairs.gather
        gradient = gather(found.slope, away.size) - self.prior.precision_times(away)
        best = self.kind.best(curvature)
        step = self.kind.divide(curvature, gradient, best)
        eta_step = precision = slope = 0.0
        if self.ties is not None:
            mixed = gather(found.cross, away.size)
            follow = self.kind.divide(curvature, mixed, best)
            slope = found.tie_slope - self.eta_precision * (point.eta - self.eta_mean)
            precision = found.tie_curvature + self.eta_precision
            precision -= float(mixed @ follow)
            eta_step = (slope - float(mixed @ step)) / precision
            step = step - eta_step * follow
        variance = self.pairs.variance(best)
        # Of the mean; then of the covariance where the curvature stands still.
        predicted_gain = 0.5 * (float(gradient @ step) + slope * eta_step)
        trace = float(curvature @ (point.variance - variance))
        trace += self.prior.precision_trace(q) - self.prior.precision_trace(best)
        predicted_gain += 0.5 * (trace + best.log_determinant - q.log_determinant)
        return Direction(step, eta_step, best, variance, predicted_gain, precision)
