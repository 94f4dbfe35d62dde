"""Fuzzer: estimators with parameters, data and calls at random, good and bad.

    python -m tests.fuzz --seconds 600 --workers 2      # look
    python -m tests.fuzz --case 100123                  # one case, told in full

A case is a function of its seed alone: an estimator, its parameters, data, `fit` or
`partial_fit`, then four other methods. Cases run in worker processes; what is looked
for is

- a process that dies, or is not done within the time limit,
- an exception that is no ValueError, TypeError or NotFittedError, or that nobody raised
  on purpose: it comes from below, and says nothing of what the caller did,
- numbers that are not finite, in a fitted attribute or an answer,
- input, parameters, or the state before a failed call changed,
- warnings of the interpreter or of numpy, which are about us and not about the data.
"""

import argparse
import collections
import hashlib
import inspect
import json
import linecache
import os
import random
import re
import select
import signal
import subprocess
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

import skvrem
from skvrem.utils._validation import MAY_BE_INFINITE
from skvrem.utils.discovery import all_estimators
from skvrem.vi import MinibatchSteps
from tests.own_models import Logistic, RichLogistic

#: Seeds begin here.
FIRST = 100_000
TIME_LIMIT = 90.0

#: Parameters that keep a case short.
QUICK = {
    "BayesianGLMRegressor": {"max_iter": 30},
    "BayesianLogisticRegression": {"max_iter": 30},
    "BayesianPPCA": {"n_components": 2, "max_iter": 30},
    "BradleyTerry": {"max_iter": 30},
    "FactorialMixture": {"n_components": 3, "max_iter": 10},
    "GaussianDropoutClassifier": {"hidden_layer_sizes": (5,), "max_iter": 8},
    "HierarchicalSoftmaxClassifier": {"max_iter": 30},
    "SBMLogisticRegression": {"max_iter": 30},
    "TemperedLDA": {"n_components": 3, "max_iter": 4},
    "VRGaussianMixture": {"n_components": 2, "max_iter": 15},
    "VRHMM": {"n_components": 2, "max_iter": 8},
    "VRPLSA": {"n_components": 3, "max_iter": 8},
    "VariationalInference": {"max_iter": 10},
}
COUNTS = ("TemperedLDA", "VRPLSA")
SUPERVISED = (
    "BayesianGLMRegressor",
    "BayesianLogisticRegression",
    "GaussianDropoutClassifier",
    "HierarchicalSoftmaxClassifier",
    "SBMLogisticRegression",
)
LEFT_OUT = (
    "densify",
    "fit",
    "fit_predict",
    "fit_transform",
    "get_feature_names_out",
    "get_metadata_routing",
    "get_params",
    "gradient_variance",
    "relabel",
    "to_arviz",
)

#: Values that a parameter of this name may have, in one estimator or another.
VALUES = {
    "C": [1.0, 1e-6, 1e6, np.inf],
    "acceleration": ["auto", None, "squarem", "lbfgs"],
    "activation": ["relu", "tanh", "identity", "logistic"],
    "activation_prior": ["learn", 0.5],
    "algorithm": ["viterbi", "map"],
    "alpha": [0.0, 1e-4, 10.0],
    "annealing_iter": [1, 5, "auto"],
    "batch_size": ["auto", 1, 7, 10**6],
    "class_weight": [None, "balanced", {0: 1.0, 1: 3.0}],
    "component_variance": ["learn", 1.0],
    "compute_std": [True, False],
    "covariance_type": ["full", "tied", "diag", "spherical"],
    "curvature": ["auto", "bound", "hessian"],
    "doc_topic_prior": [None, 1.0, 1e-3, 2.0, 1e5],
    "doc_topic_smoothing": [None, 1.0, 1e-3, 2.0, 1e5],
    "dropout_scale": [0.5, 0.0, 2.0],
    "early_stopping": [True, False],
    "emission": [
        "gaussian",
        "poisson",
        "bernoulli",
        "categorical",
        "gamma",
        "vonmises",
    ],
    "evaluate_every": [-1, 1, 2],
    "family": ["gaussian", "poisson"],
    "fit_intercept": [True, False],
    "gradient_memory": [0.0, 0.5, 1.0],
    "groups": [None, 0, -1, [0]],
    "handle_unknown": ["prior", "error"],
    "hidden_layer_sizes": [(), (3,), (4, 3)],
    "home_advantage": [True, False],
    "init_params": ["kmeans", "k-means++", "random", "random_from_data"],
    "inner_iter": ["auto", 1, 5],
    "inner_tol": [0.0, 1e-3],
    "learning_method": [None, "batch", "online"],
    "max_doc_update_iter": [1, 20],
    "max_inner_iter": [1, 20],
    "max_iter": [0, 1, 2, 10],
    "mean_change_tol": [0.0, 1e-3],
    "n_components": [1, 2, 3, 7, 50],
    "n_draws": [1, 3, "auto"],
    "n_init": [1, 2, 3],
    "n_jobs": [None, 1, 2, -1],
    "noise_scale": ["learn", 0.5, 0.0, 2.0],
    "noise_variance": ["learn", 0.1],
    "penalize_intercept": [True, False],
    "penalty": ["l2", None],
    "posterior": ["auto", "fullrank", "meanfield", "lowrank"],
    "prior_scale": [None, 1.0, 1e-6, 1e6, "learn"],
    "random_state": [0, None],
    "curvature_rank": [None, 1, 2, 20],
    "rank": [None, 1, 2, 20],
    "reg_covar": [0.0, 1e-6, 1.0],
    "solver": (
        "auto batch stochastic svrg saga incremental lbfgs squarem online cavi"
    ).split(),
    "startprob": ["free", "stationary"],
    "startprob_prior": [1.0, 2.0, 0.5],
    "step_decay": [0.51, 0.6, 1.0],
    "step_offset": [0.0, 1.0, 10.0],
    "steps": [
        None,
        *(MinibatchSteps(optimizer=one) for one in ("adam", "sgd", "natural", "none")),
        *(MinibatchSteps(control_variate=one) for one in (None, "antithetic")),
        *(MinibatchSteps(expectation=one) for one in ("quadrature", "mc", 1.0)),
        *(MinibatchSteps(n_draws=one) for one in (1, 4, "many")),
        MinibatchSteps(control_scale=False),
    ],
    "step_size": ["auto", 0.1, 1.0, 1e-8, 5.0],
    "temperature": [1.0, 2.0, 100.0, "auto"],
    "tempering": [None, "annealed", "global", "local", "auto"],
    "ties": [None, "davidson", "learn", 0.5],
    "tol": [0.0, 1e-3, 1e-9, 10.0],
    "topic_word_prior": [None, 1.0, 1e-3, 2.0],
    "topic_word_smoothing": [None, 1.0, 1e-3, 2.0],
    "total_samples": [None, 100, 1e6],
    "validation_fraction": [0.1, 0.5],
    "verbose": [0, False, np.False_],
    "warm_start": [True, False, np.True_],
}
#: Values that no parameter should have, or hardly any.
NONSENSE = (
    *("foo", "", "1", b"x", None, True, [], {}, (), [1, 2, 3], object()),
    *(-1, 0, 1.5, 1j, -0.0, 2**70, 1e308, 5e-324, np.nan, np.inf, -np.inf),
    *(np.arange(4.0), np.full((2, 2), np.nan), np.float32(0.5), np.int8(2)),
)
DTYPES = "f4 f2 i8 i1 u1 b1 O c16 U9 M8[s] >f8 g".split()
CONTAINERS = (
    *("list", "F", "strided", "read only", "frame", "named frame", "matrix"),
    *("1d", "3d", "none", "text", "csr", "csc", "coo", "lil", "csr array", "int64 csr"),
    *("messy csr", "bool csr", "dask", "dask unknown", "dask csr", "dask frame"),
)
TARGETS = (
    *("int", "text", "float", "one", "nan", "short", "2d", "none", "bool", "signs"),
    *("five", "mixed", "counts", "real", "huge", "rare"),
)
WEIGHTS = {
    "ones": np.ones,
    "zeros": np.zeros,
    "negative": lambda n: -np.ones(n),
    "nan": lambda n: np.full(n, np.nan),
    "infinite": lambda n: np.full(n, np.inf),
    "tiny": lambda n: np.full(n, 1e-300),
    "huge": lambda n: np.full(n, 1e300),
    "short": lambda n: np.ones(max(0, n - 1)),
    "one number": lambda n: 2.0,
    "every second": lambda n: np.arange(n) % 2.0,
    "text": lambda n: np.array(["1"] * n),
    "one row": lambda n: np.arange(n) == 0,
}
LENGTHS = {
    "good": lambda n: [n // 2, n - n // 2],
    "too many": lambda n: [n + 1],
    "a zero": lambda n: [0, n],
    "negative": lambda n: [-1, n + 1],
    "float": lambda n: [n / 2, n / 2],
    "unsigned": lambda n: np.array([n // 2, n - n // 2], np.uint16),
    "none": lambda n: [],
}
GROUPS = {
    "int": lambda n: np.arange(n) % 4,
    "text": lambda n: np.array(["u", "v"])[np.arange(n) % 2],
    "short": lambda n: np.zeros(max(0, n - 1)),
    "nan": lambda n: np.full(n, np.nan),
    "real": lambda n: np.arange(n) / 7,
    "mixed": lambda n: np.array([("a", 1, None)[i % 3] for i in range(n)], object),
    "2d": lambda n: np.zeros((n, 2)),
}


# A case


class Case(NamedTuple):
    """What a seed stands for."""

    estimator_class: type
    params: dict
    X: Any
    y: Any
    keywords: dict
    first: str
    later: list
    other: Any
    fitted_before: bool
    notes: list


class Draw:
    """Draws the parts of a case."""

    def __init__(self, seed):
        self.choose = random.Random(seed)
        self.rng = np.random.default_rng(seed)
        self.name = self.choose.choice(sorted(QUICK))
        self.estimator_class = dict(all_estimators())[self.name]
        self.notes = []
        self.params = self.parameters()

    def likely(self, probability):
        return self.choose.random() < probability

    def pick(self, what, options):
        """Choose one of the options, and make a note of it."""
        choice = self.choose.choice(list(options))
        self.notes.append(f"{what} {choice}")
        return choice

    def case(self):
        choose = self.choose
        n = choose.choice([0, 1, 2, 3, 5, 30, 60, 60, 60, 200])
        d = choose.choice([0, 1, 1, 2, 3, 3, 5, 12, 40])
        X = self.data(n, d, 0.75)
        rows = X.shape[0] if getattr(X, "shape", ()) else n
        rows = rows if isinstance(rows, int) else n  # dask may not know
        y = None
        if self.name in SUPERVISED:
            y = self.target(rows)
        elif self.name == "BradleyTerry" and self.likely(0.6):
            y = self.rng.integers(3, size=rows) / 2
        keywords = self.keywords(rows)
        if self.name == "VariationalInference" and self.likely(0.9):
            self.params["model"] = self.own_model(max(1, n), max(1, min(d, 5)))
            X = self.data(n, d, 0.75) if self.likely(0.2) else None
        methods = [
            name
            for name in dir(self.estimator_class)
            if not name.startswith(("_", "set_"))
            and name not in LEFT_OUT
            and callable(getattr(self.estimator_class, name, None))
        ]
        other = X
        if self.likely(0.5):
            width = choose.choice([d, d, d, d + 1, max(0, d - 1)])
            other = self.data(choose.choice([0, 1, 5, 20]), width, 0.4)
        return Case(
            self.estimator_class,
            self.params,
            X,
            y,
            keywords,
            choose.choice(["fit", "fit", "fit", "partial_fit"]),
            [choose.choice(methods) for _ in range(4)],
            other,
            self.likely(0.25),
            self.notes,
        )

    def parameters(self):
        names = list(inspect.signature(self.estimator_class).parameters)
        params = dict(QUICK[self.name])
        if "random_state" in names:
            params["random_state"] = 0
        for _ in range(self.choose.choice([0, 0, 1, 1, 2, 3])):
            name = self.choose.choice(names)
            if name in VALUES and self.likely(0.7):
                params[name] = self.choose.choice(VALUES[name])
            elif name not in ("max_iter", "n_init", "verbose"):
                params[name] = self.choose.choice(NONSENSE)
            else:  # a large one is taken at its word, and the case never ends
                params[name] = self.choose.choice([-1, 1.5, None, "foo", np.nan, []])
        return params

    def own_model(self, n, d):
        X = self.rng.normal(size=(n, d))
        y = self.rng.integers(2, size=n) * 1.0
        scale = self.choose.choice([1.0, 1.0, 1e8, 1e200, np.nan])
        self.notes.append(f"own model {n} by {d}, scale {scale:g}")
        return RichLogistic(scale * X, y, 1.0) if n % 2 else Logistic(scale * X, y)

    def data(self, n, d, wild):
        """Rows as the estimator takes them, or something like it."""
        rng, emission = self.rng, str(self.params.get("emission"))
        if self.name == "VariationalInference":
            X = rng.integers(max(1, n), size=n)
        elif self.name == "BradleyTerry":
            k = max(1, min(8, n))
            first = rng.integers(k, size=n)
            X = np.stack([first, (first + rng.integers(1, max(2, k), size=n)) % k], 1)
        elif self.name in COUNTS or emission in ("poisson", "categorical"):
            X = rng.poisson(1.0, size=(n, d)).astype(float)
        elif emission == "bernoulli":
            X = rng.integers(2, size=(n, d)).astype(float)
        elif emission == "gamma":
            X = rng.gamma(2.0, size=(n, d))
        else:
            X = rng.normal(size=(n, d)) + 4 * rng.integers(2, size=(n, 1))
        if not self.likely(wild):
            return X
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            X = self.spoilt(X)
            if self.likely(0.5):
                kind = self.pick("as", CONTAINERS)
                try:
                    X = contained(X, kind, rng)
                except (ValueError, TypeError, ImportError, IndexError):
                    self.notes.append("could not")
        return X

    def spoilt(self, X):
        choose, likely = self.choose, self.likely
        if likely(0.12):
            X = X * self.pick("times", [1e300, 1e150, 1e38, 1e16, 1e8, 1e-8, 1e-150])
        if likely(0.05):
            X = X + self.pick("plus", [1e8, 1e15, -1e15, 1e150])
        if likely(0.05):
            X = np.full(X.shape, self.pick("all", [0.0, 1.0, -1.0, 1e200, np.nan]))
        if likely(0.07) and X.size and X.ndim == 2:
            X = X.astype(float)
            X[:, choose.randrange(X.shape[1])] = self.pick("column", [0.0, 1.0, 1e10])
        if likely(0.07) and X.size:
            self.notes.append("one row again and again")
            X = X[np.zeros(len(X), int)]
        if likely(0.08) and X.size:
            X = X.astype(float)
            bad = self.pick("one", [np.nan, np.inf, -np.inf, 1e308, -1e308])
            X.flat[choose.randrange(X.size)] = bad
        if likely(0.15):
            X = X.astype(self.pick("dtype", DTYPES))
        return X

    def target(self, n):
        rng = self.rng
        kind = self.pick("y", TARGETS) if self.likely(0.6) else "good"
        if kind == "good":
            if self.name == "BayesianGLMRegressor":
                return rng.poisson(2.0, n) * 1.0
            return rng.integers(2, size=n)
        return {
            "int": lambda: rng.integers(2, size=n),
            "text": lambda: np.array(["a", "b", "c"])[rng.integers(3, size=n)],
            "float": lambda: rng.integers(2, size=n) + 0.0,
            "one": lambda: np.zeros(n, int),
            "nan": lambda: np.where(np.arange(n) < n // 3, np.nan, 1.0),
            "short": lambda: rng.integers(2, size=max(0, n - 1)),
            "2d": lambda: rng.integers(2, size=(n, 2)),
            "none": lambda: None,
            "bool": lambda: rng.integers(2, size=n) > 0,
            "signs": lambda: 2 * rng.integers(2, size=n) - 1,
            "five": lambda: rng.integers(5, size=n),
            "mixed": lambda: np.array(
                [("a", 1, None, 2.5)[i] for i in rng.integers(4, size=n)], object
            ),
            "counts": lambda: rng.poisson(3.0, size=n),
            "real": lambda: rng.normal(size=n),
            "huge": lambda: rng.normal(size=n) * 1e300,
            "rare": lambda: (np.arange(n) == 0).astype(int),
        }[kind]()

    def keywords(self, n):
        keywords = {}
        if self.likely(0.25):
            keywords["sample_weight"] = WEIGHTS[self.pick("weight", WEIGHTS)](n)
        if self.name == "VRHMM" and self.likely(0.35):
            keywords.pop("sample_weight", None)
            keywords["lengths"] = LENGTHS[self.pick("lengths", LENGTHS)](n)
        if self.name == "HierarchicalSoftmaxClassifier" and self.likely(0.8):
            keywords["groups"] = GROUPS[self.pick("groups", GROUPS)](n)
        return keywords


def contained(X, kind, rng):
    """Return an array in a container, or as somebody may have it by mistake."""
    if kind.startswith("dask"):
        import dask.array as da

        if kind == "dask frame":
            import dask.dataframe as dd

            return dd.from_pandas(contained(X, "frame", rng), npartitions=2)
        lazy = da.from_array(X, chunks=(max(1, len(X) // 2), *X.shape[1:]))
        if kind == "dask unknown":
            return lazy[da.from_array(np.ones(len(X), bool), chunks=lazy.chunks[0])]
        return lazy.map_blocks(sp.csr_matrix) if kind == "dask csr" else lazy
    if kind.endswith("frame"):
        import pandas as pd

        names = [f"c{j}" for j in range(X.shape[1])]
        return pd.DataFrame(X, columns=names if kind == "named frame" else None)
    if kind == "read only":
        X = X.copy()
        X.flags.writeable = False
        return X
    if kind == "strided":
        return np.repeat(np.repeat(X, 2, axis=0), 2, axis=1)[::2, ::2]
    if kind == "int64 csr":
        X = sp.csr_matrix(X)
        X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
        return X
    if kind == "messy csr":  # each entry three times, in any order, once as a zero
        rows, columns = np.nonzero(X)
        values = X[rows, columns]
        order = rng.permutation(3 * len(rows))
        order = order[np.argsort(np.tile(rows, 3)[order], kind="stable")]
        starts = np.append(0, np.cumsum(3 * np.bincount(rows, minlength=len(X))))
        values = np.concatenate([values, 0 * values, values])[order]
        return sp.csr_matrix((values, np.tile(columns, 3)[order], starts), X.shape)
    return {
        "list": lambda: X.tolist(),
        "F": lambda: np.asfortranarray(X),
        "matrix": lambda: np.asmatrix(X),
        "1d": X.ravel,
        "3d": lambda: X[..., None],
        "none": lambda: None,
        "text": lambda: "some text",
        "csr": lambda: sp.csr_matrix(X),
        "csc": lambda: sp.csc_matrix(X),
        "coo": lambda: sp.coo_matrix(X),
        "lil": lambda: sp.lil_matrix(X),
        "csr array": lambda: sp.csr_array(X),
        "bool csr": lambda: sp.csr_matrix(X > 0),
    }[kind]()


# What is looked at


def digest(value, depth=0):
    """A value that is equal where all within is, to the bit."""
    if depth > 5:
        return "deep"
    if isinstance(value, np.ndarray):
        if value.dtype == object:
            return repr(value.tolist())
        data = hashlib.sha1(np.ascontiguousarray(value).tobytes()).hexdigest()
        return (value.shape, value.dtype.str, data)
    if sp.issparse(value):
        parts = (getattr(value, name, None) for name in ("data", "indices", "indptr"))
        return (value.shape, *(digest(part, depth + 1) for part in parts))
    if isinstance(value, dict):
        return [(repr(key), digest(item, depth + 1)) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return [digest(item, depth + 1) for item in value]
    if hasattr(value, "to_numpy"):
        return digest(value.to_numpy(), depth + 1)
    if isinstance(value, int | float | complex | str | bytes | np.generic | None):
        return repr(value)
    if hasattr(value, "__dict__") and not hasattr(value, "dask"):
        return (type(value).__name__, digest(vars(value), depth + 1))
    return repr(type(value))


def not_finite(value, path="", depth=0):
    """Yield where numbers are NaN or infinite."""
    if depth > 4:
        return
    if isinstance(value, float) and not np.isfinite(value):
        yield path
    elif isinstance(value, np.ndarray) and value.dtype.kind == "f":
        if not np.isfinite(value).all():
            yield path
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from not_finite(item, f"{path}.{key}", depth + 1)
    elif isinstance(value, list | tuple):
        names = getattr(value, "_fields", range(len(value)))
        for name, item in zip(names, value, strict=True):
            yield from not_finite(item, f"{path}.{name}", depth + 1)


# What Python and numpy say well enough.
SAID_BELOW = "missing 1 required positional argument", "Seed must be between 0 and"
# Answers that may have no number, where a warning says so.
SAID_BY_WARNING = {"confidence_intervals": "intervals are NaN", "score": "well-defined"}
# And those that may be NaN where X is, or beyond floats.
MAY_BE_MISSING = "pseudo_residuals", "perplexity"


def said_on_purpose(error):
    """Whether an error is one of ours, or of scikit-learn's checks of input."""
    if not isinstance(error, ValueError | TypeError | AttributeError):
        return False
    if "' object has no attribute '" in str(error):  # of Python
        return False
    if any(text in str(error) for text in SAID_BELOW):
        return True
    frame = traceback.extract_tb(error.__traceback__)[-1]
    file = frame.filename.replace(os.sep, "/")
    places = ("/skvrem/", "/sklearn/utils/", "/sklearn/base.py", "/tests/own_models.py")
    lines = range(max(1, frame.lineno - 8), frame.lineno + 1)
    text = "".join(linecache.getline(frame.filename, number) for number in lines)
    return any(place in file for place in places) and bool(
        re.search(r"\braise\b", text)
    )


def where(error):
    """The innermost line of the package that an error went through."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/skvrem/" in frame.filename]
    place = ours[-1] if ours else frames[-1]
    return f"{place.filename.rpartition('/skvrem/')[2]}:{place.lineno} {place.name}"


class Trial:
    """Runs a case, and notes what is wrong.

    Parameters
    ----------
    seed : int
    say : callable
        Told what happens, as `print`.
    """

    def __init__(self, seed, say=lambda *_: None):
        self.seed, self.say, self.found = seed, say, []
        self.case = case = Draw(seed).case()
        self.estimator = case.estimator_class(**case.params)
        self.name = case.estimator_class.__name__
        self.shape = str(getattr(case.X, "shape", ""))
        say(self.name, case.params, type(case.X).__name__, self.shape, case.notes)

    def add(self, kind, text):
        self.say("  !!", kind, text)
        self.found.append(
            {
                "seed": self.seed,
                "kind": kind,
                "text": f"{self.name}{text}",
                "notes": [*self.case.notes, self.shape, self.case.first],
                "params": {
                    name: repr(value)[:60]
                    for name, value in self.case.params.items()
                    if QUICK[self.name].get(name) is not value
                },
            }
        )

    def run(self):
        """Return what was found, a list of dicts."""
        case = self.case
        if case.fitted_before:
            self.fit_something()
        arguments = (case.X,) if case.y is None else (case.X, case.y)
        ok = self.call(case.first, *arguments, **case.keywords)
        if not (ok or case.fitted_before):
            return self.found
        for name in case.later:
            self.call(name, *self.arguments(name), **self.keywords(name))
        return self.found

    def fit_something(self):
        """Fit good data first, so that a fit that fails has something to lose."""
        rng = np.random.default_rng(self.seed)
        defaults = self.case.estimator_class().get_params(deep=False)
        self.estimator.set_params(**defaults).set_params(**QUICK[self.name])
        X = rng.poisson(1.0, size=(40, 4)) * 1.0
        y = np.arange(40) % 2 if self.name in SUPERVISED else None
        if self.name not in COUNTS:
            X += rng.normal(size=X.shape)
        if self.name == "BradleyTerry":
            X = np.stack([np.arange(40) % 5, (np.arange(40) + 1) % 5], axis=1)
        if self.name == "VariationalInference":
            self.estimator.set_params(model=Logistic(X, np.arange(40) % 2))
            X = None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.estimator.fit(X, y)
        self.estimator.set_params(**self.case.params)
        self.say("   fitted before")

    def arguments(self, method):
        case = self.case
        if method in ("summary", "ranking", "rank_probability", "sparsify") or (
            method.startswith("get_")
        ):
            return ()
        if method == "inverse_transform":
            k = getattr(self.estimator, "n_components", 2)
            fair = isinstance(k, int) and not isinstance(k, bool) and 0 < k < 100
            return (np.ones((3, k if fair else 2)),)
        if method in ("sample", "sample_posterior"):
            return (3,)
        if method == "condition":
            return ([0], [[1.0]])
        if method == "difference_interval":
            return (0, 1)
        if method == "partial_fit" or (method == "score" and case.y is not None):
            return (case.X,) if case.y is None else (case.X, case.y)
        return (case.other,)

    def keywords(self, method):
        keywords = self.case.keywords
        if method == "partial_fit":
            return keywords
        taken = ("predict", "predict_proba", "predict_log_proba", "score")
        if method in taken and "groups" in keywords and self.case.other is self.case.X:
            return {"groups": keywords["groups"]}
        return {}

    def call(self, method, *arguments, **keywords):
        """Call a method, look at all that it leaves; return whether it went well."""
        estimator = self.estimator
        given = digest((arguments, keywords))
        params = digest(estimator.get_params(deep=False))
        before = digest(vars(estimator))
        error = out = None
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                out = getattr(estimator, method)(*arguments, **keywords)
                if hasattr(out, "dask"):
                    out = out.compute(scheduler="synchronous")
                elif inspect.isgenerator(out):
                    out = list(out)
            except Exception as caught_error:
                error = caught_error
        self.say("  ", method, repr(out if error is None else error)[:200])
        if error is not None and not said_on_purpose(error):
            text = f"{type(error).__name__}: {str(error)[:150]} @ {where(error)}"
            self.add("raw error", f".{method}: {text}")
        for warning in caught:
            kind = warning.category
            if issubclass(kind, RuntimeWarning | DeprecationWarning):
                place = f"{Path(warning.filename).name}:{warning.lineno}"
                text = f"{kind.__name__}: {str(warning.message)[:100]} @ {place}"
                self.add("noise", f".{method}: {text}")
        if digest((arguments, keywords)) != given:
            self.add("input changed", f".{method}")
        if digest(estimator.get_params(deep=False)) != params:
            self.add("parameters changed", f".{method}")
        if error is not None:
            if digest(vars(estimator)) != before:
                self.add("state changed", f".{method}, which failed: {error!r}"[:200])
            return False
        if method in ("fit", "partial_fit"):
            attributes = {
                name: value
                for name, value in vars(estimator).items()
                if name.endswith("_") and name not in MAY_BE_INFINITE
            }
            bad = sorted(set(not_finite(attributes)))
        else:
            if "log_proba" in method:  # of a probability of zero
                out = np.where(np.equal(out, -np.inf), 0.0, out)
            text = SAID_BY_WARNING.get(method)
            said = text and any(text in str(warning.message) for warning in caught)
            said = said or method in MAY_BE_MISSING
            bad = [] if said else sorted(set(not_finite(out)))
        if bad:
            self.add("not finite", f".{method}: {bad}")
        return True


# Many cases


def work():
    """Read seeds from the standard input, write what was found to the output."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        try:
            found = Trial(int(line)).run()
        except Exception:
            text = traceback.format_exc()[-600:]
            found = [{"seed": int(line), "kind": "fuzzer", "text": text}]
        print(json.dumps(found), file=answers, flush=True)


class Worker:
    """A process that runs one case at a time."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz", "--work"],
            cwd=Path(__file__).resolve().parents[1],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.process.stdout.readline()
        self.seed, self.since = None, 0.0

    def begin(self, seed):
        self.seed, self.since = seed, time.monotonic()
        self.process.stdin.write(f"{seed}\n")
        self.process.stdin.flush()

    def end(self):
        self.process.kill()
        return self.process.wait()


def look(cases, seconds, workers, seed, out):
    """Run cases until there were enough or the time is over; return what was found."""
    found, done, end = [], 0, time.monotonic() + seconds
    crew = [Worker() for _ in range(workers)]
    try:
        while True:
            for worker in crew:
                more = done < cases and time.monotonic() < end
                if worker.seed is None and more:
                    worker.begin(seed)
                    seed, done = seed + 1, done + 1
            busy = [worker for worker in crew if worker.seed is not None]
            if not busy:
                return found, done
            outputs = [worker.process.stdout for worker in busy]
            ready = select.select(outputs, [], [], 1.0)[0]
            for worker in busy:
                late = time.monotonic() - worker.since > TIME_LIMIT
                if worker.process.stdout in ready:
                    line = worker.process.stdout.readline()
                    new = json.loads(line) if line else None
                    if new is None:
                        text = f"exit {worker.end()}"
                        new = [{"seed": worker.seed, "kind": "died", "text": text}]
                elif late:
                    worker.end()
                    text = f"over {TIME_LIMIT:g} s"
                    new = [{"seed": worker.seed, "kind": "time limit", "text": text}]
                else:
                    continue
                found += new
                for item in new:
                    out.write(json.dumps(item) + "\n")
                out.flush()
                if worker.process.poll() is not None:
                    crew[crew.index(worker)] = Worker()
                worker.seed = None
    finally:
        for worker in crew:
            worker.end()


def report(found):
    """Print what was found, alike things together."""
    alike = collections.defaultdict(list)
    for item in found:
        text = re.sub(r"0x[0-9a-f]+|\d+(\.\d+)?(e[+-]?\d+)?", "#", item["text"])
        alike[item["kind"], text[:170]].append(item)
    for (kind, _), items in sorted(alike.items(), key=lambda pair: pair[0]):
        seeds = ", ".join(str(item["seed"]) for item in items[:4])
        print(f"[{kind}] {len(items)} times, seeds {seeds}\n    {items[0]['text']}")
        print(f"    {items[0].get('params')} {items[0].get('notes')}")


def main():
    parser = argparse.ArgumentParser(description="Look for cases that go wrong.")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--cases", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--seed", type=int, default=FIRST, help="of the first case")
    parser.add_argument("--out", default=os.devnull, help="file for all that is found")
    parser.add_argument("--case", type=int, help="run one, and say what happens")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    # A pipe that is closed ends the process in silence.
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    if options.work:
        return work()
    if options.case is not None:
        Trial(options.case, print).run()
        return None
    print(f"skvrem {skvrem.__version__}, seeds from {options.seed}")
    with open(options.out, "a") as out:
        found, done = look(
            options.cases, options.seconds, options.workers, options.seed, out
        )
    report(found)
    print(f"{done} cases, {len(found)} findings")
    return sys.exit(bool(found))


if __name__ == "__main__":
    main()
