"""First fits of a process: kernels that are compiled, and interrupts meanwhile.

Fits of small simulated data, default but for a solver that is named, with nothing in
the cache of kernels. "compiled" is CPU seconds of the fit, which are the compiler's,
imports excluded; each is the least of the repetitions. "interrupted" is the longest
that a KeyboardInterrupt has taken to be raised, in wall-clock seconds, of interrupts at
random moments of such fits.
"""

import random
import tempfile

from benchmarks.harness import Row, group
from benchmarks.harness.processes import FIRST_FIT, run_python

CASES = (
    "VRGaussianMixture",
    "VRPLSA",
    "TemperedLDA",
    "VRHMM",
    "FactorialMixture",
    "SBMLogisticRegression",
    "BayesianLogisticRegression",
    "BayesianGLMRegressor",
    "HierarchicalSoftmaxClassifier",
    "GaussianDropoutClassifier",
    "BayesianPPCA",
    "BradleyTerry",
)
#: Steps row by row have kernels of their own, the largest.
COMPILED = *CASES, "VRHMM svrg"
IMPORTS = "import skvrem\nfrom scipy import sparse"
PROBLEM = """
def load():
    name, rng = sys.argv[1], np.random.default_rng(0)
    X = 3.0 * rng.integers(2, size=(300, 1)) + rng.normal(size=(300, 3))
    y = rng.integers(2, size=300)
    if name in ("TemperedLDA", "VRPLSA"):
        return {"X": sparse.csr_array(rng.poisson(1.0, size=(60, 40)))}
    if name == "BradleyTerry":
        return {"X": np.stack([rng.permutation(10)[:2] for _ in range(60)])}
    groups = {"groups": y} if name == "HierarchicalSoftmaxClassifier" else {}
    return {"X": X, "y": y, **groups}

def fit(given):
    name, *solver = sys.argv[1].split()
    how = {"solver": solver[0]} if solver else {}
    getattr(skvrem, name)(**how).fit(**given)
"""
INTERRUPTED = """
import json, os, signal, sys, threading, time, warnings
import numpy as np
{imports}

warnings.simplefilter("ignore")
{problem}
given, sent = load(), []

def send():
    sent.append(time.perf_counter())
    os.kill(os.getpid(), signal.SIGINT)

timer = threading.Timer(float(sys.argv[2]), send)
timer.start()
late = None
try:
    fit(given)
    timer.cancel()
except KeyboardInterrupt:
    late = time.perf_counter() - sent[0]
print(json.dumps(late))
"""
#: CPU seconds that are promised, and seconds to an interrupt.
TARGET, SOON = 6.0, 0.3
#: Latest moment of an interrupt, as a share of the seconds of the first fit.
LATEST = 0.9


@group(COMPILED)
def compiled(run, name):
    """CPU seconds of a first fit."""
    code = FIRST_FIT.format(imports=IMPORTS, problem=PROBLEM)
    found = []
    for _ in range(max(1, run.repeats - 2)):
        with tempfile.TemporaryDirectory() as folder:
            found.append(run_python(code, name, NUMBA_CACHE_DIR=folder))
    least = {key: min(each[key] for each in found) for key in found[0]}
    note = f"{least['fit']:.1f} s by the clock"
    yield Row(name, least["cpu"], "s", target=TARGET, note=note, numbers=least)


@group(CASES)
def interrupted(run, name):
    """Seconds until an interrupt of a first fit is raised."""
    whole = FIRST_FIT.format(imports=IMPORTS, problem=PROBLEM)
    code = INTERRUPTED.format(imports=IMPORTS, problem=PROBLEM)
    with tempfile.TemporaryDirectory() as folder:
        seconds = run_python(whole, name, NUMBA_CACHE_DIR=folder)["fit"]
    late, draw = [], random.Random(0)
    for _ in range(3 * max(1, run.repeats)):
        with tempfile.TemporaryDirectory() as folder:
            delay = str(draw.uniform(0.0, LATEST * seconds))
            late.append(run_python(code, name, delay, NUMBA_CACHE_DIR=folder))
    struck = [each for each in late if each is not None]
    note = f"{len(struck)} of {len(late)} before the fit had ended"
    yield Row(name, max(struck, default=0.0), "s", target=SOON, note=note)
