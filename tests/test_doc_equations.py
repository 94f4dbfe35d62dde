"""Every function that a user-guide page names exists."""

import importlib
import inspect
import re
from pathlib import Path

import pytest

PAGES = Path(__file__).resolve().parents[1] / "doc" / "user_guide"
# ``skvrem.x.y`` and :class:`~skvrem.x.y`; a file name such as skvrem/x.py is none.
NAME = re.compile(r"[`~](skvrem(?:\.\w+)+)`")


def find(name):
    """Import the longest module in a dotted name and look up the rest."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        module = ".".join(parts[:length])
        try:
            found = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name is None or not module.startswith(error.name):
                raise
            continue
        for part in parts[length:]:
            found = getattr(found, part)
        return found
    raise AttributeError(name)


def named():
    return sorted(
        {
            (page.stem, name)
            for page in PAGES.glob("*.rst")
            for name in NAME.findall(page.read_text("utf-8"))
        }
    )


@pytest.mark.parametrize(("page", "name"), named())
def test_what_a_page_names_exists(page, name):
    found = find(name)
    if callable(found):
        assert inspect.getdoc(found), f"{name} is named in {page}.rst: document it"


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.rst")), ids=lambda p: p.stem)
def test_every_page_of_a_model_has_a_table_of_functions(page):
    if page.stem == "index":
        pytest.skip("the list of pages")
    functions = [name for stem, name in named() if stem == page.stem]
    assert len(functions) >= 5


def test_wrong_names_are_found_out():
    with pytest.raises(AttributeError):
        find("skvrem.solvers.NoSuchSolver")
    with pytest.raises(AttributeError):
        find("skvrem.no_such_module")
