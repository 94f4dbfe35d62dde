"""The number of topics that ``n_components="auto"`` finds.

Simulated corpora have fifty documents a topic (a thousand at least) of a hundred words
on average, and two topics a document in expectation: the prior of its shares sums to
two. Real ones are those of ``lda/completion``, judged as there; beside is the best
number of topics of a grid, each fitted with 40 epochs.
"""

from functools import partial
from itertools import product

from benchmarks.harness import Row, group, timed
from benchmarks.problems import corpora, evaluation
from benchmarks.tables.lda import ALPHA, DOCUMENTS
from skvrem import VRPLSA, TemperedLDA

#: Topics of simulated corpora; their documents a topic, at least, and words.
TOPICS, A_TOPIC, LEAST, WORDS = (10, 50, 200), 50, 1000, 5000
#: Numbers of topics beside, and epochs of their fits.
GRID, EPOCHS = (10, 25, 50, 100, 200, 400), 40
KINDS = {"TemperedLDA": TemperedLDA, "VRPLSA": VRPLSA}


@group(product(KINDS, TOPICS))
def simulated(run, kind, n_topics):
    """By how much the number found is off the true one, the most of all seeds."""
    made = {"n_jobs": 1, "random_state": 0}
    found, seconds = [], []
    for seed in range(run.seeds):
        corpus = corpora.simulated(
            run.size(max(LEAST, A_TOPIC * n_topics), 300),
            run.size(WORDS, 500),
            n_topics,
            alpha=2.0 / n_topics,
            seed=seed,
        )
        make = partial(KINDS[kind], "auto", **made | {"random_state": seed})
        spent, model = timed(lambda make=make, X=corpus.train: make().fit(X))
        found.append(model.n_components_)
        seconds.append(spent)
    off = max(abs(k - n_topics) / n_topics for k in found)
    yield Row(
        f"{kind}, {n_topics} topics",
        off,
        "",
        target=0.2,
        note=f"{min(found)} to {max(found)} found by {run.seeds} starts in "
        f"{min(seconds):.1f} to {max(seconds):.1f} s",
        numbers={"found": found, "seconds": seconds},
    )


@group(product(KINDS, DOCUMENTS))
def real(run, kind, key):
    """Held-out document completion, one thread, nats a token."""
    corpus = corpora.completion(key, run.size(DOCUMENTS[key], 300), run.size(430, 50))
    halves = evaluation.halve(corpus.test)
    made = {"random_state": 0, "n_jobs": 1}

    def judged(*number, **more):
        make = partial(KINDS[kind], *number, **made | more)
        seconds, model = timed(lambda: make().fit(corpus.train))
        value = evaluation.complete(halves, model.components_, ALPHA)
        return value, seconds, len(model.components_)

    value, seconds, number = judged("auto")
    grid = [
        judged(k, max_iter=run.size(EPOCHS, 5), tol=0.0) for k in run.size(GRID, (4, 8))
    ]
    level, _, best = max(grid)
    spent = sum(row[1] for row in grid)
    yield Row(
        f"{kind}, {corpus.name}",
        value,
        "nats",
        {"the best of a grid": level},
        -0.01,
        f"{number} topics in {seconds:.0f} s; {best} in {spent:.0f} s for the grid",
        numbers={"auto": [value, seconds, number], "grid": grid},
    )
