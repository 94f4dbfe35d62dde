"""What the solvers share."""

import warnings

import numpy as np
from benchopt import BaseSolver
from sklearn.exceptions import ConvergenceWarning

from .evaluation import map_step

__all__ = ["TopicSolver", "cold_start"]


def cold_start(X, n_topics, seed=0):
    """Return equal shares of topics in each document, and topics drawn at random.

    Topics are normalised Gamma(1) draws: nearly equal ones would be a plateau.
    """
    rng = np.random.default_rng(seed)
    components = rng.gamma(1.0, size=(n_topics, X.shape[1]))
    components /= components.sum(axis=1, keepdims=True)
    return np.full((X.shape[0], n_topics), 1.0 / n_topics), components


class TopicSolver(BaseSolver):
    """A solver that starts, and makes so many iterations.

    A subclass defines ``iterate(n_iter)``, which returns theta and components.
    """

    sampling_strategy = "iteration"
    #: What it fits has these priors, so that no parameter is zero.
    has_priors = True

    def set_objective(self, X, start, alpha, beta):
        self.X, self.start, self.alpha, self.beta = X, start, alpha, beta

    def warm_up(self):
        self.run_once(2)

    def run(self, n_iter):
        self.result = self.start
        if n_iter > 0:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                self.result = self.iterate(n_iter)

    def get_result(self):
        theta, components = map(np.asarray, self.result)
        if not self.has_priors:  # not timed: zeros get the mass of the priors
            theta, components = map_step(
                self.X, theta, components, self.alpha, self.beta
            )
        return {"theta": theta, "components": components}
