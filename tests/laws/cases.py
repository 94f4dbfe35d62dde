"""Models and data that the laws are tried on, by name.

Every folder of a model has cases here; a test sees to it. A case is a function of
nothing that returns a model, a point away from any optimum, and data.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from skvrem.data import as_documents, as_source
from skvrem.factorial import _model as factorial
from skvrem.mixture._model import GaussianMixtureModel
from skvrem.mixture._start import _spheres
from skvrem.plsa._model import PLSAModel
from tests import multinomial_mixture as multinomial


class Case(NamedTuple):
    model: Any
    point: Any
    data: Any
    X: Any
    folder: str


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


def documents(weighted=False, doc_update_iter=1, words_of_topics=False):
    rng = np.random.default_rng(2)
    topics = rng.dirichlet(np.full(30, 0.2), size=3)
    theta = rng.dirichlet(np.full(3, 0.3), size=120)
    lengths = 5 + 20 * theta.argmax(axis=1)
    X = rng.multinomial(lengths, theta @ topics)
    X[7] = 0
    X = sp.csr_array(X.astype(float))
    weight = rng.uniform(0.5, 2.0, 120) if weighted else None
    data = as_documents(X, weight)
    prior = rng.uniform(0.5, 2.0, (3, 30)) if words_of_topics else np.array(0.8)
    model = PLSAModel(
        np.array([0.3, 0.5, 0.2]), prior, data.total_weight, np.float64, doc_update_iter
    )
    near = 0.5 * topics + 0.5 * rng.dirichlet(np.ones(30), size=3)
    point = model.start((near.T, 0.5 * theta + 0.5 / 3))
    return Case(model, point, data, X, "plsa")


def factors(learn=True, full=True, keep_sums=True, weighted=False):
    rng = np.random.default_rng(3)
    parts = 1.5 * np.kron(np.eye(3), [1.0, 1.0]) + 0.2 * rng.normal(size=(3, 6))
    codes = rng.uniform(size=(300, 3)) < np.array([0.3, 0.5, 0.4])
    X = codes @ parts + 0.4 * rng.normal(size=(300, 6))
    weight = rng.uniform(0.5, 2.0, 300) if weighted else None
    data = as_source(X, weight)
    model = factorial.FactorialModel(
        data.total_weight,
        X.dtype,
        learn=(learn,) * 3,
        full=full,
        keep_sums=keep_sums,
        code_iter=3,
    )
    near = parts + 0.2 * rng.normal(size=parts.shape)
    parameters = factorial.Parameters(near, None, np.full(3, 0.4), 0.3, 0.8)
    return Case(model, model.start(parameters, 300), data, X, "factorial")


def cut(data, batch, n_units):
    """Two blocks in place of one: its first units, and the rest as block 5."""
    if hasattr(batch, "stop"):
        at = batch.start + n_units
        return batch._replace(stop=at), batch._replace(start=at, block=5)
    ids = batch.ids[:n_units], batch.ids[n_units:]
    parts = [as_documents(data.X[i], _weight(data, i)).chunks().batches[0] for i in ids]
    return [
        part._replace(ids=i, block=block)
        for part, i, block in zip(parts, ids, (batch.block, 5), strict=True)
    ]


def _weight(data, ids):
    return data.weight[ids] if data.weight.size else None


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
    "factors": factors,
    "factors given": lambda: factors(learn=False, full=False),
    "factors weighted": lambda: factors(weighted=True),
    "factors recomputed": lambda: factors(keep_sums=False),
    "documents": documents,
    "documents weighted": lambda: documents(weighted=True),
    "documents, words of topics": lambda: documents(words_of_topics=True),
    "documents, 4 steps a visit": lambda: documents(doc_update_iter=4),
}
