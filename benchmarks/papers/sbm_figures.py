"""Figures 1-3 of Choromanska and Jebara (2013), measured again.

    SKVREM_DATA=... python -m benchmarks.papers.sbm_figures

Prints tables and saves pictures; with ``--results FILE`` sets measured before, which
the file keeps, are drawn too (SecStr takes 15 minutes, all others 10). Real data comes
from the folder SKVREM_DATA names. CPU seconds are of one thread, compilation and the
search for steps left out, fits from the first row to their end.
Nine tenths of the rows train, the rest test; all methods have the penalised objective
of the paper, the intercept penalised too, at the paper's lambda.
"""

import argparse
import warnings
from functools import partial
from pathlib import Path

import numba
import numpy as np
import scipy.sparse as sp
from scipy.special import log_softmax
from sklearn.linear_model import LogisticRegression

from benchmarks.harness import Unavailable, timed
from benchmarks.harness.data import read
from benchmarks.papers import measured
from skvrem import SBMLogisticRegression

HERE = Path(__file__).parent

PASSES = (1, 2, 5, 10)
# By CPU seconds, as the paper has curvature of low rank: where passes are cheap.
MORE_PASSES = (*PASSES, 20, 50, 100)
# The paper's grids: step sizes by decades, minibatches, and tau where the step decays.
STEPS = [10.0**e for e in range(-8, 1)]
BATCHES = (1, 10)
TAUS = (1.0, 1e2, 1e4)
TUNING_ROWS = 5000


def crossed(seed=0, n=2000):
    """Figure 1: two classes, each of two clusters across from each other."""
    rng = np.random.default_rng(seed)
    cluster = rng.integers(4, size=n)
    centre = 3.0 * np.array([[1, 1], [-1, -1], [1, -1], [-1, 1]])[cluster]
    y = (cluster >= 2).astype(int)
    keep = (y == 0) | (rng.uniform(size=n) < 0.6)  # else theta = 0 is the optimum
    return (centre + rng.normal(size=(n, 2)))[keep], y[keep]


def ecoli():
    z = read("ecoli")
    _, y = np.unique(z["y"], return_inverse=True)
    return z["X"].astype(float), y


def secstr():
    z = read("ssl_secstr")
    n, d = z["X"].shape
    X = np.zeros((n, 21 * d))
    X[np.arange(n)[:, None], z["X"] + 21 * np.arange(d)] = 1.0
    return X, z["y"].astype(int)


def mnist():
    z = read("mnist")
    X = z["X_train"][:10_000].reshape(-1, 784) / 255.0
    return X[:, X.any(axis=0)], z["y_train"][:10_000].astype(int)


def ssl(name):
    z = read(name)
    if "indptr" in z:
        parts = (z["data"].astype(float), z["indices"], z["indptr"])
        X = sp.csr_matrix(parts, shape=tuple(z["shape"])).toarray()
    else:
        X = z["X"].astype(float)
    return X, (z["y"].ravel() > 0).astype(int)


def madelon():
    z = read("madelon")
    X = z["X"].astype(float)
    return (X - X.mean(axis=0)) / X.std(axis=0), z["y"].ravel().astype(int)


# Name: rows and classes, lambda, rank (None: full, as the paper has it).
SETS = {
    "Figure 1": (crossed, 10.0, None),
    "ecoli": (ecoli, 1.0, None),
    "SecStr": (secstr, 10.0, None),
    "MNIST 10k": (mnist, 0.01, None),
    "digit1": (lambda: ssl("ssl_digit1"), 10.0, 1),
    "Text": (lambda: ssl("ssl_text"), 10.0, 1),
    "madelon (for gisette)": (madelon, 1.0, 1),
}


@numba.njit(cache=True, fastmath=True)  # sums of products by vector instructions
def sgd_pass(X, y, W, order, m, eta0, tau, count, penalty):
    """One pass of SGD on minibatches of m; W (k, p), the last column the intercept.

    tau 0 is a constant step, below 0 the step eta0 / i, above 0 eta0 tau / (tau + i).
    """
    k, p = W.shape
    z, gradient = np.zeros(k), np.zeros((k, p))
    for start in range(0, order.size, m):
        count += 1
        eta = eta0
        if tau > 0.0:
            eta = eta0 * tau / (tau + count)
        elif tau < 0.0:
            eta = eta0 / count
        stop = min(start + m, order.size)
        gradient[:] = (stop - start) * penalty * W
        for at in range(start, stop):
            i = order[at]
            top = -np.inf
            for c in range(k):
                z[c] = W[c, p - 1]
                for j in range(p - 1):
                    z[c] += W[c, j] * X[i, j]
                top = max(top, z[c])
            total = 0.0
            for c in range(k):
                z[c] = np.exp(z[c] - top)
                total += z[c]
            for c in range(k):
                r = z[c] / total - (1.0 if y[i] == c else 0.0)
                for j in range(p - 1):
                    gradient[c, j] += r * X[i, j]
                gradient[c, p - 1] += r
        W -= eta * gradient
    return count


class Problem:
    """Rows split in two, and what a parameter matrix is worth on them."""

    def __init__(self, X, y, penalty):
        order = np.random.default_rng(0).permutation(len(y))
        cut = len(y) * 9 // 10
        self.X, self.y = np.ascontiguousarray(X[order[:cut]]), y[order[:cut]]
        self.X_test, self.y_test = X[order[cut:]], y[order[cut:]]
        self.penalty, self.k = penalty, len(np.unique(y))

    def value(self, W):
        """Penalised loss, softmax over all classes (two included)."""
        Z = self.X @ W[:, :-1].T + W[:, -1]
        loss = -log_softmax(Z, axis=1)[np.arange(len(self.y)), self.y].sum()
        return loss + 0.5 * self.penalty * np.square(W).sum()

    def error(self, W):
        Z = self.X_test @ W[:, :-1].T + W[:, -1]
        return float(np.mean(Z.argmax(axis=1) != self.y_test))

    def ours(self, **params):
        """A fit; for two classes |w|^2 / 4 is the softmax's |W|^2 / 2 at W = -+w/2."""
        C = (2.0 if self.k == 2 else 1.0) / self.penalty
        model = SBMLogisticRegression(
            C=C, penalize_intercept=True, random_state=0, n_jobs=1, **params
        )
        return self.matrix(model.fit(self.X, self.y))

    def matrix(self, model):
        W = np.column_stack([model.coef_, model.intercept_])
        return np.vstack([-0.5 * W, 0.5 * W]) if len(W) == 1 else W

    def sgd(self, m, eta0, tau, passes, rows=None):
        """Return matrices after passes, and CPU seconds until then."""
        W = np.zeros((self.k, self.X.shape[1] + 1))
        rng, count, out, total = np.random.default_rng(0), 0, [], 0.0
        penalty = self.penalty / len(self.y)

        def step():
            order = rng.permutation(len(self.y))[:rows]
            return sgd_pass(self.X, self.y, W, order, m, eta0, tau, count, penalty)

        for number in range(1, max(passes) + 1):
            seconds, count = timed(step)
            total += seconds
            if number in passes:
                out.append((total, W.copy()))
        return out


def tuned(problem, taus, passes):
    """The course of the setting that has the least loss after two passes over few."""
    best = np.inf, None
    for eta0 in STEPS:
        for m in BATCHES:
            for tau in taus:
                ((_, W),) = problem.sgd(m, eta0, tau, (2,), TUNING_ROWS)
                value = problem.value(W)
                if value < best[0]:
                    best = value, (m, eta0, tau)
    m, eta0, tau = best[1]
    return problem.sgd(m, eta0, tau, passes), f"eta0={eta0:g} m={m} tau={tau:g}"


def measure(name):
    make, penalty, rank = SETS[name]
    problem = Problem(*make(), penalty)
    seconds, optimum = timed(lambda: problem.ours(tol=1e-13, max_iter=3000))
    best = problem.value(optimum)
    small = len(problem.y) * problem.X.shape[1] < 1e5
    passes = PASSES if rank is None else MORE_PASSES
    courses = {
        "SBM, corrected": {"solver": "stochastic", "curvature_rank": rank},
        "SBM, all gradients kept (paper)": {
            "solver": "stochastic",
            "gradient_memory": 1.0,
            "step_size": 1.0,
            "curvature_rank": rank,
            "batch_size": 1 if small else 10,
        },
        "BBM": {"solver": "batch", "curvature": "bound"},
        "sample, then L-BFGS (auto)": {},
    }
    rows = []

    def add(method, course, note=""):
        seconds, matrices = zip(*course, strict=True)
        gaps = [problem.value(W) / best - 1.0 for W in matrices]
        errors = [problem.error(W) for W in matrices]
        rows.append((name, method, gaps, errors, note, seconds))
        cells = " ".join(f"{gap:8.1e}" for gap in gaps)
        shown = " ".join(f"{100 * e:5.2f}" for e in errors)
        took = " ".join(f"{s:.2g}" for s in seconds)
        print(
            f"{name:22} {method:32} gap {cells}  error % {shown}  CPU s {took}  {note}"
        )

    add("optimum", [(seconds, optimum)])
    for method, params in courses.items():
        if params.get("batch_size") == 10 and problem.X.shape[1] > 500:
            continue  # hours: a matrix is factored every ten rows
        fits = [partial(problem.ours, max_iter=e, tol=0.0, **params) for e in passes]
        fits[0]()  # compiles
        add(method, [timed(fit) for fit in fits])
    twin = []
    for e in passes:
        model = LogisticRegression(
            C=(2.0 if problem.k == 2 else 1.0) / penalty, max_iter=e, tol=0.0
        )
        seconds, model = timed(lambda model=model: model.fit(problem.X, problem.y))
        twin.append((seconds, problem.matrix(model)))
    add("LBFGS (intercept free)", twin)
    for method, taus in (("SGD", (0.0,)), ("ASGD", (-1.0, *TAUS))):
        course, setting = tuned(problem, taus, passes)
        add(method, course, setting)
    return rows


def draw(rows, path, seconds=False):
    """Draw relative gaps by passes, or by CPU seconds where curvature has low rank."""
    from matplotlib import pyplot as plt

    rows = [row for row in rows if not seconds or SETS[row[0]][2] is not None]
    names = list(dict.fromkeys(row[0] for row in rows))
    methods = list(dict.fromkeys(row[1] for row in rows if row[1] != "optimum"))
    colour = {method: f"C{i}" for i, method in enumerate(methods)}
    shape = (1, 4) if seconds else (2, 4)
    size = (14, 3 * shape[0])
    figure, axes = plt.subplots(*shape, figsize=size, layout="constrained")
    for ax, name in zip(axes.flat, names, strict=False):
        for _, method, gaps, _, _, took in (row for row in rows if row[0] == name):
            if method != "optimum":
                ax.loglog(
                    took if seconds else MORE_PASSES[: len(gaps)],
                    np.maximum(gaps, 1e-12),
                    marker=".",
                    color=colour[method],
                    label=method,
                )
        xlabel = "CPU seconds" if seconds else "passes or epochs"
        ax.set(title=name, xlabel=xlabel, ylabel="relative gap")
    for ax in axes.flat[len(names) :]:
        ax.set_axis_off()
    handles, labels = axes.flat[0].get_legend_handles_labels()
    axes.flat[-1].legend(handles, labels, loc="center")
    figure.savefig(path, dpi=90)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="*", choices=SETS, default=list(SETS))
    parser.add_argument("--results", type=Path, help="a JSON file to keep them in")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    found = measured.Known(options.results)
    for name in options.sets:
        try:
            found[name] = measure(name)
        except Unavailable as error:
            print(f"{name}: left out, {error}")
        found.keep()
    rows = [row for name in SETS for row in found.get(name, [])]
    (HERE / "figures").mkdir(exist_ok=True)
    draw(rows, HERE / "figures" / "sbm_figures.png")
    if any(SETS[row[0]][2] is not None for row in rows):
        draw(rows, HERE / "figures" / "sbm_seconds.png", seconds=True)


if __name__ == "__main__":
    main()
