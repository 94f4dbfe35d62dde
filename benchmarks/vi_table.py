"""Measure the Bayesian models beside NumPyro and PyMC.

    python benchmarks/vi_table.py [--rows GROUP ...] [--quick] [--json FILE]

Groups: iterations, cost, australian, pymc, softmax, mnist, first. Needs numpyro (and
pymc for its row) beside the package; data are read from the folder named by
SKVREM_DATA. Times are of one thread, compilation excluded but in "first"; gaps are to
the bound of a fit by full passes with ``tol=1e-6``, by quadrature for every side.
"""

import resource
import time
from functools import partial

import numpy as np
from harness import processes
from harness.table import Row, make_parser, measure
from harness.timing import quiet
from vi_peers import load, numpyro_steps, simulate

from skvrem import BayesianLogisticRegression, schedules, solvers
from skvrem.data import as_source
from skvrem.solvers._protocols import Anchor
from skvrem.vi.gaussian._model import Diagonal, GaussianModel, Point
from skvrem.vi.gaussian._model_families import Logistic, Softmax
from skvrem.vi.gaussian._model_posterior import MeanField
from skvrem.vi.gaussian._model_steps import SteppingModel

FIELD = {"posterior": "meanfield", "fit_intercept": False, "n_jobs": 1}
STEPS = (5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3)


class Settings:
    def __init__(self, options, log):
        self.quick, self.repeats, self.seeds = (
            options.quick,
            options.repeats,
            options.seeds,
        )
        self.log = log


class Problem:
    """Rows, and the exact bound of any mean-field posterior of theirs."""

    def __init__(self, X, y, k):
        family = Softmax(k, len(X)) if k > 1 else Logistic()
        y = y.astype(np.int32) if k > 1 else y.astype(float)
        prior = MeanField(np.zeros(X.shape[1] * k), np.ones(X.shape[1] * k))
        self.data = as_source(X)
        self.model = GaussianModel(family, y, prior, float(len(X)), False, "diagonal")
        self.shape = (X.shape[1], k)

    def bound(self, mean, log_scale):
        solver = solvers.Batch()
        solver.start(self.model, self.data, None)
        point = Point(Diagonal(mean, log_scale, np.zeros((*self.shape, 0))))
        return solver.certify(point, 1.0).objective

    def stepping(self, kind, control, scale, optimizer, batch_size):
        return SteppingModel(
            self.model, self.data, kind, control, scale, optimizer, batch_size, 1
        )


def started(steps):
    """The solver of steps, which keeps what controls them."""
    solver = solvers.Sweeps(steps.kind)
    solver.start(steps, steps.data, None)
    return solver


def swept(solver, point, rng, size):
    """Where an epoch of steps leads to."""
    begin = Anchor(None, np.nan, 0.0, point)
    return solver.sweep(begin, schedules.Constant(size), rng).point


ESTIMATORS = {
    "naive": ("stochastic", None, True),
    "cv": ("stochastic", "taylor", False),
    "joint (paper)": ("svrg", "taylor", False),
    "joint + scales": ("svrg", "taylor", True),
    "joint + scales, saga": ("saga", "taylor", True),
    "quadrature": ("svrg", "quadrature", True),
}


def iterations_to(problem, name, gap, best, settings):
    """Return the median number of steps to a gap, by the best step of the grid."""
    most = 40 if settings.quick else 290
    per_epoch = -(-problem.data.n_units // 5)
    found = []
    for size in STEPS:
        counts = []
        for seed in range(settings.seeds):
            rng = np.random.default_rng(seed)
            solver = started(problem.stepping(*ESTIMATORS[name], "sgd", 5))
            mean = rng.standard_normal(problem.shape)
            empty = np.zeros((*problem.shape, 0))
            point = Point(Diagonal(mean, np.zeros(problem.shape), empty))
            counts.append(np.inf)
            for epoch in range(1, most + 1):
                with np.errstate(all="ignore"):
                    point = swept(solver, point, rng, size)
                    q = point.parameters
                    reached = best - problem.bound(q.mean, q.log_scale)
                if not np.isfinite(reached):
                    break
                if reached <= gap:
                    counts[-1] = epoch * per_epoch
                    break
        found.append(np.median(counts))
    return min(found)


def iterations(settings):
    for data in ("australian", "sonar"):
        X, y = load(data)
        best = reference(X, y)
        problem = Problem(X, y, 1)
        counts = {}
        for name in ESTIMATORS:
            counts[name] = iterations_to(problem, name, 1.0, best, settings)
            settings.log(f"{data} {name}: {counts[name]:.0f}")
        for name, target in (("joint + scales", 8.0), ("quadrature", 9.0)):
            ratio = counts["naive"] / counts[name]
            ok = ratio >= target if data == "australian" else None
            text = ", ".join(f"{k} {v:.0f}" for k, v in counts.items())
            yield Row(
                "iterations",
                f"iterations to 1 nat, {data}, B=5, SGD, naive / {name}",
                f"{ratio:.1f}x ({text})",
                f"{target:.0f}x fewer" if ok is not None else "-",
                ok,
                counts,
            )


def reference(X, y, **params):
    return BayesianLogisticRegression(tol=1e-6, **FIELD, **params).fit(X, y).elbo_


def cost(settings):
    X, y = load("australian")
    problem = Problem(X, y, 1)
    seconds = {}
    rng = np.random.default_rng(0)
    sides = {}
    for name in ESTIMATORS:
        solver = started(problem.stepping(*ESTIMATORS[name], "sgd", 5))
        empty = np.zeros((*problem.shape, 0))
        zeros = np.zeros(problem.shape)
        point = Point(Diagonal(zeros, zeros - 1.0, empty))
        swept(solver, point, rng, 1e-4)
        sides[name] = solver, point
        seconds[name] = []
    for _ in range(40 * settings.repeats):
        for name, (solver, point) in sides.items():
            began = time.process_time()
            swept(solver, point, rng, 1e-4)
            seconds[name].append((time.process_time() - began) / 138)
    micro = {name: 1e6 * min(values) for name, values in seconds.items()}
    ratio = micro["joint + scales"] / micro["naive"]
    text = ", ".join(f"{name} {value:.2f}" for name, value in micro.items())
    yield Row(
        "cost",
        "microseconds a step, Australian, B=5, anchors and draws included",
        f"{ratio:.2f}x ({text})",
        "joint at most 1.5x naive",
        ratio <= 1.5,
        micro,
    )


def time_to(fit, gap, best, repeats):
    """Return the least seconds after which the history of a fit is within a gap."""
    found, whole = [], []
    for _ in range(repeats):
        began = time.perf_counter()
        with quiet():
            history = fit().history_
        whole.append(time.perf_counter() - began)
        reached = best - history["objective"] <= gap
        found.append(history["seconds"][reached.argmax()] if reached.any() else np.inf)
    return min(found), min(whole)


def numpyro_time(problem, X, y, k, gap, best, sizes, batch_size, n_steps, every, log):
    """Return the least seconds to a gap over step sizes, and what was seen."""
    seen, least = {}, np.inf
    for size in sizes:
        gaps = []
        for _, seconds, mean, log_scale in numpyro_steps(
            X, y, k, batch_size, size, n_steps, every
        ):
            gaps.append(best - problem.bound(mean, log_scale))
            if gaps[-1] <= gap:
                least = min(least, seconds)
                break
        seen[size] = (seconds, gaps[-1])
        log(
            f"NumPyro, B={batch_size}, step {size}: {seconds:.3f} s, gap {gaps[-1]:.3g}"
        )
    return least, seen


def beside_numpyro(settings, name, X, y, k, gap, target, fits, peers):
    best = reference(X, y) if k == 1 else _softmax_reference(X, y)
    problem = Problem(X, y, k)
    ours = {}
    for label, params in fits.items():
        fit = partial(_fit, X, y, params)
        with quiet():
            fit()
        ours[label] = time_to(fit, gap, best, settings.repeats)
        settings.log(f"{name} {label}: {ours[label]}")
    least = min(seconds for seconds, _ in ours.values())
    for label, options in peers.items():
        theirs, seen = numpyro_time(
            problem, X, y, k, gap, best, log=settings.log, **options
        )
        if np.isfinite(theirs):
            ratio, measured = theirs / least, f"{theirs:.3g} s"
        else:  # never: at least the longest run
            theirs = max(seconds for seconds, _ in seen.values())
            ratio, measured = theirs / least, f"not in {theirs:.3g} s"
        text = ", ".join(
            f"{k} {v[0]:.2g} s (fit {v[1]:.2g} s)" for k, v in ours.items()
        )
        wanted = target if "B=" in label else 1.0
        yield Row(
            name,
            f"time to {gap:g} nats, {name}, beside NumPyro {label}",
            f"{ratio:.0f}x: {measured} / {text}",
            f"{wanted:.0f}x" if wanted > 1 else "ahead",
            ratio >= wanted,
            {"ours": ours, "theirs": {str(k): v for k, v in seen.items()}},
        )


def _fit(X, y, params):
    return BayesianLogisticRegression(random_state=0, **FIELD, **params).fit(X, y)


def _softmax_reference(X, y):
    return reference(X, y, solver="batch", max_iter=200)


def australian(settings):
    X, y = load("australian")
    fits = {"natural": {"tol": 0.1}, "svrg": {"solver": "svrg", "tol": 0.1}}
    steps = 5000 if settings.quick else 40_000
    peers = {
        "B=5": {
            "sizes": (0.005, 0.01, 0.05),
            "batch_size": 5,
            "n_steps": steps,
            "every": 500,
        },
        "full batch": {
            "sizes": (0.05, 0.1),
            "batch_size": len(X),
            "n_steps": 4000,
            "every": 50,
        },
    }
    yield from beside_numpyro(settings, "australian", X, y, 1, 1.0, 50.0, fits, peers)


def beside_pymc(settings):
    import pymc as pm

    X, y = load("australian")
    best, problem = reference(X, y), Problem(X, y, 1)
    with pm.Model():
        b = pm.Normal("b", 0.0, 1.0, shape=X.shape[1])
        pm.Bernoulli("y", logit_p=X @ b, observed=y)
        began = time.perf_counter()
        advi = pm.ADVI()
        advi.fit(1, progressbar=False)
        compiled = time.perf_counter() - began
        began, gap = time.perf_counter(), np.inf
        seconds = evaluated = 0.0
        while gap > 1.0 and seconds < 60.0:
            advi.fit(500, progressbar=False)
            seconds = time.perf_counter() - began - evaluated
            start = time.perf_counter()
            mean = advi.approx.mean.eval()[:, None]
            gap = best - problem.bound(mean, np.log(advi.approx.std.eval())[:, None])
            evaluated += time.perf_counter() - start
    ours, _ = time_to(partial(_fit, X, y, {"tol": 0.1}), 1.0, best, settings.repeats)
    what = f"{seconds:.3g} s" if gap <= 1.0 else f"gap {gap:.3g} after {seconds:.3g} s"
    yield Row(
        "pymc",
        "time to 1 nat, australian, beside PyMC ADVI (full batch, adagrad_window)",
        f"{seconds / ours:.0f}x: {what} and {compiled:.3g} s to compile / {ours:.2g} s",
        "ahead",
        seconds > ours,
        {"theirs": seconds, "compile": compiled, "gap": gap, "ours": ours},
    )


def softmax(settings):
    n = 6000 if settings.quick else 60_000
    X, y = simulate(n)
    few = {"max_iter": 8, "tol": 1.0}
    fits = {"lbfgs": {**few}, "svrg": {"solver": "svrg", **few}}
    steps = 4000 if settings.quick else 20_000
    options = {"batch_size": 100, "n_steps": steps, "every": 200}
    peers = {
        "B=100": {"sizes": (0.001, 0.002, 0.005, 0.02), **options},
        "full batch": {
            "sizes": (0.05, 0.1),
            "batch_size": n,
            "n_steps": 200,
            "every": 10,
        },
    }
    yield from beside_numpyro(settings, "softmax", X, y, 10, 1000.0, 10.0, fits, peers)


def mnist(settings):
    X, y = load("mnist")
    if settings.quick:
        X, y = X[:5000], y[:5000]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    began = time.perf_counter()
    with quiet():
        model = BayesianLogisticRegression(
            posterior="meanfield", fit_intercept=False, max_iter=60, tol=10.0
        ).fit(X, y)
    seconds = time.perf_counter() - began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    reached = model.history_["objective"] > -2.5e4
    first = model.history_["seconds"][reached.argmax()] if reached.any() else np.inf
    yield Row(
        "mnist",
        "MNIST softmax, 60k x 784 x 10, float32",
        f"bound {model.elbo_:.0f} in {seconds:.0f} s, {model.n_iter_} epochs; "
        f"-2.5e4 after {first:.0f} s; {memory:.0f} MB in all, {before:.0f} before",
        "-2.5e4 in 120 s; 600 MB",
        bool(first < 120.0 and memory < 600.0),
        {"history": {k: list(v) for k, v in model.history_.items()}, "memory": memory},
    )


FIRST = """
import vi_peers

name, n_steps, size = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
k = 1 if name == "australian" else 10

def load():
    return vi_peers.load("australian") if k == 1 else vi_peers.simulate(60_000)
"""

OURS = """
def fit(data):
    tol, max_iter = (0.1, 100) if k == 1 else (1.0, 8)
    BayesianLogisticRegression(
        posterior="meanfield", fit_intercept=False, tol=tol, max_iter=max_iter
    ).fit(*data)
"""

THEIRS = """
def fit(data):
    n = len(data[0])
    for _ in vi_peers.numpyro_steps(*data, k, n, size, n_steps, n_steps, False):
        pass
"""


def first(settings):
    """The first answer of a new process: imports, compiling, and a fit to the gap."""
    for name, gap, size in (("australian", 1.0, 0.1), ("softmax", 1000.0, 0.1)):
        X, y = load(name) if name == "australian" else simulate(60_000)
        k = 1 if name == "australian" else 10
        best = reference(X, y) if k == 1 else _softmax_reference(X, y)
        problem, every = Problem(X, y, k), 10
        for steps, _, mean, log_scale in numpyro_steps(
            X, y, k, len(X), size, 4000, every
        ):
            n_steps = steps
            if best - problem.bound(mean, log_scale) <= gap:
                break
        sides = {
            "ours": ("from skvrem import BayesianLogisticRegression", OURS),
            "theirs": ("import jax, numpyro", THEIRS),
        }
        seconds = {side: [] for side in sides}
        for _ in range(settings.repeats):
            for side, (imports, fit) in sides.items():
                code = processes.FIRST_FIT.format(imports=imports, problem=FIRST + fit)
                found = processes.run_python(code, name, str(n_steps), str(size))
                seconds[side].append(found["process"])
        ours, theirs = min(seconds["ours"]), min(seconds["theirs"])
        yield Row(
            "first",
            f"first answer in a new process, {name}, gap {gap:g}, imports included",
            f"{theirs / ours:.1f}x: NumPyro, all rows, {n_steps} steps, {theirs:.2f} s "
            f"/ {ours:.2f} s",
            "ahead",
            ours < theirs,
            seconds,
        )


GROUPS = {
    "iterations": iterations,
    "cost": cost,
    "australian": australian,
    "pymc": beside_pymc,
    "softmax": softmax,
    "mnist": mnist,
    "first": first,
}


def main():
    options = make_parser(__doc__.partition("\n")[0], GROUPS).parse_args()
    measure(GROUPS, options, partial(Settings, options))


if __name__ == "__main__":
    main()
