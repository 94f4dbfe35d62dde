"""What a fit has come to, so that it can be gone on from.

A fit is a sequence of runs (:class:`~skvrem.solvers.Run`): one from each start, some of
them in turns, or one after the other. Its *journal* keeps the results of those that
have ended or paused, and the state of those on their way. A fit that is resumed is the
same fit once more: what it does between runs is done again, a run whose result is known
gives it at once, and one that was on its way begins where it was.
"""

import copy
import hashlib
import math
import time
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np

# Rows whose values tell one X from another, and the most values; read in pieces.
SAMPLED, SAMPLED_VALUES, PIECE = 1000, 1 << 20, 1 << 16
# Share of the time that writing may take on the way, where nobody says how often: half
# of the 3 % of the whole fit, of which the file at its end takes the rest.
SHARE = 0.015
# Seconds that the first is taken to take.
USUAL_COST = 0.02
# What may differ from the fit that goes on.
FREE = frozenset({"max_iter", "n_jobs", "verbose", "verbose_interval", "warm_start"})

#: In place of a point that a fit has left behind.
LEFT_BEHIND = "left behind"
#: The estimator whose fit is to be written, and the checkpoint that writes it.
asked_for: ContextVar = ContextVar("asked for", default=None)
_journal: ContextVar = ContextVar("journal of the fit that runs", default=None)


class Slot:
    """What the journal knows of one run.

    Attributes
    ----------
    results : list of (Result, dict, dict)
        What it had come to at every pause, and at its end; the state of its generator
        of random numbers then, and those of what else knows more as a fit goes on.
    losses : list
        How these compared with those of others.
    led : dict
        Whether what was looked for from its end led on, and the passes, by name.
    saved : dict or None
        Its state, as :meth:`skvrem.solvers.Run.state` says it.
    """

    def __init__(self, journal):
        self.journal, self.run = journal, None
        self.results, self.losses, self.led = [], [], {}
        self.saved, self.n_told = None, 0

    def __getstate__(self):
        if self.run is not None and self.run.anchor is not None:
            self.saved = self.run.state()
        names = "results", "losses", "led", "saved"
        return {name: getattr(self, name) for name in names}

    def __setstate__(self, state):
        vars(self).update(state)
        self.begin(None)

    def begin(self, journal):
        """Return the slot as a fit begins that goes on with it."""
        self.journal, self.run, self.n_told = journal, None, 0
        return self

    def knows(self, n_iter):
        """Whether the next result is known, of a run that may make so many epochs.

        It is forgotten where it was the end of fewer epochs than may be made now.
        """
        for result, *_ in self.results[self.n_told : self.n_told + 1]:
            ended = result.reason in ("tol", "stalled") or result.point is None
            if ended or result.n_iter == n_iter:
                return True
        del self.results[self.n_told :], self.losses[self.n_told :]
        return False

    def tell(self):
        """Return the next result, None where it is not known."""
        if self.n_told == len(self.results):
            return None
        self.n_told += 1
        return self.results[self.n_told - 1]

    def keep(self, result, drawn, learned):
        """Keep a result, unless it is only where a fit was told to stop."""
        if not result.stopped:
            self.results.append((result, drawn, learned))
            self.n_told = len(self.results)

    def loss(self, make):
        """Return what the last result was found to be worth, or find it out."""
        if len(self.losses) < self.n_told:
            self.losses.append(make())
        return self.losses[self.n_told - 1]

    def lead(self, name, find):
        """Return where a search from the end leads, or None, and the passes it takes.

        What it led to is left behind where the end is, and so are the results of runs
        from there on: they are known.
        """
        if self.results and self.results[-1][0].point is None:
            leads, passes = self.led.get(name, (False, 0.0))
            return LEFT_BEHIND if leads else None, passes
        point, passes = find()
        self.led[name] = point is not None, passes
        return point, passes

    def drop(self):
        """Forget where the run has come to, which others have left behind."""
        self.results = [(r._replace(point=None), *known) for r, *known in self.results]
        self.run = self.saved = None

    def see(self, run):
        """Take note of an epoch; return whether the time of the fit is over."""
        self.run = run
        return self.journal.see(run)


class Journal:
    """What a fit needs to go on: its runs, what it has drawn, where it began.

    Parameters
    ----------
    estimator : estimator
        As its fit begins.
    arguments : tuple
        What it is fitted to.
    checkpoint : skvrem.Checkpoint or None
        Who writes it.
    """

    def __init__(self, estimator, arguments, checkpoint):
        self.before = _shell(estimator)
        self.fingerprint = fingerprint(arguments)
        state = estimator.random_state if hasattr(estimator, "random_state") else 0
        if state is None:
            state = int(np.random.SeedSequence().generate_state(1)[0] >> 1)
        self.random_state = copy.deepcopy(state)
        self.slots, self.made = [], {}
        self.open(estimator, checkpoint)

    def open(self, estimator, checkpoint):
        """Begin to follow a fit of an estimator."""
        self.estimator, self.checkpoint = estimator, checkpoint
        self.slots = [slot.begin(self) for slot in self.slots]
        self.n_slots = self.n_epochs = 0
        self.began = self.written = time.perf_counter()
        self.cost = USUAL_COST  # of the last writing, in seconds
        return self

    def __getstate__(self):
        names = "before", "fingerprint", "random_state", "slots", "made"
        return {name: getattr(self, name) for name in names}

    def slot(self):
        """Return the slot of the next run."""
        self.n_slots += 1
        if self.n_slots > len(self.slots):
            self.slots.append(Slot(self))
        return self.slots[self.n_slots - 1]

    def see(self, run):
        """Take note of an epoch: write where it is time; say whether time is over."""
        checkpoint = self.checkpoint
        if checkpoint is None:
            return False
        self.n_epochs += 1
        now = time.perf_counter()
        most = checkpoint.max_time
        over = most is not None and now - self.began >= most
        pause = checkpoint.seconds
        if checkpoint.every == "auto":
            due, pause = True, max(pause, self.cost / SHARE)
        else:
            due = self.n_epochs % checkpoint.every == 0
        if over or (due and now - self.written >= pause):
            checkpoint.write_journal(self._so_far(run), self)
            self.written = time.perf_counter()
            self.cost = self.written - now
        return over

    def _so_far(self, run):
        """Return the estimator as if its fit had ended here."""
        estimator = _shell(self.estimator)
        vars(estimator).update(run.attributes())
        if hasattr(estimator, "random_state"):
            estimator.random_state = self.before.random_state
        estimator._remember_parameters()
        return estimator


@contextmanager
def checkpointed(estimator, *arguments, stream=False):
    """Follow a fit, around all of it, where a checkpoint is asked for or gone on from.

    Parameters
    ----------
    estimator : estimator
    *arguments
        What it is fitted to.
    stream : bool, default=False
        A batch of a stream is no fit to follow.

    Raises
    ------
    ValueError
        If it would go on with other rows or parameters than it began with.
    """
    resumed = vars(estimator).pop("_resumed", None)
    if stream or not getattr(estimator, "warm_start", False):
        resumed = None
    checkpoint = None if stream else _wanted(estimator)
    if resumed is None and checkpoint is None:
        token = _journal.set(None)  # of a fit within a fit, say
        try:
            yield
        finally:
            _journal.reset(token)
        return
    passing = {
        name: getattr(estimator, name)
        for name in ("random_state", "warm_start")
        if hasattr(estimator, name)
    }
    if resumed is None:
        journal = Journal(estimator, arguments, checkpoint)
    else:
        journal, now = resumed, estimator.get_params(deep=False)
        _check_same(journal, estimator, arguments)
        kept = {k: v for k, v in vars(estimator).items() if _of_callbacks(k)}
        free = {name: value for name, value in now.items() if name in FREE}
        vars(estimator).clear()
        vars(estimator).update(vars(copy.copy(journal.before)) | kept | free)
        estimator.warm_start = journal.before.warm_start
        journal.open(estimator, checkpoint)
    replaced = resumed is not None or passing.get("random_state", 0) is None
    if replaced and "random_state" in passing:
        estimator.random_state = copy.deepcopy(journal.random_state)
    token = _journal.set(journal)
    try:
        yield
        vars(estimator).update(passing)
        if checkpoint is not None:
            finished = _shell(estimator)
            if replaced:
                finished._remember_parameters()
            checkpoint.write_journal(finished, journal)
    finally:
        _journal.reset(token)


def new_slot():
    """Return the slot of a run of the fit at hand, None where nobody keeps any."""
    journal = _journal.get()
    return None if journal is None else journal.slot()


def remembered(name, make, rng):
    """Return what a fit makes once, from its journal where it is resumed.

    Parameters
    ----------
    name : str
        Of what is made.
    make : callable
        Takes nothing and draws from `rng`.
    rng : numpy.random.Generator
    """
    journal = _journal.get()
    if journal is None:
        return make()
    if name not in journal.made:
        journal.made[name] = make(), rng.bit_generator.state
    made, rng.bit_generator.state = journal.made[name]
    return made


class KnownRows(NamedTuple):
    """What a fit has found of each of its rows, for another one of the same.

    Attributes
    ----------
    fingerprint : str
        Of what it was fitted to.
    fitted : ndarray
        The fitted array that it belongs to: another one has come from elsewhere.
    found : Any
    """

    fingerprint: str
    fitted: Any
    found: Any


def keep_of_rows(estimator, arguments, fitted, found):
    """Keep what a fit has found of each row, in memory: pickles do not have it.

    Parameters
    ----------
    estimator : estimator
    arguments : tuple
        What it was fitted to.
    fitted : str
        Name of an array that is set whenever the estimator learns.
    found : Any
    """
    belongs = getattr(estimator, fitted)
    estimator._of_rows = KnownRows(fingerprint(arguments), belongs, found)


def of_rows(estimator, arguments, fitted):
    """Return a copy of what the last fit has found of each row, for a fit to write to.

    None where it was of others, or the estimator has learnt something since.
    """
    known = vars(estimator).get("_of_rows")
    if known is None or known.fitted is not getattr(estimator, fitted):
        return None
    same = known.fingerprint == fingerprint(arguments)
    return copy.deepcopy(known.found) if same else None


def _wanted(estimator):
    """Return the checkpoint that a fit of this estimator is to write, or None."""
    asked = asked_for.get()
    if asked is not None and asked[0] is estimator:
        return asked[1]
    callbacks = getattr(estimator, "_skl_callbacks", ())
    found = [each for each in callbacks if hasattr(each, "write_journal")]
    return found[-1] if found else None


def _check_same(journal, estimator, arguments):
    """Check that a fit goes on with the rows and parameters that it began with."""
    name = type(estimator).__name__
    if journal.fingerprint != fingerprint(arguments):
        raise ValueError(
            f"This {name} goes on from a checkpoint, but X, y or weights are not those "
            "of its fit. Give it the same, or set warm_start=False to begin anew."
        )
    before = journal.before.get_params(deep=True)
    now = estimator.get_params(deep=True)
    other = [
        key
        for key in sorted(before.keys() | now.keys())
        if key not in FREE and not _equal(before.get(key), now.get(key))
    ]
    if other:
        raise ValueError(
            f"This {name} goes on from a checkpoint, but {', '.join(other)} is not "
            "what it was. Set it back, or set warm_start=False to begin anew."
        )


def _equal(before, now):
    """Whether two values of a parameter are the same, as far as can be seen."""
    if isinstance(before, np.ndarray) or isinstance(now, np.ndarray):
        return np.array_equal(before, now)
    told = repr(now)  # of some objects, the type and where they lie
    return type(before) is type(now) and (" at 0x" in told or repr(before) == told)


def fingerprint(arguments):
    """Return what tells the arguments of a fit from others: shapes, and some values."""
    digest = hashlib.sha256()
    for argument in arguments:
        for part in _parts(argument):
            digest.update(repr((part.shape, part.dtype.str)).encode())
            digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()


def _parts(argument):
    """Yield small arrays that say what an argument is."""
    if argument is None:
        yield np.array("None")
        return
    if not hasattr(argument, "shape"):
        values = np.asarray(argument)
        argument = values if values.ndim else np.asarray(argument, dtype=object)
    yield np.array(repr(tuple(argument.shape)))
    if hasattr(argument, "dask") or not argument.shape:
        return  # no values without computing them
    n_rows, *columns = argument.shape
    step = max(1, n_rows // SAMPLED)
    if hasattr(argument, "tocsr"):
        rows = argument.tocsr()
        ends = zip(rows.indptr[:-1:step], rows.indptr[1::step], strict=True)
        for where in ends:  # SciPy takes no rows of parts that are maps
            yield rows.indices[slice(*where)]
            yield rows.data[slice(*where)]
        return
    width = max(1, math.prod(columns))
    step = max(step, n_rows * width // SAMPLED_VALUES)
    size = step * max(1, PIECE // width)
    rows = argument.iloc if hasattr(argument, "iloc") else argument
    for start in range(0, n_rows, size):  # all at once could be a copy of X
        part = np.asarray(rows[start : start + size : step])
        yield np.array(repr(part.tolist())) if part.dtype.kind == "O" else part


def _of_callbacks(name):
    return name.startswith(("_skl_", "_callback", "_parent_callback"))


def _shell(estimator):
    """Return a copy of an estimator without callbacks and what it knows of its rows."""
    shell = object.__new__(type(estimator))  # ``copy.copy`` asks for its signature
    kept = {k: v for k, v in vars(estimator).items() if not _of_callbacks(k)}
    kept.pop("_of_rows", None)
    vars(shell).update(kept)
    return shell
