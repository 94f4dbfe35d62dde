r"""The log density of a user's own model: checked, and with what is missing derived.

With N rows the density of the parameters z is, up to a constant,

.. math:: \ell(z) = \sum_n \log p(x_n | z) + \log p(z),

where the prior is left out if it is Gaussian, as it is then known in closed form. A
batch B estimates it by :math:`N / |B|` times its rows and all of the prior.
"""

from typing import NamedTuple

import numpy as np

__all__ = ["Batch", "Target"]

# Rows that the model is given at once.
ROWS = 16_384
# Parameters up to which the Hessian is worth differences of gradients at every pass;
# and up to which it is formed, where the model has it.
FEW_PARAMETERS, MANY_PARAMETERS = 32, 1000
# Rows on which derivatives are compared with differences, and the relative error that
# is more than what differences make.
COMPARED, WRONG = 1024, 1e-2


class Batch(NamedTuple):
    """Rows in place of all rows.

    Attributes
    ----------
    rows : ndarray of int
    factor : float
        What their sum is multiplied by.
    """

    rows: np.ndarray
    factor: float


class Target:
    """A model's log density on some of its rows.

    It is a source of data with one block, for solvers.

    Parameters
    ----------
    model : object
        See ``_protocol.py``.
    rows : ndarray of int
        Numbers of the rows of the fit.
    """

    total_weight = 1.0

    def __init__(self, model, rows):
        self.model = model
        self.rows = rows
        self.n_dim = int(model.n_parameters)
        self.n_evaluated = 0
        self.has_prior = self._method("log_prior") is not None
        few, whole = self.n_dim <= FEW_PARAMETERS, self._method("hessian") is not None
        self.knows_hessian = few or (whole and self.n_dim <= MANY_PARAMETERS)
        known = self._method("hessian_diagonal") is not None
        self.knows_diagonal = few or whole or known

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
        parts = [
            self._array("log_likelihood", (part.size,), z, part)
            for part in _parts(rows)
        ]
        self.n_evaluated += rows.size
        return np.concatenate(parts)

    def log_density(self, z):
        """Return the log density of parameters."""
        total = float(self.each(z, self.rows).sum())
        if self.has_prior:
            total += float(self._array("log_prior", (), z))
        return total

    def gradient(self, z, batch=None):
        """Return its gradient (d,), or what a batch of rows says of it."""
        total = self._sum("gradient", (self.n_dim,), z, batch)
        return total + self._prior_gradient(z) if self.has_prior else total

    def hessian_times(self, z, v, batch=None):
        """Return its Hessian times a vector (d,)."""
        if self._method("hessian_vector_product") is None:
            return self._difference(lambda at: self.gradient(at, batch), z, v)
        total = self._sum("hessian_vector_product", v.shape, z, batch, v)
        if self.has_prior:
            total += self._difference(self._prior_gradient, z, v)
        return total

    def hessian_diagonal(self, z, batch=None):
        """Return the diagonal of its Hessian (d,)."""
        axes = np.eye(self.n_dim)
        if self._method("hessian_diagonal") is not None:
            total = self._sum("hessian_diagonal", z.shape, z, batch)
        elif self._method("hessian") is not None:
            total = self._sum("hessian", axes.shape, z, batch).diagonal().copy()
        else:
            columns = [self.hessian_times(z, axis, batch) for axis in axes]
            return np.stack(columns).diagonal().copy()
        if self.has_prior:
            prior = [self._difference(self._prior_gradient, z, axis) for axis in axes]
            total += np.stack(prior).diagonal()
        return total

    def hessian(self, z):
        """Return its Hessian (d, d)."""
        axes = np.eye(self.n_dim)
        if self._method("hessian") is None:
            total = np.stack([self.hessian_times(z, axis) for axis in axes])
        else:
            total = self._sum("hessian", axes.shape, z, None)
            if self.has_prior:
                total += [self._difference(self._prior_gradient, z, v) for v in axes]
        return 0.5 * (total + total.T)

    def _prior_gradient(self, z):
        return self._array("log_prior_gradient", (self.n_dim,), z)

    def _sum(self, name, shape, z, batch, *more):
        """Sum a method over chunks of all rows, or scale what it says of a batch."""
        if batch is not None:
            self.n_evaluated += batch.rows.size
            return batch.factor * self._array(name, shape, z, *more, batch.rows)
        total = np.zeros(shape)
        for part in _parts(self.rows):
            total += self._array(name, shape, z, *more, part)
        self.n_evaluated += self.rows.size
        return total

    def _difference(self, function, z, v):
        """Return the derivative of a function along v, by central differences."""
        largest = np.abs(v).max(initial=0.0)
        if largest == 0.0:
            return np.zeros(self.n_dim)
        step = self._step * max(1.0, np.abs(z).max()) / largest
        ahead, behind = function(z + step * v), function(z - step * v)
        return (ahead - behind) / (2.0 * step)

    _step = np.finfo(np.float64).eps ** (1.0 / 3.0)

    def _array(self, name, shape, *arguments):
        """Call a method; return what it says as an array of a shape, or raise."""
        out = getattr(self.model, name)(*arguments)
        try:
            array = np.asarray(out)
            numbers = np.issubdtype(array.dtype, np.number)
        except ValueError:  # ragged
            numbers = False
        kind = type(self.model).__name__
        if not numbers or np.iscomplexobj(array):
            raise TypeError(
                f"{name} of {kind} must return real numbers, got {type(out).__name__}."
            )
        if array.shape != shape:
            wanted = f"an array of shape {shape}" if shape else "one number"
            raise ValueError(
                f"{name} of {kind} must return {wanted}, got shape {array.shape}"
                f"{_for_rows(name, arguments)}."
            )
        if array.dtype == np.float32:
            self._step = float(np.finfo(np.float32).eps) ** (1.0 / 3.0)
        return array.astype(np.float64)

    # What is wrong with a model

    def curvature_methods(self, whole):
        """Return which second derivatives of the model's own a fit asks for.

        Parameters
        ----------
        whole : bool
            It is the Hessian, rather than products with it and its diagonal.
        """
        product, diagonal, matrix = (
            name if self._method(name) is not None else None
            for name in ("hessian_vector_product", "hessian_diagonal", "hessian")
        )
        names = (matrix or product,) if whole else (product, diagonal or matrix)
        return [name for name in names if name]

    def check(self, z, curvatures):
        """Compare values, derivatives and some second derivatives at a point.

        Raises
        ------
        ValueError
            For numbers that are not finite, shapes that do not fit, and derivatives
            that are not those of the log-likelihood, with the method and the row.
        TypeError
            For what is no array of numbers.
        """
        z = z.copy()
        z.setflags(write=False)
        slope = "gradient", z.shape, z
        self._check_rows("log_likelihood", z, lambda rows: self.each(z, rows))
        self._check_rows("gradient", z, lambda rows: self._mean(*slope, rows))
        if self.has_prior:
            for name in ("log_prior", "log_prior_gradient"):
                shape = () if name == "log_prior" else z.shape
                self._check_finite(name, self._array(name, shape, z))
        some = self.rows[:: -(-self.rows.size // COMPARED)]
        v = np.random.default_rng(0).standard_normal(z.size)
        self._compare(
            "gradient",
            "log_likelihood",
            some,
            lambda rows: self._mean(*slope, rows) @ v,
            lambda rows: self._difference(lambda at: self.each(at, rows).mean(), z, v),
        )
        if self.has_prior:
            self._compare(
                "log_prior_gradient",
                "log_prior",
                None,
                lambda _: self._prior_gradient(z) @ v,
                lambda _: self._difference(
                    lambda at: self._array("log_prior", (), at), z, v
                ),
            )
        self._compare_curvature(z, v, some, curvatures)

    def _mean(self, name, shape, z, *more):
        """Return a method's mean over rows, the last argument."""
        *vectors, rows = more
        return self._sum(name, shape, z, Batch(rows, 1.0 / rows.size), *vectors)

    def _compare_curvature(self, z, v, some, curvatures):
        """Compare second derivatives with differences of gradients."""
        axis = np.zeros(z.size)
        axis[int(np.abs(v).argmax())] = 1.0

        def change(vector, rows):
            return self._difference(
                lambda at: self._mean("gradient", z.shape, at, rows), z, vector
            )

        def compare(name, found, expected):
            if name in curvatures:
                self._compare(name, "gradient", some, found, expected)

        compare(
            "hessian_vector_product",
            lambda rows: self._mean("hessian_vector_product", z.shape, z, v, rows),
            lambda rows: change(v, rows),
        )
        compare(
            "hessian_diagonal",
            lambda rows: self._mean("hessian_diagonal", z.shape, z, rows) @ axis,
            lambda rows: change(axis, rows) @ axis,
        )
        compare(
            "hessian",
            lambda rows: self._mean("hessian", 2 * z.shape, z, rows) @ v,
            lambda rows: change(v, rows),
        )

    def _compare(self, name, of, rows, found, expected):
        """Raise where a derivative is not that of a function, with the row."""

        def differ(some):
            a, b = found(some), expected(some)
            scale = max(np.abs(a).max(), np.abs(b).max())
            # Differences lose digits where the function is far larger than its change.
            slack = 1e-4 if self._step < 1e-4 else 1e-2
            return not np.abs(a - b).max() <= WRONG * scale + slack

        if not differ(rows):
            return
        where = "" if rows is None else f", as in row {_find(differ, rows)}"
        raise ValueError(
            f"{name} of {type(self.model).__name__} is not the derivative of {of}: "
            f"they differ by more than {WRONG:.0%} from what differences of {of} "
            f"say{where}."
        )

    def _check_rows(self, name, z, evaluate):
        """Raise where a method is not finite, and say for which row."""

        def bad(rows):
            return not np.isfinite(evaluate(rows)).all()

        for part in _parts(self.rows):
            if bad(part):
                self._not_finite(name, f" in row {_find(bad, part)}")

    def _check_finite(self, name, value):
        if not np.isfinite(value).all():
            self._not_finite(name, "")

    def _not_finite(self, name, where):
        raise ValueError(
            f"{name} of {type(self.model).__name__} is not finite{where} at the "
            "parameters that the fit starts from: give the model other `initial` ones, "
            "or look at that row."
        )


def _parts(rows):
    return (rows[start : start + ROWS] for start in range(0, rows.size, ROWS))


def _find(bad, rows):
    """Return the number of a row for which `bad` is true, as it is for all of them."""
    while rows.size > 1:
        half = rows[: rows.size // 2]
        rows = half if bad(half) else rows[rows.size // 2 :]
    return int(rows[0])


def _for_rows(name, arguments):
    """Say how many rows a method was asked for."""
    if name.startswith("log_prior"):
        return ""
    return f" for {arguments[-1].size} rows, from row {int(arguments[-1][0])} on"
