r"""The log density of a user's own model, with what is missing derived.

With N rows the density of the parameters z is, up to a constant,

.. math:: \ell(z) = \sum_n \log p(x_n | z) + \log p(z),

where the prior is left out if it is Gaussian, as it is then known in closed form. A
batch B estimates it by :math:`N / |B|` times its rows and all of the prior.

Where the model says which parameters rows depend on, their *support*, a batch may have
one: z, other vectors and derivatives are then of these parameters only.
"""

from typing import NamedTuple

import numpy as np

from skvrem.vi.blackbox._model_density_check import Checks, as_numbers, for_rows, parts

__all__ = ["ALL", "Batch", "Target"]

# Parameters up to which the Hessian is worth differences of gradients at every pass;
# and up to which it is formed, where the model has it.
FEW_PARAMETERS, MANY_PARAMETERS = 32, 1000
# The support of a batch that is not known to have a smaller one.
ALL = slice(None)


class Batch(NamedTuple):
    """Rows in place of all rows.

    Attributes
    ----------
    rows : ndarray of int
    factor : float or ndarray of shape (s,)
        What their sum is multiplied by.
    support : ndarray of int of shape (s,), or ALL
        Numbers of the parameters that it is a function of.
    """

    rows: np.ndarray
    factor: float | np.ndarray
    support: np.ndarray | slice = ALL


class Target(Checks):
    """A model's log density on some of its rows.

    It is a source of data with one block, for solvers.

    Parameters
    ----------
    model : object
        See ``_protocol.py``.
    rows : ndarray of int
        Numbers of the rows of the fit.
    weight : ndarray of shape (n_rows,), default=None
        How many times they count, each of which is there once then; None is once.
    prior : FullRank or LowRank, default=None
        Takes the place of the model's own prior, as part of the log density.
    """

    total_weight = 1.0

    def __init__(self, model, rows, weight=None, prior=None):
        self.model = model
        self.rows = rows
        self.weight = None
        if weight is not None:  # by number
            self.weight = np.zeros(int(model.n_samples))
            self.weight[rows] = weight
        self.prior = prior
        self.n_dim = int(model.n_parameters)
        self.n_evaluated = 0
        self.has_prior = prior is not None or self._method("log_prior") is not None
        few, whole = self.n_dim <= FEW_PARAMETERS, self._method("hessian") is not None
        self.knows_hessian = few or (whole and self.n_dim <= MANY_PARAMETERS)
        known = self._method("hessian_diagonal") is not None
        self.knows_diagonal = few or whole or known
        self.has_support = self._method("support") is not None
        # A prior of the model's own may tie all parameters together.
        self.sparse = self.has_support and not self.has_prior
        # All parameters, of which those of a support are written over: a point, and a
        # vector.
        self._whole = np.zeros((2, self.n_dim if self.sparse else 0))
        self._supports = {}

    def chunks(self):
        """All rows, at once."""
        return self

    def sum(self, function):
        """Return the function of all rows."""
        return function(self)

    def _method(self, name):
        return getattr(self.model, name, None)

    # Log density and derivatives

    def each(self, z, rows):
        """Return log p(row | z) of rows, (n,)."""
        found = [
            self._array("log_likelihood", (part.size,), z, part) for part in parts(rows)
        ]
        self.n_evaluated += rows.size
        return np.concatenate(found)

    def log_density(self, z):
        """Return the log density of parameters."""
        each = self.each(z, self.rows)
        each = each if self.weight is None else each * self.weight[self.rows]
        return float(each.sum()) + self._log_prior(z)

    def blame_of(self, points):
        """Say which method is not finite at the first of points where one is not."""
        for z in points:
            if not np.isfinite(self.log_density(z)):
                return self.blame(z)
            if not np.isfinite(self.gradient(z)).all():
                shown = np.array2string(z[:10], precision=6)
                kind = type(self.model).__name__
                return f"gradient of {kind} is not finite at parameters {shown}"
        return f"The bound of {type(self.model).__name__} is not finite"

    def blame(self, z):
        """Say which method is not finite at parameters, and for which row."""
        kind, shown = type(self.model).__name__, np.array2string(z[:10], precision=6)
        shown += "" if z.size <= 10 else f" (the first 10 of {z.size})"
        each = self.each(z, self.rows)
        bad = ~np.isfinite(each)
        if bad.any():
            row, value = int(self.rows[bad.argmax()]), each[bad][0]
            return (
                f"log_likelihood of {kind} is {value} for row {row} ({int(bad.sum())} "
                f"of {each.size} rows) at parameters {shown}"
            )
        name = "log_prior" if self.prior is None and self.has_prior else "the sum"
        return f"{name} of {kind} is {self.log_density(z)} at parameters {shown}"

    def gradient(self, z, batch=None):
        """Return its gradient (d,), or what a batch of rows says of it."""
        total = self._sum("gradient", batch, z)
        return total + self._prior_gradient(z) if self.has_prior else total

    def hessian_times(self, z, v, batch=None):
        """Return its Hessian times a vector (d,)."""
        if self._method("hessian_vector_product") is None:
            return self._difference(lambda at: self.gradient(at, batch), z, v)
        total = self._sum("hessian_vector_product", batch, z, v)
        return total + self._prior_times(z, v) if self.has_prior else total

    def hessian_diagonal(self, z, batch=None):
        """Return the diagonal of its Hessian (d,)."""
        if self._method("hessian_diagonal") is not None:
            total = self._sum("hessian_diagonal", batch, z)
        elif self._method("hessian") is not None:
            total = self._sum("hessian", batch, z).diagonal().copy()
        else:
            return _diagonal(lambda axis: self.hessian_times(z, axis, batch), z.size)
        if self.prior is not None:
            return total - self.prior.precision_diagonal
        if self.has_prior:
            total += _diagonal(lambda axis: self._prior_times(z, axis), z.size)
        return total

    def hessian(self, z):
        """Return its Hessian (d, d)."""
        axes = np.eye(self.n_dim)
        if self._method("hessian") is None:
            total = np.stack([self.hessian_times(z, axis) for axis in axes])
        else:
            total = self._sum("hessian", None, z)
            if self.has_prior:
                total += [self._prior_times(z, v) for v in axes]
        return 0.5 * (total + total.T)

    def _log_prior(self, z):
        if not self.has_prior:
            return 0.0
        if self.prior is not None:
            return float(self.prior.logpdf(z))
        return float(self._array("log_prior", (), z))

    def _prior_times(self, z, v):
        """Return the Hessian of the log prior times a vector."""
        if self.prior is not None:
            return -self.prior.precision_times(v)
        return self._difference(self._prior_gradient, z, v)

    def _prior_gradient(self, z):
        if self.prior is not None:
            return self.prior.precision_times(self.prior.mean - z)
        return self._array("log_prior_gradient", (self.n_dim,), z)

    def _sum(self, name, batch, *vectors):
        """Sum a method over chunks of all rows, or scale what it says of a batch."""
        if batch is not None:
            self.n_evaluated += batch.rows.size
            return batch.factor * self._weighed(name, batch, *vectors)
        total = 0.0
        for number, rows in enumerate(parts(self.rows)):
            block = Batch(rows, 1.0)
            total = total + self._weighed(name, block, *vectors, number=number)
        self.n_evaluated += self.rows.size
        return total

    def _weighed(self, name, batch, *vectors, number=None):
        """Return a derivative of the weighed sum of a batch's rows.

        A model says what rows come to together: those of one weight are asked for at
        once.
        """
        if self.weight is None:
            return self._derivative(name, batch, *vectors, number=number)
        total, support = 0.0, batch.support
        weights = self.weight[batch.rows]
        for weight in np.unique(weights):
            some = batch._replace(rows=batch.rows[weights == weight])
            if support is ALL:
                key = None if number is None else (number, weight)
                part = self._derivative(name, some, *vectors, number=key)
            else:  # of which these rows may have a part only
                own = self.support(some.rows)
                at = np.searchsorted(support, own)
                inner = [vector[at] for vector in vectors]
                found = self._derivative(name, some._replace(support=own), *inner)
                part = np.zeros((support.size,) * found.ndim)
                part[np.ix_(*(at,) * found.ndim)] = found
            total = total + weight * part
        return total

    def _mean(self, name, *arguments):
        """Return a derivative's mean over rows, the last argument, as they are."""
        *vectors, rows = arguments
        self.n_evaluated += rows.size
        return self._derivative(name, Batch(rows, 1.0), *vectors) / rows.size

    def _difference(self, function, z, v):
        """Return the derivative of a function along v, by central differences."""
        largest = np.abs(v).max(initial=0.0)
        if largest == 0.0:
            return np.zeros(v.size)
        step = self._step * max(1.0, np.abs(z).max()) / largest
        ahead, behind = function(z + step * v), function(z - step * v)
        return (ahead - behind) / (2.0 * step)

    _step = np.finfo(np.float64).eps ** (1.0 / 3.0)

    # Parameters that rows depend on

    def support(self, rows):
        """Return the numbers of the parameters that rows depend on, in order.

        Raises
        ------
        ValueError
            If the model's are none.
        """
        found = np.asarray(self.model.support(rows))
        if found.size == 0:
            return np.zeros(0, np.intp)
        name, where = f"support of {type(self.model).__name__}", for_rows(rows)
        if found.ndim != 1 or found.dtype.kind not in "iu":
            raise ValueError(
                f"{name} must return an array of integers, one for each parameter, got "
                f"{found.dtype} of shape {found.shape}{where}."
            )
        if not (found[1:] > found[:-1]).all():
            raise ValueError(
                f"{name} must return parameters in order and each once, as np.unique "
                f"does; they are not{where}."
            )
        if found[0] < 0 or found[-1] >= self.n_dim:
            wrong = found[0] if found[0] < 0 else found[-1]
            raise ValueError(
                f"{name} returned the parameter {wrong}{where}, and the model has "
                f"parameters 0 to {self.n_dim - 1}."
            )
        return found.astype(np.intp, copy=False)

    def rest(self, z):
        """Let parameters outside of the support of batches stand at a point."""
        if self.sparse:
            self._whole[0] = z

    def _derivative(self, name, batch, *vectors, number=None):
        """Return a derivative of the rows' sum by the batch's parameters.

        number: of a chunk of all rows, whose support is kept.
        """
        rows, support = batch.rows, batch.support
        if support is not ALL:
            for whole, vector in zip(self._whole, vectors, strict=False):
                whole[support] = vector
            vectors = self._whole[: len(vectors)]
        shape = (self.n_dim,) * (2 if name == "hessian" else 1)
        if not self.has_support or name == "hessian":
            found = self._array(name, shape, *vectors, rows)
            return found if support is ALL else found[np.ix_(support, support)]
        found = as_numbers(name, self.model, *vectors, rows)
        if found.shape == shape:
            return self._float(found[support])
        own = support
        if own is ALL:
            own = self._supports.get(number)
        if own is None:
            own = self.support(rows)
            if number is not None:
                self._supports[number] = own
        self._check_shape(name, found, own.shape, rows, shape)
        if support is not ALL:
            return self._float(found)
        out = np.zeros(shape)
        out[own] = self._float(found)
        return out

    def _array(self, name, shape, *arguments):
        """Call a method; return what it says as an array of a shape, or raise."""
        found = as_numbers(name, self.model, *arguments)
        rows = None if name.startswith("log_prior") else arguments[-1]
        self._check_shape(name, found, shape, rows)
        return self._float(found)

    def _float(self, array):
        if array.dtype == np.float32:
            self._step = float(np.finfo(np.float32).eps) ** (1.0 / 3.0)
        return array.astype(np.float64)


def _diagonal(times, d):
    """Return the diagonal (d,) of a matrix that vectors can be multiplied with."""
    out, axis = np.empty(d), np.zeros(d)
    for j in range(d):
        axis[j] = 1.0
        out[j] = times(axis)[j]
        axis[j] = 0.0
    return out
