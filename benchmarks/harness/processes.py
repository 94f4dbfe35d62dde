"""What needs a process of its own: memory, the first fit, the import."""

import json
import os
import subprocess
import sys
import tempfile

from harness.table import Row

__all__ = ["first_fits", "has_proc", "import_rows", "peak_memory", "run_python"]

# Around the code of a problem, which defines warm_up(), load() and fit(X).
MEMORY = """
import ctypes, gc, json, os, sys, threading, warnings
import numpy as np

warnings.simplefilter("ignore")

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

{problem}

warm_up()  # compiles, starts threads
X = load()
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
fit(X)
stop.set()
after = status("VmHWM") if exact else peak[0]
print(json.dumps({{"extra": after - before, "exact": exact}}))
"""

# Around the code of a problem, which defines load() and fit(X).
FIRST_FIT = """
import json, sys, time, warnings
began = time.perf_counter()
import numpy as np
{imports}

warnings.simplefilter("ignore")
{problem}
X = load()
imported, cpu = time.perf_counter(), time.process_time()
fit(X)
ended, cpu = time.perf_counter(), time.process_time() - cpu
print(json.dumps({{"fit": ended - imported, "cpu": cpu, "process": ended - began}}))
"""

IMPORT = """
import json, time
import sklearn, sklearn.{module}
began = time.perf_counter()
import skvrem
print(json.dumps({{"import": time.perf_counter() - began}}))
"""


def has_proc():
    """Memory is read from /proc, which only Linux has."""
    return os.path.exists("/proc/self/status")


def run_python(code, *arguments, **environment):
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


def peak_memory(problem, *arguments, **environment):
    """Bytes of resident memory that ``fit(X)`` takes beyond what was there before.

    Parameters
    ----------
    problem : str
        Code that defines ``warm_up()``, ``load()`` and ``fit(X)``.
    *arguments : str
        In its ``sys.argv[1:]``.
    **environment : str
    """
    code = MEMORY.format(problem=problem)
    return run_python(code, *arguments, **environment)["extra"]


def first_fits(
    imports, problem, arguments, measure, repeats, targets=(8.0, 1.0), unseen=None
):
    """Yield rows of the first fit of a process, with kernels to compile and without.

    Parameters
    ----------
    imports, problem : str
        Code of the imports, and code that defines ``load()`` and ``fit(X)``.
    arguments : tuple of str
        In its ``sys.argv[1:]``.
    measure : str
    repeats : int
    targets : tuple of float
        Seconds with nothing cached, and cached.
    unseen : tuple of str, default=None
        Arguments of another problem, which is to find all it needs in the cache.
    """
    code = FIRST_FIT.format(imports=imports, problem=problem)
    cold, warm, other = [], [], []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            for times in (cold, warm, warm):
                times.append(run_python(code, *arguments, NUMBA_CACHE_DIR=folder))
            if unseen is not None:
                other.append(run_python(code, *unseen, NUMBA_CACHE_DIR=folder))
    states = [("nothing cached", cold, targets[0]), ("cached", warm, targets[1])]
    if unseen is not None:
        states.append(("cached by another problem", other, targets[1]))
    for state, times, target in states:
        fit, cpu, process = (
            min(item[key] for item in times) for key in ("fit", "cpu", "process")
        )
        yield Row(
            "first",
            f"first fit in a fresh process, {measure}, {state}",
            f"{fit:.2f} s ({cpu:.2f} s of CPU; {process:.2f} s with all imports)",
            f"{target:g} s",
            fit <= target,
            {"fit": fit, "cpu": cpu, "process": process},
        )


def import_rows(module, repeats):
    """Yield the row of the seconds of ``import skvrem`` after ``sklearn.<module>``."""
    code = IMPORT.format(module=module)
    times = [run_python(code)["import"] for _ in range(1 + 2 * repeats)]
    yield Row(
        "first",
        "import skvrem beyond scikit-learn's own",
        f"{min(times):.2f} s",
        "0.3 s",
        min(times) <= 0.3,
        {"seconds": min(times)},
    )
