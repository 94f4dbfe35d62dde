"""How a hidden Markov model is fitted: by which solver, from where, batch by batch."""

from copy import copy
from dataclasses import replace
from functools import partial
from itertools import cycle

import numpy as np
from sklearn.utils import check_random_state

from skvrem import schedules, solvers
from skvrem.hmm._model import Statistics
from skvrem.hmm._opening import (
    fitted_parameters,
    naming_impossible,
    observed_names,
    open_rows,
)
from skvrem.hmm._start import starting_parameters
from skvrem.hmm.em_vrso._model import BlockSweeps, RowSweeps
from skvrem.hmm.emissions._base import published
from skvrem.hmm.forward_backward._model_layout import Layout
from skvrem.hmm.forward_backward._model_passes import Impossible, Passes
from skvrem.hmm.forward_backward._source import RowBlockSource
from skvrem.utils._algebra import scale
from skvrem.utils._averaging import AveragingPoint
from skvrem.utils._reports import (
    Progress,
    warn_not_converged,
    warn_scale,
    with_callbacks,
)

__all__ = ["check_solver", "fit", "stream_step"]

# Starts of "auto", and epochs of each before the best goes on.
STARTS, SHORT = 8, 6
# Rows of a block of "incremental", how many of them there may be, and sweeps between
# two passes that certify.
BLOCK_ROWS, FEWEST, MOST, SWEEPS = 4096, 8, 100, 2
# Stochastic M steps of a sweep over blocks, and fewest rows of one: a tile.
STEPS, TILE_ROWS = 1000, 128
# Pairs that quasi-Newton steps remember: more than most models have parameters.
PAIRS = 100
# Of stochastic EM: what a step leaves of the statistics before is never nothing.
LONGEST_STEP = 0.9


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


@with_callbacks
def fit(estimator, X, y, **given):
    """Fit an estimator whose parameters have been checked, and set its attributes."""
    sequences, data, model = open_rows(estimator, X, fresh=True, y=y, **given)
    dtype = sequences.X.dtype
    warm = estimator.warm_start and hasattr(estimator, "transmat_")
    n_init = 1 if warm else count_starts(estimator)
    plan, visited = plan_fit(estimator, model, data, n_init)
    describe = partial(_attributes, model, dtype=dtype)
    temperature = schedules.Constant(1.0)
    if estimator.tempering is not None:
        temperature = schedules.Linear(estimator.temperature, estimator.annealing_iter)
    methods = cycle((estimator.init_params, "random"))

    def start(rng):
        if warm:
            parameters = _warm_parameters(estimator, model, data)
        else:
            method = next(methods)
            parameters = starting_parameters(model, data.rows, method, rng, data.inputs)
        point = model.start(parameters)
        return solvers.Start(model, point, describe, temperature=temperature)

    with Progress(estimator, X, y, n_init) as progress, naming_impossible(sequences):
        random_state = check_random_state(estimator.random_state)
        best, attributes = solvers.run_starts(
            estimator, start, plan, visited, progress, random_state
        )
        if estimator.acceleration == "lbfgs":  # whose points have no statistics
            point = best.point._replace(statistics=model.mean(best.point, data))
            best = best._replace(point=point)
            attributes |= describe(point)
    warn_not_converged(estimator, best)
    if best.converged:
        _warn_widths(estimator, model, best.point)
    prior = model.log_prior(best.point.parameters) / model.total
    seen = estimator.n_samples_seen_ if warm else 0
    vars(estimator).pop("_carried", None)  # it is of a stream that is past
    vars(estimator).update(
        attributes,
        objective_=best.objective,
        log_likelihood_=best.objective - prior,
        n_parameters_=model.n_parameters(),
        n_samples_seen_=len(sequences.X) + seen,
    )


def _warn_widths(estimator, model, point):
    """Warn of variances that are those of reg_covar."""
    emission, features = point.parameters.emission, point.statistics.features
    names = observed_names(estimator)
    for *about, weight in model.emission.widths(emission, features, names):
        if warn_scale(estimator, *about, weight * model.total):
            break


def _warm_parameters(estimator, model, data):
    """Return the parameters of the last fit, under which no row is impossible."""
    parameters = fitted_parameters(estimator)
    same = parameters.emission.shape == model.emission.blank().shape
    same = same and len(parameters.startprob) == estimator.n_components
    if not same or type(estimator.transitions_) is not type(model.transitions):
        raise ValueError(
            "The earlier fit cannot be gone on from with these parameters and "
            "features: use a new estimator, or warm_start=False."
        )
    try:
        model.passes(parameters, data.whole()).forward()
    except Impossible:  # what the earlier rows did not hold
        return model.relax(parameters, data.rows)
    return parameters


def _attributes(model, point, dtype):
    """Return the fitted attributes of a point, and its statistics."""
    startprob, transmat, packed = point.parameters
    dtype, transitions = np.result_type(dtype, np.float32), copy(model.transitions)
    return {
        "startprob_": startprob.astype(dtype),
        "transmat_": transitions.publish(transmat, dtype),
        "transitions_": transitions,
        "emission_": published(model.emission, packed, dtype),
        "_sums": tuple(point.statistics[:3]),
    }


def stream_step(estimator, X, continues, **given):
    """Make a step of stochastic EM with a batch of a stream."""
    first = not hasattr(estimator, "transmat_")
    if continues and not hasattr(estimator, "_carried"):
        raise ValueError(
            "continues=True needs an earlier partial_fit, whose last row the "
            "first of these rows follows."
        )
    carried, before = estimator._carried if continues else (None, None)
    # The last row, whatever it weighs, is what the next batch may follow.
    sequences, data, model = open_rows(
        estimator, X, fresh=first, carried=before, drop=False, **given
    )
    seed = check_random_state(estimator.random_state).randint(2**31 - 1)
    if first:
        dtype, seen = sequences.X.dtype, 0
        how = estimator.init_params, np.random.default_rng(seed), data.inputs
        point = model.start(starting_parameters(model, data.rows, *how))
    else:
        dtype, seen = estimator.transmat_.dtype, estimator.n_samples_seen_
        statistics = Statistics(*estimator._sums, 0.0, 0.0)
        point = AveragingPoint(fitted_parameters(estimator), statistics)
    layout = Layout(data.rows, np.arange(data.n_units), sequences.weight, continues)

    def expect(parameters):
        at = point._replace(parameters=parameters)
        passes = Passes(layout, model.chain(parameters), carried=carried)
        return passes, model.collect(passes, at)

    try:
        passes, sums = expect(point.parameters)
    except Impossible:  # what the batches before did not hold
        with naming_impossible(sequences):
            passes, sums = expect(model.relax(point.parameters, data.rows))
    mean = scale(sums, 1.0 / data.total_weight)
    if continues and len(sequences.bounds) == 2:
        # Nothing has been seen of how sequences begin.
        mean = mean._replace(start=point.statistics.start)
    likelihood = float(mean.objective)
    model.total = data.total_weight + seen
    objective = model.objective(point, mean)
    count = seen / len(sequences.X)
    step = solvers.stream_step(estimator, model, point, data, count, mean=mean)
    inputs = sequences.inputs
    last_inputs = None if inputs is None else inputs[-1].copy()
    found = _attributes(model, step.point, dtype) | {
        "objective_": objective,
        "log_likelihood_": likelihood,
        "n_parameters_": model.n_parameters(),
        "n_samples_seen_": seen + len(sequences.X),
        "_carried": (passes.last(), last_inputs),
    }
    step.record(estimator, found)


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
    partition = RowBlockSource(data).blocks(max(1, round(rows / size)), rng)
    return BlockSweeps(model, data, partition, **options)


def _count_blocks(estimator, data):
    rows, size = len(data.rows.X), estimator.batch_size
    if size == "auto":
        return int(np.clip(rows // BLOCK_ROWS, FEWEST, MOST))
    return max(1, round(rows / size))


def count_starts(estimator):
    """Return the number of starts that an estimator's parameters ask for."""
    if estimator.n_init != "auto":
        return estimator.n_init
    one = estimator.n_components == 1 or estimator.tempering is not None
    return 1 if one else STARTS


def plan_fit(estimator, model, data, n_init):
    """Choose what the parameters of an estimator leave open.

    Parameters
    ----------
    estimator : VRHMM
    model : HMMModel
    data : SequenceSource
    n_init : int
        Of several starts the best goes on after a few epochs. Tempered ones do not
        compare before their end.

    Returns
    -------
    plan : Plan
    data : SequenceSource or RowBlockSource
        What the solver visits.
    """
    solver, acceleration = estimator.solver, estimator.acceleration
    if acceleration == "auto":
        acceleration = "squarem" if solver == "auto" else None
    if solver == "auto":
        solver = "batch"
    name = solver if acceleration is None else f"{solver}+{acceleration}"
    lead, short = solvers.Batch(), n_init > 1 and estimator.tempering is None
    step_size = schedules.Constant(1.0)
    if acceleration == "lbfgs":
        # Far from an optimum its metric is worth little: also the only start is led.
        made = solvers.QuasiNewton(estimator.tol, PAIRS, trusted=False)
        short = True
    elif acceleration == "squarem":
        made, lead = solvers.Squarem(), solvers.Squarem()
    elif solver == "incremental":
        n_blocks = _count_blocks(estimator, data)
        made, data = solvers.Incremental(n_blocks, SWEEPS), RowBlockSource(data)
    elif solver in ("svrg", "saga"):
        make = partial(
            _make_sweeps,
            batch_size=estimator.batch_size,
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
        rows = len(data.rows.X)
        n_blocks = min(_count_blocks(estimator, data), data.n_units)
        planned = solvers.plan_em(
            estimator, rows, model.n_parameters(), batch_size=rows / n_blocks
        )
        made, step_size = planned.solver, planned.step_size
        if solver == "stochastic":
            # A step of 1 would make codes impossible that its sequences have not.
            step_size = replace(step_size, most=LONGEST_STEP)
    else:
        made = solvers.Batch()
    plan = solvers.Plan(name, made, step_size)
    return (replace(plan, lead=lead, lead_epochs=SHORT) if short else plan), data
