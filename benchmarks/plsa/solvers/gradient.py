from benchmark_utils.common import TopicSolver
from benchmark_utils.gradient import GradientDescent


class Solver(TopicSolver):
    """The paper's SMD and RSGD, with and without SVRG; an iteration is an epoch.

    Steps are ``step_size / (t + 100) ** step_decay``. The paper's grid for step_size is
    1e-7 to 1, by factors of ten. What is useful of it depends on the method: beyond it
    to the left nothing moves in 20 epochs, to the right it diverges.
    """

    name = "gradient"
    parameters = {
        "method, step_size": [
            ("smd", 1e-6),
            ("smd", 1e-5),
            ("rsgd", 1e-3),
            ("rsgd", 1e-2),
        ],
        "svrg": [False, True],
        "step_decay": [0.5],
        "n_batches": [50],
    }
    requirements = ["numpy", "numba"]

    def iterate(self, n_iter):
        descent = GradientDescent(
            self.X,
            *self.start,
            self.alpha,
            self.beta,
            method=self.method,
            variance_reduction=self.svrg,
            n_batches=self.n_batches,
            step_size=self.step_size,
            step_decay=self.step_decay,
        )
        for _ in range(n_iter):
            descent.epoch()
        return descent.theta, descent.components
