"""Topics by `TemperedLDA` beside scikit-learn's online LDA and gensim.

The first pass is left out on every side, as documents take more rounds once topics have
separated. Held-out values are those of ``topics``: one evaluator for all, nats a token.
"Sooner" is the whole fit with the fewest epochs that has the best value that
scikit-learn reached within 15 s of CPU time; "in the end" is that of ten epochs. The
default solver was chosen on NIPS, AP and 20 Newsgroups, the rule of the temperature on
arXiv abstracts as well.

Temperatures and passes are those of mean field, "completion" is of the collapsed E
step: 430 documents of at least ten words are held out; shares of one half of each are
from 50 MAP EM steps with .02 added to every count, and the other half is scored. The
others are `VRPLSA` and mean field by default, tomotopy (alpha = 1/K, learned, eta =
0.1) after 200 sweeps, scikit-learn and gensim after eight passes; of ours medians of
the same starts. "Short" has the best of four such priors, and "own shares", those that
`transform` finds by the prior of the fit. "Texts" has news that come with gensim, and
the docstrings of NumPy, SciPy and scikit-learn as installed.
"""

import statistics
import time
from functools import partial
from itertools import pairwise, product

import numpy as np
from scipy import sparse
from sklearn.decomposition import LatentDirichletAllocation
from threadpoolctl import threadpool_limits

from benchmarks.harness import Row, an_iteration, group, timed
from benchmarks.harness.processes import peak_memory
from benchmarks.peers import topics as peers
from benchmarks.problems import corpora, evaluation
from benchmarks.problems.held_out import Fits
from skvrem import VRPLSA, TemperedLDA

#: CPU seconds that the twin gets.
BUDGET = 15.0
#: Epochs of a fit that is given nothing; with fewer it anneals for half of them.
EPOCHS = 10
#: A topic with a smaller share of the tokens is not in use.
IN_USE = 1e-3


def load(run, key):
    return corpora.load(key, run.size(None, 500))


@group(product(corpora.CORPORA, (50, 100)))
def pass_(run, key, n_topics):
    """Seconds of a later pass of stochastic variational inference, one thread."""
    corpus = load(run, key)

    def ours(n_iter):
        TemperedLDA(
            n_topics,
            solver="stochastic",
            max_iter=n_iter,
            e_step="mean_field",
            tempering=None,
            random_state=0,
            n_jobs=1,
        ).fit(corpus.train)

    def online_lda(n_passes):
        for _ in peers.online_lda_curve(corpus, n_topics, n_passes):
            pass

    def gensim(n_passes):
        for _ in peers.gensim_curve(corpus, n_topics, n_passes):
            pass

    # Of ours three passes: the difference of two fits of so little time would be noise.
    others = {"scikit-learn": (online_lda, 1, 2), "gensim": (gensim, 1, 2)}
    sides = {"ours": (ours, 1, 4)} | run.installed(others)
    yield an_iteration(sides, run).row(f"{corpus.name}, K={n_topics}", 10.0)


def twin_curve(corpus, halves, n_topics, budget):
    """Return CPU seconds and held-out values of the twin until its budget is spent."""
    model, X = peers.online_lda(corpus.train, n_topics), corpus.train
    edges = [X.shape[0] * i // 4 for i in range(5)]
    spent, points = 0.0, []
    while spent < budget:
        for a, b in pairwise(edges):
            began = time.process_time()
            with threadpool_limits(1):
                model.partial_fit(X[a:b])
            spent += time.process_time() - began
            if spent >= budget:
                break
        value = evaluation.complete(halves, model.components_, 1.0 / n_topics)
        points.append((spent, value))
    return points


#: Documents that topics are learned from.
DOCUMENTS = {"ap": 1800, "20news": 6000, "nips": 1300, "arxiv": 12000}
#: Epochs of fits, None for the default's; evaluated with this prior.
LENGTHS, ALPHA = (5, 10, 40, None), 0.02
#: Of short documents, of whose topics a small one is sure where nothing tells them.
PRIORS = 0.02, 0.1, 0.5, 2.0
#: Others by name: their passes, or sweeps.
PASSES = {"tomotopy": 200, "scikit-learn": 8, "gensim": 8}
OURS = {
    "mean field": partial(TemperedLDA, e_step="mean_field"),
    "VRPLSA": VRPLSA,
}


def timed_fit(make, corpus, halves):
    """Return CPU seconds and the held-out value of a whole fit."""
    seconds, model = timed(lambda: make().fit(corpus.train))
    return seconds, evaluation.complete(halves, model.components_, ALPHA)


def timed_fits(make, run, corpus, halves):
    """Return those of fits from several starts, and their medians."""
    fits = [
        timed_fit(partial(make, n_jobs=1, random_state=seed), corpus, halves)
        for seed in range(run.seeds)
    ]
    return fits, tuple(statistics.median(fit[i] for fit in fits) for i in (0, 1))


@group([*((key, 50) for key in DOCUMENTS), *product(("ap", "20news"), (20, 100))])
def completion(run, key, n_topics):
    """Held-out document completion of the collapsed E step, one thread, a token."""
    n_documents = run.size(DOCUMENTS[key], 300)
    corpus = corpora.completion(key, n_documents, run.size(430, 50))
    halves = evaluation.halve(corpus.test)
    TemperedLDA(n_topics, max_iter=5, n_jobs=1).fit(corpus.train[:200])  # compiles
    others = {
        name: timed_fits(partial(kind, n_topics), run, corpus, halves)[1]
        for name, kind in OURS.items()
    }
    for name in run.installed(PASSES):
        curve = peers.CURVES[name](corpus, n_topics, run.size(PASSES[name], 10))
        *_, (seconds, topics) = curve
        others[name] = seconds, evaluation.complete(halves, topics, ALPHA)
    beside = ", ".join(
        f"{name} {seconds:.1f} s" for name, (seconds, _) in others.items()
    )
    for n_epochs in LENGTHS:
        length = {} if n_epochs is None else {"max_iter": n_epochs, "tol": 0.0}
        make = partial(TemperedLDA, n_topics, **length)
        fits, (seconds, value) = timed_fits(make, run, corpus, halves)
        yield Row(
            f"{corpus.name}, K={n_topics}, "
            + ("default" if n_epochs is None else f"{n_epochs} epochs"),
            value,
            "nats",
            {name: level for name, (_, level) in others.items()},
            None if n_epochs in LENGTHS[:2] else 0.0,
            f"{seconds:.1f} s; {beside}",
            key=str(n_epochs or "default"),
            numbers={"ours": fits, "others": others},
        )


@group(product(corpora.INSTALLED, (10, 20, 50)))
def texts(run, key, n_topics):
    """The same of texts that nothing was chosen on, means of three splits."""
    kinds = {
        "ours": partial(TemperedLDA, n_jobs=1),
        "VRPLSA": partial(VRPLSA, n_jobs=1),
        "scikit-learn": LatentDirichletAllocation,
    }
    found = {}
    for seed in range(run.size(3, 1)):
        corpus = corpora.installed(key, seed)
        halves = evaluation.halve(corpus.test)
        for kind in (TemperedLDA, VRPLSA):
            short = kind(n_topics, max_iter=5, n_jobs=1)
            timed(partial(short.fit, corpus.train[:100]))  # compiles
        for name, kind in kinds.items():
            make = partial(kind, n_topics, random_state=seed)
            found.setdefault(name, []).append(timed_fit(make, corpus, halves))
        for n_sweeps in run.installed({"tomotopy": (200, 1000)}).get("tomotopy", ()):
            curve = peers.tomotopy_curve(corpus, n_topics, n_sweeps, n_sweeps, seed)
            *_, (seconds, topics) = curve
            value = evaluation.complete(halves, topics, ALPHA)
            found.setdefault(f"tomotopy, {n_sweeps}", []).append((seconds, value))
    means = {name: np.mean(fits, axis=0).tolist() for name, fits in found.items()}
    seconds, value = means.pop("ours")
    beside = ", ".join(f"{name} {others[0]:.1f} s" for name, others in means.items())
    yield Row(
        f"{corpus.name}, {corpus.train.shape[0]} documents, K={n_topics}",
        value,
        "nats",
        {name: level for name, (_, level) in means.items()},
        note=f"{seconds:.1f} s; {beside}",
        numbers=found,
    )


@group(product(("20news", "arxiv"), (5, 10, 20, 40)))
def short(run, key, length):
    """Held-out completion of short documents, best prior of their shares, K=20."""
    whole = corpora.completion(key, run.size(DOCUMENTS[key], 300), run.size(430, 50))
    rng, parts = np.random.default_rng(0), []
    for X in (whole.train, whole.test):
        thin, tokens = X.copy(), np.asarray(X.sum(axis=1)).ravel()
        share = np.repeat(np.minimum(length / tokens, 1.0), np.diff(X.indptr))
        thin.data = rng.binomial(X.data.astype(int), share).astype(np.float32)
        thin.eliminate_zeros()
        parts.append(thin[np.asarray(thin.sum(axis=1)).ravel() > 1.0])
    train, halves = parts[0], evaluation.halve(parts[1])

    def best(topics):
        return max(evaluation.complete(halves, topics, prior) for prior in PRIORS)

    def own(model):
        observed, scored = halves
        theta = model.transform(observed)
        return evaluation.map_objective(scored, theta, model.components_, 0.0, 0.0)

    values, owned = {}, {}
    for name, kind in {"ours": TemperedLDA, "VRPLSA": VRPLSA}.items():
        fits = [kind(20, random_state=seed).fit(train) for seed in range(run.seeds)]
        values[name] = statistics.median(best(fit.components_) for fit in fits)
        owned[f"{name}, own shares"] = statistics.median(map(own, fits))
    values |= owned
    frequencies = np.asarray(train.sum(axis=0)) + ALPHA
    values["one topic"] = best(frequencies)
    value = values.pop("ours")
    yield Row(f"{whole.name}, {length} tokens", value, "nats", values)


#: Topics that there are (three: one a document), words, tokens, and topics fitted.
SPARE = {
    "one-a-document": (3, 105, 300, 30),
    "mixed": (5, 105, 300, 20),
    "short": (5, 2000, 60, 20),
}


@group(SPARE)
def spare(run, n_topics, n_words, length, many):
    """Held-out completion by own shares, more topics than there are, simulated."""
    kinds = {
        "ours": partial(TemperedLDA, many),
        "mean field": partial(TemperedLDA, many, e_step="mean_field"),
        'n_components="auto"': partial(TemperedLDA, "auto"),
        "as many as there are": partial(TemperedLDA, n_topics),
        "VRPLSA": partial(VRPLSA, many),
        "scikit-learn": partial(LatentDirichletAllocation, many, max_iter=50),
    }
    found, numbers = {}, []
    for seed in range(run.size(3, 1)):
        rng = np.random.default_rng(seed)
        topics = rng.dirichlet(np.full(n_words, 0.3), n_topics)
        theta = rng.dirichlet(np.full(n_topics, 1.0 / n_topics), run.size(1300, 400))
        if n_topics == 3:
            theta = np.eye(n_topics)[rng.integers(n_topics, size=len(theta))]
        X = sparse.csr_matrix(rng.multinomial(length, theta @ topics).astype(float))
        train, (observed, scored) = X[300:], evaluation.halve(X[:300])
        for name, make in kinds.items():
            model = make(random_state=seed).fit(train)
            shares = model.transform(observed)
            shares /= shares.sum(axis=1, keepdims=True)
            value = evaluation.map_objective(
                scored, shares, model.components_, 0.0, 0.0
            )
            found.setdefault(name, []).append(value)
            if model.n_components == "auto":
                numbers.append(len(model.components_))
    means = {name: float(np.mean(values)) for name, values in found.items()}
    yield Row(
        f"{n_topics} topics, {n_words} words, {length} tokens a document, K={many}",
        means.pop("ours"),
        "nats",
        means,
        note=f'"auto" finds {", ".join(map(str, numbers))}',
        numbers=found,
    )


@group(list(corpora.CORPORA))
def held_out(run, key):
    """Default fits and the best of scikit-learn within 15 s, K=50, one thread."""
    corpus, n_topics = load(run, key), 50
    halves = evaluation.halve(corpus.test)
    points = twin_curve(corpus, halves, n_topics, run.size(BUDGET, 2.0))
    level = max(value for _, value in points)
    theirs = next(seconds for seconds, value in points if value == level)
    runs = [
        Fits(
            partial(TemperedLDA, n_topics, random_state=seed, n_jobs=1),
            corpus.train,
            halves,
            1.0 / n_topics,
        )
        for seed in range(run.seeds)
    ]
    runs[0].fit(1)  # compiles

    def seconds_to(fits):
        found = (fits(n) for n in range(1, EPOCHS + 1))
        return next((t for t, value in found if value >= level), float("inf"))

    mine = statistics.median(map(seconds_to, runs))
    label, numbers = corpus.name, {"ours": [f.found for f in runs], "twin": points}
    yield Row(
        f"{label}, sooner", mine, "s", {"scikit-learn": theirs}, 8.0, key="seconds"
    )
    whole, value = (statistics.median(f(EPOCHS)[i] for f in runs) for i in (0, 1))
    yield Row(
        f"{label}, in the end",
        value,
        "nats",
        {"scikit-learn": level},
        0.05,
        f"{whole:.1f} s",
        key="value",
        numbers=numbers,
    )


PLAIN = "tempering=None"
TEMPERATURES = {
    "ours": {},
    PLAIN: {"tempering": None},
    "temperature=1.3": {"temperature": 1.3},
    "temperature=2": {"temperature": 2.0},
}


@group(
    {
        f"{key}-{most or 'all'}": (key, most)
        for key in corpora.CORPORA
        for most in (2000, None)
    }
)
def temperatures(run, key, most):
    """Bounds and held-out values by temperature, K=50, means of starts, a token."""
    corpus, n_topics = corpora.load(key, run.size(most, 500)), 50
    halves = evaluation.halve(corpus.test)
    found = {name: [] for name in TEMPERATURES}
    for seed in range(run.seeds):
        for name, given in TEMPERATURES.items():
            params = {"max_iter": EPOCHS, "random_state": seed, "n_jobs": 1} | given
            params["e_step"] = "mean_field"
            topics = TemperedLDA(n_topics, tol=0.0, **params).fit(corpus.train)
            value = evaluation.complete(halves, topics.components_, 1.0 / n_topics)
            found[name].append((topics.objective_, value))
            if name == "ours":
                begins = topics.history_["temperature"][0]
    label = f"{corpus.name}, {corpus.train.shape[0]} documents"
    for column, what in enumerate(("training", "held out")):
        values = {name: [v[column] for v in found[name]] for name in found}
        gains = [a - b for a, b in zip(values["ours"], values[PLAIN], strict=True)]
        means = {name: statistics.mean(v) for name, v in values.items()}
        yield Row(
            f"{label}, {what}",
            means.pop("ours"),
            "nats",
            means,
            {PLAIN: -0.005},
            f"{min(gains):+.4f} to {max(gains):+.4f} of {PLAIN}; from T={begins:.2f}",
            key=what,
            numbers=values,
        )


#: Of mean field but for the first; the collapsed step has no temperature.
STOCHASTIC = {"e_step": "mean_field", "solver": "stochastic"}
REDUCED = {"e_step": "mean_field", "solver": "svrg"}
TEMPERINGS = {
    "collapsed (default)": {},
    "svrg": REDUCED | {"tempering": None},
    "svrg, annealed": REDUCED | {"tempering": "annealed"},
    "svrg, VT": REDUCED | {"tempering": "global"},
    "SVI": STOCHASTIC | {"tempering": None},
    "SVI, annealed": STOCHASTIC | {"tempering": "annealed"},
    "SVI, VT": STOCHASTIC | {"tempering": "global"},
    "SVI, LVT": STOCHASTIC | {"tempering": "local"},
}


@group(product(DOCUMENTS, (name.replace(",", "") for name in TEMPERINGS)))
def temperings(run, key, name):
    """Held-out completion of every tempering after twenty epochs, K=50, a token."""
    by_case = {name.replace(",", ""): name for name in TEMPERINGS}
    corpus = corpora.completion(key, run.size(DOCUMENTS[key], 300), run.size(430, 50))
    halves, n_topics = evaluation.halve(corpus.test), 50
    params = {"max_iter": 20, "tol": 0.0, "n_jobs": 1} | TEMPERINGS[by_case[name]]
    TemperedLDA(n_topics, **params | {"max_iter": 3}).fit(corpus.train[:200])
    values, dead, seconds = [], [], []
    for seed in range(run.seeds):
        model = TemperedLDA(n_topics, random_state=seed, **params)
        spent, _ = timed(lambda model=model: model.fit(corpus.train))
        values.append(evaluation.complete(halves, model.components_, ALPHA))
        dead.append(int((model.topic_shares_ < IN_USE).sum()))
        seconds.append(spent)
    yield Row(
        f"{corpus.name}, {by_case[name]}",
        statistics.median(values),
        "nats",
        note=f"{statistics.median(seconds):.1f} s, {statistics.median(dead):g} topics "
        f"dead; {min(values):.4f} to {max(values):.4f}",
        numbers={"values": values, "dead": dead, "seconds": seconds},
    )


MEMORY = """
from scipy import sparse
from skvrem import TemperedLDA

e_step, n_documents = sys.argv[1], int(sys.argv[2])

def warm_up():
    fit(load(500))

def load(n=n_documents):
    rng = np.random.default_rng(0)
    words = rng.integers(2000, size=(n, 20)).astype(np.int32)
    parts = np.ones(words.size, np.float32), words.ravel(), 20 * np.arange(n + 1)
    X = sparse.csr_array(parts, shape=(n, 2000))
    X.sum_duplicates()
    return X

def fit(X):
    global kept
    kept = TemperedLDA(
        50, e_step=e_step, max_iter=7, tol=0.0, random_state=0, n_jobs=1
    ).fit(X)
"""


@group({"collapsed": ("collapsed",), "mean field": ("mean_field",)})
def memory(run, e_step):
    """Memory of a fit beside the counts by document of twenty words, K=50."""
    # Arrays of fewer are below 32 MB, which malloc may keep and use again.
    few, many = (run.size(n, n // 50) for n in (200_000, 400_000))
    extra = {n: peak_memory(MEMORY, e_step, n) for n in (few, many)}
    each = (extra[many] - extra[few]) / (many - few)
    yield Row(
        e_step.replace("_", " "),
        each,
        "bytes a document",
        target=300.0,
        note=f"{(extra[few] - each * few) / 1e6:.0f} MB not by document",
        numbers={str(n): value for n, value in extra.items()},
    )
