from benchmark_utils.common import TopicSolver
from benchmark_utils.peers import nmf_fit


class Solver(TopicSolver):
    """scikit-learn's NMF by Kullback-Leibler divergence, multiplicative updates."""

    name = "nmf"
    requirements = ["scikit-learn"]
    has_priors = False

    def iterate(self, n_iter):
        return nmf_fit(self.X, self.start[1].shape[0], n_iter, self.start)
