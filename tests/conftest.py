"""Set up what every test needs before numba or matplotlib is imported."""

import os
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]


# Environment variables, so that the processes that tests start inherit them.
os.environ["NUMBA_CACHE_DIR"] = str(ROOT / ".cache" / "numba")
os.environ["MPLBACKEND"] = "Agg"


#: Warnings are errors where the environment says CI, as .ci/run and the workflows do;
#: elsewhere a dependency may deprecate what it likes.
IN_CI = (
    "error",
    # scikit-learn 1.7's own parametrize_with_checks, with a later pytest.
    "ignore:Passing a non-Collection iterable to parametrize",
)


def pytest_configure(config):
    if os.environ.get("CI"):
        for line in IN_CI:
            config.addinivalue_line("filterwarnings", line)


@pytest.fixture
def rng():
    return np.random.default_rng(0)
