"""Short steps where rows lie in the blocks of dask: a point goes from one to the next.

The same steps in memory are made on the rows of each block in turn.
"""

import pickle

import numpy as np
import pytest

from skvrem import (
    BayesianGLMRegressor,
    BayesianLogisticRegression,
    GaussianDropoutClassifier,
    solvers,
)
from skvrem.data import as_source
from skvrem.solvers._protocols import Anchor
from skvrem.solvers.step._journeys import NOISE, Journeys
from skvrem.vi import MinibatchSteps
from skvrem.vi.gaussian._model import Diagonal, GaussianModel, Point
from skvrem.vi.gaussian._model_families import Logistic
from skvrem.vi.gaussian._model_posterior import MeanField
from skvrem.vi.gaussian._model_steps import SteppingModel
from tests.watching import Killing, two_workers

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
N, D = 500, 3
CHUNKS = (100, 0, 233, 167)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, D))
YES = (X[:, 0] + RNG.logistic(size=N) > 0.3).astype(int)
THREE = np.digitize(X[:, 0] + RNG.logistic(size=N), [-1.0, 1.0])
COUNTS = RNG.poisson(np.exp(0.3 * X[:, 1]))
REAL = X @ np.arange(1.0, D + 1.0) + RNG.normal(size=N)
WEIGHT = RNG.integers(0, 3, N) + 0.5
START = {"random_state": 0, "max_iter": 3, "tol": 0.0, "batch_size": 20}
SGD = MinibatchSteps(optimizer="sgd")
ADAM = MinibatchSteps(optimizer="adam", expectation="mc")
ANTITHETIC = MinibatchSteps(control_variate="antithetic", expectation="mc")
CASES = {
    "logistic": (BayesianLogisticRegression(), YES),
    "draws": (BayesianLogisticRegression(steps=ADAM), YES),
    "pairs": (BayesianLogisticRegression(steps=ANTITHETIC), YES),
    "classes": (BayesianLogisticRegression(), THREE),
    "poisson": (BayesianGLMRegressor("poisson"), COUNTS),
    "gaussian": (BayesianGLMRegressor(steps=SGD), REAL),
    "dropout": (GaussianDropoutClassifier(hidden_layer_sizes=()), THREE),
    "network": (GaussianDropoutClassifier(hidden_layer_sizes=(4,)), YES),
}
EVERY = [
    (name, kind)
    for name, (model, _) in CASES.items()
    for kind in ("stochastic", "svrg", "saga")
    if not (kind == "saga" and isinstance(model, GaussianDropoutClassifier))
]
every = pytest.mark.parametrize("name, kind", EVERY)


@pytest.fixture(autouse=True)
def synchronous():
    with dask.config.set(scheduler="synchronous"):
        yield


def blocks(rows):
    return da.from_array(rows, chunks=(CHUNKS, *rows.shape[1:]))


class BlockByBlock(solvers.Sweeps):
    """Sweeps of rows in memory, in the order of a dask array's blocks."""

    def _make_steps(self, work, pace, rng):
        model, edges = self.model, np.cumsum([0, *CHUNKS])
        edges = np.unique(edges)
        sizes, per = np.diff(edges), model.rows_a_visit
        steps = [-(-n // per) for n in sizes]
        n_steps, whole = 0, model.n_rows
        for visit in as_source(blocks(X)).chunks().shuffled(rng):
            block = visit.block
            own = pace(np.arange(n_steps, n_steps + steps[block])) * np.ones(
                steps[block]
            )
            there = np.random.default_rng(int(rng.integers(2**63)))
            rows = there.permutation(sizes[block]).astype(np.int32) + edges[block]
            model.n_rows = sizes[block] * sum(steps) / steps[block]
            most = max(1, NOISE // max(1, model.noise_width))
            for start in range(0, steps[block], most):
                part = slice(start * per, (start + most) * per)
                noise = model.noise(work, rows[part], there)
                model.sweep(
                    work, self.known, rows[part], noise, own[start : start + most]
                )
            n_steps += steps[block]
        model.n_rows = whole
        if self.kind == "saga":
            self.known = model.renewed(self.known)
        return work, n_steps, 0, float(own[-1])


@every
def test_fits_are_those_of_the_same_steps_in_memory(name, kind, monkeypatch):
    made, y = CASES[name]
    model = type(made)(**made.get_params(deep=False) | START | {"solver": kind})
    there = model.fit(blocks(X), y, sample_weight=WEIGHT)
    monkeypatch.setattr(solvers, "Sweeps", BlockByBlock)
    here = type(made)(**model.get_params(deep=False)).fit(X, y, sample_weight=WEIGHT)
    assert there.solver_ == here.solver_ == kind and there.n_iter_ == here.n_iter_ == 3
    found = (
        getattr(one, "coefs_", None) or [getattr(one, "coef_", None)]
        for one in (here, there)
    )
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(
        there.history_["objective"], here.history_["objective"], rtol=1e-9
    )
    np.testing.assert_array_equal(there.history_["passes"], here.history_["passes"])


@pytest.mark.parametrize(
    "name, kind",
    [one for one in EVERY if one[0] in ("logistic", "poisson", "gaussian")],
)
def test_fits_end_where_full_passes_do(name, kind):
    made, y = CASES[name]
    params = made.get_params(deep=False) | START | {"max_iter": 300, "tol": 0.02}
    there = type(made)(**params | {"solver": kind}).fit(blocks(X), y)
    plain = {"solver": "batch", "steps": None, "posterior": "meanfield", "tol": 1e-6}
    full = type(made)(**params | plain).fit(X, y)
    # In nats: noise of single minibatches is what "stochastic" has left.
    assert full.elbo_ - (1.0 if kind == "stochastic" else 0.1) < there.elbo_
    assert there.elbo_ < full.elbo_ + 0.02
    assert there.n_iter_ < 300 or kind == "stochastic"


def logistic(data, kind, y=None):
    """The steps of a logistic regression, noise integrated out, and a point."""
    prior = MeanField(np.zeros(D + 1), np.full(D + 1, 2.0))
    model = GaussianModel(
        Logistic(), y, prior, data.total_weight, True, "diagonal", matrix=False
    )
    rng = np.random.default_rng(3)
    mean = rng.normal(size=(D + 1, 1))
    point = Point(Diagonal(mean, 0.1 * mean - 1.0, np.zeros((D + 1, 1, 0))))
    steps = SteppingModel(model, data, kind, "quadrature", True, "natural", 20, 1)
    return steps, point


@pytest.mark.parametrize("kind", ["svrg", "stochastic"])
def test_steps_of_an_epoch_average_to_the_mean_of_all_rows(kind):
    """Of blocks of any size, as long as minibatches are whole."""
    chunks = (100, 240, 160)
    targets = da.from_array(YES.astype(float), chunks=(chunks,))
    data = as_source(da.from_array(X, chunks=(chunks, D)), WEIGHT, targets)
    steps, point = logistic(data, kind)
    away = point._replace(
        parameters=point.parameters._replace(mean=point.parameters.mean + 0.3)
    )
    anchor = Anchor(None, 0.0, 1.0, away)
    journeys, rng = Journeys(steps, data), np.random.default_rng(0)
    known = None if kind == "stochastic" else journeys.know(anchor)
    work, found = steps.open(Anchor(None, 0.0, 1.0, point)), []
    (batches,) = [list(data.chunks().map(lambda batch: batch))]
    for block, (batch, n_rows) in enumerate(zip(batches, journeys.n_rows, strict=True)):
        there = steps.at(batch, n_rows)
        own = None
        if known is not None:
            (table,) = dask.compute(journeys.table[block])
            own = there.joined(known, table, work)
        rows = there.visits(own, rng)
        found.append(there.estimates(work, own, rows, there.noise(work, rows, rng)))
    found = np.concatenate(found)
    assert len(found) == N // 20
    here = as_source(X, WEIGHT)
    full, _ = logistic(here, kind, YES.astype(float))
    exact = full.known_at(Anchor(None, 0.0, 1.0, point), None).totals
    np.testing.assert_allclose(found.mean(axis=0), exact, rtol=1e-10)


def test_what_travels_is_the_model_and_the_point():
    targets = da.from_array(YES.astype(float), chunks=(CHUNKS,))
    data = as_source(blocks(X), None, targets)
    steps, point = logistic(data, "svrg")
    assert len(pickle.dumps(steps)) < 10_000
    work = steps.open(Anchor(None, 0.0, 1.0, point))
    moved = pickle.loads(pickle.dumps(work))
    assert not hasattr(moved, "point")
    vars(work).update(vars(moved))
    assert work.close().parameters.mean.shape == (D + 1, 1)


@pytest.mark.parametrize("solver", ["svrg", "saga", "stochastic"])
def test_a_stream_goes_on_from_steps_over_blocks(solver):
    model = BayesianGLMRegressor(solver=solver, random_state=0)
    model.fit(blocks(X), blocks(REAL)).partial_fit(X[:50], REAL[:50])
    whole = BayesianGLMRegressor().fit(np.r_[X, X[:50]], np.r_[REAL, REAL[:50]])
    sd = whole.coef_std_
    np.testing.assert_array_less(np.abs(model.coef_ - whole.coef_), 0.2 * sd)
    np.testing.assert_allclose(model.coef_std_, sd, rtol=0.05)


def test_an_offset_is_refused_as_in_memory():
    model = BayesianGLMRegressor("poisson", solver="svrg")
    with pytest.raises(ValueError, match="takes no offset: choose solver='batch'"):
        model.fit(blocks(X), COUNTS, offset=np.ones(N))
    sparse = pytest.importorskip("scipy.sparse")
    rows = blocks(X).map_blocks(sparse.csr_matrix)
    with pytest.raises(ValueError, match="needs dense rows"):
        model.fit(rows, COUNTS)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["logistic", "network"])
def test_a_killed_worker_changes_nothing(name):
    made, y = CASES[name]
    params = made.get_params(deep=False) | START | {"solver": "svrg", "max_iter": 6}
    with two_workers() as client, dask.config.set(scheduler=None):
        lazy, watch = client.persist(blocks(X)), Killing(client)
        client.compute(lazy.sum()).result()
        there = type(made)(**params)
        there.set_callbacks(watch)
        there.fit(lazy, y)
        assert watch.killed
    here = type(made)(**params).fit(blocks(X), y)
    assert here.n_iter_ == there.n_iter_
    np.testing.assert_allclose(
        there.history_["objective"], here.history_["objective"], rtol=1e-12
    )
