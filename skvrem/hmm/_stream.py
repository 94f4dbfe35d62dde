"""A step of stochastic EM with a batch of a stream, or the next rows of a long one."""

import numpy as np

from skvrem import solvers
from skvrem.hmm._input import (
    attributes_of,
    fitted_parameters,
    naming_impossible,
    open_rows,
)
from skvrem.hmm._model import Statistics
from skvrem.hmm._start import starting_parameters
from skvrem.hmm.forward_backward._model_layout import Layout
from skvrem.hmm.forward_backward._model_passes import Impossible, Passes
from skvrem.utils._algebra import scale
from skvrem.utils._averaging import AveragingPoint
from skvrem.utils._validation import as_generator


def step(estimator, X, continues, *given):
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
        estimator, X, *given, fresh=first, carried=before, drop=False
    )
    rng = as_generator(estimator.random_state)
    if first:
        dtype, seen = sequences.X.dtype, 0
        found = starting_parameters(model, data, estimator.init_params, rng)
        point = model.start(found)
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
    model.total = data.total_weight + seen
    count = seen / len(sequences.X)
    step = solvers.stream_step(estimator, model, point, data, count, mean=mean)
    inputs = sequences.inputs
    last_inputs = None if inputs is None else inputs[-1].copy()
    found = attributes_of(model, step.point, dtype) | {
        "objective_": model.objective(point, mean),
        "log_likelihood_": float(mean.objective),
        "n_parameters_": model.n_parameters(),
        "n_samples_seen_": seen + len(sequences.X),
        "_carried": (passes.last(), last_inputs),
    }
    step.record(estimator, found)
