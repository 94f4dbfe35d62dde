"""EM-VRSO row by row: how far ten passes come, and what one costs.

Stochastic M steps with partial E steps (SVRG), as Sidrow et al. (2024) count passes,
beside the same over blocks of 128 rows, which all models but diagonal Gaussians had
before kernels of single rows knew them, and beside Baum-Welch. All sides begin where a
default fit would draw its start from random rows; the mean over starts counts. Series
are simulated like an electrocardiogram: five states in turn that stay with probability
.98, with several kinds of values; segments are of two kinds with three phases.
"""

from functools import partial

import numpy as np

from benchmarks.harness import Row, an_iteration, group, quiet
from skvrem import VRHMM, hmm

N, STAY = 5, 0.98
SIDES = {
    "rows": {"solver": "svrg", "batch_size": 1},
    "rows, SAGA": {"solver": "saga", "batch_size": 1},
    "rows, full E steps": {"solver": "svrg", "batch_size": 1, "partial_e_step": False},
    "blocks of 128": {"solver": "svrg", "batch_size": 128},
    "Baum-Welch": {"solver": "batch"},
}


def waves(n_rows, rng):
    """States that follow each other in turn."""
    return np.cumsum(rng.random(n_rows) > STAY) % N


def reals(n_rows, rng, d=3):
    levels = rng.normal(size=(N, d))
    mixing = np.eye(d) + 0.5 * rng.normal(size=(d, d))
    noise = np.exp(-1.0) * rng.normal(size=(n_rows, d)) @ mixing
    return levels[waves(n_rows, rng)] + noise


def counts(n_rows, rng):
    rates = np.exp(rng.normal(1.0, 0.7, (N, 3)))
    return rng.poisson(rates[waves(n_rows, rng)])


def codes(n_rows, rng):
    edges = np.cumsum(rng.dirichlet(np.full(8, 0.5), N), axis=1)
    return (rng.random((n_rows, 1)) > edges[waves(n_rows, rng)][:, :-1]).sum(1)[:, None]


def tracks(n_rows, rng):
    states = waves(n_rows, rng)
    steps = rng.gamma(4.0, np.exp(rng.normal(size=N))[states])
    turns = rng.vonmises(0.0, np.array([0.5, 8.0, 2.0, 20.0, 4.0])[states])
    return np.column_stack([steps, turns])


def covariates(n_rows, rng):
    z, u, states = rng.normal(size=n_rows), rng.random(n_rows), [0]
    leave = 1.0 / (1.0 + np.exp(4.0 - 1.5 * z))
    for t in range(1, n_rows):
        states.append((states[-1] + (u[t] < leave[t - 1])) % N)
    levels = rng.normal(size=(N, 3))
    X = levels[states] + np.exp(-1.0) * rng.normal(size=(n_rows, 3))
    return np.column_stack([X, z])


def segments(n_rows, rng):
    kinds = np.repeat(rng.integers(2, size=n_rows // 24 + 1), 24)[:n_rows]
    phases = np.tile(np.repeat([1.0, 0.0, -1.0], 8), n_rows // 24 + 1)[:n_rows]
    ends = np.arange(n_rows) % 24 == 23
    return np.column_stack([(1 + 2 * kinds) * phases + rng.normal(size=n_rows), ends])


TRACK = [("step", hmm.Gamma(), [0]), ("turn", hmm.VonMises(), [1])]
DIVE = [("change", hmm.Gaussian(), [0]), ("end", hmm.Bernoulli(), [1])]
#: Rows, parameters of the model, and states.
MODELS = {
    "diagonal Gaussians": (reals, {"emission": hmm.Gaussian()}, N),
    "full Gaussians": (reals, {"emission": hmm.Gaussian("full")}, N),
    "mixtures of 2": (reals, {"emission": hmm.MixtureGaussian(2)}, N),
    "counts": (counts, {"emission": hmm.Poisson()}, N),
    "codes": (codes, {"emission": hmm.Categorical()}, N),
    "steps and turns": (tracks, {"emission": hmm.Product(TRACK)}, N),
    "covariates": (covariates, {"transitions": hmm.Covariates([3])}, N),
    "segments": (
        segments,
        {
            "emission": hmm.Product(DIVE),
            "transitions": hmm.Hierarchical(
                2, 3, 1, upper_triangular=True, observed=True
            ),
        },
        6,
    ),
}


#: Of an iteration.
PASSES = {"rows": 3.0, "blocks of 128": 3.0, "Baum-Welch": 1.0}


def start(name, side, n_rows, seed):
    """Return a model that begins somewhere, and its series."""
    make, options, n = MODELS[name]
    X = np.asarray(make(n_rows, np.random.default_rng(0)), float)
    options = {"init_params": "random", "random_state": seed, **options, **SIDES[side]}
    return VRHMM(n, n_init=1, tol=0.0, n_jobs=1, **options), X


def fit(model, X, n_iter):
    """Fit with so many iterations."""
    return model.set_params(max_iter=n_iter).fit(X)


CASES = {name: (name,) for name in MODELS}


@group(CASES)
def ten_passes(run, name):
    """Log-likelihood a row after at most ten passes."""
    ends = {}
    for side in SIDES:
        found = []
        for seed in range(run.size(8, 1)):
            model, X = start(name, side, run.size(20_000, 600), seed)
            with quiet():
                history = model.set_params(max_iter=10).fit(X).history_
            found.append(history["objective"][history["passes"] < 10.5][-1])
        ends[side] = float(np.mean(found))
    value = ends.pop("rows")
    yield Row(name, value, "nats", ends, {"blocks of 128": 0.0})


@group(CASES)
def a_pass(run, name):
    """Seconds of a pass over 20,000 rows."""
    sides = {}
    for side in PASSES:
        model, X = start(name, side, run.size(20_000, 600), 0)
        sides[side] = partial(fit, model, X), 1, 4
    found = an_iteration(sides, run)
    seconds = {side: found.seconds[side] / each for side, each in PASSES.items()}
    value = seconds.pop("rows")
    yield Row(name, value, "s", seconds, {"blocks of 128": 1.0}, noise=found.noise)
