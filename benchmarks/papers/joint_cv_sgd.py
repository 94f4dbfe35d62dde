"""Figures 6 and 7 of Wang, Geffner and Domke (2024): SGD and Adam, by iterations.

    python -m benchmarks.papers.joint_cv_sgd                  # tennis, MNIST, PPCA
    python -m benchmarks.papers.joint_cv_sgd --tasks tennis --seeds 5

The tasks, estimators and starts of `joint_cv_large.py`, of MNIST 5,000 rows; plain SGD
and Adam, each at the best of its steps: the three of a grid that are best after a fifth
of the iterations, from one start, and the best of these over the starts. SMISO is
measured on MNIST alone, from one start: its table has the parameters of every row,
which for tennis and PPCA are billions of numbers. Joint is naive for one epoch and, on
PPCA with SGD, for three, as in the paper. By iterations, so that a busy machine does
not matter.
"""

import argparse
import warnings
from copy import copy

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from benchmarks.papers.joint_cv import TASKS, Dense, LinearTask
from benchmarks.papers.joint_cv_large import BATCH, Run, Standard
from benchmarks.papers.measured import told
from benchmarks.problems.posteriors import load
from skvrem import BayesianLogisticRegression
from skvrem.vi.gaussian._model_families import Softmax


def few_rows(name, most=5000):
    """Return a softmax regression of some rows of MNIST at their own posterior."""
    X, y = (part[:most] for part in load(name))
    model = BayesianLogisticRegression(
        1.0, posterior="meanfield", fit_intercept=False, max_iter=100
    ).fit(X, y)
    moments = model.coef_.T, model.coef_std_.T
    task = LinearTask(Dense(X), Softmax(10, most), y.astype(np.int32), *moments)
    return task, model


OPENERS = TASKS | {"mnist": few_rows}
#: Iterations, and starts.
SIZES = {"tennis": (6000, 5), "mnist": (3000, 3), "ppca": (1800, 1)}
STEPS = {
    "Adam": (0.2, 0.1, 0.05, 0.02, 0.01, 0.005),
    "SGD": tuple(10.0 ** np.arange(-7.0, -1.9, 0.5)),
}
#: Of SMISO, which takes longer: near the best of SGD, from one start.
FEW_STEPS = (3e-5, 1e-4, 3e-4)
ALPHA = 0.9
#: Steps of a grid that go on after a fifth of the iterations.
SURVIVORS = 3
LOOKS = (0.1, 0.3, 1.0)


class Plain(Run):
    """SGD without momentum."""

    def step(self):
        """Go one step."""
        self.w += self.size * self.gradient()
        self._place()


class Smiso(Run):
    """SMISO (appendix A): a table (n, parameters) of points, whose mean is w."""

    def __init__(self, task, prior, kind, size, rng):
        super().__init__(task, prior, "naive", size, rng)
        self.table = np.tile(self.w.astype(np.float32), (task.n, 1))
        self.gamma = size * task.n / (ALPHA * BATCH)

    def step(self):
        """Go one step."""
        task = self.task
        if not self.left:
            order, end = self.rng.permutation(task.n), task.n - task.n % BATCH
            self.left = list(order[:end].reshape(-1, BATCH))
        rows = self.left.pop()
        noise = task.scale * self.rng.standard_normal(self.shape)
        X = task.design.X[rows]
        r = task.family.residual(X @ (task.mean + noise), task.y[rows])
        each = task.n * X[:, :, None] * r[:, None, :]
        by_mean, by_scale, _ = self.prior.gradient(task.mean, task.scale, self.own)
        parts = each + by_mean, each * noise + by_scale
        g = np.concatenate([part.reshape(BATCH, -1) for part in parts], axis=1)
        change = ALPHA * (self.w + self.gamma * g - self.table[rows])
        self.table[rows] += change
        self.w += change.sum(axis=0) / task.n
        self.n_steps += 1
        self._place()


def make(task, prior, optimizer, kind, size, seed):
    """Return a run."""
    how = {"Adam": Run, "SGD": Smiso if kind == "SMISO" else Plain}[optimizer]
    run = how(copy(task), prior, kind, size, np.random.default_rng(seed))
    if optimizer == "SGD" and not hasattr(task, "design"):
        run.naive_epochs = 3
    return run


def trace(run, looks):
    """Return bounds after so many iterations; minus infinity once a run is lost."""
    bounds = []
    for at in looks:
        while run.n_steps < at and (not bounds or np.isfinite(bounds[-1])):
            run.step()
            if run.n_steps % 100 == 0 and not np.abs(run.w).max() < 1e4:
                break
        lost = not np.abs(run.w).max() < 1e4
        bounds.append(-np.inf if lost else run.bound())
    return bounds


def measure(name, n_steps, n_seeds, wanted=None):
    """Print gaps of each optimizer and estimator."""
    task, _ = OPENERS[name](name)
    prior = Standard()
    best = task.log_likelihood() + prior.bound(task.mean, task.scale, None)
    print(f"\n{name}: {task.n} rows, bound {best:.1f}, {n_seeds} starts\n")
    heads = [f"gap after {int(share * n_steps)}" for share in LOOKS]
    print("| | " + " | ".join(heads) + " | step, of the grid |")
    print("|---" * (len(heads) + 2) + "|")
    for optimizer, sizes in STEPS.items():
        kinds = ["naive", "cv", "joint"]
        if optimizer == "SGD" and name == "mnist":
            kinds.append("SMISO")
        kinds = [kind for kind in kinds if wanted is None or kind in wanted]
        for kind in kinds:
            if kind == "SMISO":
                sizes, n_seeds = FEW_STEPS, 1
            few = {
                size: trace(
                    make(task, prior, optimizer, kind, size, 0), [n_steps // 5]
                )[0]
                for size in sizes
            }
            found = {}
            for size in sorted(few, key=few.get)[-SURVIVORS:]:
                found[size] = [
                    trace(
                        make(task, prior, optimizer, kind, size, seed),
                        [int(share * n_steps) for share in LOOKS],
                    )
                    for seed in range(n_seeds)
                ]
            size = max(found, key=lambda s: np.median([run[-1] for run in found[s]]))
            gaps = best - np.array(found[size]).T
            cells = [told(gap, "{:.4g}") for gap in gaps]
            print(f"| {kind}, {optimizer} | " + " | ".join(cells) + f" | {size:.1g} |",
                  flush=True)  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tasks", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--kinds", nargs="+", help="estimators, all but for a trial")
    parser.add_argument("--share", type=float, default=1.0, help="of the iterations")
    parser.add_argument("--seeds", type=int, help="starts (5, 3 and 1)")
    options = parser.parse_args()
    for name in options.tasks:
        n_steps, n_seeds = SIZES[name]
        with warnings.catch_warnings(), threadpool_limits(1), np.errstate(all="ignore"):
            warnings.simplefilter("ignore", ConvergenceWarning)
            seeds = options.seeds or n_seeds
            measure(name, int(options.share * n_steps), seeds, options.kinds)


if __name__ == "__main__":
    main()
