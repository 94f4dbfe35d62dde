"""Measure Figure 2 of Mandt et al. (2016) again: tempered inference of topics.

    python -m benchmarks.papers.tempering_lda
    python -m benchmarks.papers.tempering_lda --corpora ap --passes 12
    python -m benchmarks.papers.tempering_lda --short --corpora arxiv --topics 100

Held-out log-likelihood by passes of stochastic variational inference untempered (SVI),
annealed (AVI), with a learned temperature (VT) and with temperatures of documents
(LVT), and the temperatures. ``--short`` has schedules as short as the paper's, of a
hundredth of a pass, a tenth and one: temperatures fall with every minibatch. The
corpora are read from the folder SKVREM_DATA. See
``benchmarks/papers/README.md``.
"""

import argparse
from itertools import product
from pathlib import Path

import numpy as np

from benchmarks.problems import corpora, evaluation
from skvrem import TemperedLDA

HERE = Path(__file__).resolve().parent
#: Of the steps: scikit-learn's default, and the paper's.
OFFSETS = (10.0, 1024.0)
COLOURS = {"SVI": "C7", "AVI 1.3": "C0", "AVI 2": "C1", "VT": "C2", "LVT": "C3"}


def methods(length):
    """Parameters of the methods; schedules take so many passes."""
    annealed = {"tempering": "annealed", "annealing_iter": length}
    return {
        "SVI": {"tempering": None},
        "AVI 1.3": annealed | {"temperature": 1.3},
        "AVI 2": annealed | {"temperature": 2.0},
        "VT": {"tempering": "global", "annealing_iter": length},
        "LVT": {"tempering": "local", "annealing_iter": length, "temperature": 1.3},
    }


def short_methods(length):
    """The same with the paper's schedules, a share of a pass; from 2 and from 5.

    Of 0.99 passes, so that it falls within the first. VT takes so many as are given.
    """
    found = {"SVI": {"tempering": None}}
    for highest, share in product((2.0, 5.0), (0.01, 0.1, 0.99)):
        given = {"temperature": highest, "annealing_iter": share}
        found[f"AVI {highest:g}, {share:g}"] = {"tempering": "annealed"} | given
    found["VT"] = {"tempering": "global", "annealing_iter": length}
    for share in (0.1, 0.99):
        given = {"temperature": 2.0, "annealing_iter": share}
        found[f"LVT 2, {share:g}"] = {"tempering": "local"} | given
    return found


class Curve:
    """Callback of scikit-learn: held-out values by epoch, with the untempered model."""

    def __init__(self, halves, alpha):
        self.halves, self.alpha, self.values = halves, alpha, []

    def setup(self, estimator, context):
        """Nothing to prepare."""

    def teardown(self, estimator, context):
        """Nothing to close."""

    def on_fit_task_begin(self, estimator, context):
        """Nothing to note."""

    def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
        """Judge the topics that an epoch begins with."""
        if context.task_name == "epoch":
            topics = fitted_estimator.components_
            self.values.append(evaluation.complete(self.halves, topics, self.alpha))
        return False


def measure(corpus, params, offset, passes, n_topics, seed=0):
    """Return held-out values by pass, and temperatures."""
    curve = Curve(evaluation.halve(corpus.test), 1.0 / n_topics)
    model = TemperedLDA(
        n_topics,
        solver="stochastic",
        e_step="mean_field",
        batch_size=100,
        step_offset=offset,
        max_iter=passes,
        n_jobs=1,
        random_state=seed,
        **params,
    )
    model.set_callbacks(curve).fit(corpus.train)
    last = evaluation.complete(curve.halves, model.components_, 1.0 / n_topics)
    return [*curve.values, last], model.history_["temperature"]


def draw(results, path):
    """Held-out values of each corpus and offset, and the temperatures."""
    from matplotlib import pyplot as plt

    places = list(results)
    fig, axes = plt.subplots(
        1, len(places) + 1, figsize=(4 * len(places) + 4, 3.8), layout="constrained"
    )
    for ax, place in zip(axes, places, strict=False):
        for name, (values, _) in results[place].items():
            ax.plot(values, color=COLOURS.get(name), label=name)
        top = max(values[-1] for values, _ in results[place].values())
        ax.set(title=place, xlabel="passes", ylim=(top - 0.6, top + 0.03))
    axes[0].set_ylabel("held-out nats a token")
    axes[0].legend()
    for name, (_, temperatures) in results[places[0]].items():
        axes[-1].plot(temperatures, color=COLOURS.get(name))
    axes[-1].set(title=f"temperature, {places[0]}", xlabel="passes")
    fig.savefig(path, dpi=110)


def main():
    """Print a table and draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpora", nargs="+", default=["ap", "nips"])
    parser.add_argument("--topics", type=int, default=50)
    parser.add_argument("--passes", type=int, default=20)
    parser.add_argument("--length", type=int, default=10, help="of schedules, passes")
    parser.add_argument("--short", action="store_true", help="schedules, offset 1024")
    parser.add_argument("--figure", default=HERE / "figures" / "tempering_lda.png")
    options = parser.parse_args()
    results, methods_of = {}, short_methods if options.short else methods
    columns = "first pass | half way | end | best | last temperature above 1"
    print(f"| corpus, offset | method | {columns} |")
    print("|---|---|---|---|---|---|---|")
    for key in options.corpora:
        corpus = corpora.load(key)
        for offset in OFFSETS[options.short :]:
            place = f"{corpus.name}, {offset:g}"
            results[place] = {}
            for name, params in methods_of(options.length).items():
                found = measure(corpus, params, offset, options.passes, options.topics)
                results[place][name] = found
                values, temperatures = found
                hot = np.flatnonzero(temperatures > 1.0)
                print(
                    f"| {place} | {name} | {values[1]:.3f} | "
                    f"{values[len(values) // 2]:.3f} | {values[-1]:.3f} | "
                    f"{max(values):.3f} | {hot[-1] + 1 if hot.size else '-'} |",
                    flush=True,
                )
    draw(results, options.figure)


if __name__ == "__main__":
    main()
