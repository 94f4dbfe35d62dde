"""One pass of a stream by default settings, in batches of any size, beside a whole fit.

Simulated rows and documents in random order, a fifth held out. Seconds are those of the
process, of the pass and of the fit of the same class to the same rows. Beside topics is
scikit-learn's online LDA, told how many documents there will be.
"""

from functools import partial
from itertools import product

import numpy as np
from sklearn.decomposition import LatentDirichletAllocation

from benchmarks.harness import Row, group, timed
from benchmarks.problems import corpora, evaluation
from benchmarks.problems.mixtures import overlapping
from benchmarks.tables.hmm import simulate
from benchmarks.tables.lda import ALPHA
from skvrem import (
    VRHMM,
    VRPLSA,
    BayesianGLMRegressor,
    FactorialMixture,
    TemperedLDA,
    VRGaussianMixture,
)

ROWS, DOCUMENTS, WORDS, TOPICS = 10_000, 2000, 2000, 20
SIZES = (10, 100, 1000)


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


@group(product(TOPIC_MODELS, SIZES[1:]))
def documents(run, name, size):
    """Held-out document completion after one pass, nats a token."""
    n = run.size(DOCUMENTS, 400)
    corpus = corpora.simulated(n, run.size(WORDS, 300), TOPICS, seed=0)
    halves, X = evaluation.halve(corpus.test), corpus.train.tocsr()
    makers = {
        "ours": partial(TOPIC_MODELS[name], TOPICS, **MADE),
        "scikit-learn": partial(
            LatentDirichletAllocation, TOPICS, total_samples=n, random_state=0
        ),
    }

    def passed(make):
        return one_pass(make(), [X], size)

    runs = {side: timed(partial(passed, make)) for side, make in makers.items()}
    runs["fit"] = timed(lambda: makers["ours"]().fit(X))
    value, *peers = (
        evaluation.complete(halves, model.components_, ALPHA)
        for _, model in runs.values()
    )
    spent = ", ".join(f"{side} {seconds:.1f} s" for side, (seconds, _) in runs.items())
    yield Row(
        f"{name}, {size:,} documents",
        value,
        "nats",
        dict(zip(list(runs)[1:], peers, strict=True)),
        {"scikit-learn": -0.01},
        spent,
    )
