"""First fits of a process: kernels that are compiled, and interrupts meanwhile.

Fits of small simulated data, default but for a solver that is named, with nothing in
the cache of kernels. "compiled" is CPU seconds of the fit, which are the compiler's,
imports excluded; each is the least of the repetitions. "interrupted" is the longest
that a KeyboardInterrupt has taken to be raised, in wall-clock seconds, of interrupts at
random moments of such fits; "answered" the same of long fits of larger data by every
solver, whose kernels are compiled, 300,000 rows of 10 features or 5,000 documents of
2,000 words.
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
# What a name needs is imported when it is first used.
IMPORTS = "import skvrem\nfrom scipy import sparse\nfrom skvrem import *"
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
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a background
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
#: Solvers of each; "squarem" and "lbfgs" are full passes, accelerated.
SOLVERS = {
    "VRGaussianMixture": (
        "batch",
        "squarem",
        "svrg",
        "saga",
        "incremental",
        "stochastic",
    ),
    "FactorialMixture": ("batch", "svrg", "saga", "incremental", "stochastic"),
    "VRHMM": ("batch", "squarem", "lbfgs", "svrg", "saga", "incremental", "stochastic"),
    "VRPLSA": ("batch", "svrg", "stochastic"),
    "TemperedLDA": ("batch", "svrg", "stochastic"),
    "SBMLogisticRegression": ("batch", "lbfgs", "svrg", "stochastic"),
    "BayesianLogisticRegression": ("batch", "svrg", "saga", "stochastic"),
    "BayesianGLMRegressor": ("batch", "svrg", "saga", "stochastic"),
    "GaussianDropoutClassifier": ("batch", "svrg", "stochastic"),
    "VariationalInference": ("batch", "svrg", "saga", "stochastic"),
    "HierarchicalSoftmaxClassifier": ("",),
    "BayesianPPCA": ("",),
    "BradleyTerry": ("",),
}
ANSWERED = tuple(
    f"{name}-{solver}" if solver else name
    for name, solvers in SOLVERS.items()
    for solver in solvers
)
LONG_FITS = """
import json, os, signal, sys, threading, time, warnings
import numpy as np
from scipy import sparse
import skvrem

warnings.simplefilter("ignore")
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a background
name, _, solver = sys.argv[1].partition("-")
n, n_interrupts = int(sys.argv[2]), int(sys.argv[3])
rng = np.random.default_rng(0)
X = 3.0 * rng.integers(2, size=(n, 1)) + rng.normal(size=(n, 10))
y = (X[:, 0] + rng.logistic(size=n) > 1.5).astype(int)
given = {"X": X, "y": y}
if name in ("TemperedLDA", "VRPLSA"):
    X = rng.poisson(0.05, size=(n // 60, 2_000))
    given = {"X": sparse.csr_array(X.astype(float))}
elif name == "BradleyTerry":
    X = np.stack([rng.integers(2_000, size=n), rng.integers(2_000, 4_000, size=n)], 1)
    given = {"X": X}
elif name == "HierarchicalSoftmaxClassifier":
    given["groups"] = np.arange(n) % 500
elif name == "BayesianGLMRegressor":
    given["y"] = rng.poisson(1.0, size=n)

class Logistic:
    n_samples, n_parameters = X.shape

    def __init__(self, X, y):
        self.X, self.y = X, y

    def log_likelihood(self, parameters, indices):
        z = self.X[indices] @ parameters
        return self.y[indices] * z - np.logaddexp(0.0, z)

    def gradient(self, parameters, indices):
        X = self.X[indices]
        return X.T @ (self.y[indices] - 1.0 / (1.0 + np.exp(-X @ parameters)))

made = getattr(skvrem, name)
known = made().get_params()
how = {"solver": solver} if solver else {}
if "acceleration" in known and solver in ("batch", "squarem", "lbfgs"):
    how = {"solver": "batch", "acceleration": None if solver == "batch" else solver}
if name == "BayesianGLMRegressor":
    how["family"] = "poisson"
elif name == "VariationalInference":
    how["model"], given = Logistic(X, y), {}
endless = {"tol": 0.0, "max_iter": 10_000, "n_init": 1, "random_state": 0}
how |= {key: value for key, value in endless.items() if key in known}

def fit(**more):
    made(**how | more).fit(**given)

fit(**({"max_iter": 2} if "max_iter" in known else {}))
sent = [0.0]

def send():
    sent[0] = time.perf_counter()
    os.kill(os.getpid(), signal.SIGINT)

def interrupted(delay):
    timer = threading.Timer(delay, send)
    timer.start()
    try:
        fit()
        timer.cancel()
        timer.join()
    except KeyboardInterrupt:
        return time.perf_counter() - sent[0]
    return None  # the fit had ended

began = time.perf_counter()
late = [interrupted(2.0)]
latest = 0.9 * (time.perf_counter() - began)  # of fits that end by themselves
late += [interrupted(rng.uniform(0.0, latest)) for _ in range(n_interrupts - 1)]
late = [each for each in late if each is not None]
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


@group(ANSWERED)
def answered(run, name):
    """Seconds until an interrupt of a long fit is raised."""
    n_rows, count = run.size(300_000, 3_000), 4 * max(1, run.repeats)
    late = run_python(LONG_FITS, name, str(n_rows), str(count))
    note = f"{len(late)} of {count} before the fit had ended"
    yield Row(name, max(late, default=0.0), "s", target=SOON, note=note)
