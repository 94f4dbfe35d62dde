"""Set up what every test needs before numba or matplotlib is imported."""

import hashlib
import os
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]


def _numba_cache_dir():
    """Return a folder for compiled kernels that changes with any source.

    numba looks only at the file of the function that it compiles, so a kernel that
    calls one of another file would be loaded stale when only that file has changed.
    """
    digest = hashlib.sha256(version("numba").encode())
    for path in sorted((ROOT / "skvrem").rglob("*.py")):
        digest.update(path.relative_to(ROOT).as_posix().encode())
        digest.update(path.read_bytes())
    return ROOT / ".cache" / "numba" / digest.hexdigest()[:16]


# Environment variables, so that the processes that tests start inherit them.
os.environ["NUMBA_CACHE_DIR"] = str(_numba_cache_dir())
os.environ["MPLBACKEND"] = "Agg"


@pytest.fixture
def rng():
    return np.random.default_rng(0)
