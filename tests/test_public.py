"""What a user meets first: public names, their docstrings, the cost of importing."""

import ast
import inspect
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from numpydoc.validate import validate

import skvrem
import skvrem.text

# What numpydoc asks for beyond what scikit-learn's own docstrings have.
IGNORED = {
    "ES01",  # an extended summary: formula functions say all in one line
    "GL01",  # text starts on the line after the quotes: here it starts on the same line
    "RT02",  # a single return value without a name: scikit-learn names it
    "SA01",  # a See Also section
    "SA04",  # a description of each entry in See Also
}
# Methods are shown at work in the example of their class.
IGNORED_IN_METHODS = IGNORED | {"EX01"}


def public_names():
    """Yield (dotted name, object) of estimators, displays and functions."""
    for module in (skvrem, skvrem.text):
        for name in module.__all__:
            yield f"{module.__name__}.{name}", getattr(module, name)


def public_docstrings():
    """Yield (dotted name, ignored codes) of public objects and their own methods."""
    for name, obj in public_names():
        yield name, IGNORED
        if not inspect.isclass(obj):
            continue
        for method, value in inspect.getmembers(obj):
            where = getattr(inspect.unwrap(value), "__module__", None) or ""
            if (
                not method.startswith("_")
                # Written by scikit-learn from the signatures: set_fit_request, ...
                and not re.fullmatch(r"set_\w+_request", method)
                and inspect.isroutine(value)
                and where.startswith("skvrem")
            ):
                yield f"{name}.{method}", IGNORED_IN_METHODS


@pytest.mark.parametrize(("name", "ignored"), list(public_docstrings()))
def test_docstring_is_numpydoc(name, ignored):
    errors = [
        f"{code} {text}"
        for code, text in validate(name)["errors"]
        if code not in ignored
    ]
    assert not errors, "\n".join([name, *errors])


def test_public_names_are_sorted_and_documented():
    for module in (skvrem, skvrem.text):
        assert module.__all__ == sorted(module.__all__)
    api = Path(__file__).resolve().parents[1] / "doc" / "api.rst"
    listed = set(api.read_text(encoding="utf-8").split())
    missing = {name for name, _ in public_names()} - {
        f"skvrem.{name}" for name in listed
    }
    assert not missing, "doc/api.rst lists every public name"


OPTIONAL = {"dask", "distributed", "jax", "matplotlib", "pandas", "rich"}


def run_python(code):
    command = [sys.executable, "-c", textwrap.dedent(code)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_import_does_not_load_optional_packages():
    # scikit-learn itself imports pandas, and for its callbacks rich, where installed.
    loaded = run_python(f"""
        import sys, sklearn.mixture
        before = set(sys.modules)
        from skvrem import *
        print(*{OPTIONAL}.intersection(set(sys.modules) - before))
    """)
    assert loaded.split() == []


def test_import_works_without_optional_packages():
    run_python(f"""
        import sys
        sys.modules.update(dict.fromkeys({OPTIONAL}))  # importing these now fails
        from skvrem import *
    """)


def test_names_are_imported_when_they_are_used():
    loaded = run_python("""
        import sys
        import skvrem
        print("numba" in sys.modules)
        skvrem.VRGaussianMixture, skvrem.solvers.run
        print("numba" in sys.modules, "skvrem.hmm" in sys.modules)
        print(set(skvrem.__all__) | {"hmm", "text", "solvers"} <= set(dir(skvrem)))
        from skvrem import *
        print(VRHMM is skvrem.hmm.VRHMM)
    """)
    assert loaded.split() == ["False", "True", "False", "True", "True"]
    with pytest.raises(AttributeError, match="has no attribute 'VRHM'"):
        skvrem.VRHM  # noqa: B018


def test_names_that_type_checkers_read_are_those_that_are_imported():
    """A name stands in three places: for them, for users of ``*``, and its room."""
    tree = ast.parse(Path(skvrem.__file__).read_text(encoding="utf-8"))
    read = {
        (alias.name, line.module)
        for line in ast.walk(tree)
        if isinstance(line, ast.ImportFrom) and line.module.startswith("skvrem.")
        for alias in line.names
    }
    rooms = {(name, f"skvrem.{room}") for name, room in skvrem._ROOM_OF.items()}
    assert read == rooms
    assert {name for name, _ in read} == set(skvrem.__all__)
