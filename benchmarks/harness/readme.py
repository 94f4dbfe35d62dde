"""Tables of Markdown files, made from the stored results between two markers.

<!-- table: hmm/iteration hmm/fit -->
...
<!-- end -->

A few ratios, each with the command that measures it, stand between
``<!-- highlights -->`` and ``<!-- end -->``.
"""

import re

from benchmarks.harness import results
from benchmarks.harness.rows import ratio, show, show_peer, show_ratio, show_target
from benchmarks.harness.run import groups, names, wanted

__all__ = ["FILES", "as_markdown", "fill"]

FILES = [results.ROOT / "README.md", results.ROOT / "benchmarks" / "README.md"]
MARKED = re.compile(r"(<!-- table: (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)
HIGHLIGHTED = re.compile(r"(<!-- highlights -->\n).*?(<!-- end -->)", re.DOTALL)
#: What the README tells: a row's place, a peer, and words for what was measured.
HIGHLIGHTS = [
    (
        "mixture/iteration/n=1e6-d=10-k=10-full-float64-1",
        "scikit-learn",
        "`GaussianMixture`, an EM iteration of a million rows",
    ),
    (
        "mixture/memory/full-auto",
        "scikit-learn",
        "`GaussianMixture`, memory of such a fit beyond the data",
    ),
    (
        "hmm/iteration/N=3-d=3-diag",
        "hmmlearn log",
        "`GaussianHMM` of hmmlearn, an iteration of 100,000 rows",
    ),
    (
        "lda/held-out/ap/seconds",
        "scikit-learn",
        "`LatentDirichletAllocation`, to its best held-out value (AP news)",
    ),
    (
        "logistic/time/multinomial",
        "best of scikit-learn",
        "`LogisticRegression`, ten classes, to 1e-6 of the least loss",
    ),
    (
        "logistic/time/news-binary",
        "best of scikit-learn",
        "`LogisticRegression`, sparse text of two classes",
    ),
]
#: A load average above which something else ran.
BUSY = 1.0


def fill(text, folder=results.FOLDER):
    """Return a text with its tables made anew.

    Parameters
    ----------
    text : str
    folder : pathlib.Path
        Of the stored results.
    """
    text = HIGHLIGHTED.sub(lambda m: m[1] + _highlights(folder) + m[2], text)
    return MARKED.sub(lambda m: m[1] + _tables(m[2].split(), folder) + m[3], text)


def _highlights(folder):
    lines = ["| one thread | theirs | skvrem | |", "|---|---|---|---|"]
    for place, peer, words in HIGHLIGHTS:
        row = results.load(folder / f"{place.split('/')[0]}.json").get(place)
        if row is None or peer not in row.peers:
            continue
        values = show(row.peers[peer], row.unit), show(row.value, row.unit)
        factor = show_ratio(ratio(row, peer), row.unit)
        lines.append(f"| {words} | {values[0]} | {values[1]} | {factor} |")
    return "\n".join(lines) + "\n"


def _tables(patterns, folder):
    parts, about, peers = [], [], set()
    for table in names():
        if not any(pattern.split("/")[0] == table for pattern in patterns):
            continue
        stored = results.load(folder / f"{table}.json")
        for name, function in groups(table).items():
            chosen = {
                place: row
                for place, row in stored.items()
                if place.split("/")[1] == name and wanted(place, patterns)
            }
            if chosen:
                parts.append(as_markdown(function.title, chosen.values()))
                about += [stored.about[place] for place in chosen]
                peers |= {name for row in chosen.values() for name in row.peers}
    if not parts:
        return "Not stored yet.\n"
    return "\n".join([*parts, _caption(about, peers)])


def as_markdown(title, rows):
    """Return the table of a group."""
    rows = list(rows)
    peers = list(dict.fromkeys(name for row in rows for name in row.peers))
    columns = {
        title.rstrip("."): [row.label for row in rows],
        "": [show(row.value, row.unit) for row in rows],
        **{
            name: [show_peer(row, name) if name in row.peers else "" for row in rows]
            for name in peers
        },
        "target": [show_target(row) for row in rows],
        "note": [row.note for row in rows],
    }
    for name in ("target", "note"):
        if not any(columns[name]):
            del columns[name]
    lines = [
        list(columns),
        ["---"] * len(columns),
        *zip(*columns.values(), strict=True),
    ]
    cells = (" | ".join(cell.replace("|", "\\|") for cell in line) for line in lines)
    return "".join(f"| {line} |\n" for line in cells)


#: Whose versions are told beside those of the peers that a table has.
ALWAYS = "numpy", "numba", "scikit-learn"


def _caption(about, peers):
    """Say when and where rows were measured, and beside what."""
    words = " ".join([*ALWAYS, *peers]).lower()

    def span(values):
        found = sorted(set(values))
        return f"{found[0]} to {found[-1]}" if len(found) > 1 else f"{found[0]}"

    loads = [run["load"] for run in about if run["load"] is not None]
    busy = ", other work beside it" if loads and max(loads) > BUSY else ""
    load = f"load {span(loads)}{busy}; " if loads else ""
    versions = {k: v for run in about for k, v in run["versions"].items()}
    listed = ", ".join(
        f"{package} {version}"
        for package, version in versions.items()
        if package in words
    )
    last = about[-1]
    processors = " and ".join(dict.fromkeys(run["processor"] for run in about))
    return (
        f"Measured {span(run['date'][:10] for run in about)} at "
        f"{', '.join(dict.fromkeys(run['commit'] for run in about))}; {load}"
        f"{last['cores']} cores of {processors}, Python {last['python']}, "
        f"{listed}.\n"
    )
