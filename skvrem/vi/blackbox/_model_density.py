r"""The log density of a user's own model, with what is missing derived.

With N rows the density of the parameters z is, up to a constant,

.. math:: \ell(z) = \sum_n \log p(x_n | z) + \log p(z),

where the prior is left out if it is Gaussian, as it is then known in closed form. A
batch B estimates it by :math:`N / |B|` times its rows and all of the prior.

Where the model says which parameters rows depend on, their *support*, a batch may have
one: z, other vectors and derivatives are then of these parameters only.

Parameters are counted in units, the standard deviations of their prior: searches,
steps, floors of precisions and differences are then those of well-scaled parameters,
whatever the model's units are. The model alone sees its own, units times z; the prior
of its own is by z as well, :math:`p(z) \prod_j u_j`.
"""

from functools import reduce
from typing import NamedTuple

import numpy as np

# Rows that the model is given at once.
ROWS = 16_384
# Parameters up to which the Hessian is worth differences of gradients at every pass;
# and up to which it is formed, where the model has it.
FEW_PARAMETERS, MANY_PARAMETERS = 32, 1000
# The support of a batch that is not known to have a smaller one.
ALL = slice(None)


class DensityBatch(NamedTuple):
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


class Target:
    """A model's log density on some of its rows.

    Parameters
    ----------
    model : object
        See ``_protocol.py``.
    rows : ndarray of int
        Numbers of the rows of the fit.
    weight : ndarray of shape (n_rows,), default=None
        How many times they count, each of which is there once then; None is once.
    prior : FullRank or LowRank, default=None
        Takes the place of the model's own prior, as part of the log density; by z.
    units : ndarray of shape (n_parameters,), default=None
        What the model's parameters are, where z is one; None is one.
    """

    def __init__(self, model, rows, weight=None, prior=None, units=None):
        self.model = model
        self.rows = rows
        self.units = np.ones(int(model.n_parameters)) if units is None else units
        self._volume = float(np.log(self.units).sum())
        self.weight = None
        if weight is not None:  # by number
            self.weight = np.zeros(int(model.n_samples))
            self.weight[rows] = weight
        self.prior = prior
        self.n_dim = int(model.n_parameters)
        self.n_evaluated = 0
        #: Whether there is a log prior, and whether that is the model's own.
        self.has_prior = prior is not None or self.has("log_prior")
        self.model_has_prior = self.has_prior and prior is None
        few, whole = self.n_dim <= FEW_PARAMETERS, self.has("hessian")
        self.knows_hessian = few or (whole and self.n_dim <= MANY_PARAMETERS)
        self.knows_diagonal = few or whole or self.has("hessian_diagonal")
        self.has_support = self.has("support")
        # A prior of the model's own may tie all parameters together.
        self.sparse = self.has_support and not self.has_prior
        # All parameters, of which those of a support are written over: a point, and a
        # vector.
        self._whole = np.zeros((2, self.n_dim if self.sparse else 0))
        self._supports = {}

    def has(self, name):
        """Whether the model has a method that it need not have."""
        return getattr(self.model, name, None) is not None

    # Log density and derivatives

    def each(self, z, rows):
        """Return log p(row | z) of rows, (n,)."""
        self.n_evaluated += rows.size
        at = self.units * z
        return np.concatenate(
            [self.ask("log_likelihood", part.shape, at, part) for part in parts(rows)]
        )

    def log_density(self, z):
        """Return the log density of parameters."""
        each = self.each(z, self.rows)
        each = each if self.weight is None else each * self.weight[self.rows]
        prior = 0.0 if self.prior is None else self.prior.logpdf(z)
        if self.model_has_prior:
            prior = self.log_prior(z)
        return float(each.sum()) + float(prior)

    def not_finite_at(self, points, otherwise="The bound"):
        """Say which method is not finite at the first of points where one is not.

        Where there is none, that something `otherwise` is not.
        """
        kind = type(self.model).__name__
        for z in points:
            shown = np.array2string((self.units * z)[:10], precision=6)
            shown += "" if z.size <= 10 else f" (the first 10 of {z.size})"
            each = self.each(z, self.rows)
            bad = ~np.isfinite(each)
            if bad.any():
                return (
                    f"log_likelihood of {kind} is {each[bad][0]} for row "
                    f"{self.rows[bad.argmax()]} ({bad.sum()} of {each.size} rows) at "
                    f"parameters {shown}"
                )
            if not np.isfinite(value := self.log_density(z)):
                name = "log_prior" if self.model_has_prior else "the sum"
                return f"{name} of {kind} is {value} at parameters {shown}"
            name, row = self._gradient_not_finite(z)
            if name:
                where = "" if row is None else f" for row {row}"
                return f"{name} of {kind} is not finite{where} at parameters {shown}"
        return f"{otherwise} of {kind} is not finite"

    def _gradient_not_finite(self, z):
        """Return which gradient is not, and the number of a row; None where all are."""

        def bad(rows):
            return not np.isfinite(self.mean("gradient", z, rows)).all()

        for part in parts(self.rows):
            if bad(part):
                row = find_bad(bad, part)
                # Rows may overflow together, and none by itself.
                return "gradient", row if bad(np.array([row])) else None
        if self.has_prior and not np.isfinite(self.prior_gradient(z)).all():
            return "log_prior_gradient", None
        return None, None

    def around(self, points):
        """Yield points, and those near them that differences are taken between."""
        for z in points:
            yield z
            for axis in np.diag(self.step * np.maximum(1.0, np.abs(z))):
                yield z + axis
                yield z - axis

    def gradient(self, z, batch=None):
        """Return its gradient (d,), or what a batch of rows says of it."""
        total = self._sum("gradient", batch, z)
        return total + self.prior_gradient(z) if self.has_prior else total

    def hessian_times(self, z, v, batch=None):
        """Return its Hessian times a vector (d,)."""
        if not self.has("hessian_vector_product"):
            return self.difference(lambda at: self.gradient(at, batch), z, v)
        total = self._sum("hessian_vector_product", batch, z, v)
        return total + self._prior_times(z, v) if self.has_prior else total

    def hessian_diagonal(self, z, batch=None):
        """Return the diagonal of its Hessian (d,)."""
        if self.has("hessian_diagonal"):
            total = self._sum("hessian_diagonal", batch, z)
        elif self.has("hessian"):
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
        if not self.has("hessian"):
            total = np.stack([self.hessian_times(z, axis) for axis in axes])
        else:
            total = self._sum("hessian", None, z)
            if self.has_prior:
                total += [self._prior_times(z, v) for v in axes]
        return 0.5 * (total + total.T)

    def _prior_times(self, z, v):
        """Return the Hessian of the log prior times a vector."""
        if self.prior is not None:
            return -self.prior.precision_times(v)
        return self.difference(self.prior_gradient, z, v)

    def prior_gradient(self, z):
        """Return the gradient of the log prior."""
        if self.prior is not None:
            return self.prior.precision_times(self.prior.mean - z)
        return self.units * self.ask(
            "log_prior_gradient", (self.n_dim,), self.units * z
        )

    def log_prior(self, z):
        """Return the model's own log prior."""
        return self.ask("log_prior", (), self.units * z) + self._volume

    def _sum(self, name, batch, *vectors):
        """Sum a derivative over all rows, or scale what it is of a batch.

        A model says what rows come to together: those of one weight are asked for at
        once.
        """
        rows, factor, support = batch or DensityBatch(self.rows, 1.0)
        self.n_evaluated += rows.size
        vectors = [self.units[support] * vector for vector in vectors]
        if support is not ALL:
            for whole, vector in zip(self._whole, vectors, strict=False):
                whole[support] = vector
            vectors = self._whole[: len(vectors)]
        found = []
        for number, (weight, some) in enumerate(self._groups(rows)):
            known = support if some.size == rows.size else ALL
            key = number if batch is None else None
            part = self._derivative(name, vectors, some, support, known, key)
            found.append(part if weight is None else weight * part)
        return factor * reduce(np.add, found)

    def _groups(self, rows):
        """Yield weights (None without) and the rows that have them, some at a time."""
        for part in parts(rows):
            if self.weight is None:
                yield None, part
                continue
            weights = self.weight[part]
            for weight in np.unique(weights):
                yield weight, part[weights == weight]

    def mean(self, name, *arguments):
        """Return a derivative's mean over rows, the last argument, as they are."""
        *vectors, rows = arguments
        vectors = [self.units * vector for vector in vectors]
        self.n_evaluated += rows.size
        return self._derivative(name, vectors, rows) / rows.size

    def difference(self, function, z, v, here=None):
        """Return the derivative of a function along v, by central differences.

        No parameter moves by more than a share of one, or of what it is.

        here: what the function is at z, for a difference of one side, which takes one
        evaluation and is right to a share of `step`.
        """
        largest = np.max(np.abs(v) / np.maximum(1.0, np.abs(z)), initial=0.0)
        if largest == 0.0:
            return np.zeros(v.size)
        step = self.step / largest
        if here is not None:
            return (function(z + step * v) - here) / step
        ahead, behind = function(z + step * v), function(z - step * v)
        return (ahead - behind) / (2.0 * step)

    #: Length of differences; more where the model is of single precision, and less
    #: where that is found to be too long.
    step = np.finfo(np.float64).eps ** (1.0 / 3.0)

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
            self._whole[0] = self.units * z

    def _derivative(self, name, vectors, rows, support=ALL, known=ALL, key=None):
        """Return a derivative of the rows' sum by the parameters of a support.

        Vectors are in the model's units, the derivative is by z.

        known: the support of these rows, if it is; key: under which it is kept.
        """
        shape = (self.n_dim,) * (2 if name == "hessian" else 1)
        found = as_numbers(name, self.model, *vectors, rows)
        if found.shape == shape or not self.has_support or name == "hessian":
            found = self._checked(name, found, shape, rows, support=support)
            return _by_units(name, found, self.units[support])
        if known is ALL:
            known = self._supports.get(key)
        if known is None:
            known = self.support(rows)
            if key is not None:
                self._supports[key] = known
        found = self._checked(name, found, known.shape, rows, shape)
        found = _by_units(name, found, self.units[known])
        if known is support:
            return found
        out = np.zeros(self.n_dim if support is ALL else support.size)
        out[known if support is ALL else np.searchsorted(support, known)] = found
        return out

    def ask(self, name, shape, *arguments):
        """Call a method; return what it says as an array of a shape, or raise."""
        rows = None if name.startswith("log_prior") else arguments[-1]
        found = as_numbers(name, self.model, *arguments)
        return self._checked(name, found, shape, rows)

    def _checked(self, name, array, shape, rows, other=(), support=ALL):
        """Return what a method says in double precision, or raise for its shape."""
        if array.shape != shape:
            wanted = f"an array of shape {shape}" if shape else "one number"
            if other:
                wanted = f"an array of shape {other} or, of the support, {shape}"
            raise ValueError(
                f"{name} of {type(self.model).__name__} must return {wanted}, got "
                f"shape {array.shape}{for_rows(rows)}."
            )
        if support is not ALL:
            array = array[support] if array.ndim == 1 else array[support][:, support]
        if array.dtype == np.float32:
            self.step = float(np.finfo(np.float32).eps) ** (1.0 / 3.0)
        return array.astype(np.float64)


def parts(rows):
    """Yield rows, as many at a time as a model is given."""
    return (rows[start : start + ROWS] for start in range(0, rows.size, ROWS))


def as_numbers(name, model, *arguments):
    """Call a method of a model; return an array of real numbers, or raise."""
    out = getattr(model, name)(*arguments)
    try:
        array = np.asarray(out)
        numbers = array.dtype.kind in "iuf"
    except ValueError:  # ragged
        numbers = False
    if not numbers:
        raise TypeError(
            f"{name} of {type(model).__name__} must return real numbers, got "
            f"{type(out).__name__}."
        )
    return array


def for_rows(rows):
    """Say how many rows a method was asked for, if it was for rows."""
    return "" if rows is None else f" for {rows.size} rows, from row {int(rows[0])} on"


def find_bad(bad, numbers):
    """Return the one for which `bad` is true, as it is for all of them."""
    while numbers.size > 1:
        half = numbers[: numbers.size // 2]
        numbers = half if bad(half) else numbers[numbers.size // 2 :]
    return int(numbers[0])


def _by_units(name, derivative, units):
    """Return a derivative by parameters as that by these over their units."""
    if name == "hessian":
        return units[:, None] * derivative * units
    return (units**2 if name == "hessian_diagonal" else units) * derivative


def _diagonal(times, d):
    """Return the diagonal (d,) of a matrix that vectors can be multiplied with."""
    out, axis = np.empty(d), np.zeros(d)
    for j in range(d):
        axis[j] = 1.0
        out[j] = times(axis)[j]
        axis[j] = 0.0
    return out
