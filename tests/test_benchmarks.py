"""The tables of the benchmarks: forms, stored results, and what the READMEs say."""

import importlib
import json
from types import SimpleNamespace

import pytest

# The source distribution has no benchmarks.
pytest.importorskip("benchmarks")

from benchmarks.harness import readme, results, rows, run, stale, timing
from benchmarks.harness.compare import moved
from benchmarks.harness.rows import Row

ABOUT = {
    "date": "2026-01-01 00:00",
    "commit": "abc",
    "quick": False,
    "processor": "some",
    "cores": 2,
    "python": "3.11",
    "versions": {"numpy": "2"},
}


def stored(path, load=0.5, **more):
    """Results of one row of the table of hidden Markov models."""
    fields = {"label": "one", "value": 2.0, "unit": "s", "peers": {"other": 8.0}} | more
    measured = {"hmm/iteration/N=3-d=3-diag": (Row(**fields), load)}
    results.add(path, "hmm", ABOUT, measured)
    return results.load(path)


@pytest.mark.parametrize("path", readme.FILES, ids=lambda path: path.parent.name)
def test_readmes_have_the_stored_results(path):
    text = path.read_text("utf-8")
    assert readme.fill(text) == text, "run `python -m benchmarks readme`"


@pytest.mark.parametrize("table", run.names())
def test_a_table_says_what_its_groups_measure(table):
    module = importlib.import_module(f"benchmarks.tables.{table}")
    assert module.__doc__
    groups = run.groups(table)
    assert groups
    for function in groups.values():
        assert len(function.title) < 90
        assert function.cases


@pytest.mark.parametrize("table", run.names())
def test_stored_rows_are_of_cases_that_the_table_has(table):
    groups = run.groups(table)
    found = results.load(results.FOLDER / f"{table}.json")
    for place in found:
        name, group, *rest = place.split("/")
        assert name == table
        cases = groups[group].cases
        assert "" in cases or rest[0] in cases, place
        assert not found.about[place]["quick"], place


def test_a_changed_figure_is_found_out(tmp_path):
    stored(tmp_path / "hmm.json")
    text = "before\n<!-- table: hmm -->\nold\n<!-- end -->\nafter\n"
    filled = readme.fill(text, tmp_path)
    assert "| one | 2 s | 8 s (4.0x) |" in filled
    assert "load 0.5" in filled and "other work" not in filled
    assert readme.fill(filled, tmp_path) == filled
    assert readme.fill(filled.replace("4.0x", "4.1x"), tmp_path) == filled
    stored(tmp_path / "hmm.json", load=3.0)
    assert "other work" in readme.fill(text, tmp_path)


def test_what_is_not_stored_is_said_so(tmp_path):
    text = "<!-- table: hmm/fit -->\n<!-- end -->\n"
    assert "Not stored yet." in readme.fill(text, tmp_path)


def test_rows_are_stored_in_place_of_those_of_the_same_id(tmp_path):
    path = tmp_path / "hmm.json"
    stored(path, value=3.0)
    again = stored(path, note="text")
    assert len(again) == 1
    (row,) = again.values()
    assert (row.value, row.note, row.peers) == (2.0, "text", {"other": 8.0})
    assert json.loads(path.read_text("utf-8"))["runs"].keys() == {
        "2026-01-01 00:00 abc"
    }


@pytest.mark.parametrize(
    ("change", "load", "found"),
    [
        ({}, 0.5, []),
        ({"value": 2.05}, 0.5, []),
        ({"value": 2.4}, 0.5, [-0.167]),
        ({"value": 2.4}, 3.0, []),
        ({"value": 2.4, "noise": 0.1}, 0.5, []),
        ({"value": 1.0}, 3.0, [1.0]),
        # Both sides of a busy machine are slower: the ratio stays.
        ({"value": 4.0, "peers": {"other": 16.0}}, 0.5, []),
    ],
)
def test_moves_beyond_noise_are_found(tmp_path, change, load, found):
    old = stored(tmp_path / "old.json")
    new = stored(tmp_path / "new.json", load, **change)
    assert [round(move.change, 3) for move in moved(old, new)] == found


@pytest.mark.parametrize(("value", "found"), [(-7.5, 0), (-7.499, 0), (-7.49, 1)])
def test_moves_of_nats_are_differences(tmp_path, value, found):
    fields = {"unit": "nats", "peers": {}}
    old = stored(tmp_path / "old.json", value=-7.5, **fields)
    new = stored(tmp_path / "new.json", value=value, **fields)
    assert len(list(moved(old, new))) == found


@pytest.mark.parametrize(
    ("row", "met", "shown"),
    [
        (Row("", 2.0, "s", {"a": 8.0}, 4.0), True, "4.0x, met"),
        (Row("", 2.0, "s", {"a": 7.0}, 4.0), False, "4.0x, missed"),
        (Row("", 2.0, "s", {"a": 8.0, "b": 1.0}, {"a": 4.0}), True, "4.0x, met"),
        (Row("", 2.0, "s", target=1.0), False, "≤ 1 s, missed"),
        (Row("", -7.0, "nats", {"a": -7.2}, 0.05), True, "+0.0500, met"),
        (Row("", 2.0, "s", {"a": 8.0}), None, ""),
    ],
)
def test_targets(row, met, shown):
    assert rows.meets(row) is met
    assert rows.show_target(row) == shown


def test_what_is_missing_is_left_out_and_said(capsys, monkeypatch):
    @rows.group(["data", "package", "error", "there"])
    def some(run, case):
        """Four cases."""
        if case == "data":
            raise rows.Unavailable("file.npz: set SKVREM_DATA")
        if case == "package":
            importlib.import_module("a_package_that_nobody_has")
        if case == "error":
            raise ValueError("a mistake")
        yield Row(case, 1.0, "s", key="a key")

    monkeypatch.setattr(run, "groups", lambda table: {"some": some})
    monkeypatch.setattr(run, "FAILURES", [])
    found = [place for place, *_ in run.measure("table", ["table"], run.Run())]
    assert found == ["table/some/there/a-key"]
    said = capsys.readouterr().err
    assert "file.npz: set SKVREM_DATA" in said
    assert "left out: a_package_that_nobody_has is not installed" in said
    assert run.FAILURES == ["table/some/error"]


@pytest.mark.parametrize(
    ("pattern", "count"), [("t", 1), ("t/usual", 1), ("t/slow", 1), ("t/s*", 0)]
)
def test_a_group_that_is_asked_for_runs_only_if_named(monkeypatch, pattern, count):
    @rows.group()
    def usual(run):
        """Usual."""
        yield Row("", 1.0, "s")

    @rows.group(asked=True)
    def slow(run):
        """Slow."""
        yield Row("", 1.0, "s")

    monkeypatch.setattr(run, "groups", lambda table: {"usual": usual, "slow": slow})
    assert len(list(run.measure("t", [pattern], run.Run()))) == count


def test_an_iteration_is_the_difference_of_fits(monkeypatch):
    now = [0.0]

    def fit(start, each):
        def make(n):
            now[0] += start + each * n

        return make

    monkeypatch.setattr(timing, "clock", lambda threads: lambda: now[0])
    sides = {"ours": (fit(5.0, 1.0), 2, 12), "theirs": (fit(1.0, 4.0), 1, 3)}
    found = timing.an_iteration(sides, SimpleNamespace(repeats=2))
    assert found.seconds == pytest.approx({"ours": 1.0, "theirs": 4.0})
    assert found.noise == pytest.approx(0.0, abs=1e-9)
    row = found.row("label", 3.0)
    assert rows.ratio(row, "theirs") == pytest.approx(4.0)
    assert rows.meets(row)


SOURCE = """
'''A module.'''
import numpy as np


def double(x):
    '''Twice.'''
    return 2 * x
"""


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("Twice.", "Two times.", True),
        ("import numpy as np", "import numpy as np  # more", True),
        ("import numpy as np", "import numpy", True),
        ("double(x)", "double(x: float) -> float", True),
        ("2 * x", "x * 2", False),
        ("double", "twice", False),
    ],
)
def test_code_is_what_runs(old, new, same):
    changed = SOURCE.replace(old, new)
    assert changed != SOURCE
    assert (stale.code(changed) == stale.code(SOURCE)) == same


def test_tables_know_whose_code_they_measure():
    assert stale.rooms("hmm") == {"hmm"}
    assert stale.rooms("logistic") == {"linear"}
    assert stale.rooms("lda") == {"topics"}
    assert {"mixture", "topics", "vi"} <= stale.rooms("epochs")


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A repository with a model and a result, and what commits it."""

    def commit():
        git("add", "-A")
        git("commit", "-qm", "some")
        return results.git("rev-parse", "--short", "HEAD").strip()

    def git(*arguments):
        name = "-c", "user.name=a", "-c", "user.email=a@b"
        assert results.git(*name, *arguments) is not None

    monkeypatch.setattr(results, "ROOT", tmp_path)
    monkeypatch.setattr(results, "FOLDER", tmp_path / "results")
    git("init", "-q")
    for folder in ("hmm", "mixture", "utils"):
        (tmp_path / "skvrem" / folder).mkdir(parents=True)
        (tmp_path / "skvrem" / folder / "_kernels.py").write_text(SOURCE)
    measured = {"hmm/iteration/N=3-d=3-diag": (Row("one", 2.0, "s"), 0.5)}
    about = {**ABOUT, "commit": commit()}
    results.add(tmp_path / "results" / "hmm.json", "hmm", about, measured)
    return commit


def test_results_are_stale_once_their_code_has_changed(checkout):
    kernels = results.ROOT / "skvrem" / "hmm" / "_kernels.py"
    assert stale.stale("hmm") == []
    kernels.write_text(SOURCE.replace("Twice", "Two times"))
    (results.ROOT / "skvrem" / "mixture" / "_kernels.py").write_text("x = 1")
    checkout()
    assert stale.stale("hmm") == []
    # Moved, and the same; then another.
    moved = kernels.rename(kernels.with_name("_kernels_row.py"))
    checkout()
    assert stale.stale("hmm") == []
    moved.write_text(SOURCE.replace("2 * x", "x + x"))
    (found,) = stale.stale("hmm")
    assert found.places == ["hmm/iteration/N=3-d=3-diag"]
    assert found.own == found.kernels == ["skvrem/hmm/_kernels_row.py"]
    assert found.shared == []
    (results.ROOT / "skvrem" / "utils" / "_kernels.py").unlink()
    (found,) = stale.stale("hmm")
    assert found.shared == ["skvrem/utils/_kernels.py"]


@pytest.mark.parametrize(("year", "known"), [("2001", False), ("2090", True)])
def test_a_commit_that_is_gone_is_told_by_its_date(checkout, year, known):
    path = results.FOLDER / "hmm.json"
    content = json.loads(path.read_text("utf-8"))
    (about,) = content["runs"].values()
    about.update(commit="0000000", date=f"{year}-01-01 00:00")
    path.write_text(json.dumps(content), "utf-8")
    if known:
        assert stale.stale("hmm") == []
    else:
        with pytest.raises(ValueError, match="0000000 is unknown"):
            stale.stale("hmm")
