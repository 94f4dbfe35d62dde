"""The control variate of all variance-reduced estimates, written once."""

import numpy as np

from skvrem.utils._jit import kernel

# Share of the spread of controls that is none.
LEAST_SPREAD = 1e-8


def controlled(now, then, mean, scale=1.0):
    r"""Return a variance-reduced estimate of a mean, :math:`m + c (f - f_0)`.

    f is what a batch says where the fit stands, and :math:`f_0` what it said (or what
    an approximation says, with the same noise) at an earlier point, whose mean m over
    all batches is known; c turns sums of a batch into means. As :math:`c f_0` is m on
    average, nothing is biased, and what f and :math:`f_0` have in common does not vary.
    Eq. 5 of Chen et al. (2018), Eq. 23 of Sidrow et al. (2023) and Eq. 5 of Wang et al.
    (2024) are of this form. Of sums that are NamedTuples,
    :func:`~skvrem.utils._algebra.correction` is the part beside m.

    Parameters
    ----------
    now, then, mean : ndarray or float
    scale : float, default=1.0
    """
    return mean + scale * (now - then)


#: The same in a kernel, with the fast-math flags of that.
controlled_inline = kernel(controlled, inline="always", cache=False)


def regressed_mean(values, controls):
    """Return the mean of `regressed` values, and its standard error."""
    each = regressed(values, controls)
    return float(each.mean()), float(each.std() / np.sqrt(max(1, len(each) - 1)))


def regressed(values, controls):
    """Return independent values (n,) less what controls (n, p) of mean zero say.

    The coefficients of each are the regression on all others, so that the mean of what
    is left is unbiased. None are known where the others leave them open.
    """
    n, X = len(values), controls - controls.mean(axis=0)
    length = np.linalg.norm(X, axis=0)
    length[length == 0.0] = 1.0
    U, size, Vt = np.linalg.svd(X / length, full_matrices=False)
    U, size, Vt = (part[size > LEAST_SPREAD] for part in (U.T, size, Vt))
    fitted = U @ values
    rest = values - values.mean() - fitted @ U
    alone = 1.0 - 1.0 / n - np.square(U).sum(axis=0)  # one, less the leverage
    known = alone > LEAST_SPREAD
    fitted = fitted[:, None] - U * np.divide(rest, alone, where=known, out=0.0 * rest)
    slopes = (Vt.T / size) @ (known * fitted) / length[:, None]
    return values - np.sum(slopes.T * controls, axis=1)


def mean_within(tol, estimate, n, most):
    """Return a mean and its standard error, by as many draws as that takes.

    Parameters
    ----------
    tol : float
        The error that is wanted.
    estimate : callable
        Of a number of draws, the mean and its error by new ones.
    n, most : int
        The draws that are looked at first, and most of them.
    """
    found = _, error = estimate(n)
    wanted = n * (error / max(tol, error / most)) ** 2 if error > 0.0 else 0.0
    if min(wanted, most) > n:
        found = estimate(int(min(wanted, most)))
    return found
