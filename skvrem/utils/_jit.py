"""The one decorator of all kernels, and the fast-math sets they may ask for.

A kernel is compiled with ``nogil`` (row blocks run on a thread pool), with
``error_model="numpy"`` (the branch of a ZeroDivisionError stops LLVM from
vectorising a loop) and is kept on disk where numba finds a folder to write to.
"""

import numba

# Keeps infinities and NaN, the order of sums, and so the bits of a result on every
# machine with fused multiply-add. The choice wherever -inf or NaN may pass.
CONTRACT = {"contract"}

# For finite data only: under nnan and ninf LLVM may take an infinity for impossible.
# Without reassoc, which would turn (t + magic) - magic into t, the rounding inside exp.
FAST = {"contract", "nnan", "ninf", "nsz", "arcp", "afn"}

# For loops that sum over rows: LLVM keeps a partial sum a lane only if it may reorder
# the additions. It holds infinities and NaN as they are; no exp in such a kernel.
REDUCE = {"contract", "reassoc", "nsz"}

_cache = {"folder": None, "disabled": None}


def kernel(function=None, **options):
    """Compile a function of plain arrays; ``options`` go to numba's ``njit``.

    Where numba has no place for its cache (a read-only install without a home folder)
    the function is compiled anew in every process instead of failing at import.
    """
    if function is None:
        return lambda function: kernel(function, **options)
    options = {"nogil": True, "cache": True, "error_model": "numpy"} | options
    try:
        compiled = numba.njit(**options)(function)
    except RuntimeError as error:
        if not options["cache"] or "no locator available" not in str(error):
            raise
        _cache["disabled"] = str(error)
        return numba.njit(**(options | {"cache": False}))(function)
    if options["cache"] and hasattr(compiled, "stats"):
        _cache["folder"] = compiled.stats.cache_path
    return compiled


def cache_state():
    """Say where compiled kernels are kept: a folder, or "disabled" and the reason."""
    if _cache["disabled"] is not None:
        return f"disabled: {_cache['disabled']}"
    return _cache["folder"] or "no kernel compiled yet"
