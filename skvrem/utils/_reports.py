"""What a fit says: its progress, and warnings where it ends."""

import logging
import math
import sys
import time
import warnings
from contextlib import ExitStack

import numpy as np

from skvrem.exceptions import (
    CollapsedComponentWarning,
    DataScaleWarning,
    MaxIterWarning,
    StalledWarning,
)
from skvrem.utils._jit import cache_state, watching_compiler

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # scikit-learn before 1.9 has none

    class CallbackSupportMixin:
        """Stands in where scikit-learn has no callbacks."""

    def with_callbacks(method):
        """Return the method unchanged."""
        return method


#: What is said of fits goes here too.
LOGGER = logging.getLogger("skvrem")


class Progress:
    """Reports the epochs of a fit, as a context around it.

    The estimator's `verbose` says how. 0: not. 1: a progress bar where rich is
    installed and the output is a terminal, else a line for the first epoch, every
    `verbose_interval`-th and the last. 2: a line every epoch. Beside those there is a
    line where the fit begins, one where kernels are compiled and one where it ends.
    All lines go to the logger "skvrem" as well. Its callbacks are called with one task
    an epoch, below one task a start.

    Parameters
    ----------
    estimator : estimator
        With `max_iter`, `verbose` and `verbose_interval`.
    X, y : as in `fit`
        For callbacks that evaluate.
    n_init : int
        Number of starts.
    """

    def __init__(self, estimator, X, y, n_init):
        self.name = type(estimator).__name__
        self.n_init = n_init
        self.max_iter = estimator.max_iter
        self.verbose = estimator.verbose
        self.interval = estimator.verbose_interval if self.verbose == 1 else 1
        self.arguments = {"estimator": estimator, "X": X, "y": y}
        self.context = self.bar = None
        self.opened, self.n_epochs, self.compiles = ExitStack(), 0, False
        self.record = estimator._record_of_fit
        if hasattr(estimator, "_init_callback_context"):
            self.context = estimator._init_callback_context(max_subtasks=n_init)

    def __enter__(self):
        if self.verbose == 1 and _is_terminal(sys.stdout):
            self.bar = _rich_bar()
        if self.bar is not None:
            self.bar.start()
        if self.verbose:
            self.began = time.perf_counter()
            self.say("begins")
            self.opened.enter_context(watching_compiler(self._compiling))
        if self.context is not None:
            self.context.call_on_fit_task_begin(**self.arguments)
        return self

    def __exit__(self, kind, *_):
        if self.bar is not None:
            self.bar.stop()
        if self.verbose:
            self.opened.close()
            seconds = time.perf_counter() - self.began
            how = "ended" if kind is None else f"was ended by {kind.__name__}"
            self.say(f"{how} after {self.n_epochs} epochs, {seconds:.3g} s")
        if self.context is not None and kind is None:
            self.context.call_on_fit_task_end(**self.arguments)

    def start(self, number, attributes, stop=None, most=None):
        """Begin a start; return its `Report`, which `run` calls with every epoch."""
        return Report(self, number, attributes, stop, most)

    def say(self, text):
        """Print a line, unless there is a bar, and log it."""
        text = f"[{self.name}] {text}"
        LOGGER.info(text)
        if self.bar is None:
            # Flushed: a pipe or a log file would keep the lines of a long fit to its
            # end.
            print(text, flush=True)

    def _compiling(self):
        if not self.compiles:
            self.compiles = True
            text = f"compiles kernels, once for this kind of data ({cache_state()})"
            self.say(text)
            if self.bar is not None:
                self.bar.console.print(f"{self.name} {text}", markup=False)

    def _line(self, number, epochs, epoch):
        T = epoch.temperature
        tempered = "" if T == 1.0 else f", {T=:.3g}"
        self.say(
            f"start {number + 1}/{self.n_init}, epoch {epochs}, "
            f"{epoch.passes:.4g} passes, {epoch.seconds:.3g} s: "
            f"objective {epoch.objective:.6f}{tempered}"
        )


class Report:
    """Reports the epochs of one start.

    Parameters
    ----------
    progress : Progress
    number : int
        Of the start.
    attributes : callable
        Makes the fitted attributes of a point and its objective, for callbacks and
        checkpoints.
    stop : callable, default=None
        Called with each `Epoch`; a true answer ends the start.
    most : int, default=None
        Epochs that there may be, None for `max_iter`.
    """

    def __init__(self, progress, number, attributes, stop=None, most=None):
        self.progress, self.number, self.attributes = progress, number, attributes
        self.stop = stop
        self.epochs, self.unsaid = 0, None
        self.context = self.task = None
        if progress.context is not None:
            self.context = progress.context.subcontext(
                "start", max_subtasks=most or progress.max_iter
            )
            self.context.call_on_fit_task_begin(**progress.arguments)
        if progress.bar is not None:
            self.task = progress.bar.add_task(
                f"{progress.name} start {number + 1}/{progress.n_init}",
                total=progress.max_iter,
                note="",
            )

    def __call__(self, epoch, point):
        """Report an epoch; return whether the start is to end."""
        asked = self._say(epoch, point)
        return asked or (self.stop is not None and self.stop(epoch))

    def _say(self, epoch, point):
        progress = self.progress
        self.epochs += 1
        progress.n_epochs += 1
        self.unsaid = None
        if progress.bar is not None:
            note = f"objective {epoch.objective:.6g}"
            progress.bar.update(self.task, completed=self.epochs, note=note)
        elif progress.verbose:
            if self.epochs == 1 or self.epochs % progress.interval == 0:
                progress._line(self.number, self.epochs, epoch)
            else:
                self.unsaid = epoch
        if self.context is None:
            return False
        context = self.context.subcontext("epoch")
        context.call_on_fit_task_begin(**progress.arguments)
        return context.call_on_fit_task_end(
            **progress.arguments,
            reconstruction_attributes=lambda: {
                **self.attributes(point, epoch.objective),
                **progress.record(),
            },
        )

    def end(self):
        """End the start; return whether a callback wants no more of them."""
        if self.unsaid is not None:
            self.progress._line(self.number, self.epochs, self.unsaid)
        # A method of what has this report: a cycle would keep all that the fit needed.
        self.attributes = None
        context, arguments = self.context, self.progress.arguments
        return context is not None and context.call_on_fit_task_end(**arguments)

    def state(self):
        """Return what a checkpoint keeps."""
        return {"epochs": self.epochs}

    def resume(self, state):
        """Go on from there."""
        self.epochs = state["epochs"]


def _is_terminal(stream):
    """Whether a stream is one; notebooks have streams of their own, or none."""
    return hasattr(stream, "isatty") and stream.isatty()


def _rich_bar():
    try:
        from rich import progress
    except ImportError:
        return None
    return progress.Progress(
        *progress.Progress.get_default_columns(),
        progress.TextColumn("{task.fields[note]}", justify="right"),
    )


def warn_not_converged(estimator, result, unit="row", advice=""):
    """Warn if a fit ended before its optimum, with what is left and what may help.

    A fit that was not to be tested (``tol=0``), not to move (``max_iter=0``), or that
    a callback has ended does what was asked for.

    Parameters
    ----------
    estimator : estimator
        With `tol`.
    result : Result
    unit : str
        That `tol` and gains are measured in nats a; empty for nats in all.
    advice : str
        What makes the problem easier.
    """
    asked_for = result.n_iter == 0 or not estimator.tol > 0.0
    if result.reason not in ("max_iter", "stalled") or asked_for:
        return
    nats = f"nats a {unit}" if unit else "nats"
    left = f"an unknown number of {nats} is"
    if not math.isnan(result.left):
        left = f"about {result.left:.3g} {nats} are"
        if math.isinf(result.left):
            left = f"more {nats} than the last epochs tell are"
    start = f"{type(estimator).__name__} did not converge in {result.n_iter} epochs"
    advice = f"; {advice}" if advice else ""
    if result.reason == "stalled":
        message, kind = (
            f"{start}: no step gained any more, though {left} left to gain and tol is "
            f"{estimator.tol:g}. Raise tol if that is close enough{advice}.",
            StalledWarning,
        )
    else:
        gap = (
            f"{left} left to gain, and tol is {estimator.tol:g}. Raise max_iter, or tol"
        )
        gap += f" if that is close enough{advice}."
        if result.left < estimator.tol:
            gap = (
                f"{left} left to gain as the last epoch tells. That is less than "
                f"tol={estimator.tol:g}, but some epochs in turn have to tell so: "
                "raise max_iter to make sure."
            )
        message, kind = f"{start}: {gap}", MaxIterWarning
    warnings.warn(message, kind, stacklevel=outside())


def warn_annealing_too_long(estimator):
    """Warn if a schedule of temperatures does not fit into the fit."""
    length = estimator.annealing_iter
    tempered = estimator.tempering not in (None, "auto")
    if tempered and length != "auto" and length > estimator.max_iter:
        warnings.warn(
            f"annealing_iter={length} epochs of annealing do not fit "
            f"into max_iter={estimator.max_iter}: raise max_iter.",
            UserWarning,
            stacklevel=outside(),
        )


# Share of a column's variance that the constant may be. A larger one than the default
# was chosen, to regularize: of that only so much is said that it is beyond all columns.
SHARE, DEFAULT = 0.01, 1e-6
# A part has collapsed where all its variances are within this factor of the constant,
# those of the columns are beyond that one, and it holds at most such a share of the
# rows, or so many, or one a column: more are a value that comes often, which is for the
# part to find.
NARROW, WIDE, FEW_SHARE, FEW = 2.0, 1e4, 0.01, 5.0
# Columns that are named, and deviations in units of the mean that are rounding.
NAMED, ROUNDING = 5, 1e-12


def name_columns(which, values, names):
    """Return names of columns, with what makes them worth it, the least first.

    Parameters
    ----------
    which : ndarray of bool of shape (n_features,)
    values : ndarray of shape (n_features,)
    names : sequence of shape (n_features,)

    Returns
    -------
    text : str
    """
    found = np.flatnonzero(which)
    found = found[np.argsort(values[found], kind="stable")]
    text = ", ".join(f"{names[j]} ({values[j]:.3g})" for j in found[:NAMED])
    return f"{text} and {found.size - NAMED} more" if found.size > NAMED else text


def warn_scale(
    estimator,
    reg_covar,
    variances,
    means,
    names,
    kind,
    parts,
    rows,
    narrow=False,
    *,
    often=False,
):
    """Warn if `reg_covar` does not fit the data, or parts have come down to it.

    Parameters
    ----------
    estimator : estimator
    reg_covar : float or ndarray of shape (n_features,)
        What is added to the variances.
    variances, means : ndarray of shape (n_features,)
        Of the columns of the data.
    names : list of str
        Of these columns.
    kind : str
        "component" or "state".
    parts : ndarray of shape (n_parts, n_features)
        Variances of each part.
    rows : ndarray of shape (n_parts,)
        How many rows each part has.
    narrow : ndarray of bool of shape (n_parts,), default=False
        Which have collapsed along some direction, as the model knows.
    often : bool, default=False
        Whether to warn of parts of many rows, or in some columns, too, as where
        `reg_covar` is no parameter.

    Returns
    -------
    warned : bool
        Whether there was something to warn of.
    """
    varies = variances > np.square(ROUNDING * np.abs(means))
    rivals = varies & (reg_covar > SHARE * variances)
    if np.min(reg_covar) > DEFAULT and (reg_covar <= variances)[varies].any():
        rivals[:] = False
    if rivals.any():
        which = name_columns(rivals, variances, names)
        warnings.warn(
            f"reg_covar={reg_covar:g} of {type(estimator).__name__} is more than "
            f"{SHARE:.0%} of the variance of some columns: {which}. It is added "
            "to their variances, so narrow "
            f"{kind}s cannot be told apart. Scale the data "
            "(sklearn.preprocessing.StandardScaler), or give a smaller reg_covar.",
            DataScaleWarning,
            stacklevel=outside(),
        )
        return True
    about = reg_covar, variances, means, names, kind, parts, rows, narrow
    collapsed = find_collapsed(*about, often=often)
    if not collapsed.any():
        return False
    which = ", ".join(f"{k} ({rows[k]:.3g} rows)" for k in np.flatnonzero(collapsed))
    number = "" if np.ndim(reg_covar) else f"={reg_covar:g}"
    warnings.warn(
        f"Some {kind}s of {type(estimator).__name__} have collapsed onto single points "
        f"or values, with no variance but reg_covar{number}, or the least of "
        f"their family, along some direction at least: {which}. What they add to the "
        f"likelihood is that number's. Take fewer {kind}s, more starts (n_init) or a "
        "larger reg_covar, or look for rows that are repeated or rounded.",
        CollapsedComponentWarning,
        stacklevel=outside(),
    )
    return True


def find_collapsed(
    reg_covar,
    variances,
    means,
    names,
    kind,
    parts,
    rows,
    narrow=False,
    *,
    often=False,
):
    """Return which parts have few rows and no variance but `reg_covar`, bool.

    Or, `often`, any rows and no variance but that in some column.
    Or are `narrow`. Arguments are those of `warn_scale`, of which it needs no names.
    """
    varies = variances > np.square(ROUNDING * np.abs(means))
    wide = varies & (variances > WIDE * reg_covar)
    if not np.any(reg_covar) or not wide.any():
        return np.zeros(len(parts), bool) | narrow
    few = often | (rows <= max(FEW, len(variances), FEW_SHARE * rows.sum()))
    # Of a point far from all others the variance is rounding, of the square of how far.
    rounding = 4.0 * np.finfo(float).eps * rows.sum() * variances[wide]
    added = np.broadcast_to(reg_covar, variances.shape)[wide]
    least = parts[:, wide] <= NARROW * added + rounding
    points = least.any(axis=1) if often else least.all(axis=1)
    return few & (rows > 0.5) & points | narrow


def outside():
    """Level of the caller's first frame that is neither ours nor scikit-learn's.

    Nor one of the library that enters our contexts.
    """
    frame, level = sys._getframe(1), 1
    ours = ("skvrem", "sklearn", "contextlib")
    while frame.f_back is not None and _package(frame) in ours:
        frame, level = frame.f_back, level + 1
    return level


def _package(frame):
    return frame.f_globals.get("__name__", "").partition(".")[0]
