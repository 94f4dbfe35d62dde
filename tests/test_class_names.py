"""One name of a class, one thing: nobody has to ask which `Sums` is meant."""

import ast
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "skvrem"
#: Roles of ``solvers/_protocols.py`` that models fill, each with a tuple of its own.
ROLES = {"Parameters", "Point", "Statistics"}


def class_names(source):
    """Yield the names of the classes of a module, private ones without the mark."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            yield node.name.lstrip("_")


def test_classes_share_no_name():
    places = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for name in class_names(path.read_text()):
            places[name].append(path.relative_to(PACKAGE).as_posix())
    assert ROLES < set(places)
    shared = {name: files for name, files in places.items() if len(files) > 1}
    assert set(shared) <= ROLES, shared
    # A role is a model's, or where it is described.
    of_roles = [file for name in ROLES for file in places[name]]
    assert all("_model" in file or file == "solvers/_protocols.py" for file in of_roles)


def test_private_and_nested_classes_count():
    source = "class _A:\n    class B: ...\ndef f():\n    class A: ..."
    assert sorted(class_names(source)) == ["A", "A", "B"]
