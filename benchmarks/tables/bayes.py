"""Bayesian classification beside NumPyro and PyMC.

Mean-field posteriors, prior N(0, 1), no intercept, standardised columns. Gaps are in
nats to the bound of a fit by full passes, evaluated by quadrature for every side.

- Iterations: batches of 5 rows, SGD, the best of six steps, medians of starts from
  N(0, I), counted by epochs; every row has draws of its own, with all estimators.
- Seconds to a gap: compilation excluded on both sides; of NumPyro the best of its Adam
  steps, of ours the least over repetitions until the history is within the gap, input
  checks included. Wall clock, so that both sides' threads are to be limited: ours has
  ``n_jobs=1``, and XLA's are those of the environment.
- Groups: a default fit of coefficients by group, three classes, no intercept, beside
  the mean field of the same class; CPU time of one thread, the draws included.
- Varying: default fits with intercepts and a slope by group, checks, sorting and the
  posterior of all groups included; CPU time of one thread.
- Streams: accuracy of ten batches (forty of the simulated rows) below that of a fit to
  all rows, and how far the coefficients are from its, in its standard deviations.
- Nodes: fits of several classes, CPU seconds of one thread; how far the bound is above
  that of 200 fresh draws from the posterior, beside what the fit says its nodes err
  by.
- First answers: a new process, imports and compilation included, our kernels cached.
"""

import time
import warnings

import numpy as np
from scipy.special import logsumexp
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.preprocessing import StandardScaler

from benchmarks.harness import Row, group, quiet, timed
from benchmarks.harness.processes import FIRST_FIT, peak_memory, run_python
from benchmarks.peers import numpyro as peer
from benchmarks.problems.posteriors import load, simulate
from skvrem import (
    BayesianGLMRegressor,
    BayesianLogisticRegression,
    HierarchicalSoftmaxClassifier,
    schedules,
    solvers,
)
from skvrem.data import as_source
from skvrem.exceptions import StalledWarning
from skvrem.solvers._protocols import Anchor
from skvrem.vi.gaussian._model import Diagonal, GaussianModel, Point
from skvrem.vi.gaussian._model_families import Logistic, Softmax
from skvrem.vi.gaussian._model_posterior import MeanField
from skvrem.vi.gaussian._model_steps import SteppingModel

DATASETS = {"iris": load_iris, "wine": load_wine, "cancer": load_breast_cancer}
STREAMS = (*DATASETS, "simulated 2", "simulated 4")
STEPS = (5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3)
ESTIMATORS = {
    "naive": ("stochastic", None, True),
    "cv": ("stochastic", "taylor", False),
    "joint (paper)": ("svrg", "taylor", False),
    "joint + scales": ("svrg", "taylor", True),
    "joint + scales, saga": ("saga", "taylor", True),
    "quadrature": ("svrg", "quadrature", True),
}


class Problem:
    """Rows, and the exact bound of any mean-field posterior of theirs."""

    def __init__(self, X, y, k=1):
        self.X, self.y, self.k = X, y, k
        family = Softmax(k, len(X)) if k > 1 else Logistic()
        y = y.astype(np.int32) if k > 1 else y.astype(float)
        self.shape = X.shape[1], k
        n = X.shape[1] * k
        prior = MeanField(np.zeros(n), np.ones(n))
        self.data = as_source(X)
        self.model = GaussianModel(family, y, prior, float(len(X)), False, "diagonal")

    def point(self, mean, log_scale):
        mean, log_scale = (part.reshape(self.shape) for part in (mean, log_scale))
        return Point(Diagonal(mean, log_scale, np.zeros((*self.shape, 0))))

    def bound(self, point):
        solver = solvers.Batch()
        solver.start(self.model, self.data, None)
        return solver.certify(point, 1.0).objective

    def fit(self, **params):
        options = {"posterior": "meanfield", "fit_intercept": False, "n_jobs": 1}
        options |= {"prior_scale": 1.0}
        model = BayesianLogisticRegression(random_state=0, **options | params)
        with quiet():
            return model.fit(self.X, self.y)

    def best(self):
        more = {"solver": "batch", "max_iter": 200} if self.k > 1 else {}
        return self.fit(tol=1e-6, **more).elbo_

    def sweeps(self, name):
        """Return the solver of an estimator's steps by batches of 5 rows."""
        kind, *control = ESTIMATORS[name]
        steps = SteppingModel(self.model, self.data, kind, *control, "sgd", 5, 1)
        solver = solvers.Sweeps(kind)
        solver.start(steps, self.data, None)
        return solver


def swept(solver, point, rng, size):
    """Where an epoch of steps leads to."""
    begin = Anchor(None, np.nan, 0.0, point)
    return solver.sweep(begin, schedules.Constant(size), rng).point


def epochs_to(problem, name, size, seed, best, most):
    """Return epochs of steps of a size until the gap is 1 nat; infinite if never."""
    rng = np.random.default_rng(seed)
    solver = problem.sweeps(name)
    mean = rng.standard_normal(problem.shape)
    point = problem.point(mean, np.zeros(problem.shape))
    with np.errstate(all="ignore"):
        for epoch in range(1, most + 1):
            point = swept(solver, point, rng, size)
            gap = best - problem.bound(point)
            if gap <= 1.0:
                return epoch
            if not np.isfinite(gap):
                break
    return np.inf


@group(["australian", "sonar"])
def iterations(run, name):
    """Iterations to a gap of 1 nat, batches of 5 rows."""
    problem = Problem(*load(name))
    best, most = problem.best(), run.size(290, 40)
    counts = {}
    for estimator in ESTIMATORS:
        medians = [
            np.median(
                [
                    epochs_to(problem, estimator, size, seed, best, most)
                    for seed in range(run.seeds)
                ]
            )
            for size in STEPS
        ]
        counts[estimator] = float(min(medians)) * -(-problem.data.n_units // 5)
    naive, targets = counts.pop("naive"), {}
    if name == "australian":
        targets = {"joint + scales": 8.0, "quadrature": 9.0}
    for estimator, value in counts.items():
        yield Row(
            f"{name}, {estimator}",
            value,
            "",
            {"naive": naive},
            targets.get(estimator),
            key=estimator,
        )


@group()
def cost(run):
    """Seconds of a step, Australian, batches of 5, draws and anchors included."""
    problem = Problem(*load("australian"))
    rng, sides = np.random.default_rng(0), {}
    for name in ESTIMATORS:
        zeros = np.zeros(problem.shape)
        sides[name] = problem.sweeps(name), problem.point(zeros, zeros - 1.0)
        swept(*sides[name], rng, 1e-4)
    times = {name: [] for name in sides}
    for _ in range(40 * run.repeats):
        for name, side in sides.items():
            began = time.process_time()
            swept(*side, rng, 1e-4)
            times[name].append((time.process_time() - began) / 138)
    found = {name: min(seconds) for name, seconds in times.items()}
    naive = found.pop("naive")
    for name, seconds in found.items():
        target = 1 / 1.5 if name == "joint + scales" else None
        yield Row(name, seconds, "s", {"naive": naive}, target, key=name)


def time_to(problem, params, gap, best, repeats):
    """Return the least seconds after which the history of a fit is within a gap."""
    found = []
    for _ in range(repeats):
        history = problem.fit(**params).history_
        reached = best - history["objective"] <= gap
        found.append(history["seconds"][reached.argmax()] if reached.any() else np.inf)
    return float(min(found))


def numpyro_time(run, problem, gap, best, sizes, batch_size, n_steps, every):
    """Return the least seconds to a gap over step sizes, and the longest run."""
    least, longest = np.inf, 0.0
    model = peer.regression(problem.X, problem.y, problem.k, batch_size)
    for size in sizes:
        for _, seconds, mean, scale in peer.steps(model, size, n_steps, every):
            reached = best - problem.bound(problem.point(mean, np.log(scale)))
            if reached <= gap:
                least = min(least, seconds)
                break
        longest = max(longest, seconds)
        run.log(f"NumPyro, B={batch_size}, step {size}: {seconds:.3f} s, {reached:.3g}")
    return least, longest


def beside_numpyro(run, problem, label, gap, target, ours, small, full):
    best, repeats = problem.best(), run.repeats
    times = {}
    for name, params in ours.items():
        problem.fit(**params)  # compiles
        times[name] = time_to(problem, params, gap, best, repeats)
    value, peers, notes = min(times.values()), {}, []
    if run.installed({"numpyro": None}):
        for name, options in (("small batches", small), ("all rows", full)):
            least, longest = numpyro_time(run, problem, gap, best, **options)
            # Where it is never reached at least the longest run.
            peers[f"NumPyro, {name}"] = min(least, longest)
            if np.isinf(least):
                notes.append(f"NumPyro's {name} do not get there")
    notes += [f"{name} {1e3 * seconds:.3g} ms" for name, seconds in times.items()]
    wanted = {"NumPyro, small batches": target, "NumPyro, all rows": 1.0}
    yield Row(
        f"{label}, gap {gap:g}", value, "s", peers, wanted, ", ".join(notes),
        numbers=times,
    )  # fmt: skip


@group()
def australian(run):
    """Seconds to a gap, 690 x 14, two classes."""
    problem = Problem(*load("australian"))
    ours = {"full passes": {"tol": 0.1}, "svrg": {"solver": "svrg", "tol": 0.1}}
    n_steps = run.size(40_000, 5000)
    small = {"sizes": (0.005, 0.01, 0.05), "batch_size": 5}
    full = {"sizes": (0.05, 0.1), "batch_size": len(problem.X)}
    small |= {"n_steps": n_steps, "every": 500}
    full |= {"n_steps": 4000, "every": 50}
    yield from beside_numpyro(run, problem, "Australian", 1.0, 50.0, ours, small, full)


@group()
def softmax(run):
    """Seconds to a gap, 60,000 x 50, ten classes."""
    n = run.size(60_000, 6000)
    problem, few = Problem(*simulate(n), 10), {"max_iter": 8, "tol": 1.0}
    ours = {"L-BFGS": few, "svrg": {"solver": "svrg", **few}}
    small = {"sizes": (0.001, 0.002, 0.005, 0.02), "batch_size": 100}
    small |= {"n_steps": run.size(20_000, 4000), "every": 200}
    full = {"sizes": (0.05, 0.1), "batch_size": n, "n_steps": 200, "every": 10}
    yield from beside_numpyro(run, problem, "softmax", 1e3, 10.0, ours, small, full)


@group()
def pymc(run):
    """Seconds to a gap beside PyMC's ADVI, 690 x 14, two classes."""
    import pymc as pm

    problem = Problem(*load("australian"))
    X, y, best = problem.X, problem.y, problem.best()
    with pm.Model():
        b = pm.Normal("b", 0.0, 1.0, shape=X.shape[1])
        pm.Bernoulli("y", logit_p=X @ b, observed=y)
        began = time.perf_counter()
        advi = pm.ADVI()
        advi.fit(1, progressbar=False)
        compiled = time.perf_counter() - began
        gap, seconds = np.inf, 0.0
        while gap > 1.0 and seconds < run.size(60.0, 5.0):
            began = time.perf_counter()
            advi.fit(500, progressbar=False)
            seconds += time.perf_counter() - began
            mean, scale = advi.approx.mean.eval(), advi.approx.std.eval()
            gap = best - problem.bound(problem.point(mean, np.log(scale)))
    ours = time_to(problem, {"tol": 0.1}, 1.0, best, run.repeats)
    note = f"gap {gap:.3g} after {seconds:.3g} s, {compiled:.3g} s to compile"
    peers = {"PyMC ADVI, all rows": seconds}
    yield Row("Australian, gap 1", ours, "s", peers, 1.0, note)


MNIST = """
from benchmarks.problems import posteriors
from skvrem import BayesianLogisticRegression

def load():
    return posteriors.load("mnist")

def warm_up():
    fit(tuple(part[:500] for part in load()), 3)

def fit(data, max_iter=60):
    BayesianLogisticRegression(
        1.0, posterior="meanfield", fit_intercept=False, max_iter=max_iter, tol=10.0
    ).fit(*data)
"""


@group()
def mnist(run):
    """Seconds until the bound is -2.5e4, 60,000 x 784, ten classes, float32."""
    X, y = load("mnist")
    problem = Problem(X[:: run.size(1, 12)], y[:: run.size(1, 12)], 10)
    model = problem.fit(max_iter=60, tol=10.0, n_jobs=None)
    history = model.history_
    reached = history["objective"] > -2.5e4
    first = history["seconds"][reached.argmax()] if reached.any() else np.inf
    memory = 0 if run.quick else peak_memory(MNIST)
    note = f"{model.elbo_:.0f} after {model.n_iter_} epochs, "
    note += f"{history['seconds'][-1]:.0f} s; {memory / 1e6:.0f} MB beyond X"
    numbers = {key: list(values) for key, values in history.items()}
    yield Row("MNIST", float(first), "s", {}, 120.0, note, numbers=numbers)


def by_draws(model, X, y, prior, n_draws=200):
    """Return the bound by draws from the posterior, no intercept, and its error."""
    found, rows = [], np.arange(len(y))
    for w in model.posterior_.sample(n_draws, random_state=0):
        z = X @ w.reshape(-1, X.shape[1]).T
        found.append(np.sum(z[rows, y] - logsumexp(z, axis=1)))
    kl = model.posterior_.kl(prior)
    return np.mean(found) - kl, np.std(found, ddof=1) / np.sqrt(n_draws)


NODES = {
    "iris": ("iris", "fullrank", None),
    "digits": ("digits", "fullrank", None),
    "MNIST": ("mnist", "meanfield", 10_000),
}


@group(NODES)
def nodes(run, name, posterior, n):
    """Fits of several classes: seconds, and nats that nodes flatter a bound by."""
    if name == "digits":
        X, y = StandardScaler().fit_transform(load_digits().data), load_digits().target
    elif name == "iris":
        X, y = StandardScaler().fit_transform(load_iris().data), load_iris().target
    else:
        X, y = load(name)
    X, y = X[:n].astype(float), y[:n]
    if run.quick:
        X, y = X[:: max(1, len(X) // 150)], y[:: max(1, len(X) // 150)]
    model = BayesianLogisticRegression(
        1.0, posterior=posterior, fit_intercept=False, n_jobs=1, random_state=0
    )
    with quiet():
        fit_iris = BayesianLogisticRegression(posterior=posterior, n_jobs=1).fit
        fit_iris(load_iris().data, load_iris().target)  # compiled
        seconds, _ = timed(lambda: model.fit(X, y))
    prior = MeanField(np.zeros(model.posterior_.n_dim), np.ones(model.posterior_.n_dim))
    bound, error = by_draws(model, X, y, prior)
    note = (
        f"{len(X)} x {X.shape[1]}, {posterior}: bound {model.elbo_:.0f}, "
        f"{model.elbo_ - bound:+.1f} +- {error:.1f} above draws', nodes err by "
        f"{model.elbo_error_:.2g}; {model.n_iter_} epochs, "
        f"{model.history_['passes'][-1]:.0f} passes"
    )
    yield Row(name, seconds, "s", {}, None, note)


FIRST = """
from benchmarks.peers import numpyro as peer
from benchmarks.problems import posteriors

name, n_steps, size = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
k = 1 if name == "australian" else 10

def load():
    return posteriors.load(name) if k == 1 else posteriors.simulate(60_000)
"""

OURS = """
def fit(data):
    tol, max_iter = (0.1, 100) if k == 1 else (1.0, 8)
    BayesianLogisticRegression(
        1.0, posterior="meanfield", fit_intercept=False, tol=tol, max_iter=max_iter
    ).fit(*data)
"""

THEIRS = """
def fit(data):
    model = peer.regression(*data, k, len(data[0]))
    for _ in peer.steps(model, size, n_steps, n_steps, warm_up=False):
        pass
"""


@group([(name, order) for name in STREAMS for order in ("shuffled", "sorted")])
def streams(run, name, order):
    """Accuracy of streams below that of fits to all rows, by the order of rows."""
    if name in DATASETS:
        X, y = DATASETS[name](return_X_y=True)
        X, n_batches = StandardScaler().fit_transform(X), 10
    else:
        rng, k, n_batches = np.random.default_rng(0), int(name.split()[1]), 40
        X = rng.normal(size=(20_000, 10))
        z = X @ rng.normal(size=(10, k))
        y = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    numbers = np.argsort(y, kind="stable")
    if order == "shuffled":
        numbers = np.random.default_rng(0).permutation(len(y))
    with quiet():
        warnings.simplefilter("ignore", StalledWarning)
        whole = BayesianLogisticRegression(1.0, n_jobs=1).fit(X, y)
        stream = BayesianLogisticRegression(1.0, n_jobs=1)
        for batch in np.array_split(numbers, n_batches):
            stream.partial_fit(X[batch], y[batch], classes=np.unique(y))
    far = np.abs(stream.coef_ - whole.coef_) / whole.coef_std_
    note = f"of {whole.score(X, y):.4f}; means {np.median(far):.2f} standard deviations"
    note += f" away in the median, {far.max():.2f} at most"
    lost = whole.score(X, y) - stream.score(X, y)
    yield Row(f"{name}, {order}", lost, "", {}, 0.01, note)


@group(
    [("12", "10", "2"), ("50", "10", "2"), ("1000", "20", "2"), ("1000", "20", "10")]
)
def groups(run, n_groups, each, d):
    """Default fits of coefficients by group: groups, rows a group, features."""
    n_groups, each, d, k = int(n_groups), int(each), int(d), 3
    rng = np.random.default_rng(0)
    mean, log_tau = rng.normal(size=(2, d, k))
    Z = mean + np.exp(log_tau) * rng.normal(size=(n_groups, d, k))
    place = np.repeat(np.arange(n_groups), each)
    X = rng.normal(size=(n_groups * each, d))
    z = np.einsum("nj,njk->nk", X, Z[place])
    y = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    found = {}
    for posterior in ("nested", "meanfield"):
        model = HierarchicalSoftmaxClassifier(
            prior_scale=1.0, posterior=posterior, fit_intercept=False, n_jobs=1
        )
        seconds = []
        with quiet():
            for _ in range(1 + run.repeats):  # the first may compile
                began = time.process_time()
                model.fit(X, y, groups=place)
                seconds.append(time.process_time() - began)
        found[posterior] = min(seconds[1:]), model.n_iter_
    (seconds, steps), (other, others) = found.values()
    yield Row(
        f"{n_groups} groups of {each} rows, {d} features",
        seconds,
        "s",
        {"mean field": other},
        None,
        f"{steps} steps, mean field {others}",
    )


@group(["logistic", "gaussian", "poisson"])
def varying(run, family):
    """Intercepts and a slope of 30,000 groups, 3 million rows, four features."""
    n, n_groups = run.size(3_000_000, 30_000), run.size(30_000, 300)
    rng = np.random.default_rng(0)
    place, X = rng.integers(n_groups, size=n), rng.normal(size=(n, 4))
    own = np.array([1.0, 0.5]) * rng.normal(size=(n_groups, 2))
    eta = X @ [1.0, -1.0, 0.5, 0.0] + 0.3 + own[place, 0] + own[place, 1] * X[:, 0]
    eta *= 0.5
    how = {"varying": [0], "n_jobs": 1}
    if family == "logistic":
        y = (rng.random(n) < 1.0 / (1.0 + np.exp(-eta))).astype(int)
        model = BayesianLogisticRegression(**how)
    elif family == "poisson":
        y, model = rng.poisson(np.exp(eta)), BayesianGLMRegressor("poisson", **how)
    else:
        y, model = eta + rng.normal(size=n), BayesianGLMRegressor(**how)
    few = place < 10  # compiles
    with quiet():
        model.fit(X[few], y[few], groups=place[few])
        began = time.process_time()
        model.fit(X, y, groups=place)
        seconds = time.process_time() - began
    gap = abs(float(model.population_scale_[0]) - 0.25)
    note = f"{model.history_['passes'][-1]:.1f} passes; scale of slopes {gap:.4f} off"
    yield Row(f"{family}, 3e6 rows of 30,000 groups", seconds, "s", {}, None, note)


@group({"australian": ("australian", 1.0), "softmax": ("softmax", 1000.0)})
def first(run, name, gap):
    """Seconds to a first answer in a new process, imports and compilation included."""
    two = name == "australian"
    problem = Problem(*load(name)) if two else Problem(*simulate(60_000), 10)
    best, size = problem.best(), 0.1
    model = peer.regression(problem.X, problem.y, problem.k, len(problem.X))
    n_steps = 0
    for made, _, mean, scale in peer.steps(model, size, 4000, 10):
        n_steps = made
        if best - problem.bound(problem.point(mean, np.log(scale))) <= gap:
            break
    sides = {
        "ours": ("from skvrem import BayesianLogisticRegression", OURS),
        "theirs": ("import jax, numpyro", THEIRS),
    }
    seconds = {side: [] for side in sides}
    for _ in range(run.repeats):
        for side, (imports, fit) in sides.items():
            code = FIRST_FIT.format(imports=imports, problem=FIRST + fit)
            found = run_python(code, name, str(n_steps), str(size))
            seconds[side].append(found["process"])
    peers = {"NumPyro, all rows": min(seconds["theirs"])}
    note = f"{n_steps} steps of NumPyro"
    yield Row(f"{name}, gap {gap:g}", min(seconds["ours"]), "s", peers, 1.0, note)
