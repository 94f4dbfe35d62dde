import io
import itertools
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import numpy as np

import skvrem
from skvrem.utils import _versions

ROOT = Path(__file__).resolve().parents[2]


def text():
    out = io.StringIO()
    assert skvrem.show_versions(file=out) is None
    return out.getvalue()


def entries(report):
    pairs = (line.split(maxsplit=1) for line in report.splitlines() if "  " in line)
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def test_names_every_dependency_and_its_version():
    found = entries(text())
    assert found["skvrem"] == skvrem.__version__
    for name in ("joblib", "numba", "numpy", "scikit-learn", "scipy", "threadpoolctl"):
        assert found[name] == metadata.version(name)


def test_says_what_threads_and_cache_are():
    skvrem.VRGaussianMixture().fit(np.arange(10.0)[:, None])
    report = text()
    assert "n_jobs=None" in report
    assert "openblas" in report or "mkl" in report or "blas" in report
    cache = next(line for line in report.splitlines() if line.startswith("  cache"))
    assert "/" in cache or "\\" in cache or "disabled" in cache


def test_writes_to_standard_output(capsys):
    skvrem.show_versions()
    assert capsys.readouterr().out.startswith("System\n")


def test_missing_packages_are_named_as_such():
    assert _versions._version("no-such-distribution-anywhere") == "not installed"


def test_dependencies_are_those_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]

    def names(requirements):
        return {re.match(r"[\w-]+", line).group() for line in requirements}

    assert set(_versions.DEPENDENCIES) == names(project["dependencies"])
    run_time = [extras[name] for name in extras if name not in ("test", "doc", "bench")]
    assert names(itertools.chain(*run_time)) <= set(_versions.OPTIONAL)


def test_optional_packages_are_not_imported():
    code = (
        "import sys, io, skvrem\n"
        "before = set(sys.modules)\n"
        "skvrem.show_versions(io.StringIO())\n"
        "print(*{'dask', 'distributed', 'jax', 'matplotlib', 'pandas', 'rich'}"
        " & (set(sys.modules) - before))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=600
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == []
