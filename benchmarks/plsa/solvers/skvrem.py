from skvrem import VRPLSA

from benchmark_utils.common import TopicSolver


class Solver(TopicSolver):
    """skvrem: an iteration is an epoch; defaults but for the priors."""

    name = "skvrem"
    parameters = {"solver": ["batch", "stochastic", "svrg"]}
    requirements = ["pip::skvrem"]

    def iterate(self, n_iter):
        model = VRPLSA(
            self.start[1].shape[0],
            doc_topic_smoothing=self.alpha,
            topic_word_smoothing=self.beta,
            solver=self.solver,
            tol=0.0,
            max_iter=n_iter,
            random_state=0,
        )
        theta = model.fit_transform(self.X)
        return theta, model.components_
