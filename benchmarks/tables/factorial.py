"""`FactorialMixture`: temperatures, and a pass against plain NumPy.

The fits of the first table have the same rows and seeds; a feature is a pixel of an
image.

Of the passes: both sides make the same sweeps over the codes, from the same codes, and
the same update of the components; that they come to the same is checked first. NumPy's
version is what one would write: the products by BLAS, one column of codes after the
other, entropies, the components' posterior. The two products with the components, which
are BLAS on both sides, are the floor of a pass.
"""

from functools import partial
from itertools import product
from statistics import median

import numpy as np

from benchmarks.harness import Row, allocated, fastest, group, quiet, timed
from benchmarks.problems import factors
from skvrem import FactorialMixture
from skvrem.data import as_source
from skvrem.factorial._model import FactorialModel
from skvrem.factorial._model_bound import Parameters
from skvrem.solvers import Batch

#: Rows, features, components.
SHAPES = {
    "1e5-256-32": (100_000, 256, 32),
    "1e6-16-8": (1_000_000, 16, 8),
    "2e3-8064-32": (2000, 8064, 32),
    "5e2-32256-32": (500, 32_256, 32),
}
DTYPES = "float64", "float32"


def problem(n, d, k, dtype):
    """Rows, and parameters near those that made them."""
    rng = np.random.default_rng(0)
    parts = rng.normal(size=(k, d)).astype(dtype)
    codes = (rng.uniform(size=(n, k)) < 0.3).astype(dtype)
    X = codes @ parts
    X += rng.standard_normal(X.shape, dtype)
    near = parts + 0.1 * rng.normal(size=parts.shape)
    return X, Parameters(near, None, np.full(k, 0.3), 1.0, 1.0)


def numpy_pass(X, parameters, nu, n_sweeps):
    """One pass: codes, statistics, entropies, posterior of the components."""
    means, covariance, activation, noise, spread = parameters
    d, dtype = X.shape[1], X.dtype
    means = means.astype(dtype)
    gram = means @ means.T + dtype.type(d) * covariance.astype(dtype)
    scores = X @ means.T
    logit = np.log(activation / (1.0 - activation)).astype(dtype)
    for _ in range(n_sweeps):
        for k in range(len(means)):
            others = nu @ gram[:, k] - nu[:, k] * gram[k, k]
            field = logit[k] + (scores[:, k] - others - gram[k, k] / 2) / dtype.type(
                noise
            )
            nu[:, k] = 1.0 / (1.0 + np.exp(-field))
    second = nu.T @ nu
    np.fill_diagonal(second, nu.sum(axis=0))
    cross = nu.T @ X
    inside = np.clip(nu, 1e-7, 1.0 - 1e-7)
    entropy = -np.sum(inside * np.log(inside) + (1 - inside) * np.log1p(-inside))
    precision = np.eye(len(means)) / spread + second / noise
    covariance = np.linalg.inv(precision)
    new = parameters._replace(means=covariance @ cross / noise, covariance=covariance)
    return new, entropy, np.square(X).sum()


PLAIN = "tempering=None"
TEMPERINGS = {
    "ours": {},
    PLAIN: {"tempering": None},
    "temperature=3.3": {"temperature": 3.3},
    "temperature=20": {"temperature": 20.0},
}


@group(list(factors.PROBLEMS))
def temperatures(run, key):
    """Bounds of the default and of given temperatures, means of seeds, a feature."""
    found = {name: [] for name in TEMPERINGS}
    for seed in range(run.size(2 * run.seeds, 1)):
        X, held_out, k = factors.split(key, seed)
        for name, given in TEMPERINGS.items():
            fit = FactorialMixture(k, random_state=seed, n_jobs=1, **given)
            with quiet():
                seconds, _ = timed(partial(fit.fit, X))
            bounds = np.array([fit.objective_, fit.score(held_out)]) / X.shape[1]
            found[name].append([*bounds, seconds])
    found = {name: np.array(values) for name, values in found.items()}
    gains = found["ours"] - found[PLAIN]
    spent = found["ours"][:, 2].sum() / found[PLAIN][:, 2].sum()
    for column, what in enumerate(("training", "held out")):
        means = {name: float(v[:, column].mean()) for name, v in found.items()}
        low, high = gains[:, column].min(), gains[:, column].max()
        yield Row(
            f"{key}, {what}",
            means.pop("ours"),
            "nats",
            means,
            {PLAIN: -0.005},
            f"{low:+.4f} to {high:+.4f} of {PLAIN} in {spent:.1f} of its time",
            key=what,
            numbers={name: v[:, column].tolist() for name, v in found.items()},
        )


@group(list(factors.PROBLEMS))
def start(run, key):
    """Temperature that annealing starts at, medians of seeds."""
    found = []
    for seed in range(run.seeds):
        X, _, k = factors.split(key, seed)
        short = {"n_init": 1, "max_iter": 2, "annealing_iter": 1}
        fit = FactorialMixture(k, random_state=seed, n_jobs=1, **short)
        with quiet():
            found.append(float(fit.fit(X).history_["temperature"][0]))
    note = f"{min(found):.1f} to {max(found):.1f}"
    label = f"{key}, {X.shape[1]} columns"
    yield Row(label, median(found), "", note=note, numbers={"by seed": found})


@group(product(SHAPES, DTYPES, (1, 5)))
def pass_(run, shape, dtype, n_sweeps):
    """Seconds of a pass, one thread."""
    n, d, k = SHAPES[shape]
    n = n // run.size(1, 10)
    X, start = problem(n, d, k, dtype)
    learn = (False,) * 3
    model = FactorialModel(n, X.dtype, learn=learn, inner_iter=n_sweeps, inner_tol=0.0)
    data, batch = as_source(X), Batch()
    first = model.start(start, data)
    batch.start(model, data, None)
    nu = np.full((n, k), first.codes[0, 0] / 65535.0, dtype)
    at = {"ours": first, "NumPy": first.parameters}

    def ours():
        anchor = batch.certify(at["ours"], 1.0)
        point = model.update(at["ours"], anchor.mean, None, 1.0)
        at["ours"] = model.recentre(point)

    def plain():
        at["NumPy"], *_ = numpy_pass(X, at["NumPy"], nu, n_sweeps)

    with quiet():
        ours(), plain()
    gap = float(np.abs(at["ours"].parameters.means - at["NumPy"].means).max())
    timed = fastest({"ours": ours, "NumPy": plain}, run, warm_up=False)
    sweeps = f"{n_sweeps} sweep{'s' * (n_sweeps > 1)}"
    yield timed.row(
        f"{n} x {d} x {k}, {dtype}, {sweeps}",
        note=f"components differ by {gap:.0e}",
        numbers={"gap": gap},
    )


@group(product(SHAPES, DTYPES))
def memory(run, shape, dtype):
    """Peak that a fit allocates beside X."""
    n, d, k = SHAPES[shape]
    n = n // run.size(1, 10)
    X, _ = problem(n, d, k, dtype)
    mixture = FactorialMixture(k, max_iter=2, annealing_iter=1, tol=0.0, n_jobs=1)
    allocated(lambda: mixture.fit(X[: 2 * k]))
    yield Row(
        f"{n} x {d} x {k}, {dtype}",
        allocated(lambda: mixture.fit(X)),
        "bytes",
        note=f"X {X.nbytes / 1e6:.0f} MB, a copy of ν "
        f"{n * k * X.dtype.itemsize / 1e6:.1f} MB",
    )
