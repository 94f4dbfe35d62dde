r"""The best Gaussian posterior of skills, by Newton steps on the exact bound.

The bound :math:`\sum_p E \log p(y_p | u_p) - KL(q | p)` has no noise: expectations are
quadratures in one dimension, however many skills there are. With the expected slopes g
and curvatures h of the pairs under q, a step goes to

.. math:: \mu + \rho P^{-1} (X^T g - P_0 (\mu - \mu_0)), \qquad
          \text{the best covariance for } (1 - \rho) h_q + \rho h,

P as in ``_pairs_posterior``: a natural-gradient step of size :math:`\rho`, which is
halved until the bound rises. A tie parameter is part of the Newton step.
"""

import math
import time
from typing import Any, NamedTuple

import numpy as np

from skvrem.solvers._run import Epoch
from skvrem.vi._pairs_posterior import KINDS

__all__ = ["PairsFit", "fit_pairs"]

# Steps are halved so often at most, and the bound must rise by this share of the slope.
HALVINGS, SUFFICIENT = 20, 1e-4
# Where the fit by independent skills, the start of the others, ends.
ROUGH = 1.0


class PairsFit(NamedTuple):
    """What a fit came to.

    Attributes
    ----------
    posterior : MeanField, FullRank or LowRank
    eta, eta_precision : float
        Tie parameter, and minus the second derivative of the bound by it where the
        means follow.
    bound : float
        ELBO in nats.
    n_iter : int
    converged, stopped : bool
    gain : float
        What was left to gain.
    history : list of Epoch
    gains : list of float
        What was left to gain by iteration.
    """

    posterior: Any
    eta: float
    eta_precision: float
    bound: float
    n_iter: int
    converged: bool
    stopped: bool
    gain: float
    history: list
    gains: list


class _State(NamedTuple):
    """A point and all that is known there."""

    posterior: Any
    eta: float
    curvature: np.ndarray  # of which the posterior's covariance is the best one
    variance: np.ndarray
    expectation: Any
    bound: float


class _Bound:
    """The bound and its Newton steps, for one kind of posterior."""

    def __init__(self, kind, model, prior, rank, tie_prior):
        self.kind = KINDS[kind](model, prior, rank)
        self.model = model
        self.prior = prior
        self.eta_mean, self.eta_precision = tie_prior
        self.passes = 0

    def state(self, posterior, eta, curvature):
        """Evaluate the bound at a point: a pass over the pairs."""
        variance = self.kind.predictor_variance(posterior)
        mean = self.model.predictor(posterior.mean)
        expectation = self.model.expectation(mean, variance, eta)
        self.passes += 1
        penalty = 0.5 * self.eta_precision * (eta - self.eta_mean) ** 2
        bound = expectation.value - posterior.kl(self.prior) - penalty
        return _State(posterior, eta, curvature, variance, expectation, bound)

    def direction(self, state):
        """Return steps of the means and of eta, the slope along them, and more.

        Returns
        -------
        step : ndarray of shape (d,)
        eta_step, slope : float
        eta_precision : float
            Minus the second derivative by eta where the means follow.
        """
        found, mean = state.expectation, state.posterior.mean
        pull = self.prior.precision_times(mean - self.prior.mean)
        gradient = self.model.gather(found.slope) - pull
        best = self.kind.best(mean, found.curvature)
        step = self.kind.divide(found.curvature, gradient, best)
        if self.model.ties is None:
            return step, 0.0, float(gradient @ step), 0.0, best
        mixed = self.model.gather(found.cross)
        follow = self.kind.divide(found.curvature, mixed, best)
        slope = found.tie_slope - self.eta_precision * (state.eta - self.eta_mean)
        precision = found.tie_curvature + self.eta_precision - float(mixed @ follow)
        eta_step = (slope - float(mixed @ step)) / precision
        step = step - eta_step * follow
        total = float(gradient @ step) + slope * eta_step
        return step, eta_step, total, precision, best

    def spread_gain(self, state, best):
        """Return what a better covariance gains where the curvature stands still."""
        curvature = state.expectation.curvature
        variance = self.kind.predictor_variance(best)
        q = state.posterior
        trace = float(curvature @ (state.variance - variance))
        trace += self.prior.precision_trace(q) - self.prior.precision_trace(best)
        return 0.5 * (trace + best.log_determinant - q.log_determinant)

    def advance(self, state, step, eta_step, slope):
        """Return the state after the longest step of which the bound rises, and rho."""
        rho = 1.0
        before, after = state.curvature, state.expectation.curvature
        slack = 1e-13 * abs(state.bound)
        for _ in range(HALVINGS):
            curvature = before + rho * (after - before)
            mean = state.posterior.mean + rho * step
            posterior = self.kind.best(mean, curvature)
            new = self.state(posterior, state.eta + rho * eta_step, curvature)
            if new.bound >= state.bound + SUFFICIENT * rho * slope - slack:
                return new, rho
            rho *= 0.5
        return state, 0.0


def fit_pairs(
    model, prior, start, kind, *, rank, tie_prior, tol, max_iter, n_units, report=None
):
    """Fit the posterior of one kind.

    Parameters
    ----------
    model : PairsModel
    prior : MeanField, FullRank or LowRank
    start : tuple (mean, eta)
        Where to begin.
    kind : {"meanfield", "fullrank", "lowrank"}
    rank : int
        Of a low rank.
    tie_prior : tuple (mean, precision)
        Of a Gaussian prior of the tie parameter; precision 0 is none.
    tol : float
        Converged when less is left to gain, in nats.
    max_iter : int
    n_units : float
        Matches, for the history.
    report : callable, default=None
        Called with each Epoch and the posterior; a true answer stops the fit.

    Returns
    -------
    fit : PairsFit
    """
    began = time.perf_counter()
    mean, eta = start
    # The curvature of skills that are all the same, and known.
    flat = model.expectation(np.zeros(model.n_pairs), np.zeros(model.n_pairs), eta)
    stages = [(kind, tol)] if kind == "meanfield" else [("meanfield", ROUGH), (kind, tol)]
    curvature, history, gains, passes = flat.curvature, [], [], 1
    converged = stopped = False
    gain, rho = math.inf, 1.0
    for name, enough in stages:
        bound = _Bound(name, model, prior, rank, tie_prior)
        bound.passes = passes
        state = bound.state(bound.kind.best(mean, curvature), eta, curvature)
        converged = False
        while len(history) < max_iter:
            step, eta_step, slope, eta_precision, best = bound.direction(state)
            gain = 0.5 * slope + bound.spread_gain(state, best)
            seconds = time.perf_counter() - began
            history.append(
                Epoch(bound.passes, seconds, state.bound / n_units, rho, 1.0)
            )
            gains.append(gain)
            stopped = report is not None and bool(report(history[-1], state))
            converged = gain < enough
            state, rho = bound.advance(state, step, eta_step, slope)
            if converged or stopped or rho == 0.0:
                break
        mean, eta, curvature = state.posterior.mean, state.eta, state.curvature
        passes = bound.passes
        if stopped:
            break
    seconds = time.perf_counter() - began
    history.append(Epoch(passes, seconds, state.bound / n_units, rho, 1.0))
    gains.append(gain)
    return PairsFit(
        state.posterior,
        state.eta,
        eta_precision,
        state.bound,
        len(history) - 1,
        converged,
        stopped,
        gain,
        history,
        gains,
    )
