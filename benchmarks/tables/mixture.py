"""Gaussian mixtures: iterations, passes, memory and first fits beside scikit-learn.

- An iteration starts at the mixture that the rows were drawn from, with ``tol=0``; that
  all sides make the same iterations is checked first.
- Passes are those of ``history_["passes"]``: start, anchors and tables counted. All
  solvers go on from one start to a tolerance of 1e-9; a fit has arrived when it is
  within 1e-6 a row of where it ends itself, as others may end at other maxima. What
  "saga" records on the way is a lower bound, so its count is, if anything, too high.
  "Below" and "above" are fits that ended more than 1e-3 a row from where batch did.
- Steps are told by τ, the step times the number of minibatches: so many steps of batch
  EM an epoch is worth. Fits "elsewhere" ended more than 1e-4 a row from batch's end.
- The time to one log-likelihood is, of ours, that of the whole fit, start and last
  exact pass included. scikit-learn goes on from our start; its iterations are those of
  our batch EM, which says how many they are; they are multiplied by its seconds an
  iteration, or (``mixture/time-whole``) all run.
- Memory is the highest resident set during ``fit`` less that before.

The overlapping mixture was made so that batch EM takes some 200 to 300 passes, without
a look at other solvers. The fresh problems (heavy tails, rare components, a cloud about
the digits) were written down before anything was run on them: do not tune on them.
"""

import statistics
from functools import partial
from itertools import product
from time import process_time
from typing import NamedTuple
from unittest import mock

import numpy as np
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from benchmarks.harness import Row, an_iteration, fastest, group, quiet, timed
from benchmarks.harness.processes import first_fits, peak_memory, run_python
from benchmarks.peers import mixtures as peers
from benchmarks.problems import mixtures as problems
from benchmarks.problems import optima
from skvrem import VRGaussianMixture

# Iterations of the shorter and the longer fit. Ours are many, as one takes little.
OURS, THEIRS = (2, 12), (1, 3)


def drawn_from(mixture, kind):
    """Return weights, means and covariances that rows were drawn from."""
    covariances = mixture.covariances
    if kind == "diag":
        covariances = np.diagonal(covariances, axis1=1, axis2=2).copy()
    return mixture.weights, mixture.means, covariances


def ours(X, start, kind, n_iter, threads=1, solver="batch"):
    """Our EM, plain batch passes or epochs of a solver, as `peers.scikit_learn`."""
    weights, means, covariances = start
    full = covariances.ndim == 3
    model = VRGaussianMixture(
        len(weights),
        covariance_type=kind,
        n_init=1,
        solver=solver,
        acceleration=None,
        random_state=0,
        weights_init=weights,
        means_init=means,
        precisions_init=np.linalg.inv(covariances) if full else 1.0 / covariances,
        tol=0.0,
        max_iter=n_iter,
        n_jobs=threads,
    )
    with threadpool_limits(threads):
        model.fit(X)
    return model.weights_, model.means_, model.covariances_


def check_same(X, start, kind, sides):
    """Make two iterations of each side and compare means with those of the first."""
    tolerance = 1e-6 if X.dtype == np.float64 else 1e-3
    few = X[: 20 * X.shape[1] * len(start[0])]
    with quiet():
        first, *others = (side(few, start, kind, 2)[1] for side in sides.values())
    for name, means in zip(list(sides)[1:], others, strict=True):
        gap = np.abs(first - means).max()
        if not gap < tolerance:
            raise AssertionError(f"iterations of {name} differ by {gap:.1e}")


def iterations(run, mixture, kind, dtype, threads, others):
    """Return seconds of an iteration of ours and of others."""
    X, start = mixture.X.astype(dtype, copy=False), drawn_from(mixture, kind)
    check_same(X, start, kind, {"ours": ours} | others)
    sides = {"ours": (partial(ours, X, start, kind, threads=threads), *OURS)}
    for name, peer in others.items():
        sides[name] = partial(peer, X, start, kind), *THEIRS
    return an_iteration(sides, run, threads)


SIZES = {
    ("1e6", 10, 10, "full", "float64"): (11.0, 20.0),
    ("1e6", 10, 10, "diag", "float64"): (12.0, 20.0),
    ("1e6", 10, 10, "full", "float32"): (15.0, 20.0),
    ("1e6", 10, 10, "diag", "float32"): (15.0, 20.0),
    ("2e5", 50, 20, "full", "float64"): (4.5,),
    ("1e5", 100, 10, "full", "float64"): (3.5,),
}
CASES = {
    f"n={n}-d={d}-k={k}-{kind}-{dtype}-{1 + i}": (*size, 1 + i, target)
    for size, targets in SIZES.items()
    for i, target in enumerate(targets)
    for n, d, k, kind, dtype in [size]
}


@group(CASES)
def iteration(run, n, d, k, kind, dtype, threads, target):
    """Seconds of a batch EM iteration."""
    mixture = problems.overlapping(int(float(n)) // run.size(1, 50), d, k)
    others = {"scikit-learn": peers.scikit_learn}
    timed = iterations(run, mixture, kind, dtype, threads, others)
    size = f"n={n} d={d} k={k} {kind} {dtype}"
    yield timed.row(f"{size}, {threads} thread{'s' * (threads > 1)}", target)


@group(["full", "diag"])
def peer(run, kind):
    """Seconds of a batch EM iteration, other packages."""
    mixture = problems.overlapping(run.size(100_000, 5_000))
    others = {k: v for k, v in peers.PEERS.items() if k != "gmr" or kind == "full"}
    found = run.installed(others)
    if found:
        timed = iterations(run, mixture, kind, "float64", 1, found)
        yield timed.row(f"n=1e5 d=10 k=10 {kind}")


@group(product(["full", "diag"], ["batch", "saga", "svrg"]))
def threads(run, kind, solver):
    """Seconds of an epoch on two threads."""
    mixture = problems.overlapping(run.size(1_000_000, 20_000))
    start = drawn_from(mixture, kind)
    sides = {
        name: (partial(ours, mixture.X, start, kind, threads=n, solver=solver), *OURS)
        for name, n in (("two threads", 2), ("one thread", 1))
    }
    target = 1.8 if solver == "batch" else 1.5
    yield an_iteration(sides, run, 2).row(f"n=1e6 d=10 k=10 {kind}, {solver}", target)


# Batch passes that an epoch is worth, at most.
EPOCHS = {"saga": 2.0, "svrg": 3.0}


@group(product(["2e4", "1e5", "1e6"], ["full", "diag"]))
def epoch(run, n, kind):
    """Seconds of an epoch of minibatches over those of a batch pass, one thread."""
    mixture = problems.overlapping(int(float(n)) // run.size(1, 10))
    start = drawn_from(mixture, kind)
    sides = {
        solver: (partial(ours, mixture.X, start, kind, solver=solver), *OURS)
        for solver in ("batch", *EPOCHS)
    }
    timed = an_iteration(sides, run)
    one = timed.seconds.pop("batch")
    for solver, seconds in timed.seconds.items():
        label = f"n={n} d=10 k=10 {kind}, {solver}"
        note = f"{1e3 * seconds:.2f} ms, a pass {1e3 * one:.2f} ms"
        value, target = seconds / one, EPOCHS[solver]
        yield Row(label, value, "passes", {}, target, note, timed.noise, solver)


# Passes

WITHIN = 1e-6
# Far below WITHIN, as a slow fit that gains 1e-9 a pass may be 1e-7 from its end.
TOLERANCE = 1e-9
# A fit that ends this much a row below batch EM, or that does not converge, failed.
FAILED = 1e-3
# Enough epochs but for "rare components", where batch EM crawls: its count is too low.
METHODS = {
    "auto": {"solver": "auto", "max_iter": 2_000},
    "batch": {"solver": "batch", "max_iter": 5_000},
    "svrg": {"solver": "svrg", "max_iter": 2_000},
    "squarem": {"solver": "batch", "acceleration": "squarem", "max_iter": 2_500},
}


class Count(NamedTuple):
    """What one fit came to."""

    passes: float
    epochs: int
    score: float
    converged: bool
    solver: str


def fit(X, k, kind, seed, options):
    """Fit to the end; the start is drawn first, so one seed is one for all solvers."""
    params = {"covariance_type": kind, "tol": TOLERANCE, "random_state": seed}
    params["n_init"] = 1
    with quiet():
        return VRGaussianMixture(k, **params, **options).fit(X)


def count(model):
    """Return passes to within 1e-6 of the end, and how it went."""
    objective = model.history_["objective"]
    arrived = int(np.argmax(objective >= objective[-1] - WITHIN))
    return Count(
        float(model.history_["passes"][arrived]),
        arrived + 1,
        float(objective[-1]),
        bool(model.converged_),
        model.solver_,
    )


def real(load):
    """Return a problem of real rows: the seed is of the start only."""
    return lambda run, seed: load()[:: run.size(1, 20)].copy()


PROBLEMS = {
    "overlapping": (
        lambda run, seed: problems.overlapping(run.size(10**6, 50_000), seed=seed).X,
        10,
        ["full"],
        12.0,
    ),
    "MNIST-PCA-20": (real(problems.mnist_pca), 10, ["full", "diag"], 5.0),
    "chest": (real(problems.chest), 10, ["full", "diag"], 5.0),
    **{
        name.replace(" ", "-"): (
            lambda run, seed, draw=draw, n=n: draw(n // run.size(1, 20), seed),
            k,
            [kind],
            4.0,
        )
        for name, (draw, n, k, kind) in problems.FRESH.items()
    },
}


@group(list(PROBLEMS))
def passes(run, name):
    """Passes over the data to within 1e-6 a row of the end, as shares of batch EM's."""
    draw, k, kinds, target = PROBLEMS[name]
    fits = {}
    for kind, seed in product(kinds, range(run.seeds)):
        X = draw(run, seed)
        found = {m: count(fit(X, k, kind, seed, METHODS[m])) for m in METHODS}
        fits[f"{kind} seed {seed}"] = found
        ends = ", ".join(f"{m} {c.passes:.0f} {c.score:.5f}" for m, c in found.items())
        run.log(f"{name} {kind} seed {seed} [{found['auto'].solver}]: {ends}")

    def shares(method):
        return [c[method].passes / c["batch"].passes for c in fits.values()]

    def ended(sign):
        gaps = [sign * (c["auto"].score - c["batch"].score) for c in fits.values()]
        return sum(gap > FAILED for gap in gaps)

    stuck = sum(not c["auto"].converged for c in fits.values())
    median = {method: statistics.median(shares(method)) for method in METHODS}
    yield Row(
        f"{name.replace('-', ' ')}, {len(fits)} fits",
        median.pop("auto"),
        "of batch",
        median,
        {"batch": target},
        f"at worst {1.0 / max(shares('auto')):.1f}x; {ended(-1)} below batch, "
        f"{ended(1)} above, {stuck} not converged",
        numbers={
            name: {method: c._asdict() for method, c in found.items()}
            for name, found in fits.items()
        },
    )


# Steps

#: Values of τ, and how far a row another optimum is.
WORTH, ELSEWHERE = (1, 5, 10, 20, 40, 80), 1e-4


def by_step(solver, n):
    """Return options by the name of a step, the default first."""
    n_blocks = min(100, n // 256)
    options = {"solver": solver, "max_iter": 1_000}
    blocks = options | {"batch_size": n // n_blocks}
    steps = {f"τ={t}": {"step_size": min(1.0, t / n_blocks)} for t in WORTH}
    return {"auto": options} | {name: blocks | step for name, step in steps.items()}


@group(["2e4", "2e5"])
def steps(run, n):
    """Passes to within 1e-6 a row of the end by the step, medians of draws."""
    size = int(float(n)) // run.size(1, 2)
    settings = {
        "batch": {m: METHODS[m] for m in ("batch", "squarem")}
        | {"incremental": {"solver": "incremental", "max_iter": 1_000}},
        **{solver: by_step(solver, size) for solver in ("svrg", "saga")},
    }
    data = [problems.alike(size, seed) for seed in range(run.seeds)]
    ends = None
    for solver, ways in settings.items():
        found = {
            name: [count(fit(X, 10, "full", 0, options)) for X in data]
            for name, options in ways.items()
        }
        scores = {
            name: np.array([c.score for c in fits]) for name, fits in found.items()
        }
        ends = scores["batch"] if ends is None else ends
        away = {m: int(sum(np.abs(v - ends) > ELSEWHERE)) for m, v in scores.items()}
        passes = {m: [c.passes for c in fits] for m, fits in found.items()}
        median = {name: statistics.median(values) for name, values in passes.items()}
        others = ", ".join(f"{many} by {name}" for name, many in away.items() if many)
        yield Row(
            f"n={n} d=10 k=10 full, {solver}",
            median.pop(next(iter(ways))),
            "passes",
            median,
            note=f"of {len(data)} fits elsewhere: {others or 'none'}",
            key=solver,
            numbers={"passes": passes, "elsewhere": away},
        )


# What "auto" chooses

SOLVERS = {
    "auto": {},
    "batch": {"solver": "batch"},
    "squarem": {"solver": "batch", "acceleration": "squarem"},
    "svrg": {"solver": "svrg"},
    "saga": {"solver": "saga"},
    "incremental": {"solver": "incremental"},
}
DRAWN = {
    "overlapping": (lambda n, seed: problems.overlapping(n, seed=seed).X, 10),
    "heavy-tails": (problems.heavy_tails, 12),
    "rare-components": (problems.rare_components, 16),
    "digits-cloud": (problems.digits_cloud, 15),
    "bananas": (lambda n, seed: optima.bananas(n), 12),
    "skewed": (lambda n, seed: optima.skewed(n), 10),
}


@group(product(["1e4", "1e5", "1e6"], ["1e-3", "1e-6"]))
def auto(run, n, tol):
    """CPU seconds of "auto" to the best end of all solvers less tol, over the cheapest.

    One thread; "passes" are those of both by the same count.
    """
    size, level = int(float(n)) // run.size(1, 10), float(tol)
    seeds = run.seeds if size < 1_000_000 else 1
    ratios, passes, chosen = {}, [], set()
    for kind, options in product(["full", "diag"], SOLVERS.values()):
        model = VRGaussianMixture(2, covariance_type=kind, n_init=1, max_iter=2)
        with quiet():  # compiles
            model.set_params(**options).fit(problems.heavy_tails(5_000, 0))
    for (name, (draw, k)), kind in product(DRAWN.items(), ["full", "diag"]):
        for seed in range(seeds):
            X, took, read, ends = draw(size, seed), {}, {}, {}
            how = {"covariance_type": kind, "random_state": seed, "max_iter": 1_000}
            for label, options in SOLVERS.items():
                model = VRGaussianMixture(k, n_init=1, tol=level, n_jobs=1, **how)
                ends[label] = _fastest_history(model.set_params(**options), X)
            chosen.add(str(ends["auto"]["solver"][-1]))
            best = max(end["objective"][-1] for end in ends.values()) - level
            for label, end in ends.items():
                above = np.flatnonzero(end["objective"] >= best)
                for what, counts in (("seconds", took), ("passes", read)):
                    counts[label] = end[what][above[0]] if above.size else np.inf
            ratios[f"{name} {kind} seed {seed}"] = took["auto"] / min(took.values())
            passes.append(read["auto"] / min(read.values()))
            shown = ", ".join(f"{x} {took[x]:.3f} s {read[x]:.0f}" for x in took)
            run.log(f"{name} {kind} {seed}: {shown}")
    # Which optimum a fit ends at is another question (`starts`).
    found = np.array([ratio for ratio in ratios.values() if ratio < np.inf])
    passes = np.array(passes)[np.isfinite(passes)]
    yield Row(
        f"n={n}, tol={tol}: {' and '.join(sorted(chosen))}",
        geometric_mean(found),
        "of the cheapest",
        {},
        1.2,
        f"at worst {found.max():.1f}; {geometric_mean(passes):.2f} of the passes; "
        f"{len(ratios) - len(found)} of {len(ratios)} ended at another optimum",
        numbers=ratios,
    )


def geometric_mean(values):
    return float(np.exp(np.log(values).mean()))


def _fastest_history(model, X):
    """Return the history of a fit, in CPU seconds; of short ones the fastest of 3."""
    found = []
    with mock.patch("time.perf_counter", process_time):
        while len(found) < 3 and not (found and found[0]["seconds"][-1] > 1.0):
            _, fitted = timed(lambda: clone(model).fit(X))
            found.append(fitted.history_)
    return min(found, key=lambda history: history["seconds"][-1])


# Time to one log-likelihood


def level_of(run):
    """Return mixture, level, our epochs and batch EM's iterations to it."""
    mixture = problems.overlapping(run.size(1_000_000, 50_000))
    curves = {
        method: fit(mixture.X, 10, "full", 0, METHODS[method]).history_["objective"]
        for method in ("auto", "batch")
    }
    # The lower of the two ends, which both have passed.
    level = min(curve[-1] for curve in curves.values()) - WITHIN
    epochs = {m: 1 + int(np.argmax(curve >= level)) for m, curve in curves.items()}
    # The value before the next iteration is where scikit-learn's parameters then are.
    return mixture, level, epochs["auto"], epochs["batch"] - 1


def whole_fit(X, n_epochs):
    """Our fit on one thread, start included."""
    params = {"tol": 0.0, "random_state": 0, "n_jobs": 1}
    model = VRGaussianMixture(10, n_init=1, max_iter=n_epochs, **params)
    return lambda: model.fit(X)


def time_row(run, label, seconds, theirs, level, n_iter):
    return Row(
        f"{label}, n=1e6 d=10 k=10 full, to {level:.6f}",
        seconds,
        "s",
        {"scikit-learn": theirs},
        120.0,
        f"{n_iter} iterations of scikit-learn",
        numbers={"level": level, "iterations": n_iter},
    )


@group()
def time(run):
    """Seconds to one log-likelihood, one thread, scikit-learn's extrapolated."""
    mixture, level, n_ours, n_theirs = level_of(run)
    mine = fastest({"ours": whole_fit(mixture.X, n_ours)}, run, warm_up=False)
    others = {"scikit-learn": peers.scikit_learn}
    one = iterations(run, mixture, "full", "float64", 1, others).seconds["scikit-learn"]
    seconds = mine.seconds["ours"]
    yield time_row(run, "overlapping", seconds, n_theirs * one, level, n_theirs)


@group(asked=True)
def time_whole(run):
    """Seconds to one log-likelihood, one thread, scikit-learn's iterations all run."""
    mixture, level, n_ours, n_theirs = level_of(run)
    with quiet():
        one = VRGaussianMixture(
            10, n_init=1, random_state=0, max_iter=1, solver="batch"
        )
        one.fit(mixture.X)
    # One iteration has been made; scikit-learn makes the others.
    start = one.weights_, one.means_, one.covariances_
    sides = {
        "ours": whole_fit(mixture.X, n_ours),
        "scikit-learn": partial(
            peers.scikit_learn, mixture.X, start, "full", n_theirs - 1
        ),
    }
    seconds = fastest(sides, run, warm_up=False).seconds
    yield time_row(run, "overlapping", *seconds.values(), level, n_theirs)


# Processes

MEMORY = """
side, kind, n = sys.argv[1:]
from benchmarks.problems import mixtures

def make():
    params = {"covariance_type": kind, "tol": 0.0, "random_state": 0}
    if side == "scikit-learn":
        from sklearn.mixture import GaussianMixture
        return GaussianMixture(10, max_iter=2, **params)
    from skvrem import VRGaussianMixture
    return VRGaussianMixture(10, n_init=1, max_iter=5, solver=side, **params)

def warm_up():
    make().fit(mixtures.overlapping(100_000).X)

def load():
    return mixtures.overlapping(int(n)).X

def fit(X):
    make().fit(X)
"""


@group(product(["full", "diag"], ["auto", "batch"]))
def memory(run, kind, solver):
    """Peak memory of a fit beyond X."""
    n = run.size(1_000_000, 200_000)
    mine, theirs = (peak_memory(MEMORY, s, kind, n) for s in (solver, "scikit-learn"))
    yield Row(
        f"n={n} d=10 k=10 {kind}, {solver}",
        mine,
        "bytes",
        {"scikit-learn": theirs},
        note=f"{(mine - 4 * n) / 1e6:.1f} MB beyond 4 bytes a row (target 40)",
    )


FIRST = """
def load():
    return np.random.default_rng(0).standard_normal((50_000, 10))

def fit(X):
    VRGaussianMixture(
        10, covariance_type=sys.argv[1], n_init=1, max_iter=3, random_state=0
    ).fit(X)
"""


@group(["full", "diag"])
def first(run, kind):
    """Seconds of the first fit of a process."""
    imports = "import sklearn.mixture\nfrom skvrem import VRGaussianMixture"
    yield from first_fits(run, f"n=5e4 {kind}", imports, FIRST, (kind,))


IMPORT = """
import json, time
import sklearn, sklearn.mixture, sklearn.decomposition
began = time.perf_counter()
{what}
print(json.dumps(time.perf_counter() - began))
"""
#: The package alone, numba, which is most of what an estimator needs, and all names.
IMPORTED = {
    "package": ("import skvrem", 0.3),
    "numba": ("import numba", None),
    "mixture": ("from skvrem import VRGaussianMixture", None),
    "hmm": ("from skvrem import VRHMM", None),
    "all": ("from skvrem import *", None),
}


@group(IMPORTED)
def import_(run, what, target):
    """Seconds of imports after scikit-learn's own."""
    code = IMPORT.format(what=what)
    seconds = min(run_python(code) for _ in range(1 + 2 * run.repeats))
    yield Row(what, seconds, "s", target=target)
