"""Seconds of fits that take turns."""

import warnings
from contextlib import contextmanager

import numpy as np
from sklearn.exceptions import ConvergenceWarning

__all__ = ["interleaved", "quiet"]

# Repetitions go on until the fastest two differ by less than this share.
AGREE = 0.03


@contextmanager
def quiet():
    """Fits with a fixed number of iterations do not converge, nor should they."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def interleaved(sides, repeats, clock):
    """Return seconds an iteration of each side.

    All fits take turns, so that a busy spell of the machine falls on all of them;
    the minimum of each counts. Of a side it is the difference between fits with more
    and with fewer iterations: validation, start and the last E step cancel. Rounds go
    on, to twice as many, until the two fastest of each fit agree.

    Parameters
    ----------
    sides : list of (fit, (few, many))
    repeats : int
    clock : callable
        ``time.process_time`` (of all threads) for one thread, ``time.perf_counter``
        for more.

    Returns
    -------
    seconds : list of float
        NaN where the difference drowns in noise.
    """
    for fit, (few, _) in sides:
        fit(few)  # compiles, and touches the memory
    times = {
        (side, n_iter): [] for side, (_, span) in enumerate(sides) for n_iter in span
    }
    for number in range(2 * repeats):
        for (side, n_iter), seen in times.items():
            began = clock()
            sides[side][0](n_iter)
            seen.append(clock() - began)
            seen.sort()
        agree = all(len(t) > 1 and t[1] < (1.0 + AGREE) * t[0] for t in times.values())
        if number + 1 >= repeats and agree:
            break
    seconds = []
    for side, (_, (few, many)) in enumerate(sides):
        one = (times[side, many][0] - times[side, few][0]) / (many - few)
        seconds.append(one if one > 0.0 else np.nan)
    return seconds
