"""Passes over a dask array on worker processes: bytes, seconds, the client's memory.

Simulated data, 1.2 million rows of 10 features in 12 chunks (96 MB), kept by the
workers, which have one thread each. Bytes are those of the loopback, of all processes:
run it on a quiet machine. Memory is the growth of the resident set of the process that
has client and scheduler, at its peak, after a fit that has imported and compiled all.
Of topic models they are 12 chunks of sparse counts, of 2,000 words, 100 a document.
"""

import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from benchmarks.harness import Row, group
from skvrem import (
    VRHMM,
    VRPLSA,
    BayesianLogisticRegression,
    BayesianPPCA,
    FactorialMixture,
    GaussianDropoutClassifier,
    SBMLogisticRegression,
    TemperedLDA,
    VRGaussianMixture,
)

WORKERS = 1, 2
FIT = {"max_iter": 10, "tol": 0.0}
START = {"random_state": 0, "n_init": 1}
TOPICS = {"random_state": 0}
#: Words, and features of rows.
WORDS, FEATURES = 2_000, 10
CASES = {
    "mixture": VRGaussianMixture(10, solver="batch", **START, **FIT),
    "logistic": SBMLogisticRegression(acceleration=None, **FIT),
    "bayes": BayesianLogisticRegression(posterior="meanfield", **FIT),
    "factorial": FactorialMixture(4, tempering=None, **START, **FIT),
    "ppca": BayesianPPCA(2, random_state=0),
    **{
        f"mixture-{solver}": VRGaussianMixture(10, solver=solver, **START, **FIT)
        for solver in ("svrg", "saga", "incremental", "stochastic")
    },
    **{
        f"factorial-{solver}": FactorialMixture(
            4, solver=solver, tempering=None, **START, **FIT
        )
        for solver in ("svrg", "saga", "stochastic")
    },
    **{
        f"logistic-{solver}": SBMLogisticRegression(
            solver=solver, random_state=0, **FIT
        )
        for solver in ("svrg", "stochastic")
    },
    "bayes-svrg": BayesianLogisticRegression(solver="svrg", random_state=0, **FIT),
    "dropout-svrg": GaussianDropoutClassifier(
        hidden_layer_sizes=(), solver="svrg", random_state=0, **FIT
    ),
    "hmm-svrg": VRHMM(3, solver="svrg", **START, **FIT),
    "plsa": VRPLSA(20, solver="batch", **TOPICS, **FIT),
    "plsa-svrg": VRPLSA(20, solver="svrg", **TOPICS, **FIT),
    "lda-svrg": TemperedLDA(20, solver="svrg", **TOPICS, **FIT),
    "lda-stochastic": TemperedLDA(20, solver="stochastic", **TOPICS, **FIT),
}


CLASSIFIERS = "logistic", "bayes", "dropout"


def loopback():
    """Return the bytes that the loopback has sent."""
    for line in Path("/proc/net/dev").read_text(encoding="ascii").splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == "lo":
            return int(numbers.split()[8])
    return 0


def resident():
    """Return the bytes of this process's resident set."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096


@contextmanager
def peak():
    """Measure by how much the resident set grows, at its peak."""
    grown, before, over = [0], resident(), threading.Event()

    def watch():
        while not over.wait(0.01):
            grown[0] = max(grown[0], resident() - before)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield grown
    finally:
        over.set()
        thread.join()


@contextmanager
def rows_of(run, n_workers, words=False):
    """Make a cluster, and an array and classes that its workers keep.

    Or counts of words, sparse, as many entries as the array has.
    """
    import dask.array as da
    import distributed

    n = run.size(100_000, 6_000)
    with (
        distributed.LocalCluster(
            n_workers=n_workers, threads_per_worker=1, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        normal = da.random.default_rng(0).normal
        if words:
            n //= 10
            X = da.random.default_rng(0).poisson(
                0.05, size=(12 * n, WORDS), chunks=(n, WORDS)
            )
            X = X.map_blocks(sp.csr_matrix, dtype=float).persist()
            distributed.wait(X)
            client.run(lambda: None)
            yield X, None
            return
        X = normal(size=(12 * n, FEATURES), chunks=(n, FEATURES)).persist()
        y = (X[:, 0] + normal(size=12 * n, chunks=n) > 0.0).astype(int).persist()
        distributed.wait([X, y])
        client.run(lambda: None)
        yield X, y


def measure(run, name, n_workers):
    """Return seconds, bytes and passes of a fit, and the client's growth."""
    words = isinstance(CASES[name], VRPLSA | TemperedLDA)
    with rows_of(run, n_workers, words) as (X, y):
        model = CASES[name]
        given = (X, y) if name.split("-")[0] in CLASSIFIERS else (X,)
        lengths = {}
        if isinstance(model, VRHMM):
            lengths = {"lengths": [X.shape[0] // 120] * 120}
        model.fit(*given, **lengths)
        with peak() as grown:
            sent, began = loopback(), time.perf_counter()
            model.fit(*given, **lengths)
            seconds, sent = time.perf_counter() - began, loopback() - sent
        with peak() as of_answers:
            model.score(*given, **lengths)
        passes = float(np.max(model.history_["passes"]))
        return {
            "seconds": seconds / passes,
            "bytes": sent / passes,
            "grown": grown[0],
            "grown_by_score": of_answers[0],
        }


@group(tuple(CASES))
def passes(run, case):
    """Megabytes that travel in a pass of a fit, with 2 workers and with 1."""
    found = {n: measure(run, case, n) for n in WORKERS}
    two, one = found[2], found[1]
    note = (
        f"{two['seconds']:.2f} s a pass, 1 worker {one['seconds']:.2f}; client "
        f"+{two['grown'] / 1e6:.1f} MB in fit, +{two['grown_by_score'] / 1e6:.1f} MB "
        "in score"
    )
    peers = {"1 worker": one["bytes"] / 1e6}
    label = ", ".join([type(CASES[case]).__name__, *case.split("-")[1:]])
    numbers = {f"{n} workers": values for n, values in found.items()}
    yield Row(
        label, two["bytes"] / 1e6, "MB", peers, note=note, key=case, numbers=numbers
    )
