"""TemperedLDA beside scikit-learn's online LDA: a pass, and what it comes to.

Held-out values are document completion by the one evaluator of these benchmarks, see
`held_out`.
"""

import statistics
import time
from itertools import pairwise

from benchmark_utils import evaluation, peers
from harness import Row
from harness.timing import interleaved
from threadpoolctl import threadpool_limits

from skvrem import TemperedLDA
from topics_rows import each_corpus
from topics_rows.timing import EIGHTHS, online_lda

__all__ = ["held_out_rows", "pass_rows", "tempering_rows"]

#: CPU seconds that the twin gets.
BUDGET = 15.0
PASSES = (1, 3)
TEMPERINGS = {
    "None": {"tempering": None},
    "annealed": {"tempering": "annealed"},
    "global": {"tempering": "global"},
    "local": {"tempering": "local"},
}


def _fit(corpus, n_topics, seed=0, **params):
    """Return CPU seconds and the topics of a fit on one thread."""
    params = {"solver": "stochastic"} | params
    model = TemperedLDA(n_topics, random_state=seed, n_jobs=1, **params)
    began = time.process_time()
    with threadpool_limits(1):
        model.fit(corpus.train)
    return time.process_time() - began, model.components_


def pass_rows(settings):
    """Compare a pass of stochastic variational inference with the twin's."""
    for corpus in each_corpus(settings):
        for n_topics in settings.topics:
            settings.log(f"a pass of LDA, {corpus.name}, K={n_topics}")

            def ours(n_iter, corpus=corpus, n_topics=n_topics):
                _fit(corpus, n_topics, max_iter=n_iter, tempering=None)

            sides = [(ours, PASSES), (online_lda(corpus.train, n_topics), EIGHTHS)]
            mine, other = interleaved(sides, settings.repeats, time.process_time)
            ratio = 8.0 * other / mine
            yield Row(
                "lda-pass",
                f"stochastic pass against scikit-learn's online LDA, {corpus.name}, "
                f"K={n_topics}, 1 thread",
                f"{ratio:.1f}x ({mine:.3f} s against {8.0 * other:.2f} s)",
                "10x",
                ratio >= 10.0,
                {"ours": mine, "online LDA": 8.0 * other, "ratio": ratio},
            )


def _twin_curve(corpus, halves, n_topics, seed=0):
    """Return CPU seconds and held-out values of the twin until its budget is spent."""
    model, X = peers.online_lda(corpus.train, n_topics, seed), corpus.train
    edges = [X.shape[0] * i // 4 for i in range(5)]
    spent, points = 0.0, []
    while spent < BUDGET:
        for a, b in pairwise(edges):
            began = time.process_time()
            with threadpool_limits(1):
                model.partial_fit(X[a:b])
            spent += time.process_time() - began
            if spent >= BUDGET:
                break
        value = evaluation.complete(halves, model.components_, 1.0 / n_topics)
        points.append((spent, value))
    return points


def held_out_rows(settings):
    """Compare default fits with the best that the twin has after its budget."""
    n_topics = 50
    for corpus in each_corpus(settings):
        settings.log(f"held-out of LDA, {corpus.name}")
        halves = evaluation.halve(corpus.test)
        points = _twin_curve(corpus, halves, n_topics)
        level = max(value for _, value in points)
        theirs = next(seconds for seconds, value in points if value == level)
        _fit(corpus, n_topics, max_iter=1)  # compiles
        fits = [_fit(corpus, n_topics, seed) for seed in range(settings.seeds)]
        values = [
            evaluation.complete(halves, topics, 1.0 / n_topics) for _, topics in fits
        ]
        mine = statistics.median(seconds for seconds, _ in fits)
        value = statistics.median(values)
        ratio, better = theirs / mine, value - level
        yield Row(
            "lda-held-out",
            f"held-out of default fits against scikit-learn's best within "
            f"{BUDGET:.0f} s, {corpus.name}, K={n_topics}, 1 thread",
            f"{better:+.3f} ({value:.4f} against {level:.4f}), {ratio:.1f}x "
            f"({mine:.1f} s against {theirs:.1f} s)",
            "+0.05, 8x",
            better >= 0.05 and ratio >= 8.0,
            {"ours": values, "seconds": mine, "online LDA": points},
        )


def tempering_rows(settings):
    """Report held-out values of all temperings."""
    n_topics = 50
    for corpus in each_corpus(settings):
        halves = evaluation.halve(corpus.test)
        for name, params in TEMPERINGS.items():
            settings.log(f"temperings, {corpus.name}, {name}")
            fits = [_fit(corpus, n_topics, s, **params) for s in range(settings.seeds)]
            values = [
                evaluation.complete(halves, topics, 1.0 / n_topics)
                for _, topics in fits
            ]
            seconds = statistics.median(seconds for seconds, _ in fits)
            yield Row(
                "lda-temperings",
                f"held-out with tempering {name}, {corpus.name}, K={n_topics}",
                f"{statistics.median(values):.4f} ({min(values):.4f} to "
                f"{max(values):.4f}), {seconds:.1f} s",
                "",
                None,
                {"values": values, "seconds": seconds},
            )
