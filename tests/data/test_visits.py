"""Minibatches of dask: evaluated where they lie, and what is kept of them stays there.

Each is compared with the same minibatches of rows in memory, visited in the same order.
"""

from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp

from skvrem import (
    VRPLSA,
    FactorialMixture,
    SBMLogisticRegression,
    TemperedLDA,
    VRGaussianMixture,
    schedules,
    solvers,
)
from skvrem.data import as_source
from skvrem.data._batch import MemoryPartition
from skvrem.utils._algebra import accumulate, scale
from tests.laws import cases

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

DaskSource = pytest.importorskip("skvrem.data._dask").DaskSource

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
SOLVERS = {
    "svrg": solvers.SVRG,
    "saga": solvers.SAGA,
    "incremental": solvers.Incremental,
    "stochastic": solvers.Stochastic,
}
CASES = {
    "full": lambda: cases.gaussian("full"),
    "missing": lambda: cases.gaussian("diag", missing=True, weighted=True),
    "recomputed": lambda: cases.gaussian("spherical", keep_sums=False),
    "factors": lambda: cases.factors(weighted=True),
    "logistic": lambda: cases.logistic("gram"),
    "sparse": lambda: cases.logistic("gram", 3, sparse=True, weighted=True),
    "own": lambda: cases.counts(weighted=True),
}


def on_dask(case):
    """The rows of a case in blocks, one of them empty."""
    n, own = case.data.n_units, case.data
    chunks = ((90, 0, 120, n - 210),)
    X = case.X.toarray() if sp.issparse(case.X) else case.X
    lazy = da.from_array(X, (*chunks, X.shape[1]))
    if sp.issparse(case.X):
        lazy = lazy.map_blocks(sp.csr_matrix)
    weight = own.weight if own.weight.size else None
    targets = None if own.targets is None else da.from_array(own.targets, chunks)
    return as_source(lazy, weight, targets)


class Twin:
    """A source in memory, whose blocks are those of one on dask."""

    def __init__(self, here, there):
        self.here, self.there = here, there

    def __getattr__(self, name):
        return getattr(self.here, name)

    def blocks(self, n_blocks, rng):
        return TwinPartition(self.here, self.there.blocks(n_blocks, rng))


class TwinPartition(MemoryPartition):
    """The batches of one on dask, of rows in memory, in its order."""

    def __init__(self, here, there):
        self.there, edges, batches = there, there.source.edges, []
        for cut, start, stop in zip(there.cuts, edges[:-1], edges[1:], strict=True):
            if cut.n_batches:
                index = (cut.index(stop - start) + start).astype(np.int32)
                ends = cut.edges(stop - start)
                batches += [
                    here.batch(a, b, cut.first + i, index)
                    for i, (a, b) in enumerate(pairwise(ends))
                ]
        super().__init__(batches, there.total_weight)

    def shuffled(self, rng):
        for visit in self.there.shuffled(rng):
            yield self.batches[visit.block]


def fitted(case, name, data, max_iter=4):
    model = case().model  # some count what they have seeded anew
    point = case().point
    if hasattr(model, "codes_of"):
        point = model.start(point.parameters, data)
    solver = SOLVERS[name](12)
    decreasing = name == "stochastic"
    size = schedules.Power(1.0, 2.0, 0.6) if decreasing else schedules.Constant(0.3)
    return solvers.run(
        model,
        solver,
        data,
        point,
        step_size=size,
        temperature=schedules.Constant(1.0),
        max_iter=max_iter,
        tol=0.0,
        rng=np.random.default_rng(5),
    )


def arrays(thing):
    """The numbers of nested tuples and sums."""
    if isinstance(thing, np.ndarray) or np.isscalar(thing):
        return [np.asarray(thing, float).ravel()]
    values = getattr(thing, "values", None)
    if isinstance(values, np.ndarray):
        return [values.ravel()]
    return [array for part in thing for array in arrays(part)]


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("kind", CASES)
def test_a_fit_is_that_of_the_same_minibatches_in_memory(kind, name):
    case = CASES[kind]
    if name not in case().solvers:
        pytest.skip("no solver of this model")
    if kind == "recomputed" and name in ("saga", "incremental"):
        pytest.skip("a table is made of sums")
    there = on_dask(case())
    with dask.config.set(scheduler="synchronous"):
        far = fitted(case, name, there)
        here = fitted(case, name, Twin(case().data, there))
    assert far.n_iter == here.n_iter == 4
    a, b = (np.concatenate(arrays(tuple(one.point.parameters))) for one in (far, here))
    np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10)
    objectives = [[row.objective for row in one.history] for one in (far, here)]
    np.testing.assert_allclose(*objectives, rtol=1e-9)


@pytest.mark.parametrize("kind", ["full", "missing", "logistic", "sparse"])
def test_an_estimate_is_unbiased(kind):
    """Over the visits of an epoch corrections average to what batch would change."""
    case = CASES[kind]()
    model, point, data = case.model, case.point, on_dask(case)
    solver = solvers.SVRG(10)
    rng = np.random.default_rng(0)
    with dask.config.set(scheduler="synchronous"):
        solver.start(model, data, rng)
        anchor = solver.certify(point, 1.0)
        moved = model.update(point, anchor.mean, None, 0.5)
        total, n = None, 0
        for visit in solver.visits(rng):
            mean, change = solver.estimate(visit, moved)
            total, n = accumulate(total, change), n + 1
        exact = data.chunks().sum(partial(model.statistics, moved, beta=1.0))
    assert n == len(solver.partition) > 3
    found = accumulate(scale(total, 1.0 / n), mean)
    exact = scale(exact, 1.0 / data.total_weight)
    np.testing.assert_allclose(
        np.concatenate(arrays(found)), np.concatenate(arrays(exact)), atol=1e-12
    )


def estimators():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 4)) + 3.0 * rng.integers(2, size=(900, 1))
    y = (X[:, 0] + rng.logistic(size=900) > 1.0).astype(int)
    components = np.array([[2.0, 0.0, 0.0, 1.0], [0.0, 3.0, 1.0, 0.0]])
    factors = rng.integers(2, size=(900, 2)) @ components
    factors += 0.3 * rng.normal(size=(900, 4))
    start = {"n_init": 1, "random_state": 0}
    for solver in ("svrg", "saga", "incremental"):
        yield VRGaussianMixture(2, solver=solver, tol=1e-10, **start), X, None
        if solver != "incremental":  # whose end here is another optimum's slope
            given = {"tempering": None, "tol": 1e-9} | start
            given["components_init"] = components + 0.5
            yield FactorialMixture(2, solver=solver, **given), factors, None
    for penalty in (1.0, 0.05):
        given = {"C": penalty, "tol": 1e-7, "max_iter": 500, "random_state": 0}
        yield SBMLogisticRegression(solver="svrg", **given), X, y


@pytest.mark.parametrize("number", range(7))
def test_fixed_points_are_those_of_full_passes(number):
    """Where minibatches have ended, full passes have hardly anything left to gain."""
    model, X, y = list(estimators())[number]
    model.set_params(max_iter=500, batch_size=60)
    given = () if y is None else (y,)
    with dask.config.set(scheduler="synchronous"):
        model.fit(da.from_array(X, ((300, 0, 200, 400), 4)), *given)
    assert model.converged_ if hasattr(model, "converged_") else True
    assert model.n_iter_ < 500
    before, name = model.history_["objective"][-1], NAMES[type(model)]
    found = np.array(getattr(model, name))
    model.set_params(solver="batch", max_iter=200, tol=1e-9, warm_start=True)
    model.fit(X, *given)
    np.testing.assert_allclose(found, getattr(model, name), atol=5e-3)
    assert abs(model.history_["objective"][-1] - before) < 1e-5


NAMES = {
    VRGaussianMixture: "means_",
    FactorialMixture: "components_",
    SBMLogisticRegression: "coef_",
}


class Number(NamedTuple):
    """Sums of a test."""

    value: float


def _count(batch):
    return Number(float(batch.n_units)), Number(7.0)


def test_what_is_kept_of_a_batch_stays_there():
    """Entries of tables are tasks, and renewed, moved and added where they lie."""
    case = cases.gaussian("diag")
    data = on_dask(case)
    with dask.config.set(scheduler="synchronous"):
        partition = data.blocks(9, np.random.default_rng(0))
        total, table = partition.keep(_count)
        assert total.value == data.n_units and len(table) == len(partition)
        assert all(dask.is_dask_collection(entry) for entry in table)
        moved = partition.mapped(lambda entry: Number(entry.value + 1.0), table)
        assert partition.total(moved).value == 8.0 * len(partition)
        visit = next(iter(partition.shuffled(np.random.default_rng(1))))
        found = partition.visit(
            lambda batch, entry: (batch.block, entry.value), visit, moved[visit.block]
        )
        assert found == (visit.block, 8.0)
        answer, entry = partition.renew(
            lambda batch, entry: (entry.value, batch.total_weight),
            visit,
            moved[visit.block],
        )
        assert answer == 8.0
        assert entry.compute() == visit.total_weight


def journeys():
    """Estimators on minibatches, with the rows and classes that they are fitted to."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(24_000, 2)), rng.integers(2, size=24_000)
    counts = rng.poisson(0.5, size=(6_000, 8)).astype(float)
    for solver in ("svrg", "saga", "incremental", "stochastic"):
        how = {"solver": solver, "max_iter": 1, "random_state": 0}
        yield VRGaussianMixture(2, n_init=1, **how), (X,)
        yield FactorialMixture(2, n_init=1, tempering=None, **how), (X,)
    for solver in ("svrg", "stochastic"):
        how = {"solver": solver, "max_iter": 1, "random_state": 0}
        yield SBMLogisticRegression(**how), (X, y)
        yield VRPLSA(2, **how), (counts,)
        yield TemperedLDA(2, **how), (counts,)
        yield TemperedLDA(2, e_step="collapsed", **how), (counts,)


@pytest.mark.parametrize("n_chunks", [3, 25])
@pytest.mark.parametrize("model, given", journeys())
def test_an_epoch_makes_at_most_forty_journeys(model, given, n_chunks, monkeypatch):
    """However many rows there are: a visit looks at the more of them."""
    blocks, made = DaskSource.blocks, []

    def watched(self, n_blocks, rng):
        made.append(len(blocks(self, n_blocks, rng)))
        return blocks(self, n_blocks, rng)

    monkeypatch.setattr(DaskSource, "blocks", watched)
    size = len(given[0]) // n_chunks
    with dask.config.set(scheduler="synchronous"):
        model.fit(*(da.from_array(part, (size, *part.shape[1:])) for part in given))
    assert made and max(made) <= 40
