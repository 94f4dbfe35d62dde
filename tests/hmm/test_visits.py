"""Minibatches of sequences of dask: the fits of the same visits in memory."""

from itertools import pairwise

import numpy as np
import pytest

from skvrem import solvers
from skvrem.data import _sequences, as_source
from skvrem.data._batch import MemoryPartition
from skvrem.hmm import VRHMM, Covariates, Gaussian, Weibull, _plan
from skvrem.hmm.forward_backward._source import SequenceSource
from tests.watching import Killing, two_workers

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
LENGTHS = np.random.default_rng(0).integers(20, 60, 30)
N = int(LENGTHS.sum())
CHUNKS = (300, 0, 500, N - 800)
PLAIN = {"random_state": 0, "n_init": 1, "max_iter": 4, "tol": 0.0}


@pytest.fixture(autouse=True)
def synchronous():
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(1)
    states = np.cumsum((rng.random(N) < 0.1) * rng.integers(1, 3, N)) % 3
    return rng.normal(size=(N, 3)) + 2.0 * states[:, None]


def blocks(X):
    return da.from_array(X, chunks=(CHUNKS, 2))


def sizes(X):
    """Rows of the blocks of whole sequences, and sequences of each."""
    rows = np.array(_sequences.lay(blocks(X), None, None, LENGTHS).sizes)
    bounds = np.append(0, np.cumsum(LENGTHS))
    return rows, np.diff(np.searchsorted(bounds, np.append(0, np.cumsum(rows))))


def both(X, monkeypatch, use, weight=None, **parameters):
    """Return the fit in blocks, and that in memory that has been changed."""
    parameters, given = PLAIN | parameters, {"lengths": LENGTHS}
    if weight is not None:
        given["sample_weight"] = weight
    there = VRHMM(3, **parameters).fit(blocks(X), **given)
    use(monkeypatch)
    here = VRHMM(3, **parameters).fit(X, **given)
    assert there.solver_ == here.solver_ and there.n_iter_ == here.n_iter_
    return here, there


def assert_same(here, there, rtol=1e-9):
    for name in ("startprob_", "transmat_", "objective_"):
        one, other = getattr(here, name), getattr(there, name)
        np.testing.assert_allclose(other, one, rtol=rtol, atol=rtol)
    pairs = zip(here.emission_.parameters(), there.emission_.parameters(), strict=True)
    for one, other in pairs:
        np.testing.assert_allclose(other, one, rtol=rtol, atol=rtol)
    objectives = (one.history_["objective"] for one in (there, here))
    np.testing.assert_allclose(*objectives, rtol=rtol)


def stand_in(X):
    """A partition on dask, of rows that stand for blocks: it draws as theirs."""
    rows = sizes(X)[0]
    return as_source(da.zeros((N, 1), chunks=(tuple(rows.tolist()), 1)))


def weights(kind):
    if kind == "none":
        return None
    return np.repeat(np.random.default_rng(3).integers(1, 4, 30) / 2.0, LENGTHS)


weighted = pytest.mark.parametrize("weight", ["none", "given"])


@weighted
@pytest.mark.parametrize("solver", ["stochastic", "incremental"])
def test_batches_of_whole_sequences(X, monkeypatch, solver, weight):
    from skvrem.data._cut import Cut

    rows, n_sequences = sizes(X)

    class Twin(MemoryPartition):
        def __init__(self, source, n_blocks, rng):
            counts = np.clip(np.round(n_blocks * rows / N), 1, n_sequences).astype(int)
            seed, first, batches = int(rng.integers(2**31)), 0, []
            edges = np.append(0, np.cumsum(n_sequences))
            self.numbers = []
            for part, (n, count) in enumerate(zip(n_sequences, counts, strict=True)):
                cut = Cut(int(count), first, [seed, part])
                index, ends = cut.index(n) + np.int32(edges[part]), cut.edges(n)
                self.numbers.append(range(first, first + count))
                for a, b in pairwise(ends):
                    batches.append(source.batch(a, b, len(batches), index))
                first += count
            super().__init__(batches, source.total_weight)

        def shuffled(self, rng):
            order = rng.permutation(len(self.numbers))
            for i in range(0, len(order), 2):
                some = [n for part in order[i : i + 2] for n in self.numbers[part]]
                for k in rng.permutation(len(some)):
                    yield self.batches[some[k]]

    def use(monkeypatch):
        monkeypatch.setattr(
            SequenceSource, "blocks", lambda self, n, rng: Twin(self, n, rng)
        )
        monkeypatch.setattr(_plan, "RowBlockSource", lambda data: data)

    given = {"solver": solver, "batch_size": 150, "weight": weights(weight)}
    assert_same(*both(X, monkeypatch, use, **given))


def block_by_block(X):
    rows = sizes(X)[0]
    edges = np.append(0, np.cumsum(rows))

    class BlockByBlock(solvers.Sweeps):
        """Sweeps of rows in memory, in the order of a dask array's blocks."""

        def _make_steps(self, work, pace, rng):
            model, n_steps = self.model, 0
            for visit in stand_in(X).chunks().shuffled(rng):
                n = rows[visit.block]
                own = np.ones(model.rounds * n)
                own *= pace(np.arange(n_steps, n_steps + len(own)))
                there = np.random.default_rng(int(rng.integers(2**63)))
                order = [there.permutation(n) for _ in range(model.rounds)]
                visits = np.concatenate(order) + edges[visit.block]
                model.sweep(work, self.known, visits, None, own)
                n_steps += len(own)
            if self.kind == "saga":
                self.known = model.renewed(self.known)
            return work, n_steps, 0, float(own[-1])

    return lambda monkeypatch: monkeypatch.setattr(solvers, "Sweeps", BlockByBlock)


@weighted
@pytest.mark.parametrize("partial_e_step", [True, False])
@pytest.mark.parametrize("solver", ["svrg", "saga"])
def test_steps_of_rows(X, monkeypatch, solver, partial_e_step, weight):
    given = {"solver": solver, "partial_e_step": partial_e_step, "inner_iter": 2}
    use = block_by_block(X)
    found = both(X, monkeypatch, use, weight=weights(weight), **given)
    assert_same(*found, rtol=1e-7)  # searches for the length of a step compare values


@pytest.mark.parametrize("case", ["missing", "covariates", "full", "labels"])
def test_steps_of_other_rows(X, monkeypatch, case):
    rows, given = X.copy(), {"solver": "svrg", "inner_iter": 1}
    if case == "missing":
        rows[np.random.default_rng(3).random(X.shape) < 0.1] = np.nan
    elif case == "covariates":
        given["transitions"] = Covariates([2])
    elif case == "full":
        given["emission"] = Gaussian("full")
    assert_same(*both(rows, monkeypatch, block_by_block(X), **given), rtol=1e-7)


@pytest.mark.parametrize("solver", ["stochastic", "incremental", "svrg", "saga"])
def test_fits_end_where_those_of_memory_do(X, solver):
    given = {"solver": solver, "max_iter": 200, "tol": 1e-6}
    there = VRHMM(3, **PLAIN | given).fit(blocks(X), lengths=LENGTHS)
    here = VRHMM(3, **PLAIN | {"max_iter": 200, "tol": 1e-9}).fit(X, lengths=LENGTHS)
    near = 5e-3 if solver == "stochastic" else 1e-5
    assert abs(there.objective_ - here.objective_) < near


@pytest.mark.parametrize(
    "parameters, message",
    [
        ({"emission": Weibull()}, "visit single rows"),
        ({"batch_size": 100}, "leave it at 'auto'"),
        ({"startprob": "stationary"}, "visit single rows"),
    ],
)
def test_blocks_of_rows_are_of_memory(X, parameters, message):
    model = VRHMM(3, **PLAIN | {"solver": "svrg"} | parameters)
    with pytest.raises(ValueError, match=message):
        model.fit(blocks(np.exp(X / 3.0)), lengths=LENGTHS)
    assert not [name for name in vars(model) if name.endswith("_")]


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["incremental", "svrg"])
def test_a_killed_worker_changes_nothing(X, solver):
    given = PLAIN | {"solver": solver, "max_iter": 6}
    with two_workers() as client, dask.config.set(scheduler=None):
        lazy, watch = client.persist(blocks(X)), Killing(client)
        client.compute(lazy.sum()).result()
        there = VRHMM(3, **given)
        there.set_callbacks(watch)
        there.fit(lazy, lengths=LENGTHS)
        assert watch.killed
    assert_same(VRHMM(3, **given).fit(blocks(X), lengths=LENGTHS), there)
