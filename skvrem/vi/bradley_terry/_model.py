r"""Skills of items that meet in matches: the bound, its curvature and its steps.

The parameters :math:`\theta` are the skills and, where being at home is an advantage,
that before them. A match's predictor :math:`u_m = x_m^T \theta` is a
difference of two skills, so that everything a step needs costs a few operations a
match, and matches of the same two items are counted together. The bound

.. math:: L(q) = \sum_m E_q \log p(y_m | u_m) - KL(q, p)

has no noise: expectations are quadratures in one dimension, however many items there
are. With the expected slopes g and curvatures h of the matches under q and the
prior's precision :math:`P_0`, a step goes to

.. math:: \mu + \rho P^{-1} (X^T g - P_0 (\mu - \mu_0)), \qquad
          P = P_0 + X^T \mathrm{diag}(h) X,

and to the best covariance for the curvatures :math:`(1 - \rho) h_q + \rho h`, where
:math:`h_q` are those that the covariance of q is the best one for: a natural-gradient
step of size :math:`\rho`. A tie parameter has its part in the Newton step.
"""

from copy import copy
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, softmax

from skvrem.utils._parallel import parallel_map, row_chunks
from skvrem.vi.bradley_terry import _kernels as kernels
from skvrem.vi.bradley_terry._model_posterior import KINDS
from skvrem.vi.gaussian._kernels import WIDEST, logistic_expectations
from skvrem.vi.gaussian._model import PlainModel
from skvrem.vi.gaussian._model_posterior import FullRank, LowRank

# Shortest step that directions of a low rank are found for.
LEAST_TURN = 0.2
# Matches that a thread takes at a time.
CHUNK = 1 << 13
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


def quadrature_for(largest_sd):
    """Return nodes and weights for probabilities of differences up to as wide."""
    rule = hermite if largest_sd <= WIDEST else trapezoid
    return rule(largest_sd)


class Matches(NamedTuple):
    """Matches, those of the same two items at the same place counted together.

    Attributes
    ----------
    first, second : ndarray of shape (n_matches,), int32
        Numbers of the parameters of the items.
    home : ndarray of shape (n_matches,), or (0,) where the parameter 0 is a skill
        What the advantage of being at home, the parameter 0, counts for the first
        item: 1, 0 on neutral ground, -1 where the second is at home.
    win, loss, tie : ndarray of shape (n_matches,)
        Counts (weights) of the results of the first item.
    """

    first: np.ndarray
    second: np.ndarray
    home: np.ndarray
    win: np.ndarray
    loss: np.ndarray
    tie: np.ndarray

    # Rows of the design X, two or three of whose entries are not zero

    def predictor(self, theta):
        """Return X theta (n_matches,)."""
        return kernels.differences(*self[:3], theta)

    def gather(self, value, n_dim):
        """Return X^T value (n_dim,)."""
        return kernels.gather(*self[:3], value, n_dim)

    def curvature_diagonal(self, value, n_dim):
        """Return the diagonal (n_dim,) of X^T diag(value) X."""
        return kernels.curvature_diagonal(*self[:3], value, n_dim)

    def curvature_times(self, value, theta):
        """Return X^T diag(value) X theta (n_dim,)."""
        return self.gather(value * self.predictor(theta), theta.size)

    def curvature_matrix(self, value, n_dim):
        """Return X^T diag(value) X (n_dim, n_dim)."""
        return kernels.curvature_matrix(*self[:3], value, n_dim)

    def variance(self, q):
        """Return the diagonal (n_matches,) of X Sigma X^T, for a Gaussian q."""
        if isinstance(q, FullRank):
            return kernels.full_variances(*self[:3], q.covariance())
        diagonal, factor = q.variance, np.empty((q.n_dim, 0))
        if isinstance(q, LowRank):
            diagonal, factor = q.diagonal, q.factor
        return kernels.low_rank_variances(*self[:3], diagonal, factor)


class Expectation(NamedTuple):
    """Expectations under q: sums over all matches, and numbers of each.

    Attributes
    ----------
    objective : float
        Expected log-likelihood.
    slope, curvature : ndarray of shape (n_matches,)
        First derivative by the predictor, and minus the second.
    cross : ndarray of shape (n_matches,)
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


# Functions of a likelihood fill slope, curvature and cross (m,) of an `Expectation` for
# some matches, and return its three numbers.


def expect_no_ties(win, loss, tie, mean, variance, eta, rule, slope, curvature, cross):
    """Expectations of wins and losses (Bradley and Terry 1952)."""
    n = win + loss
    row = mean, variance, win / n, n
    return -logistic_expectations(*row, *rule, slope, curvature), 0.0, 0.0


def expect_rao_kupper(
    win, loss, tie, mean, variance, eta, rule, slope, curvature, cross
):
    """Expectations with the ties of Rao and Kupper (1967), whose theta is exp(t).

    A tie is a win and a loss for each: with s(u) = log(1 + exp(u)) and t = s(eta) / 2
    the log-likelihood is tie eta - (win + tie) s(t - u) - (loss + tie) s(t + u).
    """
    t, share, never = 0.5 * np.logaddexp(0.0, eta), expit(eta), np.zeros(mean.size)
    by_t, by_t_twice = 0.5 * share, 0.5 * share * (1.0 - share)
    down, bend = np.empty((2, mean.size))
    low, high = (
        logistic_expectations(at, variance, never, weight, *rule, *out)
        for at, weight, *out in (
            (t - mean, win + tie, down, bend),
            (t + mean, loss + tie, slope, curvature),
        )
    )
    np.multiply(by_t, curvature - bend, out=cross)
    ties, pull = tie.sum(), down.sum() + slope.sum()
    slope -= down
    curvature += bend
    by_eta_twice = by_t**2 * curvature.sum() - by_t_twice * pull
    return eta * ties - low - high, ties + by_t * pull, by_eta_twice


EXPECTATIONS = {
    None: expect_no_ties,
    "davidson": kernels.expect_davidson,
    "rao-kupper": expect_rao_kupper,
}


def outcomes(ties, u, eta):
    """Return the probabilities (..., n_classes) of results for predictors u (...)."""
    if ties == "davidson":
        logits = np.stack([-0.5 * u, np.full_like(u, eta), 0.5 * u], axis=-1)
        return softmax(logits, axis=-1)
    t = 0.5 * np.logaddexp(0.0, eta) if ties else 0.0
    loss, win = expit(-u - t), expit(u - t)
    if ties is None:
        return np.stack([loss, win], axis=-1)
    return np.stack([loss, np.exp(eta) * win * loss, win], axis=-1)


class Point(NamedTuple):
    """Where a fit stands.

    Attributes
    ----------
    posterior : MeanField, FullRank or LowRank
        q
    eta : float
        Tie parameter.
    curvature : ndarray of shape (n_matches,)
        The covariance of q is the best one for these curvatures of the matches.
    variance : ndarray of shape (n_matches,)
        Of the predictors under q.
    diagonal : ndarray of shape (n_dim,) or None
        Of the next covariance, where that is of low rank.
    repaired : tuple
        Nothing here collapses.
    trials : int
        No step is infeasible.
    """

    posterior: Any
    eta: float
    curvature: np.ndarray
    variance: np.ndarray
    diagonal: Any = None
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
    variance : ndarray of shape (n_matches,)
        Of the predictors there.
    diagonal : ndarray of shape (n_dim,) or None
        As that of the point there.
    predicted_gain : float
        What a whole step is about to gain.
    eta_precision : float
        Minus the second derivative of the bound by eta where the mean follows.
    """

    step: np.ndarray
    eta_step: float
    best: Any
    variance: np.ndarray
    diagonal: Any
    predicted_gain: float
    eta_precision: float


class SkillModel(PlainModel):
    """Matches with a likelihood, skills with a Gaussian prior and posterior.

    Parameters
    ----------
    matches : Matches
    prior : MeanField, FullRank or LowRank
        Of all parameters.
    kind : {"meanfield", "fullrank", "lowrank"}
        Of the posterior.
    ties : {None, "davidson", "rao-kupper"}
    tie_prior : tuple (mean, precision)
        Of a Gaussian prior of the tie parameter, the logarithm of nu with "davidson"
        and of theta^2 - 1 with "rao-kupper"; precision 0 is none.
    rank : int
        Of a low rank.
    """

    def __init__(self, matches, prior, kind, ties=None, tie_prior=(0.0, 0.0), rank=0):
        self.matches = matches
        self.kind = KINDS[kind](matches, prior, rank)
        self.ties = ties
        self.eta_mean, self.eta_precision = tie_prior
        self._set_prior(prior)

    @property
    def n_others(self):
        """Parameters before the skills: one where there is an advantage."""
        return int(self.matches.home.size > 0)

    def _set_prior(self, prior):
        self.prior = prior
        #: Nodes and weights of the quadrature.
        self.rule = hermite(np.sqrt(self.matches.variance(prior).max(initial=0.0)))
        self._directed = None, None, None

    def changed(self, prior):
        """Return the model with another prior."""
        other = copy(self)
        other.kind = type(self.kind)(self.matches, prior, self.kind.rank)
        other._set_prior(prior)
        return other

    def start(self, mean, eta):
        """Return the point with the curvature that the matches have at the mean."""
        return self._best(mean, eta, self._at(mean, eta).curvature)

    def adopt(self, point):
        """Return the point of a model of the same matches with another prior."""
        return self._best(point.posterior.mean, *point[1:3], point.diagonal)

    def _best(self, mean, eta, curvature, diagonal=None):
        best, diagonal = self.kind.best(curvature, diagonal)
        variance = self.matches.variance(best)
        return Point(best.moved(mean), eta, curvature, variance, diagonal)

    # Sums over matches

    def statistics(self, point, batch, beta):
        """Return the expectations under q. There is nothing latent to temper."""
        mean = self.matches.predictor(point.posterior.mean)
        return self.expectation(mean, point.variance, point.eta)

    def log_likelihood(self, theta, eta):
        """Return the log-likelihood of parameters (n_dim,), up to a constant."""
        return self._at(theta, eta).objective

    def _at(self, theta, eta):
        """Return the `Expectation` for parameters without uncertainty."""
        u = self.matches.predictor(theta)
        return self.expectation(u, np.zeros(u.size), eta, (np.zeros(1), np.ones(1)))

    def expectation(self, mean, variance, eta, rule=None):
        """Return the `Expectation` for Gaussian predictors.

        Parameters
        ----------
        mean, variance : ndarray of shape (n_matches,)
        eta : float
            Tie parameter.
        rule : tuple (nodes, weights), default=None
            Of the quadrature; None is that of the prior.
        """
        out = np.zeros((3, mean.size))
        each = *self.matches[3:], mean, variance

        def evaluate(rows):
            rows = slice(*rows)
            some = (part[rows] for part in each)
            return EXPECTATIONS[self.ties](*some, eta, rule or self.rule, *out[:, rows])

        chunks = row_chunks(0, mean.size, CHUNK)
        value, *by_eta = map(sum, zip(*parallel_map(evaluate, chunks), strict=True))
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
            best, curvature = way.best.moved(moved), mean.curvature
            return Point(best, eta, curvature, way.variance, way.diagonal)
        if isinstance(point.posterior, LowRank) and step < LEAST_TURN:
            # Found anew for every short step that is tried, directions cost most of a
            # fit, and near its end they err by more than a step gains.
            return point._replace(posterior=point.posterior.moved(moved), eta=eta)
        curvature = point.curvature + step * (mean.curvature - point.curvature)
        return self._best(moved, eta, curvature, point.diagonal)

    # Steps

    def direction(self, point, found):
        """Return the `Direction` of a point; that of the last one is kept."""
        if self._directed[0] is not point or self._directed[1] is not found:
            self._directed = point, found, self._direct(point, found)
        return self._directed[2]

    def _direct(self, point, found):
        q, curvature = point.posterior, found.curvature
        away = q.mean - self.prior.mean
        gather = self.matches.gather
        gradient = gather(found.slope, away.size) - self.prior.precision_times(away)
        best, diagonal = self.kind.best(curvature, point.diagonal)
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
        variance = self.matches.variance(best)
        # Of the mean; then of the covariance where the curvature stands still.
        predicted_gain = 0.5 * (float(gradient @ step) + slope * eta_step)
        trace = float(curvature @ (point.variance - variance))
        trace += self.prior.precision_trace(q) - self.prior.precision_trace(best)
        predicted_gain += 0.5 * (trace + best.log_determinant - q.log_determinant)
        gain = predicted_gain, precision
        return Direction(step, eta_step, best, variance, diagonal, *gain)
