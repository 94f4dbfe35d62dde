"""The kernel decorator: options, the disk cache, and life without one."""

import os
import shutil
import signal
import subprocess
import sys
import threading
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


INNER = """
import numpy as np
from skvrem.utils._jit import inner_kernel, kernel

@inner_kernel
def _twice(x):
    return 2 * x

@kernel
def add_twice(x, y):
    return _twice(x) + y

@kernel
def subtract_twice(x, y):
    return _twice(x) - y
"""
RUN_INNER = """
import sys
from skvrem.small import _kernels
found = getattr(_kernels, sys.argv[1])(3.0, 1.0)
print(found, sum(_kernels._twice.stats.cache_hits.values()))
try:
    _kernels._twice(1.0)
except TypeError as error:
    print(error)
"""


@pytest.mark.parametrize("how", ["", "(apart=False)"])
def test_what_only_kernels_call(how, site, tmp_path):
    code = INNER.replace("@inner_kernel", f"@inner_kernel{how}")
    (site / "small" / "_kernels.py").write_text(code)
    variables = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    variables["PYTHONPATH"] = str(site.parent)

    def run(name):
        done = subprocess.run(
            [sys.executable, "-c", RUN_INNER, name],
            env=os.environ | variables,
            cwd=site.parent,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    refusal = "_twice is for kernels to call."
    assert run("add_twice") == ["7.0 0", refusal]
    assert run("subtract_twice") == ["5.0 1", refusal]  # the inner one is kept
    assert run("add_twice") == ["7.0 0", refusal]  # kept with the inner one in it


# Interrupts


class Compiled:
    """What a kernel is before it is compiled; how long that takes is the test's."""

    def __init__(self, error=None):
        self.begun, self.may_end, self.ended = (threading.Event() for _ in range(3))
        self.error, self.thread = error, None

    def compile(self, signature):
        self.thread = threading.current_thread()
        self.begun.set()
        assert self.may_end.wait(60)
        self.ended.set()
        if self.error is not None:
            raise self.error
        return signature


def interrupt_when(begun):
    """Send an interrupt as soon as an event is set."""

    def send():
        begun.wait(60)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=send).start()


def test_an_interrupt_does_not_wait_for_the_compiler():
    source = Compiled()
    begun, may_end, ended = source.begun, source.may_end, source.ended
    compiled = _jit._compiled_beside(source)
    interrupt_when(begun)
    with pytest.raises(KeyboardInterrupt):
        compiled.compile("a")
    assert not ended.is_set()
    may_end.set()
    assert ended.wait(60)  # for the next fit
    assert compiled.compile("a") == "a"


def test_a_kernel_within_a_kernel_is_compiled_with_it():
    inner, outer = Compiled(), Compiled()
    compile_outer = outer.compile

    def compile_both(signature):
        return inner.compile(compile_outer(signature))

    outer.compile = compile_both
    for each in (inner, outer):
        each.may_end.set()
        _jit._compiled_beside(each)
    assert outer.compile("a") == "a"
    assert inner.thread is outer.thread is not threading.main_thread()
    # A kernel of somebody else's: its compiler has the lock, which no thread may wait
    # for.
    with numba.core.compiler_lock.global_compiler_lock:
        assert inner.compile("b") == "b"
    assert inner.thread is threading.main_thread()


def test_errors_of_the_compiler_are_raised():
    source = Compiled(numba.TypingError("no such type"))
    source.may_end.set()
    with pytest.raises(numba.TypingError, match="no such type"):
        _jit._compiled_beside(source).compile("a")


def test_a_handler_of_the_users_own_is_asked():
    source, seen = Compiled(), []
    before = signal.getsignal(signal.SIGINT)

    def note(*what):
        seen.append(what)
        source.may_end.set()

    signal.signal(signal.SIGINT, note)
    interrupt_when(source.begun)
    try:
        assert _jit._compiled_beside(source).compile("a") == "a"
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(seen) == 1


def test_other_threads_compile_where_they_are():
    source, found = Compiled(), []
    source.may_end.set()
    kernel = _jit._compiled_beside(source)
    thread = threading.Thread(target=lambda: found.append(kernel.compile("a")))
    thread.start()
    thread.join()
    assert found == ["a"] and source.thread is thread


INTERRUPTED = """
import os, signal, sys, threading
import numpy as np
from numba.core import event
from skvrem import FactorialMixture

raised, number, seen = threading.Event(), int(sys.argv[1]), []

class Compiling(event.Listener):
    def on_start(self, event):
        seen.append("begins")
        if len(seen) == number:  # this one ends when the interrupt has been raised
            os.kill(os.getpid(), signal.SIGINT)
            print("in time" if raised.wait(60) else "late", flush=True)

    def on_end(self, event):
        pass

X = np.random.default_rng(0).normal(size=(100, 4))
mixture = FactorialMixture(2, random_state=0, max_iter=3)
with event.install_listener("numba:compile", Compiling()):
    try:
        mixture.fit(X)
    except KeyboardInterrupt:
        raised.set()
        assert not hasattr(mixture, "components_")
        again = mixture.fit(X).components_
        print(np.array_equal(again, mixture.fit(X).components_))
"""


@pytest.mark.parametrize("number", [1, 4])
def test_a_first_fit_is_interrupted_while_its_kernels_are_compiled(number, tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", INTERRUPTED, str(number)],
        env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines() == ["in time", "True"], done.stderr
    assert "Exception ignored" not in done.stderr
