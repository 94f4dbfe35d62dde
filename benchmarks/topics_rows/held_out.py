"""Time to equal held-out document completion.

One evaluator for all (`benchmark_utils.evaluation`): tokens of held-out documents are
put into two halves by a fair coin, theta comes from the observed half by 50 MAP EM
steps on the normalised topics, and the other half is scored, in nats a token.
"""

import statistics
import time

from benchmark_utils import evaluation, peers
from harness import Row
from harness.timing import quiet
from threadpoolctl import threadpool_limits

from skvrem import VRPLSA, TemperedLDA
from topics_rows import each_corpus

__all__ = ["held_out_rows"]

TARGETS = {"tomotopy": 5.0, "scikit-learn online LDA": 40.0, "gensim": 40.0}
#: Passes of the peers but tomotopy; the first of them within SLACK of the best counts.
PASSES = 8
SLACK = 0.002
N_TOPICS = 50
#: Epochs after which we give up; point estimates of a document's topics may not come
#: to a level, which is left to the other model then.
MOST, KINDS = 512, (VRPLSA, TemperedLDA)


def _fit(kind, corpus, n_topics, seed, n_iter):
    model = kind(n_topics, max_iter=n_iter, tol=0.0, random_state=seed, n_jobs=1)
    began = time.process_time()
    with quiet(), threadpool_limits(1):
        model.fit(corpus.train)
    return time.process_time() - began, model.components_


class Ours:
    """Held-out values of our fits by number of epochs, each fitted once."""

    def __init__(self, kind, corpus, halves, n_topics, seed):
        self.arguments = kind, corpus, n_topics, seed
        self.halves, self.values = halves, {}

    def value(self, n_iter):
        if n_iter not in self.values:
            n_topics = self.arguments[2]
            _, components = _fit(*self.arguments, n_iter)
            self.values[n_iter] = evaluation.complete(
                self.halves, components, 1.0 / n_topics
            )
        return self.values[n_iter]

    def epochs_to(self, level):
        """Epochs after which a fit has the level, to 15 %; None if it never does.

        It will not where the value has fallen from one number to its double, twice.
        """
        few, many, falls = 0, 1, 0
        while self.value(many) < level:
            few, many = many, 2 * many
            falls = falls + 1 if self.value(many) < self.value(few) else 0
            if many > MOST or falls == 2:
                return None
        while many > 1.15 * few + 1:
            middle = (few + many) // 2
            if self.value(middle) < level:
                few = middle
            else:
                many = middle
        return many

    def seconds(self, n_iter, repeats):
        """CPU seconds of the whole fit, start and checks included."""
        return min(_fit(*self.arguments, n_iter)[0] for _ in range(repeats))


def _peer_level(curve, halves, n_topics, name):
    """Points of a peer's curve; the level, and when the peer reached it."""
    points = [
        (seconds, evaluation.complete(halves, components, 1.0 / n_topics))
        for seconds, components in curve
    ]
    if name == "tomotopy":
        seconds, level = points[-1]
    else:
        level = max(value for _, value in points) - SLACK
        seconds = next(seconds for seconds, value in points if value >= level)
    return points, level, seconds


def held_out_rows(settings):
    """Compare the CPU time to a peer's held-out value with the peer's."""
    for corpus in each_corpus(settings):
        halves = evaluation.halve(corpus.test)
        seeds = range(settings.seeds)
        ours = {
            kind: [Ours(kind, corpus, halves, N_TOPICS, seed) for seed in seeds]
            for kind in KINDS
        }
        for name in settings.peers:
            make_curve = peers.CURVES[name]
            settings.log(f"held-out, {corpus.name}, {name}")
            n_passes = 100 if name == "tomotopy" else PASSES
            try:
                curve = make_curve(corpus, N_TOPICS, n_passes)
                points, level, theirs = _peer_level(curve, halves, N_TOPICS, name)
            except ImportError:
                settings.log(f"left out: {name} is not installed")
                continue
            for kind, runs in ours.items():
                row, reached = _compare(
                    name, kind, runs, points, level, theirs, corpus, settings
                )
                yield row
                if reached:
                    break


def _compare(name, kind, runs, points, level, theirs, corpus, settings):
    """Return the row of one of our models beside a peer, and whether it gets there."""
    epochs = [run.epochs_to(level) for run in runs]
    best = statistics.median(max(run.values.values()) for run in runs)
    if None in epochs:
        mine, reached = float("inf"), f"not reached, best {best:.4f}"
    else:
        mine = statistics.median(
            run.seconds(n, settings.repeats)
            for run, n in zip(runs, epochs, strict=True)
        )
        reached = f"{mine:.2f} s, {epochs} epochs"
    ratio = theirs / mine
    row = Row(
        "held-out",
        f"CPU time of {kind.__name__} to held-out {level:.4f} against {name}, "
        f"{corpus.name}, K={N_TOPICS}, 1 thread",
        f"{ratio:.1f}x ({reached} against {theirs:.1f} s)",
        f"{TARGETS[name]:g}x",
        ratio >= TARGETS[name],
        {
            "level": level,
            "ours": mine,
            "epochs": epochs,
            "our best": best,
            name: theirs,
            "curve": points,
            "ratio": ratio,
        },
    )
    return row, None not in epochs
