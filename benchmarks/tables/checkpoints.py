"""What checkpoints cost: seconds of fits that write them, beside fits that do not.

Simulated data, wall-clock seconds, 20 epochs from one start. "every epoch" is
``every=1``; the default writes as often as 3 % of the time allow. What a writing takes
is mostly the disk's: a file is flushed before it takes the place of the one before.
"""

import os
import tempfile
from functools import partial

import numpy as np

from benchmarks.harness import Row, fastest, group
from skvrem import VRHMM, VRPLSA, Checkpoint, VRGaussianMixture

FIT = {"max_iter": 20, "tol": 0.0, "random_state": 0, "n_init": 1}
CASES = "mixture", "short", "hmm", "topics"


def problem(name, run):
    """Return what is fitted, its data, and what that is called."""
    rng = np.random.default_rng(0)
    if name == "topics":
        n = run.size(10_000, 500)
        topics = rng.dirichlet(np.full(3000, 0.05), size=20)
        X = rng.poisson(100.0 * rng.dirichlet(np.full(20, 0.1), size=n) @ topics)
        return VRPLSA(20, **FIT), X, f"VRPLSA, {n:,} documents, 20 topics"
    n = run.size(20_000 if name == "short" else 1_000_000, 20_000)
    X = rng.normal(size=(n, 10)) + 2.0 * rng.integers(3, size=(n, 1))
    if name == "hmm":
        return VRHMM(3, **FIT), X[:, :3].copy(), f"VRHMM, {n:,} rows, 3 states"
    mixture = VRGaussianMixture(10, solver="batch", **FIT)
    return mixture, X, f"VRGaussianMixture, {n:,} rows, d=10, k=10"


@group(CASES)
def cost(run, case):
    """Seconds of a fit that writes checkpoints, over those of one that does not."""
    estimator, X, label = problem(case, run)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "fit")
        sides = {
            "none": partial(estimator.fit, X),
            "default": partial(Checkpoint(path).fit, estimator, X),
            "every epoch": partial(Checkpoint(path, every=1).fit, estimator, X),
        }
        for fit in sides.values():
            fit()
        timed = fastest(sides, run, threads=2)
        size = os.path.getsize(path)
    none = timed.seconds["none"]
    ratios = {name: seconds / none for name, seconds in timed.seconds.items()}
    note = f"{none:.2f} s without; the file has {size / 1e3:,.0f} kB"
    peers = {"every epoch": ratios["every epoch"]}
    yield Row(label, ratios["default"], "x", peers, note=note, key=case)
