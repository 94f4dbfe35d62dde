"""The code blocks of the documentation run, and print what the page says.

A ``code-block:: python`` with prompts is a doctest, one without is executed; the blocks
of a page share their names. Text, shell and ``sourcecode`` (measurements that take
minutes) are left alone.
"""

import doctest
import textwrap
from pathlib import Path

import pytest

DOC = Path(__file__).resolve().parents[1] / "doc"
DIRECTIVE = ".. code-block:: python"
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def code_blocks(text):
    """Yield (number of the line before, code) of the Python blocks of a page."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if line.strip() != DIRECTIVE:
            continue
        indent = len(line) - len(line.lstrip())
        block = []
        for following in lines[number + 1 :]:
            if following.strip() and len(following) - len(following.lstrip()) <= indent:
                break
            block.append(following)
        yield number + 1, textwrap.dedent("\n".join(block)) + "\n"


def pages():
    folders = ("*.rst", "user_guide/*.rst", "extending/*.rst")
    found = [page for folder in folders for page in sorted(DOC.glob(folder))]
    return [page for page in found if DIRECTIVE in page.read_text("utf-8")]


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_code_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some write files
    names = {"__name__": "__doc_page__"}
    for line, code in code_blocks(page.read_text("utf-8")):
        if ">>>" not in code:
            # Empty lines first, so that a traceback names the line of the page.
            exec(compile("\n" * line + code, str(page), "exec"), names)
            continue
        test = doctest.DocTestParser().get_doctest(code, names, page.name, page, line)
        report = []
        runner = doctest.DocTestRunner(optionflags=FLAGS)
        runner.run(test, out=report.append, clear_globs=False)
        assert not runner.failures, "".join(report)
        names.update(test.globs)


def test_the_tutorials_have_code():
    names = "model", "solver", "data_source", "bayesian_model"
    tutorials = {"add_an_emission", *(f"add_a_{name}" for name in names)}
    assert tutorials <= {page.stem for page in pages()}


def test_blocks_are_found():
    text = "Text\n\n.. code-block:: python\n\n   a = 1\n\n   b = 2\n\nText\n"
    assert [code.strip() for _, code in code_blocks(text)] == ["a = 1\n\nb = 2"]
