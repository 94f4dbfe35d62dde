"""Topics by `VRPLSA`: passes, held-out values, memory beside other packages.

A tenth of the documents is held out, words that the others do not have are dropped,
counts are float32. Ours has the defaults of `VRPLSA` but for the number of epochs.

- Online LDA, which costs the same for every document, is timed on an eighth and three
  eighths of the corpus.
- Held-out: one evaluator for all (`benchmarks.problems.evaluation`): each token of a
  held-out document goes to one of two halves by a fair coin; 50 MAP EM steps with
  alpha = 1/K find theta from the first half, given the normalised topics; the second
  half is scored. tomotopy (alpha = 1/K, eta = 0.1, one worker) sets the level by its
  value after 100 sweeps; the others, with their defaults, by the best of 8 passes less
  0.002, and their time is that of the pass that first has it. Only the peers' training
  is timed; of ours the whole fit, with the number of epochs (to 15 %) after which the
  level is reached; median over starts. Where `VRPLSA` never gets there `TemperedLDA` is
  tried.
- Solvers: stochastic EM has steps a/(t + t0)^kappa with a in 0.1, 1, 10, t0 in 10, 100,
  1000, kappa in 0.5, 0.75, 1, and the default; those best early and late go on, and at
  each moment the best of them counts, without the time of the pass in which it finds
  its objective. Moments are in the time of so many batch passes.
- "Parameters" are topics and shares, (V + D) K numbers. Memory is beyond X and them.
"""

import statistics
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.harness import Row, an_iteration, group
from benchmarks.harness.processes import first_fits, peak_memory, run_python
from benchmarks.peers import topics as peers
from benchmarks.problems import corpora, evaluation
from benchmarks.problems.curves import exact_curve, seconds_an_epoch, try_grid
from benchmarks.problems.curves import fit as timed_fit
from benchmarks.problems.held_out import Fits
from skvrem import VRPLSA, TemperedLDA

BOTH = list(product(corpora.CORPORA, (50, 100)))


def load(run, key):
    return corpora.load(key, run.size(None, 500))


def ours(X, n_topics, threads=1, solver="batch"):
    """Return a function that makes a fit of so many epochs."""
    params = {"solver": solver, "tol": 0.0, "random_state": 0, "n_jobs": threads}

    def fit(n_iter):
        with threadpool_limits(threads):
            VRPLSA(n_topics, max_iter=n_iter, **params).fit(X)

    return fit


@group(BOTH)
def pass_(run, key, n_topics):
    """Seconds of a pass of batch EM, one thread."""
    corpus = load(run, key)
    X = corpus.train

    def eighths(n):
        peers.online_lda(X, n_topics).partial_fit(X[: n * X.shape[0] // 8])

    others = {
        "enstop": (partial(peers.enstop_fit, X, n_topics), 1, 4),
        "scikit-learn NMF (KL)": (partial(peers.nmf_fit, X, n_topics), 1, 3),
        "scikit-learn online LDA": (eighths, 1, 3),
    }
    sides = {"ours": (ours(X, n_topics), 2, 22)} | run.installed(others)
    timed = an_iteration(sides, run)
    timed.seconds["scikit-learn online LDA"] *= 8.0
    targets = dict(zip(others, (10.0, 25.0, 80.0), strict=True))
    yield timed.row(f"{corpus.name}, K={n_topics}", targets)


# Held-out

TARGETS = {"tomotopy": 5.0, "scikit-learn": 40.0, "gensim": 40.0}
#: Passes of the peers but tomotopy; the first of them within SLACK of the best counts.
PASSES, SLACK = 8, 0.002
N_TOPICS = 50


def peer_level(name, corpus, halves):
    """Return a peer's curve, the level it sets, and the seconds to it."""
    curve = peers.CURVES[name](corpus, N_TOPICS, 100 if name == "tomotopy" else PASSES)
    points = [
        (seconds, evaluation.complete(halves, components, 1.0 / N_TOPICS))
        for seconds, components in curve
    ]
    if name == "tomotopy":
        return points, points[-1][1], points[-1][0]
    level = max(value for _, value in points) - SLACK
    return points, level, next(t for t, value in points if value >= level)


@group(product(corpora.CORPORA, TARGETS))
def held_out(run, key, name):
    """Seconds to equal held-out document completion, K=50, one thread."""
    corpus = load(run, key)
    halves = evaluation.halve(corpus.test)
    points, level, theirs = peer_level(name, corpus, halves)
    for kind in (VRPLSA, TemperedLDA):
        runs = [
            Fits(
                partial(kind, N_TOPICS, tol=0.0, random_state=seed, n_jobs=1),
                corpus.train,
                halves,
                1.0 / N_TOPICS,
            )
            for seed in range(run.seeds)
        ]
        epochs = [fits.epochs_to(level) for fits in runs]
        best = statistics.median(
            max(value for _, value in fits.found.values()) for fits in runs
        )
        reached, mine = None not in epochs, np.inf
        if reached:
            mine = statistics.median(
                min(fits.fit(n)[0] for _ in range(run.repeats))
                for fits, n in zip(runs, epochs, strict=True)
            )
        yield Row(
            f"{corpus.name}, {kind.__name__}",
            mine,
            "s",
            {name: theirs},
            TARGETS[name],
            f"{level:.4f}, "
            + (f"epochs {epochs}" if reached else f"best of ours {best:.4f}"),
            key=kind.__name__,
            numbers={"level": level, "epochs": epochs, "best": best, "curve": points},
        )
        if reached:
            break


# Training objective against time

#: Steps of stochastic EM are a / (t + t0)^kappa, at most 1.
GRID = [{}] + [
    {"step_size": a, "step_offset": t0, "step_decay": kappa}
    for a, t0, kappa in product((0.1, 1, 10), (10, 100, 1000), (0.5, 0.75, 1))
]
#: Of the grid so many that are best early and late go on.
FINALISTS = 2
#: Moments of the comparison; svrg is to lead from the second on.
MARKS = (30, 60, 120, 240)


@group(product(corpora.CORPORA, (50,)))
def solvers(run, key, n_topics):
    """Training objective of svrg at the time of so many batch passes, nats a token."""
    corpus = load(run, key)
    X, marks = corpus.train, run.size(MARKS, MARKS[:2])

    def value(steps, n_iter):
        fit = timed_fit(X, n_topics, n_iter, solver="stochastic", **steps)
        return fit.objective_

    tried = try_grid(GRID, value, run.size(20, 5))
    finalists = {i for part in tried for i in sorted(part, key=part.get)[-FINALISTS:]}
    a_pass = seconds_an_epoch(timed_fit(X, n_topics, 20, solver="batch"))

    def curve(moments, **parameters):
        epoch = seconds_an_epoch(timed_fit(X, n_topics, 6, **parameters)) / a_pass
        epochs = [max(1, int(passes / epoch)) for passes in moments]
        return exact_curve(X, n_topics, epochs, **parameters)

    beyond = [1.05 * marks[-1]]
    svrg, batch = (curve(beyond, solver=solver) for solver in ("svrg", "batch"))
    others = [curve(marks, solver="stochastic", **GRID[i]) for i in sorted(finalists)]
    for mark in marks:
        at = mark * a_pass
        # Of the grid the best at each moment, which no single fit is.
        best = max(float(other.at(at)) for other in others)
        yield Row(
            f"{corpus.name}, K={n_topics}, {mark} passes of {a_pass:.4f} s",
            float(svrg.at(at)),
            "nats",
            {"batch EM": float(batch.at(at)), "best stochastic EM": best},
            0.0 if mark >= MARKS[1] else None,
            key=str(mark),
            numbers={"a pass": a_pass, "steps": [GRID[i] for i in sorted(finalists)]},
        )


# Threads

LOAD = """
folder, n_topics, solver = sys.argv[1:]
from scipy import sparse
from skvrem import VRPLSA

def load():
    names = "data", "indices", "indptr", "shape"
    data, indices, indptr, shape = (np.load(f"{folder}/{name}.npy") for name in names)
    return sparse.csr_matrix((data, indices, indptr), tuple(shape), copy=False)

def make(max_iter=4):
    return VRPLSA(
        int(n_topics), solver=solver, max_iter=max_iter, tol=0.0, random_state=0,
        n_jobs=1,
    )
"""

# Long enough for two that begin a little apart to be side by side.
PASSES_IN_PROCESS = f"""
import json, sys, time, warnings
import numpy as np
from threadpoolctl import threadpool_limits

warnings.simplefilter("ignore")
{LOAD}
X = load()
make(2).fit(X)
seconds, began = [], time.perf_counter()
while time.perf_counter() < began + 8.0:
    for n_iter in (2, 22):
        start = time.perf_counter()
        make(n_iter).fit(X)
        seconds.append(time.perf_counter() - start)
few, many = (np.median(seconds[i::2]) for i in (0, 1))
print(json.dumps((many - few) / 20))
"""


def save(X, folder):
    for name in ("data", "indices", "indptr", "shape"):
        np.save(Path(folder) / f"{name}.npy", getattr(X, name))
    return folder


@group(product(corpora.CORPORA, (50,), ("batch", "svrg")))
def threads(run, key, n_topics, solver):
    """Seconds of a batch pass or an svrg epoch on two threads."""
    corpus = load(run, key)
    sides = {
        name: (ours(corpus.train, n_topics, n, solver), 2, 22)
        for name, n in (("two threads", 2), ("one thread", 1))
    }
    target = 1.6 if solver == "batch" else 1.5
    yield an_iteration(sides, run, 2).row(f"{corpus.name}, {solver}", target)


@group(product(corpora.CORPORA, (50,)))
def processes(run, key, n_topics):
    """Work of two processes of batch passes at once: what the machine allows."""
    corpus = load(run, key)
    with tempfile.TemporaryDirectory() as folder:
        save(corpus.train, folder)

        def seconds(_):
            return run_python(PASSES_IN_PROCESS, folder, str(n_topics), "batch")

        alone = seconds(0)
        with ThreadPoolExecutor(2) as pool:
            both = list(pool.map(seconds, range(2)))
    work = sum(alone / each for each in both)
    yield Row(corpus.name, 1.0 / work, "of the time", {"one process": 1.0})


# Memory

MEMORY = f"""{LOAD}
def warm_up():
    make().fit(load()[:800])

def fit(X):
    global kept  # as a caller keeps it
    kept = make().fit(X)
"""


@group(product(corpora.CORPORA, (50, 100), ("svrg", "stochastic", "batch")))
def memory(run, key, n_topics, solver):
    """Peak memory of a fit beyond X, topics and shares, float32."""
    corpus = load(run, key)
    X = corpus.train
    with tempfile.TemporaryDirectory() as folder:
        extra = peak_memory(MEMORY, save(X, folder), n_topics, solver)
    parameters = X.dtype.itemsize * n_topics * sum(X.shape)
    yield Row(
        f"{corpus.name}, K={n_topics}, {solver}",
        extra - parameters,
        "bytes",
        target=2 * parameters + 12 * X.nnz,
        note=f"parameters {parameters / 1e6:.1f} MB",
        numbers={"fit": extra, "parameters": parameters, "nonzeros": X.nnz},
    )


STREAM = """
folder, n_topics, n_documents = sys.argv[1:]
from scipy import sparse
from skvrem import VRPLSA

def read(name, first, last):
    array = np.load(f"{folder}/{name}.npy", mmap_mode="r")
    with open(f"{folder}/{name}.npy", "rb") as file:
        file.seek(array.offset + first * array.itemsize)
        return np.fromfile(file, array.dtype, last - first)

def stream(n_documents):
    model = VRPLSA(int(n_topics), random_state=0, n_jobs=1)
    starts = np.load(f"{folder}/indptr.npy", mmap_mode="r")
    n, n_words = len(starts) - 1, int(np.load(f"{folder}/shape.npy")[1])
    for start in range(0, n_documents, 1000):
        a = start % n
        indptr = np.array(starts[a : min(n, a + 1000) + 1])
        parts = [read(p, indptr[0], indptr[-1]) for p in ("data", "indices")]
        shape = len(indptr) - 1, n_words
        model.partial_fit(sparse.csr_matrix((*parts, indptr - indptr[0]), shape))

def warm_up():
    stream(2000)

def load():
    return int(n_documents)

fit = stream
"""


@group()
def stream(run):
    """Memory of one pass of `partial_fit` in batches of 1000 from disk, K=100."""
    X = load(run, "arxiv").train
    extra = {}
    with tempfile.TemporaryDirectory() as folder:
        save(X, folder)
        for share in (10, 3, 1):
            n = X.shape[0] // share
            extra[n] = peak_memory(STREAM, folder, 100, n)
    for n, value in extra.items():
        few = min(extra.values())
        yield Row(
            f"arXiv abstracts, {n} documents",
            value,
            "bytes",
            target=few + 5e6,
            key=str(n),
        )


FIRST = """
def load():
    return sparse.random(2000, 3000, 0.02, "csr", np.float32, random_state=0)

def fit(X):
    VRPLSA(20, max_iter=3, random_state=0).fit(X)
"""


@group()
def first(run):
    """Seconds of the first fit of a process."""
    imports = "import sklearn.decomposition\nfrom scipy import sparse\n"
    imports += "from skvrem import VRPLSA"
    yield from first_fits(run, "2000 documents, K=20", imports, FIRST)
