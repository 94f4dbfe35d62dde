"""Seconds of an epoch of every estimator and solver, here and in another checkout.

The difference between fits of many and of few epochs on simulated data, one thread;
each fit is the fastest of its repetitions, in which the checkouts take turns, each in a
process of its own:

    python -m benchmarks run "epochs/epoch/hmm*" --against ../before
"""

import json
import os
import subprocess
import sys

import numpy as np

from benchmarks.harness import Row, Unavailable, group
from benchmarks.harness.results import ROOT
from benchmarks.problems import epochs

FAMILIES = "mixture", "factorial", "lda", "plsa", "sbm", "hmm", "bayes", "dropout"


def in_process(checkout, names):
    """Time fits in a process that imports from a checkout, one thread everywhere."""
    environment = os.environ | {
        "PYTHONPATH": str(checkout),
        "NUMBA_CACHE_DIR": str(checkout / ".cache" / "bench"),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "NUMBA_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, epochs.__file__, *names],
        env=environment,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise Unavailable(f"fits of {checkout} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


@group(FAMILIES)
def epoch(run, family):
    """Seconds of an epoch, here and there."""
    names = [name for name in in_process(ROOT, []) if name.startswith(f"{family} ")]
    checkouts = {"here": ROOT}
    if run.against:
        checkouts["there"] = run.against.resolve()
    times = {side: {name: [] for name in names} for side in checkouts}
    for _ in range(run.repeats):
        for side, checkout in checkouts.items():
            for name, took in in_process(checkout, names).items():
                times[side][name].append(took)
    for name in names:
        fits = {side: np.sort(seen[name], axis=0) for side, seen in times.items()}
        seconds, noise = {}, 0.0
        for side, (least, *rest) in fits.items():
            seconds[side] = (least[1] - least[0]) / (epochs.MANY - epochs.FEW)
            if rest and seconds[side] > 0.0:
                noise = max(noise, (rest[0] - least).sum() / (least[1] - least[0]))
        here = seconds.pop("here")
        yield Row(name, here, "s", seconds, noise=noise, key=name)
