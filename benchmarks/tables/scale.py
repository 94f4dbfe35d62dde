"""Topic models of two hundred thousand documents, one thread.

Documents are simulated, as no corpus at hand is so large: lengths are drawn from arXiv
abstracts, shares and words from a `TemperedLDA` of a hundred topics that was fitted to
12,000 of these. Every fit has a process of its own, in which what it takes beyond the
counts is seen; that is with the documents in the form that a package wants. Handing
over is not timed. Held-out completion is that of ``lda/completion``, with the prior of
shares that suits the topics best: these documents are of many topics, and with one that
expects few, what is judged is how well topics suit that.
"""

import tempfile
from functools import partial
from pathlib import Path

import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_limits

from benchmarks.harness import Row, fastest, group
from benchmarks.harness.processes import peak_memory
from benchmarks.problems import corpora, evaluation
from skvrem import VRPLSA, TemperedLDA

#: Documents of the fit and held out; topics simulated and fitted.
DOCUMENTS, HELD_OUT, SIMULATED, TOPICS = 200_000, 1000, 100, 50
#: Documents that one is to transform, and that models for it are fitted to.
NEW, OLD = 2000, 5000
#: By name, epochs, passes or sweeps.
LENGTHS = {
    "TemperedLDA": 10,
    "VRPLSA": 10,
    "scikit-learn": 1,
    "gensim": 1,
    "tomotopy": 50,
}
#: Of the evaluator, added to expected counts; that of ``lda/completion`` first.
PRIORS = 0.02, 0.05, 0.1, 0.2, 0.5
OURS = {kind.__name__: kind for kind in (TemperedLDA, VRPLSA)}

FIT = """
import time
from pathlib import Path
from scipy import sparse
import skvrem
from benchmarks.peers import topics as peers
from benchmarks.problems.corpora import Corpus
folder, name, n_topics, length = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])

def make(X, n_topics, length):
    if hasattr(skvrem, name):
        model = getattr(skvrem, name)(
            n_topics, max_iter=length, tol=0.0, random_state=0, n_jobs=1
        )
        began = time.process_time()
        topics = model.fit(X).components_
        return time.process_time() - began, topics
    words = np.array([f"w{v}" for v in range(X.shape[1])])
    *_, last = peers.CURVES[name](Corpus("", X, X, words), n_topics, length)
    return last

def load():
    return sparse.load_npz(Path(folder) / "train.npz")

def warm_up():
    make(load()[:200], n_topics, 10 if name == "tomotopy" else 4)

def fit(X):
    seconds, topics = make(X, n_topics, length)
    np.savez(Path(folder) / "found.npz", seconds=seconds, topics=topics)
"""


def simulate(n_documents, n_old, seed=0):
    """Return so many documents like arXiv abstracts, CSR."""
    X = corpora.completion("arxiv", n_old).train
    model = TemperedLDA(SIMULATED, max_iter=10, tol=0.0, random_state=seed).fit(X)
    topics = model.components_ / model.components_.sum(axis=1, keepdims=True)
    cumulative = np.cumsum(topics, axis=1, dtype=float)
    rng = np.random.default_rng(seed)
    tokens = np.asarray(X.sum(axis=1)).ravel().astype(int)
    lengths = rng.choice(tokens, n_documents)
    theta = rng.dirichlet(model.doc_topic_prior_, n_documents)
    of_topics = rng.multinomial(lengths, theta)
    rows, columns = [], []
    for k in range(SIMULATED):
        rows.append(np.repeat(np.arange(n_documents), of_topics[:, k]))
        at = rng.uniform(0.0, cumulative[k, -1], len(rows[-1]))
        columns.append(np.searchsorted(cumulative[k], at, side="right"))
    rows, columns = np.concatenate(rows), np.concatenate(columns)
    ones = np.ones(len(rows), np.float32)
    shape = n_documents, X.shape[1]
    return sparse.csr_matrix((ones, (rows, columns)), shape)


@group(list(LENGTHS))
def fit(run, name):
    """Held-out completion after a fit to 200,000 documents, nats a token."""
    if name not in OURS and not run.installed({name: None}):
        return
    n_documents, n_test = run.size(DOCUMENTS, 400), run.size(HELD_OUT, 50)
    X = simulate(n_documents + n_test, run.size(12_000, 400))
    halves = evaluation.halve(X[:n_test])
    with tempfile.TemporaryDirectory() as folder:
        sparse.save_npz(Path(folder) / "train.npz", X[n_test:])
        length = LENGTHS[name] if name != "tomotopy" else run.size(50, 10)
        extra = peak_memory(FIT, folder, name, TOPICS, length)
        with np.load(Path(folder) / "found.npz") as file:
            topics, seconds = file["topics"], float(file["seconds"])
    values = [evaluation.complete(halves, topics, prior) for prior in PRIORS]
    best = int(np.argmax(values))
    yield Row(
        f"{name}, {length} passes",
        values[best],
        "nats",
        note=f"{seconds:.0f} s, {extra / 1e6:.0f} MB beside the counts; "
        f"prior {PRIORS[best]}, of {PRIORS[0]} {values[0]:.3f}",
        numbers={"seconds": seconds, "memory": extra, "nonzeros": X.nnz}
        | {
            f"prior {prior}": value for prior, value in zip(PRIORS, values, strict=True)
        },
    )


@group()
def transform(run):
    """Seconds for the shares of 2,000 documents, K=50, one thread."""
    n_old, n_new = run.size(OLD, 200), run.size(NEW, 50)
    X = corpora.completion("arxiv", n_old + n_new).train
    old, new = X[:n_old], X[n_old:]
    made = {"max_iter": 5, "random_state": 0, "n_jobs": 1}
    ours = {
        name: kind(TOPICS, tol=0.0, **made).fit(old).transform
        for name, kind in OURS.items()
    }
    sides = {name: partial(function, new) for name, function in ours.items()}
    others = {"scikit-learn": _twin, "gensim": _gensim, "tomotopy": _tomotopy}
    for name, make in run.installed(others).items():
        with threadpool_limits(1):
            sides[name] = make(old, new)
    timed = fastest(sides, run)
    rate = n_new / timed.seconds["TemperedLDA"]
    yield timed.row(
        f"arXiv abstracts, {new.nnz / n_new:.0f} words each",
        note=f"{rate:,.0f} documents a second",
    )


def _twin(old, new):
    from benchmarks.peers.topics import online_lda

    model = online_lda(old, TOPICS).partial_fit(old)
    return lambda: model.transform(new)


def _gensim(old, new):
    from gensim.matutils import Sparse2Corpus
    from gensim.models import LdaModel

    old, new = (list(Sparse2Corpus(X, documents_columns=False)) for X in (old, new))
    names = {v: f"w{v}" for v in range(1 + max(v for d in old + new for v, _ in d))}
    model = LdaModel(old, TOPICS, names, eval_every=None, random_state=0)
    return lambda: model.inference(new)


def _tomotopy(old, new):
    import tomotopy

    def words(X):
        parts = (slice(*X.indptr[d : d + 2]) for d in range(X.shape[0]))
        for row in parts:
            ids = np.repeat(X.indices[row], X.data[row].astype(int))
            yield [f"w{v}" for v in ids]

    model = tomotopy.LDAModel(k=TOPICS, alpha=1.0 / TOPICS, eta=0.1, seed=1)
    for document in words(old):
        model.add_doc(document)
    model.train(20, workers=1)
    documents = [model.make_doc(document) for document in words(new)]
    return lambda: model.infer(documents, workers=1)
