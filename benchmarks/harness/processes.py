"""What needs a process of its own: memory, the first fit, the import."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.harness.rows import Row, Unavailable

__all__ = ["FIRST_FIT", "first_fits", "peak_memory", "run_python"]

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


def run_python(code, *arguments, **environment):
    """Run Python code in a process of its own; return the JSON it prints."""
    root = str(Path(__file__).resolve().parents[2])
    paths = [environment.get("PYTHONPATH"), root, os.environ.get("PYTHONPATH")]
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
    if not os.path.exists("/proc/self/status"):
        raise Unavailable("memory is read from /proc, which only Linux has")
    code = MEMORY.format(problem=problem)
    return run_python(code, *map(str, arguments), **environment)["extra"]


def first_fits(run, label, imports, problem, arguments=(), unseen=None):
    """Yield rows of the first fit of a process, with kernels to compile and without.

    Parameters
    ----------
    run : Run
    label, imports, problem : str
        Code of the imports, and code that defines ``load()`` and ``fit(X)``.
    arguments : tuple
        In its ``sys.argv[1:]``.
    unseen : tuple, default=None
        Arguments of another problem, which is to find all it needs in the cache.
    """
    code = FIRST_FIT.format(imports=imports, problem=problem)
    states = {"nothing cached": (arguments, 8.0), "cached": (arguments, 1.0)}
    if unseen is not None:
        states["cached by another problem"] = unseen, 1.0
    times = {state: [] for state in states}
    for _ in range(max(1, run.repeats - 2)):
        with tempfile.TemporaryDirectory() as folder:
            for state, (given, _) in states.items():
                found = run_python(code, *map(str, given), NUMBA_CACHE_DIR=folder)
                times[state].append(found)
    for state, (_, target) in states.items():
        least = {key: min(t[key] for t in times[state]) for key in times[state][0]}
        yield Row(
            f"{label}, {state}",
            least["fit"],
            "s",
            target=target,
            note=f"{least['process']:.2f} s with all imports",
            key=state,
            numbers=least,
        )
