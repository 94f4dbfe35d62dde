"""Progress of a fit: scikit-learn's callbacks, a bar, or lines of text."""

import sys

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # scikit-learn before 1.9 has none

    class CallbackSupportMixin:
        """Stands in where scikit-learn has no callbacks."""

    def with_callbacks(method):
        """Return the method unchanged."""
        return method


__all__ = ["CallbackSupportMixin", "Progress", "with_callbacks"]


class Progress:
    """Reports the epochs of a fit, as a context around it.

    The estimator's `verbose` says how. 0: not. 1: a progress bar where rich is
    installed and the output is a terminal, else a line for the first epoch, every
    `verbose_interval`-th and the last. 2: a line every epoch. Its callbacks are called
    with one task an epoch, below one task a start.

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
        self.record = estimator._record_of_fit
        if hasattr(estimator, "_init_callback_context"):
            self.context = estimator._init_callback_context(max_subtasks=n_init)

    def __enter__(self):
        if self.verbose == 1 and _is_terminal(sys.stdout):
            self.bar = _rich_bar()
        if self.bar is not None:
            self.bar.start()
        if self.context is not None:
            self.context.call_on_fit_task_begin(**self.arguments)
        return self

    def __exit__(self, kind, *_):
        if self.bar is not None:
            self.bar.stop()
        if self.context is not None and kind is None:
            self.context.call_on_fit_task_end(**self.arguments)

    def start(self, number, attributes):
        """Begin a start; return what `run` calls with every epoch.

        Its ``end()`` ends the start, and is true where a callback wants no more.

        Parameters
        ----------
        number : int
        attributes : callable
            Makes the fitted attributes of a point, for callbacks that evaluate.
        """
        start = None
        if self.context is not None:
            start = self.context.subcontext("start", max_subtasks=self.max_iter)
            start.call_on_fit_task_begin(**self.arguments)
        if self.bar is not None:
            task = self.bar.add_task(
                f"{self.name} start {number + 1}/{self.n_init}",
                total=self.max_iter,
                note="",
            )

        def report(epoch, point):
            report.epochs += 1
            report.unsaid = None
            if self.bar is not None:
                note = f"objective {epoch.objective:.6g}"
                self.bar.update(task, completed=report.epochs, note=note)
            elif self.verbose:
                if report.epochs == 1 or report.epochs % self.interval == 0:
                    self._line(number, report.epochs, epoch)
                else:
                    report.unsaid = epoch
            if start is None:
                return False
            context = start.subcontext("epoch")
            context.call_on_fit_task_begin(**self.arguments)
            return context.call_on_fit_task_end(
                **self.arguments,
                reconstruction_attributes=lambda: {
                    **attributes(point),
                    **self.record(),
                },
            )

        def end():
            if report.unsaid is not None:
                self._line(number, report.epochs, report.unsaid)
            return start is not None and start.call_on_fit_task_end(**self.arguments)

        report.epochs, report.unsaid = 0, None
        report.end = end
        return report

    def _line(self, number, epochs, epoch):
        hot = "" if epoch.temperature == 1.0 else f", T={epoch.temperature:.3g}"
        # Flushed: a pipe or a log file would keep the lines of a long fit to its end.
        print(
            f"[{self.name}] start {number + 1}/{self.n_init}, epoch {epochs}, "
            f"{epoch.passes:.4g} passes, {epoch.seconds:.3g} s: "
            f"objective {epoch.objective:.6f}{hot}",
            flush=True,
        )


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
