"""The page of the contract is whole: what solvers call of others stands on it."""

import ast
import inspect
from pathlib import Path
from typing import Protocol

import pytest

import skvrem
from skvrem.solvers import _protocols as page
from tests.laws.cases import CASES
from tests.laws.test_sweeps import CASES as SWEPT

ROOT = Path(skvrem.__file__).parent
# Names under which solvers hold others, and their roles.
ROLES = {
    "model": ("Model", "Reduced", "Climbing", "Searched", "Swept"),
    "point": ("Point",),
    "anchor": ("Anchor",),
    "moved": ("Moved",),
    "data": ("Data",),
    "partition": ("Partition",),
    "visit": ("Visit",),
    "solver": ("Solver",),
    "temperature": ("Temperature",),
}
# Of a NamedTuple.
TUPLES = {"_replace", "_fields", "_asdict"}
# Of which the page says when they are asked for.
OPTIONAL = {
    "at",
    "better",
    "climbed",
    "depart",
    "follow",
    "joined",
    "know",
    "left_to_gain",
    "longest_step",
    "may_end",
    "most_left",
    "newton",
    "norm",
    "pack",
    "parted",
    "recalls_first",
    "recentre",
    "renewed",
    "reseed",
    "rounding",
    "rounds",
    "seen",
    "slack",
    "slope_left",
    "spent",
    "steady",
    "surrogate",
    "for_batches",
    "translate",
    "unpack",
    "variance",
    "within_epochs",
}


def members(role):
    """The names that a role has."""
    found = set()
    for cls in inspect.getmro(getattr(page, role)):
        if cls not in (object, tuple, Protocol):
            found |= set(vars(cls)) | set(inspect.get_annotations(cls))
    return {name for name in found if not name.startswith("_")} | TUPLES


def called(source):
    """Yield whom code asks, the attribute that it asks for, and the line."""

    def name_of(node):
        return getattr(node, "attr", None) or getattr(node, "id", None)

    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            yield name_of(node.value), node.attr, node.lineno
        elif isinstance(node, ast.Call) and name_of(node.func) in (
            "getattr",
            "hasattr",
        ):
            owner, name, *_ = node.args
            if isinstance(name, ast.Constant):
                yield name_of(owner), name.value, node.lineno


def lacking(source):
    """What is called of others and stands in none of their roles."""
    return [
        f"{owner}.{name} in line {line}"
        for owner, name, line in called(source)
        if owner in ROLES
        and not any(name in members(role) for role in ROLES[owner])
        and not name.startswith("__")
    ]


FILES = sorted((ROOT / "solvers").glob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_solvers_call_is_on_the_page(path):
    if path.name != "_protocols.py":
        assert not lacking(path.read_text("utf-8"))


def test_what_is_not_on_the_page_is_found():
    assert lacking("self.model.bend(point)") == ["model.bend in line 1"]
    assert lacking("x = getattr(model, 'twist', None)")
    assert lacking("point.momentum") and lacking("solver.hurry()")
    assert not lacking("self.model.update(point, anchor.mean, None, 1.0)")


@pytest.mark.parametrize(
    "path",
    sorted(ROOT.rglob("*_model*.py")) + FILES,
    ids=lambda path: path.relative_to(ROOT).as_posix(),
)
def test_arguments_are_what_they_are_called(path):
    """No generator in the place of a correction, no `isinstance` to tell them apart."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
            assert "Generator" not in ast.unparse(node), f"line {node.lineno}"
        if not isinstance(node, ast.FunctionDef):
            continue
        names = [argument.arg for argument in node.args.args]
        if node.name == "update" and names[0] == "self" and "_model" in path.stem:
            assert names[1:] == ["point", "mean", "correction", "step"]


@pytest.mark.parametrize("name", SWEPT)
def test_models_of_sweeps_are_whole(name):
    steps = SWEPT[name]().steps
    lacking = {m for m in members("Swept") - TUPLES if not hasattr(steps, m)}
    assert lacking <= OPTIONAL


@pytest.mark.parametrize("name", CASES)
def test_models_are_whole(name):
    case = CASES[name]()
    asked = members("Model") - TUPLES
    if set(case.solvers) & {"svrg", "saga"}:
        asked |= members("Reduced") - TUPLES
    if "quasi-newton" in case.solvers:
        asked |= members("Climbing") - TUPLES - {"predicted_gain"}
    assert {m for m in asked if not hasattr(case.model, m)} <= OPTIONAL
    assert all(hasattr(case.point, m) for m in members("Point") - TUPLES)
