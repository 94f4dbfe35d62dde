"""Models such as a user would write, for tests."""

import numpy as np
from scipy.special import expit

STEPS = [  # solver, control variate, control of the scales
    ("stochastic", None, True),
    ("stochastic", "taylor", True),
    ("stochastic", "taylor", False),
    ("stochastic", "antithetic", True),
    ("svrg", "taylor", True),
    ("svrg", "taylor", False),
    ("svrg", "antithetic", True),
    ("saga", "taylor", True),
    ("saga", "antithetic", True),
]


class Logistic:
    """Logistic regression, with no more than what is needed."""

    def __init__(self, X, y):
        self.X, self.y = np.asarray(X), np.asarray(y)
        self.n_samples, self.n_parameters = self.X.shape

    def __eq__(self, other):
        return type(self) is type(other) and all(
            np.array_equal(a, b) for a, b in ((self.X, other.X), (self.y, other.y))
        )

    __hash__ = None

    def log_likelihood(self, parameters, indices):
        z = self.X[indices] @ parameters
        return self.y[indices] * z - np.logaddexp(0.0, z)

    def gradient(self, parameters, indices):
        X = self.X[indices]
        return X.T @ (self.y[indices] - expit(X @ parameters))


class RichLogistic(Logistic):
    """Logistic regression with all that a model may have."""

    def __init__(self, X, y, prior_scale=None):
        super().__init__(X, y)
        self.parameter_names = [f"x{j}" for j in range(self.n_parameters)]
        self.prior_scale = prior_scale
        if prior_scale is None:
            self.log_prior = self.log_prior_gradient = None

    def _weight(self, parameters, X):
        mean = expit(X @ parameters)
        return mean * (1.0 - mean)

    def hessian_vector_product(self, parameters, vector, indices):
        X = self.X[indices]
        return -X.T @ (self._weight(parameters, X) * (X @ vector))

    def hessian_diagonal(self, parameters, indices):
        X = self.X[indices]
        return -np.square(X).T @ self._weight(parameters, X)

    def hessian(self, parameters, indices):
        X = self.X[indices]
        return -(X.T * self._weight(parameters, X)) @ X

    def log_prior(self, parameters):
        z = parameters / self.prior_scale
        log_scale = np.log(np.sqrt(2.0 * np.pi) * self.prior_scale)
        return -0.5 * z @ z - parameters.size * log_scale

    def log_prior_gradient(self, parameters):
        return -parameters / self.prior_scale**2

    def unravel(self, parameters):
        return {"slope": parameters[:, :-1], "level": parameters[:, -1]}


def logistic_problem(n=60, d=3):
    """Rows with correlated features and targets."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    X[:, 1] += 0.8 * X[:, 0]
    return X, (rng.random(n) < expit(X @ np.linspace(1.0, -0.5, d))).astype(float)


class Skills:
    """Matches of players, whose skills are parameters; the first of a pair won."""

    def __init__(self, pairs, n_players):
        self.pairs = np.asarray(pairs)
        self.n_samples, self.n_parameters = len(self.pairs), n_players

    def __eq__(self, other):
        return type(self) is type(other) and np.array_equal(self.pairs, other.pairs)

    __hash__ = None

    def _open(self, parameters, indices):
        won, lost = self.pairs[indices].T
        return won, lost, expit(parameters[lost] - parameters[won])

    def log_likelihood(self, parameters, indices):
        won, lost = self.pairs[indices].T
        return -np.logaddexp(0.0, parameters[lost] - parameters[won])

    def gradient(self, parameters, indices):
        _, _, p = self._open(parameters, indices)
        return self._gather(indices, p, -p)

    def hessian_vector_product(self, parameters, vector, indices):
        won, lost, p = self._open(parameters, indices)
        pull = p * (1.0 - p) * (vector[won] - vector[lost])
        return self._gather(indices, -pull, pull)

    def hessian_diagonal(self, parameters, indices):
        _, _, p = self._open(parameters, indices)
        return self._gather(indices, -p * (1.0 - p), -p * (1.0 - p))

    def _gather(self, indices, by_won, by_lost):
        """Sum what matches say of the one who won and the one who lost."""
        won, lost = self.pairs[indices].T
        out = np.zeros(self.n_parameters)
        np.add.at(out, won, by_won)
        np.add.at(out, lost, by_lost)
        return out


class WideSkills(Skills):
    """The same, who says which parameters matches depend on."""

    def support(self, indices):
        return np.unique(self.pairs[indices])


class ShortSkills(WideSkills):
    """The same, with derivatives by these only."""

    def _gather(self, indices, by_won, by_lost):
        return super()._gather(indices, by_won, by_lost)[self.support(indices)]


def skills_problem(n=60, n_players=9):
    """Matches in which the last player but two is never seen."""
    rng = np.random.default_rng(1)
    known = np.delete(np.arange(n_players), -3)
    pairs = np.array([rng.choice(known, 2, replace=False) for _ in range(n)])
    pairs[:20].sort(axis=1)
    return pairs, n_players


class InUnits:
    """A model whose parameters are counted in units of one's own."""

    def __init__(self, model, units):
        self.model, self.units = model, np.asarray(units, np.float64)
        self.n_samples, self.n_parameters = model.n_samples, model.n_parameters
        for name in ("support", "log_prior"):
            if getattr(model, name, None) is None:
                setattr(self, name, None)
        if self.log_prior is None:
            self.log_prior_gradient = None
        for name in ("hessian_vector_product", "hessian_diagonal", "hessian"):
            if not hasattr(model, name):
                setattr(self, name, None)

    def _by(self, derivative, indices):
        """Units, as far as a derivative is by them."""
        short = derivative.size < self.n_parameters
        return self.units[self.support(indices)] if short else self.units

    def log_likelihood(self, parameters, indices):
        return self.model.log_likelihood(parameters / self.units, indices)

    def gradient(self, parameters, indices):
        out = self.model.gradient(parameters / self.units, indices)
        return out / self._by(out, indices)

    def hessian_vector_product(self, parameters, vector, indices):
        both = parameters / self.units, vector / self.units
        out = self.model.hessian_vector_product(*both, indices)
        return out / self._by(out, indices)

    def hessian_diagonal(self, parameters, indices):
        out = self.model.hessian_diagonal(parameters / self.units, indices)
        return out / self._by(out, indices) ** 2

    def hessian(self, parameters, indices):
        out = self.model.hessian(parameters / self.units, indices)
        return out / np.outer(self.units, self.units)

    def support(self, indices):
        return self.model.support(indices)

    def log_prior(self, parameters):
        volume = np.log(self.units).sum()
        return self.model.log_prior(parameters / self.units) - volume

    def log_prior_gradient(self, parameters):
        return self.model.log_prior_gradient(parameters / self.units) / self.units
