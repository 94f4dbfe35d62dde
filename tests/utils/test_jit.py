"""The kernel decorator: options, the disk cache, and life without one."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
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
    assert "reassoc" not in _jit.CONTRACT
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


KERNELS = """
from skvrem.utils._jit import kernel
from skvrem.utils._math import exp

@kernel
def f(x):
    return exp(x)
"""
RUN = """
from skvrem.small._kernels import f
print(f(1.0), sum(f.stats.cache_hits.values()), f.stats.cache_path)
"""


@pytest.fixture
def site(tmp_path):
    """A package with the real decorator and functions, and one small kernel."""
    package = tmp_path / "site" / "skvrem"
    for folder in ("utils", "small"):
        (package / folder).mkdir(parents=True)
        (package / folder / "__init__.py").touch()
    (package / "__init__.py").touch()
    for name in ("_jit.py", "_math.py"):
        shutil.copy(ROOT / "skvrem" / "utils" / name, package / "utils")
    (package / "small" / "_kernels.py").write_text(KERNELS)
    return package


def call(site, **variables):
    """Return what the kernel computes in a new process, cache hits, and the folder."""
    environment = os.environ | {"PYTHONPATH": str(site.parent)} | variables
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        env=environment,
        cwd=site.parent,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    value, hits, folder = done.stdout.strip().split(maxsplit=2)
    return float(value), int(hits), Path(folder)


@pytest.mark.parametrize("place", ["package", "home", "shared"])
def test_an_upgrade_runs_the_new_kernels(place, site, tmp_path):
    """A mended function of another file reaches the kernels that are kept on disk."""
    home = tmp_path / "home"
    variables = {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")}
    shared = tmp_path / "shared"
    variables["NUMBA_CACHE_DIR"] = str(shared) if place == "shared" else ""
    if place == "home":
        (site / "small" / "__pycache__").touch()  # so that no folder can be made there
    first, hits, folder = call(site, **variables)
    where = {"package": site, "home": home, "shared": shared}[place]
    assert where in folder.parents
    assert first == pytest.approx(np.e)
    assert hits == 0
    assert call(site, **variables) == (first, 1, folder)
    source = site / "utils" / "_math.py"
    stat, text = source.stat(), source.read_text()
    mended = text.replace("def _exp64(x):\n", "def _exp64(x):\n    x = 2.0 * x\n")
    assert mended != text
    source.write_text(mended)
    os.utime(source, (stat.st_mtime, stat.st_mtime))  # as an upgrade may leave it
    second, hits, _ = call(site, **variables)
    assert second == pytest.approx(np.e**2)
    assert hits == 0


@pytest.mark.parametrize(("kind", "left"), [("nbi", 0), ("nbi", 0.9), ("nbc", 0.5)])
def test_a_damaged_cache_is_compiled_anew(kind, left, site, tmp_path):
    variables = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    assert call(site, **variables)[1] == 0
    (file,) = (tmp_path / "cache").rglob(f"_kernels*.{kind}")
    whole = file.read_bytes()
    file.write_bytes(whole[: int(left * len(whole))])
    assert call(site, **variables)[1] == 0
    assert call(site, **variables)[1] == 1


def test_a_damaged_cache_that_cannot_be_written(monkeypatch):
    def add(a):
        return a + 1

    compiled = _jit.kernel(add)

    class Store:
        cache_path = "/some/folder"

        def load_overload(self, signature, target):
            raise EOFError("Ran out of input")

        def flush(self):
            raise PermissionError

    monkeypatch.setattr(compiled, "_cache", Store())
    _jit._compile_what_is_damaged(compiled)
    with pytest.raises(RuntimeError, match=r"/some/folder is damaged.*Delete"):
        compiled(1)


def test_checksum_follows_imports():
    kernels = ROOT / "skvrem" / "mixture" / "_kernels.py"
    names = {path.stem for path in _jit._sources(kernels)}
    assert {"_kernels", "_math", "_simd", "_jit"} >= names >= {"_kernels", "_math"}


# Interrupts


class Compiled:
    """What a kernel is before it is compiled: the compiler is interrupted."""

    done = 0

    def compile(self, signature):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)  # a handler would run here
        self.done += 1
        return signature


def test_an_interrupt_waits_for_the_compiler():
    inner = _jit._interrupted_later(Compiled())
    outer = Compiled()

    def compile_both(signature):
        inner.compile(signature)
        outer.done += 1

    outer.compile = compile_both
    outer, before = _jit._interrupted_later(outer), signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        outer.compile("a")
    assert (inner.done, outer.done) == (1, 1)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_handler_of_the_users_own_is_left_alone():
    seen, before = [], signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, lambda *what: seen.append(what))
    try:
        assert _jit._interrupted_later(Compiled()).compile("a") == "a"
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(seen) == 1


def test_other_threads_have_no_interrupts():
    kernel, found = _jit._interrupted_later(Compiled()), []
    with pytest.raises(KeyboardInterrupt):
        thread = threading.Thread(target=lambda: found.append(kernel.compile("a")))
        thread.start()
        thread.join()
        time.sleep(0.1)
    thread.join()
    assert found == ["a"]


INTERRUPTED = """
import os, signal, sys, threading
import numpy as np
from skvrem import FactorialMixture
from skvrem.utils._jit import watching_compiler

timer = threading.Timer(float(sys.argv[1]), os.kill, (os.getpid(), signal.SIGINT))

def tell():  # once: a second interrupt does not wait
    if timer.ident is None:
        timer.start()

try:
    with watching_compiler(tell):
        FactorialMixture(2).fit(np.random.default_rng(0).normal(size=(100, 4)))
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("delay", [0.01, 0.2])
def test_a_first_fit_is_interrupted_while_its_kernels_are_compiled(delay, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(delay)],
        env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["interrupted"], done.stderr
    assert "Exception ignored" not in done.stderr
