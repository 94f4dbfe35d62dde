"""Runs that go on from each other: one fit of models that hold their data."""

import time

from skvrem.schedules import Constant
from skvrem.solvers._history import joined
from skvrem.solvers._run import run


class Whole:
    """All data at once, for models that hold them: their sums ask for no batch."""

    total_weight = 1.0

    def chunks(self):
        """All data."""
        return self

    def sum(self, function):
        """Return what the model says of all data."""
        return function(self)


class Runs:
    """Runs of solvers that go on from each other, and are one fit.

    As of a model that is made anew where the fit has come to: with another posterior,
    or about another point.

    Parameters
    ----------
    max_iter : int
        Epochs of all runs.
    began : float
        When, by ``time.perf_counter``, the fit began.
    **options
        As `run` takes them.
    """

    def __init__(self, max_iter, began, **options):
        self.left, self.began, self.options = max_iter, began, options
        self.results = []

    def go_on(self, model, solver, point, *, step_size=1.0, passes=0.0, **options):
        """Run a solver from a point; return its `Result`.

        Parameters
        ----------
        model, solver, point : see ``_protocols.py``
        step_size : float
        passes : float
            What finding the point has cost.
        **options
            Beside those of all runs.
        """
        if self.results:
            passes += self.results[-1].history[-1].passes
        result = run(
            model,
            solver,
            Whole(),
            point,
            step_size=Constant(step_size),
            max_iter=self.left,
            passes=passes,
            seconds=time.perf_counter() - self.began,
            **self.options,
            **options,
        )
        self.left -= result.n_iter
        self.results.append(result)
        return result

    @property
    def ended(self):
        """Whether no run may follow."""
        return self.results[-1].stopped or self.left <= 0

    def result(self):
        """Return the `Result` of all runs."""
        return joined(self.results)
