"""Type hints of the public functions and constructors, as a user's mypy reads them."""

import ast
import inspect
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from numpydoc.docscrape import NumpyDocString
from sklearn.base import BaseEstimator

from skvrem import hmm
from skvrem.utils.discovery import all_estimators
from skvrem.vi import MinibatchSteps

ROOT = Path(__file__).resolve().parents[1]
# A line that ends in "# wrong" is one that mypy must find, and no other.
PROGRAM = """
import numpy as np
import scipy.sparse as sp

from skvrem import (
    VRHMM,
    VRPLSA,
    BayesianGLMRegressor,
    BayesianLogisticRegression,
    ConvergenceDisplay,
    FactorialMixture,
    GaussianDropoutClassifier,
    SBMLogisticRegression,
    TemperedLDA,
    TopicsDisplay,
    VRGaussianMixture,
    hmm,
    show_versions,
)
from skvrem.linear import bound
from skvrem.schedules import Power
from skvrem.text import coherence, document_completion, seed_prior, top_words
from skvrem.vi import MinibatchSteps

X, y = np.eye(4), [0, 1, 0, 1]

VRGaussianMixture(n_components=3, tol=1, random_state=0)
VRGaussianMixture(n_component=3)  # wrong
VRGaussianMixture(3, covariance_type="round")  # wrong
mixture = VRGaussianMixture(2).fit(X, sample_weight=[1, 1, 2, 2]).partial_fit(X)
mixture.fit(X, weight=y)  # wrong
mixture.score(X) + mixture.bic(X)
mixture.score(X).sum()  # wrong
codes = FactorialMixture(2).fit(X).partial_fit(X, sample_weight=y)
codes.transform(X).sum(axis=0) + codes.predict(X) + codes.inverse_transform(X)
codes.relabel([1, 0]).sample("all")  # wrong
VRHMM(2, emission=hmm.Poisson(rate=[[1.0], [2.0]]), n_init=3, groups="ID")
VRHMM(2, emission="poisson", transitions=hmm.Homogeneous("left-right", init=X))
VRHMM(2, n_init="all")  # wrong
hmm.Gaussian(mean=X, covariance_type="full", reg_cov=1.0)  # wrong
BayesianLogisticRegression(prior_scale=[1.0, 2.0], posterior="lowrank", rank=2)
BayesianLogisticRegression(posterior="full")  # wrong
TemperedLDA(5, topic_word_prior=X, learning_method="online", n_jobs=-1)
TemperedLDA(n_topics=5)  # wrong
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
VRHMM(2).fit(X, groups=y).partial_fit(X, continues=True).predict(X, lengths=[4]).sum()
VRHMM(2).fit(X, [4])
VRHMM(2).fit(X, group=y)  # wrong
VRHMM(2).predict(X, y)  # wrong
VRHMM(2).score(X, groups=y, sample_weight=[1, 1, 2, 2]) + 1.0
VRPLSA().fit(sp.csr_array(X), sample_weight=y).partial_fit(X).transform(X).sum()
VRPLSA().fit(X).score(X, weight=y)  # wrong
TemperedLDA(5).fit(X).partial_fit(X).transform(X, normalize=False).sum()
TemperedLDA(5).transform(X, normalise=False)  # wrong
TemperedLDA(5).score(X).shape  # wrong
bayes = BayesianLogisticRegression(steps=MinibatchSteps(n_draws=2, optimizer="adam"))
MinibatchSteps(optimizer="newton")  # wrong
bayes.fit(sp.csr_matrix(X), y).predict_proba(X, method="mc").sum(axis=1)
bayes.partial_fit(X, y, classes=[0, 1]).score(X, y) + 1.0
bayes.fit(X, y, weight=y)  # wrong
bayes.predict_proba(X, method="exact")  # wrong
bayes.predict_proba_interval(X, level=0.9).shape
BayesianGLMRegressor("poisson").fit(X, y).partial_fit(X, y).score(X, y) + 1.0
BayesianGLMRegressor().predict(X, return_std="yes")  # wrong
dropout = GaussianDropoutClassifier((), "tanh").fit([[0.0], [1.0]], y, sample_weight=y)
dropout.partial_fit(X, y, classes=[0, 1]).predict_proba(X, "plugin").shape
dropout.partial_fit(X, y, weight=y)  # wrong

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
TopicsDisplay.from_estimator(model, n_words=3).plot(color="red").figure_
ConvergenceDisplay({"a": {"objective": [1.0], "passes": [0]}}).plot(x="passes").ax_
ConvergenceDisplay.from_estimator(model, x="steps")  # wrong
show_versions()
show_versions("file.txt")  # wrong
"""


@pytest.mark.slow
def test_mypy_finds_what_is_wrong_and_nothing_else(tmp_path):
    pytest.importorskip("mypy")
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


def constructors():
    """Yield the classes whose parameters users give."""
    yield from (kind for _, kind in all_estimators())
    yield MinibatchSteps
    for name in hmm.__all__:
        kind = getattr(hmm, name)
        if isinstance(kind, type) and issubclass(kind, BaseEstimator):
            yield kind


def allows(hint, value):
    """Whether a hint says that a value is one of its own."""
    if get_origin(hint) is Literal:
        return any(type(value) is type(a) and value == a for a in get_args(hint))
    if get_origin(hint) in (Union, UnionType):
        return any(allows(part, value) for part in get_args(hint))
    kinds = {float: (float, int), int: int, bool: bool, str: str, NoneType: NoneType}
    if hint in kinds:
        number = isinstance(value, bool) and hint in (int, float)
        return isinstance(value, kinds[hint]) and not number
    return hint is Any or isinstance(value, tuple | list)


@pytest.mark.parametrize("kind", sorted(set(constructors()), key=lambda k: k.__name__))
def test_constructors_have_hints_that_agree_with_what_is_said(kind):
    hints = get_type_hints(kind.__init__)
    documented = {}
    for entry in NumpyDocString(inspect.getdoc(kind))["Parameters"]:
        documented |= dict.fromkeys(entry.name.split(", "), entry.type)
    for name, parameter in inspect.signature(kind).parameters.items():
        hint = hints[name]
        if parameter.default is not parameter.empty:
            assert allows(hint, parameter.default), name
        for options in re.findall(r"\{(.*?)\}", documented.get(name, "")):
            for option in ast.literal_eval(f"[{options}]"):
                assert allows(hint, option), (name, option)
