"""What the parameters of a hidden Markov model leave open: solver, blocks, steps."""

import math
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from skvrem import schedules, solvers
from skvrem.hmm._start import (
    MANY_STATES,
    can_move,
    given_start,
    is_like,
    pick_runs,
)
from skvrem.hmm.em_vrso._model import BlockSweeps, RowSweeps, known_rows
from skvrem.hmm.em_vrso._model_rows import row_model
from skvrem.hmm.forward_backward._source import RowBlockSource

# The race of "auto": starts, and rungs of (epochs, how many go on). Who ends highest is
# known late, so that two go to their ends; steps of minibatches, which cost more, and
# moves, which find more, are for one. L-BFGS begins where the metric is worth
# something: after some epochs.
STARTS, RUNGS, ONE_LEFT, BEFORE = 12, ((3, 4), (4, 2)), ((3, 4), (4, 1)), 6
# A pass costs about its rows times states times what a row meets there: features,
# transitions, and as much as some more whatever they are; and several times that where
# rows are looked at again at every step.
FIXED, FOLLOWED = 6, 8
# Data whose passes cost up to so much have many optima for next to no seconds. Of short
# ones half of many starts go on after epochs that tell most of them apart, and half of
# these: what ends highest, as by a state of one value that comes again, is often among
# the last for ten epochs. Of medium ones a quarter and an eighth do, and of more rows
# fewer start, as a pass costs more, until they are as few as of long data.
SHORT, SHORT_STARTS, SHORT_HALVED = 200_000, 32, (15, 40)
MEDIUM, MEDIUM_EPOCHS = 2_000_000, 5
# Of families whose rows are looked at again, states shrink to a few rows so slowly that
# they are ahead for longer: fewer starts make as many epochs as short data.
SLOW_STARTS = 16
# Fits of many states rise so slowly that a few epochs do not tell them apart. Epochs
# after which half of the starts go on.
MANY_STARTS, HALVED = 22, (10, 20, 40)
# Rows times states of codes, whose densities are in a table, that are short; which of
# their starts ends highest is known as late, however many rows there are.
SHORT_CODES = 60_000
# Of long data the first rung sees one row of so many, in stretches, but enough to tell
# starts apart, and no more than fit in little memory beside a map.
SAMPLED, FEWEST_SAMPLED, MOST_SAMPLED = 4, 25_000, 200_000
ROWS_A_PARAMETER, STRETCHES = 1000, 64
# Rows of a block of "incremental", how many of them there may be, and sweeps between
# two passes that certify.
BLOCK_ROWS, FEWEST, MOST, SWEEPS = 4096, 8, 100, 2
# Stochastic M steps of a sweep over blocks, and fewest rows of one: a tile.
STEPS, TILE_ROWS = 1000, 128
# Pairs that quasi-Newton steps remember: more than most models have parameters.
PAIRS = 100
# Of stochastic EM: what a step leaves of the statistics before is never nothing.
LONGEST_STEP = 0.9


class Led(NamedTuple):
    """What a race of starts knows of races on fewer rows, as those of a stream.

    Attributes
    ----------
    estimator : VRHMM or None
        Where they have led to, from where a start of the race begins.
    share : float
        Of the starts of a fit, how many there are beside.
    """

    estimator: Any = None
    share: float = 1.0


def check_solver(estimator):
    """Check what solver, acceleration and tempering are together.

    Raises
    ------
    ValueError
        If they do not go together.
    """
    solver, acceleration = estimator.solver, estimator.acceleration
    given = acceleration not in ("auto", None)
    if given and solver not in ("auto", "batch"):
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


def plan_fit(estimator, model, data, warm, led=None):
    """Choose what the parameters of an estimator leave open.

    Parameters
    ----------
    estimator : VRHMM
    model : HMMModel
    data : SequenceSource
    warm : bool
        There is a solution to start from.
    led : Led, default=None
        Of a race.

    Returns
    -------
    plan : Plan
    data : SequenceSource or RowBlockSource
        What the solver visits.
    n_init : int
        Starts.
    moving : bool
        Whether states change their places where the best start has ended.
    lead : VRHMM or None
        Where the last start begins.
    """
    solver, acceleration = estimator.solver, estimator.acceleration
    if acceleration == "auto":
        acceleration = "squarem" if solver == "auto" else None
    if solver == "auto":
        solver = "batch"
    name = solver if acceleration is None else f"{solver}+{acceleration}"
    first, rungs, moving, lead = solvers.Batch, (), False, None
    rows, batch_size = int(data.rows.bounds[-1]), estimator.batch_size
    n_init = 1 if warm else estimator.n_init
    racing = n_init == "auto"
    if racing:
        one = estimator.n_components == 1 or estimator.tempering is not None
        racing = not one and given_start(model) is None  # or all would be the same
        n_init = STARTS if racing else 1
    if racing:
        moving = solver == "batch" and acceleration != "lbfgs"
        moving = moving and can_move(estimator, model, data)
        rungs = RUNGS if solver == "batch" and not moving else ONE_LEFT
        many = estimator.n_components >= MANY_STATES
        # Which phases belong to which kind is known as late.
        many |= model.transitions.phases is not None and rows <= FEWEST_SAMPLED
        if solver == "batch" and model.emission.unordered:
            shorter = min(1.0, SHORT_CODES / (rows * estimator.n_components))
            n_init = max(
                int(SHORT_STARTS * shorter**2), MANY_STARTS if many else STARTS
            )
            rungs = _halved(n_init, SHORT_HALVED)
        elif solver == "batch":
            cost = _cost_of_pass(model, rows)
            affordable = min(SHORT_STARTS, int(SHORT_STARTS * MEDIUM / cost))
            if cost <= SHORT:
                n_init, rungs = SHORT_STARTS, _halved(SHORT_STARTS, SHORT_HALVED)
            elif many:
                n_init, rungs = MANY_STARTS, _halved(MANY_STARTS, HALVED)
            elif affordable > STARTS and model.emission.follows:
                n_init, rungs = SLOW_STARTS, _halved(SLOW_STARTS, SHORT_HALVED)
            elif affordable > STARTS:
                left = affordable // 4, max(2, affordable // 8)
                n_init, rungs = affordable, tuple((MEDIUM_EPOCHS, n) for n in left)
        if led is not None:
            lead = led.estimator
            lead = None if lead is None or not is_like(lead, model) else lead
            n_init = math.ceil(led.share * n_init) + (lead is not None)
            rungs = tuple((n, math.ceil(led.share * left)) for n, left in rungs)
    step_size = schedules.Constant(1.0)
    n_blocks = int(np.clip(rows // BLOCK_ROWS, FEWEST, MOST))
    if batch_size != "auto":
        n_blocks = max(1, round(rows / batch_size))
    if acceleration == "lbfgs":
        made = solvers.QuasiNewton(estimator.tol, PAIRS, trusted=False)
        rungs = rungs or ((BEFORE, n_init),)
    elif acceleration == "squarem":
        made, first = solvers.Squarem(), solvers.Squarem
    elif solver == "incremental":
        made = solvers.Incremental(n_blocks, SWEEPS)
        data = data if data.remote else RowBlockSource(data)
    elif solver in ("svrg", "saga"):
        make = partial(
            _make_sweeps,
            batch_size=batch_size,
            saga=solver == "saga",
            partial=estimator.partial_e_step,
            inner_iter=estimator.inner_iter,
        )
        size = estimator.step_size
        # An epoch can gain little by chance.
        made = solvers.Sweeps(solver, patience=2, noisy=False, make=make)
        step_size = schedules.Constant(1.0 if size == "auto" else float(size))
    elif solver in solvers.BY_NAME:
        # On blocks of whole sequences, which do not lean on each other.
        size = rows / min(n_blocks, data.n_units)
        planned = solvers.plan_em(
            estimator, rows, model.n_parameters(), batch_size=size
        )
        made, step_size = planned.solver, planned.step_size
        if solver == "stochastic":
            # A step of 1 would make codes impossible that its sequences have not.
            step_size = replace(step_size, most=LONGEST_STEP)
    else:
        made = solvers.Batch()
    sample = None
    if racing and solver == "batch" and estimator.max_iter > rungs[0][0]:
        sample = _sample(model, data, rows)
    plan = solvers.Plan(name, made, step_size, lead=first, rungs=rungs, sample=sample)
    return plan, data, n_init, moving, lead


def _cost_of_pass(model, rows):
    """Return about what a pass costs, in features of rows in states."""
    emission, n_states = model.emission, int(model.emission.n_states_)
    features = emission.n_parts * emission.n_row_features()
    cost = rows * n_states * (features + n_states + FIXED)
    return cost * (FOLLOWED if emission.follows else 1)


def _halved(n_init, epochs):
    """Return rungs at which half of the starts go on."""
    return tuple((n, n_init >> i) for i, n in enumerate(epochs, 1))


def _sample(model, data, rows):
    """Return the part of long data that starts are compared on, None where it is all.

    Its sequences are stretches, which states must be able to begin.
    """
    parameters = ROWS_A_PARAMETER * model.n_parameters()
    size = max(FEWEST_SAMPLED, min(rows // SAMPLED, MOST_SAMPLED), parameters)
    if 2 * size > rows or data.inputs is not None:
        return None
    if model.transitions.ordered or not model.initial.is_free():
        return None
    bounds, rng = data.rows.bounds, np.random.default_rng(0)
    return data.stretches(pick_runs(bounds, rng, size, max(1, size // STRETCHES)))


def _make_sweeps(model, data, rng, *, batch_size, **options):
    """Return sweeps over rows where a kernel can make them, else over blocks."""
    if data.remote:
        if batch_size not in (1, "auto"):
            raise ValueError(
                f"batch_size={batch_size} cuts rows in memory into blocks that hand on "
                "messages: of a dask array leave it at 'auto', which visits rows."
            )
        return RowSweeps(model, data, _of_any_block(model, data), **options)
    rows = len(data.rows.X)
    of_rows = row_model(model, data) if batch_size in (1, "auto") else None
    if of_rows is not None:
        return RowSweeps(model, data, of_rows, **options)
    if batch_size == 1:
        raise ValueError(
            "batch_size=1 needs emissions that kernels of single rows know (those that "
            "strings name, MixtureGaussian and products of these), rows of full "
            "covariances that are not missing in part, no priors, and first states "
            "that do not follow from the transitions: leave batch_size='auto', which "
            "visits blocks of rows otherwise."
        )
    size = max(TILE_ROWS, rows // STEPS) if batch_size == "auto" else batch_size
    partition = RowBlockSource(data).blocks(max(1, round(rows / size)), rng)
    return BlockSweeps(model, data, partition, **options)


def _of_any_block(model, data):
    """Return what kernels take of a model, without rows: those of a block say it."""
    partition = data.chunks()
    visit = next(iter(partition.shuffled(np.random.default_rng(0))))
    return partition.visit(partial(_without_rows, model), visit)


def _without_rows(model, batch, entry):
    return known_rows(model, batch, 1.0)._replace(rows=(), chain=(), states=())
