"""Kill processes at random moments of fits, on dask and alone.

    python -m tests.kills --count 50 --seed 0
    python -m tests.kills --count 50 --alone

Every estimator that runs on dask is fitted by each of its solvers, once without a
fault. Then a worker of a LocalCluster is killed at a random moment of the fit, which
has to end where the unbroken one did; or, of every other, the process that fits and
writes a checkpoint is, and another goes on from there, with the array loaded again. In
the next round it is the other way about, and so it is by an odd seed. Alone, there is
no dask: the rows are in the memory of the process that is killed, and of the one that
goes on. All kills are by SIGKILL. Ends are compared by the objective, within the fit's
own tolerance.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from skvrem import (
    VRHMM,
    VRPLSA,
    BayesianGLMRegressor,
    BayesianLogisticRegression,
    BayesianPPCA,
    BradleyTerry,
    Checkpoint,
    FactorialMixture,
    GaussianDropoutClassifier,
    HierarchicalSoftmaxClassifier,
    SBMLogisticRegression,
    TemperedLDA,
    VariationalInference,
    VRGaussianMixture,
)
from tests.own_models import Logistic, logistic_problem

N_WORKERS, N_CHUNKS, ROWS = 2, 4, 2000
#: Seconds that a kill may come after a fit of known length has begun, as a share.
LATEST = 0.9
START = {"random_state": 0, "n_init": 1}


class Fit(NamedTuple):
    """An estimator, what it is fitted to, and how near its ends have to be."""

    model: Any
    rows: str
    y: bool = False
    groups: bool = False
    lengths: bool = False
    within: float = 1e-5


EM = {"tol": 1e-6, **START}
TOPICS = {"tol": 1e-5, "max_iter": 40, **START}


def fits():
    """Yield a name and a fit, of every estimator and its solvers.

    Who brings a model brings its rows: there are none to lie on workers. Where what
    lies beside rows is no part of a checkpoint (codes, shares, tables), fits go another
    way.
    """
    for solver in "batch", "svrg", "saga", "incremental", "stochastic":
        how = {"solver": solver, "max_iter": 30, **EM}
        table = 1e-3 if solver in ("saga", "incremental") else 1e-5
        yield (
            f"mixture, {solver}",
            Fit(VRGaussianMixture(4, **how), "points", within=table),
        )
        how |= {"tempering": None}
        yield (
            f"factorial, {solver}",
            Fit(FactorialMixture(3, **how), "points", within=5e-3),
        )
    squarem = {"acceleration": "squarem", "max_iter": 30, **EM}
    yield "mixture, squarem", Fit(VRGaussianMixture(4, **squarem), "points")
    annealed = FactorialMixture(3, max_iter=60, annealing_iter=20, **EM)
    yield "factorial, annealed", Fit(annealed, "points", within=5e-3)
    for solver in "lbfgs", "batch", "svrg", "stochastic":
        how = {"solver": solver, "tol": 1e-6, "max_iter": 50, "random_state": 0}
        if solver == "batch":
            how["acceleration"] = None
        yield f"logistic, {solver}", Fit(SBMLogisticRegression(**how), "points", y=True)
    for solver in "batch", "svrg", "saga", "stochastic":
        how = {"solver": solver, "max_iter": 20, "random_state": 0}
        for name, model in (
            ("bayesian", BayesianLogisticRegression(**how)),
            ("counts", BayesianGLMRegressor("poisson", **how)),
        ):
            yield f"{name}, {solver}", Fit(model, "points", y=True, within=0.02)
    groups = {"y": True, "groups": True, "within": 0.02}
    varying = BayesianLogisticRegression(varying="all")
    yield "groups", Fit(varying, "points", **groups)
    for posterior in "meanfield", "nested":
        model = HierarchicalSoftmaxClassifier(posterior=posterior)
        yield f"hierarchical, {posterior}", Fit(model, "points", **groups)
    for solver in "batch", "svrg", "stochastic":
        how = {"solver": solver, **TOPICS}
        documents = {"rows": "documents", "within": 1e-2}
        yield f"plsa, {solver}", Fit(VRPLSA(5, **how), **documents)
        for e_step in "mean_field", "collapsed":
            model = TemperedLDA(5, e_step=e_step, **how)
            yield f"lda, {e_step}, {solver}", Fit(model, **documents)
    for acceleration in None, "squarem", "lbfgs":
        how = {"solver": "batch", "acceleration": acceleration, "max_iter": 30, **EM}
        yield f"hmm, {acceleration}", Fit(VRHMM(3, **how), "points", lengths=True)
    for solver in "svrg", "saga", "incremental", "stochastic":
        how = {"solver": solver, "max_iter": 20, **EM}
        yield (
            f"hmm, {solver}",
            Fit(VRHMM(3, **how), "points", lengths=True, within=1e-3),
        )
    dropout = GaussianDropoutClassifier(max_iter=10, random_state=0)
    yield "dropout", Fit(dropout, "points", y=True, within=0.02)
    yield "components", Fit(BayesianPPCA(2, random_state=0), "points")
    yield "matches", Fit(BradleyTerry(), "matches")
    for solver in "batch", "svrg", "saga", "stochastic":
        model = Logistic(*logistic_problem(n=2000))
        how = {"solver": solver, "max_iter": 20, "random_state": 0}
        yield f"own model, {solver}", Fit(VariationalInference(model, **how), "")


FITS = dict(fits())


def _played(block):
    """Return winners and losers among ten players, the first of them the strongest."""
    a = (10 * abs(block[:, 0])).astype(int) % 10
    b = (a + 1 + (10 * abs(block[:, 1])).astype(int) % 9) % 10
    upset = abs(block[:, 0] * block[:, 1]) > 1.0
    first = (a < b) != upset
    return np.where(first[:, None], np.stack([a, b], 1), np.stack([b, a], 1))


def load(fit, alone=False):
    """Return the rows of a fit, dask arrays that the workers keep or arrays of ours."""
    import dask
    import dask.array as da
    from distributed import futures_of, wait

    if not fit.rows:
        return {}
    n, rng = N_CHUNKS * ROWS, np.random.default_rng(0)
    normal = da.random.default_rng(0).normal
    if fit.rows == "documents":
        topics = rng.dirichlet(np.full(60, 0.1), 5)

        def draw(block):
            own = np.random.default_rng(int(1e6 * abs(block[0, 0])) % 2**31)
            shares = own.dirichlet(np.full(5, 0.3), len(block))
            return own.multinomial(40, shares @ topics).astype(float)

        X = normal(size=(n // 4, 60), chunks=(ROWS // 4, 60)).map_blocks(
            draw, dtype=float
        )
    elif fit.rows == "matches":
        X = normal(size=(n, 2), chunks=(ROWS, 2)).map_blocks(_played, dtype=int)
    else:
        means = 1.5 * rng.normal(size=(4, 6))
        labels = da.random.default_rng(1).integers(4, size=n, chunks=ROWS)
        X = labels.map_blocks(
            lambda own: means[own], chunks=((ROWS,) * N_CHUNKS, (6,)), new_axis=1
        )
        X = X + normal(size=(n, 6), chunks=(ROWS, 6))
    given = {"X": X}
    if fit.y:
        noise = da.random.default_rng(2).logistic(size=n, chunks=ROWS)
        given["y"] = (X[:, 0] - X[:, 1] + noise > 0.0).astype(int)
    if fit.groups:
        given["groups"] = np.arange(n) % 12
    if fit.lengths:
        given["lengths"] = np.full(n // 100, 100)
    (given,) = (dask.compute if alone else dask.persist)(given)
    if not alone:
        wait(futures_of(given))
    return given


def fitted(model, given):
    """Fit a model, in silence."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(**given)


def objective(model):
    """Return the objective that a fit has ended with."""
    if hasattr(model, "history_"):
        return float(model.history_["objective"][-1])
    return float(model.elbo_)


def copy_of(fit):
    """Return the estimator of a fit, as it was made."""
    return type(fit.model)(**fit.model.get_params(deep=False))


def kill_worker(client, delay, rng):
    """Kill a worker so many seconds from now; return what ends the waiting."""
    over = threading.Event()
    # One that was killed before may still be known to the scheduler.
    pids = list(client.run(os.getpid, on_error="ignore").values())
    pid = int(rng.choice(pids))

    def strike():
        if not over.wait(delay):
            os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=strike)
    thread.start()
    return over, thread


def worker_killed(fit, given, client, seconds, rng):
    """Return the model of a fit of which a worker was killed, and whether it was."""
    over, thread = kill_worker(client, rng.uniform(0.0, LATEST) * seconds, rng)
    try:
        model = fitted(copy_of(fit), given)
    finally:
        struck = not thread.is_alive()
        over.set()
        thread.join()
    return model, struck


def process_killed(name, fit, address, seconds, rng, folder):
    """Return the model of a fit whose process was killed, and whether it was.

    Without the address of a scheduler its rows are in its memory.
    """
    path = Path(folder) / f"{name}.skvrem"
    path.unlink(missing_ok=True)
    command = [sys.executable, "-m", "tests.kills", "--fit", name, "--at", address]
    process = subprocess.Popen(
        [*command, "--path", str(path)], stdout=subprocess.PIPE, text=True
    )
    process.stdout.readline()  # it has begun
    time.sleep(rng.uniform(0.0, LATEST) * seconds)
    process.kill()
    struck = "ended" not in process.communicate()[0]
    if process.returncode not in (0, -signal.SIGKILL):
        raise RuntimeError("the process that was to be killed failed by itself")
    given = load(fit, alone=not address)
    if not path.exists():
        return fitted(copy_of(fit), given), struck
    return fitted(Checkpoint.load(path).set_params(warm_start=True), given), struck


def fit_to_be_killed(name, address, path):
    """Fit, and say when that begins."""
    from distributed import Client

    fit = FITS[name]
    with Client(address) if address else contextlib.nullcontext():
        given = load(fit, alone=not address)
        if not address:  # kernels, which the fit whose seconds are known had, too
            fitted(copy_of(fit), given)
        print("began", flush=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            Checkpoint(path, every=1).fit(copy_of(fit), **given)
        print("ended", flush=True)


@contextlib.contextmanager
def workers():
    """A LocalCluster, closed even if one of its workers is on its way back."""
    from distributed import LocalCluster

    how = {"n_workers": N_WORKERS, "threads_per_worker": 1, "dashboard_address": ":0"}
    cluster = LocalCluster(**how)
    try:
        yield cluster
    finally:
        with contextlib.suppress(KeyError):  # of the worker that is not known any more
            cluster.close()


def repaired(cluster, client):
    """Wait for the workers; start them all where one has not come back in time."""
    try:
        client.wait_for_workers(N_WORKERS, timeout=60)
    except TimeoutError:  # a nanny that found the machine too slow
        cluster.scale(0)
        cluster.scale(N_WORKERS)
        client.wait_for_workers(N_WORKERS, timeout=300)


def run(count, seed, only="", alone=False):
    """Kill so often; return the fits that ended elsewhere, and how many were struck."""
    import dask
    from distributed import Client

    rng, wrong, struck = np.random.default_rng(seed), [], 0
    names = [name for name, fit in FITS.items() if only in name and (alone or fit.rows)]
    if not names:
        raise SystemExit(f"No fit has {only!r} in its name: {', '.join(FITS)}.")
    quiet = {"distributed.comm.timeouts.connect": "60s"}
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        address = ""
        if not alone:
            stack.enter_context(dask.config.set(quiet))
            cluster = stack.enter_context(workers())
            client = stack.enter_context(Client(cluster))
            address = client.scheduler.address
        unbroken, seconds = {}, {}
        for number in range(count):
            name, turn = names[number % len(names)], number // len(names)
            fit = FITS[name]
            of_worker = not alone and (number + turn + seed) % 2 == 0
            if not alone:
                repaired(cluster, client)
            if name not in unbroken:
                given = load(fit, alone)
                fitted(copy_of(fit), given)  # kernels
                began = time.perf_counter()
                unbroken[name] = objective(fitted(copy_of(fit), given))
                seconds[name] = time.perf_counter() - began
                print(f"{name}: {seconds[name]:.1f} s, {unbroken[name]:.9g}")
            try:
                if of_worker:
                    how = fit, load(fit), client, seconds[name], rng
                    began = time.perf_counter()
                    model, hit = worker_killed(*how)
                    if not hit:  # the machine is faster than it was
                        seconds[name] = time.perf_counter() - began
                else:
                    how = name, fit, address, seconds[name], rng, folder
                    model, hit = process_killed(*how)
                off = abs(objective(model) - unbroken[name])
            except Exception as error:  # which the run goes on after
                off, hit = np.inf, True
                print(f"  {type(error).__name__}: {error}")
            struck += hit
            good = off <= fit.within
            what = "worker" if of_worker else "process" if alone else "client"
            late = "" if hit else ", too late"
            print(
                f"{number + 1}: {name}, {what} killed{late}: off by {off:.2g}"
                f"{'' if good else ' WRONG'}",
                flush=True,
            )
            if not good:
                wrong.append((name, what, off))
    return wrong, struck


def main():
    """Kill, or be killed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="fits whose name holds this")
    parser.add_argument("--alone", action="store_true", help="without dask")
    for name in ("--fit", "--at", "--path"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.fit:
        with contextlib.suppress(KeyboardInterrupt):
            fit_to_be_killed(given.fit, given.at, given.path)
        return
    wrong, struck = run(given.count, given.seed, given.only, given.alone)
    print(f"{given.count} fits, {struck} struck, {len(wrong)} ended elsewhere")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
