"""What a fit takes beyond its rows: bytes a row, and a hundred million rows on disk.

Each fit has a process of its own, in which a fit to few rows has compiled the kernels.
What it takes is the most anonymous memory that is seen every millisecond, less that
before: pages of a file that is mapped are the system's, which takes them back as it
likes. On a hundred million rows no more than 2 GB may be allocated.
"""

import os
import shutil
import tempfile
from itertools import product

import numpy as np

from benchmarks.harness import Row, group
from benchmarks.harness.processes import run_python
from benchmarks.harness.rows import Unavailable

D, K = 8, 5
# What a process may allocate, and what it needs on disk for a row.
LIMIT, ROW_BYTES = 2 * 10**9, 4 * D + 1

FIT = """
import json, os, resource, sys, threading, time, warnings
import numpy as np, scipy.sparse as sp
from skvrem import BayesianPPCA, SBMLogisticRegression, VRGaussianMixture

warnings.simplefilter("ignore")
folder, name, container, limit = sys.argv[1:]

def load(part, dtype, *shape):
    path = os.path.join(folder, part)
    found = np.memmap(path, dtype, "r")
    if container == "array":
        found = np.array(found)
    return found.reshape(shape) if shape else found

family, _, solver = name.partition(" ")
y = None
if family == "logistic":
    y = load("y", np.int8)
if container == "sparse map":
    X = sp.csr_array((len(y), {d}), dtype=np.float32)
    X.data, X.indices = load("X", np.float32), load("indices", np.int32)
    X.indptr = load("indptr", np.int64)
else:
    X = load("X", np.float32, -1, {d})

def make():
    options = dict(random_state=0)
    if family == "PPCA":
        return BayesianPPCA(3)
    if solver:
        options["solver"] = solver
    if family == "logistic":
        if solver == "stochastic":
            options["max_iter"] = 1
        return SBMLogisticRegression(**options)
    if solver:
        options |= dict(n_init=1, max_iter=10)
    return VRGaussianMixture({k}, **options)

def fit(rows):
    # scipy would copy the indices of a part.
    some = X if rows == X.shape[0] else X[:rows]
    return make().fit(some, *(() if y is None else (y[:rows],)))

def anonymous():
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith("RssAnon:"):
                return 1024 * int(line.split()[1])

fit(100_000)
if int(limit):
    resource.setrlimit(resource.RLIMIT_DATA, (int(limit), int(limit)))
before = anonymous()
peak, stop = [before], threading.Event()
def watch():
    while not stop.wait(0.001):
        peak[0] = max(peak[0], anonymous())
threading.Thread(target=watch, daemon=True).start()
began, cpu = time.perf_counter(), time.process_time()
model = fit(X.shape[0])
seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
stop.set()
passes = float(model.history_["passes"][-1])
found = dict(before=before, seconds=seconds, cpu=cpu, passes=passes)
print(json.dumps(dict(found, extra=peak[0] - before)))
"""
FIT = FIT.replace("{d}", str(D)).replace("{k}", str(K))


def write_rows(folder, n, sparse=False):
    """Write rows of five overlapping clusters and their classes, part by part."""
    if shutil.disk_usage(folder).free < 2 * n * ROW_BYTES:
        raise Unavailable(f"{2 * n * ROW_BYTES / 1e9:.0f} GB of disk")
    rng = np.random.default_rng(0)
    means = 2.0 * rng.standard_normal((K, D), np.float32)
    factors = np.eye(D) + 0.4 * rng.standard_normal((K, D, D)) / np.sqrt(D)
    theta = 0.5 * rng.standard_normal(D)
    names = ["X", "y", "indices"] if sparse else ["X", "y"]
    files = {name: open(os.path.join(folder, name), "wb") for name in names}
    positions = [np.zeros(1, np.int64)]
    for start in range(0, n, 1_000_000):
        m = min(1_000_000, n - start)
        label = rng.integers(K, size=m)
        X = rng.standard_normal((m, D), np.float32)
        for j in range(K):
            X[label == j] = X[label == j] @ factors[j] + means[j]
        noise = rng.logistic(size=m)
        if sparse:
            X[rng.random(X.shape, np.float32) < 0.5] = 0.0
            there = X != 0.0
            np.nonzero(there)[1].astype(np.int32).tofile(files["indices"])
            positions.append(positions[-1][-1] + there.sum(axis=1).cumsum())
            X[there].tofile(files["X"])
        else:
            X.tofile(files["X"])
        (X @ theta + noise > 0.0).astype(np.int8).tofile(files["y"])
    for file in files.values():
        file.close()
    if sparse:
        np.concatenate(positions).tofile(os.path.join(folder, "indptr"))


def measured(folder, name, container, limit=0):
    """Return what a fit in a process of its own says."""
    if not os.path.exists("/proc/self/status"):
        raise Unavailable("memory is read from /proc, which only Linux has")
    return run_python(FIT, folder, name, container, str(limit))


ROWS = {
    "mixture batch": 4.1,
    "mixture svrg": 4.1,
    "mixture saga": 4.1,
    "mixture": 4.1,
    "logistic": 8.0,
    "logistic batch": 8.0,
    "logistic svrg": 8.0,
    "logistic stochastic": 8.0,
    "PPCA": 4.0,
}
CASES = [
    *product(ROWS, ["array", "map"]),
    ("logistic", "sparse map"),
    ("logistic svrg", "sparse map"),
]


@group({f"{name} {container}": (name, container) for name, container in CASES})
def rows(run, name, container):
    """Memory of a fit beyond X by row, from 2,000,000 rows to twice as many."""
    few, many = (run.size(n, n // 10) for n in (2_000_000, 4_000_000))
    found = []
    for n in few, many:
        with tempfile.TemporaryDirectory() as folder:
            write_rows(folder, n, container == "sparse map")
            found.append(measured(folder, name, container)["extra"])
    each = (found[1] - found[0]) / (many - few)
    yield Row(
        f"{name}, {container}",
        each,
        "bytes a row",
        target=ROWS[name],
        note=f"{(found[0] - each * few) / 1e6:.0f} MB not by row",
        numbers={"few": found[0], "many": found[1]},
    )


@group(asked=True)
def maps(run):
    """Seconds of fits to 100,000,000 rows of a memory map, 3.2 GB, in 2 GB."""
    n = run.size(100_000_000, 1_000_000)
    with tempfile.TemporaryDirectory() as folder:
        write_rows(folder, n)
        for name in "mixture batch", "mixture", "logistic", "PPCA":
            found = measured(folder, name, "map", LIMIT)
            note = f"{found['passes']:.1f} passes, {found['cpu']:.0f} s of CPU, "
            note += f"{found['extra'] / 1e6:.0f} MB beyond {found['before'] / 1e6:.0f}"
            yield Row(
                f"{name}, n={n:,}",
                found["seconds"],
                "s",
                note=note,
                key=name,
                numbers=found,
            )
