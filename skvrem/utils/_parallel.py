"""Threads over nogil kernels: one pool, one level, a fixed order of results.

`parallel=True` is not used: its threading layers abort or hang inside joblib's
threading and fork backends, and it compiles ten times longer. A pool of Python
threads over kernels that release the GIL does neither.

Work is cut by its size alone, never by the number of threads, and results are
reduced in order, so the bits of a result do not depend on `n_jobs`.
"""

import os
import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from itertools import pairwise
from numbers import Real

from joblib import cpu_count
from joblib.parallel import get_active_backend
from threadpoolctl import ThreadpoolController

#: Columns up to which products of matrices are too small for several threads.
FEW_COLUMNS = 300

_state = threading.local()
_pools = {}
_blas = {"users": 0, "libraries": None, "before": ()}
_lock = threading.Lock()


def _forget():
    """A forked child inherits the pools but none of their threads, and the lock."""
    global _lock
    _lock = threading.Lock()
    _pools.clear()
    vars(_state).clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _in_dask_worker():
    """Whether this thread runs a task of a dask worker, which owns the cores."""
    import sys

    worker = sys.modules.get("distributed.worker")
    if worker is None:
        return False
    try:
        worker.get_worker()
    except ValueError:
        return False
    return True


def effective_threads(n_jobs):
    """Return the number of threads that `n_jobs` means here and now.

    None means all cores, as for scikit-learn's OpenMP estimators, but one inside a
    joblib or dask worker, where the cores are taken. Negative numbers count down
    from the number of cores, as in joblib.

    Raises
    ------
    ValueError
        If `n_jobs` is zero or not an integer.
    """
    if n_jobs is None:
        nested = get_active_backend()[0].nesting_level
        return 1 if nested or _in_dask_worker() else cpu_count()
    whole = isinstance(n_jobs, Real) and float(n_jobs).is_integer()
    if not whole or isinstance(n_jobs, bool) or n_jobs == 0:
        raise ValueError(
            f"n_jobs must be None or a non-zero integer, got {n_jobs!r}: "
            "None or -1 uses all cores."
        )
    n_jobs = int(n_jobs)
    return n_jobs if n_jobs > 0 else max(1, cpu_count() + 1 + n_jobs)


@contextmanager
def threads(n_jobs):
    """Let `parallel_map` in this thread use `n_jobs` threads (see above)."""
    before = getattr(_state, "n_threads", 1)
    n_threads = effective_threads(n_jobs)
    # A task of a pool that waited for tasks of its own would wait for ever.
    _state.n_threads = 1 if getattr(_state, "pooled", False) else n_threads
    try:
        yield _state.n_threads
    finally:
        _state.n_threads = before


@contextmanager
def one_blas_thread():
    """Let BLAS use one thread, as where several tasks of `parallel_map` call it.

    The limit holds for the whole process: the first to enter sets it, the last to leave
    lifts it.
    """
    with _lock:
        if not _blas["users"]:
            if _blas["libraries"] is None:  # finding them takes a while
                found = ThreadpoolController().select(user_api="blas")
                _blas["libraries"] = found.lib_controllers
            # By hand: a limit of threadpoolctl's describes all libraries first, which
            # takes a tenth of what a small batch of a stream does.
            _blas["before"] = [x.get_num_threads() for x in _blas["libraries"]]
            for library in _blas["libraries"]:
                library.set_num_threads(1)
        _blas["users"] += 1
    try:
        yield
    finally:
        with _lock:
            _blas["users"] -= 1
            if not _blas["users"]:
                for library, n in zip(_blas["libraries"], _blas["before"], strict=True):
                    library.set_num_threads(n)


def few_blas_threads(n_columns):
    """Let BLAS use one thread where matrices have few columns.

    Threads then cost more than they save: several times the CPU seconds, and as many by
    the clock where other work is done at the same time.
    """
    return one_blas_thread() if n_columns <= FEW_COLUMNS else nullcontext()


def _enter_pool():
    _state.pooled = True


def _pool(n_threads):
    with _lock:
        if n_threads not in _pools:
            _pools[n_threads] = ThreadPoolExecutor(
                n_threads, "skvrem", initializer=_enter_pool
            )
        return _pools[n_threads]


def thread_count():
    """Return how many threads :func:`parallel_map` would use here and now."""
    return getattr(_state, "n_threads", 1)


def parallel_map(function, items):
    """Yield `function(item)` in the order of `items`.

    Runs in threads where :func:`threads` allows, of which the caller's is one: what no
    other has begun by the time that it is waited for, it does itself. Within one of
    them a map is serial, so that nested maps neither deadlock nor oversubscribe.
    """
    n_threads = thread_count()
    items = list(items)
    if n_threads == 1 or len(items) < 2:
        yield from map(function, items)
        return
    pool = _pool(n_threads - 1)
    # A bounded window, so that results waiting for their turn stay few.
    pending = deque()
    try:
        for item in items:
            if len(pending) == 4 * n_threads:
                yield _first(pending, function)
            pending.append((pool.submit(function, item), item))
        while pending:
            yield _first(pending, function)
    finally:
        for future, _ in pending:
            future.cancel()


def _first(pending, function):
    """Take the first result, and make results until it is there."""
    for at, (future, item) in enumerate(pending):
        if pending[0][0].done():
            break
        if future.cancel():
            mine = Future()
            mine.set_result(_here(function, item))
            pending[at] = mine, item
    return pending.popleft()[0].result()


def _here(function, item):
    _state.pooled, before = True, thread_count()
    _state.n_threads = 1
    try:
        return function(item)
    finally:
        _state.pooled, _state.n_threads = False, before


def parallel_each(function, items):
    """Call ``function(*item)`` for all items, whichever thread is free taking the next.

    As :func:`parallel_map`, without results, and with one hand-over to every thread.
    """
    pending = deque(items)

    def work(_):
        while pending:
            try:
                item = pending.popleft()
            except IndexError:  # another thread has had the last
                return
            function(*item)

    list(parallel_map(work, range(min(thread_count(), len(pending)))))


def map_chunks(function, n_rows, size):
    """Call a function with the ends of ranges of rows; return its answers in order."""
    chunks = row_chunks(0, n_rows, size)
    return list(parallel_map(lambda rows: function(*rows), chunks))


def row_chunks(start, stop, size):
    """Cut start..stop into near-equal ranges of about `size` rows, at least one."""
    n_rows = stop - start
    n_chunks = max(1, round(n_rows / size))
    edges = [start + n_rows * i // n_chunks for i in range(n_chunks + 1)]
    return list(pairwise(edges))
