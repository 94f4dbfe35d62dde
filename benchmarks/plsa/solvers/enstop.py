from benchmark_utils.common import TopicSolver
from benchmark_utils.peers import enstop_fit


class Solver(TopicSolver):
    """enstop: batch EM without priors, from its own random start, one thread."""

    name = "enstop"
    requirements = ["pip::enstop"]
    has_priors = False

    def iterate(self, n_iter):
        return enstop_fit(self.X, self.start[1].shape[0], n_iter)
