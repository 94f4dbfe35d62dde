"""Log-densities and their derivatives, of arrays that are spread against each other."""

import numpy as np

from skvrem.hmm.emissions.densities import _kernels


class Compiled:
    """A family's log-density and derivatives as its kernel makes them."""

    def __init__(self, kernel):
        self.kernel = kernel

    def value(self, *values):
        """Return the log-density of x, by parameters."""
        return self._fill(values, 1)[0][()]

    def expansion(self, *values):
        """Return this, a list of its derivatives, and one of the second ones."""
        n = len(values) - 1
        here, *others = self._fill(values, 1 + n + n * (n + 1) // 2)
        return here, others[:n], others[n:]

    def _fill(self, values, n_results):
        values = [np.asarray(value, float) for value in values]
        n_axes = max(value.ndim for value in values)
        values = [np.array(v, order="C", ndmin=3, copy=None) for v in values]
        n_rows, *others = shape = np.broadcast(*values).shape
        out = np.empty((n_results, *others, n_rows))
        self.kernel(*values, out)
        return out.transpose(0, 3, 1, 2).reshape(n_results, *shape[3 - n_axes :])


negative_binomial = Compiled(_kernels.negative_binomial)
gamma = Compiled(_kernels.gamma)
student_t = Compiled(_kernels.student_t)
weibull = Compiled(_kernels.weibull)
wrapped_cauchy = Compiled(_kernels.wrapped_cauchy)
