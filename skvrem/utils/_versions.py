"""The state of an installation, for bug reports."""

import os
import platform
import sys
from importlib import metadata
from typing import IO

from joblib import cpu_count
from threadpoolctl import threadpool_info

from skvrem import __version__
from skvrem.utils._jit import cache_state
from skvrem.utils._parallel import effective_threads

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
