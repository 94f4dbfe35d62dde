"""Which solver fits a network with dropout, and when held-out rows end a fit."""

import numpy as np

from skvrem import solvers
from skvrem.vi.gaussian._minibatch import steps_of
from skvrem.vi.gaussian._plan import (
    PosteriorPlan,
    asks_for_minibatches,
    check_combination,
)

# Epochs without a gain on held-out rows that end a fit.
PATIENCE = 10
# Rows a minibatch.
BATCH_ROWS = 200
# Rows up to which full passes are no slower, and generalise better than what 200 epochs
# of minibatches have come to: ``benchmarks/tables/unseen.py``.
FULL_ROWS = 20_000
# Of Adam in streams, which make fewer steps than a fit.
STREAM_STEP = 3e-3


def hidden_sizes(estimator):
    """Return the units of the hidden layers as a tuple."""
    sizes = estimator.hidden_layer_sizes
    return tuple(sizes) if np.iterable(sizes) else (sizes,)


def plan_dropout(estimator, n_rows, n_classes, stream=False, remote=False):
    """Return the `PosteriorPlan` of an estimator whose parameters have been checked.

    remote: rows lie elsewhere, so that "auto" makes full passes.

    Raises
    ------
    ValueError
        For parameters that do not go together.
    """
    steps, solver = steps_of(estimator), estimator.solver
    hidden = hidden_sizes(estimator)
    expectation, optimizer = steps.expectation, steps.optimizer
    if stream:  # one batch after the other, so that full passes have no place
        solver = "stochastic" if solver in ("auto", "batch") else solver
        optimizer = "adam" if optimizer in ("auto", "lbfgs") else optimizer
    if solver == "auto":
        full = remote or not hidden or n_rows <= FULL_ROWS
        full = (full or optimizer == "lbfgs") and not asks_for_minibatches(steps)
        solver = "batch" if full else "stochastic"
    if expectation == "auto":
        noiseless = solver == "batch" or n_classes == 2
        expectation = "quadrature" if noiseless else "mc"
    if optimizer == "auto":
        optimizer = "lbfgs" if solver == "batch" else "adam"
    control = steps.control_variate
    check_combination(solver, expectation, optimizer, control, ("taylor",))
    step_size, batch_size = estimator.step_size, estimator.batch_size
    if step_size == "auto":
        adam = (STREAM_STEP if stream else 1e-3) if hidden else 1e-2
        step_size = {"lbfgs": 1.0, "adam": adam, "sgd": 0.1}[optimizer]
    if batch_size == "auto":
        batch_size = BATCH_ROWS
    batch_size = n_rows if solver == "batch" else min(batch_size, n_rows)
    made = full_passes(estimator) if solver == "batch" else solvers.Sweeps(solver)
    plan = PosteriorPlan(solver, made, expectation=expectation, optimizer=optimizer)
    return plan.stepping(step_size, batch_size)


def full_passes(estimator, times=1.0):
    """Return the solver of full passes, to so many times the tolerance."""
    trusted = not hidden_sizes(estimator)  # the objective is concave
    return solvers.QuasiNewton(times * estimator.tol, trusted=trusted, name="batch")


class EarlyStopping:
    """Reports epochs, scores held-out rows, and ends a fit that they do not like.

    Parameters
    ----------
    estimator : GaussianDropoutClassifier
    network : Network
    held_out : tuple (X, numbers), or None
        Rows that are not fitted, and the numbers of their classes.
    report : callable
        What `run` would call without them.
    """

    def __init__(self, estimator, network, held_out, report):
        self.tol = estimator.tol
        self.network = network
        self.held_out = held_out
        self.report, self.end = report, report.end
        self.attributes = report.attributes
        self.scores, self.without_gain = [], 0
        self.best, self.highest = None, -np.inf
        #: Whether held-out rows have ended the fit.
        self.ended = False

    def __call__(self, epoch, point):
        """Return whether the fit is to end."""
        stopped = self.report(epoch, point)
        if self.held_out is None:
            return stopped
        X, numbers = self.held_out
        layers = self.network.layers(point.parameters.vector)
        _, a = self.network.forward(layers, X)
        found = a.argmax(axis=1) if a.shape[1] > 1 else a[:, 0] > 0.0
        score = float(np.mean(found == numbers))
        self.scores.append(score)
        self.without_gain += 1
        if score > self.highest + self.tol:
            self.without_gain = 0
        if score > self.highest:
            self.highest = score
            self.best = point.parameters, epoch.objective
        self.ended = self.without_gain >= PATIENCE
        return stopped or self.ended

    def state(self):
        """Return what a checkpoint keeps."""
        names = "scores", "without_gain", "best", "highest", "ended"
        own = {name: getattr(self, name) for name in names}
        return own | {"report": self.report.state()}

    def resume(self, state):
        """Go on from there."""
        own = dict(state)
        self.report.resume(own.pop("report"))
        vars(self).update(own, scores=list(own["scores"]))
