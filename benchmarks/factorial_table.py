"""A pass of FactorialMixture against plain NumPy: seconds, memory beside X.

    python benchmarks/factorial_table.py
    python benchmarks/factorial_table.py --quick

Both sides make the same sweeps over the codes, from the same codes, and the same update
of the components; that they come to the same is checked first. NumPy's version is what
one would write: the products by BLAS, one column of codes after the other. One thread
of everything, CPU seconds, fits of both sides in turn, the fastest counts.
"""

import argparse
import time
import tracemalloc
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from skvrem import FactorialMixture
from skvrem.data import as_source
from skvrem.factorial._model import FactorialModel
from skvrem.factorial._model_bound import Parameters
from skvrem.solvers import Batch

SHAPES = [(100_000, 256, 32), (1_000_000, 16, 8), (2000, 8064, 32), (500, 32_256, 32)]
QUICK = [(10_000, 256, 32)]


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


def measure(n, d, k, dtype, n_sweeps, repeats):
    """CPU seconds of a pass of each side, and how far their components differ."""
    X, start = problem(n, d, k, dtype)
    model = FactorialModel(
        n, dtype, learn=(False,) * 3, inner_iter=n_sweeps, inner_tol=0.0
    )
    first = model.start(start, n)
    batch = Batch()
    batch.start(model, as_source(X), None)

    def ours(point):
        anchor = batch.certify(point, 1.0)
        return model.recentre(model.update(point, anchor.mean, None, 1.0))

    nu = np.full((n, k), first.codes[0, 0] / 65535.0, dtype)
    point, (plain, *_) = ours(first), numpy_pass(X, first.parameters, nu, n_sweeps)
    gap = np.abs(point.parameters.means - plain.means).max()
    times = [], []
    for _ in range(repeats):
        began = time.process_time()
        point = ours(point)
        times[0].append(time.process_time() - began)
        began = time.process_time()
        plain, *_ = numpy_pass(X, plain, nu, n_sweeps)
        times[1].append(time.process_time() - began)
    return min(times[0]), min(times[1]), gap


def memory(n, d, k, dtype):
    """Megabytes at the peak of a fit beside X, and those of one copy of ν."""
    X, _ = problem(n, d, k, dtype)
    mixture = FactorialMixture(k, max_iter=2, annealing_iter=1, tol=0.0, n_jobs=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        mixture.fit(X[: 2 * k])
        tracemalloc.start()
        mixture.fit(X)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak / 1e6, n * k * np.dtype(dtype).itemsize / 1e6, X.nbytes / 1e6


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one small size")
    parser.add_argument("--repeats", type=int, default=4)
    options = parser.parse_args()
    shapes = QUICK if options.quick else SHAPES
    print(
        "| rows, features, components | dtype | sweeps | ours | NumPy | ratio | gap |"
    )
    print("|---|---|---|---|---|---|---|")
    with threadpool_limits(1):
        for shape in shapes:
            for dtype in (np.float64, np.float32):
                for n_sweeps in (1, 5):
                    ours, plain, gap = measure(*shape, dtype, n_sweeps, options.repeats)
                    print(
                        f"| {shape} | {dtype.__name__} | {n_sweeps} | {ours:.3f} s | "
                        f"{plain:.3f} s | {plain / ours:.1f}x | {gap:.0e} |",
                        flush=True,
                    )
        print("\n| rows, features, components | dtype | X | one ν | peak beside X |")
        print("|---|---|---|---|---|")
        for shape in shapes:
            for dtype in (np.float64, np.float32):
                peak, codes, size = memory(*shape, dtype)
                print(
                    f"| {shape} | {dtype.__name__} | {size:.0f} MB | {codes:.1f} MB | "
                    f"{peak:.1f} MB |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
