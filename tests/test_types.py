"""Type hints of the public functions and constructors, as a user's mypy reads them."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytest.importorskip("mypy")

ROOT = Path(__file__).resolve().parents[1]
# A line that ends in "# wrong" is one that mypy must find, and no other.
PROGRAM = """
import numpy as np
import scipy.sparse as sp

from skvrem import (
    ConvergenceDisplay,
    SBMLogisticRegression,
    TopicsDisplay,
    VRGaussianMixture,
    show_versions,
)
from skvrem.linear import bound
from skvrem.schedules import Power
from skvrem.text import coherence, document_completion, seed_prior, top_words

X, y = np.eye(4), [0, 1, 0, 1]

VRGaussianMixture(n_components=3, tol=1, random_state=0)
VRGaussianMixture(n_component=3)  # wrong
model = SBMLogisticRegression(C=2, random_state=np.random.RandomState(0), verbose=True)
SBMLogisticRegression(batch_size=32, step_size="auto", class_weight={0: 1.0})
SBMLogisticRegression(rank=3)  # wrong
SBMLogisticRegression(curvature="hesian")  # wrong
SBMLogisticRegression(batch_size="all")  # wrong
SBMLogisticRegression(max_iter=0.5)  # wrong
model.fit(X, y).predict_proba([[1.0, 2.0, 3.0, 4.0]]).sum(axis=1)
model.fit(sp.csr_matrix(X), y, sample_weight=[1, 1, 2, 2]).partial_fit(X, y).score(X, y)
model.fit(X, y, weight=y)  # wrong
model.coef_.shape

bound(X, y, order="given").sigma.shape
bound(X, y, order="any")  # wrong
steps: float = Power(offset=1)(3)
Power(power=1.0)  # wrong
top_words(model, ["a", "b", "c", "d"], n=2)
top_words(model, n="all")  # wrong
float(coherence([["a", "b"]], X, feature_names=["a", "b", "c", "d"]).mean())
coherence(X, X, measure="pmi")  # wrong
document_completion(model, X, random_state=None) + 1.0
seed_prior({0: ["a"]}, ["a", "b"], 2, weight=[1.0, 2.0])
TopicsDisplay.from_estimator(model, n_words=3).plot(color="red").bars_
ConvergenceDisplay({"a": {"objective": [1.0, 2.0], "passes": [0, 1]}}).plot(x="passes")
ConvergenceDisplay.from_estimator(model, x="steps")  # wrong
show_versions()
show_versions("file.txt")  # wrong
"""


@pytest.mark.slow
def test_mypy_finds_what_is_wrong_and_nothing_else(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(PROGRAM), "utf-8")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--config-file=", "--no-error-summary"),
            *("--ignore-missing-imports", "--follow-imports=silent"),
            *("--hide-error-context", "--no-pretty", "--no-color-output"),
            f"--cache-dir={tmp_path / 'cache'}",
            path.name,
        ],
        cwd=tmp_path,
        env=os.environ | {"MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.stderr, done.stderr
    found = {
        int(line.split(":")[1])
        for line in done.stdout.splitlines()
        if ": error:" in line
    }
    wrong = {
        number
        for number, line in enumerate(PROGRAM.splitlines(), start=1)
        if line.endswith("# wrong")
    }
    assert found == wrong, done.stdout


def test_the_package_says_that_it_has_hints():
    assert (ROOT / "skvrem" / "py.typed").is_file()
