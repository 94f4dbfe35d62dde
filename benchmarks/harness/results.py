"""Results as JSON: rows by their id, each with the run that measured it."""

import json
import os
import platform
import subprocess
import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from benchmarks.harness.rows import Row
from benchmarks.harness.run import groups

__all__ = ["FOLDER", "ROOT", "add", "at_commit", "describe_run", "git", "load"]

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "benchmarks" / "results"
#: Whose versions are kept, where they are installed.
PACKAGES = (
    "skvrem numpy scipy numba scikit-learn hmmlearn enstop tomotopy gensim glum snapml "
    "choix gmr stepmix pomegranate torch jax numpyro pymc"
).split()


def describe_run(quick):
    """Return what the numbers of a run depend on."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "commit": _commit(),
        "quick": quick,
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": versions,
    }


def _processor():
    """Name the processor, by family and model too: names alone may tell little."""
    name = platform.processor() or platform.machine()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo") as file:
            lines = file.read().partition("\n\n")[0].splitlines()
        parts = (line.partition(":") for line in lines)
        known = {key.strip(): value.strip() for key, _, value in parts}
        name = known.get("model name", name)
        if "cpu family" in known:
            name += f" (family {known['cpu family']}, model {known.get('model', '?')})"
    return name


def git(*arguments):
    """Return what a command of git prints, None where it fails."""
    command = ["git", "-C", str(ROOT), *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else None


def _commit():
    name = (git("rev-parse", "--short", "HEAD") or "unknown").strip()
    return name + ("+" if git("status", "--porcelain", "--", "skvrem") else "")


def add(path, table, run, measured):
    """Put rows into a file, in place of those of the same id.

    Parameters
    ----------
    path : pathlib.Path
    table : str
    run : dict
        From `describe_run`.
    measured : dict of {str: (Row, float)}
        Rows with load averages, by id.
    """
    runs, rows = {}, {}
    if path.exists():
        stored = json.loads(path.read_text("utf-8"))
        runs, rows = stored["runs"], stored["rows"]
    key = f"{run['date']} {run['commit']}"
    runs[key] = run
    for place, (row, busy) in measured.items():
        rows[place] = {"run": key, "load": busy} | row._asdict()
    # Those of cases that the table has no more go.
    rows = {
        place: row
        for start in _starts(table)
        for place, row in rows.items()
        if f"{place}/".startswith(start)
    }
    used = {row["run"] for row in rows.values()}
    content = {"runs": {k: v for k, v in runs.items() if k in used}, "rows": rows}
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content, indent=1, default=_plain, ensure_ascii=False)
    path.write_text(text + "\n", "utf-8")


def _starts(table):
    """Yield what the ids of each case's rows start with, in the table's order."""
    for name, function in groups(table).items():
        for case in function.cases:
            yield f"{table}/{name}/{case}/".replace("//", "/")


def _plain(value):
    return dict(value) if isinstance(value, Mapping) else float(value)


class Stored(dict):
    """The `Row` of every id, in order; `about` has the run and load of each."""

    def __init__(self, text):
        content = json.loads(text) if text else {"runs": {}, "rows": {}}
        self.about = {}
        for place, fields in content["rows"].items():
            run = content["runs"][fields.pop("run")]
            self.about[place] = run | {"load": fields.pop("load")}
            self[place] = Row(**fields)


def load(path):
    """Return the `Stored` rows of a file, none where there is none."""
    return Stored(path.read_text("utf-8") if path.exists() else "")


def at_commit(table, revision):
    """Return the `Stored` rows of a table at a commit."""
    return Stored(git("show", f"{revision}:benchmarks/results/{table}.json"))
