import io
import itertools
import json
import os
import re
import subprocess
import sys
import tomllib
import warnings
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

import skvrem
from skvrem.utils import _installation
from skvrem.utils.discovery import all_estimators

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
    assert _installation._version("no-such-distribution-anywhere") == "not installed"


OF_DEVELOPMENT = "test", "doc", "bench", "dev"


def test_dependencies_are_those_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]

    def names(requirements):
        return {re.match(r"[\w-]+", line).group() for line in requirements}

    assert set(_installation.DEPENDENCIES) == names(project["dependencies"])
    run_time = [extras[name] for name in extras if name not in OF_DEVELOPMENT]
    assert names(itertools.chain(*run_time)) - {"skvrem"} <= set(_installation.OPTIONAL)


def test_optional_packages_are_not_imported():
    code = (
        "import sys, io, sklearn.mixture, skvrem\n"
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


def test_warm_up_fills_the_cache(tmp_path):
    code = (
        "import skvrem, json\n"
        "names = ['SBMLogisticRegression', 'BradleyTerry', 'VariationalInference']\n"
        "print(json.dumps(skvrem.warm_up(only=names)))"
    )

    def run(code):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        return json.loads(done.stdout)

    first, second = run(code), run(code)
    assert first["compiled"] > 5 and second["compiled"] == 0
    assert second["loaded"] > 5
    assert first["folder"].startswith(str(tmp_path))
    # Another processor's kernels are other kernels.
    other = code.replace("only=names", "'generic', names[:1]")
    assert run(other)["compiled"] > 1
    assert run(code)["compiled"] == 0


def test_warm_up_says_what_is_wrong():
    with pytest.raises(ValueError, match="only must be names among"):
        skvrem.warm_up(only=["Mixture"])
    with pytest.raises(RuntimeError, match="kernels for 'abacus' failed"):
        skvrem.warm_up("abacus", only=["SBMLogisticRegression"])


def test_every_estimator_can_be_warmed_up():
    for _, estimator_class in all_estimators():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _installation._fit_a_few(estimator_class)
