"""What a table consists of: groups of cases, each of which yields rows."""

import math
import re
from types import MappingProxyType
from typing import NamedTuple

__all__ = [
    "Row",
    "Unavailable",
    "group",
    "meets",
    "ratio",
    "show",
    "show_peer",
    "show_ratio",
    "show_target",
    "slug",
]

#: Units of which more is better, and that are compared by their difference.
HIGHER = {"nats"}


class Unavailable(Exception):
    """Data, or something else that a case needs, is not there: it is left out."""


class Row(NamedTuple):
    """One line of a table: what was measured, beside other packages.

    Attributes
    ----------
    label : str
    value : float
        Ours; infinite where a goal was not reached.
    unit : str
        "s", "bytes", "nats", "" (a gap or share), or what is counted: less is better,
        but for nats.
    peers : dict of {str: float}
        The same of others, or of other ways of ours.
    target : float or dict of {str: float}, default=None
        Least ratio to the peers (or to one of them), or where there are none the most
        (nats: the least) of the value.
    note : str, default=""
    noise : float, default=0.0
        By how much a repetition differs, as a share of the value.
    key : str, default=""
        Sets the rows of one case apart.
    numbers : dict, default={}
        All that is behind it.
    """

    label: str
    value: float
    unit: str
    peers: dict = MappingProxyType({})
    target: object = None
    note: str = ""
    noise: float = 0.0
    key: str = ""
    numbers: dict = MappingProxyType({})


def group(cases=None, asked=False):
    """Make a function of a run and a case's arguments a group of its module's table.

    Its name is the function's with hyphens, its title the first line of the docstring.

    Parameters
    ----------
    cases : dict of {str: tuple} or iterable, default=None
        Names with arguments, or arguments (strings or tuples) that make the name.
    asked : bool, default=False
        Only run where a pattern names the group.
    """

    def mark(function):
        found = cases if isinstance(cases, dict) else {}
        for case in () if cases is None or found else cases:
            case = case if isinstance(case, tuple) else (case,)
            found["-".join(map(str, case))] = case
        function.cases = {slug(name): case for name, case in found.items()} or {"": ()}
        function.asked = asked
        function.group = function.__name__.rstrip("_").replace("_", "-")
        function.title = " ".join(function.__doc__.partition("\n\n")[0].split())
        return function

    return mark


def slug(text):
    """Return a text as a part of an id."""
    return re.sub(r"[^\w.=+-]+", "-", text).strip("-")


def ratio(row, peer):
    """Return how many times better than a peer, or for nats by how much."""
    value, other = row.value, row.peers[peer]
    if row.unit in HIGHER:
        return value - other
    return other / value if value else math.inf


def targets(row):
    """Return the target of each peer that has one."""
    if isinstance(row.target, dict):
        return {name: t for name, t in row.target.items() if name in row.peers}
    return dict.fromkeys(row.peers, row.target) if row.target is not None else {}


def meets(row):
    """Return whether the target is met, None where there is none."""
    wanted = targets(row)
    if wanted:
        return all(ratio(row, name) >= target for name, target in wanted.items())
    if row.target is None or row.peers:
        return None
    higher = row.unit in HIGHER
    return row.value >= row.target if higher else row.value <= row.target


def show(value, unit):
    """Write a number with its unit."""
    if value is None or math.isnan(value):
        return "-"
    if unit not in HIGHER and math.isinf(value):
        return "not reached"
    if unit == "s":
        for size, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
            if abs(value) >= size:
                return f"{_three(value / size)} {name}"
        return f"{_three(1e9 * value)} ns"
    if unit == "bytes":
        return f"{_three(value / 1e6)} MB"
    if unit in HIGHER:
        return f"{value:,.4f}" if abs(value) < 1e4 else f"{value:,.2f}"
    return f"{_three(value)} {unit}".rstrip()


def _three(value):
    """Three digits, or all of those before the point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def show_ratio(value, unit):
    """Write what `ratio` returns, nothing where a side did not get there."""
    if not math.isfinite(value):
        return ""
    if unit in HIGHER:
        return f"{value:+.4f}" if abs(value) < 1e3 else f"{value:+,.1f}"
    return f"{value:.{0 if value >= 100 else 1 if value >= 1 else 2}f}x"


def show_peer(row, name):
    """Write a peer's value, and how many times better ours is."""
    factor = show_ratio(ratio(row, name), row.unit)
    return show(row.peers[name], row.unit) + (f" ({factor})" if factor else "")


def show_target(row):
    """Write the target, and whether it is met."""
    met = {True: ", met", False: ", missed", None: ""}[meets(row)]
    wanted = targets(row)
    if wanted:
        return (
            ", ".join(dict.fromkeys(show_ratio(t, row.unit) for t in wanted.values()))
            + met
        )
    if row.target is None or row.peers:
        return ""
    sign = "≥" if row.unit in HIGHER else "≤"
    return f"{sign} {show(row.target, row.unit)}{met}"
