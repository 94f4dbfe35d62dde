"""One pass of a stream by default settings, in batches of any size, beside a whole fit.

Simulated rows and documents in random order, a fifth held out. Seconds are those of the
process, of the pass and of the fit of the same class to the same rows. Beside topics
are scikit-learn's online LDA, told how many documents there will be, and gensim's; real
corpora are those of ``lda/completion``, all of 20 topics.
"""

from functools import partial
from itertools import product

import numpy as np
from sklearn.datasets import make_classification
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.metrics import log_loss

from benchmarks.harness import Row, group, timed
from benchmarks.problems import corpora, evaluation
from benchmarks.problems.mixtures import overlapping
from benchmarks.tables.hmm import simulate
from benchmarks.tables.lda import ALPHA
from benchmarks.tables.lda import DOCUMENTS as COMPLETION
from skvrem import (
    VRHMM,
    VRPLSA,
    BayesianGLMRegressor,
    BayesianLogisticRegression,
    BradleyTerry,
    FactorialMixture,
    GaussianDropoutClassifier,
    HierarchicalSoftmaxClassifier,
    SBMLogisticRegression,
    TemperedLDA,
    VRGaussianMixture,
)

ROWS, DOCUMENTS, WORDS, TOPICS = 10_000, 2000, 2000, 20
SIZES, REAL = (10, 100, 1000), ("ap", "20news")


def factors(n):
    """Draw rows that are sums of eight factors, each active in two rows of five."""
    rng = np.random.default_rng(0)
    codes = rng.uniform(size=(n, 8)) < 0.4
    return (codes @ rng.normal(size=(8, 20)) + 0.5 * rng.normal(size=(n, 20)),)


def counts(n):
    """Draw counts of 50 features."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 50))
    return X, rng.poisson(np.exp(1.0 + X @ rng.normal(size=50) / np.sqrt(50.0)))


MADE = {"n_jobs": 1, "random_state": 0}
MIXTURES = {
    "VRGaussianMixture": (
        partial(VRGaussianMixture, 10, **MADE),
        lambda n: (overlapping(n, separation=2.0).X,),
    ),
    "FactorialMixture": (partial(FactorialMixture, 8, **MADE), factors),
}
TOPIC_MODELS = {"TemperedLDA": TemperedLDA, "VRPLSA": VRPLSA}


def one_pass(model, given, size, later=None):
    """Show a model all rows once, the later ones with options."""
    for start in range(0, given[0].shape[0], size):
        options = (later or {}) if start else {}
        model.partial_fit(*(part[start : start + size] for part in given), **options)
    return model


def beside_fit(make, given, size, later=None, by=None):
    """Return held-out scores of a pass and of a fit, and the seconds of both.

    Rows of the pass may be sorted by a feature.
    """
    n = len(given[0]) * 4 // 5
    seen, unseen = ([part[at] for part in given] for at in (slice(n), slice(n, None)))
    if by is not None:
        seen = [part[np.argsort(seen[0][:, by])] for part in seen]
    spent, stream = timed(lambda: one_pass(make(), seen, size, later))
    seconds, whole = timed(lambda: make().fit(*seen))
    note = f"{spent:.1f} s, a fit {seconds:.1f} s"
    return stream.score(*unseen), whole.score(*unseen), note


@group(product(MIXTURES, SIZES))
def mixtures(run, name, size):
    """Held-out log-density after one pass, nats a row."""
    make, draw = MIXTURES[name]
    value, level, note = beside_fit(make, draw(run.size(ROWS, 1500)), size)
    yield Row(f"{name}, {size:,} rows", value, "nats", {"fit": level}, -0.1, note)


@group(product(MIXTURES, SIZES))
def ordered(run, name, size):
    """Held-out log-density after one pass over rows sorted by a feature, nats a row."""
    make, draw = MIXTURES[name]
    given = draw(run.size(ROWS, 1500))
    value, level, note = beside_fit(make, given, size, by=0)
    yield Row(f"{name}, {size:,} rows", value, "nats", {"fit": level}, None, note)


@group(product((3, 6), SIZES))
def chains(run, states, size):
    """Held-out log-likelihood after one pass over an endless sequence, nats a row."""
    X, _ = simulate(states, 4, run.size(ROWS, 1500), stay=0.9, variances=4.0)
    make = partial(VRHMM, states, **MADE)
    value, level, note = beside_fit(make, (X,), size, {"continues": True})
    label = f"VRHMM, {states} states, {size:,} rows"
    yield Row(label, value, "nats", {"fit": level}, -0.1, note)


@group([(size,) for size in SIZES])
def regression(run, size):
    """Share of the held-out deviance that a Poisson regression leaves, one pass."""
    make = partial(BayesianGLMRegressor, "poisson", **MADE)
    value, level, note = beside_fit(make, counts(run.size(ROWS, 1500)), size)
    label = f"BayesianGLMRegressor, {size:,} rows"
    yield Row(label, 1.0 - value, "", {"fit": 1.0 - level}, 0.98, note)


CLASSIFIERS = {
    "Linear classifier with dropout": partial(GaussianDropoutClassifier, (), **MADE),
    "Network with dropout": partial(GaussianDropoutClassifier, **MADE),
    "BayesianLogisticRegression": partial(BayesianLogisticRegression, **MADE),
}


@group(product(CLASSIFIERS, ("shuffled", "sorted"), SIZES))
def classes(run, name, order, size):
    """Log-loss of unseen rows after one pass, by the order of classes, nats a row."""
    n = run.size(7000, 1500)
    given = {"n_informative": 10, "n_redundant": 10, "flip_y": 0.1, "random_state": 2}
    X, y = make_classification(n + 3000, 40, **given)
    X, X_new, y, y_new = X[:n], X[n:], y[:n], y[n:]
    at = np.arange(n) if order == "shuffled" else np.argsort(y, kind="stable")
    make, known = CLASSIFIERS[name], {"classes": [0, 1]}

    def one(seen=(X[at], y[at])):
        model = make().partial_fit(*(part[:size] for part in seen), **known)
        return one_pass(model, [part[size:] for part in seen], size)

    spent, stream = timed(one)
    seconds, whole = timed(lambda: make().fit(X, y))
    value, level = (log_loss(y_new, m.predict_proba(X_new)) for m in (stream, whole))
    note = f"{spent:.1f} s, a fit {seconds:.1f} s"
    label = f"{name}, {order}, {size:,} rows"
    yield Row(label, value, "nats", {"fit": level}, None, note)


@group(product(("batches", "after a fit"), (2, 4)))
def long(run, how, k):
    """Log-loss above that of a fit to all rows, of these, millionths of a nat a row.

    Batches of 5,000, of which the first 50,000 rows are kept; or a fit to 20,000 rows
    and batches after it, whose rows are not.
    """
    n, step = run.size(120_000, 30_000), 5000
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 20))
    Z = X @ rng.normal(size=(20, k)) + rng.gumbel(size=(n, k))
    y = Z.argmax(axis=1)
    loss, model = partial(log_loss, y, labels=range(k)), SBMLogisticRegression(**MADE)
    least = loss(SBMLogisticRegression(**MADE).fit(X, y).predict_proba(X))
    begun = 4 * step if how == "after a fit" else 0
    if begun:
        model.fit(X[:begun], y[:begun])
    found = {begun: loss(model.predict_proba(X)) - least} if begun else {}
    for start in range(begun, n, step):
        some = slice(start, start + step)
        model.partial_fit(X[some], y[some], classes=range(k))
        found[start + step] = loss(model.predict_proba(X)) - least
    told = [size for size in (5000, 20_000, 25_000, 45_000, 60_000, n) if size in found]
    yield Row(
        f"{k} classes, {how}",
        1e6 * found[n],
        "",
        note=", ".join(f"{1e6 * found[size]:.0f} after {size:,}" for size in told),
        numbers={"above": list(found.values())},
        key=f"{how}/{k}",
    )


@group(product(("nested", "meanfield"), ("shuffled", "sorted"), SIZES))
def tastes(run, posterior, order, size):
    """The same of coefficients by group, of 30 groups and three classes."""
    n, rng = run.size(2400, 600), np.random.default_rng(0)
    group, X = rng.integers(30, size=n + 3000), rng.normal(size=(n + 3000, 4))
    Z = rng.normal(size=(4, 3)) + rng.normal(size=(30, 4, 3))
    level = 0.5 * (rng.normal(size=3) + rng.normal(size=(30, 3)))
    z = np.einsum("nj,njk->nk", X, Z[group]) + level[group]
    y = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    seen, (X, y, group) = (
        [part[:n] for part in (X, y, group)],
        [X[n:], y[n:], group[n:]],
    )
    make = partial(HierarchicalSoftmaxClassifier, posterior=posterior, n_jobs=1)
    at = np.arange(n) if order == "shuffled" else np.argsort(seen[1], kind="stable")

    def one():
        model = make()
        for some in np.split(at, range(size, n, size)):
            rows, numbers, ids = (part[some] for part in seen)
            model.partial_fit(rows, numbers, classes=range(3), groups=ids)
        return model

    spent, stream = timed(one)
    seconds, whole = timed(lambda: make().fit(*seen))
    value, level = (
        log_loss(y, m.predict_proba(X, groups=group)) for m in (stream, whole)
    )
    note = f"{spent:.1f} s, a fit {seconds:.1f} s"
    label = f"HierarchicalSoftmaxClassifier, {posterior}, {order}, {size:,} rows"
    yield Row(label, value, "nats", {"fit": level}, None, note)


@group([(50,), (366,), (900,), (3000,)])
def skills(run, players):
    """Seconds of a batch of ten matches, by the number of players."""
    rng = np.random.default_rng(0)

    def matches(n):
        first = rng.integers(players, size=n)
        second = (first + rng.integers(1, players, size=n)) % players
        return np.stack([first, second], axis=1)

    model = BradleyTerry(n_jobs=1).fit(matches(10 * players))
    spent = [timed(partial(model.partial_fit, matches(10)))[0] for _ in range(11)]
    note = type(model.posterior_).__name__
    yield Row(f"{players:,} players", float(np.median(spent[1:])), "s", note=note)


def documents_of(run, key):
    """Return a corpus and its number of topics."""
    if key == "simulated":
        n = run.size(DOCUMENTS, 400)
        return corpora.simulated(n, run.size(WORDS, 300), TOPICS, seed=0), TOPICS
    n_documents = run.size(COMPLETION[key], 300)
    return corpora.completion(key, n_documents, run.size(430, 50)), TOPICS


def gensim_pass(X, n_topics, size):
    """Return CPU seconds of gensim's updates with batches, and its topics."""
    from gensim.matutils import Sparse2Corpus
    from gensim.models import LdaModel

    documents = list(Sparse2Corpus(X, documents_columns=False))
    names = {v: str(v) for v in range(X.shape[1])}
    model = LdaModel(
        num_topics=n_topics, id2word=names, eval_every=None, random_state=0
    )

    def update():
        for start in range(0, len(documents), size):
            model.update(documents[start : start + size])
        return model.get_topics()

    return timed(update)


def topics_beside(run, name, size, corpus, n_topics, order=None):
    """Return a row of a pass beside fits and passes of others."""
    halves, X = evaluation.halve(corpus.test), corpus.train.tocsr()
    X = X if order is None else X[order]
    make = partial(TOPIC_MODELS[name], n_topics, **MADE)
    twin = partial(LatentDirichletAllocation, n_topics, random_state=0)
    make().fit(X[:200]).partial_fit(X[:200])  # compiles

    def passed(make):
        return one_pass(make(), [X], size).components_

    runs = {
        "ours": timed(lambda: passed(make)),
        "fit": timed(lambda: make().fit(X).components_),
        "scikit-learn": timed(lambda: passed(partial(twin, total_samples=X.shape[0]))),
    }
    for peer in run.installed({"gensim": gensim_pass}):
        runs[peer] = gensim_pass(X, n_topics, size)
    value, *others = (
        evaluation.complete(halves, topics, ALPHA) for _, topics in runs.values()
    )
    spent = ", ".join(f"{side} {seconds:.1f} s" for side, (seconds, _) in runs.items())
    yield Row(
        f"{name}, {corpus.name}, {size:,} documents",
        value,
        "nats",
        dict(zip(list(runs)[1:], others, strict=True)),
        {"fit": -0.03, "scikit-learn": -0.01},
        spent,
    )


@group(product(TOPIC_MODELS, ("simulated", *REAL), SIZES))
def documents(run, name, key, size):
    """Held-out document completion after one pass, nats a token."""
    yield from topics_beside(run, name, size, *documents_of(run, key))


@group(product(TOPIC_MODELS, REAL, SIZES))
def themes(run, name, key, size):
    """The same of documents that come theme by theme: that which a fit gives most."""
    corpus, n_topics = documents_of(run, key)
    other = MADE | {"random_state": 1, "max_iter": 30, "tol": 0.0}
    shares = VRPLSA(n_topics, **other).fit_transform(corpus.train)
    order = np.argsort(shares.argmax(axis=1), kind="stable")
    yield from topics_beside(run, name, size, corpus, n_topics, order)
