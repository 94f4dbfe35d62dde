"""Seconds of functions that take turns, and what a function allocates.

All sides of a row are timed in one run, one after the other, so that a busy spell of
the machine falls on all of them; the fastest of each counts, and of iterations, which
are differences, the median. With one thread seconds are CPU seconds of the process,
every thread pool limited to one; with more, wall-clock seconds, which mean something on
an idle machine only.
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
# Fits of milliseconds are repeated until their rounds have taken so many seconds, five
# times as often at most: a core's clock changes within a second.
SHORT = 4.0


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
        best, second, *_ = [*sorted(seen), np.inf]
        return best > SLOW or second < (1 + AGREE) * best

    with quiet(), threadpool_limits(threads):
        started = time.perf_counter()
        for number in range(1, 5 * run.repeats + 1):
            for name, seen in times.items():
                if seen and min(seen) > SLOW:
                    continue
                began = now()
                functions[name]()
                seen.append(now() - began)
            short = time.perf_counter() - started < SHORT
            done = number >= 2 * run.repeats or all(map(agree, times.values()))
            if number >= run.repeats and done and not short:
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
    times = {
        name: sorted(seen) for name, seen in _in_turns(sides, run, threads).items()
    }
    noise = max(seen[:2][-1] / seen[0] - 1.0 for seen in times.values())
    return Timed({name: seen[0] for name, seen in times.items()}, noise)


def an_iteration(sides, run, threads=1):
    """Return the `Timed` seconds of an iteration.

    It is the difference between fits of many and of few iterations: validation, start
    and the last E step cancel. Both are of one round, and the median of rounds counts:
    where the clock of a core drifts, the fastest of each need not be of one clock.

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
        rounds = zip(times[name, many], times[name, few], strict=False)
        each = [(long - short) / (many - few) for long, short in rounds]
        low, one, high = np.quantile(each, [0.25, 0.5, 0.75])
        seconds[name] = float(one) if one > 0.0 else np.nan
        if len(each) > 1 and one > 0.0:
            noise = max(noise, float(high - low) / one)
    return Timed(seconds, noise)


def allocated(function):
    """Return the bytes that Python and NumPy hold at most during a call."""
    tracemalloc.start()
    with quiet():
        function()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak
