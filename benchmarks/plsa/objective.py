from benchopt import BaseObjective

from benchmark_utils.common import cold_start
from benchmark_utils.evaluation import complete, halve, map_objective


class Objective(BaseObjective):
    """Minus the MAP objective of pLSA in nats a token, and minus held-out completion.

    Chen, Zhu, Teh and Zhang (2018), section 4.2: counts as multinomials, the priors
    add alpha = 1 / n_topics and beta to expected counts. Solvers that take a start go
    on from the same one; the objective has many maxima all the same.
    """

    name = "pLSA"
    min_benchopt_version = "1.7"
    requirements = ["scikit-learn", "numba"]
    parameters = {"n_topics": [50, 100], "total_alpha": [1.0], "beta": [0.1]}
    test_parameters = {"n_topics": [5]}
    sampling_strategy = "iteration"

    def skip(self, X, X_test):
        return (True, X) if isinstance(X, str) else (False, None)

    def set_data(self, X, X_test):
        self.X, self.halves = X, halve(X_test)
        self.alpha = self.total_alpha / self.n_topics
        self.start = cold_start(X, self.n_topics)

    def get_objective(self):
        return {
            "X": self.X,
            "start": self.start,
            "alpha": self.alpha,
            "beta": self.beta,
        }

    def evaluate_result(self, theta, components):
        value = -map_objective(self.X, theta, components, self.alpha, self.beta)
        held_out = -complete(self.halves, components, self.alpha)
        return {"value": value, "held_out": held_out}

    def get_one_result(self):
        theta, components = self.start
        return {"theta": theta, "components": components}
