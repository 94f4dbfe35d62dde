"""Functions that user-guide pages name exist, and say which equations they compute."""

import ast
import importlib
import inspect
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "doc" / "user_guide"
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
    if page.stem in ("index", "hmm_porting"):
        pytest.skip("a list of pages, or of names elsewhere")
    functions = [name for stem, name in named() if stem == page.stem]
    assert len(functions) >= 5


def test_wrong_names_are_found_out():
    with pytest.raises(AttributeError):
        find("skvrem.solvers.NoSuchSolver")
    with pytest.raises(AttributeError):
        find("skvrem.no_such_module")


# The numbers. One spelling, in pages and in docstrings: "Chen et al. 2018, Eq. 5",
# "Eqs. 4, 5 and 61-67 of Wang et al. (2024)", "Algorithm 2".

PAPER = r"(?P<{0}>[A-Z]\w+)(?: et al\.| and [A-Z]\w+)? \(?(?P<{0}_year>\d{{4}})\)?"
PAPERS = re.compile(PAPER.format("author"))
ITEM = r"\d+(?:\.\d+)?(?:-\d+)?"
NUMBERED = re.compile(
    rf"(?:{PAPER.format('before')}, )?(?P<kind>Eqs?\.|Algorithms?) "
    rf"(?P<numbers>{ITEM}(?:(?:, | and ){ITEM})*)(?: of {PAPER.format('behind')})?"
)
# What would be a number if it were spelled as above.
MISSPELLED = re.compile(r"\bEq|\bAlg|\(\d")
TABLE = re.compile(r"^\.\. list-table::.*\n(?:(?: {3}.*)?\n)+", re.MULTILINE)
BENCHMARK = re.compile(r"``(benchmarks(?:\.\w+)+)``")
CODE = re.compile(r"``([^`]+)``")
MATHS = re.compile(r":math:`[^`]*`")

# Equations without which a paper has not been implemented.
CENTRAL = {
    "Chen 2018": "Eqs. 2-5",
    "Choromanska 2013": "Eqs. 1 and 2, Algorithms 1 and 2",
    "Mandt 2016": "Eqs. 4 and 8-12, Algorithm 1",
    "Sidrow 2023": "Eqs. 2, 4-8, 10, 11, 19-25 and 30-37, Algorithms 1, 2, 4 and 5",
    "Wang 2024": "Eqs. 4-6, 9, 10, 13, 15, 56-58 and 61-67, Algorithms 1-3",
}


def papers(text):
    """The papers named in a text, each as "Chen 2018"."""
    found = PAPERS.finditer(" ".join(text.split()))
    return {f"{paper['author']} {paper['author_year']}" for paper in found}


def numbers(text):
    """The set of (paper or None, kind, number) in a text."""
    out = set()
    for match in NUMBERED.finditer(" ".join(text.split())):
        paper = None
        for side in ("before", "behind"):
            if match[side]:
                paper = f"{match[side]} {match[f'{side}_year']}"
        for item in re.split(", | and ", match["numbers"]):
            first, _, last = item.partition("-")
            span = range(int(first), int(last) + 1) if last else [first]
            span = span or [first, last]  # a range that ends before it begins
            out |= {(paper, match["kind"].rstrip("s."), str(n)) for n in span}
    return out


def rows_of(text):
    """Rows (paper, cell, cell) of the tables of two columns in a page.

    The paper is that of the sentence in front of the table, or None.
    """
    for table in TABLE.finditer(text):
        lead = text[: table.start()].rstrip().rpartition("\n\n")[2]
        own = papers(lead) if lead.startswith("Numbers are those of ") else ()
        assert len(own) < 2, lead
        for row in re.split(r"^ {3}\* - ", table[0], flags=re.MULTILINE)[2:]:
            cells = re.split(r"^ {5}- ", row, flags=re.MULTILINE)
            if len(cells) == 2:
                yield next(iter(own), None), *(" ".join(c.split()) for c in cells)


def cited(paper, cell):
    """What a cell cites, with the paper where the cell does not name another."""
    return {(own or paper, *number) for own, *number in numbers(cell)}


def names_in(function):
    """The full names in a cell of functions."""
    return NAME.findall(function) + BENCHMARK.findall(function)


def docstrings(name):
    """Return the text of a function and its class, and with the module's as well."""
    if name.startswith("benchmarks."):
        *folders, function = name.split(".")
        tree = ast.parse(ROOT.joinpath(*folders).with_suffix(".py").read_text("utf-8"))
        (node,) = (n for n in tree.body if getattr(n, "name", None) == function)
        own, module = ast.get_docstring(node), ast.get_docstring(tree)
    else:
        found, holder = find(name), find(name.rpartition(".")[0])
        own = found.__doc__ or ""
        if inspect.isclass(holder):
            own += "\n\n" + (holder.__doc__ or "")
        module = sys.modules[found.__module__].__doc__
    return own or "", f"{own}\n\n{module}"


def said(name, paper, *number):
    """Whether the docstring of a function, or of its class, has a paper's number."""
    own, context = docstrings(name)
    bare = (None, *number) in numbers(own) and paper in papers(context)
    return bare or (paper, *number) in numbers(own)


def complaints(paper, equation, function):
    """What is wrong with a row."""
    cites = cited(paper, equation)
    if MISSPELLED.search(NUMBERED.sub("", MATHS.sub("", CODE.sub("", equation)))):
        return [f"a number is not spelled as in docstrings: {equation}"]
    if not cites:
        return []
    if any(own is None for own, *_ in cites):
        return [f"of which paper? {equation}"]
    names = names_in(function)
    if len(names) != len(CODE.findall(function)) + function.count("~"):
        return [f"not all full names: {function}"]
    has = {name: {cite for cite in cites if said(name, *cite)} for name in names}
    wrong = [f"{name} says nothing of {equation}" for name in has if not has[name]]
    missing = cites.difference(*has.values())
    return wrong + [f"no docstring of {names} has {cite}" for cite in sorted(missing)]


def rows():
    return [
        pytest.param(*row, id=f"{page.stem}-{row[1][:50]}")
        for page in sorted(PAGES.glob("*.rst"))
        for row in rows_of(page.read_text("utf-8"))
    ]


def numbered_rows():
    return [row for row in rows() if cited(*row.values[:2])]


def skip_without_benchmarks(function):
    if BENCHMARK.search(function) and not (ROOT / "benchmarks").exists():
        pytest.skip("the benchmarks are not part of the source distribution")


@pytest.mark.parametrize(("paper", "equation", "function"), rows())
def test_docstrings_have_the_numbers_of_a_row(paper, equation, function):
    skip_without_benchmarks(function)
    assert complaints(paper, equation, function) == []


@pytest.mark.parametrize("paper", CENTRAL)
def test_the_central_equations_of_a_paper_have_a_row(paper):
    found = set().union(*(cited(*row.values[:2]) for row in rows()))
    assert cited(paper, CENTRAL[paper]) - found == set()


def test_the_index_of_equations_is_that_of_the_tables():
    from tests import equations

    assert equations.PAGE.read_text("utf-8") == equations.page(), (
        "python -m tests.equations writes the page anew"
    )


@pytest.mark.parametrize(("paper", "equation", "function"), numbered_rows())
def test_another_number_or_paper_in_a_row_is_found_out(paper, equation, function):
    skip_without_benchmarks(function)
    for match in NUMBERED.finditer(equation):
        for digits in re.finditer(r"\d+", match["numbers"]):
            start = match.start("numbers") + digits.start()
            planted = equation[:start] + "9" + equation[start:]
            assert complaints(paper, planted, function), planted
    others = {"Chen 2018", "Wang 2024"} - {own for own, *_ in cited(paper, equation)}
    other = others.pop()
    planted = NUMBERED.sub(lambda m: f"{m['kind']} {m['numbers']}", equation)
    assert complaints(other, planted, function), other


@pytest.mark.parametrize(
    ("page", "right", "planted"),
    [
        ("mixture", "solvers.SVRG.estimate", "solvers.Batch.estimate"),
        ("mixture", "solvers.SVRG.estimate", "solvers.SAGA.estimate"),
        ("mixture", "solvers.Batch.estimate", "solvers.Stochastic.estimate"),
        ("mixture", "(Eq. 5)", "(Eq. 55)"),
        ("mixture", "(Eq. 5)", "(Eq. 4)"),
        ("mixture", "(Eq. 5)", "(5)"),
        ("mixture", "(Eq. 5)", "(Equation 5)"),
        ("mixture", "Chen et al. (2018).\n", "Wang et al. (2024).\n"),
        ("mixture", "Numbers are those of Chen et al. (2018).", ""),
        ("hmm", "_kernels.forward", "_kernels.backward"),
        ("hmm", "(Eqs. 19-22)", "(Eqs. 19-23)"),
        (
            "hmm",
            "``skvrem.hmm.forward_backward._kernels_covariates.explain``",
            "``explain``",
        ),
        ("linear", "Algorithm 7.4", "Algorithm 7.5"),
        ("vi", "_kernels_steps.exchange", "_kernels_steps.anchor"),
        ("vi", "joint_cv_baselines.estimate", "joint_cv_baselines.bound"),
    ],
)
def test_a_mistake_in_a_table_is_found_out(page, right, planted):
    skip_without_benchmarks("``benchmarks.papers``")
    text = (PAGES / f"{page}.rst").read_text("utf-8")
    assert right in text
    wrong = [complaints(*row) for row in rows_of(text.replace(right, planted))]
    assert any(wrong)
