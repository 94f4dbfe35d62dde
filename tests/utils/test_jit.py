"""The kernel decorator: options, the disk cache, and life without one."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numba
import numpy as np
import pytest

from skvrem.utils import _jit

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def fresh_state(monkeypatch):
    monkeypatch.setattr(_jit, "_cache", {"folder": None, "disabled": None})


def test_defaults():
    @_jit.kernel
    def add(a, b):
        return a + b

    assert add(1, 2) == 3
    options = add.targetoptions
    assert options["nogil"]
    assert options["error_model"] == "numpy"
    assert _jit.cache_state() == add.stats.cache_path


def test_options_override():
    @_jit.kernel(fastmath=_jit.REDUCE, cache=False)
    def total(x):
        s = 0.0
        for i in range(x.size):
            s += x[i]
        return s

    assert total(np.ones(100)) == 100
    assert total.targetoptions["fastmath"] == _jit.REDUCE
    assert _jit.cache_state() == "no kernel compiled yet"


def test_division_by_zero_is_infinite():
    @_jit.kernel(cache=False)
    def divide(a, b):
        return a / b

    assert divide(1.0, 0.0) == np.inf


def test_flags_keep_the_order_of_sums():
    assert "reassoc" not in _jit.FAST | _jit.CONTRACT
    assert not {"nnan", "ninf"} & (_jit.CONTRACT | _jit.REDUCE)


def test_no_place_for_a_cache(monkeypatch):
    original = numba.njit

    def njit(**options):
        if options["cache"]:
            raise RuntimeError("cannot cache function 'f': no locator available")
        return original(**options)

    monkeypatch.setattr(numba, "njit", njit)

    @_jit.kernel
    def twice(a):
        return 2 * a

    assert twice(4) == 8
    assert _jit.cache_state().startswith("disabled: cannot cache")


def test_other_errors_are_raised(monkeypatch):
    def njit(**options):
        raise RuntimeError("something else")

    monkeypatch.setattr(numba, "njit", njit)
    with pytest.raises(RuntimeError, match="something else"):
        _jit.kernel(lambda a: a)


def test_second_process_loads_from_disk(tmp_path):
    (tmp_path / "one.py").write_text(
        textwrap.dedent(
            """
            import numpy as np
            from skvrem.utils._jit import kernel
            from skvrem.utils._math import exp

            @kernel
            def f(x):
                return exp(x[0])

            for dtype in (np.float64, np.float32):
                assert f(np.zeros(1, dtype)) == 1
            print(sum(f.stats.cache_hits.values()))
            """
        )
    )
    environment = os.environ | {
        "NUMBA_CACHE_DIR": str(tmp_path / "cache"),
        "PYTHONPATH": str(ROOT),
    }
    hits = [
        subprocess.run(
            [sys.executable, tmp_path / "one.py"],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for _ in range(2)
    ]
    assert hits == ["0", "2"]
