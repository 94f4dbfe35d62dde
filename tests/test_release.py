"""What a reader meets before the package: README, addresses, templates, workflows."""

import contextlib
import io
import re

import pytest

from tests import release

README = (release.ROOT / "README.md").read_text("utf-8")
YAML = sorted(
    path
    for pattern in (".github/**/*.yml", ".*.yaml", "*.cff")
    for path in release.ROOT.glob(pattern)
)
#: Steps that are no make target: files that come and go between jobs.
TRANSPORT = re.compile(r"choco install make")


def test_the_readme_is_one_screen():
    words = re.sub(r"<!--.*?-->", "", README).split()
    assert len(words) <= 450
    assert "install" in words[:150]


def test_links_stand_alone_and_lead_to_the_project():
    assert not release.relative_links(README)
    assert not release.wrong_links()
    assert not release.missing_files()


def test_links_elsewhere_would_be_found():
    assert release.relative_links("[a](doc/x.rst) [b](https://x.y) [c](#d)") == [
        "doc/x.rst"
    ]
    assert release.own_links("(https://x.org/skvrem) https://y.org") == [
        "https://x.org/skvrem"
    ]


def test_the_version_is_dated():
    assert release.is_dated()


def test_the_example_prints_what_the_readme_says():
    code = re.search(r"```python\n(.*?)```\n\n((?:    [^\n]*\n)+)", README, re.DOTALL)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code[1], {})
    wanted = [line.strip() for line in code[2].splitlines()]
    assert printed.getvalue().splitlines() == wanted


@pytest.mark.skipif(not YAML, reason="not in a source distribution")
@pytest.mark.parametrize("path", YAML, ids=lambda path: path.name)
def test_yaml_can_be_read(path):
    yaml = pytest.importorskip("yaml")
    assert yaml.safe_load(path.read_text("utf-8"))


def test_steps_of_workflows_are_make_targets():
    yaml = pytest.importorskip("yaml")
    makefile = (release.ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))
    for path in YAML:
        if path.parent.name != "workflows":
            continue
        jobs = yaml.safe_load(path.read_text("utf-8"))["jobs"]
        for step in (step for job in jobs.values() for step in job["steps"]):
            command = step.get("run", "")
            if not command or TRANSPORT.fullmatch(command):
                continue
            first, *words = command.split()
            assert first == "make"
            assert {word for word in words if "=" not in word} <= targets
