"""Tasks of dask: made, sent, kept where they were made, joined in a tree."""

import copy
import pickle
import sys
from concurrent.futures import CancelledError
from functools import partial
from itertools import pairwise
from uuid import uuid4

import dask
import numpy as np
from dask.delayed import Delayed

from skvrem.utils._algebra import accumulate, dense

# Bytes of a message that brings what belongs to rows; dask warns of larger ones.
MESSAGE = 1 << 22


def compute(*tasks):
    """Return what tasks come to.

    Raises
    ------
    RuntimeError
        If the cluster went away that was to run them.
    """
    try:
        answers = dask.compute(*tasks)
    except (CancelledError, OSError, RuntimeError, ValueError) as error:
        name, text = type(error).__name__, str(error)
        lost = isinstance(error, CancelledError) or "Cancelled" in name
        closed = "CommClosed" in name or "Client" in text or "Scheduler" in name
        # What was kept by a cluster, asked of another scheduler.
        if not (lost or closed or text.startswith("Missing dependency")):
            raise
        raise RuntimeError(
            "The dask cluster was closed, or has lost the data, before the computation "
            "ended. Connect to a cluster, load the array again and fit once more: a "
            "fit that writes a skvrem.Checkpoint goes on from there."
        ) from error
    # For those who look for errors, a client keeps its last thousand messages: as many
    # points of a model.
    log = getattr(getattr(client(), "scheduler_comm", None), "recent_message_log", None)
    if log is not None:
        log.clear()
    return answers


def client():
    """Return the client of a cluster that dask has for its scheduler, or None."""
    return getattr(dask.base.get_scheduler(), "__self__", None)


def delayed(function):
    """Return a function to be called where its arguments are, under a name of its own.

    Hashing what it is called with would take as long as sending it.
    """
    return dask.delayed(function, pure=False, traverse=False)


def send(thing):
    """Return a thing that many tasks need, which travels once."""
    name = f"skvrem-{type(thing).__name__}-{uuid4().hex}"
    return dask.delayed(thing, name=name, traverse=False)


def lend(thing):
    """Return a thing that tasks need for now, which a cluster does not keep.

    What `send` sends a scheduler remembers for as long as there is anything that was
    made of it, to make that again. This it forgets with its last task, and with it how
    what tasks have left was made: where that is lost, it stays lost (`is_lost`).
    """
    cluster = client()
    if not hasattr(cluster, "scatter"):
        return send(thing)
    try:
        (future,) = cluster.scatter([thing], hash=False)
    except OSError:  # to a worker that has just died
        return send(thing)
    return Delayed(future.key, {future.key: future})


def is_lost(task):
    """Whether what a task is made of is nowhere any more."""
    distributed = sys.modules.get("distributed")
    if distributed is None or not dask.is_dask_collection(task):
        return False
    kept = distributed.futures_of(task)
    return any(future.status in ("cancelled", "lost") for future in kept)


def bytes_of(thing):
    """Return about how many bytes a thing takes to send."""
    arrays = []
    try:
        pickle.dumps(thing, protocol=5, buffer_callback=arrays.append)
    except (pickle.PicklingError, AttributeError, TypeError):
        pass  # which dask can send for all that; what comes before has been counted
    return sum(array.raw().nbytes for array in arrays)


def keep(tasks):
    """Make what tasks come to now, and keep it where it was made.

    In messages that are not too long, where they carry arrays.
    """
    return list(dask.persist(*tasks)) if tasks else []


def kept_slices(array, edges):
    """Send parts of an array to where the rows are, and keep them there."""
    kept, some, size = [], [], 0
    for start, stop in pairwise(edges):
        part = array[start:stop]
        some.append(delayed(np.array)(part, copy=True))
        size += part.nbytes
        if size > MESSAGE:
            kept, some, size = kept + keep(some), [], 0
    return kept + keep(some)


def apply(function, *arguments):
    """Return what a function, which a task may have made, says of its arguments."""
    return function(*arguments)


class HeldAway:
    """A thing that is asked where it is: at a worker, who makes it of tasks.

    Parameters
    ----------
    make : callable
    *tasks : Delayed
        What it takes.
    """

    def __init__(self, make, *tasks):
        self.tasks = [call(make, *tasks)]

    def keep(self):
        """Make it now, and keep it where it is made."""
        self.tasks = keep(self.tasks)
        return self

    def ask(self, function, rng):
        """Return what a function says of it, and of random numbers."""
        asked = send(partial(_told, function, rng))
        answer, state = compute(call(apply, asked, *self.tasks))[0]
        rng.bit_generator.state = state
        return answer


def _told(function, rng, thing):
    # The task may be done again, of the same numbers.
    rng = copy.deepcopy(rng)
    return function(thing, rng), rng.bit_generator.state


def joined(layer, merge):
    """Return what tasks come to, merged in a tree near to where these are done."""
    merge = delayed(merge)
    while len(layer) > 1:
        pairs = [merge(*layer[i : i + 2]) for i in range(0, len(layer) - 1, 2)]
        layer = pairs + layer[2 * len(pairs) :]
    return compute(layer[0])[0]


def add(a, b):
    """Return the sum of statistics."""
    # A copy, as a task must not write to what another has made.
    return accumulate(dense(a), b)


def call(function, *arguments):
    """Return the task of calling a function where what it takes is."""
    return delayed(function)(*arguments)


def add_up(tasks):
    """Return the sum of the statistics that tasks come to, added up near them."""
    return joined(tasks, add)
