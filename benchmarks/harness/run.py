"""Run tables: which cases are wanted, what each yields, what is left out."""

import importlib
import importlib.util
import os
import pkgutil
import sys
import time
import traceback
from fnmatch import fnmatch
from typing import NamedTuple

from benchmarks import tables
from benchmarks.harness.rows import Unavailable, show, show_peer, show_target, slug

__all__ = ["FAILURES", "Run", "groups", "load_average", "measure", "names", "wanted"]

BEGAN = time.perf_counter()
OURS = {"skvrem", "benchmarks"}
#: Cases of this process that ended with an error; the others go on.
FAILURES = []


class Run(NamedTuple):
    """How to measure.

    Attributes
    ----------
    quick : bool
        Small sizes: to see that everything runs. Targets do not apply.
    repeats : int
        Repetitions of each timing, of which the fastest counts.
    seeds : int
        Starts of what is counted.
    threads : int
        Of both sides, in groups that do not say it themselves.
    against : pathlib.Path or None
        Folder of another checkout, for "epochs".
    """

    quick: bool = False
    repeats: int = 4
    seeds: int = 3
    threads: int = 1
    against: object = None

    def size(self, full, quick):
        """Return one of two, by whether the run is quick."""
        return quick if self.quick else full

    def installed(self, sides):
        """Return the sides but those named after a package that is not installed.

        Parameters
        ----------
        sides : dict of {str: object}
            The first word of a name is the package.
        """
        found = {}
        for name, side in sides.items():
            package = name.split()[0].replace("scikit-learn", "sklearn").lower()
            if importlib.util.find_spec(package):
                found[name] = side
            else:
                self.log(f"left out: {package} is not installed")
        return found

    @staticmethod
    def log(line):
        """Tell a line to who watches."""
        seconds = time.perf_counter() - BEGAN
        print(f"[{seconds:6.0f} s] {line}", file=sys.stderr, flush=True)


def names():
    """Return the names of all tables."""
    return [module.name for module in pkgutil.iter_modules(tables.__path__)]


def groups(table):
    """Return the groups of a table by name, in the order of its module."""
    module = importlib.import_module(f"benchmarks.tables.{table}")
    return {
        value.group: value
        for value in vars(module).values()
        if hasattr(value, "cases") and value.__module__ == module.__name__
    }


def wanted(place, patterns):
    """Whether a pattern is a place ("table/group/case"), or of one above it."""
    return any(fnmatch(place, p) or fnmatch(place, f"{p}/*") for p in patterns)


def measure(table, patterns, run):
    """Yield (id, row, load average) of every case that is wanted.

    Parameters
    ----------
    table : str
    patterns : list of str
        Such as "hmm", "hmm/fit" or "topics/pass/nips*".
    run : Run
    """
    for name, function in groups(table).items():
        named = [p for p in patterns if p.split("/")[1:2] == [name]]
        for case, arguments in function.cases.items():
            place = "/".join(filter(None, (table, name, case)))
            if not wanted(place, named if function.asked else patterns):
                continue
            run.log(place)
            try:
                for row in function(run, *arguments):
                    row = row._replace(target=None) if run.quick else row
                    run.log(describe(row))
                    yield (
                        "/".join(filter(None, (place, slug(row.key)))),
                        row,
                        load_average(),
                    )
            except Unavailable as error:
                run.log(f"left out: {error}")
            except ModuleNotFoundError as error:
                if error.name.split(".")[0] in OURS:
                    raise
                run.log(f"left out: {error.name} is not installed")
            except Exception:
                run.log(f"FAILED: {place}\n{traceback.format_exc()}")
                FAILURES.append(place)


def describe(row):
    """Write a row in a line."""
    peers = [f"{name} {show_peer(row, name)}" for name in row.peers]
    target = show_target(row)
    more = [*peers, *([f"target {target}"] if target else []), row.note]
    return f"{row.label}: {show(row.value, row.unit)}; " + "; ".join(filter(None, more))


def load_average():
    """One-minute load average; what else ran explains odd seconds."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None
