"""Models and data that the laws are tried on, by name.

Every folder of a model has cases here; a test sees to it. A case is a function of
nothing that returns a model, a point away from any optimum, and data.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from skvrem.data import as_source
from skvrem.linear._model import LogisticModel
from skvrem.linear._model import Parameters as Theta
from skvrem.linear._model_curvature import Curvature
from skvrem.mixture._model import GaussianMixtureModel
from skvrem.mixture._start import _spheres
from tests import multinomial_mixture as multinomial


class Case(NamedTuple):
    model: Any
    point: Any
    data: Any
    X: Any
    folder: str
    solvers: tuple = ("batch", "squarem", "stochastic", "svrg", "saga", "incremental")


def gaussian(covariance_type, missing=False, weighted=False, keep_sums=True):
    rng = np.random.default_rng(0)
    means = rng.normal(size=(3, 4)) * 2.5
    X = means[rng.integers(3, size=300)] + rng.normal(size=(300, 4))
    X[:, 1] += 0.7 * X[:, 0]
    if missing:
        X[rng.uniform(size=X.shape) < 0.2] = np.nan
        X[5] = np.nan
    weight = rng.uniform(0.5, 2.0, 300) if weighted else None
    model = GaussianMixtureModel(covariance_type, 1e-6, missing, keep_sums)
    start = _spheres(covariance_type, means + rng.normal(size=means.shape), 2.0)
    point = model.start(start._replace(weights=np.array([0.2, 0.3, 0.5])))
    return Case(model, point, as_source(X, weight), X, "mixture")


def counts(keep_sums=True, weighted=False):
    rng = np.random.default_rng(1)
    words = rng.dirichlet(np.full(30, 0.3), size=3)
    X = np.stack([rng.multinomial(20, words[z]) for z in rng.integers(3, size=300)])
    X = sp.csr_matrix(X.astype(float))
    weight = rng.uniform(0.5, 2.0, 300) if weighted else None
    total = 300 if weight is None else weight.sum()
    model = multinomial.MultinomialMixtureModel(0.1, total, keep_sums)
    near = 0.5 * words + 0.5 * rng.dirichlet(np.ones(30), size=3)
    point = model.start(
        multinomial.Parameters(np.array([0.2, 0.3, 0.5]), np.ascontiguousarray(near.T))
    )
    return Case(model, point, as_source(X, weight), X, "tests")


def logistic(kind="gram", k=1, intercept=True, sparse=False, weighted=False):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(300, 4)) * [1.0, 2.0, 0.5, 1.0]
    if sparse:
        X = sp.csr_matrix(X * (rng.uniform(size=X.shape) < 0.5))
    weight = rng.uniform(0.5, 2.0, 300) if weighted else None
    p = 4 + intercept
    logits = X @ rng.normal(size=(4, max(2, k)))
    y = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1).astype(np.int32)
    ridge = np.ones(p)
    ridge[4:] = 0.0
    curvature = Curvature(kind, p, 1, rank=2)
    total = 300 if weight is None else weight.sum()
    model = LogisticModel(
        y, max(2, k), ridge, total, intercept, curvature, sample_rows=300
    )
    theta = 0.1 * rng.normal(size=(p, k))
    if k > 1:  # where the ridge keeps it
        theta -= theta.mean(axis=1, keepdims=True)
    point = model.start(Theta(theta))
    return Case(
        model,
        point,
        as_source(X, weight),
        X,
        "linear",
        ("batch", "stochastic", "svrg", "quasi-newton"),
    )


CASES = {
    "full": lambda: gaussian("full"),
    "tied": lambda: gaussian("tied"),
    "diag": lambda: gaussian("diag"),
    "spherical": lambda: gaussian("spherical"),
    "diag missing": lambda: gaussian("diag", missing=True),
    "spherical missing": lambda: gaussian("spherical", missing=True),
    "full weighted": lambda: gaussian("full", weighted=True),
    "diag recomputed": lambda: gaussian("diag", keep_sums=False),
    "counts": counts,
    "counts weighted": lambda: counts(weighted=True),
    "counts recomputed": lambda: counts(keep_sums=False),
    "logistic": logistic,
    "logistic sparse": lambda: logistic(sparse=True),
    "logistic weighted": lambda: logistic(weighted=True, intercept=False),
    "multinomial": lambda: logistic(k=3),
    "multinomial sparse": lambda: logistic(k=3, sparse=True),
}
