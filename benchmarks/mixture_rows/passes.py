"""Passes over the data until a fit is as good as it gets, and seconds.

A fit has arrived when its log-likelihood a row is within 1e-6 of the value it ends at
(own end: other solvers may end at other optima, which is reported beside it). Passes
are those of ``history_["passes"]``: start, anchors and tables counted. What "saga"
and "incremental" record before the last, exact, value is a lower bound of the
log-likelihood at the point they could stop at, so their count is an upper bound.
"""

import statistics
import time
from typing import NamedTuple

import numpy as np
from benchmark_utils import problems
from harness import Row
from harness.timing import interleaved, quiet
from sklearn.mixture import GaussianMixture
from threadpoolctl import threadpool_limits

from mixture_rows.timing import OURS, THEIRS, ours, theirs
from skvrem import VRGaussianMixture

__all__ = ["pass_rows", "time_rows"]

WITHIN = 1e-6
# Far below WITHIN, as a slow fit that gains 1e-9 a pass may be 1e-7 from its end.
TOLERANCE = 1e-9
# Enough but for "rare components", where batch EM crawls; its count is then too low.
EPOCHS = {"batch": 5_000, "squarem": 2_500}
# A fit that ends this much a row below batch EM, or that does not converge, failed.
FAILED = 1e-3

METHODS = {
    "batch": {"solver": "batch"},
    "auto": {"solver": "auto"},
    "svrg": {"solver": "svrg"},
    "squarem": {"solver": "batch", "acceleration": "squarem"},
}


class Count(NamedTuple):
    """What one fit came to."""

    passes: float
    epochs: int
    score: float
    converged: bool
    solver: str


def count_passes(X, n_components, covariance_type, seed, method):
    """Fit to the end; return passes to within 1e-6 of it, the end, and how it went."""
    estimator = VRGaussianMixture(
        n_components,
        covariance_type=covariance_type,
        tol=TOLERANCE,
        max_iter=EPOCHS.get(method, 2_000),
        # The start is drawn first, so one seed is one start for all solvers.
        random_state=seed,
        **METHODS[method],
    )
    with quiet():
        estimator.fit(X)
    objective = estimator.history_["objective"]
    arrived = int(np.argmax(objective >= objective[-1] - WITHIN))
    return Count(
        float(estimator.history_["passes"][arrived]),
        arrived + 1,
        float(objective[-1]),
        bool(estimator.converged_),
        estimator.solver_,
    )


def _compare(settings, name, X, n_components, covariance_type, seed):
    """Fit from one start with every method."""
    counts = {
        method: count_passes(X, n_components, covariance_type, seed, method)
        for method in METHODS
    }
    batch = counts["batch"]
    line = [f"{name} {covariance_type} seed {seed} [{counts['auto'].solver}]:"]
    for method, count in counts.items():
        failed = "" if count.converged else " NOT CONVERGED"
        if count.score < batch.score - FAILED:
            failed += f" BELOW BATCH by {batch.score - count.score:.4f}"
        line.append(f"{method} {count.passes:.0f}, {count.score:.5f}{failed};")
    settings.log(" ".join(line))
    return counts


def _summary(group, measure, fits, target):
    """Make a row of the median ratio, and of failures."""

    def ratios(method):
        return [c[method].passes / c["batch"].passes for c in fits.values()]

    def median(method):
        return 1.0 / statistics.median(ratios(method))

    def below(method):
        return sum(c[method].score < c["batch"].score - FAILED for c in fits.values())

    def above(method):
        return sum(c[method].score > c["batch"].score + FAILED for c in fits.values())

    def stuck(method):
        return sum(not c[method].converged for c in fits.values())

    others = ", ".join(
        f"{method} 1/{median(method):.1f}" for method in ("svrg", "squarem")
    )
    failures = below("auto") + stuck("auto")
    worst = 1.0 / max(ratios("auto"))
    return Row(
        group,
        f"passes to within 1e-6 a row, auto against batch, {measure}",
        f"1/{median('auto'):.1f} in the median of {len(fits)} fits, 1/{worst:.1f} at "
        f"worst; {below('auto')} ended below batch, {above('auto')} above, "
        f"{stuck('auto')} not converged ({others})",
        f"1/{target:g}, no failure",
        bool(median("auto") >= target and failures == 0),
        {
            fit: {method: count._asdict() for method, count in counts.items()}
            for fit, counts in fits.items()
        },
    )


def pass_rows(settings):
    """Count passes on the overlapping mixture, on real and on fresh data."""
    shrink = 20 if settings.quick else 1
    seeds = range(settings.seeds)
    fits = {}
    for seed in seeds:
        X = problems.overlapping(1_000_000 // shrink, seed=seed).X
        fits[f"seed {seed}"] = _compare(settings, "overlapping", X, 10, "full", seed)
    yield _summary("passes", "overlapping mixture", fits, 12)

    fits = {}
    real = {"MNIST PCA-20": problems.mnist_pca, "chest": problems.chest}
    for name, load in real.items():
        try:
            X = load()[::shrink].copy()
        except problems.Unavailable as error:
            settings.log(f"left out: {error}")
            continue
        for covariance_type in ("full", "diag"):
            for seed in seeds:
                fits[f"{name} {covariance_type} seed {seed}"] = _compare(
                    settings, name, X, 10, covariance_type, seed
                )
    if fits:
        yield _summary("passes", "MNIST PCA-20 and chest", fits, 5)
    else:
        measure = "passes, auto against batch, MNIST PCA-20 and chest"
        yield Row("passes", measure, "no data: set SKVREM_DATA", "1/5", None, {})

    fits = {}
    for name, (draw, n, k, covariance_type) in problems.FRESH.items():
        for seed in seeds:
            X = draw(n // shrink, seed)
            fits[f"{name} {covariance_type} seed {seed}"] = _compare(
                settings, name, X, k, covariance_type, seed
            )
    yield _summary("passes", "three fresh problems", fits, 4)


def _run_ours(X, n_epochs, seed):
    """CPU seconds of our whole fit on one thread, start included, and its end."""
    estimator = VRGaussianMixture(
        10, tol=0.0, max_iter=n_epochs, random_state=seed, n_jobs=1
    )
    began = time.process_time()
    with quiet(), threadpool_limits(1):
        estimator.fit(X)
    return time.process_time() - began, estimator.lower_bound_


def time_rows(settings):
    """Compare the time to one log-likelihood with scikit-learn's, one thread.

    Ours is the whole fit: start, table, and the last, exact pass. scikit-learn is
    spared its start: it goes on from ours, by the same iterations as our batch EM,
    which says how many they are.
    """
    n = 50_000 if settings.quick else 1_000_000
    mixture = problems.overlapping(n)
    X, seed = mixture.X, 0
    counts = _compare(settings, "time: overlapping", X, 10, "full", seed)
    auto, batch = counts["auto"], counts["batch"]
    if abs(auto.score - batch.score) > WITHIN:
        # Compared at the lower of the two ends, which both have passed.
        settings.log("time: the two fits end at different optima")
    level = min(auto.score, batch.score) - WITHIN
    n_ours = _epochs_to(X, "auto", seed, level)
    # The value before the next iteration is where scikit-learn's parameters then are.
    n_theirs = _epochs_to(X, "batch", seed, level) - 1
    runs = [_run_ours(X, n_ours, seed) for _ in range(settings.repeats)]
    mine = min(seconds for seconds, _ in runs)
    if settings.extrapolate:
        sides = [
            (ours(mixture, X, "full", 1), OURS),
            (theirs(mixture, X, "full", 1), THEIRS),
        ]
        one = interleaved(sides, settings.repeats, time.process_time)[1]
        other = n_theirs * one  # the E step that would see it has arrived not counted
        how = f"{n_theirs} iterations of {one:.3f} s, extrapolated"
    else:
        other, score = _run_theirs(X, n_theirs, seed)
        how = f"{n_theirs} iterations, run whole, to {score:.6f}"
    ratio = other / mine
    yield Row(
        "time",
        f"CPU time to log-likelihood {level:.6f} against scikit-learn, overlapping "
        f"mixture, n={n:.0e}, 1 thread".replace("e+0", "e"),
        f"{ratio:.0f}x ({mine:.2f} s against {other:.0f} s: {how})",
        "120x",
        bool(ratio >= 120.0 and min(score for _, score in runs) >= level),
        {
            "ours": mine,
            "our epochs": n_ours,
            "our end": max(score for _, score in runs),
            "level": level,
            "scikit-learn": other,
            "scikit-learn iterations": n_theirs,
            "extrapolated": settings.extrapolate,
            "ratio": ratio,
        },
    )


def _epochs_to(X, method, seed, level):
    """Epochs after which a fit may stop with a log-likelihood of at least `level`."""
    estimator = VRGaussianMixture(
        10,
        tol=TOLERANCE,
        max_iter=EPOCHS.get(method, 2_000),
        random_state=seed,
        **METHODS[method],
    )
    with quiet():
        objective = estimator.fit(X).history_["objective"]
    return 1 + int(np.argmax(objective >= level))


def _run_theirs(X, n_iter, seed):
    """CPU seconds of scikit-learn's fit from our start, and its end."""
    with quiet():
        start = VRGaussianMixture(10, random_state=seed, max_iter=1, solver="batch")
        start.fit(X)
    # One iteration has been made; scikit-learn makes the others.
    estimator = GaussianMixture(
        10,
        tol=0.0,
        max_iter=max(1, n_iter - 1),
        weights_init=start.weights_,
        means_init=start.means_,
        precisions_init=start.precisions_,
    )
    began = time.process_time()
    with quiet(), threadpool_limits(1):
        estimator.fit(X)
    seconds = time.process_time() - began
    return seconds, float(estimator.score(X))
