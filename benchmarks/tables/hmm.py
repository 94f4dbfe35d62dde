"""Hidden Markov models beside hmmlearn.

The series are those of section 5 of Sidrow et al. (2024). hmmlearn has two
implementations, "scaling" and its default "log", always of one thread. A Baum-Welch
iteration starts from the same values on all sides, which make the same iterations to
rounding; whole fits stop where a row gains less than 1e-6.

Memory of a fit beyond X is the slope from n to 2 n rows, which a copy of X and 8 N
bytes a row account for; what is not by row are clusters for the start, and NumPy.
"""

import time
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.lib.format import open_memmap

from benchmarks.harness import Row, an_iteration, fastest, group
from benchmarks.harness.data import read
from benchmarks.harness.processes import first_fits, peak_memory
from benchmarks.problems import elk as tracks
from skvrem import VRHMM
from skvrem.hmm import Categorical, Covariates, Gaussian, Homogeneous
from skvrem.hmm.em_vrso._model import _SweptModel


def simulate(n, d, n_rows, seed=0, stay=0.999, variances=1.0):
    """Draw a series as in section 5 of Sidrow et al., and a start near it."""
    rng = np.random.default_rng(seed)
    means, spread = rng.normal(size=(n, d)), np.exp(-1.0) * np.sqrt(variances)
    jumps = np.append(True, rng.random(n_rows - 1) > stay)
    states = rng.integers(n, size=jumps.sum())[np.cumsum(jumps) - 1]
    X = means[states] + spread * rng.normal(size=(n_rows, d))
    start = X.mean(axis=0) + X.std(axis=0) * rng.normal(size=(n, d))
    return X, start


def begin(n, d, kind):
    """Return the transitions and covariances that both sides start from."""
    each = np.eye(d) if kind == "full" else np.ones(d)
    return np.full((n, n), 0.1 / n) + 0.9 * np.eye(n), np.array([each] * n)


def ours(n, kind, start, X, tol=0.0, lengths=None, threads=1, **params):
    """Return a function that fits with so many iterations."""
    transitions, covariances = begin(n, X.shape[1], kind)
    model = VRHMM(
        n,
        emission=Gaussian(kind, mean_init=start, covariance_init=covariances),
        transitions=Homogeneous(init=transitions),
        n_init=1,
        tol=tol,
        n_jobs=threads,
        **{"solver": "batch"} | params,
    )
    return lambda n_iter: model.set_params(max_iter=n_iter).fit(X, lengths=lengths)


def theirs(implementation, n, kind, start, X, tol=-np.inf, lengths=None):
    """Return the same of hmmlearn."""

    def fit(n_iter):
        from hmmlearn.hmm import GaussianHMM

        model = GaussianHMM(
            n,
            kind,
            n_iter=n_iter,
            tol=tol,
            init_params="",
            implementation=implementation,
            covars_prior=0.0,
            covars_weight=0.0,
        )
        model.startprob_ = np.full(n, 1.0 / n)
        model.transmat_, model.covars_ = begin(n, X.shape[1], kind)
        model.means_ = start
        return model.fit(X, lengths)

    return fit


def iteration_row(run, label, threads, n, kind, start, X, **data):
    few, many = (1, 3) if n == 20 else (2, 6)
    arguments = n, kind, start, X
    sides = {"ours": (ours(*arguments, threads=threads, **data), 5, 105)}
    others = {
        f"hmmlearn {name}": (theirs(name, *arguments, **data), few, many)
        for name in ("scaling", "log")
    }
    timed = an_iteration(sides | run.installed(others), run, threads)
    targets = TARGETS.get(label, (10.0, 25.0)) if threads == 1 else (15.0, 40.0)
    return timed.row(label, dict(zip(others, targets, strict=True)))


# Times as fast as hmmlearn's "scaling" and "log", one thread; 10 and 25 elsewhere.
TARGETS = {
    "N=3 d=3 diag": (25.0, 80.0),
    "N=5 d=3 diag": (22.0, 75.0),
    "N=6 d=6 diag": (23.0, 25.0),
    "N=6 d=6 full": (28.0, 25.0),
}
SHAPES = {
    f"N={n}-d={d}-{kind}": (n, d, kind)
    for n, d, kind in [
        (3, 3, "diag"),
        (3, 6, "diag"),
        (5, 3, "diag"),
        (6, 3, "diag"),
        (6, 6, "diag"),
        (6, 6, "full"),
        (20, 3, "diag"),
    ]
}


@group(SHAPES)
def iteration(run, n, d, kind):
    """Seconds of a Baum-Welch iteration, 100,000 rows."""
    X, start = simulate(n, d, run.size(100_000, 20_000))
    yield iteration_row(run, f"N={n} d={d} {kind}", 1, n, kind, start, X)


@group(SHAPES, asked=True)
def iteration_2(run, n, d, kind):
    """Seconds of a Baum-Welch iteration, 100,000 rows, two threads of ours."""
    X, start = simulate(n, d, run.size(100_000, 20_000))
    yield iteration_row(run, f"N={n} d={d} {kind}", 2, n, kind, start, X)


@group({f"stay={stay}": (stay,) for stay in (0.999, 0.9999, 0.99999)})
def forgetting(run, stay):
    """Seconds of a Baum-Welch iteration, 100,000 rows, variances a hundred times."""
    X, start = simulate(3, 3, run.size(100_000, 20_000), stay=stay, variances=100.0)
    timed = an_iteration({"ours": (ours(3, "diag", start, X), 5, 105)}, run)
    yield timed.row(f"N=3 d=3 diag, a state stays with {stay}", 1.3e-3)


@group({"N=3-d=3": (3, 3, 4.5e-3), "N=6-d=6": (6, 6, None)})
def long(run, n, d, most):
    """Seconds of a Baum-Welch iteration, 650,000 rows."""
    X, start = simulate(n, d, run.size(650_000, 50_000))
    one = an_iteration({"ours": (ours(n, "diag", start, X), 3, 103)}, run)
    yield one.row(f"N={n} d={d} diag", most)


@group({"N=3-d=3": (3, 3), "N=6-d=6": (6, 6)}, asked=True)
def threads(run, n, d):
    """Seconds of a Baum-Welch iteration, 650,000 rows, two threads beside one."""
    X, start = simulate(n, d, run.size(650_000, 50_000))
    sides = {
        f"{count} threads": (ours(n, "diag", start, X, threads=count), 3, 103)
        for count in (2, 1)
    }
    timed = an_iteration(sides, run, threads=2)
    yield timed.row(f"N={n} d={d} diag", {"1 threads": 1.7})


@group({"N=3-d=3": (3, 3)})
def default(run, n, d):
    """Seconds of a default fit, its starts included, 100,000 rows."""
    X, _ = simulate(n, d, run.size(100_000, 20_000))
    model = VRHMM(n, random_state=0, n_jobs=1)
    timed = fastest({"ours": lambda: model.fit(X)}, run)
    yield timed.row(f"N={n} d={d}", 0.09)


@group({"N=3-d=3": (3, 3)})
def mapped(run, n, d):
    """Seconds of a Baum-Welch iteration over a memory map of 10,000,000 rows."""
    n_rows = run.size(10_000_000, 200_000)
    X, start = simulate(n, d, min(n_rows, 1_000_000))
    with TemporaryDirectory() as folder:
        file = Path(folder, "X.npy")
        rows = open_memmap(file, "w+", float, (n_rows, d))
        for begin in range(0, n_rows, len(X)):
            rows[begin : begin + len(X)] = X
        del rows
        fit = ours(n, "diag", start, np.load(file, mmap_mode="r"))
        timed = an_iteration({"ours": (fit, 2, 6)}, run)
    yield timed.row(f"N={n} d={d} diag", 0.14)


@group()
def sequences(run):
    """Seconds of a Baum-Welch iteration, many sequences."""
    count = run.size(1000, 100)
    X, start = simulate(3, 3, 100 * count)
    label = f"{count} sequences of 100, N=3 d=3"
    yield iteration_row(run, label, 1, 3, "diag", start, X, lengths=[100] * count)


@group({f"codes={k}": (k,) for k in (4, 27, 500, 2000)})
def codes(run, k):
    """Seconds of a Baum-Welch iteration of categories, 50,000 rows, by their number."""
    rng, n_rows = np.random.default_rng(0), run.size(50_000, 10_000)
    X, start = rng.integers(0, k, (n_rows, 1)), rng.dirichlet(np.ones(k), 3)
    transitions = np.full((3, 3), 0.05) + 0.85 * np.eye(3)
    model = VRHMM(
        3,
        emission=Categorical(k, probability_init=start),
        transitions=Homogeneous(init=transitions),
        solver="batch",
        n_init=1,
        tol=0.0,
        n_jobs=1,
    )

    def other(implementation):
        def fit(n_iter):
            from hmmlearn.hmm import CategoricalHMM

            model = CategoricalHMM(
                3,
                n_features=k,
                n_iter=n_iter,
                tol=-np.inf,
                init_params="",
                implementation=implementation,
            )
            model.startprob_, model.transmat_ = np.full(3, 1.0 / 3.0), transitions
            model.emissionprob_ = start
            return model.fit(X)

        return fit

    sides = {"ours": (lambda n_iter: model.set_params(max_iter=n_iter).fit(X), 5, 105)}
    others = {f"hmmlearn {name}": (other(name), 5, 25) for name in ("scaling", "log")}
    timed = an_iteration(sides | run.installed(others), run, 1)
    yield timed.row(f"{k} codes", dict.fromkeys(others, 2.0))


@group({"N=3-d=3": (3, 3), "N=6-d=6": (6, 6)})
def fit(run, n, d):
    """Seconds of a whole fit to 1e-6 a row, 100,000 rows."""
    X, start = simulate(n, d, run.size(100_000, 20_000))
    arguments, tol = (n, "diag", start, X), 1e-6
    fits = {
        "ours": ours(*arguments, tol=tol),
        "SQUAREM": ours(*arguments, tol=tol, acceleration="squarem"),
    }
    others = {
        f"hmmlearn {name}": theirs(name, *arguments, tol=tol * len(X))
        for name in ("scaling", "log")
    }
    fits |= run.installed(others)
    ends = {}

    def end(name):
        ends[name] = fits[name](1000)

    timed = fastest({name: lambda name=name: end(name) for name in fits}, run)
    # hmmlearn's score is of all rows.
    values = {
        name: model.score(X) / (len(X) if name in others else 1)
        for name, model in ends.items()
    }
    lowest, highest = min(values.values()), max(values.values())
    yield timed.row(
        f"N={n} d={d} diag",
        dict(zip(others, (10.0, 25.0), strict=True)),
        note=f"ends within {highest - lowest:.0e} nats a row",
        numbers={"log-likelihood a row": values},
    )


MEMORY = """
n, d, n_rows, options = *map(int, sys.argv[1:4]), json.loads(sys.argv[4])
from skvrem import VRHMM

def make():
    return VRHMM(n, max_iter=5, tol=0.0, random_state=0, n_jobs=1, **options)

def draw(n_rows):
    return np.random.default_rng(0).standard_normal((n_rows, d))

def warm_up():
    make().fit(draw(20_000))

def load():
    return draw(n_rows)

def fit(X):
    make().fit(X)
"""


@group(
    {
        f"N={n}-d={d}-{solver}": (n, d, solver)
        for n, d in ((3, 3), (3, 6), (6, 6))
        for solver in ("auto", "batch", "incremental")
    }
)
def memory(run, n, d, solver):
    """Memory of a fit beyond X by row, from 1,000,000 rows to twice as many."""
    n_rows, options = run.size(1_000_000, 200_000), f'{{"solver": "{solver}"}}'
    few, many = (
        peak_memory(MEMORY, n, d, rows, options) for rows in (n_rows, 2 * n_rows)
    )
    each = (many - few) / n_rows
    yield Row(
        f"N={n} d={d} {solver}",
        each,
        "bytes a row",
        target=8 * n + 8 * d,
        note=f"{(few - each * n_rows) / 1e6:.0f} MB not by row",
        numbers={"few": few, "many": many},
    )


IMPORTS = """
import sklearn.mixture, sklearn.cluster
from skvrem import VRHMM
"""

FIRST = """
n, d = map(int, sys.argv[1:])

def load():
    return np.random.default_rng(0).standard_normal((20_000, d))

def fit(X):
    VRHMM(n, max_iter=3, random_state=0).fit(X)
"""


def overlapping(rng, n_rows, length):
    """Draw three states that overlap, two of them rare; two columns of noise beside."""
    matrix = np.array([[0.95, 0.04, 0.01], [0.2, 0.7, 0.1], [0.2, 0.1, 0.7]])
    states = [0]
    for row in range(1, n_rows):
        state = rng.integers(3) if row % length == 0 else None
        states.append(rng.choice(3, p=matrix[states[-1]]) if state is None else state)
    means = np.array([[0.0, 0, 0, 0], [2, 0, 0, 0], [0, 2, 0, 0]])
    return means[states] + rng.normal(size=(n_rows, 4))


SCALED = {
    "one-sequence": (3000, {}, "4 columns, 3 states"),
    "sequences-of-10": (10, {}, "in sequences of 10 rows"),
    "covariates": (3000, {"transitions": Covariates([2, 3])}, "with two covariates"),
    "blocks": (3000, {"batch_size": 100}, "by blocks of 100 rows"),
}


@group(SCALED)
def scaled(run, length, params, label):
    """Epochs of "svrg" to within 1e-5 nats a row of its end."""
    n_rows, plain = run.size(3000, 1000), "plain coordinates"
    settings = {"n_init": 1, "max_iter": 1000, "random_state": 0}
    epochs, seconds, ends = {}, {}, {}
    for seed in range(run.size(3, 1)):
        X = overlapping(np.random.default_rng(seed), n_rows, length)
        data = {"lengths": [length] * (n_rows // length)} if length < n_rows else {}
        kept = _SweptModel.scaled
        for name in ("ours", plain, "Baum-Welch"):
            more = {"solver": "svrg"} | params | settings
            if name == "Baum-Welch":
                del more["solver"]
                more.pop("batch_size", None)
                more |= {"acceleration": None}
            _SweptModel.scaled = name != plain
            began = time.process_time()
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    found = VRHMM(3, **more).fit(X, **data)
            finally:
                _SweptModel.scaled = kept
            seconds.setdefault(name, []).append(time.process_time() - began)
            gap = found.objective_ - np.array(found.history_["objective"])
            epochs.setdefault(name, []).append(int(np.argmax(gap < 1e-5)))
            ends.setdefault(name, []).append(found.objective_)
    best = np.max(list(ends.values()), axis=0)
    told = {name: np.median(values) for name, values in epochs.items()}
    left = {name: np.median(best - values) for name, values in ends.items()}
    took = {name: np.median(values) for name, values in seconds.items()}
    yield Row(
        f"{n_rows} rows, {label}",
        told.pop("ours"),
        "epochs",
        told,
        note="; ".join(
            f"{name} {took[name]:.2f} s, ends {left[name]:.0e} below the best"
            for name in took
        ),
        numbers={"epochs": epochs, "seconds": seconds, "objective": ends},
    )


@group()
def first(run):
    """Seconds of the first fit of a process."""
    yield from first_fits(run, "N=3 d=3", IMPORTS, FIRST, (3, 3), unseen=(7, 5))


@group(["diag", "full"])
def accelerometer(run, kind):
    """Seconds of a fit of seven states to one person's chest accelerometer."""
    file = read("chest_accelerometer")
    ends, person = np.cumsum(file["lengths"]), 2
    X = file["X"][ends[person - 1] : ends[person]].astype(float)[:: run.size(1, 10)]
    model = VRHMM(7, covariance_type=kind, random_state=0, n_jobs=1)
    model.fit(X[:2000])  # compile
    one = fastest({"ours": lambda: model.fit(X)}, run, warm_up=False)
    both = VRHMM(7, covariance_type=kind, random_state=0)
    two = fastest({"ours": lambda: both.fit(X)}, run, threads=2, warm_up=False)
    yield one.row(
        f"{len(X)} rows, {kind}, default starts",
        1.0,
        note=f"{two.seconds['ours']:.2f} s on two threads; {model.n_iter_} epochs of "
        f"the best start, {model.log_likelihood_:.4f} nats a row",
        numbers={"two threads": two.seconds["ours"]},
    )


@group()
def elk(run):
    """Four elk by moveHMM: how far its printed values and ours are apart."""
    X, ids = tracks.rows()
    of = {"groups": ids}

    def row(key, label, ours, theirs, most, **more):
        off = float(np.max(np.abs(np.subtract(ours, theirs))))
        return Row(label, off, "", target=most, key=key, **more)

    def total(key, label, hmm, published, n_parameters):
        found = float(hmm.score_samples(X, **of).sum())
        theirs = n_parameters - 0.5 * published["AIC"]
        note = f"{found:.5f}, printed {theirs:.4f}"
        label, numbers = f"log-likelihood, {label}", {"found": found}
        return row(key, label, found, theirs, 2.5e-4, note=note, numbers=numbers)

    given = tracks.printed(X, ids)
    yield total("printed", "two states as printed", given, tracks.TWO, 15)
    posteriors = given.predict_proba(X[ids == 0], lengths=[np.sum(ids == 0)])
    yield row(
        "posteriors",
        "state probabilities of six rows, as printed",
        posteriors[: len(tracks.TWO["posteriors"])],
        tracks.TWO["posteriors"],
        5e-7,
    )
    states = np.repeat(1 - np.arange(len(tracks.RUNS)) % 2, tracks.RUNS)
    yield Row(
        f"most likely states of {len(X)} rows, as printed",
        float(np.sum(given.predict(X, **of) != states)),
        "rows that differ",
        target=0.0,
        key="states",
    )
    fitted = tracks.model(tracks.TWO, max_iter=1000, tol=1e-13).fit(X, **of)
    yield total("fitted", "two states fitted", fitted, tracks.TWO, 15)
    ours, rates = tracks.working(fitted)
    theirs, errors = tracks.working(given)[0], tracks.standard_errors(ours, X, ids)
    yield row(
        "estimates",
        "estimates, in standard errors",
        ours / errors,
        theirs / errors,
        0.01,
        note=f"{len(ours)} parameters; a mass of 0 is left out",
    )
    with warnings.catch_warnings():
        # The mass at 0 of the second state is at its boundary.
        warnings.simplefilter("ignore", UserWarning)
        found = fitted.confidence_intervals(X, **of).standard_error
    yield row(
        "errors",
        "standard errors against those of a plain likelihood",
        tracks.errors_of(found) * rates / errors,
        1.0,
        0.01,
        note="as a share; of a Hessian by differences, as moveHMM's",
    )
    yield row(
        "errors-in-R",
        "standard errors against those of moveHMM in R",
        tracks.errors_of(found) * rates / tracks.ERRORS,
        1.0,
        0.005,
        note="as a share; of nlm's Hessian, at the optimum that is printed",
    )
    three = tracks.model(tracks.THREE, max_iter=5000, tol=1e-13).fit(X, **of)
    yield total("three", "three states from its start", three, tracks.THREE, 29)
