"""Seconds of a batch EM iteration, and what a second thread brings."""

import time

import numpy as np
from benchmark_utils import problems
from harness import Row
from harness.timing import interleaved, quiet
from sklearn.mixture import GaussianMixture
from threadpoolctl import threadpool_limits

from skvrem import VRGaussianMixture

__all__ = ["iteration_rows", "ours", "theirs", "thread_rows"]

# Iterations of the shorter and the longer fit, whose difference is what is measured.
# Ours are many, as one takes a tenth of one of theirs.
OURS, THEIRS = (2, 12), (1, 3)


def _start(mixture, covariance_type):
    weights, means, precisions = problems.true_parameters(mixture, covariance_type)
    return {
        "n_components": len(weights),
        "covariance_type": covariance_type,
        "weights_init": weights,
        "means_init": means,
        "precisions_init": precisions,
        "tol": 0.0,
    }


def ours(mixture, X, covariance_type, n_threads):
    """Return a function that makes a fit of so many batch iterations."""
    keywords = _start(mixture, covariance_type)

    def fit(n_iter):
        estimator = VRGaussianMixture(
            **keywords, solver="batch", max_iter=n_iter, n_jobs=n_threads
        )
        with quiet(), threadpool_limits(n_threads):
            return estimator.fit(X)

    return fit


def theirs(mixture, X, covariance_type, n_threads):
    """Return the same for scikit-learn."""
    keywords = _start(mixture, covariance_type)

    def fit(n_iter):
        estimator = GaussianMixture(**keywords, max_iter=n_iter)
        with quiet(), threadpool_limits(n_threads):
            return estimator.fit(X)

    return fit


def _check_same(mixture, X, covariance_type):
    """Both sides make the same iterations; otherwise a ratio says nothing."""
    a = ours(mixture, X, covariance_type, 1)(2)
    b = theirs(mixture, X, covariance_type, 1)(2)
    tolerance = 1e-8 if X.dtype == np.float64 else 1e-3
    gap = np.abs(a.means_ - b.means_).max()
    if not gap < tolerance:
        raise AssertionError(f"two iterations differ from scikit-learn's by {gap:.1e}")


# n, d, k, covariance type, dtype, target of one thread, of two (None: not asked)
CASES = [
    (1_000_000, 10, 10, "full", "float64", 11.0, 20.0),
    (1_000_000, 10, 10, "diag", "float64", 12.0, 20.0),
    (1_000_000, 10, 10, "full", "float32", 15.0, 20.0),
    (1_000_000, 10, 10, "diag", "float32", 15.0, 20.0),
    (200_000, 50, 20, "full", "float64", 4.5, None),
    (100_000, 100, 10, "full", "float64", 3.5, None),
]


def _name(n, d, k, covariance_type, dtype):
    return f"n={n:.0e} d={d} k={k} {covariance_type} {dtype}".replace("e+0", "e")


def iteration_rows(settings):
    """Compare an iteration of batch EM with scikit-learn's."""
    for n, d, k, covariance_type, dtype, *targets in CASES:
        n = n // 50 if settings.quick else n
        mixture = problems.overlapping(n, d, k)
        X = mixture.X.astype(dtype, copy=False)
        _check_same(mixture, X[: 20 * d * k], covariance_type)
        for n_threads, target in zip((1, 2), targets, strict=True):
            if target is None:
                continue
            settings.log(f"{_name(n, d, k, covariance_type, dtype)}, {n_threads}")
            sides = [
                (ours(mixture, X, covariance_type, n_threads), OURS),
                (theirs(mixture, X, covariance_type, n_threads), THEIRS),
            ]
            clock = time.process_time if n_threads == 1 else time.perf_counter
            mine, other = interleaved(sides, settings.repeats, clock)
            ratio = other / mine
            yield Row(
                "iteration",
                f"EM iteration against scikit-learn, "
                f"{_name(n, d, k, covariance_type, dtype)}, "
                f"{n_threads} thread{'s' if n_threads > 1 else ''}",
                f"{ratio:.1f}x ({mine:.4f} s against {other:.3f} s)",
                f"{target:g}x",
                ratio >= target,
                {"ours": mine, "scikit-learn": other, "ratio": ratio},
            )


def thread_rows(settings):
    """Compare two threads with one, on passes of batch EM."""
    n = 20_000 if settings.quick else 1_000_000
    mixture = problems.overlapping(n)
    for covariance_type in ("full", "diag"):
        settings.log(f"threads, {covariance_type}")
        sides = [
            (ours(mixture, mixture.X, covariance_type, n_threads), OURS)
            for n_threads in (1, 2)
        ]
        one, two = interleaved(sides, 2 * settings.repeats, time.perf_counter)
        yield Row(
            "threads",
            f"two threads against one, batch pass, n={n:.0e} d=10 k=10 "
            f"{covariance_type}".replace("e+0", "e"),
            f"{one / two:.2f}x ({two:.4f} s against {one:.4f} s)",
            "1.8x",
            one / two >= 1.8,
            {"one": one, "two": two, "ratio": one / two},
        )
