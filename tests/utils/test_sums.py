"""Kernels whose sums have the same bits wherever arrays lie."""

import ast
from pathlib import Path

import pytest

import skvrem

FILES = sorted(Path(skvrem.__file__).parent.rglob("*kernels*.py"))
LOOPS = ast.For, ast.While
# It writes where it reads: vectors of its own.
BY_HAND = {"_corner4"}


def reordered(function):
    """Yield lines of innermost loops that write an array and add a number up.

    With REDUCE a sum may be taken in vectors, or one after the other where arrays lie
    so near each other that vectors might overlap: other bits, from fit to fit.
    """
    for loop in ast.walk(function):
        inside = [node for node in ast.walk(loop) if node is not loop]
        if not isinstance(loop, LOOPS) or any(isinstance(n, LOOPS) for n in inside):
            continue
        added = [
            node
            for node in inside
            if isinstance(node, ast.AugAssign)
            and isinstance(node.target, ast.Name)
            and not isinstance(node.value, ast.Constant)
        ]
        written = [
            node
            for node in inside
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)
        ]
        if added and written:
            yield loop.lineno


@pytest.mark.parametrize("file", FILES, ids=lambda file: "/".join(file.parts[-2:]))
def test_sums_stand_in_loops_that_write_nothing(file):
    found = [
        f"{function.name}, line {line}"
        for function in ast.walk(ast.parse(file.read_text()))
        if isinstance(function, ast.FunctionDef) and function.name not in BY_HAND
        if any("REDUCE" in ast.unparse(d) for d in function.decorator_list)
        for line in reordered(function)
    ]
    assert not found


def test_a_loop_that_does_both_is_seen():
    source = "def f(x, y):\n for k in range(3):\n  y[k] = x[k]\n  total += y[k]\n"
    assert list(reordered(ast.parse(source))) == [2]
