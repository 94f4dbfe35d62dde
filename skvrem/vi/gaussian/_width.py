"""How wide a prior is most likely.

Its width, in units, has a prior of its own: a log-normal one of median one and spread
one. Where there is nothing to find a prior does not shrink to nothing, and where all
can be told apart it does not widen without end.
"""

import numpy as np

from skvrem import schedules, solvers

# Steps of the posterior of a width, at most, and what they leave to gain: in all, or of
# each of many coefficients, whose squares tell the width so much the better. A width is
# misjudged by a posterior that is still on its way.
WIDTH_STEPS, WIDTH_TOL, WIDTH_EACH = 30, 0.1, 0.0025
# Rounds in which the logarithm of a width is found; the last step, the longest, and the
# first at least; how far it may go.
WIDTH_ROUNDS, WIDTH_CHANGE, LONGEST, FIRST, MOST_WIDER = 20, 0.05, 1.0, 0.2, 7.0


def few_steps(
    model, data, point, solver=None, max_iter=WIDTH_STEPS, tol=None, share=1.0
):
    """Return the `Result` of a few steps, near the best posterior of a prior.

    They leave no more to gain than `tol`, or a share of what they leave without.
    """
    if tol is None:
        tol = share * max(WIDTH_TOL, WIDTH_EACH * model.prior.n_dim)
    return solvers.run(
        model,
        solver or solvers.Ascent(),
        data,
        point,
        max_iter=max_iter,
        tol=tol,
        step_size=schedules.Constant(1.0),
        temperature=schedules.Constant(1.0),
        rng=None,
    )


def most_likely_width(slope, at=0.0, curvature=None):
    r"""Return where the highest bound and the logarithm of the width's prior peak.

    That is where their sum does not rise any more: with the means m and deviations s of
    d coefficients in units, :math:`\sum (m^2 + s^2) / w^2 = d + \log w`. By secants.

    Parameters
    ----------
    slope : callable
        Returns the derivative of the highest bound by the logarithm of the width,
        :math:`\sum (m^2 + s^2) / w^2 - d`, given that logarithm.
    at, curvature : float
        The first logarithm, and what is known of the curvature there.

    Returns
    -------
    log_width, curvature : float
        Of the most likely one.
    """
    low, high, last = -MOST_WIDER, MOST_WIDER, None
    # Of slopes that are known roughly, a shorter secant says less than what is known.
    shortest = 0.0 if curvature is None else FIRST
    for _ in range(WIDTH_ROUNDS):
        value = slope(at) - at
        low, high = (low, at) if value < 0.0 else (at, high)
        if last is not None and abs(at - last[0]) >= shortest:
            curvature = max((last[1] - value) / (at - last[0]), 1.0)
        least = 0.0 if curvature else FIRST
        step = np.clip(abs(value) / (curvature or 1.0), least, LONGEST)
        last, at = (at, value), at + float(np.copysign(step, value))
        if not low <= at <= high:
            at = 0.5 * (low + high)
        if abs(at - last[0]) < WIDTH_CHANGE:
            break
    return at, curvature


def deviation_of_mode(curvature):
    """Return the standard deviation of a logarithm of a width, one without rows.

    By so much is a prior wider than the most likely one: what is not known of its width
    would else make intervals of few coefficients too short.
    """
    return 1.0 / np.sqrt(max(curvature, 1.0))


def units_of(mean, deviation):
    """Return the standard deviations of columns, of those that do not vary their size.

    Or one, if that is less. Such a column is an intercept of its own: by another unit
    rates of the first row of a stream, of numbers of thousands, have no mean.
    """
    return np.where(deviation > 0.0, deviation, np.maximum(np.abs(mean), 1.0))
