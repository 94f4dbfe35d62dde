"""Log-densities and their derivatives, of arrays that are spread against each other."""

from functools import partial

import numpy as np

from skvrem.hmm.emissions.densities import _kernels


def _expand(kernel, n, *values):
    """Return what a kernel makes of x, parameters, and what depends on these.

    The log-density, a list of its derivatives by n parameters, and one of the second
    ones by every pair.
    """
    shape = np.broadcast_shapes(*map(np.shape, values))
    whole = (1,) * (3 - len(shape)) + shape
    values = [np.broadcast_to(np.asarray(value, float), whole) for value in values]
    out = np.empty((1 + n + n * (n + 1) // 2, *whole[1:], whole[0]))
    kernel(*values, out)
    here, *others = (np.moveaxis(part, 2, 0).reshape(shape) for part in out)
    return here, others[:n], others[n:]


student_t = partial(_expand, _kernels.student_t, 3)
weibull = partial(_expand, _kernels.weibull, 2)
wrapped_cauchy = partial(_expand, _kernels.wrapped_cauchy, 2)
