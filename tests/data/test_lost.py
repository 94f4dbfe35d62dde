"""What lives beside rows: what a scheduler keeps for it, and what happens without."""

import gc
import pickle
import time

import numpy as np
import pytest

from skvrem import VRPLSA, FactorialMixture, TemperedLDA
from tests import kills
from tests.watching import Killing, Recorder, two_workers

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")
_partition = pytest.importorskip("skvrem.data._dask._partition")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]
RNG = np.random.default_rng(0)
N, V, K = 400, 90, 4
TOPICS, SHARES = RNG.dirichlet(np.full(V, 0.1), K), RNG.dirichlet(np.ones(K), N)
COUNTS = np.stack([RNG.multinomial(40, own @ TOPICS) for own in SHARES]).astype(float)
PARTS = RNG.normal(size=(8, 16))
MIXED = (RNG.random((1600, 8)) < 0.4) @ PARTS + 0.5 * RNG.normal(size=(1600, 16))
CODES = RNG.integers(2, size=(N, 2)) @ np.array([[2.0, 0, 0, 1], [0, 3.0, 1, 0]])
FACTORS = CODES + 0.3 * RNG.normal(size=(N, 4))
START = {"random_state": 0, "max_iter": 400, "tol": 1e-6}
ONE = START | {"n_init": 1}
CASES = {
    "plsa": (VRPLSA(K, solver="batch", **ONE), COUNTS),
    "plsa, svrg": (VRPLSA(K, solver="svrg", batch_size=60, **ONE), COUNTS),
    "lda": (TemperedLDA(K, solver="batch", **ONE), COUNTS),
    "lda, svrg": (TemperedLDA(K, solver="svrg", batch_size=60, **ONE), COUNTS),
    "factorial, saga": (
        FactorialMixture(2, solver="saga", tempering=None, n_init=1, **START),
        FACTORS,
    ),
}


def blocks(X):
    return da.from_array(X, chunks=(100, -1))


class Held(Recorder):
    """Counts the tasks that a scheduler knows after every epoch."""

    def __init__(self, client):
        super().__init__()
        self.client, self.tasks = client, []

    def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
        super().on_fit_task_end(estimator, context)
        self.tasks.append(self._settled())
        return False

    def _settled(self):
        """The count once it rests: what is dropped here is let go of there later."""
        gc.collect()
        counts = [self.client.run_on_scheduler(_count)]
        while len(counts) < 4 or len(set(counts[-4:])) > 1:
            time.sleep(0.05)
            counts.append(self.client.run_on_scheduler(_count))
        return counts[-1]


def _count(dask_scheduler):
    return len(dask_scheduler.tasks)


@pytest.mark.parametrize("case", ["plsa", "plsa, svrg"])
def test_a_scheduler_keeps_so_much_and_no_more(case, monkeypatch):
    model, X = CASES[case]
    params = model.get_params() | {"max_iter": 8, "tol": 0.0}
    found = {}
    with two_workers() as client:
        lazy = client.persist(blocks(X))
        for most in (_partition.MOST_HELD, 0):
            monkeypatch.setattr(_partition, "MOST_HELD", most)
            watch, fitted = Held(client), type(model)(**params)
            fitted.set_callbacks(watch)
            fitted.fit(lazy)
            found[most] = fitted, watch.tasks
    (kept, grows), (lent, stays) = found.values()
    np.testing.assert_allclose(lent.components_, kept.components_, rtol=1e-12)
    assert grows[7] > grows[2] + 20
    assert stays[7] <= stays[2] + 5


@pytest.mark.parametrize("case", CASES)
def test_what_is_lost_is_made_again_by_the_model(case, monkeypatch):
    """As nothing tells how it was made; the fit is certified, and ends where it did."""
    model, X = CASES[case]
    monkeypatch.setattr(_partition, "MOST_HELD", 0)
    recover, seen = _partition.RowStates.recover, []

    def watched(self):
        seen.append(recover(self))
        return seen[-1]

    monkeypatch.setattr(_partition.RowStates, "recover", watched)
    undisturbed = type(model)(**model.get_params()).fit(blocks(X))
    with two_workers() as client:
        lazy, watch = client.persist(blocks(X)), Killing(client)
        client.compute(lazy.sum()).result()
        there = type(model)(**model.get_params())
        there.set_callbacks(watch)
        there.fit(lazy)
        assert watch.killed
    assert any(seen)
    assert there.converged_ and there.n_iter_ > 3
    # Another way leads to the same optimum, or to one as good.
    assert there.objective_ > undisturbed.objective_ - 2e-3


def test_codes_are_found_again_through_temperatures(monkeypatch):
    """From the prior alone, the components would follow codes that end elsewhere."""
    monkeypatch.setattr(_partition, "MOST_HELD", 0)
    how = {"n_init": 1, "annealing_iter": 40, **START}
    X = da.from_array(MIXED, chunks=(400, -1))
    undisturbed = FactorialMixture(8, **how).fit(X)
    with two_workers() as client:
        lazy, watch = client.persist(X), Killing(client, epoch=35)
        client.compute(lazy.sum()).result()
        there = FactorialMixture(8, **how)
        there.set_callbacks(watch)
        there.fit(lazy)
        assert watch.killed
    assert undisturbed.history_["temperature"][35] > 1.0
    assert there.converged_
    assert there.objective_ > undisturbed.objective_ - 1e-3


def test_a_fit_goes_on_from_its_pickle_where_it_ended():
    """Codes lie beside the rows: without them they are found again, not from π."""
    X = da.from_array(MIXED, chunks=(400, -1))
    model = FactorialMixture(8, n_init=1, annealing_iter=40, **START).fit(X)
    again = pickle.loads(pickle.dumps(model)).set_params(warm_start=True)
    for rows in (X, MIXED):
        again.fit(rows)
        assert again.history_["objective"][0] > model.objective_ - 1e-2


@pytest.mark.thorough
@pytest.mark.parametrize("alone", [True, False], ids=["alone", "on dask"])
def test_every_fit_is_killed_once(alone):
    """On dask a worker of every other fit, the client of the rest."""
    wrong, struck = kills.run(len(kills.FITS), seed=0, alone=alone)
    assert not wrong
    assert struck > 0.7 * len(kills.FITS)
