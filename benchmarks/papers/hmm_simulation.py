r"""Figures 2 to 4 of Sidrow et al. (2023): hidden Markov models, the simulation study.

    python -m benchmarks.papers.hmm_simulation               # 8 experiments
    python -m benchmarks.papers.hmm_simulation --quick       # those of 1000 rows
    python -m benchmarks.papers.hmm_simulation --rows 100000 --states 6
    python -m benchmarks.papers.hmm_simulation --draw        # table and picture only

What has been measured before stays in the table unless it is measured again.

T in {1e3, 1e5} rows, N in {3, 6} states, d in {3, 6} features: means of the states from
N(0, I), variances exp(-2), states that stay with probability 0.9 (T = 1e3) or 0.999.
Starts as in section 5.2: means from N(mean, diag Q), variances diag Q, log-ratios of
the first state from N(0, 1) and of transitions from N(-2, 4). Every method has the same
starts. An epoch is T evaluations of the E step, T stochastic gradients or one full
gradient; partial E steps add one. A run ends where the norm of the gradient, over T, is
below 1e-2, or after 150 epochs. The gradient is that of the package's coordinates: the
paper's, but for means in standard deviations of the rows (here about 1).
"""

import time
import warnings
from collections import defaultdict
from functools import partial
from itertools import product

import numpy as np
from scipy.optimize import minimize
from scipy.special import softmax

from benchmarks.papers import measured
from skvrem import solvers
from skvrem.hmm import Gaussian, Homogeneous
from skvrem.hmm._input import Sequences
from skvrem.hmm._model import HMMModel, Parameters
from skvrem.hmm._plan import _make_sweeps
from skvrem.hmm.em_vrso._model import _SweptModel
from skvrem.hmm.forward_backward._source import RowBlockSource, SequenceSource
from skvrem.hmm.transitions._homogeneous import Initial
from skvrem.schedules import Constant

SMALL, MOST = 1e-2, 150
COLUMNS = "T,N,d,data,start,method,epochs,log_likelihood,norm,seconds".split(",")
TYPES = (*[int] * 5, str, *[float] * 4)


class Found(Exception):
    """The gradient is small enough, or the epochs are used up."""


def simulate(T, N, d, rng):
    """Rows of one sequence."""
    stay = 0.9 if T <= 1000 else 0.999
    means = rng.normal(size=(N, d))
    transitions = np.full((N, N), (1.0 - stay) / (N - 1))
    np.fill_diagonal(transitions, stay)
    edges, u = np.cumsum(transitions, axis=1), rng.random(T)
    states = np.empty(T, int)
    states[0] = rng.choice(N, p=rng.dirichlet(np.ones(N)))
    for t in range(1, T):
        states[t] = min(np.searchsorted(edges[states[t - 1]], u[t]), N - 1)
    return means[states] + np.exp(-1.0) * rng.normal(size=(T, d))


def draw_start(X, N, rng):
    """Starting values of section 5.2."""
    first = np.append(0.0, rng.normal(size=N - 1))
    logits = rng.normal(-2.0, 2.0, (N, N))
    np.fill_diagonal(logits, 0.0)
    means = X.mean(axis=0) + X.std(axis=0) * rng.normal(size=(N, X.shape[1]))
    packed = np.hstack([means, np.tile(X.var(axis=0), (N, 1))])
    return Parameters(softmax(first), softmax(logits, axis=1), packed)


def open_model(X, N, startprob="free"):
    emission = Gaussian().open(X, N)
    data = SequenceSource(Sequences(X, np.array([0, len(X)])), emission)
    parts = Initial(startprob, None, 1.0, N), Homogeneous().open(N)
    return HMMModel(emission, data.features, *parts, float(len(X))), data


def by_run(make, model, data, start, seed, small=SMALL, most=MOST):
    """Fit with one of the package's solvers; return its trace by epoch."""
    solver, source = make(data)

    def report(epoch, point):
        # A pass to see the gradient, which nobody pays for.
        norm = np.linalg.norm(model.gradient(point, model.mean(point, data)))
        trace.append((epoch.passes, epoch.objective, norm))
        return norm < small or epoch.passes >= most

    trace = []
    solvers.run(
        model,
        solver,
        source,
        model.start(start),
        step_size=Constant(1.0),
        temperature=Constant(1.0),
        max_iter=10 * most,
        tol=0.0,
        rng=np.random.default_rng(seed),
        report=report,
    )
    return trace


def by_scipy(method, model, data, start, seed, small=SMALL, most=MOST):
    """Maximize through the exact gradient."""
    trace, point = [], model.start(start)

    def loss(vector):
        at = point._replace(parameters=model.bind(vector, start))
        try:
            mean = model.mean(at, data)
        except FloatingPointError:
            return 1e10, np.zeros_like(vector)
        gradient, value = model.gradient(at, mean), model.objective(at, mean)
        trace.append((len(trace) + 1.0, value, np.linalg.norm(gradient)))
        if trace[-1][2] < small or len(trace) >= most:
            raise Found
        return -value, -gradient

    try:
        minimize(loss, model.free(start), jac=True, method=method)
    except Found:
        pass
    return trace


def sweeps(saga, partial_e, inner=1):
    def make(data):
        options = {"saga": saga, "partial": partial_e, "inner_iter": inner}
        make = partial(_make_sweeps, batch_size=1, **options)
        kind = "saga" if options["saga"] else "svrg"
        return solvers.Sweeps(kind, patience=2, noisy=False, make=make), data

    return partial(by_run, make)


METHODS = {
    "Baum-Welch": partial(by_run, lambda data: (solvers.Batch(), data)),
    "SQUAREM": partial(by_run, lambda data: (solvers.Squarem(), data)),
    "incremental": partial(
        by_run, lambda data: (solvers.Incremental(24, 1), RowBlockSource(data))
    ),
    "L-BFGS (ours)": partial(
        by_run, lambda data: (solvers.QuasiNewton(0.0, 100, trusted=False), data)
    ),
    "SVRG": sweeps(False, False),
    "SVRG PE": sweeps(False, True),
    "SVRG PE 10T": sweeps(False, True, 10),
    "SAGA": sweeps(True, False),
    "SAGA PE": sweeps(True, True),
    "SAGA PE 10T": sweeps(True, True, 10),
    "BFGS": partial(by_scipy, "BFGS"),
    "CG": partial(by_scipy, "CG"),
}


def run(experiments, n_data, n_starts, methods, rows):
    """Run everything; yield the rows of all runs so far after every experiment.

    Rows of an experiment that is run again go.
    """
    for T, N, d in experiments:
        rows = [row for row in rows if row[:3] != (T, N, d)]
        began = time.process_time()
        for number in range(n_data):
            rng = np.random.default_rng([T, N, d, number])
            X = simulate(T, N, d, rng)
            model, data = open_model(X, N)
            for begin in range(n_starts):
                start = draw_start(X, N, rng)
                for name in methods:
                    method = METHODS[name]
                    clock = time.process_time()
                    trace = method(model, data, start, begin)
                    epochs, value, norm = trace[-1]
                    seconds = time.process_time() - clock
                    epochs = epochs if norm < SMALL else np.inf
                    rows.append(
                        (T, N, d, number, begin, name, epochs, value, norm, seconds)
                    )
        print(f"T={T} N={N} d={d}: {time.process_time() - began:.0f} s", flush=True)
        yield rows


def summarise(rows):
    """Print median epochs by experiment; ratios to BFGS and likelihoods by length."""
    table, pairs, best = defaultdict(list), {}, defaultdict(lambda: -np.inf)
    for T, N, d, number, begin, name, epochs, value, *_ in rows:
        table[(T, N, d), name].append(epochs)
        pairs[(T, N, d, number, begin), name] = epochs, value
        best[T, N, d, number] = max(best[T, N, d, number], value)
    experiments = sorted({key[0] for key in table})
    runs = sorted({key[0] for key in pairs})
    names = list(dict.fromkeys(row[5] for row in rows))
    heads = [f"{T:.0e}, {N}, {d}" for T, N, d in experiments]
    print("\nMedian epochs to a gradient norm / T below 1e-2 (T, N, d):\n")
    print("| method | " + " | ".join(heads) + " | reached |")
    print("|---" * (len(heads) + 2) + "|")
    for name in names:
        medians = [np.median(table[key, name]) for key in experiments]
        reached = np.mean(np.isfinite([pairs[key, name][0] for key in runs]))
        cells = " | ".join("-" if np.isinf(m) else f"{m:g}" for m in medians)
        print(f"| {name} | {cells} | {reached:.0%} |")
    lengths = sorted({key[0] for key in runs})
    print("\nBy length of the series, over all runs:\n")
    heads = ("BFGS / method", "above, below BFGS", "gap")
    print(
        "| method | " + " | ".join(f"{T:g}: {h}" for T in lengths for h in heads) + " |"
    )
    print("|---" * (1 + len(heads) * len(lengths)) + "|")
    for name in names:
        cells = []
        for length in lengths:
            mine = [key for key in runs if key[0] == length]
            epochs = np.array([pairs[key, name][0] for key in mine])
            theirs = np.array([min(pairs[key, "BFGS"][0], MOST) for key in mine])
            low, middle, high = np.percentile(theirs / epochs, [25, 50, 75])
            ahead = np.array([pairs[k, name][1] - pairs[k, "BFGS"][1] for k in mine])
            gap = np.mean([best[key[:4]] - pairs[key, name][1] for key in mine])
            cells += [
                f"{middle:.1f} ({low:.1f}, {high:.1f})",
                f"{np.sum(ahead > 1e-3)}, {np.sum(ahead < -1e-3)} of {len(mine)}",
                f"{gap:.3f}",
            ]
        print(f"| {name} | " + " | ".join(cells) + " |")
    print(
        "\nRatios are medians with quartiles; a BFGS run that has not come there "
        "counts 150. Above and below: by more than a thousandth of a nat a row, where "
        "the runs ended. The gap is that of the log-likelihood a row there to the best "
        "of all methods and starts on the data set, on average."
    )


def draw(rows, path):
    """Epochs and what the likelihood lacks, as in Figure 4."""
    import matplotlib.pyplot as plt

    experiments = sorted({row[:3] for row in rows})
    wide = [e for e in experiments if e[0] == experiments[-1][0]]
    figure, axes = plt.subplots(1, len(wide), figsize=(3.4 * len(wide), 3.6))
    for axis, key in zip(np.atleast_1d(axes), wide, strict=True):
        mine = [row for row in rows if row[:3] == key]
        for i, name in enumerate(METHODS):
            own = [row for row in mine if row[5] == name]
            top = [max(r[7] for r in mine if r[3] == row[3]) for row in own]
            gap = [max(t - row[7], 1e-6) for t, row in zip(top, own, strict=True)]
            epochs = [min(row[6], MOST) for row in own]
            style = {"s": 18, "color": f"C{i % 10}", "marker": "os^v"[i // 3]}
            axis.scatter(epochs, gap, label=name, **style)
        title = f"T={key[0]:g}, N={key[1]}, d={key[2]}"
        axis.set(xscale="log", yscale="log", title=title, xlabel="epochs")
    np.atleast_1d(axes)[0].set_ylabel("best log-likelihood - own, a row")
    handles = np.atleast_1d(axes)[0].get_legend_handles_labels()
    figure.legend(*handles, ncols=6, fontsize=7, loc="lower center")
    figure.tight_layout(rect=(0, 0.12, 1, 1))
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main():
    """Run, print the table and save the picture."""
    parser = measured.parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="1000 rows only")
    parser.add_argument("--draw", action="store_true", help="what was measured before")
    parser.add_argument("--rows", type=int, nargs="+", default=[1000, 100_000])
    parser.add_argument("--states", type=int, nargs="+", default=[3, 6])
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--data", type=int, default=2, help="data sets, the paper's 5")
    parser.add_argument("--starts", type=int, default=2, help="of each, the paper's 5")
    _SweptModel.scaled = False  # the steps of the paper
    options = parser.parse_args()
    lengths = [1000] if options.quick else options.rows
    warnings.simplefilter("ignore", RuntimeWarning)
    experiments = list(product(lengths, options.states, [3, 6]))
    path = options.figures / "hmm_simulation.csv"
    sizes = options.data, options.starts
    if options.draw:
        rows = measured.load(path, TYPES)
        draw(rows, options.figures / "hmm_simulation.png")
        summarise(rows)
        return
    for rows in run(experiments, *sizes, options.methods, measured.load(path, TYPES)):
        measured.save(path, COLUMNS, rows)  # now: a long run may be cut short
        draw(rows, options.figures / "hmm_simulation.png")
        summarise(rows)


if __name__ == "__main__":
    main()
