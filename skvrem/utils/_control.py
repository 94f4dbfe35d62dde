"""The control variate of all variance-reduced estimates, written once."""

from skvrem.utils._jit import kernel


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
