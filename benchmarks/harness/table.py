"""The frame of a table: options, rows, the machine, output as text and JSON."""

import argparse
import json
import os
import platform
import sys
import textwrap
import time
from typing import NamedTuple

import numba
import numpy as np
import sklearn

import skvrem

__all__ = ["Row", "make_parser", "measure"]


class Row(NamedTuple):
    """One line of the table.

    Attributes
    ----------
    group : str
        Name under which ``--rows`` finds it.
    measure, measured, target : str
    ok : bool or None
        None where there is no target, or where nothing could be measured.
    details : dict
        Numbers behind it, for ``--json``.
    """

    group: str
    measure: str
    measured: str
    target: str
    ok: bool | None
    details: dict


def make_parser(description, groups):
    """Return a parser of the options that every table has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--rows", nargs="+", choices=groups, default=list(groups), metavar="GROUP"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--repeats", type=int, default=4, help="of each timing")
    parser.add_argument("--seeds", type=int, default=3, help="starts of counted fits")
    parser.add_argument("--json", metavar="FILE", help="write the numbers behind it")
    return parser


def measure(groups, options, make_settings):
    """Measure the groups asked for and print the table.

    Parameters
    ----------
    groups : dict of {str: callable}
        Each takes the settings and yields `Row`.
    options : argparse.Namespace
    make_settings : callable
        Takes a function that logs a line, and returns the settings.
    """
    began = time.perf_counter()

    def log(line):
        print(f"[{time.perf_counter() - began:6.0f} s] {line}", file=sys.stderr)

    settings = make_settings(log)
    machine = describe_machine()
    rows = []
    for group in options.rows:
        for row in groups[group](settings):
            log(f"{row.measure}: {row.measured}")
            rows.append(row)
            if options.json:  # after each row, as a long run may be cut short
                write(options.json, machine, options.quick, rows)
    machine["load at the end"] = load()
    if options.json:
        write(options.json, machine, options.quick, rows)
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


def write(path, machine, quick, rows):
    """Write everything that was measured as JSON."""
    content = {
        "machine": machine,
        "quick": quick,
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
