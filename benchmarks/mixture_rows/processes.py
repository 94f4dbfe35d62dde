"""What needs a process of its own: memory, the first fit, the import."""

import json
import os
import subprocess
import sys
import tempfile

from mixture_rows import Row

__all__ = ["first_rows", "memory_rows"]

MEMORY = """
import ctypes, gc, json, os, sys, threading, warnings
import numpy as np

warnings.simplefilter("ignore")
side, covariance_type, n, solver = sys.argv[1:]
n = int(n)

def status(field):
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith(field + ":"):
                return 1024 * int(line.split()[1])

def reset_peak():
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        return False
    return status("VmHWM") < status("VmRSS") + (1 << 20)

if side == "skvrem":
    from skvrem import VRGaussianMixture
    def make():
        return VRGaussianMixture(
            10, covariance_type=covariance_type, solver=solver, max_iter=5,
            tol=0.0, random_state=0,
        )
else:
    from sklearn.mixture import GaussianMixture
    def make():
        return GaussianMixture(
            10, covariance_type=covariance_type, max_iter=2, tol=0.0, random_state=0,
        )

from mixture_rows import Row
from benchmark_utils import problems

make().fit(problems.overlapping(100_000).X)  # compiles, starts threads
X = problems.overlapping(n).X
gc.collect()
try:  # free memory that the allocator holds back would hide what fit takes
    ctypes.CDLL(None).malloc_trim(0)
except AttributeError:
    pass
exact = reset_peak()
before = status("VmRSS")
peak, stop = [before], threading.Event()
def watch():
    page = os.sysconf("SC_PAGE_SIZE")
    while not stop.wait(0.002):
        with open("/proc/self/statm") as file:
            peak[0] = max(peak[0], page * int(file.read().split()[1]))
watcher = threading.Thread(target=watch, daemon=True)
if not exact:
    watcher.start()
make().fit(X)
stop.set()
after = status("VmHWM") if exact else peak[0]
print(json.dumps({"extra": after - before, "exact": exact}))
"""

FIRST = """
import json, sys, time, warnings
began = time.perf_counter()
import numpy as np
import sklearn.mixture
from skvrem import VRGaussianMixture

warnings.simplefilter("ignore")
X = np.random.default_rng(0).standard_normal((50_000, 10))
imported, cpu = time.perf_counter(), time.process_time()
VRGaussianMixture(10, covariance_type=sys.argv[1], max_iter=3, random_state=0).fit(X)
ended, cpu = time.perf_counter(), time.process_time() - cpu
print(json.dumps({"fit": ended - imported, "cpu": cpu, "process": ended - began}))
"""

IMPORT = """
import json, time
import sklearn, sklearn.mixture
began = time.perf_counter()
import skvrem
print(json.dumps({"import": time.perf_counter() - began}))
"""


def _run(code, *arguments, **environment):
    """Run Python code in a process of its own; return the JSON it prints."""
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    paths = [folder, os.path.dirname(folder), os.environ.get("PYTHONPATH")]
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"a measuring process failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def memory_rows(settings):
    """Peak of the resident memory during fit beyond what was there before."""
    n = 200_000 if settings.quick else 1_000_000
    measure = f"extra memory in fit, n={n:.0e} d=10 k=10".replace("e+0", "e")
    target = "40 MB + 4 bytes a row"
    if not os.path.exists("/proc/self/status"):
        yield Row("memory", measure, "needs /proc (Linux)", target, None, {})
        return
    for covariance_type in ("full", "diag"):
        settings.log(f"memory, {covariance_type}")
        found = {
            (side, solver): _run(MEMORY, side, covariance_type, str(n), solver)
            for side, solver in (
                ("skvrem", "auto"),
                ("skvrem", "batch"),
                ("scikit-learn", ""),
            )
        }
        auto, batch, other = (item["extra"] / 1e6 for item in found.values())
        rows = 4e-6 * n
        yield Row(
            "memory",
            f"{measure} {covariance_type}",
            f"{max(auto, batch) - rows:.1f} MB + {rows:.1f} MB of 4 bytes a row (auto "
            f"{auto:.1f} MB, batch {batch:.1f} MB, scikit-learn {other:.0f} MB)",
            target,
            max(auto, batch) - rows <= 40.0,
            {" ".join(key).strip(): value for key, value in found.items()},
        )


def first_rows(settings):
    """Seconds of the first fit, kernels compiled or not, and of the import."""
    repeats = 1 if settings.quick else max(2, settings.repeats - 2)
    for covariance_type in ("full", "diag"):
        cold, warm = [], []
        for _ in range(repeats):
            settings.log(f"first fit, {covariance_type}")
            with tempfile.TemporaryDirectory() as folder:
                for times in (cold, warm, warm):
                    times.append(_run(FIRST, covariance_type, NUMBA_CACHE_DIR=folder))
        for state, times, target in (
            ("nothing cached", cold, 8.0),
            ("cached", warm, 1.0),
        ):
            fit, cpu, process = (
                min(item[key] for item in times) for key in ("fit", "cpu", "process")
            )
            yield Row(
                "first",
                f"first fit in a fresh process, n=5e4 {covariance_type}, {state}",
                f"{fit:.2f} s ({cpu:.2f} s of CPU; {process:.2f} s with all imports)",
                f"{target:g} s",
                fit <= target,
                {"fit": fit, "cpu": cpu, "process": process},
            )
    settings.log("import")
    times = [_run(IMPORT)["import"] for _ in range(1 + 2 * settings.repeats)]
    yield Row(
        "first",
        "import skvrem beyond scikit-learn's own",
        f"{min(times):.2f} s",
        "0.3 s",
        min(times) <= 0.3,
        {"seconds": min(times)},
    )
