"""Measure tables, write them into the READMEs, compare results.

python -m benchmarks run                            # all tables: hours
python -m benchmarks run hmm mixture/iteration --quick
python -m benchmarks run "topics/pass/nips*" --repeats 8
python -m benchmarks run epochs/epoch/hmm* --against ../before
python -m benchmarks list topics
python -m benchmarks readme
python -m benchmarks compare HEAD~3 hmm             # stored then, and now
python -m benchmarks compare old.json --new new.json
python -m benchmarks stale hmm                      # measured with other code
"""

import argparse
import fnmatch
from collections import Counter
from pathlib import Path

from benchmarks.harness import readme, results, stale
from benchmarks.harness.compare import moved
from benchmarks.harness.run import (
    FAILURES,
    Run,
    groups,
    load_average,
    measure,
    names,
    wanted,
)


def main(arguments=None):
    """Do what the first word says."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("run", help="measure, and store the results")
    command.add_argument("only", nargs="*", help="table[/group[/case]], with wildcards")
    command.add_argument("--quick", action="store_true", help="small sizes")
    command.add_argument("--repeats", type=int, help="of each timing (4; quick: 1)")
    command.add_argument(
        "--seeds", type=int, help="starts of counted fits (3; quick: 1)"
    )
    command.add_argument("--threads", type=int, default=1)
    command.add_argument("--against", type=Path, help="checkout for epochs")
    command.add_argument(
        "--into",
        type=Path,
        help="folder of results (benchmarks/results; quick: benchmarks/outputs)",
    )
    command = commands.add_parser("list", help="names of tables, groups and cases")
    command.add_argument("only", nargs="*")
    commands.add_parser("readme", help="make the tables of the READMEs")
    command = commands.add_parser("compare", help="rows that moved beyond noise")
    command.add_argument("old", help="a file or folder of results, or a commit")
    command.add_argument("only", nargs="*")
    command.add_argument("--new", help="the same (benchmarks/results)")
    command = commands.add_parser("stale", help="results of code that has changed")
    command.add_argument("only", nargs="*")
    command.add_argument("--files", action="store_true", help="say what has changed")
    options = parser.parse_args(arguments)
    {
        "run": run,
        "list": show_list,
        "readme": write,
        "compare": compare,
        "stale": show_stale,
    }[options.command](options)


def chosen(patterns):
    """Return the tables that patterns name, and the patterns: all for none."""
    patterns = patterns or names()
    tables = {p: fnmatch.filter(names(), p.split("/")[0]) for p in patterns}
    if not all(tables.values()):
        unknown = ", ".join(p for p, found in tables.items() if not found)
        raise SystemExit(f"no table is called {unknown}")
    return sorted(set().union(*tables.values())), patterns


def run(options):
    """Measure what was asked for; every row is stored as it comes."""
    quick = options.quick
    folder = options.into or (
        results.FOLDER.parent / "outputs" if quick else results.FOLDER
    )
    how = Run(
        quick,
        options.repeats or (1 if quick else 4),
        options.seeds or (1 if quick else 3),
        options.threads,
        options.against,
    )
    about = results.describe_run(quick)
    how.log(f"load {load_average()}")
    tables, patterns = chosen(options.only)
    for table in tables:
        for place, row, busy in measure(table, patterns, how):
            path = folder / f"{table}.json"
            results.add(path, table, about, {place: (row, busy)})
    if FAILURES:
        raise SystemExit(f"failed: {', '.join(FAILURES)}")


def show_list(options):
    """Print what can be run."""
    tables, patterns = chosen(options.only)
    for table in tables:
        for name, function in groups(table).items():
            places = [f"{table}/{name}/{case}".rstrip("/") for case in function.cases]
            places = [place for place in places if wanted(place, patterns)]
            if places:
                print(f"{table}/{name}: {function.title}")
            for place in places if any(function.cases) else ():
                print(f"    {place.rpartition('/')[2]}")


def write(options):
    """Make the tables of the READMEs anew."""
    for path in readme.FILES:
        path.write_text(readme.fill(path.read_text("utf-8")), "utf-8")


def stored(where, table):
    """Return the results of a table in a folder, in a file, or at a commit."""
    path = Path(where)
    if path.is_file():
        return results.load(path)
    if path.is_dir():
        return results.load(path / f"{table}.json")
    return results.at_commit(table, where)


def compare(options):
    """Print the rows that moved."""
    tables, patterns = chosen(options.only)
    for table in tables:
        sides = (options.old, options.new or results.FOLDER)
        old, new = (stored(where, table) for where in sides)
        both = [place for place in new if place in old and wanted(place, patterns)]
        moves = [move for move in moved(old, new) if move.place in both]
        if both:
            print(f"{table}: {len(moves)} moves in {len(both)} rows of both")
        for move in sorted(moves, key=lambda move: -abs(move.change)):
            print(f"    {move.change:+.1%} {move.place}: {move.text}")


def show_stale(options):
    """Print the groups of stored rows whose code has changed since, run by run."""
    known, (tables, patterns) = {}, chosen(options.only)
    for table in tables:
        for old in stale.stale(table, known):
            places = [place for place in old.places if wanted(place, patterns)]
            counts = Counter("/".join(place.split("/")[:2]) for place in places)
            for name, count in counts.items():
                print(
                    f"{name}: {count} rows of {old.date} at {old.commit}; changed: "
                    f"{len(old.own)} files of the model, {len(old.kernels)} of them "
                    f"kernels, {len(old.shared)} shared"
                )
            if options.files and places:
                print("    " + "\n    ".join(old.own + old.shared))


if __name__ == "__main__":
    main()
