"""Print the table of speed and memory of VRGaussianMixture.

    python benchmarks/mixture_table.py
    python benchmarks/mixture_table.py --rows iteration threads --repeats 7
    python benchmarks/mixture_table.py --quick

Ratios are taken within one run: fits take turns and the minimum of the repetitions
counts; one thread is measured in CPU seconds. See ``benchmarks/README.md``.
"""

import argparse
import json
import os
import platform
import sys
import textwrap
import time

import numba
import numpy as np
import sklearn
from mixture_rows import Settings, passes, processes, timing

import skvrem

GROUPS = {
    "iteration": timing.iteration_rows,
    "passes": passes.pass_rows,
    "time": passes.time_rows,
    "threads": timing.thread_rows,
    "memory": processes.memory_rows,
    "first": processes.first_rows,
}


def main(arguments=None):
    """Measure what was asked for and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--rows", nargs="+", choices=GROUPS, default=list(GROUPS), metavar="GROUP"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--repeats", type=int, default=4, help="of each timing")
    parser.add_argument("--seeds", type=int, default=3, help="starts of counted fits")
    parser.add_argument("--json", metavar="FILE", help="write the numbers behind it")
    parser.add_argument(
        "--no-extrapolation",
        action="store_true",
        help="run scikit-learn to the end for the row 'time' (minutes)",
    )
    options = parser.parse_args(arguments)
    began = time.perf_counter()

    def log(line):
        print(f"[{time.perf_counter() - began:6.0f} s] {line}", file=sys.stderr)

    settings = Settings(
        options.quick,
        min(2, options.repeats) if options.quick else options.repeats,
        options.seeds,
        not options.no_extrapolation,
        log,
    )
    machine = describe_machine()
    rows = []
    for group in options.rows:
        for row in GROUPS[group](settings):
            log(f"{row.measure}: {row.measured}")
            rows.append(row)
            if options.json:  # after each row, as a long run may be cut short
                write(options.json, machine, settings, rows)
    machine["load at the end"] = load()
    if options.json:
        write(options.json, machine, settings, rows)
    print(as_table(rows, machine, options.quick))


def load():
    """One-minute load average; what else ran explains odd seconds."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def describe_machine():
    """What the numbers depend on."""
    name = platform.processor() or platform.machine()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo") as file:
            models = [line for line in file if line.startswith("model name")]
        name = models[0].partition(":")[2].strip() if models else name
    return {
        "processor": name,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
        "scikit-learn": sklearn.__version__,
        "skvrem": skvrem.__version__,
        "load at the start": load(),
    }


def write(path, machine, settings, rows):
    """Write everything that was measured as JSON."""
    content = {
        "machine": machine,
        "quick": settings.quick,
        "rows": [row._asdict() for row in rows],
    }
    with open(path, "w") as file:
        json.dump(content, file, indent=1, default=float)


def as_table(rows, machine, quick):
    """Format the rows, with long cells broken over lines."""
    widths = (46, 58, 22, 5)
    titles = ("measure", "measured", "target", "ok")
    rule = "  ".join("-" * width for width in widths)
    lines = [", ".join(f"{name} {value}" for name, value in machine.items())]
    if quick:
        lines.append("Small sizes (--quick): the targets do not apply.")
    lines += ["", _line(titles, widths), rule]
    for row in rows:
        ok = {True: "yes", False: "NO", None: "-"}[row.ok]
        cells = (row.measure, row.measured, row.target, ok)
        broken = [
            textwrap.wrap(cell, width) or [""]
            for cell, width in zip(cells, widths, strict=True)
        ]
        for i in range(max(map(len, broken))):
            parts = [part[i] if i < len(part) else "" for part in broken]
            lines.append(_line(parts, widths))
    return "\n".join(lines)


def _line(cells, widths):
    return "  ".join(f"{c:<{w}}" for c, w in zip(cells, widths, strict=True)).rstrip()


if __name__ == "__main__":
    main()
