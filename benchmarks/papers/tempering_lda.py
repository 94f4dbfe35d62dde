"""Measure Figure 2 of Mandt et al. (2016) again: tempered inference of topics.

    python -m benchmarks.papers.tempering_lda
    python -m benchmarks.papers.tempering_lda --corpora ap --seeds 1

Held-out log-likelihood by passes of stochastic variational inference untempered (SVI),
annealed (AVI), with a learned temperature (VT) and with temperatures of documents
(LVT), and the temperatures; schedules as short as the paper's are in
``tempering_passes.py``. The corpora are read from the folder SKVREM_DATA. What was
measured is kept in ``figures/tempering_lda.csv`` and not measured again. See
``benchmarks/papers/README.md``.
"""

from itertools import product

import numpy as np

from benchmarks.papers import measured
from benchmarks.problems import corpora, evaluation
from skvrem import TemperedLDA

#: Of the steps: scikit-learn's default, and the paper's.
OFFSETS = (10.0, 1024.0)
COLOURS = {"SVI": "C7", "AVI 1.3": "C0", "AVI 2": "C1", "VT": "C2", "LVT": "C3"}


METHODS = {
    "SVI": {"tempering": None},
    "AVI 1.3": {"tempering": "annealed", "temperature": 1.3},
    "AVI 2": {"tempering": "annealed", "temperature": 2.0},
    "VT": {"tempering": "global"},
    "LVT": {"tempering": "local", "temperature": 1.3},
}
#: Of a fit, and of the schedules.
N_TOPICS, PASSES, LENGTH = 50, 20, 10
COLUMNS = "corpus", "offset", "method", "seed", "passes", "held_out", "temperature"
KINDS = str, float, str, int, int, float, float


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
        """Judge the topics that an epoch has led to."""
        if context.task_name == "epoch":
            topics = fitted_estimator.components_
            self.values.append(evaluation.complete(self.halves, topics, self.alpha))
        return False


def measure(key, offset, method, seed):
    """Return rows of a fit, by the passes that topics are judged after."""
    corpus = corpora.load(key)
    curve = Curve(evaluation.halve(corpus.test), 1.0 / N_TOPICS)
    model = TemperedLDA(
        N_TOPICS,
        solver="stochastic",
        e_step="mean_field",
        batch_size=100,
        step_offset=offset,
        max_iter=PASSES,
        tol=0.0,
        annealing_iter=LENGTH,
        n_jobs=1,
        random_state=seed,
        **METHODS[method],
    )
    model.set_callbacks(curve).fit(corpus.train)
    temperatures = model.history_["temperature"][:PASSES]
    found = zip(curve.values, temperatures, strict=True)
    return [(key, offset, method, seed, 1 + n, *row) for n, row in enumerate(found)]


def curves(rows, case, column):
    """Return what a column has of a case, (n_seeds, n_passes)."""
    mine = [row for row in rows if row[:3] == case]
    seeds = sorted({row[3] for row in mine})
    return np.array([[row[column] for row in mine if row[3] == s] for s in seeds])


def summarise(rows):
    """Print medians of seeds with their ranges, and gains over plain SVI."""
    heads = "after 10 passes | after 20 | above SVI | T above 1 until"
    print(f"| corpus, offset | method | {heads} |")
    print("|---|---|---|---|---|---|")
    for key, offset, method in product(*cases(rows), METHODS):
        values, plain = (
            curves(rows, (key, offset, name), 5)[:, [LENGTH - 1, -1]]
            for name in (method, "SVI")
        )
        hot = np.flatnonzero(curves(rows, (key, offset, method), 6)[0] > 1.0)
        half, end = (measured.told(column, "{:.3f}") for column in values.T)
        above = measured.told((values - plain)[:, 1], "{:+.3f}")
        print(
            f"| {corpora.CORPORA[key][1]}, {offset:g} | {method} | {half} | {end} | "
            f"{'' if method == 'SVI' else above} | {hot[-1] + 1 if hot.size else '-'} |"
        )


def cases(rows):
    """Return corpora and offsets that were measured."""
    return [sorted({row[column] for row in rows}) for column in (0, 1)]


def draw(rows, path):
    """Held-out values of each corpus and offset, and the temperatures; medians."""
    from matplotlib import pyplot as plt

    places, passes = list(product(*cases(rows))), np.arange(1, PASSES + 1)
    fig, axes = plt.subplots(
        1, len(places) + 1, figsize=(4 * len(places) + 4, 3.8), layout="constrained"
    )
    for ax, place in zip(axes, places, strict=False):
        for name, colour in COLOURS.items():
            values = np.median(curves(rows, (*place, name), 5), axis=0)
            ax.plot(passes, values, color=colour, label=name)
        top = ax.dataLim.y1
        title = f"{corpora.CORPORA[place[0]][1]}, {place[1]:g}"
        ax.set(title=title, xlabel="passes", ylim=(top - 0.6, top + 0.03))
    axes[0].set_ylabel("held-out nats a token")
    axes[0].legend()
    for name, colour in COLOURS.items():
        axes[-1].plot(passes, curves(rows, (*places[0], name), 6)[0], color=colour)
    axes[-1].set(title="temperature", xlabel="passes")
    fig.savefig(path, dpi=110)


def main():
    """Measure what is not known, print a table and draw the figure."""
    parser = measured.parser(__doc__)
    parser.add_argument("--corpora", nargs="+", default=["ap", "nips"])
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    path = options.figures / "tempering_lda.csv"
    rows = measured.load(path, KINDS)
    asked = product(range(options.seeds), options.corpora, OFFSETS, METHODS)
    for seed, *case in asked:
        if any(row[:4] == (*case, seed) for row in rows):
            continue
        rows = sorted([*rows, *measure(*case, seed)])
        measured.save(path, COLUMNS, rows)
    summarise(rows)
    draw(rows, path.with_suffix(".png"))


if __name__ == "__main__":
    main()
