"""The index of equations in ``doc/extending/equations.rst``, from the pages' tables.

python -m tests.equations    # writes it anew; a test holds the page to it
"""

import inspect
import re
from pathlib import Path

from tests.test_doc_equations import (
    PAGES,
    cited,
    find,
    names_in,
    rows,
    rows_of,
    said,
)

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "doc" / "extending" / "equations.rst"
#: What the papers are about, in the order of the page.
PAPERS = {
    "Chen 2018": "Chen et al. (2018), stochastic EM with variance reduction",
    "Sidrow 2023": "Sidrow et al. (2023), variance-reduced hidden Markov models",
    "Choromanska 2013": "Choromanska and Jebara (2013), stochastic bound majorization",
    "Mandt 2016": "Mandt et al. (2016), variational tempering",
    "Wang 2024": "Wang et al. (2024), joint control variates",
}
HEAD = """Equations
=========

.. made by python -m tests.equations from the tables of the user guide

Where the equations of the papers stand in the code: by number, and then by what they
are, also those without a number. Search the page for a word of what you look for. The
pages of the user guide explain the symbols. What a paper only compares with is in
``benchmarks/papers``.
"""


def place(name):
    """Return the file that defines a function, and its name there."""
    if name.startswith("benchmarks."):
        module, _, function = name.rpartition(".")
        return f"{module.replace('.', '/')}.py", function
    found = find(name)
    found = inspect.unwrap(getattr(found, "py_func", found))
    found = found.fget if isinstance(found, property) else found
    path = Path(inspect.getsourcefile(found)).relative_to(ROOT)
    own = getattr(found, "__qualname__", name.rpartition(".")[2])
    return path.as_posix(), own.partition("-")[0]  # kernels have a hash behind


def places_of(function):
    """Return the files and functions that a cell of the guide names."""
    return [place(name) for name in names_in(function)]


def by_number():
    """Return, by paper, kind and number, the places that compute it, in order.

    Of the functions of a row these are those that say so themselves.
    """
    found = {paper: {} for paper in PAPERS}
    for row in rows():
        paper, equation, function = row.values
        for cite in cited(paper, equation):
            own, *number = cite
            if own in found:
                places = found[own].setdefault(tuple(number), [])
                places += [place(n) for n in names_in(function) if said(n, *cite)]
    return found


def by_name():
    """Return, by paper, page and what a row is about, the places, in order.

    Rows stay among those of their page: some say "its" of what the one before is about.
    """
    found = {paper: {} for paper in PAPERS}
    for guide in sorted(PAGES.glob("*.rst")):
        for paper, equation, function in rows_of(guide.read_text("utf-8")):
            if paper in found:
                about = found[paper].setdefault(guide.stem, {})
                about.setdefault(equation, []).extend(places_of(function))
    return found


def _of_item(item):
    (kind, number), _ = item
    return kind, [int(part) for part in re.findall(r"\d+", number)]


def table(head, widths, places):
    """Return the lines of a table of equations, each with its places."""
    lines = [".. list-table::", "   :header-rows: 1", f"   :widths: {widths}", ""]
    lines += [f"   * - {head}", "     - File and function"]
    for name, found in places.items():
        where = [f"``{file}`` ``{own}``" for file, own in dict.fromkeys(found)]
        lines += [f"   * - {name}", f"     - | {where[0]}"]
        lines += [f"       | {other}" for other in where[1:]]
    return [*lines, ""]


def page():
    """Return the text of the page."""
    lines, named = [HEAD], by_name()
    for paper, numbered in by_number().items():
        title = PAPERS[paper]
        marked = {
            f"{kind}. {number}" if kind == "Eq" else f"{kind} {number}": found
            for (kind, number), found in sorted(numbered.items(), key=_of_item)
        }
        lines += [title, "-" * len(title), "", *table("Number", "16 84", marked)]
        for guide, about in named[paper].items():
            lines += table(f"In :doc:`../user_guide/{guide}`", "40 60", about)
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
