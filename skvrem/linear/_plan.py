"""How a fit is made: which curvature, from how many rows, which solver and steps."""

from dataclasses import replace

import numpy as np

from skvrem import schedules, solvers
from skvrem.linear._model import LogisticModel, Online
from skvrem.linear._model_curvature import Curvature

# One matrix for all classes, of so many parameters, is factored in a block's time.
JOINT_PARAMETERS = 1000
# The Hessian of all classes, where it costs so few products: next to nothing.
JOINT_PRODUCTS = 3e7
# Matrices of more features take longer to factor than they save.
MOST_FEATURES = 2000
# All matrices of a curvature together.
CURVATURE_BYTES = 1 << 26
# Rows a feature that make a curvature right to some 10 %, and to some 30 %.
MANY_ROWS, FEW_ROWS = 100, 10
# What taking the curvature may cost beyond FEW_ROWS, in passes for the gradient.
CURVATURE_PASSES = 3.0
# Outer products that fit in the time of a pass, by what limits it: memory for two
# classes, products of small matrices for more, CSR rows one by one.
SPEED, SPEED_CLASSES, SPEED_CSR = 40.0, 9.4, 3.0
# The first fit is to a share of the rows, but to so many a feature at least; and it
# pays only where they are few among all.
START_SHARE, START_ROWS, WORTH_IT = 16, 10, 4
# Minibatches an epoch of variance reduction, and the fewest rows of one.
SVRG_BLOCKS, SVRG_ROWS = 32, 64
STOCHASTIC_ROWS = 256
PARTIAL_ROWS = 1024
# Steps of "stochastic", by what is kept of the curvature, for two classes and more. A
# majorizer's step may be as long as 2. The classes' own bounds are wide; their own
# stars leave out what couples them, and a diagonal leaves out more.
GRAM_STEP, JOINT_STEP, BOUND_STEP_CLASSES, OTHER_STEP = 1.5, 1.25, 2.0, 1.0
# Rank of the automatic sketch for dense rows of many features.
AUTO_RANK = 20
ONE = schedules.Constant(1.0)
BLOCKED = ("stochastic", "svrg")
# Epochs between objectives that tell how slow "svrg" is, whose gains are noisy.
SVRG_WINDOW = 3
# Epochs of "stochastic" before anyone asks whether they are slow, where there is no end
# that they could be far from: so many of them can be asked for, as to look at them.
ENDLESS = 10


def choose_curvature(estimator, p, k, data, *, own, stream=False, joint=False):
    """Return how the curvature is kept.

    Parameters
    ----------
    estimator : SBMLogisticRegression
    p, k : int
        Rows and columns of the parameters.
    data : source
    own : bool
        Each class has a matrix of its own, where they are not too large.
    stream : bool
        It is added up block by block, so that its matrices are factored often.
    joint : bool
        Few classes have one matrix together.
    """
    rank, n_rows = estimator.curvature_rank, data.n_units
    if rank is not None:
        return Curvature("sketch", p, 1, min(rank, p))
    if p > MOST_FEATURES or (p > n_rows and p > 200 and not stream):
        if data.sparse:
            return Curvature("diagonal", p, k if own else 1)
        return Curvature("sketch", p, 1, min(AUTO_RANK, p))
    if joint and 1 < k and k * p <= JOINT_PARAMETERS:
        return Curvature("joint", p, k)
    own = own and 8 * k * p * p <= CURVATURE_BYTES
    return Curvature("gram", p, k if own else 1)


def curvature_rows(curvature, p, k, n_rows, row_entries):
    """Return from how many rows a curvature is taken.

    Parameters
    ----------
    curvature : Curvature
    p, k : int
        Rows and columns of the parameters.
    n_rows : int
    row_entries : float
        Entries of a row that are not zero: what its outer product costs.
    """
    if curvature.kind == "diagonal":
        return n_rows
    if curvature.kind != "gram":
        return min(n_rows, max(4096, n_rows // 4))
    affordable = CURVATURE_PASSES * 4.0 * n_rows * k / row_entries / curvature.columns
    rows = min(max(affordable, FEW_ROWS * p), MANY_ROWS * p)
    return int(min(n_rows, max(rows, 1024)))


def row_entries(data):
    """Return the mean number of entries of a row that are not zero."""
    if data.sparse:
        return 1.0 + data.n_entries / max(1, data.n_units)
    return data.n_features


def start_rows(p, n_rows):
    """Return the rows of the first fit, 0 where it would not pay."""
    rows = max(n_rows // START_SHARE, START_ROWS * p)
    return rows if rows * WORTH_IT <= n_rows else 0


def count_blocks(
    solver, n_rows, p, batch_size, *, stream=False, mixed=False, far=False
):
    """Return the number of minibatches, each a journey where the rows are far away.

    Of a batch of a stream, larger ones unless its classes come `mixed`.
    """
    if batch_size != "auto":
        return max(1, round(n_rows / batch_size)) if solver in BLOCKED else 1
    if stream and not mixed:
        return max(1, round(n_rows / PARTIAL_ROWS))
    if solver == "stochastic":
        # As many as features, or the first blocks know little of most directions.
        rows = max(STOCHASTIC_ROWS, p if p <= MOST_FEATURES else 0)
        if not stream:
            rows = min(rows, max(64, n_rows // 20))
        n_blocks = max(1, round(n_rows / rows))
        return min(n_blocks, solvers.FAR_BLOCKS) if far else n_blocks
    return max(1, min(SVRG_BLOCKS, n_rows // SVRG_ROWS)) if solver == "svrg" else 1


def plan_fit(estimator, solver, rows, C, n_total=None, center=None):
    """Choose curvature, solver and steps for an estimator's parameters.

    Parameters
    ----------
    estimator : SBMLogisticRegression
    solver : str
    rows : LabelledRows
    C : float
    n_total : float or None
        Weight that the penalty is spread over; None is that of the rows.
    center : ndarray or None
        See :class:`~skvrem.linear._model.LogisticModel`.

    Returns
    -------
    model : LogisticModel
    plan : Plan
    """
    data, k = rows.data, 1 if len(rows.classes) == 2 else len(rows.classes)
    p = data.n_features + bool(estimator.fit_intercept)
    accelerated = solver == "auto" or estimator.acceleration == "lbfgs"
    plain = solver == "batch" and not accelerated
    stream = solver == "stochastic"
    kind = estimator.curvature
    if kind == "auto":
        kind = "hessian" if accelerated else "bound"
        # A stream's rows may come by class, and what the paper remembers is its own.
        if stream and n_total is None and estimator.gradient_memory == 0.0:
            kind = "star"
    # The bound of all classes at once is what needs no check.
    curvature = choose_curvature(
        estimator,
        p,
        k,
        data,
        own=not plain or kind == "hessian",
        stream=stream,
        joint=kind == "star"
        or (kind == "hessian" and not stream and _is_small(p, k, data)),
    )
    gram = curvature.kind in ("gram", "joint")
    # Steps of the whole bound need no check; those of a part of it are searched.
    majorizes = plain and kind == "bound" and gram
    penalty = np.full(p, 1.0 / C)
    if estimator.fit_intercept and not estimator.penalize_intercept:
        penalty[-1] = 0.0
    n_blocks = count_blocks(
        solver, data.n_units, p, estimator.batch_size, far=data.remote
    )
    factor, online = estimator.step_size, None
    if stream and factor == "auto":
        factor = OTHER_STEP
        if curvature.kind == "joint":
            factor = JOINT_STEP
        elif gram and k == 1:
            factor = GRAM_STEP
        elif gram and kind != "star":
            factor = BOUND_STEP_CLASSES
    factor = 1.0 if factor == "auto" else float(factor)
    if stream:
        online = Online(estimator.gradient_memory, factor, 1.0 / n_blocks)
    model = LogisticModel(
        len(rows.classes),
        penalty,
        data.total_weight if n_total is None else n_total,
        bool(estimator.fit_intercept),
        curvature,
        kind,
        every=stream or majorizes,
        online=online,
        rounding=float(np.finfo(rows.dtype).eps),
        center=center,
        **_cost(curvature, kind, p, k, data),
    )
    made, steps = solvers.QuasiNewton(estimator.tol), ONE
    if accelerated:
        solver = "batch+lbfgs"
    elif stream:
        # The share of the newest block in all that have been seen.
        made, steps = solvers.Stochastic(n_blocks), schedules.Power(1.0, 1.0, 1.0)
    elif solver == "svrg":
        made, steps = solvers.SVRG(n_blocks), schedules.Constant(factor)
    elif majorizes:
        made = solvers.Batch()
    else:
        made = solvers.QuasiNewton(estimator.tol, memory=0)
    if stream or ((majorizes or solver == "svrg") and estimator.curvature == "auto"):
        # Where the bound is loose, or noise is all that is seen, the accelerated steps
        # go on.
        joint = _is_small(p, k, data)
        own = choose_curvature(estimator, p, k, data, own=True, joint=joint)
        if stream or own.kind in ("gram", "joint"):
            changes = {"curvature": own, "kind": "hessian", "every": False}
            changes |= {"online": None, **_cost(own, "hessian", p, k, data)}
            closer = replace(model, **changes)
            # Derivatives of tol are what a gain of about its square leaves.
            window = SVRG_WINDOW if solver == "svrg" else 1
            aim = min(estimator.tol, estimator.tol**2)
            until = solvers.WhenSlow(aim, window, power=stream)
            if stream:
                # A form that is asked for goes on in it, as long as nothing is claimed.
                named = estimator.curvature != "auto" or estimator.gradient_memory > 0.0
                slow = None if named else until
                least = 2 if estimator.tol > 0.0 else ENDLESS + 1
                until = solvers.WhenNoisy(estimator.tol, made.patience, slow, least)
            made = solvers.Switch(
                made, solvers.QuasiNewton(estimator.tol), until, closer
            )
    return model, solvers.Plan(solver, made, steps, n_blocks)


def _is_small(p, k, data):
    """Whether the Hessian of all classes at once costs next to nothing."""
    products = data.n_units * k * k * p * p / 2.0 + (k * p) ** 3 / 3.0
    return products <= JOINT_PRODUCTS


def _cost(curvature, kind, p, k, data):
    """From how many rows a curvature is taken, in how many passes, if it is exact."""
    entries, n_rows = row_entries(data), data.n_units
    rows = curvature_rows(curvature, p, k, n_rows, entries)
    if curvature.kind == "gram":
        speed = SPEED if k == 1 else SPEED_CLASSES
        speed = SPEED_CSR if data.sparse else speed
        passes = rows * entries * curvature.columns / (n_rows * k * speed)
    else:
        passes = rows / n_rows
    exact = curvature.kind == "joint" or (curvature.kind == "gram" and k == 1)
    return {
        "sample_rows": rows,
        "sample_cost": passes,
        "metric_cost": passes + (rows < n_rows),
        "newton": exact
        and kind == "hessian"
        and rows >= n_rows
        and _is_small(p, k, data),
    }
