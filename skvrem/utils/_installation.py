"""The state of an installation: for bug reports, and ahead of a first fit."""

import json
import os
import platform
import subprocess
import sys
import warnings
from importlib import metadata
from typing import IO

import numpy as np
import scipy.sparse as sp
from joblib import cpu_count
from threadpoolctl import threadpool_info

from skvrem import __version__
from skvrem.utils._jit import cache_counts, cache_state
from skvrem.utils._parallel import effective_threads
from skvrem.utils.discovery import all_estimators

# As in pyproject.toml, which a source tree that is only on the path does not carry.
DEPENDENCIES = ("joblib", "numba", "numpy", "scikit-learn", "scipy", "threadpoolctl")
OPTIONAL = ("arviz", "dask", "distributed", "jax", "matplotlib", "pandas", "rich")


def show_versions(file: IO[str] | None = None) -> None:
    """Write the state of the installation: versions, threads, compiled kernels.

    Put its output into a bug report. Optional dependencies are looked up and not
    imported. The thread pools listed are those of the libraries loaded so far.

    Parameters
    ----------
    file : file-like, default=None
        Where to write; None is the standard output.

    Examples
    --------
    >>> import io
    >>> from skvrem import show_versions
    >>> out = io.StringIO()
    >>> show_versions(file=out)
    >>> "scikit-learn" in out.getvalue()
    True
    """
    file = sys.stdout if file is None else file
    sections = {
        "System": {
            "skvrem": __version__,
            "python": sys.version.replace("\n", " "),
            "executable": sys.executable,
            "platform": platform.platform(),
        },
        "Dependencies": {name: _version(name) for name in DEPENDENCIES},
        "Optional": {name: _version(name) for name in OPTIONAL},
        "Threads": {
            "cores": f"{cpu_count()} usable, {os.cpu_count()} in the machine",
            "n_jobs=None": f"{effective_threads(None)} here",
            **_pools(),
        },
        "Compiled kernels": {
            "cpu": _cpu(),
            "cache": cache_state(),
            "NUMBA_CACHE_DIR": os.environ.get("NUMBA_CACHE_DIR", "not set"),
        },
    }
    for title, entries in sections.items():
        width = max(map(len, entries), default=0)
        file.write(f"{title}\n")
        for name, value in entries.items():
            file.write(f"  {name:<{width}}  {value}\n")


def warm_up(cpu: str | None = None, only: list[str] | None = None) -> dict:
    """Compile the kernels that default fits need, ahead of the first of them.

    numba compiles a kernel where it is first called and keeps it on disk. A call of
    this, say while a Docker image is made, leaves the folder filled, so that first fits
    take no longer than later ones. It fits every estimator to a few rows, which takes
    about half a minute of one core.

    Parameters
    ----------
    cpu : str, default=None
        Compile for a processor of this name (as of LLVM, such as "skylake" or
        "generic") and not for this one. The machine at hand must be able to run it;
        where the kernels are used, set the environment variable ``NUMBA_CPU_NAME`` to
        the same name.
    only : list of str, default=None
        Names of estimators; None is all of them.

    Returns
    -------
    found : dict
        "folder" of the compiled kernels; "compiled", how many were, and "loaded", how
        many were found there. Where nothing can be kept "folder" says why.

    Raises
    ------
    ValueError
        For names of no estimators.
    RuntimeError
        If fits for the other processor failed, with what they said.

    Examples
    --------
    >>> from skvrem import warm_up
    >>> found = warm_up(only=["BayesianPPCA"])
    >>> sorted(found)
    ['compiled', 'folder', 'loaded']
    """
    known = dict(all_estimators())
    names = list(known) if only is None else list(only)
    if not set(names) <= known.keys():
        raise ValueError(f"only must be names among {sorted(known)}, got {only!r}.")
    if cpu is not None:
        return _warm_up_for(cpu, names)
    before = cache_counts()
    for name in names:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _fit_a_few(known[name])
    compiled, loaded = (
        now - then for now, then in zip(cache_counts(), before, strict=True)
    )
    return {"folder": cache_state(), "compiled": compiled, "loaded": loaded}


def _warm_up_for(cpu, names):
    """Warm up in a process whose kernels are of another processor."""
    code = f"import json, skvrem; print(json.dumps(skvrem.warm_up(only={names!r})))"
    environment = os.environ | {"NUMBA_CPU_NAME": cpu, "NUMBA_CPU_FEATURES": ""}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(
            f"Fits with kernels for {cpu!r} failed; perhaps this machine cannot run "
            f"them, or there is no such name:\n{done.stderr[-2000:]}"
        )
    return json.loads(done.stdout.splitlines()[-1])


def _fit_a_few(estimator_class):
    """Fit an estimator to the rows that it is mostly given, and ask it for answers."""
    rng = np.random.default_rng(0)
    X = 3.0 * rng.integers(2, size=(300, 1)) + rng.normal(size=(300, 3))
    y = rng.integers(2, size=300)
    counts = sp.csr_array(rng.poisson(1.0, size=(60, 40)))
    pairs = np.stack([rng.permutation(10)[:2] for _ in range(60)])
    rows = {
        "BradleyTerry": (pairs,),
        "TemperedLDA": (counts,),
        "VRPLSA": (counts,),
        "VariationalInference": (),
    }
    name = estimator_class.__name__
    model = (_NormalModel(),) if name == "VariationalInference" else ()
    estimator = estimator_class(*model)
    # Mixtures and the like ignore targets.
    given = rows.get(name, (X, y))
    groups = {"groups": y} if name == "HierarchicalSoftmaxClassifier" else {}
    estimator.fit(*given, **groups)
    for method in "predict", "predict_proba", "transform":
        if given and hasattr(estimator, method):
            getattr(estimator, method)(given[0], **groups)


class _NormalModel:
    """Rows with a normal distribution about one mean."""

    n_parameters, n_samples = 1, 20

    def log_likelihood(self, parameters, indices):
        return -0.5 * (parameters[0] - indices) ** 2

    def gradient(self, parameters, indices):
        return np.array([np.sum(indices - parameters[0])])


def _version(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def _pools():
    """Thread pools of the loaded libraries, by the kind of library."""
    found = {}
    for number, pool in enumerate(threadpool_info(), start=1):
        library = f"{pool['internal_api']} {pool['version'] or ''}".strip()
        where = os.path.basename(pool["filepath"])
        found[f"{pool['user_api']} {number}"] = (
            f"{library}, {pool['num_threads']} threads ({where})"
        )
    return found


def _cpu():
    """Name of the processor that kernels are compiled for."""
    from numba import config
    from numba.core.codegen import ll

    return config.CPU_NAME or ll.get_host_cpu_name()
