"""Which stored results are of code that has changed since they were measured."""

import ast
import importlib
import inspect
from functools import cache
from pathlib import Path
from typing import NamedTuple

from benchmarks.harness import results

__all__ = ["Stale", "changed", "code", "rooms", "stale"]

#: What all models stand on.
SHARED = "data", "solvers", "utils"


class Stale(NamedTuple):
    """Rows of one run whose code has changed.

    Attributes
    ----------
    table, date, commit : str
    places : list of str
        Ids of the rows.
    own, shared : list of str
        Files with changed code, of the models that the table measures and of what all
        models stand on.
    """

    table: str
    date: str
    commit: str
    places: list
    own: list
    shared: list

    @property
    def kernels(self):
        """Of the model's files those that loop over rows: what seconds are made of."""
        return [name for name in self.own if Path(name).name.startswith("_kernels")]


def rooms(table):
    """Return the folders of skvrem whose models a table measures, shared ones aside.

    Parameters
    ----------
    table : str

    Returns
    -------
    folders : set of str
    """
    found, seen, left = set(), set(), [f"benchmarks.tables.{table}"]
    while left:
        name = left.pop()
        if name not in seen:
            seen.add(name)
            for module in _imported(name):
                first, _, rest = module.partition(".")
                if first == "benchmarks":
                    left.append(module)
                elif rest and (folder := rest.partition(".")[0]) not in SHARED:
                    found.add(folder)
    return found


def _imported(name):
    """Yield what a module of the benchmarks imports of skvrem and of other tables."""
    module = importlib.import_module(name)
    if Path(inspect.getsourcefile(module)).name == "__init__.py":
        return
    tree = ast.parse(inspect.getsource(module))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            for alias in node.names:
                yield from _defined(node.module, alias.name)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name == "skvrem":
                    called = alias.asname or alias.name
                    for at in ast.walk(tree):
                        if isinstance(at, ast.Attribute) and _is(at.value, called):
                            yield from _defined("skvrem", at.attr)


def _is(node, name):
    return isinstance(node, ast.Name) and node.id == name


def _defined(module, name):
    """Yield the module that a name of a module is defined in, or is."""
    if module.partition(".")[0] not in ("skvrem", "benchmarks"):
        return
    if module.startswith("benchmarks.harness"):
        return
    value = getattr(importlib.import_module(module), name, None)
    if inspect.ismodule(value):
        yield value.__name__
    else:
        yield getattr(value, "__module__", None) or module


class _Bare(ast.NodeTransformer):
    """Takes away what does not run in a fit: docstrings, imports, annotations."""

    def visit_Expr(self, node):
        text = isinstance(node.value, ast.Constant) and isinstance(
            node.value.value, str
        )
        return None if text else node

    def visit_Import(self, node):
        return None

    visit_ImportFrom = visit_Import

    def visit_arg(self, node):
        node.annotation = None
        return node

    def visit_FunctionDef(self, node):
        node.returns = None
        return self.generic_visit(node)

    def visit_AnnAssign(self, node):
        if node.value is None:
            return None
        return ast.Assign(targets=[node.target], value=node.value)


@cache
def code(source):
    """Return what of a source runs, as text that can be compared.

    Comments, docstrings, layout, imports and annotations are left out.
    """
    return ast.dump(_Bare().visit(ast.parse(source)))


def changed(commit, date):
    """Return the files of skvrem whose code has changed since a commit.

    Parameters
    ----------
    commit : str
        Where history has been rewritten, the last one of before the date stands in.
    date : str

    Returns
    -------
    files : list of str
    """
    commit = commit.rstrip("+")
    if results.git("cat-file", "-e", f"{commit}^{{commit}}") is None:
        before = results.git("rev-list", "-1", f"--before={date}", "HEAD")
        if not before or not before.strip():
            raise ValueError(f"{commit} is unknown, and nothing is before {date}.")
        commit = before.strip()
    lines = results.git("diff", "--name-status", "-M", commit, "--", "skvrem")
    files = [line.split("\t")[1:] for line in lines.splitlines()]
    return [f[-1] for f in files if f[-1].endswith(".py") and _differs(commit, *f)]


def _differs(commit, before, now=None):
    """Return whether the code of a file is another, which may have been renamed."""
    text, path = (
        results.git("show", f"{commit}:{before}"),
        results.ROOT / (now or before),
    )
    if text is None or not path.exists():
        return True
    return code(text) != code(path.read_text("utf-8"))


def stale(table, known=None):
    """Return the `Stale` rows of a table, run by run, the oldest first.

    Parameters
    ----------
    table : str
    known : dict, default=None
        Changed files by commit and date, which are found once.
    """
    known = {} if known is None else known
    found, runs = results.load(results.FOLDER / f"{table}.json"), {}
    for place in found:
        about = found.about[place]
        runs.setdefault((about["date"], about["commit"]), []).append(place)
    own = rooms(table)
    out = []
    for (date, commit), places in sorted(runs.items()):
        if (commit, date) not in known:
            known[commit, date] = changed(commit, date)
        files = {name: Path(name).parts[1] for name in known[commit, date]}
        # A table that measures in processes of its own may import no model.
        mine = [
            name
            for name, folder in files.items()
            if (folder in own if own else folder not in SHARED)
        ]
        shared = [name for name, folder in files.items() if folder in SHARED]
        if mine or shared:
            out.append(Stale(table, date, commit, places, mine, shared))
    return out
