"""How wide a prior is most likely.

Its width, in units, has a prior of its own: a log-normal one of median one and spread
one. Where there is nothing to find a prior does not shrink to nothing, and where all
can be told apart it does not widen without end. What rows leave open of it is in the
posterior: see `with_unknown_width`.
"""

import numpy as np
from scipy import sparse

from skvrem import schedules, solvers
from skvrem.utils._validation import check_magnitude
from skvrem.vi.gaussian._model_posterior import FullRank, LowRank

# Steps of the posterior of a width, at most, and what they leave to gain: in all, or of
# each of many coefficients, whose squares tell the width so much the better. A width is
# misjudged by a posterior that is still on its way.
WIDTH_STEPS, WIDTH_TOL, WIDTH_EACH = 30, 0.1, 0.0025
# Rounds in which the logarithm of a width is found; the last step, the longest, and the
# first at least; how far it may go.
WIDTH_ROUNDS, WIDTH_CHANGE, LONGEST, FIRST, MOST_WIDER = 20, 0.05, 1.0, 0.2, 7.0

# What is too large, in an error.
OF_SCALED = "X, times the scale of the prior,"


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


def most_likely_width(slope, at=0.0, curvature=None, first=None, rough=None):
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
    first : callable, default=None
        Returns about what the curvature was where the first slope was taken, where none
        is known: it is for the first step, which without it is the longest one.
    rough : callable, default=None
        Returns whether the last slope taken errs much, as of a posterior far from its
        end: a secant from there to one that does not is not what a search ends by,
        unless the peak lies between. None: no slope does.

    Returns
    -------
    log_width, curvature : float
        Of the most likely one.
    """
    low, high, last, errs = -MOST_WIDER, MOST_WIDER, None, False
    # Of slopes that are known roughly, a shorter secant says less than what is known.
    shortest = 0.0 if curvature is None else FIRST
    for _ in range(WIDTH_ROUNDS):
        value = slope(at) - at
        low, high = (low, at) if value < 0.0 else (at, high)
        if last is not None and abs(at - last[0]) >= shortest:
            curvature = max((last[1] - value) / (at - last[0]), 1.0)
        before, errs = errs, rough is not None and rough()
        mixed = before and not errs and value * last[1] > 0.0
        known, least = curvature, FIRST if mixed else 0.0
        if not known:
            known, least = 1.0 if first is None else max(first(), 1.0), FIRST
        step = np.clip(abs(value) / known, least, LONGEST)
        last, at = (at, value), at + float(np.copysign(step, value))
        if not low <= at <= high:
            at = 0.5 * (low + high)
        if abs(at - last[0]) < WIDTH_CHANGE:
            break
    return at, curvature


def deviation_of_mode(curvature):
    """Return the standard deviation of a logarithm of a width, one without rows."""
    return 1.0 / np.sqrt(max(curvature, 1.0))


def curvature_about(slope, log_width, curvature):
    """Return the curvature of minus the log density of a width, for what is not known.

    By a secant as long as one deviation: the last ones to the peak may be so short that
    what slopes err by turns them.

    Parameters
    ----------
    slope, log_width, curvature
        As `most_likely_width` takes and returns them.
    """
    away = deviation_of_mode(curvature)
    return max((log_width - slope(log_width + away)) / away + 1.0, 1.0)


def width_taken(log_width, curvature):
    r"""Return the width that is taken where the most likely one is another.

    The mean of a log-normal number is wider than its peak by half the variance of the
    logarithm, one over the curvature c there. The share of it that rows tell of, all
    but the 1 in c of the width's own prior, is added: :math:`(c - 1) / (2 c^2)`.
    Without rows it is the median of that prior.

    Parameters
    ----------
    log_width, curvature : float
        As `most_likely_width` returns them.
    """
    c = max(curvature, 1.0)
    return float(np.exp(log_width + 0.5 * (c - 1.0) / c**2))


def _pull_of_width(q, scale, curvature):
    """Return what means are pulled by, for one deviation of the log width, (d,)."""
    return 2.0 * deviation_of_mode(curvature) * q.mean / np.square(scale)


def shift_by_width(q, scale, curvature):
    r"""Return how far means move with one standard deviation of the log width, (d,).

    Parameters
    ----------
    q : FullRank, MeanField or LowRank
        Given the width.
    scale : ndarray of shape (d,)
        Of the prior about zero; infinity where the width does not bear on it.
    curvature : float
        That of the logarithm of the width.
    """
    return q.covariance_times(_pull_of_width(q, scale, curvature)[None])[0]


def with_unknown_width(q, scale, curvature):
    r"""Return a posterior with what is not known of the width of its prior.

    Given the width w it says too much: means move with it by
    :math:`v = d\mu / d\log w = 2 \Sigma P_0 \mu`, and :math:`\log w` has the variance
    1 / c. So :math:`v v^T / c` is added to the covariance, which is next to nothing
    where many coefficients tell of the width.

    Parameters
    ----------
    q : FullRank, MeanField or LowRank
        Given the width. A MeanField stays as it is.
    scale, curvature : ndarray of shape (d,), float
        As of `shift_by_width`.
    """
    if isinstance(q, FullRank):
        # In axes where the covariance is round: no digits of its narrow ones are lost.
        white = _pull_of_width(q, scale, curvature) @ q.factor
        root = np.linalg.cholesky(np.eye(white.size) + np.outer(white, white))
        return FullRank(q.mean, q.factor @ root)
    if isinstance(q, LowRank):
        factor = np.column_stack([q.factor, shift_by_width(q, scale, curvature)])
        return LowRank(q.mean, q.diagonal, factor, np.append(q.sign, 1.0))
    return q


def units_of(mean, deviation):
    """Return the standard deviations of columns, of those that do not vary their size.

    Or one, if that is less. Such a column is an intercept of its own: by another unit
    rates of the first row of a stream, of numbers of thousands, have no mean.
    """
    return np.where(deviation > 0.0, deviation, np.maximum(np.abs(mean), 1.0))


def products_in_units(rows, scale, centre):
    """Return products (n, n) of rows less a centre, of coefficients divided by S."""
    few = sparse.issparse(rows)
    scaled = sparse.csr_array(rows.multiply(scale)) if few else rows * scale
    check_magnitude(scaled, OF_SCALED)
    centre = centre * scale if centre.size else np.zeros(scale.size)
    if few:  # of which all are less a centre, but none is
        half = scaled @ centre - 0.5 * centre @ centre
        return (scaled @ scaled.T).toarray() - half - half[:, None]
    scaled = scaled - centre
    return scaled @ scaled.T


def in_own_basis(rows, scale, centre):
    """Return rows as their coordinates in a basis of their span, of coefficients by S.

    There are as many as rows, whose prior is that of the coefficients divided by S: the
    rows :math:`R^T` but for a rotation, as the products of rows less a centre tell.
    """
    squares, axes = np.linalg.eigh(products_in_units(rows, scale, centre))
    return axes * np.sqrt(np.maximum(squares, 0.0))
