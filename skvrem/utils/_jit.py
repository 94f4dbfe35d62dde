"""The one decorator of all kernels, and the fast-math sets they may ask for.

A kernel is compiled with ``nogil`` (row blocks run on a thread pool), with
``error_model="numpy"`` (the branch of a ZeroDivisionError stops LLVM from
vectorising a loop) and is kept on disk where numba finds a folder to write to.

What is kept belongs to the sources that it was compiled from. numba stamps the file of
the function itself, but a kernel also holds the code of those that it calls, which
stand in other files; so the name it is kept under ends in a checksum of all of them.
"""

import ast
import hashlib
import threading
from concurrent.futures import Future, wait
from contextlib import contextmanager
from contextvars import copy_context
from functools import cache
from pathlib import Path

import numba
from numba.core import compiler, compiler_lock, event
from numba.core.codegen import JITCodeLibrary

# Keeps infinities and NaN, the order of sums, and so the bits of a result on every
# machine with fused multiply-add. The choice wherever -inf or NaN may pass: under nnan
# and ninf LLVM may take an infinity for impossible. reassoc would turn (t + magic) -
# magic into t, the rounding inside exp.
CONTRACT = {"contract"}

# For loops that sum over rows: LLVM keeps a partial sum a lane only if it may reorder
# the additions. It holds infinities and NaN as they are; no exp in such a kernel.
REDUCE = {"contract", "reassoc", "nsz"}

# Seconds between looks at whether there is an interrupt: Windows does not break a wait.
LONGEST_WAIT = 0.1

_cache = {"folder": None, "disabled": None}
_kernels = []


def kernel(function=None, **options):
    """Compile a function of plain arrays; ``options`` go to numba's ``njit``.

    Where numba has no place for its cache (a read-only install without a home folder)
    the function is compiled anew in every process instead of failing at import.
    """
    if function is None:
        return lambda function: kernel(function, **options)
    options = {"nogil": True, "cache": True, "error_model": "numpy"} | options
    options["no_cfunc_wrapper"] = True  # C has no use for any, and it takes a while
    if options["cache"]:
        # numba takes the name of a function into those of its files.
        checksum = sources_checksum(function.__code__.co_filename)
        function.__qualname__ = f"{function.__qualname__}-{checksum}"
    try:
        compiled = numba.njit(**options)(function)
        _kernels.append(compiled)
    except RuntimeError as error:
        if not options["cache"] or "no locator available" not in str(error):
            raise
        _cache["disabled"] = str(error)
        compiled = numba.njit(**(options | {"cache": False}))(function)
        return _compiled_beside(compiled)
    _compiled_beside(compiled)
    if options["cache"] and hasattr(compiled, "stats"):
        _cache["folder"] = compiled.stats.cache_path
        _compile_what_is_damaged(compiled)
    return compiled


def inner_kernel(function=None, *, apart=True, **options):
    """Compile a function that kernels call, and nothing else; see `kernel`.

    What Python would call it by takes a fifth of the time to compile. A call from
    Python, which would end the process, is a TypeError.

    It is optimized and turned into machine code `apart`, and again as a part of each
    kernel that it is linked into. Where many are nested the former is much of the time
    to compile, and changes nothing; the loops of mixtures are slower without it.
    """
    if function is None:
        return lambda function: inner_kernel(function, apart=apart, **options)
    options["no_cpython_wrapper"] = True
    if not apart:
        options["pipeline_class"] = _PartCompiler
    compiled = kernel(function, **options)

    def add_overload(found):
        compiled.overloads[tuple(found.signature.args)] = found

    def refuse(*arguments, **more):
        raise TypeError(f"{compiled.py_func.__name__} is for kernels to call.")

    # Python finds no version of it, ever, and asks for one to be compiled.
    compiled.add_overload, compiled._compile_for_args = add_overload, refuse
    return compiled


class _PartCompiler(compiler.Compiler):
    """Compiles what is optimized as a part of kernels only."""

    def define_pipelines(self):
        codegen, name = self.state.targetctx.codegen(), self.state.func_id.func_qualname
        self.state.library = _PartLibrary(codegen, name)
        return super().define_pipelines()


class _PartLibrary(JITCodeLibrary):
    """Code that nobody runs as it is: kernels link it in, and optimize the whole.

    So it has no machine code: no address, and no place to write what Python objects a
    function refers to, which none of ours does.
    """

    def _optimize_final_module(self):
        pass

    def _finalize_final_module(self):
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name):
        self._ensure_finalized()
        return 0

    @property
    def codegen(self):
        return _NoMachineCode()

    def serialize_using_object_code(self):
        return self.serialize_using_bitcode()


class _NoMachineCode:
    """What stands in for the generator of machine code where there is none."""

    def set_env(self, name, environment):
        pass


def _compiled_beside(compiled):
    """Let a kernel be compiled in a thread of its own; return the kernel.

    Python gives interrupts to the main thread. Within a callback of LLVM's it would
    print one and go on, within numba's typing one would come out as an error of another
    kind, and between them it would wait for seconds. So the main thread only waits
    here, and whatever ends that ends the fit; the thread goes on, for the next one.
    """
    compile_now = compiled.compile

    def compile_beside(signature):
        main = threading.current_thread() is threading.main_thread()
        # Who has the compiler's lock, as for a kernel that calls this one, keeps it.
        if not main or compiler_lock.global_compiler_lock.is_locked():
            return compile_now(signature)
        found: Future = Future()
        context = copy_context()

        def work():
            try:
                found.set_result(context.run(compile_now, signature))
            except BaseException as error:
                found.set_exception(error)

        try:
            threading.Thread(target=work, name="skvrem compiler").start()
        except RuntimeError:  # no more threads, as where the interpreter ends
            return compile_now(signature)
        while not found.done():
            wait([found], timeout=LONGEST_WAIT)
        return found.result()

    compiled.compile = compile_beside
    return compiled


@cache
def sources_checksum(path):
    """Return hex digits that change with any file that a kernel's code comes from.

    Parameters
    ----------
    path : str
        File of the kernel.

    Returns
    -------
    checksum : str
        Of it and of the modules of the same package that it imports, directly or not.
    """
    digest = hashlib.sha256()
    for source in sorted(_sources(Path(path))):
        digest.update(source.name.encode())
        digest.update(source.read_bytes())
    return digest.hexdigest()[:10]


def _sources(path):
    """Return the file and those of this package that it imports."""
    found, left = set(), [path]
    while left:
        source = left.pop()
        if source in found or not source.is_file():
            continue  # a module that is no file here, as in a zip archive
        found.add(source)
        left += _imported(source)
    return found


@cache
def _imported(source):
    """Return the files of this package that a file's import statements name."""
    package = Path(__file__).parents[1]
    names = set()
    for node in ast.walk(ast.parse(source.read_bytes())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add(node.module)
            # "from package import module"
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    places = (name.split(".") for name in sorted(names))
    files = [
        package.joinpath(*below).with_suffix(".py")
        for top, *below in places
        if top == package.name and below
    ]
    return [file for file in files if file.is_file()]


def _compile_what_is_damaged(compiled):
    """Make a file that cannot be read (a full disk, a cut write) count as missing."""
    store = getattr(compiled, "_cache", None)
    if not hasattr(store, "load_overload") or not hasattr(store, "flush"):
        return  # another numba: damaged files raise, as without this

    load = store.load_overload

    def load_or_compile(signature, target):
        try:
            return load(signature, target)
        except Exception as error:  # a cut pickle may raise nearly anything
            try:
                store.flush()  # the index begins anew, and new files replace the old
            except OSError:
                raise RuntimeError(
                    f"A compiled kernel in {store.cache_path} is damaged and cannot be "
                    "written anew. Delete that folder, or set NUMBA_CACHE_DIR to one "
                    "that can be written to."
                ) from error
            return None

    store.load_overload = load_or_compile


@contextmanager
def watching_compiler(tell):
    """Call a function, with nothing, when a kernel is about to be compiled.

    Not when one is found in the cache.
    """

    class Listener(event.Listener):
        def on_start(self, event):
            tell()

        def on_end(self, event):
            pass

    with event.install_listener("numba:compile", Listener()):
        yield


def cache_counts():
    """Return how many kernels this process has compiled, and how many were loaded."""
    kept = [kernel.stats for kernel in _kernels if hasattr(kernel, "stats")]
    return (
        sum(sum(stats.cache_misses.values()) for stats in kept),
        sum(sum(stats.cache_hits.values()) for stats in kept),
    )


def cache_state():
    """Say where compiled kernels are kept: a folder, or "disabled" and the reason."""
    if _cache["disabled"] is not None:
        return f"disabled: {_cache['disabled']}"
    return _cache["folder"] or "no kernel compiled yet"
