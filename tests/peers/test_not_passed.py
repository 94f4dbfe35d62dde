"""The list of tests that are not passed is of tests that there are."""

import ast
from pathlib import Path

import pytest
import sklearn

from tests.peers.not_passed import GROUPS, NOT_PASSED, VERSION


@pytest.mark.skipif(sklearn.__version__ != VERSION, reason=f"it is of {VERSION}")
@pytest.mark.parametrize("file", NOT_PASSED)
def test_listed_tests_exist_once(file):
    (path,) = Path(sklearn.__file__).parent.rglob(f"tests/{file}")
    tree = ast.parse(path.read_text("utf-8"))
    there = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    listed = [name for names in NOT_PASSED[file].values() for name in names]
    assert {name.partition("[")[0] for name in listed} <= there
    assert len(set(listed)) == len(listed)
    # What is not run needs no reason of its own.
    assert not [name for name in listed if any(word in name for word in GROUPS[file])]
