"""Measure Figure 2 of Mandt et al. (2016) within the first passes over arXiv abstracts.

    SKVREM_DATA=... python -m benchmarks.papers.tempering_passes

As in the paper: 500 topics, priors 1/K, minibatches of 100 documents, steps
(t + 1024)^-0.7, temperatures that fall linearly from the mean of the grid, 3.9, within
a hundredth of a pass, a tenth or one (AVI), that are learned (VT) and that are the
documents' own (LVT). They change with every minibatch, learned ones ten times a pass;
our rule for those takes a length, of one pass or of three. A document's own is never
colder than an annealed one that takes a pass.

Held-out values are of document completion with the untempered model. What was measured
is kept in ``figures/tempering_passes.csv`` and not measured again.
"""

from itertools import count, product

import numpy as np

from benchmarks.papers import measured
from benchmarks.problems import corpora, evaluation
from skvrem import TemperedLDA
from skvrem.topics.lda._estimator import TEMPERATURES

#: Passes at which topics are judged, by documents held out.
PASSES, N_TEST = (0.01, 0.03, 0.1, 0.2, 0.5, 1, 2, 3), 1000
BATCH_SIZE, CHANGES = 100, 10
#: Shorter than a pass by less than a minibatch: a schedule of minibatches.
A_PASS = 0.9995
START = float(TEMPERATURES.mean())
METHODS = {
    "SVI": {"tempering": None},
    "AVI, 0.01": {"tempering": "annealed", "annealing_iter": 0.01},
    "AVI, 0.1": {"tempering": "annealed", "annealing_iter": 0.1},
    "AVI, 1": {"tempering": "annealed", "annealing_iter": A_PASS},
    "VT, 1": {"tempering": "global", "annealing_iter": 1},
    "VT, 3": {"tempering": "global", "annealing_iter": 3},
    "LVT, 1": {"tempering": "local", "annealing_iter": A_PASS},
}
COLUMNS = "method", "topics", "seed", "passes", "held_out", "temperature"
KINDS = str, int, int, float, float, float


class LearnedWithin:
    """A learned temperature whose counts are parts of a pass.

    Parameters
    ----------
    learned : LearnedTemperature
    """

    within_epochs = True

    def __init__(self, learned):
        self.learned = learned

    def __call__(self, count):
        """Return the temperature after so many passes."""
        return self.learned(int(CHANGES * count + 1e-6))


class Watched(TemperedLDA):
    """Calls `watch(passes, topics, temperature)` where it `looks`, topics a callable.

    Parameters
    ----------
    looks : list of int
        Minibatches after which.
    watch : callable
    **params : as `TemperedLDA`
    """

    def __init__(self, looks, watch, **params):
        super().__init__(**params)
        self.looks, self.watch = looks, watch

    def _temperature(self, plan, model, data, rng):
        whole, learns = self.annealing_iter, self.tempering == "global"
        self.annealing_iter = CHANGES * whole if learns else whole
        schedule = super()._temperature(plan, model, data, rng)
        self.annealing_iter = whole
        if learns:
            schedule = LearnedWithin(schedule)
        update, a_pass, visits = model.update, data.n_units / BATCH_SIZE, count(1)

        def watched(*arguments):
            point, n = update(*arguments), next(visits)
            temperature = schedule((n - 1) / a_pass)
            if learns and not n % (a_pass / CHANGES):
                schedule.learned.observe(point)
            if n in self.looks:
                topics = model.parameters(point).topics.T[: model.n_components]
                self.watch(n / a_pass, topics, temperature)
            return point

        model.update = watched
        return schedule


def measure(corpus, halves, method, n_topics, seed):
    """Return rows of what a fit has come to after so many passes."""
    rows, alpha = [], 1.0 / n_topics

    def watch(passes, topics, temperature):
        value = evaluation.complete(halves, topics, alpha)
        rows.append((method, n_topics, seed, passes, value, temperature))

    a_pass = corpus.train.shape[0] / BATCH_SIZE
    model = Watched(
        [round(passes * a_pass) for passes in PASSES],
        watch,
        n_components=n_topics,
        e_step="mean_field",
        solver="stochastic",
        batch_size=BATCH_SIZE,
        step_offset=1024.0,
        temperature=START,
        max_iter=PASSES[-1],
        tol=0.0,
        n_jobs=1,
        random_state=seed,
        **METHODS[method],
    )
    model.fit(corpus.train)
    return rows


def by_pass(rows, method, column):
    """Return passes, and what was found then by seed, (n_passes, n_seeds)."""
    mine = [row for row in rows if row[0] == method]
    passes = sorted({row[3] for row in mine})
    return passes, [[row[column] for row in mine if row[3] == at] for at in passes]


def summarise(rows, n_topics):
    """Print medians over seeds by pass, and gains at the end on the same seed."""
    rows = [row for row in rows if row[1] == n_topics]
    passes, _ = by_pass(rows, "SVI", 4)
    others = "SVI", "AVI, 1"
    heads = [*(f"{at:g}" for at in passes), *(f"above {name}" for name in others)]
    print(f"| K = {n_topics}, passes | seeds | " + " | ".join(heads) + " |")
    print("|---" * (len(heads) + 2) + "|")
    for method in METHODS:
        _, values = by_pass(rows, method, 4)
        if not values:
            continue
        n = len(values[-1])  # seeds are in order, and some may be to come
        cells = [f"{np.median(at):.3f}" for at in values]
        for name in others:
            gains = np.subtract(values[-1], by_pass(rows, name, 4)[1][-1][:n])
            cells.append("" if name == method else measured.told(gains, "{:+.3f}"))
        print(f"| {method} | {n} | " + " | ".join(cells) + " |")


def draw(rows, n_topics, path):
    """Held-out values and temperatures by passes, medians and ranges over seeds."""
    from matplotlib import pyplot as plt

    rows = [row for row in rows if row[1] == n_topics]
    fig, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for number, method in enumerate(METHODS):
        for ax, column in zip(axes, (4, 5), strict=True):
            passes, values = by_pass(rows, method, column)
            if not values:
                continue
            low, middle, high = (f(values, axis=1) for f in (np.min, np.median, np.max))
            ax.plot(passes, middle, color=f"C{number}", label=method)
            ax.fill_between(passes, low, high, color=f"C{number}", alpha=0.2)
    for ax, label in zip(axes, ("held-out nats a token", "temperature"), strict=True):
        ax.set(xscale="log", xlabel="passes", ylabel=label)
    axes[0].legend()
    fig.savefig(path, dpi=110)


def main():
    """Measure what is not known, print a table and draw the figure."""
    parser = measured.parser(__doc__)
    parser.add_argument("--topics", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    options = parser.parse_args()
    path = options.figures / "tempering_passes.csv"
    rows = measured.load(path, KINDS)
    corpus = corpora.load("arxiv")
    halves = evaluation.halve(corpus.test[:N_TEST])
    for seed, method in product(range(options.seeds), options.methods):
        case = method, options.topics, seed
        if any(row[:3] == case for row in rows):
            continue
        rows = sorted([*rows, *measure(corpus, halves, *case)])
        measured.save(path, COLUMNS, rows)
    summarise(rows, options.topics)
    draw(rows, options.topics, path.with_name(f"{path.stem}_{options.topics}.png"))


if __name__ == "__main__":
    main()
