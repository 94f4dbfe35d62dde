"""The index of equations in ``doc/extending/equations.rst``, from the pages' tables.

python -m tests.equations    # writes it anew; a test holds the page to it
"""

import inspect
import re
from pathlib import Path

from tests.test_doc_equations import BENCHMARK, NAME, cited, find, rows

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

Where the numbered equations of the papers stand in the code. What an equation says, and
its symbols, is in the user guide's table at the end of the page of the model; what a
paper only compares with is in ``benchmarks/papers``.
"""


def place(name):
    """Return the file that defines a function, and its name there."""
    if name.startswith("benchmarks."):
        module, _, function = name.rpartition(".")
        return f"{module.replace('.', '/')}.py", function
    found = find(name)
    found = getattr(found, "py_func", found)
    found = found.fget if isinstance(found, property) else found
    path = Path(inspect.getsourcefile(found)).relative_to(ROOT)
    own = getattr(found, "__qualname__", name.rpartition(".")[2])
    return path.as_posix(), own.partition("-")[0]  # kernels have a hash behind


def index():
    """Return, by paper, kind and number, the places that compute it, in order."""
    found = {paper: {} for paper in PAPERS}
    for row in rows():
        paper, equation, function = row.values
        names = NAME.findall(function) + BENCHMARK.findall(function)
        for own, kind, number in cited(paper, equation):
            if own in found:
                places = found[own].setdefault((kind, number), [])
                places += [place(name) for name in names]
    return found


def _key(numbered):
    kind, number = numbered
    return kind, [int(part) for part in re.findall(r"\d+", number)]


def page():
    """Return the text of the page."""
    parts = [HEAD]
    for paper, numbered in index().items():
        title = PAPERS[paper]
        lines = [title, "-" * len(title), "", ".. list-table::"]
        lines += ["   :header-rows: 1", "   :widths: 16 84", ""]
        lines += ["   * - Number", "     - File and function"]
        for kind, number in sorted(numbered, key=_key):
            unique = dict.fromkeys(numbered[kind, number])
            where = [f"``{file}`` ``{function}``" for file, function in unique]
            mark = f"{kind}. " if kind == "Eq" else f"{kind} "
            lines += [f"   * - {mark}{number}", f"     - | {where[0]}"]
            lines += [f"       | {other}" for other in where[1:]]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
