"""Seconds of functions that take turns, and what a function allocates.

All sides of a row are timed in one run, one after the other, so that a busy spell of
the machine falls on all of them; the fastest of each counts. With one thread seconds
are CPU seconds of the process, every thread pool limited to one; with more, wall-clock
seconds, which mean something on an idle machine only.
"""

import time
import tracemalloc
import warnings
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from benchmarks.harness.rows import Row

__all__ = ["Timed", "allocated", "an_iteration", "clock", "fastest", "quiet", "timed"]

# Rounds go on, to twice as many, until the fastest two differ by less than this share.
AGREE = 0.03
# What takes so many seconds is timed once.
SLOW = 20.0


class Timed(NamedTuple):
    """Seconds of each side, and by which share its fastest two differ at most."""

    seconds: dict
    noise: float

    def row(self, label, target=None, **more):
        """Return the `Row` of the first side, the others as its peers."""
        (_, value), *peers = self.seconds.items()
        return Row(label, value, "s", dict(peers), target, noise=self.noise, **more)


@contextmanager
def quiet():
    """Fits with a fixed number of iterations do not converge, nor should they."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def clock(threads):
    """Return the clock that counts for a number of threads."""
    return time.process_time if threads == 1 else time.perf_counter


def timed(function, threads=1):
    """Return seconds of one call, and what it returns."""
    now = clock(threads)
    with quiet(), threadpool_limits(threads):
        began = now()
        result = function()
        return now() - began, result


def _in_turns(functions, run, threads):
    now = clock(threads)
    times = {name: [] for name in functions}

    def agree(seen):
        return seen[0] > SLOW or (len(seen) > 1 and seen[1] < (1 + AGREE) * seen[0])

    with quiet(), threadpool_limits(threads):
        for number in range(2 * run.repeats):
            for name, seen in times.items():
                if number and seen[0] > SLOW:
                    continue
                began = now()
                functions[name]()
                seen.append(now() - began)
                seen.sort()
            if number + 1 >= run.repeats and all(map(agree, times.values())):
                break
    return times


def fastest(sides, run, threads=1, warm_up=True):
    """Return the `Timed` seconds of functions of nothing.

    Parameters
    ----------
    sides : dict of {str: callable}
        Ours first.
    run : Run
    threads : int, default=1
        That all sides have; 1 is for CPU seconds.
    warm_up : bool, default=True
        Call each once before; otherwise it has been done.
    """
    if warm_up:
        with quiet(), threadpool_limits(threads):
            for function in sides.values():
                function()
    times = _in_turns(sides, run, threads)
    noise = max(seen[:2][-1] / seen[0] - 1.0 for seen in times.values())
    return Timed({name: seen[0] for name, seen in times.items()}, noise)


def an_iteration(sides, run, threads=1):
    """Return the `Timed` seconds of an iteration.

    It is the difference between fits of many and of few iterations: validation, start
    and the last E step cancel.

    Parameters
    ----------
    sides : dict of {str: (fit, few, many)}
        Ours first; ``fit(n)`` makes n iterations. NaN where the difference drowns in
        noise.
    run : Run
    threads : int, default=1
    """
    with quiet(), threadpool_limits(threads):
        for fit, few, _ in sides.values():
            fit(few)  # compiles, and touches the memory
    functions = {
        (name, n): lambda fit=fit, n=n: fit(n)
        for name, (fit, *span) in sides.items()
        for n in span
    }
    times = _in_turns(functions, run, threads)
    seconds, noise = {}, 0.0
    for name, (_, few, many) in sides.items():
        short, long = times[name, few], times[name, many]
        one = (long[0] - short[0]) / (many - few)
        seconds[name] = one if one > 0.0 else np.nan
        if min(len(short), len(long)) > 1 and one > 0.0:
            spread = long[1] - long[0] + short[1] - short[0]
            noise = max(noise, spread / (long[0] - short[0]))
    return Timed(seconds, noise)


def allocated(function):
    """Return the bytes that Python and NumPy hold at most during a call."""
    tracemalloc.start()
    with quiet():
        function()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak
