"""What needs a process of its own: memory, the first fit, the import."""

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from harness import Row, processes

from topics_rows import each_corpus

__all__ = ["first_rows", "memory_rows", "side_by_side", "stream_rows"]

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

MEMORY = (
    LOAD
    + """
def warm_up():
    make().fit(load()[:800])

def fit(X):
    global kept  # as a caller keeps it
    kept = make().fit(X)
"""
)

# Long enough for two that begin a little apart to be side by side.
PASSES = (
    """
import json, sys, time, warnings
import numpy as np

warnings.simplefilter("ignore")
"""
    + LOAD
    + """
X = load()
make(2).fit(X)
seconds, began = [], time.perf_counter()
while time.perf_counter() < began + 8.0:
    for n_iter in (2, 22):
        start = time.perf_counter()
        make(n_iter).fit(X)
        seconds.append(time.perf_counter() - start)
few, many = (np.median(seconds[i::2]) for i in (0, 1))
print(json.dumps({"seconds": (many - few) / 20}))
"""
)

STREAM = """
folder, n_topics, n_documents = sys.argv[1:]
from scipy import sparse
from skvrem import VRPLSA

class Folder:
    '''Batches of documents, read one at a time.'''

    def __init__(self, n_documents):
        self.indptr = np.load(f"{folder}/indptr.npy", mmap_mode="r")
        self.n_documents = n_documents
        self.n_words = int(np.load(f"{folder}/shape.npy")[1])

    def read(self, name, first, last):
        array = np.load(f"{folder}/{name}.npy", mmap_mode="r")
        with open(f"{folder}/{name}.npy", "rb") as file:
            file.seek(array.offset + first * array.itemsize)
            return np.fromfile(file, array.dtype, last - first)

    def __iter__(self):
        n = len(self.indptr) - 1
        for start in range(0, self.n_documents, 1000):
            a = start % n
            indptr = np.array(self.indptr[a : min(n, a + 1000) + 1])
            parts = [self.read(p, indptr[0], indptr[-1]) for p in ("data", "indices")]
            yield sparse.csr_matrix(
                (*parts, indptr - indptr[0]), (len(indptr) - 1, self.n_words)
            )

def stream(n_documents):
    model = VRPLSA(int(n_topics), random_state=0, n_jobs=1)
    for X in Folder(n_documents):
        model.partial_fit(X)

def warm_up():
    stream(2000)

def load():
    return int(n_documents)

def fit(n_documents):
    stream(n_documents)
"""

IMPORTS = """
import sklearn.decomposition
from scipy import sparse
from skvrem import VRPLSA
"""

FIRST = """
def load():
    return sparse.random(2000, 3000, 0.02, "csr", np.float32, random_state=0)

def fit(X):
    VRPLSA(20, max_iter=3, random_state=0).fit(X)
"""


def _save(X, folder):
    for name in ("data", "indices", "indptr"):
        np.save(Path(folder) / f"{name}.npy", getattr(X, name))
    np.save(Path(folder) / "shape.npy", X.shape)


def side_by_side(X, n_topics):
    """Work of two processes at once over that of one alone, in passes of batch EM.

    They share nothing but the machine: no program does better on its two cores.
    """
    with tempfile.TemporaryDirectory() as folder:
        _save(X, folder)

        def seconds(_):
            arguments = folder, str(n_topics), "batch"
            return processes.run_python(PASSES, *arguments)["seconds"]

        alone = seconds(0)
        with ThreadPoolExecutor(2) as pool:
            both = list(pool.map(seconds, range(2)))
    return sum(alone / each for each in both)


def memory_rows(settings):
    """Peak of the resident memory during fit beyond X and the fitted parameters."""
    if not processes.has_proc():
        yield Row("memory", "memory", "needs /proc (Linux)", "", None, {})
        return
    for corpus in each_corpus(settings):
        X = corpus.train
        for n_topics in settings.topics:
            settings.log(f"memory, {corpus.name}, K={n_topics}")
            with tempfile.TemporaryDirectory() as folder:
                _save(X, folder)
                extra = {
                    solver: processes.peak_memory(MEMORY, folder, str(n_topics), solver)
                    for solver in ("svrg", "batch", "stochastic")
                }
            item = X.dtype.itemsize
            parameters = item * n_topics * sum(X.shape)  # topics and shares
            allowed = 2 * parameters + 12 * X.nnz
            worst = max(extra.values()) - parameters
            listed = ", ".join(f"{name} {b / 1e6:.1f}" for name, b in extra.items())
            yield Row(
                "memory",
                f"memory of fit beyond X and the parameters, {corpus.name}, "
                f"K={n_topics}, float32",
                f"{worst / 1e6:.1f} MB (parameters {parameters / 1e6:.1f} MB, nonzeros "
                f"{X.nnz / 1e6:.2f} million; whole fits: {listed} MB)",
                f"2 V K + 2 D K items + 12 bytes a nonzero = {allowed / 1e6:.1f} MB",
                worst <= allowed,
                {"extra": extra, "parameters": parameters, "allowed": allowed},
            )


def stream_rows(settings):
    """Memory of a stream by its length; the data are on disk."""
    n_topics = max(settings.topics)
    for corpus in each_corpus(settings):
        if not processes.has_proc() or not corpus.name.startswith("arXiv"):
            continue
        X = corpus.train
        with tempfile.TemporaryDirectory() as folder:
            _save(X, folder)
            extra = {}
            for n_documents in (X.shape[0] // 10, X.shape[0] // 3, X.shape[0]):
                settings.log(f"stream, {n_documents} documents")
                extra[n_documents] = processes.peak_memory(
                    STREAM, folder, str(n_topics), str(n_documents)
                )
        few, *_, many = extra.values()
        listed = ", ".join(f"{n}: {b / 1e6:.1f} MB" for n, b in extra.items())
        yield Row(
            "stream",
            f"extra memory of one pass of partial_fit in batches of 1000 from disk, "
            f"{corpus.name}, K={n_topics}, by number of documents",
            listed,
            "flat: within 5 MB",
            many - few <= 5e6,
            {str(n): b for n, b in extra.items()},
        )


def first_rows(settings):
    """Seconds of the first fit, kernels compiled or not, and of the import."""
    repeats = 1 if settings.quick else max(2, settings.repeats - 2)
    settings.log("first fit")
    yield from processes.first_fits(IMPORTS, FIRST, (), "2000 documents, K=20", repeats)
    settings.log("import")
    yield from processes.import_rows("decomposition", settings.repeats)
