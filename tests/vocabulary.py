"""The table of parameters and attributes by estimator, in ``doc/conventions.rst``.

python -m tests.vocabulary    # writes it anew; a test holds the page to it
"""

import inspect
import re
from pathlib import Path

from skvrem.utils.discovery import all_estimators

PAGE = Path(__file__).resolve().parents[1] / "doc" / "conventions.rst"
BEGIN = ".. made by python -m tests.vocabulary: {}\n"
END = ".. end of what is made\n"
#: One that has fewer is of that estimator alone, whose page says what it is.
SHARED = 2


def parameters():
    """Return the defaults of every parameter by the estimators that have it."""
    found = {}
    for name, estimator in all_estimators():
        for parameter in inspect.signature(estimator).parameters.values():
            found.setdefault(parameter.name, {})[name] = repr(parameter.default)
    return found


def attributes():
    """Return the estimators whose docstrings list an attribute, by attribute."""
    found = {}
    for name, estimator in all_estimators():
        doc = inspect.getdoc(estimator)
        part = doc.partition("\nAttributes\n----------\n")[2]
        part = re.split(r"\n\n\w[\w ]*\n-{3,}\n", part)[0]
        for names in re.findall(r"^(\w+_(?:, \w+_)*)(?: :|$)", part, re.M):
            for attribute in names.split(", "):
                found.setdefault(attribute, {})[name] = ""
    return found


def _who(names, all_names):
    """Say which estimators these are, by those that are not where these are few."""
    others = [name for name in all_names if name not in names]
    if not others:
        return "all"
    show = ", ".join
    if len(others) <= 3:
        return "all but " + show(others)
    return show(names)


def _table(header, rows, widths):
    lines = [".. list-table::", "   :header-rows: 1", f"   :widths: {widths}", ""]
    for row in (header, *rows):
        for mark, cell in zip("*" + " " * len(row), row, strict=False):
            lines.append(f"   {mark} - {cell}")
    return "\n".join(lines) + "\n"


def tables():
    """Return the text of both tables, by name."""
    names = [name for name, _ in all_estimators()]
    rows = []
    for parameter, where in _common(parameters()):
        by_default = {}
        for name, default in where.items():
            by_default.setdefault(default, []).append(name)
        ranked = sorted(by_default.items(), key=lambda item: -len(item[1]))
        (first, _), *rest = ranked
        shown = f"``{first}``"
        for default, who in rest:
            shown += f"; ``{default}``: {', '.join(who)}"
        rows.append((f"``{parameter}``", _who(list(where), names), shown))
    header = "Parameter", "Estimators", "Default"
    made = {"parameters": _table(header, rows, "22 48 30")}
    rows = [
        (f"``{attribute}``", _who(list(where), names))
        for attribute, where in _common(attributes())
    ]
    made["attributes"] = _table(("Attribute", "Estimators"), rows, "30 70")
    return made


def _common(found):
    kept = [item for item in found.items() if len(item[1]) >= SHARED]
    return sorted(kept, key=lambda item: (-len(item[1]), item[0]))


def with_tables(text):
    """Return a page with its tables made anew."""
    for name, table in tables().items():
        head, begin, rest = text.partition(BEGIN.format(name))
        _, end, tail = rest.partition(END)
        assert begin and end, f"{PAGE.name} has no place for {name}"
        text = f"{head}{begin}\n{table}\n{end}{tail}"
    return text


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text("utf-8")), "utf-8")
