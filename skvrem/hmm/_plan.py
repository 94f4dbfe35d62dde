"""How a hidden Markov model is fitted: which solver, on which blocks, after what."""

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from skvrem import solvers
from skvrem.hmm._model_sweeps import BlockSweeps, RowSweeps
from skvrem.hmm._sequences import Blocks

__all__ = ["check_solver", "plan_fit"]

# Rows of a block of "incremental", how many of them there may be, and sweeps between
# two passes that certify.
BLOCK_ROWS, FEWEST, MOST, SWEEPS = 4096, 8, 100, 2
# Stochastic M steps of a sweep over blocks, and fewest rows of one: a tile.
STEPS, TILE_ROWS = 1000, 128
# Pairs that quasi-Newton steps remember: more than most models have parameters.
PAIRS = 100


class Fit(NamedTuple):
    """How a fit is to be made.

    Attributes
    ----------
    name : str
    solver : Solver
    data : Data
    lead : Solver
        What makes the first epochs of every start.
    leads : bool
        Also where there is only one start.
    step_size : float
    """

    name: str
    solver: Any
    data: Any
    lead: Any
    leads: bool = False
    step_size: float = 1.0


def check_solver(estimator):
    """Check what solver, acceleration and tempering are together.

    Raises
    ------
    ValueError
        If they do not go together.
    """
    solver, acceleration = estimator.solver, estimator.acceleration
    if acceleration is not None and solver not in ("auto", "batch"):
        raise ValueError(
            f"acceleration={acceleration!r} is of batch passes, not of "
            f"solver={solver!r}: give one of them."
        )
    if solver in ("svrg", "saga") and estimator.tempering is not None:
        raise ValueError(
            f"solver={solver!r} never lets the likelihood fall, and "
            f"tempering={estimator.tempering!r} does: give one of them."
        )
    if acceleration == "lbfgs" and estimator.tempering is not None:
        raise ValueError(
            "acceleration='lbfgs' compares values of one objective, and "
            f"tempering={estimator.tempering!r} changes it: give one of them."
        )


def _make_sweeps(model, data, rng, *, batch_size, **options):
    """Return sweeps over rows where a kernel can make them, else over blocks."""
    rows = len(data.rows.X)
    can = RowSweeps.can(model, data.rows) and not data.weight.size
    if batch_size == 1 and not can:
        raise ValueError(
            "batch_size=1 needs Gaussian emissions with covariance_type='diag' and "
            "nothing fixed, masked, missing, weighted, labelled or with a prior: leave "
            "batch_size='auto', which visits blocks of rows otherwise."
        )
    if can and batch_size in (1, "auto"):
        return RowSweeps(model, data, **options)
    size = max(TILE_ROWS, rows // STEPS) if batch_size == "auto" else batch_size
    partition = Blocks(data).blocks(max(1, round(rows / size)), rng)
    return BlockSweeps(model, data, partition, **options)


def plan_fit(estimator, data):
    """Choose what the parameters of an estimator leave open."""
    solver, acceleration = estimator.solver, estimator.acceleration
    if solver == "auto" and acceleration is None:
        acceleration = "squarem"
    if acceleration == "lbfgs":
        # Far from an optimum its metric is worth little.
        made = solvers.QuasiNewton(estimator.tol, PAIRS, promises=False)
        return Fit("batch+lbfgs", made, data, solvers.Batch(), True)
    if acceleration == "squarem":
        return Fit("batch+squarem", solvers.Squarem(), data, solvers.Squarem())
    if solver == "incremental":
        rows, size = len(data.rows.X), estimator.batch_size
        n_blocks = int(np.clip(rows // BLOCK_ROWS, FEWEST, MOST))
        if size != "auto":
            n_blocks = max(1, round(rows / size))
        made = solvers.Incremental(n_blocks, SWEEPS)
        return Fit(solver, made, Blocks(data), solvers.Batch())
    if solver in ("svrg", "saga"):
        make = partial(
            _make_sweeps,
            batch_size=estimator.batch_size,
            saga=solver == "saga",
            partial=estimator.partial_e_step,
            inner_passes=estimator.inner_passes,
        )
        size = estimator.step_size
        # An epoch can gain little by chance.
        made = solvers.Sweeps(solver, patience=2, noisy=False, make=make)
        size = 1.0 if size == "auto" else float(size)
        return Fit(solver, made, data, solvers.Batch(), step_size=size)
    return Fit("batch", solvers.Batch(), data, solvers.Batch())
