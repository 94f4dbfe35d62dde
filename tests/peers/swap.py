"""scikit-learn's installed tests of a class, with another class in its place."""

import ast
from pathlib import Path

import pytest
import sklearn

from tests.peers.not_passed import VERSION

__all__ = ["swapped"]


def swapped(file, name, twin):
    """Return compiled tests of scikit-learn, of skvrem's `twin` instead of `name`.

    Skips the module that asks where another version of scikit-learn is installed, as
    the list of tests that are not passed is of one version.

    Parameters
    ----------
    file : str
        Path below the package.
    name, twin : str
        Classes of scikit-learn and of skvrem.
    """
    if sklearn.__version__ != VERSION:
        pytest.skip(
            f"the list is of the tests of scikit-learn {VERSION}",
            allow_module_level=True,
        )
    path = Path(sklearn.__file__).parent / file
    tree = ast.parse(path.read_text("utf-8"))
    # Before the other statements, since parameters of tests are made of the class too.
    (after,) = (
        number
        for number, node in enumerate(tree.body, 1)
        if isinstance(node, ast.ImportFrom)
        and name in [alias.name for alias in node.names]
    )
    tree.body[after:after] = ast.parse(f"from skvrem import {twin} as {name}").body
    return compile(tree, str(path), "exec")
