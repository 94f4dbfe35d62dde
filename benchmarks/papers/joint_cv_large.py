"""Figure 8 and the large tasks of Figure 3 of Wang, Geffner and Domke (2024).

    python -m benchmarks.papers.joint_cv_large [--tasks mnist tennis ppca ratings]
    python -m benchmarks.papers.joint_cv_large --seeds 5

The bound by seconds and by iterations: naive (Eq. 4), cv (9) and joint (algorithm 2,
anchors of an epoch, their passes in the clock), batches of 100 rows, reshuffled each
epoch, one draw a batch, Adam; means and log scales start from N(0, 1), joint with an
epoch of naive. Of the paper's step sizes the largest and the least run for a quarter of
the seconds. Seconds are of CPU in the same NumPy code, one
thread; the bound is evaluated outside the clock, by quadrature, for PPCA by fixed
draws. Beside them the package's estimators as they come. The prior and the entropy are
in closed form, ratings are simulated (see `joint_cv.py`). Log scales of the ratings'
population start at -1, as the inverse square of a scale has no sensible mean else.

With ``--seeds`` nothing is measured again but the best step of each method, from other
starting points and with other draws, for as many iterations as it had: their bounds at
the end need no idle machine.

What has been measured before stays in the table unless it is measured again. Data are
read from the folder named by SKVREM_DATA.
"""

import time
import warnings
from collections import defaultdict
from copy import copy
from functools import partial

import numpy as np
from numba import njit
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from benchmarks.papers import measured
from benchmarks.papers.joint_cv import TASKS, classes_task

METHODS = ("naive", "cv", "joint")
STEPS = (0.1, 0.05, 0.01, 0.005, 0.001)
BATCH = 100
# Seconds of a run, and gaps in nats for the table.
SECONDS = {"mnist": 24.0, "ppca": 20.0, "tennis": 8.0, "ratings": 30.0}
GAPS = {
    "mnist": (10_000.0, 5000.0, 2000.0),
    "ppca": (1e6, 3e5, 1e5),
    "tennis": (5000.0, 1000.0, 300.0),
    "ratings": (100_000.0, 30_000.0, 10_000.0),
}
# Bounds of longer fits: 60 passes (`bayes/mnist`).
KNOWN = {"mnist": -23_943.0}
# When the bound is evaluated, as shares of a run.
WHEN = 2.0 ** np.arange(-5.0, 0.1, 0.5)
# Step sizes at the ends of the grid run until so many of these, a quarter.
ENDS, TRIAL = (0.1, 0.001), 7
OPENERS = TASKS | {"mnist": partial(classes_task, most=None)}
PACKAGE = "package"
COLUMNS = "task,method,step_size,seed,seconds,iterations,bound".split(",")
TYPES = str, str, float, int, float, int, float


class Standard:
    """The prior N(0, 1) of all parameters."""

    size = 0

    def start(self, rng):
        """Return parameters of the prior's own posterior: none."""
        return np.empty(0)

    def bound(self, mean, scale, own):
        """Return minus the divergence of the posterior from the prior."""
        return np.sum(np.log(scale) - 0.5 * (scale**2 + mean**2 - 1.0))

    def gradient(self, mean, scale, own):
        """Return its gradient by means, log scales and own parameters."""
        return -mean, 1.0 - scale**2, own


class Population:
    """Groups drawn from N(mu, exp(sigma)^2), with mu and sigma from N(0, 1).

    Own are means and log scales of mu, then of sigma.
    """

    def __init__(self, shape):
        self.groups, *self.shape = shape
        self.size = 4 * int(np.prod(self.shape))

    def start(self, rng):
        """See `Standard`; log scales of -1."""
        own = rng.standard_normal((4, *self.shape))
        own[1::2] = -1.0
        return own.ravel()

    def _parts(self, mean, scale, own):
        mu, log_scale_mu, sigma, log_scale_sigma = own.reshape(4, *self.shape)
        v, t = np.exp(2.0 * log_scale_mu), np.exp(2.0 * log_scale_sigma)
        precision, variance = np.exp(2.0 * (t - sigma)), scale**2
        away = mean - mu
        square = np.sum(away**2 + variance, axis=0) + self.groups * v
        return mu, v, sigma, t, precision, variance, away, square

    def bound(self, mean, scale, own):
        """See `Standard`."""
        mu, v, sigma, t, precision, _, _, square = self._parts(mean, scale, own)
        groups = np.sum(np.log(scale) - sigma + 0.5) - 0.5 * np.sum(precision * square)
        each = np.log(v) + np.log(t) - mu**2 - v - sigma**2 - t
        return groups + np.sum(0.5 * each + 1.0)

    def gradient(self, mean, scale, own):
        """See `Standard`."""
        parts = self._parts(mean, scale, own)
        mu, v, sigma, t, precision, variance, away, square = parts
        pull = precision * square
        by_own = (
            precision * away.sum(axis=0) - mu,
            1.0 - v - self.groups * precision * v,
            pull - self.groups - sigma,
            1.0 - t - 2.0 * t * pull,
        )
        by_scale = 1.0 - precision * variance
        return -precision * away, by_scale, np.concatenate(by_own, axis=None)


class Run:
    """One method with one step size.

    Parameters
    ----------
    task : LinearTask or ComponentsTask
        Its means and scales are moved.
    prior : Standard or Population
    kind : str
    size : float
    rng : numpy.random.Generator
    """

    def __init__(self, task, prior, kind, size, rng):
        self.task, self.prior, self.kind, self.size = task, prior, kind, size
        self.rng, self.shape, n = rng, task.mean.shape, task.mean.size
        own = prior.start(rng)
        self.w = np.concatenate([rng.standard_normal(2 * n), own])
        self.moments = np.zeros((2, self.w.size))
        self.n_steps, self.left = 0, []
        self._place()

    def _place(self):
        n = int(np.prod(self.shape))
        self.task.mean = self.w[:n].reshape(self.shape)
        self.task.scale = np.exp(self.w[n : 2 * n].reshape(self.shape))
        self.own = self.w[2 * n :]

    #: Epochs of joint before its first anchor, which are naive.
    naive_epochs = 1

    def gradient(self):
        """Return an estimate of the gradient, by the next batch."""
        task, kind = self.task, self.kind
        if not self.left:
            order, end = self.rng.permutation(task.n), task.n - task.n % BATCH
            self.left = list(order[:end].reshape(-1, BATCH))
            if kind == "joint" and self.n_steps:
                task.refresh()
        if self.n_steps < self.naive_epochs * (task.n // BATCH) and kind == "joint":
            kind = "naive"
        ours = task.step(kind, self.left.pop(), self.rng)
        priors = self.prior.gradient(task.mean, task.scale, self.own)
        sums = [ours[0] + priors[0], ours[1] + priors[1], priors[2]]
        self.n_steps += 1
        return np.concatenate(sums, axis=None)

    def step(self):
        """Go one step."""
        gradient = self.gradient()
        adam(self.w, gradient, *self.moments, self.n_steps, self.size)
        self._place()

    def bound(self):
        """Return the evidence lower bound; minus infinity where it is lost."""
        q = self.task.mean, self.task.scale, self.own
        if not np.isfinite(self.w).all():
            return -np.inf
        return self.task.log_likelihood() + self.prior.bound(*q)

    def trace(self, times):
        """Yield seconds, iterations and the bound, a little after each of `times`."""
        seconds = 0.0
        for at in times:
            began = time.process_time()
            while seconds + time.process_time() - began < at:
                self.step()
            seconds += time.process_time() - began
            yield seconds, self.n_steps, self.bound()

    def end(self, n_steps):
        """Return seconds, iterations and the bound after so many iterations."""
        began = time.process_time()
        while self.n_steps < n_steps:
            self.step()
        return time.process_time() - began, self.n_steps, self.bound()


@njit(cache=True)
def adam(w, gradient, first, second, count, size):
    """Move w uphill by a step of Kingma and Ba (2014)."""
    size, root = size / (1.0 - 0.9**count), (1.0 - 0.999**count) ** -0.5
    for i in range(w.size):
        first[i] = 0.9 * first[i] + 0.1 * gradient[i]
        second[i] = 0.999 * second[i] + 0.001 * gradient[i] ** 2
        w[i] += size * first[i] / (root * np.sqrt(second[i]) + 1e-8)


def package(name):
    """Return the task, and rows of the table of the package's own fit.

    Seconds of its history are of the clock: they are scaled to those of the CPU.
    """
    for _ in range(2):  # the first may have compiled
        clock, cpu = time.perf_counter(), time.process_time()
        task, model = OPENERS[name](name)
        cpu, clock = time.process_time() - cpu, time.perf_counter() - clock
        history = model.history_
        seconds = history["seconds"] * cpu / clock
        if cpu > 60.0:
            break
    count = range(1, len(seconds) + 1)
    traced = zip(seconds, count, history["objective"], strict=True)
    rows = [(name, PACKAGE, 0.0, 0, *row) for row in traced]
    return task, rows, model.elbo_


def prior_of(name, task):
    """Return the prior of a task."""
    return Population(task.mean.shape) if name == "ratings" else Standard()


def measure(name, seconds, methods):
    """Yield the rows of a task: of the package, then of methods, one by one."""
    began = time.process_time()
    task, rows, best = package(name)
    taken = time.process_time() - began
    print(f"{name}: package {best:.1f} in {rows[-1][3]:.2f} s ({taken:.0f} s in all)")
    prior = prior_of(name, task)
    if name != "ratings":  # whose posterior has another form
        own = task.log_likelihood() + prior.bound(task.mean, task.scale, None)
        print(f"  the same by the bound used here: {own:.1f}")
    for kind in methods:
        yield rows
        rows = []
        for size in STEPS:
            run = Run(copy(task), prior, kind, size, np.random.default_rng(0))
            times = seconds * WHEN[: TRIAL if size in ENDS else None]
            with np.errstate(all="ignore"):
                found = list(run.trace(times))
            rows += [(name, kind, size, 0, *point) for point in found]
            end, count, bound = found[-1]
            text = f"{end:.1f} s, {count} steps, bound {bound:.1f}"
            print(f"  {kind}, {size:g}: {text}", flush=True)
    yield rows


def repeat(name, rows, methods, n_seeds):
    """Yield rows of other seeds: each method's best step, its end alone.

    Parameters
    ----------
    name : str
        The task.
    rows : list of tuple
        What has been measured.
    methods : sequence of str
    n_seeds : int
        Of how many the first has been measured.
    """
    found = curves(rows)[name]
    task, _, _ = package(name)
    for kind in methods:
        size = best_step(found[kind])
        n_steps = found[kind][size][-1][1]
        for seed in range(1, n_seeds):
            with np.errstate(all="ignore"):
                rng = np.random.default_rng(seed)
                run = Run(copy(task), prior_of(name, task), kind, size, rng)
                end = run.end(n_steps)
            print(f"  {kind}, {size:g}, seed {seed}: bound {end[-1]:.1f}", flush=True)
            yield [(name, kind, size, seed, *end)]


def best_step(sizes):
    """Return the step size whose bound is the highest in the end."""
    return max(sizes, key=lambda size: sizes[size][-1][2])


def curves(rows):
    """Return by task and method the points (seconds, iterations, bound) of each size.

    They are those of the first seed. Tasks are in the paper's order.
    """
    found = defaultdict(lambda: defaultdict(list))
    for task, method, size, seed, *point in rows:
        if not seed:
            found[task, method][size].append(point)
    every = (*METHODS, PACKAGE)
    return {
        task: {name: found[task, name] for name in every if (task, name) in found}
        for task in SECONDS
        if (task, PACKAGE) in found
    }


def envelope(sizes, column):
    """Return the highest bound so far over step sizes, along seconds or iterations.

    The best step is chosen anew at each point, as in the paper.
    """
    points = sorted((p[column], p[2]) for run in sizes.values() for p in run)
    at, bounds = np.array(points).T
    higher = bounds > np.append(-np.inf, np.maximum.accumulate(bounds)[:-1])
    return at[higher], bounds[higher]


def best_bound(task, methods):
    """Return the highest bound that is known."""
    found = [p[2] for sizes in methods.values() for run in sizes.values() for p in run]
    return max(*found, KNOWN.get(task, -np.inf))


def summarise(rows):
    """Print bounds at some seconds, and seconds and iterations to gaps."""
    for task, methods in curves(rows).items():
        best = best_bound(task, methods)
        end = SECONDS[task]
        times = [end / 16, end / 4, end]
        heads = [f"after {t:.3g} s" for t in times] + [f"gap {g:g}" for g in GAPS[task]]
        heads += ["best step, ms of an iteration", "its end, by seeds"]
        print(f"\n{task}, best bound {best:.1f}; gaps: seconds (iterations)\n")
        print("| | " + " | ".join(heads) + " |")
        print("|---" * (len(heads) + 1) + "|")
        for method, sizes in methods.items():
            cells = []
            at, bounds = envelope(sizes, 0)
            for t in times:  # a step may end a little after
                found = bounds[at <= 1.02 * t]
                cells.append(f"{found[-1]:.0f}" if found.size else "-")
            steps, by_steps = envelope(sizes, 1)
            for gap in GAPS[task]:
                first, where = best - bounds <= gap, best - by_steps <= gap
                text = "-"
                if first.any():
                    text = f"{at[first.argmax()]:.3g} ({steps[where.argmax()]:.0f})"
                cells.append(text)
            size = best_step(sizes)
            seconds, count, _ = sizes[size][-1]
            speed = f"{size:g}, {1e3 * seconds / count:.2f}"
            ends = [sizes[size][-1][2]]
            ends += [r[-1] for r in rows if r[:3] == (task, method, size) and r[3]]
            spread = measured.told(ends, "{:,.0f}")
            cells += ["", ""] if method == PACKAGE else [speed, spread]
            print(f"| {method} | " + " | ".join(cells) + " |")


def key(row, one_seed):
    """Return what makes a row the same as another: its seed too, or all seeds."""
    task, method, size, seed, *_ = row
    return (task, method, size, seed) if one_seed else (task, method)


def draw(rows, path):
    """Figure 8 above, Figure 3 below: what the bound lacks."""
    import matplotlib.pyplot as plt

    found = curves(rows)
    figure, axes = plt.subplots(
        2, len(found), figsize=(3.3 * len(found), 5.6), squeeze=False
    )
    for (task, methods), column in zip(found.items(), axes.T, strict=True):
        best = best_bound(task, methods)
        for i, (method, sizes) in enumerate(methods.items()):
            for along, axis in enumerate(column):
                if method == PACKAGE and along == 1:
                    continue  # a pass is no iteration
                at, bounds = envelope(sizes, along)
                gap = np.maximum(best - bounds, 1.0)
                style = {"color": f"C{i}", "marker": ".", "ms": 3}
                axis.plot(at, gap, label=method, **style)
                axis.set(xscale="log", yscale="log")
        column[0].set(title=task, xlabel="CPU seconds")
        column[1].set(xlabel="iterations")
    for axis in axes[:, 0]:
        axis.set_ylabel("best bound - own, nats")
    axes[0, 0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=100)
    plt.close(figure)


def main():
    parser = measured.parser(__doc__)
    parser.add_argument("--tasks", nargs="*", choices=SECONDS, default=list(SECONDS))
    parser.add_argument("--methods", nargs="*", choices=METHODS, default=METHODS)
    parser.add_argument("--seeds", type=int, help="so many of the best steps' ends")
    parser.add_argument("--share", type=float, default=1.0, help="of the seconds")
    options = parser.parse_args()
    path = options.figures / "joint_cv_large.csv"
    for task in options.tasks:
        with warnings.catch_warnings(), threadpool_limits(1):
            warnings.simplefilter("ignore", ConvergenceWarning)
            seconds = options.share * SECONDS[task]
            rows = measured.load(path, TYPES)
            todo = measure(task, seconds, options.methods)
            if options.seeds:
                todo = repeat(task, rows, options.methods, options.seeds)
            for new in todo:
                # Read now: tasks may be measured side by side.
                again = {key(row, options.seeds) for row in new}
                known = measured.load(path, TYPES)
                kept = [row for row in known if key(row, options.seeds) not in again]
                measured.save(path, COLUMNS, kept + new)
    rows = measured.load(path, TYPES)
    draw(rows, options.figures / "joint_cv_large.png")
    summarise(rows)


if __name__ == "__main__":
    main()
