"""Hidden Markov models beside hmmlearn: python benchmarks/hmm_table.py [--quick].

    python benchmarks/hmm_table.py --only memory first    # these need no hmmlearn
    SKVREM_DATA=... python benchmarks/hmm_table.py --only accelerometer

Seconds of one Baum-Welch iteration are the difference of fits of many and of few
iterations from the same values, so that validation and layout cancel; whole fits stop
where a row gains less than 1e-6. Of one thread CPU seconds count, of more the wall
clock, which means something on an idle machine only. The fastest repetition counts.
"""

import argparse
import os
import sys
import time
import warnings
from functools import partial
from pathlib import Path

import numpy as np
from harness import Row, processes
from harness.table import as_table, describe_machine

from skvrem import VRHMM
from skvrem.hmm import Gaussian, Homogeneous

warnings.simplefilter("ignore")

GROUPS = ["iteration", "sequences", "fit", "memory", "first", "accelerometer"]


def simulate(n, d, n_rows, seed=0, stay=0.999):
    """Draw a series as in section 5 of Sidrow et al., and a start near it."""
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(n, d))
    jumps = np.append(True, rng.random(n_rows - 1) > stay)
    states = rng.integers(n, size=jumps.sum())[np.cumsum(jumps) - 1]
    X = means[states] + np.exp(-1.0) * rng.normal(size=(n_rows, d))
    start = X.mean(axis=0) + X.std(axis=0) * rng.normal(size=(n, d))
    return X, start


def ours(n, kind, start, X, iterations, tol=0.0, n_jobs=1, lengths=None, options=()):
    d = X.shape[1]
    covariance = np.eye(d) if kind == "full" else 1.0
    emission = Gaussian(
        kind,
        mean_init=start,
        covariance_init=np.broadcast_to(
            covariance, (n, d, d) if kind == "full" else (n, d)
        ),
    )
    init = np.full((n, n), 0.1 / n) + 0.9 * np.eye(n)
    model = VRHMM(
        n,
        emission=emission,
        transitions=Homogeneous(init=init),
        n_init=1,
        max_iter=iterations,
        tol=tol,
        n_jobs=n_jobs,
        **({"solver": "batch"} | dict(options)),
    )
    return model.fit(X, lengths=lengths)


def theirs(n, kind, start, X, iterations, implementation, tol=-np.inf, lengths=None):
    from hmmlearn.hmm import GaussianHMM

    model = GaussianHMM(
        n,
        kind,
        n_iter=iterations,
        tol=tol,
        init_params="",
        implementation=implementation,
        covars_prior=0.0,
        covars_weight=0.0,
    )
    d = X.shape[1]
    model.startprob_ = np.full(n, 1.0 / n)
    model.transmat_ = np.full((n, n), 0.1 / n) + 0.9 * np.eye(n)
    model.means_ = start
    model.covars_ = np.array([np.eye(d)] * n) if kind == "full" else np.ones((n, d))
    return model.fit(X, lengths)


def seconds(function, repeats, clock=time.process_time):
    best = np.inf
    for _ in range(repeats):
        began = clock()
        function()
        best = min(best, clock() - began)
    return best


def per_iteration(function, few, many, repeats, clock=time.process_time):
    short = seconds(lambda: function(few), repeats, clock)
    return (seconds(lambda: function(many), repeats, clock) - short) / (many - few)


def iteration_rows(n_rows, repeats, threads):
    for n, d in ((3, 3), (3, 6), (6, 3), (6, 6)):
        iteration_row(n, d, "diag", n_rows, repeats, threads)
    iteration_row(6, 6, "full", n_rows, repeats, threads)
    iteration_row(20, 3, "diag", n_rows, repeats, threads)


def iteration_row(n, d, kind, n_rows, repeats, threads):
    X, start = simulate(n, d, n_rows)
    ours(n, kind, start, X[:2000], 1)  # compile
    few, many = (1, 3) if n == 20 else (2, 6)
    row = {}
    for jobs in threads:
        row[f"ours, {jobs} thread{'s' * (jobs > 1)}"] = per_iteration(
            lambda k, jobs=jobs: ours(n, kind, start, X, k, n_jobs=jobs),
            5,
            45,
            repeats,
            time.process_time if jobs == 1 else time.perf_counter,
        )
    for implementation in ("scaling", "log"):
        row[implementation] = per_iteration(
            lambda k, i=implementation: theirs(n, kind, start, X, k, i),
            few,
            many,
            max(1, repeats // 2),
        )
    show(f"N={n}, d={d}, {kind}", row)


def sequence_row(repeats, n_sequences=1000, length=100):
    X, start = simulate(3, 3, n_sequences * length)
    lengths = [length] * n_sequences
    row = {
        "ours, 1 thread": per_iteration(
            lambda k: ours(3, "diag", start, X, k, lengths=lengths), 5, 45, repeats
        ),
    }
    for implementation in ("scaling", "log"):
        row[implementation] = per_iteration(
            lambda k, i=implementation: theirs(
                3, "diag", start, X, k, i, lengths=lengths
            ),
            2,
            6,
            max(1, repeats // 2),
        )
    show(f"N=3, d=3, {n_sequences} sequences of {length}", row)


def fit_rows(n_rows, repeats):
    for n, d in ((3, 3), (6, 6)):
        X, start = simulate(n, d, n_rows)
        found = {}

        def batch(n=n, start=start, X=X, found=found):
            found["ours"] = ours(n, "diag", start, X, 1000, tol=1e-6)

        def squarem(n=n, start=start, X=X, found=found):
            options = {"acceleration": "squarem"}
            found["squarem"] = ours(
                n, "diag", start, X, 1000, tol=1e-6, options=options
            )

        row = {"ours, 1 thread": seconds(batch, repeats)}
        row["ours, squarem"] = seconds(squarem, repeats)
        for implementation in ("scaling", "log"):

            def other(i=implementation, n=n, start=start, X=X, found=found):
                tol = 1e-6 * len(X)
                found[i] = theirs(n, "diag", start, X, 1000, i, tol=tol)

            row[implementation] = seconds(other, 1)
        show(f"whole fit, N={n}, d={d}", row)
        ends = {name: model.score(X) for name, model in found.items()}
        ends = {
            name: end / (len(X) if name in ("scaling", "log") else 1)
            for name, end in ends.items()
        }
        print("    log-likelihood a row:", {k: round(v, 7) for k, v in ends.items()})


MEMORY = """
n, d, n_rows, options = *map(int, sys.argv[1:4]), json.loads(sys.argv[4])
from skvrem import VRHMM

def make():
    return VRHMM(n, max_iter=5, tol=0.0, random_state=0, n_jobs=1, **options)

def draw(n_rows):
    return np.random.default_rng(0).standard_normal((n_rows, d))

def warm_up():
    make().fit(draw(20_000))

def load():
    return draw(n_rows)

def fit(X):
    make().fit(X)
"""

IMPORTS = """
import sklearn.mixture, sklearn.cluster
from skvrem import VRHMM
"""

FIRST = """
n, d = map(int, sys.argv[1:])

def load():
    return np.random.default_rng(0).standard_normal((20_000, d))

def fit(X):
    VRHMM(n, max_iter=3, random_state=0).fit(X)
"""


def memory_rows(n_rows):
    """Peak of the resident memory during fit beyond X: a row's share, and the rest."""
    for n, d in ((3, 3), (3, 6), (6, 6)):
        for options in ("{}", '{"solver": "batch"}', '{"solver": "incremental"}'):
            few, many = (
                processes.peak_memory(MEMORY, str(n), str(d), str(rows), options)
                for rows in (n_rows, 2 * n_rows)
            )
            each, allowed = (many - few) / n_rows, 8 * n + 8 * d
            yield Row(
                "memory",
                f"extra memory in fit, N={n}, d={d}, {options}, from {n_rows:.0e} "
                "rows to twice as many",
                f"{each:.1f} bytes a row and {(few - each * n_rows) / 1e6:.0f} MB",
                f"8 N + 8 d = {allowed} bytes",
                each <= allowed,
                {"few": few, "many": many},
            )


def first_rows(repeats):
    """Seconds of the first fit of a process, and with other sizes than are cached."""
    yield from processes.first_fits(
        IMPORTS, FIRST, ("3", "3"), "N=3, d=3", repeats, unseen=("7", "5")
    )


def accelerometer_rows(repeats):
    """Fits of seven states to a person with about 100,000 rows, eight starts."""
    path = Path(os.environ.get("SKVREM_DATA", "")) / "chest_accelerometer.npz"
    if not path.exists():
        print(f"left out: there is no {path}", file=sys.stderr)
        return
    with np.load(path) as file:
        ends, person = np.cumsum(file["lengths"]), 2
        X = file["X"][ends[person - 1] : ends[person]].astype(float)
    for kind in ("diag", "full"):
        model = VRHMM(7, covariance_type=kind, random_state=0)
        model.fit(X[:2000])  # compile
        wall = seconds(partial(model.fit, X), repeats, time.perf_counter)
        model.set_params(n_jobs=1)
        cpu = seconds(partial(model.fit, X), repeats)
        yield Row(
            "accelerometer",
            f"fit of one person's chest accelerometer, {X.shape}, N=7, {kind}",
            f"{wall:.2f} s, one thread {cpu:.2f} s of CPU ({model.n_iter_} epochs of "
            f"the best start of 8, {model.log_likelihood_:.4f} nats a row)",
            "1 s",
            cpu <= 1.0,
            {"wall": wall, "cpu": cpu},
        )


def show(label, row):
    first = next(iter(row))
    text = ", ".join(f"{name} {1e3 * value:.2f} ms" for name, value in row.items())
    ratios = ", ".join(
        f"{name}: {row[name] / row[ours_]:.1f}x of {ours_}"
        for name in ("scaling", "log")
        for ours_ in row
        if ours_.startswith("ours") and name in row
    )
    print(f"{label}: {text}\n    {ratios}", flush=True)
    assert first.startswith("ours")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--only", nargs="+", choices=GROUPS, default=GROUPS[:3])
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    arguments = parser.parse_args()
    repeats = 1 if arguments.quick else 3
    n_rows = 20_000 if arguments.quick else arguments.rows
    print(f"T={n_rows}, load average {os.getloadavg()[0]:.1f}")
    if "iteration" in arguments.only:
        iteration_rows(n_rows, repeats, arguments.threads)
    if "sequences" in arguments.only:
        sequence_row(repeats)
    if "fit" in arguments.only:
        fit_rows(n_rows, repeats)
    rows = []
    if "memory" in arguments.only:
        rows += memory_rows(10 * n_rows)
    if "first" in arguments.only:
        rows += first_rows(repeats)
    if "accelerometer" in arguments.only:
        rows += accelerometer_rows(repeats)
    if rows:
        print(as_table(rows, describe_machine(), arguments.quick))


if __name__ == "__main__":
    main()
