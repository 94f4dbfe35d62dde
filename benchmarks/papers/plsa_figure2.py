"""Figure 2 of Chen, Zhu, Teh, Zhang (2018): sEM-vr for pLSA and LDA on real text.

    python -m benchmarks.papers.plsa_figure2
    python -m benchmarks.papers.plsa_figure2 --corpora ap --seeds 1 --only plsa
    python -m benchmarks.papers.plsa_figure2 --choices choices.json

Rows 1 and 2: training objective of pLSA by time with 50 and 100 topics, for batch EM,
sEM, sEM-vr and, on the first corpus, the gradient baselines SMD and RSGD. Row 3: LDA
with 10 topics, held-out perplexity by left-to-right. The corpora are those of the
folder SKVREM_DATA, which are smaller than the paper's but for NIPS.

As in the paper the priors come from a grid (here: the best document completion of batch
EM), each method's step from another (the best training objective at the end), and the
best is run from several starts. The choice takes most of the time and no clock: with
``--choices`` it is read from the file, or made and written there; the runs from several
starts are to be made on an idle machine.
"""

import argparse
import sys
import time
from itertools import product
from pathlib import Path

import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_limits

from benchmarks.harness import Unavailable, quiet
from benchmarks.papers import measured
from benchmarks.papers.gradient import GradientDescent
from benchmarks.papers.measured import FIGURES
from benchmarks.papers.online_lda import ONLINE
from benchmarks.peers import topics as peers
from benchmarks.problems import corpora, evaluation
from benchmarks.problems.curves import (
    cost,
    exact_curve,
    fit,
    seconds_an_epoch,
    try_grid,
)
from skvrem import TemperedLDA
from skvrem.text import left_to_right, perplexity

#: Epochs E and minibatches M: the paper's for NIPS, and for its larger corpora.
SETTINGS = {"arxiv": (5, 500)}
USUAL = (20, 50)
TOTAL_ALPHAS, BETAS = (0.1, 1.0, 10.0, 100.0), (0.01, 0.1, 1.0)
RATES = (0.01, 0.02, 0.05, 0.1, 0.2)
# The paper's a goes from 1e-7 to 1. Below 0.01 the steps of a whole run of sEM add up
# to less than 0.6; 10 is added, as it may be better.
SEM = [
    {"step_size": a, "step_offset": t0, "step_decay": kappa}
    for a, t0, kappa in product((0.01, 0.1, 1, 10), (10, 100, 1000), (0.5, 0.75, 1))
]
# Of the paper's grid those whose first step is of a useful size: with smaller ones
# nothing moves in 20 epochs on NIPS, with larger ones the fit diverges. The first steps
# of a small t0 are the largest, and those diverge first.
USEFUL = {"SMD": (1e-7, 1e-5), "RSGD": (1e-4, 1e-2)}
GRADIENT = {
    method: [
        {"step_size": a, "step_offset": 1000, "step_decay": kappa}
        for a, kappa in product(10.0 ** np.arange(-7, 1), (0.5, 1))
        if low <= 1.001 * a / 1000**kappa and a / 1000**kappa <= 1.001 * high
    ]
    for method, (low, high) in USEFUL.items()
}
GRADIENTS = {
    f"{method}{'-vr' * reduced}": {
        "method": method.lower(),
        "variance_reduction": bool(reduced),
    }
    for method, reduced in product(("SMD", "RSGD"), (0, 1))
}
#: Of GOEM and SSVI: what their authors use, and what is near it.
ONLINE_STEPS = [
    {"step_size": 1.0, "step_offset": t0, "step_decay": kappa}
    for t0, kappa in product((0, 10, 100), (0.5, 0.75))
]
#: Documents and tokens of each that left-to-right sees, and its particles.
FEW_DOCUMENTS, FEW_TOKENS, PARTICLES = 100, 200, 10
#: Epochs of batch EM that are written down.
SOME = set(np.unique(np.round(1.1 ** np.arange(80)).astype(int)).tolist())
COLUMNS = ("model", "corpus", "n_topics", "method", "steps", "seed")
COLUMNS += ("epochs", "passes", "seconds", "value")
TYPES = (str, str, int, str, str, int, int, float, float, float)


def marks(n_epochs):
    """Return epochs at which a curve is looked at."""
    return sorted({m for m in (1, 2, 3, 4, 5, 7, 10, 14) if m < n_epochs} | {n_epochs})


def steps_name(parameters):
    """Return the steps as the paper writes them."""
    if "step_offset" not in parameters:
        return f"ρ={parameters['step_size']}"
    a, t0, kappa = (parameters[f"step_{name}"] for name in ("size", "offset", "decay"))
    return f"{a:g}/(t+{t0:g})^{kappa:g}"


class Problem:
    """A corpus with the paper's numbers of epochs and minibatches."""

    def __init__(self, key, n_topics, quick):
        self.key, self.n_topics = key, n_topics
        self.corpus = corpora.load(key, 500 if quick else None)
        self.X = self.corpus.train
        self.n_epochs, self.n_batches = SETTINGS.get(key, USUAL)
        if quick:
            self.n_epochs, self.n_batches = 5, 10
        self.priors = {}

    def set_priors(self, total_alpha, beta):
        self.alpha, self.beta = total_alpha / self.n_topics, beta
        self.priors = {"doc_topic_smoothing": self.alpha, "topic_word_smoothing": beta}

    def fit(self, n_iter, **parameters):
        return fit(self.X, self.n_topics, n_iter, **self.priors, **parameters)

    def methods(self, choice):
        """Parameters of each of our methods with the chosen steps."""
        batch_size = -(-self.X.shape[0] // self.n_batches)
        return {
            "bEM": {"solver": "batch"},
            "sEM": {
                "solver": "stochastic",
                "batch_size": batch_size,
                **choice.get("sEM", {}),
            },
            "sEM-vr": {
                "solver": "svrg",
                "batch_size": batch_size,
                **choice.get("sEM-vr", {}),
            },
        }

    def start(self, seed):
        rng = np.random.default_rng(seed)
        components = rng.gamma(1.0, size=(self.n_topics, self.X.shape[1]))
        components /= components.sum(axis=1, keepdims=True)
        theta = np.full((self.X.shape[0], self.n_topics), 1.0 / self.n_topics)
        return theta, components

    def descend(self, name, steps, looks, seed=0):
        """Yield epochs, seconds and objective of a gradient baseline."""
        run = GradientDescent(
            self.X,
            *self.start(seed),
            self.alpha,
            self.beta,
            n_batches=self.n_batches,
            seed=seed,
            **GRADIENTS[name],
            **steps,
        )
        seconds = 0.0
        for epoch in range(1, max(looks) + 1):
            began = time.process_time()
            run.epoch()
            seconds += time.process_time() - began
            if epoch in looks:
                value = evaluation.map_objective(
                    self.X, run.theta, run.components, self.alpha, self.beta
                )
                yield epoch, seconds, value

    def online(self, name, steps, looks, seed=0):
        """Yield epochs, seconds and topics of GOEM or SSVI."""
        run = ONLINE[name](
            self.X, self.n_topics, self.alpha, self.beta, self.n_batches, seed, **steps
        )
        seconds = 0.0
        for epoch in range(1, max(looks) + 1):
            began = time.process_time()
            run.epoch()
            seconds += time.process_time() - began
            if epoch in looks:
                yield epoch, seconds, run.topics

    def collapsed(self, n_iter, seed):
        """Return seconds and topics of the package's collapsed E step."""
        model = TemperedLDA(
            self.n_topics,
            e_step="collapsed",
            doc_topic_prior=self.alpha,
            topic_word_prior=self.beta,
            max_iter=n_iter,
            tol=0.0,
            n_jobs=1,
            random_state=seed,
        )
        began = time.process_time()
        with quiet(), threadpool_limits(1):
            model.fit(self.X)
        seconds = time.process_time() - began
        topics = model.components_
        return seconds, topics / topics.sum(axis=1, keepdims=True)


def choose_priors(problem):
    """Return the total alpha and beta of the best document completion of batch EM."""
    halves = evaluation.halve(problem.corpus.test)
    values = {}
    for total_alpha, beta in product(TOTAL_ALPHAS, BETAS):
        problem.set_priors(total_alpha, beta)
        topics = problem.fit(40, solver="batch").components_
        values[total_alpha, beta] = evaluation.complete(halves, topics, problem.alpha)
    return max(values, key=values.get)


def choose_steps(problem, name):
    """Return the steps of the best training objective at the end, and the grid's.

    Those of a grid that are not among the best after a quarter of the epochs stop.
    """

    def ours(steps, n_iter):
        parameters = problem.methods({name: steps})[name]
        return problem.fit(n_iter, **parameters).objective_

    def gradient(steps, n_iter):
        *_, (_, _, objective) = problem.descend(name, steps, [n_iter])
        return objective

    def online(steps, n_iter):
        *_, (_, _, topics) = problem.online(name, steps, [n_iter])
        halves = evaluation.halve(problem.corpus.test)
        return evaluation.complete(halves, topics, problem.alpha)

    grid = {"sEM": SEM, "sEM-vr": [{"step_size": rate} for rate in RATES]}
    if name in ONLINE:
        grid, value, survivors = ONLINE_STEPS, online, 2
    elif name in GRADIENTS:
        grid, value, survivors = GRADIENT[name.removesuffix("-vr")], gradient, 2
    else:
        grid, value, survivors = grid[name], ours, 5
    found = try_grid(grid, value, problem.n_epochs, survivors)
    table = [{steps_name(grid[i]): v for i, v in part.items()} for part in found]
    return grid[max(found[1], key=found[1].get)], table


def choose(problem, path, further=(), smaller=None):
    """Return priors and steps, from the file or by the grids.

    More topics take the priors and steps of fewer. What is chosen goes to the file at
    once, so that a run cut short goes on where it was.
    """
    key = f"{problem.key} {problem.n_topics}"
    known = measured.Known(path)
    if key not in known:
        priors = smaller["priors"] if smaller else choose_priors(problem)
        steps = dict(smaller["steps"]) if smaller else {}
        known[key] = {"priors": priors, "steps": steps, "grid": {}}
        known.keep()
    choice = known[key]
    problem.set_priors(*choice["priors"])
    for name in ("sEM", "sEM-vr", *further):
        if name not in choice["steps"]:
            choice["steps"][name], choice["grid"][name] = choose_steps(problem, name)
            known.keep()
    return choice


def plsa_rows(problem, choice, n_seeds):
    """Yield rows of the training objective."""
    common = ("plsa", problem.key, problem.n_topics)
    for seed in range(n_seeds):
        methods = problem.methods(choice["steps"])
        # Batch EM has as much time as sEM-vr.
        epochs = {name: marks(problem.n_epochs) for name in methods}
        span = problem.n_epochs * seconds_an_epoch(problem.fit(5, **methods["sEM-vr"]))
        a_pass = seconds_an_epoch(problem.fit(5, **methods["bEM"]))
        epochs["bEM"] = [max(problem.n_epochs, int(span / a_pass))]
        for name, parameters in methods.items():
            curve = exact_curve(
                problem.X,
                problem.n_topics,
                epochs[name],
                seed=seed,
                **problem.priors,
                **parameters,
            )
            steps = choice["steps"].get(name)
            label = steps_name(steps) if steps else ""
            # Batch EM and sEM-vr tell what the epochs before have reached.
            where = epochs[name] if name == "sEM" else range(len(curve.passes))
            for n, passes, seconds, value in zip(
                where, curve.passes, curve.seconds, curve.objective, strict=True
            ):
                if name == "bEM" and n not in SOME:
                    continue
                yield (*common, name, label, seed, n, passes, seconds, value)
        for name in GRADIENTS:
            steps = choice["steps"].get(name)
            if steps is None:
                continue
            looks = marks(problem.n_epochs)
            for epoch, seconds, value in problem.descend(name, steps, looks, seed):
                passes = epoch * (2 if name.endswith("vr") else 1)
                label = steps_name(steps)
                yield (*common, name, label, seed, epoch, passes, seconds, value)


def few_tokens(X, seed=0):
    """Return some documents, of longer ones a random sample of their tokens.

    Left-to-right takes the square of a document's length; of exchangeable tokens a
    sample is a document as well.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for d in rng.permutation(X.shape[0])[:FEW_DOCUMENTS]:
        counts = X[d].toarray().ravel().astype(np.int64)
        n = min(FEW_TOKENS, int(counts.sum()))
        rows.append(sparse.csr_matrix(rng.multivariate_hypergeometric(counts, n)))
    return sparse.vstack(rows, format="csr")


def lda_rows(problem, choice, n_seeds):
    """Yield rows of held-out perplexity by left-to-right."""
    X_test = few_tokens(problem.corpus.test)
    prior = problem.alpha
    common = ("lda", problem.key, problem.n_topics)

    def value(topics, prior):
        scores = left_to_right(
            topics, X_test, doc_topic_prior=prior, n_particles=PARTICLES
        )
        return perplexity(scores, X_test)

    for seed in range(n_seeds):
        for name, parameters in problem.methods(choice["steps"]).items():
            steps = choice["steps"].get(name)
            label = steps_name(steps) if steps else ""
            looks = marks(problem.n_epochs)
            if name == "bEM":
                looks = [2 * n for n in looks]
            for n in looks:
                model = problem.fit(n, seed=seed, **parameters)
                seconds, passes = cost(model)
                score = value(model.components_, prior)
                yield (*common, name, label, seed, n, passes, seconds, score)
        for name in ONLINE:
            for n, seconds, topics in problem.online(
                name, choice["steps"][name], marks(problem.n_epochs), seed
            ):
                label, score = steps_name(choice["steps"][name]), value(topics, prior)
                yield (*common, name, label, seed, n, n, seconds, score)
        for n in marks(problem.n_epochs):
            seconds, topics = problem.collapsed(n, seed)
            yield (*common, COLLAPSED, "", seed, n, n, seconds, value(topics, prior))
        curve = peers.online_lda_curve(
            problem.corpus, problem.n_topics, problem.n_epochs, seed
        )
        for n, (seconds, topics) in enumerate(curve, start=1):
            if n in marks(problem.n_epochs):
                score = value(
                    topics / topics.sum(axis=1, keepdims=True), 1.0 / problem.n_topics
                )
                yield (*common, "SVI", "scikit-learn", seed, n, n, seconds, score)


COLLAPSED = "TemperedLDA"
STYLES = {
    "bEM": "0.35",
    "sEM": "C5",
    "sEM-vr": "C1",
    "SMD": "C0",
    "SMD-vr": "C9",
    "RSGD": "C2",
    "RSGD-vr": "C8",
    "SVI": "C4",
    "GOEM": "C3",
    "SSVI": "C6",
    COLLAPSED: "k",
}


def curves_of(rows):
    """Return seconds, values by start, and epochs of each curve."""
    groups = {}
    for row in rows:
        row = dict(zip(COLUMNS, row, strict=True))
        key = tuple(row[name] for name in COLUMNS[:4])
        groups.setdefault(key, {}).setdefault(row["epochs"], []).append(row)
    curves = {}
    for key, epochs in groups.items():
        seconds, values = [], []
        for same in epochs.values():
            seconds.append(np.mean([row["seconds"] for row in same]))
            values.append([row["value"] for row in same])
        # Batch EM may have made more epochs from one start than from another.
        full = [i for i, part in enumerate(values) if len(part) == len(values[0])]
        curves[key] = (
            np.array(seconds)[full],
            np.array([values[i] for i in full]).T,
            np.array(list(epochs))[full],
        )
    return curves


def print_tables(curves):
    """Print what was reached: by share of the time that sEM-vr took."""
    cases = sorted({key[:3] for key in curves}, key=str)
    for case in cases:
        mine = {key[3]: value for key, value in curves.items() if key[:3] == case}
        end = mine["sEM-vr"][0][-1]
        model, corpus, n_topics = case
        what = "objective, nats a token" if model == "plsa" else "held-out perplexity"
        shares = (0.1, 0.25, 0.5, 1.0)
        print(f"\n{corpora.CORPORA[corpus][1]}, {model}, K={n_topics}: {what}\n")
        head = " | ".join(f"{share * end:.2f} s" for share in shares)
        print(f"| method | {head} | its end | seconds |")
        print("|---" * (len(shares) + 3) + "|")
        for name, (seconds, values, _) in mine.items():
            mean = values.mean(axis=0)
            cells = []
            for share in shares:
                i = np.searchsorted(seconds, share * end * 1.0001, side="right") - 1
                cells.append(f"{mean[i]:.4g}" if i >= 0 else "")
                if model == "plsa" and i >= 0:
                    cells[-1] = f"{mean[i]:.4f}"
            last = f"{mean[-1]:.4f}" if model == "plsa" else f"{mean[-1]:.1f}"
            spread = f"{values[:, -1].std():.1g}"
            cells += [f"{last} ± {spread}", f"{seconds[-1]:.2f}"]
            print(f"| {name} | " + " | ".join(cells) + " |")


def draw_picture(curves, path):
    """Save the rows of Figure 2."""
    from matplotlib import pyplot as plt

    rows = sorted(
        {(key[0], key[2]) for key in curves}, key=lambda r: (r[0] == "lda", r)
    )
    columns = [key for key in corpora.CORPORA if any(key == c[1] for c in curves)]
    figure, axes = plt.subplots(
        len(rows),
        len(columns),
        figsize=(3.4 * len(columns), 2.8 * len(rows)),
        layout="constrained",
        squeeze=False,
    )
    for i, (model, n_topics) in enumerate(rows):
        for j, corpus in enumerate(columns):
            axis = axes[i, j]
            ends = []
            for name, color in STYLES.items():
                curve = curves.get((model, corpus, n_topics, name))
                if curve is None:
                    continue
                seconds, values, _ = curve
                mean = values.mean(axis=0)
                style = {"color": color, "lw": 2.5 if name == "sEM-vr" else 1.5}
                axis.plot(seconds, mean, label=name, **style)
                if name in ("bEM", "sEM", "sEM-vr"):
                    ends.append(mean)
            if not ends:  # not measured
                axis.set_visible(False)
                continue
            axis.set_xscale("log")
            best = max(e.max() for e in ends) if model == "plsa" else None
            if best is not None:  # the start is far below
                worst = min(np.interp(0.3, np.linspace(0, 1, len(e)), e) for e in ends)
                axis.set_ylim(
                    worst - 0.3 * (best - worst), best + 0.05 * (best - worst)
                )
            axis.set_title(f"{corpora.CORPORA[corpus][1]}, K={n_topics}", fontsize=10)
            axis.grid(alpha=0.3)
            axis.set_xlabel("CPU seconds")
            if j == 0:
                axis.set_ylabel(
                    "objective a token" if best is not None else "perplexity"
                )
    shown = {
        label: line
        for axis in axes.flat
        for line, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(shown.values(), shown, loc="outside lower center", ncols=5)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main():
    """Choose, run, print the tables, save the picture and the numbers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpora", nargs="+", default=list(corpora.CORPORA))
    parser.add_argument("--topics", nargs="+", type=int, default=[50, 100])
    parser.add_argument("--lda-topics", nargs="+", type=int, default=[10])
    parser.add_argument("--only", choices=("plsa", "lda"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="500 documents, 5 epochs")
    parser.add_argument("--choices", type=Path, metavar="FILE")
    parser.add_argument("--choose", action="store_true", help="only fill that file")
    parser.add_argument("--csv", type=Path, default=FIGURES / "plsa_figure2.csv")
    parser.add_argument("--figure", type=Path, default=FIGURES / "plsa_figure2.png")
    parser.add_argument("--draw", action="store_true", help="from the file of --csv")
    options = parser.parse_args()
    # What was measured before stays unless it is again.
    rows = measured.load(options.csv, TYPES)
    jobs = []
    if not options.draw:
        tasks = [("plsa", n) for n in options.topics]
        tasks += [("lda", n) for n in options.lda_topics]
        jobs = [
            (model, key, n_topics)
            for key in options.corpora
            for model, n_topics in tasks
            if options.only in (None, model)
        ]
    known = {}
    for model, key, n_topics in jobs:
        try:
            problem = Problem(key, n_topics, options.quick)
        except Unavailable as error:
            print(f"left out: {error}", file=sys.stderr)
            continue
        further = GRADIENTS if (model, key) == ("plsa", "nips") else ()
        further = ONLINE if model == "lda" else further
        choice = choose(problem, options.choices, further, known.get((model, key)))
        known.setdefault((model, key), choice)
        told = {name: steps_name(steps) for name, steps in choice["steps"].items()}
        print(key, n_topics, "priors", choice["priors"], told, file=sys.stderr)
        if options.choose:
            continue
        make = plsa_rows if model == "plsa" else lda_rows
        new = list(make(problem, choice, options.seeds))
        rows = [row for row in rows if row[:3] != (model, key, n_topics)] + new
        measured.save(options.csv, COLUMNS, rows)
    if rows:
        curves = curves_of(rows)
        print_tables(curves)
        draw_picture(curves, options.figure)


if __name__ == "__main__":
    main()
