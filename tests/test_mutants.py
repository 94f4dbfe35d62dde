"""The mutator finds its files, and makes errors that are Python and are others."""

import ast
import random

import pytest

from tests import mutants


@pytest.mark.parametrize("row", mutants.TABLE)
def test_every_row_has_files(row):
    assert row in mutants.files().values()
    for call in mutants.TABLE[row].tests:
        paths = [word for word in call if word.startswith("tests/")]
        assert paths and all((mutants.ROOT / path).exists() for path in paths)


@pytest.fixture(scope="module")
def found():
    return [
        mutant
        for path, row in mutants.files().items()
        for mutant in mutants.mutants_of(path, (mutants.ROOT / path).read_text(), row)
    ]


def test_all_operators_are_met(found):
    assert {mutant.operator for mutant in found} == mutants.OPERATORS


@pytest.mark.parametrize("operator", sorted(mutants.OPERATORS))
def test_mutants_are_other_python(found, operator):
    of_kind = [mutant for mutant in found if mutant.operator == operator]
    for mutant in random.Random(0).sample(of_kind, min(10, len(of_kind))):
        source = (mutants.ROOT / mutant.path).read_text()
        after = mutant.source(source)
        assert ast.dump(ast.parse(after)) != ast.dump(ast.parse(source)), mutant
        assert mutant.diff(source)
        # All else keeps its text.
        assert after.encode()[: mutant.start] == source.encode()[: mutant.start]


def test_what_is_fixed_applies_once():
    fixed = mutants.fixed()
    assert len(fixed) == len(mutants.FIXED)
    for mutant in fixed:
        assert mutants.differs(mutant, (mutants.ROOT / mutant.path).read_text())


def test_what_is_explained_is_there(found):
    assert all(
        any(mutants.why(m) == reason for m in found) for *_, reason in mutants.EXPLAINED
    )


def test_a_draw_is_a_function_of_its_seed():
    drawn = mutants.draw(20, 1)
    assert drawn == mutants.draw(20, 1) != mutants.draw(20, 2)
    assert len(drawn) == len({(mutant.path, mutant.line) for mutant in drawn}) == 20
    sources = [(mutants.ROOT / mutant.path).read_text() for mutant in drawn]
    assert sum(map(mutants.is_compiled, sources)) >= 5
    assert drawn[0] == mutants.fixed()[0]


LINES = {
    "u -= length * (g - old + mean)": {
        "u += length * (g - old + mean)",
        "u = length * (g - old + mean)",
        "pass",
        "u -= length / (g - old + mean)",
        "u -= length * (0.5 * (g - old) + mean)",
        "u -= length * (old - g + mean)",
        "u -= length * mean",
        "u -= length * (g - old)",
        "u -= length * (-old + mean)",
    },
    "while a < 3: x = max(a, 0.5)": {
        "while a > 3: x = max(a, 0.5)",
        "while a <= 3: x = max(a, 0.5)",
        "while a < 4: x = max(a, 0.5)",
        "while not a < 3: x = max(a, 0.5)",
        "while a < 3: x = min(a, 0.5)",
        "while a < 3: x = max(a, 1.0)",
    },
    "raise ValueError(1 + 2)": set(),
    "x = np.empty(n + 1)": set(),
    "x = isinstance(a, int if b else str)": set(),
}


@pytest.mark.parametrize("line", LINES)
def test_mutants_of_a_line(line):
    source = f'def ü(a=1.0 + 2.0):\n    """Docs."""\n    {line}\n'
    made = {
        ast.unparse(ast.parse(mutant.source(source)).body[0].body[1])
        for mutant in mutants.mutants_of("x.py", source)
    }
    expected = {ast.unparse(ast.parse(other)) for other in LINES[line]}
    assert made >= expected
    assert expected or not made
