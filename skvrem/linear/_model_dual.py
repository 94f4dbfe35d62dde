"""Where to start on sparse rows of two classes: dual coordinate ascent.

A diagonal is all the curvature that sparse rows of many features leave room for, and
L-BFGS learns the rest in many passes. Visits of single rows gain as much in a few: a
row's own direction is solved exactly, at the price of its entries (Shalev-Shwartz and
Zhang 2013; Yu, Huang and Lin 2011). What they lead to is judged by the passes that
follow, like any other start.
"""

import math

import numpy as np

from skvrem.linear import _kernels

# Rows that stay together: they are read one after the other.
RUN_ROWS = 16
# Entries that a call of the kernel visits, so that an interrupt is seen.
CALL_ENTRIES = 1 << 24
# Epochs at most, the first that may be slow, and what share of the squared gradient an
# epoch may leave before steps on all rows are better.
MOST_EPOCHS, FIRST, SLOW = 30, 3, 0.85
# The stand-in for the ridge of a free intercept, as a share of its curvature.
SOFT = 0.03


def takes_dual(model, data):
    """Whether the dual is there, and worth more than steps in a diagonal's metric."""
    return (
        model.k == 1
        and model.curvature.kind == "diagonal"
        and data.sparse
        and not data.remote
        and model.penalty[0] > 0.0
    )


def dual_start(model, data, tol, rng):
    """Return parameters (p, 1) of nearly the optimum, and the passes they took.

    Zeros, where the dual is far from its own after a few epochs: rows are long for the
    penalty.
    """
    theta, n, total = np.zeros(len(model.penalty)), data.n_units, data.total_weight
    residuals = np.zeros(n, np.float32)
    length = max(data.run, RUN_ROWS)
    runs = np.arange(-(-n // length), dtype=np.int32)
    pieces = max(1, min(len(runs), data.n_entries // CALL_ENTRIES))
    free = model.intercept and model.penalty[-1] == 0.0
    ridge = model.penalty[0], model.penalty[-1]
    loss, before, curvature = 0.0, 0.0, 0.25 * total
    for epoch in range(1, MOST_EPOCHS + 1):
        if free:
            # Without a ridge the dual wants residuals that sum to zero: the method of
            # multipliers, whose penalty stands in for a ridge.
            ridge = ridge[0], SOFT * max(curvature, 1e-6 * total)
            theta[-1] += residuals.sum(dtype=np.float64) / ridge[1]
        rng.shuffle(runs)
        sums = np.zeros(3)
        for some in np.array_split(runs, pieces):
            _kernels.dual_visits(
                *data.rows[:3],
                some,
                length,
                model.intercept,
                ridge,
                data.targets,
                data.weight,
                residuals,
                theta,
                sums,
            )
        # What the visits found; they leave the share that they left of the last ones'.
        loss, square, curvature = sums.tolist()  # Python's, which do not warn
        share = square / before if before else 1.0
        left = math.sqrt(square * share) / total
        if free:
            left = max(left, abs(residuals.sum(dtype=np.float64)) / total)
        if left < tol or (epoch >= FIRST and not share < SLOW):
            break
        before = square
    if not loss < math.log(2.0) * total:  # the loss of zeros
        theta[:] = 0.0
    return theta[:, None], float(epoch)
