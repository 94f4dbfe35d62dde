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

__all__ = ["held_out_rows", "pass_rows", "tempering_rows"]

#: CPU seconds that the twin gets.
BUDGET = 15.0
#: The first pass is not timed: later documents take more rounds. Of ours, three others
#: are, as the difference between two fits of so little time would be noise.
OURS, PEERS = (1, 4), (1, 2)
#: Epochs of a fit that is given nothing; with fewer it anneals for half of them.
EPOCHS = 10
#: A topic with a smaller share of the tokens is not in use.
IN_USE = 1e-3
TEMPERINGS = {
    "SVI": {"solver": "stochastic", "tempering": None},
    "AVI, T=1.3": {"solver": "stochastic", "tempering": "annealed"},
    "AVI, T=2": {
        "solver": "stochastic",
        "tempering": "annealed",
        "temperature": 2.0,
    },
    "VT": {"solver": "stochastic", "tempering": "global", "max_iter": 20},
    "LVT, capped by T=2": {
        "solver": "stochastic",
        "tempering": "local",
        "temperature": 2.0,
    },
    "AVI, variance-reduced (default)": {},
}


def _fit(corpus, n_topics, seed=0, **params):
    """Return CPU seconds and the topics of a fit on one thread."""
    model = TemperedLDA(n_topics, random_state=seed, n_jobs=1, **params)
    began = time.process_time()
    with threadpool_limits(1):
        model.fit(corpus.train)
    return time.process_time() - began, model.components_


def _in_use(topics, prior):
    """Return how many topics have a share of the tokens."""
    tokens = topics.sum(axis=1, dtype=float) - prior * topics.shape[1]
    return int((tokens > IN_USE * tokens.sum()).sum())


def _gensim(corpus, n_topics):
    """Return a function that makes so many passes of gensim's LdaModel."""

    def fit(n_passes):
        for _ in peers.gensim_curve(corpus, n_topics, n_passes):
            pass

    return fit


def _online_lda(corpus, n_topics):
    """Return a function that makes so many passes of scikit-learn's online LDA."""

    def fit(n_passes):
        model = peers.online_lda(corpus.train, n_topics)
        with threadpool_limits(1):
            for _ in range(n_passes):
                model.partial_fit(corpus.train)

    return fit


def pass_rows(settings):
    """Compare a pass of stochastic variational inference with the peers'."""
    for corpus in each_corpus(settings):
        for n_topics in settings.topics:
            settings.log(f"a pass of LDA, {corpus.name}, K={n_topics}")

            def ours(n_iter, corpus=corpus, n_topics=n_topics):
                _fit(
                    corpus,
                    n_topics,
                    solver="stochastic",
                    max_iter=n_iter,
                    tempering=None,
                )

            sides = {
                "ours": (ours, OURS),
                "scikit-learn's online LDA": (_online_lda(corpus, n_topics), PEERS),
                "gensim's LdaModel": (_gensim(corpus, n_topics), PEERS),
            }
            times = interleaved(
                list(sides.values()), settings.repeats, time.process_time
            )
            seconds = dict(zip(sides, times, strict=True))
            mine = seconds.pop("ours")
            for name, theirs in seconds.items():
                ratio = theirs / mine
                yield Row(
                    "lda-pass",
                    f"stochastic pass against {name}, {corpus.name}, K={n_topics}, "
                    "1 thread",
                    f"{ratio:.1f}x ({mine:.3f} s against {theirs:.2f} s)",
                    "10x",
                    ratio >= 10.0,
                    {"ours": mine, name: theirs, "ratio": ratio},
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


class Ours:
    """Fits with defaults but for the number of epochs, each fitted once."""

    def __init__(self, corpus, halves, n_topics, seed):
        self.arguments, self.halves, self.fits = (corpus, n_topics, seed), halves, {}

    def fit(self, n_iter):
        """Return CPU seconds and the held-out value of so many epochs."""
        if n_iter not in self.fits:
            seconds, topics = _fit(*self.arguments, max_iter=n_iter)
            n_topics = self.arguments[1]
            value = evaluation.complete(self.halves, topics, 1.0 / n_topics)
            self.fits[n_iter] = seconds, value
        return self.fits[n_iter]

    def seconds_to(self, level):
        """Return the time of the shortest fit that has the level; inf if none."""
        for n_iter in range(1, EPOCHS + 1):
            seconds, value = self.fit(n_iter)
            if value >= level:
                return seconds
        return float("inf")


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
        runs = [Ours(corpus, halves, n_topics, s) for s in range(settings.seeds)]
        mine = statistics.median(run.seconds_to(level) for run in runs)
        values = [run.fit(EPOCHS)[1] for run in runs]
        whole = statistics.median(run.fit(EPOCHS)[0] for run in runs)
        value = statistics.median(values)
        ratio, better = theirs / mine, value - level
        yield Row(
            "lda-held-out",
            f"default fits against scikit-learn's best within {BUDGET:.0f} s, "
            f"{corpus.name}, K={n_topics}, 1 thread",
            f"its value {ratio:.1f}x sooner ({mine:.2f} s against {theirs:.1f} s); in "
            f"the end {better:+.3f} ({value:.4f} against {level:.4f}; {whole:.1f} s)",
            "8x, +0.05",
            better >= 0.05 and ratio >= 8.0,
            {"ours": [run.fits for run in runs], "online LDA": points},
        )


def tempering_rows(settings):
    """Report held-out values of all temperings, 100 topics, two pairs of priors."""
    n_topics = 100
    for corpus in each_corpus(settings):
        halves = evaluation.halve(corpus.test)
        for alpha, eta in ((1.0 / n_topics, 1.0 / n_topics), (0.1, 0.05)):
            priors = {"doc_topic_prior": alpha, "topic_word_prior": eta}
            for name in settings.temperings:
                params = dict(TEMPERINGS[name])
                if settings.epochs:
                    params["max_iter"] = settings.epochs
                settings.log(f"temperings, {corpus.name}, {name}, priors {alpha}")
                fits = [
                    _fit(corpus, n_topics, seed, **priors, **params)
                    for seed in range(settings.seeds)
                ]
                values = [
                    evaluation.complete(halves, topics, alpha) for _, topics in fits
                ]
                seconds = statistics.median(seconds for seconds, _ in fits)
                used = statistics.median(_in_use(topics, eta) for _, topics in fits)
                yield Row(
                    "lda-temperings",
                    f"held-out, {name}, priors {alpha:g} and {eta:g}, {corpus.name}, "
                    f"K={n_topics}",
                    f"{statistics.median(values):.4f} ({min(values):.4f} to "
                    f"{max(values):.4f}), {used:g} topics in use, {seconds:.1f} s",
                    "",
                    None,
                    {"values": values, "in use": used, "seconds": seconds},
                )
