from benchopt import BaseSolver

from benchmark_utils.peers import PEERS


class Solver(BaseSolver):
    """Other packages: the rungs of a ladder of growing precision, each from scratch."""

    name = "peer"
    parameters = {"peer": list(PEERS)}
    requirements = ["scikit-learn", "pip::glum", "pip::snapml"]
    sampling_strategy = "iteration"

    def set_objective(self, X, y, C):
        self.coef = None
        self.ladder = list(PEERS[self.peer](X, y, None))

    def skip(self, X, y, C):
        if C != 1.0 or not list(PEERS[self.peer](X, y, None)):
            return True, "not this problem, or not installed"
        return False, None

    def get_next(self, rung):
        return rung + 1

    def run(self, rung):
        fit = self.ladder[min(rung, len(self.ladder) - 1)]
        self.coef = fit()

    def get_result(self):
        return {"coef": self.coef}
