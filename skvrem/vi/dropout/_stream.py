"""A step with a batch of a stream: beside rows kept, along a curvature, or anew."""

from math import ceil

import numpy as np
from sklearn.utils import check_random_state

from skvrem import schedules, solvers
from skvrem.data import KeptRows, as_source
from skvrem.solvers._protocols import Anchor
from skvrem.utils._algebra import rescale
from skvrem.utils._base import check_unchanged
from skvrem.utils._classes import stream_classes
from skvrem.utils._parallel import threads
from skvrem.vi.dropout._model import Weights
from skvrem.vi.dropout._plan import hidden_sizes, plan_dropout
from skvrem.vi.dropout._strength import ROWS
from skvrem.vi.gaussian._model import Point

# Rows up to which every batch of a stream is a fit of a network to all that goes on.
WHOLE_ROWS = 2000
# Rows of a stream that are kept, how often steps visit as many of them as are new, and
# the least passes over few rows.
KEPT, VISITS, STREAM_PASSES = 5000, 50, 10
# A network begins anew where rows are so many times as many, as one that goes on from
# what few rows have taught it is worse on unseen rows (Ash and Adams 2020).
GROWTH = 2.0
# Linear classifiers do more often, by full passes, which cost them little.
LINEAR_GROWTH = 1.1


def step(estimator, X, y, classes, sample_weight):
    """Update the weights with one batch of a stream."""
    first = not hasattr(estimator, "coefs_")
    if not first:
        check_unchanged(estimator, "activation", "hidden_layer_sizes")
    known = stream_classes(estimator, classes)
    rows, numbers, weight = estimator._open(X, y, sample_weight, first, known)
    batch, before = as_source(rows, weight), _kept_before(estimator)
    earlier = 0 if first else estimator.n_samples_seen_
    seen, here = earlier + len(rows), before.n_seen + len(rows)
    begun, hidden = vars(estimator).get("_begun", earlier), hidden_sizes(estimator)
    n_new = len(rows)
    new_class = not np.isin(numbers, before.targets).all()
    grown = seen >= (GROWTH if hidden else LINEAR_GROWTH) * begun
    # Of a pickled fit not all are here.
    complete = here == seen == len(before.keys) + len(rows)
    anew = first or (complete and (new_class or grown))
    curvature, made = vars(estimator).get("_curvature"), {}
    # A batch makes a step of its own between fits to all rows.
    alone = curvature is not None and complete and not anew
    whole = complete and (seen <= WHOLE_ROWS if hidden else not alone)
    data, targets = (batch, numbers) if alone else before.beside(batch, numbers)
    # Of the number of rows, too, or all batches would draw the same.
    random = check_random_state(estimator.random_state)
    rng = np.random.default_rng([random.randint(2**31 - 1), seen])
    asked = vars(estimator).get("_asked", earlier)
    ask = first or (complete and (new_class or GROWTH * asked <= min(seen, ROWS)))
    alpha = estimator._alpha(data, targets, keep=not ask)
    model = estimator._model(data, targets, alpha, seen / data.n_units)
    point = Point(
        Weights(np.empty(0) if first else estimator._weights(model.network)),
        moments=vars(estimator).get("_moments"),
    )
    if first or (anew and hidden):
        point = Point(Weights(estimator._random(model, rng)))
    if anew:
        begun = n_new = seen
    with threads(estimator.n_jobs):
        if alone:
            model.curvature = curvature
            point = model.towards(point, seen)
        else:
            plan = plan_dropout(estimator, data.n_units, len(known), stream=not whole)
            made = plan.attributes()
            how = n_new, seen, here / seen, rng
            point = _moved(estimator, model, plan, point, *how)
        new = np.arange(data.n_units)[-len(rows) :]
        sums = model.total(point.parameters.vector, new, "loss")
        objective = model.objective(point, rescale(sums, 1.0 / batch.total_weight))
    dtype = rows.dtype if first else estimator.coefs_[0].dtype
    past = "history_", "stop_reason_", "gap_left_", "validation_scores_", "_rows"
    for name in past:  # they are of a fit
        vars(estimator).pop(name, None)
    vars(estimator).update(
        estimator._attributes(model.network, point.parameters, dtype),
        loss_=-objective,
        objective_=objective,
        converged_=False,
        n_iter_=getattr(estimator, "n_iter_", 0) + 1,
        n_samples_seen_=seen,
        alpha_=alpha,
        _asked=seen if ask else asked,
        _kept=before.after(batch, numbers, KEPT),
        _begun=begun,
        _moments=point.moments,
        _curvature=model.curvature if complete else None,
        **made,
    )


def _moved(estimator, model, plan, point, n_new, n_seen, share, rng):
    """Return the point that some rows and those kept lead to.

    n_new, n_seen: numbers of rows. share: of all, that could be kept.
    """
    if plan.name == "batch":
        most = max(STREAM_PASSES, estimator.max_iter * n_new // n_seen)
        constant = schedules.Constant(1.0)
        how = {"temperature": constant, "step_size": constant, "tol": estimator.tol}
        how |= {"max_iter": min(most, estimator.max_iter), "rng": rng}
        start = Point(point.parameters)
        return solvers.run(model, plan.solver, model.data, start, **how).point
    visits = ceil(n_new * max(1.0, VISITS * share))
    steps = estimator._steps(model, plan, max(visits, plan.batch_size))
    plan.solver.start(steps, model.data, rng)
    begin = Anchor(None, np.nan, 0.0, point)  # of which nothing need be known
    return plan.solver.sweep(begin, plan.step_size, rng).point


def _kept_before(estimator):
    """Return what is kept of the rows before a batch."""
    if "_kept" in vars(estimator) or "_rows" not in vars(estimator):
        return vars(estimator).get("_kept", KeptRows())  # rows of a fit do not travel
    rows, numbers, weight = estimator._rows
    return KeptRows().after(as_source(rows, weight), numbers, KEPT)
