"""CPU seconds of an epoch of every estimator and solver, here and in another checkout.

    python benchmarks/epochs.py
    python benchmarks/epochs.py --rows hmm bayes --against ../before

The difference between fits of many and of few epochs on simulated data, one thread;
each fit is the fastest of its repetitions, in which the checkouts take turns.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
import warnings
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np

#: Epochs of the short and of the long fit.
FEW, MANY = 2, 12


def problems():
    """Return fits by name, each a function of a number of epochs that are made."""
    import skvrem as ours

    rng = np.random.default_rng(0)
    blobs = rng.normal(size=(20_000, 10)) + rng.integers(8, size=(20_000, 1))
    counts = rng.poisson(0.3 * rng.gamma(0.3, size=(2000, 1)), (2000, 400))
    counts[:, 0] += 1
    X = rng.normal(size=(20_000, 50))
    logits = X @ rng.normal(0.0, 0.3, (50, 3))
    classes = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    two = (classes > 0).astype(int)
    count = rng.poisson(np.exp(np.clip(0.3 * logits[:, 0], -4.0, 4.0)))
    steps = rng.normal(np.repeat(rng.integers(3, size=(400, 2)), 50, axis=0))
    sequences = [100] * 200

    def fit(made, X, y=None, **data):
        def run(n):
            model = made(max_iter=n, tol=0.0, random_state=0)
            return model.fit(X, **({} if y is None else {"y": y}), **data)

        return run

    em = ("batch", "stochastic", "svrg", "saga", "incremental")
    fits = {}
    for solver in em:
        for kind in ("diag", "full"):
            made = partial(
                ours.VRGaussianMixture,
                8,
                covariance_type=kind,
                solver=solver,
                init_params="random",
            )
            fits[f"mixture {kind} {solver}"] = fit(made, blobs)
        made = partial(ours.FactorialMixture, 4, solver=solver, tempering=None)
        fits[f"factorial {solver}"] = fit(made, blobs)
    for solver in em[:3]:
        made = partial(ours.TemperedLDA, 20, solver=solver, tempering=None)
        fits[f"lda {solver}"] = fit(made, counts)
        made = partial(ours.VRPLSA, 20, solver=solver)
        fits[f"plsa {solver}"] = fit(made, counts)
        made = partial(ours.SBMLogisticRegression, solver=solver)
        fits[f"sbm {solver}"] = fit(made, X, two)
    for solver, e in [("batch", False), *product(("svrg", "saga"), (False, True))]:
        for units, lengths in (("rows", None), ("sequences", sequences)):
            made = partial(
                ours.VRHMM,
                3,
                solver=solver,
                partial_e_step=e,
                n_init=1,
                init_params="random",
            )
            label = f"hmm {units} {solver}{' partial' if e else ''}"
            fits[label] = fit(made, steps, lengths=lengths)
    kinds = [("stochastic", "mc"), *product(("svrg", "saga"), ("quadrature", "mc"))]
    for solver, expectation in kinds:
        options = {
            "posterior": "meanfield",
            "solver": solver,
            "steps": ours.vi.MinibatchSteps(expectation=expectation),
        }
        bayes = partial(ours.BayesianLogisticRegression, **options)
        fits[f"bayes two {solver} {expectation}"] = fit(bayes, X, two)
        if expectation == "mc":
            fits[f"bayes three {solver} mc"] = fit(bayes, X, classes)
        made = partial(ours.BayesianGLMRegressor, family="poisson", **options)
        fits[f"bayes poisson {solver} {expectation}"] = fit(made, X, count)
    fits["bayes two batch"] = fit(ours.BayesianLogisticRegression, X, two)
    for solver in ("stochastic", "svrg"):
        made = partial(ours.GaussianDropoutClassifier, solver=solver)
        fits[f"dropout {solver}"] = fit(made, X, two)
    return fits


def measure(names):
    """Return seconds of short and long fits, and how many epochs lie between."""
    import numba

    numba.set_num_threads(1)
    fits, found = problems(), {}
    warnings.simplefilter("ignore")
    for name in names:
        took = []
        for n in (FEW, FEW, MANY):  # the first compiles
            began = time.process_time()
            fits[name](n)
            took.append(time.process_time() - began)
        found[name] = took[1:]
    return found


def main(arguments=None):
    """Print a line for each estimator and solver."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", nargs="+", help="parts of names", metavar="PART")
    parser.add_argument("--against", type=Path, help="folder of another checkout")
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--names", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.names:
        print(json.dumps(measure(json.loads(options.names))))
        return
    wanted = re.compile("|".join(options.rows or [""]))
    names = [name for name in problems() if wanted.search(name)]
    here = Path(__file__).resolve().parents[1]
    checkouts = [here] + ([options.against.resolve()] if options.against else [])
    times = [{name: [] for name in names} for _ in checkouts]
    for _ in range(options.repeats):
        for checkout, seen in zip(checkouts, times, strict=True):
            for name, took in in_process(checkout, names).items():
                seen[name].append(took)
    print(f"{'milliseconds an epoch':36s} {'here':>9s} {'there':>9s} {'ratio':>6s}")
    for name in names:
        epochs = [epoch(seen[name]) for seen in times]
        cells = " ".join(f"{1e3 * seconds:9.2f}" for seconds in epochs)
        ratio = f" {epochs[0] / epochs[1]:6.2f}" if len(epochs) > 1 else ""
        print(f"{name:36s} {cells}{ratio}", flush=True)


def in_process(checkout, names):
    """Measure in a process that imports from a checkout, one thread everywhere."""
    environment = os.environ | {
        "PYTHONPATH": str(checkout),
        "NUMBA_CACHE_DIR": str(checkout / ".cache" / "bench"),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "NUMBA_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, __file__, "--names", json.dumps(names)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def epoch(took):
    """Return the seconds of an epoch: of the fastest short and long fits."""
    few, many = np.min(took, axis=0)
    return (many - few) / (MANY - FEW)


if __name__ == "__main__":
    main()
