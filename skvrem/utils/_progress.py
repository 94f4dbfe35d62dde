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

    Parameters
    ----------
    estimator : estimator
        Its callbacks are called, one task an epoch below one task a start.
    n_init, max_iter : int
    verbose : int
        0: silent. 1: a progress bar where rich is installed and the output is a
        terminal, else a line every `interval` epochs. 2: a line every epoch.
    interval : int
    """

    def __init__(self, estimator, n_init, max_iter, verbose=0, interval=10):
        self.estimator = estimator
        self.name = type(estimator).__name__
        self.n_init = n_init
        self.max_iter = max_iter
        self.interval = interval if verbose == 1 else 1
        self.verbose = verbose
        self.context = self.bar = None
        if hasattr(estimator, "_init_callback_context"):
            self.context = estimator._init_callback_context(max_subtasks=n_init)

    def __enter__(self):
        if self.verbose == 1 and sys.stdout.isatty():
            self.bar = _rich_bar()
        if self.bar is not None:
            self.bar.start()
        if self.context is not None:
            self.context.call_on_fit_task_begin(estimator=self.estimator)
        return self

    def __exit__(self, kind, *_):
        if self.bar is not None:
            self.bar.stop()
        if self.context is not None and kind is None:
            self.context.call_on_fit_task_end(estimator=self.estimator)

    def start(self, number, attributes):
        """Begin a start; return what `run` calls with every epoch.

        Parameters
        ----------
        number : int
        attributes : callable
            Makes the fitted attributes of a point, for callbacks that evaluate.
        """
        start = None
        if self.context is not None:
            start = self.context.subcontext("start", max_subtasks=self.max_iter)
            start.call_on_fit_task_begin(estimator=self.estimator)
        if self.bar is not None:
            task = self.bar.add_task(
                f"{self.name} start {number + 1}/{self.n_init}",
                total=self.max_iter,
                note="",
            )

        def report(epoch, point):
            report.epochs += 1
            if self.bar is not None:
                note = f"objective {epoch.objective:.6g}"
                self.bar.update(task, completed=report.epochs, note=note)
            elif self.verbose and report.epochs % self.interval == 0:
                self._line(number, report.epochs, epoch)
            if start is None:
                return False
            context = start.subcontext("epoch")
            context.call_on_fit_task_begin(estimator=self.estimator)
            return context.call_on_fit_task_end(
                estimator=self.estimator,
                reconstruction_attributes=lambda: attributes(point),
            )

        def end():
            if start is not None:
                start.call_on_fit_task_end(estimator=self.estimator)

        report.epochs = 0
        report.end = end
        return report

    def _line(self, number, epochs, epoch):
        hot = "" if epoch.temperature == 1.0 else f", T={epoch.temperature:.3g}"
        sys.stdout.write(
            f"[{self.name}] start {number + 1}/{self.n_init}, epoch {epochs}, "
            f"{epoch.passes:.4g} passes, {epoch.seconds:.3g} s: "
            f"objective {epoch.objective:.6f}{hot}\n"
        )


def _rich_bar():
    try:
        from rich import progress
    except ImportError:
        return None
    return progress.Progress(
        *progress.Progress.get_default_columns(),
        progress.TextColumn("{task.fields[note]}", justify="right"),
    )
