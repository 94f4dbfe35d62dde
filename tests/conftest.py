"""Set up what every test needs before numba or matplotlib is imported."""

import os
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]


# Environment variables, so that the processes that tests start inherit them.
os.environ["NUMBA_CACHE_DIR"] = str(ROOT / ".cache" / "numba")
os.environ["MPLBACKEND"] = "Agg"


@pytest.fixture
def rng():
    return np.random.default_rng(0)
