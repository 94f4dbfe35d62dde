from benchopt import BaseSolver
from skvrem import SBMLogisticRegression


class Solver(BaseSolver):
    """skvrem, stopped by its own rule at the tolerance."""

    name = "skvrem"
    parameters = {"solver": ["auto", "batch", "svrg"], "curvature": ["auto"]}
    requirements = ["pip::skvrem"]
    sampling_strategy = "tolerance"

    def set_objective(self, X, y, C):
        self.X, self.y = X, y
        self.model = SBMLogisticRegression(
            C=C,
            solver=self.solver,
            curvature=self.curvature,
            fit_intercept=False,
            max_iter=10_000,
            random_state=0,
        )

    def warm_up(self):
        self.model.set_params(tol=1.0).fit(self.X[:2000], self.y[:2000])

    def run(self, tolerance):
        self.model.set_params(tol=min(1.0, tolerance)).fit(self.X, self.y)

    def get_result(self):
        return {"coef": self.model.coef_}
